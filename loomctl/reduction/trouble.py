"""What went wrong, told from the form of an output and not from the tool that made it (D49).

Lines get a kind and a place (`marks.py`), a message and what belongs to it are a unit, the lines of all units get a
rank, the best are chosen while there is room, and what is left is folded into its places.
"""

from __future__ import annotations

from itertools import pairwise

from loomctl.kit.records import NamedTuple
from loomctl.reduction import marks
from loomctl.reduction.lists import cost
from loomctl.reduction.tokens import estimate
from loomctl.reduction.words import ERROR, NOISE, NOTE, PLAIN, WARNING, WEAK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loomctl.reduction.marks import Line

# The ranks of lines, in the order in which they are chosen.
MESSAGE, WARNED, DETAIL, AROUND, HINT, ASIDE = range(6)
_FRAMES = 3  # places of a trace that are told from each of its ends
# Lines of a rank that a message may have, of what failed and of what went well.
_MOST, _MOST_IF_WELL = {DETAIL: 8, AROUND: 8, ASIDE: 4}, {DETAIL: 4, AROUND: 4, ASIDE: 2}
_PARAGRAPHS = 2  # behind a heading or a message that may still belong to it
_ALIKE = 10  # messages of one shape in one file that are told whole; of more only the places
_FOLDED, _FOLDED_MOST = 0.25, 0.5  # of the room for messages: for the places of what is folded
_CHEAPEST = 16  # characters that a token has at most
_PLACES = 60  # places of what is folded that are told
_NEAR, _LONGEST_VALUE = 5, 160  # lines behind a message among which its values are, and characters of one
_OFTEN = 5  # so many lines of one shape without a mark are a tool's progress


class Rooms(NamedTuple):
    """How much may be told, in estimated tokens.

    messages: messages, names of tests, places; others: these and what explains them; hints: words of trouble in prose.
    """

    messages: float
    others: float
    hints: float


class Unit(NamedTuple):
    """A message with what belongs to it.

    kind: of its worst line; trace: it ends with an unindented line; placed: a line of it has a place; indent: that of
    its last line that is no heading, of the first where all are.
    """

    kind: int
    lines: list[Line]
    trace: bool = False
    closed: bool = False
    placed: bool = False
    indent: int = 0


class Ranked(NamedTuple):
    """A line in the order of choice. alike: how many of its shape, in its file, come before it."""

    rank: int
    alike: int
    number: int
    text: str
    line: Line


def trouble(text: str, rooms: Rooms, *, failed: bool = True, unsure: bool = False, is_part: bool = False) -> list[str]:
    """Give the lines that tell of trouble, in their order, the most telling where there is no room for all.

    failed: the tool said that it did; then a place with a message is trouble whatever its words. unsure: nobody
    knows, and an error with a place says that it did. is_part: there is more of the text, so that what is left can only
    be counted to be so much at least.
    """
    lines = list(marks.read(text, failed=failed))
    if unsure and not failed and any(line.kind == ERROR and line.own and not line.frame for line in lines):
        failed, lines = True, list(marks.read(text, failed=True))
    lines = _without_progress(lines)
    ranked = sorted(_ranked(_headed(_units(lines)), failed=failed))
    chosen, left = _chosen(ranked, rooms)
    told = _told(chosen)
    rest = rooms.messages - sum(estimate(line) + 1 for line in told)
    room = max(rooms.messages * _FOLDED, min(rest, rooms.messages * _FOLDED_MOST))
    return told + _folded(left, room, "at least " if is_part else "")


def _without_progress(lines: list[Line]) -> list[Line]:
    """Take what is printed again and again for no trouble: passing tests, files that were compiled.

    What stands indented directly below a message belongs to it, however often it is said.
    """
    counts: dict[str, int] = {}
    for line in lines:
        if _may_be_progress(line):
            counts[line.shape] = counts.get(line.shape, 0) + 1
    often = {shape for shape, count in counts.items() if count >= _OFTEN and shape}
    return [
        line._replace(kind=NOISE)
        if line.shape in often
        and _may_be_progress(line)
        and not (above.owes or (above.kind <= WARNING and line.indent > above.indent))
        else line
        for above, line in zip([*lines[:1], *lines], lines, strict=False)
    ]


def _may_be_progress(line: Line) -> bool:
    return line.kind == PLAIN and not (line.detail or line.heading or line.own or line.value or line.section)


# ---- Units.


def _units(lines: Iterable[Line]) -> Iterator[Unit]:
    """Group lines: a message, a heading or a place begins a unit, and what stands below it belongs to it."""
    unit: Unit | None = None
    blanks = gap = near = 0
    owes = False
    for seen in lines:
        line = seen
        if not line.text:
            blanks, gap = blanks + (not gap), True
            continue
        can = unit is not None and line.kind != NOISE and not (line.frame or line.heading or line.section)
        is_value = can and line.kind > WARNING and (owes or (near > 0 and line.value))
        line = line._replace(value=is_value and len(line.text) <= _LONGEST_VALUE)
        near = _NEAR if line.kind == ERROR else near - 1
        owes = line.owes
        if unit is None or (not is_value and _begins(line, unit, blanks if gap else 0)):
            if unit is not None:
                yield unit
            unit, blanks = None if line.kind == NOISE else _opened(line), 0
        else:
            unit = _joined(unit, line)
        gap = False
    if unit is not None:
        yield unit


def _opened(line: Line) -> Unit:
    return Unit(line.kind, [line], line.trace, placed=bool(line.place), indent=line.indent)


def _joined(unit: Unit, line: Line) -> Unit:
    closes = unit.trace and line.indent <= unit.lines[0].indent and not line.trace
    if closes and line.kind != NOISE:  # an exception, though its name may have no word of trouble in it
        line = line._replace(kind=ERROR)
    unit.lines.append(line)
    kind, trace = min(unit.kind, line.kind), (unit.trace or line.trace) and not closes
    indent = unit.indent if line.heading else line.indent
    return Unit(kind, unit.lines, trace, closes, unit.placed or bool(line.place), indent)


def _begins(line: Line, unit: Unit, paragraphs: int) -> bool:
    """Tell a line that belongs to nothing above it. paragraphs: so many ended since the unit began, if one did."""
    first = unit.lines[0]
    if line.section:
        return True
    is_open = first.heading and unit.kind > WARNING  # a heading still without what it is the heading of
    if line.heading and (paragraphs or is_open or not marks.names_file(line.text)):
        return True
    if line.heading:  # a file, which belongs to the line that it stands indented below
        return line.indent <= unit.indent
    if paragraphs:
        if line.indent > first.indent:
            return line.kind <= WARNING and not first.heading
        if line.kind <= NOTE:
            return not (is_open and paragraphs == 1)
        return paragraphs > (_PARAGRAPHS if line.place or line.detail else 1) or (unit.kind != ERROR and not line.place)
    if unit.trace:
        return False
    if unit.closed:
        return line.indent <= first.indent
    if line.indent > first.indent or line.detail or is_open:
        return False
    if line.trace or line.kind <= WARNING:
        return not first.heading and (unit.kind <= NOTE or not unit.placed)
    return line.kind != NOTE and not line.place and not first.indent and unit.kind > WARNING


def _headed(units: Iterable[Unit]) -> Iterator[Unit]:
    """Tell a heading that nothing belongs to, such as a test's name or a section's, with the first error behind it."""
    heading: list[Line] = []
    sections: dict[str, list[Line]] = {}
    for unit in units:
        first = unit.lines[0]
        mark = _mark(first.text)
        if first.section and unit.kind > WEAK:
            above = sections.get(mark, [])[-1:] if first.text[:1] == ">" else []  # a program, and what it runs
            sections[mark] = [*(one for one in above if one.number == first.number - 1), first]
        elif unit.kind <= WARNING and mark in sections:
            yield Unit(unit.kind, sections.pop(mark))
        if first.heading:
            heading = unit.lines[:1] if unit.kind > WEAK and not any(line.place for line in unit.lines) else []
        elif unit.kind == ERROR and heading:
            yield Unit(ERROR, heading)
            heading = []
        yield unit


def _mark(text: str) -> str:
    """Give what a build that does several things at a time puts before the lines of one: `#9`."""
    mark = text.partition(" ")[0]
    return mark if mark[:1] == "#" and mark[1:].isdigit() else ""


# ---- Ranks.


def _ranked(units: Iterable[Unit], *, failed: bool) -> Iterator[Ranked]:
    """Give the lines of all units that may be told, each text once."""
    seen: set[str] = set()
    shapes: dict[tuple[str, str], int] = {}
    most = _MOST if failed else _MOST_IF_WELL
    for unit in units:
        kind = _kind(unit, failed=failed)
        if kind > WEAK:
            continue
        frames, ends, sources = _frames(unit.lines)
        worst = next((line for line in unit.lines if line.kind == unit.kind), unit.lines[0])
        file = next((line.place for line in unit.lines if line.own), unit.lines[0].text).partition(":")[0]
        alike = _count(shapes, worst.shape, file)
        room = dict(most)
        is_new = False
        is_file = any(line.bare_place for line in unit.lines)  # of which each message below is told with it
        for line in unit.lines[is_file:]:
            rank = MESSAGE if line.number in ends and kind == ERROR else _rank(line, unit, kind)
            if rank is None or (line.number not in frames if line.frame else line.number in sources):
                continue
            text = _with_file(line, unit)
            same = marks.unchanging(text)
            if same in seen and not (line.value and is_new):
                continue
            is_new = is_new or (rank == MESSAGE and not line.value)
            if line.kind <= WARNING:
                room = dict(most)
            if rank in room and not line.frame:
                room[rank] -= 1
                if room[rank] < 0:
                    continue
            seen.add(same)
            if line.kind <= WARNING and line is not worst:
                alike = max(alike, _count(shapes, line.shape, file))
            yield Ranked(rank, alike, line.number, text, line)


def _count(shapes: dict[tuple[str, str], int], shape: str, file: str) -> int:
    """Count a message of a shape, and say how many come before it: in its file, or half of the files that have it."""
    inside = shapes[shape, file] = shapes.get((shape, file), -1) + 1
    if not inside:
        shapes[shape, ""] = shapes.get((shape, ""), -1) + 1
    return max(inside, shapes[shape, ""] // 2)


def _with_file(line: Line, unit: Unit) -> str:
    return f"{unit.lines[0].text}:{line.text}" if line.bare_place and unit.lines[0].heading else line.text


def _kind(unit: Unit, *, failed: bool) -> int:
    """Say how bad a unit is: what stands above a place, or is listed by number with one, is a message by its form."""
    first = unit.lines[0]
    if unit.kind <= WARNING or not any(line.own for line in unit.lines):
        return unit.kind
    if first.heading and len(unit.lines) > 1:
        return WARNING
    if failed and unit.kind > NOTE:
        return NOTE if first.place else ERROR
    return unit.kind


def _rank(line: Line, unit: Unit, kind: int) -> int | None:
    """Say how much of a unit's trouble a line tells; None where it tells none."""
    if line.kind == NOISE:
        return None
    is_named = line.heading or line.section or (bool(line.place) and not line.frame and line.kind != NOTE)
    first = unit.lines[0]
    is_named = is_named or (first.heading and not first.place and line.number == first.number + 1)
    if kind == ERROR:
        if line.kind == ERROR or is_named or line.value or (unit.kind > NOTE and line is first):
            return MESSAGE
        if line.frame or line.detail:
            return DETAIL
        plain = HINT if line.kind == WEAK else ASIDE
        return {WARNING: WARNED, NOTE: ASIDE}.get(line.kind, AROUND if line.indent > first.indent else plain)
    if kind == WARNING:
        is_place = bool(line.place) and line.kind != NOTE
        return WARNED if line.kind in (WARNING, unit.kind) or is_place or is_named else ASIDE
    if kind == NOTE:
        return ASIDE if line.kind <= NOTE or line.place or is_named else None
    return HINT if line.kind == WEAK else None


def _frames(lines: list[Line]) -> tuple[set[int], set[int], set[int]]:
    """Choose the places of a trace, by their numbers: of the code at hand if there are any, and the last of all.

    The first and the last of the code at hand, given second, are told as soon as the message is. Given third are the
    lines of a program below places, but for the last ones: these are not told.
    """
    frames = [line for line in lines if line.frame]
    own = [line for line in frames if line.own]
    chosen = own if len(own) <= 2 * _FRAMES else [*own[:_FRAMES], *own[-_FRAMES:]]
    last = {line.number for line in (*own[-1:], *frames[-1:])}
    sources = {
        line.number
        for above, line in pairwise(lines)
        if above.frame and not line.frame and line.indent > above.indent and above.number not in last
    }
    return {line.number for line in (*chosen, *frames[-1:])}, {line.number for line in (*own[:1], *own[-1:])}, sources


# ---- Choice.


def _chosen(ranked: list[Ranked], rooms: Rooms) -> tuple[list[Ranked], list[Ranked]]:
    """Choose while there is room, and give the messages, too, for which there was none."""
    first = [one for one in ranked if one.rank == MESSAGE and one.alike < _ALIKE]
    is_tight = cost((one.text for one in first), rooms.messages) > rooms.messages
    messages = rooms.messages * (1 - _FOLDED if is_tight else 1)
    spent, hints = 0.0, rooms.hints
    files: set[str] = set()  # of which the folders are told
    chosen: list[Ranked] = []
    left: list[Ranked] = []
    for one in ranked:
        file = marks.file_of(one.text)
        text = marks.without_folders(one.text) if file in files else one.text
        is_message = one.rank in (MESSAGE, WARNED)
        most = messages if is_message else min(messages, spent + hints if one.rank == HINT else rooms.others)
        room = most - spent if one.alike < _ALIKE and len(text) <= _CHEAPEST * (most - spent) else 0
        size = estimate(text) + 1 if room > 0 else 0
        if 0 < size <= room:
            spent += size
            hints -= size if one.rank == HINT else 0
            files.add(file)
            chosen.append(one)
        elif is_message:
            left.append(one)
    return chosen, left


# ---- Telling.


def _told(chosen: list[Ranked]) -> list[str]:
    """Give the chosen lines in their order, a file's folders once where lines in a row share them."""
    told: list[str] = []
    before = ""
    for one in sorted(chosen, key=lambda one: one.number):
        text = one.text
        file = marks.file_of(text)
        told.append(marks.without_folders(text) if file and file == before else text)
        before = file or before
    return told


def _folded(left: list[Ranked], room: float, at_least: str) -> list[str]:
    """Tell the messages that there was no room for by their number, and by their places as far as there is room."""
    told: list[str] = []
    file, words = "", [""]
    for one in sorted(left, key=lambda one: (one.rank, one.number))[:_PLACES]:
        place = marks.place_of(one.text)
        name, _, at = place.partition(":")
        before, words = words, marks.words_of(one.text)
        new = words[next((n for n, pair in enumerate(zip(words, before, strict=False)) if len({*pair}) > 1), 0) :]
        text = " ".join([at if name == file and at else place, *(new if words != before else ())]).strip()
        room -= estimate(text) + 1
        if room < 0:
            break
        file = name or file
        told += [text] if text else []
    return [f"[{at_least}{len(left)} more{': ' if told else ''}{'; '.join(told)}]"] if left else []
