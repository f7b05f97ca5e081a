"""A store with a run in it, for tests of what reads and writes runs."""

from pathlib import Path
from typing import Any

from loomctl.kit import ids
from loomctl.runs.model.state import new_state
from loomctl.runs.store.events import Event
from loomctl.runs.store.store import Run, Store

RUN_ID = "shop-258-run-2026-01-01T00-00-00Z"
HANDLE = ids.handle(RUN_ID, "258")
AT = "2026-01-01T00:00:00Z"
PLAN: dict[str, Any] = {
    "schema_version": 1,
    "plan_id": "shop-258",
    "workflow_id": "core",
    "autonomy": {"level": "guarded", "require_approval_for": []},
    "phases": [{"id": "build", "steps": [{"key": "build/a", "id": "a", "prompt": "Do it."}]}],
    "artifacts": [{"id": "spec", "type": "markdown", "path": "spec.md", "triggers": ["session_start"]}],
}


def make_run(folder: Path, run_id: str = RUN_ID, **more: Any) -> tuple[Store, Run]:
    """Make a store in `folder`/.loom with one run. more: keys of its state."""
    store = Store(str(folder / ".loom"))
    store.prepare()
    state = {**new_state(PLAN, run_id=run_id, work_id="258", goal="", at=AT), **more}
    return store, store.create(state, PLAN, [Event("run.created", {})])
