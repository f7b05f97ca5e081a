"""The action for a team's CI: what it says, where it says it, and that a stranger's workflow gets nothing out of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.repositories import git
from tests.helpers.scenes import CHECKOUT, PYTHON
from tools import action

ACTION: dict[str, Any] = yaml.safe_load((CHECKOUT / "action.yml").read_text(encoding="utf-8"))
GOOD = "id: good\nextends: core\n"
WRONG = "id: wrong\nextends: core\nautonomy: {require_approval_for: [relaese]}\n"
SECRET = "ghs-fake-0123456789"

# Keeps comments in a file, as the forge would; refuses to write where a file `forbidden` lies.
GH = """#!{python}
import json, pathlib, sys
here, told = pathlib.Path({folder!r}), sys.argv[1:]
kept = here / "comments.json"
comments = json.loads(kept.read_text()) if kept.exists() else []
assert told[0] == "api", told
if "--input" not in told:
    assert told[1:3] == ["repos/team/shop/issues/7/comments", "--paginate"]
    assert 'select(.user.type == "Bot")' in told[4]
    print(*(i for i, (who, body) in enumerate(comments) if who == "Bot" and body.startswith("{mark}")))
    sys.exit()
if (here / "forbidden").exists():
    sys.exit("gh: Resource not accessible by integration (HTTP 403)")
body = json.load(sys.stdin)["body"]
if told[told.index("--method") + 1] == "PATCH":
    comments[int(told[1].rpartition("comments/")[2])][1] = body
else:
    assert told[1] == "repos/team/shop/issues/7/comments"
    comments.append(["Bot", body])
kept.write_text(json.dumps(comments))
"""


class Job:
    """A job on a runner: a checkout with workflows, an event, a summary, and `gh` on PATH."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home, self.shop = folder, home, folder / "shop"
        (self.shop / ".loom/workflows").mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "bin/gh").write_text(GH.format(python=sys.executable, folder=str(folder), mark=action.MARK))
        (folder / "bin/gh").chmod(0o755)
        self.event: dict[str, Any] = {"pull_request": {"number": 7}}
        self.inputs = {name: str(one["default"]) for name, one in ACTION["inputs"].items()}
        self.inputs["token"] = SECRET

    def write(self, name: str, text: str) -> None:
        (self.shop / ".loom/workflows" / name).write_text(text, encoding="utf-8")

    def run(self, root: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
        """Do the action's step as a runner does: put the inputs into its environment, hand its line to bash."""
        (step,) = ACTION["runs"]["steps"]
        told = {}
        for name, value in step["env"].items():
            match = re.fullmatch(r"\$\{\{ (?:inputs|github)\.(\w+) \}\}", value)
            assert match, value
            told[name] = self.inputs[match[1]]
        (self.folder / "event.json").write_text(json.dumps(self.event))
        environ = {
            **os.environ, **told, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.home),
            "LOOM_PYTHON": PYTHON, "GITHUB_ACTION_PATH": str(root), "GITHUB_REPOSITORY": "team/shop",
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
        }  # fmt: skip
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.shop, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip

    @property
    def comments(self) -> list[list[str]]:
        kept = self.folder / "comments.json"
        found: list[list[str]] = json.loads(kept.read_text()) if kept.exists() else []
        return found

    @property
    def summary(self) -> str:
        path = self.folder / "summary.md"
        return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runner's home, in which Loom sets itself up once."""
    return tmp_path_factory.mktemp("runner")


@pytest.fixture
def job(tmp_path: Path, home: Path) -> Job:
    return Job(tmp_path, home)


def outside_fences(text: str) -> str:
    return re.sub(r"^(`{3,})[a-z]*\n.*?^\1\n", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_a_pull_request_has_one_comment_which_later_runs_replace(job: Job) -> None:
    (job.folder / "comments.json").write_text(json.dumps([["User", f"{action.MARK}\nI am a stranger"]]))
    job.write("good.yaml", GOOD)
    ended = job.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    stranger, (_, first) = job.comments
    assert "| `.loom/workflows/good.yaml` | ok | ok |" in first
    assert "```mermaid\nflowchart TD\n" in first
    assert "frame/fetch-work" in first
    job.write("wrong.yaml", WRONG)
    ended = job.run()
    assert ended.returncode == 1
    again, (_, second) = job.comments
    assert again == stranger == ["User", f"{action.MARK}\nI am a stranger"]
    assert "| `.loom/workflows/wrong.yaml` | **failed** | not run |" in second
    assert "did you mean release?" in second
    assert job.summary == ""
    assert SECRET not in ended.stdout + ended.stderr + second


@pytest.mark.slow
@pytest.mark.parametrize("case", ["no pull request", "no permission", "not wanted", "no gh"])
def test_where_it_cannot_comment_the_summary_has_the_same(job: Job, case: str) -> None:
    job.write("good.yaml", GOOD)
    if case == "no pull request":
        job.event = {"ref": "refs/heads/main"}
    elif case == "no permission":
        (job.folder / "forbidden").touch()
    elif case == "not wanted":
        job.inputs["comment"] = "false"
    else:
        (job.folder / "bin/gh").write_text("#!/bin/sh\nexit 4\n")
    ended = job.run()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert job.comments == []
    assert "| `.loom/workflows/good.yaml` | ok | ok |" in job.summary
    assert "```mermaid\n" in job.summary
    assert ("HTTP 403" in ended.stdout) == (case == "no permission")


@pytest.mark.slow
def test_a_strangers_workflow_is_data(job: Job) -> None:
    """Its names and texts reach no shell, no runner's command, and end no fence; links lead nowhere."""
    (job.folder / "secret.yaml").write_text("id: hidden-word\nextends: core\n")
    evil = "$(touch sprung) `touch sprung` ::set-env name=A::b </details> @team ``` | x"
    step = {"id": "a", "name": evil, "prompt": f"{evil}\n```\n# loud\n::error::loud\n"}
    text = json.dumps({"id": "evil", "description": evil, "phases": {"p": {"steps": [step]}}})
    job.write("evil.json", text)
    job.write("$(touch sprung).json", text.replace('"evil"', '"other"'))
    job.write("`touch sprung`|<b>.json", '{"id": "`touch sprung`", "::error::loud": [')
    job.write("-h.yaml", GOOD)
    job.write("warned.yaml", f"id: w\nextends: core\nautonomy: {{require_approval_for: [{json.dumps(evil)}]}}\n")
    (job.shop / ".loom/workflows/link.yaml").symlink_to(job.folder / "secret.yaml")
    git(job.shop, "init", "--quiet")
    (job.shop / ".git/hidden.yaml").write_text("id: hidden-word\nextends: core\n")
    (job.shop / ".loom/workflows/inner.yaml").symlink_to("../../.git/hidden.yaml")
    job.inputs["workflows"] = ".loom/workflows/*\n.git/*\n../*"
    ended = job.run()
    assert ended.returncode == 1
    assert list(job.folder.rglob("sprung")) == []
    ((_, body),) = job.comments
    assert "hidden-word" not in body + ended.stdout
    plain = outside_fences(body)
    for word in ("loud", "set-env", "@team", "<b>"):
        assert word not in plain, plain
    assert plain.count("<details>") == plain.count("</details>") == 4
    assert "| `.loom/workflows/-h.yaml` | ok | ok |" in body
    begin, *inner, end = ended.stdout.splitlines()
    assert begin == f"::stop-commands::{end.strip(':')}"
    assert len(end) == 36
    assert len(inner) > 10


@pytest.mark.slow
def test_a_name_that_is_no_text_is_shown_all_the_same(job: Job) -> None:
    name = os.fsencode(str(job.shop / ".loom/workflows")) + b"/b\xff.yaml"
    Path(os.fsdecode(name)).write_text("id: b\nextends: core\n")
    ended = job.run()
    assert "Traceback" not in ended.stderr
    assert "udcff" in (job.summary or job.comments[-1][-1])


def test_a_changed_log_fails_the_job(job: Job, home: Path) -> None:
    git(job.shop, "init", "--quiet")
    environ = {**os.environ, "HOME": str(home), "LOOM_PYTHON": PYTHON}
    command = [str(CHECKOUT / "bin/loomctl"), "run", "add a word", "--workflow", "core", "--json"]
    subprocess.run(command, cwd=job.shop, env=environ, check=True, capture_output=True)
    assert job.run().returncode == 0
    (log,) = job.shop.glob(".loom/runs/*/events.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0].replace("core", "cure"), *lines[1:]]))
    assert job.run().returncode == 1
    ((_, body),) = job.comments
    assert "Logs of the runs in this repository: **failed**" in body


@pytest.mark.slow
def test_outcomes_and_patterns_are_the_teams(job: Job) -> None:
    job.write("good.yaml", GOOD)
    job.write("part.yaml", "id: part\ndescription: no steps of its own\n")
    (job.shop / "played").mkdir()
    (job.shop / "played/good.yaml").write_text("build/implement: [{outcome: failed}]\n")
    job.inputs |= {"workflows": ".loom/**/*.yaml\n\n!.loom/workflows/part.yaml\n", "outcomes": "played"}
    assert job.run().returncode == 1
    ((_, body),) = job.comments
    assert "| `.loom/workflows/good.yaml` | ok | **failed** |" in body
    assert "part.yaml" not in body
    (job.shop / "played").rename(job.folder / "elsewhere")
    (job.shop / "played").symlink_to(job.folder / "elsewhere")
    assert job.run().returncode == 0  # what a link leads to is not the team's


@pytest.mark.slow
def test_loom_itself_gets_no_token(job: Job, tmp_path: Path) -> None:
    root = tmp_path / "action"
    (root / "bin").mkdir(parents=True)
    (root / "tools").mkdir()
    shutil.copy(CHECKOUT / "tools/action.py", root / "tools")
    (root / "bin/loomctl").write_text("#!/bin/sh\nenv\n")
    (root / "bin/loomctl").chmod(0o755)
    job.write("good.yaml", GOOD)
    ended = job.run(root)
    assert ended.returncode == 0, ended.stderr
    assert "NO_COLOR=1" in ended.stdout
    assert SECRET not in ended.stdout + job.comments[0][1]


def test_a_comment_is_never_larger_than_the_forge_takes() -> None:
    well = action.Said("x" * 3000, well=True)
    findings = [action.Finding(f"{number}.yaml", well, well, "y" * 3000) for number in range(40)]
    text = action.markdown(findings, None)
    assert len(text) < 65_536
    assert "`39.yaml` | ok" in text
    assert re.search(r"^\d+ more did not fit", text, re.MULTILINE)
    assert text.count("<details>") == text.count("</details>") > 5


def test_an_action_has_no_expression_in_its_shell() -> None:
    (step,) = ACTION["runs"]["steps"]
    assert "${{" not in step["run"]
    assert all(one["description"] for one in ACTION["inputs"].values())
