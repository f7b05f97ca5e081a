"""Note what a visit finds as it begins: the checkout, its assets, and the files that it has to change (D40)."""

from __future__ import annotations

from loomctl.changes import track

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run


def begin(space: Workspace, run: Run, entry: Mapping[str, Any]) -> None:
    """Note it for a visit, or for the command of one; raises nothing, for no step is held up by it."""
    track.begin(space, run, entry)
    if not isinstance(entry.get("stage"), str):
        return
    try:
        from loomctl.flow.evidence import beginnings  # a session's start opens no visit

        beginnings.begin(space, run, entry)
    except Exception:  # noqa: BLE001 - as above
        return
