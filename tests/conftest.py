"""What all tests share: no test sees or touches the files of the user who runs it."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from loomctl.changes import asset_files, working_tree
from tests.helpers import tiers
from tests.helpers.scenes import PYTHON, Scene

# What a developer's shell, host or git may have set and a test must not inherit.
_FOREIGN = ("CLAUDE", "CODEX_", "COPILOT_", "CURSOR_", "GEMINI_", "GIT_", "OPENCODE", "QWEN_", "XDG_")
_OWN = (
    "LOOM_COMMAND_KEY",
    "LOOM_COMMAND_WAIT",
    "LOOM_DISABLED",
    "LOOM_ENV_PYTHON",
    "LOOM_HOSTNAME",
    "LOOM_PLUGIN_ROOT",
    "LOOM_RUN_ID",
    "LOOM_STAGE_DIR",
    "LOOM_STATE_HOME",
    "LOOM_STEP_ID",
)


# How long an example takes tells of the machine's load, not of Loom; how many there are is each test's own affair.
settings.register_profile("loom", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loom")

# Who starts the tests in the background makes them, and all that they start, deaf to an interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What is collected stays to the end: it need not be looked through for what could go, again and again.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for what could go among what comes from now on alone."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the quick tier alone where it is asked for."""
    if tiers.is_quick():
        quick, others = tiers.split(items)
        config.hook.pytest_deselected(items=others)
        items[:] = quick


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder that the launcher's processes compile modules to: each home leads there, or each start would
    compile the standard library anew, which takes ten times as long as a hook. What is fetched has it for later runs.
    """
    kept = os.environ.get("LOOM_TEST_CACHE")
    folder = Path(kept, "loom", "pycache") if kept else tmp_path_factory.mktemp("compiled")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def user_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, compiled: Path) -> Path:
    """Give each test a home of its own, for Loom's state folder and the user's settings: empty but for what an earlier
    hook keeps there, which Python to take and where modules are compiled to.
    """
    home = tmp_path_factory.mktemp("home")
    cache = home / ".cache" / "loom"
    cache.mkdir(parents=True)
    (cache / "pycache").symlink_to(compiled)
    (cache / "python").write_text(f"{PYTHON}\n", encoding="utf-8")
    for name in tuple(os.environ):
        if name.startswith(_FOREIGN) or name in _OWN:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("LOOM_STATE_HOME", str(home / "loom-state"))
    return home


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Give a project without a store, in a folder of its own."""
    return Scene(tmp_path / "shop")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let looking at files take as long as it takes: what a busy machine had no time for would be unknown."""
    monkeypatch.setattr(working_tree.note, "__kwdefaults__", {"patience": 60.0})
    monkeypatch.setattr(working_tree.since, "__kwdefaults__", {"patience": 60.0})
    monkeypatch.setattr(asset_files.look, "__kwdefaults__", {"patience": 60.0, "most": asset_files.MOST_ENTRIES})
