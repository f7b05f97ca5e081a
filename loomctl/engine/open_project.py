"""Put a project and a caller together: the one place where rooms below are given what stands above them."""

from __future__ import annotations

import os

from loomctl.disk.fence import Driver, Fence
from loomctl.disk.local import Local
from loomctl.disk.store import LOCAL, Store
from loomctl.engine.caller import Workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.disk.config import Settings
    from loomctl.disk.faber_files import PlanFile
    from loomctl.disk.layouts import Home
    from loomctl.disk.project import Project
    from loomctl.disk.store import Freeze, Run
    from loomctl.engine.caller import Caller
    from loomctl.model.slip import Budget
    from loomctl.model.state import State


def workspace(project: Project, settings: Settings, caller: Caller) -> Workspace:
    """Give a project as this caller meets it."""
    freeze = None if caller.on_hook_path else _freezing(project)
    local = Local(os.path.join(project.store, LOCAL))
    session_id = caller.session_id

    def heir_of() -> object:
        return (local.binding(session_id) or {}).get("inherited_from")

    fence = Fence(local.folder, Driver(session_id, caller.host, caller.pid, heir_of))
    store = Store(project.store, project.faber_roots, freeze, fence)
    return Workspace(project, store, local, settings, caller, _upcoming)


def _upcoming(project: Project, run: Run, *, may_write: bool, budget: Budget | None = None) -> str:
    from loomctl.engine import prompts  # most hooks tell no step

    return prompts.upcoming(project, run, may_write=may_write, budget=budget)


def _freezing(project: Project) -> Freeze:
    def freeze(
        home: Home,
        state: State,
        source: PlanFile | None,
        held: dict[str, Any] | None,
        to_show: bool,  # noqa: FBT001 - a Callable's arguments have no names
    ) -> dict[str, Any]:
        from loomctl.engine import adopting  # it reads YAML and checks expressions: never on the hook path

        return adopting.plan_of(project, home, state, source, held, to_show=to_show)

    return freeze
