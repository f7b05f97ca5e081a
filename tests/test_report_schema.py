"""The schema of a report says what `loomctl report --json` prints: each key of it, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from loomctl.runs.store.events import Event
from loomctl.workflows import check
from tests.helpers import reports
from tests.helpers.scenes import CHECKOUT, Json, Scene

SCHEMA = check.schema("report", bundle=str(CHECKOUT))


def fresh(scene: Scene) -> None:
    """A run that has just begun."""
    scene.workflow()
    scene.begin()


def rich(scene: Scene) -> None:
    """A run with everything that the rich one lacks, too."""
    reports.rich(scene)
    scene.edit(
        forked_from={"run_id": "a-run-1", "stage": "001-a.b@1", "at": "2026-03-01T10:00:00Z"},
        saved_from={"run_id": "a-run-1", "whose": "mine", "remote": "origin", "at": "2026-03-01T10:00:00Z"},
    )
    path = scene.run_dir / "events.jsonl"
    path.write_bytes(b"no entry\n" + path.read_bytes())


def keys(schema: Json, value: Any, where: str = "$") -> set[str]:
    """Give the places of every key that a document has, `[]` for the entries of a list; each must be in the schema."""
    found = set()
    named = schema.get("properties")
    if isinstance(value, dict) and named:
        assert set(value) <= set(named), where
        for key, inner in value.items():
            found |= {f"{where}.{key}"} | keys(named[key], inner, f"{where}.{key}")
    for inner in value if isinstance(value, list) else ():
        found |= keys(schema["items"], inner, f"{where}[]")
    return found


def places(schema: Json, where: str = "$") -> set[str]:
    """Give the places of every key that the schema has."""
    found = set()
    for key, inner in (schema.get("properties") or {}).items():
        found |= {f"{where}.{key}"} | places(inner, f"{where}.{key}")
    return found | (places(schema["items"], f"{where}[]") if "items" in schema else set())


@pytest.mark.slow(quick=2)
@pytest.mark.parametrize("make", [fresh, rich, reports.hostile])
@pytest.mark.parametrize("words", [[], ["-o", "report.html", "--with-files"]], ids=["alone", "with a page"])
def test_what_is_printed_is_what_the_schema_says(scene: Scene, make: Callable[[Scene], Any], words: list[str]) -> None:
    """A run that has just begun, a rich one, and one whose every text is hostile."""
    make(scene)
    document = scene.loomctl("report", "--json", *words).json
    assert list(Draft202012Validator(SCHEMA).iter_errors(document)) == []
    assert keys(SCHEMA, document)


@pytest.mark.slow
def test_the_schema_names_nothing_that_is_never_printed(scene: Scene) -> None:
    """Between them, the rich run and a damaged one have every key."""
    rich(scene)
    turn = Event("turn.ended", {"turn": 1, "cost": 0.5, "tokens": 9, "calls": 2, "killed": 1, "denials": ["Write a"]})
    scene.space().store.tell(scene.run_dir.name, lambda _: [turn])
    met = keys(SCHEMA, scene.loomctl("report", "--json", "-o", "report.html", "--with-files").json)
    approval = {"id": "a", "reason": "r", "requested_at": "2026-03-01T10:00:00Z", "choices": ["x"]}
    scene.edit(pending_approvals=[approval], lease={"session_id": "s", "hostname": "h", "since": "x", "epoch": 1})
    changes = next((scene.run_dir / "stages").glob("*/changes.json"))
    passed = [{"path": "a.webm", "bytes": 1, "reason": "it is a link"}]
    changes.write_text(json.dumps({**json.loads(changes.read_text()), "assets_passed_over": passed}))
    met |= keys(SCHEMA, scene.loomctl("report", "--json").json)
    assert sorted(places(SCHEMA) - met) == []


def test_nothing_else_passes(scene: Scene) -> None:
    """A key that is missing, and one of another type, are found."""
    fresh(scene)
    good = scene.loomctl("report", "--json").json
    for key in SCHEMA["required"]:
        for bad in ({name: value for name, value in good.items() if name != key}, {**good, key: 1.5}):
            assert not Draft202012Validator(SCHEMA).is_valid(bad), key
