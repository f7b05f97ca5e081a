"""A state file is accepted as it is or refused with its place; it is never repaired in silence."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loomctl.kit.errors import EXIT_INVALID, EXIT_SKEW, LoomError
from loomctl.runs.model import frozen_plan, state
from loomctl.runs.model.state import Step, migrated
from tests.helpers.errors import refusal
from tests.helpers.tables import each

ROOT = Path(__file__).parents[2]
SCHEMA = Draft202012Validator(json.loads((ROOT / "config" / "state.schema.json").read_text(encoding="utf-8")))
VALID = ROOT / "tests" / "examples" / "state" / "valid"
FULL = json.loads((VALID / "with-sessions.json").read_text(encoding="utf-8"))
FULL["context_metadata"]["artifacts_in_context"] = [{"artifact_id": "spec"}]
FULL["pending_approvals"] = [{"id": "phase:release"}]
FULL["approvals"] = [{"id": "phase:build", "granted_at": "2026-01-01T00:00:00Z", "after_rank": 1}]


def test_the_full_example_is_valid_and_another_runs_state_is_refused() -> None:
    """The id in the file is the id asked for (D6)."""
    assert list(SCHEMA.iter_errors(FULL)) == []
    assert state.accepted(FULL, where="x", run_id=FULL["run_id"]) is FULL
    error = refusal(state.accepted, FULL, where="/p/state.json", run_id="another")
    assert error.code == "RUN_ID_MISMATCH"
    assert FULL["run_id"] in error.what
    assert "another" in error.what


@each(
    ("path", "value", "where"),
    [
        (("run_id",), 7, "$.run_id"),
        (("work_id",), 258, "$.work_id"),
        (("revision",), "7", "$.revision"),
        (("revision",), True, "$.revision"),
        (("current_step",), ["x"], "$.current_step"),
        (("phases", "build"), None, "$.phases.build"),
        (("steps", 0), "x", "$.steps[0]"),
        (("steps", 0, "rank"), True, "$.steps[0].rank"),
        (("steps", 0, "stage"), 7, "$.steps[0].stage"),
        (("steps", 0, "phase"), None, "$.steps[0].phase"),
        (("steps", 0, "given"), ["spec.md"], "$.steps[0].given"),
        (("steps", 0, "given"), {"spec_path": 7}, "$.steps[0].given.spec_path"),
        (("steps", 0, "given"), {"spec_path": "a.md", "x": {"a": 1}}, "$.steps[0].given.x"),
        (("pending_approvals", 0), "phase:release", "$.pending_approvals[0]"),
        (("pending_approvals", 0, "id"), None, "$.pending_approvals[0].id"),
        (("approvals", 0, "id"), 1, "$.approvals[0].id"),
        (("sessions", "session_history"), {}, "$.sessions.session_history"),
        (("sessions", "session_history", 0, "session_id"), ["x"], "$.sessions.session_history[0].session_id"),
        (("sessions", "session_history", 0, "environment"), None, "$.sessions.session_history[0].environment"),
        (("sessions", "session_history", 0, "compactions"), 3, "$.sessions.session_history[0].compactions"),
        (("context_metadata", "reload_count"), "3", "$.context_metadata.reload_count"),
        (("context_metadata", "artifacts_in_context", 0), 1, "$.context_metadata.artifacts_in_context[0]"),
        (("schema_version",), 0, "$.schema_version"),
        (("schema_version",), True, "$.schema_version"),
        (("schema_version",), None, "$.schema_version"),
    ],
)
def test_a_wrong_type_has_its_place(path: tuple[str | int, ...], value: object, where: str) -> None:
    """What the engine would stumble over is refused with the JSON path, not met later as a crash."""
    raw = copy.deepcopy(FULL)
    parent: Any = raw
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    error = refusal(state.accepted, raw, where="/p/state.json")
    assert (error.code, error.where, error.exit_code) == ("BAD_STATE", f"/p/state.json {where}", EXIT_INVALID)
    assert error.why
    assert error.hint


@each("raw", [None, [], "x", 7, True])
def test_what_is_no_object_is_no_state(raw: object) -> None:
    assert refusal(state.accepted, raw, where="/p/state.json").where == "/p/state.json $"


@each("path", sorted(VALID.glob("*.json")))
def test_valid_examples_are_accepted_unchanged(path: Path) -> None:
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert state.accepted(copy.deepcopy(raw), where="x") == raw


def places(raw: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    return [path, *(found for key, value in inner for found in places(value, (*path, key)))]


JUNK: st.SearchStrategy[Any] = st.sampled_from([None, True, 0, 3, 1.5, "x", "", [], {}, [None], ["x"], [{}], {"x": 1}])


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_the_reader_refuses_nothing_that_the_schema_allows(data: st.DataObject) -> None:
    """Whatever is damaged: what the schema accepts the engine reads, and the rest never makes it crash."""
    raw = copy.deepcopy(FULL)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([place for place in places(raw) if place]))
        parent = raw
        for key in path[:-1]:
            parent = parent[key]
        if data.draw(st.booleans()):
            del parent[path[-1]]
        else:
            parent[path[-1]] = copy.deepcopy(data.draw(JUNK))  # what is put in may be damaged again
    try:
        state.accepted(raw, where="x")
    except LoomError:
        assert not SCHEMA.is_valid(raw), raw


def test_only_three_statuses_are_active() -> None:
    """Completed and cancelled runs are never active (D4), and an unknown word is no activity."""
    words = ("in_progress", "paused", "awaiting_feedback", "pending", "failed", "completed", "cancelled", "invented")
    assert [word for word in words if state.is_active({"status": word})] == list(words[:3])


Value = dict[str, Any]

TABLE: state.Table = {
    1: [
        Step(
            "rename title to goal", lambda raw: {**{k: v for k, v in raw.items() if k != "title"}, "goal": raw["title"]}
        ),
        Step("count the steps", lambda raw: {**raw, "count": len(raw["steps"])}),
    ],
    2: [],
    3: [Step("goal in capitals", lambda raw: {**raw, "goal": raw["goal"].upper()})],
}
OLD: Value = {"schema_version": 1, "title": "a", "steps": [1, 2], "x-own": {"deep": [None]}}


@each(
    ("version", "current", "names"),
    [
        (1, 2, ("rename title to goal", "count the steps")),
        (1, 4, ("rename title to goal", "count the steps", "goal in capitals")),
        (2, 3, ()),
        (4, 4, ()),
    ],
)
def test_each_step_is_done_once_and_in_order(version: int, current: int, names: tuple[str, ...]) -> None:
    raw = {**OLD, "schema_version": version, "goal": "a"}
    made = migrated(raw, current, TABLE)
    assert (made["schema_version"], made.before, made.steps) == (current, version, names)


def test_what_is_given_stays_as_it_is() -> None:
    """The file's content is not changed by reading it, and keys that nobody knows are there after."""
    before = copy.deepcopy(OLD)
    made = migrated(OLD, 4, TABLE)
    assert before == OLD
    assert made == {"schema_version": 4, "goal": "A", "steps": [1, 2], "count": 2, "x-own": {"deep": [None]}}


@each(
    ("raw", "said"),
    [
        ({"schema_version": 0}, "cannot migrate schema 0 to 1"),
        ({"schema_version": -(10**30)}, "cannot migrate schema"),
        ({"schema_version": 1}, "failed at 'rename title to goal': KeyError"),
        ({"schema_version": 1, "title": "a", "steps": 5}, "failed at 'count the steps': TypeError"),
        ({"schema_version": 3, "goal": 5}, "failed at 'goal in capitals': AttributeError"),
    ],
)
def test_what_cannot_be_migrated_is_said(raw: Value, said: str) -> None:
    """A version without a way and a step that meets something else are told in words, never half done."""
    with pytest.raises(ValueError, match=said):
        migrated(raw, 4, TABLE)


def test_the_first_schema_of_a_state_differs_by_its_number_alone() -> None:
    """A plan's first schema is the only one; nothing is pretended to have come before either."""
    assert (state.SCHEMA_VERSION, frozen_plan.SCHEMA_VERSION) == (2, 1)
    assert (set(state.MIGRATIONS), frozen_plan.MIGRATIONS) == ({1}, {})
    assert migrated(OLD, 2, state.MIGRATIONS) == {**OLD, "schema_version": 2}


def test_a_version_that_nobody_wrote_is_refused() -> None:
    for version in (0, -1):
        for accepted, code in ((state.accepted, "BAD_STATE"), (frozen_plan.accepted, "BAD_PLAN")):
            with pytest.raises(LoomError, match=code) as error:
                accepted({"schema_version": version}, where="x.json")
            assert (error.value.code, error.value.where) == (code, "x.json $.schema_version")
            assert error.value.exit_code == EXIT_INVALID
            assert "cannot migrate schema" in error.value.why


def test_a_newer_schema_is_not_migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MIGRATIONS", TABLE)
    monkeypatch.setattr(frozen_plan, "MIGRATIONS", TABLE)
    for accepted in (state.accepted, frozen_plan.accepted):
        with pytest.raises(LoomError, match="SCHEMA_TOO_NEW") as error:
            accepted({"schema_version": 3}, where="x.json")
        assert error.value.exit_code == EXIT_SKEW
