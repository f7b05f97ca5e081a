"""What an earlier driver left: found by the run, the store and the word in its environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from loomctl.drive import process
from loomctl.runs.store.write_rules import STARTED_FOR


def test_a_run_of_the_same_id_in_another_project_is_left_alone(tmp_path: Path) -> None:
    """Ids are made of names and seconds: two clones have the same at times."""
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    before, now = process.new_word(here), process.new_word(here)
    words = {"before": before, "now": now, "elsewhere": process.new_word(there)}
    run_id = f"shop-work-{os.getpid()}"
    children = {
        name: subprocess.Popen(["sleep", "60"], env={**os.environ, STARTED_FOR: f"{run_id} {word}"})
        for name, word in words.items()
    }
    try:
        found = [one.pid for one in process.left_over(run_id, now)]
        assert found == [children["before"].pid]
    finally:
        for child in children.values():
            child.kill()
            child.wait()
