"""Custom schemas are loaded beside their workflow, checked before a run, and say what is wrong in few words (D35)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from loomctl.expressions.output_schemas import LARGEST, MOST_ERRORS, Loaded, is_reference, load, load_file, said_against
from tests.helpers.tables import each

Json = dict[str, Any]
GOOD: Json = {"type": "object", "required": ["score"], "properties": {"score": {"type": "number"}}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a project's folder with a place for workflows and schemas."""
    (tmp_path / "project/workflows/schemas").mkdir(parents=True)
    return tmp_path / "project"


def put(project: Path, text: str | bytes, name: str = "workflows/schemas/x.schema.json") -> Path:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def loaded(project: Path, reference: str = "@schemas/x.schema.json") -> Loaded:
    """Load as a step of the project's workflow names it."""
    return load(reference, str(project / "workflows/w.yaml"), [str(project)], "$.here")


def codes(given: Loaded) -> list[str]:
    """List the codes; each problem stands where the step names its schema."""
    assert all(one.where == "$.here" for one in given.problems)
    return [one.code for one in given.problems]


@each(
    "reference",
    [
        "@schemas/x.schema.json",
        "@./schemas/x.schema.json",
        "@../workflows/schemas/x.schema.json",
        "@ schemas/x.schema.json",
    ],
)
def test_a_schema_is_found_from_its_workflows_folder(project: Path, reference: str) -> None:
    put(project, json.dumps(GOOD))
    assert loaded(project, reference) == Loaded(GOOD, [])


@each(("said", "is_one"), [("@x", True), ("@", True), ("routing", False), (None, False), (1, False)])
def test_a_reference_begins_with_an_at_sign(said: object, is_one: bool) -> None:
    """Everything else is another thing's to judge."""
    assert is_reference(said) is is_one


def test_nothing_outside_of_the_roots_is_read(project: Path, tmp_path: Path) -> None:
    """Neither upward, nor by an absolute path, nor through links to files or folders (D10)."""
    outside = put(tmp_path, json.dumps(GOOD), "outside/x.json")
    (project / "workflows/link.json").symlink_to(outside)
    (project / "workflows/folder").symlink_to(outside.parent)
    for reference in ("@../../outside/x.json", f"@{outside}", "@link.json", "@folder/x.json"):
        assert codes(loaded(project, reference)) == ["PATH_ESCAPE"], reference
    inside = put(project, json.dumps(GOOD))
    (project / "workflows/near.json").symlink_to(inside)
    assert loaded(project, "@near.json").schema == GOOD


@each("reference", ["@", "@ ", "@schemas/none.json", "@schemas", "@a\0b", "@" + "x" * 5_000])
def test_a_name_without_a_file_is_a_problem(project: Path, reference: str) -> None:
    given = loaded(project, reference)
    assert given.schema is None
    assert codes(given) == ["UNKNOWN_SCHEMA"]


def test_a_pipe_in_a_schemas_place_holds_nobody(project: Path) -> None:
    os.mkfifo(project / "workflows/schemas/x.schema.json")
    assert codes(loaded(project)) == ["UNKNOWN_SCHEMA"]


@each(
    ("text", "code"),
    [
        ("", "JSON_SYNTAX"), ("{'type': 'object'}", "JSON_SYNTAX"), ('{"type": "object",}', "JSON_SYNTAX"),
        (b'{"title": "\xff"}', "NOT_UTF8"), ("[" * 100_000, "TOO_DEEP"),
        ('{"const": "' + "x" * LARGEST + '"}', "TOO_LARGE"), ("[]", "BAD_SCHEMA"), ("true", "BAD_SCHEMA"),
        ('"routing"', "BAD_SCHEMA"), ('{"type": "objekt"}', "BAD_SCHEMA"),
        ('{"required": "score"}', "BAD_SCHEMA"), ('{"properties": {"a": {"minimum": "1"}}}', "BAD_SCHEMA"),
        ('{"properties": {"a": 1}}', "BAD_SCHEMA"), ('{"pattern": "("}', "BAD_SCHEMA"),
        ('{"properties": {"a": {"pattern": "(?<x"}}}', "BAD_SCHEMA"),
        ('{"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": 1}', "BAD_SCHEMA"),
        ('{"$schema": "https://example.com/mine"}', "UNKNOWN_DRAFT"), ('{"$schema": 1}', "UNKNOWN_DRAFT"),
        ('{"$ref": "https://example.com/x.json"}', "REMOTE_REF"),
        ('{"properties": {"a": {"$ref": "other.json#/$defs/a"}}}', "REMOTE_REF"),
        ('{"allOf": [{"$ref": "file:///etc/passwd"}]}', "REMOTE_REF"),
        ('{"$defs": {"a": {"$dynamicRef": "http://example.com#x"}}}', "REMOTE_REF"),
        ('{"$ref": "#/$defs/none"}', "UNKNOWN_REF"), ('{"$ref": "#none"}', "UNKNOWN_REF"),
        ('{"$ref": "#/$defs/a/0", "$defs": {"a": {}}}', "UNKNOWN_REF"), ('{"$ref": "#"}', "BAD_SCHEMA"),
        ('{"properties": {"a": {"$ref": "#/properties/a"}}}', "BAD_SCHEMA"),
        ('{"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"allOf": [{}, {"$ref": "#/$defs/x"}]}}}', "BAD_SCHEMA"),
    ],
)  # fmt: skip
def test_a_bad_schema_is_a_problem_before_the_run(project: Path, text: str | bytes, code: str) -> None:
    put(project, text)
    given = loaded(project)
    assert given.schema is None
    assert code in codes(given)
    assert all("x.schema.json" in one.message and len(one.message) < 500 for one in given.problems)


@each(
    "schema",
    [
        {},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}, "$ref": "#/definitions/a"},
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
        {"$schema": "https://json-schema.org/draft/2019-09/schema"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {}}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"properties": {"child": {"$ref": "#"}}},
        {
            "allOf": [{"properties": {"child": {"$ref": "#"}}}, {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}],
            "$defs": {"a": {}},
        },
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"allOf": [{"$ref": "#/$defs/a"}]}}}},
        {"properties": {"$ref": {"type": "string"}}},
        {"const": {"$ref": "https://example.com"}},
        {"default": {"$ref": "https://example.com"}, "examples": [{"$ref": "x.json"}]},
        {"$defs": {"$ref": {"type": "string"}}},
        {"type": ["object", "null"]},
    ],
)
def test_a_good_schema_is_taken_as_it_is(project: Path, schema: Json) -> None:
    put(project, json.dumps(schema))
    assert loaded(project) == Loaded(schema, [])


def test_a_schema_that_no_object_can_match_is_warned_of(project: Path) -> None:
    put(project, '{"type": "array"}')
    assert (codes(loaded(project)), loaded(project).schema) == (["NEVER_MATCHES"], {"type": "array"})


def test_a_file_that_a_user_names_may_lie_anywhere(tmp_path: Path) -> None:
    assert load_file(str(put(tmp_path, json.dumps(GOOD), "any.json"))).schema == GOOD


LONG = "x" * 10_000


@each(
    ("schema", "value", "expected"),
    [
        (GOOD, {"score": 1}, []),
        (GOOD, {}, [("", "the key 'score' is missing")]),
        (GOOD, {"score": "high"}, [("/score", "expected a number, got 'high'")]),
        (GOOD, {"score": None}, [("/score", "expected a number, got null")]),
        ({"type": "object"}, [1, 2], [("", "expected an object, got a list")]),
        ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": 1.5},
         [("/a", "expected a whole number or null, got 1.5")]),
        ({"properties": {"a": {"enum": ["x", 1]}}}, {"a": "y"}, [("/a", "'y' is not one of: \"x\", 1")]),
        ({"properties": {"a": {"const": True}}}, {"a": False}, [("/a", "false is not true")]),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"a": 1, "b": 2},
         [("", "unexpected keys: 'b'")]),
        ({"properties": {"a": {"pattern": "^x$"}}}, {"a": "y"}, [("/a", "'y' does not match the pattern ^x$")]),
        ({"properties": {"a": {"minimum": 5}}}, {"a": 4}, [("/a", "4 breaks minimum: 5")]),
        ({"properties": {"a": {"minItems": 1}}}, {"a": []}, [("/a", "a list breaks minItems: 1")]),
        ({"properties": {"a/b": {"items": {"type": "string"}}}}, {"a/b": ["x", 1]},
         [("/a~1b/1", "expected text, got 1")]),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {},
         [("", 'an object breaks anyOf: [{"required": ["a"]}, {"required": ["b"]}]')]),
        ({"not": {}}, {}, [("", "an object breaks not: {}")]),
        ({"properties": {"a": False}}, {"a": 1}, [("", "1 is not allowed here")]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_few_words_with_its_place(schema: Json, value: Any, expected: list[Any]) -> None:
    """JSON Pointers, our own words for the usual rules, the rule's name for others."""
    assert said_against(value, schema) == expected


def test_five_are_told_the_nearest_to_the_top_first_none_is_long_and_secrets_are_masked() -> None:
    item: Json = {"type": "object", "required": [LONG, "b"], "properties": {"c": {"enum": [LONG, 1]}}}
    schema: Json = {"required": ["top"], "properties": {"a": {"items": item}, LONG: {"pattern": LONG}}}
    value = {"a": [{"c": LONG}] * 500, LONG: LONG}
    told = said_against(value, schema)
    assert (len(told), told[0]) == (MOST_ERRORS, ("", "the key 'top' is missing"))
    assert all(len(where) <= 200 and len(message) <= 400 for where, message in told)
    secret = "ghp_" + "a1B2" * 9
    ((_, message),) = said_against({"a": secret}, {"properties": {"a": {"type": "number"}}})
    assert secret not in message


@each(
    ("draft", "wrong"),
    [("http://json-schema.org/draft-04/schema#", True), ("http://json-schema.org/draft-07/schema#", False)],
)
def test_the_draft_says_what_a_word_means(draft: str, wrong: bool) -> None:
    assert (said_against({"a": 1}, {"$schema": draft, "properties": {"a": {"const": 2}}}) == []) is wrong
