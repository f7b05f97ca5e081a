"""What a search found, each hit begun, and what a difference changed: places first, then as many words as fit."""

from __future__ import annotations

import re

from loomctl.kit.records import NamedTuple
from loomctl.reduction.lists import cost, ranges, within
from loomctl.reduction.tokens import estimate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HIT = re.compile(
    r"(?:(?P<file>(?!\d{4}-\d\d-\d\d)(?:(?=[^\sA-Za-z./:]{0,200}[A-Za-z./])[^\s:]{1,400}|[^\s:][^:]{0,200}\.\w{1,8})):)?"
    r"(?P<line>\d{1,7}):(?P<text>.*)"
)
_BESIDE = re.compile(r"(?:[^\s:][^:]{0,200}-)?\d{1,7}-|--\Z|Binary file ")  # a line around a hit
_WIDE, _NARROW = 160, 70  # characters of a hit's line
_HUNK = re.compile(r"@@+ -\d+(?:,(?P<old>\d+))? \+(?P<line>\d+)(?:,(?P<new>\d+))? @@+(?P<of>.*)")
_FEW = 4  # changed lines of a hunk that come before more of others


class Hit(NamedTuple):
    """A line that a search found."""

    file: str
    line: str
    text: str


def hits_of(text: str) -> list[Hit]:
    """Give the hits of a search with their line numbers; none where most lines are no hits."""
    lines = [line for line in text.split("\n") if line.strip() and not _BESIDE.match(line)]
    matches = [match for match in map(_HIT.match, lines) if match]
    hits = [Hit(match["file"] or "", match["line"], match["text"].strip()) for match in matches]
    return hits if 2 * len(hits) > len(lines) else []


def hit_lines(found: list[Hit], room: float) -> list[str]:
    """Give each hit's line begun while there is room, of each file one first, and of the others the numbers."""
    order = _by_turns(found)
    spare = min(0.7 * room, cost(_numbers(found), room))
    wide = _NARROW if cost((_told(hit, _WIDE) for hit in found), room) > room else _WIDE
    room -= spare if wide == _NARROW else 0
    chosen: set[int] = set()
    for at in order:
        room -= estimate(_told(found[at], wide)) + 1
        if room < 0:
            break
        chosen.add(at)
    told = [_told(hit, wide) for at, hit in enumerate(found) if at in chosen]
    left = [hit for at, hit in enumerate(found) if at not in chosen]
    return told + list(_fitting(_numbers(left), spare + max(0, room)))


def _fitting(lines: list[str], room: float) -> Iterator[str]:
    """Give lines while there is room, of the last one as many numbers as fit."""
    for line in lines:
        size = estimate(line) + 1
        if size > room:
            begun = line[: int(len(line) * max(0, room) / size)].rpartition(",")[0]
            yield f"{begun},…" if begun else "…"
            return
        room -= size
        yield line


def _by_turns(found: list[Hit]) -> list[int]:
    counts: dict[str, int] = {}
    turns: list[tuple[int, int]] = []
    for at, hit in enumerate(found):
        counts[hit.file] = counts.get(hit.file, 0) + 1
        turns.append((counts[hit.file], at))
    return [at for _, at in sorted(turns)]


def _told(hit: Hit, wide: int) -> str:
    text = hit.text if len(hit.text) <= wide else f"{hit.text[:wide]}…"
    return f"{hit.file}:{hit.line}:{text}" if hit.file else f"{hit.line}:{text}"


def _numbers(found: Iterable[Hit]) -> list[str]:
    """Give files with the numbers of their lines: `src/cart.py:3,9,77`."""
    lines: dict[str, list[str]] = {}
    for hit in found:
        lines.setdefault(hit.file, []).append(hit.line)
    told: list[str] = []
    before = ""
    for file, numbers in lines.items():
        folder, slash, name = file.rpartition("/")
        told.append(f"{name if slash and folder == before else file}:{','.join(ranges(numbers))}".lstrip(":"))
        before = folder
    return told


class _File(NamedTuple):
    """A file of a difference. hunks: where each begins, and the lines that it takes out and puts in."""

    name: str
    counts: dict[str, int]
    hunks: list[tuple[str, list[str]]]


def changes(text: str, room: float) -> list[str]:
    """Give the files of a difference with what each lost and gained and where, then changed lines, by turns."""
    files = _files(text)
    heads = [_head(file) for file in files]
    fitting = list(within(heads, room))
    room -= sum(estimate(head) + 1 for head in fitting)
    turns = [
        (turn // _FEW, number, place, turn, f"  {line}"[:_WIDE])
        for number, file in enumerate(files[: len(fitting)])
        for place, (_, lines) in enumerate(file.hunks)
        for turn, line in enumerate(lines)
        if any(map(str.isalnum, line))
    ]
    chosen: list[tuple[int, int, int, str]] = []
    for _, number, place, turn, line in sorted(turns):
        room -= estimate(line) + 1
        if room < 0:
            break
        chosen.append((number, place, turn, line))
    told: list[str] = []
    for number, head in enumerate(fitting):
        told.append(head)
        before = -1
        for _, place, _, line in sorted(one for one in chosen if one[0] == number):
            if place != before and len(files[number].hunks) > 1:
                told.append(f" @{files[number].hunks[place][0]}")
            before = place
            told.append(line)
    return [*told, f"[{len(heads) - len(fitting)} more files]"] if len(fitting) < len(heads) else told


def _files(text: str) -> list[_File]:
    files: list[_File] = []
    old = new = 0  # lines that the hunk has still to come
    lines = text.split("\n")
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        hunk = _HUNK.match(line)
        is_pair = old <= 0 and new <= 0 and line.startswith("--- ") and below.startswith("+++ ")
        if line.startswith("diff --") or (is_pair and (not files or files[-1].hunks)):
            old = new = 0
            name = (line.partition(" b/")[2] or line.split(" ", 2)[-1]) if not is_pair else below[4:].split("\t")[0]
            files.append(_File(name, {"+": 0, "-": 0}, []))
        elif hunk and files:
            old, new = (int(hunk[side] or 1) for side in ("old", "new"))
            files[-1].hunks.append((hunk["line"] + hunk["of"][:60].rstrip(), []))
        elif files and files[-1].hunks:
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
            if line[:1] in ("+", "-"):
                files[-1].counts[line[0]] += 1
                files[-1].hunks[-1][1].append(line)
    return files


def _head(file: _File) -> str:
    places = [place.partition(" ")[0] for place, _ in file.hunks]
    at = f" @{','.join(places[:8])}{',…' if len(places) > 8 else ''}" if places else ""
    return f"{file.name} +{file.counts['+']} -{file.counts['-']}{at}"
