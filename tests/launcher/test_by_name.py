"""Loom installed by its name, with the Python that runs this: no clone, an empty home, no compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import wheels
from tests.helpers.repositories import git
from tests.helpers.scenes import Ended
from tests.launcher.world import TOOLS

pytestmark = pytest.mark.slow
KEPT = {".cache/loom", ".config/loom", ".local/state/loom"}
"""What stays of Loom in a home folder, as docs/how-to/install.md says."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that stands for the index."""
    return wheels.with_packages(wheels.build(tmp_path_factory.mktemp("dist")), tmp_path_factory.mktemp("index"))


class Newcomer:
    """A machine with git, a Python and its user's empty home."""

    def __init__(self, root: Path, house: Path) -> None:
        self.house, self.home, self.venv = house, root / "home of nö one", root / "vénv of loom"
        tools = root / "tools"
        for folder in (self.home, tools):
            folder.mkdir(parents=True)
        for name in (
            *TOOLS,
            "git",
            "uname",
            "env",
            "dirname",
            "basename",
            "sed",
            "grep",
            "cut",
            "sort",
            "tr",
            "head",
            "realpath",
        ):
            found = shutil.which(name)
            assert found is not None
            (tools / name).symlink_to(found)
        self.environ = {
            "HOME": str(self.home), "PATH": os.pathsep.join([str(self.venv / "bin"), str(tools)]), "LANG": "C.UTF-8",
            "TMPDIR": str(root), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": house.as_uri(),
            "UV_CONFIG_FILE": str(root / "uv.toml"), "UV_PYTHON": sys.executable, "UV_CACHE_DIR": str(root / "uv"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        (root / "uv.toml").write_text(f"no-index = true\nfind-links = [{json.dumps(str(house))}]\n")
        self.project = root / "a prøject"
        self.project.mkdir()
        git(self.project, "init", "-q")

    def run(self, *words: str, given: str = "") -> Ended:
        ended = subprocess.run(
            words, cwd=self.project, env=self.environ, input=given, capture_output=True, text=True, check=False
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def left(self) -> set[str]:
        """Give what stands in the home folder, to the depth of three."""
        found = {path.relative_to(self.home) for path in self.home.rglob("*") if not path.is_dir()}
        return {"/".join(path.parts[: 3 if path.parts[1] == "state" else 2]) for path in found}


@pytest.fixture
def newcomer(tmp_path: Path, house: Path) -> Newcomer:
    return Newcomer(tmp_path, house)


def test_pip_installs_all_of_it_and_takes_it_away(newcomer: Newcomer) -> None:
    newcomer.run(sys.executable, "-m", "venv", str(newcomer.venv)).ends()
    newcomer.run("pip", "install", "--quiet", "loomctl[fleet]").ends()
    assert "survived" in newcomer.run("loomctl", "demo").ends().stdout
    newcomer.run("loomctl", "doctor").ends()
    plugin = newcomer.run("loomctl", "plugin", "path").ends().stdout.strip()
    assert newcomer.run(f"{plugin}/bin/loomctl", "--version").ends() == newcomer.run("loomctl", "--version")
    newcomer.run("loomctl", "run", "add dark mode", "--workflow", "core").ends()
    given = '{"session_id": "5e55", "source": "startup", "hook_event_name": "SessionStart", "cwd": "."}'
    told = newcomer.run(f"{plugin}/bin/loomctl", "hook", "session-start", given=given).ends()
    assert "add-dark-mode" in told.stdout
    newcomer.run("python", "-c", "import loomctl.fleet.postgres").ends()
    newcomer.run("pip", "uninstall", "--quiet", "--yes", "loomctl").ends()
    assert not list(newcomer.venv.rglob("*loomctl*"))
    assert newcomer.left() <= KEPT


def test_the_source_archive_installs_alike(newcomer: Newcomer) -> None:
    newcomer.run(sys.executable, "-m", "venv", str(newcomer.venv)).ends()
    newcomer.run("pip", "install", "--quiet", "--no-binary", "loomctl", "loomctl").ends()
    assert "survived" in newcomer.run("loomctl", "demo").ends().stdout


def test_uv_runs_it_without_installing_it(newcomer: Newcomer) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    assert uv is not None
    assert "survived" in newcomer.run(uv, "tool", "run", "loomctl", "demo").ends().stdout
    assert newcomer.left() - {".local/share"} <= KEPT  # which is uv's
