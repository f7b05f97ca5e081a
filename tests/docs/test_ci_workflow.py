"""The workflow on the page about CI: guarded as the page says, and its shell does what it is there for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.helpers.fake_assistant import FakeAssistant
from tests.helpers.repositories import git
from tests.helpers.scenes import MAIN, Json, Scene

PAGE = (DOCS / "how-to" / "run-in-ci.md").read_text(encoding="utf-8")
TEXT = re.findall(r"^```yaml title=\"\.github/workflows/loom\.yml\"\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, Json] = WORKFLOW["jobs"]
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
TITLE = "Add $(touch sprung) `touch sprung`"
BODY = '"; touch sprung; echo "\n--end--\n${{ secrets.ANTHROPIC_API_KEY }}'
SECRET = "sk-fake-0123456789"


def steps(job: str) -> list[Json]:
    found: list[Json] = JOBS[job]["steps"]
    return found


EVERY = [step for job in JOBS for step in steps(job)]
RUNS = [step for step in EVERY if "run" in step]


def test_it_begins_when_an_issue_is_labelled_and_by_nothing_else() -> None:
    assert WORKFLOW[True] == {"issues": {"types": ["labeled"]}}  # YAML 1.1 takes `on` for true
    assert JOBS["drive"]["if"] == "github.event.label.name == 'loom'"
    assert JOBS["publish"]["needs"] == "drive"
    assert all(job["timeout-minutes"] <= 120 for job in JOBS.values())


def test_each_job_may_do_the_least() -> None:
    assert WORKFLOW["permissions"] == {}
    assert JOBS["drive"]["permissions"] == {"contents": "read"}
    assert JOBS["publish"]["permissions"] == {"contents": "write", "issues": "write", "pull-requests": "write"}
    (checkout,) = [step for step in steps("drive") if "checkout" in step.get("uses", "")]
    assert checkout["with"]["persist-credentials"] is False


def test_every_action_is_pinned_to_a_commit_that_is_named() -> None:
    used = re.findall(r"uses: (\S+)(.*)", TEXT)
    assert used
    for name, comment in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", name), name
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), name


def test_no_shell_reads_what_others_wrote() -> None:
    """Values go through the environment: an expression in a script is text that the shell would run."""
    for step in RUNS:
        assert not EXPRESSION.search(step["run"]), step["name"]
    told = [one for one in EXPRESSION.findall(TEXT) if one.startswith("github.event.issue.")]
    assert sorted(set(told)) == [f"github.event.issue.{key}" for key in ("body", "number", "title")]
    for step in EVERY:
        has_text = any(
            "issue.title" in str(value) or "issue.body" in str(value) for value in step.get("env", {}).values()
        )
        assert not has_text or step["name"] == "Keep the issue as a file"


def test_a_secret_stands_where_it_is_needed_alone() -> None:
    having = [step["name"] for step in EVERY if "secrets." in str(step) or "github.token" in str(step)]
    assert having == ["Drive", "Publish"]
    assert TEXT.count("secrets.") == 1
    assert "secrets." not in str({key: value for key, value in WORKFLOW.items() if key != "jobs"})


@pytest.mark.parametrize("step", RUNS, ids=lambda step: step["name"])
def test_its_shell_is_sound(step: Json) -> None:
    for checker in (["dash", "-n"], ["bash", "-n"], ["shellcheck", "-s", "sh", "-"]):
        if shutil.which(checker[0]) is not None:
            done = subprocess.run(checker, input=step["run"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


# ---- Played: its scripts, a clone, an assistant and a `gh` that shell scripts play.


class Runner:
    """A runner that executes a job's scripts as GitHub does, each in a shell of its own."""

    def __init__(self, fake: FakeAssistant, server: Path, base: Path) -> None:
        self.fake, self.server, self.base = fake, server, base
        self.bin = base / "bin"
        self.bin.mkdir(parents=True)
        self._program("loomctl", f'exec "{sys.executable}" -I "{MAIN}" "$@"')
        self._program(
            "gh", f'echo "$*" >> "{base}/gh"; while [ "$1" != --body-file ]; do shift; done; cat "$2" >> "{base}/body"'
        )
        self.outputs: dict[str, str] = {}
        self.failed = ""

    def _program(self, name: str, line: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (self.bin / name).chmod(0o755)

    def job(self, name: str) -> None:
        """Check out, and run the job's scripts until one fails; what is uploaded stays where it is."""
        root = self.base / name
        git(self.base, "clone", "-q", str(self.server), str(root))
        temp = self.base / "temp"
        temp.mkdir(exist_ok=True)
        around = {
            **os.environ, "PATH": f"{self.bin}{os.pathsep}{self.fake.path}", "RUNNER_TEMP": str(temp),
            "GITHUB_SHA": git(root, "rev-parse", "HEAD"), "GITHUB_OUTPUT": str(self.base / "output"),
            "GIT_AUTHOR_NAME": "R", "GIT_COMMITTER_NAME": "R",
        }  # fmt: skip
        for step in steps(name):
            if "run" not in step or step["name"] == "Install":
                continue
            values = {**WORKFLOW["env"], **step.get("env", {})}
            own = {key: EXPRESSION.sub(lambda one: self._value(one[1]), str(value)) for key, value in values.items()}
            done = subprocess.run(
                ["bash", "-e", "-c", step["run"]], cwd=root, env={**around, **own}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if (self.base / "output").exists():
                lines = (self.base / "output").read_text(encoding="utf-8").splitlines()
                self.outputs = dict(line.split("=", 1) for line in lines)
            if done.returncode != 0:
                self.failed = f"{step['name']} ended with {done.returncode}: {done.stdout}{done.stderr}"
                return

    def _value(self, expression: str) -> str:
        known = {
            "github.event.issue.number": "12",
            "github.event.issue.title": TITLE,
            "github.event.issue.body": BODY,
            "github.event.repository.default_branch": "main",
            "github.token": "token",
            "secrets.ANTHROPIC_API_KEY": SECRET,
        }
        return known[expression] if expression in known else self.outputs[expression.rpartition(".")[2]]


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    server, source = tmp_path / "server.git", tmp_path / "source"
    scene = Scene(source, new=False)
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    scene.workflow(phases={"build": {"steps": [{"id": "one", "prompt": "Do it."}]}}, name="core")
    scene.write("a.txt", "a\n")
    git(source, "add", ".")
    git(source, "commit", "-q", "-m", "first")
    git(tmp_path, "clone", "-q", "--bare", str(source), str(server))
    return Runner(FakeAssistant(scene), server, tmp_path / "runner")


@pytest.mark.slow(quick=1)
def test_a_run_that_is_done_becomes_a_branch_and_a_pull_request(runner: Runner, tmp_path: Path) -> None:
    runner.fake.play("cp issue.md seen.txt; env > ../env.txt; ends; over 0.1")
    runner.job("drive")
    assert runner.failed == ""
    assert runner.outputs["code"] == "0"
    assert SECRET in (runner.base / "env.txt").read_text(encoding="utf-8")
    runner.job("publish")
    assert runner.failed == ""
    (called,) = (runner.base / "gh").read_text(encoding="utf-8").splitlines()
    assert called.startswith("pr create --draft --head loom/issue-12 --base main --title Work on issue 12")
    body = (runner.base / "body").read_text(encoding="utf-8")
    assert "ended with 0" in body
    assert "the run is completed" in body
    names = git(runner.server, "ls-tree", "-r", "--name-only", "loom/issue-12").splitlines()
    assert names == [".loom/.gitignore", ".loom/workflows/core.json", "a.txt", "seen.txt"]
    seen = git(runner.server, "show", "loom/issue-12:seen.txt")
    assert seen == f"{TITLE}\n\n{BODY}"
    assert not list(tmp_path.rglob("sprung"))
    clone = runner.base / "home"
    git(runner.base, "clone", "-q", str(runner.server), str(clone))
    pulled = Scene(clone, new=False).loomctl("pull", runner.outputs["run"], session=None)
    assert pulled.code == 0, pulled.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "code", "fails"), [("over 0.1", "9", False), ('ends \'{"outcome": "failed"}\'; over 0.1', "1", True)]
)
def test_another_end_becomes_a_comment(runner: Runner, part: str, code: str, fails: bool) -> None:
    runner.fake.play(part)
    runner.job("drive")
    assert runner.failed == ""
    assert runner.outputs["code"] == code
    runner.job("publish")
    assert bool(runner.failed) is fails
    (called,) = (runner.base / "gh").read_text(encoding="utf-8").splitlines()
    assert called.startswith("issue comment 12 ")
    assert f"ended with {code}" in (runner.base / "body").read_text(encoding="utf-8")
    assert git(runner.server, "for-each-ref", "refs/loom/runs")
