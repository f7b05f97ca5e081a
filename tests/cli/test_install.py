"""`loomctl install`: the command in a folder on PATH, and nothing there that is not Loom's is touched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.install import on_path
from loomctl.kit import machine, package
from loomctl.kit.errors import EXIT_USAGE
from loomctl.runs import project
from tests.cli.conftest import Cli
from tests.helpers.errors import refused
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each
from tests.helpers.texts import holds

LAUNCHER = str(CHECKOUT / "bin" / "loomctl")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("SHELL", "/bin/zsh")
    return tmp_path / ".local" / "bin"


def test_the_command_is_a_link_in_the_users_own_folder(cli: Cli, folder: Path) -> None:
    """Twice is once; where the folder is not on PATH the line for the user's shell is said; it is undone whole."""
    told = cli("install").ends().stdout
    holds(told, f"is a link to {LAUNCHER}", "~/.zshrc", '"$HOME/.local/bin:$PATH"', "loomctl install --remove")
    assert os.readlink(folder / "loomctl") == LAUNCHER
    assert cli("install", "--json").ends().json["changed"] is False
    assert cli("install", "--remove", "--json").ends().json["changed"] is True
    assert list(folder.iterdir()) == []
    holds(cli("install", "--remove").ends().stdout, "There is no ")


@pytest.mark.usefixtures("folder")
def test_who_removes_the_command_is_told_what_stays(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    kept = tmp_path / "state"
    kept.mkdir()
    monkeypatch.setenv("LOOM_STATE_HOME", str(kept))
    cli("install").ends()
    Path(machine.cache_home()).mkdir(parents=True)
    stays = f"Loom's cache, state and settings stay: {machine.cache_home()}, {kept}"
    holds(cli("install", "--remove").ends().stdout, "Removed ", stays, "The .loom folders in your projects stay too")


def test_a_folder_on_path_needs_no_line(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    holds(cli("install").ends().stdout, "Now `loomctl --help` works in any folder.", but=("export",))


def test_another_folder_is_undone_there(cli: Cli, folder: Path, tmp_path: Path) -> None:
    told = cli("install", "--to", str(tmp_path / "my bin")).ends().stdout
    holds(told, f"To undo: loomctl install --remove --to '{tmp_path}/my bin'")
    assert cli("install", "--remove", "--to", str(tmp_path / "my bin"), "--json").ends().json["changed"] is True
    assert not folder.exists()


def test_another_loomctl_before_it_is_named(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "first" / "loomctl"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{folder}:/usr/bin:/bin")
    holds(cli("install").ends().stdout, f"But your PATH finds another loomctl first: {other}")


def test_where_no_link_can_be_made_a_script_stands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "symlink", fail)
    placed = on_path.place(str(folder), LAUNCHER)
    assert (placed.kind, placed.changed) == (on_path.SCRIPT, True)
    assert on_path.place(str(folder), LAUNCHER).changed is False
    assert on_path.leads_to(placed.path, LAUNCHER)
    assert subprocess.run([placed.path, "--version"], capture_output=True, check=True).stdout.startswith(b"loomctl")
    assert on_path.remove(str(folder)).changed


def pipx(path: Path) -> None:
    helper = path.parent.parent / "venv" / "bin" / "loomctl"
    helper.parent.mkdir(parents=True)
    helper.write_text("#!/bin/sh\n")
    path.symlink_to(helper)


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a file": lambda path: path.write_text("#!/bin/sh\nexec loom\n"),
    "a folder": lambda path: path.mkdir(),
    "a helper of pipx": pipx,
    "a link to nothing": lambda path: path.symlink_to("/nowhere/else"),
    "a cut script": lambda path: path.write_text(f"#!/bin/sh\n{on_path._MARK}\n"),
}


@pytest.mark.shows("replaces nothing there but its own")
@each("made", list(FOREIGN))
def test_what_is_not_looms_is_left_alone(cli: Cli, folder: Path, made: str) -> None:
    path = folder / "loomctl"
    folder.mkdir(parents=True)
    FOREIGN[made](path)
    for words in (["install"], ["install", "--remove"]):
        assert "FILE_EXISTS" in cli(*words).ends(EXIT_USAGE).stderr
    with refused("FILE_EXISTS"):
        on_path.place(str(folder), LAUNCHER)
    assert os.path.lexists(path)


@each("gone", [True, False])
def test_a_link_to_another_loom_is_renewed(folder: Path, tmp_path: Path, *, gone: bool) -> None:
    old = tmp_path / "old" / "bin" / "loomctl"
    old.parent.mkdir(parents=True)
    (tmp_path / "old" / "plugin.json").write_text("{}")
    old.write_text("")
    folder.mkdir(parents=True)
    (folder / "loomctl").symlink_to(old)
    if gone:
        old.unlink()
    placed = on_path.place(str(folder), LAUNCHER)
    assert (placed.before, os.readlink(folder / "loomctl")) == (str(old), LAUNCHER)


def test_a_helper_of_uv_or_pipx_needs_none(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "plugin_root", lambda: os.path.join(package.FOLDER, "_bundle"))
    holds(cli("install").ends().stdout, "uv or pipx", "pipx ensurepath")
    assert not folder.exists()


SHELLS = [
    ("/usr/bin/fish", "fish_add_path /x/bin"),
    ("/bin/bash", "echo 'export PATH=\"/x/bin:$PATH\"' >> ~/.bashrc"),
    ("", "echo 'export PATH=\"/x/bin:$PATH\"' >> ~/.profile"),
]


@each(("shell", "line"), SHELLS)
def test_the_line_is_the_shells_own(monkeypatch: pytest.MonkeyPatch, shell: str, line: str) -> None:
    monkeypatch.setenv("SHELL", shell)
    assert on_path.line_for_shell("/x/bin") == line
