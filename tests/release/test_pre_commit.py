"""The pre-commit hook, installed and run by pre-commit itself."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.helpers.repositories import git, make


@pytest.mark.slow
def test_the_hook_checks_the_workflows_that_a_commit_changes(tools: Path, copy: Path, tmp_path: Path) -> None:
    shop = make(tmp_path / "shop")
    (shop / ".loom/workflows").mkdir(parents=True)
    (shop / ".loom/workflows/old.yaml").write_text("id: old\nextends: nowhere\n")
    git(shop, "add", ".")
    git(shop, "commit", "--quiet", "--message", "old")

    (shop / ".pre-commit-config.yaml").write_text(
        f"repos: [{{repo: {copy.as_uri()}, rev: {git(copy, 'rev-parse', 'HEAD')}, hooks: [{{id: loomctl-check}}]}}]\n"
    )

    def tried() -> subprocess.CompletedProcess[str]:
        git(shop, "add", ".")
        environ = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "kept"), "PRE_COMMIT_COLOR": "never"}
        command = [str(tools / "pre-commit"), "run", "--verbose"]
        return subprocess.run(command, cwd=shop, env=environ, capture_output=True, text=True, check=False)

    (shop / ".loom/workflows/good.yaml").write_text("id: good\nextends: core\n")
    (shop / "other.yaml").write_text("id: other\nextends: nowhere\n")
    ended = tried()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ".loom/workflows/good.yaml: ok" in ended.stdout
    assert "old" not in ended.stdout
    assert "other" not in ended.stdout
    (shop / ".loom/workflows/wrong.yaml").write_text(
        "id: wrong\nextends: core\nautonomy: {require_approval_for: [relaese]}\n"
    )
    ended = tried()
    assert ended.returncode == 1
    assert "did you mean release?" in ended.stdout
