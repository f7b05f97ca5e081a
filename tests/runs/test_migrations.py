"""Files of older schemas become today's by named steps, in order, and nothing is guessed (D56)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from loomctl.kit.errors import EXIT_INVALID, EXIT_SKEW, LoomError
from loomctl.runs.model import frozen_plan, migrations, state
from loomctl.runs.model.migrations import Step, migrated
from tests.helpers.tables import each

Value = dict[str, Any]

TABLE: migrations.Table = {
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
    """From any version that the table knows; what was done is named, and the version is the current one."""
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
        ({"schema_version": 0}, "no way from schema 0 to 1"),
        ({"schema_version": -(10**30)}, "no way from schema"),
        ({"schema_version": 1}, "'rename title to goal' failed: KeyError"),
        ({"schema_version": 1, "title": "a", "steps": 5}, "'count the steps' failed: TypeError"),
        ({"schema_version": 3, "goal": 5}, "'goal in capitals' failed: AttributeError"),
    ],
)
def test_what_cannot_be_migrated_is_said(raw: Value, said: str) -> None:
    """A version without a way and a step that meets something else are told in words, never half done."""
    with pytest.raises(ValueError, match=said):
        migrated(raw, 4, TABLE)


def test_no_schema_is_older_than_todays() -> None:
    """The first schema is the only one: nothing is pretended to have come before it."""
    assert (state.SCHEMA_VERSION, frozen_plan.SCHEMA_VERSION) == (1, 1)
    assert (migrations.STATE, migrations.PLAN) == ({}, {})


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_nobody_wrote_is_refused(version: int) -> None:
    """Without a way the file is bad, with its place, and not too new."""
    raw = {"schema_version": version}
    for accepted, code in ((state.accepted, "BAD_STATE"), (frozen_plan.accepted, "BAD_PLAN")):
        with pytest.raises(LoomError, match=code) as error:
            accepted(raw, where="x.json")
        assert (error.value.code, error.value.where) == (code, "x.json $.schema_version")
        assert error.value.exit_code == EXIT_INVALID
        assert "no way from schema" in error.value.why


def test_a_newer_schema_is_not_migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a later Loom wrote is refused with the exit code of a skew, whatever the tables say."""
    monkeypatch.setattr(migrations, "STATE", TABLE)
    monkeypatch.setattr(migrations, "PLAN", TABLE)
    for accepted in (state.accepted, frozen_plan.accepted):
        with pytest.raises(LoomError, match="SCHEMA_TOO_NEW") as error:
            accepted({"schema_version": 2}, where="x.json")
        assert error.value.exit_code == EXIT_SKEW
