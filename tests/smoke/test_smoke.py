"""What a newcomer does first, with the Python that runs this: the launcher as it is, packages from the real index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loomctl import __version__

CHECKOUT = Path(__file__).resolve().parents[2]


class Machine:
    """A machine of one's own: an empty home, the user's settings else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOM_", "CLAUDE", "XDG_"))}
        self.environ = {**kept, "HOME": str(folder), "LOOM_PYTHON": python}

    def loomctl(self, *arguments: str, cwd: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Start the launcher as a user does."""
        return subprocess.run(
            [str(CHECKOUT / "bin" / "loomctl"), *arguments],
            cwd=cwd or self.folder,
            env=self.environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine on which Loom has set itself up."""
    machine = Machine(tmp_path_factory.mktemp("hömé"))
    ended = machine.loomctl("--version")
    assert ended.returncode == 0, ended.stderr
    assert __version__ in ended.stdout
    assert "first start" in ended.stderr
    return machine


def test_later_starts_are_silent(machine: Machine) -> None:
    """Once set up, Loom says nothing of it again."""
    ended = machine.loomctl("--version")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_environment_is_of_the_python_that_was_asked_for(machine: Machine) -> None:
    """Its name says which Python it is of."""
    (made,) = (machine.folder / ".cache/loom").glob("env-*")
    assert made.name.endswith(f"-{sys.version_info.major}.{sys.version_info.minor}")


def test_loomctl_finds_its_own_workflows_valid(machine: Machine) -> None:
    """The bundled workflows pass Loom's own check, schema and conditions included."""
    workflows = [str(path) for path in sorted((CHECKOUT / "config/workflows").glob("*.yaml")) if path.stem != "base"]
    assert workflows
    ended = machine.loomctl("check", "--json", *workflows)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["schema_version"] == 1


def test_hooks_are_silent_outside_a_project_and_without_a_run(machine: Machine) -> None:
    """With no store upward, and with a store that has no run, every event ends with 0 and no output."""
    project = machine.folder / "project"
    (project / ".loom").mkdir(parents=True)
    for cwd in (machine.folder, project):
        for event in ("session-start", "user-prompt-submit", "pre-tool-use", "pre-compact", "stop", "session-end"):
            told = json.dumps({"session_id": "s", "cwd": str(cwd), "hook_event_name": event, "source": "startup"})
            ended = machine.loomctl("hook", event, cwd=cwd, stdin=told)
            assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
