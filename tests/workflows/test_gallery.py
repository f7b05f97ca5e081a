"""The workflows that come with Loom: each is without fault, ends when played, and asks for something to show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from loomctl.runs.model.frozen_plan import leaves
from loomctl.workflows.resolve import resolve
from loomctl.workflows.workflow import build_plan
from loomctl.workflows.workflow_files import Places, available
from tests.helpers.scenes import CHECKOUT, Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = Places("/nowhere", "/nowhere/.loom", str(CHECKOUT))
GALLERY = ("bugfix", "core", "default", "docs", "migration", "refactor", "review", "spike", "tdd")
LONGEST = 150  # words of a prompt
OUTCOMES = {"tdd": {"build/red": [{}, {"outcome": "skipped"}]}}
"""How steps end where not every one succeeds: a list of behaviours comes to its end."""


def test_there_are_nine() -> None:
    assert available(PLACES) == list(GALLERY)


def plan_of(name: str) -> dict[str, Any]:
    resolved = resolve(name, PLACES)
    assert resolved.problems == []
    return build_plan(resolved.checked(), plan_id="p", created_at="", sources=[], test_command="pytest -q")


def steps_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for phase in plan["phases"]:
        for step in phase["steps"]:
            yield step
            for branch in step.get("parallel", {}).get("branches", ()):
                yield from branch["steps"]


@each("name", GALLERY)
def test_each_is_told_in_few_words_and_names_what_it_leaves(name: str) -> None:
    plan = plan_of(name)
    made: set[str] = set()
    for step in steps_of(plan):
        prompt = step.get("prompt") or ""
        assert len(prompt.split()) <= LONGEST, step["key"]
        listed = str(step.get("for_each", {}).get("list", "artifacts.")).partition("artifacts.")[2]
        assert not listed or listed in made, "the list is made before it is gone through"
        for artifact, path in leaves(step).items():
            assert (f"`{path}`" if path else f"{artifact}=") in prompt, "the prompt says where the file is, or what for"
            made.add(artifact)
        assert bool(step.get("for_each")) == ("{task}" in prompt)
    assert made


@each("name", GALLERY)
def test_each_comes_to_its_end_when_it_is_played(scene: Scene, name: str) -> None:
    outcomes = scene.write("outcomes.json", json.dumps(OUTCOMES.get(name, {})))
    ended = scene.loomctl("simulate", name, "--outcomes", str(outcomes), "--json")
    assert (ended.code, ended.json["status"]) == (0, "completed")


@each(("name", "section"), [("core", "Tasks"), ("refactor", "Moves"), ("migration", "Migrate"), ("docs", "Pages")])
def test_a_prompt_asks_for_the_section_that_is_gone_through(name: str, section: str) -> None:
    steps = list(steps_of(plan_of(name)))
    assert section in [step["for_each"]["section"] for step in steps if step.get("for_each")]
    assert any(f"`## {section}`" in (step.get("prompt") or "") for step in steps if step.get("produces"))


@pytest.mark.slow
@each("name", GALLERY)
def test_ok_ends_no_first_step(scene: Scene, name: str) -> None:
    """It ended at the first missing file, with where it has to be; four answers of "ok" went through once."""
    scene.loomctl("run", "add dark mode", "--workflow", name).ends()
    before = scene.state["current_step"]
    ended = scene.loomctl("done", given="ok").ends(1)
    holds(ended.stdout + ended.stderr, f"{before} is not done", "_path`: .loom/runs/", ".md: there is no such file")
    assert scene.state["current_step"] == before


@pytest.mark.slow
def test_ok_ends_no_step_of_core_however_often_it_is_said(scene: Scene) -> None:
    scene.loomctl("run", "add dark mode", "--workflow", "core").ends()
    for answer in ("done", "done", "done", "resume", "done", "done", "done", "done"):
        scene.loomctl(answer, *(() if answer == "done" else (scene.run_dir.name,)), given="ok")
    assert (scene.state["status"], scene.state["current_step"]) == ("failed", "frame/fetch-work")
    assert {visit["status"] for visit in scene.state["steps"][1:]} == {"failed"}
    holds(scene.loomctl("status").stdout, "work_path:", "/work.md: there")


@pytest.mark.slow
def test_core_goes_on_when_each_file_is_there(scene: Scene) -> None:
    """Its ends: a missing work item, a specification without a box, the tasks one by one, then the verification."""
    scene.loomctl("run", "add dark mode", "--workflow", "core").ends()
    scene.write("work.md", "# Work\n")
    scene.loomctl("done", "--artifact", "work_path=work.md", given="ok").ends()
    scene.loomctl("done", given="ok").ends(1)
    scene.write("spec.md", "# Spec\n\n## Tasks\n\n- [ ] Parse the header\n- [ ] Parse the body\n")
    first = scene.loomctl("done", "--artifact", "spec_path=spec.md", given="ok").ends()
    holds(first.stdout, "Parse the header", "task 1 of 2")
    second = scene.loomctl("done", given="ok").ends()
    holds(second.stdout, "Parse the body", "task 2 of 2")
    scene.loomctl("done", given="ok").ends()
    assert (scene.root / "spec.md").read_text().count("- [x]") == 2
    assert scene.state["current_step"] == "evaluate/verify"
