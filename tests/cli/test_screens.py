"""Each list for people fits a screen of 60 and of 80 columns, whatever stands in it."""

import json
import os

import pytest

from loomctl.flow import advance
from loomctl.kit.text import fences
from tests.cli.conftest import Cli
from tests.cli.test_steps import record
from tests.helpers.scenes import Scene, artifact
from tests.helpers.tables import each

GOAL = "ダークモードを設定画面に追加する 🎉 and keep the old colours for people who like them"
DEEP = "src/components/settings/appearance/" + "深い" * 20 + "/toggle.test.tsx"
STEPS = [
    {"id": "implement-the-whole-of-the-settings-page", "prompt": "実装する。"},
    {"id": "look-at-it-again", "prompt": "Look."},
]
LISTS = {
    "runs": "runs",
    "run": "show",
    "stages": "show --stages",
    "changes": "show --diff --stat",
    "assets": "show --assets",
    "way": "show --why",
    "artifact": "show --why specification",
    "status": "status",
    "sessions": "sessions",
    "events": "events",
    "steps": "steps --agents",
    "savings": "steps --savings",
    "context": "context list --all",
    "history": "context history --all",
    "clean": "clean --dry-run",
    "doctor": "doctor",
    "simulate": "simulate long",
}
PASTED = ("folder ", "artifact ", "hint: ", "Loom: ", "001-build-and-polish.")
"""How lines begin that stay in one piece, for they are pasted; and so do lines with a command."""


@pytest.fixture
def long(scene: Scene) -> Scene:
    spec = artifact("specification", DEEP)
    scene.workflow([spec], {"build-and-polish": {"enabled": True, "steps": STEPS}}, name="long")
    scene.write(DEEP, "# 仕様\n")
    scene.begin(GOAL, workflow="long")
    told = {"outcome": "succeeded", "context_updates": {"coverage_of_the_settings_page": "数" * 200}}
    advance.done(scene.space(), scene.run_dir.name, response=f"できた。 {json.dumps(told)}")
    record(scene, "Bash", {"command": f"pytest {DEEP}"}, {"stdout": "ok\n" * 99}, "toolu_01AbCdEfGhIjKlMnOpQrSt")
    record(scene, "mcp__data_base__query_everything", {"sql": "選ぶ" * 40}, "row\n" * 9000, "toolu_02" + "z" * 22)
    record(scene, "Grep", {"pattern": "x"}, None, "toolu_03" + "z" * 22, error="no", agent_id="agent-1")
    stale = scene.store / "local" / "sessions" / f"{'s' * 60}.json.tmp"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.write_text("{")
    os.utime(stale, (1e9, 1e9))
    (scene.store / "runs" / "broken-run-2026-01-01T00-00-00Z").mkdir()
    (scene.store / "runs" / "broken-run-2026-01-01T00-00-00Z" / "state.json").write_text("{")
    return scene


@pytest.mark.usefixtures("long")
@each("wide", [60, 80])
@each("name", list(LISTS))
def test_a_list_is_no_wider_than_the_screen(cli: Cli, name: str, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(wide))
    ended = cli(*LISTS[name].split())
    assert ended.code in (0, 1), ended.stderr
    shown = "\n\n".join(ended.stdout.split("\n\n")[: 2 if name == "run" else None])  # its prompt is the workflow's
    over = [line for line in shown.splitlines() if fences.width(line) > wide and "loomctl " not in line]
    over = [line for line in over if not line.strip().startswith(PASTED)]
    assert not [line for line in over if "/" not in line.split()[-1] or name != "doctor"], over
    assert shown


@pytest.mark.usefixtures("long")
def test_an_id_that_a_list_cut_names_its_call(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = next(line.split()[0] for line in cli("steps").stdout.splitlines() if "Bash" in line)
    assert shown == "toolu_01AbCdEfG…"
    assert cli("steps", "show", shown).stdout == "ok\n" * 99
