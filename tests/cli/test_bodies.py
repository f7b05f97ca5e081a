"""How many words Loom puts beside a step's prompt and the artifacts' content (D63)."""

import re
from pathlib import Path

import pytest

from tests.helpers.scenes import CHECKOUT, Scene

ROOT = CHECKOUT
FENCE = re.compile(r"^(`{3,})[a-z]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
PROTOCOL = "docs/workflow-orchestration-protocol.md"


def beside(text: str, scene: Scene) -> int:
    """Count the words of a text but for the prompt of the step and what stands in fences."""
    state = scene.state
    (entry,) = [one for one in state["steps"] if one["status"] == "in_progress"]
    prompt = (scene.run_dir / "stages" / entry["stage"] / "prompt.md").read_text(encoding="utf-8")
    said = FENCE.sub("", text)
    for paragraph in prompt.split("\n\n"):
        said = said.replace(paragraph.replace("## Step ", "The step "), "")
    return len(said.split())


def body(name: str, printed: str) -> str:
    text = (ROOT / "commands" / f"{name}.md").read_text(encoding="utf-8")
    return re.sub(r"```!\n.*?```", lambda _: printed, text.split("---", 2)[2], flags=re.DOTALL)


def test_the_protocol_is_short() -> None:
    assert len((ROOT / PROTOCOL).read_text(encoding="utf-8").split()) <= 150


@pytest.mark.parametrize("workflow", ["core", "default"])
def test_a_run_begins_with_few_words(scene: Scene, workflow: str) -> None:
    """The body of /loom:run, then `next`, with the plan and the protocol: 1,660 words once."""
    given = f'"add dark mode" --workflow {workflow}\n--end-of-arguments--\n'
    begun = scene.loomctl("run", "--arguments-from-stdin", given=given)
    following = scene.loomctl("next").stdout
    protocol = (ROOT / PROTOCOL).read_text(encoding="utf-8")
    assert protocol.rstrip("\n") in following
    frame = beside(following, scene)
    assert frame <= 150
    whole = len(body("run", begun.stdout).split()) + frame + len(protocol.split())
    plan = next(one for one in FENCE.finditer(following) if "frame/fetch-work" in one[0])
    assert whole + len(plan[0].split()) <= 600


@pytest.mark.slow
@pytest.mark.parametrize("workflow", ["core", "default"])
def test_a_step_ends_with_few_words(scene: Scene, workflow: str) -> None:
    scene.loomctl("run", "add dark mode", "--workflow", workflow)
    scene.loomctl("next")
    notes = Path(scene.write("work.md", "# Work\n\n## Tasks\n\n- [ ] Do it\n- [ ] Do more\n"))
    for _ in range(3):
        name = "spec_path" if scene.state["current_step"] == "architect/spec" else "work_path"
        ended = scene.loomctl("done", f"--artifact={name}={notes}", given="It is fetched.\n").ends()
        assert beside(ended.stdout, scene) <= 150
