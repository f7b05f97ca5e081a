"""A workflow's name becomes one merged workflow, its ancestors followed and every problem gathered."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit.problems import errors
from loomctl.workflows.resolve import Resolved, resolve, resolve_file
from loomctl.workflows.steps import step_id
from loomctl.workflows.workflow_files import Places, available
from tests.helpers.errors import refusal

BUNDLE = str(Path(__file__).resolve().parents[2])
STEP = {"id": "one", "prompt": "Do it."}
CORE = ("frame", "architect", "build", "evaluate", "release")

Write = Callable[..., Path]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "project"), str(tmp_path / "project" / ".loom"), BUNDLE)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a workflow into the project: `write("a", extends="b", …)`; `where` is a path in the test's folder."""

    def put(name: str, where: str = "", **keys: Any) -> Path:
        path = tmp_path / (where or f"project/.loom/workflows/{name}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": name, **keys}), encoding="utf-8")
        return path

    return put


def found(resolved: Resolved) -> list[tuple[str, str]]:
    return [(problem.code, problem.where) for problem in resolved.problems]


def keys(resolved: Resolved) -> list[str]:
    return [
        f"{name}/{step_id(step)}"
        for name, phase in resolved.checked()["phases"].items()
        for part in ("pre_steps", "steps", "post_steps")
        for step in phase.get(part, [])
    ]


def test_the_bundles_own_workflows_are_without_fault(places: Places) -> None:
    core, default = resolve("core", places), resolve("default", places)
    assert (core.problems, default.problems) == ([], [])
    assert list(core.checked()["phases"]) == ["frame", "architect", "build", "evaluate", "release"]
    assert 5 <= len(keys(core)) <= 8
    assert set(keys(core)) < set(keys(default))
    for resolved in (core, default):
        assert resolved.workflow is not None
        assert resolved.workflow.artifacts
        assert all(artifact.description for artifact in resolved.workflow.artifacts)
        assert resolved.checked()["autonomy"] == {"level": "guarded", "require_approval_for": ["release"]}
        assert resolved.checked()["phases"]["frame"]["pre_steps"][0]["prompt"] == "/loom:prime-context"


def test_what_they_share_is_no_workflow_to_run_and_says_so(places: Places) -> None:
    assert "base" not in available(places)
    shared = resolve("base", places)
    assert [(one.code, one.where) for one in shared.problems] == [("NO_STEPS", "$.phases")]
    assert "extends: base" in str(shared.problems[0].hint)


def test_a_chain_is_followed_to_its_root(places: Places, write: Write) -> None:
    child = write("child", extends="project:middle", phases={"build": {"post_steps": [STEP]}})
    middle = Path(places.project_dir) / ".loom" / "workflows" / "middle.yaml"
    middle.write_text("id: middle\nextends: ../../flows/base.yml\nphases: {}\n", encoding="utf-8")
    base = Path(places.project_dir) / "flows" / "base.yml"
    base.parent.mkdir()
    base.write_text("id: base\nextends: loom:core\n", encoding="utf-8")
    resolved = resolve("child", places)
    assert resolved.problems == []
    assert keys(resolved)[-3:] == ["build/one", "evaluate/verify", "release/ship"]
    assert [source["id"] for source in resolved.sources] == ["base", "core", "base", "middle", "child"]
    assert resolved.sources[2:] == [
        {"id": name, "path": where, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for name, where, path in (
            ("base", "{project_root}/flows/base.yml", base),
            ("middle", "{project_root}/.loom/workflows/middle.yaml", middle),
            ("child", "{project_root}/.loom/workflows/child.json", child),
        )
    ]
    assert resolved.checked()["id"] == "child"


CYCLES = [
    ({"a": "a"}, "a -> a"),
    ({"a": "b", "b": "a"}, "a -> b -> a"),
    ({"a": "b", "b": "c", "c": "b"}, "b -> c -> b"),
    ({"a": "./b.json", "b": "project:c", "c": "a"}, "a -> b -> c -> a"),
]


def test_a_cycle_is_named_in_full(places: Places, write: Write) -> None:
    for links, expected in CYCLES:
        for name, parent in links.items():
            write(name, extends=parent, phases={})
        resolved = resolve("a", places)
        assert [problem.code for problem in resolved.problems] == ["EXTENDS_CYCLE"]
        assert expected in resolved.problems[0].message
        assert refusal(resolved.checked).code == "EXTENDS_CYCLE"


def test_a_project_may_build_on_a_name_that_it_takes(places: Places, write: Write) -> None:
    write("core", extends="loom:default", phases={"build": {"post_steps": [STEP]}})
    resolved = resolve("core", places)
    assert resolved.problems == []
    assert [source["path"] for source in resolved.sources] == [
        "{plugin_root}/config/workflows/base.yaml",
        "{plugin_root}/config/workflows/core.yaml",
        "{plugin_root}/config/workflows/default.yaml",
        "{project_root}/.loom/workflows/core.json",
    ]


def test_problems_of_all_files_come_together(places: Places, write: Write) -> None:
    write("child", extends="parent", phases={"build": {"steps": [{"id": "x"}]}})
    write("parent", extends="nobody", phases={"build": {"steps": [{"id": "y", "prompt": "{what}"}]}})
    parent = "{project_root}/.loom/workflows/parent.json: "
    assert found(resolve("child", places)) == [
        ("MISSING_TEXT", "$.phases.build.steps[0]"),
        ("UNRESOLVED_PLACEHOLDER", parent + "$.phases.build.steps[0].prompt"),
        ("UNKNOWN_PARENT", parent + "$.extends"),
    ]


def artifact(**more: Any) -> dict[str, Any]:
    return {
        "id": "a", "type": "markdown", "path": "a.md", "description": "A", "required": False,
        "reload_triggers": ["manual"], **more,
    }  # fmt: skip


def without_path(**more: Any) -> dict[str, Any]:
    return {key: value for key, value in artifact(**more).items() if key != "path"}


PATHS = [("artifacts.x", None), ("$.a[0]['b c']", None), ("$..x", None), ("a[", "PATH_SYNTAX"), ("$.[?", "PATH_SYNTAX")]
CONDITIONS = [
    ("state.artifacts.x != null", None), ("Object.keys(state.phases).length > 1 ? true : false", None),
    ("state.status === 'paused' &&", "CONDITION_SYNTAX"), ("1); x(", "CONDITION_SYNTAX"),
    ("let x = 1", "CONDITION_SYNTAX"), ("state.a b", "CONDITION_SYNTAX"), ("(" * 100 + "1" + ")" * 100, None),
    ("state.status = 'paused'", "CONDITION_SETS"), ("state.work_id=258", "CONDITION_SETS"),
    ("state.a == 1 && (state.b = 2)", "CONDITION_SETS"), ("state.status === 'a = b'", None),
    ("state.status == paused", "CONDITION_WORD"), ("state.status == 'paused'", None),
    ("state.goal != \"x = 'y'\" && state.a <= 1 && state.b >= 1", None),
    ("/a(?=b)=/.test(state.goal) || state.steps.some(one => one.visit !== 1)", None),
]  # fmt: skip


def test_the_syntax_of_conditions_and_paths_is_checked(places: Places, write: Write) -> None:
    """What nothing would read is found before a run begins (D11, D12), also in a file with other faults."""
    for source, code in CONDITIONS:
        write("w", phases={}, critical_artifacts={"conditional_load": [artifact(condition=source, required=None)]})
        problems = resolve("w", places).problems
        at = "$.critical_artifacts.conditional_load[0].condition"
        assert [problem.code for problem in problems if problem.where == at] == ([code] if code else [])
    for source, code in PATHS:
        artifacts = {"phase_specific": {"x": [without_path(path_from_state=source)]}}
        write("w", phases={"x": {"steps": [STEP]}}, critical_artifacts=artifacts)
        codes = [problem.code for problem in resolve("w", places).problems if problem.severity == "error"]
        assert codes == ([code] if code else [])


def test_names_that_exist_nowhere_are_warned_of(places: Places, write: Write) -> None:
    write(
        "child",
        extends="core",
        skip_steps=["ship", "frame/fetch-work", "build/ship", "fetch-wrok"],
        autonomy={"require_approval_for": ["release", "ship", "deploy"]},
        critical_artifacts={
            "always_load": [
                artifact(reload_triggers=["phase_start:build", "phase_start:test", "phase_transition:*->relaese"])
            ],
            "phase_specific": {"test": [artifact(id="b")]},
        },
    )
    resolved = resolve("child", places)
    assert [(problem.severity, *pair) for problem, pair in zip(resolved.problems, found(resolved), strict=True)] == [
        ("warning", "UNKNOWN_STEP", "$.skip_steps[2]"),
        ("warning", "UNKNOWN_STEP", "$.skip_steps[3]"),
        ("warning", "UNKNOWN_STEP", "$.autonomy.require_approval_for[2]"),
        ("warning", "UNKNOWN_PHASE", "$.critical_artifacts.always_load[0].reload_triggers[1]"),
        ("warning", "UNKNOWN_PHASE", "$.critical_artifacts.always_load[0].reload_triggers[2]"),
        ("warning", "UNKNOWN_PHASE", "$.critical_artifacts.phase_specific.test"),
    ]
    assert "did you mean fetch-work?" in resolved.problems[1].hint
    assert resolved.workflow is not None


def test_a_misspelt_approval_stops_the_run(places: Places, write: Write) -> None:
    """It would go on without the yes that somebody asked for."""
    write("child", extends="core", autonomy={"require_approval_for": ["releas", "build/implment"]})
    resolved = resolve("child", places)
    assert [(problem.severity, problem.code) for problem in resolved.problems] == [("error", "UNKNOWN_STEP")] * 2
    hints = [problem.hint.partition("?")[0] for problem in resolved.problems]
    assert hints == ["did you mean release", "did you mean build/implement"]


def test_a_misspelt_phase_is_told_from_a_new_one(places: Places, write: Write) -> None:
    write("child", extends="core", phases={"bild": {"post_steps": [STEP]}, "polish": {"post_steps": [STEP]}})
    (problem,) = resolve("child", places).problems
    assert (problem.severity, problem.code, problem.where) == ("warning", "UNKNOWN_PHASE", "$.phases.bild")
    assert "did you mean build?" in problem.hint


EMPTY: list[dict[str, Any]] = [
    {"phases": {}},
    {"phases": {"build": {"enabled": False, "steps": [STEP]}}},
    {"phases": {"build": {"steps": [STEP]}}, "skip_steps": ["build/one"]},
    {"phases": {"build": {"step": [STEP]}}},
    {"phases": {"build": {"Steps": [STEP]}, "ship": {"steps": []}}},
    {"extends": "core", "phases": {name: {"enabled": False} for name in CORE}},
]


def test_a_workflow_without_a_step_is_refused_and_the_slip_that_led_to_it_said(places: Places, write: Write) -> None:
    """A run of it would be completed at once, with nothing done; a key that was meant for one is named."""
    for workflow in EMPTY:
        write("w", **workflow)
        resolved = resolve("w", places)
        assert [one.code for one in errors(resolved.problems)] == ["NO_STEPS"]
        refused = refusal(resolved.checked)
        assert refused.code == "NO_STEPS"
        misspelt = [key for key in workflow["phases"].get("build", {}) if key in ("step", "Steps")]
        assert [f"unknown key {key!r}; did you mean steps?" in refused.why for key in misspelt] in (
            [],
            [True],
        )
    write("w", phase={"build": {"steps": [STEP]}})
    assert "did you mean phases?" in refusal(resolve("w", places).checked).why


@pytest.mark.shows("if they are inside the project, the run's folder or the bundle")
def test_nothing_outside_is_read(places: Places, write: Write, tmp_path: Path) -> None:
    """`extends` does not lead out of project and bundle, by dots, by an absolute path or by a link (D10)."""
    outside = write("secret", "outside/secret.json", phases={}, description=7)
    for name, ref in (("dots", "../../../outside/secret.json"), ("absolute", str(outside)), ("through", "./link.json")):
        write(name, extends=ref, phases={})
    os.symlink(outside, tmp_path / "project" / ".loom" / "workflows" / "link.json")
    for name in ("dots", "absolute", "through"):
        assert found(resolve(name, places)) == [("PATH_ESCAPE", "$.extends")]
    assert found(resolve("project:link", places)) == [("PATH_ESCAPE", "$")]


def test_a_file_that_the_user_names_may_lie_anywhere(places: Places, write: Write, tmp_path: Path) -> None:
    write("base", "outside/base.json", phases={"build": {"steps": [STEP]}})
    named = write("mine", "outside/mine.json", extends="./base.json")
    resolved = resolve(str(named), places)
    assert keys(resolved) == ["build/one"]
    assert [source["path"] for source in resolved.sources] == ["base.json", "mine.json"]
    assert str(tmp_path) not in json.dumps(resolved.sources)
    assert resolve_file(str(named), places).merged == resolved.merged


def test_fabers_parent_is_stood_in_for(places: Places, write: Write) -> None:
    """A workflow that extends FABER's core runs on Loom's where FABER's is not there, and is told so (D5)."""
    write("team", extends="fractary-faber:core", phases={"build": {"steps": [], "post_steps": [STEP]}})
    resolved = resolve("team", places)
    assert found(resolved) == [("STAND_IN", "$.extends")]
    assert "build/one" in keys(resolved)
    assert "build/implement" in keys(resolved)
    assert found(resolve("fractary-faber:default", places)) == [("STAND_IN", "$")]


def test_what_must_survive_is_held_against_the_merged_workflow(places: Places, write: Write) -> None:
    declared = {"always_load": [artifact(id="design-brief")]}
    write("base", extends="core", critical_artifacts=declared, must_survive=["x"])
    write("child", extends="base", must_survive=["design-brief", "design-breif", {"artifact": "spec"}, "x"])
    assert [(one.severity, one.code, one.where) for one in resolve("child", places).problems] == [
        ("warning", "POSSIBLE_TYPO", "$.must_survive[1]"),
        ("error", "UNKNOWN_ARTIFACT", "$.must_survive[2].artifact"),
    ]
    write("child", extends="base", must_survive=["design-brief"])
    assert resolve("child", places).checked()["must_survive"] == ["x", "design-brief"]


def test_an_unknown_name_raises(places: Places) -> None:
    """What goes by no name is an error at once, with what there is."""
    caught = refusal(resolve, "nobody", places)
    assert caught.code == "UNKNOWN_WORKFLOW"
    assert "core" in caught.hint


def test_depth_is_a_clear_error(places: Places, write: Write) -> None:
    deep: Any = 1
    for _ in range(900):
        deep = {"x": deep}
    write("deep", phases={}, x=deep)
    assert [code for code, _ in found(resolve("deep", places))] == ["TOO_DEEP"]
    yaml = Path(places.project_dir) / ".loom" / "workflows" / "deeper.yaml"
    yaml.write_text("id: deeper\nphases: {}\nx: " + "[" * 1000 + "]" * 1000, encoding="utf-8")
    assert [code for code, _ in found(resolve("deeper", places))] == ["TOO_DEEP"]
