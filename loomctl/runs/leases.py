"""Who works on a run and who drives it: sessions come and go (D24-D26), the lease is taken, refreshed and given up.

The refusal itself is the store's (`runs/store/write_rules.py`): every write of a state passes there. Here stands what
each use case asks for, and what people are told.
"""

from __future__ import annotations

import os
import time

from loomctl.kit import clock, files, git, machine, trouble
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import lease, sessions, visits
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.store import write_rules
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.model.lease import Holder
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace

HELD_BY_ANOTHER = "HELD_BY_ANOTHER"
OWN_COMMAND, STAGE = "LOOM_RUN_ID", "LOOM_STAGE_DIR"  # in the environment of a run's command
REFRESHED_AFTER = 5 * 60  # seconds after which a hook of the driver's writes down that it lives
_ENDS_WITHIN = 1.5  # seconds: a driver without a turn looks twice a second whether it is asked to
_TOLD = "held_told"  # in a binding: the epoch of the other driver that its session was told of


def watching(space: Workspace) -> Workspace:
    """Give the workspace of who notes what was read: it takes no lease, and writes events alone beside a driver."""
    return space._replace(store=space.store.writing(write_rules.WATCH))


def entering(space: Workspace) -> Workspace:
    """Give the workspace of a session that starts: it takes a free lease, and writes events alone beside a driver."""
    return space._replace(store=space.store.writing(write_rules.ENTER))


def note_gone(space: Workspace, run_id: str) -> None:
    """Note of a run's driver, if its process runs no more, that it is gone: in a sandbox nobody could tell."""
    from loomctl.runs.machine import drivers

    found = lease.holder(space.store.read_state(run_id))
    if found is not None:
        drivers.note_gone(space.store.local, run_id, found)


def note_process(space: Workspace, run_id: str, session_id: str) -> None:
    """Note this caller's process as that of a session that drives a run, where that was not known: in a sandbox."""
    from loomctl.runs.machine import drivers

    found = lease.holder(space.store.read_state(run_id))
    if found is not None and found.session_id == session_id:
        drivers.complete(space.store.local, run_id, found, space.caller.pid)


def deciding(space: Workspace) -> Workspace:
    """Give the workspace of who decides of a run: in a terminal a person does, beside whoever drives it.

    A host's session decides only in the run that it drives (D29).
    """
    return space._replace(store=space.store.writing(write_rules.BESIDE)) if space.caller.host == TERMINAL else space


def setting(space: Workspace, run_id: str) -> Workspace:
    """Give the workspace of who sets a value of a run: as who drives it, but a person in a terminal drives it not.

    Beside a living driver they are refused; else they set it and leave the lease to who works on the run. The run's own
    command sets it beside whoever drives.

    Such a command has the run's id, its stage's folder and a key of its own in its environment (D40), and runs: what it
    left behind, and a shell that has the names alone, are nobody's command. For nothing else that drives that counts.
    """
    by_hand = space._replace(store=space.store.writing(write_rules.ONCE)) if space.caller.host == TERMINAL else space
    if os.environ.get(OWN_COMMAND) != run_id:
        return by_hand
    from loomctl.runs import command_runs

    stages = os.path.join(os.path.realpath(space.store.run_dir(run_id)), "stages", "")
    folder = os.path.realpath(os.environ.get(STAGE, ""))
    key = os.environ.get(command_runs.KEY, "")
    runs = folder.startswith(stages) and command_runs.is_of(folder, key)
    return space._replace(store=space.store.writing(write_rules.BESIDE)) if runs else by_hand


def taking_over(space: Workspace) -> Workspace:
    """Give the workspace of who takes a run from its driver."""
    return space._replace(store=space.store.writing(write_rules.TAKE_OVER))


def refuse_held(space: Workspace, run_id: str) -> None:
    """Refuse to drive a run that another drives, before anything of it is done. Raises HELD_BY_ANOTHER."""
    space.store.refuse_held(run_id, space.store.read_state(run_id))


def ask_driver_to_end(space: Workspace, run_id: str, found: Holder) -> None:
    """Ask a `loomctl drive` of the same user's here to end after its step. Raises HELD_BY_ANOTHER, which says so.

    One between two turns, as it waits for a time, ends at once: then nothing is raised. Another driver is asked
    nothing, and neither is one by what a driver started.
    """
    from loomctl.runs.machine import drivers

    local = space.local.folder
    if write_rules.started_for()[0] or not drivers.may_ask(local, run_id, found):
        return
    try:
        drivers.ask_to_end(local, run_id, found, drivers.AFTER_STEP)
    except OSError:  # it cannot be asked: the run is held as any other
        return
    until = time.monotonic() + _ENDS_WITHIN
    while time.monotonic() < until:
        if space.store.held(run_id, space.store.read_state(run_id)) is None:
            return
        time.sleep(0.1)
    raise drivers.ends_soon(space.store.handle(run_id), found)


def refuse_to_replace(space: Workspace, run_id: str, state: State) -> None:
    """Refuse to put another state in the place of one that another session drives here. Raises HELD_BY_ANOTHER.

    One that drives on another machine does so wherever its state is copied to.
    """
    from loomctl.runs.machine import drivers

    found = space.store.held(run_id, state)
    if found is not None and drivers.is_here(space.local.folder, run_id, found):
        raise drivers.refusal(space.store.handle(run_id), found)


def release(state: State, session_id: str, reason: str) -> tuple[State, list[Event]]:
    """Give the lease up if it is the session's; the epoch stays."""
    found = lease.holder(state)
    if found is None or found.session_id != session_id:
        return state, []
    told = {"epoch": found.epoch, "reason": reason}
    return lease.released(state, clock.now()), [Event("lease.released", told, session_id)]


class Released(NamedTuple):
    """A lease that was given up by hand. holder: whose it was; how: `mine`, `terminal` (this user's) or `gone`."""

    holder: Holder
    how: str


def released_by_hand(space: Workspace, run_id: str, state: State) -> Released | None:
    """Say whose lease the caller may give up, and why; None where nobody drives.

    Raises HELD_BY_ANOTHER where another who may live drives, unless that is a terminal of the same user.
    """
    from loomctl.runs.machine import drivers

    found, at = lease.holder(state), (space.local.folder, run_id)
    if found is None:
        return None
    if drivers.is_users_terminal(*at, found) and found.session_id != space.caller.session_id:
        return Released(found, "terminal" if drivers.lives(*at, found) else "gone")
    other = space.store.held(run_id, state)
    if other is None and write_rules.started_for()[0] != run_id:
        return Released(found, "mine" if found.session_id == space.caller.session_id else "gone")
    seen = {"is_here": drivers.is_here(*at, found), "is_seen": drivers.is_seen(*at, found)}
    raise drivers.refusal(space.store.handle(run_id), found, **seen)


def release_by_hand(space: Workspace, run_id: str) -> Released | None:
    """Give a run's lease up, so that whoever comes next drives it; None where nobody drove. Raises HELD_BY_ANOTHER."""
    from loomctl.runs.machine import drivers

    done: list[Released | None] = []

    def change(state: State) -> tuple[State, list[Event]]:
        done[:] = [released_by_hand(space, run_id, state)]
        if done[0] is None:
            return state, []
        found, how = done[0]
        told = {"epoch": found.epoch, "reason": "by_hand", "how": how, "from": lease.brief(found)}
        return lease.released(state, clock.now()), [Event("lease.released", told, space.caller.session_id)]

    space.store.writing(write_rules.BESIDE).update(run_id, change)
    if done[0] is not None:
        drivers.forget(space.local.folder, run_id, done[0].holder.session_id)
    return done[0]


def take_from_elsewhere(space: Workspace, run_id: str) -> None:
    """Give a run's lease up that a `loomctl drive` on another machine holds: whoever calls knows that it is gone."""
    from loomctl.runs.machine import drivers

    def change(state: State) -> tuple[State, list[Event]]:
        found = lease.holder(state)
        if found is None or found.host != drivers.HOST or drivers.is_here(space.local.folder, run_id, found):
            return state, []
        return release(state, found.session_id, "taken_over")

    space.store.writing(write_rules.BESIDE).update(run_id, change)


def give_up(space: Workspace, run_id: str) -> None:
    """Give a run up that the caller's session drove until it took up another; what fails is no trouble of that one."""
    session_id = space.caller.session_id
    if session_id is None:
        return
    try:
        watching(space).store.update(
            run_id, lambda state: release(state, session_id, "left"), durable=False, patience=0.5
        )
        forget(space, run_id)
    except (OSError, LoomError):
        pass


def forget(space: Workspace, run_id: str) -> None:
    """Forget the caller's process as a run's driver, whatever its state says."""
    from loomctl.runs.machine import drivers

    drivers.forget(space.local.folder, run_id, space.caller.session_id)


def refresh(space: Workspace, run_id: str) -> None:
    """Write down that the driver lives, every few minutes, where a hook of its session runs anyway; never fails.

    A state that the driver itself wrote meanwhile says so already: its time is noted, and nothing is written.
    """
    from loomctl.runs.machine import drivers

    now, local, session_id = time.time(), space.local.folder, space.caller.session_id
    if session_id is None or now - drivers.last_sign(local, run_id) < REFRESHED_AFTER:
        return

    at = now

    def change(state: State) -> tuple[State, list[Event]]:
        nonlocal at
        found = lease.holder(state)
        if found is None or found.session_id != session_id:
            return state, []
        sign = clock.seconds_of(found.seen)
        if 0 <= now - sign < REFRESHED_AFTER:
            at = sign
            return state, []
        return lease.seen(state, clock.now()), []

    try:
        watching(space).store.update(run_id, change, durable=False, patience=0.2)
        drivers.sign(local, run_id, session_id, at)
    except (OSError, LoomError):
        pass


def line(space: Workspace, run_id: str, found: Holder) -> str:
    """Say in one line who drives a run, to who does not, and how it is taken over."""
    from loomctl.kit.text.fences import one_line  # most hooks say nothing of it
    from loomctl.runs.machine import drivers

    sign = f", last sign {clock.ago(one_line(found.seen, 20))}" if found.seen else ""
    handle = space.store.handle(run_id)
    way = drivers.way_in(space.local.folder, run_id, handle, found)
    return f"the run {handle} is driven by {drivers.told(found)}{sign}. You can read it here, or take it over: {way}"


def told_once(space: Workspace, binding: Mapping[str, Any], found: Holder) -> str:
    """Tell a bound session that another drives its run, once for each driver; empty where it knows."""
    if binding.get(_TOLD) == found.epoch:
        return ""
    try:
        noted = {**binding, _TOLD: found.epoch}
        space.local.refresh(noted, pid=space.caller.pid, transcript_path=None)
    except (OSError, LoomError):
        pass
    return f"Loom: {line(space, str(binding['run_id']), found)}"


def document(space: Workspace, run_id: str, state: State) -> dict[str, Any] | None:
    """Give who drives a run as documents tell it, `here`: the caller does; None where nobody who may live does."""
    found = lease.holder(state)
    if found is None or state.get("status") in OVER:  # a run that is over is nobody's
        return None
    other = space.store.held(run_id, state)
    mine = found.session_id == space.caller.session_id and other is None
    return {"epoch": found.epoch, **lease.brief(found), "here": mine} if mine or other is not None else None


def keep_result(space: Workspace, run_id: str, text: str) -> str:
    """Keep a result that was not taken, for its user alone; gives the file, or an empty string where none can be."""
    from loomctl.runs.store.leftovers import UNSENT  # seldom

    folder = os.path.join(space.local.folder, UNSENT)
    path = os.path.join(folder, f"{run_id}-{clock.run_stamp()}-{os.getpid()}.md")
    try:
        files.refuse_links(space.store.folder, path)
        files.make_folder(folder)
        files.write_atomically(path, text.encode("utf-8", "surrogatepass"), mode=0o600)
    except (OSError, LoomError):
        return ""
    return path


def surroundings(space: Workspace) -> dict[str, Any]:
    """Describe this machine for a session record; asks git, so it is done before a lock is taken."""
    return machine.environment(space.project.root, space.caller.cwd, on_hook_path=space.caller.on_hook_path)


def without_git(space: Workspace) -> list[str]:
    """Say what cannot be known of a repository where there is no git to ask; empty where that is no loss."""
    import shutil

    if git.top_of(space.project.root) is None or shutil.which("git") is not None:
        return []
    return ["There is no git on PATH, so Loom cannot see which files change."]


def enter(
    space: Workspace, state: State, source: str, environment: Mapping[str, Any], *, compaction: str = "auto"
) -> tuple[State, list[Event]]:
    """Record that the caller's session works on the run; a caller without a session changes nothing.

    source: the host's word (startup, resume, clear, fork, compact) or `bound`.
    """
    session_id = space.caller.session_id
    if session_id is None:
        return state, []
    at = clock.now()
    known = sessions.record_of(state, session_id) is not None
    earlier = None
    if not known and sessions.count(state) > len(sessions.history(state)):
        from loomctl.runs.store import recovery  # most runs have few

        earlier = recovery.earlier_session(space.store.run_dir(state["run_id"]), session_id)
    known = known or earlier is not None
    alive = set(space.local.live_sessions(state["run_id"]))
    lost_before = {record.get("session_id") for record in sessions.history(state) if record.get("ended_at")}
    state = sessions.entered(
        state,
        session_id,
        host=space.caller.host,
        source=source,
        at=at,
        environment=environment,
        alive=alive,
        compaction=compaction,
        earlier=earlier,
    )
    if source == "compact":
        state = sessions.forgotten(state)
    happened = [
        Event("session.lost", {"session_id": record["session_id"]}, session_id)
        for record in sessions.history(state)
        if record.get("end_reason") == "lost" and record.get("session_id") not in lost_before
    ]
    if source == "compact":
        happened.append(Event("session.compacted", {"trigger": compaction}, session_id))
    elif not known:
        origin = (space.local.binding(session_id) or {}).get("inherited_from")  # whose run it took over (D2)
        properties = {"source": source, "hostname": environment.get("hostname")}
        properties |= {"inherited_from": origin} if isinstance(origin, str) else {}
        happened.append(Event("session.started", properties, session_id))
    elif source != "bound":
        happened.append(Event("session.resumed", {"source": source}, session_id))
    return state, happened


def note_activity(space: Workspace, state: State) -> State:
    """Note the session's last sign of life, and at which commit it gave it: what a resume elsewhere compares with."""
    return sessions.active(state, space.caller.session_id, at=clock.now(), commit=_commit(space))


def _commit(space: Workspace) -> str | None:
    top = git.top_of(space.project.root)
    return git.head(top).commit if top is not None else None


def note_stage(
    space: Workspace, state: Mapping[str, Any], *, transcript_path: str | None = None, told: bool = True
) -> None:
    """Note in the session's binding which visit it was told of: another session may end it meanwhile.

    It is a sign of life besides. transcript_path: what a hook event tells of it; told: False where nothing was said.
    """
    binding = space.local.binding(space.caller.session_id)
    if binding is None or binding["run_id"] != state["run_id"]:
        return
    entry = visits.open_visit(state)
    if told:
        here = {"step": entry["step_id"], "stage": entry.get("stage")} if entry else {"step": None, "stage": None}
        binding = {**binding, **here}
    space.local.refresh(binding, pid=space.caller.pid, transcript_path=transcript_path)


def noted_stage(space: Workspace, state: Mapping[str, Any]) -> list[str]:
    """Note the same after what cannot be taken back: what goes wrong is given as a line for the user, not raised.

    A branch is worked on beside the session's own line, which stays at its parallel step.
    """
    if visits.is_branch(state):
        return []
    try:
        note_stage(space, state)
    except (OSError, LoomError) as error:
        return [f"Loom could not record what this session knows ({trouble.said(error)})."]
    return []


def leave(space: Workspace, run_id: str, reason: str) -> None:
    """Close the caller's record when its conversation ends, and give the lease up: one small write (D26)."""
    session_id = space.caller.session_id
    if session_id is None:
        return
    commit = _commit(space)

    def change(state: State) -> tuple[State, list[Event]]:
        closed = sessions.left(state, session_id, at=clock.now(), reason=reason, commit=commit)
        ended = Event("session.ended", {"reason": reason}, session_id)
        if reason == "clear":  # its process goes on, and the session that comes inherits (D2)
            return closed, [ended]
        freed, gave_up = release(closed, session_id, reason)
        return freed, [*gave_up, ended]

    try:
        watching(space).store.update(run_id, change, durable=False, patience=0.5)
    finally:
        if reason != "clear":  # also where the state could not be written: nobody waits for who went
            forget(space, run_id)
