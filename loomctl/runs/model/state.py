"""The run's `state.json` as plain data: how it begins, how a file is accepted, what priming leaves out of it."""

from __future__ import annotations

from loomctl.kit import ids
from loomctl.kit.errors import EXIT_SKEW, UPDATE, LoomError, quoted
from loomctl.kit.quick_json import ANY_OBJECT, LARGEST, LIST, NOTHING, OBJECT, TEXT, WHOLE, Shape, misfit
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import visit_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, TypeAlias

    from loomctl.runs.model.visit_list import Reader

    State: TypeAlias = dict[str, Any]
    Table: TypeAlias = Mapping[int, Sequence["Step"]]  # from a schema's version to the steps that lead to the next one
    Bad: TypeAlias = Callable[[str, str, str], LoomError]  # from a file, a JSON path in it and what is wrong there

SCHEMA_VERSION = 2
ACTIVE = ("in_progress", "paused", "awaiting_feedback")
TERMINAL = ("completed", "cancelled")
STATUSES = ("pending", *ACTIVE, "completed", "failed", "cancelled")
# Of a branch of a parallel step (D43).
BRANCH_STATUSES = (
    *("pending", "in_progress", "awaiting_feedback"),
    *("succeeded", "failed", "partially_succeeded", "skipped", "cancelled"),
)
# What priming and bookkeeping change by themselves: never part of what a priming shows or hashes (D15).
VOLATILE = ("sessions", "context_metadata", "updated_at", "revision", "ledger_head", "pending_triggers", "lease")

# What the log's checksum of a state leaves out: what hooks change without an event, and a copy's other name (D54).
UNCHECKED = frozenset((*VOLATILE, "run_id"))


def new_state(plan: Mapping[str, Any], *, run_id: str, work_id: str | None, goal: str, at: str) -> State:
    """Make the first state of a run. at: UTC, `YYYY-MM-DDTHH:MM:SSZ`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "revision": 0,
        "run_id": run_id,
        "plan_id": plan["plan_id"],
        "workflow_id": plan["workflow_id"],
        "work_id": work_id,
        "goal": goal,
        "status": "pending",
        "created_at": at,
        "updated_at": at,
        "current_phase": None,
        "current_step": None,
        "phases": {phase["id"]: {"status": "pending"} for phase in plan["phases"]},
        "steps": [],
        "context": {},
        "artifacts": {},
        "errors": [],
        "pending_approvals": [],
        "approvals": [],
        "sessions": {"current_session_id": None, "total_sessions": 0, "session_history": []},
        "context_metadata": {"last_artifact_reload": None, "reload_count": 0, "artifacts_in_context": []},
        "ledger_head": {"seq": 0, "sha256": ""},
    }


def handle(state: Mapping[str, Any], letters: int = ids.MARK) -> str:
    """Name a run as people see it (D69); whatever reads a run takes the handle as it takes the id."""
    from loomctl.kit.text.secrets import mask

    work = str(state.get("work_id") or state.get("goal") or "")
    return ids.handle(str(state["run_id"]), mask(work)[0], letters)


# More writes than a run can have had.
_MOST_WRITES = 2**48
# The shapes that the engine relies on; everything else in a state is kept as it is.
_TEXT_OR_NULL = TEXT + NOTHING
_STATE = Shape(
    {
        **dict.fromkeys(("run_id", "plan_id", "workflow_id", "status"), TEXT),
        **dict.fromkeys(("phases", "artifacts", "context", "sessions", "context_metadata"), OBJECT),
        **dict.fromkeys(("steps", "errors", "pending_approvals"), LIST),
    },
    {
        **dict.fromkeys(("work_id", "created_at", "updated_at", "completed_at"), _TEXT_OR_NULL),
        **dict.fromkeys(("current_phase", "current_step"), _TEXT_OR_NULL),
        "revision": WHOLE,
        "goal": TEXT,
        "approvals": LIST,
        "ledger_head": OBJECT,
    },
    ("run_id", "plan_id", "workflow_id", "status", "work_id", "current_phase", "current_step"),
)
_SHOWN = ("step_id", "phase", "stage", "status", "started_at")
_VISIT = Shape(
    {**dict.fromkeys(_SHOWN, TEXT), "visit": WHOLE, "rank": WHOLE},
    {
        "artifacts": OBJECT,
        "attempt": WHOLE,
        "next": OBJECT,
        "branches": LIST,
        "task": OBJECT,
        "rejected": OBJECT,
        "given": OBJECT,
    },
    _SHOWN,
)
# What the engine or FABER did itself has no stage.
_WITHOUT_STAGE = Shape({**_VISIT.needed, "stage": NOTHING}, _VISIT.if_there, _SHOWN)
# A branch of a parallel step's visit (D43); a visit in it holds no branches of its own.
_BRANCH = Shape(
    {"id": TEXT, "index": WHOLE, "status": TEXT, "steps": LIST},
    {"current_step": TEXT, "set": OBJECT, "gone": LIST, "approvals": LIST, "feedback": OBJECT},
    ("id", "status"),
)
_IN_BRANCH = Shape({}, {"branches": NOTHING})
_NEXT = Shape({"step_id": _TEXT_OR_NULL, "reason": TEXT}, {"to": TEXT, "not_before": TEXT}, ("step_id", "reason"))
_TASK = Shape(
    {"text": TEXT, "number": WHOLE, "of": WHOLE},
    {"index": WHOLE, "line": WHOLE, "nth": WHOLE, "between": LIST, "file": TEXT},
)
_REGISTERED = Shape({}, {"set": OBJECT, "before": OBJECT})
_APPROVAL = Shape({"id": TEXT}, {"after_rank": WHOLE, "lapsed": WHOLE}, ("id",))
_SESSIONS = Shape({}, {"session_history": LIST, "current_session_id": _TEXT_OR_NULL})
_RECORD = Shape(
    {"session_id": TEXT},
    {
        **dict.fromkeys(("compactions", "phases_completed", "artifacts_loaded"), LIST),
        "environment": OBJECT,
        "resumes": WHOLE,
    },
)
_METADATA = Shape({}, {"reload_count": WHOLE, "artifacts_in_context": LIST, "tool_history": OBJECT})
_IN_CONTEXT = Shape({"artifact_id": TEXT}, {})


_EARLIER = Shape(
    {"file": TEXT, "count": WHOLE, "bytes": WHOLE, "sha256": TEXT, "ended": OBJECT, "steps": OBJECT},
    {},
    ("file", "sha256"),
)
_OF_STEP = Shape({"count": WHOLE, "last": OBJECT}, {"rounds": WHOLE})


def accepted(
    raw: object, *, where: str, run_id: str | None = None, whole: bool = True, read: Reader | None = None
) -> State:
    """Check what was read from a state file and give it back as a state; one of an older schema is migrated (D56).

    whole: False looks only at what stands at the top: enough to list a run, not to work on it. read: reads the visits
    that left the state, which are not looked at here.
    Of what counts writes alone nothing is refused: a lease that cannot be read is nobody's (`lease`), a revision that
    no reader counts to is 0. Raises RUN_ID_MISMATCH (D6), SCHEMA_TOO_NEW or BAD_STATE with the JSON path; nothing else
    is repaired in silence.
    """
    if not isinstance(raw, dict):
        raise _bad(where, "$", "a state must be a JSON object")
    if type(raw.get("revision")) is int and not 0 <= raw["revision"] <= LARGEST:
        raw = {**raw, "revision": 0}
    raw = up_to_date(raw, "state", where, SCHEMA_VERSION, MIGRATIONS, _bad)
    top = [("$", raw, _STATE), ("$.sessions", raw.get("sessions"), _SESSIONS)]
    if visit_list.KEY in raw:
        top.append((f"$.{visit_list.KEY}", raw[visit_list.KEY], _EARLIER))
    for path, value, shape in _places(raw) if whole else top:
        problem = misfit(path, value, shape)
        if problem is not None:
            raise _bad(where, *problem)
    if visit_list.KEY in raw and raw[visit_list.KEY]["count"] > visit_list.MOST:
        raise _bad(where, f"$.{visit_list.KEY}.count", "no run has so many records")
    for path, why in _damaged_branches(raw) if whole else ():
        raise _bad(where, path, why)
    if run_id is not None and raw["run_id"] != run_id:
        raise LoomError(
            "RUN_ID_MISMATCH",
            f"the file belongs to the run {str(raw['run_id'])[:200]!r}, not {run_id!r}",
            where=where,
            why="a run's folder and its state must have one id; rename the folder back, or remove the copy",
            hint="loomctl runs",
        )
    return _with_earlier(raw, read) if visit_list.KEY in raw else raw


def _with_earlier(raw: dict[str, Any], read: Reader | None) -> dict[str, Any]:
    def no_file(_: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        what = "the file with the older records of this state is missing"
        raise LoomError("BAD_STATE", what, hint="loomctl runs")

    made = raw if isinstance(raw, Migrated) else dict(raw)
    earlier = visit_list.Earlier(made.pop(visit_list.KEY), read or no_file)
    made["steps"] = visit_list.Visits(made["steps"], earlier)
    return made


def visit_misfit(path: str, visit: object) -> tuple[str, str] | None:
    """Give what does not fit in a visit, as `misfit` does, and its JSON path."""
    for place, value, shape in _of_visit(path, visit):
        problem = misfit(place, value, shape)
        if problem is not None:
            return problem
    return next(_damaged_branches({"steps": [visit]}), None)


def _of_earlier(earlier: Any) -> Iterator[tuple[str, object, Shape]]:
    """Give what a state keeps of the visits that left it."""
    path = f"$.{visit_list.KEY}"
    yield path, earlier, _EARLIER
    yield f"{path}.ended", earlier["ended"], Shape(dict.fromkeys(earlier["ended"], WHOLE), {})
    for name, known in earlier["steps"].items():
        yield f"{path}.steps.{name}", known, _OF_STEP
        yield from _of_visit(f"{path}.steps.{name}.last", known["last"])


def _places(raw: dict[str, Any]) -> Iterator[tuple[str, object, Shape]]:
    """Give every place whose shape counts, the outer before the inner: a place is looked into only once it was fit."""
    yield "$", raw, _STATE
    for name, phase in raw["phases"].items():
        yield f"$.phases.{name}", phase, ANY_OBJECT
    yield "$.sessions", raw["sessions"], _SESSIONS
    yield "$.context_metadata", raw["context_metadata"], _METADATA
    for index, visit in enumerate(raw["steps"]):
        yield from _of_visit(f"$.steps[{index}]", visit)
    if visit_list.KEY in raw:
        yield from _of_earlier(raw[visit_list.KEY])
    loaded = raw["context_metadata"].get("artifacts_in_context", [])
    for path, entries, shape in (
        ("$.pending_approvals", raw["pending_approvals"], _APPROVAL),
        ("$.approvals", raw.get("approvals", []), _APPROVAL),
        ("$.sessions.session_history", raw["sessions"].get("session_history", []), _RECORD),
        ("$.context_metadata.artifacts_in_context", loaded, _IN_CONTEXT),
    ):
        for index, entry in enumerate(entries):
            yield f"{path}[{index}]", entry, shape


def _of_visit(path: str, visit: Any) -> Iterator[tuple[str, object, Shape]]:
    without_stage = isinstance(visit, dict) and visit.get("by") in ("engine", "faber")
    yield path, visit, _WITHOUT_STAGE if without_stage else _VISIT
    if "artifacts" in visit:
        yield f"{path}.artifacts", visit["artifacts"], _REGISTERED
    if "task" in visit:
        yield f"{path}.task", visit["task"], _TASK
    if "next" in visit:
        yield f"{path}.next", visit["next"], _NEXT
    if "given" in visit:
        yield f"{path}.given", visit["given"], Shape(dict.fromkeys(visit["given"], TEXT), {})
    for index, record in enumerate(visit.get("branches", ())):
        inner = f"{path}.branches[{index}]"
        yield inner, record, _BRANCH
        for number, one in enumerate(record.get("approvals", ())):
            yield f"{inner}.approvals[{number}]", one, _APPROVAL
        for number, one in enumerate(record["steps"]):
            yield f"{inner}.steps[{number}]", one, _IN_BRANCH
            yield from _of_visit(f"{inner}.steps[{number}]", one)


def _damaged_branches(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give what of a parallel step's branches no Loom wrote: none at all, one twice, a status that there is not."""
    for index, visit in enumerate(raw["steps"]):
        records = visit.get("branches")
        if records is None:
            continue
        path = f"$.steps[{index}].branches"
        names = [record["id"] for record in records]
        if not names or len(set(names)) != len(names):
            yield path, "a parallel step must have branches with different ids"
        for place, record in enumerate(records):
            if record["status"] not in BRANCH_STATUSES:
                yield f"{path}[{place}].status", f"the status of a branch must be one of {', '.join(BRANCH_STATUSES)}"


def _bad(where: str, path: str, why: str) -> LoomError:
    what, hint = "this state cannot be used", f"loomctl check {quoted(where)}"
    return LoomError("BAD_STATE", what, where=f"{where} {path}", why=why, hint=hint)


# ---- Schemas: a file of an older one becomes one of today's by named steps from one version to the next (D56).
# Whoever makes the next one writes the steps to it under the number before and raises `SCHEMA_VERSION` beside them;
# reading, the copy of the original, the event and `loomctl check` follow.


class Step(NamedTuple):
    """name: what it does, in words that stand in the event; change: from the whole file to a new value of it."""

    name: str
    change: Callable[[dict[str, Any]], dict[str, Any]]


# The visits of ended stages may leave a state of schema 2; who knows schema 1 alone would count without them.
MIGRATIONS: Table = {1: (Step("let old visits leave the state", dict),)}


class Migrated(dict[str, "Any"]):
    """A file's content that was migrated as it was read; the file itself is still of the older schema.

    before: the version in the file; steps: the names of what was done.
    """

    before: int
    steps: tuple[str, ...]


def up_to_date(raw: object, what: str, where: str, current: int, table: Table, bad: Bad) -> dict[str, Any]:
    """Give what was read from a file, migrated if it is of an older schema. what: for words; bad: makes the error.

    Raises SCHEMA_TOO_NEW.
    """
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if type(version) is int and version > current:
        said = f"this {what} has schema {version}, but this loomctl reads at most {current}"
        raise LoomError("SCHEMA_TOO_NEW", said, where=where, hint=UPDATE, exit_code=EXIT_SKEW)
    if not isinstance(raw, dict) or type(version) is not int:
        raise bad(where, "$.schema_version", f"the schema version must be {current}")
    if version == current:
        return raw
    try:
        return migrated(raw, current, table)
    except ValueError as error:
        raise bad(where, "$.schema_version", str(error)) from None


def migrated(raw: Mapping[str, Any], current: int, table: Table) -> Migrated:
    """Bring what was read from a file up to the current schema; what is given stays as it is.

    Raises ValueError, in words, where there is no way from its version or a step could not be done.
    """
    version: int = raw["schema_version"]
    value = dict(raw)
    done: list[str] = []
    for reached in range(version, current):
        if reached not in table:
            raise ValueError(f"Loom cannot migrate schema {reached} to {reached + 1}")
        for step in table[reached]:
            try:
                value = step.change(value)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise ValueError(f"migrating schema {version} failed at {step.name!r}: {error!r:.200}") from None
            done.append(step.name)
        value = {**value, "schema_version": reached + 1}
    made = Migrated(value)
    made.before, made.steps = version, tuple(done)
    return made


def counted_off(state: Mapping[str, Any]) -> str:
    """Name the counter of a state, which somebody else wrote, that no run ever reached; empty where none is.

    What is read here is read whatever it counts; what comes from elsewhere and counts so far was made to.
    """
    lease = state.get("lease")
    told = {"revision": state.get("revision"), "lease.epoch": lease.get("epoch") if isinstance(lease, dict) else None}
    return next((name for name, held in told.items() if type(held) is int and not 0 <= held <= _MOST_WRITES), "")


def is_active(state: Mapping[str, Any]) -> bool:
    """Tell whether a run is under way (D1); completed and cancelled never are (D4)."""
    return state.get("status") in ACTIVE
