"""What is trusted by itself, and what becomes of an output that cannot be put away."""

from __future__ import annotations

import json

import pytest

from loomctl.engine import command_trust, commanding, driving
from tests.scenes import Scene

COMMANDS = {"build": {"steps": [{"id": "c1", "run": "echo {run_id}; echo done"}]}}


@pytest.mark.parametrize(
    ("paths", "trusted"),
    [
        (["{plugin_root}/config/workflows/core.json"], True),
        (["{plugin_root}/config/workflows/core.json", "{plugin_root}/config/workflows/default.json"], True),
        (["{plugin_root}/config/workflows/core.json", "{project_root}/.loom/workflows/tiny.json"], False),
        (["tiny.json"], False),
        ([], False),
    ],
)
def test_the_bundles_own_commands_are_trusted(scene: Scene, paths: list[str], *, trusted: bool) -> None:
    """Where all of a run's workflows are the bundle's, as the resolver found them (D23)."""
    scene.workflow(phases=COMMANDS)
    run = scene.begin().run
    space = scene.space()
    assert command_trust.trust_the_bundles(space, run, [{"id": "x", "path": path} for path in paths]) == ""
    assert command_trust.is_trusted(space, run) is trusted


def test_a_plan_that_says_it_is_the_bundles_is_not_trusted(scene: Scene) -> None:
    """Anybody can write that into it."""
    scene.workflow(phases=COMMANDS)
    run_id = scene.begin().run.run_id
    scene.edit_plan(sources=[{"id": "core", "path": "{plugin_root}/config/workflows/core.json", "sha256": "0" * 64}])
    driven = driving.next_step(scene.space(), run_id)
    assert driven.pending is not None
    assert driven.pending.kind == commanding.NOT_TRUSTED
    assert driven.pending.commands == [{"step": "build/c1", "run": f"echo {run_id}; echo done"}]


def test_trust_is_of_one_run_in_one_place(scene: Scene) -> None:
    """Another run of the same workflow is asked for anew."""
    scene.workflow(phases=COMMANDS)
    run, other = scene.begin("one").run, scene.begin("two").run
    space = scene.space()
    command_trust.trust(space, run, command_trust.listed(space, run))
    assert [command_trust.is_trusted(space, each) for each in (run, other)] == [True, False]


def test_an_output_that_cannot_be_stored_stays_inline_by_its_end(scene: Scene) -> None:
    """It is said, the log has all of it, and the step ends as its command did (D38)."""
    scene.workflow(
        phases={"build": {"steps": [{"id": "c1", "run": "head -c 200000 /dev/zero | tr '\\000' x; echo END"}]}}
    )
    run = scene.begin().run
    space = scene.space()
    command_trust.trust(space, run, command_trust.listed(space, run))
    (scene.store / "blobs").write_text("in the way")
    driven = driving.next_step(space, run.run_id)
    assert [one.status for one in driven.ran] == ["succeeded"]
    kept = scene.state["context"]["command.output"]
    assert kept.endswith("xEND\n")
    assert len(kept) == 100 * 1024
    stage = scene.run_dir / "stages" / "001-build.c1@1"
    (warning,) = json.loads((stage / "status.json").read_text())["warnings"]
    assert (warning["code"], warning["where"]) == ("NOT_OFFLOADED", "command.output")
    assert (stage / "command.log").stat().st_size == 200004


def test_no_hook_runs_a_command(scene: Scene) -> None:
    """Whatever comes to the engine on the hook path."""
    scene.workflow(phases=COMMANDS)
    run = scene.begin().run
    space = scene.space()
    command_trust.trust(space, run, command_trust.listed(space, run))
    driven = driving.next_step(scene.space(on_hook_path=True), run.run_id)
    assert (driven.ran, driven.pending) == ((), None)
    assert not (scene.run_dir / "stages" / "001-build.c1@1" / "command.json").exists()
