"""What this machine remembers of a run that came from a remote: `.loom/local/handoff/{run_id}.json`, never carried.

`{machine, by, at, remote, commit, outputs, left_out: [[path, why]], driver?, pulled?, head?}`: from where its files
came and which did not. driver: `{epoch, session_id}` of who drove the run as it came. pulled: what the next resume is
to write into the run's log, where that has the entry head, the last of what came: a pull notes this before it gives the
run its place, and a kill between both leaves the run as it was.
"""

from __future__ import annotations

import os

from loomctl.kit import files, ids
from loomctl.kit.errors import LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.model.lease import Holder

FOLDER = "handoff"


def _path(local: str, run_id: str) -> str:
    path = os.path.join(local, FOLDER, f"{ids.checked_id(run_id)}.json")
    files.refuse_links(os.path.dirname(local), path)
    return path


def read(local: str, run_id: str) -> dict[str, Any]:
    """Give what is remembered of a run; empty where nothing is. Raises nothing."""
    try:
        value = files.read_json(_path(local, run_id))
    except (OSError, LoomError):
        return {}
    return value if isinstance(value, dict) else {}


def write(local: str, run_id: str, value: dict[str, Any]) -> None:
    """Remember where a run came from. Raises OSError and UNSAFE_LINK."""
    path = _path(local, run_id)
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, files.to_json(value), durable=False)


def came_driven(local: str, run_id: str, holder: Holder) -> bool:
    """Tell whether a pull brought a run while this driver drove it, wherever that was."""
    driver = read(local, run_id).get("driver")
    return driver == {"epoch": holder.epoch, "session_id": holder.session_id}


def every(local: str) -> list[dict[str, Any]]:
    """Give what is remembered of all runs."""
    folder = os.path.join(local, FOLDER)
    if files.leads_away(os.path.dirname(local), folder):
        return []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    found = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    return [read(local, name) for name in found if ids.is_fit(name)]


def forget(local: str, run_id: str) -> None:
    """Forget a run that is gone."""
    try:
        files.remove(_path(local, run_id))
    except LoomError:  # a link in its place is not Loom's to remove
        pass
