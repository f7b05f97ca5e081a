"""Homes that are not there, not writable or not named: the work goes on, and what cannot be kept is said."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers.scenes import CHECKOUT, MAIN, OTHER
from tests.portability.places import Answer, Machine

HOMES: dict[str, str | None] = {
    "not set": None, "empty": "", "relative": "my-home", "not there": "/nonexistent/home", "a file": "/dev/null",
    "read-only": "/proc",
}  # fmt: skip


def direct(machine: Machine, *words: str, given: bytes = b"") -> Answer:
    """Run the package past the launcher, as pip's script does: the launcher needs a place for its environment."""
    return machine.start(sys.executable, "-I", str(MAIN), *words, given=given)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOMES)
def test_a_run_lives_without_a_home(machine: Machine, name: str) -> None:
    """Run, done, show, resume and paths work; that the run is not remembered is said by run, with the way out."""
    if name == "not there" and os.geteuid() == 0:
        name = "a file"  # root can make it
    home = HOMES[name]
    machine.more = {"HOME": home, "CLAUDE_PLUGIN_DATA": None}
    if home is None:  # the system knows the user's home all the same; another place keeps the test out of it
        machine.more["XDG_STATE_HOME"] = machine.temporary
    begun = direct(machine, "run", "x", "--workflow", "tiny")
    assert (begun.code, begun.stderr) == (0, b""), begun
    if home is not None:
        said = "LOOM_STATE_HOME" if home in ("", "my-home") else "on this machine"
        assert begun.text.count(said) == 1, begun.text
    for words in (["done"], ["resume"], ["paths"]):
        answer = direct(machine, *words, given=b"done")
        assert (answer.code, answer.stderr) == (0, b""), (words, answer)
    assert not os.path.exists(os.path.join(machine.project, b"my-home"))


@pytest.mark.slow
@pytest.mark.parametrize("home", ["", "my-home", "/dev/null", "/"])
def test_hooks_work_without_a_home(machine: Machine, home: str) -> None:
    """Through the launcher, with nowhere to keep anything: a start is answered, nothing is written below the root."""
    machine.more = {"LOOM_STATE_HOME": os.path.join(machine.root, b"kept")}
    assert machine.loomctl("run", "x", "--workflow", "tiny").code == 0
    before = set(os.listdir("/"))
    shutil.rmtree(machine.data, ignore_errors=True)
    machine.more |= {"HOME": home, "CLAUDE_PLUGIN_DATA": None}
    if home != "/" or os.geteuid() != 0:  # root's cache would go there, as it should
        assert "heliotrope" in machine.hook("session-start", source="resume")["hookSpecificOutput"]["additionalContext"]
    assert set(os.listdir("/")) == before
    assert not os.path.exists(os.path.join(machine.project, b"my-home"))


def test_without_a_home_the_launcher_says_what_it_needs(machine: Machine) -> None:
    """A first start has nowhere to make its environment: exit 8, the same in JSON."""
    machine.more = {"HOME": None, "CLAUDE_PLUGIN_DATA": None}
    ended = machine.loomctl("show", "--json").ends(8)
    assert ended.json["error"]["code"] == "NO_HOME"
    assert ended.stderr.startswith(b"loomctl: NO_HOME: ")
    assert ended.json["error"]["hint"] in ended.text


@pytest.mark.slow
def test_everything_stands_below_home_and_no_temporary_folder_is_needed(machine: Machine) -> None:
    assert machine.loomctl("run", "x", "--workflow", "tiny").code == 0
    paths = machine.loomctl("paths", "--json").json["paths"]
    for name in ("machine_state", "user_config", "environment"):
        assert os.fsencode(paths[name]).startswith(machine.home + b"/"), name
    machine.more = {"TMPDIR": "/nonexistent/tmp"}
    assert not direct(machine, "demo", "--json").ends().json["run_id"].startswith("/")


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "LOOM_STATE_HOME"])
def test_a_relative_folder_of_the_users_is_never_the_projects(machine: Machine, variable: str) -> None:
    """What stands in a project is no user's word, whatever a variable says (D10)."""
    elsewhere = os.path.join(machine.root, b"elsewhere")
    os.makedirs(elsewhere)
    for folder in ("mine/loom", "mine"):
        machine.write(f"{folder}/config.yaml", f"extra_roots: ['{os.fsdecode(elsewhere)}']\n")
    machine.more = {variable: "mine"}
    assert direct(machine, "run", "x", "--workflow", "tiny").code == 0
    paths = direct(machine, "paths", "--json").json["paths"]
    assert os.path.isabs(paths["user_config"])
    assert os.fsencode(paths["user_config"]).startswith(machine.home)
    outside = Path(os.fsdecode(elsewhere)) / "secret.md"
    outside.write_text("x")
    assert direct(machine, "done", "--artifact", f"x={outside}", given=b"x").code == 2
    assert sorted(os.listdir(os.path.join(machine.project, b"mine"))) == [b"config.yaml", b"loom"]


@pytest.mark.slow
def test_a_folder_that_is_gone_is_said(machine: Machine) -> None:
    line = 'mkdir gone && cd gone && rmdir ../gone && "$@"'
    command = [sys.executable, "-I", str(MAIN)]
    for words in (["runs"], ["run", "x"], ["show"], ["check"]):
        ended = machine.start("sh", "-c", line, "sh", *command, *words).ends(2)
        assert ended.stderr.startswith(b"loomctl: NO_FOLDER: "), ended
        assert b"\n  hint: cd" in ended.stderr
    assert machine.start("sh", "-c", line, "sh", *command, "--help").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_umask_neither_opens_nor_shuts_what_loom_writes(machine: Machine, umask: int) -> None:
    line = f'umask {umask:03o} && "$@"'
    command = ["sh", "-c", line, "sh", str(CHECKOUT / "bin" / "loomctl")]
    shutil.rmtree(os.path.join(machine.project, b".loom"))
    machine.write("work.md", "# Work\n")
    for words in (["run", "x", "--workflow", "core"], ["show"], ["done", "--artifact", "work_path=work.md"]):
        machine.start(*command, *words, given=b"done").ends()
    machine.start(*command, "resume", "--take-over", session=OTHER).ends()
    state = os.path.join(machine.home, b".local", b"state", b"loom")
    for base in (os.path.join(machine.project, b".loom"), state):
        for folder, _, names in os.walk(base):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                mode = os.lstat(path).st_mode & 0o777
                assert not mode & (0o022 if umask == 0 else 0o077), (path, oct(mode))
