"""A run that is killed at every verb and taken up again goes the way that it would have gone, whatever its plan (D45).

LOOM_TEST_KILLED_WAYS says how many plans are drawn, 12 otherwise; each is gone through twice. With 100 or more the one
plan that is written here is killed at every write, otherwise at one in five.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from loomctl.engine import simulating
from loomctl.model import places, scripts
from loomctl.model.problems import errors
from tests.engine.test_simulating import JUDGE, OUTCOMES, accepted, workflows
from tests.faults.bench import Answer, Bench
from tests.faults.stand import Stand, essence, litter, sound, strikes
from tests.scenes import OTHER, SESSION, Json, Scene

EXAMPLES = int(os.environ.get("LOOM_TEST_KILLED_WAYS") or 12)
STRIDE = 1 if EXAMPLES >= 100 else 5
LONGEST = 9  # visits of a run that is driven
SILENT = "It is done."
DAY = 86_400  # seconds; tidy leaves alone what is new
OVER = ("completed", "failed")


class Verb(NamedTuple):
    """A command that was given, and its writes where they were counted."""

    words: tuple[str, ...]
    calls: list[str]


def says(script: Json, key: str, visit: int) -> str:
    """Give the response of a visit; the last that is scripted holds for all that follow."""
    said = script.get(key)
    chosen = said[min(visit, len(said)) - 1] if said else {}
    return json.dumps(chosen) if chosen else SILENT


class Driver:
    """Drives a run as an assistant and its user do: end the step, ask for the next one, approve."""

    def __init__(self, stand: Stand, script: Json, session: str = SESSION) -> None:
        self.stand, self.script, self.session = stand, script, session
        self.asked = True
        texts = [json.dumps(one) for said in script.values() for one in said]
        self.responses = (SILENT, *texts)

    @property
    def state(self) -> Json:
        """The run's state as it is now."""
        return self.stand.scene.state

    def verb(self) -> tuple[tuple[str, ...], str | None]:
        """Say what is done now, and what is given to it; nothing where the run is over."""
        state = self.state
        if state["status"] in OVER:
            return (), None
        if state["status"] == "awaiting_feedback":
            return ("approve",), None
        entry = state["steps"][-1]
        if not self.asked or entry["status"] != "in_progress":
            return ("next",), None
        return ("done",), says(self.script, entry["step_id"], entry["visit"])

    def do(self, **how: Any) -> tuple[tuple[str, ...], Answer] | None:
        """Do it; None where the run is over."""
        words, given = self.verb()
        if not words:
            return None
        self.asked = words == ("next",)
        return words, self.stand.cli(*words, given=given, session=self.session, **how)

    def to_the_end(self) -> list[Verb]:
        """Go on until the run is over; gives what was done."""
        found: list[Verb] = []
        while (did := self.do(count=True)) is not None:
            words, answer = did
            assert answer.code == 0, did
            found.append(Verb(words, answer.calls))
            sound(self.stand.scene, self.responses)
        return found


def told(state: Json) -> Json:
    """Give what a state says of its way and its context, times aside."""
    return {**essence(state), "context": state["context"]}


def files(scene: Scene) -> dict[str, Json]:
    """Give what each stage's status says of its way."""
    found: dict[str, Json] = {}
    for path in sorted(scene.run_dir.glob("stages/*/status.json")):
        status = json.loads(path.read_bytes())
        way = {**(status.get("next") or {}), "not_before": None}
        kept = ("outcome", "context_updates", "preferred_next_label", "suggested_next_ids", "attempt")
        found[path.parent.name] = {**{key: status.get(key) for key in kept}, "next": way}
    return found


def prompts(scene: Scene) -> list[str]:
    """Name the stages that have their prompt."""
    return sorted(path.parent.name for path in scene.run_dir.glob("stages/*/prompt.md"))


def taken_up(driver: Driver) -> None:
    """Go on after a kill as people do: ask for the next step in that session, or take the run up in another."""
    if driver.state["status"] in OVER:
        return
    words = ("next",) if driver.session == SESSION else ("resume", driver.stand.scene.run_dir.name)
    answer = driver.stand.cli(*words, session=driver.session)
    assert answer.code == 0, answer
    driver.asked = True


def begun(folder: Path, forks: Bench, home: Path, raw: Json) -> Stand:
    """Start a run of a workflow in a project of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    scene = Scene(folder)
    scene.write(".loom/workflows/any.json", json.dumps(raw))
    scene.begin(workflow="any")
    return Stand(scene, forks, home)


def scripted(raw: Json, script: Json) -> simulating.Played | None:
    """Play a workflow without a disk; None where it is refused."""
    plan = accepted(raw)
    if plan is None:
        return None
    read, found = scripts.read(script, plan)
    assert not errors(found)
    return simulating.play(plan, read, judge=JUDGE, goal="add dark mode")


def killed_throughout(driver: Driver, undisturbed: list[Verb], where: list[int]) -> int:
    """Drive a run anew and kill each of its verbs once, at a place that `where` draws; gives how many were killed.

    The writes of a verb are taken from the undisturbed run; one that has fewer of them now passes unharmed.
    """
    killed = 0
    for verb, place in zip(undisturbed, itertools.cycle(where), strict=False):
        while driver.verb()[0] not in (verb.words, ()):
            did = driver.do()
            assert did is not None
            assert did[1].code == 0, did
        every = list(strikes(verb.calls))
        fault = every[place % len(every)]
        did = driver.do(fault=fault)
        if did is None:
            break
        assert did[1].signal == signal.SIGKILL or did[1].code == 0, (fault, did)
        killed += did[1].signal == signal.SIGKILL
        sound(driver.stand.scene, driver.responses)
        taken_up(driver)
        sound(driver.stand.scene, driver.responses)
    return killed


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    raw=workflows().filter(accepted),
    data=st.data(),
    where=st.lists(st.integers(0, 200), min_size=3, max_size=7),
    session=st.sampled_from([SESSION, OTHER]),
)
def test_a_run_that_is_killed_at_each_verb_goes_the_same_way(
    tmp_path: Path,
    forks: Bench,
    user_folders: Path,
    raw: Json,
    data: st.DataObject,
    where: list[int],
    session: str,
) -> None:
    """The same visits with the same outcomes and ways, the same context, status and stages as without a kill; and all
    of it is what `simulate` says of the same script.
    """
    plan = accepted(raw)
    assert plan is not None
    script = {
        place.key: data.draw(st.lists(OUTCOMES, min_size=1, max_size=3), label=place.key)
        for place in places.places(plan)
        if not place.step.get("engine")
    }
    played = scripted(raw, script)
    assert played is not None
    assume(1 < len(played.stages) <= LONGEST)
    stand = begun(tmp_path / "shop", forks, user_folders, raw)
    driver = Driver(stand, script)
    undisturbed = driver.to_the_end()
    goal, stages, opened = told(driver.state), files(stand.scene), prompts(stand.scene)
    as_simulated(driver.state, played)
    stand.put_back()
    driver = Driver(stand, script, session)
    taken_up(driver)
    assert killed_throughout(driver, undisturbed, where) > 0
    while (did := driver.do()) is not None:
        assert did[1].code == 0, did
    assert told(driver.state) == goal
    assert files(stand.scene) == stages
    assert prompts(stand.scene) == opened
    assert stand.cli("tidy", session=session, clock=DAY).code == 0
    assert litter(stand.scene) == []


def as_simulated(state: Json, played: simulating.Played) -> None:
    """Hold that a run went the way that its simulation goes."""
    keys = ("step_id", "visit", "outcome", "to", "reason")
    went = [
        (one["step_id"], one["visit"], one["status"], one["next"].get("step_id"), one["next"]["reason"])
        for one in state["steps"]
    ]
    simulated = [
        (one["step_id"], one["visit"], one["outcome"], one["next"].get("step_id"), one["next"]["reason"])
        for one in played.stages
    ]
    assert went == simulated, keys
    assert state["status"] == played.state["status"]
    own = {key: value for key, value in played.state["context"].items() if key in ("score", "flag")}
    assert {key: value for key, value in state["context"].items() if key in ("score", "flag")} == own


LOOP: Json = {
    "id": "any",
    "retry_target": "build/make",
    "phases": {
        "build": {
            "steps": [
                {"id": "make", "prompt": "Make it.", "max_retries": 1},
                {
                    "id": "review",
                    "prompt": "Review it.",
                    "output_schema": "routing",
                    "max_visits": 4,
                    "transitions": [
                        {"to": "fix", "label": "[F] Fix", "fidelity": "summary:low"},
                        {"to": "ship/tag", "label": "[A] Approve"},
                    ],
                },
                {
                    "id": "fix",
                    "prompt": "Mend it.",
                    "transitions": [
                        {"to": "review", "condition": "context.score >= 50"},
                        {"to": "make", "weight": 1},
                        {"to": "review", "on_failure": True},
                    ],
                },
            ]
        },
        "ship": {"require_approval": True, "steps": [{"id": "tag", "prompt": "Tag it."}]},
    },
}
LOOP_SCRIPT: Json = {
    "build/make": [{"outcome": "failed", "failure_reason": "HTTP 503"}, {"outcome": "succeeded"}],
    "build/review": [
        {"preferred_next_label": "fix", "context_updates": {"finding": "a"}},
        {"preferred_next_label": "fix"},
        {"preferred_next_label": "approve", "context_updates": {"finding": None, "report": "r" * 3000}},
    ],
    "build/fix": [{"outcome": "failed", "failure_reason": "it broke"}, {"context_updates": {"score": 72}}],
    "ship/tag": [{"outcome": "partially_succeeded"}],
}
LOOP_WAY = ["make", "make", "review", "fix", "review", "fix", "review", "tag"]


def test_each_verb_of_a_loop_is_killed_and_leads_where_it_would_have_led(
    tmp_path: Path, forks: Bench, user_folders: Path
) -> None:
    """Through a retry, labels, a condition, a failure's own way and an approval: after each kill the run stands where
    the verb without a kill leaves it, with the same visits, context and files of its stages.
    """
    stand = begun(tmp_path / "shop", forks, user_folders, LOOP)
    driver = Driver(stand, LOOP_SCRIPT)
    killed, offset = 0, itertools.cycle(range(STRIDE))
    while (verb := driver.verb())[0]:
        stand.keep()
        did = driver.do(count=True)
        assert did is not None
        goal, stages = told(driver.state), files(stand.scene)
        for fault in itertools.islice(strikes(did[1].calls), next(offset), None, STRIDE):
            stand.put_back()
            struck = stand.cli(*verb[0], given=verb[1], fault=fault)
            assert struck.signal == signal.SIGKILL, (verb, fault, struck)
            killed += 1
            taken_up(driver)
            sound(stand.scene, driver.responses)
            if told(driver.state) != goal:
                again = driver.do()
                assert again is not None
                assert again[0] == verb[0], fault
                assert again[1].code == 0, (fault, again)
            assert (told(driver.state), files(stand.scene)) == (goal, stages), (verb, fault)
            sound(stand.scene, driver.responses)
        driver.asked = verb[0] == ("next",)
    assert [one["step_id"].partition("/")[2] for one in driver.state["steps"]] == LOOP_WAY
    assert driver.state["status"] == "completed"
    played = scripted(LOOP, LOOP_SCRIPT)
    assert played is not None
    as_simulated(driver.state, played)
    assert killed > 50
