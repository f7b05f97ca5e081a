"""The pages recover, clean-up and retention say what is so: their commands run, their words are Loom's."""

import os
import re
import shlex
from pathlib import Path

import pytest

from loomctl.runs import config
from tests.cli.conftest import Cli
from tests.helpers.scenes import CHECKOUT, SESSION, Scene, artifact

RECOVER = (CHECKOUT / "docs" / "how-to" / "recover.md").read_text(encoding="utf-8")
BACK = (CHECKOUT / "docs" / "how-to" / "go-back.md").read_text(encoding="utf-8")
AWAY = (CHECKOUT / "docs" / "how-to" / "clean-up.md").read_text(encoding="utf-8")
RETENTION = (CHECKOUT / "docs" / "reference" / "retention.md").read_text(encoding="utf-8")
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "loomctl").rglob("*.py"))


@pytest.fixture
def begun(scene: Scene, cli: Cli) -> Scene:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    assert (cli("run", "258", "--workflow", "tiny").code, cli("done", given="asked").code) == (0, 0)
    assert cli("done", given="made").code == 0
    return scene


def shell_lines(text: str) -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]


def test_the_commands_do_what_the_page_says(begun: Scene, cli: Cli) -> None:
    run_id, handle = begun.run_dir.name, begun.space().store.handle(begun.run_dir.name)
    begun.space().local.mark_ended(SESSION)
    pages = (RECOVER + AWAY).replace("shop-258-run-2026-01-01T00-00-00Z", run_id).replace("258-k3f9", handle)
    lines = [
        [os.path.expanduser(word) for word in words] for words in shell_lines(pages) if words[1] in ("debug", "runs")
    ]
    torn = (begun.run_dir / "state.json").read_bytes()[:-100]
    (begun.run_dir / "state.json").write_bytes(torn)
    first, second, *others = lines
    shown = cli(*first[1:]).stdout
    printed = re.search(r"```\n(Loom: .*?)```", RECOVER, re.DOTALL)
    assert printed is not None
    labels = [line[:12] for line in printed[1].splitlines()]
    assert [line[:12] for line in shown.splitlines()] == labels
    assert cli(*first[1:-1]).code == 0
    assert (begun.run_dir / "state.broken-1.json").read_bytes() == torn
    (begun.run_dir / "state.broken-1.json").rename(begun.run_dir / "state.replaced-1.json")
    (begun.run_dir / "state.replaced-1.json").write_bytes((begun.run_dir / "state.backup.json").read_bytes())
    assert (cli("resume").code, cli("done", given="asked again").code) == (0, 0)
    begun.space().local.mark_ended(SESSION)
    assert cli(*second[1:]).code == 0
    begun.edit(status="completed")
    archive, archive_to, restore, restore_from, remove = others
    for words, there in ((archive, False), (restore, True), (archive_to, False), (restore_from, True), (remove, False)):
        cli(*words[1:]).ends()
        assert bool(begun.run_dirs) is there


def test_every_code_event_and_setting_on_the_pages_is_one(begun: Scene, cli: Cli) -> None:
    codes = set(re.findall(r"`([A-Z][A-Z_]+)`", RECOVER + BACK))
    assert {"BAD_JSON", "NO_STATE", "NO_WAY_BACK", "PLAN_LOST", "SCHEMA_TOO_NEW"} <= codes
    for code in codes:
        assert f'"{code}"' in SOURCES, code
    for event in re.findall(r"event `([a-z.]+_?[a-z]*)`", RECOVER + RETENTION):
        name = event.replace("state.migrated", "migrated")
        assert name in SOURCES, event
    assert begun.run_dir.exists()
    block = re.search(r"```yaml\n(.*?)```", RETENTION, re.DOTALL)
    assert block is not None
    path = Path(config.user_config())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block[1])
    settings = config.load(str(begun.store), with_yaml=True)
    default = config.Settings()
    assert settings.warnings == ()
    assert settings == default._replace(outputs_days=90)
    assert cli("clean", "--dry-run").code == 0
