"""`loomctl graph` draws a workflow, or a run with its progress, in the form that is asked for."""

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.helpers import graphviz
from tests.helpers.scenes import Scene
from tests.helpers.texts import holds

STEPS = {"build": {"steps": [{"id": f"s{n}", "prompt": f"Do the part {n}."} for n in range(3)]}}


@pytest.fixture
def begun(scene: Scene, cli: Cli) -> Scene:
    scene.workflow(phases=STEPS)
    cli("run", "x", "--workflow", "tiny")
    cli("done", "--response-file", "-", given="Done.")
    return scene


def test_a_run_is_drawn_with_its_progress_in_the_form_that_is_asked_for(begun: Scene, cli: Cli, tmp_path: Path) -> None:
    run_id = begun.run_dir.name
    told = cli("graph").stdout
    assert told == cli("graph", run_id).stdout == cli("graph", run_id[:-2]).stdout
    holds(told, '["✓ s0"]:::done', '["▸ s1"]:::current', '["s2"]')
    assert ":::" not in cli("graph", "tiny").stdout
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
    path = tmp_path / "out.mmd"
    assert cli("graph", "core", "--output", str(path)).stdout == ""
    assert path.read_text(encoding="utf-8").startswith("flowchart TD\n")
    assert cli("graph", "core", "--output", str(path), "--json").json["output"] == str(path)
    assert cli("graph", "core", "--output", str(begun.root / "no" / "folder")).code != 0


def test_without_graphviz_the_way_on_is_said_as_of_what_is_neither(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scene: Scene
) -> None:
    monkeypatch.setattr("loomctl.workflows.draw.shutil.which", lambda _: None)
    ended = cli("graph", "core", "--format", "svg").ends(8)
    holds(ended.stderr, "NO_GRAPHVIZ", "hint: loomctl graph --format mermaid")
    assert not list(tmp_path.glob("*.svg"))
    assert cli("graph", "core", "--format", "dot").code == 0
    assert "there is no workflow and no run 'nobody'" in cli("graph", "nobody").ends(2).stderr
    scene.write("bad.dot", "digraph {")
    assert "line 1, column 9" in cli("graph", "bad.dot").ends(5).stderr
    assert cli("graph").code == 3
