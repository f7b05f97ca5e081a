"""Which run is meant (D1): the one that was named, the one this session is bound to, the only active one, or none."""

from __future__ import annotations

from loomctl.disk import known
from loomctl.disk.local import TERMINAL
from loomctl.disk.store import ambiguous
from loomctl.model.errors import EXIT_NO_RUN, LoomError
from loomctl.model.records import NamedTuple
from loomctl.model.state import TERMINAL as OVER
from loomctl.model.state import is_active

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from loomctl.engine.caller import Workspace


class Found(NamedTuple):
    """how: `named`, `bound`, `only` (never driven, never written to) or `none`.

    candidates: active runs, for a list; unreadable: runs whose state cannot be read, which is not the same as none.
    """

    run_id: str | None
    how: str
    candidates: Sequence[str] = ()
    unreadable: Sequence[str] = ()

    @property
    def may_write(self) -> bool:
        """Tell whether the run's state may be written for this caller."""
        return self.how in ("named", "bound")


def active_runs(space: Workspace) -> list[str]:
    """List the runs in an active status, by id; a state that cannot be read is not active."""
    return _standing(space)[0]


def _standing(space: Workspace) -> tuple[list[str], list[str]]:
    """Give the active runs and those that cannot be read."""
    active: list[str] = []
    unreadable: list[str] = []
    for run_id in space.store.run_ids():
        try:
            if is_active(space.store.read_state(run_id)):
                active.append(run_id)
        except LoomError as error:
            if error.code != "BAD_ID":  # a folder of somebody else's
                unreadable.append(run_id)
    return active, unreadable


def find(space: Workspace, named: str | None = None, *, over: bool = True) -> Found:
    """Find the run by D1's order. Raises only for a named run that is not there (NO_SUCH_RUN, AMBIGUOUS_RUN).

    over: whether a bound run counts that is completed or cancelled; it is there to be looked at, and never active (D4).
    """
    if named is not None:
        return Found(space.store.match(named), "named")
    binding = space.local.binding(space.caller.session_id)
    if binding is not None and binding["run_id"] in space.store.run_ids() and (over or not _is_over(space, binding)):
        return Found(binding["run_id"], "bound")
    active, unreadable = _standing(space)
    if len(active) == 1:
        return Found(active[0], "only", active, unreadable)
    return Found(None, "none", active, unreadable)


def is_bound(space: Workspace, run_id: str) -> bool:
    """Tell whether the caller's session is bound to the run."""
    return (space.local.binding(space.caller.session_id) or {}).get("run_id") == run_id


def _is_over(space: Workspace, binding: dict[str, Any]) -> bool:
    """Tell whether a bound run is completed or cancelled; one that cannot be read is not, so that this is said."""
    try:
        return space.store.read_state(binding["run_id"])["status"] in OVER
    except LoomError:
        return False


def to_read(space: Workspace, named: str | None = None) -> Found:
    """Find a run to look at; raises AMBIGUOUS_RUN or NO_ACTIVE_RUN where there is none."""
    found = find(space, named)
    if found.run_id is None:
        raise ambiguous(found.candidates) if found.candidates else no_active_run(found.unreadable)
    return found


def to_drive(space: Workspace, named: str | None = None, *, verb: str = "") -> str:
    """Find a run to drive: named or bound, never the third rule's (D1). Raises NOT_BOUND besides.

    verb: what a person may say of a run without driving it (`approve`, `pause`, `cancel`), for the hint.
    """
    found = to_read(space, named)
    if found.run_id is not None and found.how == "named":
        must_be_known(space, found.run_id)
        if verb and space.caller.host != TERMINAL and not is_bound(space, found.run_id):
            raise LoomError(
                "NOT_BOUND",
                f"this session does not drive the run {found.run_id}, so it may not {verb} it",
                why="that is decided by a person, in a terminal or in the session that drives the run",
                hint=f"loomctl {verb} {found.run_id}",
                exit_code=EXIT_NO_RUN,
            )
    if found.run_id is None or not found.may_write:
        raise LoomError(
            "NOT_BOUND",
            f"this session does not drive the run {found.run_id}",
            why="only run and resume bind a session to a run",
            hint=f"loomctl {verb or 'resume'} {found.run_id}",
            exit_code=EXIT_NO_RUN,
        )
    return found.run_id


def must_be_known(space: Workspace, run_id: str) -> None:
    """Refuse a run that this machine neither started nor resumed, here (D23). Raises NOT_KNOWN_HERE."""
    if known.is_known(run_id, space.store.folder):
        return
    raise LoomError(
        "NOT_KNOWN_HERE",
        f"this machine neither started nor resumed the run {run_id}",
        where=space.store.run_dir(run_id),
        why="what came with a project is taken up only when its user says so",
        hint=f"loomctl resume {run_id}",
        exit_code=EXIT_NO_RUN,
    )


def no_active_run(unreadable: Sequence[str] = ()) -> LoomError:
    """Say that nothing is under way, with the ways forward; a run that cannot be read is named, not passed over."""
    return LoomError(
        "NO_ACTIVE_RUN",
        "No active run",
        why=f"the state of {', '.join(unreadable[:5])} cannot be read: loomctl runs" if unreadable else "",
        hint='loomctl run "what to do" starts one; loomctl resume RUN takes one up; loomctl runs lists all',
        exit_code=EXIT_NO_RUN,
    )
