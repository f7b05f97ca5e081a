"""A fleet's board as lines of text: what needs a person first, then what goes on, then what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.cli import output
from loomctl.fleet.board import asked, span, when
from loomctl.fleet.model import AFTER, CANCELLED, DONE, DRIVEN, FAILED, LATER, PAUSED, QUEUED, WAITS
from loomctl.kit.text import fences
from loomctl.kit.text.fences import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loomctl.fleet.board import Board, Failures, Machine

_BOLD, _YELLOW, _RED = "bold", "yellow", "red"
_NARROWEST, _WIDEST = 40, 100  # columns
_FEW = 5  # of what needs nobody now
_GROUPS = 10
_INDENT = "    "
WORDS = {
    WAITS: "{} waiting for you", FAILED: "{} failed", DRIVEN: "{} driven", QUEUED: "{} queued", LATER: "{} later",
    AFTER: "{} after others", PAUSED: "{} paused", DONE: "{} done", CANCELLED: "{} cancelled",
}  # fmt: skip
"""How many runs stand how, in the order in which a person wants to know it."""
EMPTY = (
    "The fleet is empty. To put work into it, and to let assistants work on it:",
    '    loomctl fleet add "add dark mode"',
    "    loomctl fleet work -j 4",
)


def lines(board: Board) -> Iterator[tuple[str, str]]:
    """Give the lines, each with its style, none wider than a screen but for commands, which are pasted."""
    if not board.runs:
        yield from ((line, "") for line in EMPTY)
    else:
        for line in fences.wrapped(head(board), _wide(), 3):
            yield line, _BOLD
        yield from _attention(board)
        yield from _waits(board)
        yield from _failed(board)
        yield from _driven(board)
        yield from _to_come(board)
    yield from _machines(board.machines, board.machines_more)


def head(board: Board) -> str:
    """Say in a line how many runs stand how, and what they cost."""
    counts = ", ".join(words.format(f"{n:,}") for state, words in WORDS.items() if (n := board.counts.get(state)))
    return f"{counts}; {cost(board)}"


def cost(board: Board) -> str:
    """Say what was spent, and of how much."""
    return f"{board.spent:,.2f}{f' of {board.budget:,.2f}' if board.budget is not None else ''} USD"


def _wide() -> int:
    return max(_NARROWEST, min(_WIDEST, output.columns()))


def _cut(text: str) -> str:
    return fences.cut(text, _wide())


def _title(words: str, number: int) -> tuple[str, str]:
    return f"{words} ({number:,})", _BOLD


def _more(number: int) -> Iterator[tuple[str, str]]:
    if number > 0:
        yield f"  and {number:,} more", ""


def troubles(board: Board) -> Iterator[tuple[str, str]]:
    """Give what holds back more than one run: a sentence, and the command that goes on, if there is one."""
    if board.no_worker:
        yield (
            "no worker lives, so nothing begins or goes on, also not what you have answered",
            "loomctl fleet work -j 4",
        )
    for stop in board.stops:
        runs = f", and {counted(stop.runs, 'run')} with it" if stop.runs else ""
        yield f"the workflow {stop.workflow} is paused{runs}: {stop.why}", stop.command
    for held in board.holds:
        runs = f" for {counted(held.runs, 'run')}" if held.runs else ""
        yield f"{held.host} starts again {when(held.until, board.at)}{runs}{f': {held.why}' if held.why else ''}", ""
    if board.lost:
        yield board.lost, ""
    if board.budget is not None and board.spent >= board.budget:
        yield f"the budget is spent: {cost(board)}", ""


def _attention(board: Board) -> Iterator[tuple[str, str]]:
    for sentence, command in troubles(board):
        for number, part in enumerate(fences.wrapped(sentence, _wide() - 2, 3)):
            yield f"{'  ' if number else '! '}{part}", _YELLOW
        if command:
            yield f"{_INDENT}{command}", ""


def _waits(board: Board) -> Iterator[tuple[str, str]]:
    if not board.waits.rows:
        return
    yield "", ""
    yield _title("WAITING FOR YOU", board.waits.number)
    for row in board.waits.rows:
        yield _cut(f"  {row.handle}  {span(board.at - row.since)}  {asked(row)}"), _YELLOW
        yield f"{_INDENT}{row.command or f'loomctl status {row.handle}'}", ""
    yield from _more(board.waits.more)


def _failed(board: Board) -> Iterator[tuple[str, str]]:
    if not board.failed:
        return
    yield "", ""
    yield _title("FAILED", sum(one.number for one in board.failed) + board.failed_more)
    for group in board.failed[:_GROUPS]:
        yield _cut(f"  {many(group)}: {said(group)}"), _RED
        if group.number > 1:
            yield _cut(f"{_INDENT}{names(group)}"), ""
        yield f"{_INDENT}{group.command}", ""
    yield from _more(board.failed_more + sum(one.number for one in board.failed[_GROUPS:]))


def many(group: Failures) -> str:
    """Name a group of failures by its one run, or by how many there are."""
    return group.handles[0] if group.number == 1 else f"{group.number:,} alike in {group.workflow}"


def said(group: Failures) -> str:
    """Say why they failed: the class and the reason of the newest."""
    kind = group.signature.partition(": ")[0]
    return f"{kind}: {group.why}" if kind and group.why else kind or group.why


def names(group: Failures) -> str:
    """Name a few of them."""
    left = group.number - len(group.handles)
    return ", ".join(group.handles) + (f" and {left:,} more" if left > 0 else "")


def _driven(board: Board) -> Iterator[tuple[str, str]]:
    rows = [
        [
            f"  {one.handle}",
            one.step,
            span(board.at - one.since),
            f"{one.cost:.2f}",
            f"{one.attempt}" if one.attempt > 1 else "",
            one.machine,
            one.lane.host,
        ]
        for one in board.driven.rows
    ]
    header = ["  RUN", "STEP", "FOR", "USD", "TRY", "MACHINE", "ASSISTANT"]
    if not any(row[4] for row in rows):
        header, rows = header[:4] + header[5:], [row[:4] + row[5:] for row in rows]
    yield from _table("DRIVEN", board.driven.number, header, rows, board.driven.more)


def _to_come(board: Board) -> Iterator[tuple[str, str]]:
    queued = []
    for one in board.queued.rows[:_FEW]:
        held = "held back" if board.is_stopped(one) else ""
        queued.append([f"  {one.handle}", str(one.priority), one.lane.workflow, held, one.goal])
    header = ["  RUN", "PRIORITY", "WORKFLOW", "", "WORK"]
    if not any(row[3] for row in queued):
        header, queued = header[:3] + header[4:], [row[:3] + row[4:] for row in queued]
    yield from _table("NEXT", board.queued.number, header, queued, board.queued.number - len(queued))
    later = [[f"  {'! ' if one.stuck else ''}{one.row.handle}", one.why] for one in board.later[:_FEW]]
    number = len(board.later) + board.later_more
    yield from _table("LATER", number, ["  RUN", "WHEN"], later, number - len(later))
    paused = [[f"  {one.handle}", one.command] for one in board.paused.rows[:_FEW]]
    header = ["  RUN", "TO LET IT GO ON"]
    yield from _table("PAUSED", board.paused.number, header, paused, board.paused.number - len(paused), keep=(0, 1))


def _table(
    title: str, number: int, header: list[str], rows: list[list[str]], more: int, keep: tuple[int, ...] = (0,)
) -> Iterator[tuple[str, str]]:
    if not rows:
        return
    yield "", ""
    yield _title(title, number)
    yield from ((line, "") for line in output.table(header, rows, keep=keep).split("\n"))
    yield from _more(more)


def _machines(machines: Sequence[Machine], more: int) -> Iterator[tuple[str, str]]:
    if not machines:
        return
    yield "", ""
    rows = [[f"  {one.name}", slots(one), sign(one)] for one in machines[:_GROUPS]]
    table = output.table(["  MACHINE", "SLOTS", "LAST SIGN"], rows).split("\n")
    yield table[0], ""
    for one, line in zip(machines, table[1:], strict=False):
        yield line, _YELLOW if one.silent else ""
    yield from _more(more + len(machines[_GROUPS:]))


def slots(machine: Machine) -> str:
    """Say how many slots of a machine are used."""
    if machine.is_silent:
        return "none"
    return f"{machine.slots:,}" if machine.used is None else f"{machine.used:,} of {machine.slots:,} used"


def sign(machine: Machine) -> str:
    """Say when a machine gave its last sign, and how many of its workers give none."""
    ago = f"{span(machine.age)} ago"
    if machine.is_silent:
        return f"{ago}: no worker lives"
    return f"{ago}; {counted(machine.silent, 'worker')} silent" if machine.silent else ago
