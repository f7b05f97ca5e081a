"""The text of a priming, within its budget, in parts: run, artifacts, history, the one next thing (D19-D22, D62).

The first part has all of Loom's own words; artifacts go on behind it.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import one_line, visible
from loomctl.priming.packing import Packing, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from loomctl.priming.packing import Packed, Piece

# Shares of the whole, as D19 gives them for 9,500 units; of more than so much history an assistant reads nothing (D62).
NEXT_SHARE = 1500 / 9500
HISTORY_SHARE = 2000 / 9500
MOST_HISTORY = 2000
MARK = "Loom slip "
PART = 9500
"""UTF-16 units of one part of a text that a host takes in parts."""
_ID_LENGTH = 16
_ANY_ID = "0" * _ID_LENGTH
_MOST_NOTES = 1500
_ASK_ROOM = 320
_COUNTED = " (part {} of {})"

LOAD, SKIP, DEFER, ERROR = "load", "skip", "defer", "error"
WHOLE = ("full", "diff")
"""The forms after which a conversation has all of an artifact."""
OVER = ("condition_false", "other_phase")
"""The reasons for which an artifact does not apply now."""


class Entry(NamedTuple):
    """What became of one artifact; form: full, diff, head, pointer, or None where nothing was given.

    base: the SHA-256 of the content that a diff begins with; given: the whole text, where all or the beginning was
    given; of: what it is of where that is no file's content; parts: those of the text that it stands in, from 1; rest:
    what to do for what is not given of it; file: the absolute path of the user's file whose content it is, if any.
    """

    id: str
    decision: str
    reason: str
    path: str | None
    bytes: int | None
    sha256: str | None
    form: str | None
    required: bool
    message: str
    base: str | None = None
    given: str = ""
    of: str = ""
    parts: Sequence[int] = ()
    rest: str = ""
    file: str = ""


class Slip(NamedTuple):
    """A packing slip with the text it describes.

    id: empty where nothing was due; parts: exactly what the conversation gets, each of them in an output of its own;
    used: in the budget's measure; history: what it tells of the run's tool steps (`prime_run.tool_history`), None
    where it tells none; at: where the run stands, for people.
    """

    id: str
    run_id: str
    event: str
    parts: Sequence[str]
    entries: Sequence[Entry]
    warnings: Sequence[tuple[str, str]]
    limit: int
    used: int
    history: Mapping[str, int] | None = None
    handle: str = ""
    at: str = ""

    @property
    def text(self) -> str:
        """All parts as one text."""
        return "\n\n".join(self.parts)

    @property
    def loaded(self) -> list[Entry]:
        """The artifacts that the text carries in some form."""
        return [entry for entry in self.entries if entry.decision == LOAD]

    @property
    def fresh(self) -> list[Entry]:
        """The artifacts that the conversation has already, unchanged."""
        return [entry for entry in self.entries if entry.reason == "fresh"]

    @property
    def failed(self) -> list[Entry]:
        """The required artifacts that could not be given (exit code 4, D18)."""
        return [entry for entry in self.entries if entry.decision == ERROR and entry.required]

    def to_dict(self) -> dict[str, Any]:
        """Give the document that `--json` prints."""
        keys = ("id", "decision", "reason", "path", "bytes", "sha256", "form")
        return {
            "schema_version": 1,
            "run_id": self.run_id,
            "handle": self.handle,
            "event": self.event,
            "slip_id": self.id or None,
            "artifacts": [
                {**{key: getattr(entry, key) for key in keys}, **({"base": entry.base} if entry.base else {})}
                for entry in self.entries
            ],
            "budget": {"limit": self.limit, "used": self.used},
            "warnings": [{"code": code, "message": message} for code, message in self.warnings],
        }

    def with_text(self) -> dict[str, Any]:
        """Give the same with the text itself, for a reader to whom this document is all that is printed."""
        return {**self.to_dict(), "text": self.text}


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


class Texts(NamedTuple):
    """The parts around the artifacts.

    head: who and where; history: one line each, oldest first; upcoming: the next thing to do; notes: lines that must
    be seen, such as what is missing and how to mend it; steps: what tools did, told whole or not at all; earlier: how
    many lines of history are not among these, for they would never fit.
    """

    head: str
    history: Sequence[str]
    upcoming: str
    notes: Sequence[str]
    steps: str = ""
    earlier: int = 0


def compose(texts: Texts, pieces: Sequence[Piece], budget: Budget) -> Packing:
    """Put the text of each part together so that, sealed, it never exceeds the budget, whatever the artifacts are.

    upcoming must already be cut to its share (`cut_lines`). What does not fit is left out whole, the artifacts last of
    all; but what was done gives way to a required artifact that fits without it (D62).
    """
    made = _compose(texts, pieces, budget)
    if (texts.steps or texts.history) and _cuts(made, pieces):
        without = _compose(texts._replace(history=(), steps="", earlier=0), pieces, budget)
        if not _cuts(without, pieces):
            return without
    return made


def _cuts(made: Packing, pieces: Sequence[Piece]) -> bool:
    return any(
        piece.required and not piece.own and piece.text is not None and packed.form not in WHOLE
        for piece, packed in zip(pieces, made.packed, strict=True)
    )


def _compose(texts: Texts, pieces: Sequence[Piece], budget: Budget) -> Packing:
    measure = budget.measure
    rooms = [room - measure(seal("", _ANY_ID, at, 9)) for at, room in enumerate(budget.rooms())]
    room = rooms[0] - (measure(_COUNTED.format(1, 1)) if len(rooms) > 1 else 0)
    upcoming = texts.upcoming if measure(texts.upcoming) <= room else ""
    room -= measure(upcoming) + 2
    head = cut_lines(visible(texts.head), max(0, min(room, budget.history)), measure)
    room -= measure(head) + 2
    notes = cut_lines("\n".join(texts.notes), max(0, min(room, _MOST_NOTES, budget.share(NEXT_SHARE))), measure)
    room -= measure(notes) + 2
    steps = texts.steps if measure(texts.steps) + 2 <= min(room, budget.history) else ""
    cost = measure(steps) + 2 if steps else 0
    room -= cost
    history = _newest(texts, max(0, min(room, budget.history - cost) - 2), measure)
    room -= measure(history) + 2

    ask_room = _ASK_ROOM if room >= _ASK_ROOM else 0
    made = pack(pieces, rooms=[max(0, room), *rooms[1:]], measure=measure, held_back=ask_room)
    ask = _ask(made.packed, pieces) if ask_room else ""
    first = (head, notes, made.texts[0], history, steps, upcoming + ("\n\n" + ask if ask else ""))
    bodies = ["\n\n".join(part for part in first if part), *made.texts[1:]]
    while len(bodies) > 1 and not bodies[-1]:
        bodies.pop()
    return made._replace(texts=bodies)


def _ask(packed: Sequence[Packed], pieces: Sequence[Piece]) -> str:
    """Ask for the one Read that gives most of what is missing: of the first of the user's files that is not whole.

    A host restores what was Read by itself after the next compaction.
    """
    for piece, one in zip(pieces, packed, strict=True):
        if piece.text is not None and not piece.own and not piece.of and one.form in ("head", "pointer") and one.rest:
            return one_line(f"Before you go on, {one.rest}: {piece.id} did not fit here in full.", _ASK_ROOM - 4)
    return ""


def without_marks(text: str) -> str:
    """Leave out the lines of slips from what tells of earlier outputs: an old slip is not given again by it."""
    return "\n".join(line for line in text.split("\n") if not line.startswith(MARK))


def short_id(digest: str) -> str:
    """Cut a SHA-256 to a slip's id."""
    return digest[:_ID_LENGTH]


def seal(text: str, slip_id: str, at: int = 0, count: int = 1) -> str:
    """Add the last line, by which a text is found again in a transcript (D15).

    at: the text's place among the parts of a slip, of which those behind the first are numbered.
    """
    opening = f"# Loom: part {at + 1} of {count} ({slip_id})\n\n" if at else ""
    return f"{opening}{text}\n\n{MARK}{slip_id}" + (f"-{at + 1}" if at else "")


def seal_parts(bodies: Sequence[str], slip_id: str) -> list[str]:
    """Number the parts of a text, and seal each under an id of its own."""
    count = len(bodies)
    if count > 1:
        first, _, rest = bodies[0].partition("\n")
        bodies = [f"{first}{_COUNTED.format(1, count)}\n{rest}", *bodies[1:]]
    return [seal(body, slip_id, at, count) for at, body in enumerate(bodies)]


def marks(slip_id: str, parts: Sequence[int]) -> list[str]:
    """Give the ids by which the parts behind the first are found, for those of the numbers that name one."""
    return [f"{slip_id}-{part}" for part in parts if part > 1]


def cut_lines(text: str, limit: int, measure: Callable[[str], int]) -> str:
    """Give the leading whole lines that fit in `limit`; no line is cut in its middle (D20)."""
    return text if measure(text) <= limit else "\n".join(_fitting(text.split("\n"), limit + 1, measure))


def _newest(texts: Texts, limit: int, measure: Callable[[str], int]) -> str:
    fit = _fitting(texts.history[::-1], limit - measure("(0000000 earlier lines left out)"), measure)
    left_out = texts.earlier + len(texts.history) - len(fit)
    if left_out and fit:
        fit.append(f"({left_out} earlier lines left out)")
    return "\n".join(reversed(fit))


def _fitting(lines: Sequence[str], room: int, measure: Callable[[str], int]) -> list[str]:
    fit: list[str] = []
    for line in lines:
        room -= measure(line) + 1
        if room < 0:
            break
        fit.append(line)
    return fit
