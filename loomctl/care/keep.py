"""Putting runs away and bringing them back: removing one, archiving one, restoring an archive (D56).

A run goes out of sight by one rename, under its lock; a kill leaves it whole in one of the two places.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from loomctl.flow import command_events, evidence_commands
from loomctl.kit import files, ids
from loomctl.kit.errors import EXIT_HELD, EXIT_USAGE, LoomError, quoted
from loomctl.runs import archives, run_blobs
from loomctl.runs.artifact_paths import is_inside
from loomctl.runs.machine import agreed, handoff_notes, known
from loomctl.runs.machine.local import TERMINAL as OF_A_PERSON
from loomctl.runs.model.state import TERMINAL, is_active
from loomctl.runs.store import arrivals, leftovers
from loomctl.runs.store.layouts import Home
from loomctl.runs.tools import recording

if TYPE_CHECKING:
    from loomctl.runs.caller import Workspace


class BroughtBack(NamedTuple):
    """A run that came out of an archive. trouble: what keeps its state from being read, None where nothing does.

    lost: the references in its context behind which no whole blob is.
    """

    run_id: str
    files: int
    archive: str
    trouble: LoomError | None
    lost: tuple[str, ...] = ()


class PutAway(NamedTuple):
    """A run that was archived. files: how many the archive holds; lost: as above, for it could not bring them along."""

    files: int
    lost: tuple[str, ...]


def removable(space: Workspace, named: str, *, force: bool) -> str:
    """Give the id of a run that may be put away. Raises RUN_IS_ACTIVE without `force`, and NOT_LOOMS for FABER's."""
    run_id = space.store.match(named)
    home = space.store.home(run_id)
    if home.faber:
        kept = os.path.isdir(home.folder)
        raise LoomError(
            "NOT_LOOMS",
            f"the run {run_id} is FABER's; Loom neither removes nor archives it",
            where=home.state,
            why="its files are yours to move" + (f"; what Loom keeps of it stands in {home.folder}" if kept else ""),
            hint=_fabers_end(space, home),
            exit_code=EXIT_USAGE,
        )
    _refuse_active(space, run_id, force=force)
    return run_id


def _fabers_end(space: Workspace, home: Home) -> str:
    """Give what ends a run of FABER's, or mends one that cannot be read; one that is gone is forgotten."""
    if not os.path.lexists(home.state):
        return f"rm -r {quoted(home.folder)}"
    try:
        status = space.store.read_home(home)["status"]
    except LoomError as error:
        return error.hint or f"loomctl check {quoted(home.state)}"
    return f"loomctl show {home.run_id}" if status in TERMINAL else f"loomctl cancel {home.run_id}"


def _refuse_active(space: Workspace, run_id: str, *, force: bool) -> None:
    """Refuse a run that is under way, or that a live session is bound to. Raises RUN_IS_ACTIVE."""
    if force:
        return
    try:
        active = is_active(space.store.read_state(run_id))
    except LoomError:
        active = False
    holders = space.local.live_sessions(run_id, but=space.caller.session_id) or _drivers(space, run_id)
    if active or holders:
        driven = space.caller.host != OF_A_PERSON and bool(_drivers(space, run_id))
        raise LoomError(
            "RUN_IS_ACTIVE",
            f"the run {run_id} is under way" + (f" in session {holders[0]}" if holders else ""),
            where=space.store.run_dir(run_id),
            why="--force puts it away all the same" + ("; a person cancels it in a terminal" if driven else ""),
            hint=f"loomctl resume {run_id} --take-over" if driven else f"loomctl cancel {run_id}",
            exit_code=EXIT_HELD,
        )


def _drivers(space: Workspace, run_id: str) -> list[str]:
    """Name who else drives a run, wherever; nobody where its state cannot be read."""
    try:
        found = space.store.held(run_id, space.store.read_state(run_id))
    except LoomError:
        return []
    return [found.session_id[:60]] if found is not None else []


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
    try:
        command_events.stop_all(space, space.store.read(run_id))
    except LoomError:  # a run that cannot be read is put away all the same
        pass


def _out_of_sight(space: Workspace, run_id: str) -> str:
    """Move a run's folder where nothing looks for runs, and forget it; gives the folder that is to be deleted."""
    files.make_folder(space.store.local)
    doomed = os.path.join(space.store.local, f"{leftovers.REMOVED}{run_id}-{os.getpid()}")
    os.rename(space.store.run_dir(run_id), doomed)
    known.forget(run_id, space.store.folder)
    handoff_notes.forget(space.store.local, run_id)
    agreed.forget(space.store.local, run_id)
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


def archive(space: Workspace, run_id: str, path: str, *, force: bool = False) -> PutAway:
    """Pack a run and the blobs that it names, read the archive back, give it its name, then remove the run.

    Raises ARCHIVE_EXISTS, BAD_TARGET for a place in the run's own folder, ARCHIVE_BAD, NOT_A_FILE, RUN_IS_ACTIVE; the
    run stays then. It holds responses and outputs, so it is its owner's alone.
    """
    if os.path.lexists(path):
        raise _archive_exists(path, run_id)
    folder = space.store.run_dir(run_id)
    if is_inside(os.path.realpath(path), os.path.realpath(folder)):
        raise LoomError(
            "BAD_TARGET",
            "the archive would be removed with the run",
            where=path,
            hint=f"loomctl runs archive {run_id}",
            exit_code=EXIT_USAGE,
        )
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
    return PutAway(count, lost)


def _named(beside: str, path: str, run_id: str) -> None:
    """Give a finished archive its name, never over a file that came there meanwhile. Raises ARCHIVE_EXISTS."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise _archive_exists(path, run_id) from None
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise _archive_exists(path, run_id) from None
        os.rename(beside, path)
    files.sync_folder(os.path.dirname(path))


def _archive_exists(path: str, run_id: str) -> LoomError:
    return LoomError(
        "ARCHIVE_EXISTS",
        "there is an archive already",
        where=path,
        hint=f"loomctl runs archive {run_id} --to {quoted(_free_name(path))}",
        exit_code=EXIT_USAGE,
    )


def _free_name(path: str) -> str:
    """Give the first name like `path` that nothing has yet."""
    stem = path.removesuffix(archives.SUFFIX)
    number = 2
    while os.path.lexists(f"{stem}-{number}{archives.SUFFIX}"):
        number += 1
    return f"{stem}-{number}{archives.SUFFIX}"


def bring_back(space: Workspace, path: str) -> BroughtBack:
    """Unpack an archive and put its run among the others, whole or not at all; the archive stays.

    Raises BAD_ARCHIVE, RUN_EXISTS, and RUN_ID_MISMATCH where the state in it is another run's.
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
    """Say what keeps an unpacked state from being read. Raises RUN_ID_MISMATCH, and BAD_ARCHIVE where there is none."""
    state, backup = os.path.join(folder, "state.json"), os.path.join(folder, "state.backup.json")
    try:
        space.store.read_home(Home(run_id, folder, state, backup, folder, faber=False))
    except LoomError as error:
        if error.code == "RUN_ID_MISMATCH":
            error.where = f"{path} state.json"
            raise
        if error.code == "NO_STATE" and not os.path.isfile(backup):
            raise LoomError(
                "BAD_ARCHIVE",
                "the archive holds no run's state",
                where=path,
                hint=f"tar -tzf {quoted(path)}",
            ) from None
        return error
    return None
