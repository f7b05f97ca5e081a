"""The JSON Schemas and the readers say the same: one corpus, one list of keys, one list of words."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loomctl.kit.errors import LoomError
from loomctl.kit.problems import Fields, errors
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.model import state, visits
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from loomctl.workflows import artifacts, branches, check, steps, workflow
from loomctl.workflows.check import check_file, document_kind
from loomctl.workflows.resolve import resolve
from loomctl.workflows.workflow_files import Places
from tests.helpers.scenes import PLAIN
from tests.helpers.tables import each
from tests.runs.test_reducer import CALLS

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "tests" / "examples"
SCHEMAS = {kind: check.schema(kind, bundle=str(ROOT)) for kind in ("workflow", "plan", "state", "tool_step")}
PLACES = Places(str(ROOT / "no-project"), str(ROOT / "no-project" / ".loom"), str(ROOT))
# What only meaning tells: no schema can say these.
BEYOND_A_SCHEMA = {"DUPLICATE_ID", "UNRESOLVED_PLACEHOLDER", "GIT_COMMAND"}


def examples(kind: str, verdict: str) -> list[Any]:
    """List the corpus' files, each named by its claim."""
    return [pytest.param(path, id=f"{kind}-{path.stem}") for path in sorted((EXAMPLES / kind / verdict).glob("*.json"))]


def schema_accepts(kind: str, raw: object) -> bool:
    """Ask the schema."""
    return bool(Draft202012Validator(SCHEMAS[kind]).is_valid(raw))


def state_accepts(raw: object) -> bool:
    """Ask the engine's reader of states."""
    try:
        state.accepted(raw, where="state.json")
    except LoomError:
        return False
    return True


@each("kind", sorted(SCHEMAS))
def test_the_schemas_are_schemas(kind: str) -> None:
    """Each file is a schema of the draft that it names, and its examples satisfy it."""
    Draft202012Validator.check_schema(SCHEMAS[kind])
    for where, part in parts(SCHEMAS[kind]):
        for shown in part.get("examples", []):
            inner = {"$defs": SCHEMAS[kind].get("$defs", {}), **{key: part[key] for key in part if key != "examples"}}
            assert Draft202012Validator(inner).is_valid(shown), (where, shown)


def parts(schema: Any, where: str = "#") -> list[tuple[str, dict[str, Any]]]:
    """List a schema and all schemas in it."""
    found = [(where, schema)] if isinstance(schema, dict) else []
    if isinstance(schema, dict):
        for key, inner in schema.items():
            if key != "examples":
                found += parts(inner, f"{where}/{key}")
    if isinstance(schema, list):
        for index, inner in enumerate(schema):
            found += parts(inner, f"{where}/{index}")
    return found


@each("path", examples("workflow", "valid"))
def test_valid_workflows_pass_both(path: Path) -> None:
    """A valid example is accepted by the schema and read without an error."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert schema_accepts("workflow", raw)
    read, problems = workflow.parse(raw)
    assert read is not None, errors(problems)


@each("path", examples("workflow", "invalid"))
def test_invalid_workflows_fail_both(path: Path) -> None:
    """An invalid example is refused by the schema and by the reader, and the reader says where."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert not schema_accepts("workflow", raw)
    read, problems = workflow.parse(raw)
    assert read is None
    assert all(problem.where.startswith("$") and problem.message for problem in problems)
    with pytest.raises(LoomError):
        workflow.build_plan(raw if isinstance(raw, dict) else {}, plan_id="p", created_at="", sources=[])


@each("path", [*examples("workflow", "invalid"), *examples("plan", "invalid")])
def test_check_says_one_thing_once(path: Path) -> None:
    """Schema and reader together name a place once: no finding is doubled."""
    found = errors(check_file(str(path), PLACES))
    assert found
    assert len({problem.where for problem in found}) == len(found), found


@each("path", examples("workflow", "invalid"))
def test_the_reader_finds_what_the_schema_finds(path: Path) -> None:
    """The schema adds nothing to what the reader says, so that `run` refuses all that `check` refuses."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    found = workflow.parse(raw)[1]
    assert list(check._beyond(raw, "workflow", bundle=str(ROOT), known=found)) == []


@each("path", [*examples("plan", "valid"), *examples("state", "valid")])
def test_valid_plans_and_states_pass(path: Path) -> None:
    """A valid plan or state is recognised by its content and passes without a word."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert document_kind(raw) == path.parts[-3]
    assert check_file(str(path), PLACES) == []
    if path.parts[-3] == "state":
        assert state_accepts(raw)


@each("path", [*examples("plan", "invalid"), *examples("state", "invalid")])
def test_invalid_plans_and_states_fail(path: Path) -> None:
    """An invalid plan or state is refused, a state by the engine's own reader too."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert errors(check_file(str(path), PLACES))
    if path.parts[-3] == "state":
        assert not schema_accepts("state", raw)
        assert not state_accepts(raw)


def properties(*path: str) -> dict[str, Any]:
    """Give the properties of a part of the workflow schema."""
    found: Any = SCHEMAS["workflow"]
    for key in path:
        found = found[key]
    return dict(found["properties"])


STEP = {
    "id": "a",
    "prompt": "Do it.",
    "timeout": 1,
    "result_handling": {},
    "transitions": [{"to": "end", "weight": 1}],
    "evidence": [{"file": "x", "timeout": 1}],
    "for_each": {"list": "context.parts"},
    "parallel": {"branches": [{"id": "b", "steps": []}]},
}
ALL_PARTS = {
    "id": "w",
    "autonomy": {},
    "result_handling": {},
    "critical_artifacts": {"always_load": [{"id": "a", "type": "json", "path": "x"}]},
    "phases": {"p": {"result_handling": {}, "steps": [STEP]}},
}
AT_STEP = "$.phases.p.steps[0]"
READ_AT = {
    "$": [],
    "$.autonomy": ["properties", "autonomy"],
    "$.critical_artifacts": ["properties", "critical_artifacts"],
    "$.critical_artifacts.always_load[0]": ["$defs", "artifact"],
    "$.phases.p": ["$defs", "phase"],
    AT_STEP: ["$defs", "step"],
    f"{AT_STEP}.result_handling": ["$defs", "result_handling"],
    f"{AT_STEP}.transitions[0]": ["$defs", "transition"],
    f"{AT_STEP}.evidence[0]": ["$defs", "evidence_item"],
    f"{AT_STEP}.for_each": ["$defs", "for_each"],
    f"{AT_STEP}.parallel": ["$defs", "parallel"],
    f"{AT_STEP}.parallel.branches[0]": ["$defs", "branch"],
}


def test_the_schema_has_the_keys_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key that the reader takes is a property of the schema, and it takes every property."""
    taken: dict[str, set[str]] = {}
    rest = Fields.rest

    def noted(self: Fields, *, later: Any = (), inert: Any = ()) -> dict[str, Any]:
        taken[self.where] = {*self._taken, *later, *inert}
        return rest(self, later=later, inert=inert)

    monkeypatch.setattr(Fields, "rest", noted)
    workflow.parse(ALL_PARTS)
    for where, place in READ_AT.items():
        assert set(properties(*place)) - {"$schema"} == taken[where] - {"overrides"}, where
    evidence = SCHEMAS["plan"]["$defs"]["step"]["properties"]["evidence"]["items"]["properties"]
    assert set(evidence) == {"kind", *properties("$defs", "evidence_item"), "path_steps", "condition_code"}
    assert evidence["kind"]["enum"] == ["file", "command", "state"]
    frozen = SCHEMAS["plan"]["$defs"]["step"]["properties"]["for_each"]["properties"]
    assert set(frozen) == {*properties("$defs", "for_each"), "path_steps"}
    transition = SCHEMAS["plan"]["$defs"]["transition"]["properties"]
    assert set(transition) == {*properties("$defs", "transition"), "condition_code"}


def test_the_schema_has_the_words_of_the_classes() -> None:
    """Every list of words is the same in schema and code."""
    definitions = SCHEMAS["workflow"]["$defs"]
    assert definitions["level"]["enum"] == list(workflow.LEVELS)
    assert properties("$defs", "step")["kind"]["enum"] == list(steps.KINDS)
    assert properties("$defs", "artifact")["type"]["enum"] == list(artifacts.TYPES)
    assert properties("$defs", "artifact")["load_strategy"]["enum"] == list(artifacts.LOAD_STRATEGIES)
    for word, known in steps.HANDLING.items():
        assert definitions["result_handling"]["properties"][word]["enum"] == list(known)
        assert definitions["result_handling"]["properties"][word]["default"] == workflow.HANDLING_DEFAULTS[word]
    assert set(definitions["artifact"]["required"]) == {"id", "type", "required", "reload_triggers"}
    of_state = SCHEMAS["state"]["properties"]
    assert of_state["status"]["enum"] == list(state.STATUSES)
    visit_words = SCHEMAS["state"]["$defs"]["visit"]["properties"]["status"]["enum"]
    branch_words = SCHEMAS["state"]["$defs"]["branch"]["properties"]["status"]["enum"]
    assert branch_words == list(state.BRANCH_STATUSES)
    assert {*visits.OUTCOMES, branches.CANCELLED} == set(visits.BRANCH_ENDS)
    assert properties("$defs", "parallel")["join"]["enum"] == list(visits.JOINS)
    assert set(visit_words) == {*visits.OPEN, *visits.OUTCOMES}
    way = SCHEMAS["state"]["$defs"]["next"]["properties"]
    assert way["reason"]["enum"] == list(visits.REASONS)
    weight = properties("$defs", "transition")["weight"]
    assert properties("$defs", "step")["evidence"]["maxItems"] == artifacts.MOST_EVIDENCE
    assert properties("$defs", "evidence_item")["timeout"]["maximum"] == artifacts.LONGEST_CHECK
    assert (weight["minimum"], weight["maximum"]) == (-steps.HEAVIEST, steps.HEAVIEST)


@pytest.mark.parametrize("name", [str(PLAIN), "core", "default"], ids=["plain", "core", "default"])
def test_a_plan_has_exactly_the_keys_of_its_schema(name: str) -> None:
    """What `build_plan` writes satisfies plan.schema.json and has all of its properties and no other."""
    resolved = resolve(name, PLACES)
    assert resolved.problems == []
    built = workflow.build_plan(
        resolved.checked(), plan_id="shop-258", created_at="2026-01-01T00:00:00Z", sources=resolved.sources
    )
    schema = SCHEMAS["plan"]
    assert list(Draft202012Validator(schema).iter_errors(built)) == []
    said_by_some = {"default_fidelity", "retry_target", "max_visits", "must_survive", "allow", "test_command"}
    added = set() if name == str(PLAIN) else said_by_some
    assert set(built) - added == set(schema["required"]) == set(schema["properties"]) - said_by_some
    definitions = schema["$defs"]
    for phase in built["phases"]:
        assert set(phase) == set(definitions["phase"]["properties"]) == set(definitions["phase"]["required"])
        for step in phase["steps"]:
            said = {*steps.ADDED_FIELDS, "schema"}
            assert set(step) - (said if added else set()) == set(definitions["step"]["required"])
            assert set(definitions["step"]["properties"]) == {*definitions["step"]["required"], *said}
    sources = {"path", "path_from_state", "command"}
    for artifact in built["artifacts"]:
        assert set(artifact) - sources == set(definitions["artifact"]["required"])
        assert set(artifact) <= set(definitions["artifact"]["properties"])


def test_a_new_state_has_the_keys_of_its_schema() -> None:
    """A run's first state satisfies state.schema.json; its keys are that schema's, all but what comes later."""
    built = workflow.build_plan(
        resolve("core", PLACES).checked(), plan_id="shop-258", created_at="2026-01-01T00:00:00Z", sources=[]
    )
    first = state.new_state(
        built, run_id="shop-258-run-2026-01-01T00-00-00Z", work_id=None, goal="x", at="2026-01-01T00:00:00Z"
    )
    assert list(Draft202012Validator(SCHEMAS["state"]).iter_errors(first)) == []
    assert set(first) == set(SCHEMAS["state"]["properties"]) - {
        "completed_at",
        "earlier",
        "forked_from",
        "saved_from",
        "fleet",
        "lease",
        "driving",
        "lease_before_loom",
        "pending_triggers",
        "feedback",
        "must_survive",
    }


@each("path", examples("tool_step", "valid"))
def test_valid_tool_steps_pass_both(path: Path) -> None:
    """A valid example is accepted by the schema and is read and written without a loss; what is empty is left out."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert schema_accepts("tool_step", raw)
    read = ToolStep.from_dict(raw)
    needed = SCHEMAS["tool_step"]["required"]
    assert read.to_dict() == {key: value for key, value in raw.items() if key in needed or value is not None}


@each("path", examples("tool_step", "invalid"))
def test_invalid_tool_steps_are_refused_and_read_as_far_as_they_go(path: Path) -> None:
    """The schema refuses an invalid example; the reader, which must show any log, makes a step of it all the same."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert not schema_accepts("tool_step", raw)
    assert isinstance(ToolStep.from_dict(raw), ToolStep)


def test_a_tool_step_has_the_keys_of_its_schema() -> None:
    """Every field that is written is a property, and no property is unknown to the class; so it is with `rest`."""
    schema = SCHEMAS["tool_step"]
    assert set(schema["properties"]) == set(ToolStep._fields) - {"more"}
    assert set(schema["required"]) == set(ToolStep("", "", {}, "", None, True).to_dict())
    assert set(schema["properties"]["rest"]["properties"]) == {"args", "result", "text_at", "text_is"}


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(CALLS)
def test_every_step_that_is_made_satisfies_its_schema(
    tmp_path_factory: pytest.TempPathFactory, call: tuple[Any, ...]
) -> None:
    """Whatever tool, arguments and result were: the record is what the schema says, and so is what is put away."""
    tool, args, result, error = json.loads(json.dumps(call))
    folder = tmp_path_factory.mktemp("run")
    step = StepReducer(DataOffloader(folder)).reduce(tool, args, result, error=error)
    records = [step.to_dict()]
    if step.rest_ref:
        records.append({**records[0], "rest": json.loads((folder / step.rest_ref).read_text(encoding="utf-8"))})
    for raw in records:
        assert list(Draft202012Validator(SCHEMAS["tool_step"]).iter_errors(raw)) == []


FULL = json.loads((EXAMPLES / "workflow" / "valid" / "full.json").read_text(encoding="utf-8"))
WORDS = [
    "",
    " ",
    "x",
    "é",
    "a/b",
    "a..b",
    "build",
    "core",
    "retry",
    "stop",
    "manual",
    "/go:do x",
    "phase_start:x",
    "{run_dir}",
]
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, 0, -1, 3, 1.5, 2.0, [], {}, [None], ["x"], [{}], {"x": 1}, [["x"]], {"steps": []}, *WORDS]
)


def places(raw: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List every place in a JSON value."""
    inner = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    return [path, *(found for key, value in inner for found in places(value, (*path, key)))]


@pytest.mark.slow
@settings(max_examples=400)
@given(data=st.data())
def test_schema_and_reader_agree_on_any_damage(data: st.DataObject) -> None:
    """Whatever is deleted or replaced in a good workflow, schema and reader give the same verdict."""
    raw = copy.deepcopy(FULL)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([place for place in places(raw) if place]))
        parent = raw
        for key in path[:-1]:
            parent = parent[key]
        action = data.draw(st.sampled_from(["delete", "replace", "add"]))
        if action == "delete":
            del parent[path[-1]]
        elif action == "replace":
            parent[path[-1]] = copy.deepcopy(data.draw(JUNK))  # what is put in may be damaged again
        elif isinstance(parent, dict):
            known = sorted({key for place in READ_AT.values() for key in properties(*place)})
            parent[data.draw(st.sampled_from(known))] = copy.deepcopy(data.draw(JUNK))
    problems = errors(workflow.parse(raw)[1])
    if all(problem.code in BEYOND_A_SCHEMA for problem in problems):
        assert schema_accepts("workflow", raw), (raw, problems)
    else:
        assert not schema_accepts("workflow", raw), (raw, problems)
