"""A step that has to show something ends well only when the engine finds it; what it found stands in the ledger."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.care import keep
from loomctl.flow import drive, rewind, undo
from loomctl.flow import stop as stopping
from loomctl.flow.commands import command_events, command_trust
from loomctl.flow.drive import Driven
from loomctl.flow.outcomes import evidence
from loomctl.flow.stop import Stopped, Turn
from loomctl.kit import processes
from loomctl.kit.errors import LoomError
from loomctl.runs import command_runs, log_verdict
from tests.helpers.scenes import Json, Scene
from tests.helpers.tables import each
from tests.helpers.waiting import until

STAGE = "001-build.make@1"


def begin(scene: Scene, *wanted: Any, trusted: bool = True, **more: Any) -> str:
    """Begin a run whose first step has to show something."""
    steps = [{"id": "make", "prompt": "Make it.", "evidence": list(wanted), **more}, {"id": "then", "prompt": "Go on."}]
    scene.workflow(phases={"build": {"steps": steps}})
    run = scene.begin().run
    if trusted:
        space = scene.space()
        command_trust.trust(space, run, command_trust.listed(space, run))
    return run.run_id


def done(scene: Scene, run_id: str, response: str = "Made it.", **more: Any) -> Driven:
    """End the open step."""
    return drive.done(scene.space(), run_id, response=response, **more)


def checked(scene: Scene) -> list[Json]:
    """Give what the ledger tells of evidence."""
    return [one["properties"] for one in scene.events() if one["event"] == "evidence.checked"]


def status(scene: Scene, stage: str = STAGE) -> Json:
    """Read how a stage ended."""
    found: Json = json.loads((scene.run_dir / "stages" / stage / "status.json").read_text(encoding="utf-8"))
    return found


def sha256(data: bytes) -> str:
    """Hash as the ledger does."""
    return hashlib.sha256(data).hexdigest()


def test_the_word_for_it_is_not_enough(scene: Scene) -> None:
    """A file that is not there is asked for; once it is made the step ends, with its hash in ledger and status."""
    run_id = begin(scene, "out ü/report.md")
    refused = done(scene, run_id)
    assert refused.ended is None
    assert "EVIDENCE_MISSING" in refused.repair
    assert "out ü/report.md" in refused.repair
    assert scene.state["current_step"] == "build/make"
    assert (scene.run_dir / "stages" / STAGE / "candidate.md").read_text(encoding="utf-8") == "Made it."
    scene.write("out ü/report.md", "found")
    assert (done(scene, run_id).ended or {})["status"] == "succeeded"
    item = {"kind": "file", "name": "out ü/report.md", "passed": True, "sha256": sha256(b"found")}
    assert status(scene)["evidence"] == {"passed": True, "items": [item]}
    first, second = checked(scene)
    assert (first["passed"], first["items"][0]["why"]) == (False, "there is no such file")
    assert second == {"stage": STAGE, "passed": True, "items": [item]}
    assert log_verdict.verify(scene.space().store, run_id).proven


def test_a_file_has_to_change_by_what_is_in_it(scene: Scene) -> None:
    """A new time is no change; other bytes are. Where no change is asked for it need only be there."""
    path = scene.write("spec.md", "old")
    run_id = begin(scene, "spec.md", {"file": "spec.md", "changed": False})
    os.utime(path, (9e9, 9e9))
    refused = done(scene, run_id)
    assert "it has not changed since the step began" in refused.repair
    assert [one["passed"] for one in checked(scene)[0]["items"]] == [False, True]
    scene.write("spec.md", "new")
    assert done(scene, run_id).ended is not None


def test_a_pattern_names_files_and_one_of_them_has_to_be_new(scene: Scene) -> None:
    """Over folders, not through links, not Loom's own, not git's; the hash is that of all that it names."""
    scene.write("dist/a/old.whl", "1")
    scene.write(".git/x.whl", "1")
    (scene.root / "link").symlink_to("/tmp")
    run_id = begin(scene, "**/*.whl")
    assert done(scene, run_id).ended is None
    scene.write("dist/b c/new.whl", "2")
    assert done(scene, run_id).ended is not None
    lines = f"{sha256(b'1')}  dist/a/old.whl\n{sha256(b'2')}  dist/b c/new.whl\n"
    assert checked(scene)[-1]["items"][0]["sha256"] == sha256(lines.encode())


@each("wanted", ["/etc/passwd", "link/passwd", "link/*"])
def test_what_leads_out_of_the_project_is_never_read(scene: Scene, wanted: str) -> None:
    """A path that leads out, itself or by a link, is no evidence (D10)."""
    (scene.root / "link").symlink_to("/etc")
    run_id = begin(scene, {"file": wanted, "changed": False})
    assert done(scene, run_id).ended is None
    assert "sha256" not in checked(scene)[0]["items"][0]


VALUES: list[tuple[Any, Json, bool]] = [
    ({"state": "$.context.coverage"}, {"coverage": 0}, True),
    ({"state": "context.coverage"}, {}, False),
    ({"state": "context.coverage"}, {"coverage": None}, False),
    ({"state": "context.ok"}, {"ok": False}, False),
    ({"state": "$..coverage"}, {"coverage": 3}, True),
    ({"state": "context.tests.passed"}, {"tests.passed": 7}, True),
    ({"condition": "context.coverage >= 80"}, {"coverage": 80}, True),
    ({"condition": "state.context.coverage >= 80"}, {"coverage": 79}, False),
    ({"condition": "state.none.there == 1"}, {}, False),
    ({"condition": "[1, 2].includes(context.n)"}, {"n": 2}, True),
    ({"condition": "[1, 2].includes(context.n)"}, {"n": 3}, False),
]


@each(("wanted", "updates", "passes"), VALUES)
def test_a_value_holds_with_what_the_step_sets(scene: Scene, wanted: Json, updates: Json, passes: bool) -> None:
    """Paths and conditions see the state as it will be: simple ones, and those that take an engine."""
    run_id = begin(scene, wanted)
    answer = json.dumps({"outcome": "succeeded", "context_updates": updates})
    assert (done(scene, run_id, answer).ended is not None) is passes
    assert checked(scene)[0]["passed"] is passes


def test_a_command_has_to_pass_and_its_output_is_hashed(scene: Scene) -> None:
    """It is run anew at each end, in the project, and every output is kept."""
    run_id = begin(scene, {"run": "echo looked; test -f made"})
    refused = done(scene, run_id)
    assert "exit code 1" in refused.repair
    scene.write("made", "")
    assert done(scene, run_id).ended is not None
    assert [one["items"][0]["sha256"] for one in checked(scene)] == [sha256(b"looked\n")] * 2
    assert (scene.run_dir / "stages" / STAGE / "evidence-1.2" / "command.log").read_bytes() == b"looked\n"


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_ended(scene: Scene) -> None:
    """Its timeout is its own."""
    run_id = begin(scene, {"run": "sleep 60", "timeout": 0.3})
    assert "timed out after 0.3 s" in done(scene, run_id).repair


def test_a_command_that_still_runs_is_waited_for_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as no correction; the next end waits for the same command, and does not start another."""
    run_id = begin(scene, {"run": "echo once >> started; until test -f go; do sleep 0.05; done"})
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    assert "it still runs" in done(scene, run_id).repair
    assert "repairs" not in scene.state["steps"][-1]
    end_once_awaited(scene, monkeypatch)
    assert done(scene, run_id).ended is not None
    assert (scene.root / "started").read_text() == "once\n"


def test_a_command_that_nobody_trusts_is_not_run(scene: Scene) -> None:
    """It says what to do, and counts as no correction (D23)."""
    run_id = begin(scene, {"run": "touch ran"}, trusted=False)
    for _ in range(4):
        assert "loomctl trust" in done(scene, run_id).repair
    assert not (scene.root / "ran").exists()
    assert scene.state["steps"][-1]["status"] == "in_progress"


def test_the_commands_are_among_those_that_are_trusted(scene: Scene) -> None:
    """They stand in the plan's list and in what `trust` shows, after the step's own."""
    run_id = begin(scene, {"run": "pytest -q {run_id}"})
    space = scene.space()
    run = space.store.read(run_id)
    assert run.plan["commands"] == [{"step": "build/make", "run": "pytest -q {run_id}"}]
    assert [one["step"] for one in command_trust.listed(space, run)] == ["build/make"]
    assert run_id in command_trust.listed(space, run)[0]["run"]


def test_a_command_is_not_run_while_a_file_is_missing(scene: Scene) -> None:
    """What is missing anyway needs no command."""
    run_id = begin(scene, {"run": "touch ran"}, "x.md")
    assert done(scene, run_id).ended is None
    assert not (scene.root / "ran").exists()
    assert scene.state["steps"][-1]["repairs"] == 1


def test_it_fails_when_it_was_asked_for_often_enough(scene: Scene) -> None:
    """As often as `output_retries` says; then the step has failed, and says for want of what."""
    run_id = begin(scene, "x.md", output_retries=1)
    assert done(scene, run_id).ended is None
    ended = done(scene, run_id).ended or {}
    assert ended["status"] == "failed"
    assert "x.md: there is no such file" in ended["failure_reason"]
    assert status(scene)["evidence"]["passed"] is False


@each("outcome", ["failed", "skipped"])
def test_who_says_that_it_is_not_done_has_nothing_to_show(scene: Scene, outcome: str) -> None:
    """A failed or skipped step needs no evidence, by option or by what the answer says; and runs no command."""
    run_id = begin(scene, "x.md", {"run": "touch ran"})
    assert (done(scene, run_id, json.dumps({"outcome": outcome})).ended or {})["status"] == outcome
    undo.undo(scene.space(), run_id) if outcome == "skipped" else None
    assert not (scene.root / "ran").exists()
    assert checked(scene) == []
    assert "evidence" not in status(scene) if outcome == "failed" else True


def test_a_partial_success_has_to_be_shown_too(scene: Scene) -> None:
    """What was partly done still claims something."""
    run_id = begin(scene, "x.md")
    assert done(scene, run_id, outcome="partially_succeeded").ended is None


def test_an_undone_step_has_to_show_it_again(scene: Scene) -> None:
    """What it began with is still known, so that what it made the first time counts; taken away, it does not."""
    run_id = begin(scene, "x.md")
    path = scene.write("x.md", "1")
    assert done(scene, run_id).ended is not None
    undo.undo(scene.space(), run_id)
    path.unlink()
    assert done(scene, run_id).ended is None
    scene.write("x.md", "1")
    assert done(scene, run_id).ended is not None


@each("forged", [None, {"schema_version": 1, "files": {"a": {}}}, "x"])
def test_without_the_note_of_its_beginning_no_change_is_shown(scene: Scene, forged: Any) -> None:
    """A note that was removed or written by another says nothing, and a time says nothing; it counts no correction."""
    scene.write("a", "1")
    run_id = begin(scene, "a")
    noted = scene.run_dir / "stages" / STAGE / "evidence.json"
    whole = noted.read_bytes()
    noted.unlink() if forged is None else noted.write_text(json.dumps(forged), encoding="utf-8")
    scene.write("a", "1")
    for _ in range(4):
        assert "what it was as the step began was not noted" in done(scene, run_id).repair
    noted.write_bytes(whole)
    assert "it has not changed" in done(scene, run_id).repair
    scene.write("a", "2")
    assert done(scene, run_id).ended is not None


def test_an_assistant_is_told_what_it_has_to_show(scene: Scene) -> None:
    """In the step's prompt, in its words."""
    begin(scene, "x.md", {"run": "pytest -q"}, {"state": "context.n"}, {"condition": "context.n > 1"})
    prompt = (scene.run_dir / "stages" / STAGE / "prompt.md").read_text(encoding="utf-8")
    for words in ("the file `x.md`, new or changed", "`pytest -q` ends with exit code 0", "`context.n > 1` is true"):
        assert words in prompt


def stop(scene: Scene, run_id: str, message: str, blocks: int = 8, told: str = STAGE, **more: Any) -> Stopped:
    """Stop as the assistant in a turn that Loom drives."""
    space = scene.space(on_hook_path=True)
    turn = Turn(told=told, driven=True, blocks_left=blocks, **more)
    return stopping.stopped(space, space.store.read(run_id), turn, message)


SUCCEEDED = json.dumps({"outcome": "succeeded"})


def test_a_stop_is_the_corrective_turn(scene: Scene) -> None:
    """A final message ends nothing while a file is missing; with it, it does. At the host's cap the run pauses."""
    run_id = begin(scene, "x.md", output_retries=5)
    assert "EVIDENCE_MISSING" in stop(scene, run_id, SUCCEEDED).block
    assert scene.state["steps"][-1]["status"] == "in_progress"
    scene.write("x.md", "1")
    assert "build/make succeeded" in stop(scene, run_id, SUCCEEDED).block
    assert checked(scene)[-1]["passed"] is True


def test_a_stop_at_the_cap_pauses(scene: Scene) -> None:
    """A block that the host would not honour is not given; the message is kept."""
    run_id = begin(scene, "x.md")
    told = stop(scene, run_id, SUCCEEDED, blocks=0)
    assert (told.block, scene.state["status"]) == ("", "paused")
    assert (scene.run_dir / "stages" / STAGE / "candidate.md").read_text(encoding="utf-8") == SUCCEEDED


def test_a_hook_runs_no_command(scene: Scene) -> None:
    """A stop sends the assistant to `loomctl done`, which runs it, and counts no correction (D23)."""
    run_id = begin(scene, {"run": "touch ran"})
    told = stop(scene, run_id, SUCCEEDED)
    assert "loomctl done" in told.block
    assert not (scene.root / "ran").exists()
    assert "repairs" not in scene.state["steps"][-1]
    assert done(scene, run_id, SUCCEEDED).ended is not None
    assert (scene.root / "ran").exists()


def test_a_step_with_a_command_is_not_marked_as_closing(scene: Scene) -> None:
    """Its result has to be handed to `loomctl done`: the hook that would take the final message runs nothing."""
    run_id = begin(scene, {"run": "true"})
    with pytest.raises(LoomError) as refused:
        drive.done(scene.space(), run_id, response=None)
    assert refused.value.code == "NO_RESPONSE"
    assert drive.done(scene.space(), run_id, response=None, outcome="failed").closing is not None


def test_a_closing_step_is_held_to_it(scene: Scene) -> None:
    """A step that was marked as closing ends with the final message only if what it has to show is there."""
    run_id = begin(scene, "x.md")
    drive.done(scene.space(), run_id, response=None)
    assert "EVIDENCE_MISSING" in stop(scene, run_id, "All is made.").block
    scene.write("x.md", "1")
    stop(scene, run_id, "All is made.")
    assert status(scene)["status"] == "succeeded"


def test_a_closing_step_of_a_paused_run_is_asked_for_nothing(scene: Scene) -> None:
    """A session that starts meets it: it stays as it is, and no correction is counted."""
    run_id = begin(scene, "x.md")
    drive.done(scene.space(), run_id, response=None)
    scene.edit(status="paused")
    space = scene.space(on_hook_path=True)
    assert stopping.closed_without_message(space, space.store.read(run_id)) == ""
    assert scene.state["steps"][-1]["status"] == "closing"
    assert checked(scene) == []


def test_a_command_step_without_its_evidence_has_failed(scene: Scene) -> None:
    """Exit code 0 is not enough; nobody is asked to mend it."""
    steps: list[Json] = [{"id": "make", "run": "echo made", "evidence": ["x.md"]}]
    scene.workflow(phases={"build": {"steps": steps}})
    run = scene.begin().run
    space = scene.space()
    command_trust.trust(space, run, command_trust.listed(space, run))
    drive.next_step(space, run.run_id)
    assert (status(scene)["status"], status(scene)["evidence"]["passed"]) == ("failed", False)


def test_the_steps_of_branches_are_held_to_it(scene: Scene) -> None:
    """A branch's step has a stage and a beginning of its own."""
    branch = [{"id": "one", "steps": [{"id": "make", "prompt": "x", "evidence": ["x.md"]}]}]
    other = [{"id": "two", "steps": [{"id": "make", "prompt": "x"}]}]
    scene.workflow(phases={"build": {"steps": [{"id": "both", "parallel": {"branches": branch + other}}]}})
    run_id = scene.begin().run.run_id
    space = scene.space()
    drive.next_step(space, run_id, branch="one")
    assert drive.done(space, run_id, response="made", branch="one").ended is None
    scene.write("x.md", "1")
    assert drive.done(space, run_id, response="made", branch="one").ended is not None
    assert checked(scene)[-1]["passed"] is True


def test_what_a_plan_holds_is_checked_before_it_is_used(scene: Scene) -> None:
    """A plan whose evidence was damaged is refused with its place."""
    run_id = begin(scene, "x.md")
    for wanted in (7, {"kind": "x"}, {"kind": "file"}, {"kind": "state"}, {"kind": "command", "run": 1}):
        plan = json.loads((scene.run_dir / "plan.json").read_text(encoding="utf-8"))
        plan["phases"][0]["steps"][0]["evidence"] = [wanted]
        (scene.run_dir / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        with pytest.raises(LoomError) as refused:
            scene.space().store.read(run_id)
        assert refused.value.code == "BAD_PLAN"


def test_a_kept_command_folder_that_is_a_link_is_not_followed(scene: Scene, tmp_path: Path) -> None:
    """What came with a project must not steer where Loom writes."""
    run_id = begin(scene, {"run": "true"})
    (scene.run_dir / "stages" / STAGE / "evidence-1").symlink_to(tmp_path)
    assert done(scene, run_id).ended is None
    assert list(tmp_path.glob("command*")) == []
    assert evidence.NOTED == "evidence.json"


def _wait_for_end(scene: Scene) -> None:
    """Wait until the first evidence's command has ended."""
    folder = scene.run_dir / "stages" / STAGE / "evidence-1"
    assert command_runs.wait(str(folder), time.monotonic() + 20).kind == command_runs.ENDED


def test_a_result_that_nobody_waited_for_is_of_another_tree(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passed while the file was whole; the file was broken since, so the same answer runs it anew."""
    scene.write("a", "a\n")
    run_id = begin(scene, {"run": "until test -f go; do sleep 0.02; done; test $(cat a) = a"})
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    assert "it still runs" in done(scene, run_id, "first").repair
    scene.write("go", "")
    _wait_for_end(scene)
    scene.write("a", "BROKEN\n")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "30")
    assert "exit code 1" in done(scene, run_id, "first").repair


def test_a_command_that_runs_for_another_answer_is_run_anew(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun for one result is no witness of another: it is stopped, and its place is kept."""
    run_id = begin(scene, {"run": "echo once >> started; until test -f go; do sleep 0.02; done"})
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    assert "it still runs" in done(scene, run_id, "first").repair
    assert "it still runs" in done(scene, run_id, "second").repair
    assert not processes_live(scene, "evidence-1.1")
    end_once_awaited(scene, monkeypatch)
    assert done(scene, run_id, "second").ended is not None
    assert (scene.root / "started").read_text() == "once\nonce\n"


def end_once_awaited(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command end while it is waited for, not before: what ended unseen would be run again."""
    wait = command_runs.wait
    monkeypatch.setattr(command_runs, "wait", lambda *asked: (scene.write("go", ""), wait(*asked))[1])
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "30")


def processes_live(scene: Scene, folder: str) -> bool:
    """Tell whether the command of a kept folder, or who watches it, lives."""
    record = json.loads((scene.run_dir / "stages" / STAGE / folder / "command.json").read_text(encoding="utf-8"))
    return any(processes.lives(record[who]) for who in ("supervisor", "command"))


FORGED: list[Json] = [
    {"result": {"exit_code": 0}},
    {"result": {"exit_code": 0}, "supervisor": {"pid": 1, "started": "x", "boot_id": "x"}},
    {"supervisor": None},
]


@each("record", FORGED)
def test_a_record_that_no_command_made_counts_nothing(scene: Scene, record: Json) -> None:
    """A folder with a result in it, put there by hand: the command is run all the same."""
    run_id = begin(scene, {"run": "touch ran; exit 7"})
    folder = scene.run_dir / "stages" / STAGE / "evidence-1"
    folder.mkdir(parents=True)
    (folder / "command.json").write_text(json.dumps(record), encoding="utf-8")
    assert "exit code 7" in done(scene, run_id).repair
    assert (scene.root / "ran").exists()


def test_nothing_is_left_of_what_this_machine_noted(scene: Scene) -> None:
    """The note of a command goes with the command's end."""
    run_id = begin(scene, {"run": "true"})
    assert done(scene, run_id).ended is not None
    assert list((scene.store / "local" / "evidence").iterdir()) == []


def cancelled(scene: Scene, run_id: str) -> None:
    """Cancel a run as the command line does."""
    space = scene.space()
    run = stopping.set_standing(space, run_id, "cancelled", "run.cancelled", allowed=("in_progress",))
    assert command_events.stop_all(space, run) == [f"The evidence `{LONG}` was stopped."]


def removed(scene: Scene, run_id: str) -> None:
    """Remove a run that is active."""
    keep.remove(scene.space(), run_id, force=True)
    assert not (scene.store / "local" / "evidence" / run_id).exists()


def undone(scene: Scene, run_id: str) -> None:
    """Take the step before back."""
    assert f"The evidence `{LONG}` was stopped." in undo.undo(scene.space(), run_id).notes


def rewound(scene: Scene, run_id: str) -> None:
    """Take the run back to its first step."""
    assert f"The evidence `{LONG}` was stopped." in rewind.rewind(scene.space(), run_id, FIRST).notes


def ended(scene: Scene, run_id: str) -> None:
    """End the step as skipped, which needs no evidence."""
    assert f"The evidence `{LONG}` was stopped." in done(scene, run_id, "Not now.", outcome="skipped").notes


def stopped_as(outcome: str, scene: Scene, run_id: str) -> None:
    """End the step by a final message that needs no evidence; no hook waits for a command's end."""
    said = stop(scene, run_id, json.dumps({"outcome": outcome}), told="002-build.make@1")
    assert f"build/make {outcome}" in said.line + said.block


def skipped_at_a_stop(scene: Scene, run_id: str) -> None:
    """End it as skipped."""
    stopped_as("skipped", scene, run_id)


def failed_at_a_stop(scene: Scene, run_id: str) -> None:
    """End it as failed."""
    stopped_as("failed", scene, run_id)


def closed_at_a_start(scene: Scene, run_id: str) -> None:
    """Mark the step as skipped, and let the next session's start close it."""
    drive.done(scene.space(), run_id, response=None, outcome="skipped")
    space = scene.space(on_hook_path=True)
    stopping.closed_without_message(space, space.store.read(run_id))
    assert scene.state["steps"][1]["status"] == "skipped"


LONG, FIRST = "sleep 60", "001-build.first@1"


@each("act", [cancelled, removed, undone, rewound, ended, skipped_at_a_stop, failed_at_a_stop, closed_at_a_start])
def test_a_command_does_not_outlive_what_it_was_to_show(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, act: Callable[[Scene, str], None]
) -> None:
    """It is stopped with the run, and with the step that it is evidence of; while it runs the run is said to."""
    make = {"id": "make", "prompt": "x", "evidence": [{"run": LONG}]}
    scene.workflow(phases={"build": {"steps": [{"id": "first", "prompt": "x"}, make]}})
    run = scene.begin().run
    space = scene.space()
    command_trust.trust(space, run, command_trust.listed(space, run))
    done(scene, run.run_id)
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    assert "it still runs" in done(scene, run.run_id).repair
    folder = scene.run_dir / "stages" / "002-build.make@1" / "evidence-1"
    record = command_runs.look(str(folder)).record
    assert processes.lives(record["supervisor"])
    assert command_events.runs_now(space, space.store.read(run.run_id))
    act(scene, run.run_id)
    standing = command_runs.wait(str(folder), time.monotonic() + 20)
    assert standing.kind == command_runs.NONE or standing.result["stopped"]
    until(lambda: not processes.lives(record["supervisor"]), "a stopped command to be gone")


def test_a_rewound_step_still_knows_its_beginning(scene: Scene) -> None:
    """What the files were stands with the visit, also where the run is taken back to it."""
    scene.write("x.md", "1")
    run_id = begin(scene, "x.md")
    scene.write("x.md", "2")
    assert done(scene, run_id).ended is not None
    assert done(scene, run_id).ended is not None
    rewind.rewind(scene.space(), run_id, STAGE)
    scene.write("x.md", "1")
    assert "it has not changed" in done(scene, run_id).repair
    scene.write("x.md", "3")
    assert done(scene, run_id).ended is not None


def test_a_stop_sends_to_done_twice_and_then_tells_the_user(scene: Scene) -> None:
    """The block holds the command that ends the step; without a tool call in between it is not given a third time."""
    run_id = begin(scene, {"run": "touch ran"})
    stage = scene.run_dir / "stages" / STAGE
    command = f"loomctl done {run_id} --for 001 --response-file {shlex.quote(str(stage / 'candidate.md'))}"
    for sent in (0, 1):
        told = stop(scene, run_id, SUCCEEDED, nudged=(STAGE, sent), idle=sent)
        assert (command in told.block, told.stage) == (True, STAGE)
    working = stop(scene, run_id, SUCCEEDED, nudged=(STAGE, 2), idle=0)
    assert command in working.block
    last = stop(scene, run_id, SUCCEEDED, nudged=(STAGE, 2), idle=2)
    assert (last.block, command in last.line, scene.state["status"]) == ("", True, "in_progress")
    assert "\n" not in last.line
    kept = (stage / "candidate.md").read_text(encoding="utf-8")
    assert done(scene, run_id, kept).ended is not None


@each(
    ("wanted", "context", "said"),
    [
        (
            {"state": "$.context.cover"},
            {},
            "- path into the state `$.context.cover`: wanted a value, neither null nor false; found nothing",
        ),
        (
            {"state": "$.context.cover"},
            {"cover": False},
            "- path into the state `$.context.cover`: wanted a value, neither null nor false; found false",
        ),
        (
            {"condition": "context.cover >= 80 && context.name == 'x'"},
            {"cover": 61, "name": "ü"},
            'wanted it to be true; found context.cover = 61, context.name = "ü"',
        ),
        (
            {"condition": "context.key == 'x'"},
            {"key": "ghp_" + "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5"},
            'found context.key = "[masked: github token]"',
        ),
        ({"condition": "context.long == 'x'"}, {"long": "z" * 10_000}, "z…"),
        ({"condition": "[context.a].length > 3"}, {"a": 1}, "wanted it to be true; found that it is not"),
    ],
)
def test_what_a_value_should_be_and_what_it_is_are_both_said(
    scene: Scene, wanted: Json, context: Json, said: str
) -> None:
    """The path or expression, what was wanted, and what was met: masked and shortened."""
    run_id = begin(scene, wanted)
    refused = done(scene, run_id, response=json.dumps({"outcome": "succeeded", "context_updates": context}))
    assert said in refused.repair
    assert len(refused.repair) < 700
    assert "ghp_" not in refused.repair + (scene.run_dir / "events.jsonl").read_text(encoding="utf-8")
