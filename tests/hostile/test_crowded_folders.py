"""Folders of `.loom/local` with thousands of files that a clone brought along: a hook looks into few of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.helpers.scenes import CHECKOUT, SESSION, Scene, artifact, run

FILES = 3_000
MOST = 2_050  # of one folder by one hook: a thousand marks of sessions, a thousand events at the two ends of the spool
SPEC = "# The specification\n" + "what is wanted\n" * 20
PROGRAM = """
import os, sys
opened = {}
def count(event, given):
    if event == "open" and isinstance(given[0], str) and "/.loom/local/" in given[0]:
        folder = given[0].partition("/.loom/local/")[2].partition("/")[0]
        opened[folder] = opened.get(folder, 0) + 1
sys.addaudithook(count)
sys.path.insert(0, sys.argv.pop(1))
from loomctl.__main__ import main
main()
sys.stdout.flush()
sys.stderr.write(repr(opened))
sys.stderr.flush()
os._exit(0)
"""
EVENTS = {
    "session-start": {"source": "startup"},
    "user-prompt-submit": {"prompt": "go on"},
    "pre-compact": {"trigger": "auto"},
    "post-compact": {"compact_summary": "it went on"},
    "stop": {"last_assistant_message": "so far so good"},
    "session-end": {"reason": "other"},
}
FOLDERS = ("sessions", "primed", "opened", "receipts", "turns", "owed", "spool", "given", "drivers", "locks", "hooks")


def crowd(scene: Scene, name: str) -> None:
    folder = scene.store / "local" / name
    folder.mkdir(parents=True, exist_ok=True)
    run_id = scene.run_dir.name
    ending = "" if name == "live" else ".json"
    for number in range(FILES):
        session = f"session-{number}"
        told = {"session_id": session, "run_id": run_id, "host": "claude-code", "store": str(scene.store)}
        (folder / f"{session}{'-1' * (name == 'spool')}{ending}").write_text(json.dumps(told))


@pytest.mark.slow
def test_a_hook_opens_few_of_a_folders_files(scene: Scene) -> None:
    scene.write("spec.md", SPEC)
    scene.workflow([artifact("spec", "spec.md", required=True)])
    scene.begin()
    for mark in (scene.store / "local/live").iterdir():  # no session is marked as one that lives
        mark.unlink()
    (scene.store / "local/live").rmdir()
    for name in FOLDERS:
        crowd(scene, name)
    for crowded in (False, True):
        if crowded:
            crowd(scene, "live")
        for event, told in EVENTS.items():
            body = {"session_id": SESSION, "cwd": str(scene.root), "hook_event_name": event, **told}
            command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(CHECKOUT), "hook", event]
            ended = run(command, cwd=scene.root, environ=scene.environ(), given=json.dumps(body))
            opened = json.loads(ended.stderr.replace("'", '"'))
            assert {folder: count for folder, count in opened.items() if count > MOST} == {}, event
            if event == "session-start":
                assert SPEC in ended.context


def test_a_session_that_lives_is_seen_among_others(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    crowd(scene, "live")
    local = scene.space().local
    while len(list((scene.store / "local/live").iterdir())) > 1:
        local.live_sessions(scene.run_dir.name)
    assert Path(scene.store / "local/live" / SESSION).exists()
