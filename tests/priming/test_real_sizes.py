"""What comes back after a compaction when files have the size that real ones have (D19, D20)."""

from __future__ import annotations

import json
import re

import pytest

from loomctl.kit.text.fences import utf16_units
from tests.helpers.scenes import Scene

LAST = "The last sentence of the specification."


def to_build(scene: Scene, workflow: str, *, spec: str) -> None:
    """Take a run of a bundled workflow to its build phase, with a work item and a specification registered."""
    started = json.loads(scene.loomctl("run", "add dark mode to the shop", "--workflow", workflow, "--json").stdout)
    work = f"{started['run_dir']}/work.md"
    registered = {"frame/fetch-work": f"work_path={work}", "architect/spec": "spec_path=specs/dark-mode.md"}
    scene.write(work, "# Dark mode\n\n" + "A visitor asked for it, and this is how it should look.\n" * 9)
    scene.write("specs/dark-mode.md", spec)
    step = started["step"]["id"]
    while not step.startswith("build/"):
        options = ["--artifact", registered[step]] if step in registered else []
        ended = scene.loomctl("done", "--note", "written down and agreed", "--json", *options, given="It is done.")
        step = ended.json["next"]["id"]


def spec_of(size: int) -> str:
    """Make a specification of about so many bytes, with headings."""
    text, number = "# Dark mode\n\n## Tasks\n\n- [ ] Paint the header\n\n## Goal\n\n", 0
    while len(text) < size - len(LAST):
        number += 1
        text += f"\n## Part {number // 12}\n\n" if number % 12 == 0 else ""
        text += f"Decision {number}: element {number} keeps a contrast ratio of at least 7:1.\n"
    return text + LAST + "\n"


@pytest.mark.parametrize("workflow", ["core", "default"])
@pytest.mark.parametrize("size", [3000, 12_000, 30_000])
def test_a_spec_of_a_usual_size_is_back_in_full_after_a_compaction(scene: Scene, workflow: str, size: int) -> None:
    """State, protocol, work item and specification all fit a session start's parts while a step is worked on (D62)."""
    spec = spec_of(size)
    to_build(scene, workflow, spec=spec)
    answer = scene.hook("session-start", source="compact")
    assert [line for line in spec.splitlines() if line not in answer.context.splitlines()] == []
    assert "The step build/implement" in answer.parts[0]
    assert "A visitor asked for it" in answer.context
    assert all(utf16_units(part) <= 9500 for part in answer.parts)
    assert len(answer.parts) == 1 + size // 9500
    assert "not in full" not in answer.message


def test_of_a_larger_spec_most_is_back_and_the_rest_is_named(scene: Scene) -> None:
    spec = spec_of(60_000)
    to_build(scene, "default", spec=spec)
    answer = scene.hook("session-start", source="compact")
    lines = spec.splitlines()
    given = re.search(r"specification: lines 1 to (\d+) of (\d+) are given here; for the rest read", answer.context)
    assert given is not None
    assert int(given[2]) == len(lines)
    shown = answer.context.splitlines()
    assert [line for line in lines[: int(given[1])] if line not in shown] == []
    assert lines[int(given[1])] not in shown
    asked = f"Before you go on, read specs/dark-mode.md from line {int(given[1]) + 1}: specification did not fit here"
    assert asked in answer.parts[0]
    assert sum(map(utf16_units, answer.parts)) > 36_000
    assert "A visitor asked for it" in answer.context


def test_one_output_alone_gets_what_fits_into_one(scene: Scene) -> None:
    to_build(scene, "core", spec=spec_of(12_000))
    (scene.store / "local" / "parts").rmdir()
    answer = scene.hook("session-start", source="compact")
    assert utf16_units(answer.context) <= 9500
    assert "Before you go on, read specs/dark-mode.md from line " in answer.context
