"""A plan is the workflow as one run goes through it: resolved, ordered, compiled."""

from __future__ import annotations

import json
from typing import Any

from loomctl.expressions import conditions, state_paths
from loomctl.expressions.placeholders import expand
from loomctl.workflows.workflow import build_plan
from tests.helpers.errors import refusal
from tests.helpers.tables import each


def planned(**workflow: Any) -> dict[str, Any]:
    return build_plan(
        {"id": "sample", **workflow},
        plan_id="shop-258",
        created_at="2026-01-01T00:00:00Z",
        sources=[{"id": "sample", "path": "{project_root}/x.json", "sha256": "0" * 64}],
    )


def step_of(step: dict[str, Any], *, phase: dict[str, Any] | None = None, **workflow: Any) -> dict[str, Any]:
    """Plan a workflow of one step and give that step."""
    made = planned(phases={"build": {"steps": [{"id": "one", **step}], **(phase or {})}}, **workflow)
    found: dict[str, Any] = made["phases"][0]["steps"][0]
    return found


def artifact_of(group: str = "conditional_load", **artifact: Any) -> dict[str, Any]:
    """Plan a workflow of one artifact and give that artifact."""
    whole = {"id": "a", "type": "markdown", "required": False, "reload_triggers": ["manual"], **artifact}
    groups = {"phase_specific": {"build": [whole]}} if group == "build" else {group: [whole]}
    found: dict[str, Any] = planned(phases={}, critical_artifacts=groups)["artifacts"][0]
    return found


def test_a_plan_names_itself_and_writes_each_step_out() -> None:
    """Ids, time and sources are those that were given; what was not said has its default."""
    made = planned(phases={})
    assert made == {
        "schema_version": 1, "plan_id": "shop-258", "workflow_id": "sample",
        "created_at": "2026-01-01T00:00:00Z", "description": "",
        "sources": [{"id": "sample", "path": "{project_root}/x.json", "sha256": "0" * 64}],
        "autonomy": {"level": "guarded", "require_approval_for": []}, "phases": [], "artifacts": [],
        "commands": [],
    }  # fmt: skip
    assert step_of({"prompt": "Build it."}) == {
        "key": "build/one", "id": "one", "name": "one", "description": "", "kind": "agent", "part": "main",
        "prompt": "Build it.", "command": None, "skill": None, "max_retries": 0, "require_approval": False,
        "result_handling": {"on_success": "continue", "on_warning": "continue", "on_failure": "stop"},
        "engine": None,
    }  # fmt: skip


@each(
    ("step", "held"),
    [
        ({"run": "pytest -q"}, {"kind": "command", "run": "pytest -q", "prompt": None}),
        ({"run": "x", "timeout": 5, "workdir": "api"}, {"timeout": 5.0, "workdir": "api"}),
        ({"run": "x", "description": "Runs it."}, {"prompt": None, "description": "Runs it."}),
        ({"prompt": "x", "output_schema": "routing", "output_retries": -3}, {"output_retries": 0}),
        ({"prompt": "x", "output_schema": "@a.json"}, {"output_schema": "@a.json"}),
        ({"prompt": "x", "kind": "prompt", "fidelity": "summary:low"}, {"kind": "prompt", "fidelity": "summary:low"}),
        ({"prompt": "x", "max_visits": 3}, {"max_visits": 3}),
    ],
)
def test_what_a_step_says_of_its_outcome_stands_in_the_plan(step: dict[str, Any], held: dict[str, Any]) -> None:
    made = step_of(step)
    assert {key: made[key] for key in held} == held
    said = {key for key in ("run", "timeout", "workdir", "output_schema", "fidelity", "max_visits") if key in made}
    assert said == said & set(step)


def test_what_a_plan_would_run_is_listed_and_what_is_disabled_or_skipped_is_left_out() -> None:
    """In the order of the steps; what is skipped or disabled is not run (D23)."""
    steps = [
        {"id": "one", "run": "make"},
        {"id": "two", "prompt": "x"},
        {"id": "three", "run": "pytest", "workdir": "a"},
    ]
    off = {"enabled": False, "steps": [{"id": "four", "run": "rm -rf build"}]}
    made = planned(phases={"build": {"steps": steps}, "off": off}, skip_steps=["build/one"])
    assert made["commands"] == [{"step": "build/three", "run": "pytest", "workdir": "a"}]
    both = {"pre_steps": [{"id": "a", "prompt": "x"}], "steps": [{"id": "b", "prompt": "x"}]}
    made = planned(
        phases={"one": both, "two": both, "off": {**both, "enabled": False}}, skip_steps=["a", "two/b", "nobody"]
    )
    assert [(phase["id"], [step["key"] for step in phase["steps"]]) for phase in made["phases"]] == [
        ("one", ["one/b"]),
        ("two", []),
    ]


TEXTS = [
    ({"prompt": "Do it."}, {"prompt": "Do it."}),
    ({"command": "/review high"}, {"command": "/review high"}),
    ({"command": "faber:deploy --dry"}, {"command": "/faber:deploy --dry"}),
    ({"skill": "review"}, {"skill": "review"}),
    ({"description": "Do it."}, {"prompt": "Do it."}),
    ({"skill": "review", "prompt": "Be strict."}, {"prompt": "Use the skill `review` for this step.\n\nBe strict."}),
    ({"command": "/review", "prompt": "Be strict."}, {"prompt": "Run `/review` for this step.\n\nBe strict."}),
    ({"prompt": "merge {pr_number} {{pr_id}}"}, {"prompt": "merge {{pr_number}} {{pr_id}}"}),
]


@each(("step", "expected"), TEXTS)
def test_a_step_asks_for_one_thing(step: dict[str, Any], expected: dict[str, str]) -> None:
    found = step_of(step)
    assert {key: found[key] for key in ("prompt", "command", "skill") if found[key] is not None} == expected


def test_what_the_assistant_fills_in_stops_no_run() -> None:
    written = step_of({"prompt": "merge {pr_number}"})["prompt"]
    assert expand(written, {}) == ("merge {pr_number}", ())


PRIMING = [
    ("pre_steps", {"prompt": "/loom:prime-context"}, "prime-context"),
    ("pre_steps", {"prompt": " /fractary-faber:prime-context\n"}, "prime-context"),
    ("pre_steps", {"command": "/loom:prime-context --trigger session_start"}, "prime-context"),
    ("pre_steps", {"prompt": "/loom:prime-context --artifacts a"}, None),
    ("pre_steps", {"prompt": "Run /loom:prime-context, then look around."}, None),
    ("pre_steps", {"prompt": "Say hello.", "command": "/loom:prime-context"}, None),
    ("steps", {"prompt": "/loom:prime-context"}, None),
]


@each(("part", "step", "expected"), PRIMING)
def test_the_engine_primes_by_itself(part: str, step: dict[str, Any], expected: str | None) -> None:
    """A pre_step that asks for a priming and nothing else is the engine's (D7)."""
    made = planned(phases={"frame": {part: [{"id": "auto-reload-context", **step}]}})
    assert made["phases"][0]["steps"][0]["engine"] == expected


HANDLING = [
    ({}, {}, {}, ("continue", "continue", "stop")),
    ({"on_success": "prompt"}, {}, {}, ("prompt", "continue", "stop")),
    ({"on_success": "prompt"}, {"on_success": "continue"}, {}, ("continue", "continue", "stop")),
    ({"on_failure": "continue"}, {"on_failure": "prompt"}, {"on_warning": "stop"}, ("continue", "stop", "prompt")),
    ({"on_failure": "prompt"}, {}, {"on_failure": "continue"}, ("continue", "continue", "continue")),
]


@each(("workflow", "phase", "step", "expected"), HANDLING)
def test_the_nearest_word_on_results_counts(
    workflow: dict[str, str], phase: dict[str, str], step: dict[str, str], expected: tuple[str, str, str]
) -> None:
    found = step_of(
        {"prompt": "x", "result_handling": step}, phase={"result_handling": phase}, result_handling=workflow
    )["result_handling"]
    assert (found["on_success"], found["on_warning"], found["on_failure"]) == expected


def test_retries_are_the_steps_else_the_phases_and_approvals_stand_where_they_are_asked_for() -> None:
    assert step_of({"prompt": "x"}, phase={"max_retries": 3})["max_retries"] == 3
    assert step_of({"prompt": "x", "max_retries": 0}, phase={"max_retries": 3})["max_retries"] == 0
    steps = [
        {"id": "a", "prompt": "x"},
        {"id": "b", "prompt": "x", "require_approval": True},
        {"id": "c", "prompt": "x"},
    ]
    made = planned(
        phases={"build": {"steps": steps}, "release": {"steps": steps}},
        autonomy={"level": "guarded", "require_approval_for": ["release", "a", "build/c"]},
    )
    asked = {step["key"] for phase in made["phases"] for step in phase["steps"] if step["require_approval"]}
    assert asked == {"build/a", "build/b", "build/c", "release/a", "release/b"}
    assert [phase["require_approval"] for phase in made["phases"]] == [False, True]


def test_conditions_and_paths_are_compiled_and_always_means_no_condition() -> None:
    """In always_load a condition has no meaning (D14); in phase_specific it has."""
    state = {"artifacts": {"spec_path": "specs/x.md"}}
    found = artifact_of(path_from_state="$.artifacts['spec_path']", condition="state.artifacts.spec_path != null")
    assert conditions.evaluate(found["condition_code"], {"state": state}) is True
    assert state_paths.read(found["path_steps"], state) == "specs/x.md"
    found = artifact_of(path_from_state="$..spec_path", condition="Object.keys(state.artifacts).length > 0")
    assert (found["condition_code"], found["path_steps"]) == (None, None)
    assert found["condition"] == "Object.keys(state.artifacts).length > 0"
    assert artifact_of("always_load", path="x", condition="false")["condition"] is None
    found = artifact_of("build", path="x", condition="false")
    assert (found["when"], found["phase"], found["condition"]) == ("phase", "build", "false")


STRATEGIES = [
    ("markdown", None, "full"), ("markdown", "all", "full"), ("markdown", "summary", "summary"),
    ("json", "latest_only", "full"), ("directory", None, "all"), ("directory", "full", "all"),
    ("directory", "latest_only", "latest_only"), ("directory", "summary", "summary"),
]  # fmt: skip


@each(("kind", "said", "expected"), STRATEGIES)
def test_a_strategy_fits_its_type(kind: str, said: str | None, expected: str) -> None:
    """`all` and `latest_only` mean something for a directory alone (D16)."""
    extra = {} if said is None else {"load_strategy": said}
    assert artifact_of("always_load", type=kind, path="x", **extra)["load_strategy"] == expected


def test_unknown_keys_are_kept() -> None:
    """What Loom does not know stays in the plan under its own name, and never takes a known key's place."""
    made = planned(
        asset_type="video",
        **{"$schema": "x", "commands": ["rm -rf /"], "plan_id": "mine"},
        phases={
            "build": {"x-room": 1, "steps": [{"id": "one", "prompt": "x", "x-cost": 2, "key": "no", "engine": "no"}]}
        },
        critical_artifacts={
            "always_load": [
                {
                    "id": "a", "type": "json", "path": "x", "required": True, "reload_triggers": [], "x-own": 3,
                    "when": "no",
                }
            ]
        },
    )  # fmt: skip
    assert (made["asset_type"], made["commands"], made["plan_id"]) == ("video", [], "shop-258")
    assert "$schema" not in made
    phase = made["phases"][0]
    assert phase["x-room"] == 1
    assert (phase["steps"][0]["x-cost"], phase["steps"][0]["key"], phase["steps"][0]["engine"]) == (
        2,
        "build/one",
        None,
    )
    assert (made["artifacts"][0]["x-own"], made["artifacts"][0]["when"]) == (3, "always")


def test_a_plan_is_json_the_same_every_time_and_a_bad_workflow_gives_none() -> None:
    workflow = {"phases": {"build": {"steps": [{"id": "one", "prompt": "x"}]}}, "zeta": 1, "alpha": {"b": [None]}}
    assert json.dumps(planned(**workflow)) == json.dumps(planned(**workflow))
    steps = [{"id": "one", "prompt": "x", "steps_parallel": []}]
    assert refusal(planned, phases={"build": {"steps": steps}}).code == "NOT_SUPPORTED"
