"""What every end-to-end test stands on: the assistant, a clean copy of the bundle, a machine, a project."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.assistant import Assistant, Machine
from tests.e2e.clients.machines import Machines
from tests.e2e.drives import Drive
from tests.e2e.played import Played
from tests.e2e.scenes import InRun, start_run
from tests.e2e.scripted_api import ScriptedApi
from tests.helpers import bytecode

CHECKOUT = Path(__file__).resolve().parents[2]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is tested here, and keep it out of the quick tier unless it is marked `quick`."""
    item.add_marker(pytest.mark.e2e)
    if item.get_closest_marker("quick") is None:
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def claude() -> str:
    """The assistant's program, which scripts/test installs and names. In CI these tests fail without it."""
    named = os.environ.get("LOOM_TEST_CLAUDE", "")
    if not named and not os.environ.get("CI"):
        pytest.skip("LOOM_TEST_CLAUDE does not name the assistant: run scripts/test")
    if not os.access(named, os.X_OK):
        pytest.fail(f"LOOM_TEST_CLAUDE={named} is no program")
    return named


@pytest.fixture(scope="session")
def tmux() -> None:
    """A terminal can be driven. What is tested in it is tested without it too, so this may be missing anywhere."""
    if not shutil.which("tmux"):
        if os.environ.get("CI"):
            pytest.fail("there is no tmux, and CI must not pass without it")
        pytest.skip("there is no tmux")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the checkout, as a fresh clone would be: what git has or would add."""
    listed = subprocess.run(
        ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    clone = tmp_path_factory.mktemp("clone") / "loom"
    for name in filter(None, listed.split("\0")):
        if (CHECKOUT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, clone / name)
    return clone


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Path:
    """Loom's own packages, set up once for all machines of this run (the first `loomctl` does that).

    LOOM_TEST_CACHE names a folder that outlives the run, so that the next one need not set them up again.
    """
    kept = os.environ.get("LOOM_TEST_CACHE")
    shared = Path(kept) if kept else tmp_path_factory.getbasetemp().parent / "loom-cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(shared)}
    loomctl = [str(bundle / "bin" / "loomctl"), "--version"]
    bytecode.share(shared, bundle)
    first = subprocess.run(loomctl, env=environment, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    return shared


@pytest.fixture(scope="session")
def machines(bundle: Path, cache: Path) -> Iterator[Machines]:
    """The machines on which Loom has been installed, each made when it is first asked for."""
    with Machines(bundle, cache) as made:
        yield made


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    """A scripted API of the test's own."""
    with ScriptedApi() as scripted:
        yield scripted


@pytest.fixture
def machine(tmp_path: Path, cache: Path) -> Machine:
    """The machine that a test begins on."""
    return Machine(root=tmp_path / "a", cache=cache)


@pytest.fixture
def assistant(claude: str, machine: Machine, api: ScriptedApi, bundle: Path) -> Assistant:
    """The assistant in a git project, with the bundle as its plugin."""
    return Assistant(binary=claude, machine=machine, project=machine.project(), api=api, plugin_dir=bundle)


@pytest.fixture(scope="session")
def played(claude: str, bundle: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What several tests begin with."""
    return Played(tmp_path_factory.mktemp("played"), claude, bundle, cache)


@pytest.fixture
def in_run(played: Played, api: ScriptedApi) -> InRun:
    """The assistant after `start_run`, and the turn that began the run."""
    return played.after(start_run, api)


@pytest.fixture
def installed(claude: str, machine: Machine, api: ScriptedApi, bundle: Path) -> Assistant:
    """The assistant in a git project, with the bundle installed from its marketplace file as a user would."""
    assistant = Assistant(binary=claude, machine=machine, project=machine.project(), api=api, plugin_dir=None)
    marketplace = json.loads((bundle / ".claude-plugin" / "marketplace.json").read_text(encoding="utf-8"))
    assistant.plugin("marketplace", "add", str(bundle))
    assistant.plugin("install", f"loom@{marketplace['name']}")
    bytecode.share_installed(machine.cache, machine.config / "plugins")
    return assistant


@pytest.fixture
def drive(assistant: Assistant) -> Drive:
    """The driver in that project, with a workflow of two steps."""
    made = Drive(assistant)
    made.workflow()
    return made
