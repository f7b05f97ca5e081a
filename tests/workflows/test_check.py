"""`check` knows a file by its content and says every problem of it at once."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from loomctl.runs.model import frozen_plan, state
from loomctl.runs.model.state import Step
from loomctl.workflows.check import check_file, document_kind
from loomctl.workflows.workflow_files import Places
from tests.helpers.waiting import bounded_work

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "tests" / "examples"


def example(kind: str, name: str) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((EXAMPLES / kind / "valid" / f"{name}.json").read_text(encoding="utf-8"))
    return raw


def check(path: Path) -> list[tuple[str, str, str]]:
    """Check a file in a project that has nothing else."""
    problems = check_file(str(path), Places(str(path.parent), str(path.parent / ".loom"), str(ROOT)))
    return [(problem.severity, problem.code, problem.where) for problem in problems]


def checked(tmp_path: Path, raw: object, name: str = "file.json") -> list[tuple[str, str, str]]:
    """Write a file, JSON unless it is text already, and check it."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw), encoding="utf-8")
    return check(path)


KINDS = [
    ({"id": "a", "phases": {}}, "workflow"), ({"id": "a", "extends": "core"}, "workflow"),
    ({"phases": {}}, "workflow"), ({"plan_id": "a", "phases": []}, "plan"),
    ({"id": "a", "workflow": {"phases": {}}, "execution": {}}, "plan"),
    ({"run_id": "a", "plan_id": "a", "phases": {}}, "state"), ({"status": "pending", "phases": []}, "state"),
    ({"name": "left-pad", "version": "1.0.0"}, None), ([], None), ("text", None),
]  # fmt: skip


def test_the_content_says_what_a_file_is(tmp_path: Path) -> None:
    """Workflow, plan or state is told by what is in the file, not by its name; anything else is an error."""
    for raw, kind in KINDS:
        assert document_kind(raw) == kind
        if kind is None:
            assert checked(tmp_path, json.dumps(raw)) == [("error", "UNKNOWN_KIND", "$")]


def test_everything_is_said_at_once(tmp_path: Path) -> None:
    raw = {
        "id": "all",
        "phases": {"build": {"steps": [{"id": "a", "prompt": "{nope}", "kind": "wait"}, {"id": "a", "prompt": "x"}]}},
        "critical_artifacts": {
            "always_load": [{"id": "x", "type": "json", "required": True, "reload_triggers": ["sometimes"]}],
            "conditional_load": [
                {
                    "id": "y", "type": "git_info", "command": "git push", "required": False,
                    "reload_triggers": ["manual"], "condition": "state.",
                }
            ],
        },
    }  # fmt: skip
    artifacts = "$.critical_artifacts"
    assert set(checked(tmp_path, raw)) == {
        ("error", "UNKNOWN_VALUE", "$.phases.build.steps[0].kind"),
        ("error", "UNRESOLVED_PLACEHOLDER", "$.phases.build.steps[0].prompt"),
        ("error", "DUPLICATE_ID", "$.phases.build.steps[1].id"),
        ("error", "MISSING_SOURCE", f"{artifacts}.always_load[0]"),
        ("error", "UNKNOWN_TRIGGER", f"{artifacts}.always_load[0].reload_triggers[0]"),
        ("error", "GIT_COMMAND", f"{artifacts}.conditional_load[0].command"),
        ("error", "CONDITION_SYNTAX", f"{artifacts}.conditional_load[0].condition"),
        ("warning", "MISSING_DESCRIPTION", f"{artifacts}.always_load[0].description"),
        ("warning", "MISSING_DESCRIPTION", f"{artifacts}.conditional_load[0].description"),
    }
    assert [severity for severity, _, _ in checked(tmp_path, raw)] == ["error"] * 7 + ["warning"] * 2


def test_files_that_cannot_be_read_are_findings_and_a_newer_one_is_not_judged(tmp_path: Path) -> None:
    """A schema from the future is one finding, not a list of guesses (D56)."""
    assert checked(tmp_path, '{"id": "a", "id": "b", "phases": {}}') == [
        ("error", "DUPLICATE_KEY", "line 1, column 13")
    ]
    assert checked(tmp_path, "id: a\nphases: {}\nid: b", "a.yaml") == [("error", "DUPLICATE_KEY", "line 3, column 1")]
    assert checked(tmp_path, "digraph {}", "a.dot") == [("error", "NO_STEPS", "line 1, column 1")]
    assert check(tmp_path / "missing.json") == [("error", "UNREADABLE", "$")]
    for kind, name in (("plan", "one-step"), ("state", "in-progress")):
        raw = {**example(kind, name), "schema_version": 3, "phases": 7}
        assert checked(tmp_path, raw) == [("error", "SCHEMA_TOO_NEW", "$.schema_version")]


def test_a_condition_in_dot_is_refused_in_dots_words(tmp_path: Path) -> None:
    text = """digraph a { start [shape=Mdiamond]; x [prompt="Do it."]; start -> x
        x -> x [condition="context.name matches '('"] }"""
    (tmp_path / "a.dot").write_text(text, encoding="utf-8")
    store = str(tmp_path / ".loom")
    found = check_file(str(tmp_path / "a.dot"), Places(str(tmp_path), store, str(ROOT)))
    ((where, said),) = [(one.where, one.message) for one in found if one.code == "CONDITION_SYNTAX"]
    assert where.startswith("line 2, ")
    assert "JavaScript" not in said
    assert ".test(" not in said


def test_depth_never_breaks_it_and_of_a_workflow_it_is_less_than_of_a_plan(tmp_path: Path) -> None:
    """A thousand levels and a million are the same clear error, at once."""
    for text in ["[" * 1000 + "]" * 1000, '{"phases":' * 1000 + "1" + "}" * 1000, "[" * 1_000_000]:
        with bounded_work():
            assert [code for _, code, _ in checked(tmp_path, text)] == ["TOO_DEEP"]
    deep: Any = ["state"]
    for _ in range(250):
        deep = ["!", deep]
    plan = example("plan", "one-step")
    plan["artifacts"][0]["condition_code"] = deep
    assert checked(tmp_path, plan) == []
    workflow = {**example("workflow", "minimal"), "x": deep}
    assert [code for _, code, _ in checked(tmp_path, workflow)] == ["TOO_DEEP"]


def test_names_in_a_plan_and_in_a_state_are_held_against_each_other(tmp_path: Path) -> None:
    """Phases, visits and ranks stand once; the folder bears the run's id (D6)."""
    plan = example("plan", "one-step")
    plan["phases"].append(copy.deepcopy(plan["phases"][0]))
    plan["artifacts"].append(copy.deepcopy(plan["artifacts"][0]))
    assert checked(tmp_path, plan) == [
        ("error", "DUPLICATE_ID", "$.phases[1].id"),
        ("error", "DUPLICATE_ID", "$.phases[1].steps[0].key"),
        ("error", "DUPLICATE_ID", "$.artifacts[1].id"),
    ]
    plan = example("plan", "one-step")
    plan["phases"][0]["id"] = "test"
    assert checked(tmp_path, plan) == [("error", "KEY_MISMATCH", "$.phases[0].steps[0].key")]
    state = example("state", "in-progress")
    state["current_phase"] = "biuld"
    state["steps"].append({**state["steps"][0], "status": "succeeded"})
    assert checked(tmp_path, state) == [
        ("error", "UNKNOWN_PHASE", "$.current_phase"),
        ("error", "DUPLICATE_ID", "$.steps[1]"),
        ("error", "DUPLICATE_ID", "$.steps[1].rank"),
    ]
    good = example("state", "in-progress")
    assert checked(tmp_path, good, f"runs/{good['run_id']}/state.json") == []
    assert checked(tmp_path, good, "runs/other/state.json") == [("error", "RUN_ID_MISMATCH", "$.run_id")]


def test_an_older_file_is_judged_as_it_would_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that would migrate it are named; what would then be wrong is said, and nothing is written (D56)."""
    steps = [Step("give it a goal", lambda raw: {**raw, "goal": "g"}), Step("mark it", lambda raw: {**raw})]
    for module in (state, frozen_plan):
        monkeypatch.setattr(module, "MIGRATIONS", {module.SCHEMA_VERSION: steps})
        monkeypatch.setattr(module, "SCHEMA_VERSION", module.SCHEMA_VERSION + 1)
    monkeypatch.setattr("loomctl.workflows.check._beyond", lambda *_, **__: [])  # the bundle's schemas are today's
    for kind, name in (("state", "fresh"), ("plan", "one-step")):
        path = tmp_path / f"{kind}.json"
        path.write_text(json.dumps(example(kind, name)))
        before = path.read_bytes()
        (found,) = check_file(str(path), Places(str(tmp_path), str(tmp_path), str(ROOT)))
        assert (found.severity, found.code, found.where) == ("warning", "OLDER_SCHEMA", "$.schema_version")
        older = "schema 2 is older than 3" if kind == "state" else "schema 1 is older than 2"
        assert found.message == f"{older}; Loom would migrate it: give it a goal, mark it"
        assert path.read_bytes() == before
    assert checked(tmp_path, {**example("plan", "one-step"), "schema_version": 0}) == [
        ("error", "SCHEMA_TOO_OLD", "$.schema_version")
    ]


def test_fabers_own_files_are_never_refused(tmp_path: Path) -> None:
    """A state or plan without schema_version is FABER's: read as it is, with a warning (D5)."""
    state = {"run_id": "p-run-2026", "plan_id": "p", "status": "done?", "phases": [{"name": "frame"}], "steps": []}
    plan = {"id": "p", "workflow": {"id": "default", "phases": {}}, "execution": {"mode": "parallel"}}
    assert checked(tmp_path, state, "runs/p/state-2026.json") == [("warning", "FABER_LAYOUT", "$")]
    assert checked(tmp_path, plan) == [("warning", "FABER_LAYOUT", "$")]
    assert checked(tmp_path, example("workflow", "written-for-faber"))[0][0] == "warning"
