"""A lock's owner that dies holds nobody up; one that stands still is named, and nobody waits for it for long (D53)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_HELD
from loomctl.kit.processes import HOOK_PATIENCE, PATIENCE
from tests.faults.bench import CHECKOUT
from tests.faults.stand import RESPONSE, SENTENCE, Stand, litter, sound
from tests.helpers.scenes import SESSION, Json

INSIDE = """
import sys
from loomctl.runs.store.store import Store
def change(state):
    print("inside", flush=True)
    sys.stdin.read()
    return {**state, "goal": "of the one that held it"}, []
Store(sys.argv[1]).update(sys.argv[2], change)
"""


@contextmanager
def one_inside(stand: Stand) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-B", "-c", INSIDE, str(stand.scene.store), stand.scene.run_dir.name]
    with subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        try:
            yield process
        finally:
            process.kill()


def limit_of(event: str) -> float:
    hooks = json.loads((CHECKOUT / "hooks" / "claude-code.json").read_text())["hooks"]
    name = "".join(word.capitalize() for word in event.split("-"))
    seconds: float = hooks[name][0]["hooks"][0]["timeout"]
    return seconds


COMMANDS = (("next",), ("done",), ("undo",), ("resume",), ("pause",), ("cancel",))


def test_an_owner_that_is_killed_frees_its_lock(stand: Stand) -> None:
    """Killed in the middle of an update it leaves the state before, and the next command does not wait."""
    before = stand.scene.state
    with one_inside(stand) as owner:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert stand.scene.state == before
        answer = stand.cli("done", given=RESPONSE, impatient=True)
    assert (answer.code, answer.waited) == (0, 0)
    sound(stand.scene)
    assert litter(stand.scene) == []


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_an_owner_that_stands_still_is_named(stand: Stand, words: tuple[str, ...]) -> None:
    """A command waits its patience and not longer, says which process holds the run, ends with 6 and changed nothing;
    once the owner goes on both its update and the next command's are there.
    """
    assert stand.cli("done", given=RESPONSE).code == 0  # so that there is something to undo
    with one_inside(stand) as owner:
        owner.send_signal(signal.SIGSTOP)
        before = stand.scene.state
        answer = stand.cli(*words, given=RESPONSE if words == ("done",) else None, impatient=True)
        assert (answer.code, answer.error["code"]) == (EXIT_HELD, "HELD")
        assert f"process {owner.pid} " in answer.error["message"]
        assert answer.waited <= PATIENCE + 0.01
        assert stand.scene.state == before
        owner.send_signal(signal.SIGCONT)
        owner.communicate("")
        assert owner.returncode == 0
    assert stand.cli("done", given=RESPONSE).code == 0
    assert stand.scene.state["goal"] == "of the one that held it"
    sound(stand.scene)


@pytest.mark.parametrize("event", ["session-start", "stop", "session-end", "pre-compact", "user-prompt-submit"])
def test_a_hook_waits_no_longer_than_its_host_lets_it(stand: Stand, event: str) -> None:
    """A session is primed although another process holds the run, every hook is back before its host's limit, and what
    could not be recorded is said with who holds it.
    """
    assert stand.cli("done").json["closing"]
    told: Json = {"source": "compact", "last_assistant_message": RESPONSE, "reason": "other", "trigger": "auto"}
    with one_inside(stand) as owner:
        owner.send_signal(signal.SIGSTOP)
        before = stand.scene.state
        answer = stand.hook(event, told=told, impatient=True)
        assert (answer.code, answer.stderr) == (0, "")
        assert answer.waited < limit_of(event) - 0.3  # the rest is for starting and for the work
        assert answer.waited <= 2 * HOOK_PATIENCE + 0.6
        assert stand.scene.state == before
        if event in ("session-start", "stop"):
            assert f"process {owner.pid} " in answer.message
        if event == "session-start":
            assert SENTENCE in answer.context
    assert "frame/ask succeeded" in stand.hook("stop", told=told).message


def test_readers_wait_for_nobody(stand: Stand) -> None:
    with one_inside(stand) as owner:
        owner.send_signal(signal.SIGSTOP)
        for words in (
            *(("show",), ("runs",), ("sessions",), ("paths",), ("state", "show"), ("prime-context", "--dry-run")),
        ):
            answer = stand.cli(*words, impatient=True)
            assert (answer.code, answer.waited) == (0, 0), words


def test_a_lock_is_no_run_of_its_own(stand: Stand) -> None:
    """What stands in a lock's file is only for people: whatever it says, the lock is free when nobody holds it."""
    locks = stand.scene.store / "local" / "locks"
    for note in (b"", b"{", b'{"pid": 1, "since": "2026-01-01T00:00:00Z"}', os.urandom(300)):
        for path in locks.iterdir():
            path.write_bytes(note)
        assert stand.cli("show", session=SESSION, impatient=True).code == 0
        assert stand.cli("resume", impatient=True).waited == 0


def test_a_lock_whose_file_may_not_be_written_is_said(stand: Stand) -> None:
    (path,) = Path(stand.store.local, "locks").iterdir()
    path.unlink()
    path.mkdir()
    answer = stand.cli("resume")
    assert answer.error["where"] == str(path)
    assert "Is a directory" in answer.error["message"]
    subprocess.run(["sh", "-c", answer.error["hint"]], check=True)
    assert stand.cli("resume").code == 0
