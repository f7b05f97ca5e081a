"""One driver at a time: who takes the lease, who is refused, what goes beside, and what a carried state means."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loomctl.care import keep
from loomctl.flow import advance, resume, rewind, start
from loomctl.flow import fork as forking
from loomctl.kit import clock
from loomctl.kit.errors import LoomError
from loomctl.priming import memory_of_session, prime_run
from loomctl.runs import find, leases
from loomctl.runs.machine import drivers, run_notes
from loomctl.runs.model import lease
from loomctl.runs.model.lease import SILENT_AFTER
from loomctl.runs.project import Workspace
from loomctl.runs.store.events import Event
from loomctl.runs.store.unwritten import UnwrittenStore
from loomctl.workflows import triggers
from tests.helpers import faber
from tests.helpers.errors import refusal
from tests.helpers.scenes import MAIN, OTHER, SESSION, Json, Scene, artifact, fingerprint, handle
from tests.helpers.tables import each

WATCHED = """
import os, sys
opened = []
sys.addaudithook(lambda name, told: opened.append(str(told[0])) if name == "open" else None)
place = sys.argv[1]
sys.argv = sys.argv[2:]
sys.path.insert(0, sys.argv[0].rsplit("/", 2)[0])
from loomctl.__main__ import main
main()
names = list(opened)
with open(place, "w") as file:
    file.write("\\n".join(names))
"""
"""Answers a hook, and leaves which files it opened."""


@pytest.fixture
def host() -> Iterator[subprocess.Popen[bytes]]:
    """A host's process, which lives until the test says otherwise."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def begun(scene: Scene, host: subprocess.Popen[bytes]) -> Scene:
    """A run that SESSION drives, in a host whose process is known."""
    scene.write("spec.md", "The contrast is seven to one.\n")
    scene.workflow([artifact("spec", "spec.md")])
    start.start(scene.space(pid=host.pid), "add dark mode", workflow="tiny")
    return scene


def refused(call: Any) -> LoomError:
    caught = refusal(call)
    assert (caught.code, caught.exit_code) == ("HELD_BY_ANOTHER", 6)
    return caught


def done(space: Workspace, scene: Scene) -> object:
    return advance.done(space, scene.run_dir.name, response="x")


def holder(scene: Scene) -> str | None:
    found = lease.holder(scene.state)
    return found.session_id if found else None


def edit(scene: Scene, **changes: Any) -> None:
    """Change the lease as another machine would have written it."""
    scene.edit(lease={**scene.state["lease"], **changes})


def test_a_second_session_is_told_who_drives_and_what_it_may_do_and_a_fork_gets_no_lease(begun: Scene) -> None:
    held = begun.state["lease"]
    said = str(refused(lambda: resume.resume(begun.space(OTHER), begun.run_dir.name)))
    for part in (
        SESSION,
        "claude-code",
        held["hostname"],
        "came just now",
        "its last sign was just now",
        "loomctl show",
    ):
        assert part in said
    assert "counts as gone" not in said  # its process can be asked
    assert f"hint: loomctl resume {begun.handle} --take-over" in said
    assert begun.space(OTHER).local.binding(OTHER) is None
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "--resume", SESSION, "--fork-session"], stdin=subprocess.PIPE
    ) as fork:
        answer = begun.hook("session-start", session=OTHER, source="fork", environ={"CLAUDE_PID": str(fork.pid)})
        fork.communicate(b"\n")
    assert f"is driven by the session {SESSION}" in answer.message
    assert begun.space().local.binding(OTHER) is not None
    assert holder(begun) == SESSION


@each("verb", [["next"], ["done"], ["undo"], ["rewind", "--to", "1"], ["resume"], ["context", "set", "k", "1"]])
@each("session, named", [(OTHER, False), (None, False), (OTHER, True)])
def test_what_drives_needs_the_lease(
    begun: Scene, verb: list[str], session: str | None, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named or not, in another session or a terminal: exit code 6, and no byte of the run's state differs; what a run's
    own commands are given in the environment makes no driver.
    """
    before, run_id = begun.state, begun.run_dir.name
    words = verb if verb[0] == "context" else [verb[0], run_id, *verb[1:]]
    begun.space(OTHER).local.bind(OTHER, run_id, host="claude-code", pid=None)
    if named:
        monkeypatch.setenv("LOOM_RUN_ID", run_id)
    ended = begun.loomctl(*words, "--json", session=session, given="x" if verb == ["done"] else None)
    assert (ended.code, ended.json["error"]["code"]) == (6, "HELD_BY_ANOTHER"), ended
    assert begun.state == before


@each("words", [["show"], ["steps"], ["events"], ["prime-context"], ["preamble"], ["check"], ["runs"]])
def test_reading_needs_no_lease(begun: Scene, words: list[str]) -> None:
    """And leaves the driver's state alone; what was given is told in the log."""
    begun.space(OTHER).local.bind(OTHER, begun.run_dir.name, host="claude-code", pid=None)
    before = {key: value for key, value in begun.state.items() if key not in ("revision", "ledger_head", "updated_at")}
    assert begun.loomctl(*words, session=OTHER).code == 0
    after = {key: value for key, value in begun.state.items() if key not in ("revision", "ledger_head", "updated_at")}
    assert after == before


def test_a_dead_driver_holds_nothing(begun: Scene, host: subprocess.Popen[bytes]) -> None:
    """Its process ended without a word: the next command takes the run silently, and the log says why."""
    host.communicate(b"\n")
    resume.resume(begun.space(OTHER), begun.run_dir.name)
    (*_, taken) = [one for one in begun.events() if one["event"] == "lease.taken"]
    assert (taken["properties"]["why"], taken["properties"]["from"]["session_id"]) == ("gone", SESSION)
    assert (holder(begun), begun.state["lease"]["epoch"]) == (OTHER, taken["properties"]["epoch"])


def test_after_a_take_over_the_old_drivers_writes_are_refused(begun: Scene, host: subprocess.Popen[bytes]) -> None:
    old = begun.space(pid=host.pid)
    old.store.read(begun.run_dir.name)
    taken = resume.resume(begun.space(OTHER), begun.run_dir.name, take_over=True)
    assert any(SESSION in note for note in taken.notes)
    assert "lease.taken_over" in begun.event_names()
    refused(lambda: done(old, begun))
    refused(lambda: done(begun.space(pid=host.pid), begun))
    assert [one["status"] for one in begun.state["steps"]] == ["in_progress"]
    assert "lease.refused" in begun.event_names()
    resume.resume(begun.space(pid=host.pid), begun.run_dir.name, take_over=True)
    done(begun.space(pid=host.pid), begun)
    refused(lambda: done(old, begun))  # what it knew is two epochs old, though the session drives again


def test_an_older_epoch_is_refused_though_nobody_drives_any_more(begun: Scene) -> None:
    old = begun.space()
    old.store.read(begun.run_dir.name)
    resume.resume(begun.space(OTHER), begun.run_dir.name, take_over=True)
    leases.leave(begun.space(OTHER), begun.run_dir.name, "other")
    assert holder(begun) is None
    said = refused(lambda: done(old, begun))
    assert "got another driver while this command ran" in said.what
    done(begun.space(), begun)  # asked anew, it takes what is free
    assert holder(begun) == SESSION


def test_the_result_of_a_refused_done_is_kept(begun: Scene) -> None:
    resume.resume(begun.space(OTHER), begun.run_dir.name, take_over=True)
    ended = begun.loomctl("done", "--json", given="The result of hours.")
    assert ended.code == 6
    why = ended.json["error"]["why"]
    path = Path(why.split("--response-file ")[1])
    assert (path.read_text(), path.stat().st_mode & 0o077) == ("The result of hours.", 0)
    leases.leave(begun.space(OTHER), begun.run_dir.name, "other")
    again = why[why.index("loomctl done") :].split()[1:]
    assert (begun.loomctl("next").code, begun.loomctl(*again).code) == (0, 0)
    assert begun.state["steps"][0]["status"] == "succeeded"


def test_an_old_drivers_stop_ends_nothing_and_blocks_nothing(begun: Scene, host: subprocess.Popen[bytes]) -> None:
    mine = {"CLAUDE_PID": str(host.pid)}
    resume.resume(begun.space(OTHER), begun.run_dir.name, take_over=True)
    answers = [begun.hook("stop", last_assistant_message='{"outcome": "succeeded"}', environ=mine) for _ in range(2)]
    assert [one.code for one in answers] == [0, 0]
    assert "is driven by the session" in answers[0].message
    assert OTHER in answers[0].message
    assert answers[1].stdout == ""
    assert "block" not in answers[0].stdout
    assert begun.state["steps"][0]["status"] == "in_progress"
    begun.hook("session-end", reason="other", environ=mine)
    assert (begun.event_names()[-1], holder(begun)) == ("session.ended", OTHER)


def test_a_bound_session_that_drives_no_more_is_told_in_five_lines(begun: Scene) -> None:
    """It gets nothing of the run's files, its record is not written, and it is sent to `resume` (D64)."""
    resume.resume(begun.space(OTHER), begun.run_dir.name, take_over=True)
    before = begun.state["sessions"]
    answer = begun.hook("session-start", source="compact")
    assert "seven to one" not in answer.context
    assert len(answer.context.split("\n")) == 5
    assert "--take-over" in answer.context
    assert f"is driven by the session {OTHER}" in answer.message
    assert begun.state["sessions"] == before
    assert "session.compacted" in begun.event_names()


def test_the_sessions_end_frees_the_run_and_a_clear_does_not(begun: Scene, host: subprocess.Popen[bytes]) -> None:
    """After `/clear` the session that comes has the same process, and drives on under an epoch of its own (D2)."""
    mine = {"CLAUDE_PID": str(host.pid)}
    epoch = begun.state["lease"]["epoch"]
    begun.hook("session-end", reason="clear", environ=mine)
    assert holder(begun) == SESSION
    begun.hook("session-start", session=OTHER, source="clear", environ=mine)
    assert (holder(begun), begun.state["lease"]["epoch"]) == (OTHER, epoch + 1)
    begun.hook("session-end", session=OTHER, reason="prompt_input_exit", environ=mine)
    assert holder(begun) is None
    assert begun.state["lease"]["epoch"] == epoch + 1
    assert begun.event_names()[-2:] == ["lease.released", "session.ended"]


@pytest.mark.parametrize(
    ("silent", "held"), [(0, True), (SILENT_AFTER - 60, True), (SILENT_AFTER + 60, False), (-3600, False)]
)
def test_another_machines_driver_counts_for_half_an_hour(begun: Scene, silent: int, held: bool) -> None:
    edit(begun, hostname="machine-b", session_id="theirs", seen=clock.stamp(time.time() - silent))
    if held:
        said = str(refused(lambda: resume.resume(begun.space(OTHER), begun.run_dir.name)))
        assert ", and it counts as gone 30 minutes after that; one session drives" in said
    else:
        resume.resume(begun.space(OTHER), begun.run_dir.name)
        assert holder(begun) == OTHER


def silence(begun: Scene) -> tuple[str, Path]:
    """Let the driver be one whose process is not known and that gave no sign for long."""
    run_id, local = begun.run_dir.name, begun.space().local
    long_ago = time.time() - SILENT_AFTER - 60
    drivers.note(local.folder, run_id, lease.epoch(begun.state), SESSION, None)
    os.utime(Path(local.folder, "drivers", f"{run_id}.json"), (long_ago, long_ago))
    edit(begun, seen=clock.stamp(long_ago))
    return run_id, Path(local.folder)


def test_tool_calls_alone_are_signs(begun: Scene) -> None:
    """Of a driver whose process is not known: those that wait in the spool, and those that a reader digested."""
    run_id, local = silence(begun)
    assert begun.space(OTHER).store.held(run_id, begun.state) is None
    event: Json = {
        "session_id": SESSION, "hook_event_name": "PostToolUse", "tool_name": "Read", "tool_input": {"file_path": "x"},
        "tool_response": {},
    }  # fmt: skip
    spooled = local / "spool" / f"{SESSION}-77.json"
    spooled.write_text(json.dumps(event))
    assert begun.space(OTHER).store.held(run_id, begun.state) is not None
    assert begun.loomctl("steps", session=OTHER).code == 0
    assert not spooled.exists()
    assert begun.space(OTHER).store.held(run_id, begun.state) is not None


def test_a_prompt_that_the_launcher_answers_alone_is_a_sign(begun: Scene) -> None:
    """Of a driver whose process is not known: the session's own, as the launcher notes it (D80)."""
    run_id, local = silence(begun)
    beat = local / "hooks" / "user-prompt-submit"
    beat.write_text(f"0.1.0 {OTHER} /bin/loomctl\n")
    assert begun.space(OTHER).store.held(run_id, begun.state) is None
    beat.write_text(f"0.1.0 {SESSION} /bin/loomctl\n")
    assert begun.space(OTHER).store.held(run_id, begun.state) is not None


def test_a_copy_of_a_project_has_no_driver_and_taking_up_another_run_leaves_the_first(
    begun: Scene, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(begun.root, copy)
    there = Scene.__new__(Scene)
    there.root, there.store = copy, copy / ".loom"
    resume.resume(there.space(OTHER), begun.run_dir.name)
    assert (holder(there), holder(begun)) == (OTHER, SESSION)
    first = begun.run_dir.name
    begun.begin("other work")
    assert lease.holder(begun.state_of(begun.store / "runs" / first)) is None
    assert run_notes.is_known(first, str(begun.store))
    assert begun.loomctl("next", first, session=None).code == 0


def test_a_state_without_a_lease_is_free_and_one_of_another_shape_is_kept_beside(begun: Scene) -> None:
    state = begun.state
    del state["lease"]
    (begun.run_dir / "state.json").write_text(json.dumps(state))
    assert begun.loomctl("resume", begun.run_dir.name, session=None).code == 0
    assert begun.state["lease"]["epoch"] == 1
    begun.edit(lease=["held by nobody that is known"])
    assert begun.loomctl("resume", begun.run_dir.name, session=OTHER).code == 0
    assert (begun.state["lease_before_loom"], holder(begun)) == (["held by nobody that is known"], OTHER)


def test_a_value_that_a_person_sets_takes_no_lease(begun: Scene) -> None:
    """They work on nothing by it: the assistant that is resumed in another terminal drives, without a word."""
    run_id = begun.run_dir.name
    begun.let_go()
    for words in (
        ("context", "set", "k", "1", run_id),
        ("context", "unset", "k", run_id),
        ("prove", run_id, "--add", "x y"),
    ):
        assert begun.loomctl(*words, session=None).code == 0
        assert lease.holder(begun.state) is None
    begun.hook("session-start", source="resume")
    assert holder(begun) == SESSION
    for words in (("context", "set", "k", "1", run_id), ("prove", run_id, "--add", "z")):
        assert begun.loomctl(*words, session=None).code == 6


def test_a_fork_of_a_run_and_a_restored_state_are_nobodys(begun: Scene) -> None:
    """A restored state has an epoch that no driver ever had, so that none of them writes on."""
    run_id = begun.run_dir.name
    done(begun.space(), begun)
    forked = forking.fork(begun.space(), run_id, "1")
    assert lease.KEY not in forked.run.state
    epoch = begun.state_of(begun.store / "runs" / run_id)["lease"]["epoch"]
    old = begun.space()
    old.store.read(run_id)
    keep.restore_state(begun.space(), keep.examine_state(begun.space(), run_id))
    after = begun.state_of(begun.store / "runs" / run_id)
    assert (lease.holder(after), lease.epoch(after)) == (None, epoch + 1)
    refused(lambda: advance.next_step(old, run_id))
    rewind.rewind(begun.space(), run_id, "1")


def test_the_hooks_of_a_driver_say_that_it_lives(begun: Scene) -> None:
    """Not at each event: only where the last sign is minutes old."""
    run_id, local = begun.run_dir.name, begun.space().local
    edit(begun, seen="2026-01-01T00:00:00Z")
    leases.refresh(begun.space(), run_id)
    assert begun.state["lease"]["seen"] == "2026-01-01T00:00:00Z"
    long_ago = time.time() - leases.REFRESHED_AFTER - 60
    os.utime(Path(local.folder, "drivers", f"{run_id}.json"), (long_ago, long_ago))
    revision = begun.state["revision"]
    leases.refresh(begun.space(OTHER), run_id)
    assert begun.state["revision"] == revision
    leases.refresh(begun.space(), run_id)
    assert begun.state["lease"]["seen"] > "2026-01-01T00:00:00Z"
    assert begun.state["revision"] == revision + 1


def test_a_write_of_the_drivers_is_a_sign_and_needs_no_other(begun: Scene, host: subprocess.Popen[bytes]) -> None:
    run_id = begun.run_dir.name
    mine = {"CLAUDE_PID": str(host.pid)}
    path = begun.store / "local" / "drivers" / f"{run_id}.json"
    long_ago = time.time() - leases.REFRESHED_AFTER - 1
    os.utime(path, (long_ago, long_ago))
    assert begun.loomctl("context", "set", "k", "1").code == 0
    revision, seen = begun.state["revision"], clock.seconds_of(begun.state["lease"]["seen"])
    begun.hook("user-prompt-submit", prompt="On.", environ=mine)
    assert (begun.state["revision"], path.stat().st_mtime) == (revision, seen)
    edit(begun, seen=clock.stamp(long_ago))
    os.utime(path, (long_ago, long_ago))
    begun.hook("stop", last_assistant_message='{"outcome": "succeeded"}', environ=mine)
    assert begun.state["steps"][0]["status"] == "succeeded"
    assert begun.state["revision"] == revision + 1  # its end is the sign
    assert path.stat().st_mtime > long_ago + leases.REFRESHED_AFTER - 60


@pytest.mark.parametrize("event", ["user-prompt-submit", "stop", "session-start", "session-end"])
def test_a_hook_reads_who_drives_once(begun: Scene, host: subprocess.Popen[bytes], event: str) -> None:
    path = begun.store / "local" / "drivers" / f"{begun.run_dir.name}.json"
    long_ago = time.time() - leases.REFRESHED_AFTER - 1
    os.utime(path, (long_ago, long_ago))
    edit(begun, seen=clock.stamp(long_ago))
    opened = begun.store.parent / "opened"
    told = {"source": "startup", "prompt": "x", "last_assistant_message": "So far.", "reason": "other"}
    body = {"session_id": SESSION, "cwd": str(begun.root), "transcript_path": "", "hook_event_name": event, **told}
    environ = begun.environ(CLAUDE_PID=str(host.pid))
    command = [sys.executable, "-I", "-S", "-c", WATCHED, str(opened), str(MAIN), "hook", event]
    subprocess.run(command, input=json.dumps(body), cwd=begun.root, env=environ, text=True, check=True)
    names = opened.read_text().splitlines()
    assert names.count(str(path)) == 1
    assert names.count("/proc/sys/kernel/random/boot_id") <= 1


def test_who_drives_is_shown_and_a_person_decides_beside_a_living_driver(begun: Scene) -> None:
    """In `show`, `runs` and the doctor, to who drives and to who does not."""
    assert "driver    this session" in begun.loomctl("show").stdout
    assert SESSION in begun.loomctl("show", session=None).stdout
    assert "DRIVEN BY" not in begun.loomctl("runs").stdout
    assert "DRIVEN BY" in begun.loomctl("runs", session=None).stdout
    assert begun.loomctl("runs", "--json", session=None).json["runs"][0]["driver"]["session_id"] == SESSION
    assert begun.loomctl("show", "--json").json["driver"]["here"] is True
    for verb in ("pause", "cancel"):
        assert (begun.loomctl(verb, session=None).code, holder(begun)) == (0, SESSION)
    assert begun.state["status"] == "cancelled"


def test_a_run_that_another_drives_is_not_put_away_unasked(begun: Scene) -> None:
    run_id = begun.run_dir.name
    edit(begun, hostname="machine-b", session_id="theirs")
    begun.edit(status="failed")
    begun.space().local.unbind(SESSION)
    ended = begun.loomctl("runs", "rm", run_id, "--yes", "--json", session=None)
    assert (ended.code, ended.json["error"]["code"]) == (6, "RUN_IS_ACTIVE")
    assert begun.loomctl("runs", "rm", run_id, "--yes", "--force", session=None).code == 0
    assert not Path(begun.space().local.folder, "drivers", f"{run_id}.json").exists()


def test_what_is_noted_of_a_priming_never_takes_the_lease(begun: Scene) -> None:
    space = begun.space(OTHER)
    space.local.bind(OTHER, begun.run_dir.name, host="claude-code", pid=None)
    begun.let_go()
    run = space.store.read(begun.run_dir.name)
    made = prime_run.prime(space, run, triggers.session_start(), prime_run.hook_budget(space), may_write=True)
    memory_of_session.record(space, run.run_id, made)
    assert holder(begun) is None
    assert find.find(space).run_id == run.run_id


@pytest.mark.parametrize("count", [2**53 - 1, 2**53, 10**30, -1])
def test_a_run_that_was_counted_to_the_end_can_be_driven_and_restored(begun: Scene, count: int) -> None:
    """Whoever wrote that: what is written is read again, as often as it is, and a backup of it comes back."""
    run_id = begun.run_dir.name
    begun.edit(revision=count, lease={"epoch": count, "session_id": None})
    for _ in range(3):
        assert begun.loomctl("context", "set", "k", "1", run_id).code == 0
        assert begun.loomctl("context", "unset", "k", run_id).code == 0
    begun.edit(revision=count, lease={"epoch": count, "session_id": "theirs"})
    assert begun.loomctl("debug", "state", "restore", run_id, "--yes").code == 0
    assert (begun.loomctl("context", "set", "k", "2", run_id).code, holder(begun)) == (0, SESSION)


def test_a_key_of_fabers_own_of_that_name_is_nobodys_lease(scene: Scene) -> None:
    """It is read as none, and stays in the file in its own words (D5)."""
    path = faber.lay(scene, state={**faber.ERAS[next(iter(faber.ERAS))](), "lease": "held by faber"})
    assert (scene.loomctl("show").code, scene.loomctl("resume").code) == (0, 0)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["lease_before_loom"], found["lease"]["session_id"]) == ("held by faber", SESSION)


def test_a_state_is_restored_beside_a_living_driver_by_a_person_alone(begun: Scene) -> None:
    run_id = begun.run_dir.name
    done(begun.space(), begun)
    before = fingerprint(begun.run_dir)
    ended = begun.loomctl("debug", "state", "restore", run_id, "--yes", "--json", session=OTHER)
    assert (ended.code, ended.json["error"]["code"]) == (6, "HELD_BY_ANOTHER"), ended
    assert fingerprint(begun.run_dir) == before
    asked = begun.loomctl("debug", "state", "restore", run_id, session=None)
    assert f"driver    the session {SESSION}" in asked.stderr
    assert begun.loomctl("debug", "state", "restore", run_id, "--yes", session=None).code == 0
    assert holder(begun) is None


@pytest.mark.parametrize("taken", [False, True])
def test_a_state_that_cannot_be_read_is_its_drivers_to_restore(begun: Scene, *, taken: bool) -> None:
    run_id, path = begun.run_dir.name, begun.run_dir / "state.json"
    third = "5f0c9a52-0000-4000-8000-000000000003"
    done(begun.space(), begun)
    if taken:  # what is kept still has the driver before
        kept = path.read_bytes()
        resume.resume(begun.space(OTHER), run_id, take_over=True)
        (begun.run_dir / "state.backup.json").write_bytes(kept)
    driver = OTHER if taken else SESSION
    path.write_text("{")
    files = fingerprint(begun.run_dir)
    error = begun.loomctl("debug", "state", "restore", run_id, "--yes", "--json", session=third).json["error"]
    assert (error["code"], error["hint"]) == ("HELD_BY_ANOTHER", f"loomctl debug state restore {handle(run_id)}")
    assert driver in error["message"]
    assert "a person in a terminal" in error["why"]
    assert fingerprint(begun.run_dir) == files
    shown = begun.loomctl("debug", "state", "restore", run_id, "--dry-run", session=None)
    assert f"driver    the session {driver}" in shown.stdout
    for session in (driver, None):
        path.write_text("{")
        assert begun.loomctl("debug", "state", "restore", run_id, session=session).code == 0
        assert holder(begun) is None
        assert begun.loomctl("next", session=driver).code == 0
    leases.leave(begun.space(driver), run_id, "other")
    path.write_text("{")
    assert begun.loomctl("debug", "state", "restore", run_id, session=third).code == 0


def test_a_refusals_hint_is_a_way_on(begun: Scene) -> None:
    """Not the command that was refused, nor one that would be; taken over, the run can be driven and put away."""
    run_id = begun.run_dir.name
    for words in (["pause"], ["approve"], ["context", "set", "k", "1"], ["runs", "rm", run_id, "--yes"]):
        ended = begun.loomctl(*words, "--json", session=OTHER)
        assert ended.json["error"]["hint"] == f"loomctl resume {handle(run_id)} --take-over", ended
    begun.let_go()
    ended = begun.loomctl("pause", run_id, "--json", session=OTHER)
    assert ended.json["error"]["hint"] == f"loomctl resume {handle(run_id)}"
    ended = begun.loomctl("runs", "rm", run_id, "--yes", "--json", session=None)
    assert ended.json["error"]["hint"] == f"loomctl cancel {handle(run_id)}"


def test_a_store_that_is_never_written_is_not_told_and_not_replaced_either(begun: Scene) -> None:
    """What would be is read from it, and no file of the run differs."""
    run_id = begun.run_dir.name
    unwritten = UnwrittenStore(str(begun.store))
    before = fingerprint(begun.run_dir)
    unwritten.tell(run_id, lambda _: [Event("tick", {})])
    earlier = unwritten.replace(run_id, str(begun.run_dir / "state.backup.json"), lambda state: (state, []))
    assert unwritten.read_state(run_id) == earlier == json.loads((begun.run_dir / "state.backup.json").read_text())
    assert fingerprint(begun.run_dir) == before
