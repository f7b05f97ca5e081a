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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from loomctl.kit.problems import errors
from loomctl.runs.model import frozen_plan, visits
from loomctl.simulate import play
from loomctl.workflows import branches, gates
from tests.faults.bench import Answer, Bench
from tests.faults.stand import Stand, essence, litter, sound, strikes
from tests.helpers.scenes import OTHER, SESSION, Json, Scene
from tests.simulate.test_play import JUDGE, OUTCOMES, accepted, workflows

EXAMPLES = int(os.environ.get("LOOM_TEST_KILLED_WAYS") or 12)
STRIDE = 1 if EXAMPLES >= 100 else 5
LONGEST = 9  # visits of a run that is driven
SILENT = "It is done."
DAY = 86_400  # seconds; clean leaves alone what is new
OVER = ("completed", "failed")


class Verb(NamedTuple):
    """A command that was given, and its writes where they were counted."""

    words: tuple[str, ...]
    calls: list[str]


class Driver:
    """Drives a run as an assistant, its subagents and its user do: ask for a step, end it, approve, decide.

    order: which of the branches that are open is gone on with, and that by what was done so far: the same in a run that
    was killed and in one that was not. [0] works on them one after the other, as they are declared.
    """

    def __init__(self, stand: Stand, script: Json, session: str = SESSION, order: Sequence[int] = (0,)) -> None:
        self.stand, self.script, self.session, self.order = stand, script, session, order
        self.asked = True
        texts = [json.dumps(one) for said in script.values() for one in said]
        self.responses = (SILENT, *texts)

    @property
    def state(self) -> Json:
        return self.stand.scene.state

    def verb(self) -> tuple[tuple[str, ...], str | None]:
        """Say what is done now, and what is given to it; nothing where the run is over."""
        state = self.state
        if state["status"] in OVER:
            return (), None
        entry = state["steps"][-1] if state["steps"] else {"status": "none"}
        if entry["status"] == "in_progress" and "branches" in entry:
            left = branches.open_records(entry)
            return self._in_branch(left[self.order[_progress(state) % len(self.order)] % len(left)])
        if state["status"] == "awaiting_feedback":
            return self._decide(state["pending_approvals"][0], entry), None
        if not self.asked or entry["status"] != "in_progress":
            return ("next",), None
        return ("done",), json.dumps(self._says(entry)) if self._says(entry) else SILENT

    def _in_branch(self, record: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
        name = str(record["id"])
        asked = [one for one in self.state["pending_approvals"] if one.get("branch") == name]
        entry = record["steps"][-1] if record["steps"] else {"status": "none"}
        if asked:
            return self._decide(asked[0], entry, "--branch", name), None
        if entry["status"] != "in_progress":
            return ("next", "--branch", name), None
        return ("done", "--branch", name), json.dumps(self._says(entry)) if self._says(entry) else SILENT

    def _decide(self, asked: Json, entry: Json, *where: str) -> tuple[str, ...]:
        """Approve a gate; decide a human step as the script says, by its label or by its failure."""
        said = self._says(entry) if asked["id"].startswith("human:") else {}
        if said.get("outcome") == "failed":
            return ("reject", *where)
        label = said.get("preferred_next_label")
        return ("choose", *where, label) if label else ("approve", *where)

    def _says(self, entry: Json) -> Json:
        """Give what a visit says; the last that is scripted holds for all that follow."""
        said = self.script.get(entry["step_id"])
        chosen: Json = said[min(entry["visit"], len(said)) - 1] if said else {}
        return chosen

    def do(self, **how: Any) -> tuple[tuple[str, ...], Answer] | None:
        words, given = self.verb()
        if not words:
            return None
        self.asked = words == ("next",)
        return words, self.stand.cli(*words, given=given, session=self.session, **how)

    def to_the_end(self) -> list[Verb]:
        found: list[Verb] = []
        while (did := self.do(count=True)) is not None:
            words, answer = did
            assert answer.code == 0, did
            found.append(Verb(words, answer.calls))
            sound(self.stand.scene, self.responses)
        return found


def _progress(state: Json) -> int:
    every = list(visits.every(state))
    approvals = [state, *(record for one in state["steps"] for record in one.get("branches", ()))]
    ended = [one for one in every if one["status"] != "in_progress"]
    decided = [one for record in approvals for key in ("approvals", "pending_approvals") for one in record.get(key, [])]
    return len(every) + len(ended) + len(decided)


def told(state: Json) -> Json:
    return {**essence(state), "context": state["context"]}


def files(scene: Scene) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for path in sorted(scene.run_dir.glob("stages/*/status.json")):
        status = json.loads(path.read_bytes())
        way = {**(status.get("next") or {}), "not_before": None}
        kept = ("outcome", "context_updates", "preferred_next_label", "suggested_next_ids", "attempt")
        label = (status.get("decided") or {}).get("label")
        joined = [{key: one.get(key) for key in ("id", "status", "set", "gone")} for one in status.get("branches", ())]
        more = {"next": way, "label": label, "branches": joined}
        found[path.parent.name] = {**{key: status.get(key) for key in kept}, **more}
    return found


def prompts(scene: Scene) -> list[str]:
    return sorted(path.parent.name for path in scene.run_dir.glob("stages/*/prompt.md"))


def taken_up(driver: Driver) -> None:
    """Go on after a kill as people do: ask for the next step in that session, or take the run up in another."""
    if driver.state["status"] in OVER:
        return
    words = ("next",) if driver.session == SESSION else ("resume", "--take-over", driver.stand.scene.run_dir.name)
    answer = driver.stand.cli(*words, session=driver.session)
    assert answer.code == 0, answer
    driver.asked = True


def begun(folder: Path, forks: Bench, home: Path, raw: Json) -> Stand:
    shutil.rmtree(folder, ignore_errors=True)
    scene = Scene(folder)
    scene.write(".loom/workflows/any.json", json.dumps(raw))
    scene.begin(workflow="any")
    return Stand(scene, forks, home)


def scripted(raw: Json, script: Json) -> play.Played | None:
    plan = accepted(raw)
    if plan is None:
        return None
    read, found = play.read(script, plan)
    assert not errors(found)
    return play.play(plan, read, judge=JUDGE, goal="add dark mode")


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


@pytest.mark.slow
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
    order=st.lists(st.integers(0, 2), min_size=1, max_size=4) | st.just([0]),
)
def test_a_run_that_is_killed_at_each_verb_goes_the_same_way(
    tmp_path: Path,
    forks: Bench,
    user_folders: Path,
    raw: Json,
    data: st.DataObject,
    where: list[int],
    session: str,
    order: list[int],
) -> None:
    """The same visits with the same outcomes and ways, the same context, status and stages as without a kill, whatever
    the order in which its branches are worked on; and where that is the declared one, all of it is what `simulate` says
    of the same script.
    """
    plan = accepted(raw)
    assert plan is not None
    script = {key: data.draw(answers(plan, key), label=key) for key in spoken_for(plan)}
    played = scripted(raw, script)
    assert played is not None
    assume(1 < len(list(visits.every(played.state))) <= LONGEST)
    stand = begun(tmp_path / "shop", forks, user_folders, raw)
    driver = Driver(stand, script, order=order)
    undisturbed = driver.to_the_end()
    goal, stages, opened = told(driver.state), files(stand.scene), prompts(stand.scene)
    if not any(order):
        as_simulated(driver.state, played)
    stand.put_back()
    driver = Driver(stand, script, session, order)
    taken_up(driver)
    assert killed_throughout(driver, undisturbed, where) > 0
    while (did := driver.do()) is not None:
        assert did[1].code == 0, did
    assert told(driver.state) == goal
    assert files(stand.scene) == stages
    assert prompts(stand.scene) == opened
    assert stand.cli("clean", session=session, clock=DAY).code == 0
    assert litter(stand.scene) == []


def spoken_for(plan: Json) -> list[str]:
    """Name the steps of a plan that somebody ends: an assistant, a subagent, a person."""
    places = frozen_plan.with_branches(plan)
    return [one.key for one in places if not one.step.get("engine") and not branches.is_parallel(one.step)]


def answers(plan: Json, key: str) -> st.SearchStrategy[list[Json]]:
    """Draw what a step says at its visits; a person rejects, or chooses what there is to choose."""
    place = frozen_plan.find(plan, key)
    assert place is not None
    one = OUTCOMES
    if frozen_plan.is_human(place.step):
        said = [{"preferred_next_label": label} for label in gates.choices(place.step)] or [{}]
        one = st.sampled_from([*said, {"outcome": "failed"}])
    return st.lists(one, min_size=1, max_size=3)


def as_simulated(state: Json, played: play.Played) -> None:
    """Hold that a run went the way that its simulation goes, and so did its branches; times aside."""
    assert _way(state["steps"]) == _way(played.state["steps"])
    assert state["status"] == played.state["status"]
    assert _own(state["context"]) == _own(played.state["context"])


def _way(steps: list[Json]) -> list[tuple[Any, ...]]:
    return [
        (
            *(one["step_id"], one["visit"], one["rank"], one["status"]),
            *((one.get("next") or {}).get(key) for key in ("step_id", "reason", "by", "label")),
            [(record["id"], record["status"], _way(record["steps"])) for record in one.get("branches", ())],
        )
        for one in steps
    ]


def _own(context: Json) -> Json:
    """Give what a script sets and what a join does, without what refers to responses."""
    kept = ("score", "flag", "finding", "last_stage", "human.gate.label", "parallel.results", "parallel.conflicts")
    return {key: value for key, value in context.items() if key in kept}


def step(name: str, *ways: Json, **more: Any) -> Json:
    return {"id": name, "prompt": "Do it.", **({"transitions": list(ways)} if ways else {}), **more}


FIX, APPROVE = {"to": "fix", "label": "[F] Fix", "fidelity": "summary:low"}, {"to": "ship/tag", "label": "[A] Approve"}
BACK: list[Json] = [{"to": "review", "condition": "context.score >= 50"}, {"to": "make", "weight": 1}]
BUILD = [
    step("make", max_retries=1),
    step("review", FIX, APPROVE, output_schema="routing", max_visits=4),
    step("fix", *BACK, {"to": "review", "on_failure": True}),
]
SHIP = {"require_approval": True, "steps": [step("tag")]}
LOOP: Json = {"id": "any", "retry_target": "build/make", "phases": {"build": {"steps": BUILD}, "ship": SHIP}}
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


YES_NO = [{"to": "end", "label": "[Y] Yes"}, {"to": "again", "label": "[N] No"}]
WEB = [step("ask", *YES_NO, kind="human"), step("again", {"to": "ask"})]
API = [step("look", max_retries=1), step("draw", require_approval=True)]
PARALLEL = {"join": "wait_all", "branches": [{"id": "api", "steps": API}, {"id": "web", "steps": WEB}]}
ONWARD = [{"to": "fan", "condition": "outcome == 'partially_succeeded'"}, {"to": "sum"}]
FAN_STEP = {"id": "fan", "parallel": PARALLEL, "transitions": ONWARD}
FAN: Json = {"id": "any", "phases": {"build": {"steps": [FAN_STEP, step("sum")]}}}
FAN_SCRIPT: Json = {
    "build/fan.api.look": [
        {"outcome": "failed", "failure_reason": "HTTP 503"},
        {"context_updates": {"score": 1, "flag": True}},
        {"context_updates": {"score": 2, "finding": "f" * 3000}},
    ],
    "build/fan.api.draw": [{"outcome": "partially_succeeded"}, {}],
    "build/fan.web.ask": [{"preferred_next_label": "[N] No"}, {"preferred_next_label": "[Y] Yes"}],
    "build/fan.web.again": [{"context_updates": {"score": 3}}],
}
WRITTEN = [(LOOP, LOOP_SCRIPT, LOOP_WAY, [0]), (FAN, FAN_SCRIPT, ["fan", "fan", "sum"], [0])]
WRITTEN.append((FAN, FAN_SCRIPT, ["fan", "fan", "sum"], [1, 0, 0]))


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize(
    ("raw", "script", "wanted", "order"), WRITTEN, ids=["a loop", "branches one by one", "branches in turn"]
)
def test_each_verb_of_a_way_is_killed_and_leads_where_it_would_have_led(
    tmp_path: Path, forks: Bench, user_folders: Path, raw: Json, script: Json, wanted: list[str], order: list[int]
) -> None:
    """Through a retry, labels, a condition, a failure's own way and an approval, and through all of that in branches
    and their join: after each kill the run stands where the verb without a kill leaves it, with the same visits,
    context and files of its stages.
    """
    stand = begun(tmp_path / "shop", forks, user_folders, raw)
    driver = Driver(stand, script, order=order)
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
    assert [one["step_id"].partition("/")[2] for one in driver.state["steps"]] == wanted
    assert driver.state["status"] == "completed"
    played = scripted(raw, script)
    assert played is not None
    if not any(order):
        as_simulated(driver.state, played)
    assert _own(driver.state["context"]) == _own(played.state["context"])
    assert killed > 50
