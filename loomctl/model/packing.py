"""Which form each artifact takes, so that all of them together keep under one budget (D19, D20)."""

from __future__ import annotations

from typing import NamedTuple

from loomctl.model.fences import fenced, one_line, visible
from loomctl.model.outline import outline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SEPARATOR = "\n\n"
_HEADING_UNITS = 200
_OUTLINE_SHARE = 6  # an outline takes at most this part of the budget
_RESERVE_SHARE = 24  # and this much is kept for each required one while others are given in full
_SHORTEST_OUTLINE = " " * 40

# Between the heading and the fence: whose words these are, then how to read what is not given.
_IN_FULL = "Content of a file, in full:"
_IN_OUTLINE = "Content of a file, in outline, for its full text does not fit here. {}"
_NO_ROOM = "Content of a file, not given, for it does not fit here. {}"
_NO_TEXT = "Content not given here. {}"


class Piece(NamedTuple):
    """An artifact to be packed.

    heading: what it is, in one line. text: None if it cannot be given at all. kind: "json", "markdown" or anything
    else. info: the language of the fence. pointer: one line that says what and where it is and how to read it.
    """

    id: str
    heading: str
    text: str | None
    kind: str
    info: str
    pointer: str
    required: bool


class Packed(NamedTuple):
    """What became of a piece: "full", "outline", "pointer", or "omitted", then with no text of its own."""

    id: str
    form: str
    text: str


def pack(
    pieces: list[Piece], *, budget: int, measure: Callable[[str], int], required_floor: int = 4500
) -> list[Packed]:
    """Give each piece, in declared order, the best form for which there is room; `joined` never measures over budget.

    All get their pointers first; where even those do not all fit, the last ones are omitted (the optional ones first,
    and those already where they would leave the required less than `required_floor` or half of the budget), and an
    entry without an id ends the list, with the line that counts them. Then the required ones are given in full, from
    the shortest on, as long as there is room left for an outline of each other; the rest of them as outlines; then
    the optional ones in declared order, in full, else as outlines.

    measure: additive, like `utf16_units` and `utf8_bytes`: what it gives for two texts adds up to what it gives for
    the two joined. Under a budget too small even for the closing line there is no text at all.
    """
    between = measure(SEPARATOR)
    limit = budget + between  # every part is counted with the separator after it, of which the last has none
    parts = [_Part(piece, limit, between, measure) for piece in pieces]
    closing = _omit(parts, limit, required_floor, between, measure)
    kept = [part for part in parts if part.form != "omitted"]
    room = limit - sum(part.cost for part in kept) - (measure(closing) + between if closing else 0)
    required = [part for part in kept if part.piece.required]
    room = _give_in_full(required, room, budget // _RESERVE_SHARE)
    lacking = [part for part in required if part.can_grow()]
    for left, part in zip(range(len(lacking), 0, -1), lacking, strict=True):
        room -= part.become_outline(min(room // left, budget // _OUTLINE_SHARE))
    for part in kept:
        if not part.piece.required and part.can_grow():
            room -= part.become_full(room) or part.become_outline(min(room, budget // _OUTLINE_SHARE))
    packed = [Packed(part.piece.id, part.form, part.shown) for part in parts]
    return [*packed, Packed("", "omitted", closing)] if closing else packed


def joined(packed: list[Packed]) -> str:
    """Give the text of what was packed: what pack() kept under its budget."""
    return SEPARATOR.join([part.text for part in packed if part.text])


class _Part:
    """A piece on its way to being packed: the form it has now, and what that and its full text cost."""

    def __init__(self, piece: Piece, limit: int, between: int, measure: Callable[[str], int]) -> None:
        self.piece, self.between, self.measure = piece, between, measure
        self.heading = f"### {one_line(piece.heading or piece.id, _HEADING_UNITS)}"
        self.pointer = visible(piece.pointer).replace("\n", " ")
        self.text = None if piece.text is None else visible(piece.text)
        self.full, self.full_cost = "", 0
        self._become("pointer", self._render(_NO_TEXT if self.text is None else _NO_ROOM))
        if self.text is not None and measure(self.text) <= limit:
            self.full = self._render(_IN_FULL, self.text)
            self.full_cost = measure(self.full) + between
            if self.full_cost <= self.cost:
                self._become("full", self.full)

    def can_grow(self) -> bool:
        return self.form == "pointer" and self.text is not None

    def become_full(self, room: int) -> int:
        """Take the full form where that costs at most so much more than now; give what it costs more, else 0."""
        more = self.full_cost - self.cost
        if not self.full or more > room:
            return 0
        self._become("full", self.full)
        return more

    def become_outline(self, room: int) -> int:
        """Take the form of an outline that costs at most so much more than now; give what it costs more, else 0."""
        before, most = self.cost, self.cost + room
        allowed = most - self.measure(self._render(_IN_OUTLINE, "x")) - self.between
        for _ in range(2):  # a second time, where what the outline shows needs a longer fence
            if self.text is None or allowed < self.measure(_SHORTEST_OUTLINE):
                return 0
            shown = self._render(_IN_OUTLINE, outline(self.text, self.piece.kind, allowed, self.measure))
            ...
        return 0

    def omit(self) -> None:
        self._become("omitted", "")
