"""A run's context for people and scripts: what it holds, and setting it while nobody else writes (D1, D37, D38).

`RunContext` is the same for a Python script.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.flow import lines
from loomctl.flow.open_project import workspace
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_USAGE, LoomError, quoted
from loomctl.kit.processes import PATIENCE
from loomctl.kit.text.fences import one_line
from loomctl.runs import config, context_history, context_values, find, leases, project
from loomctl.runs.context_history import NOTHING, USER, Change
from loomctl.runs.machine import local
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import run_context
from loomctl.runs.model.context import Snapshot, checked, checked_key
from loomctl.runs.model.run_context import Changes, is_reserved
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.model.state import handle
from loomctl.runs.project import Caller, Conversation, Workspace
from loomctl.runs.store import blobs
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.events import Event
from loomctl.workflows import branches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run

_NOTED = 2_000  # bytes of a value's JSON that its event holds; a larger one is told by its reference
_LONG_PATIENCE = 60.0  # seconds that a script waits for the run's lock, for many may be in line
_TYPES = {str: "text", dict: "map", list: "list", bool: "boolean", type(None): "null"}


class Held(NamedTuple):
    """What a key holds.

    value: what it stands for, whatever is kept; ref: to the blob in which it is kept, if it is; trouble: why it cannot
    be read, value is then what is kept.
    """

    key: str
    value: Any
    ref: str | None = None
    trouble: LoomError | None = None

    @property
    def type(self) -> str:
        """Name its kind of JSON."""
        return _TYPES.get(type(self.value), "number")

    @property
    def bytes(self) -> int:
        """How long its compact JSON is, in UTF-8."""
        return len(context_values.encoded(self.value))

    @property
    def of_the_engine(self) -> bool:
        """Tell whether Loom writes it itself."""
        return is_reserved(self.key)


class Set(NamedTuple):
    """What a change did.

    before: what each key held, as it was kept, NOTHING where it was not set; warnings: `{code, where, message}`.
    """

    run_id: str
    handle: str
    before: Mapping[str, Any]
    warnings: Sequence[Mapping[str, str]]


# ---- Reading.


def held(space: Workspace, run: Run, key: str) -> Held:
    """Give what a key holds, built-in ones too (D44). Raises NO_SUCH_KEY, and as `context_values.value_of`."""
    scope = run_context.scope(run.state)
    if key not in scope:
        known = ", ".join(one_line(name, 60) for name in [one for one in scope if not is_reserved(one)][:20])
        what = f"the context of {run.handle} has no key {one_line(key, 80)!r}"
        why = f"its keys are: {known}" if known else "no step and no person has set a key yet"
        hint = f"loomctl context list --all {run.handle}"
        raise LoomError("NO_SUCH_KEY", what, why=why, hint=hint, exit_code=EXIT_NO_RUN)
    found = _held(space, run, key, scope[key])
    if found.trouble is not None:
        raise found.trouble
    return found


def listed(space: Workspace, run: Run, *, engine: bool = False) -> list[Held]:
    """Give what every key holds, in the order in which they were set. engine: Loom's own too, built-in ones last."""
    scope = run_context.scope(run.state)
    return [_held(space, run, key, value) for key, value in scope.items() if engine or not is_reserved(key)]


def _held(space: Workspace, run: Run, key: str, value: Any) -> Held:
    ref = value if blobs.is_ref(value) else None
    try:
        return Held(key, context_values.value_of(space, run, value), ref)
    except LoomError as error:
        error.where = f"context {one_line(key, 80)}: {error.where}"
        return Held(key, value, ref, error)


# ---- Setting.


def to_change(space: Workspace, named: str | None) -> str:
    """Find the run whose context a person or the session that drives it changes (D1). Raises as `find.to_drive`."""
    return find.to_drive(space, named, verb="context set")


def put(
    space: Workspace, run_id: str, values: Mapping[str, Any], *, branch: str | None = None, patience: float = PATIENCE
) -> Set:
    """Set keys, all of them or none. branch: of the open parallel step, whose own copy is meant.

    patience: seconds for the run's lock. Raises BAD_KEY, RESERVED_KEY, BAD_VALUE, BAD_STATUS, IN_PARALLEL where the run
    has branches by now, and as `lines.update`.
    """
    taken = {checked_key(key): checked(key, value) for key, value in values.items()}
    stored, warnings = context_values.stored(space, taken)  # before the lock: a blob is synced
    return _changed(space, run_id, lambda _: Changes(stored), warnings, patience, branch)


def take_away(space: Workspace, run_id: str, key: str, *, branch: str | None = None, patience: float = PATIENCE) -> Set:
    """Take a key away. Raises NO_SUCH_KEY, and as `put`."""
    checked_key(key)

    def change(state: State) -> Changes:
        if key not in state["context"]:
            what = f"the context of {handle(state)} has no key {one_line(key, 80)!r}"
            raise LoomError("NO_SUCH_KEY", what, hint=f"loomctl context list {handle(state)}", exit_code=EXIT_NO_RUN)
        return Changes({}, [key])

    return _changed(space, run_id, change, [], patience, branch)


def change(
    space: Workspace,
    run_id: str,
    key: str,
    make: Callable[[Any], Any],
    default: Any = None,
    *,
    branch: str | None = None,
    patience: float = PATIENCE,
) -> Any:
    """Set a key to what `make` makes of its value, while nobody else writes the run; gives the new value.

    Raises as `put`, and what `make` raises; then nothing is set.
    """
    checked_key(key)
    run = lines.read(space, run_id, branch)
    made: list[Any] = []

    def decide(state: State) -> Changes:
        context = state["context"]
        value = context_values.value_of(space, run, context[key]) if key in context else default
        made.append(checked(key, make(checked(key, value))))
        return Changes(context_values.stored(space, {key: made[-1]})[0])

    _changed(space, run_id, decide, [], patience, branch)
    return made[-1]


def _changed(
    space: Workspace,
    run_id: str,
    decide: Callable[[State], Changes],
    warnings: Sequence[Mapping[str, str]],
    patience: float,
    branch: str | None,
) -> Set:
    """Change the context under the run's lock, and tell it in the log; of a run with branches theirs alone (D43)."""
    space = leases.setting(space, run_id)
    line = lines.read(space, run_id, branch)
    held_before: dict[str, Any] = {}

    def change(state: State) -> tuple[State, list[Event]]:
        _refuse_over(state)
        _refuse_fan(state)
        changes = decide(state)
        context, before = run_context.written(state["context"], changes)
        held_before.update({**before["set"], **dict.fromkeys(before["gone"], NOTHING)})
        properties = {
            "by": USER,
            "keys": [*changes.set, *changes.gone],
            "values": {key: _noted(space, value) for key, value in changes.set.items()},
            "before": {key: _noted(space, value) for key, value in before["set"].items()},
        }
        happened = Event("context.updated", properties, space.caller.session_id)
        return {**state, "context": context}, [happened]

    lines.update(space, line, change, patience=patience)
    return Set(run_id, line.handle, held_before, warnings)


def _noted(space: Workspace, value: Any) -> Any:
    data = context_values.encoded(value)
    if blobs.is_ref(value) or len(data) <= _NOTED:
        return value
    try:
        return Blobs(space.store.folder).put(data)
    except (OSError, LoomError):
        return value


def _refuse_over(state: Mapping[str, Any]) -> None:
    branches.refuse_ended(state)
    if state["status"] in OVER:
        why, hint = "you cannot change a finished run; resume it first", f"loomctl resume {handle(state)} --reopen"
        raise LoomError("BAD_STATUS", f"the run is {state['status']}", why=why, hint=hint, exit_code=EXIT_USAGE)


def _refuse_fan(state: Mapping[str, Any]) -> None:
    entry = branches.fan(state)
    if entry is not None:
        left = ", ".join(str(record["id"]) for record in branches.open_records(entry))
        what = f"you cannot change the run's context while the branches of {entry['step_id']} are open"
        why = f"each branch has its own copy: add --branch NAME. Open branches: {left}"
        raise LoomError("IN_PARALLEL", what, why=why, hint="loomctl context set --help", exit_code=EXIT_USAGE)


def way_back(run: Run, last: Change) -> str:
    """Give the command that sets a key to what it held before its last change; empty where none can.

    None can for the engine's own keys, for a run that is over, and for a secret, which is kept nowhere else.
    """
    if run.state["status"] in OVER or is_reserved(last.key):
        return ""
    if last.before is NOTHING:
        return _line("unset", last.key, run.handle)
    if blobs.is_ref(last.before):
        return f"loomctl debug blob get {last.before} | {_line('set --from -', last.key, run.handle)}"
    told = context_values.encoded(last.before).decode()
    if context_history.noted(last.key, last.before) != last.before or "[masked: " in told:
        return ""
    return _line("set", last.key, told, run.handle)


def _line(verb: str, *words: str) -> str:
    apart = ["--"] if words[0].startswith("-") else []  # no option, whatever it looks like
    return " ".join(["loomctl context", verb, *apart, *(quoted(word) for word in words)])


# ---- For scripts.


class RunContext:
    """The context of a run on disk, for a script: each method reads it anew, each change is one write under its lock.

    run: an id or its unique beginning; None for the run that this session drives, else the only one under way. folder:
    where the project is looked for, upward from there; None for the current one. branch: of the open parallel step,
    whose own copy is meant (D43). Raises LoomError: NO_ACTIVE_RUN, AMBIGUOUS_RUN, NO_SUCH_RUN; the methods raise what
    `loomctl context` says.
    """

    @staticmethod
    def session_id() -> str | None:
        """Give the id of the assistant's session that the script runs in; None where nobody knows one."""
        return None

    def __init__(
        self, run: str | None = None, *, folder: str | os.PathLike[str] | None = None, branch: str | None = None
    ) -> None:
        self._space = _space(os.path.abspath(folder or os.getcwd()), self.session_id())
        found = find.to_read(self._space, run).run_id
        assert found is not None  # to_read raises instead
        self.run_id: str = found
        self._named = run
        self._branch = branch
        self._lock = RLock()  # threads wait for each other here, and only one of them for the run's lock

    def __repr__(self) -> str:
        """Name the run."""
        return f"RunContext({self.run_id!r})"

    def _run(self) -> Run:
        run = self._space.store.read(self.run_id, to_show=True)
        return run if self._branch is None else lines.seen(run, self._branch)

    def get(self, key: str, default: Any = None) -> Any:
        """Give what a key holds, however it is kept; `default` where it is not set."""
        try:
            return held(self._space, self._run(), key).value
        except LoomError as error:
            if error.code == "NO_SUCH_KEY":
                return default
            raise

    def set(self, key: str, value: Any) -> None:
        """Set one key."""
        self.update({key: value})

    def update(self, values: Mapping[str, Any]) -> None:
        """Set several keys in one write, all of them or none."""
        with self._lock:
            put(self._space, self._driven(), values, branch=self._branch, patience=_LONG_PATIENCE)

    def change(self, key: str, make: Callable[[Any], Any], default: Any = None) -> Any:
        """Set a key to what `make` makes of its value, while nobody else writes the run; gives the new value.

        make must not use the run itself: it would wait for its own lock.
        """
        with self._lock:
            return change(self._space, self._driven(), key, make, default, branch=self._branch, patience=_LONG_PATIENCE)

    def unset(self, key: str) -> bool:
        """Take a key away; tells whether it was there."""
        try:
            with self._lock:
                take_away(self._space, self._driven(), key, branch=self._branch, patience=_LONG_PATIENCE)
        except LoomError as error:
            if error.code == "NO_SUCH_KEY":
                return False
            raise
        return True

    def keys(self) -> list[str]:
        """List the keys, the engine's own and the built-in ones too."""
        run = self._run()
        return list(run_context.scope(run.state))

    def __iter__(self) -> Iterator[str]:
        """Give the keys."""
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        """Tell whether a key is set."""
        return key in self.keys()

    def snapshot(self) -> Snapshot:
        """Give all of it as it is now. Raises what keeps a value from being read."""
        values = {}
        for one in listed(self._space, self._run(), engine=True):
            if one.trouble is not None:
                raise one.trouble
            values[one.key] = one.value
        return Snapshot(values)

    def history(self, key: str | None = None) -> list[dict[str, Any]]:
        """Give every change of a key, or of all, oldest first, as `loomctl context history --json` has them."""
        return [one.to_dict() for one in context_history.of_run(self._run(), key)]

    def _driven(self) -> str:
        self._space.store.begin_anew()  # each change is a command of its own
        return to_change(self._space, self._named)


def _space(folder: str, session_id: str | None) -> Workspace:
    found = project.find((folder,))
    if found is None:
        raise find.no_active_run()
    host, pid = "script", None
    if session_id is None:
        host = TERMINAL
        session_id, pid = local.terminal_session(found.store)
    caller = Caller(session_id, host, pid, folder, Conversation())
    return workspace(found, config.load(found.store, with_yaml=True), caller)
