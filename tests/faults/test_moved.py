"""A project that was moved or copied is announced until it is resumed; then all is back, with its paths (D9, D23)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_NO_RUN
from tests.faults.bench import Bench
from tests.faults.stand import RESPONSE, SENTENCE, Stand, sound
from tests.helpers.scenes import OTHER, SESSION, Scene, artifact, handle

PHASES = {
    "frame": {"steps": [{"id": "ask", "prompt": "Ask, and write it to {project_root}/asked.md."}]},
    "build": {"steps": [{"id": "make", "prompt": "Make what {project_root}/asked.md says."}]},
}


@pytest.fixture
def placed(scene: Scene, forks: Bench, user_folders: Path) -> Stand:
    """A run at its second step, whose first has registered a file; the spec is named by its absolute path."""
    spec = scene.write("spec.md", f"# The spec\n\n{SENTENCE}\n")
    wanted = artifact("asked", "", path_from_state="artifacts.asked_path")
    del wanted["path"]
    scene.workflow([artifact("spec", str(spec)), wanted], PHASES)
    scene.begin()
    stand = Stand(scene, forks, user_folders)
    scene.write("asked.md", "Periwinkle was asked for.\n")
    assert stand.cli("done", "--artifact", "asked_path=asked.md", given=RESPONSE).code == 0
    return stand


def moved(stand: Stand, to: Path, how: Callable[[str, str], object]) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    how(str(stand.scene.root), str(to))
    stand.scene.root, stand.scene.store = to, to / ".loom"


def _copied(source: str, target: str) -> None:
    shutil.copytree(source, target, symlinks=True)


WAYS: dict[str, Callable[[str, str], object]] = {"moved": os.rename, "copied": _copied}


@pytest.mark.parametrize("way", WAYS)
def test_a_project_elsewhere_is_announced_until_it_is_resumed(placed: Stand, way: str, tmp_path: Path) -> None:
    """Neither the session that drove it nor a new one is given a word of its files or may drive it; after resume the
    same session goes on at its step, and its files are found where they are now.
    """
    before = placed.scene.root
    run_id = placed.scene.run_dir.name
    moved(placed, tmp_path / "elsewhere" / "a shöp", WAYS[way])
    state = placed.scene.state
    for session in (SESSION, OTHER):
        answer = placed.hook("session-start", session=session, told={"source": "resume"})
        assert SENTENCE not in answer.stdout
        assert f"/loom:resume {handle(run_id)}" in answer.message
        for words in (("next",), ("done",), ("next", run_id)):
            refused = placed.cli(*words, session=session)
            assert refused.code == EXIT_NO_RUN, refused
            assert refused.error["hint"] == f"loomctl resume {handle(run_id)}"
    assert placed.hook("stop", told={"last_assistant_message": "x"}).stdout == ""
    assert placed.scene.state == state
    resumed = placed.cli("resume")
    assert resumed.code == 0, resumed
    assert any("another path" in line for line in resumed.json["differences"])
    text = resumed.json["slip"]["text"]
    assert SENTENCE in text
    assert "Periwinkle" in text
    here = str(placed.scene.root)
    assert f"{here}/asked.md" in resumed.json["step"]["prompt"]
    stage = placed.scene.state["steps"][-1]["stage"]
    prompt = (placed.scene.run_dir / "stages" / stage / "prompt.md").read_text(encoding="utf-8")
    assert f"{here}/asked.md" in prompt
    assert str(before) not in prompt
    primed = placed.hook("session-start", told={"source": "compact"})
    assert SENTENCE in primed.context
    assert str(before) not in primed.context
    assert placed.cli("done", given=RESPONSE).json["status"] == "completed"
    sound(placed.scene)


def test_the_place_that_was_left_still_knows_its_own(placed: Stand, tmp_path: Path) -> None:
    """A project that is moved away and back again is known where it was; the binding of the other place is not its
    own, and resume makes one.
    """
    home, away = placed.scene.root, tmp_path / "away"
    moved(placed, away, os.rename)
    assert placed.cli("resume").code == 0
    moved(placed, home, os.rename)
    assert SENTENCE in placed.hook("session-start", told={"source": "resume"}).context
    assert placed.cli("next").code == EXIT_NO_RUN
    assert placed.cli("resume").code == 0
    assert placed.cli("next").code == 0


def test_a_copy_and_its_original_go_their_own_ways(placed: Stand, tmp_path: Path) -> None:
    first = placed.scene.root
    before = placed.scene.state
    moved(placed, tmp_path / "copy", _copied)
    assert placed.cli("resume", session=OTHER).code == 0
    assert placed.cli("done", session=OTHER, given=RESPONSE).json["status"] == "completed"
    placed.scene.root, placed.scene.store = first, first / ".loom"
    assert placed.scene.state == before
    assert placed.cli("done", given=RESPONSE).json["status"] == "completed"


def test_what_this_place_compiled_is_no_word_of_the_other(placed: Stand, tmp_path: Path) -> None:
    """Settings that were compiled at the other path are compiled anew from the file that is here."""
    placed.scene.write(".loom/config.yaml", "hook_budget: 4000\n")
    assert placed.work("settings", str(placed.scene.store)).stdout == "4000\n"
    moved(placed, tmp_path / "there", os.rename)
    placed.scene.write(".loom/config.yaml", "hook_budget: 5000\n")
    assert placed.work("settings", str(placed.scene.store)).stdout == "5000\n"
    compiled = json.loads((placed.scene.store / "local" / "config.json").read_bytes())
    assert compiled["source"]["path"] == str(placed.scene.store / "config.yaml")
