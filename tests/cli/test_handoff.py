"""`push`, `pull` and `runs --remote` as their user meets them: listed first, confirmed, and with a way on."""

import json
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from loomctl.flow import resume
from loomctl.handoff import work
from loomctl.kit import processes
from loomctl.workflows import check
from tests.cli.commands import begin, next_beside, record
from tests.helpers.machines import SECRET, Machine, server_of, tips
from tests.helpers.near import near_machines
from tests.helpers.repositories import git
from tests.helpers.scenes import CHECKOUT, OTHER, SESSION, handle
from tests.helpers.texts import holds
from tests.helpers.waiting import Gate, until

__all__ = ["near_machines"]
pytestmark = pytest.mark.usefixtures("near_machines")


@pytest.fixture
def laptop(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "laptop", server_of(tmp_path))
    made.workflow()
    made.begin()
    return made


@pytest.mark.slow
def test_nothing_leaves_the_machine_before_it_is_listed_and_confirmed(laptop: Machine, tmp_path: Path) -> None:
    laptop.edit(context={"token": SECRET})
    refused = laptop.loomctl("push")
    assert (refused.code, refused.stdout) == (2, "")
    for told in ("the state: ", "the plan: ", "Loom masks 1 secret in\n  run/state.json", "NOT_CONFIRMED", "--yes"):
        assert told in refused.stderr
    assert SECRET not in refused.stderr
    listed = laptop.loomctl("push", "--dry-run")
    assert (listed.code, listed.stderr) == (0, "")
    assert "would push" in listed.stdout
    assert not any("loom" in name for name in tips(tmp_path / "server.git"))
    assert laptop.loomctl("push", "--json").json["error"]["code"] == "NOT_CONFIRMED"
    assert laptop.event_names().count("run.pushed") == 0
    assert laptop.loomctl("push", "--yes").code == 0
    assert "as it is here" in laptop.loomctl("push").ends().stdout


@pytest.mark.slow
def test_a_pull_says_how_the_run_is_taken_up_until_it_was(laptop: Machine, tmp_path: Path) -> None:
    """Also a second one, which finds nothing new: a kill may have come between the first one and its words."""
    run_id = laptop.run_dir.name
    laptop.push(run_id)
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    said = f"To continue it here: loomctl resume {handle(run_id)}"
    assert said in desktop.loomctl("pull").stdout
    assert desktop.loomctl("pull", "--json").json["bytes"] == 0
    told = Machine(tmp_path / "third", tmp_path / "server.git").loomctl("pull", "--json").json
    came = git(tmp_path / "server.git", "ls-tree", "-r", "-l", f"refs/loom/runs/{run_id}").splitlines()
    assert (told["files"], told["bytes"]) == (len(came), sum(int(line.split()[3]) for line in came))
    assert desktop.loomctl("pull").stdout.startswith(f"Loom: {handle(run_id)} is up to date with origin\n{said}")
    assert said not in laptop.loomctl("pull").stdout


@pytest.mark.slow
def test_code_is_listed_pushed_and_put_into_a_worktree(laptop: Machine, tmp_path: Path) -> None:
    run_id = laptop.run_dir.name
    called, desktop = handle(run_id), Machine(tmp_path / "desktop", tmp_path / "server.git")
    laptop.push(run_id)
    refused = desktop.loomctl("pull", "--worktree", str(tmp_path / "there")).ends(3)
    assert "NO_CODE" in refused.stderr
    (laptop.root / "new.py").write_text("x = 1\n")
    (laptop.root / ".env").write_text("TOKEN=1\n")
    git(laptop.root, "commit", "-q", "--allow-empty", "-m", "mine")
    work.snapshot(laptop.space(), run_id)
    head = git(laptop.root, "rev-parse", "HEAD")
    listed = laptop.loomctl("push", "--dry-run").ends().stdout
    assert f"  the code, where it differs from commit {head[:9]}: 1 file, 6 bytes, and 1 commit of yours\n" in listed
    assert "Stays here:\n  .env: it looks like a secret, and git does not track it\n" in listed
    said = laptop.loomctl("push", "--yes").ends().stdout
    assert said.startswith(f"Loom: pushed {called} with its code to origin (")
    assert f"To continue it elsewhere: loomctl pull {called} --worktree ../{called}\n" in said
    work.snapshot(laptop.space(), run_id)
    git(laptop.root, "push", "-q", "origin", f":refs/loom/work/{run_id}")
    code = laptop.loomctl("push", "--yes", "--json").ends().json["code"]
    assert (code["base"], code["files"], code["bytes"], code["commits"]) == (head, 1, 6, 1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    assert "NOT_EMPTY" in desktop.loomctl("pull", "--worktree", str(tmp_path / "full")).ends(2).stderr
    assert "USAGE" in desktop.loomctl("pull", "--all", "--worktree", "x").ends(2).stderr
    told = desktop.loomctl("pull", called, "--worktree", "../there").ends().stdout
    there = tmp_path / "there"
    assert f"Put the code into {there}, on branch loom/{called}\n  saved just now" in told
    assert "Not in it:\n  .env: it looks like a secret, and git does not track it\n" in told
    assert told.endswith(f"To work there: cd {there}\n")
    assert (there / "new.py").read_text() == "x = 1\n"
    assert "BRANCH_EXISTS" in desktop.loomctl("pull", "--worktree", str(tmp_path / "again")).ends(2).stderr
    third = Machine(tmp_path / "third", tmp_path / "server.git")
    made = third.loomctl("pull", "--worktree", str(tmp_path / "by json"), "--json").ends().json["code"]
    assert (made["path"], made["branch"], made["base"]) == (str(tmp_path / "by json"), f"loom/{called}", head)
    assert made["left_out"] == [{"name": ".env", "why": "it looks like a secret, and git does not track it"}]


@pytest.mark.slow
def test_no_worktree_is_made_of_code_that_is_older_than_the_state_here(laptop: Machine, tmp_path: Path) -> None:
    run_id = laptop.run_dir.name
    work.snapshot(laptop.space(), run_id)
    laptop.push(run_id)
    laptop.done(run_id)
    said = laptop.loomctl("pull", "--worktree", str(tmp_path / "there")).ends().stdout
    assert "is newer here" in said
    assert said.endswith("The state here is newer than the code that was pushed, so Loom made no worktree\n")
    assert not (tmp_path / "there").exists()


@pytest.mark.slow
def test_every_run_of_a_remote_is_pulled_and_what_is_refused_is_told(laptop: Machine, tmp_path: Path) -> None:
    first = laptop.run_dir.name
    laptop.push(first)
    desktop = Machine(tmp_path / "desk top", tmp_path / "server.git")
    assert desktop.loomctl("pull").code == 0
    laptop.begin("another")
    second = next(path.name for path in laptop.run_dirs if path.name != first)
    laptop.push(second)
    laptop.done(first)
    laptop.push(first)
    desktop.done(first)
    told = desktop.loomctl("pull", "--all", "--json").ends(6)
    assert {one["run_id"]: one["kind"] for one in told.json["runs"]} == {first: "refused", second: "new"}
    said = desktop.loomctl("pull", "--all")
    assert ("--keep-mine" in said.stderr, "DIVERGED" in said.stdout) == (True, False)
    assert f"Loom: {handle(second, 'another')} is up to date with origin" in said.stdout
    assert desktop.loomctl("pull", "--all", "--take-theirs").code == 0
    assert len(desktop.run_dirs) == 3


@pytest.mark.slow
def test_one_run_that_cannot_be_taken_keeps_no_other_from_coming(laptop: Machine, tmp_path: Path) -> None:
    first = laptop.run_dir.name
    for word in ("another", "broken", "odd"):
        laptop.begin(word)
    names = {name: one.name for one in laptop.run_dirs for name in ("another", "broken", "odd") if name in one.name}
    for folder in laptop.run_dirs:
        laptop.push(folder.name)
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    assert desktop.loomctl("pull", first).code == 0
    desktop.done(first)
    laptop.done(first)
    laptop.push(first)
    git(tmp_path / "server.git", "update-ref", f"refs/loom/runs/{names['broken']}", "refs/heads/main")
    (desktop.store / "local" / "handoff" / f"{names['odd']}.json").mkdir()  # where a pull notes where it came from
    told = desktop.loomctl("pull", "--all", "--json")
    assert {one["run_id"]: one.get("error", {}).get("code", one["kind"]) for one in told.json["runs"]} == {
        first: "DIVERGED", names["another"]: "new", names["broken"]: "BAD_HANDOFF", names["odd"]: "SYSTEM",
    }  # fmt: skip
    assert told.code == 5
    said = desktop.loomctl("pull", "--all")
    assert (said.code, said.stderr.count("BAD_HANDOFF:"), said.stdout.count("is up to date with origin")) == (5, 1, 1)
    assert "BAD_HANDOFF" not in said.stdout


@pytest.mark.slow
@pytest.mark.parametrize("named", ["origin", "sp ace", "fork"])
def test_what_nobody_can_take_is_taken_away_with_a_copy_and_the_run_put_there_again(
    laptop: Machine, tmp_path: Path, named: str
) -> None:
    """Each command that the error names works as it stands, again and again; the list claims nothing of it.

    fork: `origin` is pushed to another repository than it is fetched from.
    """
    run_id, server = laptop.run_dir.name, tmp_path / "server.git"
    if named != "origin":
        server = tmp_path / f"{named}.git"
        git(tmp_path, "init", "-q", "--bare", str(server))
        git(laptop.root, "push", "-q", str(server), "HEAD:refs/heads/main")
    if named == "fork":
        git(laptop.root, "config", "remote.origin.pushurl", str(server))
    there = ["--remote", f"../{named}.git"] if named == "sp ace" else []
    assert laptop.loomctl("push", run_id, "--yes", *there).code == 0
    ref, copies = f"refs/loom/runs/{run_id}", []
    for text in ("one", "two"):
        broken = git(server, "commit-tree", "-m", text, "refs/heads/main^{tree}")
        git(server, "update-ref", ref, broken)
        (row, said) = laptop.loomctl("runs", *(there or ["--remote"])).stdout.splitlines()[1:]
        assert (row.split()[1], row.rsplit("  ", 1)[1].strip()) == ("unreadable", "unknown")
        assert said.startswith(f"! {run_id}: BAD_HANDOFF: ")  # what nobody can read has no handle
        assert "newer there" not in row
        pull = shlex.split(said.rpartition("To see why: ")[2])
        for words in (pull[1:], ["push", run_id, "--yes", *there]):
            error = laptop.loomctl(*words, "--json").json["error"]
            assert error["code"] == "BAD_HANDOFF"
            takes_away, again = error["why"].split("`")[1::2]
            assert error["hint"] == takes_away.split(" && ")[0]
        copies.append(broken)
        assert shell(laptop.root, takes_away) == 0
        assert ref not in tips(server)
        assert laptop.loomctl(*shlex.split(again)[1:], "--yes").code == 0
        assert tips(server)[ref] not in copies
        below = f"refs/loom/unreadable/{run_id}/"
        assert {git(laptop.root, "rev-parse", below + oid) for oid in copies} == set(copies)
    third = Machine(tmp_path / "third", tmp_path / "server.git" if named == "sp ace" else server)
    assert third.loomctl("pull", run_id, *there).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("what", ["cannot be copied", "pushed since", "copied, and pushed since"])
def test_what_has_no_copy_is_not_taken_away(laptop: Machine, tmp_path: Path, what: str) -> None:
    """The command that takes it away waits for the one that keeps it, and takes what was copied alone."""
    run_id, server = laptop.run_dir.name, tmp_path / "server.git"
    laptop.push(run_id)
    ref = f"refs/loom/runs/{run_id}"
    git(server, "update-ref", ref, "refs/heads/main")
    keeps, away = laptop.loomctl("pull", run_id, "--json").json["error"]["why"].split("`")[1].split(" && ")
    if what == "cannot be copied":
        (laptop.root / ".git" / "refs" / "loom" / "unreadable").write_text("in the way", encoding="utf-8")
    else:
        if what.startswith("copied"):
            assert shell(laptop.root, keeps) == 0
        git(server, "update-ref", ref, git(server, "commit-tree", "-m", "newer", f"{ref}^{{tree}}"))
    there = tips(server)[ref]
    assert shell(laptop.root, f"{keeps} && {away}") != 0
    assert tips(server)[ref] == there


def shell(folder: Path, line: str) -> int:
    return subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, check=False).returncode


def test_who_has_not_the_run_is_told_who_can_put_it_there_again(laptop: Machine, tmp_path: Path) -> None:
    run_id = laptop.run_dir.name
    laptop.push(run_id)
    git(tmp_path / "server.git", "update-ref", f"refs/loom/runs/{run_id}", "refs/heads/main")
    error = Machine(tmp_path / "desktop", tmp_path / "server.git").loomctl("pull", "--json").json["error"]
    assert (error["code"], error["hint"]) == ("BAD_HANDOFF", "loomctl runs --remote")
    assert f" && git push --force-with-lease=refs/loom/runs/{run_id}:" in error["why"]


@pytest.mark.slow
def test_which_run_is_meant_is_asked_for(laptop: Machine, tmp_path: Path) -> None:
    laptop.begin("another")
    for folder in laptop.run_dirs:
        laptop.push(folder.name)
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    assert desktop.loomctl("pull", "--json").json["error"]["code"] == "AMBIGUOUS_RUN"
    assert desktop.loomctl("pull", "laptop-another").code == 0
    assert desktop.loomctl("pull", "nowhere", "--json").json["error"]["code"] == "NO_SUCH_RUN"
    rows = desktop.loomctl("runs", "--remote").stdout.splitlines()
    assert [line.rsplit("  ", 1)[1].strip() for line in rows[1:]] == ["not here", "the same"]
    assert desktop.loomctl("runs", f"--remote={tmp_path}/server.git").code == 0


def test_a_push_from_below_names_the_remote_and_the_take_over_as_they_hold_elsewhere(
    laptop: Machine, tmp_path: Path
) -> None:
    run_id, below = laptop.run_dir.name, laptop.root / "a" / "b"
    below.mkdir(parents=True)
    seen = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60))
    driver = {"epoch": 3, "session_id": OTHER, "host": "claude-code", "hostname": "there", "since": seen, "seen": seen}
    for lease in (driver, {"epoch": 4, "session_id": None}):
        laptop.edit(lease=lease)
        pushed = laptop.loomctl(
            "push", run_id, "--remote", "../../../server.git", "--yes", session=None, cwd=below
        ).ends()
        elsewhere = f"loomctl pull {handle(run_id)} --remote {(tmp_path / 'server.git').resolve()}"
        assert f"To continue it elsewhere: {elsewhere}\n" in pushed.stdout
        assert (f"{elsewhere}, then loomctl resume {handle(run_id)} --take-over" in pushed.stdout) == (lease is driver)
        assert (f"The run is driven by the session {OTHER}" in pushed.stdout) == (lease is driver)


WAYS = (["prime-context"], ["next"], ["done"], ["undo"], ["context", "set", "k", "1"], ["resume"])


@pytest.mark.slow
def test_each_hint_about_a_run_that_was_pulled_leads_on(
    laptop: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = laptop.run_dir.name
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    laptop.push(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    desktop.pull(run_id)
    assert desktop.loomctl("prime-context", "--run-id", run_id).code == 0  # as each of the errors says
    desktop.loomctl("resume", run_id, "--take-over")
    desktop.push(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    laptop.pull(run_id)
    for session in (SESSION, OTHER):
        announced = laptop.hook("session-start", session=session, source="startup").message
        assert "was not resumed here (another session drives it: loomctl show" in announced
        assert f"/loom:resume {handle(run_id)} --take-over" in announced
        assert "started" not in announced
    assert "driver    the session" in laptop.loomctl("show", run_id, session=OTHER).stdout
    for way in WAYS:
        refused = laptop.loomctl(*way, "--json", session=OTHER).json["error"]
        assert refused["hint"] == f"loomctl resume {handle(run_id)} --take-over", refused
        holds(refused["message"] + refused["why"], "driven by the session", "(claude-code on desktop, came just now)")
    for decides in (["approve"], ["trust", "--yes"], ["cancel"]):  # a person's, or the driver's
        error = laptop.loomctl(*decides, "--json", session=OTHER).json["error"]
        assert (error["code"], error["hint"]) == ("NOT_BOUND", refused["hint"])
    assert laptop.loomctl(*refused["hint"].split()[1:], session=OTHER).code == 0
    for way in (["prime-context"], ["next"], ["undo"], ["context", "set", "k", "1"], ["resume"], ["done"]):
        given = "x" if way == ["done"] else None
        assert laptop.loomctl(*way, session=OTHER, given=given).code == (way == ["undo"]) * 2


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["--keep-mine", "--take-theirs"])
def test_a_saved_copy_is_told_from_the_run_that_it_is_one_of(
    laptop: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    run_id = laptop.run_dir.name
    laptop.push(run_id)
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    desktop.pull(run_id)
    assert "COPY OF" not in desktop.loomctl("runs").stdout
    resume.resume(desktop.space(), run_id, take_over=True)
    desktop.done(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    laptop.done(run_id)
    laptop.push(run_id)
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    saved = desktop.loomctl("pull", run_id, keep, "--json").json["saved"]
    monkeypatch.setenv("COLUMNS", "300")
    rows = desktop.loomctl("runs").stdout.splitlines()
    assert rows[0].endswith("COPY OF")
    (row,) = [line for line in rows if line.startswith(f"  {handle(saved)}")]
    (own,) = [line for line in rows if handle(run_id) in line and line != row]
    how = "as it was pushed by" if keep == "--keep-mine" else "as it was on desktop before origin's took its place"
    assert f"{handle(run_id)} {how}" in row
    assert "as it was" not in own
    by_id = {one["run_id"]: one["saved_from"] for one in desktop.loomctl("runs", "--json").json["runs"]}
    assert by_id[run_id] is None
    origin = by_id[saved]
    assert (origin["run_id"], origin["remote"]) == (run_id, "origin")
    assert origin["machine"] == ("laptop" if keep == "--keep-mine" else "desktop")
    state = desktop.loomctl("show", saved, "--json").json["state"]
    assert {**origin, **state["saved_from"]} == origin
    assert list(Draft202012Validator(check.schema("state", bundle=str(CHECKOUT))).iter_errors(state)) == []
    assert f"copy of   {handle(run_id)} {how}" in desktop.loomctl("show", saved).stdout
    assert "copy of" not in desktop.loomctl("show", run_id).stdout
    assert desktop.loomctl("status", saved, "--json").json["saved_from"] == origin
    assert desktop.loomctl("status", saved).stdout.count("copy of") == 1
    assert desktop.loomctl("report", saved, "--json").json["run"]["saved_from"] == origin
    assert desktop.loomctl("report", saved, "-o", str(tmp_path / "page.html")).code == 0
    assert "Copy of" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_is_listed_is_what_is_sent_to_the_byte(laptop: Machine, tmp_path: Path) -> None:
    run_id, server = laptop.run_dir.name, tmp_path / "server.git"
    ref = f"refs/loom/runs/{run_id}"
    before = set[str]()
    for change in ("nothing yet there", "a step", "a stage's file alone", "a secret", "a torn line"):
        if change == "a step":
            laptop.done(run_id)
        elif change == "a stage's file alone":
            (laptop.run_dir / "stages" / "001-frame.ask@1" / "candidate.md").write_text("perhaps")
        elif change == "a secret":
            laptop.edit(context={"token": SECRET})
        elif change == "a torn line":
            with (laptop.run_dir / "events.jsonl").open("a") as log:
                log.write('{"seq": 99')
        listed = laptop.loomctl("push", "--dry-run", "--json").json
        words = laptop.loomctl("push", "--dry-run").stdout
        pushed = laptop.loomctl("push", "--yes", "--json").json
        assert pushed["files"] == listed["files"], change
        assert (pushed["bytes"], pushed["message_bytes"]) == (listed["bytes"], listed["message_bytes"]), change
        there = set(git(server, "ls-tree", "-r", "-l", ref).splitlines())
        new = [line.split() for line in there - before]
        assert {one["path"]: one["bytes"] for one in listed["files"]} == {line[4]: int(line[3]) for line in new}
        assert listed["message_bytes"] == len(git(server, "log", "-1", "--format=%B", ref).encode().rstrip()) + 1
        assert f"{len(new)} files, {listed['bytes']:,} bytes" in words
        assert f"the goal and the step: {listed['message_bytes']:,} bytes" in words
        entry = json.loads((laptop.run_dir / "events.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        assert (entry["event"], entry["properties"]["files"]) == ("run.pushed", len(new))
        before = there


@pytest.mark.slow
def test_a_damaged_log_is_told_before_the_run_leaves_the_machine(laptop: Machine) -> None:
    log = laptop.run_dir / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"properties":{"', b'"properties":{"X', 1))
    said = "its log is damaged at line 1"
    assert said in laptop.loomctl("push", "--dry-run").stdout
    assert said in "".join(laptop.loomctl("push", "--dry-run", "--json").json["notes"])
    assert said in laptop.loomctl("push").stderr
    assert laptop.loomctl("push", "--yes").stdout.count(said) == 1


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["--take-theirs", "--keep-mine"])
def test_a_run_is_not_replaced_under_a_command_that_runs(tmp_path: Path, keep: str) -> None:
    gate = Gate(tmp_path / "gate")
    laptop = Machine(tmp_path / "laptop", server_of(tmp_path))
    run_id = begin(laptop, f"echo before; {gate}")
    assert laptop.push(run_id).commit
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    assert desktop.loomctl("pull").code == 0
    resume.resume(desktop.space(OTHER), run_id, take_over=True)
    assert desktop.push(run_id).commit
    with next_beside(laptop) as waits:
        command = record(laptop, "001-build.c1@1")["command"]
        until(lambda: b"before" in (laptop.folder(run_id) / "stages/001-build.c1@1/command.log").read_bytes())
        until(lambda: "command.started" in laptop.event_names())
        before = laptop.state_of(laptop.folder(run_id))["steps"]
        told = laptop.loomctl("pull", run_id, keep, "--json")
        if keep == "--take-theirs":
            assert (told.code, told.json["error"]["code"]) == (6, "COMMAND_RUNS")
            assert told.json["error"]["hint"] == f"loomctl next {handle(run_id)}"
            assert len(laptop.run_dirs) == 1
        else:
            assert (told.code, told.json["kind"]) == (0, "kept_mine")
        assert processes.lives(command)
        assert laptop.state_of(laptop.folder(run_id))["steps"] == before
        gate.open("after")
        said, _ = waits.communicate(timeout=60)
    assert json.loads(said)["ran"][0]["status"] == "succeeded"
    assert (laptop.folder(run_id) / "stages/001-build.c1@1/command.log").read_text() == "before\nafter"
    if keep == "--take-theirs":
        taken = laptop.loomctl("pull", run_id, keep, "--json").json
        saved = laptop.folder(taken["saved"]) / "stages/001-build.c1@1"
        assert (taken["kind"], (saved / "command.log").read_text()) == ("took_theirs", "before\nafter")
        assert not (laptop.folder(run_id) / "stages/001-build.c1@1/status.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a name with a space", "a path with a space"])
def test_every_command_that_is_named_leads_to_the_same_remote(laptop: Machine, tmp_path: Path, how: str) -> None:
    run_id, other = laptop.run_dir.name, tmp_path / "sp ace.git"
    git(tmp_path, "init", "-q", "--bare", str(other))
    named = "my remote" if how == "a name with a space" else "../sp ace.git"
    git(laptop.root, "config", "remote.my remote.url", str(other))
    empty = laptop.loomctl("runs", f"--remote={named}").stdout
    assert empty.strip().endswith(f"To push one: loomctl push --remote '{named}'")
    none = laptop.loomctl("pull", "--remote", named, "--json").json["error"]
    assert none["message"] == f"the remote {named} has no runs"
    assert f"loomctl push --remote '{named}'" in none["why"]
    refused = laptop.loomctl("push", "--remote", named, "--json").json["error"]
    assert laptop.loomctl(*shlex.split(refused["hint"])[1:]).code == 0
    pushed = laptop.loomctl("push", "--remote", named).stdout
    elsewhere = named if how == "a name with a space" else str(other.resolve())
    assert f"loomctl pull {handle(run_id)} --remote '{elsewhere}', then loomctl resume" in pushed
    assert list(tips(other)) == [f"refs/loom/runs/{run_id}"]
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    assert desktop.loomctl("pull", "--remote", str(other)).code == 0
    gone = desktop.loomctl("pull", "nosuch", "--remote", "../sp ace.git", "--json").json["error"]
    assert gone["hint"] == "loomctl runs --remote='../sp ace.git'"
    assert desktop.loomctl(*shlex.split(gone["hint"])[1:]).code == 0


@pytest.mark.slow
def test_a_remote_that_is_not_there_is_told_from_one_that_does_not_answer_and_from_a_path(laptop: Machine) -> None:
    remote = ("--remote", "x")
    commands = [["runs", "--remote=x"], ["pull", "--all", *remote], ["pull", *remote], ["push", *remote, "--yes"]]
    for url, said in (("../nowhere.git", "is not a git repository"), ("http://127.0.0.1:9/x.git", "did not answer")):
        git(laptop.root, "config", "remote.x.url", url)
        for command in (*commands, ["push", *remote, "--dry-run"]):
            ended = laptop.loomctl(*command, "--json")
            assert (ended.code, ended.json["error"]["code"]) == (8, "REMOTE_UNREACHABLE"), ended
            assert said in ended.json["error"]["message"]
            assert "fatal: " in ended.json["error"]["why"]
    assert "run.pushed" not in laptop.event_names()
    (laptop.root / "sub").mkdir()
    run_id = laptop.run_dir.name
    assert laptop.loomctl("push", run_id, "--remote", "../../server.git", "--yes", cwd=laptop.root / "sub").code == 0
    for words in (["runs", "--remote=../server.git"], ["push", "--remote", "../server.git", "--yes"]):
        refused = laptop.loomctl(*words, "--json", cwd=laptop.root / "sub").json["error"]
        assert (refused["code"], refused["where"]) == ("NO_REMOTE", str(laptop.root / "server.git"))
        assert "folder" in refused["message"]
    for itself in (".", "./", ".git", str(laptop.root)):
        refused = laptop.loomctl("push", "--remote", itself, "--yes", "--json").json["error"]
        assert (refused["code"], "this repository itself" in refused["message"]) == ("NO_REMOTE", True)
    assert laptop.loomctl("runs", "--remote=", "--json").json["error"]["code"] == "NO_REMOTE"


@pytest.mark.slow
def test_what_cannot_be_taken_sends_to_the_list_of_the_remote_that_has_it(laptop: Machine, tmp_path: Path) -> None:
    run_id, other = laptop.run_dir.name, tmp_path / "sp ace.git"
    git(tmp_path, "init", "-q", "--bare", str(other))
    laptop.push(run_id, named=str(other))
    ref = f"refs/loom/runs/{run_id}"
    message = git(other, "log", "-1", "--format=%B", ref)
    git(other, "update-ref", f"{ref}-2", ref)
    lines = [line for line in git(other, "ls-tree", "-r", ref).splitlines() if "events.jsonl" not in line]
    kept = subprocess.run(
        "git update-index --index-info && git write-tree", shell=True, cwd=other,
        env={**os.environ, "GIT_INDEX_FILE": str(tmp_path / "index")}, input="".join(f"{line}\n" for line in lines),
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    without_message = git(other, "commit-tree", "-m", "x", f"{ref}^{{tree}}")
    without_log = git(other, "commit-tree", "-m", message, kept)
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    for odd, wanted in ((without_message, run_id), (without_log, run_id), ("", f"{run_id}-2")):
        if odd:
            git(other, "update-ref", ref, odd)
        error = desktop.loomctl("pull", wanted, "--remote", "../sp ace.git", "--json").json["error"]
        assert error["code"] == ("BAD_HANDOFF" if odd else "RUN_ID_MISMATCH")
        assert error["hint"] == "loomctl runs --remote='../sp ace.git'"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pushurl", "relative", "pushInsteadOf", "address"])
def test_runs_are_read_and_taken_up_where_they_are_pushed(laptop: Machine, tmp_path: Path, way: str) -> None:
    """A remote that is fetched from one repository and pushed to another is that other one, for runs."""
    run_id, fork, server = laptop.run_dir.name, (tmp_path / "fork.git").resolve(), tmp_path / "server.git"
    git(tmp_path, "init", "-q", "--bare", str(fork))
    if way in ("pushurl", "relative"):
        git(laptop.root, "config", "remote.origin.pushurl", "../fork.git" if way == "relative" else str(fork))
    else:
        git(laptop.root, "config", f"url.{fork}.pushInsteadOf", str(server))
    (laptop.root / "sub").mkdir()
    named = ["--remote", str(server)] if way == "address" else []
    said = laptop.loomctl("push", run_id, "--yes", *named, cwd=laptop.root / "sub").ends().stdout
    pull = f"loomctl pull {handle(run_id)} --remote {fork}"
    onward = f"To continue on another machine: {pull}, then loomctl resume {handle(run_id)} --take-over"
    holds(said, f"To continue it elsewhere: {pull}\n", onward)
    assert (len(loom_refs(fork)), loom_refs(server)) == (1, [])
    listing = [f"--remote={server}" if way == "address" else "--remote"]
    (told,) = laptop.loomctl("runs", *listing, "--json").json["runs"]
    assert told["here"] == "the same"
    assert Machine(tmp_path / "desktop", server).loomctl(*pull.split()[1:]).code == 0
    laptop.done(run_id)
    assert laptop.loomctl("push", "--yes", *named).code == 0
    assert "is up to date with" in laptop.loomctl("pull", *named).stdout
    assert git(fork, "rev-list", "--count", *loom_refs(fork)) == "2"


def test_no_run_and_no_answer_send_to_the_address_that_was_asked(laptop: Machine, tmp_path: Path) -> None:
    """Git's own list of it: not of the one that is fetched from, where runs never are."""
    fork = (tmp_path / "fork.git").resolve()
    git(laptop.root, "config", "remote.origin.pushurl", str(fork))
    for code in ("REMOTE_UNREACHABLE", "NO_SUCH_RUN"):
        error = laptop.loomctl("pull", "--json").json["error"]
        assert (error["code"], error["hint"]) == (code, f"git ls-remote {fork}")
        git(tmp_path, "init", "-q", "--bare", str(fork))


def loom_refs(server: Path) -> list[str]:
    return [name for name in tips(server) if "/loom/" in name]


@pytest.mark.slow
def test_of_two_addresses_the_one_that_failed_is_told(laptop: Machine, tmp_path: Path) -> None:
    second = tmp_path / "second.git"
    git(tmp_path, "init", "-q", "--bare", str(second))
    git(laptop.root, "remote", "set-url", "--add", "origin", str(second))
    assert "git says" not in laptop.loomctl("push", "--yes").stdout
    assert loom_refs(second) == loom_refs(tmp_path / "server.git")
    second.rename(tmp_path / "away.git")
    laptop.done(laptop.run_dir.name)
    told = laptop.loomctl("push", "--yes", "--json").json
    (note,) = [one for one in told["notes"] if one.startswith("origin has the run, but git also says: ")]
    assert "does not appear to be a git repository" in note
    (tmp_path / "away.git").rename(second)
    laptop.done(laptop.run_dir.name)
    assert "git also says: [rejected] (stale info)" in laptop.loomctl("push", "--yes").stdout


@pytest.mark.slow
def test_what_a_remote_refused_is_not_kept(laptop: Machine, tmp_path: Path) -> None:
    hook = tmp_path / "server.git" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    hook.chmod(0o755)
    for _ in range(2):
        assert laptop.loomctl("push", "--yes", "--json").json["error"]["code"] == "REMOTE_REFUSED"
    assert loom_refs(laptop.root / ".git") == []
    hook.write_text("#!/bin/sh\nkill -9 $PPID\n", encoding="utf-8")
    assert laptop.loomctl("push", "--yes", "--json").json["error"]["code"] == "REMOTE_UNREACHABLE"
    assert len(loom_refs(laptop.root / ".git")) == 1
    hook.unlink()
    assert laptop.loomctl("push", "--yes").code == 0
    assert [name.split("/")[2] for name in loom_refs(laptop.root / ".git")] == ["remotes"]


@pytest.mark.slow
def test_a_server_that_names_objects_by_another_hash_did_answer(laptop: Machine, tmp_path: Path) -> None:
    """Whether or not it has runs already: the reason is the cause, and the hint leads on without git."""
    other = tmp_path / "other.git"
    git(tmp_path, "init", "-q", "--bare", "--object-format=sha256", str(other))

    def is_said(*words: str) -> bool:
        error = laptop.loomctl(*words, f"--remote={other}", "--json").json["error"]
        return (error["code"], error["hint"]) == ("OTHER_OBJECT_FORMAT", "loomctl runs archive --help")

    assert is_said("push", "--yes")
    git(tmp_path, "init", "-q", "--object-format=sha256", str(tmp_path / "theirs"))
    git(tmp_path / "theirs", "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path / "theirs", "push", "-q", str(other), f"HEAD:refs/loom/runs/{laptop.run_dir.name}")
    assert all(is_said(*words) for words in (["push", "--yes"], ["pull"], ["pull", "--all"], ["runs"]))


def test_a_full_disk_sends_to_what_tells_of_disks(
    laptop: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    said = "fatal: unable to write loose object file: No space left on device"
    real = shutil.which("git")
    fails = f'for word; do [ "$word" = fast-import ] && echo "{said}" >&2 && exit 128; done'
    program = f'#!/bin/sh\n{fails}\nexec {real} "$@"\n'
    (folder / "git").write_text(program, encoding="utf-8")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    error = laptop.loomctl("push", "--yes", "--json").json["error"]
    assert (error["code"], error["hint"]) == ("GIT_FAILED", f"df -h {laptop.root / '.git'}")


@pytest.mark.slow
def test_the_only_remote_is_the_one_that_is_meant(laptop: Machine, tmp_path: Path) -> None:
    git(laptop.root, "remote", "rename", "origin", "upstream")
    holds(laptop.loomctl("push", "--yes").stdout, " to upstream (", "--remote upstream")
    assert "is up to date with upstream" in laptop.loomctl("pull").stdout
    assert laptop.loomctl("runs", "--remote", "--json").json["remote"] == "upstream"
    git(laptop.root, "remote", "add", "backup", str(tmp_path / "server.git"))
    for words in (["push", "--yes"], ["pull"], ["runs", "--remote"]):
        error = laptop.loomctl(*words, "--json").json["error"]
        assert error["code"] == "NO_REMOTE"
        assert "backup, upstream; choose one with --remote" in error["why"]
    assert laptop.loomctl("runs", "--remote=origin", "--json").json["error"]["code"] == "NO_REMOTE"
    words = shlex.split(error["hint"])
    assert words[0] == "loomctl"
    assert laptop.loomctl(*words[1:], "--json").json["remote"] == "backup"


@pytest.mark.slow
def test_a_driver_in_another_place_is_not_said_to_be_refused(laptop: Machine, tmp_path: Path) -> None:
    run_id = laptop.run_dir.name
    elsewhere = "which learns of this when it pulls; if it goes on there, you will have to choose between two states"
    laptop.push(run_id)
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    desktop.pull(run_id)
    refused = desktop.loomctl("resume", run_id, session=OTHER).stderr
    assert f"take it from that session, {elsewhere}" in refused
    taken = desktop.loomctl("resume", run_id, "--take-over", session=OTHER).stdout
    assert f"{elsewhere}.\n" in taken
    assert "no longer write" not in refused + taken
    refused = laptop.loomctl("resume", run_id, session=OTHER).stderr
    assert "take it from that session, which can no longer write to it" in refused
    assert "which can no longer write to it.\n" in laptop.loomctl("resume", run_id, "--take-over", session=OTHER).stdout
