"""What puts runs away and brings them back: removal, archives (D56), and a damaged state or plan made whole (D53).

A run goes out of sight by one rename, under its lock; a kill leaves it whole in one of the two places.
"""

from __future__ import annotations

import itertools
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.flow.commands import evidence_commands
from loomctl.kit import clock, files, git, ids
from loomctl.kit.errors import EXIT_HELD, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.fences import counted
from loomctl.runs import archives, faber_runs, find, run_blobs
from loomctl.runs.artifact_paths import is_inside
from loomctl.runs.machine import drivers, run_notes
from loomctl.runs.machine.local import TERMINAL as OF_A_PERSON
from loomctl.runs.model import lease
from loomctl.runs.model.state import TERMINAL, is_active
from loomctl.runs.model.visits import OPEN, every
from loomctl.runs.store import arrivals, event_log, leftovers, recovery, visit_files
from loomctl.runs.store.events import Event, head_of
from loomctl.runs.store.layouts import Home
from loomctl.runs.store.match import AmbiguousRunError, match
from loomctl.runs.store.recovery import Losses, losses
from loomctl.runs.tools import recording
from loomctl.workflows import refreeze

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.model.lease import Holder
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.workflows.refreeze import Refrozen

_NOT_OVER = {  # how a run stands that may go on, though nothing happens in it now
    "paused": "is paused, and can be resumed",
    "awaiting_feedback": "waits for the user",
}


class BroughtBack(NamedTuple):
    """A run that came out of an archive. trouble: what keeps its state from being read, None where nothing does.

    lost: the references in its context behind which no whole blob is.
    """

    run_id: str
    files: int
    archive: str
    trouble: LoomError | None
    lost: tuple[str, ...] = ()


def removable(space: Workspace, named: str, *, force: bool) -> str:
    """Give the id of a run that may be put away. Raises SCHEMA_TOO_NEW, NOT_LOOMS; RUN_IS_ACTIVE without `force`."""
    run_id = match(space.store, named)
    home = space.store.home(run_id)
    if home.faber:
        kept = f"; Loom keeps its own files about it in {home.folder}" if os.path.isdir(home.folder) else ""
        why = f"move or remove its files yourself{kept}"
        what = f"the run {space.store.handle(run_id)} belongs to FABER, so Loom neither removes nor archives it"
        hint = _fabers_end(space, home)
        raise LoomError("NOT_LOOMS", what, where=home.state, why=why, hint=hint, exit_code=EXIT_USAGE)
    _refuse_active(space, run_id, force=force)
    return run_id


def _fabers_end(space: Workspace, home: Home) -> str:
    if not os.path.lexists(home.state):
        return f"rm -r {quoted(home.folder)}"
    try:
        status = space.store.read_home(home)["status"]
    except LoomError as error:
        return error.hint or f"loomctl check {quoted(home.state)}"
    return f"loomctl {'show' if status in TERMINAL else 'cancel'} {space.store.handle(home.run_id)}"


def _refuse_active(space: Workspace, run_id: str, *, force: bool) -> None:
    state: State | None = None
    driving: list[str] = []
    try:
        state = space.store.read_state(run_id)
        holder = space.store.held(run_id, state)
        driving = [holder.session_id[:60]] if holder is not None else []
    except LoomError as error:
        if error.code == "SCHEMA_TOO_NEW":  # it is whole, and what it refers to is known to a newer Loom alone
            raise
    if force or (state is not None and state["status"] in TERMINAL):  # nobody works on it, whoever did
        return
    holders = space.local.live_sessions(run_id, but=space.caller.session_id) or driving
    if holders or (state is not None and is_active(state)):
        called = space.store.handle(run_id)
        driven = space.caller.host != OF_A_PERSON and bool(driving)
        active = "is still active" + (f" in session {holders[0]}" if holders else "")
        how = _NOT_OVER.get(state["status"], active) if state is not None else active
        why = "only a run that is over is put away; --force does it anyway"
        why += "; or cancel the run in a terminal" if driven else ""
        what = f"the run {called} {how}"
        hint = f"loomctl resume {called} --take-over" if driven else f"loomctl cancel {called}"
        where = space.store.run_dir(run_id)
        raise LoomError("RUN_IS_ACTIVE", what, where=where, why=why, hint=hint, exit_code=EXIT_HELD)


def remove(space: Workspace, run_id: str, *, force: bool = False) -> None:
    """Remove a run's folder and what this machine knows of it. Raises RUN_IS_ACTIVE, HELD."""
    _stop_command(space, run_id, force=force)
    with space.store.lock(run_id) as lock:
        _refuse_active(space, run_id, force=force)
        doomed = _out_of_sight(space, run_id)
        leftovers.forget_unsent(space.store.local, run_id)
        lock.remove()
    shutil.rmtree(doomed)


def _stop_command(space: Workspace, run_id: str, *, force: bool) -> None:
    """Stop a command that runs in a run that is put away: nobody could find it later. Raises RUN_IS_ACTIVE."""
    _refuse_active(space, run_id, force=force)
    with suppress(LoomError):  # a run that cannot be read is put away all the same
        evidence_commands.stop_all(space, space.store.read(run_id))


def _out_of_sight(space: Workspace, run_id: str) -> str:
    """Move a run's folder where nothing looks for runs, and forget it; gives the folder that is to be deleted."""
    files.make_folder(space.store.local)
    doomed = os.path.join(space.store.local, f"{leftovers.REMOVED}{run_id}-{os.getpid()}")
    os.rename(space.store.run_dir(run_id), doomed)
    run_notes.forget_known(run_id, space.store.folder)
    run_notes.forget(space.store.local, run_id)
    evidence_commands.forget_run(space.store.local, run_id)
    leftovers.forget_sessions(space.store.local, run_id)
    return doomed


def archive_path(space: Workspace, run_id: str, named: str | None) -> str:
    """Give the place of a run's archive: below `.loom/archive`, in a folder that was named, or the file itself."""
    name = run_id + archives.SUFFIX
    if named is None:
        return os.path.join(space.store.folder, "archive", name)
    path = os.path.abspath(named)
    return os.path.join(path, name) if named.endswith(os.sep) or os.path.isdir(path) else path


def archive(space: Workspace, run_id: str, path: str, *, force: bool = False) -> tuple[int, tuple[str, ...]]:
    """Pack a run and the blobs that it names, read the archive back, give it its name, then remove the run.

    Gives how many files the archive holds, and the references to blobs that it could not bring along.
    Raises ARCHIVE_EXISTS, BAD_TARGET for a place in the run's own folder, ARCHIVE_BAD, NOT_A_FILE, RUN_IS_ACTIVE; the
    run stays then. It holds responses and outputs, so it is its owner's alone.
    """
    folder, called = space.store.run_dir(run_id), space.store.handle(run_id)
    if os.path.lexists(path):
        raise _archive_exists(path, called)
    if is_inside(os.path.realpath(path), os.path.realpath(folder)):
        what = "the archive would lie in the run's folder and be removed with it"
        raise LoomError("BAD_TARGET", what, where=path, hint=f"loomctl runs archive {called}", exit_code=EXIT_USAGE)
    recording.digest(space)  # what waits belongs into the archive
    _stop_command(space, run_id, force=force)
    with space.store.lock(run_id) as lock:
        _refuse_active(space, run_id, force=force)
        if is_inside(path, space.store.folder):  # the place that nobody named
            files.refuse_links(space.store.folder, path)
        files.make_folder(os.path.dirname(path))
        run_blobs.put_in(space, folder)
        lost = run_blobs.lost(space, folder)
        beside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        try:
            count = archives.pack(folder, run_id, beside)
        except OSError as error:
            raise files.naming(error, path) if error.filename in (None, beside) else error from None
        try:
            _named(beside, path, run_id)
        finally:
            files.remove(beside)
        doomed = _out_of_sight(space, run_id)
        lock.remove()
    shutil.rmtree(doomed)
    return count, lost


def _named(beside: str, path: str, run_id: str) -> None:
    """Give a finished archive its name, never over a file that came there meanwhile. Raises ARCHIVE_EXISTS."""
    try:
        os.link(beside, path)
    except OSError as error:
        if isinstance(error, FileExistsError) or os.path.lexists(path):
            raise _archive_exists(path, run_id) from None
        os.rename(beside, path)  # a file system without hard links
    files.sync_folder(os.path.dirname(path))


def _archive_exists(path: str, handle: str) -> LoomError:
    stem = path.removesuffix(archives.SUFFIX)
    names = (f"{stem}-{number}{archives.SUFFIX}" for number in itertools.count(2))
    free = next(name for name in names if not os.path.lexists(name))
    hint = f"loomctl runs archive {handle} --to {quoted(free)}"
    return LoomError("ARCHIVE_EXISTS", "refusing to overwrite an archive", where=path, hint=hint, exit_code=EXIT_USAGE)


def bring_back(space: Workspace, path: str) -> BroughtBack:
    """Unpack an archive and put its run among the others, whole or not at all; the archive stays.

    Raises BAD_ARCHIVE, RUN_EXISTS, SCHEMA_TOO_NEW, and RUN_ID_MISMATCH where the state in it is another run's.
    """
    space.store.prepare(commit_runs=space.settings.commit_runs)
    with arrivals.room(space.store, "") as staging:
        unpacked = archives.unpack(path, staging)
        run_id = ids.checked_id(unpacked.run_id)
        folder = os.path.join(staging, run_id)
        trouble = _trouble(space, folder, run_id, path)
        run_blobs.take_out(space, folder)
        lost = run_blobs.lost(space, folder)
        arrivals.into_place(space.store, folder, run_id)
    return BroughtBack(run_id, unpacked.files, path, trouble, lost)


def _trouble(space: Workspace, folder: str, run_id: str, path: str) -> LoomError | None:
    """Say what keeps an unpacked state from being read. Raises RUN_ID_MISMATCH, SCHEMA_TOO_NEW, BAD_ARCHIVE if none."""
    state, backup = os.path.join(folder, "state.json"), os.path.join(folder, "state.backup.json")
    try:
        space.store.read_home(Home(run_id, folder, state, backup, folder, faber=False))
    except LoomError as error:
        if error.code in ("RUN_ID_MISMATCH", "SCHEMA_TOO_NEW"):
            error.where = f"{path} state.json"
            raise
        if error.code == "NO_STATE" and not os.path.isfile(backup):
            raise LoomError(
                "BAD_ARCHIVE", "the archive holds no state of a run", where=path, hint=f"tar -tzf {quoted(path)}"
            ) from None
        return error
    return None


# What says that a file is damaged; anything else that keeps it from being read is no reason to replace it unasked.
DAMAGE = ("BAD_JSON", "GIT_CONFLICT", "BAD_STATE", "RUN_ID_MISMATCH", "NO_STATE", "TOO_LARGE")


class Restoration(NamedTuple):
    """What putting a state back means.

    home: where the run's files are; source: the file that the state is taken from; trouble: what is wrong with the
    state, None where it can be used; before: the one that goes, as far as it can be read; after: the one that comes;
    lost: None where `before` is not known; later: the log's entries behind the state that comes, which stay;
    damaged_lines: the log's that are no entries; written: when the state that goes was written, as it says itself or
    by its file's time; results: stages that have a result on disk of which the state that comes knows nothing.
    """

    home: Home
    source: str
    trouble: LoomError | None
    before: State | None
    after: State
    lost: Losses | None
    later: Sequence[dict[str, Any]]
    damaged_lines: int
    written: str
    results: Sequence[str]

    @property
    def changes(self) -> bool:
        """Whether the state would say anything else than it does."""
        return self.lost is None or self.lost.any

    @property
    def asks(self) -> bool:
        """Tell whether somebody must agree: what goes is not known to be damaged."""
        return self.trouble is None or self.trouble.code not in DAMAGE


class Standing(NamedTuple):
    """What is to be mended in a run: its state, its plan, both; None where nothing is.

    A plan that cannot be made anew stands as the error that says why.
    """

    run_id: str
    state: Restoration | None
    plan: Refrozen | LoomError | None


class Restored(NamedTuple):
    """What was done. kept: the name under which the state before stays, None where there was none; plan: as above."""

    kept: str | None
    plan: Refrozen | LoomError | None


def run_to_restore(space: Workspace, named: str | None) -> str:
    """Give the run to restore: named, bound, the only one that cannot be read, else the only active one."""
    if named is not None:
        return match(space.store, named)
    found = find.find(space)
    if found.how != "bound" and found.unreadable:
        if len(found.unreadable) > 1:
            raise AmbiguousRunError(space.store, found.unreadable)
        return found.unreadable[0]
    return find.run_to_read(space)


def examine_state(space: Workspace, run_id: str, *, source: str | None = None) -> Standing:
    """Look at a run's state and plan; reads alone.

    source: a file of the run's folder to take the state from, instead of the backup. A healthy state beside a damaged
    plan is left as it is, unless a source is named. Raises SCHEMA_TOO_NEW, NO_WAY_BACK, and BAD_SOURCE.
    """
    home = space.store.home(run_id)
    trouble, before = _state(space, home)
    plan_trouble = None if home.faber else refreeze.trouble(home.folder)  # FABER's are frozen anew by themselves
    state = None
    if before is None or plan_trouble is None or source is not None:
        state = _restoration(space, home, source, trouble, before)
    usable = state.after if state is not None else before
    plan: Refrozen | LoomError | None = None
    if plan_trouble is not None and usable is not None:
        plan = refreeze.outlook(space, run_id, usable)
    return Standing(run_id, state, plan)


def _state(space: Workspace, home: Home) -> tuple[LoomError | None, State | None]:
    try:
        files.refuse_links(home.top, home.state)
        state = space.store.read_home(home)
    except LoomError as error:
        if error.code == "SCHEMA_TOO_NEW":  # it is whole; an older one in its place would take work back
            raise
        return error, None
    try:
        list(state["steps"])
    except LoomError as error:
        _, lost = visit_files.rebuilt(home, state)
        count = state["steps"].earlier.count
        error.why += f"; Loom can restore {count - lost:,} of {counted(count, 'older record')}"
        return error, None
    return None, state


def _with_visits(home: Home, state: State) -> State:
    """Give a state whose visits can be read: where those that left it are damaged, with what is left of them."""
    try:
        list(state["steps"])
    except LoomError:
        return {**state, "steps": visit_files.rebuilt(home, state)[0]}
    return state


def _restoration(
    space: Workspace, home: Home, source: str | None, trouble: LoomError | None, before: State | None
) -> Restoration:
    names = recovery.kept_states(home)
    if source is not None and source not in names:
        what = f"{source[:100]!r} is not a saved state of this run"
        hint = f"loomctl debug state restore {space.store.handle(home.run_id)} --dry-run"
        why = f"there are {', '.join(names) or 'none'}"
        raise LoomError("BAD_SOURCE", what, where=home.folder, why=why, hint=hint, exit_code=EXIT_USAGE)
    name = source or os.path.basename(home.backup)
    if source is None and trouble is not None and trouble.where.startswith(os.path.join(home.folder, "stages", "")):
        name = os.path.basename(home.state)  # it is whole itself
    try:
        after = _with_visits(home, space.store.read_home(recovery.kept_home(home, name)))
    except LoomError as unusable:
        usable = []
        for other in (one for one in names if one != name):
            with suppress(LoomError):
                space.store.read_home(recovery.kept_home(home, other))
                usable.append(other)
        raise _no_way_back(home, trouble, name, unusable, usable) from None
    head = head_of(after.get("ledger_head"))
    later, damaged = event_log.entries(home.folder, after=head.seq if head else 0)
    lost = losses(before, after) if before is not None else None
    file_time = leftovers.changed(home.state)
    written = str((before or {}).get("updated_at") or (clock.stamp(file_time) if file_time else ""))
    ended = {visit["stage"] for visit in every(after) if visit["status"] not in OPEN}
    results = [stage for stage in _stages(home.folder) if stage not in ended]
    return Restoration(home, name, trouble, before, after, lost, later, damaged, written, results)


def _no_way_back(
    home: Home, trouble: LoomError | None, name: str, unusable: LoomError, usable: Sequence[str]
) -> LoomError:
    what = "it is missing" if unusable.code == "NO_STATE" else unusable.what
    spot = unusable.where.removeprefix(os.path.join(home.folder, name)).strip(": ")
    if spot and unusable.why:
        what += f" (at {spot}: {unusable.why})"
    if trouble is None:
        said = f"{name}: {what}; the current state is intact and stays"
    else:
        stages = _stages(home.folder)
        entries, _ = event_log.entries(home.folder)
        has_plan = refreeze.trouble(home.folder) is None or (home.faber and _has_fabers_plan(home))
        said = (
            f"{os.path.basename(home.state)}: {trouble.what}; {name}: {what}. Nothing was changed. The run still has "
            f"{'its plan' if has_plan else 'no plan'}, {counted(len(entries), 'event')} and "
            f"{counted(len(stages), 'step')} with results" + (f" ({', '.join(stages[-5:])})" if stages else "")
        )
    if os.path.isdir(home.folder):
        said += f". You can read its files below {home.folder}"
    hint = f"loomctl runs archive {recovery.handle(home)}"
    if home.faber:  # its files are FABER's, so Loom neither archives nor removes it
        tracked = git.is_tracked(home.state)
        hint = f"git checkout HEAD -- {quoted(home.state)}" if tracked else f"loomctl check {quoted(home.state)}"
    if usable:
        hint = f"loomctl debug state restore {recovery.handle(home)} --from {usable[0]}"
    where = unusable.where if trouble is None and unusable.where else home.state
    return LoomError("NO_WAY_BACK", "there is no usable state to restore", where=where, why=said, hint=hint)


def _has_fabers_plan(home: Home) -> bool:
    """Tell whether FABER's plan is there; its id is taken from the run's, for the state cannot be asked."""
    try:
        return faber_runs.find_plan(home, ids.split_run_id(home.run_id)[0]) is not None
    except (OSError, LoomError):
        return False


def _stages(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(os.path.join(folder, "stages")))
    except OSError:
        return []
    return [name for name in names if os.path.isfile(os.path.join(folder, "stages", name, "status.json"))]


def restore_state(space: Workspace, standing: Standing) -> Restored:
    """Do what was looked at: the state first, then the plan; each file that goes is kept, each event says so.

    A state that changed since it was looked at is not touched (CHANGED_MEANWHILE); one that another session drives
    is replaced by that session and by a person alone (HELD_BY_ANOTHER).
    """
    kept: list[str | None] = []
    wanted = standing.state
    if wanted is not None and wanted.changes:
        source = recovery.kept_home(wanted.home, wanted.source).state
        space.store.replace(standing.run_id, source, lambda after: _replaced(space, wanted, after, kept))
    plan = standing.plan
    if isinstance(plan, refreeze.Refrozen):
        plan = refreeze.refreeze(space, standing.run_id)
    return Restored(kept[0] if kept else None, plan)


def driver(space: Workspace, wanted: Restoration, before: State | None) -> Holder | None:
    """Give who else drives a run whose state is to be replaced, and may live.

    before: the state, None where it cannot be read: then the one that comes and the log behind it tell who drove last.
    """
    known = before if before is not None else lease.as_told(wanted.after, wanted.later)
    return space.store.held(wanted.home.run_id, known)


def _refusal(space: Workspace, run_id: str, found: Holder, trouble: LoomError | None) -> LoomError:
    """Say that another session drives the run; one that cannot be read cannot be taken over either."""
    called, is_here = space.store.handle(run_id), drivers.is_here(space.local.folder, run_id, found)
    error = drivers.refusal(called, found, is_here=is_here)
    if trouble is not None:
        error.why = (
            "its state cannot be read; only the session that drives it, or a person in a terminal, can restore it"
        )
        error.hint = f"loomctl debug state restore {called}"
    return error


def _epoch(before: State | None, later: Sequence[dict[str, Any]]) -> int:
    """Give the latest epoch of the lease that anybody drove under: of the state that goes, and of the log behind."""
    told = ((entry.get("properties") or {}) for entry in later if str(entry.get("event")).startswith("lease."))
    return max([lease.epoch(before or {}), *(lease.epoch({lease.KEY: one}) for one in told if isinstance(one, dict))])


def _replaced(space: Workspace, wanted: Restoration, after: State, kept: list[str | None]) -> tuple[State, list[Event]]:
    """Under the lock: look again, set the state before aside, and give the one that comes with its event."""
    home, after = wanted.home, _with_visits(wanted.home, after)
    trouble, before = _state(space, home)
    known = wanted.before.get("revision") if wanted.before else None
    now = before.get("revision") if before else None
    if (trouble is None) != (wanted.trouble is None) or known != now:
        what = "somebody changed the state in the meantime; nothing was restored"
        hint = f"loomctl debug state restore {space.store.handle(home.run_id)}"
        raise LoomError("CHANGED_MEANWHILE", what, where=home.state, hint=hint)
    if space.caller.host != OF_A_PERSON and (found := driver(space, wanted, before)) is not None:
        raise _refusal(space, home.run_id, found, trouble)
    happened = []
    if type(after) is not dict:  # of an older schema
        happened.append(recovery.keep_original(os.path.join(home.folder, wanted.source), after))
    word = recovery.BROKEN if trouble is not None else recovery.REPLACED
    beside = home.backup.removesuffix(".backup.json") + ".json"
    kept.append(recovery.set_aside(home.state, beside, word))
    restored = after.get("revision", 0)
    told = {
        "source": wanted.source,
        "kept": kept[0],
        "reason": trouble.code if trouble is not None else "asked",
        "revision": {"before": now, "restored": restored},
        "events_after": len(wanted.later),
    }
    lost = now if now is not None else restored + 1  # of a damaged one: it came after its backup
    state = {**lease.anew(after, _epoch(before, wanted.later)), "revision": max(restored, lost)}
    return state, [*happened, Event("state.restored", told, space.caller.session_id)]
