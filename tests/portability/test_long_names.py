"""Names of Loom's own files stay below what file systems take, for the longest ids; longer ones are refused."""

import json
import os
from pathlib import Path

import pytest

from loomctl.kit.ids import LONGEST_ID
from tests.helpers.scenes import Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds
from tests.portability.places import Make, longest_names

LONGEST_STEP = "s" * 80
LONGEST_NAME = 255  # bytes, on every file system that people use


@pytest.mark.slow
def test_the_longest_ids_make_names_that_file_systems_take(tmp_path: Path, make_machine: Make) -> None:
    """Folder, goal, workflow, phase, step and session at their longest, through a whole run, its archive included."""
    machine = make_machine(os.fsencode(tmp_path / "m"))
    machine.project = os.path.join(machine.root, b"p" * 250)
    os.makedirs(os.path.join(machine.project, b".git"))
    steps = [{"id": LONGEST_STEP, "prompt": "Ask."}, {"id": "t" * 80, "prompt": "Make."}]
    machine.workflow({"f" * 80: {"steps": steps}, "g" * 80: {"steps": steps}}, name="w" * 80)
    session = "i" * LONGEST_ID
    words = ["run", "a" * 10_000, "--workflow", "w" * 80]
    run_id = machine.loomctl(*words, "--json", session=session).ends().json["run_id"]
    assert len(run_id) <= LONGEST_ID
    for words in (["done"], ["undo"], ["done"], ["next"], ["show"], ["sessions"], ["prime-context", "--force"]):
        answer = machine.loomctl(*words, given=b"done", session=session)
        assert (answer.code, answer.stderr) == (0, b""), (words, answer)
    assert machine.hook("session-start", session=session, source="compact")["systemMessage"].startswith("Loom: run")
    assert longest_names(os.path.join(machine.project, b".loom")) + len(".12345.0123abcd.tmp") < LONGEST_NAME
    assert machine.loomctl("runs", "archive", run_id, "--force", session=session).code == 0
    assert longest_names(machine.root) <= LONGEST_NAME


@pytest.mark.parametrize("kind", ["step", "phase"])
def test_an_id_that_is_too_long_is_found_by_check_and_by_run(scene: Scene, kind: str) -> None:
    ids = {"step": "s", "phase": "p", kind: "x" * 81}
    raw = {"id": "long", "phases": {ids["phase"]: {"steps": [{"id": ids["step"], "prompt": "Ask."}]}}}
    scene.write("long.json", json.dumps(raw))
    for words in (["check", "long.json"], ["run", "x", "--workflow", "./long.json"]):
        ended = scene.loomctl(*words).ends(5)
        said = ended.stdout + ended.stderr
        holds(said, "BAD_ID", "80 characters at most")
    assert not (scene.store / "runs").exists()


@each("session", ["i" * (LONGEST_ID + 1), "../../x", ".hidden", "a b"])
def test_a_session_id_that_is_no_name_is_refused_before_anything_is_written(scene: Scene, session: str) -> None:
    scene.workflow()
    ended = scene.loomctl("run", "x", "--workflow", "tiny", session=session).ends(2)
    holds(ended.stderr, "CLAUDE_CODE_SESSION_ID", "hint: unset CLAUDE_CODE_SESSION_ID")
    assert not (scene.store / "runs").exists()
    scene.begin(session=None)
    told = scene.hook("session-start", session=session, source="startup").ends()
    assert told.message.startswith("Loom: run")
    assert "This session does not drive the run." in told.context
    written = {path.name for path in scene.root.parent.rglob("*.json") if path.is_relative_to(scene.store / "local")}
    assert written <= {"config.json"}
