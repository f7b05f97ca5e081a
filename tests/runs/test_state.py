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
from loomctl.runs.model import state
from tests.helpers.tables import each

ROOT = Path(__file__).parents[2]
SCHEMA = Draft202012Validator(json.loads((ROOT / "config" / "state.schema.json").read_text(encoding="utf-8")))
VALID = ROOT / "tests" / "examples" / "state" / "valid"
FULL = json.loads((VALID / "with-sessions.json").read_text(encoding="utf-8"))
FULL["context_metadata"]["artifacts_in_context"] = [{"artifact_id": "spec"}]
FULL["pending_approvals"] = [{"id": "phase:release"}]
FULL["approvals"] = [{"id": "phase:build", "granted_at": "2026-01-01T00:00:00Z", "after_rank": 1}]


def refusal(raw: object, **named: Any) -> LoomError:
    """Give the error with which a state is refused."""
    with pytest.raises(LoomError) as error:
        state.accepted(raw, where="/p/state.json", **named)
    return error.value


def test_the_full_example_is_valid() -> None:
    """The state that the tests below damage passes schema and reader, and comes back as the very object."""
    assert list(SCHEMA.iter_errors(FULL)) == []
    assert state.accepted(FULL, where="x", run_id=FULL["run_id"]) is FULL


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
    error = refusal(raw)
    assert (error.code, error.where, error.exit_code) == ("BAD_STATE", f"/p/state.json {where}", EXIT_INVALID)
    assert error.why
    assert error.hint


@each("raw", [None, [], "x", 7, True])
def test_what_is_no_object_is_no_state(raw: object) -> None:
    """A list, a text or nothing is refused as a whole."""
    assert refusal(raw).where == "/p/state.json $"


def test_another_runs_state_is_refused() -> None:
    """The id in the file is the id asked for (D6)."""
    error = refusal(FULL, run_id="another")
    assert error.code == "RUN_ID_MISMATCH"
    assert FULL["run_id"] in error.what
    assert "another" in error.what


def test_a_newer_schema_is_refused_before_anything_else() -> None:
    """A file that a later Loom wrote is left alone, however strange it looks (D56)."""
    error = refusal({"schema_version": 2})
    assert (error.code, error.exit_code) == ("SCHEMA_TOO_NEW", EXIT_SKEW)


@each("path", sorted(VALID.glob("*.json")))
def test_valid_examples_are_accepted_unchanged(path: Path) -> None:
    """Accepting a state changes nothing in it, unknown keys included."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert state.accepted(copy.deepcopy(raw), where="x") == raw


def places(raw: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """List every place in a JSON value."""
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


@each(
    ("status", "active"),
    [
        ("in_progress", True),
        ("paused", True),
        ("awaiting_feedback", True),
        ("pending", False),
        ("failed", False),
        ("completed", False),
        ("cancelled", False),
        ("invented", False),
    ],
)
def test_only_three_statuses_are_active(status: str, active: bool) -> None:
    """Completed and cancelled runs are never active (D4), and an unknown word is no activity."""
    assert state.is_active({"status": status}) is active
