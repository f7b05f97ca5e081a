"""A step that has to show something ends well only when the engine finds it; what it found stands in the ledger."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import shlex
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loomctl.care import keep
from loomctl.flow import advance, rewind
from loomctl.flow import stop as stopping
from loomctl.flow.commands import command_steps, evidence_commands
from loomctl.flow.stop import Stopped
from loomctl.kit import processes
from loomctl.runs import command_runs, log_verdict
from loomctl.runs.machine import allowances
from loomctl.runs.store.store import Run
from loomctl.views import document
from tests.helpers.errors import refused
from tests.helpers.machines import SECRET
from tests.helpers.scenes import Json, Scene, handle
from tests.helpers.tables import each
from tests.helpers.verbs import DONE, done, end, go_on, read, status_of, statuses, take_back
from tests.helpers.verbs import stop as stop_with
from tests.helpers.waiting import until

STAGE = "001-build.make@1"


def trust(scene: Scene, run: Run) -> None:
    command_steps.trust(scene.space(), run, command_steps.listed(scene.space(), run))


def begin(scene: Scene, *wanted: Any, trusted: bool = True, **more: Any) -> str:
    steps = [{"id": "make", "prompt": "Make it.", "evidence": list(wanted), **more}, {"id": "then", "prompt": "Go on."}]
    scene.workflow(phases={"build": {"steps": steps}})
    run = scene.begin().run
    if trusted:
        trust(scene, run)
    return run.run_id


def stop(scene: Scene, message: str, **more: Any) -> Stopped:
    return stop_with(scene, message, on_hook_path=True, **more)


def checked(scene: Scene) -> list[Json]:
    return [one["properties"] for one in scene.events() if one["event"] == "evidence.checked"]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_word_for_it_is_not_enough(scene: Scene) -> None:
    """A file that is not there is asked for; once it is made the step ends, with its hash in ledger and status."""
    run_id = begin(scene, "out ü/report.md")
    missing = done(scene)
    assert (missing.ended, read(scene, STAGE, "candidate.md")) == (None, DONE)
    assert scene.state["current_step"] == "build/make"
    assert all(words in missing.repair for words in ("EVIDENCE_MISSING", "out ü/report.md"))
    scene.write("out ü/report.md", "found")
    assert end(scene) == "succeeded"
    item = {"kind": "file", "name": "out ü/report.md", "passed": True, "sha256": sha256(b"found")}
    assert status_of(scene, STAGE)["evidence"] == {"passed": True, "items": [item]}
    first, second = checked(scene)
    assert (first["passed"], first["items"][0]["why"]) == (False, "there is no such file")
    assert second == {"stage": STAGE, "passed": True, "items": [item]}
    assert log_verdict.verify(scene.space().store, run_id).proven


def test_a_file_has_to_change_by_what_is_in_it(scene: Scene) -> None:
    """A new time is no change; other bytes are. Where no change is asked for it need only be there."""
    path = scene.write("spec.md", "old")
    begin(scene, "spec.md", {"file": "spec.md", "changed": False})
    os.utime(path, (9e9, 9e9))
    assert "it has not changed since the step began" in done(scene).repair
    assert [one["passed"] for one in checked(scene)[0]["items"]] == [False, True]
    scene.write("spec.md", "new")
    assert end(scene) == "succeeded"


def test_a_pattern_names_files_and_one_of_them_has_to_be_new(scene: Scene) -> None:
    """Over folders, not through links, not Loom's own, not git's; the hash is that of all that it names."""
    for old in ("dist/a/old.whl", ".git/x.whl"):
        scene.write(old, "1")
    (scene.root / "link").symlink_to("/tmp")
    begin(scene, "**/*.whl")
    assert done(scene).ended is None
    scene.write("dist/b c/new.whl", "2")
    assert end(scene) == "succeeded"
    lines = f"{sha256(b'1')}  dist/a/old.whl\n{sha256(b'2')}  dist/b c/new.whl\n"
    assert checked(scene)[-1]["items"][0]["sha256"] == sha256(lines.encode())


@each("wanted", ["/etc/passwd", "link/passwd", "link/*"])
def test_what_leads_out_of_the_project_is_never_read(scene: Scene, wanted: str) -> None:  # D10
    (scene.root / "link").symlink_to("/etc")
    begin(scene, {"file": wanted, "changed": False})
    assert done(scene).ended is None
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
    begin(scene, wanted)
    answer = json.dumps({"outcome": "succeeded", "context_updates": updates})
    assert (done(scene, answer).ended is not None) is passes
    assert checked(scene)[0]["passed"] is passes


def test_a_command_has_to_pass_and_its_output_is_hashed(scene: Scene) -> None:
    begin(scene, {"run": "echo looked; test -f made"})
    assert "exit code 1" in done(scene).repair
    scene.write("made", "")
    assert end(scene) == "succeeded"
    assert list((scene.store / "local" / "evidence").iterdir()) == []  # what this machine noted of it
    assert [one["items"][0]["sha256"] for one in checked(scene)] == [sha256(b"looked\n")] * 2
    assert (scene.run_dir / "stages" / STAGE / "evidence-1.2" / "command.log").read_bytes() == b"looked\n"


def with_tests(scene: Scene, command: str, *wanted: Json, **more: Any) -> str:
    scene.write(".loom/config.yaml", f"test_command: {json.dumps(command)}\n")
    return begin(scene, *wanted, **more)


TESTS: list[tuple[str, str, str]] = [
    ("pass", "echo ran", ""),
    ("pass", "exit 1", "command `exit 1`: exit code 1"),
    ("fail", "exit 1", ""),
    ("fail", "echo ran", "command `echo ran (must fail)`: the tests pass, and one has to fail"),
    ("fail", "no-such-program", "the tests did not start: exit code 127"),
    ("fail", "exit 126", "the tests did not start: exit code 126"),
    ("fail", "kill -9 $$", "ended by"),
    ("fail", "python3 -m no_such_runner -q", "the tests did not start: "),
    ("fail", "echo 'npm error Missing script: \"test\"' >&2; exit 1; npm test", "Missing script"),
    ("fail", "echo \"make: *** No rule to make target 'check'.  Stop.\"; exit 2; make check", "No rule to make target"),
    ("fail", "echo \"ModuleNotFoundError: No module named 'dates'\"; exit 1; pytest", ""),
    ("fail", "echo \"E   ModuleNotFoundError: No module named 'dates'\"; exit 1; pytest dates", ""),
]


@each(("wanted", "command", "lacking"), TESTS)
def test_the_projects_tests_have_to_pass_or_to_fail(scene: Scene, wanted: str, command: str, lacking: str) -> None:
    """A test that could not be run has not failed."""
    with_tests(scene, command, {"tests": wanted})
    driven = done(scene)
    assert (driven.ended is None) is bool(lacking)
    assert lacking in driven.repair


def test_a_refusal_shows_the_end_of_what_the_tests_said(scene: Scene) -> None:
    """Twelve lines that say something, at most 800 characters, masked and as data (D21)."""
    lines = "".join(f"line {number}\\n\\n" for number in range(30))
    with_tests(scene, f"printf '{lines}'; echo '```'; echo {SECRET}; exit 1", {"tests": "pass"})
    asked = done(scene).repair
    shown = asked.partition("````\n")[2].partition("\n````")[0].splitlines()
    assert (shown[0], shown[9], len(shown), SECRET in asked) == ("line 20", "line 29", 12, False)
    scene.write(".loom/config.yaml", "{}")
    (failed,) = [one["items"][0] for one in checked(scene)]
    assert set(failed) == {"kind", "name", "passed", "sha256", "why"}


def test_a_refusal_shows_no_line_of_a_key_whose_beginning_is_out_of_sight(scene: Scene) -> None:
    """Only the end of a log is read; a long word on a line of its own stays out, a name or a ruled line does not."""
    body = base64.encodebytes(random.Random(7).randbytes(60_000)).decode()
    name = "test_a_refusal_shows_no_line_of_a_key"
    begins = "-----BEGIN " + "PRIVATE KEY-----"
    scene.write("said", f"{begins}\n{body}{body[:76]}\n  {body[:40]}\n{name}\n{'=' * 70}\n1 failed\n")
    with_tests(scene, "cat said; exit 1", {"tests": "pass"})
    shown = done(scene).repair.partition("```\n")[2].partition("\n```")[0]
    assert shown.splitlines() == [name, "=" * 70, "1 failed"]


@each("line", ["aB3/" * 5000, "0f" * 20 + "\n" + "aB3_" * 8])
def test_a_refusal_leaves_out_a_long_encoded_word(scene: Scene, line: str) -> None:
    scene.write("said", line)
    with_tests(scene, "cat said; exit 1", {"tests": "pass"})
    asked = done(scene).repair
    assert ("exit code 1" in asked, line[-20:] in asked) == (True, False)


FAILING = """TAP version 13
# Subtest: adds two numbers
not ok 1 - adds two numbers
  ---
  duration_ms: 5.9
  location: '/p/a.test.mjs:4:1'
  failureType: 'testCodeFailure'
  error: |-
    Expected values to be strictly equal:

    -1 !== 5

  code: 'ERR_ASSERTION'
  name: 'AssertionError'
  expected: 5
  actual: -1
  operator: 'strictEqual'
  stack: |-
    TestContext.<anonymous> (file:///p/a.test.mjs:4:39)
    Test.runInAsyncScope (node:async_hooks:206:9)
    Test.run (node:internal/test_runner/test:796:25)
    async Test.processPendingSubtests (node:internal/test_runner/test:526:7)
  ...
"""
PASSING = "".join(
    f"# Subtest: case {number}\nok {number} - case {number}\n  ---\n  duration_ms: 0.1\n  ...\n"
    for number in range(2, 32)
)
COUNTS = "1..31\n# tests 31\n# suites 0\n# pass 30\n# fail 1\n# cancelled 0\n# skipped 0\n# todo 0\n# duration_ms 362\n"


@each("passing", ["", PASSING])
def test_a_refusal_says_which_test_failed_and_how(scene: Scene, passing: str) -> None:
    """What `node --test` prints ends in frames, other tests and counts; the name and the values stand above."""
    scene.write("said", FAILING + passing + COUNTS)
    with_tests(scene, "cat said; exit 1; node --test", {"tests": "pass"})
    shown = done(scene).repair.partition("```\n")[2].partition("\n```")[0]
    assert all(words in shown for words in ("not ok 1 - adds two numbers", "-1 !== 5", "expected: 5", "a.test.mjs:4"))
    assert (len(shown.splitlines()) <= 12, len(shown) <= 800) == (True, True)


def test_a_trace_of_the_whole_room_leaves_a_refusal_short(scene: Scene) -> None:
    scene.write("said", "".join(f"src/a{number}.ts:{number}:1: error: {'wrong ' * 20}\n" for number in range(200)))
    with_tests(scene, "cat said; exit 1", {"tests": "pass"})
    shown = done(scene).repair.partition("```\n")[2].partition("\n```")[0]
    assert (400 < len(shown) <= 800, len(shown.splitlines()) <= 12, "error: wrong" in shown) == (True, True, True)


@each("text", ["x" * 5000, "é " * 3000, ("y" * 300 + "\n") * 9])
def test_a_refusal_stays_short_however_much_the_tests_said(scene: Scene, text: str) -> None:
    scene.write("said", text)
    with_tests(scene, "cat said; exit 1", {"tests": "pass"})
    shown = done(scene).repair.partition("```\n")[2].partition("\n```")[0]
    assert 500 < len(shown) <= 800
    assert text.rstrip().endswith(shown[-200:])


@pytest.mark.slow
def test_tests_that_take_too_long_have_not_failed(scene: Scene) -> None:
    with_tests(scene, "sleep 60", {"tests": "fail", "timeout": 0.3})
    assert "timed out after 0.3 s" in done(scene).repair


def test_the_projects_tests_run_at_its_root_wherever_the_step_works(scene: Scene) -> None:
    scene.write("below/x", "")
    with_tests(scene, "test -d below", {"tests": "pass"}, workdir="below")
    (listed,) = command_steps.listed(scene.space(), scene.space().store.read(scene.run_dir.name))
    assert listed == {"step": "build/make", "run": "test -d below"}
    assert end(scene) == "succeeded"


def test_without_a_test_command_that_evidence_is_left_out_and_said_once(scene: Scene) -> None:
    """A project that says it has none is not told."""
    steps = [{"id": "make", "prompt": "x", "evidence": [{"tests": "pass"}]}, {"id": "then", "prompt": "x"}]
    scene.workflow(phases={"build": {"steps": steps}})
    begun = scene.begin()
    assert [note for note in begun.notes if "loomctl init --tests" in note] == begun.notes[-1:]
    assert "it runs no tests in this run. Set one for later runs: " in begun.notes[-1]
    assert (begun.run.plan["commands"], begun.run.plan["test_command"]) == ([], "")
    assert end(scene) == "succeeded"
    shown = scene.loomctl("show", begun.run.handle, "001").ends().stdout
    assert "evidence  none: Loom knew no test command, so it ran no tests\n" in shown
    first, second = document.gather(scene.space(), begun.run.run_id)["stages"]
    assert [(one["passed"], one["why"]) for one in first["evidence"]] == [(False, "no test command")]
    assert second["evidence"] == []
    scene.write(".loom/config.yaml", "test_command: ''\n")
    assert not any("loomctl init" in note for note in scene.begin("again").notes)


@each(
    ("workflow", "allowed", "trusted"),
    [
        ("{plugin_root}/x", "make test", True),
        ("x", "make test", True),
        ("{plugin_root}/x", "make all", False),
        ("x", "", False),
    ],
)
def test_a_test_command_runs_unasked_only_where_it_was_allowed(
    scene: Scene, workflow: str, allowed: str, *, trusted: bool
) -> None:  # D23
    """Even a workflow of the bundle runs what the project says, so that its being the bundle's allows nothing."""
    run_id = with_tests(scene, "make test", {"tests": "pass"}, trusted=False)
    space = scene.space()
    if allowed:
        assert allowances.allow(str(scene.store), allowed) == ""
    run = space.store.read(run_id)
    assert command_steps.trust_what_is_allowed(space, run, [{"id": "x", "path": workflow, "sha256": ""}]) == ""
    assert command_steps.is_trusted(space, run) is trusted


def test_an_allowed_test_command_allows_no_other(scene: Scene) -> None:
    scene.write(".loom/config.yaml", "test_command: make test\n")
    allowances.allow(str(scene.store), "make test")
    for wanted, trusted in (({"tests": "pass"}, True), ({"run": "make test"}, True), ({"run": "make all"}, False)):
        run = begin_two(scene, wanted)
        assert command_steps.is_trusted(scene.space(), run) is trusted


def begin_two(scene: Scene, wanted: Json) -> Run:
    steps = [{"id": "make", "prompt": "x", "evidence": [{"tests": "pass"}, wanted]}]
    scene.workflow(phases={"build": {"steps": steps}})
    return scene.begin().run


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_ended(scene: Scene) -> None:
    begin(scene, {"run": "sleep 60", "timeout": 0.3})
    assert "timed out after 0.3 s" in done(scene).repair


def test_a_command_that_still_runs_is_waited_for_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as no correction; the next end waits for the same command, and does not start another."""
    begin(scene, {"run": "echo once >> started; until test -f go; do sleep 0.05; done"})
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    assert "it is still running" in done(scene).repair
    assert "repairs" not in scene.state["steps"][-1]
    end_once_awaited(scene, monkeypatch)
    assert end(scene) == "succeeded"
    assert (scene.root / "started").read_text() == "once\n"


def test_a_command_that_nobody_trusts_is_not_run(scene: Scene) -> None:
    """It stands among what is trusted, and is asked for without an end, which is no correction (D23)."""
    run_id = begin(scene, {"run": "touch ran {run_id}"}, trusted=False)
    space = scene.space()
    run = space.store.read(run_id)
    assert run.plan["commands"] == [{"step": "build/make", "run": "touch ran {run_id}"}]
    (listed,) = command_steps.listed(space, run)
    assert (listed["step"], run_id in listed["run"]) == ("build/make", True)
    for _ in range(4):
        assert "loomctl trust" in done(scene).repair
    assert ((scene.root / "ran").exists(), statuses(scene)[-1]) == (False, "in_progress")


def test_a_command_is_not_run_while_a_file_is_missing(scene: Scene) -> None:
    begin(scene, {"run": "touch ran"}, "x.md")
    assert done(scene).ended is None
    assert not (scene.root / "ran").exists()
    assert scene.state["steps"][-1]["repairs"] == 1


def test_it_fails_when_it_was_asked_for_often_enough(scene: Scene) -> None:
    """As often as `output_retries` says, a partial success too; then the step has failed, and says for want of what."""
    begin(scene, "x.md", output_retries=1)
    assert done(scene, outcome="partially_succeeded").ended is None
    ended = done(scene).ended or {}
    assert ended["status"] == "failed"
    assert "x.md: there is no such file" in ended["failure_reason"]
    assert status_of(scene, STAGE)["evidence"]["passed"] is False


@each("outcome", ["failed", "skipped"])
def test_who_says_that_it_is_not_done_has_nothing_to_show(scene: Scene, outcome: str) -> None:
    """A failed or skipped step needs no evidence, by option or by what the answer says; and runs no command."""
    begin(scene, "x.md", {"run": "touch ran"})
    assert end(scene, json.dumps({"outcome": outcome})) == outcome
    assert "evidence" not in status_of(scene, STAGE)
    assert ((scene.root / "ran").exists(), checked(scene)) == (False, [])


def test_an_undone_step_has_to_show_it_again(scene: Scene) -> None:
    """What it began with is still known, so that what it made the first time counts; taken away, it does not."""
    begin(scene, "x.md")
    for _ in range(2):
        path = scene.write("x.md", "1")
        assert end(scene) == "succeeded"
        take_back(scene)
        path.unlink()
        assert done(scene).ended is None


@each("forged", [None, {"schema_version": 1, "files": {"a": {}}}, "x"])
def test_without_the_note_of_its_beginning_no_change_is_shown(scene: Scene, forged: Any) -> None:
    """A note that was removed or written by another says nothing, and a time says nothing; it counts no correction."""
    scene.write("a", "1")
    begin(scene, "a")
    noted = scene.run_dir / "stages" / STAGE / "evidence.json"
    whole = noted.read_bytes()
    noted.unlink() if forged is None else noted.write_text(json.dumps(forged), encoding="utf-8")
    scene.write("a", "1")
    for _ in range(4):
        assert "Loom has no record, or not its own, of the file at the step's start" in done(scene).repair
    noted.write_bytes(whole)
    assert "it has not changed" in done(scene).repair
    scene.write("a", "2")
    assert end(scene) == "succeeded"


def test_an_assistant_is_told_what_it_has_to_show(scene: Scene) -> None:
    begin(scene, "x.md", {"run": "pytest -q"}, {"state": "context.n"}, {"condition": "context.n > 1"})
    for words in (
        "the file `x.md` is new or changed",
        "Loom runs `pytest -q`, and the exit code is 0",
        "`context.n > 1` is true",
    ):
        assert words in read(scene, STAGE, "prompt.md")


SUCCEEDED = json.dumps({"outcome": "succeeded"})


def test_a_stop_is_the_corrective_turn(scene: Scene) -> None:
    """A final message ends nothing while a file is missing; with it, it does. At the host's cap the run pauses."""
    begin(scene, "x.md", output_retries=5)
    assert "EVIDENCE_MISSING" in stop(scene, SUCCEEDED).block
    assert statuses(scene)[-1] == "in_progress"
    assert (stop(scene, SUCCEEDED, blocks_left=0).block, scene.state["status"]) == ("", "paused")
    assert read(scene, STAGE, "candidate.md") == SUCCEEDED
    scene.edit(status="in_progress")
    scene.write("x.md", "1")
    assert "build/make succeeded" in stop(scene, SUCCEEDED).block
    assert checked(scene)[-1]["passed"] is True


def test_a_hook_runs_no_command(scene: Scene) -> None:
    """A stop sends to `loomctl done`, which runs it (D23); so a step with one is not marked as closing."""
    begin(scene, {"run": "touch ran"})
    assert "loomctl done" in stop(scene, SUCCEEDED).block
    assert not (scene.root / "ran").exists()
    assert "repairs" not in scene.state["steps"][-1]
    with refused("NO_RESPONSE"):
        done(scene, None)
    assert end(scene, SUCCEEDED) == "succeeded"
    assert (scene.root / "ran").exists()
    take_back(scene)
    assert done(scene, None, outcome="failed").closing is not None


def test_a_closing_step_is_held_to_it(scene: Scene) -> None:
    """It ends with the final message only if what it has to show is there; in a paused run nothing is asked for."""
    run_id = begin(scene, "x.md")
    done(scene, None)
    scene.edit(status="paused")
    space = scene.space(on_hook_path=True)
    assert stopping.closed_without_message(space, space.store.read(run_id)) == ""
    assert (statuses(scene)[-1], checked(scene)) == ("closing", [])
    scene.edit(status="in_progress")
    assert "EVIDENCE_MISSING" in stop(scene, "All is made.").block
    scene.write("x.md", "1")
    stop(scene, "All is made.")
    assert status_of(scene, STAGE)["status"] == "succeeded"


def test_a_command_step_without_its_evidence_has_failed(scene: Scene) -> None:
    steps: list[Json] = [{"id": "make", "run": "echo made", "evidence": ["x.md"]}]
    scene.workflow(phases={"build": {"steps": steps}})
    trust(scene, scene.begin().run)
    go_on(scene)
    assert (status_of(scene, STAGE)["status"], status_of(scene, STAGE)["evidence"]["passed"]) == ("failed", False)


def test_the_steps_of_branches_are_held_to_it(scene: Scene) -> None:
    branch = [{"id": "one", "steps": [{"id": "make", "prompt": "x", "evidence": ["x.md"]}]}]
    other = [{"id": "two", "steps": [{"id": "make", "prompt": "x"}]}]
    scene.workflow(phases={"build": {"steps": [{"id": "both", "parallel": {"branches": branch + other}}]}})
    run_id = scene.begin().run.run_id
    space = scene.space()
    advance.next_step(space, run_id, branch="one")
    assert advance.done(space, run_id, response="made", branch="one").ended is None
    scene.write("x.md", "1")
    assert advance.done(space, run_id, response="made", branch="one").ended is not None
    assert checked(scene)[-1]["passed"] is True


def test_what_a_plan_holds_is_checked_before_it_is_used(scene: Scene) -> None:
    run_id = begin(scene, "x.md")
    for wanted in (7, {"kind": "x"}, {"kind": "file"}, {"kind": "state"}, {"kind": "command", "run": 1}):
        phases = scene.edit_plan()["phases"]
        phases[0]["steps"][0]["evidence"] = [wanted]
        scene.edit_plan(phases=phases)
        with refused("BAD_PLAN"):
            scene.space().store.read(run_id)


def test_a_kept_command_folder_that_is_a_link_is_not_followed(scene: Scene, tmp_path: Path) -> None:
    begin(scene, {"run": "true"})
    (scene.run_dir / "stages" / STAGE / "evidence-1").symlink_to(tmp_path)
    assert done(scene).ended is None
    assert list(tmp_path.glob("command*")) == []


def test_a_result_that_nobody_waited_for_is_of_another_tree(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passed while the file was whole; the file was broken since, so the same answer runs it anew."""
    scene.write("a", "a\n")
    begin(scene, {"run": "until test -f go; do sleep 0.02; done; test $(cat a) = a"})
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    assert "it is still running" in done(scene, "first").repair
    scene.write("go", "")
    folder = scene.run_dir / "stages" / STAGE / "evidence-1"
    assert command_runs.wait(str(folder), time.monotonic() + 20).kind == command_runs.ENDED
    scene.write("a", "BROKEN\n")
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "30")
    assert "exit code 1" in done(scene, "first").repair


def test_a_command_that_runs_for_another_answer_is_run_anew(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun for one result is no witness of another: it is stopped, and its place is kept."""
    begin(scene, {"run": "echo once >> started; until test -f go; do sleep 0.02; done"})
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    assert "it is still running" in done(scene, "first").repair
    assert "it is still running" in done(scene, "second").repair
    assert not processes_live(scene, "evidence-1.1")
    end_once_awaited(scene, monkeypatch)
    assert end(scene, "second") == "succeeded"
    assert (scene.root / "started").read_text() == "once\nonce\n"


def end_once_awaited(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command end while it is waited for, not before: what ended unseen would be run again."""
    wait = command_runs.wait
    monkeypatch.setattr(command_runs, "wait", lambda *asked: (scene.write("go", ""), wait(*asked))[1])
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "30")


def processes_live(scene: Scene, folder: str) -> bool:
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
    begin(scene, {"run": "touch ran; exit 7"})
    folder = scene.run_dir / "stages" / STAGE / "evidence-1"
    folder.mkdir(parents=True)
    (folder / "command.json").write_text(json.dumps(record), encoding="utf-8")
    assert "exit code 7" in done(scene).repair
    assert (scene.root / "ran").exists()


def cancelled(scene: Scene) -> None:
    space = scene.space()
    run = stopping.set_standing(space, scene.run_dir.name, "cancelled", "run.cancelled", allowed=("in_progress",))
    assert evidence_commands.stop_all(space, run) == [STOPPED]


def removed(scene: Scene) -> None:
    run_id = scene.run_dir.name
    keep.remove(scene.space(), run_id, force=True)
    assert not (scene.store / "local" / "evidence" / run_id).exists()


def undone(scene: Scene) -> None:
    assert STOPPED in take_back(scene).notes


def rewound(scene: Scene) -> None:
    assert STOPPED in rewind.rewind(scene.space(), scene.run_dir.name, FIRST).notes


def skipped(scene: Scene) -> None:
    assert STOPPED in done(scene, "Not now.", outcome="skipped").notes


def stopped_as(outcome: str, scene: Scene) -> None:
    """End the step by a final message that needs no evidence; no hook waits for a command's end."""
    said = stop(scene, json.dumps({"outcome": outcome}), told="002-build.make@1")
    assert f"build/make {outcome}" in said.line + said.block


def closed_at_a_start(scene: Scene) -> None:
    done(scene, None, outcome="skipped")
    space = scene.space(on_hook_path=True)
    stopping.closed_without_message(space, space.store.read(scene.run_dir.name))
    assert scene.state["steps"][1]["status"] == "skipped"


LONG, FIRST = "sleep 60", "001-build.first@1"
STOPPED = f"Stopped the evidence `{LONG}`."
STOPS = [partial(stopped_as, outcome) for outcome in ("skipped", "failed")]


@each("act", [cancelled, removed, undone, rewound, skipped, *STOPS, closed_at_a_start])
def test_a_command_does_not_outlive_what_it_was_to_show(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, act: Callable[[Scene], None]
) -> None:
    """It is stopped with the run, and with the step that it is evidence of; while it runs the run is said to."""
    make = {"id": "make", "prompt": "x", "evidence": [{"run": LONG}]}
    scene.workflow(phases={"build": {"steps": [{"id": "first", "prompt": "x"}, make]}})
    run = scene.begin().run
    trust(scene, run)
    done(scene)
    monkeypatch.setenv("LOOM_COMMAND_WAIT", "0")
    assert "it is still running" in done(scene).repair
    folder = scene.run_dir / "stages" / "002-build.make@1" / "evidence-1"
    record = command_runs.look(str(folder)).record
    assert processes.lives(record["supervisor"])
    assert evidence_commands.runs_now(scene.space(), scene.space().store.read(run.run_id))
    act(scene)
    standing = command_runs.wait(str(folder), time.monotonic() + 20)
    assert standing.kind == command_runs.NONE or standing.result["stopped"]
    until(lambda: not processes.lives(record["supervisor"]), "a stopped command to be gone")


def test_a_rewound_step_still_knows_its_beginning(scene: Scene) -> None:
    """What the files were stands with the visit, also where the run is taken back to it."""
    scene.write("x.md", "1")
    run_id = begin(scene, "x.md")
    scene.write("x.md", "2")
    assert [end(scene), end(scene)] == ["succeeded"] * 2
    rewind.rewind(scene.space(), run_id, STAGE)
    scene.write("x.md", "1")
    assert "it has not changed" in done(scene).repair
    scene.write("x.md", "3")
    assert end(scene) == "succeeded"


def test_a_stop_sends_to_done_twice_and_then_tells_the_user(scene: Scene) -> None:
    """The block holds the command that ends the step; without a tool call in between it is not given a third time."""
    run_id = begin(scene, {"run": "touch ran"})
    candidate = scene.run_dir / "stages" / STAGE / "candidate.md"
    command = f"loomctl done {handle(run_id)} --for 001 --response-file {shlex.quote(str(candidate))}"
    for sent in (0, 1):
        told = stop(scene, SUCCEEDED, nudged=(STAGE, sent), idle=sent)
        assert (command in told.block, told.stage) == (True, STAGE)
    assert command in stop(scene, SUCCEEDED, nudged=(STAGE, 2), idle=0).block
    last = stop(scene, SUCCEEDED, nudged=(STAGE, 2), idle=2)
    assert (last.block, command in last.line, scene.state["status"]) == ("", True, "in_progress")
    assert "\n" not in last.line
    assert end(scene, candidate.read_text(encoding="utf-8")) == "succeeded"


COVER = "- path into the state `$.context.cover`: expected a value other than null and false, found"


@each(
    ("wanted", "context", "said"),
    [
        ({"state": "$.context.cover"}, {}, f"{COVER} nothing"),
        ({"state": "$.context.cover"}, {"cover": False}, f"{COVER} false"),
        (
            {"condition": "context.cover >= 80 && context.name == 'x'"},
            {"cover": 61, "name": "ü"},
            'it is not true: context.cover = 61, context.name = "ü"',
        ),
        (
            {"condition": "context.key == 'x'"},
            {"key": SECRET},
            'it is not true: context.key = "[masked: github token]"',
        ),
        ({"condition": "context.long == 'x'"}, {"long": "z" * 10_000}, "z…"),
        ({"condition": "[context.a].length > 3"}, {"a": 1}, "it is not true"),
    ],
)
def test_what_a_value_should_be_and_what_it_is_are_both_said(
    scene: Scene, wanted: Json, context: Json, said: str
) -> None:
    begin(scene, wanted)
    repair = done(scene, json.dumps({"outcome": "succeeded", "context_updates": context})).repair
    assert said in repair
    assert len(repair) < 700
    assert "ghp_" not in repair + (scene.run_dir / "events.jsonl").read_text(encoding="utf-8")
