"""A run's `plan.json`, a plain dict: the shape that engine and hooks may rely on, and where its steps stand."""

from __future__ import annotations

from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.ids import is_fit
from loomctl.kit.quick_json import FLAG, LIST, NOTHING, NUMBER, OBJECT, TEXT, WHOLE, Shape, as_object, misfit, not_text
from loomctl.kit.records import NamedTuple
from loomctl.runs.model.state import up_to_date
from loomctl.runs.model.visits import JOINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import Table

# Who raises it raises the state's, too: a push, an archive and a pause look at the state alone.
SCHEMA_VERSION = 1
MIGRATIONS: Table = {}
LONGEST_RULE, MOST_RULES = 200, 100  # characters of one; of a step, or of a workflow
MOST_VISITS = 20  # of a step in a routed plan that says nothing of it (D45)
_NO_BOUND = 1 << 30
_TEXT_OR_NULL, _LIST_OR_NULL = TEXT + NOTHING, LIST + NOTHING
_PLAN = Shape(
    {"plan_id": TEXT, "workflow_id": TEXT, "phases": LIST, "artifacts": LIST},
    {
        "autonomy": OBJECT,
        "commands": LIST,
        "retry_target": TEXT,
        "max_visits": WHOLE,
        "must_survive": LIST,
        "allow": LIST,
        "test_command": TEXT,
    },
    ("plan_id", "workflow_id"),
)
_AUTONOMY = Shape({}, {"level": TEXT, "require_approval_for": LIST}, ("level",))
_PHASE = Shape({"id": TEXT, "steps": LIST}, {"require_approval": FLAG}, ("id",))
_STEP = Shape(
    {"key": TEXT, "id": TEXT},
    {
        **dict.fromkeys(("kind", "run", "workdir", "output_schema", "fidelity", "retry_target"), TEXT),
        **dict.fromkeys(("prompt", "command", "skill", "engine"), _TEXT_OR_NULL),
        **dict.fromkeys(("max_retries", "output_retries", "max_visits"), WHOLE),
        **dict.fromkeys(("result_handling", "schema", "parallel", "for_each"), OBJECT),
        "require_approval": FLAG,
        "timeout": NUMBER,
        "transitions": LIST,
        "evidence": LIST,
        "produces": LIST,
        "allow": LIST,
    },
    ("key", "id"),
)
_FOR_EACH = Shape({"list": TEXT, "path_steps": LIST}, {"section": TEXT, "allow_empty": FLAG}, ("list", "section"))
_PARALLEL = Shape({"join": TEXT, "branches": LIST}, {}, ("join",))
_BRANCH = Shape({"id": TEXT, "steps": LIST}, {}, ("id",))
_CODE = {"condition": TEXT, "condition_code": _LIST_OR_NULL}
_WAY = {"label": TEXT, "weight": NUMBER, "fidelity": TEXT, "on_failure": FLAG}
_TRANSITION = Shape({"to": TEXT}, {**_CODE, **_WAY}, ("to",))
_EVIDENCE = {
    "file": Shape({"kind": TEXT, "file": TEXT}, {"changed": FLAG}),
    "command": Shape({"kind": TEXT, "run": TEXT}, {"timeout": NUMBER, "tests": TEXT}),
    "state": Shape({"kind": TEXT}, {"state": TEXT, "path_steps": _LIST_OR_NULL, **_CODE}),
}
_HANDLING = Shape({}, dict.fromkeys(("on_success", "on_warning", "on_failure"), TEXT))
_ARTIFACT = Shape(
    {"id": TEXT, "type": TEXT},
    {
        **dict.fromkeys(("path", "path_from_state", "command", "load_strategy", "when"), TEXT),
        **dict.fromkeys(("phase", "condition"), _TEXT_OR_NULL),
        "triggers": LIST,
        "condition_code": _LIST_OR_NULL,
        "path_steps": _LIST_OR_NULL,
    },
    ("id", "type", "load_strategy", "when", "phase"),
)
# What this loomctl does; a plan that asks for more is not done in part.
_KINDS = ("agent", "prompt", "command", "human", "parallel")


def accepted(raw: object, *, where: str) -> dict[str, Any]:
    """Check what was read from a plan file and give it back; one of an older schema is migrated (D56).

    Raises BAD_PLAN with the JSON path, or SCHEMA_TOO_NEW.
    """
    plan = up_to_date(raw, "plan", where, SCHEMA_VERSION, MIGRATIONS, _bad)
    for problem in _problems(plan, where):
        if problem is not None:
            raise _bad(where, *problem)
    return plan


def _problems(plan: dict[str, Any], where: str) -> Iterator[tuple[str, str] | None]:
    """Look at one place after the other, the outer before the inner."""
    yield misfit("$", plan, _PLAN)
    if "autonomy" in plan:
        yield misfit("$.autonomy", plan["autonomy"], _AUTONOMY)
    yield not_text("$.allow", plan.get("allow"))
    for index, phase in enumerate(plan["phases"]):
        path = f"$.phases[{index}]"
        yield misfit(path, phase, _PHASE)
        for number, step in enumerate(phase["steps"]):
            yield from _of_step(f"{path}.steps[{number}]", step, where)
    yield from _nowhere(plan)
    for index, artifact in enumerate(plan["artifacts"]):
        path = f"$.artifacts[{index}]"
        yield misfit(path, artifact, _ARTIFACT)
        yield not_text(f"{path}.triggers", artifact.get("triggers"))


def _of_step(path: str, step: Any, where: str) -> Iterator[tuple[str, str] | None]:
    yield misfit(path, step, _STEP)
    _refuse_later(path, step, where)
    if "result_handling" in step:
        yield misfit(f"{path}.result_handling", step["result_handling"], _HANDLING)
    for place, transition in enumerate(step.get("transitions", ())):
        yield misfit(f"{path}.transitions[{place}]", transition, _TRANSITION)
    for place, wanted in enumerate(step.get("evidence", ())):
        yield from _of_evidence(f"{path}.evidence[{place}]", wanted)
    if "produces" in step:
        left = (next(iter(one.values())) if type(one) is dict and len(one) == 1 else one for one in step["produces"])
        yield not_text(f"{path}.produces", list(left))
    yield not_text(f"{path}.allow", step.get("allow"))
    if "for_each" in step:
        yield misfit(f"{path}.for_each", step["for_each"], _FOR_EACH)
    if "parallel" in step:
        yield from _of_branches(f"{path}.parallel", step["parallel"], where)


def _of_evidence(path: str, wanted: Any) -> Iterator[tuple[str, str] | None]:
    kind = as_object(wanted).get("kind")
    if not isinstance(kind, str) or kind not in _EVIDENCE:
        yield path, f"evidence must have a kind, one of {', '.join(_EVIDENCE)}"
        return
    yield misfit(path, wanted, _EVIDENCE[kind])
    if kind == "state" and ("state" in wanted) == ("condition" in wanted):
        yield path, "evidence in the state needs either a path or a condition"


def _of_branches(path: str, parallel: Any, where: str) -> Iterator[tuple[str, str] | None]:
    yield misfit(path, parallel, _PARALLEL)
    if parallel["join"] not in JOINS:
        yield f"{path}.join", f"a join must be one of {', '.join(JOINS)}"
    for index, branch in enumerate(parallel["branches"]):
        inner = f"{path}.branches[{index}]"
        yield misfit(inner, branch, _BRANCH)
        if not is_fit(branch["id"]):
            yield f"{inner}.id", "a branch's id may have letters, digits, '.', '_' and '-'"
        if not branch["steps"]:
            yield inner, "a branch must have steps"
        for number, step in enumerate(branch["steps"]):
            yield from _of_step(f"{inner}.steps[{number}]", step, where)
            if "parallel" in step:
                yield f"{inner}.steps[{number}]", "a branch must not hold a parallel step"


def _nowhere(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give what leads to a step that the plan, or the branch, does not have; the end is no step."""
    steps = [
        (f"$.phases[{index}].steps[{number}]", step)
        for index, phase in enumerate(plan["phases"])
        for number, step in enumerate(phase["steps"])
    ]
    groups = [steps]
    for path, step in steps:
        for number, branch in enumerate(step["parallel"]["branches"] if "parallel" in step else ()):
            inside = f"{path}.parallel.branches[{number}].steps"
            groups.append([(f"{inside}[{at}]", one) for at, one in enumerate(branch["steps"])])
    for group in groups:
        led = [(f"{path}.retry_target", step["retry_target"]) for path, step in group if "retry_target" in step]
        if group is steps and "retry_target" in plan:
            led.insert(0, ("$.retry_target", plan["retry_target"]))
        for path, step in group:
            ways = enumerate(step.get("transitions", ()))
            led += [(f"{path}.transitions[{at}].to", way["to"]) for at, way in ways if way["to"] != "end"]
        keys = {step["key"] for _, step in group} if led else ()
        yield from ((path, "there is no such step in this part of the plan") for path, key in led if key not in keys)


def _refuse_later(path: str, step: dict[str, Any], where: str) -> None:
    """Refuse a step of a kind that is not done here, or one that is half of its kind (D30). Raises NOT_SUPPORTED."""
    kind = step.get("kind", _KINDS[0])
    halves = (kind == "command") == ("run" in step) and (kind == "parallel") == ("parallel" in step)
    if kind not in _KINDS or not halves:
        raise LoomError(
            "NOT_SUPPORTED",
            f"this loomctl does not support a step of this kind: {kind:.40}",
            where=f"{where} {path}",
            why="only a command step has run, and only a parallel step has parallel" if kind in _KINDS else "",
            hint=f"loomctl check {quoted(where)}",
        )


def _bad(where: str, path: str, why: str) -> LoomError:
    what, hint = "the run's plan is damaged", f"loomctl check {quoted(where)}"
    return LoomError("BAD_PLAN", what, where=f"{where} {path}", why=why, hint=hint)


def steps_unknown(plan: Mapping[str, Any]) -> str:
    """Say why a run of FABER's has steps that nobody knows, so that it is looked at alone; empty for others (D5)."""
    return str(as_object(plan.get("faber")).get("unknown") or "")


# ---- Where its steps stand, and which comes after which (D7).


class Place(NamedTuple):
    """A step of the plan with the phase it belongs to."""

    phase: dict[str, Any]
    step: dict[str, Any]

    @property
    def key(self) -> str:
        """The step's name everywhere: `phase/id` (D7)."""
        return str(self.step["key"])


class _Index(NamedTuple):
    """phases: the plan's own list, by which the index is known again."""

    phases: Sequence[Any]
    size: int
    every: Sequence[Place]
    at: Mapping[str, int]
    branches: bool


_newest: list[_Index] = []  # a process works on one plan, and on those of its branches
_KEPT = 4


def _index(plan: Mapping[str, Any]) -> _Index:
    phases = plan["phases"]
    size = sum(len(phase["steps"]) for phase in phases)
    for known in _newest:
        if known.phases is phases and known.size == size:
            return known
    every = [Place(phase, step) for phase in phases for step in phase["steps"]]
    at: dict[str, int] = {}
    for number, place in enumerate(every):
        at.setdefault(place.step["key"], number)
    branches = any(place.step.get("transitions") or place.step.get("retry_target") for place in every)
    made = _Index(phases, size, every, at, branches)
    _newest[:] = [made, *_newest[: _KEPT - 1]]
    return made


def has_to_show(step: Mapping[str, Any]) -> bool:
    """Tell whether a step has something to show, or to leave, before it counts as done (D66)."""
    return bool(step.get("evidence") or step.get("produces"))


def leaves(step: Mapping[str, Any]) -> dict[str, str]:
    """Give the names of what a step has to leave, each with its path, empty where the step says none (D66)."""
    found: dict[str, str] = {}
    for one in step.get("produces") or ():
        found |= one if isinstance(one, dict) else {one: ""}
    return found


def is_rule(text: object) -> bool:
    """Tell whether a text can be a rule of what an assistant may use: one line, and no option of a command line."""
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_RULE or text[0] == "-" or text != text.strip():
        return False
    return not any(
        one < " " or "\x7f" <= one <= "\x9f" or one in "\u2028\u2029" or "\ud800" <= one <= "\udfff" for one in text
    )


def allowed(plan: Mapping[str, Any]) -> list[dict[str, str]]:
    """List all that a plan lets an assistant use, as `{step, allow}`; step: empty for what holds for all of them."""
    whole = plan.get("whole") or plan
    said = [("", whole), *((place.key, place.step) for place in with_branches(whole))]
    return [{"step": key, "allow": rule} for key, one in said for rule in one.get("allow") or () if is_rule(rule)]


def is_human(step: Mapping[str, Any]) -> bool:
    """Tell whether a step ends by what a person decides."""
    return step.get("kind") == "human"


def places(plan: Mapping[str, Any]) -> Sequence[Place]:
    """List the plan's steps in the order in which they are written."""
    return _index(plan).every


def place_of(plan: Mapping[str, Any], key: str | None) -> Place | None:
    """Find a step by its key."""
    found = _index(plan)
    number = found.at.get(key) if key is not None else None
    return None if number is None else found.every[number]


def inner(place: Place) -> list[Place]:
    """List the steps of a parallel step's branches, as declared; nothing of every other step (D43)."""
    branches = as_object(place.step.get("parallel")).get("branches", ())
    return [Place(place.phase, step) for branch in branches for step in branch["steps"]]


def with_branches(plan: Mapping[str, Any]) -> list[Place]:
    """List a run's steps in their order, those of its branches behind their parallel step, whatever it is seen as."""
    return [one for place in places(plan.get("whole") or plan) for one in (place, *inner(place))]


def find(plan: Mapping[str, Any], key: str | None) -> Place | None:
    """Find a step by its key, also one of a branch."""
    return place_of(plan, key) or next((place for place in with_branches(plan) if place.key == key), None)


def is_untested(plan: Mapping[str, Any], key: str) -> bool:
    """Tell whether the tests are all that a step was to show, and no test command was known as the run began."""
    place = find(plan, key)
    command = (plan.get("whole") or plan).get("test_command")
    return command == "" and place is not None and place.step.get("evidence") == []


def after(plan: Mapping[str, Any], key: str) -> Place | None:
    """Give the step that is written after another; None behind the last."""
    found = _index(plan)
    number = found.at.get(key, len(found.every)) + 1
    return found.every[number] if number < len(found.every) else None


def is_routed(plan: Mapping[str, Any]) -> bool:
    """Tell whether a plan says anywhere where to go on: else its steps are done in their order."""
    return bool(plan.get("retry_target")) or _index(plan).branches


def most_visits(plan: Mapping[str, Any], place: Place) -> int:
    """Give how often a step may be visited in all: as it says, as its workflow says, else MOST_VISITS if routed."""
    for said in (place.step.get("max_visits"), plan.get("max_visits")):
        if type(said) is int and said > 0:
            return said
    return MOST_VISITS if is_routed(plan) else _NO_BOUND
