"""Runs that came with a project, sessions that are not the driver's, links that lead away (D1, D10, D23, D27, D29)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loomctl.flow import advance, resume
from loomctl.kit.errors import EXIT_USAGE
from loomctl.runs.machine import run_notes
from loomctl.runs.machine.local import Local
from loomctl.runs.project import Workspace
from loomctl.runs.tools import recording
from tests.helpers.errors import refused
from tests.helpers.scenes import MAIN, OTHER, SESSION, Scene, artifact, handle, run
from tests.helpers.tables import each
from tests.helpers.verbs import done, go_on, read, statuses

ASK = "001-frame.ask@1"


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.write("spec.md", "The contrast is seven to one.\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    return scene


def forget(scene: Scene) -> str:
    run_id = scene.run_dir.name
    run_notes.forget_known(run_id, str(scene.store))
    return run_id


@pytest.mark.shows("not a word of their content is given until you resume or trust it")
def test_a_run_that_came_along_is_not_primed_by_a_plain_command(begun: Scene) -> None:
    """prime-context without an id does not take up what nobody here has taken up; the error says how (D23)."""
    run_id = forget(begun)
    ended = begun.loomctl("prime-context", session=OTHER)
    assert ended.code == 3
    assert "seven to one" not in ended.stdout
    assert f"loomctl resume {handle(run_id)}" in ended.stderr


@pytest.mark.parametrize("verb", ["next", "done", "undo"])
@pytest.mark.shows("It cannot prime a session with a run that you did not take up")
def test_a_run_that_came_along_is_not_driven_by_its_name(begun: Scene, verb: str) -> None:  # D23
    begun.let_go()
    run_id = forget(begun)
    ended = begun.loomctl(verb, run_id, "--json", session=OTHER, given="x")
    assert (ended.code, ended.json["error"]["code"]) == (3, "NOT_KNOWN_HERE")


@pytest.mark.shows("can neither approve, reject, choose, pause, cancel nor trust it")
def test_another_session_does_not_decide_for_the_user(begun: Scene) -> None:
    """An assistant's session that does not drive the run can neither approve nor cancel it (D29)."""
    for verb in ("approve", "cancel", "pause"):
        ended = begun.loomctl(verb, begun.run_dir.name, "--json", session=OTHER)
        assert ended.json["error"]["code"] == "NOT_BOUND"
    assert begun.state["status"] == "in_progress"


def test_a_session_cannot_end_a_step_that_it_was_not_told_of(begun: Scene) -> None:
    """Of two sessions bound to a run the slower one is told that its step has ended, and nothing is changed (D67)."""
    resume.resume(begun.space(OTHER), begun.run_dir.name, take_over=True)
    done(begun, "mine was first", session=OTHER)
    begun.let_go()
    assert done(begun, "I am late").had_ended
    assert statuses(begun) == ["succeeded", "in_progress"]
    go_on(begun)
    done(begun, "now I know")


def test_of_two_calls_at_once_the_later_does_not_end_the_step_behind(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An assistant that calls `done` twice in one message has worked on one step, not on two."""
    recorded = recording.noted

    def meanwhile(space: Workspace) -> list[str]:
        monkeypatch.setattr(recording, "noted", recorded)
        done(begun, "first")
        return recorded(space)

    monkeypatch.setattr(recording, "noted", meanwhile)
    assert done(begun, "second").had_ended
    assert statuses(begun) == ["succeeded", "in_progress"]


def test_a_closing_step_is_closed_by_its_own_conversation(begun: Scene) -> None:
    """Another session's Stop or start leaves it alone; once the first is dead, its candidate is taken (D27)."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as host:
        mine = {"CLAUDE_PID": str(host.pid)}
        begun.hook("session-start", source="resume", environ=mine)
        begun.hook("stop", last_assistant_message="half of it is done", environ=mine)
        done(begun, None)
        begun.space().local.bind(OTHER, begun.run_dir.name, host="claude-code", pid=None)
        begun.hook("stop", session=OTHER, last_assistant_message="not about that step")
        begun.hook("session-start", session=OTHER, source="resume")
        assert statuses(begun)[0] == "closing"
        host.communicate(b"\n")
    begun.hook("session-start", session=OTHER, source="resume")
    assert (statuses(begun)[0], read(begun, ASK, "response.md")) == ("succeeded", "half of it is done")


def test_a_linked_stage_folder_is_not_written_through(begun: Scene, tmp_path: Path) -> None:  # D10
    outside = tmp_path / "outside"
    outside.mkdir()
    stage = begun.run_dir / "stages" / ASK
    shutil.rmtree(stage)
    stage.symlink_to(outside)
    assert begun.loomctl("done", "--json", given="the result").json["error"]["code"] == "UNSAFE_LINK"
    assert list(outside.iterdir()) == []


def test_a_linked_run_folder_is_not_read(begun: Scene, tmp_path: Path) -> None:
    """A run whose folder is a link is refused, and the hook says so instead of failing."""
    moved = tmp_path / "elsewhere"
    run_dir = begun.run_dir
    run_dir.rename(moved)
    run_dir.symlink_to(moved)
    assert begun.loomctl("show", run_dir.name, "--json").json["error"]["code"] == "UNSAFE_LINK"
    assert begun.hook("session-start", source="startup").code == 0


def test_an_unreadable_run_is_not_passed_over(begun: Scene) -> None:
    """A new session is told that a state cannot be read, and so is who asks for the active run."""
    (begun.run_dir / "state.json").write_text("{torn")
    assert "cannot read the state" in begun.hook("session-start", session=OTHER, source="startup").message
    error = begun.loomctl("resume", "--json", session=OTHER).json["error"]
    assert begun.run_dir.name in error["where"]


def test_a_run_is_not_started_where_every_folder_would_share_it(scene: Scene) -> None:
    """At home, outside of any repository, and at the file system's root; the hint names folders, not an empty word."""
    home = Path(os.environ["HOME"])
    environ = {key: value for key, value in scene.environ().items() if key != "CLAUDE_PROJECT_DIR"}
    command = [sys.executable, "-I", str(MAIN), "run", "x", "--workflow", "core", "--json"]
    ended = run(command, cwd=home, environ=environ)
    assert (ended.code, ended.json["error"]["code"], (home / ".loom").exists()) == (2, "NO_PROJECT", False)
    error = run(command, cwd=Path("/"), environ=environ).json["error"]
    assert (error["code"], error["hint"]) == ("NO_PROJECT", "ls -d /*/.git")


@each("named", [True, False])
def test_an_approval_from_a_terminal_does_not_take_the_phase_from_its_session(scene: Scene, named: bool) -> None:
    """The phase was completed during the session that worked on it (D25); the only run needs no name."""
    scene.workflow(autonomy={"level": "guarded", "require_approval_for": ["build"]})
    scene.begin()
    done(scene, "asked")
    assert scene.loomctl("approve", *([scene.run_dir.name] if named else []), session=None).code == 0
    (record,) = scene.state["sessions"]["session_history"]
    assert (record["session_id"], record["phases_completed"]) == (SESSION, ["frame"])
    assert scene.state["current_step"] == "build/make"


def test_a_step_that_is_tried_again_says_so(scene: Scene) -> None:
    """After a failure with retries left the answer tells that it is the same step again."""
    scene.workflow(phases={"a": {"steps": [{"id": "x", "prompt": "Try it.", "max_retries": 1}]}})
    scene.begin()
    answer = scene.loomctl("done", "--outcome", "failed", given="no").stdout
    assert all(words in answer for words in ("✗ a/x: failed", "Next: a/x, again"))


def test_a_step_that_a_live_session_is_ending_is_left_to_it(begun: Scene) -> None:
    """Neither another session's nor a terminal's next or done closes it; its own final message does (D27)."""
    run_id = begun.run_dir.name
    done(begun, None)
    for space in (begun.space(OTHER), begun.space("terminal-1", host="terminal")):
        with refused("HELD_BY_ANOTHER", exit_code=6):
            advance.next_step(space, run_id)
    begun.hook("stop", last_assistant_message="this is the result")
    assert read(begun, ASK, "response.md") == "this is the result"


def test_a_terminal_waits_for_nobodys_message(begun: Scene) -> None:
    """What an assistant says next is not the result of a step that a person ends in a terminal (D67)."""
    begun.let_go()
    with refused("NO_RESPONSE", exit_code=EXIT_USAGE):
        advance.done(begun.space("terminal-1", host="terminal"), begun.run_dir.name, response=None)
    begun.hook("stop", last_assistant_message="what is for lunch?")
    assert statuses(begun)[0] == "in_progress"


def test_a_session_cannot_take_back_what_another_live_one_did(begun: Scene) -> None:
    """A named run is left alone by a session that is not bound to it while one that is lives."""
    done(begun, "done")
    ended = begun.loomctl("undo", begun.run_dir.name, "--json", session=OTHER)
    assert (ended.code, ended.json["error"]["code"]) == (6, "HELD_BY_ANOTHER")


def test_a_binding_that_was_copied_along_does_not_count(begun: Scene, tmp_path: Path) -> None:
    copy = shutil.copytree(begun.root, tmp_path / "copy")
    assert Local(str(copy / ".loom" / "local")).bindings() == []
    assert begun.space().local.live_sessions(begun.run_dir.name) == [SESSION]


def test_a_dead_sessions_closing_step_takes_nobody_elses_message(begun: Scene) -> None:
    """A Stop gives its message to its own session's step alone; the dead one's is closed at the next command (D27)."""
    done(begun, None)
    begun.space().local.bind(OTHER, begun.run_dir.name, host="claude-code", pid=None)
    begun.space(SESSION).local.mark_ended(SESSION)
    begun.let_go()
    begun.hook("stop", session=OTHER, last_assistant_message="what is for lunch?")
    assert statuses(begun)[0] == "closing"
    driven = advance.next_step(begun.space(OTHER), begun.run_dir.name)
    assert (driven.ended, statuses(begun)[0]) == (None, "in_progress")  # there is no result (D67)
    assert not (begun.run_dir / "stages" / ASK / "response.md").exists()
