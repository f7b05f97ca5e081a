"""An assistant that calls none of Loom's hooks is noticed by the first command in its shell (D72)."""

from __future__ import annotations

import os
import sys
import time

import pytest

from loomctl.hosts import shells, signs, table
from loomctl.hosts.shells import Session
from loomctl.kit import processes
from loomctl.kit.processes import Process
from tests.helpers.scenes import MAIN, SESSION, Scene, run

HERE = {"CODEX_THREAD_ID": SESSION}
PID = 4_000_001


@pytest.fixture
def local(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store that is older than the call: a shell of the host's process, and this process in it."""
    scene.workflow()
    scene.begin()
    now = time.time()
    monkeypatch.setattr(
        processes, "line", lambda: [Process(PID + 2, now + 60), Process(PID + 1, now + 60), Process(PID, now - 60)]
    )
    return str(scene.store / "local")


def silent(local: str, environ: dict[str, str]) -> str:
    host = signs.silent_host(local, environ)
    return host.name if host else ""


def test_a_session_without_a_sign_is_named(local: str) -> None:
    assert silent(local, HERE) == "codex"
    assert signs.said(table.CODEX) == (
        "loomctl: no hook of Loom has run in this Codex CLI session; trust them with /hooks"
    )


def test_it_is_not_where_no_assistant_is_or_hooks_are_off_or_nothing_is_noted(local: str, scene: Scene) -> None:
    assert silent(local, {}) == ""
    assert silent(local, {**HERE, "LOOM_DISABLED": "1"}) == ""
    os.rename(scene.store / "local/hooks", scene.store / "local/other")
    assert silent(local, HERE) == ""


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("hooks/session-start", f"0.1.0 {SESSION} /x/loomctl\n"),
        ("hosts/77.rested", f"codex {SESSION}\n"),
        (f"spool/{SESSION}-12.json", "{}"),
    ],
    ids=["it fired last", "it marked its host", "a call is recorded"],
)
def test_any_sign_is_enough(local: str, path: str, text: str) -> None:
    with open(os.path.join(local, path), "w", encoding="utf-8") as file:
        file.write(text)
    os.utime(os.path.join(local, "hooks"), (1, 1))

    assert silent(local, HERE) == ""


def test_a_call_that_made_the_store_could_leave_none(local: str) -> None:
    os.utime(os.path.join(local, "hooks"), (time.time() + 120,) * 2)

    assert silent(local, HERE) == ""


def test_of_several_sessions_the_innermost_is_asked_about(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.path.join(local, "hooks/stop"), "w", encoding="utf-8") as file:
        file.write("0.1.0 outer /x/loomctl\n")
    os.utime(os.path.join(local, "hooks"), (1, 1))
    environ = {**HERE, "CLAUDE_CODE_SESSION_ID": "outer", "CLAUDECODE": "1"}
    codex, claude = Session(table.CODEX, SESSION, None), Session(table.CLAUDE, "outer", None)

    for order, expected in (([codex, claude], "codex"), ([claude, codex], "")):
        monkeypatch.setattr(shells, "sessions", lambda _, order=order: order)
        assert silent(local, environ) == expected


def test_a_resumed_session_has_no_sign_of_its_earlier_process(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    beat = os.path.join(local, "hooks/stop")
    with open(beat, "w", encoding="utf-8") as file:
        file.write(f"0.1.0 {SESSION} /x/loomctl\n")
    os.utime(os.path.join(local, "hooks"), (1, 1))
    monkeypatch.setattr(shells, "sessions", lambda _: [Session(table.CLAUDE, SESSION, PID)])

    assert silent(local, {"CLAUDECODE": "1"}) == ""
    os.utime(beat, (time.time() - 3600,) * 2)
    assert silent(local, {"CLAUDECODE": "1"}) == "claude-code"
    with open(os.path.join(local, f"hosts/{PID}.called"), "w", encoding="utf-8") as file:
        file.write("claude-code -\n")
    assert silent(local, {"CLAUDECODE": "1"}) == ""


def test_a_command_says_it_once_on_standard_error(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    os.utime(scene.store / "local/hooks", (1, 1))
    environ = scene.environ(None, CODEX_THREAD_ID=SESSION)

    command = [sys.executable, "-I", str(MAIN), "status", "--json"]

    told = run(command, cwd=scene.root, environ=environ)
    off = run(command, cwd=scene.root, environ={**environ, "LOOM_DISABLED": "1"})

    assert told.json["run_id"]
    assert told.stderr == signs.said(table.CODEX) + "\n"
    assert off.stderr == ""
