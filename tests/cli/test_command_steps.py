"""Command steps through `loomctl`: trusted first, run by `next` alone, awaited, taken up again, ended (D23, D30)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loomctl.disk import command_files, processes
from loomctl.disk.artifact_files import REFUSE_BYTES
from loomctl.model.errors import EXIT_OK, EXIT_USAGE, ON_INTERRUPT
from tests.cli.terminal import Terminal, at_a_terminal, loomctl
from tests.scenes import MAIN, OTHER, Json, Scene
from tests.waiting import Gate, until

AT_ONCE, PATIENT = "0", "60"


def steps(*commands: str | Json, after: bool = True) -> Json:
    """Give a phase of command steps, and a step for the assistant behind them."""
    made: list[Json] = [
        {"id": f"c{number}", **({"run": one} if isinstance(one, str) else one)}
        for number, one in enumerate(commands, 1)
    ]
    return {"build": {"steps": [*made, *([{"id": "then", "prompt": "Go on."}] if after else [])]}}


def begin(scene: Scene, *commands: str | Json, trusted: bool = True) -> str:
    """Start a run of command steps, and trust it; gives its id."""
    scene.workflow(phases=steps(*commands))
    run_id = scene.begin().run.run_id
    if trusted:
        assert scene.loomctl("trust", "--yes").code == EXIT_OK
    return run_id


def status(scene: Scene, stage: str) -> Json:
    """Read a stage's status."""
    found: Json = json.loads((scene.run_dir / "stages" / stage / "status.json").read_text(encoding="utf-8"))
    return found


def blob(scene: Scene, ref: str) -> object:
    """Read what a reference stands for."""
    sha256 = ref.rpartition("/")[2]
    return json.loads((scene.store / "blobs" / "sha256" / sha256[:2] / sha256).read_bytes())


def record(scene: Scene, stage: str) -> Json:
    """Read who runs a stage's command, once its number is known."""
    path = scene.run_dir / "stages" / stage / command_files.RECORD
    until(lambda: path.exists() and json.loads(path.read_text(encoding="utf-8"))["command"])
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_commands_run_one_after_the_other_up_to_the_next_step(scene: Scene) -> None:
    """One `next` runs them all; each has its stage, its output, its place in the context."""
    begin(scene, "echo one", "printf 'two\\377'; pwd")
    told = scene.loomctl("next")
    assert told.code == EXIT_OK, told.stderr
    assert "✓ build/c1: succeeded (001-build.c1@1): exit code 0" in told.stdout
    assert "two\ufffd" in told.stdout
    assert "Go on." in told.stdout
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
        "script": "printf 'two\\377'; pwd",
        "exit_code": 0,
        "signal": None,
        "timed_out": False,
    }
    left = {"last_stage": "build/c2", "command.output": command["output"], "command.exit_code": 0}
    assert scene.state["context"] == left
    assert blob(scene, command["output"]) == f"two\ufffd{scene.root}\n"
    assert (scene.run_dir / "stages/002-build.c2@1/command.log").read_bytes() == b"two\xff" + f"{scene.root}\n".encode()
    assert not (scene.run_dir / "stages/002-build.c2@1/response.md").exists()
    told_of = ("stage.started", "command.started", "command.ended", "stage.completed")
    names = [name for name in scene.event_names() if name in told_of]
    assert names == [*told_of, *told_of, "stage.started"]


def test_the_answer_for_scripts_says_all_of_it(scene: Scene) -> None:
    """What ran, with its outcome and its end; what is next."""
    begin(scene, "echo one", {"run": "echo two; exit 3", "result_handling": {"on_failure": "continue"}})
    told = scene.loomctl("next", "--json").json
    assert [(one["step_id"], one["status"], one["reason"], one["tail"]) for one in told["ran"]] == [
        ("build/c1", "succeeded", "", "one"),
        ("build/c2", "failed", "exit code 3", "two"),
    ]
    assert told["ran"][1]["command"]["exit_code"] == 3
    assert (told["pending"], told["next"]["id"]) == (None, "build/then")


def test_a_command_that_fails_fails_its_step_and_the_run(scene: Scene) -> None:
    """With its exit code as the reason; what is next is not begun."""
    begin(scene, "echo broken >&2; exit 3", "touch second")
    told = scene.loomctl("next")
    assert "✗ build/c1: failed (001-build.c1@1): exit code 3" in told.stdout
    assert "broken" in told.stdout
    assert scene.state["status"] == "failed"
    assert scene.state["steps"][0]["failure_reason"] == "exit code 3"
    assert scene.state["errors"][0]["message"] == "exit code 3"
    assert status(scene, "001-build.c1@1")["failure_reason"] == "exit code 3"
    assert scene.state["context"]["command.exit_code"] == 3
    assert not (scene.root / "second").exists()


def test_a_failed_command_is_tried_again_as_a_new_visit(scene: Scene) -> None:
    """As often as `max_retries` says."""
    begin(scene, {"run": "echo x >> tries; test $(wc -l < tries) -gt 2", "max_retries": 2})
    assert scene.loomctl("next").code == EXIT_OK
    assert [(one["visit"], one["status"]) for one in scene.state["steps"] if one["step_id"] == "build/c1"] == [
        (1, "failed"),
        (2, "failed"),
        (3, "succeeded"),
    ]


def test_a_timeout_fails_the_step(scene: Scene) -> None:
    """With what it printed until then."""
    begin(scene, {"run": "echo before; sleep 600", "timeout": 0.5})
    told = scene.loomctl("next", "--json").json
    assert told["ran"][0]["reason"] == "timed out after 0.5 s"
    command = status(scene, "001-build.c1@1")["command"]
    assert (command["timed_out"], blob(scene, command["output"])) == (True, "before\n")


def test_a_long_command_goes_on_and_any_session_waits_for_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`next` returns, saying so; the next one, of another session, sees its end."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"echo there; {gate}; echo gone")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    log = scene.run_dir / "stages/001-build.c1@1/command.log"
    until(lambda: log.read_bytes() == b"there\n")
    told = scene.loomctl("next")
    assert told.code == EXIT_OK
    assert "build/c1 is running for" in told.stdout
    assert "there" in told.stdout
    assert "It goes on by itself" in told.stdout
    pending = scene.loomctl("next", "--json").json["pending"]
    assert (pending["kind"], pending["bytes"], pending["tail"]) == ("running", 6, "there")
    assert scene.state["steps"][0]["status"] == "in_progress"
    monkeypatch.setenv("LOOM_COMMAND_WAIT", PATIENT)
    gate.open()
    assert scene.loomctl("resume", session=OTHER).code == EXIT_OK
    ended = scene.loomctl("next", session=OTHER)
    assert "✓ build/c1: succeeded" in ended.stdout
    assert log.read_bytes() == b"there\ngone\n"
    assert scene.event_names().count("command.started") == 1


def test_two_that_wait_for_one_command_end_it_once(scene: Scene, tmp_path: Path) -> None:
    """It is run once, its visit ends once, both see the step behind it."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"echo x >> {scene.root}/count; {gate}")
    waiting = [_next(scene) for _ in range(2)]
    record(scene, "001-build.c1@1")
    gate.open()
    said = [one.communicate(timeout=60)[0] for one in waiting]
    assert [one.returncode for one in waiting] == [0, 0]
    assert all(json.loads(text)["next"]["id"] == "build/then" for text in said)
    assert (scene.root / "count").read_text() == "x\n"
    assert scene.event_names().count("command.ended") == 1


def _next(scene: Scene, **environ: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", str(MAIN), "next", "--json"],
        cwd=scene.root,
        env={**scene.environ(), **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_who_waits_may_go_and_the_command_goes_on(scene: Scene, tmp_path: Path, number: signal.Signals) -> None:
    """Interrupted, it says so; killed, it says nothing; the command ends as if nobody had waited."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"{gate}; echo went on")
    with _next(scene) as waits:
        record(scene, "001-build.c1@1")
        until(lambda: "command.started" in scene.event_names())
        waits.send_signal(number)
        said, _ = waits.communicate(timeout=60)
    if number == signal.SIGINT:
        assert waits.returncode == ON_INTERRUPT
        error = json.loads(said)["error"]
        assert "goes on; only the waiting for it was interrupted" in error["message"]
        assert error["hint"].startswith("loomctl next")
    gate.open()
    assert "went on" in scene.loomctl("next").stdout
    assert scene.state["steps"][0]["status"] == "succeeded"


@pytest.mark.parametrize("with_waiter", [False, True])
def test_a_command_whose_supervisor_was_killed_fails_as_lost(
    scene: Scene, tmp_path: Path, *, with_waiter: bool
) -> None:
    """With what was logged; it does not run on; whoever waits is told at once, as is who comes later."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"echo before; {gate}")
    log = scene.run_dir / "stages/001-build.c1@1/command.log"
    waits = _next(scene)
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


def test_a_cancelled_run_stops_its_command_and_may_be_taken_up(scene: Scene, tmp_path: Path) -> None:
    """All of its processes end; taken up again, the step is done from its start, what was is kept beside."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"sleep 600 & echo $! > child; {gate}")
    with _next(scene) as waits:
        record(scene, "001-build.c1@1")
        until(lambda: (scene.root / "child").exists() and (scene.root / "child").read_text())
        child = int((scene.root / "child").read_text())
        assert "The command of build/c1 was stopped." in scene.loomctl("cancel").stdout
        said, _ = waits.communicate(timeout=60)
    assert processes.started(child) == ""
    assert json.loads(said)["status"] == "cancelled"
    assert scene.state["steps"][0]["status"] == "in_progress"
    scene.loomctl("resume", "--reopen")
    with _next(scene) as waits:
        until((scene.run_dir / "stages/001-build.c1@1/command.undone-1.log").exists)
        gate.open()
        said, _ = waits.communicate(timeout=60)
    assert json.loads(said)["ran"][0]["status"] == "succeeded"


def test_a_paused_run_lets_its_command_end(scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its end counts once the run is resumed."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"{gate}; exit 0")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    scene.loomctl("pause")
    gate.open()
    path = scene.run_dir / "stages/001-build.c1@1" / command_files.RECORD
    until(lambda: json.loads(path.read_text())["result"])
    assert scene.loomctl("next").code == EXIT_USAGE
    scene.loomctl("resume")
    assert scene.loomctl("next", "--json").json["ran"][0]["status"] == "succeeded"


def test_done_is_no_way_past_a_command(scene: Scene) -> None:
    """The assistant cannot say how a command ended; a person in a terminal can, in words of an outcome."""
    run_id = begin(scene, "exit 1", trusted=False)
    for words in (["done"], ["done", "--outcome", "succeeded"]):
        refused = scene.loomctl(*words, "--json", given="all is well")
        assert (refused.code, refused.json["error"]["code"]) == (EXIT_USAGE, "COMMAND_STEP")
    assert scene.loomctl("done", run_id, "--json", session=None, given="x").json["error"]["code"] == "COMMAND_STEP"
    told = scene.loomctl("done", run_id, "--outcome", "skipped", "--note", "not here", "--json", session=None)
    assert told.json["outcome"] == "skipped"
    assert (scene.state["steps"][0]["status"], scene.state["steps"][0]["note"]) == ("skipped", "not here")


def test_a_person_ends_a_running_command_by_hand(scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is stopped first."""
    gate = Gate(tmp_path / "gate")
    run_id = begin(scene, str(gate))
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    known = record(scene, "001-build.c1@1")
    assert scene.loomctl("done", run_id, "--outcome", "failed", session=None).code == EXIT_OK
    until(lambda: not processes.lives(known["command"]))
    assert scene.state["steps"][0]["status"] == "failed"


def test_undo_takes_a_command_back_and_next_runs_it_again(scene: Scene) -> None:
    """What it printed before is kept beside."""
    begin(scene, "echo x >> count; cat count")
    scene.loomctl("next")
    assert scene.loomctl("undo").code == EXIT_OK
    assert scene.loomctl("next", "--json").json["ran"][0]["tail"] == "x\nx"
    folder = scene.run_dir / "stages/001-build.c1@1"
    assert (folder / "command.undone-1.log").read_text() == "x\n"
    assert (folder / "command.log").read_text() == "x\nx\n"


def test_undo_stops_the_command_that_came_after(scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And when its turn comes again it is run from its start."""
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
    assert "was stopped" in scene.loomctl("undo").stdout
    until(lambda: not processes.lives(known["command"]))
    scene.loomctl("done", given="asked again")
    scene.loomctl("next")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", PATIENT)
    gate.open()
    assert scene.loomctl("next", "--json").json["status"] == "completed"
    assert (scene.root / "count").read_text() == "x\nx\n"


@pytest.mark.parametrize("verb", ["rm", "archive"])
def test_a_run_that_is_put_away_leaves_no_command_behind(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    """By force, while its command runs: nobody could find it later."""
    gate = Gate(tmp_path / "gate")
    run_id = begin(scene, str(gate))
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
    known = record(scene, "001-build.c1@1")
    assert scene.loomctl("runs", verb, run_id, session=None).code != EXIT_OK
    assert processes.lives(known["command"])
    forced = scene.loomctl("runs", verb, run_id, "--force", *(["--yes"] if verb == "rm" else []), session=None)
    assert forced.code == EXIT_OK, forced.stderr
    until(lambda: not processes.lives(known["command"]))


# ---- Trust.


def test_without_trust_nothing_is_run_and_the_way_on_is_said(scene: Scene) -> None:
    """Neither by next nor by any other verb; `trust` without --yes shows and does not trust."""
    run_id = begin(scene, "touch sprung; echo \x1b[31mred", trusted=False)
    told = scene.loomctl("next")
    assert told.code == EXIT_USAGE
    assert "Nothing was run" in told.stdout
    assert f"loomctl trust {run_id}" in told.stdout
    assert "touch sprung; echo ␛[31mred" in told.stdout
    as_json = scene.loomctl("next", "--json")
    assert as_json.code == EXIT_USAGE
    assert as_json.json["pending"]["kind"] == "not_trusted"
    shown = scene.loomctl("trust")
    assert (shown.code, "touch sprung" in shown.stdout) == (EXIT_USAGE, True)
    for words in (["resume"], ["next"], ["prime-context", "--force"], ["show"], ["undo"], ["pause"], ["resume"]):
        scene.loomctl(*words)
    assert not (scene.root / "sprung").exists()
    assert "command.started" not in scene.event_names()


def test_a_run_that_lacks_trust_waits_for_it_and_says_so(scene: Scene) -> None:
    """In its state, once; in what show, runs and a session's start tell; trust puts it under way again (D23)."""
    run_id = begin(scene, "touch fine", "touch fine2", trusted=False)
    for _ in range(3):
        assert scene.loomctl("next").code == EXIT_USAGE
    assert (scene.state["status"], scene.state["feedback"]["kind"]) == ("awaiting_feedback", "trust")
    assert scene.event_names().count("run.awaiting_feedback") == 1
    asked = "trust in its commands: build/c1 (touch fine), build/c2 (touch fine2)"
    shown = scene.loomctl("show").stdout
    assert f"status    awaiting_feedback, waits for “{asked}”" in shown
    assert f"The run waits for its user: {asked}. The user decides: `loomctl trust {run_id}`" in shown
    assert f"loomctl trust {run_id}" in scene.hook("session-start", source="compact").context
    assert "awaiting_feedback" in scene.loomctl("runs").stdout
    trusted = scene.loomctl("trust", "--yes").stdout
    assert f"It waited for that; to go on: loomctl next {run_id}" in trusted
    assert (scene.state["status"], "feedback" in scene.state) == ("in_progress", False)
    assert scene.loomctl("next").code == EXIT_OK
    assert (scene.root / "fine2").exists()
    assert scene.event_names().count("run.feedback_given") == 1


def test_a_run_that_waits_for_trust_goes_on_where_it_is_trusted_already(scene: Scene) -> None:
    """As one that comes back to a machine that knows its commands."""
    begin(scene, "touch fine", trusted=False)
    scene.loomctl("next")
    waiting = scene.state
    scene.loomctl("trust", "--yes")
    scene.edit(**waiting)
    assert scene.loomctl("next").code == EXIT_OK
    assert "feedback" not in scene.state


def test_a_stop_says_that_a_run_waits_for_trust(scene: Scene) -> None:
    """Once, in a line of its own: which run, for which commands, and what to type; nothing is handed on for ever."""
    phases = {"build": {"steps": [{"id": "ask", "prompt": "x"}, {"id": "c1", "run": "touch fine"}]}}
    scene.workflow(phases=phases, autonomy="autonomous")
    run_id = scene.begin().run.run_id
    scene.loomctl("done", given="asked")
    line = (
        f"Loom: the run {run_id} waits for your trust in its commands: build/c1 (touch fine). "
        f"To decide: loomctl trust {run_id}"
    )
    stopped = scene.hook("stop", last_assistant_message="I am done.", prompt_id="p1")
    assert (stopped.message, stopped.json.get("decision")) == (line, None)
    assert scene.state["status"] == "awaiting_feedback"
    assert scene.hook("stop", last_assistant_message="As I said.", prompt_id="p2").stdout == ""


def test_a_step_that_a_stop_ends_before_an_untrusted_command(scene: Scene) -> None:
    """A turn that Loom does not drive ends with both: how the step ended, and what the run waits for."""
    phases = {"build": {"steps": [{"id": "ask", "prompt": "x"}, {"id": "c1", "run": "touch fine"}]}}
    scene.workflow(phases=phases, autonomy="autonomous")
    run_id = scene.begin().run.run_id
    stopped = scene.hook("stop", last_assistant_message='{"outcome": "succeeded"}', prompt_id="p1")
    first, second = stopped.message.split("\n")
    assert first == "Loom: build/ask succeeded. Now: build/c1"
    assert second.startswith(f"Loom: the run {run_id} waits for your trust")
    assert scene.state["status"] == "awaiting_feedback"


def test_hooks_run_no_commands(scene: Scene) -> None:
    """Trusted or not: whatever event comes."""
    begin(scene, "touch sprung")
    for event, told in (
        ("session-start", {"source": "startup"}),
        ("session-start", {"source": "compact"}),
        ("pre-tool-use", {"tool_name": "Bash", "tool_input": {"command": "loomctl next"}}),
        ("stop", {"stop_hook_active": False}),
        ("user-prompt-submit", {"prompt": "x"}),
        ("session-end", {"reason": "other"}),
    ):
        scene.hook(event, **told)
    assert not (scene.root / "sprung").exists()


@pytest.mark.parametrize("field", ["run", "workdir"])
def test_a_plan_that_was_changed_is_not_trusted_any_more(scene: Scene, field: str) -> None:
    """What counts is what would be run, not what the plan lists; put back as it was, it is trusted again."""
    (scene.root / "sub").mkdir(parents=True, exist_ok=True)
    begin(scene, "touch fine")
    phases = scene.edit_plan()["phases"]
    before = json.dumps(phases)
    phases[0]["steps"][0][field] = "touch sprung" if field == "run" else "sub"
    scene.edit_plan(phases=phases)
    assert scene.loomctl("next").code == EXIT_USAGE
    assert [path.name for path in scene.root.rglob("*") if path.name in ("sprung", "fine")] == []
    scene.edit_plan(phases=json.loads(before))
    assert scene.loomctl("next").code == EXIT_OK
    assert (scene.root / "fine").exists()


def test_a_state_that_changes_what_would_be_run_is_not_trusted(scene: Scene) -> None:
    """A placeholder's value is a part of the command, and is quoted where it stands."""
    scene.workflow(phases=steps("echo {work_id} > told"))
    scene.begin("ABC-12")
    scene.loomctl("trust", "--yes")
    scene.edit(work_id="x; touch sprung")
    refused = scene.loomctl("next")
    assert refused.code == EXIT_USAGE
    assert "echo 'x; touch sprung' > told" in refused.stdout
    scene.loomctl("trust", "--yes")
    scene.loomctl("next")
    assert not (scene.root / "sprung").exists()
    assert (scene.root / "told").read_text() == "x; touch sprung\n"


def test_trust_that_cannot_be_kept_is_no_trust(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and nothing is run."""
    begin(scene, "touch sprung", trusted=False)
    for folder in (Path(os.environ["LOOM_STATE_HOME"]) / "runs").glob("*"):
        folder.unlink()
    monkeypatch.setenv("LOOM_STATE_HOME", "/proc/nowhere")
    assert scene.loomctl("trust", "--yes", "--json").json["error"]["code"] == "NOT_REMEMBERED"
    assert scene.loomctl("next").code == EXIT_USAGE
    assert not (scene.root / "sprung").exists()


def test_what_is_to_be_trusted_is_shown_unmasked_or_not_trusted(scene: Scene) -> None:
    """A mask would hide what runs: in a session trust is refused then, in a terminal all of it is shown."""
    command = "API_KEY=sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z-$(touch sprung) true"
    run_id = begin(scene, command, trusted=False)
    refused = scene.loomctl("trust", "--yes", "--json").json["error"]
    assert refused["code"] == "NOT_CONFIRMED"
    assert scene.loomctl("next").code == EXIT_USAGE
    assert command in scene.loomctl("trust", run_id, "--yes", session=None).stdout


def test_a_dry_run_lists_the_commands(scene: Scene) -> None:
    """All of them, with where they work, and runs none."""
    scene.workflow(phases=steps("touch sprung", {"run": "a\nb", "workdir": "sub"}))
    told = scene.loomctl("run", "x", "--workflow", "tiny", "--dry-run")
    assert "build/c1:\n      touch sprung\n" in told.stdout
    assert "build/c2 (in sub):\n      a\n      b\n" in told.stdout
    as_json = scene.loomctl("run", "x", "--workflow", "tiny", "--dry-run", "--json").json
    assert as_json["commands"][1] == {"step": "build/c2", "run": "a\nb", "workdir": "sub"}


def test_check_lists_the_commands_of_a_workflow(scene: Scene) -> None:
    """With their steps and folders, those of its ancestors too, and none of a step that is left out; whole."""
    scene.workflow(phases=steps("echo {work_id}", {"run": "a\nb", "workdir": "sub"}, "never"), name="base")
    child = {"id": "child", "extends": "base", "skip_steps": ["c3"]}
    scene.write(".loom/workflows/child.json", json.dumps(child))
    told = scene.loomctl("check", "child")
    assert told.code == EXIT_OK
    assert told.stdout == (
        "child: ok\nchild: it runs, in a shell:\n  build/c1:\n      echo {work_id}\n"
        "  build/c2 (in sub):\n      a\n      b\n"
    )
    (found,) = scene.loomctl("check", "child", "--json").json["files"]
    assert found["commands"] == [
        {"step": "build/c1", "run": "echo {work_id}"},
        {"step": "build/c2", "run": "a\nb", "workdir": "sub"},
    ]
    assert scene.loomctl("check", "core", "--json").json["files"][0]["commands"] == []


# ---- Where and how they run.


def test_a_command_works_in_the_projects_root_or_below(scene: Scene) -> None:
    """Wherever `next` is called; a folder of the step's own is below the project."""
    (scene.root / "sub é").mkdir(parents=True)
    begin(scene, "pwd", {"run": "pwd", "workdir": "sub é"}, {"run": "pwd", "workdir": "{run_dir}"})
    told = scene.loomctl("next", "--json", cwd=scene.root / "sub é").json
    assert [one["tail"] for one in told["ran"]] == [str(scene.root), str(scene.root / "sub é"), str(scene.run_dir)]


@pytest.mark.parametrize("workdir", ["/", "link", "/etc"])
def test_a_workdir_outside_is_refused(scene: Scene, workdir: str) -> None:
    """Also by a link; nothing is run (D10)."""
    (scene.root / "link").symlink_to("/")
    begin(scene, {"run": "touch sprung", "workdir": workdir})
    assert scene.loomctl("next", "--json").json["error"]["code"] == "PATH_ESCAPE"


def test_a_workdir_that_is_not_there_fails_the_step(scene: Scene) -> None:
    """A step before it may have been meant to make it."""
    begin(scene, {"run": "true", "workdir": "gone"})
    told = scene.loomctl("next", "--json").json
    assert told["ran"][0]["reason"].startswith("it could not be started: No such file or directory")


def test_a_command_knows_what_it_runs_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """And has the user's environment, without what Loom set for itself."""
    monkeypatch.setenv("LOOM_ENV_PYTHON", "/cache/loom/env-1/bin/python")
    monkeypatch.setenv("LOOM_PLUGIN_ROOT", "/bundle")
    monkeypatch.setenv("VIRTUAL_ENV", "/cache/loom/env-1")
    monkeypatch.setenv("PATH", f"/cache/loom/env-1/bin:{os.environ['PATH']}")
    monkeypatch.setenv("MINE", "ä b")
    run_id = begin(scene, "env")
    scene.loomctl("next")
    log = (scene.run_dir / "stages/001-build.c1@1/command.log").read_text(encoding="utf-8")
    found = dict(line.partition("=")[::2] for line in log.splitlines())
    assert (found["LOOM_RUN_ID"], found["LOOM_STEP_ID"]) == (run_id, "build/c1")
    assert found["LOOM_STAGE_DIR"] == str(scene.run_dir / "stages/001-build.c1@1")
    assert (found["MINE"], found["PWD"]) == ("ä b", str(scene.root))
    assert not {"LOOM_ENV_PYTHON", "LOOM_PLUGIN_ROOT", "VIRTUAL_ENV"} & set(found)
    assert "/cache/loom/env-1/bin" not in found["PATH"].split(":")


def test_a_command_cannot_wait_for_itself(scene: Scene) -> None:
    """`loomctl next` within it is refused, so that it ends."""
    begin(scene, f"'{sys.executable}' -I '{MAIN}' next")
    told = scene.loomctl("next", "--json").json
    assert told["ran"][0]["status"] == "failed"
    assert "WITHIN_COMMAND" in told["ran"][0]["tail"]


def test_what_a_command_printed_is_told_masked_and_bounded(scene: Scene) -> None:
    """Secrets masked, controls visible, a progress bar as it ended, the newest lines; the log has all of it."""
    begin(
        scene,
        "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; "
        "echo token gh''p_0123456789abcdefghijABCDEFGHIJ012345; "
        "printf '10%%\\r50%%\\r100%%\\n\\033[1mbold\\n```\\n'; exit 1",
    )
    told = scene.loomctl("next").stdout
    assert "ghp_0123" not in told
    assert "\n100%\n␛[1mbold\n```\n" in told
    assert "line 2999" in told
    assert "line 100\n" not in told
    assert "````text" in told
    assert b"10%\r50%" in (scene.run_dir / "stages/001-build.c1@1/command.log").read_bytes()


def test_one_endless_line_is_told_by_its_end(scene: Scene) -> None:
    """And does not fill the answer."""
    begin(scene, f"head -c {4 * REFUSE_BYTES} /dev/zero | tr '\\000' ä; echo END; exit 1")
    told = scene.loomctl("next").stdout
    assert "END" in told
    assert len(told.encode()) < 8000


def test_nothing_printed_is_said(scene: Scene) -> None:
    """Its output is a blob all the same."""
    begin(scene, "true")
    assert "It printed nothing." in scene.loomctl("next").stdout
    assert blob(scene, scene.state["context"]["command.output"]) == ""


def test_a_step_that_needs_what_the_run_lacks_is_no_run(scene: Scene) -> None:
    """Before anything is written: a placeholder without a value, one that cannot be quoted."""
    scene.workflow(phases=steps("echo {work_id}"))
    refused = scene.loomctl("run", "no id", "--workflow", "tiny", "--json").json["error"]
    assert refused["code"] == "UNRESOLVED_PLACEHOLDER"
    odd = Scene(scene.root.parent / "an odd $place")
    odd.workflow(phases=steps("cat <<X\n{project_root}\nX"))
    refused = odd.loomctl("run", "x", "--workflow", "tiny", "--json").json["error"]
    assert refused["code"] == "PLACEHOLDER_UNQUOTABLE"
    assert odd.run_dirs == []


def test_a_project_in_an_odd_place_runs_its_commands(scene: Scene) -> None:
    """Spaces, quotes, other letters."""
    odd = Scene(scene.root.parent / 'mein Gärtchen\'s "$HOME"')
    odd.workflow(
        phases=steps("test -d {project_root} && test -d \"{project_root}\" && test -d '{run_dir}' && echo all")
    )
    odd.begin()
    odd.loomctl("trust", "--yes")
    assert odd.loomctl("next", "--json").json["ran"][0]["tail"] == "all"


# ---- What is told of it (D39-D41).


def told(scene: Scene) -> list[tuple[str, Json]]:
    """Give the events of commands, in their order, with what they say."""
    return [(event["event"], event["properties"]) for event in scene.events() if event["event"].startswith("command.")]


def how_ended(scene: Scene) -> Json:
    """Give how the only command that began ended; fails where that was not told once, or its start was not."""
    (began, _), (ended, properties) = told(scene)
    assert (began, ended) == ("command.started", "command.ended")
    keys = ("exit_code", "timed_out", "stopped", "lost", "error")
    properties.setdefault("error", None)
    return {key: properties[key] for key in keys if properties[key] is not None and properties[key] is not False}


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
    """An exit code, a timeout, or that it never came to run."""
    begin(scene, step)
    scene.loomctl("next")
    expected = {key: value.format(root=scene.root) if isinstance(value, str) else value for key, value in how.items()}
    assert how_ended(scene) == expected


@pytest.mark.parametrize("words", [["cancel"], ["undo"], ["done", "--outcome", "skipped"]])
def test_a_command_that_somebody_ends_is_told_as_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    """Once, also where the step is done again after that."""
    gate = Gate(tmp_path / "gate")
    scene.workflow(phases={"build": {"steps": [{"id": "ask", "prompt": "x"}, {"id": "c1", "run": str(gate)}]}})
    run_id = scene.begin().run.run_id
    scene.loomctl("trust", "--yes")
    scene.loomctl("done", given="asked")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", AT_ONCE)
    scene.loomctl("next")
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


def test_who_waits_for_a_command_that_is_stopped_does_not_end_its_step(scene: Scene, tmp_path: Path) -> None:
    """Nobody but who stopped it says what becomes of it; stopped by a shutdown, it is run again from its start."""
    gate = Gate(tmp_path / "gate")
    begin(scene, f"echo x >> count; {gate}")
    with _next(scene) as waits:
        supervisor = record(scene, "001-build.c1@1")["supervisor"]
        os.kill(supervisor["pid"], signal.SIGTERM)
        said, _ = waits.communicate(timeout=60)
    assert json.loads(said)["pending"]["kind"] == "stopped"
    assert scene.state["steps"][0]["status"] == "in_progress"
    assert how_ended(scene) == {"stopped": True}
    with _next(scene) as waits:
        until(lambda: [name for name, _ in told(scene)].count("command.started") == 2)
        gate.open()
        waits.communicate(timeout=60)
    assert scene.state["steps"][0]["status"] == "succeeded"
    assert [name for name, _ in told(scene)] == ["command.started", "command.ended"] * 2


def test_a_next_that_was_killed_before_it_told_of_a_start_is_stood_in_for(scene: Scene, tmp_path: Path) -> None:
    """By the next that waits; the start is told once, and so is the end."""
    gate = Gate(tmp_path / "gate")
    begin(scene, str(gate))
    with _next(scene) as starts:
        known = record(scene, "001-build.c1@1")
        until(lambda: "command.started" in scene.event_names())
        starts.kill()
    forget_last_event(scene, "command.started")
    os.kill(known["supervisor"]["pid"], signal.SIGKILL)
    scene.loomctl("next")
    assert how_ended(scene) == {"lost": True}


def forget_last_event(scene: Scene, name: str) -> None:
    """Take the last event off the log, as if its writer had been killed before it wrote it."""
    path = scene.run_dir / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert json.loads(lines[-1])["event"] == name
    path.write_text("".join(lines[:-1]), encoding="utf-8")


def test_a_command_whose_record_is_gone_is_lost_and_not_run_twice(scene: Scene) -> None:
    """One that removes its stage's folder, or all of the run's stages, ends as nobody can know."""
    begin(scene, f"echo x >> '{scene.root}/count'; rm -rf \"$LOOM_STAGE_DIR\"; sleep 1")
    told_of = scene.loomctl("next", "--json").json
    assert told_of["ran"][0]["reason"].startswith("lost: ")
    assert (scene.root / "count").read_text() == "x\n"
    assert how_ended(scene) == {"lost": True}


# ---- At a terminal.


@pytest.mark.parametrize(("typed", "trusted"), [("y\n", True), ("n\n", False), ("\x04", False)])
def test_a_person_who_starts_a_run_is_asked(scene: Scene, typed: str, *, trusted: bool) -> None:
    """With all commands before their eyes; whatever is no yes is a no."""
    scene.workflow(phases=steps("touch fine; API_KEY=sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z true"))
    seen = at_a_terminal(scene, "run", "add dark mode", "--workflow", "tiny", typed=typed)
    assert "      touch fine; API_KEY=sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z true\n" in seen
    assert "Trust these commands on this machine?" in seen
    assert ("Its commands are trusted on this machine." in seen) is trusted
    assert ("none of them is run" in seen) is not trusted
    scene.loomctl("next", scene.run_dir.name, session=None)
    assert (scene.root / "fine").exists() is trusted


def test_a_person_who_waits_sees_how_far_a_command_is(scene: Scene, tmp_path: Path) -> None:
    """A line that is written over and over, and is gone at the end."""
    gate = Gate(tmp_path / "gate")
    run_id = begin(scene, f"echo working on it; {gate}")
    terminal = Terminal(loomctl("next", run_id), scene, streams=("stderr",))
    terminal.until("build/c1: ", "working on it")
    gate.open()
    said, _ = terminal.child.communicate(timeout=60)
    assert terminal.end().endswith("\r\x1b[K")
    assert b"succeeded" in said
