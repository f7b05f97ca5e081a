"""`loomctl demo`: the main job before the user's eyes, and nothing of the user's touched."""

import os
import shutil
from pathlib import Path

import pytest

from tests.helpers.scenes import Scene, fingerprint


@pytest.mark.slow
def test_the_demo_shows_that_the_run_survives(scene: Scene) -> None:
    home = Path(os.environ["HOME"])
    before = (fingerprint(scene.root), fingerprint(home))
    ended = scene.loomctl("demo", "--keep", session=None).ends()
    for words in (
        "It simulates",
        "LOOM_HOSTNAME",
        "loaded at session_start",
        "/loom:resume",
        "back in context",
        "2 sessions (machine-a, machine-b)",
        "compactions: 1",
        "Loom wrote",
        "Everything that mattered survived.",
    ):
        assert words in ended.stdout, words
    folder = ended.stdout.rpartition("The folder is ")[2].strip()
    try:
        assert (Path(folder) / "desktop" / "work" / "shop" / ".loom" / "runs").is_dir()
        assert (Path(folder) / "laptop" / "shop" / "specs" / "dark-mode.md").is_file()
    finally:
        assert "loom-demo-" in folder
        shutil.rmtree(folder)
    assert (fingerprint(scene.root), fingerprint(home)) == before


@pytest.mark.slow
def test_the_demo_is_one_document_for_scripts(scene: Scene) -> None:
    ended = scene.loomctl("demo", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.json["survived"] is True
    assert ended.json["sessions"] == "2 sessions (machine-a, machine-b)"
    assert ended.json["folder"] is None
    assert not scene.store.exists()


def test_the_demo_needs_git(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(scene.root))
    assert "NO_GIT" in scene.loomctl("demo").ends(8).stderr
