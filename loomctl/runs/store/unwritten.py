"""A store that is read as it is and never written: what would be written is kept in memory, and read from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.kit import clock, files
from loomctl.kit.quick_json import following
from loomctl.runs.machine.local import Local
from loomctl.runs.store import layouts
from loomctl.runs.store.store import Run, Store
from loomctl.runs.store.write_rules import DROP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.runs.model.state import State
    from loomctl.runs.store.layouts import Home
    from loomctl.runs.store.store import Change
    from loomctl.runs.store.write_rules import Fence


class UnwrittenStore(Store):
    """Takes the place of a store for what must leave no trace (`loomctl simulate --event`)."""

    unwritten = True

    def __init__(self, folder: str, roots: Sequence[str] = (), fence: Fence | None = None) -> None:
        super().__init__(folder, roots, fence=fence)
        self._made: dict[str, Run] = {}
        self._steps: dict[str, Sequence[ToolStep]] = {}

    def writing(self, way: str) -> UnwrittenStore:
        """As the store's, with what was put here."""
        made = UnwrittenStore(self.folder, self._roots, self._fence.turned(way) if self._fence else None)
        made._made, made._steps = self._made, self._steps
        return made

    def put(self, run: Run) -> None:
        """Let there be a run, or this one in the place of the one on disk."""
        self._made[run.run_id] = run

    def put_steps(self, steps: Mapping[str, Sequence[ToolStep]]) -> None:
        """Let these tool steps, by their runs, stand behind those in the logs."""
        self._steps.update(steps)

    def unlogged(self, run_id: str) -> Sequence[ToolStep]:
        """Give the tool steps that were put here."""
        return self._steps.get(run_id, ())

    def has(self, run_id: str) -> bool:
        """As the store's, with what was put here."""
        return run_id in self._made or super().has(run_id)

    def home(self, run_id: str) -> Home:
        """As the store's; a run that was put here has the home that it would be written to."""
        is_new = run_id in self._made and not super().has(run_id)
        return layouts.looms(self.folder, run_id) if is_new else super().home(run_id)

    def read_state(self, run_id: str) -> State:
        """As the store's, with what was changed here."""
        return self._made[run_id].state if run_id in self._made else super().read_state(run_id)

    def read(self, run_id: str, *, to_show: bool = False) -> Run:
        """As the store's, with what was changed here."""
        return self._made[run_id] if run_id in self._made else super().read(run_id, to_show=to_show)

    def glance(self, home: Home) -> State:
        """As the store's, with what was changed here."""
        return self._made[home.run_id].state if home.run_id in self._made else super().glance(home)

    def replace(self, run_id: str, source: str, change: Change) -> State:  # noqa: ARG002 - the store's own
        """Keep the state in another file of the run's here; `change` is not asked, for it sets files aside."""
        state = self.read_home(self.home(run_id)._replace(state=source))
        self.put(self.read(run_id)._replace(state=state))
        return state

    def _locked(self, run_id: str, write: Callable[[Home], State], patience: float) -> State:  # noqa: ARG002 - the store's own
        return write(self.home(run_id))

    def _changed(self, home: Home, change: Change, fence: Fence | None, *, durable: bool) -> State:  # noqa: ARG002
        """Change the state that is kept here, where the caller may; what happened is forgotten."""
        run = self.read(home.run_id)
        claim = fence.claim(home.run_id, run.state) if fence else None
        after, _ = change(run.state)
        if after == run.state or (claim is not None and claim.what == DROP):
            return run.state
        after = {**after, "revision": following(after.get("revision", 0)), "updated_at": clock.now()}
        self.put(run._replace(state=after))
        return after


class UnwrittenLocal(Local):
    """Takes the place of what this machine alone keeps, in the same way."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._kept: dict[str, bytes] = {}

    def _write(self, folder: str, session_id: str, value: dict[str, Any]) -> None:
        self._kept[self._path(folder, session_id)] = files.to_json(value)

    def _read(self, folder: str, session_id: str | None) -> dict[str, Any] | None:
        kept = self._kept.get(self._path(folder, session_id)) if session_id else None
        if kept is None:
            return super()._read(folder, session_id)
        found: dict[str, Any] = files.parse_json(kept, where=folder)
        return found

    def _mark(self, session_id: str) -> None: ...

    def keep_given(self, text: str) -> str:  # noqa: ARG002 - the folder's own
        """Keep nothing: there is no next diff."""
        return ""

    def note_watched(self, session_id: str, artifacts: Mapping[str, Any], *, age: float) -> None:
        """Note nothing: no launcher looks."""

    def _make_room(self) -> None: ...

    @staticmethod
    def _tried(write: Callable[[str], None], name: str) -> None:
        """Leave what makes looking quicker as it is."""
