"""The runs of a project on disk: the one module through which their state is read and written (D53)."""

from __future__ import annotations

import os

from loomctl.kit import clock, files, ids, trouble
from loomctl.kit.errors import EXIT_HELD, LoomError
from loomctl.kit.processes import PATIENCE, Lock
from loomctl.kit.quick_json import following
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import frozen_plan, sessions
from loomctl.runs.model.state import TERMINAL, accepted, handle
from loomctl.runs.model.visit_list import stored
from loomctl.runs.store import events, layouts, visit_files
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.runs.faber_runs import FaberRuns, Freeze
    from loomctl.runs.model.lease import Holder
    from loomctl.runs.model.state import State
    from loomctl.runs.store.layouts import Home
    from loomctl.runs.store.write_rules import Fence

    # What an update does: from the state as it is to the state as it shall be, and what happened.
    Change: TypeAlias = Callable[[State], tuple[State, Sequence[Event]]]

LOCAL = "local"  # the folder of the store that means something on this machine alone
OPEN = "open-runs.json"  # in it: which runs are open (`run_index`); dropped when one that was over is under way again


class Run(NamedTuple):
    """A run as it was read. folder: `{run_dir}`; state_path, plan_path: the files that artifacts may name."""

    run_id: str
    folder: str
    state: State
    plan: dict[str, Any]
    state_path: str
    plan_path: str

    @property
    def handle(self) -> str:
        """What people call the run (D69)."""
        return handle(self.state)


class Store:
    """The `.loom` folder of a project, and the runs that FABER keeps beside it (D5).

    roots: the folders that may hold FABER's; freeze: makes the plan of one of its runs, None where that may not be
    done (a hook), which then knows only runs that were taken up before. fence: what its caller may write of a state;
    None: all, for nobody drives through it.
    """

    kept_visits = visit_files.MOST  # ended visits that a state holds before the oldest leave it
    unwritten = False  # whether nothing at all is written through it (`runs/store/unwritten`)

    def __init__(
        self, folder: str, roots: Sequence[str] = (), freeze: Freeze | None = None, fence: Fence | None = None
    ) -> None:
        self.folder = folder
        self._roots, self._freeze, self._fence = roots, freeze, fence
        self._of_faber: FaberRuns | None = None
        # The state that was read last, by its very bytes: a change reads it again under the lock, most often the same.
        self._checked: tuple[Home, bytes, State] | None = None
        self.runs_folder = os.path.join(folder, "runs")
        self.local = os.path.join(folder, LOCAL)

    def writing(self, way: str) -> Store:
        """Give the same store for another way of writing (`fence`)."""
        made = Store(self.folder, self._roots, self._freeze, self._fence.turned(way) if self._fence else None)
        made._of_faber, made._checked = self._of_faber, self._checked  # what was read need not be read again
        return made

    def begin_anew(self) -> None:
        """Begin another command in the same process: who drives is seen afresh (`fence`)."""
        if self._fence is not None:
            self._fence.begin_anew()

    def held(self, run_id: str, state: State) -> Holder | None:
        """Give who else drives a run and may live; None where the caller may drive it."""
        return None if self._fence is None else self._fence.held(run_id, state)

    def refuse_held(self, run_id: str, state: State) -> None:
        """Refuse early what a write would be refused for. Raises HELD_BY_ANOTHER."""
        if self._fence is not None:
            self._fence.claim(run_id, state)

    def prepare(self, *, commit_runs: bool = False) -> None:
        """Make the folder, with a `.gitignore` that keeps it out of the project's history. Raises UNSAFE_LINK."""
        files.refuse_links(os.path.dirname(self.folder), os.path.join(self.folder, "local"))
        files.make_folder(self.runs_folder, mode=0o755)
        files.make_folder(self.local)
        from loomctl.runs.store import ignored

        ignored.write(self.folder, commit_runs=commit_runs)

    def unlogged(self, run_id: str) -> Sequence[ToolStep]:  # noqa: ARG002 - of a store that is never written
        """Give the tool steps that stand behind those in a run's log and in no file: none."""
        return ()

    def run_dir(self, run_id: str) -> str:
        """Give `{run_dir}`. Raises BAD_ID, and UNSAFE_LINK where a link stands for it."""
        folder = os.path.join(self.runs_folder, ids.checked_id(run_id))
        files.refuse_links(self.folder, folder)
        return folder

    def run_ids(self) -> list[str]:
        """List the runs there are, oldest name first; one whose state is gone is there while its backup is."""
        return [home.run_id for home in self.homes()]

    def homes(self) -> list[Home]:
        """List where every run's files are, by id."""
        found = layouts.homes(self.folder, self._roots)
        return [found[run_id] for run_id in sorted(found)]

    def run_folders(self) -> list[str]:
        """List the folders that runs stand in, there or not: one that came or went changes the time of its own."""
        return layouts.run_folders(self.folder, self._roots)

    def has(self, run_id: str) -> bool:
        """Tell whether there is such a run, without looking at the others."""
        return layouts.home(self.folder, self._roots, ids.checked_id(run_id)) is not None

    def home(self, run_id: str) -> Home:
        """Say where a run's files are. Raises BAD_ID, UNSAFE_LINK and NO_SUCH_RUN."""
        self.run_dir(run_id)
        found = layouts.home(self.folder, self._roots, run_id)
        if found is None:
            raise layouts.no_such_run(run_id, self.folder, self._roots)
        return found

    def handle(self, run_id: str, letters: int = ids.MARK) -> str:
        """Give what people call a run (D69); its id where neither its state nor the one before says what it is for."""
        try:
            home = self.home(run_id)
        except (OSError, LoomError):
            return run_id
        try:
            return handle(self.glance(home), letters)
        except (OSError, LoomError):
            from loomctl.runs.store import recovery

            return recovery.handle(home, letters)

    def free_id(self, plan_id: str) -> str:
        """Give a new run's id, of which neither the name nor what ends its handle is taken here."""
        marks = {ids.mark(run_id) for run_id in self.run_ids()}

        def is_taken(name: str) -> bool:
            return ids.mark(name) in marks or os.path.lexists(self.run_dir(name))

        return ids.make_run_id(plan_id, clock.run_stamp(), is_taken)

    def read_state(self, run_id: str) -> State:
        """Read a run's state, which nobody changes in place; one of an older schema is migrated in memory (D56).

        One of FABER's says here what its file says by itself; where it stands in its workflow `read` knows. Raises
        LoomError: NO_SUCH_RUN, NO_STATE, BAD_JSON, GIT_CONFLICT, BAD_STATE, RUN_ID_MISMATCH, SCHEMA_TOO_NEW, TOO_LARGE.
        """
        return self._met(self.read_home(self.home(run_id)))

    def _met(self, state: State) -> State:
        """Note who drove a run as this process first read it."""
        if self._fence is not None:
            self._fence.saw(state["run_id"], state)
        return state

    def read_home(self, home: Home) -> State:
        """Read the state in a run's home, which may name another file than the run's own, such as its backup."""
        return self._fabers().view(home, None).state if home.faber else self._own_state(home)

    def glance(self, home: Home) -> State:
        """Read a run's state as far as a list of runs shows it: what stands deeper in it is not checked."""
        ids.checked_id(home.run_id)
        if home.faber:
            return self._fabers().view(home, None).state
        return self._own_state(home, whole=False)

    def read(self, run_id: str, *, to_show: bool = False) -> Run:
        """Read a run: state and plan. Raises as `read_state`, and BAD_PLAN.

        to_show: a run of FABER's whose steps nobody knows comes with a plan without phases, instead of BAD_PLAN.
        """
        home = self.home(run_id)
        own_plan = os.path.join(home.folder, "plan.json")
        if not home.faber:
            state = self._met(self._own_state(home))
            return Run(run_id, home.folder, state, self._own_plan(home), home.state, own_plan)
        plan, source = self._fabers().plan(home, to_show=to_show)
        state = self._met(self._fabers().view(home, plan).state)
        return Run(run_id, home.folder, state, plan, home.state, source.path if source else own_plan)

    def _fabers(self) -> FaberRuns:
        """Give what reads and writes FABER's runs; most projects have none."""
        if self._of_faber is None:
            from loomctl.runs.faber_runs import FaberRuns

            self._of_faber = FaberRuns(self._freeze, self._own_plan)
        return self._of_faber

    def _own_state(self, home: Home, *, whole: bool = True) -> State:
        if whole or os.path.islink(home.state) or os.path.islink(home.folder):
            files.refuse_links(home.top, home.state)
        try:
            data = files.read_bytes(home.state)
            if self._checked is not None and self._checked[:2] == (home, data):
                return self._checked[2]
            raw = files.parse_json(data, where=home.state)
            read = visit_files.reader(home.folder, home.run_id)
            state = accepted(raw, where=home.state, run_id=home.run_id, whole=whole, read=read)
        except (LoomError, OSError) as error:
            from loomctl.runs.store import recovery

            raise recovery.unreadable(home, error) from None
        if whole:
            self._checked = (home, data, state)
        return state

    def _own_plan(self, home: Home) -> dict[str, Any]:
        path = os.path.join(home.folder, "plan.json")
        files.refuse_links(os.path.dirname(os.path.dirname(home.folder)), path)
        try:
            return frozen_plan.accepted(files.read_json(path), where=path)
        except OSError as error:
            raise LoomError(
                "BAD_PLAN",
                "the run's plan cannot be read",
                where=path,
                why=str(error),
                hint=trouble.way_out(error) or f"loomctl debug state restore {self.handle(home.run_id)}",
            ) from None
        except LoomError as error:
            if error.code in ("BAD_JSON", "BAD_PLAN", "TOO_LARGE"):
                error.hint = f"loomctl debug state restore {self.handle(home.run_id)}"
            raise

    def create(self, state: State, plan: dict[str, Any], happened: Sequence[Event]) -> Run:
        """Write a new run: plan first, state last, so that a kill leaves either a run or no run. Raises RUN_EXISTS."""
        run_id = state["run_id"]
        folder = self.run_dir(run_id)
        files.make_folder(self.runs_folder, mode=0o755)
        try:
            os.mkdir(folder, 0o755)
        except FileExistsError:
            raise LoomError(
                "RUN_EXISTS",
                f"somebody else started the run {run_id!r} at the same moment",
                where=folder,
                hint="loomctl runs",
                exit_code=EXIT_HELD,
            ) from None
        with self.lock(run_id):
            files.write_atomically(os.path.join(folder, "plan.json"), files.to_json(plan), mode=0o644)
            home = layouts.looms(self.folder, run_id)
            state = self._save(home, state, happened, files.to_json, durable=True)
        files.sync_folder(self.runs_folder)
        return Run(run_id, folder, state, plan, home.state, os.path.join(folder, "plan.json"))

    def update(self, run_id: str, change: Change, *, durable: bool = True, patience: float = PATIENCE) -> State:
        """Change a run's state under its lock: read, decide, append what happened, replace (D53).

        A `change` that gives the state back as it was and no events writes nothing. What it raises passes through, and
        nothing is written. durable=False: no fsync, for what a hook may lose with the power. Raises HELD_BY_ANOTHER
        before `change` is asked where the caller may not drive the run (`fence`); that alone is told in the log.
        """
        fence = self._fence
        return self._locked(run_id, lambda home: self._changed(home, change, fence, durable=durable), patience)

    def tell(
        self, run_id: str, make: Callable[[State], Sequence[Event]], *, durable: bool = True, patience: float = PATIENCE
    ) -> None:
        """Append events to a run's log, whoever drives it. make: gives them, under the lock."""

        def change(state: State) -> tuple[State, Sequence[Event]]:
            return state, make(state)

        self._locked(run_id, lambda home: self._changed(home, change, None, durable=durable), patience)

    def replace(self, run_id: str, source: str, change: Change) -> State:
        """Put the state in another file of the run's in the place of its own, which may be unreadable (D53).

        source: absolute; change: makes of it what is written. Under the lock, and the backup stays what it is; what is
        raised passes through, and nothing is written.
        """

        def write(home: Home) -> State:
            before, render = self._before(home, source)
            after, happened = change(before)
            self.forget_open_runs()
            return self._save(home, after, happened, render, durable=True, backup=False)

        return self._locked(run_id, write, PATIENCE)

    def forget_open_runs(self) -> None:
        """Drop the note of open runs, for one that was over may be under way again."""
        path = os.path.join(self.local, OPEN)
        if not files.leads_away(self.folder, path):
            files.remove(path)

    def _locked(self, run_id: str, write: Callable[[Home], State], patience: float) -> State:
        with self.lock(run_id, patience):
            home = self.home(run_id)
            if not home.faber:
                return write(home)
            from loomctl.runs.faber_runs import StateLock

            with StateLock(home, patience=patience):
                return write(home)

    def _before(self, home: Home, source: str = "") -> tuple[State, Callable[[State], bytes]]:
        """Read a state, from another file if one is named; with how it is written into its own."""
        if home.faber:
            return self._fabers().before(home, source)
        return self._own_state(home._replace(state=source) if source else home), files.to_json

    def _changed(self, home: Home, change: Change, fence: Fence | None, *, durable: bool) -> State:
        before, render = self._before(home)
        if fence is None:
            after, happened = change(before)
        else:
            try:
                claim = fence.claim(home.run_id, before)
            except LoomError:
                if type(before) is dict:  # a state of an older schema is not rewritten for that
                    self._save(home, before, fence.refused(home.run_id, before), render, durable=durable)
                raise
            after, happened = change(before)
            after, happened = fence.written(home.run_id, claim, before, after, happened)
        if after == before and not happened:
            return before
        if type(before) is not dict:  # it was migrated as it was read: the original is kept (D56)
            from loomctl.runs.store import recovery

            happened = [recovery.keep_original(home.state, before), *happened]
        if before["status"] in TERMINAL:
            self.forget_open_runs()
        if not happened and events.are_told_apart(before, after):
            happened = [Event("state.changed", {})]
        saved = self._save(home, after, happened, render, durable=durable)
        if fence is not None:
            fence.settled(home.run_id, saved)
        return saved

    def _save(
        self,
        home: Home,
        state: State,
        happened: Sequence[Event],
        render: Callable[[State], bytes],
        *,
        durable: bool,
        backup: bool = True,
    ) -> State:
        plan = None
        if home.faber:
            files.make_folder(home.folder, mode=0o755)
            plan = self._fabers().fresh_plan(home.run_id)
        if plan is not None:
            happened = [*happened, Event("plan.frozen", {"sha256": files.sha256_of_json(plan)})]
        elif happened and not home.faber:  # the log holds the checksum of what is written
            state = visit_files.let_leave(home, state, self.kept_visits, durable=durable)
        parts = {} if home.faber else files.to_parts(stored(state))  # FABER's file is not Loom's alone
        checksum = events.of_parts(parts) if parts else ""
        known = events.head_of(state.get("ledger_head"))
        head = events.append(home.folder, home.run_id, happened, durable=durable, known=known, state=checksum)
        changed = {
            "revision": following(state.get("revision", 0)),
            "updated_at": clock.now(),
            "ledger_head": {"seq": head.seq, "sha256": head.sha256},
        }
        state = {**state, **changed}
        if not home.faber:
            state, moved = sessions.overflowing(state)
            if moved:
                from loomctl.runs.store import recovery

                recovery.keep_sessions(home.folder, moved, durable=durable)
                changed["sessions"] = state["sessions"]
        if plan is not None:
            files.write_atomically(os.path.join(home.folder, "plan.json"), files.to_json(plan), mode=0o644)
        data = render(state) if home.faber else files.of_parts({**parts, **files.to_parts(changed)})
        if backup:
            self._keep_backup(home)
        if home.faber:
            from loomctl.runs.faber_runs import write_state

            write_state(home, data, durable=durable)
        else:
            files.write_atomically(home.state, data, mode=0o644, durable=durable, locked=True)
        return state

    @staticmethod
    def _keep_backup(home: Home) -> None:
        """Let the backup be the state before: a second name for the old file, which the rename then frees."""
        path, beside = home.state, f"{home.backup}.tmp"
        try:
            files.remove(beside)
            os.link(path, beside)
            os.replace(beside, home.backup)
            files.remove(beside)  # after a kill both may be one file already, and such a rename does nothing
        except FileNotFoundError:
            return
        except OSError:  # a file system without hard links
            files.remove(beside)
            mode = os.lstat(path).st_mode & 0o777 if home.faber else 0o644
            files.write_atomically(home.backup, files.read_bytes(path), mode=mode, durable=False, locked=True)

    def lock(self, run_id: str, patience: float = PATIENCE) -> Lock:
        """Give the lock that everybody who writes to the run holds. patience: seconds."""
        path = os.path.join(self.local, "locks", f"{ids.checked_id(run_id)}.lock")
        files.refuse_links(self.folder, path)
        return Lock(path, patience=patience)
