"""`loomctl pause --after-step`: the open step is worked on to its end, and the run goes no further."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loomctl.flow import advance, decide, fork, resume, rewind, start
from loomctl.flow import stop as stopping
from loomctl.runs.model import standing
from tests.helpers.errors import refusal
from tests.helpers.scenes import OTHER, Json, Scene, TranscriptFile
from tests.helpers.tables import each
from tests.helpers.verbs import begin, done, events, go_on, read, stand, statuses, stop, take_back

ALLOWED = ("in_progress", "awaiting_feedback")
GOOD = '{"outcome": "succeeded", "context_updates": {"coverage": 72}}'
ONE = "001-build.one@1"


def asked(scene: Scene, *, wanted: bool = True, session: str | None = None, host: str = "terminal") -> Json:
    """Ask for a pause, as a person in a terminal does; gives the state."""
    space = scene.space(session, host=host)
    stopping.pause_after_step(space, scene.run_dir.name, allowed=ALLOWED, wanted=wanted)
    return scene.state


@each(
    "end",
    [
        done,
        lambda scene: done(scene, outcome="skipped"),
        lambda scene: stop(scene, GOOD),
        lambda scene: (done(scene, None), stop(scene, "It is done.")),
    ],
)
def test_the_run_pauses_when_the_open_step_has_ended(scene: Scene, end: Callable[[Scene], object]) -> None:
    """Not before; nobody is sent on; and resume goes on with the next step."""
    begin(scene, "one", "two", autonomy="autonomous")
    assert asked(scene)["status"] == "in_progress"
    assert standing.pauses_after(scene.state) == "build/one"
    assert go_on(scene).move.step == "build/one"
    end(scene)
    assert (scene.state["status"], len(statuses(scene))) == ("paused", 1)
    assert scene.state["steps"][0]["next"]["step_id"] == "build/two"
    assert "pause_after" not in scene.state
    assert events(scene, "run.paused") == [{"before": "in_progress", "reason": "after_step"}]
    assert refusal(go_on, scene).hint.startswith("loomctl resume ")
    resume.resume(scene.space(), scene.run_dir.name)
    assert (scene.state["status"], scene.state["current_step"]) == ("in_progress", "build/two")
    done(scene)
    assert scene.state["status"] == "completed"


def test_a_stop_that_is_asked_for_a_result_is_asked_as_before(scene: Scene) -> None:
    """The step is still worked on: an answer that does not fit is repaired, and the repaired one ends it."""
    begin(scene, {"id": "one", "output_schema": "routing"}, "two", autonomy="autonomous")
    asked(scene)
    assert stop(scene, "All is well.").block
    assert scene.state["status"] == "in_progress"
    assert stop(scene, GOOD).block == ""
    assert (scene.state["status"], statuses(scene)) == ("paused", ["succeeded"])


def test_after_the_last_step_the_run_is_completed(scene: Scene) -> None:
    begin(scene, "one")
    asked(scene)
    done(scene)
    assert (scene.state["status"], events(scene, "run.paused")) == ("completed", [])


def test_a_try_that_failed_is_the_end_of_its_step(scene: Scene) -> None:
    begin(scene, {"id": "one", "max_retries": 2}, "two")
    asked(scene)
    done(scene, "No.", outcome="failed")
    assert (scene.state["status"], statuses(scene)) == ("paused", ["failed"])
    resume.resume(scene.space(), scene.run_dir.name)
    assert (scene.state["current_step"], statuses(scene)) == ("build/one", ["failed", "in_progress"])


def test_a_run_that_asks_after_its_step_pauses_once_it_was_answered(scene: Scene) -> None:
    begin(scene, {"id": "one", "result_handling": {"on_success": "prompt"}}, "two")
    asked(scene)
    done(scene)
    assert scene.state["status"] == "awaiting_feedback"
    decide.approve(scene.space(None, host="terminal"), scene.run_dir.name)
    assert (scene.state["status"], len(statuses(scene))) == ("paused", 1)


def test_a_step_that_a_person_decides_is_decided_first(scene: Scene) -> None:
    gate: Json = {"id": "gate", "kind": "human", "transitions": [{"to": "two", "label": "Go on"}]}
    begin(scene, gate, "two")
    assert asked(scene)["status"] == "awaiting_feedback"
    decide.choose(scene.space(None, host="terminal"), scene.run_dir.name, "Go on")
    assert (scene.state["status"], statuses(scene)) == ("paused", ["succeeded"])


def test_a_parallel_step_is_worked_on_until_it_is_joined(scene: Scene) -> None:
    branches = [{"id": name, "steps": [{"id": "a", "prompt": "x"}, {"id": "b", "prompt": "y"}]} for name in ("l", "r")]
    begin(scene, {"id": "fan", "parallel": {"join": "wait_all", "branches": branches}}, "two")
    asked(scene)
    for branch in ("l", "r"):
        for _ in range(2):
            assert scene.state["status"] == "in_progress"
            advance.next_step(scene.space(), scene.run_dir.name, branch=branch)
            done(scene, branch=branch)
    assert (scene.state["status"], len(statuses(scene))) == ("paused", 1)


def test_each_task_of_a_list_is_a_step(scene: Scene) -> None:
    scene.write("spec.md", "- [ ] one\n- [ ] two\n")
    begin(scene, "first", {"id": "each", "for_each": "artifacts.spec", "prompt": "Do {task}."}, "two")
    done(scene, artifacts={"spec": "{project_root}/spec.md"})
    asked(scene)
    done(scene)
    assert (scene.state["status"], scene.state["steps"][1]["next"]["reason"]) == ("paused", "next_task")


def test_it_is_asked_for_once_and_taken_back(scene: Scene) -> None:
    begin(scene, "one", "two")
    first = asked(scene)
    assert asked(scene) == first
    assert asked(scene, wanted=False)["status"] == "in_progress"
    asked(scene, wanted=False)
    done(scene)
    assert scene.state["current_step"] == "build/two"
    assert [one["stage"] for one in events(scene, "run.pause_asked")] == [ONE, None]


@each("session, host, keeps", [("term", "terminal", False), (OTHER, "claude-code", True)])
def test_an_assistant_that_resumes_a_run_under_way_keeps_it_and_a_person_does_not(
    scene: Scene, session: str, host: str, keeps: bool
) -> None:
    """A driver resumes the run for each of its turns: what its user asked for in between still counts."""
    begin(scene, "one", "two")
    asked(scene)
    scene.let_go()
    resume.resume(scene.space(session, host=host), scene.run_dir.name)
    assert (standing.pauses_after(scene.state) == "build/one") is keeps
    scene.let_go()
    done(scene, session=session)
    assert scene.state["status"] == ("paused" if keeps else "in_progress")


def test_a_pause_a_cancel_and_an_undo_leave_nothing_of_it(scene: Scene) -> None:
    begin(scene, "zero", "one", "two")
    done(scene)
    for undo in (lambda: stand(scene, "paused"), lambda: stand(scene, "cancelled"), lambda: take_back(scene)):
        asked(scene)
        assert "pause_after" in scene.state
        undo()
        assert "pause_after" not in scene.state
        resume.resume(scene.space(), scene.run_dir.name, reopen=True)
    done(scene)
    asked(scene)
    rewind.rewind(scene.space(), scene.run_dir.name, "1")
    assert "pause_after" not in scene.state
    done(scene)
    asked(scene)
    copied = fork.fork(scene.space(), scene.run_dir.name, "1")
    assert "pause_after" not in copied.run.state


def test_without_an_open_step_it_pauses_at_once_and_what_is_over_is_refused(scene: Scene) -> None:
    scene.workflow(phases={"a": {"steps": [{"id": "x", "prompt": "X."}], "require_approval": True}})
    start.start(scene.space(), "add dark mode", workflow="tiny")
    assert scene.state["status"] == "awaiting_feedback"
    assert asked(scene)["status"] == "paused"
    for status in ("paused", "completed", "failed", "cancelled"):
        scene.edit(status=status)
        error = refusal(asked, scene)
        assert (error.code, error.exit_code, status in error.what) == ("BAD_STATUS", 2, True)


@pytest.mark.parametrize("note", [None, 7, "x", [], {}, {"stage": 7}, {"stage": None}])
def test_what_is_no_request_pauses_nothing(scene: Scene, note: object) -> None:
    begin(scene, "one", "two")
    scene.edit(pause_after=note)
    done(scene)
    assert scene.state["status"] == "in_progress"


# ---- A plain pause: what comes just then.


@pytest.mark.slow
@each("autonomy", ["guarded", "autonomous"])
def test_an_answer_that_comes_as_a_terminal_pauses_the_run_is_not_dropped(scene: Scene, autonomy: str) -> None:
    """With a directive it ends its step; without one it is kept, and named to whoever resumes. Real processes."""
    begin(scene, "one", "two", autonomy=autonomy)
    file = TranscriptFile(scene.root.parent / "t.jsonl")
    command = "<command-message>loom:run</command-message>\n<command-name>/loom:run</command-name>"
    file.add({"type": "user", "promptId": "p", "message": {"role": "user", "content": command}})
    turn: Json = {"prompt_id": "p", "transcript_path": str(file.path)}
    assert scene.loomctl("pause", session=None).code == 0
    told = scene.hook("stop", last_assistant_message=f"It is done.\n\n{GOOD}", **turn)
    assert "build/one succeeded" in told.message
    assert (scene.state["status"], statuses(scene)) == ("paused", ["succeeded"])
    assert scene.loomctl("resume").code == 0
    assert (scene.state["current_step"], scene.state["context"]["coverage"]) == ("build/two", 72)
    assert scene.loomctl("pause", session=None).code == 0
    assert scene.hook("stop", last_assistant_message="It is done.", **turn).stdout == ""
    assert statuses(scene) == ["succeeded", "in_progress"]
    kept = scene.run_dir / "stages" / "002-build.two@1" / "candidate.md"
    assert read(scene, "002-build.two@1", "candidate.md") == "It is done."
    told = scene.loomctl("resume")
    way = f"loomctl done {scene.handle} --for 002 --response-file {kept}"
    assert f"Loom kept the last message at build/two. If it is the result: {way}" in told.stdout
    assert scene.loomctl(*way.split()[1:]).code == 0
    assert (scene.state["status"], read(scene, "002-build.two@1", "response.md")) == ("completed", "It is done.")


def test_a_resume_names_no_message_where_there_is_none_or_nothing_was_paused(scene: Scene) -> None:
    begin(scene, "one", "two")
    stand(scene, "paused")
    assert not [one for one in resume.resume(scene.space(), scene.run_dir.name).notes if "kept" in one]
    stop(scene, "So far so good.", driven=False)
    assert not [one for one in resume.resume(scene.space(), scene.run_dir.name).notes if "kept" in one]


def test_a_refused_pause_changes_nothing(scene: Scene) -> None:
    """A host's session that does not drive the run pauses nothing, now or later."""
    begin(scene, "one")
    before = scene.state
    assert scene.loomctl("pause", "--after-step", scene.handle, session=OTHER).code in (3, 6)
    assert scene.state["status"] == before["status"]
    assert "pause_after" not in scene.state
    told = scene.loomctl("pause", "--after-step", "--json", session=None).ends().json
    assert {key: told[key] for key in ("handle", "status", "pauses_after")} == {
        "handle": scene.handle,
        "status": "in_progress",
        "pauses_after": "build/one",
    }
    assert "in progress, pauses after this step" in scene.loomctl("status").ends().stdout
    assert scene.loomctl("status", "--json").json["pauses_after"] == "build/one"
    told = scene.loomctl("pause", "--no-after-step", session=None).ends()
    assert told.stdout == f"Loom: {scene.handle} does not pause after a step\n"


def test_the_words_for_each_end(scene: Scene) -> None:
    begin(scene, "one")
    said, name = scene.loomctl("pause", "--after-step", session=None).ends().stdout, scene.handle
    assert said == (
        f"Loom: {name} pauses when build/one has ended. To withdraw that: loomctl pause --no-after-step {name}\n"
    )


@each("stage", ["../../x", "001-build.one@1/../..", "", "\udce4"])
def test_a_stage_that_no_folder_can_be_holds_no_resume_up(scene: Scene, stage: str) -> None:
    """The run was taken up by then, whoever wrote its state."""
    begin(scene, "one")
    run = scene.space().store.read(scene.run_dir.name)
    state = {**run.state, "steps": [{**run.state["steps"][0], "stage": stage}]}
    assert resume._kept_answer(run._replace(state=state)) == []
