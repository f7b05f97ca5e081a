"""Each command that began is told to have ended, once, however it did and whoever was killed (D41)."""

import json
import os
import signal
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_OK
from tests.cli.commands import AT_ONCE, begin, next_beside, record
from tests.helpers.scenes import Json, Scene
from tests.helpers.waiting import Gate, until


def told(scene: Scene) -> list[tuple[str, Json]]:
    return [(event["event"], event["properties"]) for event in scene.events() if event["event"].startswith("command.")]


def how_ended(scene: Scene) -> Json:
    (began, _), (ended, properties) = told(scene)
    assert (began, ended) == ("command.started", "command.ended")
    keys = ("exit_code", "timed_out", "stopped", "lost", "error")
    properties.setdefault("error", None)
    return {key: properties[key] for key in keys if properties[key] is not None and properties[key] is not False}


@pytest.mark.slow(quick=2)
@pytest.mark.parametrize(
    ("step", "how"),
    [
        ({"run": "exit 0"}, {"exit_code": 0}),
        ({"run": "exit 7"}, {"exit_code": 7}),
        ({"run": "sleep 600", "timeout": 0.3}, {"timed_out": True}),
        (
            {"run": "true", "workdir": "gone"},
            {"error": "it could not be started: No such file or directory: {root}/gone"},
        ),
    ],
)
def test_an_end_is_told_as_it_was(scene: Scene, step: Json, how: Json) -> None:
    begin(scene, step)
    scene.loomctl("next")
    expected = {key: value.format(root=scene.root) if isinstance(value, str) else value for key, value in how.items()}
    assert how_ended(scene) == expected


@pytest.mark.slow
@pytest.mark.parametrize("words", [["cancel"], ["undo"], ["done", "--outcome", "skipped"]])
def test_a_command_that_somebody_ends_is_told_as_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    gate = Gate(tmp_path / "gate")
    scene.workflow(phases={"build": {"steps": [{"id": "ask", "prompt": "x"}, {"id": "c1", "run": str(gate)}]}})
    run_id = scene.begin().run.run_id
    scene.loomctl("trust", "--yes")
    scene.loomctl("done", given="asked")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    if words == ["undo"]:  # the others are a person's to decide beside a session
        scene.let_go()
    assert scene.loomctl(words[0], run_id, *words[1:], session=None).code == EXIT_OK
    assert how_ended(scene) == {"stopped": True}
    if words != ["cancel"]:
        return
    scene.loomctl("resume", "--reopen")
    scene.loomctl("next")
    names = [name for name, _ in told(scene)]
    assert names == ["command.started", "command.ended", "command.started"]
    scene.loomctl("cancel")
    assert [properties["stopped"] for name, properties in told(scene) if name == "command.ended"] == [True, True]


@pytest.mark.slow
def test_who_waits_for_a_command_that_is_stopped_does_not_end_its_step(scene: Scene, tmp_path: Path) -> None:
    """Nobody but who stopped it says what becomes of it; stopped by a shutdown, it is run again from its start."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"echo x >> count; {gate}")
    with next_beside(scene) as waits:
        os.kill(record(scene, "001-build.c1@1")["supervisor"]["pid"], signal.SIGTERM)
        said, _ = waits.communicate(timeout=60)
    assert json.loads(said)["pending"]["kind"] == "stopped"
    assert scene.state["steps"][0]["status"] == "in_progress"
    assert how_ended(scene) == {"stopped": True}
    with next_beside(scene) as waits:
        until(lambda: [name for name, _ in told(scene)].count("command.started") == 2)
        gate.open()
        waits.communicate(timeout=60)
    assert scene.state["steps"][0]["status"] == "succeeded"
    assert [name for name, _ in told(scene)] == ["command.started", "command.ended"] * 2


def test_a_next_that_was_killed_before_it_told_of_a_start_is_stood_in_for(scene: Scene, tmp_path: Path) -> None:
    """By the next that waits; the start is told once, and so is the end."""
    begin(scene, str(Gate(tmp_path / "gate")))
    with next_beside(scene) as starts:
        known = record(scene, "001-build.c1@1")
        until(lambda: "command.started" in scene.event_names())
        starts.kill()
    forget_last_event(scene, "command.started")
    os.kill(known["supervisor"]["pid"], signal.SIGKILL)
    scene.loomctl("next")
    assert how_ended(scene) == {"lost": True}


def forget_last_event(scene: Scene, name: str) -> None:
    path = scene.run_dir / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert json.loads(lines[-1])["event"] == name
    path.write_text("".join(lines[:-1]), encoding="utf-8")


def test_a_command_whose_record_is_gone_is_lost_and_not_run_twice(scene: Scene) -> None:
    known = 'until grep -q \'"command": {\' "$LOOM_STAGE_DIR/command.json"; do :; done'  # nothing more is written then
    begin(scene, f"echo x >> '{scene.root}/count'; {known}; rm -rf \"$LOOM_STAGE_DIR\"; sleep 1")
    assert scene.loomctl("next", "--json").json["ran"][0]["reason"].startswith("lost: ")
    assert (scene.root / "count").read_text() == "x\n"
    assert how_ended(scene) == {"lost": True}
