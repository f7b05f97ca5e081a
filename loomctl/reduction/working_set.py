"""The files and names that the next call is likely to use, out of the records of tool steps: a table of them (D50).

What was named lately counts most: a step's words count half as much as those of the step _HALF steps after it, files
that it was called for half as much after _HALF_OF_FILES. What several steps name adds up, so the working set stays.
"""

from __future__ import annotations

from loomctl.kit.text.fences import visible
from loomctl.reduction.live import without_digits
from loomctl.reduction.tool_steps import EDIT, WRITE, rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from loomctl.reduction.tool_steps import ToolStep

LOOKED_AT = 60  # of the newest steps
_LINES, _WORDS = 40, 240  # of a step's record that are looked at
_HALF, _HALF_OF_FILES = 1.5, 6.0
_SHORTEST, _LONGEST = 4, 160  # characters of a word
# What counts how much: a file that was written, an argument, what a result named.
_WRITTEN, _GIVEN, _NAMED = 4.0, 2.0, 1.0
_FAILED = 1.5  # times that
_AGAIN = 0.3  # of what an older step adds to what a newer one named
_BARE = 0.2  # of a file without its folder, which may be an attribute, and of one below these folders
_OTHERS = ("/site-packages/", "/node_modules/", "/.venv/", "/usr/lib/")
_FADES = 30  # the word at this place of a record counts half of its first
_PATHS, _NAMES, _ADDRESSES = "in: ", "names: ", "at: "  # before what a record lists
_PLACES = ("path", "file_path", "notebook_path", "paths", "include")
_ENDS = ".,:;!?'\"`()[]<>=*|&$#%^~\\"
_APART = dict.fromkeys(map(ord, "\"'`()[]<>=,;|&*!?#$%^\\\t"), " ")
_FOLDER = 3  # the fewest paths of a folder that are told as one
_HEADS = 8  # tokens of what stands before the lists
_ALIKE = 8
_MOST_IN_ONE = 40  # paths of a folder in one pair of braces

PATH, NAME = range(2)


def words(steps: Sequence[ToolStep]) -> dict[int, list[str]]:
    """Give the paths and the names in the newest steps, the likeliest first; their commands' are told elsewhere."""
    scores: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for age, step in enumerate(reversed(steps[-LOOKED_AT:])):
        counts = 1.0 if step.success else _FAILED
        seen: set[str] = set()
        for place, (kind, word, weight) in enumerate(_of_step(step)):
            if place >= _WORDS:
                break
            if word not in seen and word.strip("drwx-") and _SHORTEST <= len(word) <= _LONGEST:
                seen.add(word)
                half = _HALF if kind == NAME or weight == _NAMED else _HALF_OF_FILES
                score = counts * weight * 0.5 ** (age / half) / (1 + place / _FADES)
                if kind == PATH and ("/" not in word or any(folder in word for folder in _OTHERS)):
                    score *= _BARE
                before = scores[kind].get(word)
                scores[kind][word] = score if before is None else before + _AGAIN * score
    return {kind: sorted(found, key=lambda word: -found[word]) for kind, found in enumerate(scores)}


def _of_step(step: ToolStep) -> Iterable[tuple[int, str, float]]:
    is_written = rule_for(step.tool_name).action in (WRITE, EDIT)
    for key, value in step.minimal_args.items():
        if isinstance(value, str) and key in _PLACES:
            yield PATH, value, _WRITTEN if is_written else _GIVEN
        elif isinstance(value, list) and key in _PLACES:
            yield from ((PATH, path, _WRITTEN if is_written else _GIVEN) for path in value if isinstance(path, str))
        elif isinstance(value, str):
            for kind, word in _told(value[:2000]):
                yield kind, word, _GIVEN
    lines = step.observation.split("\n", _LINES)[1:]
    lists = [line for line in lines if line.startswith((_PATHS, _NAMES, _ADDRESSES))]
    for line in [line for line in lines if line not in lists]:
        for kind, word in _told(line[:2000]):
            yield kind, word, _NAMED
    for line in lists:
        mark, _, told = line[:8000].partition(": ")
        for word in visible(told).split():
            if f"{mark}: " == _NAMES and not _is_version(word):
                yield NAME, word, _NAMED
            elif f"{mark}: " != _NAMES and ("/" in word.strip("/") or _is_file(word)):
                yield PATH, word, _NAMED


def _told(text: str) -> Iterable[tuple[int, str]]:
    """Give the words of a text that are a path or a name of a program's."""
    for raw in visible(text).translate(_APART).split():
        word = raw.strip(_ENDS)
        if "::" in word:  # a test in a file, or a name in a space of names
            word, _, inner = word.partition("::")
            yield from ((NAME, part) for part in inner.split("::") if _is_name(part))
        if "/" in word.strip("/") or ("." in word and _is_file(word)):
            path, colon, at = word.partition(":")
            yield PATH, path if colon and at[:1].isdigit() else word
        else:
            for part in word.replace(".", " ").replace(":", " ").split():
                if _is_name(part):
                    yield NAME, part


def _is_file(word: str) -> bool:
    stem, _, ending = word.partition(":")[0].rpartition(".")
    if word.startswith(("self.", "cls.", "this.")) or stem.count(".") > 1:
        return False
    return stem[-1:].isalnum() and ending.isalpha() and ending.islower() and len(ending) <= 5 and "_" not in ending


def _is_name(word: str) -> bool:
    """Tell a name by its form: `a_b`, `aB`, `AbC`, or a hash."""
    if not word.isascii() or not word.replace("_", "").replace("-", "").isalnum() or len(word) > 60:
        return False
    if "_" in word.strip("_") or (word[:1] == "_" and word.strip("_")):
        return True
    if len(word) > 6 and not word.strip("0123456789abcdef"):
        return not word.isalpha() and not word.isdigit()
    inner = word[1:]
    return inner != inner.lower() and word != word.upper() and word.isalnum() and not word[0].isdigit()


def _is_version(word: str) -> bool:
    """Tell `pytest-8` from `SHOP-8`."""
    name, _, number = word.rpartition("-")
    return number.isdigit() and name.islower()


class Table:
    """Words that are put below a history, as far as it does not say them and there is room.

    cost: what a text adds to a longer one, in tokens.
    """

    def __init__(self, known: str, cost: Callable[[str], float]) -> None:
        self.known = known
        self.paths: list[str] = []
        self.names: list[str] = []
        self._cost = cost

    def fill(self, steps: Sequence[ToolStep], room: float) -> float:
        """Take paths and names by turns, two names for a path, while there is room; gives what room is left."""
        found = {kind: self._new(told) for kind, told in words(steps).items()}
        folders: dict[str, int] = {}
        room -= _HEADS
        while found:
            for kind, taken in ((PATH, self.paths), (NAME, self.names), (NAME, self.names)):
                word = next(found[kind], "") if kind in found else ""
                folder, _, name = word.rpartition("/") if kind == PATH else ("", "", word)
                folders[folder] = folders.get(folder, 0) + 1
                cost = self._cost(f" {word}" if not folder or folders[folder] < _FOLDER else f",{name}")
                if not word or cost > room:
                    found.pop(kind, None)
                else:
                    room -= cost
                    taken.append(word)
        return room

    def _new(self, found: Sequence[str]) -> Iterator[str]:
        """Give the words that are not told yet, of those that differ in numbers alone the first _ALIKE."""
        alike: dict[str, int] = {}
        for word in found:
            if word not in self.known and "…" not in word:
                form = without_digits(word)
                alike[form] = alike.get(form, 0) + 1
                if alike[form] <= _ALIKE:
                    yield word

    def text(self) -> str:
        """Give the table: a line of files, a line of names; "" without any."""
        lines = [f"Files: {' '.join(folded(self.paths))}"] if self.paths else []
        return "\n".join([*lines, *([f"Names: {' '.join(self.names)}"] if self.names else [])])


def folded(paths: Iterable[str]) -> list[str]:
    """Give paths with each folder told once: `src/shop/{cart.py,tax.py}`."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        head, slash, name = path.rpartition("/")
        apart = not name or "{" in path
        folders.setdefault(path if apart else head + slash, []).append("" if apart else name)
    found: list[str] = []
    for folder, names in folders.items():
        if not folder or len(names) < _FOLDER:
            found += [folder + name for name in names]
        else:
            found += [
                f"{folder}{{{','.join(names[at : at + _MOST_IN_ONE])}}}" for at in range(0, len(names), _MOST_IN_ONE)
            ]
    return found
