"""A run that is driven in Codex CLI while nobody is there (D73-D75)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any

import psutil
import pytest

from tests.e2e.clients.client import TIME_LIMIT, wait_until
from tests.e2e.clients.codex import Codex
from tests.e2e.clients.machines import Machines
from tests.e2e.clients.models import Says
from tests.e2e.promises import DONE, ENDED, NEXT, flow
from tests.e2e.scenes import state_of

LATE = 15  # seconds after its limit in which a turn that hangs has ended
TAKES_UP = Says(shell="loomctl resume")
ENDS = Says(shell=DONE.format(""))


class Drive:
    """The driver on a machine with Codex CLI, as its user starts it."""

    def __init__(self, codex: Codex) -> None:
        self.codex = codex
        self.trust(" ".join(codex.trusted))
        flow(codex, 2)
        self.asked = self.asks()

    def trust(self, trusted: str, *, then: str = "") -> None:
        """Put it on PATH. trusted: the options by which it calls Loom's hooks; then: what follows its end."""
        program = self.codex.home / ".local" / "bin" / "codex"
        call = f'{self.codex.binary} "$verb" {trusted} "$@"'
        lines = ["#!/bin/sh", "verb=$1; shift", *([call, then] if then else [f"exec {call}"]), ""]
        program.write_text("\n".join(lines), encoding="utf-8")
        program.chmod(0o755)

    def guard(self) -> None:
        """Let each step end a turn."""
        path = self.codex.project / ".loom" / "workflows" / "flow.json"
        path.write_text(path.read_text(encoding="utf-8").replace("autonomous", "guarded"), encoding="utf-8")

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["loomctl", "drive", *words, "--host", "codex"], cwd=self.codex.project, env=self.codex.environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def finished(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=TIME_LIMIT)
        assert process.returncode == code, f"{words} gave {process.returncode}:\n{out}\n{err}"
        return out + err

    def state(self) -> dict[str, Any]:
        return state_of(self.codex.project)

    def events(self, name: str) -> list[dict[str, Any]]:
        (folder,) = (self.codex.project / ".loom" / "runs").iterdir()
        lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
        return [one for one in map(json.loads, lines) if one["event"] == name]

    def handle(self) -> str:
        """Give the run's name as its user types it."""
        return str(json.loads(self.codex.loomctl("runs", "--json"))["runs"][0]["handle"])

    def asks(self) -> int:
        return len([one for one in self.codex.model.requests if one.kind == "main"])


@pytest.fixture
def drive(machines: Machines) -> Drive:
    return Drive(machines.of(Codex))


def test_a_run_is_driven_to_its_end(drive: Drive) -> None:
    drive.codex.model.script([TAKES_UP, f"Part 1 is done. {ENDED}", NEXT, f"Part 2 is done. {ENDED}"])
    said = drive.finished("two things", "--workflow", "flow")
    assert "completed" in said
    assert drive.state()["status"] == "completed"
    (turn,) = drive.events("turn.ended")
    assert turn["properties"]["cost"] is None
    assert turn["properties"]["tokens"] > 0


def test_the_next_turn_goes_on_in_the_same_conversation(drive: Drive) -> None:
    """Codex CLI gives conversations their names; what it tells of tokens is the conversation's sum."""
    drive.guard()
    drive.codex.model.script([TAKES_UP, ENDS, "One is done.", TAKES_UP, ENDS, "Both are done."])
    drive.finished("two things", "--workflow", "flow")
    first, second = (turn["properties"] for turn in drive.events("turn.ended"))
    assert first["conversation"] == second["conversation"]
    assert [one["properties"]["goes_on"] for one in drive.events("turn.started")] == [False, True]
    last = drive.codex.model.requests[-1]
    assert "One is done." in last.seen()
    assert last.seen().count(f"$loom:loom-resume {drive.handle()}") == 2
    assert 0 < second["tokens"] < first["tokens"] * 2


def test_what_a_killed_driver_began_is_ended_and_the_run_goes_on(drive: Drive) -> None:
    marker = f"32{os.getpid() % 100_000:05d}"
    drive.codex.model.script([TAKES_UP, Says(shell=f"trap '' TERM; (setsid sleep {marker} &); sleep {marker}")])
    driver = drive.start("two things", "--workflow", "flow")
    wait_until(lambda: len(drive.codex.living(marker)) >= 2, "the tool runs")
    refused = drive.finished(drive.handle(), code=6)
    assert "HELD_BY_ANOTHER" in refused
    asked = drive.asks()
    driver.send_signal(signal.SIGKILL)
    driver.communicate(timeout=TIME_LIMIT)
    wait_until(lambda: not drive.codex.living(marker) and not drive.codex.living("codex"), "all of it has ended")
    drive.codex.model.script([TAKES_UP, f"Part 1 is done. {ENDED}", NEXT, f"Part 2 is done. {ENDED}"])
    drive.finished(drive.handle())
    assert drive.state()["status"] == "completed"
    assert drive.asks() == asked + 4


def test_a_process_that_stays_after_its_last_word_is_ended(drive: Drive) -> None:
    """It holds its output open, too; what it did counts."""
    marker = f"33{os.getpid() % 100_000:05d}"
    stays = f"trap '' TERM INT; sleep {marker} & while :; do wait; done"
    drive.trust(" ".join(drive.codex.trusted), then=stays)
    drive.codex.model.script([TAKES_UP, f"Part 1 is done. {ENDED}", NEXT, f"Part 2 is done. {ENDED}"])
    process = drive.start("two things", "--workflow", "flow")
    wait_until(lambda: drive.codex.living(marker), "it stays")
    began = time.monotonic()
    out, err = process.communicate(timeout=TIME_LIMIT)
    assert time.monotonic() - began < 3 + LATE
    assert process.returncode == 0, out + err
    assert not drive.codex.living(marker)
    assert [one["properties"]["class"] for one in drive.events("turn.ended")] == ["done"]


def test_an_assistant_that_stands_still_is_ended(drive: Drive) -> None:
    """Its output stops while its process lives."""
    marker = f"34{os.getpid() % 100_000:05d}"
    drive.codex.model.script([TAKES_UP, Says(shell=f"sleep {marker}")])
    process = drive.start("two things", "--workflow", "flow", "--silence", "12s", "--max-turns", "1")
    wait_until(lambda: drive.codex.living(marker), "the tool runs")
    for one in psutil.Process(process.pid).children(recursive=True):
        if one.name().startswith("codex"):
            one.suspend()
    began = time.monotonic()
    out, err = process.communicate(timeout=TIME_LIMIT)
    assert time.monotonic() - began < 12 + LATE
    assert process.returncode == 10, out + err
    assert not drive.codex.living(marker)
    assert not drive.codex.living("codex")
    (turn,) = drive.events("turn.ended")
    assert turn["properties"]["class"] == "infra"


@pytest.mark.parametrize("command", ["rm -rf build", "date > /etc/loom-test"])
def test_what_its_sandbox_refuses_completes_nothing(drive: Drive, command: str) -> None:
    drive.codex.model.script([TAKES_UP, Says(shell=command), f"Part 1 is done. {ENDED}"])
    said = drive.finished("two things", "--workflow", "flow", code=9)
    assert command in said
    assert "sandbox_workspace_write" in said
    assert drive.state()["status"] == "awaiting_feedback"
    assert not drive.events("stage.completed")


@pytest.mark.parametrize(
    ("status", "said", "asks"), [(400, "the model is not there", 1), (401, "Log the assistant in", 2)]
)
def test_what_the_api_refuses_is_not_asked_again(drive: Drive, status: int, said: str, asks: int) -> None:
    """It asks again by itself where a key is refused, and is ended at the second time."""
    drive.codex.model.script([Says("the model is not there", status=status)] * 6)
    told = drive.finished("two things", "--workflow", "flow", code=1)
    assert str(status) in told
    assert said in told
    assert drive.asks() == drive.asked + asks


@pytest.mark.parametrize("what", ["a tool", "the API"])
def test_what_hangs_is_ended_with_all_that_it_started(drive: Drive, what: str) -> None:
    """Nothing is left of it, nor of what its tools started in sessions of their own."""
    marker = f"33{os.getpid() % 100_000:05d}"
    hangs = Says(shell=f"(setsid sleep {marker} &); sleep {marker}") if what == "a tool" else Says("late", seconds=60)
    drive.codex.model.script([TAKES_UP, hangs])
    said = drive.finished("two things", "--workflow", "flow", "--silence", "3s", "--max-wait", "5s", code=9)
    assert "nothing was heard" in said
    assert not drive.codex.living(marker)
    assert not drive.codex.living("codex")
    turn = drive.events("turn.ended")[0]["properties"]
    assert turn["class"] == "infra"
    assert turn["seconds"] < 3 + LATE


def test_in_another_worktree_its_sandbox_lets_loom_write_to_the_project_it_shares(drive: Drive) -> None:
    beside = drive.codex.root / "beside"
    drive.codex.command("git", "worktree", "add", "-q", str(beside))
    drive.guard()
    drive.codex.model.script([TAKES_UP, ENDS, "One is done.", TAKES_UP, ENDS, "Both are done."])
    drive.codex.move_to(beside)
    drive.finished("two things", "--workflow", "flow")
    drive.codex.move_to(drive.codex.root / "project")
    assert drive.state()["status"] == "completed"


def test_hooks_that_are_not_trusted_are_named(drive: Drive) -> None:
    """Codex CLI skips them without a word; its assistant can end steps all the same."""
    drive.trust("")
    drive.codex.model.script([TAKES_UP, ENDS, ENDS, "Both are done."])
    said = drive.finished("two things", "--workflow", "flow")
    assert "no hook of Loom has run in this Codex CLI session; trust them with /hooks" in said
