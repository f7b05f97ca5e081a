"""Which run is meant (D1): the one that was named, the one this session is bound to, the only active one, or none."""

from __future__ import annotations

import os

from loomctl.kit import git
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_SKEW, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs import leases
from loomctl.runs.machine import run_notes
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.model.state import handle
from loomctl.runs.store import write_rules
from loomctl.runs.store.layouts import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.lease import Holder
    from loomctl.runs.project import Workspace
    from loomctl.runs.store import run_index


WAYS = 'loomctl run "what to do" starts one, loomctl resume RUN continues one'
NEED_THE_LEASE = ("context set",)  # of what a person does without naming the run


class Found(NamedTuple):
    """how: `named`, `bound`, `only` (never driven, never written to), `last` (the same, and over) or `none`.

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


def _standing(space: Workspace) -> run_index.Standing:
    from loomctl.runs.store import run_index  # a bound session needs no list of runs

    look = run_index.standing_quick if space.caller.on_hook_path else run_index.standing
    return look(space.store)


def find(space: Workspace, named: str | None = None, *, over: bool = True) -> Found:
    """Find the run by D1's order. Raises only for a named run that is not there (NO_SUCH_RUN, AMBIGUOUS_RUN).

    over: whether a bound run counts that is completed or cancelled; it is there to be looked at, and never active (D4).
    """
    if named is not None:
        from loomctl.runs.store.match import match

        return Found(match(space.store, named), "named")
    binding = space.local.binding(space.caller.session_id)
    bound = binding is not None and space.store.has(binding["run_id"])
    bound = bound and (over or binding is None or not _is_over(space, binding["run_id"]))
    root = space.project.root
    # A terminal may have been bound in another worktree than it is in now: a shell goes from one to the other.
    is_here = binding is not None and (binding.get("host") != TERMINAL or binding.get("root", root) == root)
    if binding is not None and bound and is_here:
        return Found(binding["run_id"], "bound")
    meant = write_rules.started_for()[0]
    if meant and not bound and space.store.has(meant):  # by its driver, until its assistant has taken it up (D74)
        return Found(meant, "only")
    active, unreadable = _standing(space)
    own = _of_this_worktree(space, active) if bound or len(active) > 1 else None
    if own is not None:
        return Found(own, "only", active, unreadable)
    if binding is not None and bound:
        return Found(binding["run_id"], "bound")
    if len(active) == 1:
        return Found(active[0], "only", active, unreadable)
    pointed = _pointed_at(space) if active else None
    if pointed in active:
        return Found(pointed, "only", active, unreadable)
    return Found(None, "none", active, unreadable)


def _of_this_worktree(space: Workspace, active: Sequence[str]) -> str | None:
    """Give the one active run that was worked on last in this worktree; None outside of worktrees (D3)."""
    if space.caller.on_hook_path or not git.worktrees(os.path.dirname(space.project.store)):
        return None
    own = [run_id for run_id in active if _last_root(space, run_id) == space.project.root]
    return own[0] if len(own) == 1 else None


def _last_root(space: Workspace, run_id: str) -> str | None:
    from loomctl.runs.model import sessions  # most projects have no worktrees

    try:
        return sessions.root_of(sessions.last(space.store.read_state(run_id)))
    except LoomError:
        return None


def _pointed_at(space: Workspace) -> str | None:
    """Give the run that FABER's pointer file names: a hint, which decides between several active runs (D5)."""
    from loomctl.runs import faber_runs

    return next((named for root in space.project.faber_roots if (named := faber_runs.pointed_at(root))), None)


def is_bound(space: Workspace, run_id: str) -> bool:
    """Tell whether the caller's session is bound to the run."""
    return (space.local.binding(space.caller.session_id) or {}).get("run_id") == run_id


def _is_over(space: Workspace, run_id: str) -> bool:
    """Tell whether a run is completed or cancelled; one that cannot be read is not, so that this is said."""
    try:
        return space.store.read_state(run_id)["status"] in OVER
    except (OSError, LoomError):
        return False


def to_read(space: Workspace, named: str | None = None) -> Found:
    """Find a run to look at; raises what `none` gives where there is none."""
    found = find(space, named)
    if found.run_id is None:
        raise none(space, found)
    return found


def to_show(space: Workspace, named: str | None = None) -> Found:
    """Find a run that is only shown: as `to_read`, but without one under way the one that was worked on last.

    It is over, and who shows it says so.
    """
    found = find(space, named)
    if found.run_id is not None:
        return found
    if not found.candidates and not found.unreadable:
        from loomctl.runs.store import run_index

        last = run_index.last(space.store)
        if last is not None and last["status"] in (*OVER, "failed"):
            return Found(last["run_id"], "last")
    raise none(space, found)


def run_to_read(space: Workspace, named: str | None = None) -> str:
    """Give the id of a run to look at. Raises as `to_read`."""
    run_id = to_read(space, named).run_id
    assert run_id is not None  # to_read raises instead
    return run_id


def to_drive(
    space: Workspace, named: str | None = None, *, verb: str = "", by_hand: bool = False, stranger: bool = False
) -> str:
    """Find a run to drive: named or bound, never the third rule's (D1).

    verb: what a person does (`approve`, `pause`, `cancel`). In a terminal it reaches the only run that there is, too; a
    host's session that does not drive the run is refused. by_hand: it may come to be a person's decision, so that the
    store alone refuses. What a person decides goes beside (`leases`). stranger: in a terminal it may be one that other
    machines drive, and that nobody took up here.

    Raises HELD_BY_ANOTHER where another drives the run, before it asks whether the session may: who drives is what a
    second session wants to know. Raises NOT_BOUND and NOT_KNOWN_HERE else, and as `to_read`.
    """
    found = to_read(space, named)
    run_id = found.run_id
    assert run_id is not None  # to_read raises instead
    in_a_terminal = space.caller.host == TERMINAL
    writes = space
    if verb in NEED_THE_LEASE:
        writes = leases.setting(space, run_id)
    elif by_hand or verb:
        writes = leases.deciding(space)
    bound = found.how == "bound" or is_bound(space, run_id)
    if in_a_terminal or bound or not verb or verb in NEED_THE_LEASE:
        leases.refuse_held(writes, run_id)
    if found.how == "bound":
        return run_id
    works_for_driver = write_rules.started_for()[0] == run_id  # as a command that does its steps (D73)
    if found.how == "named" or (in_a_terminal and (verb or works_for_driver)):
        if not (stranger and in_a_terminal):
            must_be_known(space, run_id)
        if in_a_terminal or not verb or bound:
            return run_id
    way = way_in(space, run_id)
    decides = f"only a person in a terminal, or the session that drives the run, may do that; first {way}"
    why = decides if verb else "it has neither started nor resumed the run"
    unusable = space.local.unusable_binding(space.caller.session_id)
    if unusable:
        why = "its file is damaged, or belongs to another copy of the project"
    what = f"this session does not drive the run {space.store.handle(run_id)}"
    raise LoomError("NOT_BOUND", what, where=unusable, why=why, hint=way, exit_code=EXIT_NO_RUN)


def way_in(space: Workspace, run_id: str) -> str:
    """Give the command that takes a run up from here, from its driver where there is one."""
    from loomctl.runs.machine import drivers

    called, found = space.store.handle(run_id), driver(space, run_id)
    way = f"loomctl resume {called}"
    way = way if found is None else drivers.way_in(space.local.folder, run_id, called, found)
    return f"{way} --reopen" if _is_over(space, run_id) else way


def is_left_by_a_drive(space: Workspace, state: Mapping[str, Any]) -> bool:
    """Tell whether a drive of a run has ended and nobody has taken it up since: from a terminal it is driven on."""
    from loomctl.runs.model import driving, lease

    return space.caller.host == TERMINAL and driving.end(state) is not None and lease.holder(state) is None


def driver(space: Workspace, run_id: str) -> Holder | None:
    """Give who else drives a run and may live; None too where its state cannot be read."""
    try:
        return space.store.held(run_id, space.store.read_state(run_id))
    except (OSError, LoomError):
        return None


def must_be_known(space: Workspace, run_id: str) -> None:
    """Refuse a run that this machine neither started nor resumed, here, since it came (D23). Raises NOT_KNOWN_HERE."""
    if run_notes.is_known(run_id, space.store.folder):
        return
    from loomctl.runs.machine import drivers

    found = driver(space, run_id)
    why = "a run that came with a project or a pull loads nothing until you resume it"
    unkept = "" if space.caller.shut_in else run_notes.unkept()  # a sandbox's hooks remember it
    raise LoomError(
        "NOT_KNOWN_HERE",
        f"the run {space.store.handle(run_id)} was not resumed here",
        where=space.store.run_dir(run_id),
        why=unkept or (why if found is None else f"{why}; it is driven by {drivers.told(found)}"),
        hint="loomctl doctor" if unkept else way_in(space, run_id),
        exit_code=EXIT_NO_RUN,
    )


def none(space: Workspace, found: Found) -> LoomError:
    """Give the error for a run that is not found: AMBIGUOUS_RUN; what is wrong with the one state; or NO_ACTIVE_RUN.

    The hint names the last run: one that is over is taken for the one that is meant by `to_show` alone (D1). A state
    that alone keeps a run from being found ends as if it were named; so do several that a newer Loom wrote, for one
    update reads them all.
    """
    from loomctl.runs.store import run_index
    from loomctl.runs.store.match import AmbiguousRunError

    if found.candidates:
        return AmbiguousRunError(space.store, found.candidates)
    refused = [error for run_id in found.unreadable if (error := _refused(space, run_id)) is not None]
    if refused and (len(refused) == 1 or all(error.exit_code == EXIT_SKEW for error in refused)):
        return refused[0]
    if found.unreadable:
        return no_active_run(f"the state of {', '.join(map(space.store.handle, found.unreadable[:5]))} cannot be read")
    last = run_index.last(space.store)
    if last is None:
        return no_active_run()
    standing = last["status"].replace("_", " ")
    error = no_active_run(f"the last one, {handle(last)}, is {standing}; {WAYS}", shown(handle(last)))
    error.meant = {"run": handle(last)}
    return error


def _refused(space: Workspace, run_id: str) -> LoomError | None:
    try:
        space.store.read_state(run_id)
    except LoomError as error:
        return error
    return None


def no_active_run(why: str = WAYS, hint: str = "loomctl runs") -> LoomError:
    """Say that nothing is under way, with the ways forward."""
    return LoomError("NO_ACTIVE_RUN", "No active run", why=why, hint=hint, exit_code=EXIT_NO_RUN)
