"""Completion in bash, zsh and fish: the line from the help sets it up, and what the shells then ask is answered."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.scenes import MAIN, Scene


def lines_of_the_help(scene: Scene) -> dict[str, str]:
    lines = [line.strip() for line in scene.loomctl("--help", "--all").stdout.splitlines()]
    found = {shell: [line for line in lines if f"={shell}_source loomctl" in line] for shell in ("bash", "zsh", "fish")}
    return {shell: line for shell, (line,) in found.items()}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    script = folder / "loomctl"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{MAIN}" "$@"\n')
    script.chmod(0o755)
    return folder


def in_a_shell(scene: Scene, tools: Path, *command: str, **environ: str) -> str:
    path = f"{tools}:{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=scene.root, env={**scene.environ(None), "PATH": path, **environ}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def test_the_help_tells_how_completion_is_set_up(scene: Scene, tools: Path) -> None:
    lines = lines_of_the_help(scene)
    assert set(lines) == {"bash", "zsh", "fish"}
    known = in_a_shell(scene, tools, "bash", "-c", f"{lines['bash']}; complete -p loomctl")
    assert known.strip() == "complete -o nosort -F _loomctl_completion loomctl"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_line_for_other_shells_is_taken_where_they_are(scene: Scene, tools: Path, shell: str) -> None:
    script = in_a_shell(scene, tools, "loomctl", _LOOMCTL_COMPLETE=f"{shell}_source")
    assert f"_LOOMCTL_COMPLETE={shell}_complete" in script
    found = shutil.which(shell)
    if found is not None:
        line = lines_of_the_help(scene)[shell]
        prepare = "autoload -Uz compinit && compinit -u; " if shell == "zsh" else ""
        in_a_shell(scene, tools, found, "-c", prepare + line)


def test_what_each_shell_asks_is_answered(scene: Scene, tools: Path) -> None:
    scene.workflow()
    scene.begin()
    bash = in_a_shell(
        scene, tools, "loomctl", _LOOMCTL_COMPLETE="bash_complete", COMP_WORDS="loomctl show ad", COMP_CWORD="2"
    )
    assert bash == f"plain,{scene.handle}\n"
    for typed, told in (("show --stages ad", scene.handle), ("show --st", "--stages"), ("debug sta", "state")):
        words = {"COMP_WORDS": f"loomctl {typed}", "COMP_CWORD": str(len(typed.split()))}
        assert in_a_shell(scene, tools, "loomctl", _LOOMCTL_COMPLETE="bash_complete", **words) == f"plain,{told}\n"
    zsh = in_a_shell(
        scene, tools, "loomctl", _LOOMCTL_COMPLETE="zsh_complete", COMP_WORDS="loomctl und", COMP_CWORD="1"
    )
    assert zsh.splitlines()[:2] == ["plain", "undo"]
    assert zsh.splitlines()[2].startswith("Undo the last `done`")
    fish = in_a_shell(
        scene, tools, "loomctl", _LOOMCTL_COMPLETE="fish_complete", COMP_WORDS="loomctl und", COMP_CWORD="und"
    )
    assert "undo" in fish
