"""Many first starts at once, one of them killed: one environment is made, and every start that lives uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.launcher.world import World

STARTS = 4


def started(world: World) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(world.bundle / "bin" / "loomctl"), "x"],
        env=world.environ(),
        cwd=world.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_first_start_that_is_killed_leaves_the_making_to_the_next(online: World) -> None:
    """Several begin at once with an empty home; the one that makes the environment is killed with all its children. Of
    those that wait one makes it, all the others use it, and nothing half made is left.
    """
    online.add_python()
    first = started(online)
    assert first.stderr is not None
    assert "first start" in first.stderr.readline()  # it has the lock and works
    others = [started(online) for _ in range(STARTS - 1)]
    for process in others:
        assert process.stderr is not None
        assert "waiting for process" in process.stderr.readline()
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    ended = [(process.communicate(timeout=120), process.returncode) for process in others]
    assert [code for _, code in ended] == [0] * len(others), ended
    assert len({json.loads(out)["packages"] for (out, _), _ in ended}) == 1
    assert "".join(errors for (_, errors), _ in ended).count("first start") == 1
    assert len(online.made) == 1
    assert online.made[0].startswith("env-")


def test_hooks_do_not_wait_for_a_first_start(online: World, tmp_path: Path) -> None:
    online.add_python()
    project = tmp_path / "project"
    (project / ".loom").mkdir(parents=True)
    first = started(online)
    assert first.stderr is not None
    assert "first start" in first.stderr.readline()
    report = online.hook("session-start", cwd=project)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert report is not None
    assert report["LOOM"]["LOOM_ENV_PYTHON"] == ""
