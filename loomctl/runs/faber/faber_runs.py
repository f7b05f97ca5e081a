"""FABER's runs in place: their states read and written where they stand, their plans frozen once (D5)."""

from __future__ import annotations

import os

from loomctl.kit.errors import EXIT_NO_RUN, LoomError, quoted
from loomctl.runs.faber import faber_files, faber_state
from loomctl.runs.model import frozen_plan
from loomctl.runs.model.state import accepted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from loomctl.runs.faber.faber_files import PlanFile
    from loomctl.runs.faber.faber_state import View
    from loomctl.runs.model.state import State
    from loomctl.runs.store.layouts import Home

    # How a plan is frozen for a run of FABER's: from its home, its state, its plan file, if there is one, and the plan
    # that was frozen before; whether it is for a look alone.
    Freeze: TypeAlias = Callable[[Home, State, PlanFile | None, dict[str, Any] | None, bool], dict[str, Any]]


class FaberRuns:
    """FABER's half of a `Store`, which holds the lock of what it writes.

    freeze: as `Store` takes it. own_plan: reads the plan that Loom keeps of a run; raises LoomError without one.
    """

    def __init__(self, freeze: Freeze | None, own_plan: Callable[[Home], dict[str, Any]]) -> None:
        self._freeze, self._own_plan = freeze, own_plan
        self._fresh_plans: dict[str, dict[str, Any]] = {}
        self._frozen: dict[str, tuple[Any, dict[str, Any]]] = {}  # by run: what it was frozen for, and the plan

    def view(self, home: Home, plan: dict[str, Any] | None) -> View:
        """Read a state of FABER's in place (D5)."""
        try:
            view = faber_state.view(faber_files.read_state(home), home.run_id, plan)
            accepted(view.state, where=home.state)
        except (LoomError, OSError) as error:
            from loomctl.runs.store import recovery

            raise recovery.unreadable(home, error) from None
        return view

    def plan(
        self, home: Home, stands: Home | None = None, *, to_show: bool = False
    ) -> tuple[dict[str, Any], PlanFile | None]:
        """Give the plan that was frozen for a FABER run, or freeze one; the next update keeps it (D5).

        stands: the home with the file in it that the state is read from, where that is another.
        """
        try:
            held: dict[str, Any] | None = self._own_plan(home)
        except LoomError:
            held = None
        if self._freeze is None:
            if held is None:
                raise LoomError(
                    "NOT_TAKEN_UP",
                    f"the FABER run {home.run_id} was not taken up with Loom yet",
                    where=home.state,
                    hint=f"loomctl resume {home.run_id}",
                    exit_code=EXIT_NO_RUN,
                )
            return held, None
        state = self.view(stands or home, None).state
        try:
            source = faber_files.find_plan(home, state["plan_id"])
        except OSError as error:
            hint = f"ls -l {quoted(home.top)}"
            raise LoomError(
                "BAD_PLAN", "the run's plan cannot be read", where=home.top, why=str(error), hint=hint
            ) from None
        made_for = (source.stamp if source else None, state["workflow_id"])
        last = self._frozen.get(home.run_id)
        if last is not None and last[0] == made_for:
            return last[1], source
        plan = self._freeze(home, state, source, held, to_show)
        place = os.path.relpath(home.state, home.top)
        if plan["faber"].get("state") != place:  # where it is to be put back, should it be gone
            plan = {**plan, "faber": {**plan["faber"], "state": place}}
        if frozen_plan.steps_unknown(plan):
            return plan, source
        self._frozen[home.run_id] = (made_for, plan)
        if plan is not held:
            self._fresh_plans[home.run_id] = plan
        return plan, source

    def before(self, home: Home, source: str = "") -> tuple[State, Callable[[State], bytes]]:
        """Give a state, and how a change of it is written into its file.

        source: another file that it is taken from. Without one, what another program wrote into the state since it was
        read stays: the change is made to that.
        """
        stands = home._replace(state=source) if source else home
        plan = self.plan(home, stands)[0]
        view = self.view(stands, plan)

        from loomctl.runs.faber import faber_write

        def render(after: State) -> bytes:
            now = view if source else self.view(home, plan)
            return faber_files.rendered(faber_write.written(now._replace(state=view.state), after))

        return view.state, render

    def fresh_plan(self, run_id: str) -> dict[str, Any] | None:
        """Give the plan that was frozen anew and is to be kept with the next write; once."""
        return self._fresh_plans.pop(run_id, None)

    @staticmethod
    def lock(home: Home, patience: float) -> faber_files.StateLock:
        """Give the lock of FABER's own around its state."""
        return faber_files.StateLock(home, patience=patience)

    @staticmethod
    def write(home: Home, data: bytes, *, durable: bool) -> None:
        """Replace the state's file."""
        faber_files.write_state(home, data, durable=durable)
