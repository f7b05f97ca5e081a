"""A driver is killed on one machine, and another machine goes on from code and state (D73, D74, D77)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.code import held
from tests.helpers.machines import Machine
from tests.helpers.repositories import git
from tests.helpers.scenes import MAIN
from tests.helpers.waiting import until

WORKFLOW = """
id: three
description: Three steps.
autonomy: autonomous
phases:
  build:
    steps:
      - {id: one, prompt: "Write a file."}
      - {id: two, prompt: "Write another."}
      - {id: three, prompt: "And one more."}
"""
# What stands for an assistant: it changes files and answers, and at the third step on the laptop it hangs half way.
COMMAND = r"""
step=$(cat | grep -o 'build/[a-z]*' | tail -1)
case "$step:$MACHINE" in
    build/three:laptop) echo half > "half a thought"; echo changed > a.txt; touch "$MARK"; sleep 1000;;
    *) echo "$step" >> log.txt; chmod +x log.txt; printf 'x\r\n' > "${step#build/} ü.txt";;
esac
echo '{"outcome": "succeeded"}'
"""


def drive(machine: Machine, name: str, mark: Path, cwd: Path, *words: str) -> subprocess.Popen[bytes]:
    script = machine.root.parent / "command.sh"
    script.write_text(COMMAND, encoding="utf-8")
    command = [sys.executable, "-I", str(MAIN), "drive", *words, "--", "sh", str(script)]
    environ = machine.environ(None, MACHINE=name, MARK=str(mark), LOOM_HOSTNAME=name, CLAUDE_PROJECT_DIR="")
    return subprocess.Popen(command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@pytest.mark.slow
def test_code_and_state_of_the_last_step_go_on_elsewhere_after_a_kill(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop, desktop = Machine(tmp_path / "laptop", server), Machine(tmp_path / "desktop", server)
    for machine in (laptop, desktop):
        (machine.store / "workflows").mkdir(parents=True)
        (machine.store / "workflows" / "three.yaml").write_text(WORKFLOW, encoding="utf-8")
    mark = tmp_path / "mark"
    driver = drive(laptop, "laptop", mark, laptop.root, "add a log", "--workflow", "three")
    until(mark.exists, "the third step began")
    run_id = laptop.run_dir.name
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    laptop.loomctl("push", run_id, "--yes", session=None).ends()
    made = desktop.loomctl("pull", run_id, "--worktree", "../there", "--json", session=None).ends().json
    there = tmp_path / "there"
    assert (there / "log.txt").read_bytes() == b"build/one\nbuild/two\n"
    assert held(there) == {
        "a.txt": ("100644", b"one\n"),
        "log.txt": ("100755", b"build/one\nbuild/two\n"),
        "one ü.txt": ("100644", b"x\r\n"),
        "two ü.txt": ("100644", b"x\r\n"),
    }
    assert (made["code"]["step"], made["code"]["machine"]) == ("build/three", "laptop")
    assert (desktop.folder(run_id) / "plan.json").read_bytes() == (laptop.folder(run_id) / "plan.json").read_bytes()
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    desktop.loomctl("resume", run_id, "--take-over", session=None, cwd=there).ends()
    assert drive(desktop, "desktop", mark, there, run_id).wait() == 0
    assert desktop.state["status"] == "completed"
    assert (there / "log.txt").read_bytes() == b"build/one\nbuild/two\nbuild/three\n"
    assert git(desktop.root, "status", "--porcelain", "--untracked-files=no") == ""
