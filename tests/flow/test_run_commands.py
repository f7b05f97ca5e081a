"""What is trusted by itself, and what becomes of an output that cannot be put away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.flow import advance
from loomctl.flow.commands import command_steps, run_commands
from loomctl.runs import context_values
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.store import Run
from tests.helpers.repositories import git
from tests.helpers.scenes import MAIN, Json, Scene
from tests.helpers.tables import each
from tests.helpers.waiting import until

COMMANDS = {"build": {"steps": [{"id": "c1", "run": "echo {run_id}; echo done"}]}}


@each(
    ("paths", "trusted"),
    [
        (["{plugin_root}/config/workflows/core.yaml"], True),
        (["{plugin_root}/config/workflows/core.yaml", "{plugin_root}/config/workflows/default.yaml"], True),
        (["{plugin_root}/config/workflows/core.yaml", "{project_root}/.loom/workflows/tiny.json"], False),
        (["tiny.json"], False),
        ([], False),
    ],
)
def test_the_bundles_own_commands_are_trusted(scene: Scene, paths: list[str], *, trusted: bool) -> None:  # D23
    scene.workflow(phases=COMMANDS)
    run = scene.begin().run
    space = scene.space()
    assert command_steps.trust_what_is_allowed(space, run, [{"id": "x", "path": path} for path in paths]) == ""
    assert command_steps.is_trusted(space, run) is trusted


def test_a_plan_that_says_it_is_the_bundles_is_not_trusted(scene: Scene) -> None:
    scene.workflow(phases=COMMANDS)
    run_id = scene.begin().run.run_id
    scene.edit_plan(sources=[{"id": "core", "path": "{plugin_root}/config/workflows/core.yaml", "sha256": "0" * 64}])
    driven = advance.next_step(scene.space(), run_id)
    assert driven.pending is not None
    assert driven.pending.kind == run_commands.NOT_TRUSTED
    assert driven.pending.commands == [{"step": "build/c1", "run": f"echo {run_id}; echo done"}]


@pytest.mark.shows("on this machine, in this place")
def test_trust_is_of_one_run_in_one_place(scene: Scene) -> None:
    scene.workflow(phases=COMMANDS)
    run, other = scene.begin("one").run, scene.begin("two").run
    space = scene.space()
    command_steps.trust(space, run, command_steps.listed(space, run))
    assert [command_steps.is_trusted(space, each) for each in (run, other)] == [True, False]


def test_an_output_that_cannot_be_stored_stays_inline_by_its_end(scene: Scene) -> None:  # D38
    scene.workflow(
        phases={"build": {"steps": [{"id": "c1", "run": "head -c 200000 /dev/zero | tr '\\000' x; echo END"}]}}
    )
    run = scene.begin().run
    space = scene.space()
    command_steps.trust(space, run, command_steps.listed(space, run))
    (scene.store / "blobs").write_text("in the way")
    assert [one.status for one in advance.next_step(space, run.run_id).ran] == ["succeeded"]
    kept = scene.state["context"]["command.output"]
    assert kept.endswith("xEND\n")
    assert len(kept) == 100 * 1024
    stage = scene.run_dir / "stages" / "001-build.c1@1"
    (warning,) = json.loads((stage / "status.json").read_text())["warnings"]
    assert (warning["code"], warning["where"]) == ("NOT_OFFLOADED", "command.output")
    assert (stage / "command.log").stat().st_size == 200004


def test_no_hook_runs_a_command(scene: Scene) -> None:
    scene.workflow(phases=COMMANDS)
    run = scene.begin().run
    space = scene.space()
    command_steps.trust(space, run, command_steps.listed(space, run))
    driven = advance.next_step(scene.space(on_hook_path=True), run.run_id)
    assert (driven.ran, driven.pending) == ((), None)
    assert not (scene.run_dir / "stages" / "001-build.c1@1" / "command.json").exists()


@pytest.fixture
def in_git(scene: Scene) -> Scene:
    git(scene.root, "init", "-q")
    return scene


def of_the_command(scene: Scene) -> Json:
    found: Json = json.loads((scene.run_dir / "stages/001-build.c1@1/status.json").read_text())
    return found


def test_what_was_changed_before_a_command_began_is_not_its_own(in_git: Scene) -> None:  # D39, D40
    made = "echo made > made; mkdir -p test-results; echo r > test-results/new.txt"
    in_git.workflow(phases={"build": {"steps": [{"id": "c1", "run": made}]}})
    run = in_git.begin().run
    space = in_git.space()
    advance.next_step(space, run.run_id)
    in_git.write("mine.txt", "by hand")
    in_git.write("test-results/old.txt", "by hand")
    tool: Json = {"tool_name": "Write", "tool_input": {"file_path": str(in_git.root / "edited.txt"), "content": "x"}}
    in_git.write("edited.txt", "x")
    in_git.hook("post-tool-use", tool_use_id="toolu_1", tool_response={"type": "create"}, **tool)
    command_steps.trust(space, run, command_steps.listed(space, run))
    advance.next_step(space, run.run_id)
    ended = of_the_command(in_git)
    assert ended["files_touched"] == ["made", "test-results/new.txt"]
    assert [one["path"] for one in ended["assets"]] == ["test-results/new.txt"]
    assert "files_unknown" not in ended


def test_a_command_that_never_ran_touched_nothing(in_git: Scene) -> None:
    in_git.workflow(phases=COMMANDS)
    run = in_git.begin().run
    in_git.write("mine.txt", "by hand")
    advance.done(in_git.space(None, host=TERMINAL), run.run_id, response=None, outcome="skipped")
    ended = of_the_command(in_git)
    assert (ended["files_touched"], ended.get("files_unknown")) == ([], None)
    assert not [name for name in in_git.event_names() if name.startswith("command.")]


@pytest.mark.slow
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=7), max_size=9))
def test_an_output_is_stored_as_the_json_of_its_text(scene: Scene, parts: list[bytes]) -> None:
    folder = scene.root.parent / "stage"
    folder.mkdir(exist_ok=True)
    data = b"".join(parts) * 50_000
    (folder / "command.log").write_bytes(data)
    ref, warnings = command_steps.stored(scene.space(), str(folder))
    assert warnings == []
    assert Blobs(str(scene.store)).get(ref) == context_values.encoded(data.decode("utf-8", "replace"))


@pytest.mark.slow
def test_the_largest_output_is_stored_in_little_memory(scene: Scene) -> None:
    folder = scene.root.parent / "stage"
    folder.mkdir()
    with (folder / "command.log").open("wb") as log:
        log.truncate(64 << 20)
    program = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); "
        "from types import SimpleNamespace as Named; from loomctl.flow.commands import command_steps; "
        "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize(); "
        "resource.setrlimit(resource.RLIMIT_AS, (now + (40 << 20),) * 2); "
        "print(command_steps.stored(Named(store=Named(folder=sys.argv[2])), sys.argv[3]))"
    )
    command = [sys.executable, "-c", program, str(MAIN.parents[1]), str(scene.store), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("('blob://sha256/")


@pytest.mark.slow(quick=2)
@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("rm command.log", "command.log has lost a part of its 6 bytes"),
        ("ln -sf /etc/passwd command.log", ""),
        ("until grep -q command.started ../../events.jsonl; do :; done; rm command.json command.lock", ""),
    ],
)
def test_a_command_that_meddles_with_its_own_files(scene: Scene, does: str, said: str) -> None:
    """Ends as its exit code says, and holds nobody; of what a link leads to nothing is shown or kept (D10)."""
    scene.workflow(phases={"build": {"steps": [{"id": "c1", "run": f'cd "$LOOM_STAGE_DIR"; {does}; echo after'}]}})
    run = scene.begin().run
    space = scene.space()
    command_steps.trust(space, run, command_steps.listed(space, run))
    driven = advance.next_step(space, run.run_id)
    assert [(one.status, one.reason) for one in driven.ran] == [("succeeded", "")]
    assert [note for note in driven.notes if "command.log" in note] == ([f"build/c1: {said}"] if said else [])
    assert "root:" not in driven.ran[0].tail
    assert "root:" not in str(context_values.value_of(space, driven.run, scene.state["context"]["command.output"]))


@pytest.mark.slow
def test_a_command_that_removes_its_record_as_it_is_told_to_have_begun_is_waited_for(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who starts it has seen it run, however long it takes them to tell so, and looks again only then."""
    removed, goes_on, tell_start = tmp_path / "removed", tmp_path / "goes-on", command_steps.tell_start
    script = (
        'cd "$LOOM_STAGE_DIR"; until grep -q command.started ../../events.jsonl; do :; done; '
        f"rm command.json command.lock; touch '{removed}'; until test -e '{goes_on}'; do sleep 0.01; done; echo after"
    )

    def slowly(*given: Any) -> Run:
        run = tell_start(*given)
        until(removed.exists)
        return run

    monkeypatch.setattr(command_steps, "tell_start", slowly)
    scene.workflow(phases={"build": {"steps": [{"id": "c1", "run": script}]}})
    run = scene.begin().run
    space = scene.space()
    command_steps.trust(space, run, command_steps.listed(space, run))
    try:
        driven = advance.next_step(space, run.run_id, lambda _: goes_on.touch())
    finally:
        goes_on.touch()
    assert [(one.status, one.reason) for one in driven.ran] == [("succeeded", "")]
