"""A run's way through its plan, forth and back, stays a valid run whatever is asked of it (D7, D27, D31)."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loomctl.flow import route
from loomctl.kit.errors import LoomError
from loomctl.runs.model import frozen_plan, sessions, visits
from loomctl.runs.model.state import STATUSES, accepted
from tests.helpers.errors import refused
from tests.helpers.tables import each
from tests.helpers.walks import OUTCOMES, Walk, plan, step

SCHEMA = json.loads((Path(__file__).parents[2] / "config" / "state.schema.json").read_text(encoding="utf-8"))
VALID = Draft202012Validator(SCHEMA)

LINE = plan({"frame": [step("frame/a"), step("frame/b")], "build": [step("build/c")]})
RETRIES = plan({"build": [step("build/a", max_retries=2), step("build/b")]})
PASSED = plan({"build": [step("build/a", on_failure="continue"), step("build/b")]})
PROMPT = plan({"build": [step("build/a", on_failure="prompt", on_warning="prompt"), step("build/b")]})
STRICT = plan({"build": [step("build/a", on_warning="stop"), step("build/b")]})
GATED = plan({"build": [step("build/a")], "release": [step("release/b"), step("release/c")]}, ask=("release",))
STEP_GATE = plan({"build": [step("build/a"), step("build/b", require_approval=True)]})
ASSIST = plan({"frame": [step("frame/a")], "build": [step("build/b")], "release": [step("release/c")]}, level="assist")
PRIME = step("frame/prime", engine="prime-context")
ENGINE = plan({"frame": [PRIME, step("frame/a")], "build": [step("build/prime", engine="x")]})
HOLES = plan({"frame": [], "build": [step("build/a")], "evaluate": [], "release": [step("release/b")], "after": []})

WALKS: list[tuple[str, dict[str, Any], str]] = [
    # each verb with the visit or the standing that it leads to; ? stands for awaiting_feedback
    ("phase by phase", LINE, "next:a@1 done:b@1 done:c@1 done:completed"),
    ("next is no progress", LINE, "next:a@1 next:a@1 done:b@1 next:b@1"),
    ("skipped is done", LINE, "next:a@1 skip:b@1 skip:c@1 skip:completed"),
    ("a warning goes on", LINE, "next:a@1 partial:b@1"),
    ("a failure stops", LINE, "next:a@1 failed:failed resume:a@2 done:b@1"),
    ("a failure in the last phase", LINE, "next:a@1 done:b@1 done:c@1 failed:failed undo:c@1"),
    ("retried twice", RETRIES, "next:a@1 failed:a@2 failed:a@3 failed:failed"),
    ("retried with success", RETRIES, "next:a@1 failed:a@2 done:b@1 done:completed"),
    ("no retries after a resume", RETRIES, "next:a@1 failed:a@2 failed:a@3 failed:failed resume:a@4 failed:failed"),
    ("undo goes back one try", RETRIES, "next:a@1 failed:a@2 undo:a@1 done:b@1"),
    ("a failure may be passed", PASSED, "next:a@1 failed:b@1 done:completed"),
    (
        "a failure may be asked about",
        PROMPT,
        "next:a@1 failed:?result:001-build.a@1 next:?result:001-build.a@1 approve:b@1",
    ),
    ("a question may be answered by undo", PROMPT, "next:a@1 failed:?result:001-build.a@1 undo:a@1 done:b@1"),
    ("a warning may be asked about", PROMPT, "next:a@1 partial:?result:001-build.a@1 approve:b@1"),
    ("a warning may stop", STRICT, "next:a@1 partial:failed resume:a@2 done:b@1"),
    (
        "a phase waits for approval",
        GATED,
        "next:a@1 done:?phase:release next:?phase:release approve:b@1 done:c@1 done:completed",
    ),
    (
        "an approval holds within its phase",
        GATED,
        "next:a@1 done:?phase:release approve:b@1 undo:a@1 done:?phase:release",
    ),
    ("an approval outlives later steps", GATED, "next:a@1 done:?phase:release approve:b@1 done:c@1 undo:b@1 done:c@1"),
    (
        "a step waits for approval",
        STEP_GATE,
        "next:a@1 done:?step:build/b approve:b@1 done:completed undo:b@1 next:b@1 done:completed",
    ),
    (
        "assist asks at each phase but the first",
        ASSIST,
        "next:a@1 done:?phase:build approve:b@1 done:?phase:release approve:c@1 done:completed",
    ),
    (
        "a pause keeps a question",
        GATED,
        "next:a@1 done:?phase:release paused:paused#phase:release resume:?phase:release approve:b@1",
    ),
    ("a pause keeps the step", LINE, "next:a@1 paused:paused#a@1 resume:a@1"),
    ("undo leaves a pause a pause", LINE, "next:a@1 done:b@1 paused:paused#b@1 undo:paused#a@1 resume:a@1"),
    ("undo across a phase border", LINE, "next:a@1 done:b@1 done:c@1 undo:b@1 undo:a@1 done:b@1 done:c@1"),
    ("undo after completion", LINE, "next:a@1 skip:b@1 skip:c@1 done:completed undo:c@1 done:completed"),
    ("closing", LINE, "next:a@1 closing:a@1#closing next:a@1#closing done:b@1"),
    ("undo of closing", LINE, "next:a@1 done:b@1 closing:b@1#closing undo:b@1 undo:a@1"),
    ("what the engine does is passed", ENGINE, "next:a@1 done:completed undo:a@1 done:completed"),
    ("phases without steps", HOLES, "next:a@1 done:b@1 done:completed"),
    ("no phases at all", plan({}), "next:completed"),
    ("reopened", LINE, "next:a@1 done:b@1 done:c@1 done:completed reopen:c@2 done:completed"),
    ("reopened and taken back", LINE, "next:a@1 done:b@1 done:c@1 done:completed reopen:c@2 undo:c@1 done:completed"),
    ("cancelled and reopened", LINE, "next:a@1 cancelled:cancelled#a@1 reopen:a@1"),
    ("cancelled stays so", LINE, "next:a@1 cancelled:cancelled#a@1 failed:cancelled reopen:a@2"),
    ("cancelled asks nothing", PROMPT, "next:a@1 cancelled:cancelled#a@1 failed:cancelled reopen:b@1"),
]


@pytest.mark.parametrize(("of", "script"), [pytest.param(of, script, id=name) for name, of, script in WALKS])
def test_a_run_goes_its_way(of: dict[str, Any], script: str) -> None:
    walk, keys = Walk(of), {place.key[-1]: place.key for place in frozen_plan.places(of)}
    for entry in script.split():
        verb, _, expected = entry.partition(":")
        expected = expected.replace("?", "awaiting_feedback ").replace("#", " ")
        expected = re.sub(r"(?<![.\w])[abc](?=@)", lambda found: keys[found[0]], expected)
        assert walk.do(verb) == expected, (entry, walk.state)
        assert_valid(walk)


@each(
    ("of", "script", "verb_out_of_place", "code"),
    [
        (LINE, "", "done", "NO_OPEN_STEP"),
        (LINE, "", "closing", "NO_OPEN_STEP"),
        (LINE, "", "undo", "NOTHING_TO_UNDO"),
        (LINE, "next", "undo", "NOTHING_TO_UNDO"),
        (LINE, "next", "approve", "NOTHING_TO_APPROVE"),
        (ENGINE, "next", "undo", "NOTHING_TO_UNDO"),
        (LINE, "next done cancelled", "undo", "NOTHING_TO_UNDO"),
        (GATED, "next done cancelled", "approve", "NOTHING_TO_APPROVE"),
        (GATED, "next done paused", "approve", "NOTHING_TO_APPROVE"),
        (GATED, "next done", "done", "NO_OPEN_STEP"),
    ],
)
def test_a_verb_out_of_place_is_refused(of: dict[str, Any], script: str, verb_out_of_place: str, code: str) -> None:
    """What makes no sense where the run stands changes nothing; a cancelled run is not revived (D4)."""
    walk = walked(of, *script.split())
    before = copy.deepcopy(walk.state)
    with refused(code):
        walk.do(verb_out_of_place)
    assert walk.state == before


def walked(of: dict[str, Any], *verbs: str) -> Walk:
    walk = Walk(of)
    for verb in verbs:
        walk.do(verb)
    return walk


def tried(of: dict[str, Any], *verbs: str) -> Walk:
    walk = Walk(of)
    for verb in verbs:
        with suppress(LoomError):
            walk.do(verb)
    return walk


def assert_valid(walk: Walk) -> None:
    state = walk.state
    assert list(VALID.iter_errors(state)) == []
    accepted(state, where="state.json", run_id="shop-258-run-1")
    assert state["status"] in STATUSES
    worked = [entry for entry in state["steps"] if entry.get("by") != "engine"]
    ranks = [entry["rank"] for entry in worked]
    assert ranks == list(range(1, len(ranks) + 1)), "ranks strictly increase"
    assert len({entry["stage"] for entry in worked}) == len(worked), "each visit has a stage of its own"
    for key in {entry["step_id"] for entry in state["steps"]}:
        numbers = [entry["visit"] for entry in state["steps"] if entry["step_id"] == key]
        assert numbers == list(range(1, visits.count(state, key) + 1))
    open_visits = [entry for entry in state["steps"] if entry["status"] in visits.OPEN]
    assert len(open_visits) <= 1
    for entry in open_visits:
        assert entry is state["steps"][-1]
        assert (state["current_step"], state["current_phase"]) == (entry["step_id"], entry["phase"])
        assert state["phases"][entry["phase"]]["status"] == "in_progress"
        assert state["status"] in ("in_progress", "paused", "cancelled")
    for entry in state["steps"]:
        assert ("closing" in entry) == (entry["status"] == "closing")
        assert (entry["completed_at"] is None) == (entry["status"] in visits.OPEN)
    assert_phases_in_order(walk)
    if state["status"] == "completed":
        assert open_visits == []
        assert state["current_step"] is None
        assert all(visits.is_done(visits.last_of_each(state).get(place.key)) for place in frozen_plan.places(walk.plan))
        assert {phase["status"] for phase in state["phases"].values()} <= {"completed", "skipped"}
    else:
        assert "completed_at" not in state
    for status, why in (("failed", "errors"), ("awaiting_feedback", "pending_approvals")):
        if state["status"] == status:
            assert (open_visits, bool(state[why])) == ([], True)


def assert_phases_in_order(walk: Walk) -> None:
    """Assert that the phases before the current one are over and those after it have not begun.

    A phase without steps may have been passed already, by a completion that was taken back.
    """
    names = [phase["id"] for phase in walk.plan["phases"]]
    current = walk.state["current_phase"]
    if current is None or walk.state["status"] == "completed":
        return
    at = names.index(current)
    statuses = [walk.state["phases"][name]["status"] for name in names]
    assert set(statuses[:at]) <= {"completed", "skipped"}
    for phase, status in list(zip(walk.plan["phases"], statuses, strict=True))[at + 1 :]:
        assert status == "pending" or (status == "skipped" and not phase["steps"])


class Looked(list[dict[str, Any]]):
    """The visits of a state, which count how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.times += 1
        return super().__iter__()


def test_where_a_run_goes_on_is_found_in_one_pass_over_its_visits() -> None:
    """However many steps are done, the visits are gone through once, not once for each step."""
    long = plan({"build": [step(f"build/{number}") for number in range(50)]})
    walk = walked(long, "next", *["done"] * 49)
    visits = Looked(walk.state["steps"])
    place = route.first_open({**walk.state, "steps": visits}, long)
    assert (place and place.key, visits.times) == ("build/49", 1)


def test_the_visits_of_every_step_are_those_of_each() -> None:
    walk = walked(RETRIES, "next", "failed", "done", "done")
    keys = [place.key for place in frozen_plan.places(RETRIES)]
    assert visits.counts(walk.state) == {key: visits.count(walk.state, key) for key in keys}
    assert {key: last["visit"] for key, last in visits.last_of_each(walk.state).items()} == visits.counts(walk.state)
    assert visits.counts(walk.state)["build/a"] == 2


verbs = st.sampled_from([*OUTCOMES, "next", "closing", "undo", "approve", "paused", "cancelled", "resume", "reopen"])
choices = {
    "on_failure": st.sampled_from(["stop", "prompt", "continue"]),
    "on_warning": st.sampled_from(["stop", "prompt", "continue"]),
    "on_success": st.sampled_from(["continue", "prompt"]),
    "max_retries": st.integers(0, 2),
    "require_approval": st.booleans(),
    "engine": st.sampled_from([None, None, None, "prime-context"]),
}


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    up_to_three, choice = st.integers(0, 3), st.fixed_dictionaries(choices)
    names = ("frame", "build", "release")[: draw(up_to_three)]
    phases = {name: [step(f"{name}/{key}", **draw(choice)) for key in "abc"[: draw(up_to_three)]] for name in names}
    ask = tuple(draw(st.sets(st.sampled_from(["build", "release"]))))
    return plan(phases, level=draw(st.sampled_from(["assist", "guarded", "autonomous"])), ask=ask)


@pytest.mark.slow
@settings(max_examples=150)
@given(plans(), st.lists(verbs, max_size=25))
def test_any_sequence_of_verbs_keeps_a_run_valid(of: dict[str, Any], sequence: list[str]) -> None:
    """Whatever is asked in whatever order, the state is valid, a refusal changes nothing, and no state in place."""
    walk = Walk(of)
    for verb in ["next", *sequence]:
        given, before = walk.state, copy.deepcopy(walk.state)
        try:
            walk.do(verb)
        except LoomError:
            assert walk.state is given
        assert given == before
        assert_valid(walk)


@pytest.mark.slow
@settings(max_examples=100)
@given(plans(), st.lists(verbs, max_size=15))
def test_a_run_can_always_be_brought_to_its_end(of: dict[str, Any], sequence: list[str]) -> None:
    """From wherever a run stands, resuming, approving and finishing step after step completes it."""
    walk = tried(of, *sequence)
    for _ in range(4 * len(frozen_plan.places(of)) + 8):
        status = walk.state["status"]
        if status == "completed":
            break
        if status in ("paused", "failed", "cancelled"):
            walk.do("reopen")
        elif status == "awaiting_feedback":
            walk.do("approve")
        elif visits.open_visit(walk.state) is None:
            walk.do("next")
        else:
            walk.do("done")
    assert walk.state["status"] == "completed"
    assert_valid(walk)


@settings(max_examples=100)
@given(plans(), st.lists(st.sampled_from([*OUTCOMES, "approve"]), max_size=8), st.sampled_from(sorted(OUTCOMES)))
def test_undo_takes_back_what_done_did(of: dict[str, Any], sequence: list[str], last: str) -> None:
    """Done and undone again, the run stands at the same visit, with the same artifacts, errors and approvals."""
    walk = tried(of, "next", *sequence)
    before = copy.deepcopy(walk.state)
    entry = visits.open_visit(before)
    if entry is None:
        return
    walk.do(last, artifacts={"spec_path": "{project_root}/new.md", "notes": "{project_root}/n.md"}, note="x")
    walk.do("undo")
    assert visits.open_visit(walk.state) == entry
    for key in ("artifacts", "errors", "approvals", "phases", "steps", "status", "current_phase", "current_step"):
        assert walk.state[key] == before[key], key


def test_undo_restores_what_an_artifact_named_before() -> None:
    walk = walked(LINE, "next")
    walk.do("done", artifacts={"spec_path": "{project_root}/a.md"})
    walk.do("done", artifacts={"spec_path": "{project_root}/b.md", "notes": "{project_root}/n.md"})
    for before in ({"spec_path": "{project_root}/a.md"}, {}):
        walk.do("undo")
        assert walk.state["artifacts"] == before


def test_undo_takes_a_phase_back_from_the_sessions() -> None:
    walk = Walk(LINE)
    walk.state = sessions.entered(walk.state, "s1", host="h", source="startup", at=walk.now(), environment={})
    for verb in ("next", "done", "done"):
        walk.do(verb)
    walk.state = sessions.completed_phase(walk.state, "s1", "frame")
    walk.do("undo")
    assert sessions.history(walk.state)[0]["phases_completed"] == []


def test_unknown_keys_of_phases_and_visits_survive_every_verb() -> None:
    """What Loom does not know of a phase or a visit is still there after a step forth and back."""
    walk = walked(LINE, "next")
    walk.state["phases"]["frame"]["x-room"] = 1
    walk.state["phases"]["build"]["x-room"] = 2
    walk.state["phases"]["x-foreign"] = {"status": "completed", "x": 3}
    walk.state["steps"][0]["x-cost"] = 4
    for verb in ("done", "done", "undo", "undo", "done"):
        walk.do(verb)
    assert (walk.state["phases"]["frame"]["x-room"], walk.state["phases"]["build"]["x-room"]) == (1, 2)
    assert walk.state["phases"]["x-foreign"] == {"status": "completed", "x": 3}
    assert walk.state["steps"][0]["x-cost"] == 4


def test_errors_that_others_wrote_survive_an_undo() -> None:
    walk = walked(LINE, "next")
    walk.state["errors"] = ["a text", {"code": 1}]
    walk.do("failed")
    walk.do("undo")
    assert walk.state["errors"] == ["a text", {"code": 1}]


@each("outcome", ["", "SUCCESS", "in_progress", "closing", "banana"])
def test_an_unknown_outcome_ends_nothing(outcome: str) -> None:  # D32
    walk = walked(LINE, "next")
    with pytest.raises(LoomError, match="BAD_OUTCOME"):
        route.end_visit(walk.state, LINE, outcome=outcome, at="2026-01-01T00:00:00Z")


def test_two_steps_are_never_open_at_once() -> None:
    """A state changed by hand in which an earlier step is to be done gets an error, not a second open visit."""
    walk = walked(LINE, "next", "done")
    walk.state["steps"] = walk.state["steps"][1:]
    with pytest.raises(LoomError, match="STEP_OPEN"):
        walk.do("next")


def test_a_retry_names_its_failure() -> None:
    walk = walked(RETRIES, "next")
    walk.do("failed", note="no database")
    walk.do("failed")
    told = [("001-build.a@1", "no database"), ("002-build.a@2", "the step ended failed")]
    assert [(error["stage"], error["message"]) for error in walk.state["errors"]] == told


def test_a_move_names_the_transition_that_it_makes() -> None:
    state = Walk(HOLES).state
    state, move = route.advance(state, HOLES, at="2026-01-01T00:00:00Z")
    assert (move.kind, move.before, move.after) == ("step", None, "build")
    state, move = route.advance(state, HOLES, at="2026-01-01T00:00:00Z")
    assert (move.kind, move.before, move.after) == ("step", None, None)
    state, _ = visits.start_visit(state, "build/a", "build", at="2026-01-01T00:00:00Z")
    state = route.end_visit(state, HOLES, outcome="succeeded", at="2026-01-01T00:00:01Z").state
    state, move = route.advance(state, HOLES, at="2026-01-01T00:00:02Z")
    assert (move.before, move.after) == ("build", "release")
    statuses = {"frame": "skipped", "build": "completed", "evaluate": "skipped", "release": "in_progress"}
    assert {name: phase["status"] for name, phase in state["phases"].items()} == {**statuses, "after": "pending"}
