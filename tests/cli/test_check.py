"""`loomctl check` without a workflow's name, and of settings."""

from pathlib import Path

from loomctl.kit.errors import EXIT_INVALID, EXIT_OK
from loomctl.runs import config
from tests.cli.conftest import Cli
from tests.helpers.scenes import Scene
from tests.helpers.texts import holds

SLIP = "'hook_budgt' is not a setting; did you mean hook_budget?"


def test_check_names_what_is_no_setting(scene: Scene, cli: Cli) -> None:
    """Of the project's settings and of the user's; by itself, and of the file that is named."""
    scene.workflow()
    path = scene.write(".loom/config.yaml", "hook_budgt: 9500\n")
    own = Path(config.user_config())
    own.parent.mkdir(parents=True)
    own.write_text("commit_runs: true\n")
    told_off = "'commit_runs' is allowed in a project's config.yaml only"
    ended = cli("check").ends(EXIT_OK)
    holds(ended.stdout, "tiny.json: ok", f"{path}: warning: UNKNOWN_SETTING at $: {SLIP}\n", told_off)
    told = {one["target"]: one["problems"] for one in cli("check", "--json").json["files"]}
    problem = {"severity": "warning", "code": "UNKNOWN_SETTING", "where": "$", "message": SLIP, "hint": ""}
    assert told[str(path)] == [problem]
    assert cli("check", ".loom/config.yaml").ends(EXIT_OK).stdout.count(SLIP) == 1
    path.write_text("hook_budget: 9500\n")
    assert cli("check", str(path)).stdout == f"{path}: ok\n"
    path.write_text("hook_budget: many\n")
    assert "BAD_CONFIG" in cli("check").ends(EXIT_INVALID).stderr
