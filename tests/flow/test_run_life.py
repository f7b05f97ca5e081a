"""A run's way through its plan, forth and back, stays a valid run whatever is asked of it (D7, D27, D31)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loomctl.flow import route
from loomctl.kit.errors import LoomError
from loomctl.runs.model import frozen_plan, sessions, visits
from loomctl.runs.model.state import STATUSES, accepted
from tests.helpers.tables import each
from tests.helpers.walks import OUTCOMES, Walk, plan, step

if TYPE_CHECKING:
    from collections.abc import Iterator

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
ENGINE = plan(
    {
        "frame": [step("frame/prime", engine="prime-context"), step("frame/a")],
        "build": [step("build/prime", engine="x")],
    }
)
HOLES = plan({"frame": [], "build": [step("build/a")], "evaluate": [], "release": [step("release/b")], "after": []})

WALKS: list[tuple[str, dict[str, Any], str]] = [
    ("phase by phase", LINE, "next:frame/a@1 done:frame/b@1 done:build/c@1 done:completed"),
    ("next is no progress", LINE, "next:frame/a@1 next:frame/a@1 done:frame/b@1 next:frame/b@1"),
    ("skipped is done", LINE, "next:frame/a@1 skip:frame/b@1 skip:build/c@1 skip:completed"),
    ("a warning goes on", LINE, "next:frame/a@1 partial:frame/b@1"),
    ("a failure stops", LINE, "next:frame/a@1 failed:failed resume:frame/a@2 done:frame/b@1"),
    ("a failure in the last phase", LINE, "next:frame/a@1 done:frame/b@1 done:build/c@1 failed:failed undo:build/c@1"),
    ("retried twice", RETRIES, "next:build/a@1 failed:build/a@2 failed:build/a@3 failed:failed"),
    ("retried with success", RETRIES, "next:build/a@1 failed:build/a@2 done:build/b@1 done:completed"),
    (
        "no retries after a resume",
        RETRIES,
        ("next:build/a@1 failed:build/a@2 failed:build/a@3 failed:failed resume:build/a@4 failed:failed"),
    ),
    ("undo goes back one try", RETRIES, "next:build/a@1 failed:build/a@2 undo:build/a@1 done:build/b@1"),
    ("a failure may be passed", PASSED, "next:build/a@1 failed:build/b@1 done:completed"),
    (
        "a failure may be asked about",
        PROMPT,
        (
            "next:build/a@1 failed:awaiting_feedback#result:001-build.a@1 "
            "next:awaiting_feedback#result:001-build.a@1 approve:build/b@1"
        ),
    ),
    (
        "a question may be answered by undo",
        PROMPT,
        ("next:build/a@1 failed:awaiting_feedback#result:001-build.a@1 undo:build/a@1 done:build/b@1"),
    ),
    (
        "a warning may be asked about",
        PROMPT,
        ("next:build/a@1 partial:awaiting_feedback#result:001-build.a@1 approve:build/b@1"),
    ),
    ("a warning may stop", STRICT, "next:build/a@1 partial:failed resume:build/a@2 done:build/b@1"),
    (
        "a phase waits for approval",
        GATED,
        (
            "next:build/a@1 done:awaiting_feedback#phase:release "
            "next:awaiting_feedback#phase:release approve:release/b@1 done:release/c@1 done:completed"
        ),
    ),
    (
        "an approval holds within its phase",
        GATED,
        (
            "next:build/a@1 done:awaiting_feedback#phase:release "
            "approve:release/b@1 undo:build/a@1 done:awaiting_feedback#phase:release"
        ),
    ),
    (
        "an approval outlives later steps",
        GATED,
        (
            "next:build/a@1 done:awaiting_feedback#phase:release "
            "approve:release/b@1 done:release/c@1 undo:release/b@1 done:release/c@1"
        ),
    ),
    (
        "a step waits for approval",
        STEP_GATE,
        (
            "next:build/a@1 done:awaiting_feedback#step:build/b approve:build/b@1 "
            "done:completed undo:build/b@1 next:build/b@1 done:completed"
        ),
    ),
    (
        "assist asks at each phase but the first",
        ASSIST,
        (
            "next:frame/a@1 done:awaiting_feedback#phase:build "
            "approve:build/b@1 done:awaiting_feedback#phase:release approve:release/c@1 done:completed"
        ),
    ),
    (
        "a pause keeps a question",
        GATED,
        (
            "next:build/a@1 done:awaiting_feedback#phase:release "
            "paused:paused#phase:release resume:awaiting_feedback#phase:release approve:release/b@1"
        ),
    ),
    ("a pause keeps the step", LINE, "next:frame/a@1 paused:paused#frame/a@1 resume:frame/a@1"),
    (
        "undo leaves a pause a pause",
        LINE,
        ("next:frame/a@1 done:frame/b@1 paused:paused#frame/b@1 undo:paused#frame/a@1 resume:frame/a@1"),
    ),
    (
        "undo across a phase border",
        LINE,
        ("next:frame/a@1 done:frame/b@1 done:build/c@1 undo:frame/b@1 undo:frame/a@1 done:frame/b@1 done:build/c@1"),
    ),
    (
        "undo after completion",
        LINE,
        ("next:frame/a@1 skip:frame/b@1 skip:build/c@1 done:completed undo:build/c@1 done:completed"),
    ),
    ("closing", LINE, "next:frame/a@1 closing:frame/a@1#closing next:frame/a@1#closing done:frame/b@1"),
    ("undo of closing", LINE, "next:frame/a@1 done:frame/b@1 closing:frame/b@1#closing undo:frame/b@1 undo:frame/a@1"),
    ("what the engine does is passed", ENGINE, "next:frame/a@1 done:completed undo:frame/a@1 done:completed"),
    ("phases without steps", HOLES, "next:build/a@1 done:release/b@1 done:completed"),
    ("no phases at all", plan({}), "next:completed"),
    ("reopened", LINE, "next:frame/a@1 done:frame/b@1 done:build/c@1 done:completed reopen:build/c@2 done:completed"),
    (
        "reopened and taken back",
        LINE,
        ("next:frame/a@1 done:frame/b@1 done:build/c@1 done:completed reopen:build/c@2 undo:build/c@1 done:completed"),
    ),
    ("cancelled and reopened", LINE, "next:frame/a@1 cancelled:cancelled#frame/a@1 reopen:frame/a@1"),
    ("cancelled stays so", LINE, "next:frame/a@1 cancelled:cancelled#frame/a@1 failed:cancelled reopen:frame/a@2"),
    (
        "cancelled asks nothing",
        PROMPT,
        "next:build/a@1 cancelled:cancelled#build/a@1 failed:cancelled reopen:build/b@1",
    ),
]


@pytest.mark.parametrize(("of", "script"), [pytest.param(of, script, id=name) for name, of, script in WALKS])
def test_a_run_goes_its_way(of: dict[str, Any], script: str) -> None:
    """Verb by verb the run stands where the table says, and is valid everywhere."""
    walk = Walk(of)
    for entry in script.split():
        verb, _, expected = entry.partition(":")
        assert walk.do(verb) == expected.replace("#", " "), (entry, walk.state)
        assert_valid(walk)


@each(
    ("of", "script", "refused", "code"),
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
def test_a_verb_out_of_place_is_refused(of: dict[str, Any], script: str, refused: str, code: str) -> None:
    """What makes no sense where the run stands changes nothing; a cancelled run is not revived (D4)."""
    walk = Walk(of)
    for verb in script.split():
        walk.do(verb)
    before = copy.deepcopy(walk.state)
    with pytest.raises(LoomError) as error:
        walk.do(refused)
    assert error.value.code == code
    assert walk.state == before


def assert_valid(walk: Walk) -> None:
    """Assert what holds of every run at every moment."""
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
    if state["status"] == "failed":
        assert open_visits == []
        assert state["errors"]
    if state["status"] == "awaiting_feedback":
        assert state["pending_approvals"]
        assert open_visits == []


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
    walk = Walk(long)
    walk.do("next")
    for _ in range(49):
        walk.do("done")
    visits = Looked(walk.state["steps"])
    place = route.first_open({**walk.state, "steps": visits}, long)
    assert place is not None
    assert place.key == "build/49"
    assert visits.times == 1


def test_the_visits_of_every_step_are_those_of_each() -> None:
    """What is found of all steps at once is what is found of one after the other."""
    walk = Walk(RETRIES)
    for verb in ("next", "failed", "done", "done"):
        walk.do(verb)
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
    """Draw a plan of up to three phases with up to three steps each."""
    phases = {
        name: [
            step(f"{name}/{key}", **draw(st.fixed_dictionaries(choices))) for key in "abc"[: draw(st.integers(0, 3))]
        ]
        for name in ("frame", "build", "release")[: draw(st.integers(0, 3))]
    }
    return plan(
        phases,
        level=draw(st.sampled_from(["assist", "guarded", "autonomous"])),
        ask=tuple(draw(st.sets(st.sampled_from(["build", "release"])))),
    )


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
    walk = Walk(of)
    for verb in sequence:
        try:
            walk.do(verb)
        except LoomError:
            continue
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
    walk = Walk(of)
    walk.do("next")
    for verb in sequence:
        try:
            walk.do(verb)
        except LoomError:
            continue
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
    """What a step registered is gone or as before; what it did not touch stays."""
    walk = Walk(LINE)
    walk.do("next")
    walk.do("done", artifacts={"spec_path": "{project_root}/a.md"})
    walk.do("done", artifacts={"spec_path": "{project_root}/b.md", "notes": "{project_root}/n.md"})
    walk.do("undo")
    assert walk.state["artifacts"] == {"spec_path": "{project_root}/a.md"}
    walk.do("undo")
    assert walk.state["artifacts"] == {}


def test_undo_takes_a_phase_back_from_the_sessions() -> None:
    """No session goes on claiming that it completed a phase whose work was undone."""
    walk = Walk(LINE)
    walk.state = sessions.entered(walk.state, "s1", host="h", source="startup", at=walk.now(), environment={})
    for verb in ("next", "done", "done"):
        walk.do(verb)
    walk.state = sessions.completed_phase(walk.state, "s1", "frame")
    walk.do("undo")
    assert sessions.history(walk.state)[0]["phases_completed"] == []


def test_unknown_keys_of_phases_and_visits_survive_every_verb() -> None:
    """What Loom does not know of a phase or a visit is still there after a step forth and back."""
    walk = Walk(LINE)
    walk.do("next")
    walk.state["phases"]["frame"]["x-room"] = 1
    walk.state["phases"]["build"]["x-room"] = 2
    walk.state["phases"]["x-foreign"] = {"status": "completed", "x": 3}
    walk.state["steps"][0]["x-cost"] = 4
    for verb in ("done", "done", "undo", "undo", "done"):
        walk.do(verb)
    assert walk.state["phases"]["frame"]["x-room"] == 1
    assert walk.state["phases"]["build"]["x-room"] == 2
    assert walk.state["phases"]["x-foreign"] == {"status": "completed", "x": 3}
    assert walk.state["steps"][0]["x-cost"] == 4


def test_errors_that_others_wrote_survive_an_undo() -> None:
    """An entry of `errors` in no form of Loom's is kept, and breaks nothing."""
    walk = Walk(LINE)
    walk.do("next")
    walk.state["errors"] = ["a text", {"code": 1}]
    walk.do("failed")
    walk.do("undo")
    assert walk.state["errors"] == ["a text", {"code": 1}]


@each("outcome", ["", "SUCCESS", "in_progress", "closing", "banana"])
def test_an_unknown_outcome_ends_nothing(outcome: str) -> None:
    """Only the four words of D32 end a visit, wherever the word came from."""
    walk = Walk(LINE)
    walk.do("next")
    with pytest.raises(LoomError, match="BAD_OUTCOME"):
        route.end_visit(walk.state, LINE, outcome=outcome, at="2026-01-01T00:00:00Z")


def test_two_steps_are_never_open_at_once() -> None:
    """A state changed by hand in which an earlier step is to be done gets an error, not a second open visit."""
    walk = Walk(LINE)
    walk.do("next")
    walk.do("done")
    walk.state["steps"] = walk.state["steps"][1:]
    with pytest.raises(LoomError, match="STEP_OPEN"):
        walk.do("next")


def test_a_retry_names_its_failure() -> None:
    """Each failed try is on record with its stage and note."""
    walk = Walk(RETRIES)
    walk.do("next")
    walk.do("failed", note="no database")
    walk.do("failed")
    assert [(error["stage"], error["message"]) for error in walk.state["errors"]] == [
        ("001-build.a@1", "no database"),
        ("002-build.a@2", "the step ended failed"),
    ]


def test_a_move_names_the_transition_that_it_makes() -> None:
    """Entering a phase is told once, with the phase before it; going on in it is none."""
    state = Walk(HOLES).state
    state, move = route.advance(state, HOLES, at="2026-01-01T00:00:00Z")
    assert (move.kind, move.before, move.after) == ("step", None, "build")
    state, move = route.advance(state, HOLES, at="2026-01-01T00:00:00Z")
    assert (move.kind, move.before, move.after) == ("step", None, None)
    state, _ = visits.start_visit(state, "build/a", "build", at="2026-01-01T00:00:00Z")
    state = route.end_visit(state, HOLES, outcome="succeeded", at="2026-01-01T00:00:01Z").state
    state, move = route.advance(state, HOLES, at="2026-01-01T00:00:02Z")
    assert (move.before, move.after) == ("build", "release")
    assert {name: phase["status"] for name, phase in state["phases"].items()} == {
        "frame": "skipped",
        "build": "completed",
        "evaluate": "skipped",
        "release": "in_progress",
        "after": "pending",
    }
