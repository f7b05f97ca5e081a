"""On a slow or busy machine a set-up that works is not taken for one that waits."""

import os
import sys
from pathlib import Path

import pytest

from loomctl.install import environment
from loomctl.install.environment import _Job
from tests.helpers.waiting import in_time

BUSY = "import sys, time\nwhile time.process_time() < float(sys.argv[1]): pass\nraise SystemExit(3)"
CHILD = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {BUSY!r}, sys.argv[1]]))"
WAITS = "import time; time.sleep(60)"


@pytest.fixture
def job(tmp_path: Path) -> _Job:
    for name in ("work/tmp", "environment"):
        (tmp_path / name).mkdir(parents=True)
    return _Job("requirements.lock", str(tmp_path / "environment"), str(tmp_path / "work"), 1.0)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="this system does not tell what processes do")
@pytest.mark.parametrize("program", [BUSY, CHILD], ids=["by itself", "in a child"])
def test_a_tool_that_works_in_silence_is_waited_for(job: _Job, program: str) -> None:
    """Nothing printed and nothing written for longer than the patience, but at work: it ends by itself.

    A machine that gives it no time at all for that long cannot be told from one where it waits.
    """
    codes = []

    def works(quiet: float) -> None:
        command = [sys.executable, "-c", program, str(2.5 * quiet)]
        codes.append(environment._run(command, job, quiet=quiet).code)

    in_time(works, lambda: codes[-1] == 3)


def test_a_tool_that_waits_in_silence_is_stopped(job: _Job) -> None:
    """One that does nothing at all for longer than the patience is ended."""
    assert environment._run([sys.executable, "-c", WAITS], job, quiet=0.6).code is None
