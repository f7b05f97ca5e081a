"""What the launcher's tests share."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.world import CHECKOUT, TOOLS, World, make_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("plugin") / "Löom's bundle (1)")


@pytest.fixture
def world(tmp_path: Path, bundle: Path, compiled: Path) -> World:
    root = tmp_path / "a Wörld"
    tools = root / "tools"
    tools.mkdir(parents=True)
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    home = root / "home of nö one"
    home.mkdir()
    return World(root, bundle, home, tools, compiled)


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All wheels of requirements.lock for this Python, fetched once for each lock with the user's own pip settings."""
    lock = CHECKOUT / "requirements.lock"
    lock_id = lock.read_text().splitlines()[0].split()[-1]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    kept = os.environ.get("LOOM_TEST_CACHE") or str(tmp_path_factory.getbasetemp().parent)
    folder = Path(kept) / f"wheels-{lock_id}-{version}"
    if not folder.is_dir():
        beside = Path(f"{folder}.{os.getpid()}")
        fetch = ["download", "--quiet", "--require-hashes", "--no-deps", "--dest", str(beside), "-r", str(lock)]
        subprocess.run([sys.executable, "-m", "pip", *fetch], check=True)
        try:
            beside.rename(folder)
        except OSError:  # another process of this run was first
            shutil.rmtree(beside)
    return folder


@pytest.fixture
def online(world: World, wheelhouse: Path) -> World:
    """The machine, with pip and uv set to find Loom's packages in a folder and no Python on PATH yet. A Loom before
    this one was here and compiled Python's own modules.
    """
    world.have_compiled()
    settings = world.root / "uv.toml"
    settings.write_text(f"no-index = true\nfind-links = [{json.dumps(str(wheelhouse))}]\n")
    world.more = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheelhouse),
        "UV_CONFIG_FILE": str(settings),
    }
    return world
