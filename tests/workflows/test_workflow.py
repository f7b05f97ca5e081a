"""A workflow is read with all of its problems at once, each with its JSON path and what to do."""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit.problems import Problem
from loomctl.workflows.workflow import Workflow, build_plan, parse
from tests.helpers.errors import refusal
from tests.helpers.tables import each

STEP: dict[str, Any] = {"id": "implement", "prompt": "Build it."}
ARTIFACT: dict[str, Any] = {
    "id": "notes", "type": "markdown", "path": "docs/notes.md", "description": "Notes", "required": False,
    "reload_triggers": ["session_start"],
}  # fmt: skip


def with_step(**changes: Any) -> dict[str, Any]:
    """Make a workflow of one step; None takes a key out."""
    step = {key: value for key, value in {**STEP, **changes}.items() if value is not None}
    return {"id": "sample", "phases": {"build": {"steps": [step]}}}


API: dict[str, Any] = {"id": "api", "steps": [STEP]}


def fan_step(*branches: Any, **more: Any) -> dict[str, Any]:
    """Make a parallel step. more: join."""
    return {"id": "fan", "parallel": {"branches": list(branches), **more}}


def fan(*branches: Any, **more: Any) -> dict[str, Any]:
    return {"id": "sample", "phases": {"build": {"steps": [fan_step(*branches, **more)]}}}


def with_artifact(group: str = "always_load", **changes: Any) -> dict[str, Any]:
    """Make a workflow of one artifact; None takes a key out."""
    artifact = {key: value for key, value in {**ARTIFACT, **changes}.items() if value is not None}
    groups: dict[str, Any] = {"phase_specific": {"build": [artifact]}} if group == "build" else {group: [artifact]}
    return {"id": "sample", "phases": {"build": {"steps": [STEP]}}, "critical_artifacts": groups}


def only_problem(raw: object) -> Problem:
    (problem,) = parse(raw)[1]
    return problem


STEP_AT = "$.phases.build.steps[0]"
BRANCH_AT = STEP_AT + ".parallel.branches[0]"
ALWAYS_AT = "$.critical_artifacts.always_load[0]"
CONDITIONAL_AT = "$.critical_artifacts.conditional_load[0]"

REFUSED = [
    (with_step(kind="wait"), "UNKNOWN_VALUE", STEP_AT + ".kind"),
    (with_step(kind="human", command="/ship"), "NOT_FOR_HUMANS", STEP_AT + ".command"),
    (with_step(kind="human", skill="shipper"), "NOT_FOR_HUMANS", STEP_AT + ".skill"),
    (with_step(kind="human", output_schema="routing"), "NOT_FOR_HUMANS", STEP_AT + ".output_schema"),
    (with_step(kind="human", output_retries=1), "NOT_FOR_HUMANS", STEP_AT + ".output_retries"),
    (with_step(kind="human", prompt=None), "MISSING_TEXT", STEP_AT),
    (with_step(kind="human", prompt=None, run="make"), "TWO_TEXTS", STEP_AT + ".kind"),
    (with_step(run="pytest -q"), "TWO_TEXTS", STEP_AT + ".prompt"),
    (with_step(prompt=None, run="pytest -q", skill="tester"), "TWO_TEXTS", STEP_AT + ".skill"),
    (with_step(prompt=None, run="pytest -q", command="/test"), "TWO_TEXTS", STEP_AT + ".command"),
    (with_step(prompt=None, run="pytest -q", kind="agent"), "TWO_TEXTS", STEP_AT + ".kind"),
    (with_step(prompt=None, run="  "), "EMPTY_TEXT", STEP_AT + ".run"),
    (with_step(prompt=None, run=["pytest"]), "WRONG_TYPE", STEP_AT + ".run"),
    (with_step(prompt=None, kind="command"), "MISSING_TEXT", STEP_AT),
    (with_step(prompt=None, run="make {taget}"), "UNRESOLVED_PLACEHOLDER", STEP_AT + ".run"),
    (with_step(prompt=None, run="make", output_schema="routing"), "NOT_FOR_COMMANDS", STEP_AT + ".output_schema"),
    (with_step(prompt=None, run="make", output_retries=1), "NOT_FOR_COMMANDS", STEP_AT + ".output_retries"),
    (with_step(prompt=None, run="make", timeout=0), "OUT_OF_RANGE", STEP_AT + ".timeout"),
    (with_step(prompt=None, run="make", timeout=1e9), "OUT_OF_RANGE", STEP_AT + ".timeout"),
    (with_step(prompt=None, run="make", timeout=float("nan")), "OUT_OF_RANGE", STEP_AT + ".timeout"),
    (with_step(prompt=None, run="make", timeout="10"), "WRONG_TYPE", STEP_AT + ".timeout"),
    (with_step(prompt=None, run="make", timeout=True), "WRONG_TYPE", STEP_AT + ".timeout"),
    (with_step(fidelity="most"), "UNKNOWN_VALUE", STEP_AT + ".fidelity"),
    (with_step(fidelity=1), "WRONG_TYPE", STEP_AT + ".fidelity"),
    (with_step(output_schema="routng"), "UNKNOWN_VALUE", STEP_AT + ".output_schema"),
    (with_step(output_schema="schemas/x.json"), "UNKNOWN_VALUE", STEP_AT + ".output_schema"),
    (with_step(output_schema="@ "), "UNKNOWN_VALUE", STEP_AT + ".output_schema"),
    (with_step(output_retries="2"), "WRONG_TYPE", STEP_AT + ".output_retries"),
    (with_step(max_visits=0), "OUT_OF_RANGE", STEP_AT + ".max_visits"),
    (with_step(max_visits=-1), "OUT_OF_RANGE", STEP_AT + ".max_visits"),
    (with_step(workdir="../else"), "PATH_ESCAPE", STEP_AT + ".workdir"),
    (with_step(workdir="a/../../b"), "PATH_ESCAPE", STEP_AT + ".workdir"),
    (with_step(workdir=""), "EMPTY_TEXT", STEP_AT + ".workdir"),
    ({**with_step(), "default_fidelity": "most"}, "UNKNOWN_VALUE", "$.default_fidelity"),
    (with_step(steps_parallel={}), "NOT_SUPPORTED", STEP_AT + ".steps_parallel"),
    (with_step(evidence={}), "WRONG_TYPE", STEP_AT + ".evidence"),
    (with_step(evidence=[7]), "WRONG_TYPE", STEP_AT + ".evidence[0]"),
    (with_step(evidence=[""]), "EMPTY_TEXT", STEP_AT + ".evidence[0].file"),
    (with_step(evidence=["x", {}]), "ONE_EVIDENCE", STEP_AT + ".evidence[1]"),
    (with_step(evidence=[{"file": "x", "run": "y"}]), "ONE_EVIDENCE", STEP_AT + ".evidence[0]"),
    (with_step(evidence=["a/../../x"]), "PATH_ESCAPE", STEP_AT + ".evidence[0].file"),
    (with_step(evidence=["a/**.js"]), "BAD_GLOB", STEP_AT + ".evidence[0].file"),
    (with_step(evidence=[{"run": "x", "timeout": -1}]), "OUT_OF_RANGE", STEP_AT + ".evidence[0].timeout"),
    (with_step(evidence=[{"run": "x", "timeout": "1"}]), "WRONG_TYPE", STEP_AT + ".evidence[0].timeout"),
    (with_step(evidence=["x"] * 21), "OUT_OF_RANGE", STEP_AT + ".evidence"),
    (with_step(kind="human", evidence=["x"]), "NOT_FOR_HUMANS", STEP_AT + ".evidence"),
    (with_step(transitions={}), "WRONG_TYPE", STEP_AT + ".transitions"),
    (with_step(transitions=["fix"]), "WRONG_TYPE", STEP_AT + ".transitions[0]"),
    (with_step(transitions=[{}]), "MISSING_FIELD", STEP_AT + ".transitions[0].to"),
    (with_step(transitions=[{"to": ""}]), "EMPTY_TEXT", STEP_AT + ".transitions[0].to"),
    (with_step(transitions=[{"to": "a/b/c"}]), "BAD_ID", STEP_AT + ".transitions[0].to"),
    (with_step(transitions=[{"to": "a..b"}]), "BAD_ID", STEP_AT + ".transitions[0].to"),
    (with_step(transitions=[{"to": "end", "label": " "}]), "EMPTY_TEXT", STEP_AT + ".transitions[0].label"),
    (with_step(transitions=[{"to": "end", "condition": ""}]), "EMPTY_TEXT", STEP_AT + ".transitions[0].condition"),
    (with_step(transitions=[{"to": "end", "weight": "5"}]), "WRONG_TYPE", STEP_AT + ".transitions[0].weight"),
    (with_step(transitions=[{"to": "end", "weight": True}]), "WRONG_TYPE", STEP_AT + ".transitions[0].weight"),
    (
        with_step(transitions=[{"to": "end", "weight": float("nan")}]),
        "OUT_OF_RANGE",
        STEP_AT + ".transitions[0].weight",
    ),
    (with_step(transitions=[{"to": "end", "fidelity": "x"}]), "UNKNOWN_VALUE", STEP_AT + ".transitions[0].fidelity"),
    (with_step(transitions=[{"to": "end", "on_failure": 1}]), "WRONG_TYPE", STEP_AT + ".transitions[0].on_failure"),
    (with_step(retry_target="a b"), "BAD_ID", STEP_AT + ".retry_target"),
    (with_step(parallel=[]), "WRONG_TYPE", STEP_AT + ".parallel"),
    (with_step(parallel={}), "MISSING_FIELD", STEP_AT + ".parallel.branches"),
    (with_step(kind="parallel"), "MISSING_FIELD", STEP_AT + ".parallel"),
    (fan(), "EMPTY_LIST", STEP_AT + ".parallel.branches"),
    (fan("api"), "WRONG_TYPE", BRANCH_AT),
    (fan({"steps": [STEP]}), "MISSING_FIELD", BRANCH_AT + ".id"),
    (fan({"id": "a b", "steps": [STEP]}), "BAD_ID", BRANCH_AT + ".id"),
    (fan({"id": "api"}), "MISSING_FIELD", BRANCH_AT + ".steps"),
    (fan({"id": "api", "steps": []}), "EMPTY_LIST", BRANCH_AT + ".steps"),
    (fan(API, API), "DUPLICATE_ID", STEP_AT + ".parallel.branches[1].id"),
    (fan({"id": "api", "steps": [STEP, STEP]}), "DUPLICATE_ID", BRANCH_AT + ".steps[1].id"),
    (fan({"id": "x" * 80, "steps": [{**STEP, "id": "y" * 60}]}), "TOO_LONG", BRANCH_AT + ".steps[0]"),
    (fan({"id": "api", "steps": [fan_step(API)]}), "NESTED_PARALLEL", BRANCH_AT + ".steps[0]"),
    (fan(API, join="all"), "UNKNOWN_VALUE", STEP_AT + ".parallel.join"),
    (with_step(parallel={"branches": [API]}, kind="agent"), "TWO_TEXTS", STEP_AT + ".kind"),
    (with_step(parallel={"branches": [API]}, skill="x"), "NOT_FOR_PARALLEL", STEP_AT + ".skill"),
    (with_step(parallel={"branches": [API]}, prompt=None, run="x"), "NOT_FOR_PARALLEL", STEP_AT + ".run"),
    (with_step(parallel={"branches": [API]}, output_schema="routing"), "NOT_FOR_PARALLEL", STEP_AT + ".output_schema"),
    (with_step(parallel={"branches": [API]}, workdir="x"), "NOT_FOR_PARALLEL", STEP_AT + ".workdir"),
    (with_step(result_handling={"on_warning": "/a:b"}), "NOT_SUPPORTED", STEP_AT + ".result_handling.on_warning"),
    ({**with_step(), "retry_target": ["x"]}, "WRONG_TYPE", "$.retry_target"),
    ({**with_step(), "max_visits": 0}, "OUT_OF_RANGE", "$.max_visits"),
    ({**with_step(), "must_survive": "x"}, "WRONG_TYPE", "$.must_survive"),
    ({**with_step(), "must_survive": ["x", ""]}, "EMPTY_TEXT", "$.must_survive[1]"),
    ({**with_step(), "must_survive": ["x" * 2001]}, "TOO_LONG", "$.must_survive[0]"),
    ({**with_step(), "must_survive": ["x"] * 101}, "TOO_MANY", "$.must_survive"),
    ({**with_step(), "must_survive": ["$.a[?(@.b)]"]}, "PATH_SYNTAX", "$.must_survive[0]"),
    ({**with_step(), "must_survive": ["$.where"]}, "PATH_SYNTAX", "$.must_survive[0]"),
    ({**with_step(), "must_survive": [{"path": "goal"}]}, "PATH_SYNTAX", "$.must_survive[0].path"),
    ({**with_step(), "must_survive": [{"text": 3}]}, "WRONG_TYPE", "$.must_survive[0].text"),
    ({**with_step(), "must_survive": [{"text": "a", "artifact": "b"}]}, "BAD_ITEM", "$.must_survive[0]"),
    ({**with_step(), "must_survive": [None]}, "WRONG_TYPE", "$.must_survive[0]"),
    (with_step(prompt=None), "MISSING_TEXT", STEP_AT),
    (with_step(id=None), "MISSING_FIELD", STEP_AT + ".id"),
    (with_step(prompt=None, command="make test"), "NOT_A_SLASH_COMMAND", STEP_AT + ".command"),
    (with_step(prompt="Read {file_name}"), "UNRESOLVED_PLACEHOLDER", STEP_AT + ".prompt"),
    (with_step(prompt=None, command="/go {who}"), "UNRESOLVED_PLACEHOLDER", STEP_AT + ".command"),
    (with_artifact(path="{run_dri}/x", required=True), "UNRESOLVED_PLACEHOLDER", ALWAYS_AT + ".path"),
    (with_artifact(type="command", path=None, command="make"), "UNKNOWN_ARTIFACT_TYPE", ALWAYS_AT + ".type"),
    (with_artifact(type="yaml"), "UNKNOWN_ARTIFACT_TYPE", ALWAYS_AT + ".type"),
    (with_artifact(path=None), "MISSING_SOURCE", ALWAYS_AT),
    (with_artifact(path_from_state="artifacts.x"), "AMBIGUOUS_SOURCE", ALWAYS_AT),
    (with_artifact(reload_triggers=["phase_strat:build"]), "UNKNOWN_TRIGGER", ALWAYS_AT + ".reload_triggers[0]"),
    (with_artifact(type="git_info", path=None, command="git push"), "GIT_COMMAND", ALWAYS_AT + ".command"),
    ({**with_step(), "autonomy": "careful"}, "UNKNOWN_VALUE", "$.autonomy"),
    ({**with_step(), "autonomy": {"level": "careful"}}, "UNKNOWN_VALUE", "$.autonomy.level"),
    ([], "WRONG_TYPE", "$"),
]


@each(("raw", "code", "where"), REFUSED)
def test_what_cannot_be_used_is_refused_with_its_place(raw: object, code: str, where: str) -> None:
    workflow, problems = parse(raw)
    assert workflow is None
    assert [(problem.severity, problem.code, problem.where) for problem in problems] == [("error", code, where)]


WARNED = [
    (with_artifact(description=None), "MISSING_DESCRIPTION", ALWAYS_AT + ".description"),
    (with_artifact(description=" "), "MISSING_DESCRIPTION", ALWAYS_AT + ".description"),
    (with_artifact(reload_triggers=[]), "NO_TRIGGERS", ALWAYS_AT + ".reload_triggers"),
    (with_artifact(condition="state.x"), "CONDITION_IGNORED", ALWAYS_AT + ".condition"),
    (with_artifact("conditional_load"), "MISSING_CONDITION", CONDITIONAL_AT + ".condition"),
    (with_artifact(path="../elsewhere.md"), "PATH_ESCAPE", ALWAYS_AT + ".path"),
    (with_artifact(path="{project_root}/a/../../b.md"), "PATH_ESCAPE", ALWAYS_AT + ".path"),
    (with_artifact(load_strategie="all"), "POSSIBLE_TYPO", ALWAYS_AT + ".load_strategie"),
    (with_step(prompt=None, promt="Build it.", description="Build."), "POSSIBLE_TYPO", STEP_AT + ".promt"),
    (with_step(prompt=None, description="Build it."), "NO_PROMPT", STEP_AT + ".prompt"),
    (with_step(skill="builder"), "TWO_TEXTS", STEP_AT + ".skill"),
    (with_step(conditional="only_if_failures"), "IGNORED_FIELD", STEP_AT + ".conditional"),
    (with_step(timeout=10), "IGNORED_FIELD", STEP_AT + ".timeout"),
    (with_step(prompt="/repo:pr-merge {pr_number}"), "UNRESOLVED_PLACEHOLDER", STEP_AT + ".prompt"),
    (with_artifact(path="{nope}/x", required=False), "UNRESOLVED_PLACEHOLDER", ALWAYS_AT + ".path"),
]


@each(("raw", "code", "where"), WARNED)
def test_what_looks_wrong_is_a_warning(raw: dict[str, Any], code: str, where: str) -> None:
    """A warning stops nothing: the workflow is there."""
    workflow, problems = parse(raw)
    assert workflow is not None
    assert ("warning", code, where) in [(problem.severity, problem.code, problem.where) for problem in problems]


SILENT = [
    with_step(prompt="Write {{braces}}, {Upper}, { spaced }, {} and $\\{x\\} as they are."),
    with_step(prompt="{project_root} {run_id} {plan_id} {work_id} {run_suffix} {run_dir} {state_path} {plan_path}"),
    with_step(prompt=None, command="/loom:prime-context --force"),
    with_step(prompt=None, command="fractary-repo:commit-push"),
    with_step(prompt=None, skill="review"),
    with_step(prompt=None, id=None, name="Build & test", skill="x"),
    with_step(hooks_of_ours={"any": "thing"}),
    with_artifact(path="docs/a..b/../c.md"),
    with_artifact("build", condition="state.artifacts.x"),
    with_artifact(type="directory", load_strategy="latest_only"),
    {**with_step(), "hooks": {"pre_build": [], "post_build": []}},
    {"id": "fractary-faber:child", "extends": "core"},
]


@each("raw", SILENT)
def test_what_is_in_order_passes_in_silence(raw: dict[str, Any]) -> None:
    workflow, problems = parse(raw)
    assert workflow is not None
    assert problems == []


def test_every_problem_is_said_at_once() -> None:
    raw = with_step(kind="robot", max_retries=-1, prompt="{nope}")
    raw["phases"]["build"]["steps"].append("text")
    raw["phases"]["bad id"] = {"enabled": "yes"}
    raw["critical_artifacts"] = {"always_load": [{"id": "a,b"}], "phase_specific": {"build": {}}}
    raw["autonomy"] = {"level": "never", "require_approval_for": "x"}
    raw["skip_steps"] = [1]
    where = {problem.where for problem in parse(raw)[1] if problem.severity == "error"}
    assert where == {
        "$.autonomy.level", "$.autonomy.require_approval_for", "$.critical_artifacts.always_load[0].id",
        "$.critical_artifacts.always_load[0].required", "$.critical_artifacts.always_load[0].reload_triggers",
        "$.critical_artifacts.always_load[0].type", "$.critical_artifacts.phase_specific.build",
        "$.phases.build.steps[0].kind", "$.phases.build.steps[0].max_retries", "$.phases.build.steps[0].prompt",
        "$.phases.build.steps[1]", "$.phases['bad id']", "$.phases['bad id'].enabled", "$.skip_steps[0]",
    }  # fmt: skip


def test_hints_say_what_was_probably_meant() -> None:
    assert "did you mean {run_dir}?" in only_problem(with_artifact(path="{run_dri}/x")).hint
    assert "write {{run_dri}} for literal braces" in only_problem(with_artifact(path="{run_dri}/x")).hint
    assert "did you mean session_start?" in only_problem(with_artifact(reload_triggers=["sesion_start"])).hint
    assert "git_info" in only_problem(with_artifact(type="shell", path=None, command="make")).hint
    assert "max_retries" in only_problem(with_step(result_handling={"on_failure": "retry"})).hint
    assert "quotes" in only_problem({**with_step(), "description": True}).hint


def test_a_name_stands_once() -> None:
    """A step twice in a phase, or an artifact twice in a workflow, is an error that names the first place."""
    raw = with_step()
    raw["phases"]["build"]["post_steps"] = [{"name": "Implement", "prompt": "Again."}]
    assert only_problem(raw) == Problem(
        "error",
        "DUPLICATE_ID",
        "$.phases.build.post_steps[0].id",
        "$.phases.build.steps[0] has the step implement already",
        "phase/id names a step: give this one another id",
    )
    twice = with_artifact()
    twice["critical_artifacts"]["phase_specific"] = {"build": [ARTIFACT]}
    assert only_problem(twice).code == "DUPLICATE_ID"
    other_phase = with_step()
    other_phase["phases"]["release"] = {"steps": [STEP]}
    assert parse(other_phase)[1] == []


def parsed(raw: dict[str, Any]) -> Workflow:
    workflow, problems = parse(raw)
    assert workflow is not None, problems
    return workflow


def test_a_missing_id_is_the_slug_of_the_name_and_fabers_pause_is_an_approval() -> None:
    """A step without an id is known by its name (D7)."""
    workflow = parsed(with_step(id=None, name="Build & Test it!"))
    assert [step.id for _, _, step in workflow.each_step()] == ["build-test-it"]
    workflow = parsed({**with_step(), "autonomy": {"level": "assist", "pause_before_release": True}})
    assert workflow.autonomy is not None
    assert workflow.autonomy["require_approval_for"] == ["release"]


def test_one_error_carries_all() -> None:
    """What `run` raises says every error with its place; findings of one kind give it their code."""
    build = functools.partial(build_plan, plan_id="p", created_at="", sources=[])
    caught = refusal(build, with_step(steps_parallel={}))
    assert caught.code == "NOT_SUPPORTED"
    assert "$.phases.build.steps[0].steps_parallel: steps_parallel is not supported yet" in caught.why
    assert refusal(build, with_step(steps_parallel={}, max_retries=-1)).code == "INVALID_WORKFLOW"


KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map(lambda text: "x-" + text)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
EXTRA = st.dictionaries(KEYS, VALUES, max_size=3)


@pytest.mark.slow
@given(st.tuples(*[EXTRA] * 5))
def test_unknown_keys_come_into_the_plan(extra: tuple[dict[str, Any], ...]) -> None:
    top, phase, step, artifact, autonomy = extra
    raw = {**with_artifact(), "autonomy": {"level": "guarded", **autonomy}, **top}
    raw["phases"]["build"] = {"steps": [{**STEP, **step}], **phase}
    raw["critical_artifacts"] = {"always_load": [{**ARTIFACT, **artifact}]}
    before = copy.deepcopy(raw)
    plan = build_plan(raw, plan_id="p", created_at="", sources=[])
    assert raw == before
    (held,) = [one for one in plan["phases"] if one["id"] == "build"]
    kept = (plan, held, held["steps"][0], plan["artifacts"][0], plan["autonomy"])
    for some, whole in zip(extra, kept, strict=True):
        assert some.items() <= whole.items() or all(whole[key] == value for key, value in some.items())


@given(VALUES | st.dictionaries(st.sampled_from([one.name for one in dataclasses.fields(Workflow)]), VALUES))
def test_nothing_makes_the_reader_stumble(raw: object) -> None:
    workflow, problems = parse(raw)
    assert (workflow is None) == any(problem.severity == "error" for problem in problems)
