"""`loomctl tidy`: a list with sizes, then the deed; the settings are read from config.yaml (D56)."""

from __future__ import annotations

import os
import time

import pytest

from tests.cli.conftest import Cli
from tests.helpers.scenes import SESSION, Scene, fingerprint


@pytest.fixture
def over(scene: Scene) -> Scene:
    """A completed run with an old output and a leftover."""
    scene.workflow()
    scene.begin()
    scene.edit(status="completed")
    scene.space().local.mark_ended(SESSION)
    old = time.time() - 40 * 86400
    (scene.run_dir / "outputs").mkdir()
    for path, size in (
        (scene.run_dir / "outputs" / "toolu.txt", 1234),
        (scene.run_dir / "plan.json.1.0a1b2c3d.tmp", 10),
    ):
        path.write_bytes(b"x" * size)
        os.utime(path, (old, old))
    return scene


def test_a_dry_run_lists_and_leaves(over: Scene, cli: Cli) -> None:
    """What would go, with sizes and reasons; nothing is written."""
    cli("paths")  # compiles the settings
    before = fingerprint(over.store)
    ended = cli("tidy", "--dry-run")
    assert ended.code == 0
    assert "leftover" in ended.stdout
    assert "Loom: 1 would go, 10 bytes; nothing was removed" in ended.stdout
    assert "outputs of runs that are over: 1,234 bytes stay (retention.outputs_days)" in ended.stdout
    assert fingerprint(over.store) == before


def test_tidying_removes_what_was_listed(over: Scene, cli: Cli) -> None:
    """And says so; a second time nothing is left to do."""
    assert "Loom: 1 removed, 10 bytes" in cli("tidy").stdout
    assert not (over.run_dir / "plan.json.1.0a1b2c3d.tmp").exists()
    assert (over.run_dir / "outputs" / "toolu.txt").exists()
    assert "Loom: nothing is to be removed" in cli("tidy").stdout


def test_the_settings_say_how_long_outputs_stay(over: Scene, cli: Cli) -> None:
    """`retention.outputs_days` of the project's config.yaml."""
    (over.store / "config.yaml").write_text("retention:\n  outputs_days: 60\n")
    assert cli("tidy", "--dry-run", "--json").json["bytes"] == 10
    (over.store / "config.yaml").write_text("retention:\n  outputs_days: 30\n")
    document = cli("tidy", "--json").json
    assert {item["kind"] for item in document["items"]} == {"outputs", "leftover"}
    assert (document["bytes"], document["failed"], document["outputs_kept_bytes"]) == (1244, [], 0)
    assert not (over.run_dir / "outputs" / "toolu.txt").exists()


def test_what_could_not_be_removed_is_exit_1(over: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding, named with its reason."""

    def refuse(path: str) -> bool:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("loomctl.runs.store.leftovers.discard", refuse)
    ended = cli("tidy")
    assert ended.code == 1
    assert f"not removed: {over.run_dir}/plan.json.1.0a1b2c3d.tmp: Permission denied" in ended.stdout
    assert "nothing was removed" in ended.stdout
