"""A run with a loop, played by scripts: what tests of taking runs back and of forking them begin with."""

import json
from typing import Any

from hypothesis import strategies as st

from loomctl.flow import advance, decide, resume
from loomctl.runs.model.state import VOLATILE
from tests.helpers.scenes import Json, Scene, artifact

LOOP: list[Json] = [
    {"id": "make"},
    {
        "id": "review",
        "max_retries": 1,
        "transitions": [{"to": "fix", "label": "fix"}, {"to": "ship/send", "label": "approve", "weight": 1}],
    },
    {"id": "fix", "transitions": [{"to": "review"}]},
]
PHASES: Json = {
    "build": {"steps": [{"prompt": "Do it.", **one} for one in LOOP]},
    "ship": {"steps": [{"id": "send", "prompt": "Send it."}]},
}
_TIMES = ("started_at", "completed_at", "requested_at", "granted_at", "created_at", "at", "not_before")


def begun(scene: Scene, phases: Json | None = None, **more: Any) -> Scene:
    scene.workflow([artifact("spec", "spec.md")], phases or PHASES, **more)
    scene.write("spec.md", "# Spec\n")
    scene.begin()
    return scene


def done(scene: Scene, response: str = "x", **more: Any) -> advance.Driven:
    return advance.done(scene.space(), scene.run_dir.name, response=response, **more)


def says(label: str = "", **updates: Any) -> str:
    said = {"outcome": "succeeded", "context_updates": updates}
    return json.dumps({**said, **({"preferred_next_label": label} if label else {})})


def worked(scene: Scene) -> Scene:
    """A run that was made, reviewed, mended, reviewed, and is to be sent."""
    begun(scene)
    done(scene, says(a=1, b="made"), artifacts={"spec_path": "{project_root}/spec.md"})
    done(scene, says("fix", a=2))
    done(scene, says(c=[3]))
    done(scene, says("approve", b="good"))
    return scene


def stages_of(state: Json) -> list[str]:
    return [entry["stage"] for entry in state["steps"]]


def essence(state: Json) -> Json:
    """Give what a state says, without times and what priming changes."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(inner) for key, inner in value.items() if key not in _TIMES}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    plain: Json = without({key: value for key, value in state.items() if key not in VOLATILE})
    return plain


def play(scene: Scene, run_id: str, script: list[Json], count: int) -> None:
    """Go on by a script until the run has so many ended visits, or is completed."""
    for _ in range(count * 3 + 3):
        space = scene.space()
        state = space.store.read_state(run_id)
        ended = sum(1 for one in state["steps"] if one["status"] not in ("in_progress", "closing"))
        if ended >= count or state["status"] == "completed":
            return
        if state["status"] == "awaiting_feedback":
            decide.approve(space, run_id)
        elif state["status"] in ("failed", "pending"):
            resume.resume(space, run_id)
        else:
            one = script[ended % len(script)]
            said = {key: value for key, value in one.items() if key != "artifact"}
            artifacts = {"spec_path": one["artifact"]} if one.get("artifact") else {}
            advance.done(space, run_id, response=json.dumps(said), artifacts=artifacts)


@st.composite
def plans(draw: st.DrawFn) -> Json:
    """Make phases of steps with transitions among them, retries, gates and handlings."""
    names = [["a0", "a1"], ["b0", "b1", "b2"]][: draw(st.integers(1, 2))]
    keys = [f"{phase}/{name}" for phase, steps in zip("pq", names, strict=False) for name in steps]
    routed = draw(st.booleans())
    phases: Json = {}
    for phase, steps in zip("pq", names, strict=False):
        made = []
        for name in steps:
            step: Json = {"id": name, "prompt": "Do."}
            if draw(st.integers(0, 3)) == 0:
                step["max_retries"] = 1
            if draw(st.integers(0, 4)) == 0:
                step["result_handling"] = {"on_failure": "prompt"}
            if draw(st.integers(0, 5)) == 0:
                step["require_approval"] = True
            if routed:
                targets = draw(st.lists(st.sampled_from(keys), max_size=2, unique=True))
                ways = [{"to": to, "label": to, "on_failure": draw(st.booleans())} for to in targets]
                step["transitions"] = [*ways, {"to": "end", "label": "out"}]
            made.append(step)
        phases[phase] = {"steps": made}
    return phases


answers = st.fixed_dictionaries(
    {
        "outcome": st.sampled_from(["succeeded", "succeeded", "succeeded", "failed", "partially_succeeded"]),
        "context_updates": st.dictionaries(st.sampled_from("xyz"), st.integers(0, 3), max_size=2),
        "preferred_next_label": st.sampled_from(["p/a0", "p/a1", "q/b0", "q/b1", "q/b2", "out"]),
    },
    optional={"artifact": st.sampled_from(["{project_root}/spec.md", "{project_root}/other.md"])},
)
