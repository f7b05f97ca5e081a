"""`loomctl graph` draws a workflow, or a run with its progress, in the form that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.helpers import graphviz
from tests.helpers.scenes import Scene

STEPS = {"build": {"steps": [{"id": f"s{n}", "prompt": f"Do the part {n}."} for n in range(3)]}}


@pytest.fixture
def begun(scene: Scene, cli: Cli) -> Scene:
    scene.workflow(phases=STEPS)
    cli("run", "x", "--workflow", "tiny")
    cli("done", "--response-file", "-", given="Done.")
    return scene


def test_a_run_is_drawn_with_its_progress(begun: Scene, cli: Cli) -> None:
    run_id = begun.run_dir.name
    told = cli("graph").stdout
    assert told == cli("graph", run_id).stdout == cli("graph", run_id[:-2]).stdout
    assert '["✓ s0"]:::done' in told
    assert '["▸ s1"]:::current' in told
    assert '["s2"]' in told
    assert ":::" not in cli("graph", "tiny").stdout


def test_a_form_is_asked_for(begun: Scene, cli: Cli) -> None:
    dot = cli("graph", "--format", "dot").stdout
    assert graphviz.is_read(dot)
    assert "s1" in graphviz.rendered(dot)
    assert "<svg" in cli("graph", "--format", "svg").stdout
    begun.write(".loom/workflows/again.dot", cli("graph", "tiny", "--format", "dot").stdout)
    assert cli("check", "again").code == 0
    document = cli("graph", "tiny", "--json").json
    assert (document["workflow_id"], document["run_id"], document["format"]) == ("tiny", None, "mermaid")
    assert document["text"].startswith("flowchart TD\n")
    assert cli("graph", "--json").json["run_id"] == begun.run_dir.name


def test_it_is_written_to_a_file(begun: Scene, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "out.mmd"
    assert cli("graph", "core", "--output", str(path)).stdout == ""
    assert path.read_text(encoding="utf-8").startswith("flowchart TD\n")
    assert cli("graph", "core", "--output", str(path), "--json").json["output"] == str(path)
    assert cli("graph", "core", "--output", str(begun.root / "no" / "folder")).code != 0


def test_without_graphviz_the_way_on_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("loomctl.workflows.draw.shutil.which", lambda _: None)
    ended = cli("graph", "core", "--format", "svg")
    assert ended.code == 8
    assert "NO_GRAPHVIZ" in ended.stderr
    assert "hint: loomctl graph --format mermaid" in ended.stderr
    assert not list(tmp_path.glob("*.svg"))
    assert cli("graph", "core", "--format", "dot").code == 0


def test_what_is_neither_is_said_to_be_neither(scene: Scene, cli: Cli) -> None:
    ended = cli("graph", "nobody")
    assert ended.code == 2
    assert "there is neither a workflow nor a run 'nobody'" in ended.stderr
    scene.write("bad.dot", "digraph {")
    ended = cli("graph", "bad.dot")
    assert ended.code == 5
    assert "line 1, column 9" in ended.stderr
    assert cli("graph").code == 3
