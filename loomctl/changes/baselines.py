"""What this machine noted when a stage began, `.loom/local/baselines/{run_id}/`: worth nothing elsewhere.

A stage has a file `{stage}.noted`, which is JSON, and a folder `{stage}.git`, git's index and objects of that moment.
"""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

FOLDER = "baselines"
_FILE, _GIT = ".noted", ".git"
_LARGEST = 32 << 20


def begin(local: str, run_id: str, stage: str) -> str:
    """Make room for a stage's baseline, in place of any before; gives its folder for git, which is empty.

    Raises OSError, BAD_ID, UNSAFE_LINK.
    """
    own = git_folder(local, run_id, stage)
    files.remove(_file(local, run_id, stage))
    discard(own)
    files.make_folder(own)
    return own


def git_folder(local: str, run_id: str, stage: str) -> str:
    """Give the folder that git's index and objects of a stage's beginning stand in. Raises BAD_ID, UNSAFE_LINK."""
    return _file(local, run_id, stage).removesuffix(_FILE) + _GIT


def write(local: str, run_id: str, stage: str, baseline: Mapping[str, Any]) -> None:
    """Write a stage's baseline, as the last of its files. Raises OSError.

    In its place at once: one that a kill cut off is no JSON, and read as none.
    """
    descriptor = files.open_own(_file(local, run_id, stage), os.O_WRONLY | os.O_TRUNC)
    try:
        files.write_all(descriptor, files.to_json_line(dict(baseline)))
    finally:
        os.close(descriptor)


def read(local: str, run_id: str, stage: str) -> dict[str, Any] | None:
    """Give a stage's baseline; None where there is none that can be read."""
    try:
        found = files.read_json(_file(local, run_id, stage), limit=_LARGEST)
    except (OSError, LoomError):
        return None
    return found if isinstance(found, dict) else None


def keep_two(local: str, run_id: str, stage: str, also: Collection[str] = ()) -> None:
    """Discard a run's baselines but this stage's and the last before it, which an undo needs again (D31).

    also: stages that are being worked on beside it, in branches.
    """
    folder = os.path.dirname(_file(local, run_id, stage))
    try:
        names = os.listdir(folder)
    except OSError:
        return
    stages = {name.removesuffix(_FILE).removesuffix(_GIT) for name in names}.difference(also, [stage])
    for other in sorted(stages, key=_rank)[:-1]:
        files.remove(os.path.join(folder, other + _FILE))
        discard(os.path.join(folder, other + _GIT))


def discard(path: str) -> None:
    """Remove a folder with all that is in it; a link is removed, not followed; what is not there is fine."""
    try:
        if os.path.islink(path):
            os.unlink(path)
            return
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    discard(entry.path)
                else:
                    files.remove(entry.path)
        os.rmdir(path)
    except FileNotFoundError:
        pass


def _rank(stage: str) -> tuple[int, str]:
    number = stage.partition("-")[0]
    return (int(number) if number.isascii() and number.isdigit() else 0, stage)


def _file(local: str, run_id: str, stage: str) -> str:
    checked_id(stage.replace("@", "."), what="stage")
    path = os.path.join(local, FOLDER, checked_id(run_id), stage + _FILE)
    files.refuse_links(os.path.dirname(local), path)
    return path
