"""`loomctl simulate`: workflows tested as a project's CI tests them, without an assistant."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.helpers.scenes import Scene
from tests.helpers.tables import each

Json = dict[str, Any]


def steps(*each: Json) -> Json:
    return {"build": {"steps": [one if "run" in one else {"prompt": "Do it.", **one} for one in each]}}


REVIEW = steps(
    {"id": "make"},
    {"id": "review", "transitions": [{"to": "fix", "label": "[F] Fix"}, {"to": "end", "label": "A) Approve"}]},
    {"id": "fix", "transitions": [{"to": "review", "fidelity": "summary:low"}]},
)
BOUND = steps(
    {"id": "review", "transitions": [{"to": "fix", "label": "fix"}, {"to": "end", "label": "approve"}]},
    {"id": "fix", "max_visits": 2, "transitions": [{"to": "review"}]},
)
GATE = steps(
    {"id": "test", "kind": "command", "run": "exit 9"},
    {"id": "gate", "transitions": [{"to": "ship", "condition": "context.coverage >= 80"}, {"to": "more"}]},
    {"id": "more", "transitions": [{"to": "test"}]},
    {"id": "ship"},
)
RETRY = steps({"id": "make"}, {"id": "test", "retry_target": "make", "max_retries": 1}, {"id": "ship"})
RESCUE = steps(
    {"id": "deploy", "transitions": [{"to": "check"}, {"to": "undo", "on_failure": True}]},
    {"id": "check", "transitions": [{"to": "end"}]},
    {"id": "undo", "transitions": [{"to": "end"}]},
)
SUGGEST = steps(
    {"id": "plan", "transitions": [{"to": "api", "weight": 5}, {"to": "web"}, {"to": "docs"}]},
    {"id": "api", "transitions": [{"to": "end"}]},
    {"id": "web", "transitions": [{"to": "end"}]},
    {"id": "docs", "transitions": [{"to": "end"}]},
)
COMPUTED = steps(
    {"id": "a", "transitions": [{"to": "c", "condition": "state.goal.includes('urgent')"}, {"to": "b"}]},
    {"id": "b"},
    {"id": "c", "transitions": [{"to": "end"}]},
)
PLAIN = {"one": {"steps": [{"id": "a", "prompt": "x"}]}, "two": {"steps": [{"id": "b", "prompt": "y"}]}}


def said(label: str) -> Json:
    return {"preferred_next_label": label}


FAILED = {"outcome": "failed", "failure_reason": "it broke"}
# Name, phases, outcomes, the way as `step:reason`, the status.
SCENES: list[tuple[str, Json, Json, str, str]] = [
    ("everything succeeds", PLAIN, {}, "a:order b:end", "completed"),
    (
        "a review asks for two fixes, then approves",
        REVIEW,
        {"review": [said("fix"), said("F"), said("Approve")]},
        "make:order review:label fix:unconditional review:label fix:unconditional review:end",
        "completed",
    ),
    (
        "a review that asks for ever is stopped by max_visits",
        BOUND,
        {"review": said(" FIX ")},
        "review:label fix:unconditional review:label fix:unconditional review:max_visits",
        "failed",
    ),
    (
        "a gate lets go once the coverage is there",
        GATE,
        {"build/test": [{"context_updates": {"coverage": 61}}, {"context_updates": {"coverage": 83}}]},
        "test:order gate:unconditional more:unconditional test:order gate:condition ship:end",
        "completed",
    ),
    (
        "tests that fail are tried again, then lead back to the retry target",
        RETRY,
        {"test": [FAILED, FAILED, {}]},
        "make:order test:retry test:retry_target make:order test:order ship:end",
        "completed",
    ),
    ("a failure takes its own way", RESCUE, {"deploy": FAILED}, "deploy:on_failure undo:end", "completed"),
    ("a success passes that way by", RESCUE, {}, "deploy:unconditional check:end", "completed"),
    ("a failure with no way out", RESCUE, {"check": FAILED}, "deploy:unconditional check:none", "failed"),
    ("a suggestion", SUGGEST, {"plan": {"suggested_next_ids": ["docs"]}}, "plan:suggested docs:end", "completed"),
    ("a key", SUGGEST, {"plan": {"suggested_next_ids": ["x", "build/web"]}}, "plan:suggested web:end", "completed"),
    (
        "no suggestion that is there", SUGGEST, {"plan": {"suggested_next_ids": ["x"]}}, "plan:unconditional api:end",
        "completed",
    ),
    ("a plain workflow's failure", PLAIN, {"one/a": FAILED}, "a:none", "failed"),
    ("skipped is no failure", PLAIN, {"a": {"outcome": "SKIPPED"}}, "a:order b:end", "completed"),
]  # fmt: skip


def played(scene: Scene, cli: Cli, phases: Json, outcomes: Json | None, *more: str) -> tuple[int, Json]:
    scene.workflow(phases=phases)
    words = []
    if outcomes is not None:
        scene.write("outcomes.json", json.dumps(outcomes))
        words = ["--outcomes", "outcomes.json"]
    ended = cli("simulate", "tiny", *words, *more, "--json")
    assert ended.stderr == ""
    return ended.code, ended.json


def way(told: Json) -> str:
    """Give the way taken as `step:reason`, in one line."""
    return " ".join(f"{one['step_id'].partition('/')[2]}:{one['next']['reason']}" for one in told["stages"])


@each("phases, outcomes, wanted, status", [pytest.param(*one[1:], id=one[0]) for one in SCENES])
def test_scenes(scene: Scene, cli: Cli, phases: Json, outcomes: Json, wanted: str, status: str) -> None:
    code, told = played(scene, cli, phases, outcomes)
    assert (way(told), told["status"], code) == (wanted, status, int(status != "completed"))
    for one, following in zip(told["stages"], told["stages"][1:], strict=False):
        assert one["next"]["step_id"] == following["step_id"]
    assert told["stages"][-1]["next"]["step_id"] is None
    assert bool(told["why"]) == (status == "failed")


def test_nothing_is_written_or_run(scene: Scene, cli: Cli) -> None:
    scene.workflow(phases=steps({"id": "test", "kind": "command", "run": "touch ran.txt"}))
    assert cli("simulate", "tiny").code == 0
    of_this_machine = {scene.store / "local", scene.store / "local" / "config.json"}  # the settings, kept for hooks
    found = {path for path in scene.store.rglob("*") if path not in of_this_machine}
    assert found == {scene.store / "workflows", scene.store / "workflows" / "tiny.json"}
    assert not (scene.root / "ran.txt").exists()


def test_fidelity_weights_refused_keys_unplayed_outcomes_and_approvals_are_told(scene: Scene, cli: Cli) -> None:
    """The transition's goes before the step's and the workflow's."""
    _, told = played(scene, cli, REVIEW, {"review": [said("fix"), said("approve")]})
    assert [one["fidelity"] for one in told["stages"]] == ["compact", "compact", "compact", "summary:low"]
    _, told = played(scene, cli, GATE, {"test": {"context_updates": {"coverage": 61}}, "more": FAILED})
    gate = next(one for one in told["stages"] if one["step_id"] == "build/gate")
    assert [(one["to"], one.get("truth"), one["why"]) for one in gate["weighed"]] == [
        ("build/ship", False, "its condition is false"),
        ("build/more", None, "chosen: unconditional"),
    ]
    updates = {"context_updates": {"ok": 1, "_run_id": "mine", "output.build/make": 2}}
    code, told = played(scene, cli, REVIEW, {"make": updates, "review": said("approve")})
    assert (code, told["context"]) == (0, {"last_stage": "build/review", "ok": 1})
    assert [(one["code"], one["where"]) for one in told["warnings"]] == [("RESERVED_KEY", "$.make.context_updates")] * 2
    _, told = played(scene, cli, REVIEW, {"review": [said("approve"), said("fix")], "fix": {}})
    assert [(one["code"], one["where"]) for one in told["warnings"]] == [
        ("NOT_PLAYED", "build/review"),
        ("NOT_PLAYED", "build/fix"),
    ]
    phases = {
        "build": {"steps": [{"id": "a", "prompt": "x", "result_handling": {"on_warning": "prompt"}}]},
        "release": {"require_approval": True, "steps": [{"id": "b", "prompt": "y", "require_approval": True}]},
    }
    code, told = played(scene, cli, phases, {"a": {"outcome": "partially_succeeded"}})
    assert (code, told["status"]) == (0, "completed")
    asked = [one["id"] for one in told["approvals"]]
    assert asked == ["result:001-build.a@1", "phase:release", "step:release/b"]


def test_context_and_goal_are_given(scene: Scene, cli: Cli) -> None:
    scene.workflow(phases=GATE)
    ended = cli("simulate", "tiny", "--context", '{"coverage": 90, "last_stage": "x"}', "--json")
    assert way(ended.json) == "test:order gate:condition ship:end"
    assert [one["code"] for one in ended.json["warnings"]] == ["RESERVED_KEY"]
    assert ended.json["context"] == {"coverage": 90, "last_stage": "build/ship"}
    scene.write("begins.yaml", "coverage: 12\n")
    scene.write("outcomes.yaml", "more: {outcome: failed}\n")
    ended = cli("simulate", "tiny", "--context", "begins.yaml", "--outcomes", "outcomes.yaml", "--json")
    assert way(ended.json) == "test:order gate:unconditional more:none"
    scene.workflow(phases=COMPUTED)
    assert way(cli("simulate", "tiny", "--goal", "it is urgent", "--json").json) == "a:condition c:end"
    assert way(cli("simulate", "tiny", "--goal", "some day", "--json").json) == "a:unconditional b:order c:end"


def test_outcomes_come_from_standard_input_and_lines_are_for_people(scene: Scene, cli: Cli) -> None:
    scene.workflow(phases=PLAIN)
    for given in ('{"a": [{"outcome": "failed"}]}', "a:\n  - outcome: failed\n"):
        ended = cli("simulate", "tiny", "--outcomes", "-", "--json", given=given)
        assert (ended.code, way(ended.json)) == (1, "a:none")
    phases = {"one": {"steps": [{"id": "a", "prompt": "x"}]}, "two": {"steps": [{"id": "a", "prompt": "y"}]}}
    scene.workflow(phases=phases)
    ended = cli("simulate", "tiny", "--outcomes", "-", given='{"a": {}}').ends(5)
    assert "write one/a or two/a" in ended.stderr
    scene.workflow(phases=BOUND)
    ended = cli("simulate", "tiny", "--outcomes", "-", given='{"review": {"preferred_next_label": "fix"}}').ends(1)
    assert ended.stdout.splitlines() == [
        "RANK  STEP            OUTCOME    NEXT",
        "001   build/review@1  succeeded  → build/fix (label: fix)",
        "002   build/fix@1     succeeded  → build/review (unconditional)",
        "003   build/review@2  succeeded  → build/fix (label: fix)",
        "004   build/fix@2     succeeded  → build/review (unconditional)",
        "005   build/review@3  succeeded  → failed (max_visits of build/fix)",
        "",
        "failed: build/fix has run 2 times, its max_visits",
        'context last_stage = "build/review"',
    ]


BAD: list[tuple[str, Json | list[Any] | str, str]] = [
    ("an unknown step", {"biuld/make": {}}, "did you mean build/make?"),
    ("an unknown bare step", {"reviw": {}}, "did you mean review?"),
    ("a step named twice", {"make": {}, "build/make": {}}, "appears twice"),
    ("an unknown outcome", {"make": {"outcome": "passed"}}, "unknown outcome 'passed'"),
    ("an unknown word", {"make": {"outcom": "failed"}}, "did you mean outcome?"),
    ("a word of the wrong type", {"make": [{}, {"suggested_next_ids": "fix"}]}, "$.make[1].suggested_next_ids"),
    ("no visit", {"make": []}, "an empty list"),
    ("a text for a visit", {"make": ["failed"]}, "expected an object, got text"),
    ("a list at the top", [], "expected an object of steps"),
]


@each("raw, words", [pytest.param(*one[1:], id=one[0]) for one in BAD])
def test_bad_outcomes(scene: Scene, cli: Cli, raw: Any, words: str) -> None:
    scene.workflow(phases=REVIEW)
    scene.write("outcomes.json", json.dumps(raw))
    ended = cli("simulate", "tiny", "--outcomes", "outcomes.json", "--json")
    assert (ended.code, ended.json["error"]["code"]) == (5, "BAD_OUTCOMES")
    assert words in ended.json["error"]["why"]
    assert ended.json["error"]["hint"] == "${EDITOR:-vi} outcomes.json"


@each(
    "words, code, said",
    [
        ([], 2, "USAGE"),
        (["nowhere"], 2, "UNKNOWN_WORKFLOW"),
        (["tiny", "--outcomes", "none.json"], 2, "UNREADABLE"),
        (["tiny", "--outcomes", "broken.json"], 5, "JSON_SYNTAX"),
        (["tiny", "--context", "[1]"], 2, "UNREADABLE"),
        (["tiny", "--context", '{"a": '], 5, "JSON_SYNTAX"),
        (["tiny", "--context", "list.json"], 5, "BAD_CONTEXT"),
    ],
)
def test_what_cannot_be_read(scene: Scene, cli: Cli, words: list[str], code: int, said: str) -> None:
    scene.workflow(phases=PLAIN)
    scene.write("broken.json", '{"a": ')
    scene.write("list.json", "[1]")
    ended = cli("simulate", *words, "--json")
    assert (ended.code, ended.json["error"]["code"]) == (code, said)
