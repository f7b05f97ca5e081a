"""The text of a priming, within its budget: run, history, artifacts, the one next thing, the slip's id (D19-D22)."""

from __future__ import annotations

from loomctl.model.fences import visible
from loomctl.model.packing import joined, pack
from loomctl.model.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loomctl.model.packing import Packed, Piece

# Shares of the whole, as D19 gives them for 9,500 units.
NEXT_SHARE = 1500 / 9500
REQUIRED_SHARE = 4500 / 9500
HISTORY_SHARE = 2000 / 9500
MARK = "Loom slip "
_ID_LENGTH = 16


class Budget(NamedTuple):
    """limit: how much text may be given; measure: counts it, in UTF-16 units for a hook, UTF-8 bytes for a command."""

    limit: int
    measure: Callable[[str], int]

    def share(self, fraction: float) -> int:
        """Give a part of the limit."""
        return int(self.limit * fraction)


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
    """text: without its last line, which `sealed` adds; packed: what became of each piece, in order."""

    text: str
    packed: Sequence[Packed]


def compose(texts: Texts, pieces: Sequence[Piece], budget: Budget) -> Composed:
    """Put a priming together so that, sealed, it never exceeds the budget, whatever the artifacts are.

    upcoming must already be cut to its share (`cut_lines`). Parts that do not fit are left out whole, the artifacts
    last of all.
    """
    room = budget.limit - budget.measure("\n\n" + MARK + "0" * _ID_LENGTH)
    upcoming = texts.upcoming if budget.measure(texts.upcoming) <= room else ""
    room -= budget.measure(upcoming) + 2
    head = cut_lines(visible(texts.head), max(0, min(room, budget.share(HISTORY_SHARE))), budget.measure)
    room -= budget.measure(head) + 2
    notes = cut_lines("\n".join(texts.notes), max(0, min(room, budget.share(NEXT_SHARE))), budget.measure)
    room -= budget.measure(notes) + 2
    steps = texts.steps if budget.measure(texts.steps) + 2 <= min(room, budget.share(HISTORY_SHARE)) else ""
    told = budget.measure(steps) + 2 if steps else 0
    room -= told
    history = _newest(texts.history, max(0, min(room, budget.share(HISTORY_SHARE) - told) - 2), budget.measure)
    room -= budget.measure(history) + 2
    packed = pack(pieces, budget=max(0, room), measure=budget.measure, required_floor=budget.share(REQUIRED_SHARE))
    body = joined(packed)
    return Composed("\n\n".join(part for part in (head, history, notes, body, steps, upcoming) if part), packed)


def sealed(text: str, slip_id: str) -> str:
    """Add the last line, by which the slip is found again in a transcript (D15)."""
    return f"{text}\n\n{MARK}{slip_id}"


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
