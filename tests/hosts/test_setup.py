"""`loomctl plugin install`: what a host's own install cannot do, shown first, and undone to the byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loomctl.hosts.setup import codex, install, plans
from loomctl.kit.errors import LoomError
from tests.helpers.scenes import CHECKOUT, MAIN, SESSION, Ended, Scene, run

LAUNCHER = str(CHECKOUT / "bin/loomctl")
MINE = b"""{"theme": "dark",
     "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]},
 "a": "\xc3\xa9"}"""
FILES = {
    "codex": (".codex/hooks.json", ".codex/loom-hooks"),
    "copilot": (),
    "opencode": (".config/opencode/plugin/loom.js",),
    "gemini": (".gemini/policies/loom.toml",),
    "qwen": (".qwen/settings.json",),
}


def below(folder: Path) -> dict[str, bytes | str]:
    """Give every file and link below a folder, with what it holds or where it leads."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_bytes()
    return found


def loomctl(home: Path, *words: str) -> Ended:
    return run([sys.executable, "-I", str(MAIN), "plugin", *words], cwd=home, environ=dict(os.environ))


@pytest.mark.parametrize("host", install.HOSTS)
@pytest.mark.parametrize("before", [None, MINE], ids=["no file", "the user's own"])
def test_all_that_it_wrote_is_taken_away_to_the_byte(host: str, before: bytes | None, home: Path) -> None:
    if before is not None:
        for name in (name for name in FILES[host] if name.endswith(".json")):
            (home / name).parent.mkdir(parents=True)
            (home / name).write_bytes(before)
    known = below(home)
    assert not install.look(host).is_whole or host == "opencode"

    after = install.install(install.look(host))

    assert after.is_whole
    assert not install.look(host).missing
    assert all((home / name).is_file() for name in FILES[host])
    install.remove(host)
    assert below(home) == known


def test_the_users_own_hooks_stay_first(home: Path) -> None:
    (home / ".codex").mkdir()
    (home / ".codex/hooks.json").write_bytes(MINE)

    install.install(install.look("codex"))

    settings = json.loads((home / ".codex/hooks.json").read_text())
    assert settings["theme"] == "dark"
    assert [group["hooks"][0]["command"] for group in settings["hooks"]["Stop"]] == [
        "true",
        f"PLUGIN_ROOT= {home}/.local/bin/loomctl hook --host codex stop",
    ]
    assert settings["hooks"]["SessionStart"][0]["hooks"][0]["additionalContextLimit"] == 40_000


@pytest.mark.parametrize("host", ["codex", "qwen"])
def test_from_a_file_that_was_changed_since_its_part_alone_goes(host: str, home: Path) -> None:
    path = home / FILES[host][0]
    path.parent.mkdir()
    path.write_bytes(MINE)
    install.install(install.look(host))
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "new": 1}))

    install.remove(host)

    assert json.loads(path.read_text()) == {**json.loads(MINE), "new": 1}


def test_older_hooks_of_looms_are_replaced_and_never_doubled(home: Path) -> None:
    path = home / ".codex/hooks.json"
    path.parent.mkdir()
    old = {"hooks": [{"type": "command", "command": "/old/loomctl hook --host codex stop", "timeout": 1}]}
    path.write_text(json.dumps({"hooks": {"Stop": [old]}}))
    assert [piece.state for piece in install.look("codex").pieces] == [install.OTHER, install.MISSING]

    install.install(install.look("codex"))

    assert "/old/loomctl" not in path.read_text()
    install.remove("codex")
    assert not path.exists()


@pytest.mark.parametrize("content", [b"// mine\n{", b"[]", b"{"])
def test_a_file_that_is_no_plain_json_is_left_alone(content: bytes, home: Path) -> None:
    (home / ".qwen").mkdir()
    (home / ".qwen/settings.json").write_bytes(content)

    with pytest.raises(LoomError) as raised:
        install.look("qwen")

    assert raised.value.code == "UNREADABLE"
    assert (home / ".qwen/settings.json").read_bytes() == content


def test_a_file_of_somebody_elses_in_its_place_is_left_alone(home: Path) -> None:
    path = home / ".gemini/policies/loom.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[[rule]]\n")

    with pytest.raises(LoomError) as raised:
        install.look("gemini")

    assert raised.value.code == "FILE_EXISTS"


def test_a_link_that_another_host_needs_stays(home: Path) -> None:
    install.install(install.look("codex"))
    install.install(install.look("gemini"))

    install.remove("codex")

    assert (home / ".local/bin/loomctl").is_symlink()
    assert install.look("gemini").is_whole


def test_it_shows_what_it_would_write_and_writes_nothing_without_a_yes(home: Path) -> None:
    refused = loomctl(home, "install", "codex")

    assert refused.code == 2
    assert "NOT_CONFIRMED" in refused.stderr
    assert all(f"{home}/{name}" in refused.stderr for name in (*FILES["codex"], ".local/bin/loomctl"))
    assert list(below(home)) == [".profile"]


@pytest.mark.slow
def test_the_commands_tell_what_is_there_and_what_is_missing(home: Path) -> None:
    assert loomctl(home, "status").stdout.startswith("Loom has set up no other assistant")
    done = loomctl(home, "install", "codex", "--yes", "--json")
    assert (done.json["whole"], done.json["changed"]) == (True, True)
    assert loomctl(home, "install", "codex", "--json").json["changed"] is False
    (home / ".codex/loom-hooks").unlink()

    told = loomctl(home, "status", "--json")

    assert told.code == 1
    (codex,) = told.json["hosts"]
    assert [one["state"] for one in codex["files"]] == ["there", "missing"]
    assert "✗ missing:" in loomctl(home, "status", "codex").stdout
    assert loomctl(home, "remove", "codex").stdout.count("Removed Loom from") == 2
    assert loomctl(home, "remove", "codex").stdout == "Loom has written nothing for Codex CLI\n"


@pytest.mark.slow
def test_of_a_plugins_hooks_and_the_users_own_one_answers(scene: Scene, home: Path) -> None:
    assert home.is_dir()
    scene.workflow()
    scene.begin()
    event = json.dumps({"session_id": SESSION, "cwd": str(scene.root), "hook_event_name": "SessionStart"})
    command = [LAUNCHER, "hook", "--host", "codex", "session-start"]
    environ = {**os.environ, "PWD": str(scene.root)}
    beat = scene.store / "local/hooks/session-start"

    def fires(**more: str) -> bool:
        beat.unlink(missing_ok=True)
        subprocess.run(command, cwd=scene.root, env={**environ, **more}, input=event.encode(), check=True)
        return beat.exists()

    assert fires(PLUGIN_ROOT="/x")
    install.install(install.look("codex"))
    assert not fires(PLUGIN_ROOT="/x")
    assert fires()
    install.remove("codex")
    assert fires(PLUGIN_ROOT="/x")


def test_hooks_call_a_launcher_in_a_folder_of_any_name() -> None:
    hooks: dict[str, Any] = {"Stop": [{"hooks": [{"command": '"${PLUGIN_ROOT}/bin/loomctl" hook --host codex stop'}]}]}

    made = plans.calling(hooks, "${PLUGIN_ROOT}", "/my folder/it's/loomctl")

    (group,) = made["Stop"]
    assert group["hooks"][0]["command"] == "PLUGIN_ROOT= '/my folder/it'\\''s/loomctl' hook --host codex stop"


def test_a_bundle_that_moves_at_each_update_is_named_as_that(tmp_path: Path) -> None:
    moving = tmp_path / ".codex/plugins/cache/loom/loom/0.1.0"
    (moving / "hooks").mkdir(parents=True)
    (moving / "hooks/codex.json").write_bytes((CHECKOUT / "hooks/codex.json").read_bytes())

    stays, moves = (codex.plan(plans.Places("/x", "/l", str(bundle))).then for bundle in (CHECKOUT, moving))

    assert (len(stays), moves[-1].startswith("after each update: ")) == (2, True)
