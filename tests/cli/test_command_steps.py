"""Command steps through `loomctl`: run by `next` alone, awaited, taken up again, ended (D30)."""

import json
import os
import signal
from pathlib import Path

import pytest

from loomctl.flow import stop
from loomctl.kit import processes
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, ON_INTERRUPT
from loomctl.runs import command_runs
from tests.cli.commands import AT_ONCE, PATIENT, begin, blob, next_beside, record, status
from tests.cli.terminal import Terminal, loomctl
from tests.helpers.scenes import OTHER, Json, Scene
from tests.helpers.texts import holds
from tests.helpers.waiting import Gate, until


def test_commands_run_one_after_the_other_up_to_the_next_step(scene: Scene) -> None:
    begin(scene, "echo one", "printf 'two\\377'; pwd")
    told = scene.loomctl("next").ends()
    holds(told.stdout, "✓ build/c1: succeeded (001-build.c1@1): exit code 0", "two\ufffd", "Go on.")
    assert [(one["step_id"], one["status"]) for one in scene.state["steps"]] == [
        ("build/c1", "succeeded"),
        ("build/c2", "succeeded"),
        ("build/then", "in_progress"),
    ]
    ended = status(scene, "002-build.c2@1")
    assert ended["response_source"] == "command"
    assert (ended["failure_reason"], ended["kind"]) == (None, "command")
    command = ended["command"]
    assert {key: command[key] for key in ("script", "exit_code", "signal", "timed_out")} == {
        "script": "printf 'two\\377'; pwd", "exit_code": 0, "signal": None, "timed_out": False,
    }  # fmt: skip
    left = {"last_stage": "build/c2", "command.output": command["output"], "command.exit_code": 0}
    assert scene.state["context"] == left
    assert blob(scene, command["output"]) == f"two\ufffd{scene.root}\n"
    assert (scene.run_dir / "stages/002-build.c2@1/command.log").read_bytes() == b"two\xff" + f"{scene.root}\n".encode()
    assert not (scene.run_dir / "stages/002-build.c2@1/response.md").exists()
    told_of = ("stage.started", "command.started", "command.ended", "stage.completed")
    names = [name for name in scene.event_names() if name in told_of]
    assert names == [*told_of, *told_of, "stage.started"]


def test_the_answer_for_scripts_says_all_of_it(scene: Scene) -> None:
    begin(scene, "echo one", {"run": "echo two; exit 3", "result_handling": {"on_failure": "continue"}})
    told = scene.loomctl("next", "--json").json
    assert [(one["step_id"], one["status"], one["reason"], one["tail"]) for one in told["ran"]] == [
        ("build/c1", "succeeded", "", "one"),
        ("build/c2", "failed", "exit code 3", "two"),
    ]
    assert told["ran"][1]["command"]["exit_code"] == 3
    assert (told["pending"], told["next"]["id"]) == (None, "build/then")


def test_a_command_that_fails_fails_its_step_and_the_run(scene: Scene) -> None:
    begin(scene, "echo broken >&2; exit 3", "touch second")
    holds(scene.loomctl("next").stdout, "✗ build/c1: failed (001-build.c1@1): exit code 3", "broken")
    assert (scene.state["status"], scene.state["steps"][0]["failure_reason"]) == ("failed", "exit code 3")
    assert scene.state["errors"][0]["message"] == "exit code 3"
    assert status(scene, "001-build.c1@1")["failure_reason"] == "exit code 3"
    assert scene.state["context"]["command.exit_code"] == 3
    assert not (scene.root / "second").exists()


@pytest.mark.slow
def test_a_failed_command_is_tried_again_as_a_new_visit(scene: Scene) -> None:
    begin(scene, {"run": "echo x >> tries; test $(wc -l < tries) -gt 2", "max_retries": 2})
    assert scene.loomctl("next").code == EXIT_OK
    assert [(one["visit"], one["status"]) for one in scene.state["steps"] if one["step_id"] == "build/c1"] == [
        (1, "failed"),
        (2, "failed"),
        (3, "succeeded"),
    ]


@pytest.mark.slow
def test_a_timeout_fails_the_step(scene: Scene) -> None:
    begin(scene, {"run": "echo before; sleep 600", "timeout": 2.5})
    assert scene.loomctl("next", "--json").json["ran"][0]["reason"] == "timed out after 2.5 s"
    command = status(scene, "001-build.c1@1")["command"]
    assert (command["timed_out"], blob(scene, command["output"])) == (True, "before\n")


@pytest.mark.slow
def test_a_long_command_goes_on_and_any_session_waits_for_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    begin(scene, f"echo there; {gate}; echo gone")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    log = scene.run_dir / "stages/001-build.c1@1/command.log"
    until(lambda: log.read_bytes() == b"there\n")
    holds(scene.loomctl("next").ends().stdout, "build/c1 has run for", "there", "It keeps running")
    pending = scene.loomctl("next", "--json").json["pending"]
    assert (pending["kind"], pending["bytes"], pending["tail"]) == ("running", 6, "there")
    assert scene.state["steps"][0]["status"] == "in_progress"
    monkeypatch.setenv("LOOM_COMMAND_WAIT", PATIENT)
    gate.open()
    assert scene.loomctl("resume", "--take-over", session=OTHER).code == EXIT_OK
    assert "✓ build/c1: succeeded" in scene.loomctl("next", session=OTHER).stdout
    assert (log.read_bytes(), scene.event_names().count("command.started")) == (b"there\ngone\n", 1)


def test_two_that_wait_for_one_command_end_it_once(scene: Scene, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    begin(scene, f"echo x >> {scene.root}/count; {gate}")
    waiting = [next_beside(scene) for _ in range(2)]
    record(scene, "001-build.c1@1")
    gate.open()
    said = [one.communicate(timeout=60)[0] for one in waiting]
    assert [one.returncode for one in waiting] == [0, 0]
    assert all(json.loads(text)["next"]["id"] == "build/then" for text in said)
    assert ((scene.root / "count").read_text(), scene.event_names().count("command.ended")) == ("x\n", 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_who_waits_may_go_and_the_command_goes_on(scene: Scene, tmp_path: Path, number: signal.Signals) -> None:
    """Interrupted, it says so; killed, it says nothing; the command ends as if nobody had waited."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"{gate}; echo went on")
    with next_beside(scene) as waits:
        record(scene, "001-build.c1@1")
        until(lambda: "command.started" in scene.event_names())
        waits.send_signal(number)
        said, _ = waits.communicate(timeout=60)
    if number == signal.SIGINT:
        assert waits.returncode == ON_INTERRUPT
        error = json.loads(said)["error"]
        assert "stopped waiting; the command of build/c1 keeps running" in error["message"]
        assert error["hint"].startswith("loomctl next")
    gate.open()
    assert "went on" in scene.loomctl("next").stdout
    assert scene.state["steps"][0]["status"] == "succeeded"


@pytest.mark.parametrize("with_waiter", [False, True])
def test_a_command_whose_supervisor_was_killed_fails_as_lost(
    scene: Scene, tmp_path: Path, *, with_waiter: bool
) -> None:
    gate = Gate(tmp_path / "gate")
    begin(scene, f"echo before; {gate}")
    log = scene.run_dir / "stages/001-build.c1@1/command.log"
    waits = next_beside(scene)
    known = record(scene, "001-build.c1@1")
    until(lambda: log.read_bytes() == b"before\n")
    until(lambda: scene.event_names().count("command.started"))
    if not with_waiter:
        waits.kill()
    os.kill(known["supervisor"]["pid"], signal.SIGKILL)
    said, _ = waits.communicate(timeout=60)
    told = json.loads(said) if with_waiter else scene.loomctl("next", "--json").json
    assert told["ran"][0]["reason"].startswith("lost: ")
    ended = status(scene, "001-build.c1@1")
    assert (ended["status"], ended["command"]["exit_code"]) == ("failed", None)
    assert blob(scene, ended["command"]["output"]) == "before\n"
    until(lambda: not processes.lives(known["command"]))


@pytest.mark.slow
def test_a_cancelled_run_stops_its_command_and_may_be_taken_up(scene: Scene, tmp_path: Path) -> None:
    """All of its processes end; taken up again, the step is done from its start, what was is kept beside."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"sleep 600 & echo $! > child; {gate}")
    with next_beside(scene) as waits:
        record(scene, "001-build.c1@1")
        until(lambda: (scene.root / "child").exists() and (scene.root / "child").read_text())
        child = int((scene.root / "child").read_text())
        assert "Stopped the command of build/c1." in scene.loomctl("cancel").stdout
        said, _ = waits.communicate(timeout=60)
    assert processes.started(child) == ""
    assert (json.loads(said)["status"], scene.state["steps"][0]["status"]) == ("cancelled", "in_progress")
    scene.loomctl("resume", "--reopen")
    with next_beside(scene) as waits:
        until((scene.run_dir / "stages/001-build.c1@1/command.undone-1.log").exists)
        gate.open()
        said, _ = waits.communicate(timeout=60)
    assert json.loads(said)["ran"][0]["status"] == "succeeded"


@pytest.mark.slow
def test_a_cancel_that_was_killed_is_finished_by_the_next_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run was cancelled already, its command runs: another cancel stops it, and a third finds nothing to do."""
    begin(scene, "echo $$ > child; sleep 600")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    until(lambda: (scene.root / "child").exists() and (scene.root / "child").read_text())
    child = int((scene.root / "child").read_text())
    run_id = scene.run_dir.name
    stop.set_standing(scene.space(), run_id, "cancelled", "run.cancelled", allowed=("in_progress",))
    assert processes.started(child)
    assert "Stopped the command of build/c1." in scene.loomctl("cancel", run_id).stdout
    assert processes.started(child) == ""
    before = (scene.run_dir / "state.json").read_bytes()
    again = scene.loomctl("cancel", run_id, "--json")
    assert (again.code, again.json["status"], again.json["notes"]) == (EXIT_OK, "cancelled", [])
    assert (scene.run_dir / "state.json").read_bytes() == before
    assert scene.event_names().count("run.cancelled") == 1


@pytest.mark.slow
def test_a_paused_run_lets_its_command_end(scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    begin(scene, f"{gate}; exit 0")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    scene.loomctl("pause")
    gate.open()
    path = scene.run_dir / "stages/001-build.c1@1" / command_runs.RECORD
    until(lambda: json.loads(path.read_text())["result"])
    assert scene.loomctl("next").code == EXIT_USAGE
    scene.loomctl("resume")
    assert scene.loomctl("next", "--json").json["ran"][0]["status"] == "succeeded"


@pytest.mark.shows("An assistant cannot end a command step by saying so")
def test_done_is_no_way_past_a_command(scene: Scene) -> None:
    """The assistant cannot say how a command ended; a person in a terminal can, in words of an outcome."""
    run_id = begin(scene, "exit 1", trusted=False)
    for words in (["done"], ["done", "--outcome", "succeeded"]):
        refused = scene.loomctl(*words, "--json", given="all is well")
        assert (refused.code, refused.json["error"]["code"]) == (EXIT_USAGE, "COMMAND_STEP")
    error = scene.loomctl("done", run_id, "--json", session=None, given="x").json["error"]
    assert error["code"] == "HELD_BY_ANOTHER"  # a result is the driver's to give, an outcome a person's to decide
    told = scene.loomctl("done", run_id, "--outcome", "skipped", "--note", "not here", "--json", session=None)
    assert told.json["outcome"] == "skipped"
    assert (scene.state["steps"][0]["status"], scene.state["steps"][0]["note"]) == ("skipped", "not here")


def test_a_person_ends_a_running_command_by_hand(scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_id = begin(scene, str(Gate(tmp_path / "gate")))
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    known = record(scene, "001-build.c1@1")
    assert scene.loomctl("done", run_id, "--outcome", "failed", session=None).code == EXIT_OK
    until(lambda: not processes.lives(known["command"]))
    assert scene.state["steps"][0]["status"] == "failed"


@pytest.mark.slow
def test_undo_takes_a_command_back_and_next_runs_it_again(scene: Scene) -> None:
    begin(scene, "echo x >> count; cat count")
    scene.loomctl("next")
    assert scene.loomctl("undo").code == EXIT_OK
    assert scene.loomctl("next", "--json").json["ran"][0]["tail"] == "x\nx"
    folder = scene.run_dir / "stages/001-build.c1@1"
    assert (folder / "command.undone-1.log").read_text() == "x\n"
    assert (folder / "command.log").read_text() == "x\nx\n"


@pytest.mark.slow
def test_undo_stops_the_command_that_came_after(scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    scene.workflow(
        phases={"build": {"steps": [{"id": "ask", "prompt": "x"}, {"id": "c1", "run": f"echo x >> count; {gate}"}]}}
    )
    scene.begin()
    scene.loomctl("trust", "--yes")
    scene.loomctl("done", given="asked")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    known = record(scene, "002-build.c1@1")
    until((scene.root / "count").exists)
    assert "Stopped the command of" in scene.loomctl("undo").stdout
    until(lambda: not processes.lives(known["command"]))
    scene.loomctl("done", given="asked again")
    scene.loomctl("next")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", PATIENT)
    gate.open()
    assert scene.loomctl("next", "--json").json["status"] == "completed"
    assert (scene.root / "count").read_text() == "x\nx\n"


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["rm", "archive"])
def test_a_run_that_is_put_away_leaves_no_command_behind(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    run_id = begin(scene, str(Gate(tmp_path / "gate")))
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    known = record(scene, "001-build.c1@1")
    assert scene.loomctl("runs", verb, run_id, session=None).code != EXIT_OK
    assert processes.lives(known["command"])
    scene.loomctl("runs", verb, run_id, "--force", *(["--yes"] if verb == "rm" else []), session=None).ends()
    until(lambda: not processes.lives(known["command"]))


@pytest.mark.slow
def test_a_person_who_waits_sees_how_far_a_command_is(scene: Scene, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    run_id = begin(scene, f"echo working on it; {gate}")
    scene.let_go()
    terminal = Terminal(loomctl("next", run_id), scene, streams=("stderr",))
    terminal.until("build/c1: ", "working on it")
    gate.open()
    said, _ = terminal.child.communicate(timeout=60)
    assert terminal.end().endswith("\r\x1b[K")
    assert b"succeeded" in said


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
