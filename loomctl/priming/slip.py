"""The text of a priming, within its budget, in parts: run, artifacts, history, the one next thing (D19-D22, D62).

The first part has all of Loom's own words; artifacts go on behind it.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import one_line, visible
from loomctl.priming.packing import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loomctl.priming.packing import Packed, Piece

# Shares of the whole, as D19 gives them for 9,500 units; of more than so much history an assistant reads nothing (D62).
NEXT_SHARE = 1500 / 9500
HISTORY_SHARE = 2000 / 9500
MOST_HISTORY = 2000
MARK = "Loom slip "
PART = 9500
"""UTF-16 units of one part of a text that a host takes in parts."""
_ID_LENGTH = 16
_MOST_NOTES = 1500
_ASK_ROOM = 320


class Budget(NamedTuple):
    """How much text may be given.

    limit: of all parts together; measure: counts it, in UTF-16 units for a host, UTF-8 bytes for what a body of a
    command prints; parts: how many there may be, of at most PART each where it is more than one.
    """

    limit: int
    measure: Callable[[str], int]
    parts: int = 1

    def share(self, fraction: float) -> int:
        """Give a part of the limit."""
        return int(self.limit * fraction)

    @property
    def history(self) -> int:
        """Give how much of it may tell of what was done."""
        return min(self.share(HISTORY_SHARE), MOST_HISTORY)

    def rooms(self) -> list[int]:
        """Give what each part holds."""
        if self.parts == 1:
            return [self.limit]
        return [room for at in range(self.parts) if (room := min(PART, self.limit - at * PART)) > 0]


class Lines:
    """Lines that are made when they are looked at, for of many only the newest are told. make: gives one by its place.

    Each is made once.
    """

    def __init__(self, count: int, make: Callable[[int], str]) -> None:
        self._count, self._make = count, make
        self._made: dict[int, str] = {}

    def __len__(self) -> int:
        """Count them."""
        return self._count

    def __getitem__(self, at: int) -> str:
        """Give one."""
        if not 0 <= at < self._count:
            raise IndexError(at)
        if at not in self._made:
            self._made[at] = self._make(at)
        return self._made[at]

    def newest(self, characters: int) -> str:
        """Give so many of the last lines, whole, that they have as many characters; all if they have fewer."""
        kept: list[str] = []
        for line in reversed(self):
            if characters <= 0:
                break
            kept.append(line)
            characters -= len(line) + 1
        return "\n".join(reversed(kept))


class Texts(NamedTuple):
    """The parts around the artifacts.

    head: who and where; history: one line each, oldest first; upcoming: the next thing to do; notes: lines that must
    be seen, such as what is missing and how to mend it; steps: what tools did, told whole or not at all.
    """

    head: str
    history: Sequence[str] | Lines
    upcoming: str
    notes: Sequence[str]
    steps: str = ""


class Composed(NamedTuple):
    """bodies: the text of each part, without the lines that `sealed` adds; packed: what became of each piece."""

    bodies: Sequence[str]
    packed: Sequence[Packed]


def compose(texts: Texts, pieces: Sequence[Piece], budget: Budget) -> Composed:
    """Put a priming together so that, sealed, it never exceeds the budget, whatever the artifacts are.

    upcoming must already be cut to its share (`cut_lines`). Parts that do not fit are left out whole, the artifacts
    last of all; but what was done gives way to a required artifact that fits without it (D62).
    """
    made = _composed(texts, pieces, budget)
    if (texts.steps or texts.history) and _cuts(made, pieces):
        without = _composed(texts._replace(history=[], steps=""), pieces, budget)
        if not _cuts(without, pieces):
            return without
    return made


def _cuts(made: Composed, pieces: Sequence[Piece]) -> bool:
    """Tell whether a required artifact of the user's that has a text is not given whole."""
    return any(
        piece.required and not piece.own and piece.text is not None and packed.form not in ("full", "diff")
        for piece, packed in zip(pieces, made.packed, strict=True)
    )


def _composed(texts: Texts, pieces: Sequence[Piece], budget: Budget) -> Composed:
    rooms = [room - budget.measure(_around(at)) for at, room in enumerate(budget.rooms())]
    room = rooms[0] - (budget.measure(_COUNTED.format(1, 1)) if len(rooms) > 1 else 0)
    upcoming = texts.upcoming if budget.measure(texts.upcoming) <= room else ""
    room -= budget.measure(upcoming) + 2
    head = cut_lines(visible(texts.head), max(0, min(room, budget.history)), budget.measure)
    room -= budget.measure(head) + 2
    notes = cut_lines("\n".join(texts.notes), max(0, min(room, _MOST_NOTES, budget.share(NEXT_SHARE))), budget.measure)
    room -= budget.measure(notes) + 2
    steps = texts.steps if budget.measure(texts.steps) + 2 <= min(room, budget.history) else ""
    told = budget.measure(steps) + 2 if steps else 0
    room -= told
    history = _newest(texts.history, max(0, min(room, budget.history - told) - 2), budget.measure)
    room -= budget.measure(history) + 2

    ask_room = _ASK_ROOM if room >= _ASK_ROOM else 0
    made = pack(pieces, rooms=[max(0, room), *rooms[1:]], measure=budget.measure, held_back=ask_room)
    ask = _ask(made.packed, pieces) if ask_room else ""
    first = (head, notes, made.texts[0], history, steps, upcoming + ("\n\n" + ask if ask else ""))
    bodies = ["\n\n".join(part for part in first if part), *made.texts[1:]]
    while len(bodies) > 1 and not bodies[-1]:
        bodies.pop()
    return Composed(bodies, made.packed)


def _ask(packed: Sequence[Packed], pieces: Sequence[Piece]) -> str:
    """Ask for the one Read that gives most of what is missing: of the first of the user's files that is not whole.

    A host restores what was Read by itself after the next compaction.
    """
    for piece, one in zip(pieces, packed, strict=True):
        if piece.text is not None and not piece.own and not piece.of and one.form in ("head", "pointer") and one.rest:
            return one_line(f"Before you go on, {one.rest}: {piece.id} did not fit here whole.", _ASK_ROOM - 4)
    return ""


_COUNTED = " (part {} of {})"


def _opening(at: int, count: int, slip_id: str) -> str:
    return f"# Loom: part {at + 1} of {count} of slip {slip_id}"


def _mark(at: int, slip_id: str) -> str:
    return slip_id + (f"-{at + 1}" if at else "")


def _around(at: int) -> str:
    """Give what `sealed_parts` puts around a part; every id is as long."""
    any_id = "0" * _ID_LENGTH
    return sealed(f"{_opening(at, 9, any_id)}\n\n" if at else "", _mark(at, any_id))


def sealed(text: str, slip_id: str) -> str:
    """Add the last line, by which a text is found again in a transcript (D15)."""
    return f"{text}\n\n{MARK}{slip_id}"


def sealed_parts(bodies: Sequence[str], slip_id: str) -> list[str]:
    """Number the parts of a text, and seal each under an id of its own."""
    count = len(bodies)
    if count == 1:
        return [sealed(bodies[0], slip_id)]
    first, _, rest = bodies[0].partition("\n")
    opened = [f"{_opening(at, count, slip_id)}\n\n{body}" for at, body in enumerate(bodies)]
    opened[0] = f"{first}{_COUNTED.format(1, count)}\n{rest}"
    return [sealed(body, _mark(at, slip_id)) for at, body in enumerate(opened)]


def marks(slip_id: str, parts: Sequence[int]) -> list[str]:
    """Give the ids by which the parts behind the first are found, for those of the numbers that name one."""
    return [f"{slip_id}-{part}" for part in parts if part > 1]


def short(digest: str) -> str:
    """Cut a SHA-256 to a slip's id."""
    return digest[:_ID_LENGTH]


def cut_lines(text: str, limit: int, measure: Callable[[str], int]) -> str:
    """Give the leading whole lines that fit in `limit`; no line is cut in its middle (D20)."""
    if measure(text) <= limit:
        return text
    kept: list[str] = []
    used = -1
    for line in text.split("\n"):
        used += measure(line) + 1
        if used > limit:
            break
        kept.append(line)
    return "\n".join(kept)


def _newest(lines: Sequence[str] | Lines, limit: int, measure: Callable[[str], int]) -> str:
    """Give as many of the last lines as fit, with a count of those before them."""
    kept: list[str] = []
    used = measure("(0000000 earlier lines left out)")
    for line in reversed(lines):
        used += measure(line) + 1
        if used > limit:
            break
        kept.append(line)
    left_out = len(lines) - len(kept)
    if left_out and kept:
        kept.append(f"({left_out} earlier lines left out)")
    return "\n".join(reversed(kept))
