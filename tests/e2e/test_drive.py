"""A run that is driven to its end while nobody is there, in the real assistant (D73-D77)."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading

import psutil
import pytest

from tests.e2e.assistant import TIME_LIMIT
from tests.e2e.drives import DIRECTIVE, WORKFLOW, Drive, running
from tests.e2e.scripted_api import bash, reply, tool
from tests.helpers.scenes import SESSION, Scene
from tests.helpers.waiting import until


def test_a_run_is_driven_to_its_end(drive: Drive) -> None:
    drive.assistant.api.script(
        reply("writing", tool("Write", file_path=str(drive.project / "a.txt"), content="x")),
        DIRECTIVE,
        reply(bash("loomctl next")),
        DIRECTIVE,
    )
    # As from the shell of another session, which says so in what it starts: a line of its user's, behind a `!`.
    (drive.project / ".loom" / "local").mkdir(parents=True, exist_ok=True)
    Scene(drive.project, new=False).rest()
    drive.environment |= {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": SESSION, "CLAUDE_PID": str(os.getpid())}
    said = drive.loomctl("drive", "make a file", "--workflow", "two")
    assert "completed" in said
    state = drive.state()
    assert state["status"] == "completed"
    assert (drive.project / "a.txt").read_text() == "x"
    assert state["lease"]["session_id"] is None
    shown = drive.machine.command("git", "show", f"refs/loom/work/{state['run_id']}:a.txt", cwd=drive.project)
    assert shown == "x"  # its code is saved for another machine (D77)


def test_a_refused_permission_is_named_and_completes_nothing(drive: Drive) -> None:
    drive.assistant.api.script(reply("writing", tool("Write", file_path="/etc/loom-test", content="x")), DIRECTIVE)
    said = drive.loomctl("drive", "make a file", "--workflow", "two", code=9)
    assert "the assistant was refused Write" in said
    assert "--allow Write" in said
    assert drive.state()["status"] == "awaiting_feedback"
    assert [one["step_id"] for one in drive.events() if one["event"] == "stage.completed"] == []


def test_what_is_named_allows_the_whole_of_a_line_that_was_refused(drive: Drive) -> None:
    """A `cd` before it and a pipe behind it need no rule, and none for them would let the rest pass."""
    api = drive.assistant.api
    (drive.project / "sub").mkdir()
    line = bash("cd sub && python3 -c 'print(1)' 2>&1 | tail -1; sh -c 'echo done'")
    api.script(reply(line), DIRECTIVE)
    said = drive.loomctl("drive", "make a file", "--workflow", "two", code=9)
    named = shlex.split(said.splitlines()[1])
    assert named[3:] == ["--allow", "Bash(python3 -c:*)", "--allow", "Bash(sh -c:*)"]
    assert said.splitlines()[1].strip() in drive.loomctl("waits", drive.state()["plan_id"])
    api.script(reply(line), DIRECTIVE, reply(bash("loomctl next")), DIRECTIVE)
    assert "completed" in drive.loomctl(*named[1:])


def test_neither_loom_nor_its_files_widen_what_it_may_do(drive: Drive) -> None:
    """`loomctl` is allowed, and edits in the project are: neither runs another program, nor writes what Loom keeps."""
    local, pwned = drive.project / ".loom" / "local", drive.project / "pwned"
    told = json.loads(drive.loomctl("run", "make a file", "--workflow", "two", "--json"))
    run_id = told["run_id"]
    kept = [drive.project / ".loom" / "runs" / run_id / name for name in ("state.json", "events.jsonl")]
    kept += [
        local / "drivers" / f"{run_id}.ask",
        local / "config.json",
        drive.project / ".claude" / "settings.json",
    ]
    drive.assistant.api.script(
        *(reply(tool("Write", file_path=str(path), content="{}")) for path in kept),
        reply(bash(f"loomctl status > {local}/x")),
        reply(bash("loomctl run other-thing --workflow two --json")),
        reply(bash(f"loomctl drive other-thing -- sh -c 'touch {pwned}; echo It is so.'")),
        reply(bash("loomctl approve")),
        DIRECTIVE,
    )
    before = [path.exists() for path in kept]
    said = drive.loomctl("drive", run_id, code=9)
    assert "the assistant was refused" in said
    assert not pwned.exists()
    assert not (local / "x").exists()
    assert [path.exists() for path in kept] == before
    assert all(path.read_text(encoding="utf-8") != "{}" for path in kept[:2])


def test_what_must_be_in_context_is_given_once_whatever_else_is_under_way(drive: Drive) -> None:
    drive.workflow(
        WORKFLOW
        + """critical_artifacts:
  always_load:
    - {id: spec, type: markdown, path: spec.md, description: the spec, required: true, reload_triggers: [session_start]}
"""
    )
    (drive.project / "spec.md").write_text("# The spec\n" + "".join(f"- rule {n}: keep it {n}\n" for n in range(200)))
    drive.loomctl("run", "another one", "--workflow", "two")
    drive.assistant.api.script(DIRECTIVE, reply(bash("loomctl next")), DIRECTIVE)
    drive.loomctl("drive", "make a file", "--workflow", "two")
    first, *_ = drive.assistant.api.requests
    assert first.seen().count("- rule 77: keep it 77") == 1
    assert "another-one" not in first.seen()


def test_a_second_driver_is_refused_asks_nothing_and_harms_nobody(drive: Drive) -> None:
    held = threading.Event()
    api = drive.assistant.api
    api.script(reply(DIRECTIVE, held=held), reply(bash("loomctl next")), DIRECTIVE)
    first = drive.start("drive", "make a file", "--workflow", "two")
    until(lambda: api.requests)
    handle = drive.state()["plan_id"]
    said = drive.loomctl("drive", handle, code=6)
    assert "HELD_BY_ANOTHER" in said
    held.set()
    out, err = first.communicate(timeout=TIME_LIMIT)
    assert first.returncode == 0, out + err
    assert len(api.requests) == 3


def test_an_assistant_that_is_not_there_is_named_and_holds_nothing(drive: Drive) -> None:
    drive.loomctl("run", "make a file", "--workflow", "two")
    (drive.machine.root / "bin" / "claude").unlink()
    assert "NO_ASSISTANT" in drive.loomctl("drive", "make another", "--workflow", "two", code=1)
    said = drive.loomctl("drive", drive.state()["plan_id"], code=1)  # the only run: the other was not begun
    assert "NO_ASSISTANT" in said
    assert "npm install" in said
    assert drive.state()["lease"]["session_id"] is None


def test_a_run_that_its_user_cancels_is_worked_on_no_more(drive: Drive) -> None:
    """Nothing that the assistant does from then on could be kept, so its turn ends, with all that it started."""
    marker = f"33{os.getpid() % 100_000:05d}"
    drive.assistant.api.script(reply(bash(f"(setsid sleep {marker} &) ; sleep {marker}")), "too late")
    driver = drive.start("drive", "make a file", "--workflow", "two", "--allow", "Bash")
    until(lambda: len(running(marker)) >= 2)
    drive.loomctl("cancel", drive.state()["plan_id"])
    out, err = driver.communicate(timeout=TIME_LIMIT)
    assert driver.returncode == 1, out + err
    assert "the run is cancelled" in out
    assert not running(marker)
    assert len(drive.assistant.api.requests) == 1
    assert drive.state()["status"] == "cancelled"


@pytest.mark.parametrize("whom", ["driver", "keeper", "assistant", "driver and keeper"])
def test_who_is_killed_takes_the_rest_along_and_the_run_goes_on(drive: Drive, whom: str) -> None:
    """What its tools started dies, too, whatever it does to live: nothing of an old attempt works beside the next.

    With driver and keeper killed in one moment it is the next driver that ends it, by what stands in its environment.
    """
    marker = f"31{os.getpid() % 100_000:05d}"
    api = drive.assistant.api
    bare = "" if whom == "driver and keeper" else "env -i "
    trap = "trap '' TERM INT HUP; " if whom == "driver" else ""
    stubborn = f"{trap}(setsid {bare}sleep {marker} &) ; sleep {marker}"
    api.script(reply(bash(stubborn)))
    driver = drive.start("drive", "make a file", "--workflow", "two", "--allow", "Bash")
    until(lambda: len(running(marker)) >= 2)
    keeper = next(one for one in psutil.Process(driver.pid).children() if one.pid)
    claude = next(one for one in keeper.children() if "claude" in " ".join(one.cmdline()))
    victims = {"driver": [driver.pid], "keeper": [keeper.pid], "assistant": [claude.pid]}
    for pid in victims.get(whom, [driver.pid, keeper.pid]):
        os.kill(pid, signal.SIGKILL)
    api.script(DIRECTIVE, reply(bash("loomctl next")), DIRECTIVE)
    if "driver" in whom:
        driver.communicate(timeout=TIME_LIMIT)
        if whom == "driver":
            until(lambda: not running(marker))
        drive.loomctl("drive", drive.state()["plan_id"])
    else:
        out, err = driver.communicate(timeout=TIME_LIMIT)
        assert driver.returncode == 0, out + err
    assert not running(marker)
    assert drive.state()["status"] == "completed"
