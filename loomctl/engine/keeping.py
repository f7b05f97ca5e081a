"""Putting runs away: removing one, archiving one; never a run that is under way unless forced."""

from __future__ import annotations

import os
import shutil
import tarfile
from typing import TYPE_CHECKING

from loomctl.disk import files, known
from loomctl.disk.artifact_paths import is_inside
from loomctl.model.errors import EXIT_HELD, EXIT_USAGE, LoomError
from loomctl.model.state import is_active

if TYPE_CHECKING:
    from loomctl.engine.caller import Workspace


def removable(space: Workspace, named: str, *, force: bool) -> str:
    """Give the id of a run that may be put away. Raises RUN_IS_ACTIVE without `force`."""
    run_id = space.store.match(named)
    try:
        active = is_active(space.store.read_state(run_id))
    except LoomError:
        active = False
    holders = space.local.live_sessions(run_id, but=space.caller.session_id)
    if (active or holders) and not force:
        raise LoomError(
            "RUN_IS_ACTIVE",
            f"the run {run_id} is under way" + (f" in session {holders[0]}" if holders else ""),
            where=space.store.run_dir(run_id),
            hint=f"loomctl cancel {run_id}   first, or --force",
            exit_code=EXIT_HELD,
        )
    return run_id


def remove(space: Workspace, run_id: str) -> None:
    """Remove a run's folder and what this machine knows of it. The folder goes out of sight in one rename first."""
    folder = space.store.run_dir(run_id)
    files.make_folder(space.store.local)
    doomed = os.path.join(space.store.local, f"removed-{run_id}-{os.getpid()}")
    os.replace(folder, doomed)
    shutil.rmtree(doomed)
    known.forget(run_id, space.store.folder)
    for binding in space.local.bindings():
        if binding["run_id"] == run_id:
            space.local.unbind(binding["session_id"])


def archive(space: Workspace, run_id: str, path: str) -> int:
    """Pack a run beside, read it back, rename it to `path`, then remove the run; gives how many files it holds.

    Raises ARCHIVE_EXISTS, BAD_TARGET for a place in the run's own folder, and ARCHIVE_BAD where what was written does
    not read back; the run stays then. It holds responses and outputs, so it is its owner's alone (D56).
    """
    if os.path.lexists(path):
        raise LoomError(
            "ARCHIVE_EXISTS", "there is an archive already", where=path, hint="--to FILE", exit_code=EXIT_USAGE
        )
    folder = space.store.run_dir(run_id)
    if is_inside(os.path.realpath(path), os.path.realpath(folder)):
        raise LoomError(
            "BAD_TARGET",
            "the archive would be removed with the run",
            where=path,
            hint="--to FILE",
            exit_code=EXIT_USAGE,
        )
    files.make_folder(os.path.dirname(path))
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as target, tarfile.open(fileobj=target, mode="w:gz") as packed:
            packed.add(folder, arcname=run_id)
        with tarfile.open(beside, "r:gz") as packed:
            found = {os.path.relpath(member.name, run_id) for member in packed if not member.isdir()}
        if found != _files_of(folder):
            raise LoomError(  # noqa: TRY301 - the archive is removed below
                "ARCHIVE_BAD", "the archive does not hold every file; the run stays", where=path
            )
        os.replace(beside, path)
    except BaseException:
        files.remove(beside)
        raise
    remove(space, run_id)
    return len(found)


def _files_of(folder: str) -> set[str]:
    """Name everything below a folder that is no folder itself, links to folders among it."""
    found: set[str] = set()
    for base, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(base, name))]
        found.update(os.path.relpath(os.path.join(base, name), folder) for name in (*names, *links))
    return found
