"""A workflow in DOT is resolved, checked and run like any other; problems name its lines."""

from __future__ import annotations

import json
from pathlib import Path

from loomctl.workflows import resolve
from loomctl.workflows.check import check_file, commands_of
from loomctl.workflows.resolve import Resolved, resolve_file
from loomctl.workflows.workflow_files import Places, load
from tests.helpers.scenes import CHECKOUT, Scene

LINE = """digraph Line {
    graph [goal="Ship it", default_fidelity=full]
    rankdir=LR
    start [shape=Mdiamond]
    exit  [shape=Msquare]
    plan  [label="Plan", shape=tab, prompt="@prompts/plan.md"]
    test  [label="Run tests", shape=parallelogram, script="pytest -q", timeout=15m]
    start -> plan -> test -> exit
}
"""


def project(tmp_path: Path, **files: str) -> Path:
    """Write files into a project's folder of workflows; `__` in a name is a dot."""
    folder = tmp_path / ".loom" / "workflows"
    (folder / "prompts").mkdir(parents=True)
    (folder / "prompts" / "plan.md").write_text("Plan {{ goal }}.", encoding="utf-8")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def resolved(tmp_path: Path, name: str) -> Resolved:
    folder = tmp_path / ".loom" / "workflows"
    return resolve_file(str(folder / name), Places(str(tmp_path), str(tmp_path / ".loom"), str(CHECKOUT)))


def checked(tmp_path: Path, name: str) -> list[tuple[str, str, str]]:
    path = str(tmp_path / ".loom" / "workflows" / name)
    found = check_file(path, Places(str(tmp_path), str(tmp_path / ".loom"), str(CHECKOUT)))
    return [(problem.severity, problem.code, problem.where) for problem in found]


def test_a_line_of_steps_is_resolved(tmp_path: Path) -> None:
    folder = project(tmp_path, line__dot=LINE)
    found = resolved(tmp_path, "line.dot")
    assert found.merged == {
        "id": "Line", "description": "Ship it", "default_fidelity": "full",
        "phases": {"main": {"steps": [
            {"id": "plan", "name": "Plan", "kind": "prompt", "prompt": "Plan the goal of this run."},
            {"id": "test", "name": "Run tests", "run": "pytest -q", "timeout": 900},
        ]}},
    }  # fmt: skip
    assert checked(tmp_path, "line.dot") == [("note", "UNUSED_ATTRIBUTES", "$")]
    places = Places(str(tmp_path), str(tmp_path / ".loom"), str(CHECKOUT))
    assert commands_of(str(folder / "line.dot"), places) == [{"step": "main/test", "run": "pytest -q"}]


def test_what_is_wrong_with_a_step_is_said_with_its_line(tmp_path: Path) -> None:
    """What only the workflow's own reader knows too: its JSON path means nothing to who wrote DOT."""
    text = LINE.replace("timeout=15m", "timeout=90d").replace("shape=tab,", "shape=tab, fidelity=loud,")
    project(tmp_path, line__dot=text.replace("plan.md", "lost.md").replace("=full", "=x"))
    assert checked(tmp_path, "line.dot") == [
        ("error", "UNKNOWN_PROMPT", "line 6, column 59"),
        ("error", "UNKNOWN_VALUE", "line 2, column 45"),
        ("error", "UNKNOWN_VALUE", "line 6, column 46"),
        ("error", "OUT_OF_RANGE", "line 7, column 80"),
        ("note", "UNUSED_ATTRIBUTES", "$"),
    ]


def test_what_is_wrong_with_the_graph_is_said_with_its_line(tmp_path: Path) -> None:
    text = 'digraph Two {\n  start -> a -> exit\n  a [prompt="First."]\n  lost [prompt="Never."]\n}'
    project(tmp_path, two__dot=text, more__json=json.dumps({"id": "more", "extends": "two"}))
    unreachable = [one for one in checked(tmp_path, "two.dot") if one[1] == "UNREACHABLE_STEP"]
    assert unreachable == [("warning", "UNREACHABLE_STEP", "line 4, column 3")]
    inherited = [one for one in checked(tmp_path, "more.json") if one[1] == "UNREACHABLE_STEP"]
    assert inherited == [("warning", "UNREACHABLE_STEP", "{project_root}/.loom/workflows/two.dot: line 4, column 3")]


def test_a_workflow_may_extend_one_in_dot(tmp_path: Path) -> None:
    more = {"id": "more", "extends": "line", "autonomy": "autonomous"}
    folder = project(tmp_path, line__dot=LINE, more__json=json.dumps(more))
    merged = resolved(tmp_path, "more.json").merged
    assert merged is not None
    assert [step["id"] for step in merged["phases"]["main"]["steps"]] == ["plan", "test"]
    assert (merged["id"], merged["autonomy"]) == ("more", "autonomous")
    (folder / "line.dot").write_text(LINE.replace("15m", "soon"), encoding="utf-8")
    assert [(one.code, one.where) for one in resolved(tmp_path, "more.json").problems if one.severity == "error"] == [
        ("WRONG_TYPE", "{project_root}/.loom/workflows/line.dot: line 7, column 80")
    ]


def test_a_workflow_in_dot_may_extend_another(tmp_path: Path) -> None:
    base = {
        "id": "base",
        "critical_artifacts": {
            "always_load": [
                {
                    "id": "readme", "type": "markdown", "path": "README.md", "description": "What it is",
                    "required": False, "reload_triggers": ["session_start"],
                }
            ]
        },
        "phases": {"main": {"steps": [{"id": "old", "prompt": "Old."}]}},
    }  # fmt: skip
    text = 'digraph Child { extends=base; plan [prompt="Plan."] }'
    project(tmp_path, base__json=json.dumps(base), child__dot=text, lost__dot=text.replace("base", "nobody"))
    child = load(str(tmp_path / ".loom" / "workflows" / "child.dot")).raw
    merged = resolve.merge([("base", base), ("child", child)])
    assert merged["phases"]["main"]["steps"] == [{"id": "plan", "prompt": "Plan.", "transitions": [{"to": "end"}]}]
    assert merged["critical_artifacts"] == base["critical_artifacts"]
    assert ("error", "UNKNOWN_PARENT", "line 1, column 25") in checked(tmp_path, "lost.dot")


def test_a_run_of_a_workflow_in_dot_goes_its_way(scene: Scene) -> None:
    scene.write(
        ".loom/workflows/two.fabro", 'digraph Two { start -> a -> b -> exit; a [prompt="First."] b [prompt="Second."] }'
    )
    scene.begin(workflow="two")
    assert scene.state["workflow_id"] == "Two"
    plan = json.loads((scene.run_dir / "plan.json").read_text(encoding="utf-8"))
    assert [(step["key"], step["prompt"]) for step in plan["phases"][0]["steps"]] == [
        ("main/a", "First."),
        ("main/b", "Second."),
    ]
    assert plan["sources"][0]["path"] == "{project_root}/.loom/workflows/two.fabro"
