"""What is wrong with a file, as data: every finding names its JSON path, says what is the matter and what to do."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit.errors import EXIT_INVALID, LoomError, quoted
from loomctl.kit.text.secrets import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

ERROR, WARNING, NOTE = "error", "warning", "note"
POSSIBLE_TYPO = "POSSIBLE_TYPO"
_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_SHOWN = 12


class Problem(NamedTuple):
    """One finding.

    severity: `error` (refused), `warning`, or `note` (nothing needs to be done); code: a stable upper-case word;
    where: a JSON path (`$.phases.build.steps[0].kind`) or a line and column, after `file: ` when another file is
    meant; hint: what can be done, or empty.
    """

    severity: str
    code: str
    where: str
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        """Give the finding as `--json` prints it."""
        return self._asdict()


def error(code: str, where: str, message: str, hint: str = "") -> Problem:
    """Make a finding that stops `run`."""
    return Problem(ERROR, code, where, message, hint)


def warning(code: str, where: str, message: str, hint: str = "") -> Problem:
    """Make a finding that stops nothing."""
    return Problem(WARNING, code, where, message, hint)


def note(code: str, where: str, message: str, hint: str = "") -> Problem:
    """Make a finding that tells something which changes nothing."""
    return Problem(NOTE, code, where, message, hint)


def weight(problem: Problem) -> int:
    """Order findings: errors first, notes last."""
    return (ERROR, WARNING, NOTE).index(problem.severity)


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Keep what stops `run`."""
    return [problem for problem in problems if problem.severity == ERROR]


def at(where: str, *keys: str | int) -> str:
    """Lengthen a JSON path: `at("$", "phases", "build", 0)` is `$.phases.build[0]`."""
    for key in keys:
        if isinstance(key, int):
            where += f"[{key}]"
        elif _PLAIN_KEY.fullmatch(key):
            where += f".{key}"
        else:
            quoted = shown(key)
            where += f"[{quoted}]"
    return where


def in_file(name: str, problems: Iterable[Problem]) -> list[Problem]:
    """Say of which file the findings speak."""
    return [problem._replace(where=f"{name}: {problem.where}") for problem in problems]


def placed(problems: Iterable[Problem], places: Mapping[str, str]) -> list[Problem]:
    """Say of findings in what a text was turned into where in the text they are.

    places: JSON paths with their lines; a longer path is where the nearest of its beginnings is.
    """
    return [one._replace(where=_place(one.where, places)) for one in problems] if places else list(problems)


def _place(where: str, places: Mapping[str, str]) -> str:
    path = where
    while path and path not in places:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return places.get(path, where)


def shown(value: object, limit: int = 60) -> str:
    """Quote a value from a file for a message: one line, escaped, secrets masked, `limit` characters at most."""
    text = repr(mask(value)[0]) if isinstance(value, str) else kind_of(value)  # before it is cut
    return text if len(text) <= limit else text[: limit - 2] + "…" + text[-1]


def kind_of(value: object) -> str:
    """Name a JSON value's kind in words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    names: dict[type, str] = {str: "text", list: "a list", dict: "an object", int: "a number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """Give the known word that somebody probably meant, or None."""
    found = difflib.get_close_matches(word[:80], list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def choices(word: object, known: Sequence[str]) -> str:
    """Make the hint for a word that is none of the known ones."""
    if not known:
        return "there are none"
    meant = nearest(word, known) if isinstance(word, str) else None
    listed = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    return f"did you mean {meant}? known: {listed}" if meant else f"known: {listed}"


def refusal(problems: Sequence[Problem], *, what: str, where: str, code: str = "INVALID_WORKFLOW") -> LoomError | None:
    """Make the one error that says all that stops `run`, and the slips that may be why, or None if nothing does.

    Its code is the findings' own where they agree (`NOT_SUPPORTED`, `EXTENDS_CYCLE`, …), else `code`.
    """
    found = errors(problems)
    if not found:
        return None
    codes = {problem.code for problem in found}
    said = [*found, *(problem for problem in problems if problem.code == POSSIBLE_TYPO)]
    lines = [
        f"{problem.where}: {problem.message}" + (f"; {problem.hint}" if problem.hint else "")
        for problem in said[:_SHOWN]
    ]
    if len(said) > _SHOWN:
        lines.append(f"and {len(said) - _SHOWN} more: loomctl check {quoted(where)}")
    return LoomError(
        codes.pop() if len(codes) == 1 else code,
        what,
        where=where,
        why="\n       ".join(lines),
        hint=f"loomctl check {quoted(where)}",
        exit_code=EXIT_INVALID,
    )


# ---- One JSON object, read field by field: wrong types become problems, and what nobody took survives as extra.

# One path component on every file system (D10); the schema's pattern says the same.
ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_ABSENT: Any = object()


class Fields:
    """Getters over one object. Each gives None (or an empty tuple) for what is absent or was reported as wrong."""

    def __init__(self, raw: Mapping[str, Any], where: str, problems: list[Problem]) -> None:
        self._raw, self.problems = raw, problems
        self._taken: set[str] = set()
        self.where = where

    @classmethod
    def opened(cls, raw: object, where: str, problems: list[Problem]) -> Fields | None:
        """Begin to read `raw`, or report that it is no object."""
        if not isinstance(raw, dict):
            problems.append(error("WRONG_TYPE", where, f"expected an object, got {kind_of(raw)}"))
            return None
        return cls(raw, where, problems)

    def has(self, key: str) -> bool:
        """Tell whether the key is there, whatever its value."""
        return key in self._raw

    def raw(self, key: str) -> Any:
        """Take a value as it is; None if absent."""
        self._taken.add(key)
        return self._raw.get(key)

    def path(self, *keys: str | int) -> str:
        """Give the JSON path of something in this object."""
        return at(self.where, *keys)

    def fail(self, code: str, key: str, message: str, hint: str = "") -> None:
        """Report an error at one key, or at the object itself if that is empty."""
        self.problems.append(error(code, self.path(key) if key else self.where, message, hint))

    def warn(self, code: str, key: str, message: str, hint: str = "") -> None:
        """Report a warning at one key."""
        self.problems.append(warning(code, self.path(key), message, hint))

    def seconds(self, key: str, *, most: int) -> float | None:
        """Take a number of seconds above 0 and at most `most`."""
        if not self.has(key):
            return None
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail("WRONG_TYPE", key, f"{key}: expected seconds, got {kind_of(value)}", f'"{key}": 600')
            return None
        if not 0 < value <= most:
            self.fail("OUT_OF_RANGE", key, f"{key} is in seconds, above 0 and at most {most:,}")
            return None
        return float(value)

    def text(self, key: str, *, required: bool = False, blank: bool = False) -> str | None:
        """Take text; an empty one is refused unless `blank`."""
        value = self._take(key, required=required)
        if value is _ABSENT:
            return None
        if not isinstance(value, str):
            self._wrong(key, "text", value)
            return None
        if not value.strip() and not blank:
            self.fail("EMPTY_TEXT", key, f"{key} is empty", "write it, or leave the key out")
            return None
        return value

    def flag(self, key: str, *, required: bool = False) -> bool | None:
        """Take true or false."""
        value = self._take(key, required=required)
        if value is _ABSENT or isinstance(value, bool):
            return None if value is _ABSENT else value
        self._wrong(key, "true or false", value)
        return None

    def whole(self, key: str) -> int | None:
        """Take a whole number, zero or more."""
        value = self._take(key, required=False)
        if value is _ABSENT:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            self._wrong(key, "a whole number", value)
            return None
        if value < 0:
            self.fail("OUT_OF_RANGE", key, f"{key} is below zero")
            return None
        return value

    def choice(self, key: str, known: Sequence[str], *, code: str = "UNKNOWN_VALUE") -> str | None:
        """Take one of the known words."""
        value = self._take(key, required=False)
        if value is _ABSENT:
            return None
        if not isinstance(value, str):
            self._wrong(key, "text", value)
            return None
        if value not in known:
            self.fail(code, key, f"unknown {key} {shown(value)}", choices(value, known))
            return None
        return value

    def texts(
        self, key: str, *, required: bool = False, check: Callable[[str, str], Problem | None] | None = None
    ) -> tuple[str, ...] | None:
        """Take a list of texts, none of them empty; `check` gets each with its JSON path and may object."""
        entries = self.items(key, required=required)
        if entries is None:
            return None
        found: list[str] = []
        for where, entry in entries:
            if not isinstance(entry, str):
                self.problems.append(error("WRONG_TYPE", where, f"expected text, got {kind_of(entry)}"))
            elif not entry.strip():
                self.problems.append(error("EMPTY_TEXT", where, "an empty entry", "leave it out"))
            else:
                objection = check(where, entry) if check else None
                if objection is not None:
                    self.problems.append(objection)
                found.append(entry)
        return tuple(found)

    def items(self, key: str, *, required: bool = False) -> list[tuple[str, Any]] | None:
        """Take a list, each entry with its JSON path."""
        value = self._take(key, required=required)
        if value is _ABSENT:
            return None
        if not isinstance(value, list):
            self._wrong(key, "a list", value)
            return None
        return [(self.path(key, index), entry) for index, entry in enumerate(value)]

    def inner(self, key: str) -> Fields | None:
        """Take an object to read; None if it is absent or none."""
        return Fields.opened(self.raw(key), self.path(key), self.problems) if self.has(key) else None

    def each(self, key: str, *, required: bool = False) -> list[Fields] | None:
        """Take a list of objects to read; what is none is reported."""
        entries = self.items(key, required=required)
        if entries is None:
            return None
        opened = (Fields.opened(raw, where, self.problems) for where, raw in entries)
        return [one for one in opened if one is not None]

    def entries(self, key: str) -> list[tuple[str, str, Any]] | None:
        """Take an object as (name, JSON path, value) in its order."""
        value = self._take(key, required=False)
        if value is _ABSENT:
            return None
        if not isinstance(value, dict):
            self._wrong(key, "an object", value)
            return None
        return [(name, self.path(key, name), entry) for name, entry in value.items()]

    def rest(self, *, later: Sequence[str] = (), inert: Sequence[str] = ()) -> dict[str, Any]:
        """Give what no getter took, kept as it is.

        later: keys that are not supported yet, an error; inert: keys that are kept and change nothing, a warning if
        they say something. Any other key that looks like a slip of the pen is named.
        """
        kept = {key: self.raw(key) for key in (*later, *inert) if self.has(key)}
        for key, value in kept.items():
            if key in later:
                self.fail("NOT_SUPPORTED", key, f"{key} is not supported yet", f"leave {key} out for now")
            elif any(value.values()) if isinstance(value, dict) else value:
                self.warn("IGNORED_FIELD", key, f"kept, but Loom does not act on {key}")
        known = sorted(self._taken)
        extra = {key: value for key, value in self._raw.items() if key not in self._taken}
        for key in extra:
            meant = nearest(key.lower(), [name for name in known if name not in self._raw], cutoff=0.82)
            if meant:
                hint = f"write {meant} if you meant that; otherwise leave it as it is"
                self.warn(POSSIBLE_TYPO, key, f"unknown key {shown(key)}; did you mean {meant}?", hint)
        return {**kept, **extra}

    def _take(self, key: str, *, required: bool) -> Any:
        self._taken.add(key)
        if key in self._raw:
            return self._raw[key]
        if required:
            self.fail("MISSING_FIELD", key, f"{key} is missing")
        return _ABSENT

    def _wrong(self, key: str, expected: str, value: object) -> None:
        hint = "YAML reads yes, no, on, off as true and false: put quotes around it" if isinstance(value, bool) else ""
        if expected != "text":
            hint = "leave the key out" if value is None else ""
        self.fail("WRONG_TYPE", key, f"{key}: expected {expected}, got {kind_of(value)}", hint)


def objects(holder: object, key: str, where: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Go through the objects of a list, each with its JSON path; what has another shape is passed over."""
    listed = holder.get(key) if isinstance(holder, dict) else None
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, dict):
            yield at(where, key, index), entry


def is_id(text: str) -> bool:
    """Tell whether text may name a phase, step or artifact."""
    return ID.fullmatch(text) is not None


ID_RULE = "letters, digits, '_', '-' and '.', beginning with a letter, digit or '_', no '..', 80 characters at most"


def only(keys: Sequence[str], values: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Build an object for writing: the known keys that have a value, in order, then the extra ones."""
    known = {key: values[key] for key in keys if values[key] is not None}
    return {**known, **{key: value for key, value in extra.items() if key not in known}}
