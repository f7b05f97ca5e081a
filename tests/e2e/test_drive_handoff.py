"""A driven run goes on at another machine from its code and its state (D77)."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

from tests.e2e.assistant import TIME_LIMIT, Assistant, Machine
from tests.e2e.drives import DIRECTIVE, Drive
from tests.e2e.scripted_api import bash, reply, tool
from tests.helpers.waiting import until

LATIN = "naïve\r\n\x00 bytes"


def contents(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and not {".git", ".loom"} & set(path.parts))
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def test_a_killed_drivers_run_goes_on_elsewhere_from_its_last_stage(assistant: Assistant, tmp_path: Path) -> None:
    laptop = Drive(assistant)
    laptop.workflow()
    server = tmp_path / "server.git"
    machine, project = laptop.machine, laptop.project
    machine.command("git", "init", "-q", "--bare", str(server), cwd=tmp_path)
    machine.command("git", "remote", "add", "origin", str(server), cwd=project)
    machine.command("git", "push", "-q", "origin", "main", cwd=project)
    (project / "not committed ü.txt").write_bytes(LATIN.encode())
    held = threading.Event()
    laptop.assistant.api.script(
        reply("writing", tool("Write", file_path=str(project / "a.txt"), content="of the first step")),
        DIRECTIVE,
        reply(tool("Write", file_path=str(project / "late.txt"), content="of the second step")),
        reply(DIRECTIVE, held=held),
    )
    driver = laptop.start("drive", "make a file", "--workflow", "two")
    until((project / "late.txt").exists, "the second step works")
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate(timeout=TIME_LIMIT)
    held.set()
    handle = laptop.state()["plan_id"]
    laptop.loomctl("push", "--release", "--yes", handle)
    (project / "late.txt").unlink()  # of no stage that has ended: what is saved is what the last one left

    other = Machine(root=tmp_path / "b", cache=machine.cache, name="machine-b")
    other.command("git", "clone", "-q", str(server), str(other.root / "project"), cwd=other.root)
    desktop = Drive(replace(assistant, machine=other, project=other.root / "project"))
    desktop.loomctl("pull", handle, "--worktree", "../work")
    there = other.root / "work"
    assert contents(there) == contents(project)
    assert (there / "a.txt").read_text() == "of the first step"
    desktop.project = there
    desktop.assistant.api.script(reply(bash("loomctl next")), DIRECTIVE)
    said = desktop.loomctl("drive", handle)
    assert "completed" in said
