"""No git at all, a git that is too old, one that refuses, and no repository: everything but git's own words works."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.scenes import CHECKOUT, artifact
from tests.portability.places import Machine

LAUNCHED = ("sh", "cat", "readlink", "rm", "mkdir", "dirname")
NOTE = "There is no git on PATH"


def tools(machine: Machine, git: str | None) -> bytes:
    """Make a PATH that has what the launcher needs, and a git that is this shell script, or none."""
    folder = os.path.join(machine.root, b"tools")
    os.makedirs(folder)
    for name in LAUNCHED:
        found = shutil.which(name)
        assert found is not None
        os.symlink(found, os.path.join(folder, name.encode()))
    if git is not None:
        path = Path(os.fsdecode(os.path.join(folder, b"git")))
        path.write_text(f"#!/bin/sh\n{git}\n")
        path.chmod(0o755)
    return folder


KINDS: dict[str, str | None] = {
    "none": None,
    "too old": 'echo "unknown option: $1" >&2; exit 129',
    "that refuses": 'echo "fatal: detected dubious ownership in repository" >&2; exit 128',
    "that is killed": "kill -9 $$",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_lives_without_git(machine: Machine, kind: str) -> None:
    commits = artifact("commits", "", required=False, type="git_info", command="git log --oneline -3")
    commits.pop("path")
    steps = {"steps": [{"id": "ask", "prompt": "Ask."}, {"id": "make", "prompt": "Make."}]}
    machine.workflow({"frame": steps})
    whole = Path(os.fsdecode(machine.write(".loom/workflows/tiny.json", "")))
    critical = {"always_load": [artifact("spec", "spec.md"), commits]}
    whole.write_text(json.dumps({"id": "tiny", "critical_artifacts": critical, "phases": {"frame": steps}}))
    machine.more = {"PATH": tools(machine, KINDS[kind])}
    begun = machine.loomctl("run", "x", "--workflow", "tiny")
    assert (begun.code, begun.stderr) == (0, b""), begun
    assert begun.text.count(NOTE) == (1 if kind == "none" else 0)
    assert "heliotrope" in begun.text
    assert "commits" in begun.text, "what git was to say is named as left out"
    restored = machine.hook("session-start", source="compact")
    assert "heliotrope" in restored["hookSpecificOutput"]["additionalContext"]
    assert NOTE not in json.dumps(restored)
    rest = [["next"], ["show"], ["sessions"], ["check", "tiny"]] if kind == "none" else []
    for words in (["done"], *rest):
        answer = machine.loomctl(*words, given=b"done")
        assert (answer.code, answer.stderr) == (0, b""), (words, answer)
        assert NOTE not in answer.text
    assert machine.loomctl("resume").ends().text.count(NOTE) == (1 if kind == "none" else 0)
    record = json.loads(machine.loomctl("sessions", "--json").stdout)["sessions"][0]
    assert record["environment"]["dirty"] is None


def test_the_demo_says_what_it_needs(machine: Machine) -> None:
    machine.more = {"PATH": tools(machine, None)}
    ended = machine.loomctl("demo").ends(8)
    assert "NO_GIT" in ended.text
    assert "hint: git --version" in ended.text


def test_a_folder_that_is_no_repository_misses_nothing(machine: Machine) -> None:
    shutil.rmtree(os.path.join(machine.project, b".git"))
    machine.more = {"PATH": tools(machine, None)}
    assert NOTE not in machine.loomctl("run", "x", "--workflow", "tiny").ends().text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_project_that_is_somebody_elses_works(machine: Machine) -> None:
    """Git refuses a repository of another owner; Loom neither fails nor goes round it, and says the branch."""
    root = Path(os.fsdecode(machine.project))
    shutil.rmtree(root / ".git")
    own = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main"]
    environ = {"PATH": os.environ["PATH"], "HOME": os.fsdecode(machine.home)}
    for words in (["init", "-q"], ["add", "spec.md"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", *own, *words], cwd=root, env=environ, check=True)
    for folder, _, names in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.chown(path, 65534, 65534)
    asked = subprocess.run(["git", "status"], cwd=root, env=environ, capture_output=True, text=True, check=False)
    assert "dubious ownership" in asked.stderr
    begun = machine.loomctl("run", "x", "--workflow", "tiny", "--json")
    assert (begun.code, begun.stderr) == (0, b""), begun
    assert machine.hook("session-start", source="resume")["systemMessage"].startswith("Loom: run")
    record = machine.loomctl("sessions", "--json").json["sessions"][0]["environment"]
    assert record["git_branch"] == "main"
    assert record["dirty"] is None


@pytest.mark.slow
def test_the_launcher_in_every_shell_starts_the_real_package(machine: Machine) -> None:
    folder = os.path.join(machine.root, b"my own tools")
    os.makedirs(folder)
    os.symlink(CHECKOUT / "bin" / "loomctl", os.path.join(folder, b"loomctl"))
    path = folder + b":" + tools(machine, None)
    assert machine.loomctl("run", "x", "--workflow", "tiny", PATH=path).code == 0
    for shell in ("dash", "bash", "busybox"):
        found = shutil.which(shell)
        if found is None:
            continue
        way = (found, "sh") if shell == "busybox" else (found,)
        direct = machine.start(*way, os.path.join(folder, b"loomctl"), "show", PATH=path)
        assert (direct.code, direct.stderr) == (0, b""), (shell, direct)
        named = machine.start(*way, "-c", "loomctl show 'the-project'", PATH=path)
        assert named.stdout == direct.stdout
