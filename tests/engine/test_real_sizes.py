"""What comes back after a compaction when files have the size that real ones have (D19, D20)."""

from __future__ import annotations

import json

import pytest

from loomctl.model.units import utf16_units
from tests.scenes import Scene

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
    text, number = "# Dark mode\n\n## Goal\n\n", 0
    while len(text) < size - len(LAST):
        number += 1
        text += f"\n## Part {number // 12}\n\n" if number % 12 == 0 else ""
        text += f"Decision {number}: element {number} keeps a contrast ratio of at least 7:1.\n"
    return text + LAST + "\n"


@pytest.mark.parametrize(
    ("workflow", "size"), [("core", 3000), ("core", 4500), ("core", 6000), ("default", 3000), ("default", 5500)]
)
def test_a_spec_of_a_usual_size_is_back_in_full_after_a_compaction(scene: Scene, workflow: str, size: int) -> None:
    """State, protocol, work item and specification all fit a hook's text while a step is worked on."""
    to_build(scene, workflow, spec=spec_of(size))
    answer = scene.hook("session-start", source="compact")
    assert LAST in answer.context
    assert utf16_units(answer.context) <= 9500


def test_of_a_larger_spec_most_is_back_and_the_rest_is_named(scene: Scene) -> None:
    """What does not fit is shown as far as there is room, with its headings and the path to read."""
    spec = spec_of(9000)
    to_build(scene, "default", spec=spec)
    context = scene.hook("session-start", source="compact").context
    assert LAST not in context
    assert "## Part 7" in context
    assert "specification: not in full" in context
    assert "read specs/dark-mode.md" in context
    shown = sum(len(line) + 1 for line in spec.splitlines() if line in context.splitlines())
    assert shown > 2500
    assert 9000 < utf16_units(context) <= 9500
