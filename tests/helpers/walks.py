"""A run walked through a small plan without a disk: the verbs of the engine over the functions of the model."""

from __future__ import annotations

from typing import Any

from loomctl.flow import rewind, route
from loomctl.kit.errors import LoomError
from loomctl.runs.model import frozen_plan, visits
from loomctl.runs.model.state import TERMINAL, new_state
from loomctl.workflows import gates

OUTCOMES = {"done": "succeeded", "failed": "failed", "partial": "partially_succeeded", "skip": "skipped"}


def step(key: str, **more: Any) -> dict[str, Any]:
    """Make a step of a plan. more: max_retries, require_approval, engine, on_failure, on_warning, on_success."""
    handling = {
        "on_success": more.pop("on_success", "continue"),
        "on_warning": more.pop("on_warning", "continue"),
        "on_failure": more.pop("on_failure", "stop"),
    }
    return {"key": key, "id": key.partition("/")[2], "max_retries": 0, "result_handling": handling, **more}


def plan(
    phases: dict[str, list[dict[str, Any]]], *, level: str = "guarded", ask: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Make a plan of phases with their steps. ask: phases that need approval."""
    return {
        "plan_id": "shop-258",
        "workflow_id": "sample",
        "autonomy": {"level": level, "require_approval_for": list(ask)},
        "phases": [{"id": name, "require_approval": False, "steps": steps} for name, steps in phases.items()],
    }


class Walk:
    """A run and its clock; each verb gives where the run stands then, in one word."""

    def __init__(self, of: dict[str, Any]) -> None:
        self.plan = of
        self.ticks = 0
        self.state: dict[str, Any] = new_state(of, run_id="shop-258-run-1", work_id=None, goal="x", at=self.now())

    def now(self) -> str:
        """Give a time that is later each time it is asked for."""
        self.ticks += 1
        return f"2026-01-01T00:{self.ticks // 60 % 60:02}:{self.ticks % 60:02}Z"

    def do(self, verb: str, **more: Any) -> str:
        """Do one verb as the engine does it. Raises LoomError where the engine refuses; the state is as before then."""
        if verb in OUTCOMES:
            self._end(OUTCOMES[verb], **more)
        elif verb == "next":
            self._refuse(*TERMINAL, "failed", "paused")
        elif verb == "closing":
            self.state = visits.mark_closing(self.state, outcome=None, note="", artifacts={}, at=self.now())
            return self.stands()
        elif verb == "undo":
            self.state, _ = rewind.undone(self.state, self.plan)
            return self.stands()
        elif verb == "approve":
            self.state, _ = gates.approve(self.state, at=self.now())
        elif verb in ("paused", "cancelled"):
            self._refuse(*TERMINAL, *(("failed", "pending") if verb == "paused" else ()))
            self.state = {**self.state, "status": verb}
        elif verb in ("resume", "reopen"):
            self._resume(reopen=verb == "reopen")
        else:
            raise AssertionError(verb)
        self._settle()
        return self.stands()

    def stands(self) -> str:
        """Say where the run stands: its open step with the visit, or its status and what it waits for."""
        entry = visits.open_visit(self.state)
        status = str(self.state["status"])
        if entry is not None:
            where = f"{entry['step_id']}@{entry['visit']}" + (" closing" if entry["status"] == "closing" else "")
            return where if status == "in_progress" else f"{status} {where}"
        if self.state["pending_approvals"]:
            return f"{status} {self.state['pending_approvals'][0]['id']}"
        return status

    def _end(self, outcome: str, **more: Any) -> None:
        self.state = route.end_visit(self.state, self.plan, outcome=outcome, at=self.now(), **more).state

    def _refuse(self, *statuses: str) -> None:
        if self.state["status"] in statuses:
            raise LoomError("BAD_STATUS", str(self.state["status"]))

    def _resume(self, *, reopen: bool) -> None:
        if not reopen:
            self._refuse(*TERMINAL)
        if self.state["status"] == "awaiting_feedback":
            return
        if self.state["status"] == "completed":
            self.state = route.reopened_step(self.state, self.plan)
            self.state = {key: value for key, value in self.state.items() if key != "completed_at"}
        self.state = {**self.state, "status": "in_progress"}

    def _settle(self) -> None:
        while self.state["status"] in ("pending", "in_progress"):
            self.state, move = route.advance(self.state, self.plan, at=self.now())
            if move.kind != "step" or move.step is None:
                return
            place = frozen_plan.place_of(self.plan, move.step)
            assert place is not None
            by_engine = bool(place.step.get("engine"))
            self.state, _ = visits.start_visit(
                self.state, place.key, place.phase["id"], at=self.now(), by_engine=by_engine
            )
            if not by_engine:
                return
            self._end("succeeded")
