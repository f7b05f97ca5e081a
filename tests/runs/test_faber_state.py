"""FABER's states are read into the engine's shape, and a change of that shape changes nothing else in the file (D5)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.flow import route
from loomctl.kit.errors import LoomError
from loomctl.runs import faber_state
from loomctl.runs.faber_runs import written
from loomctl.runs.faber_state import view
from loomctl.runs.model import visits
from loomctl.runs.model.state import STATUSES, accepted
from loomctl.workflows import gates, refreeze
from loomctl.workflows.workflow import build_plan
from tests.helpers.faber import ERAS, ORDER, PHASES, PLAN, PLAN_ID, RUN_ID, below_phases, in_list, unknown_is_kept
from tests.helpers.tables import each
from tests.runs.test_state import places

AT = "2026-02-01T00:00:00Z"
FROZEN = build_plan(refreeze.workflow_in(PLAN), plan_id=PLAN_ID, created_at=AT, sources=[])
Json = dict[str, Any]


def stands_at(raw: Json) -> str | None:
    """Give the step that a run is to go on with."""
    place = route.first_open(view(raw, RUN_ID, FROZEN).state, FROZEN)
    return place.key if place else None


@each("era", ERAS)
@each("phase", PHASES)
def test_a_run_stands_where_its_file_says(era: str, phase: str) -> None:
    """In each era, at each phase: the first step of the current phase comes next."""
    assert stands_at(ERAS[era](phase)) == f"{phase}/{PHASES[phase][0]['id']}"


def ended(*keys: str, status: str = "success") -> list[Json]:
    return [{"step_id": key.split("/")[1], "phase": key.split("/")[0], "status": status} for key in keys]


def states(**phases: str) -> list[Json]:
    """List the phases with what is said of them, the others pending."""
    return [{"name": name, "status": phases.get(name, "pending")} for name in PHASES]


POSITIONS = [
    # what the file says, the step that comes next
    ({"current_phase": None, "steps": []}, "frame/reload"),
    ({"current_phase": None, "steps": ended(*ORDER[:2])}, "frame/push-frame"),
    ({"current_phase": "none", "steps": ended(*ORDER[:2])}, "frame/push-frame"),
    ({"current_phase": "build", "current_step": "push-build", "steps": []}, "build/push-build"),
    ({"current_phase": "build", "current_step": "build/push-build", "steps": []}, "build/push-build"),
    ({"current_phase": "build", "current_step": "build:push-build", "steps": []}, "build/push-build"),
    ({"current_phase": None, "current_step_id": "build:push-build", "steps": []}, "build/push-build"),
    ({"current_phase": None, "current_step": "merge", "steps": []}, "release/merge"),
    ({"current_phase": "build", "current_step": "release/merge", "steps": []}, "release/merge"),
    # the current step is noted as ended, and nothing after it is: the next one
    ({"current_phase": "build", "current_step": "implement", "steps": ended("build/implement")}, "build/push-build"),
    ({"current_phase": "build", "current_step": None, "steps": ended("build/implement")}, "build/push-build"),
    ({"current_phase": "build", "current_step": "push-build", "steps": ended(*ORDER[:5])}, "release/merge"),
    ({"current_phase": "build", "current_step": "gone", "steps": ended("build/implement")}, "build/push-build"),
    # what is noted of later steps means that the run was set back
    ({"current_phase": "build", "current_step": "implement", "steps": ended(*ORDER[:5])}, "build/implement"),
    ({"current_phase": "build", "current_step": "implement", "steps": ended(*ORDER)}, "build/implement"),
    ({"current_phase": "build", "current_step": "completed", "steps": ended(*ORDER)}, "build/implement"),
    ({"current_phase": "frame", "current_step": None, "steps": ended(*ORDER)}, "frame/reload"),
    (
     {"current_phase": "build", "steps": [],
      "phases": states(frame="completed", build="completed", release="completed")}, "build/implement"),
    # a phase that is over is over whatever is noted of its steps
    ({"current_phase": "frame", "steps": [], "phases": states(frame="completed")}, "build/implement"),
    ({"current_phase": "frame", "steps": [], "phases": states(frame="success", build="skipped")}, "release/merge"),
    ({"current_phase": "frame", "steps": ended("frame/fetch"), "phases": states(build="skipped")}, "frame/reload"),
    # a failed step is tried again, one that FABER went on from is not
    ({"current_phase": "build", "current_step": "implement", "steps": ended("build/implement", status="failure")},
     "build/implement"),
    ({"current_phase": "build", "current_step": "push-build", "steps": ended("build/implement", status="failure")},
     "build/push-build"),
    ({"current_phase": "frame", "steps": ended(*ORDER[:3], status="skipped")}, "build/implement"),
    ({"current_phase": "frame", "steps": ended(*ORDER[:3], status="in_progress")}, "frame/reload"),
    ({"current_phase": "elsewhere", "current_step": "x", "steps": ended(*ORDER[:2])}, "frame/push-frame"),
    ({"current_phase": "release", "current_step": "merge", "steps": ended(*ORDER)}, None),
]  # fmt: skip


@each(("said", "comes"), POSITIONS)
def test_the_place_in_the_workflow_is_read_from_position_and_notes(said: Json, comes: str | None) -> None:
    raw = {"run_id": RUN_ID, "plan_id": PLAN_ID, "status": "in_progress", "phases": states(), **said}
    assert stands_at(raw) == comes


STANDINGS = [
    *((word, word) for word in STATUSES), ("awaiting_approval", "awaiting_feedback"),
    ("In Progress", "in_progress"), ("RUNNING", "in_progress"), ("success", "completed"),
    ("canceled", "cancelled"), ("who-knows", "who-knows"), ("", "pending"), (None, "pending"), (7, "pending"),
]  # fmt: skip


@each(("word", "status"), STANDINGS)
def test_statuses_of_all_sorts_are_understood_or_kept(word: object, status: str) -> None:
    raw = {**in_list(), "status": word}
    found = view(raw, RUN_ID, FROZEN)
    assert (found.state["status"], written(found, found.state)) == (status, raw)


BELONGING = [
    ({"run_id": RUN_ID}, RUN_ID, True), ({}, RUN_ID, True),
    ({"run_id": "0f8fad5b-d9cb-469f-a165-70867728950e"}, "0f8fad5b-d9cb-469f-a165-70867728950e", True),
    ({"run_id": "acme/shop/0f8fad5b"}, "0f8fad5b", True), ({"run_id": RUN_ID[:-1]}, RUN_ID, False),
    ({"run_id": None}, RUN_ID, True), ({"run_id": 7}, RUN_ID, False),
]  # fmt: skip


@each(("raw", "run_id", "fits"), BELONGING)
def test_ids_of_every_era_are_held_against_their_place(raw: Json, run_id: str, *, fits: bool) -> None:
    """With and without Z, UUIDs, with slashes in front; a copy under another name is not the run (D6)."""
    assert faber_state.belongs(raw, run_id) is fits


@each("era", ERAS)
def test_a_run_read_and_written_back_is_the_same_file_and_keeps_every_key_to_its_end(era: str) -> None:
    raw = ERAS[era]()
    for plan in (None, FROZEN):
        found = view(raw, RUN_ID, plan)
        assert json.dumps(written(found, found.state)) == json.dumps(raw)
    raw = first = ERAS[era]()
    for _ in range(20):
        found = view(raw, RUN_ID, FROZEN)
        state, move = route.advance(found.state, FROZEN, at=AT)
        if move.kind == "approval":
            state, _ = gates.approve(state, at=AT)
        elif move.kind == "step" and move.step:
            state, entry = visits.start_visit(state, move.step, move.step.split("/")[0], at=AT)
            raw = written(found, state)
            found = view(raw, RUN_ID, FROZEN)
            again = visits.open_visit(found.state)
            assert again is not None
            assert {key: again[key] for key in entry} == entry
            state = route.end_visit(found.state, FROZEN, outcome="succeeded", at=AT).state
        raw = written(found, state)
        assert unknown_is_kept(first, raw) == []
        if state["status"] == "completed":
            break
    assert raw["status"] == "completed"
    assert [entry["step_id"] for entry in raw["steps"] if entry.get("visit")] == ["implement", "push-build", "merge"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = sorted({*in_list(), "current_step_id", "steps_completed", "pending_approvals", "approvals", "errors", "goal"})


@pytest.mark.slow
@settings(max_examples=300)
@given(data=st.data(), era=st.sampled_from(sorted(ERAS)))
def test_whatever_stands_in_a_file_is_read_into_the_engines_shape(data: st.DataObject, era: str) -> None:
    """Any value anywhere: refused is only what could pose as something else, and nothing is lost on the way back."""
    raw = ERAS[era]()
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(raw)[1:]))
        holder = raw
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = data.draw(JSON)
    for key, value in data.draw(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=2)).items():
        raw[key] = value
    before = copy.deepcopy(raw)
    found = view(raw, RUN_ID, FROZEN)
    assert (written(found, found.state), raw) == (before, before)
    refused = ""
    try:
        accepted(found.state, where="file")
    except LoomError as error:
        refused = error.why
    assert refused in ("", "it holds a line break or a control character", "it is too large a number")
    if not refused:
        route.advance(found.state, FROZEN, at=AT)


def worked(state: Json, steps: list[str]) -> Json:
    """Do to a state what the engine does: a session, a visit, an approval, a reload, an end."""
    state = copy.deepcopy(state)
    record = {"session_id": "new", "started_at": AT, "compactions": [{"at": AT}], "phases_completed": []}
    state["sessions"]["session_history"].append(record)
    state["sessions"].update(current_session_id="new", total_sessions=9)
    for entry in state["sessions"]["session_history"]:
        entry.update(ended_at=AT, resumes=2)
        entry["environment"] = {**entry.get("environment", {}), "hostname": "here"}
        entry["artifacts_loaded"] = [*entry.get("artifacts_loaded", []), "spec"]
    for entry in [*state["context_metadata"]["artifacts_in_context"], {"artifact_id": "spec"}]:
        entry.update(loaded_at=AT)
    state["context_metadata"]["artifacts_in_context"].append({"artifact_id": "spec", "loaded_at": AT})
    state["context_metadata"]["reload_count"] += 1
    state["artifacts"]["spec_path"] = "spec.md"
    state["context"]["key"] = "value"
    state["errors"].append({"at": AT})
    state["approvals"].append({"id": "phase:release", "at": AT})
    state["pending_approvals"] = [*state["pending_approvals"], {"id": "phase:build", "phase": "build"}]
    state["phases"].setdefault("build", {})["status"] = "completed"
    visits = [
        {"step_id": key, "phase": key.split("/")[0], "visit": 7, "rank": 9, "stage": "009-x@7", "status": status}
        for key, status in zip(steps, ("succeeded", "in_progress"), strict=True)
    ]
    state["steps"] += [{**visit, "started_at": AT, "completed_at": AT} for visit in visits]
    state.update(status="paused", current_phase="release", current_step=None)
    return state


@pytest.mark.slow
@settings(max_examples=300)
@given(data=st.data(), era=st.sampled_from(sorted(ERAS)))
def test_a_change_loses_nothing_that_stood_in_the_file(data: st.DataObject, era: str) -> None:
    """Lists where objects are usual, two entries of one name, texts, keys of others: each is there after a change."""
    raw = ERAS[era]()
    planted = []
    for number in range(data.draw(st.integers(1, 4))):
        mark = f"kept-{number}"
        value = data.draw(st.sampled_from([[mark], {"a": mark}, {"a": {"status": mark}}, [{"id": "x", "odd": mark}]]))
        holder: Any = raw
        path = data.draw(st.sampled_from(places(raw)))
        for key in path:
            holder = holder[key]
        if isinstance(holder, list):  # beside another, whose name it may bear
            twin = {**holder[0], "odd": mark} if holder and isinstance(holder[0], dict) else value
            holder.insert(data.draw(st.integers(0, len(holder))), twin)
        elif isinstance(holder, dict):
            holder[data.draw(st.sampled_from([*KEYS, *holder, "odd"]))] = value
        else:
            continue
        planted.append(mark)
    there = [mark for mark in planted if mark in json.dumps(raw)]  # a later one may have taken its place
    found = view(raw, RUN_ID, FROZEN)
    after = json.dumps(written(found, worked(found.state, ["frame/push-frame", "build/implement"])))
    assert [mark for mark in there if mark not in after] == []


@each("key", ["status", "started_at", "visit"])
@each("odd", [["precious"], {"word": "precious"}])
def test_a_step_that_is_begun_keeps_what_its_entry_held_in_another_shape(key: str, odd: object) -> None:
    raw = {**in_list(), "steps": [{"step_id": "implement", "phase": "build", key: odd}]}
    found = view(raw, RUN_ID, FROZEN)
    state, _ = visits.start_visit(found.state, "build/implement", "build", at=AT)
    assert "precious" in json.dumps(written(found, state))


@each("step", ["frame/push-frame", "build/implement"])
@each("key", [None, "completed_at", "result", "error", "status", "started_at", "attempts"])
@each("odd", [["precious"], {"word": "precious"}, [{"id": "x", "odd": "precious"}]])
def test_a_step_below_its_phase_keeps_what_it_held_in_another_shape(step: str, key: str | None, odd: object) -> None:
    raw = below_phases()
    phase, _, step_id = step.partition("/")
    holder = raw["phases"][phase]["steps"]
    if key is None:
        holder[step_id] = odd
    else:
        holder[step_id][key] = odd
    found = view(raw, RUN_ID, FROZEN)
    for steps in (["frame/push-frame", "build/implement"], ["build/implement", "frame/push-frame"]):
        after = written(found, worked(found.state, steps))
        assert "precious" in json.dumps(after)
        assert after["phases"][phase]["steps"][step_id]["attempts"] == 7


@each("odd", [["precious"], "precious", [{"id": "x", "odd": "precious"}]])
def test_a_phase_of_another_shape_is_kept_beside_what_is_written(odd: object) -> None:
    raw = {**in_list(), "phases": {"build": odd}}
    found = view(raw, RUN_ID, FROZEN)
    assert "precious" in json.dumps(written(found, worked(found.state, ["frame/push-frame", "build/implement"])))
