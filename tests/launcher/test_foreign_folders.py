"""Nothing is run from a folder that another user could have filled."""

import json
import os
from pathlib import Path

import pytest

from tests.launcher.world import CHECKOUT, SHELLS, World, touch

LOCK_ID = (CHECKOUT / "requirements.lock").read_text().splitlines()[0].split()[-1]
SOMEBODY = 12345
# Only root can give a folder to somebody else.
WAYS = ["others", "link", *(["owner", "inside"] if os.geteuid() == 0 else [])]


def trap(world: World, base: Path, way: str) -> Path:
    """Plant an environment, a remembered Python and compiled modules; gives the file that shows that one was run."""
    mark = world.root / "mark"
    real = world.root / "elsewhere" if way == "link" else base
    for name in (f"env-{LOCK_ID}-3.13/bin/python", "evil"):
        touch(real / name, f"#!/bin/sh\n: >'{mark}'\n").chmod(0o755)
    touch(real / "python", f"{real}/evil\n")
    (real / "pycache").mkdir()
    if way == "link":
        base.parent.mkdir(parents=True, exist_ok=True)
        base.symlink_to(real)
    base.chmod(0o757 if way == "others" else 0o700)
    if way == "owner":
        os.chown(base, SOMEBODY, SOMEBODY)
    if way == "inside":
        for name in (f"env-{LOCK_ID}-3.13", "python", "pycache"):
            os.chown(base / name, SOMEBODY, SOMEBODY)
    return mark


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["cache", "data"])
@pytest.mark.shows("Neither is used where it is a link, another user owns it, or everybody may write to it")
def test_nothing_is_run_from_a_folder_that_others_could_fill(world: World, where: str, way: str) -> None:
    base = world.root / "shared/loom"
    mark = trap(world, base, way)
    settings = {"XDG_CACHE_HOME": str(base.parent)} if where == "cache" else {"CLAUDE_PLUGIN_DATA": f"{base}/"}
    project = touch(world.root / "p/.loom/x").parents[1]
    for shell in SHELLS:
        world.start("status", shell=shell, settings=settings)
        assert not mark.exists()
    world.add_python()
    for shell in SHELLS:
        report = world.hook("session-start", cwd=project, shell=shell, stdin=b"{}", settings=settings)
        assert not mark.exists()
        assert report is not None
        assert report["LOOM"]["LOOM_ENV_PYTHON"] == ""
        assert not str(report["pycache_prefix"]).startswith(str(base))
        assert way == "inside" or (base / "python").read_text() != f"{report['python']}\n"


@pytest.mark.slow
@pytest.mark.parametrize("way", [way for way in WAYS if way != "inside"])
def test_that_a_folder_is_not_used_is_said(world: World, way: str) -> None:
    base = world.root / "shared/loom"
    trap(world, base, way)
    world.add_python()
    settings = {"XDG_CACHE_HOME": str(base.parent)}
    ended = world.start("status", "--json", settings=settings)
    error = json.loads(ended.stdout)["error"]
    assert (ended.returncode, error["code"], error["hint"]) == (
        8,
        "UNSAFE_FOLDER",
        "export XDG_CACHE_HOME=$(mktemp -d)",
    )
    launcher = CHECKOUT / "bin/loomctl"
    checks = json.loads(world.start("doctor", "--json", launcher=launcher, settings=settings).stdout)["checks"]
    (check,) = [check for check in checks if check["id"] == "python"]
    assert (check["status"], str(base) in check["found"]) == ("WARN", True)
    project = touch(world.root / "p/.loom/x").parents[1]
    event = {"hook_event_name": "SessionStart", "session_id": "s1", "source": "startup", "cwd": str(project)}
    told = world.start(
        "hook", "session-start", launcher=launcher, cwd=project, stdin=json.dumps(event).encode(), settings=settings
    )
    assert json.loads(told.stdout)["systemMessage"].startswith(f"Loom: {base} is not used, because others")


def test_a_folder_that_a_umask_left_open_to_a_group_is_closed_and_used(world: World) -> None:
    """A host makes the plugin's folder so, where each user has a group of their own."""
    for shell in SHELLS:
        base = world.root / "shared/loom"
        world.remember(folder=base)
        base.chmod(0o775)
        project = touch(world.root / "p/.loom/x").parents[1]
        settings = {"CLAUDE_PLUGIN_DATA": str(base)}
        report = world.hook("session-start", cwd=project, shell=shell, stdin=b"{}", settings=settings)
        assert report is not None
        assert report["pycache_prefix"] == str(base / "pycache")
        assert base.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works in a home of somebody else's")
@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_root_believes_whose_home_it_is(world: World, shell: list[str]) -> None:
    """As in a container that has a user's home mounted, or behind sudo -E."""
    home = world.root / "home"
    base = home / ".cache/loom"
    mark = trap(world, base, "owner")
    settings = {"HOME": str(home), "XDG_CACHE_HOME": "", "CLAUDE_PLUGIN_DATA": ""}
    world.start("status", shell=shell, settings=settings)
    assert not mark.exists()
    os.chown(home, SOMEBODY, SOMEBODY)
    world.start("status", shell=shell, settings=settings)
    assert mark.exists()
