"""Signs of life in files, where an assistant itself is silent (D75)."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from loomctl.drive import life
from tests.helpers.near import scene, server
from tests.helpers.scenes import Scene
from tests.helpers.waiting import until

__all__ = ["scene", "server"]

CONVERSATION = "0b8f2c1e-0000-4000-8000-000000000001"
LONG_AGO = time.time() - 86_400


def last_sign(quiet: Scene, *processes: psutil.Process) -> float:
    space = quiet.space()
    return life.last_sign(space.local, space.store.read(quiet.run_dir.name), CONVERSATION, processes, time.time())


@pytest.fixture
def quiet(scene: Scene) -> Scene:
    """A run in which nothing happened since yesterday."""
    scene.workflow()
    scene.begin()
    for path in scene.store.rglob("*"):
        if path.is_file():
            os.utime(path, (LONG_AGO, LONG_AGO))
    return scene


def test_what_the_driver_writes_itself_is_no_sign(quiet: Scene) -> None:
    for name in ("state.json", "state.backup.json"):
        (quiet.run_dir / name).touch()
    assert last_sign(quiet) == pytest.approx(LONG_AGO)


@pytest.mark.parametrize(
    "path",
    [
        "RUN/stages/001-build.make@1/command.log",
        "RUN/tool_steps.jsonl",
        "RUN/events.jsonl",
        f"local/spool/{CONVERSATION}-77.json",
        "local/hooks/post-tool-use",
        "transcript.jsonl",
        "transcript/subagents/agent-1.jsonl",
    ],
)
def test_what_the_tree_leaves_in_files_is_a_sign(quiet: Scene, path: str) -> None:
    local = quiet.space().local
    transcript = str(quiet.store / "transcript.jsonl")
    local.refresh(
        local.bind(CONVERSATION, quiet.run_dir.name, host="claude-code", pid=None), pid=None, transcript_path=transcript
    )
    written = quiet.store / path.replace("RUN", f"runs/{quiet.run_dir.name}")
    written.parent.mkdir(parents=True, exist_ok=True)
    before = last_sign(quiet)
    assert before == pytest.approx(LONG_AGO)
    written.write_text(f"1.0 {CONVERSATION} launcher\n")
    assert last_sign(quiet) > before


def test_another_conversations_hooks_and_the_future_are_no_sign(quiet: Scene) -> None:
    hooks = quiet.store / "local" / "hooks"
    hooks.mkdir(parents=True, exist_ok=True)
    (hooks / "stop").write_text("1.0 another launcher\n")
    log = quiet.run_dir / "stages" / "x.log"
    log.parent.mkdir(exist_ok=True)
    log.touch()
    os.utime(log, (time.time() + 3600,) * 2)
    assert last_sign(quiet) == pytest.approx(LONG_AGO)


def test_a_log_that_a_process_holds_open_is_a_sign_as_it_grows(quiet: Scene, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    with log.open("w") as out:
        process = subprocess.Popen(["sleep", "60"], stdout=out)
    try:
        until(lambda: psutil.Process(process.pid).open_files())
        os.utime(log, (LONG_AGO + 100,) * 2)
        assert last_sign(quiet, psutil.Process(process.pid)) == pytest.approx(LONG_AGO + 100)
        log.touch()
        assert last_sign(quiet, psutil.Process(process.pid)) > LONG_AGO + 1000
    finally:
        process.kill()
        process.wait()
