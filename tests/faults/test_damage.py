"""Damaged files are refused, said and mended by the line that the error gives; nothing is replaced by nothing (D53)."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_INVALID, EXIT_NO_RUN
from tests.faults.bench import Answer
from tests.faults.stand import RESPONSE, SENTENCE, Stand, sound
from tests.helpers.scenes import MAIN, SESSION, Scene

HOOKS = ("session-start", "stop", "pre-compact", "user-prompt-submit", "session-end", "pre-tool-use")


def _cut(share: float) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "nothing in it": _cut(0),
    "a tenth": _cut(0.1),
    "a half": _cut(0.5),
    "all but the last bytes": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "zeros": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "zeros behind": lambda path: path.write_bytes(path.read_bytes() + b"\0" * 4096),
    "other bytes": lambda path: path.write_bytes(random.Random(258).randbytes(path.stat().st_size)),
    "a list": lambda path: path.write_bytes(b"[]\n"),
    "a folder": _folder,
    "forbidden": lambda path: path.chmod(0),
}


@pytest.fixture
def hit(stand: Stand) -> Stand:
    assert stand.cli("done", given=RESPONSE).code == 0
    stand.keep()
    return stand


def seen(path: Path) -> object:
    if path.is_dir():
        return sorted(path.iterdir())
    return path.read_bytes(), path.stat().st_mode


def commands(run_id: str) -> dict[str, tuple[str, ...]]:
    names = ("show", "next", "done", "resume", "prime-context")
    return {**{name: (name,) for name in names}, "show by name": ("show", run_id)}


def refused_everywhere(hit: Stand, path: Path, *codes: str) -> None:
    """Hold that every command says one error that names the file, that every hook goes on, and that the file stays."""
    before = seen(path)
    for name in commands(hit.scene.run_dir.name):
        answer = asked(hit, name)
        assert (answer.code, answer.error["code"] in codes) == (EXIT_INVALID, True)
        assert (str(path) in answer.error["where"], bool(answer.error["hint"])) == (True, True)
        assert seen(path) == before, name
    for event in HOOKS:
        answer = heard(hit, event)
        if event in ("session-start", "stop"):
            assert str(path) in answer.message
        assert seen(path) == before, event


def asked(hit: Stand, name: str) -> Answer:
    words = commands(hit.scene.run_dir.name)[name]
    answer = hit.cli(*words, given=RESPONSE if name == "done" else None, unprivileged=True)
    assert "Traceback" not in answer.stderr
    return answer


def heard(hit: Stand, event: str) -> Answer:
    told = {"source": "resume", "trigger": "auto", "reason": "other", "last_assistant_message": RESPONSE}
    bash = {"tool_name": "Bash", "tool_input": {"command": "loomctl next"}}
    answer = hit.hook(event, told={**told, **bash}, unprivileged=True)
    assert (answer.code, answer.stderr) == (0, "")
    if answer.stdout and event != "pre-compact":
        assert set(answer.json) <= {"systemMessage", "hookSpecificOutput"}
        assert "\n" not in answer.message
    return answer


def pasted(scene: Scene, hint: str, tools: Path) -> None:
    """Do what a hint says, in a shell that finds `loomctl`: all of it, or what stands behind its last colon."""
    line = hint.rpartition(": ")[2]
    tools.mkdir(exist_ok=True)
    launcher = tools / "loomctl"
    launcher.write_text(f'#!/bin/sh\nexec {sys.executable} -I {MAIN} "$@"\n')
    launcher.chmod(0o755)
    environ = {**scene.environ(), "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", line], cwd=scene.root, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (line, done.stderr)


def mended(hit: Stand, answer: Answer, tools: Path, *, command: str) -> Answer:
    """Do what the error's hint says, and what the next one says, until the command works; thrice at most."""
    for _ in range(3):
        if answer.code == 0:
            break
        assert answer.error["hint"], answer.error
        pasted(hit.scene, answer.error["hint"], tools)
        answer = asked(hit, command)
    assert answer.code == 0, answer
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_refused_and_brought_back(hit: Stand, damage: str, tmp_path: Path) -> None:
    """What the hint says brings the state before back, and the damaged file is still there."""
    folder = hit.scene.run_dir
    path = folder / "state.json"
    DAMAGES[damage](path)
    before = seen(path)
    refused_everywhere(hit, path, "BAD_JSON", "BAD_STATE", "UNREADABLE")
    listed = hit.cli("runs", unprivileged=True)
    assert (listed.code, [run["run_id"] for run in listed.json["runs"]]) == (0, [folder.name])
    assert listed.json["runs"][0]["error"]
    mended(hit, asked(hit, "next"), tmp_path / "tools", command="next")
    sound(hit.scene)
    assert any(seen(other) == before for other in folder.iterdir() if other != path) or damage == "forbidden"
    assert SENTENCE in heard(hit, "session-start").context


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_plan_is_refused_and_made_anew(hit: Stand, damage: str, tmp_path: Path) -> None:
    path = hit.scene.run_dir / "plan.json"
    DAMAGES[damage](path)
    state = hit.scene.state
    refused_everywhere(hit, path, "BAD_JSON", "BAD_PLAN")
    assert hit.scene.state["steps"] == state["steps"]
    mended(hit, asked(hit, "next"), tmp_path / "tools", command="next")
    sound(hit.scene)
    assert asked(hit, "done").json["next"]["id"] == "build/make"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_is_said_and_gone_on_with(hit: Stand, damage: str, tmp_path: Path) -> None:
    """A log whose content is damaged stops nothing: `check` says it, the next update notes it, and it stays a finding,
    for what is gone is gone. Rubbish behind the last entry is what a kill leaves: it is closed, and no fault. One that
    cannot be written is an error with the line that mends it; a session is primed all the same.
    """
    path = hit.scene.run_dir / "events.jsonl"
    assert hit.cli("check", str(path)).json["ok"]
    DAMAGES[damage](path)
    unwritable = damage in ("a folder", "forbidden")
    checked = hit.cli("check", str(path), unprivileged=True)
    torn = damage == "zeros behind"
    assert checked.code == (0 if torn else EXIT_INVALID)
    assert torn or checked.json["files"][0]["problems"][0]["hint"]
    for event in HOOKS:
        before = seen(path)
        answer = heard(hit, event)
        if event == "session-start":
            assert SENTENCE in answer.context
            why = "Is a directory" if path.is_dir() else "Permission denied"
            assert ("could not record" in answer.message) == unwritable
            assert (f"{why}: {path}" in answer.message) == unwritable
        if unwritable:
            assert seen(path) == before
    assert asked(hit, "show").code == 0
    answer = asked(hit, "resume")
    if unwritable:
        assert (answer.code, answer.error["where"]) == (EXIT_INVALID, str(path))
        answer = mended(hit, answer, tmp_path / "tools", command="resume")
    assert answer.code == 0
    assert asked(hit, "done").code == 0
    checked = hit.cli("check", str(path))
    assert checked.json["ok"] == (torn or damage == "forbidden"), checked.json
    codes = {problem["code"] for problem in checked.json["files"][0]["problems"]}
    assert (codes != set()) == (not torn and damage != "forbidden"), checked.json
    assert "TOLD_DAMAGE" in codes or checked.json["ok"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_binding_is_said_and_made_anew(hit: Stand, damage: str, tmp_path: Path) -> None:
    """The session is no longer bound: its commands say how it is bound again, its hooks say why, and that works."""
    path = hit.scene.store / "local" / "sessions" / f"{SESSION}.json"
    DAMAGES[damage](path)
    before = seen(path)
    state = hit.scene.state
    for name in ("next", "done"):
        answer = asked(hit, name)
        assert (answer.code, answer.error["code"]) == (EXIT_NO_RUN, "NOT_BOUND")
    for event in HOOKS:
        answer = heard(hit, event)
        if event in ("session-start", "stop"):
            assert all(words in answer.message for words in (str(path), "loomctl resume"))
    assert seen(path) == before
    assert hit.scene.state == state
    resumed = asked(hit, "resume")
    assert (resumed.code == 0) == (damage != "a folder")
    mended(hit, resumed, tmp_path / "tools", command="resume")
    assert asked(hit, "done").code == 0
    assert json.loads(path.read_bytes())["session_id"] == SESSION


BESIDES = ("primed", "known", "settings", "candidate", "prompt")


@pytest.mark.slow(quick=15)
@pytest.mark.parametrize("damage", ["nothing in it", "a half", "other bytes", "a folder"])
@pytest.mark.parametrize("what", BESIDES)
def test_what_can_be_made_again_is_made_again(hit: Stand, what: str, damage: str) -> None:
    """A damaged memory, note, compilation, candidate or prompt costs nothing but itself: the run goes on and what is
    needed is written anew, as far as it can be.
    """
    (known,) = Path(os.environ["LOOM_STATE_HOME"], "runs").glob("*.json")
    stage = hit.scene.state["steps"][-1]["stage"]
    heard(hit, "stop")
    hit.scene.write(".loom/config.yaml", "hook_budget: 9000\n")
    hit.cli("show")
    path = {
        "primed": hit.scene.store / "local" / "primed" / f"{SESSION}.json",
        "known": known,
        "settings": hit.scene.store / "local" / "config.json",
        "candidate": hit.scene.run_dir / "stages" / stage / "candidate.md",
        "prompt": hit.scene.run_dir / "stages" / stage / "prompt.md",
    }[what]
    DAMAGES[damage](path)
    for event in HOOKS:
        answer = heard(hit, event)
        assert "hook failed" not in answer.stdout or damage == "a folder", answer.stdout
        if event == "session-start" and not (what == "known" and damage == "a folder"):
            assert SENTENCE in answer.context
    resumed = asked(hit, "resume")
    assert resumed.code == 0, resumed
    assert asked(hit, "done").code == 0
    assert hit.scene.state["current_step"] == "build/make"
    if damage != "a folder" and what not in ("candidate", "prompt"):
        json.loads(path.read_bytes())


@pytest.mark.parametrize("name", ["state.json", "plan.json", "events.jsonl", "state.backup.json"])
def test_nothing_is_written_through_a_link(hit: Stand, name: str, tmp_path: Path) -> None:
    """A file of the run that was replaced by a link to a file outside of it leaves that file as it is."""
    path = hit.scene.run_dir / name
    victim = tmp_path / "victim"
    shutil.copy(path, victim)
    before = victim.read_bytes()
    path.unlink()
    path.symlink_to(victim)
    for command in commands(hit.scene.run_dir.name):
        asked(hit, command)
    for event in HOOKS:
        heard(hit, event)
    assert victim.read_bytes() == before
