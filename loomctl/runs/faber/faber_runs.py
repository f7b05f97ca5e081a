"""FABER's runs in place: their states read and written where they stand, their plans frozen once (D5)."""

from __future__ import annotations

import json
import os

from loomctl.kit import digests, files
from loomctl.kit.errors import EXIT_NO_RUN, LoomError, quoted
from loomctl.kit.lock import Lock
from loomctl.kit.records import NamedTuple
from loomctl.runs.faber import faber_state
from loomctl.runs.model import frozen_plan
from loomctl.runs.model.state import accepted
from loomctl.runs.store import layouts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeAlias

    from loomctl.runs.faber.faber_state import View
    from loomctl.runs.model.state import State
    from loomctl.runs.store.layouts import Home

    # How a plan is frozen for a run of FABER's: from its home, its state, its plan file, if there is one, and the plan
    # that was frozen before; whether it is for a look alone.
    Freeze: TypeAlias = Callable[[Home, State, "PlanFile | None", dict[str, Any] | None, bool], dict[str, Any]]


class PlanFile(NamedTuple):
    """A plan of FABER's. name: below the project's root; path: absolute; data: its bytes."""

    name: str
    path: str
    data: bytes

    @property
    def stamp(self) -> dict[str, str]:
        """Say which file and content a frozen plan was made from."""
        return {"path": "{project_root}/" + self.name, "sha256": digests.of_bytes(self.data)}


NO_PLAN = {"path": "", "sha256": ""}


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
            view = faber_state.view(_read_state(home), home.run_id, plan)
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
            if held is not None:
                return held, None
            what, hint = f"the FABER run {home.run_id} was not taken up with Loom yet", f"loomctl resume {home.run_id}"
            raise LoomError("NOT_TAKEN_UP", what, where=home.state, hint=hint, exit_code=EXIT_NO_RUN)
        state = self.view(stands or home, None).state
        try:
            source = find_plan(home, state["plan_id"])
        except OSError as error:
            what, hint = "the run's plan cannot be read", f"ls -l {quoted(home.top)}"
            raise LoomError("BAD_PLAN", what, where=home.top, why=str(error), hint=hint) from None
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
            raw = faber_write.written(now._replace(state=view.state), after)
            # As FABER does: indented by two, so that a commit of it shows what changed.
            text = json.dumps(raw, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
            return text.encode("utf-8", "backslashreplace")

        return view.state, render

    def fresh_plan(self, run_id: str) -> dict[str, Any] | None:
        """Give the plan that was frozen anew and is to be kept with the next write; once."""
        return self._fresh_plans.pop(run_id, None)


def write_state(home: Home, data: bytes, *, durable: bool) -> None:
    """Replace a FABER state, with the file mode that it has; the name beside it is Loom's own, for FABER has others.

    The caller holds the run's lock.
    """
    folder, name = os.path.split(home.state)
    files.make_folder(folder, mode=0o755)
    mode = 0o644
    for path in (home.backup, home.state):
        if os.path.lexists(path):
            mode = os.lstat(path).st_mode & 0o777
    beside = os.path.join(folder, f".{name}.loom.tmp")
    files.write_atomically(home.state, data, mode=mode, durable=durable, locked=True, beside=beside)


class StateLock:
    """`with StateLock(home):` holds the lock that FABER's own writer takes, beside the state; patience: seconds.

    Raises HELD and UNSAFE_LINK. Where it cannot be made nobody else can write either, or the write itself will say so.
    One that was not there is removed again.
    """

    def __init__(self, home: Home, *, patience: float) -> None:
        self._path = f"{home.state}.lock"
        self._lock = Lock(self._path, patience=patience, signed=False)
        self._was_there = self._held = False

    def __enter__(self) -> StateLock:
        if os.path.isdir(os.path.dirname(self._path)):
            self._was_there = os.path.lexists(self._path)
            try:
                self._lock.__enter__()
                self._held = True
            except OSError:
                pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held:
            if not self._was_there:
                self._lock.remove()
            self._lock.__exit__(kind, error, trace)


def _read_state(home: Home) -> dict[str, Any]:
    files.refuse_links(home.top, home.state)
    raw = files.read_json(home.state)
    if not isinstance(raw, dict):
        why, hint = "it is no JSON object", f"loomctl check {quoted(home.state)}"
        raise LoomError("BAD_STATE", "this state cannot be used", where=f"{home.state} $", why=why, hint=hint)
    if not faber_state.belongs(raw, home.run_id):
        raise LoomError(
            "RUN_ID_MISMATCH",
            f"the file says it is run {str(raw['run_id'])[:200]!r}, not {home.run_id!r}",
            where=home.state,
            why="a run's place and its state carry one id: put it back where it was, or remove the copy",
            hint="loomctl runs",
        )
    return raw


def plan_in(source: PlanFile) -> dict[str, Any]:
    """Read what stands in a plan of FABER's. Raises LoomError: BAD_JSON, GIT_CONFLICT, BAD_PLAN."""
    raw = files.parse_json(source.data, where=source.path)
    if not isinstance(raw, dict) or not faber_state.is_plan(raw):
        what, hint = "this is no plan of FABER's", f"loomctl check {quoted(source.path)}"
        raise LoomError("BAD_PLAN", what, where=source.path, why="it holds no workflow", hint=hint)
    return raw


def plan_places(home: Home, plan_id: str) -> list[str]:
    """List the names, below the project's root, at which a run's plan may stand; the last is beside its state."""
    beside = os.path.join(os.path.dirname(os.path.relpath(home.state, home.top)), "plan.json")
    return list(dict.fromkeys([*layouts.plan_names(home.run_id, plan_id), beside]))


def find_plan(home: Home, plan_id: str) -> PlanFile | None:
    """Find and read the plan that a run was made from; None if no file is there.

    Raises UNSAFE_LINK, TOO_LARGE and OSError for one that is there and cannot be read.
    """
    for name in plan_places(home, plan_id):
        path = os.path.join(home.top, name)
        if os.path.isfile(path):
            files.refuse_links(home.top, path)
            return PlanFile(name, path, files.read_bytes(path))
    return None


def pointed_at(root: str) -> str | None:
    """Give the run id in FABER's pointer file, trimmed: a hint, never proof (D4, D5)."""
    for name in layouts.POINTERS:
        try:
            files.refuse_links(root, os.path.join(root, name))
            text = files.read_bytes(os.path.join(root, name), limit=4096).decode("utf-8", "replace").strip()
        except (OSError, LoomError):
            continue
        if text:
            return layouts.last_part(text)
    return None
