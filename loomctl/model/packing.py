"""Which form each artifact takes, so that all of them together keep under one budget (D19, D20)."""

from __future__ import annotations

from loomctl.model.fences import fenced, one_line, visible
from loomctl.model.outline import outline
from loomctl.model.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SEPARATOR = "\n\n"
_HEADING_UNITS = 200
_OUTLINE_SHARE = 6  # an outline takes at most this part of the budget
_RESERVE_SHARE = 24  # and this much is kept for each required one while others are given in full
_SHORTEST_OUTLINE = " " * 40

# What stands before a fence: that these are not Loom's words (D21).
_IN_FULL = "Content of a file, in full:"
OF = {
    "listing": "What a folder holds, listed; not what its files hold:",
    "newest": "Content of a folder's newest file, in full:",
    "files": "Content of a folder's files, in full:",
    "some": "Content of those of a folder's files that can be read, in full:",
    "command": "What a command says, in full:",
}
"""How an artifact is headed that is no file's content, by what it is of."""
_SHORT = {
    "listing": "the listing of a folder",
    "newest": "what a folder's newest file holds",
    "files": "what a folder's files hold",
    "some": "what those of a folder's files hold that can be read",
    "command": "what a command says",
}
"""What is given in part of an artifact that is no file, by the keys of OF."""
_IN_DIFF = "What changed in {what} since it was given here in full (then {base}), as a unified diff:"
_IN_OUTLINE = "{what}, in outline, for the full text does not fit here:"


class Piece(NamedTuple):
    """An artifact to be packed.

    heading: what it is, in one line, for the full form. text: None if it cannot be given at all. kind: "json",
    "markdown" or anything else. info: the language of the fence. pointer: one line that says by itself what it is,
    why it is not given in full and how to read it; it is shown as a list's item, alone or above an outline.
    patient: if required, it is given in full only after the others, whatever its size. diff: what leads to the text
    from the one that the conversation has, which `base` names; it stands for the full text where it is shorter. of: a
    key of OF, for what is no file's content.
    """

    id: str
    heading: str
    text: str | None
    kind: str
    info: str
    pointer: str
    required: bool
    patient: bool = False
    diff: str = ""
    base: str = ""
    of: str = ""


class Packed(NamedTuple):
    """What became of a piece: "full", "diff", "outline", "pointer", or "omitted", then with no text of its own."""

    id: str
    form: str
    text: str


def pack(
    pieces: Iterable[Piece], *, budget: int, measure: Callable[[str], int], required_floor: int = 4500
) -> list[Packed]:
    """Give each piece, in declared order, the best form for which there is room; `joined` never measures over budget.

    First all get their pointers. Where even those do not fit, pieces are omitted from the last on, optional ones
    first (and these already where they would leave the required less than they can use of `required_floor` or half
    of the budget), and an entry without an id ends the list, with the line that counts them. Then the required ones
    are given in full, from the shortest on, as long as there is room left for an outline of each other; the rest of
    them as outlines, or in full after all where that leaves room; then the optional ones in declared order, in full,
    else as outlines.

    measure: additive, like `utf16_units` and `utf8_bytes`: what it gives for two texts adds up to what it gives for
    the two joined. Under a budget too small even for the closing line there is no text at all.
    """
    between = measure(SEPARATOR)
    limit = budget + between  # every part is counted with the separator after it, of which the last has none
    parts = [_Part(piece, limit, between, measure) for piece in pieces]
    closing, closing_cost = _omit(parts, limit, required_floor, between, measure)
    room = limit - closing_cost - sum(part.cost for part in parts)
    required = [part for part in parts if part.piece.required]
    room = _give_in_full(required, room, budget // _RESERVE_SHARE)
    lacking = [part for part in required if part.can_grow()]
    for index, part in enumerate(lacking):
        share = min(room // (len(lacking) - index), budget // _OUTLINE_SHARE)
        room -= part.become_full(share) or part.become_outline(share)
    for part in sorted(lacking, key=lambda part: part.full_cost):  # outlines may have needed less than was kept
        room -= part.become_full(room)
    for part in parts:
        if not part.piece.required and part.can_grow():
            room -= part.become_full(room) or part.become_outline(min(room, budget // _OUTLINE_SHARE))
    for part in [*required, *(part for part in parts if not part.piece.required)]:
        if part.form == "outline":  # what is still free shows more of what did not fit
            room -= part.become_outline(room)
    packed = [Packed(part.piece.id, part.form, part.shown) for part in parts]
    return [*packed, Packed("", "omitted", closing)] if closing else packed


def joined(packed: Iterable[Packed]) -> str:
    """Give the text of what was packed: what `pack` kept under its budget."""
    return SEPARATOR.join([part.text for part in packed if part.text])


class _Part:
    """A piece on its way to being packed: the form it has now, what that costs, and what its full text would cost."""

    def __init__(self, piece: Piece, limit: int, between: int, measure: Callable[[str], int]) -> None:
        self.piece, self.between, self.measure = piece, between, measure
        self.text = None if piece.text is None else visible(piece.text)
        self.full, self.full_cost, self.whole = "", 0, "full"
        self._become("pointer", self._pointer())
        wholes = [("full", self._in_full(self.text))] if self.text is not None and measure(self.text) <= limit else []
        if piece.diff and measure(piece.diff) <= limit:
            wholes.append(("diff", self._in_diff()))
        if wholes:
            cost, at = min((measure(shown) + between, at) for at, (_, shown) in enumerate(wholes))
            self.whole, full = wholes[at]
            if cost <= self.cost:
                self._become(self.whole, full)
            elif cost <= limit:
                self.full, self.full_cost = full, cost

    def can_grow(self) -> bool:
        return self.form == "pointer" and self.text is not None

    def become_full(self, room: int) -> int:
        """Take the full form if it costs at most so much more than the present one; give what it costs more, else 0."""
        more = self.full_cost - self.cost
        if not self.full or self.form == self.whole or more > room:
            return 0
        self._become(self.whole, self.full)
        return more

    def become_outline(self, room: int) -> int:
        """Take an outline that costs at most so much more than the pointer; give what it costs more, else 0."""
        before = self.cost
        allowed = before + room - self.between - self.measure(self._in_outline("x"))
        for _ in range(2):  # a second time where what the outline shows needs a longer fence
            if self.text is None or allowed < self.measure(_SHORTEST_OUTLINE):
                break
            inside = outline(self.text, self.piece.kind, allowed, self.measure)
            shown = self._in_outline(inside)
            excess = self.measure(shown) + self.between - before - room
            if inside and excess <= 0:
                self._become("outline", shown)
                return self.cost - before
            allowed -= excess
        return 0

    def omit(self) -> None:
        self.form, self.shown, self.cost = "omitted", "", 0

    def _become(self, form: str, shown: str) -> None:
        self.form, self.shown, self.cost = form, shown, self.measure(shown) + self.between

    # Each form begins with Loom's own signs, so that nothing in a name or a path can open a block that swallows more.

    def _in_full(self, text: str) -> str:
        heading = one_line(self.piece.heading, _HEADING_UNITS) or one_line(self.piece.id, _HEADING_UNITS)
        said = OF.get(self.piece.of, _IN_FULL)
        return f"### {heading}\n{said}\n{fenced(text, self.piece.info)}"

    def _in_diff(self) -> str:
        heading = one_line(self.piece.heading, _HEADING_UNITS) or one_line(self.piece.id, _HEADING_UNITS)
        what = _SHORT.get(self.piece.of, "the file")
        said = _IN_DIFF.format(what=what, base=one_line(self.piece.base[:8], _HEADING_UNITS))
        return f"### {heading}\n{said}\n{fenced(visible(self.piece.diff), 'diff')}"

    def _in_outline(self, text: str) -> str:
        what = _SHORT.get(self.piece.of, "content of the file")
        return f"{self._pointer()}\n{_IN_OUTLINE.format(what=what[0].upper() + what[1:])}\n{fenced(text)}"

    def _pointer(self) -> str:
        return "- " + visible(self.piece.pointer).replace("\n", " ").strip().removeprefix("- ")


def _omit(
    parts: Sequence[_Part], limit: int, required_floor: int, between: int, measure: Callable[[str], int]
) -> tuple[str, int]:
    """Omit parts until the forms they have now fit; give the closing line that counts them, and its cost."""
    required = [part for part in parts if part.piece.required]
    optional = [part for part in parts if not part.piece.required]
    outline_room = max(0, limit) // _OUTLINE_SHARE
    usable = sum(part.full_cost or part.cost + part.can_grow() * outline_room for part in required)
    held = min(usable, required_floor, limit // 2)
    required_cost = sum(part.cost for part in required)
    optional_cost = sum(part.cost for part in optional)
    closing, closing_cost = "", 0
    for count, part in enumerate([*reversed(optional), *reversed(required)], 1):
        least = max(required_cost, held) if optional_cost else required_cost
        if least + optional_cost + closing_cost <= limit:
            return closing, closing_cost
        if part.piece.required:
            required_cost -= part.cost
        else:
            optional_cost -= part.cost
        part.omit()
        closing = f"{count:,} more {'artifact is' if count == 1 else 'artifacts are'} left out here for lack of room;"
        closing += " `loomctl prime-context --dry-run` names them all."
        closing_cost = measure(closing) + between
    return (closing, closing_cost) if required_cost + closing_cost <= limit else ("", 0)


def _give_in_full(required: Sequence[_Part], room: int, reserve: int) -> int:
    """Give required parts in full, the shortest first and the patient ones last; give the room that is left.

    Room is kept for outlines of the others; where there is not enough for all, none is: a few files in full tell more
    than stumps of many.
    """
    waiting = [part for part in required if part.can_grow()]
    if reserve * len(waiting) > room:
        reserve = 0
    reserved = [
        0 if part.piece.patient else min(reserve, part.full_cost - part.cost) if part.full else reserve
        for part in waiting
    ]
    kept_back = sum(reserved)
    for own, part in sorted(
        zip(reserved, waiting, strict=True), key=lambda pair: (pair[1].piece.patient, pair[1].full_cost)
    ):
        more = part.become_full(room - kept_back + own)
        if more:
            room -= more
            kept_back -= own
    return room
