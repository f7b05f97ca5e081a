"""Every benchmark starts, measures and prints a document: at its smallest settings, whatever the numbers are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import browser

ROOT = Path(__file__).resolve().parent.parent
SMALL = {
    "commands.py": "--runs 1 --json",
    "drive.py": "--assistant claude-code --kills 2 --races 1 --runs 1 --json",
    "engine.py": "--runs 1 --most 11 --json",
    "failures/score.py": "kubectl",
    "fleet.py": "--queue here --runs 2 --workers 1 --slots 1 --every 3 --restarts 1 --limit 9 --stops 1 --jobs 101 "
    "--json",
    "fleet_growth.py": "--workers 9 --seconds 0.2 --refs 9,19 --pace 0.5 --json",
    "fleet_machines.py": "--runs 1 --every 30 --slots 1 --json",
    "handoff.py": "--most 5 --json",
    "histories.py": "",
    "hooks.py": "--runs 1 --most 11 --json",
    "hostile.py": "--megabytes 1 --text paths --json",
    "house.py": "--json",
    "masking.py": "",
    "outputs.py": "--most 11 --json",
    "reduction.py": "--json",
    "report.py": "--runs 1 --most 10 --json",
    "scale.py": "--runs 1 --most 11 --json",
    "starts.py": "--runs 1 --json",
    "survival.py": "--sizes 4 --who nothing --events /clear --json",
    "walks.py": "--json",
}
REAL = {"drive.py", "fleet_machines.py", "survival.py"}  # they need the assistant itself
PARTS = {"aider_history.py", "stand.py", "failures/draw.py", "failures/zoo.py"}
NEED_MORE = {"fetch_recordings.py", "failures/record.py"}  # a network, the tools of the zoo


def test_every_benchmark_is_started_here() -> None:
    there = {path.relative_to(ROOT / "benchmarks").as_posix() for path in (ROOT / "benchmarks").rglob("*.py")}
    assert there == {*SMALL} | PARTS | NEED_MORE


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_measures_at_its_smallest_settings(name: str, tmp_path: Path) -> None:
    if name == "report.py":
        browser.needed()
    if name in REAL and not os.environ.get("LOOM_TEST_CLAUDE"):
        if os.environ.get("CI"):
            pytest.fail("LOOM_TEST_CLAUDE names no program")
        pytest.skip("LOOM_TEST_CLAUDE does not name the assistant: run scripts/test")
    env = {**os.environ, "LOOM_CORPUS": ""}
    command = [sys.executable, str(ROOT / "benchmarks" / name), *SMALL[name].split()]
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr  # 1: a number is missed, on this machine at this moment
    assert "Traceback" not in ended.stderr
    assert ended.stdout.strip(), ended.stderr
    if "--json" in SMALL[name]:
        json.loads(ended.stdout)
