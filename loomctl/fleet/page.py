"""A fleet's board as one page that needs nothing else, with the style of a run's report (D78)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from loomctl.fleet.board import span, when
from loomctl.fleet.model import AFTER, CANCELLED, DONE, DRIVEN, FAILED, LATER, PAUSED, QUEUED, WAITS
from loomctl.kit import clock, files
from loomctl.kit.package import __version__
from loomctl.kit.text.fences import counted
from loomctl.kit.text.secrets import masked_line
from loomctl.views import page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.fleet.board import Board, Later
    from loomctl.fleet.model import Row

MOST = 100  # of each kind that a page lists
MADE_BY = f"{page.MADE_BY} of a fleet {__version__}"
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "assets")
# A state is told by a sign, words and a tone, in the order in which a person wants to know of it.
_STATES = {
    WAITS: ("?", "waiting for you", "warn"),
    FAILED: ("✕", "failed", "bad"),
    DRIVEN: ("▸", "driven", "busy"),
    QUEUED: ("○", "queued", "calm"),
    LATER: ("◷", "later", "calm"),
    AFTER: ("↳", "after others", "calm"),
    PAUSED: ("‖", "paused", "warn"),
    DONE: ("✓", "done", "good"),
    CANCELLED: ("⊘", "cancelled", "calm"),
}
_IN_A_BAR = (DONE, CANCELLED, FAILED, WAITS, PAUSED, DRIVEN, LATER, AFTER, QUEUED)  # from what is over to what comes


def style() -> str:
    """Give the one style sheet of the page."""
    return page.asset("report.css") + _own("board.css")


def script() -> str:
    """Give the script of a page that follows its fleet."""
    return _own("board.js")


def _own(name: str) -> str:
    return files.read_bytes(os.path.join(_FOLDER, name)).decode()


def policy(*, live: bool) -> str:
    """Give the page's content security policy. live: the page asks whoever served it for a newer one."""
    made = page.policy(style(), script() if live else "")
    return f"{made}; connect-src 'self'" if live else made


def made(board: Board, name: str, *, live: bool = False) -> str:
    """Give the whole page. name: of the project; live: it is served, and follows the fleet.

    Whatever a run says, nothing of it becomes markup, style or script: each text is escaped, and the policy allows the
    one style sheet, and in a live page the one script, by their hashes.
    """
    template = page.environment().from_string(page.flat(_own("board.html")))
    text: str = template.render(
        board=board,
        name=masked_line(name, 120),
        counts=[(*_STATES[state], n) for state in _STATES if (n := board.counts.get(state))],
        pieces=[*_pieces(board)],
        tiles=[*_tiles(board)],
        waits=[{**_row(board, row), "asked": row.why, "kind": row.kind} for row in board.waits.rows],
        driven=[_row(board, row) for row in board.driven.rows],
        queued=[{**_row(board, row), "stopped": board.is_stopped(row)} for row in board.queued.rows],
        later=[_later(board, one) for one in board.later],
        paused=[_row(board, row) for row in board.paused.rows],
        holds=[(one, when(one.until, board.at)) for one in board.holds],
        machines=[{**one._asdict(), "is_silent": one.is_silent, "ago": span(one.age)} for one in board.machines],
        at=clock.stamp(board.at),
        made_by=MADE_BY,
        policy=policy(live=live),
        style=style(),
        script=script() if live else "",
        limit=span(board.limit),
    )
    return text + "\n"


def _pieces(board: Board) -> Iterator[tuple[float, float, str]]:
    """Give the parts of the bar: where each begins and how wide it is, in percent, and its state."""
    x = 0.0
    for state in _IN_A_BAR:
        width = page.percent(board.counts.get(state, 0), board.runs)
        if width:
            yield round(x, 2), width, state
        x += width


def _tiles(board: Board) -> Iterator[tuple[str, str]]:
    yield f"{board.counts.get(DONE, 0):,} of {board.runs:,}", "done"
    yield f"{board.spent:,.2f}", "USD" if board.budget is None else f"of {board.budget:,.2f} USD"
    living = [one for one in board.machines if not one.is_silent]
    used = [one.used for one in living if one.used is not None]
    if living and len(used) == len(living) and not board.machines_more:
        what = f"slots used on {counted(len(living), 'machine')}"
        yield f"{sum(used):,} of {sum(one.slots for one in living):,}", what
    if board.waits.rows:
        yield span(board.at - board.waits.rows[0].since), "the longest wait for you"


def _row(board: Board, row: Row) -> dict[str, Any]:
    return {
        "handle": row.handle,
        "goal": row.goal,
        "workflow": row.lane.workflow,
        "host": row.lane.host,
        "step": row.step,
        "priority": row.priority,
        "cost": f"{row.cost:,.2f}",
        "machine": row.machine,
        "attempt": row.attempt,
        "command": row.command or f"loomctl status {row.handle}",
        "stamp": clock.stamp(row.since),
        "ago": span(board.at - row.since),
    }


def _later(board: Board, later: Later) -> dict[str, Any]:
    return {**_row(board, later.row), "because": later.why, "stuck": later.stuck}
