"""A run handed on through git: whole, byte for byte, refused where somebody else went on, and nothing of the user's
touched (D29, D53).
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loomctl.care import project_checks
from loomctl.flow import advance, fork, resume, rewind
from loomctl.handoff import copies, handoff, pull, push
from loomctl.handoff.push import Parcel
from loomctl.handoff.repository import Repository
from loomctl.kit.errors import LoomError
from loomctl.runs import context_values, find, log_verdict
from loomctl.runs.machine import run_notes
from loomctl.runs.store import arrivals, events, log_chain
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.events import Event
from loomctl.runs.tools import recall, tool_log
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.helpers.errors import refused
from tests.helpers.machines import SECRET, Machine, own_of_the_user, server_of, tips
from tests.helpers.patients import patient
from tests.helpers.repositories import add_worktree, git
from tests.helpers.scenes import MAIN, OTHER, SESSION, Json, handle, run
from tests.helpers.verbs import events as events_named

LARGE = "heliotrope " * 12_000


@pytest.fixture
def laptop(laptop: Machine) -> Machine:
    """A clone whose run has ended a step."""
    laptop.done(laptop.run_dir.name, "Asked.")
    return laptop


@pytest.fixture
def shared(laptop: Machine, desktop: Machine, run_id: str) -> str:
    """The run's id, after the laptop pushed it and the desktop pulled it."""
    laptop.push(run_id)
    desktop.pull(run_id)
    return run_id


# ---- There and back.


@pytest.mark.slow
def test_a_run_goes_on_at_another_path(
    laptop: Machine, desktop: Machine, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was pulled is what was pushed, byte for byte, is announced until it is resumed, and goes on there."""
    assert laptop.push(run_id).commit
    assert git(desktop.root, "status", "--porcelain", "-uall").strip() == ""
    assert desktop.pull(run_id).kind == pull.NEW
    assert git(desktop.root, "status", "--porcelain", "-uall").strip() == "?? .loom/.gitignore"
    names = [path.relative_to(laptop.run_dir) for path in laptop.run_dir.rglob("*") if path.is_file()]
    for name in names:
        if name.name not in ("state.backup.json", "command.json"):
            assert (desktop.folder(run_id) / name).read_bytes() == (laptop.run_dir / name).read_bytes(), name
    assert not run_notes.is_known(run_id, str(desktop.store))
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    with refused("HELD_BY_ANOTHER"):  # the laptop's session drove it a moment ago
        resume.resume(desktop.space(), run_id)
    taken = resume.resume(desktop.space(), run_id, take_over=True)
    assert taken.move.step == "build/make"
    assert any(line == "machine: desktop, before laptop" for line in taken.differences)
    (pulled,) = events_named(desktop, "run.pulled")
    assert (pulled["machine"], pulled["kind"]) == ("laptop", "new")
    resume.resume(desktop.space(), run_id)
    assert desktop.event_names().count("run.pulled") == 1


ADA, BOB = ("Ada", "ada@example.org"), ("Bob", "bob@example.org")
ACCOUNT = pwd.getpwuid(os.getuid()).pw_name
WHO = {
    "settings": ({}, ADA, ("Ada", "Ada <ada@example.org>")),
    "committer before settings": ({"COMMITTER": BOB}, ADA, ("Bob", "Bob <bob@example.org>")),
    "committer before author": ({"COMMITTER": BOB, "AUTHOR": ADA}, ("", ""), ("Bob", "Bob <bob@example.org>")),
    "author alone": ({"AUTHOR": BOB}, ("", ""), ("Bob", "Bob <bob@example.org>")),
    "half of each": ({"COMMITTER": ("Bob", "")}, ("", "ada@example.org"), ("Bob", "Bob <ada@example.org>")),
    "a name alone": ({}, ("Ada", ""), ("Ada", "Loom <loom@localhost>")),
    "nobody": ({}, ("", ""), (ACCOUNT, "Loom <loom@localhost>")),
    "an odd one": ({"COMMITTER": ("B\x1bo<b", "b>@x")}, ("", ""), ("Bob", "Bob <b@x>")),
}


@pytest.mark.slow
def test_a_push_is_by_whom_a_commit_of_gits_would_be(
    laptop: Machine, server: Path, run_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the environment says, else the settings; nobody is made up of the account and the machine's name."""
    for variable, value in (("HOME", str(tmp_path)), ("GIT_CONFIG_NOSYSTEM", "1")):
        monkeypatch.setenv(variable, value)
    for variable in ("XDG_CONFIG_HOME", "EMAIL", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(variable, raising=False)
    for name, (variables, settings, (by, identity)) in WHO.items():
        for who in ("COMMITTER", "AUTHOR"):
            for part, one in zip(("NAME", "EMAIL"), variables.get(who, ("", "")), strict=True):
                variable = f"GIT_{who}_{part}"
                monkeypatch.setenv(variable, one) if one else monkeypatch.delenv(variable, raising=False)
        said = zip(("name", "email"), settings, strict=True)
        (laptop.root / "settings").write_text("".join(f"[user]\n{key} = {one}\n" for key, one in said if one))
        git(laptop.root, "config", "include.path", "../settings")
        (laptop.run_dir / "note.md").write_text(name)
        parcel = push.prepare(laptop.desk(), run_id)
        assert parcel.message.by == by, name
        push.send(laptop.desk(), parcel)
        told = git(server, "log", "-1", "--format=%cn <%ce>|%an <%ae>", f"refs/loom/runs/{run_id}")
        assert told == f"{identity}|{identity}", name
        (listed,) = copies.list_runs(laptop.desk())
        assert listed.by == by, name


@pytest.mark.parametrize("session", [SESSION, OTHER])
def test_the_doctor_says_how_a_run_that_is_driven_elsewhere_is_taken_over(
    desktop: Machine, shared: str, monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    """The doctor, for the same conversation too: its hint is no command that is refused."""
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    way = f"loomctl resume {desktop.space().store.handle(shared)} --take-over"
    found = project_checks.known(patient(desktop, session_id=session))
    assert found.hint == way
    assert "driven by" in found.found
    resume.resume(desktop.space(session), shared, take_over=True)
    assert project_checks.known(patient(desktop, session_id=session)).hint == ""


@pytest.mark.slow
def test_what_differs_is_told_against_who_was_last_here_or_there(
    laptop: Machine, desktop: Machine, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second resume here has nothing to tell, nor has a copy of what stood here; the laptop's next state has."""
    moved = "the project is at another path; Loom has adapted the run's paths"
    laptop.push(run_id)
    desktop.pull(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    first = resume.resume(desktop.space(OTHER), run_id, take_over=True)
    assert first.differences[:2] == ["machine: desktop, before laptop", moved]
    assert resume.resume(desktop.space(OTHER), run_id).differences == []
    assert resume.resume(desktop.space("third"), run_id, take_over=True).differences == []
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    laptop.done(run_id)
    laptop.push(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    desk = handoff.Desk(desktop.space("third"), None)
    saved = pull.pull(desk, run_id, desk.list_runs()[run_id], keep=pull.TOOK_THEIRS).saved
    assert saved is not None
    assert resume.resume(desktop.space("third"), saved).differences == []
    again = resume.resume(desktop.space("third"), run_id, take_over=True)
    assert again.differences[:2] == ["machine: desktop, before laptop", moved]


@pytest.mark.slow(quick=1)
def test_a_second_push_sends_what_is_new_alone(laptop: Machine, server: Path, run_id: str) -> None:
    """Each commit has the one before as its parent, which no tidying prunes; without news nothing is written."""
    first = laptop.push(run_id).commit
    before = (tips(server), (laptop.run_dir / "state.json").read_bytes())
    assert laptop.push(run_id).commit is None
    assert (tips(server), (laptop.run_dir / "state.json").read_bytes()) == before
    git(laptop.root, "gc", "-q", "--prune=now")
    assert laptop.desk().repository.commit_of(laptop.desk().last_ref(run_id)) == first
    laptop.done(run_id, "Made.")
    pushed = laptop.push(run_id)
    commits = git(server, "rev-parse", f"refs/loom/runs/{run_id}", f"refs/loom/runs/{run_id}~1").split()
    assert commits == [pushed.commit, first]
    assert git(server, "show", f"{first}:run/events.jsonl") in (laptop.run_dir / "events.jsonl").read_text().strip()
    changed = git(server, "diff", "--name-only", str(first), str(pushed.commit)).splitlines()
    assert "run/plan.json" not in changed
    assert len(pushed.parcel.new) == len(changed)


@pytest.mark.slow
def test_a_pull_brings_forward_what_nothing_was_done_to(laptop: Machine, desktop: Machine, shared: str) -> None:
    """There and back: the stages of the other machine are here then, and the state before is the backup."""
    desktop.done(shared, "Made on the desktop.")
    desktop.push(shared)
    before = (laptop.run_dir / "state.json").read_bytes()
    (laptop.run_dir / "outputs").mkdir(exist_ok=True)
    (laptop.run_dir / "outputs" / "x.log").write_text("only here")
    assert laptop.pull(shared).kind == pull.FORWARD
    assert laptop.responses(shared) == ["Asked.", "Made on the desktop."]
    assert (laptop.run_dir / "state.backup.json").read_bytes() == before
    assert (laptop.run_dir / "outputs" / "x.log").read_text() == "only here"
    assert not run_notes.is_known(shared, str(laptop.store))
    assert laptop.pull(shared).kind == pull.NOTHING
    laptop.done(shared, "Polished.")
    assert laptop.pull(shared).kind == pull.AHEAD
    assert laptop.push(shared).commit


# ---- Somebody else went on.


@pytest.mark.slow
def test_a_push_over_a_newer_state_is_refused_and_explained(laptop: Machine, desktop: Machine, shared: str) -> None:
    desktop.done(shared)
    commit = desktop.push(shared).commit
    with refused("REMOTE_NEWER") as caught:
        laptop.push(shared)
    for words in ("on laptop pushed it just now", "build/polish", "it continues your state, so pull it first"):
        assert words in str(caught.value.why)
    assert caught.value.hint == f"loomctl pull {laptop.space().store.handle(shared)}"
    assert laptop.desk().repository.list_runs(laptop.desk().remote) == {shared: commit}


@pytest.mark.slow
def test_whatever_was_done_here_counts(laptop: Machine, desktop: Machine, shared: str, tmp_path: Path) -> None:
    """An event, a stage's file, a tool step: each makes two states of one, whatever the revision says."""
    desktop.done(shared)
    desktop.push(shared)
    before = shutil.copytree(laptop.run_dir, tmp_path / "before")
    step = StepReducer(DataOffloader(laptop.run_dir)).reduce("Bash", {"command": "ls"}, {"stdout": "a"}, step_id="1")
    for change in (
        lambda: events.append(str(laptop.run_dir), shared, [Event("x", {})], durable=False),
        lambda: (laptop.run_dir / "stages" / "002-build.make@1" / "candidate.md").write_text("perhaps"),
        lambda: tool_log.append(str(laptop.run_dir), [step]),
    ):
        change()
        for deed in (laptop.pull, laptop.push):
            with refused("DIVERGED", exit_code=6):
                deed(shared)
        shutil.rmtree(laptop.run_dir)
        shutil.copytree(before, laptop.store / "runs" / shared)


@pytest.fixture
def apart(laptop: Machine, desktop: Machine, shared: str) -> str:
    """A run that went on here and there; the desktop pushed first. Gives its id."""
    desktop.done(shared, "Made on the desktop.")
    laptop.done(shared, "Made on the laptop.")
    desktop.push(shared)
    return shared


@pytest.mark.slow
@pytest.mark.parametrize("keep", [pull.KEPT_MINE, pull.TOOK_THEIRS])
def test_of_two_states_one_stays_and_one_is_a_run_of_its_own(
    laptop: Machine, desktop: Machine, apart: str, keep: str
) -> None:
    """Nothing is dropped: both are whole, the saved one says so under its own id, and a plain push is possible."""
    told = laptop.pull(apart, keep)
    assert told.saved is not None
    mine, theirs = ["Asked.", "Made on the laptop."], ["Asked.", "Made on the desktop."]
    kept, saved = (mine, theirs) if keep == pull.KEPT_MINE else (theirs, mine)
    assert (laptop.responses(apart), laptop.responses(told.saved)) == (kept, saved)
    state = laptop.state_of(laptop.folder(told.saved))
    assert (state["run_id"], state["status"], state["saved_from"]["run_id"]) == (told.saved, "pending", apart)
    entries = log_of(laptop, told.saved)
    assert ({one["run_id"] for one in entries}, entries[-1]["event"]) == ({told.saved}, "run.saved_aside")
    for path in laptop.folder(told.saved).glob("stages/*/status.json"):
        assert json.loads(path.read_text())["run_id"] == told.saved
    assert (laptop.push(apart).commit is None) == (keep == pull.TOOK_THEIRS)
    assert laptop.push(told.saved).commit
    assert desktop.pull(told.saved).kind == pull.NEW
    assert desktop.pull(apart).kind == (pull.FORWARD if keep == pull.KEPT_MINE else pull.NOTHING)
    assert desktop.responses(apart) == kept
    resume.resume(laptop.space(), told.saved)


@pytest.fixture
def settled(laptop: Machine, apart: str) -> str:
    """The same, after the laptop kept its own state and handed that on. Gives the run's id."""
    laptop.pull(apart, pull.KEPT_MINE)
    assert laptop.push(apart).commit
    return apart


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["", pull.TOOK_THEIRS])
def test_a_pull_of_what_does_not_go_on_from_here_saves_what_is_here(desktop: Machine, settled: str, keep: str) -> None:
    """Nothing was done here since the push, and still the stages of that are in nothing that comes."""
    told = desktop.pull(settled, keep)
    assert (told.kind, desktop.responses(settled)) == (pull.FORWARD, ["Asked.", "Made on the laptop."])
    assert told.saved is not None
    assert desktop.responses(told.saved) == ["Asked.", "Made on the desktop."]
    state = desktop.state_of(desktop.folder(told.saved))
    origin = state["saved_from"]
    assert (state["status"], origin["run_id"], origin["whose"]) == ("pending", settled, "mine")
    assert log_verdict.verify(desktop.space().store, told.saved).proven
    shared = {path.stat().st_ino for path in desktop.folder(settled).rglob("*.md")}
    assert not shared & {path.stat().st_ino for path in desktop.folder(told.saved).rglob("*.md")}
    assert desktop.pull(settled).kind == pull.NOTHING
    resume.resume(desktop.space(), told.saved)


@pytest.mark.slow
def test_keep_mine_keeps_what_is_here_against_what_does_not_go_on_from_it(
    laptop: Machine, desktop: Machine, settled: str
) -> None:
    """The word counts, whoever's turn it is: theirs is saved, mine is handed on, and the laptop is not left blind."""
    told = desktop.pull(settled, pull.KEPT_MINE)
    assert (told.kind, desktop.responses(settled)) == (pull.KEPT_MINE, ["Asked.", "Made on the desktop."])
    assert desktop.responses(str(told.saved)) == ["Asked.", "Made on the laptop."]
    assert desktop.push(settled).commit
    back = laptop.pull(settled)
    assert (back.kind, laptop.responses(settled)) == (pull.FORWARD, ["Asked.", "Made on the desktop."])
    assert laptop.responses(str(back.saved)) == ["Asked.", "Made on the laptop."]


@pytest.mark.slow
def test_a_user_is_told_where_the_stages_are_that_a_plain_pull_took_from_the_run(
    desktop: Machine, settled: str
) -> None:
    """The id of the run that holds them, and the reason; a push says before that it will be so."""
    assert "a pull takes it, and saves yours as a new run" in desktop.loomctl("push", settled, "--yes").stderr
    said = desktop.loomctl("pull", settled).stdout
    (saved,) = [path.name for path in desktop.run_dirs if path.name != settled]
    assert (
        f"Saved the earlier state, which the pulled one does not contain, as {desktop.space().store.handle(saved)}"
        in said
    )
    resume.resume(desktop.space(), settled, take_over=True)
    (pulled,) = [one for one in log_of(desktop, settled) if one["event"] == "run.pulled"]
    assert (pulled["properties"]["kind"], pulled["properties"]["saved"]) == ("forward", saved)


@pytest.mark.slow
def test_what_goes_on_from_here_saves_nothing_whatever_was_done_there(
    laptop: Machine, desktop: Machine, shared: str
) -> None:
    """A line that a kill tore, a step taken back, a resume: each is told in the log that was here."""
    torn_whole(desktop, shared)
    desktop.done(shared, "Made.")
    rewind.undo(desktop.space(), shared)
    desktop.push(shared)
    told = laptop.pull(shared)
    assert (told.kind, told.saved, len(laptop.run_dirs)) == (pull.FORWARD, None, 1)


def torn_whole(machine: Machine, run_id: str) -> bytes:
    """Let a kill leave a whole entry without its newline, and the next write close it; gives that entry's bytes."""
    folder = machine.folder(run_id)
    log = folder / "events.jsonl"
    data = log.read_bytes()
    state = machine.state_of(folder)
    events.append(str(folder), run_id, [Event("session.started", {"source": "killed"})], durable=False)
    torn = log.read_bytes()[len(data) : -1]
    log.write_bytes(data + torn)
    machine.space().store.tell(run_id, lambda _: [Event("session.started", {"source": "next"})])
    assert machine.state_of(folder) != state
    return torn


def log_of(machine: Machine, run_id: str) -> list[Json]:
    return [json.loads(line) for line in (machine.folder(run_id) / "events.jsonl").read_text().splitlines()]


def tampered(machine: Machine, run_id: str) -> None:
    log = machine.folder(run_id) / "events.jsonl"
    data = log.read_bytes()
    assert data.count(b'"properties":{"') > 1
    log.write_bytes(data.replace(b'"properties":{"', b'"properties":{"X', 1))


@pytest.mark.slow
@pytest.mark.parametrize("keep", [pull.KEPT_MINE, pull.TOOK_THEIRS])
def test_what_a_kill_tore_stays_as_it_was_in_a_run_that_is_saved_aside(
    laptop: Machine, desktop: Machine, shared: str, keep: str
) -> None:
    """A whole entry without its newline is told by its bytes, and the saved run's log is no damaged one."""
    torn = [torn_whole(machine, shared) for machine in (laptop, desktop)]
    for machine in (desktop, laptop):
        assert log_verdict.verify(machine.space().store, shared).told_torn == 1
        machine.done(shared, "Made.")
    desktop.push(shared)
    told = laptop.pull(shared, keep)
    assert told.saved is not None
    found = log_verdict.verify(laptop.space().store, told.saved)
    assert (list(found.faults), found.told_torn, found.proven) == ([], 1, True)
    log = (laptop.folder(told.saved) / "events.jsonl").read_bytes()
    assert torn[keep == pull.KEPT_MINE] in log.splitlines()
    assert told.notes == []


@pytest.mark.slow
@pytest.mark.parametrize("keep", [pull.KEPT_MINE, pull.TOOK_THEIRS])
def test_a_damaged_log_is_not_made_whole_by_saving_its_run_aside(
    laptop: Machine, desktop: Machine, apart: str, keep: str
) -> None:
    """The new chain begins with what was wrong with the old one, and verify finds that in the saved run."""
    if keep == pull.TOOK_THEIRS:
        tampered(laptop, apart)
    else:
        tampered(desktop, apart)
        desktop.push(apart)
    told = laptop.pull(apart, keep)
    assert told.saved is not None
    found = log_verdict.verify(laptop.space().store, told.saved)
    assert [fault.code for fault in found.faults] == [log_chain.TOLD_DAMAGE]
    assert found.faults[0].why.startswith("line 1: entry 1 was changed")
    last = log_of(laptop, told.saved)[-2:]
    assert [one["event"] for one in last] == ["ledger.damaged", "run.saved_aside"]
    assert last[0]["properties"]["of"] == apart
    assert any(laptop.space().store.handle(told.saved) in note for note in told.notes) == (keep == pull.KEPT_MINE)


@pytest.mark.slow
def test_a_damaged_run_is_handed_on_with_a_word(laptop: Machine, desktop: Machine, run_id: str) -> None:
    """Push, pull and fork name the verdict and the command that tells more; they refuse nothing."""
    said = f"its log is damaged at line 1; loomctl prove --log {handle(run_id)}"
    assert not any(said in note for note in laptop.push(run_id).notes)
    tampered(laptop, run_id)
    assert any(said in note for note in laptop.push(run_id).notes)
    assert any(said in note for note in desktop.pull(run_id).notes)
    stage = laptop.state_of(laptop.folder(run_id))["steps"][0]["stage"]
    assert any(said in note for note in fork.fork(laptop.space(), run_id, stage).notes)


@pytest.mark.slow
def test_both_push_at_once_and_one_is_refused_without_loss(laptop: Machine, desktop: Machine, shared: str) -> None:
    """Real processes: whoever comes second is told, keeps all that it has, and the remote has the other's."""
    desktop.done(shared, "desktop 0")
    laptop.done(shared, "laptop 0")
    command = [sys.executable, "-I", str(MAIN), "push", shared, "--yes", "--json"]
    for one in (laptop, desktop):
        one.rest()
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda one: run(command, cwd=one.root, environ=one.environ()), (laptop, desktop)))
    answers = [(one.json, one.code) for one in ended]
    assert sorted(code for _, code in answers) == [0, 6], answers
    loser = laptop if answers[0][1] else desktop
    assert next(document for document, code in answers if code)["error"]["code"] == "DIVERGED"
    assert loser.responses(shared)[-1].endswith(" 0")
    told = loser.pull(shared, pull.KEPT_MINE)
    assert told.saved is not None
    assert {"laptop 0", "desktop 0"} <= {*loser.responses(shared), *loser.responses(told.saved)}


@pytest.mark.slow
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_remote_that_was_replaced_is_believed_to_go_on_from_here_by_its_log_alone(
    laptop: Machine, desktop: Machine, server: Path, shared: str, goes_on: bool
) -> None:
    """Where no commit of the remote's knows what was last agreed on, nothing here is lost: the log tells it."""
    git(server, "update-ref", "-d", f"refs/loom/runs/{shared}")
    run_notes.forget(str(desktop.store / "local"), shared)
    desktop.done(shared, "Made.")
    if not goes_on:
        tampered(desktop, shared)
    desktop.push(shared)
    if goes_on:
        assert (laptop.pull(shared).kind, laptop.responses(shared)) == (pull.FORWARD, ["Asked.", "Made."])
        return
    with refused("DIVERGED"):
        laptop.pull(shared)


@pytest.mark.slow
def test_a_push_of_which_nobody_heard_counts(laptop: Machine, desktop: Machine, run_id: str) -> None:
    """A kill came after the remote had taken it: what was pulled and pushed on top of it is a newer state, no other."""
    before = laptop.push(run_id).commit
    laptop.done(run_id, "Made.")
    commit = laptop.push(run_id).commit
    desk = laptop.desk()
    refs = {desk.last_ref(run_id): before, f"{desk.pending_refs(run_id)}0123": commit}
    notes = laptop.store / "local" / run_notes.AGREED / f"{run_id}.json"
    desk.repository.set_refs(refs)
    notes.unlink()
    assert laptop.push(run_id).commit is None
    assert desk.repository.refs("refs/loom/") == {desk.last_ref(run_id): commit}
    desk.repository.set_refs(refs)
    notes.unlink()
    desktop.pull(run_id)
    desktop.done(run_id, "Polished.")
    desktop.push(run_id)
    assert laptop.pull(run_id).kind == pull.FORWARD
    assert laptop.responses(run_id) == ["Asked.", "Made.", "Polished."]


@pytest.mark.slow
def test_who_only_looks_writes_nothing(laptop: Machine, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on its way from another process stays, and so does a word about two states that was noted meanwhile."""
    before = laptop.push(run_id).commit
    laptop.done(run_id, "Made.")
    commit = laptop.push(run_id).commit
    desk = laptop.desk()
    desk.repository.set_refs({desk.last_ref(run_id): before, f"{desk.pending_refs(run_id)}0123": commit})
    notes = laptop.store / "local" / run_notes.AGREED / f"{run_id}.json"
    refs = desk.repository.refs("refs/loom/")
    for text in (notes.read_bytes(), b""):
        if not text:
            notes.unlink()
        with desk.lock(run_id):
            with monkeypatch.context() as patch:
                patch.setattr(Repository, "set_refs", _never_but_nothing)
                (found,) = copies.list_runs(laptop.desk())
                assert found.here == "the same"
            assert not push.prepare(laptop.desk(), run_id).is_due
            assert laptop.push(run_id).commit is None
        assert desk.repository.refs("refs/loom/") == refs
        assert (notes.read_bytes() if notes.exists() else b"") == text


def _never_but_nothing(_: Repository, wanted: Mapping[str, str | None]) -> None:
    assert not wanted


@pytest.mark.slow
@pytest.mark.parametrize("due", [True, False])
def test_a_ref_that_cannot_be_written_fails_nothing_that_is_well_without_it(
    laptop: Machine, desktop: Machine, run_id: str, due: bool
) -> None:
    """The logs tell it the next time: what arrived is not said to have failed, and what is the same is."""
    before = laptop.push(run_id).commit
    laptop.done(run_id, "Made.")
    desk = laptop.desk()
    if not due:
        laptop.push(run_id)
        desk.repository.set_refs({desk.last_ref(run_id): before})
    stands = laptop.root / ".git" / f"{desk.last_ref(run_id)}.lock"
    stands.write_text("", encoding="utf-8")
    pushed = laptop.push(run_id)
    assert (pushed.commit is not None) == due
    assert any("Loom could not record that here: " in note for note in pushed.notes) == due
    assert laptop.pull(run_id).kind == pull.NOTHING
    assert desk.repository.refs("refs/loom/")[desk.last_ref(run_id)] == before
    assert "run.push_failed" not in laptop.event_names()
    stands.unlink()
    assert laptop.push(run_id).commit is None
    assert set(desk.repository.refs("refs/loom/")) == {desk.last_ref(run_id)}
    desktop.pull(run_id)
    assert desktop.responses(run_id) == ["Asked.", "Made."]


# ---- What is the user's.


@pytest.mark.slow
@pytest.mark.shows("no branch, index, HEAD or working file, and no hook of yours runs")
def test_nothing_of_the_users_is_touched(laptop: Machine, desktop: Machine, apart: str) -> None:
    """Branches, index, HEAD, settings and working tree are the same bytes before and after, and no hook runs."""
    for one in (laptop, desktop):
        (one.root / "a.txt").write_text("changed\n")
        (one.root / "b.txt").write_text("staged\n")
        for words in ("add b.txt", "branch other", "pack-refs --all"):
            git(one.root, *words.split())
        for setting in ("fetch.prune", "push.followTags"):
            git(one.root, "config", setting, "true")
        for name in ("pre-push", "reference-transaction", "post-checkout", "pre-auto-gc", "post-rewrite"):
            hook = one.root / ".git" / "hooks" / name
            hook.write_text(f'#!/bin/sh\necho {name} >> "{one.root}/sprung"\nexit 1\n')
            hook.chmod(0o755)
    before = [own_of_the_user(one.root) for one in (laptop, desktop)]
    for deed in (laptop.push, laptop.pull):
        with pytest.raises(LoomError):
            deed(apart)
    copies.list_runs(laptop.desk())
    laptop.pull(apart, pull.KEPT_MINE)
    laptop.push(apart)
    desktop.pull(apart)
    assert [own_of_the_user(one.root) for one in (laptop, desktop)] == before


# ---- What is carried.


@pytest.mark.slow
def test_secrets_are_masked_and_come_back_to_where_they_are_known(
    laptop: Machine, desktop: Machine, server: Path, run_id: str
) -> None:
    """No byte of one reaches the server; what comes back to the machine that knows it has it in its place again."""
    folder = laptop.run_dir
    laptop.edit(context={**laptop.state["context"], "token": SECRET, "n": 1})
    stage = folder / "stages" / "001-frame.ask@1"
    (stage / "response.md").write_text(f"The token is {SECRET}.\n")
    parcel = pushing_of(laptop, run_id)
    masked = {"run/state.json", "run/stages/001-frame.ask@1/response.md"}
    assert {path for path, _, count in parcel.new if count} == masked
    laptop.push(run_id)
    every_object = "git rev-list --all --objects | cut -d' ' -f1 | git cat-file --batch"
    everything = subprocess.run(every_object, shell=True, cwd=server, capture_output=True, check=True).stdout
    assert b"Asked" in everything or b"masked" in everything
    assert SECRET.encode() not in everything
    desktop.pull(run_id)
    assert "masked" in desktop.state_of(desktop.folder(run_id))["context"]["token"]
    desktop.done(run_id, "Made.")
    desktop.push(run_id)
    assert laptop.pull(run_id).kind == pull.FORWARD
    assert laptop.state["context"]["token"] == SECRET
    assert SECRET in (stage / "response.md").read_text()
    assert laptop.pull(run_id).kind == pull.NOTHING


def test_two_clones_on_one_machine_are_two_places(laptop: Machine, desktop: Machine, run_id: str) -> None:
    """What the other clone has is said to be there; what is gone here, or in a worktree of this one, is gone."""
    put_away(laptop, "line\n" * 4000)
    laptop.push(run_id)
    desktop.pull(run_id)
    with refused("REF_NOT_HERE") as caught:
        original(desktop, run_id)
    assert caught.value.where == f"in another copy of the project on this machine ({laptop.root})"
    assert f"it is {caught.value.where}; run this there: loomctl push {handle(run_id)} --with-outputs" in str(
        caught.value.why
    )
    (output,) = laptop.run_dir.glob("outputs/*")
    output.unlink()
    with refused("REF_GONE"):
        original(laptop, run_id)


@pytest.mark.slow
def test_a_driver_in_another_clone_on_this_machine_is_one_of_another_machine(
    laptop: Machine, desktop: Machine, run_id: str
) -> None:
    """It may live there, and only a pull tells of it: half an hour, though the machine has the same name (issue 7)."""
    resume.resume(laptop.space(OTHER), run_id, take_over=True)
    laptop.push(run_id)
    pulled = desktop.loomctl("pull").stdout
    assert f"loomctl resume {handle(run_id)} --take-over" in pulled
    assert f"the session {OTHER} (" in pulled
    before = desktop.folder(run_id).joinpath("state.json").read_bytes()
    refused = desktop.loomctl("resume", run_id, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (6, "HELD_BY_ANOTHER")
    assert refused.json["error"]["hint"] == f"loomctl resume {handle(run_id)} --take-over"
    assert desktop.folder(run_id).joinpath("state.json").read_bytes() == before
    assert desktop.loomctl("resume", run_id, "--take-over").code == 0
    assert desktop.loomctl("resume", run_id, session="third").code == 6  # who took it over lives here


@pytest.mark.slow
def test_a_run_that_is_over_is_pulled_to_be_looked_at(laptop: Machine, desktop: Machine, run_id: str) -> None:
    """Nobody goes on with it, so neither a push nor a pull says how."""
    while laptop.state["status"] == "in_progress":
        laptop.done(run_id, "Made.")
    pushed = laptop.loomctl("push", run_id, "--yes")
    pulled = desktop.loomctl("pull", run_id)
    assert f"It is completed. To look at it: loomctl show {handle(run_id)}" in pulled.stdout
    assert not any("loomctl resume" in ended.stdout for ended in (pushed, pulled))


@pytest.mark.slow
def test_a_driver_in_another_clone_holds_the_run_for_half_an_hour(
    laptop: Machine, desktop: Machine, run_id: str
) -> None:
    """After its last sign; then the run is taken without a word, and the pull asks for none."""
    resume.resume(laptop.space(OTHER), run_id, take_over=True)
    held = laptop.state["lease"]
    laptop.edit(lease={**held, "seen": "2026-01-01T00:00:00Z"})
    laptop.push(run_id)
    pulled = desktop.loomctl("pull").stdout
    assert not any(words in pulled for words in ("--take-over", OTHER))
    assert desktop.loomctl("resume", run_id).code == 0


@pytest.mark.slow
def test_a_store_that_was_copied_is_free_whatever_once_came_into_it(
    desktop: Machine, tmp_path: Path, shared: str
) -> None:
    """Who drove in the folder that was copied drives there; a pull before that says nothing of this driver."""
    resume.resume(desktop.space(OTHER), shared, take_over=True)
    desktop.root = Path(shutil.copytree(desktop.root, tmp_path / "copied"))
    desktop.store = desktop.root / ".loom"
    assert desktop.loomctl("resume", shared).code == 0


@pytest.mark.slow
def test_a_note_that_names_no_driver_locks_nobody_out(
    laptop: Machine, desktop: Machine, run_id: str, tmp_path: Path
) -> None:
    resume.resume(laptop.space(OTHER), run_id, take_over=True)
    laptop.push(run_id)
    desktop.pull(run_id)
    local, came = str(desktop.store / "local"), shutil.copytree(desktop.folder(run_id), tmp_path / "came")
    drivers: list[object] = [None, [], "x", {"epoch": True}, {"session_id": OTHER}]
    for driver in drivers:
        run_notes.note_handoff(local, run_id, {**run_notes.handoff(local, run_id), "driver": driver})
        assert desktop.loomctl("resume", run_id).code == 0, driver
        shutil.rmtree(desktop.folder(run_id))
        shutil.copytree(came, desktop.folder(run_id))


def test_what_is_gone_from_a_linked_worktree_or_a_moved_project_is_gone(
    laptop: Machine, tmp_path: Path, run_id: str
) -> None:
    """Its session worked at another root in the same store, or the project was there; no pull brought the run."""
    linked = add_worktree(laptop.root, tmp_path / "linked", "topic")
    put_away(laptop, "line\n" * 4000)
    next(laptop.run_dir.glob("outputs/*")).unlink()
    (record,) = laptop.state["sessions"]["session_history"]
    there = {**record["environment"], "project_root": str(linked), "cwd": str(linked)}
    sessions = laptop.state["sessions"]
    laptop.edit(sessions={**sessions, "session_history": [{**record, "environment": there}]})
    with refused("REF_GONE"):
        original(laptop, run_id)
    laptop.edit(sessions=sessions)
    laptop.root = laptop.root.rename(tmp_path / "moved")
    laptop.store = laptop.root / ".loom"
    with refused("REF_GONE"):
        original(laptop, run_id)


def pushing_of(machine: Machine, run_id: str, *, outputs: bool = False) -> Parcel:
    return push.prepare(machine.desk(), run_id, outputs=outputs)


def put_away(machine: Machine, text: str, step_id: str = "toolu_01") -> None:
    reducer = StepReducer(DataOffloader(machine.run_dir))
    step = reducer.reduce("Bash", {"command": "ls"}, {"stdout": text}, step_id=step_id)
    assert step.outcome_ref
    tool_log.append(str(machine.run_dir), [step._replace(more={"session_id": SESSION, "number": 1})])


def original(machine: Machine, run_id: str) -> bytes:
    held = recall.record(machine.space(), run_id)
    return recall.original_text(held, next(held.steps()))


@pytest.mark.slow
def test_what_was_not_carried_says_where_it_lives(
    laptop: Machine, desktop: Machine, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REF_NOT_HERE names the machine and the command there; after that push and a pull it reads as it was."""
    put_away(laptop, "line\n" * 4000)
    laptop.push(run_id)
    desktop.pull(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    with refused("REF_NOT_HERE", where="on laptop") as caught:
        original(desktop, run_id)
    assert f"loomctl push {handle(run_id)} --with-outputs" in str(caught.value.why)
    assert caught.value.hint == f"loomctl pull {handle(run_id)}"
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    (gone,) = laptop.run_dir.glob("outputs/*")
    data = gone.read_bytes()
    laptop.push(run_id, outputs=True)
    desktop.pull(run_id)
    assert original(desktop, run_id) == data
    gone.unlink()
    with refused("REF_GONE"):
        original(laptop, run_id)


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["", pull.KEPT_MINE, pull.TOOK_THEIRS])
def test_what_is_only_missing_here_comes_though_both_went_on(
    laptop: Machine, desktop: Machine, run_id: str, keep: str
) -> None:
    """As REF_NOT_HERE says: a push with outputs there, a pull here, which took the run up. It replaces nothing."""
    put_away(laptop, "line\n" * 4000)
    (there,) = laptop.run_dir.glob("outputs/*")
    laptop.push(run_id)
    desktop.pull(run_id)
    resume.resume(desktop.space(), run_id, take_over=True)
    laptop.push(run_id, outputs=True)
    outputs = desktop.folder(run_id) / "outputs"
    outputs.mkdir()
    (outputs / "own.log").write_bytes(b"own")
    state = (desktop.folder(run_id) / "state.json").read_bytes()
    if keep:
        told = desktop.pull(run_id, keep)
        assert list(told.brought) == [f"run/outputs/{there.name}"]
        assert original(desktop, str(told.saved)) == there.read_bytes()
    else:
        with refused("DIVERGED") as caught:
            desktop.pull(run_id)
        assert "nothing was pulled but 1 file missing here" in caught.value.what
        assert "lacked" not in desktop.loomctl("pull", run_id).stderr
    assert original(desktop, run_id) == there.read_bytes()
    assert (outputs / "own.log").read_bytes() == b"own"
    assert ((desktop.folder(run_id) / "state.json").read_bytes() == state) == (keep != pull.TOOK_THEIRS)


@pytest.mark.slow
def test_what_went_missing_here_comes_again(laptop: Machine, desktop: Machine, run_id: str) -> None:
    put_away(laptop, "line\n" * 4000)
    values, _ = context_values.stored(laptop.space(), {"large": LARGE})
    laptop.edit(context={**laptop.state["context"], **values})
    laptop.push(run_id, outputs=True)
    desktop.pull(run_id)
    store = Blobs(str(desktop.store))
    lost = [next(desktop.folder(run_id).glob("outputs/*")), Path(store.path(values["large"]))]
    for kind in (pull.NOTHING, pull.AHEAD):
        for path in lost:
            path.unlink()
        told = desktop.pull(run_id)
        assert told.kind == kind
        assert [os.path.basename(path) for path in told.brought] == [path.name for path in lost]
        assert all(path.exists() for path in lost)
        resume.resume(desktop.space(), run_id, take_over=True)
    for path in lost:
        path.unlink()
    assert "Fetched 2 files that the run refers to" in desktop.loomctl("pull", run_id).stdout


@pytest.mark.slow
def test_a_push_drops_no_output_that_is_only_not_here(
    laptop: Machine, desktop: Machine, server: Path, run_id: str
) -> None:
    """Once it was carried it goes along, whoever pushes next; and that it is not here is no other state."""
    put_away(laptop, "line\n" * 4000)
    (output,) = laptop.run_dir.glob("outputs/*")
    laptop.push(run_id, outputs=True)
    desktop.pull(run_id)
    (desktop.folder(run_id) / "outputs" / output.name).unlink()
    assert copies.list_runs(desktop.desk())[0].here == "the same"
    desktop.done(run_id, "Made.")
    parcel = pushing_of(desktop, run_id)
    assert (list(parcel.gone), parcel.outputs) == ([], True)
    desktop.push(run_id)
    there = git(server, "ls-tree", "-r", "--name-only", f"refs/loom/runs/{run_id}").splitlines()
    assert f"run/outputs/{output.name}" in there


@pytest.mark.slow
def test_an_output_that_is_not_what_the_step_says_does_not_come(laptop: Machine, desktop: Machine, run_id: str) -> None:
    put_away(laptop, "line\n" * 4000)
    (output,) = laptop.run_dir.glob("outputs/*")
    laptop.push(run_id)
    desktop.pull(run_id)
    resume.resume(desktop.space(), run_id, take_over=True)
    output.write_bytes(b"another")
    laptop.push(run_id, outputs=True)
    with pytest.raises(LoomError) as caught:
        desktop.pull(run_id)
    assert caught.value.what.endswith("; nothing was pulled")
    assert not (desktop.folder(run_id) / "outputs" / output.name).exists()


@pytest.mark.slow
def test_what_is_known_by_its_hash_and_holds_a_secret_stays(
    laptop: Machine, desktop: Machine, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob and an output cannot be masked: they are left out, named before, and read REF_NOT_HERE there."""
    values, _ = context_values.stored(laptop.space(), {"large": f"{LARGE} {SECRET}", "fine": LARGE})
    laptop.edit(context={**laptop.state["context"], **values})
    (left,) = pushing_of(laptop, run_id).left_out
    assert left.name.endswith(values["large"][-64:])
    laptop.push(run_id)
    assert [name for name, _ in desktop.pull(run_id).left_out] == [left.name]
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    run = desktop.space().store.read(run_id)
    assert context_values.value_of(desktop.space(), run, values["fine"]) == LARGE
    with refused("REF_NOT_HERE", where="on laptop"):
        context_values.value_of(desktop.space(), run, values["large"])
    assert desktop.loomctl("debug", "blob", "get", values["large"], "--json").json["error"]["code"] == "REF_NOT_HERE"


def test_nothing_of_the_machine_is_carried(laptop: Machine, server: Path, run_id: str) -> None:
    """Backups, who watches a command, derived files and leftovers stay; paths stand where it is said that they do."""
    names = ("state.broken-1.json", "reads.json", "x.json.4711.0a1b2c3d.tmp", "stages/001-frame.ask@1/command.json")
    for name in names:
        (laptop.run_dir / name).write_text("{}")
    (laptop.run_dir / "work.md").write_text("# Work\n")
    os.symlink("/etc/passwd", laptop.run_dir / "stages" / "link")
    laptop.push(run_id)
    ref = f"refs/loom/runs/{run_id}"
    there = git(server, "ls-tree", "-r", "--name-only", ref).splitlines()
    assert "run/work.md" in there
    parts = ("backup", "broken", "reads", "tmp", "command.json", "link", "local", "outputs")
    assert [name for name in there if any(part in name for part in parts)] == []
    told = {name for name in there if str(laptop.root) in git(server, "show", f"{ref}:{name}")}
    assert {"run/state.json"} <= told  # of its sessions: by their roots paths are found again (D9)
    assert {name for name in told if not name.endswith("/prompt.md")} <= {"run/state.json"}
    bare = {**json.loads(git(server, "show", f"{ref}:run/state.json")), "sessions": {}}
    assert str(laptop.root) not in json.dumps(bare)


@pytest.mark.slow
def test_a_linked_worktree_hands_on_what_the_main_checkout_has(
    laptop: Machine, desktop: Machine, tmp_path: Path, run_id: str
) -> None:
    linked = add_worktree(laptop.root, tmp_path / "linked", "topic")
    answer = laptop.loomctl("push", "--yes", "--json", run_id, cwd=linked)
    assert (answer.code, answer.json["run_id"]) == (0, run_id)
    assert laptop.push(run_id).commit is None
    assert desktop.pull(run_id).kind == pull.NEW


@pytest.mark.slow
def test_a_shallow_clone_hands_on_too(laptop: Machine, tmp_path: Path, run_id: str) -> None:
    laptop.push(run_id)
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{tmp_path}/server.git", "shallow")
    shallow = Machine.__new__(Machine)
    shallow.root, shallow.store = tmp_path / "shallow", tmp_path / "shallow" / ".loom"
    shallow.pull(run_id)
    shallow.done(run_id, "Made shallowly.")
    assert shallow.push(run_id).commit
    assert laptop.pull(run_id).kind == pull.FORWARD


def test_repositories_that_name_objects_by_sha256_hand_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    server = server_of(tmp_path)
    one, other = Machine(tmp_path / "one", server), Machine(tmp_path / "other", server)
    one.workflow()
    run_id = one.begin().run.run_id
    assert len(str(one.push(run_id).commit)) == 64
    assert other.pull(run_id).kind == pull.NEW
    assert other.push(run_id).commit is None


# ---- The list.


@pytest.mark.slow
def test_the_list_says_how_each_run_stands(laptop: Machine, desktop: Machine, run_id: str) -> None:
    """Not here, the same, newer there, newer here, diverged; and the project's repository takes no part in it."""

    def here(machine: Machine) -> str:
        (found,) = copies.list_runs(machine.desk())
        assert (found.run_id, found.work, found.machine) == (run_id, "add dark mode", "laptop")
        return found.here

    assert copies.list_runs(laptop.desk()) == []
    laptop.push(run_id)
    before = set((desktop.root / ".git" / "objects").rglob("*"))
    assert (here(laptop), here(desktop)) == ("the same", "not here")
    assert set((desktop.root / ".git" / "objects").rglob("*")) == before
    desktop.pull(run_id)
    desktop.done(run_id)
    assert here(desktop) == "newer here"
    desktop.push(run_id)
    assert (here(desktop), here(laptop)) == ("the same", "newer there")
    laptop.done(run_id)
    assert here(laptop) == "diverged"


def test_a_run_of_fabers_is_refused(laptop: Machine) -> None:
    folder = laptop.root / ".fractary" / "runs" / "faber-1-run-1"
    folder.mkdir(parents=True)
    state = {"run_id": "faber-1-run-1", "plan_id": "faber-1", "status": "in_progress", "phases": []}
    (folder / "state.json").write_text(json.dumps(state))
    assert find.to_read(laptop.space(), "faber-1-run-1").run_id
    with refused("NOT_LOOMS"):
        laptop.push("faber-1-run-1")


def test_the_newest_are_told_apart_by_who_pushed_them(laptop: Machine, run_id: str) -> None:
    """A commit says who, from which machine and when, on one line, whatever the name holds."""
    git(laptop.root, "config", "user.name", "Eve\x1b[2J <x>")
    laptop.push(run_id)
    desk = laptop.desk()
    said = handoff.who(desk.message(desk.repository.list_runs(desk.remote)[run_id], run_id))
    assert ("laptop" in said, "\x1b" in said) == (True, False)


def test_blobs_come_into_the_store(laptop: Machine, desktop: Machine, run_id: str) -> None:
    """A large value is read there as it is here; one that stands there damaged is mended, for no name is believed."""
    values, _ = context_values.stored(laptop.space(), {"large": LARGE})
    laptop.edit(context={**laptop.state["context"], **values})
    laptop.push(run_id)
    store = Blobs(str(desktop.store))
    path = Path(store.path(values["large"]))
    path.parent.mkdir(parents=True)
    path.write_text("damaged")
    desktop.pull(run_id)
    assert store.get(values["large"]) == json.dumps(LARGE).encode()


@pytest.mark.slow
def test_where_two_folders_cannot_change_places_a_kill_between_is_mended(
    laptop: Machine, desktop: Machine, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On such a file system the run goes aside for a moment; the next pull brings it back, and takes what is newer."""
    monkeypatch.setattr(arrivals, "_exchanged", lambda *_: False)
    laptop.push(run_id)
    desktop.pull(run_id)
    desktop.done(run_id, "Made.")
    desktop.push(run_id)
    os.makedirs(laptop.store / "local" / "handoff", exist_ok=True)
    os.rename(laptop.run_dir, arrivals.aside(str(laptop.store / "local"), run_id))
    assert laptop.pull(run_id).kind == pull.FORWARD
    assert laptop.responses(run_id) == ["Asked.", "Made."]
    assert os.listdir(laptop.store / "local" / "handoff") == [f"{run_id}.json"]


# ---- Beside a driver.


@pytest.mark.slow
def test_a_run_that_a_session_drives_here_is_not_replaced_under_it(
    laptop: Machine, desktop: Machine, shared: str
) -> None:
    """Neither by another session's pull nor by a person's, unless that one says that theirs counts."""
    desktop.done(shared, "Made on the desktop.")
    desktop.push(shared)
    before = (laptop.run_dir / "state.json").read_bytes()
    for session, words in ((OTHER, ()), (OTHER, ("--take-theirs",)), (None, ())):
        ended = laptop.loomctl("pull", shared, "--json", *words, session=session)
        assert (ended.code, ended.json["error"]["code"]) == (6, "HELD_BY_ANOTHER"), ended
        assert (laptop.run_dir / "state.json").read_bytes() == before
    assert ended.json["error"]["hint"] == f"loomctl pull {laptop.space().store.handle(shared)} --take-theirs"
    assert laptop.loomctl("pull", shared, "--take-theirs", session=None).code == 0
    assert laptop.responses(shared) == ["Asked.", "Made on the desktop."]


@pytest.mark.slow
def test_a_driver_that_was_paused_does_not_write_into_what_was_pulled(
    laptop: Machine, desktop: Machine, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines counted to one epoch: the lease that it met is another's, whatever its number."""
    resume.resume(laptop.space(OTHER), shared, take_over=True)
    paused = laptop.space(OTHER)
    epoch = paused.store.read_state(shared)["lease"]["epoch"]
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    resume.resume(desktop.space("theirs"), shared, take_over=True)
    desktop.push(shared)
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    assert laptop.loomctl("pull", shared, "--take-theirs", session=None).code == 0
    came = (laptop.folder(shared) / "state.json").read_bytes()
    assert came == (desktop.folder(shared) / "state.json").read_bytes()
    assert json.loads(came)["lease"]["epoch"] == epoch
    free = {**json.loads(came), "lease": {**json.loads(came)["lease"], "session_id": None}}
    (laptop.folder(shared) / "state.json").write_text(json.dumps(free), encoding="utf-8")
    with refused("HELD_BY_ANOTHER"):
        advance.done(paused, shared, response="Late.")


@pytest.mark.slow
def test_a_task_list_in_the_runs_folder_goes_along_with_its_ticks(
    tmp_path: Path, server: Path, desktop: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There and back in the middle of a list: the next open task is the same on both machines (D65)."""
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    laptop = Machine(tmp_path / "laptop", server)
    each = {"id": "each", "prompt": "{task}", "for_each": "artifacts.spec"}
    laptop.workflow(phases={"build": {"steps": [{"id": "spec", "prompt": "Write it."}, each]}})
    run_id = laptop.begin().run.run_id
    name = "{run_dir}/list.md"
    path = laptop.folder(run_id) / "list.md"
    path.write_bytes(b"- [ ] one\r\n- [ ] two\r\n- [ ] three\r\n- [ ] four\r\n")
    advance.done(laptop.space(), run_id, response="Written.", artifacts={"spec": name})
    laptop.done(run_id)
    laptop.push(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    desktop.pull(run_id)
    resume.resume(desktop.space(), run_id, take_over=True)
    desktop.done(run_id)
    desktop.push(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    laptop.pull(run_id)
    assert path.read_bytes() == b"- [x] one\r\n- [x] two\r\n- [ ] three\r\n- [ ] four\r\n"
    resume.resume(laptop.space(), run_id, take_over=True)
    laptop.done(run_id)
    assert path.read_bytes().count(b"[x]") == 3
    assert laptop.state_of(laptop.folder(run_id))["steps"][-1]["task"]["text"] == "four"
