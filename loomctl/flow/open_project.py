"""Put a project and a caller together: the one place where rooms below are given what stands above them."""

from __future__ import annotations

import os

from loomctl.runs.machine.local import Local
from loomctl.runs.project import Workspace
from loomctl.runs.store import write_rules
from loomctl.runs.store.store import LOCAL, Store
from loomctl.runs.store.write_rules import Driver, Fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.priming.slip import Budget
    from loomctl.runs.config import Settings
    from loomctl.runs.faber_runs import Freeze, PlanFile
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Caller, Project
    from loomctl.runs.store.layouts import Home
    from loomctl.runs.store.store import Run


def workspace(project: Project, settings: Settings, caller: Caller, word: str = "") -> Workspace:
    """Give a project as this caller meets it. word: with which it lets others work in its place, if it does (D74)."""
    freeze = None if caller.on_hook_path else _freezing(project)
    local = Local(os.path.join(project.store, LOCAL))
    session_id = caller.session_id

    def heir_of() -> object:
        return (local.binding(session_id) or {}).get("inherited_from")

    started_for = ("", "") if word else write_rules.started_for()
    driver = Driver(session_id, caller.host, caller.pid, heir_of, caller.shared, word, started_for)
    fence = Fence(local.folder, driver)
    store = Store(project.store, project.faber_roots, freeze, fence)
    return Workspace(project, store, local, settings, caller, _upcoming)


def _upcoming(project: Project, run: Run, *, may_write: bool, budget: Budget | None = None) -> str:
    from loomctl.flow import prompts  # most hooks tell no step

    return prompts.upcoming(project, run, may_write=may_write, budget=budget)


def _freezing(project: Project) -> Freeze:
    def freeze(
        home: Home,
        state: State,
        source: PlanFile | None,
        held: dict[str, Any] | None,
        to_show: bool,  # noqa: FBT001 - a Callable's arguments have no names
    ) -> dict[str, Any]:
        from loomctl.workflows import refreeze  # it reads YAML and checks expressions: never on the hook path

        return refreeze.plan_of(project, home, state, source, held, to_show=to_show)

    return freeze
