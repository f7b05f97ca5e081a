"""A step's response is read as its kind and its schema ask for; a custom schema is asked in a child (D33 to D36)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from loomctl.expressions import engine
from loomctl.flow.outcomes import answers
from loomctl.flow.outcomes.directives import Reading
from loomctl.workflows.resolve import Resolved, resolve
from loomctl.workflows.workflow import build_plan
from loomctl.workflows.workflow_files import Places, with_schemas
from tests.helpers.tables import each

Json = dict[str, Any]
SUCCEEDED, FAILED, SKIPPED = (json.dumps({"outcome": word}) for word in ("succeeded", "failed", "skipped"))
SCHEMA: Json = {"type": "object", "required": ["score"], "properties": {"score": {"type": "number"}}}
BUNDLE = str(Path(__file__).resolve().parents[2])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SCHEMA_TOTAL_SECONDS", 60.0)


def custom(response: str, schema: Any = None, python: str | None = sys.executable) -> Reading:
    """Read a response of a step with a custom schema, with fallbacks that must not count."""
    step = {"kind": "agent", "output_schema": "@x.json", "schema": SCHEMA if schema is None else schema}
    return answers.understood(step, response, status_json=FAILED, last_file=FAILED, environment_python=python)


def codes(reading: Reading) -> list[tuple[str, str]]:
    return [(one.code, one.where) for one in reading.errors]


@each("schema", [None, "routing"])
@each(
    ("kind", "response", "status_json", "last_file", "source"),
    [
        ("agent", SUCCEEDED, FAILED, SKIPPED, "response"),
        ("agent", "done", FAILED, SKIPPED, "status.json"),
        ("agent", "done", None, SKIPPED, "last_file"),
        ("agent", "done", "", SKIPPED, "last_file"),
        ("agent", "done", None, None, None),
        ("prompt", "done", FAILED, SKIPPED, None),
        ("prompt", SUCCEEDED, FAILED, SKIPPED, "response"),
    ],
)
def test_an_agent_may_answer_in_a_file_and_a_prompt_may_not(
    kind: str, response: str, status_json: str | None, last_file: str | None, source: str | None, schema: str | None
) -> None:  # D35
    step = {"kind": kind, "output_schema": schema}
    reading = answers.understood(step, response, status_json=status_json, last_file=last_file)
    assert reading.source == source
    assert bool(reading.errors) == (source is None and schema == "routing")
    assert answers.is_absent(reading) == (source is None)


def test_a_bad_directive_ends_the_chain_under_the_schema() -> None:
    for response in ('{"outcome": 1}', '{"outcome": "succeeded",}'):
        step = {"kind": "agent", "output_schema": "routing"}
        reading = answers.understood(step, response, status_json=SUCCEEDED)
        assert (reading.source, len(reading.errors)) == ("response", 1)
        assert not answers.is_absent(reading)


@each(
    ("response", "output", "errors"),
    [
        ('Here: {"score": 3}', {"score": 3}, []),
        ('```json\n{"score": 3, "outcome": "failed", "preferred_next_label": "x"}\n```', None, []),
        ('{"score": "high"} no: {"score": 1}', {"score": 1}, []),
        ('{"score": "high"}', None, [("SCHEMA", "/score")]),
        ("{}", None, [("SCHEMA", "")]),
        ("[1, 2]", None, [("NO_OBJECT", "")]),
        ("no", None, [("NO_OBJECT", "")]),
        ('{"score": 3,}', None, [("MALFORMED_JSON", "")]),
        ('{"score": NaN}', None, [("MALFORMED_JSON", "")]),
        ('{"score": 1, "note": "\\ud800"}', {"score": 1, "note": "\ufffd"}, []),
    ],
)
def test_a_custom_schema_gets_the_final_object_of_the_response(
    response: str, output: Any, errors: list[tuple[str, str]]
) -> None:
    reading = custom(response)
    assert codes(reading) == errors
    assert (reading.outcome, reading.preferred_next_label, reading.suggested_next_ids) == (None, None, ())
    if output is not None or errors:
        assert reading.output == output
    else:
        assert reading.output["preferred_next_label"] == "x"
    assert reading.found == (errors != [("NO_OBJECT", "")])


@each("schema", [{"$ref": "#"}, {"type": "nothing"}, [], 1])
def test_a_schema_that_fails_in_itself_is_an_error_not_a_crash(schema: Any) -> None:
    assert codes(custom('{"score": 1}', schema)) == [("SCHEMA_FAILED", "")]


@pytest.mark.slow
def test_a_pattern_that_never_ends_is_stopped() -> None:
    reading = custom(json.dumps({"a": "a" * 60 + "!"}), {"properties": {"a": {"pattern": "^(a+)+$"}}})
    assert codes(reading) == [("SCHEMA_FAILED", "")]
    assert re.search(r"it took more than [25] s", reading.errors[0].message)


def test_nothing_is_fetched_for_a_schema() -> None:
    reading = custom('{"score": 1}', {"$ref": "http://127.0.0.1:9/x.json"})
    assert codes(reading) == [("SCHEMA_FAILED", "")]


def test_without_an_environment_nothing_is_taken_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_has", lambda _: False)
    reading = custom('{"score": 1}', python=None)
    assert (codes(reading), reading.output) == ([("NEEDS_ENVIRONMENT", "")], None)
    gone = custom('{"score": 1}', python="/nowhere/python")
    assert codes(gone) == [("NEEDS_ENVIRONMENT", "")]


# ---- Schemas frozen into a plan.


def write(tmp_path: Path, name: str, content: Any) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def resolved(tmp_path: Path, name: str) -> Resolved:
    return resolve(name, Places(str(tmp_path), str(tmp_path / ".loom"), BUNDLE))


def step(step_id: str, schema: str) -> Json:
    return {"id": step_id, "prompt": "Do it.", "output_schema": schema}


def test_a_plan_has_the_schemas_that_its_files_name(tmp_path: Path) -> None:
    """Each from the folder of the file that names it, an ancestor's too; later changes of the files change no plan."""
    write(
        tmp_path, "shared/base.json", {"id": "base", "phases": {"build": {"pre_steps": [step("a", "@schemas/x.json")]}}}
    )
    write(tmp_path, "shared/schemas/x.json", {"title": "base's"})
    child = {"steps": [step("b", "@schemas/x.json"), step("c", "routing")]}
    write(
        tmp_path, ".loom/workflows/w.json", {"id": "w", "extends": "../../shared/base.json", "phases": {"build": child}}
    )
    write(tmp_path, ".loom/workflows/schemas/x.json", {"title": "child's"})
    merged = resolved(tmp_path, "w").checked()
    plan = build_plan(merged, plan_id="p", created_at="2026-01-01T00:00:00Z", sources=[])
    steps = {one["id"]: one.get("schema") for one in plan["phases"][0]["steps"]}
    assert steps == {"a": {"title": "base's"}, "b": {"title": "child's"}, "c": None}


@each(
    ("schema", "code"),
    [
        (None, "UNKNOWN_SCHEMA"),
        ({"type": "objekt"}, "BAD_SCHEMA"),
        ({"$ref": "#"}, "BAD_SCHEMA"),
        ({"$ref": "https://example.com/x"}, "REMOTE_REF"),
    ],
)
def test_a_bad_schema_is_an_error_before_the_run_starts(tmp_path: Path, schema: Any, code: str) -> None:
    write(tmp_path, ".loom/workflows/w.json", {"id": "w", "phases": {"build": {"steps": [step("b", "@x.json")]}}})
    if schema is not None:
        write(tmp_path, ".loom/workflows/x.json", schema)
    given = resolved(tmp_path, "w")
    assert [(one.code, one.where) for one in given.problems] == [(code, "$.phases.build.steps[0].output_schema")]
    assert given.merged is None


@each("raw", [{}, {"phases": []}, {"phases": {"a": 1}}, {"phases": {"a": {"steps": {"b": 1}}}}])
def test_odd_workflows_are_left_to_their_own_checks(raw: Json) -> None:
    assert with_schemas(raw, "/w.json", []) == (raw, [])
    assert with_schemas({"phases": {"a": {"steps": [1, {"output_schema": 1}]}}}, "/w.json", [])[1] == []
