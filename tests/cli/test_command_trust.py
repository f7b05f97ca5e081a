"""Commands are trusted before they are run: what is shown, who is asked, and how a run waits for it (D23)."""

import json
import os
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_OK, EXIT_USAGE
from tests.cli.commands import begin, steps
from tests.cli.terminal import at_a_terminal
from tests.helpers.scenes import Scene, handle
from tests.helpers.texts import holds


@pytest.mark.slow
@pytest.mark.shows("after you have trusted exactly that")
def test_without_trust_nothing_is_run_and_the_way_on_is_said(scene: Scene) -> None:
    run_id = begin(scene, "touch sprung; echo \x1b[31mred", trusted=False)
    told = scene.loomctl("next").ends(EXIT_USAGE)
    holds(told.stdout, "Loom ran nothing", f"loomctl trust {handle(run_id)}", "touch sprung; echo ␛[31mred")
    assert scene.loomctl("next", "--json").ends(EXIT_USAGE).json["pending"]["kind"] == "not_trusted"
    shown = scene.loomctl("trust")
    assert (shown.code, "touch sprung" in shown.stdout) == (EXIT_USAGE, True)
    for words in (["resume"], ["next"], ["prime-context", "--force"], ["show"], ["undo"], ["pause"], ["resume"]):
        scene.loomctl(*words)
    assert not (scene.root / "sprung").exists()
    assert "command.started" not in scene.event_names()


@pytest.mark.slow
def test_a_run_that_lacks_trust_waits_for_it_and_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its state, once; in what show, runs and a session's start tell; trust puts it under way again (D23)."""
    monkeypatch.setenv("COLUMNS", "300")
    run_id = begin(scene, "touch fine", "touch fine2", trusted=False)
    for _ in range(3):
        assert scene.loomctl("next").code == EXIT_USAGE
    assert (scene.state["status"], scene.state["feedback"]["kind"]) == ("awaiting_feedback", "trust")
    assert scene.event_names().count("run.awaiting_feedback") == 1
    asked = "trust in its commands: build/c1 (touch fine), build/c2 (touch fine2)"
    shown = scene.loomctl("show").stdout
    assert f"status    awaiting_feedback, waits for “{asked}”" in shown
    assert f"The run waits for the user: {asked}. Ask the user to run `loomctl trust {handle(run_id)}`" in shown
    assert f"loomctl trust {handle(run_id)}" in scene.hook("session-start", source="compact").context
    assert "awaiting_feedback" in scene.loomctl("runs").stdout
    assert f"The run waited for this. To go on: loomctl next {handle(run_id)}" in scene.loomctl("trust", "--yes").stdout
    assert (scene.state["status"], "feedback" in scene.state) == ("in_progress", False)
    assert scene.loomctl("next").code == EXIT_OK
    assert (scene.root / "fine2").exists()
    assert scene.event_names().count("run.feedback_given") == 1


@pytest.mark.parametrize("kind", ["a command step", "evidence"])
def test_status_says_that_trust_is_what_a_step_lacks(scene: Scene, kind: str) -> None:
    """Of a command step before anybody tried it; of evidence once a result was given that it keeps open."""
    step = {"id": "c1", "run": "touch sprung"} if kind == "a command step" else {"id": "c1", "prompt": "Make it."}
    evidence = {"evidence": [{"run": "touch sprung"}]} if kind == "evidence" else {}
    scene.workflow(phases={"build": {"steps": [{**step, **evidence}]}})
    scene.begin()
    if evidence:
        assert scene.loomctl("status", "--json").json["waits"]["for"] == "assistant"
        scene.loomctl("done", given="It is made.")
    told = scene.loomctl("status", "--json").json
    assert told["waits"] == {"for": "user", "why": "trust in its commands: build/c1 (touch sprung)"}
    assert told["next"] == f"loomctl trust {scene.handle}"
    assert scene.loomctl("statusline").stdout.rstrip().endswith("next: trust")
    scene.loomctl("trust", "--yes")
    assert scene.loomctl("status", "--json").json["waits"]["for"] == ("assistant" if evidence else "loom")


def test_a_run_that_waits_for_trust_goes_on_where_it_is_trusted_already(scene: Scene) -> None:
    begin(scene, "touch fine", trusted=False)
    scene.loomctl("next")
    waiting = scene.state
    scene.loomctl("trust", "--yes")
    scene.edit(**waiting)
    assert scene.loomctl("next").code == EXIT_OK
    assert "feedback" not in scene.state


def test_a_stop_says_that_a_run_waits_for_trust(scene: Scene) -> None:
    phases = {"build": {"steps": [{"id": "ask", "prompt": "x"}, {"id": "c1", "run": "touch fine"}]}}
    scene.workflow(phases=phases, autonomy="autonomous")
    run_id = scene.begin().run.run_id
    scene.loomctl("done", given="asked")
    line = (
        f"Loom: the run {handle(run_id)} waits for your trust in its commands: build/c1 (touch fine). "
        f"To decide: loomctl trust {handle(run_id)}"
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
    assert first == "Loom: build/ask succeeded. Next: build/c1"
    assert second.startswith(f"Loom: the run {handle(run_id)} waits for your trust")
    assert scene.state["status"] == "awaiting_feedback"


@pytest.mark.shows("never by a hook")
def test_hooks_run_no_commands(scene: Scene) -> None:
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
@pytest.mark.shows("A plan or a state that was changed since makes them untrusted")
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


@pytest.mark.slow
@pytest.mark.shows("A plan or a state that was changed since makes them untrusted")
def test_a_state_that_changes_what_would_be_run_is_not_trusted(scene: Scene) -> None:
    scene.workflow(phases=steps("echo {work_id} > told"))
    scene.begin("ABC-12")
    scene.loomctl("trust", "--yes")
    scene.edit(work_id="x; touch sprung")
    assert "echo 'x; touch sprung' > told" in scene.loomctl("next").ends(EXIT_USAGE).stdout
    scene.loomctl("trust", "--yes")
    scene.loomctl("next")
    assert not (scene.root / "sprung").exists()
    assert (scene.root / "told").read_text() == "x; touch sprung\n"


def test_trust_that_cannot_be_kept_is_no_trust(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert scene.loomctl("trust", "--yes", "--json").json["error"]["code"] == "NOT_CONFIRMED"
    assert scene.loomctl("next").code == EXIT_USAGE
    assert command in scene.loomctl("trust", run_id, "--yes", session=None).stdout


def test_a_dry_run_lists_the_commands(scene: Scene) -> None:
    scene.workflow(phases=steps("touch sprung", {"run": "a\nb", "workdir": "sub"}))
    told = scene.loomctl("run", "x", "--workflow", "tiny", "--dry-run")
    holds(told.stdout, "build/c1:\n      touch sprung\n", "build/c2 (in sub):\n      a\n      b\n")
    as_json = scene.loomctl("run", "x", "--workflow", "tiny", "--dry-run", "--json").json
    assert as_json["commands"][1] == {"step": "build/c2", "run": "a\nb", "workdir": "sub"}


@pytest.mark.slow
def test_check_lists_the_commands_of_a_workflow(scene: Scene) -> None:
    scene.workflow(phases=steps("echo {work_id}", {"run": "a\nb", "workdir": "sub"}, "never"), name="base")
    child = {"id": "child", "extends": "base", "skip_steps": ["c3"]}
    scene.write(".loom/workflows/child.json", json.dumps(child))
    told = scene.loomctl("check", "child").ends()
    assert told.stdout == (
        "child: ok\nchild: it runs these commands in a shell:\n  build/c1:\n      echo {work_id}\n"
        "  build/c2 (in sub):\n      a\n      b\n"
    )
    (found,) = scene.loomctl("check", "child", "--json").json["files"]
    assert found["commands"] == [
        {"step": "build/c1", "run": "echo {work_id}"},
        {"step": "build/c2", "run": "a\nb", "workdir": "sub"},
    ]
    assert scene.loomctl("check", "core", "--json").json["files"][0]["commands"] == []


@pytest.mark.parametrize(("typed", "trusted"), [("y\n", True), ("n\n", False), ("\x04", False)])
def test_a_person_who_starts_a_run_is_asked(scene: Scene, typed: str, *, trusted: bool) -> None:
    scene.workflow(phases=steps("touch fine; API_KEY=sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z true"))
    seen = at_a_terminal(scene, "run", "add dark mode", "--workflow", "tiny", typed=typed)
    assert "      touch fine; API_KEY=sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z true\n" in seen
    assert "Allow these commands on this machine?" in seen
    assert ("Loom may run these commands on this machine." in seen) is trusted
    assert ("Loom will not run this run's commands" in seen) is not trusted
    scene.loomctl("next", scene.run_dir.name, session=None)
    assert (scene.root / "fine").exists() is trusted
