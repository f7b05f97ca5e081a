"""Which form each artifact takes, and on which part it stands, so that all keep under one budget (D19, D20, D62).

A host takes a text in parts, each with a limit of its own; a command's text is one part. Required artifacts come first,
then optional ones, each in declared order, then Loom's own pages. What fits nowhere whole goes on over several parts,
cut between lines; what fits not even so is given from its beginning as far as it goes.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import fence_for, fenced, one_line, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SEPARATOR = "\n\n"
_HEADING_UNITS = 200
_FOR_PAGES = 8  # Loom's own have at most this part of the room where a text of the user's is cut anyway
_LEAST_FRAGMENT = 240  # units of text that are worth a heading of their own

# By what an artifact is of: what stands before its fence, and how it is called where a part of it is given. That fences
# hold data and no words of Loom's is said in the head (D21).
_OF = {
    "": ("File", "the file"),
    "listing": ("A folder's listing, without the content of its files", "the listing of a folder"),
    "newest": ("A folder's newest file", "a folder's newest file"),
    "files": ("A folder's files", "a folder's files"),
    "some": ("The readable files of a folder", "the readable files of a folder"),
    "command": ("Output", "the output of a command"),
}
_IN_DIFF = "Changes in {what} since you were given it in full (then {base}), as a unified diff:"


class Piece(NamedTuple):
    """An artifact to be packed.

    heading: what it is, in one line, for the full form. text: None if it cannot be given at all. info: the language of
    the fence. pointer: one line that says by itself what it is, why it is not given in full and how to read it.
    read: how to read it, such as "read specs/258.md"; "" where it cannot be read. numbered: whether the lines of the
    text are those of what `read` names. own: Loom's own page, which comes last. diff: what leads to the text from the
    one that the conversation has, which `base` names; it stands for the full text where it is shorter. of: what it is
    of, for what is no file's content: listing, newest, files, some, command.
    """

    id: str
    heading: str
    text: str | None
    info: str
    pointer: str
    required: bool
    read: str = ""
    numbered: bool = False
    own: bool = False
    diff: str = ""
    base: str = ""
    of: str = ""


class Packed(NamedTuple):
    """What became of a piece.

    form: "full", "diff", "head" (its beginning), "pointer", or "omitted", then it is named nowhere. parts: where it
    stands, from 1. rest: what to do for the rest of it, such as "read specs/258.md from line 411"; "" for a whole one.
    """

    id: str
    form: str
    parts: tuple[int, ...] = ()
    rest: str = ""


class Packing(NamedTuple):
    """packed: in the order of the pieces; texts: that of each part, "" for one that nothing is on."""

    packed: list[Packed]
    texts: list[str]


def pack(
    pieces: Iterable[Piece], *, rooms: Sequence[int], measure: Callable[[str], int], held_back: int = 0
) -> Packing:
    """Give each piece the best form for which there is room; no part's text ever measures over its room.

    rooms: what each part holds, the first one first. First all get room on the first part for the line that points to
    them; where even that is not there, pieces are omitted, the last ones first, and a line counts them. Then each is
    given whole, in order of rank: as long as what it leaves is enough for those of its rank behind it, or for a fair
    share of each; else its beginning is given, which leaves room for Loom's own pages, too.
    measure: additive, like `utf16_units` and `utf8_bytes`. held_back: so much of the first part is left free where not
    everything is given whole.
    """
    every = [_Part(piece, measure) for piece in pieces]
    fits = sum(part.cost for part in every) < sum(rooms)  # else the first try is spared
    made = _packed(every, _Sheets(rooms, measure)) if fits or not held_back else None
    if made is None or (held_back and any(one.form not in ("full", "diff") for one in made.packed)):
        made = _packed(every, _Sheets([max(0, rooms[0] - held_back), *rooms[1:]], measure))
    return made


def _packed(every: Sequence[_Part], sheets: _Sheets) -> Packing:
    for part in every:
        part.begin()
    ranked = sorted(every, key=lambda part: (part.piece.own, not part.piece.required))
    _point(ranked, sheets)
    pages = min(sum(part.cost + _LEAST_FRAGMENT for part in ranked if part.piece.own), sheets.left() // _FOR_PAGES)
    for rank in ((False, True), (False, False), (True, True), (True, False)):
        waiting = [part for part in ranked if (part.piece.own, part.piece.required) == rank and part.form == "pointer"]
        share = sheets.left() // (2 * len(waiting)) if waiting else 0
        for at, part in enumerate(waiting):
            part.give(sheets, sum(min(share, later.cost + _LEAST_FRAGMENT) for later in waiting[at + 1 :]), pages)
    return Packing([Packed(part.piece.id, part.form, part.parts, part.rest) for part in every], sheets.texts())


class _Sheets:
    """The parts that are filled. Each text on one is counted with the separator behind it, of which the last has none.

    kept: room on the first one that is kept for lines that point to what is not given.
    """

    def __init__(self, rooms: Sequence[int], measure: Callable[[str], int]) -> None:
        self.measure = measure
        self.between = measure(SEPARATOR)
        self.rooms = [room + self.between for room in rooms]
        self.blocks: list[list[str]] = [[] for _ in rooms]
        self.lines: list[str] = []
        self.kept = 0

    def room(self, at: int) -> int:
        return self.rooms[at] - (self.kept if at == 0 else 0)

    def left(self) -> int:
        return sum(max(0, self.room(at)) for at in range(len(self.rooms)))

    def put(self, at: int, block: str) -> None:
        self.rooms[at] -= self.measure(block) + self.between
        self.blocks[at].append(block)

    def say(self, line: str) -> None:
        """Put a line below what the first part holds."""
        self.rooms[0] -= self.measure(line) + self.between
        self.lines.append(line)

    def texts(self) -> list[str]:
        every = [[*blocks, *(() if at else self.lines)] for at, blocks in enumerate(self.blocks)]
        return [SEPARATOR.join(blocks) for blocks in every]


class _Part:
    """A piece on its way to being packed. cost: of its whole form on one part; kept: of the line that points to it."""

    def __init__(self, piece: Piece, measure: Callable[[str], int]) -> None:
        self.piece, self.measure = piece, measure
        self.begin()
        self.pointer = "- " + visible(piece.pointer).replace("\n", " ").strip().removeprefix("- ")
        self.text = None if piece.text is None else visible(piece.text)
        self.heading = one_line(piece.heading, _HEADING_UNITS) or one_line(piece.id, _HEADING_UNITS)
        self.fence = fence_for(self.text or "", piece.info)
        self.count = _lines(self.text or "", 0, len(self.text or ""))
        self.cost = measure(self._block(0, len(self.text))) if self.text is not None else 0
        self.diff = self._in_diff() if piece.diff and self.text is not None else ""
        if self.diff and measure(self.diff) >= self.cost:
            self.diff = ""

    def begin(self) -> None:
        self.form, self.rest, self.kept = "omitted", "", 0
        self.parts: tuple[int, ...] = ()

    def least(self, between: int) -> int:
        """Give the room on the first part without which the piece is not named."""
        pointer = self.measure(self.pointer)
        if self.text is not None:
            pointer = max(pointer, self.measure(self._rest(len(self.text))[1]))
        return between + (min(pointer, self.cost) if self.text is not None else pointer)

    def give(self, sheets: _Sheets, others: int, pages: int) -> None:
        """Take the best form that leaves `others` units to those behind it, and a beginning `pages` besides."""
        sheets.kept -= self.kept
        if self.text is None or not (self._whole(sheets, others) or self._beginning(sheets, others + pages)):
            self.parts, self.rest = (1,), self.piece.read
            sheets.say(self.pointer)

    def _whole(self, sheets: _Sheets, others: int) -> bool:
        allowed = max(sheets.left() - others, self.kept)
        if self.diff and self._on_one(sheets, self.diff, self.measure(self.diff), "diff", allowed):
            return True
        if self.cost + sheets.between > allowed:
            return False
        if self._on_one(sheets, self._block(0, len(self.text or "")), self.cost, "full", allowed):
            return True
        fragments = self._walk(sheets, allowed)
        if not fragments or fragments[-1][2] < len(self.text or ""):
            return False
        self._take(sheets, fragments, "full")
        return True

    def _beginning(self, sheets: _Sheets, others: int) -> bool:
        """Take the text from its beginning as far as there is room, and the line that says how to go on.

        Of Loom's own pages nobody needs a half.
        """
        if self.piece.own:
            return False
        sheets.kept += self.kept
        fragments = self._walk(sheets, sheets.left() - others)
        sheets.kept -= self.kept
        end = fragments[-1][2] if fragments else 0
        if not (self.text or "")[:end].strip():
            return False
        self._take(sheets, fragments, "head")
        self.rest, line = self._rest(end)
        sheets.say(line)
        return True

    def _on_one(self, sheets: _Sheets, block: str, cost: int, form: str, allowed: int) -> bool:
        needed = cost + sheets.between
        at = next((at for at in range(len(sheets.rooms)) if needed <= min(sheets.room(at), allowed)), None)
        if at is None:
            return False
        sheets.put(at, block)
        self.form, self.parts = form, (at + 1,)
        return True

    def _walk(self, sheets: _Sheets, allowed: int) -> list[tuple[int, int, int]]:
        """Lay the text out from its beginning in at most `allowed` units: a part's place, start and end in the text."""
        text, found, start = self.text or "", list[tuple[int, int, int]](), 0
        around = self.measure(self._block(0, 0, continued=True)) + sheets.between
        for at in range(len(sheets.rooms)):
            room = min(sheets.room(at), allowed) - around
            if room < min(_LEAST_FRAGMENT, len(text) - start):
                continue
            end = _whole_lines(text, start, room, self.measure)
            if end == start:
                continue
            found.append((at, start, end))
            allowed -= around + self.measure(text[start:end])
            start = end
            if end == len(text):
                break
        return found

    def _take(self, sheets: _Sheets, fragments: Sequence[tuple[int, int, int]], form: str) -> None:
        for at, start, end in fragments:
            sheets.put(at, self._block(start, end))
        self.form, self.parts = form, tuple(at + 1 for at, _, _ in fragments)

    # Each form begins with Loom's own signs, so that nothing in a name or a path can open a block that swallows more.

    def _block(self, start: int, end: int, *, continued: bool = False) -> str:
        text = self.text or ""
        said = _OF[self.piece.of][0]
        if (start, end) == (0, len(text)) and not continued:
            said += ", in full:" if self.piece.of != "listing" else ":"
        else:
            first, last = self.count, self.count
            if not continued:
                first, last = _lines(text, 0, start) + 1, _lines(text, 0, end)
            said += f", lines {first} to {last} of {self.count}:"
        again = " (continued)" if start or continued else ""
        body = text[start:end]
        close = "" if not body or body.endswith("\n") else "\n"
        return f"### {self.heading}{again}\n{said}\n{self.fence[0]}\n{body}{close}{self.fence[1]}"

    def _in_diff(self) -> str:
        said = _IN_DIFF.format(what=_OF[self.piece.of][1], base=one_line(self.piece.base[:8], _HEADING_UNITS))
        return f"### {self.heading}\n{said}\n{fenced(visible(self.piece.diff), 'diff')}"

    def _rest(self, end: int) -> tuple[str, str]:
        """Say how to go on behind a beginning: in a few words, and as the line that names the piece."""
        text = self.text or ""
        given = _lines(text, 0, end)
        read = visible(self.piece.read or "it cannot be read").replace("\n", " ")
        rest = f"{read} from line {given + 1}" if self.piece.numbered else read
        name = one_line(self.piece.id, _HEADING_UNITS)
        return rest, f"- {name}: lines 1 to {given} of {self.count} are given here; for the rest {rest}"


def _lines(text: str, start: int, end: int) -> int:
    return text.count("\n", start, end) + (end > start and text[end - 1] != "\n")


def _whole_lines(text: str, start: int, room: int, measure: Callable[[str], int]) -> int:
    """Give the end of as many whole lines from `start` as measure at most `room`; `start` where not one does."""
    end = min(len(text), start + room)  # no character measures less than 1
    while end > start:
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or start
        over = measure(text[start:end]) + (end == len(text) and not text.endswith("\n")) - room
        if over <= 0:
            return end
        end -= max(1, over // 4)  # nor more than 4
    return start


def _point(ranked: Sequence[_Part], sheets: _Sheets) -> None:
    """Keep room on the first part for a line about each piece; omit, from the last on, those for which there is none.

    Where not all have it, optional ones have half of what the required leave at most.
    """
    count, used = 0, 0
    leasts = [part.least(sheets.between) for part in ranked]
    room = optional = sheets.rooms[0]
    if sum(leasts) > room:
        room -= sheets.measure(_closing(len(ranked))) + sheets.between
        must = sum(least for part, least in zip(ranked, leasts, strict=True) if part.piece.required)
        optional = min(room, must + (room - must) // 2)
    for part, least in zip(ranked, leasts, strict=True):
        if used + least > (room if part.piece.required else optional):
            break
        used, count = used + least, count + 1
        part.form, part.kept = "pointer", least
    sheets.kept = used
    omitted = len(ranked) - count
    if omitted and sheets.measure(_closing(omitted)) + sheets.between <= sheets.rooms[0] - used:
        sheets.say(_closing(omitted))


def _closing(count: int) -> str:
    return (
        f"{count:,} more {'artifact is' if count == 1 else 'artifacts are'} left out here: no room; "
        "`loomctl prime-context --dry-run` lists them all."
    )
