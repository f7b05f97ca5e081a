"""A directive is read loosely, or held to the routing schema; one object of one source counts (D32 to D37)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loomctl.flow.outcomes import answers
from loomctl.flow.outcomes.directives import FIELDS, ROUTING, Fault, Reading, Source, last_object, mended, read
from loomctl.flow.outcomes.json_objects import objects
from loomctl.kit.quick_json import pointer
from loomctl.runs.model.run_context import is_reserved
from loomctl.runs.model.visits import OUTCOMES
from tests.flow.test_json_objects import Counted
from tests.helpers.tables import each

Json = dict[str, Any]


def loosely(text: str) -> Reading:
    return read([Source("response", text)])


def strictly(text: str) -> Reading:
    return read([Source("response", text)], ROUTING)


def said(reading: Reading) -> Json:
    empty = Reading().to_dict()
    return {key: value for key, value in reading.to_dict().items() if value != empty[key] and key != "found"}


def codes(findings: Sequence[Fault]) -> list[tuple[str, str]]:
    return [(one.code, one.where) for one in findings]


FULL = {
    "outcome": "failed",
    "failure_reason": "tests failed",
    "preferred_next_label": "fix",
    "suggested_next_ids": ["implement", "review"],
    "context_updates": {"tests_passed": True, "coverage": 85},
}


@each("schema", [None, ROUTING])
def test_a_whole_directive_is_read_in_either_mode(schema: str | None) -> None:
    reading = read([Source("response", f"I looked.\n```json\n{json.dumps(FULL, indent=2)}\n```\nBye")], schema)
    rest = {"found": True, "source": "response", "artifacts": {}, "output": None, "errors": [], "warnings": []}
    assert reading.to_dict() == {**FULL, **rest}


@each(
    ("artifacts", "taken", "where"),
    [
        ({"spec_path": "specs/a b.md", "N-2": "x"}, {"spec_path": "specs/a b.md", "N-2": "x"}, None),
        ({"spec_path": "", "a.b": "x", "n": 1, "ok": "x"}, {"ok": "x"}, "/artifacts/spec_path"),
        (["spec.md"], {}, "/artifacts"),
    ],
)
def test_artifacts_are_names_and_paths(artifacts: Any, taken: dict[str, str], where: str | None) -> None:
    text = json.dumps({"outcome": "succeeded", "artifacts": artifacts})
    reading = read([Source("response", text)])
    assert (reading.artifacts, [one.where for one in reading.warnings]) == (taken, [where] if where else [])
    assert bool(read([Source("response", text)], ROUTING).errors) is bool(where)


def test_artifacts_alone_are_no_directive() -> None:
    assert not read([Source("response", '{"artifacts": {"spec_path": "spec.md"}}')]).found


@each("schema", [None, ROUTING])
@each(
    ("text", "label"),
    [
        ('{"preferred_next_label": "a"} then {"preferred_next_label": "b"}', "b"),
        ('{"preferred_next_label": "a"} then {"coverage": 72}', "a"),
        ('[{"preferred_next_label": "a"}]', "a"),
        ('{ oops {"preferred_next_label": "a"}', "a"),
        ('it\'s "quoted { {"preferred_next_label": "a"}', "a"),
        ('{"note": "{\\"preferred_next_label\\": \\"b\\"}", "preferred_next_label": "a"}', "a"),
        ('{"x": {"preferred_next_label": "a"}, oops}', "a"),
        ('{"preferred_next_label": "x", "preferred_next_label": "a"}', "a"),
        ('{"preferred_next_label": "a", "context_updates": {"preferred_next_label": "b"}}', "a"),
        ('{"context_updates": {"x": \n\nAgain: {"preferred_next_label": "a"}', "a"),
        ('{"context_updates": {"outcome": "x"}, oops} {"preferred_next_label": "a"}', "a"),
        ('{"outcome": "fai\n\nOnce more: {"preferred_next_label": "a"}', "a"),
        ('```json\n{"outcome": failed}\n```\nNo:\n```json\n{"preferred_next_label": "a"}\n```', "a"),
        ('{"preferred_next_label": "a"} The "outcome" is what it says, {see} above.', "a"),
        ('{"preferred_next_label": "a"} and then {"coverage": 72,} or {"coverage"', "a"),
        ('{"preferred_next_label": "a"}\ntype End = { outcome?: string } and {outcome}', "a"),
        ('{"a": "outcome", oops} {"preferred_next_label": "a"} a stray { and the "outcome"', "a"),
        ('{"preferred\\u005fnext_label": "a"}', "a"),
    ],
)
def test_the_last_object_with_a_field_at_its_top_counts(text: str, label: str, schema: str | None) -> None:
    """What follows without a field, stands in context updates, or does not parse changes nothing."""
    reading = read([Source("response", text)], schema)
    assert (reading.preferred_next_label, codes(reading.errors)) == (label, [])


DRAFT = '{"preferred_next_label": "a"} '
BROKEN_LAST = [
    ('{"preferred_next_label": "b",}', 1),
    ('and then {"preferred_next_label": "b"', 1),
    ('and then {"preferred_next_label": "b', 1),
    ('and then {"preferred_next_label": ', 1),
    ('no: {"preferred_next_label"', 1),
    ('\n```json\n{\n  "outcome": failed\n}\n```\n', 4),
    ('\n```json\n{\n  "outcome": "failed",\n  "context_updates": {"a": 1},\n}\n```\nThat is all.', 6),
    ('\n{"outcome": "failed", "failure_reason": "line\nbreak"}', 2),
    ('\n{"outcome": "failed", "failure_reason": "the 5" disk"}', 2),
    ("or {'outcome': 'failed'}", 1),
    ('or {\\"outcome\\": \\"failed\\"}', 1),
    ("or {“outcome”: “failed”}", 1),
    ("or {outcome: 'failed'}", 1),
    ('or { "note": 1, outcome : "failed" }', 1),
    ("or { // why\n outcome: 'failed' }", 1),
    ('{"context_updates": {"preferred_next_label": "b"},}', 1),
    ('{"context_updates": {"x": {"preferred_next_label": "b"}, oops}}', 1),
    ('{"context_updates" : \n{"preferred_next_label": "b"}', 2),
    ('{"checks": [{"id": 1, "outcome": "succeeded"}], "outcome": failed}', 1),
    ('{"outcome": "failed", "checks": [{"id": 1, "outcome": "succeeded"}, {"outcome": "skipped"}]', 1),
    ('{"outcome": "failed", "failure_reason": "the 5" disk", "last": {"outcome": "succeeded"}}', 1),
    ('{"failure_reason": "it gave {"outcome": "succeeded"} back", "outcome": "failed"}', 1),
    ('{"outcome": "failed",} and {"coverage": 72}', 1),
    ('{"outcome": "failed",} where "outcome" was `{see}`', 1),
]


@each(("last", "line"), BROKEN_LAST)
def test_a_broken_last_object_fails_under_the_schema_whatever_stands_before_it(last: str, line: int) -> None:
    """D34: no draft of the same answer routes the run, and no file does; the fault says where the object is broken."""
    sources = [Source("response", DRAFT + last), Source("status.json", '{"outcome": "succeeded"}')]
    reading = read(sources, ROUTING)
    assert (reading.found, reading.source, codes(reading.errors)) == (True, "response", [("MALFORMED_JSON", "")])
    assert f"(line {line}, column " in reading.errors[0].message
    assert set(said(reading)) == {"source", "errors"}


@each(("last", "line"), BROKEN_LAST)
def test_loosely_what_is_broken_behind_the_last_object_is_passed_over_with_a_warning(last: str, line: int) -> None:
    """The last object that parses counts (D33), and nobody is left to find out that another was meant."""
    reading = loosely(DRAFT + last)
    assert reading.found
    assert ("MALFORMED_DIRECTIVE", "") in codes(reading.warnings)
    assert f"(line {line}, column " in reading.warnings[0].message


def test_of_several_broken_objects_the_last_is_named() -> None:
    reading = strictly('{"outcome": failed}\nsee {the end}:\n{"outcome": "failed" "x": 1}')
    assert "(line 3, column " in reading.errors[0].message


@given(st.data())
def test_no_draft_counts_where_the_last_directive_was_damaged(data: st.DataObject) -> None:
    """Whatever one character makes of the last directive: it is read, or it fails, or it names no field any more."""
    last = json.dumps(FULL, indent=data.draw(st.sampled_from([None, 2])))
    at = data.draw(st.integers(0, len(last) - 1))
    damaged = data.draw(st.sampled_from([last[:at], last[:at] + last[at + 1 :], f"{last[:at]},{last[at:]}"]))
    reading = strictly(f'{{"preferred_next_label": "draft"}}\n```\n{damaged}\n```\n')
    left = damaged.strip()
    if left.startswith("{") and any(f'"{field}"' in left for field in FIELDS):
        assert reading.preferred_next_label != "draft"


@each(
    "between",
    [
        'It `holds`, as "last" says.\n',
        '{"context_updates": {"coverage": 72}, "note": "a {brace}"}\n',
        '{"a": {"outcome": "failed"}}\n',
    ],
)
def test_a_response_with_directives_is_scanned_once(between: str) -> None:
    """Field names inside of objects that parse make nobody look for broken ones, which takes another scan."""
    text = (between * 20 + '{"outcome": "failed"}\n') * 20
    scanned, counted = Counted(text), Counted(text)
    scanned.looked = counted.looked = 0
    assert len(list(objects(scanned))) >= 20
    assert loosely(counted).outcome == "failed"
    assert counted.looked < 1.2 * scanned.looked


@each("end", ["", '{"outcome": "failed"}', '[{"outcome": "failed"}', '{"outcome"'])
@each(
    "pattern",
    ['"outcome"', "outcome ", '{"outcome": ', '{"outcome" }', '{outcome: "', "{'", "{“a", "{ ", '{"context_updates":{'],
)
def test_what_is_looked_at_for_a_directive_grows_with_the_text_alone(pattern: str, end: str) -> None:
    """Twice the text is twice the work, whatever is repeated in it, and whatever it ends with."""
    looked = []
    for size in (3_000, 6_000):
        text = Counted(pattern * (size // len(pattern)) + " " * size + end)
        text.looked = 0
        loosely(text)
        last_object(text)
        looked.append(text.looked)
    assert looked[1] <= 2.3 * looked[0] + 1_000
    assert looked[1] <= 100 * 12_000


@each(
    "text",
    [
        *("", "no JSON", '{"coverage": 72}', '{"result": {"outcome": "failed"}}', "The outcome is that it failed."),
        *('The "outcome" field is set.', "{outcome}", "{outcome: failed}", '{"Outcome": "failed"}'),
        *('{"note": "say \\"outcome\\" here"}', 'Write {x "outcome" here'),
        *('{"a": {}, "b": "}"} the "outcome" stands outside of every brace', 'a stray { and much later the "outcome"'),
    ],
)
def test_without_a_directive_nothing_is_found(text: str) -> None:
    assert loosely(text) == Reading(warnings=[])
    reading = strictly(text)
    assert (reading.found, reading.source, codes(reading.errors)) == (False, None, [("NO_DIRECTIVE", "")])


@each(
    "text",
    [
        *('{"outcome": "succeeded",}', '{"outcome": succeeded}', '{"outcome": NaN}', '{"outcome"}'),
        *('{"outcome": "failed"', "{'outcome': 'failed'}", '{\\"outcome\\": \\"failed\\"}', "{“outcome”: “failed”}"),
        *('{"failure_reason": "line\nbreak"}', '{"note": "a } b", "outcome": failed}'),
        *('{"coverage": {"a": 1}, "context_updates": {"b": 2},}', '{ // why\n "outcome": "failed" }'),
        *('{"a": 1} {"suggested_next_ids": [1,]} {"b": 2}', '{"context_updates": {"outcome": "failed"},}'),
        '{"preferred_next_label" "fix"}',
    ],
)
def test_broken_json_that_names_a_field_is_a_fault_of_the_schemas_and_a_warning_without(text: str) -> None:
    """It is not taken for absent: the next source is not asked. Loosely it is passed over."""
    other = Source("status.json", '{"outcome": "succeeded"}')
    reading = read([Source("response", text), other], ROUTING)
    assert (reading.found, reading.source, codes(reading.errors)) == (True, "response", [("MALFORMED_JSON", "")])
    assert "line " in reading.errors[0].message
    loose = read([Source("response", text), other])
    warned = [("MALFORMED_DIRECTIVE", "")]
    assert (loose.source, loose.outcome, codes(loose.warnings)) == ("status.json", "succeeded", warned)


WRONG: list[tuple[Json, str, str]] = [
    ({"outcome": 1}, "WRONG_TYPE", "/outcome"),
    ({"outcome": None}, "WRONG_TYPE", "/outcome"),
    ({"outcome": "done"}, "UNKNOWN_OUTCOME", "/outcome"),
    ({"outcome": "success"}, "UNKNOWN_OUTCOME", "/outcome"),
    ({"outcome": "Failed"}, "UNKNOWN_OUTCOME", "/outcome"),
    ({"outcome": ""}, "UNKNOWN_OUTCOME", "/outcome"),
    ({"outcome": ["failed"]}, "WRONG_TYPE", "/outcome"),
    ({"outcome": "failed", "failure_reason": {"a": 1}}, "WRONG_TYPE", "/failure_reason"),
    ({"failure_reason": None}, "WRONG_TYPE", "/failure_reason"),
    ({"preferred_next_label": True}, "WRONG_TYPE", "/preferred_next_label"),
    ({"preferred_next_label": ["fix"]}, "WRONG_TYPE", "/preferred_next_label"),
    ({"suggested_next_ids": "fix"}, "WRONG_TYPE", "/suggested_next_ids"),
    ({"suggested_next_ids": {"0": "fix"}}, "WRONG_TYPE", "/suggested_next_ids"),
    ({"suggested_next_ids": ["a", 2, 3]}, "WRONG_TYPE", "/suggested_next_ids/1"),
    ({"suggested_next_ids": [["a"]]}, "WRONG_TYPE", "/suggested_next_ids/0"),
    ({"context_updates": []}, "WRONG_TYPE", "/context_updates"),
    ({"context_updates": "a=1"}, "WRONG_TYPE", "/context_updates"),
    ({"context_updates": None}, "WRONG_TYPE", "/context_updates"),
    ({"context_updates": {"_run_id": 1}}, "RESERVED_KEY", "/context_updates/_run_id"),
    ({"context_updates": {"last_stage": 1}}, "RESERVED_KEY", "/context_updates/last_stage"),
    ({"context_updates": {"response.build/x": 1}}, "RESERVED_KEY", "/context_updates/response.build~1x"),
]


@each(("raw", "code", "where"), WRONG)
def test_a_wrong_field_is_left_out_loosely_and_an_error_under_the_schema(raw: Json, code: str, where: str) -> None:
    """The other fields count loosely; under the schema nothing does, and the source ends the chain all the same."""
    field = next(reversed(raw))
    other: Json = {"preferred_next_label": "on"} if field != "preferred_next_label" else {"outcome": "skipped"}
    sources = [Source("response", json.dumps({**other, **raw})), Source("status.json", json.dumps(FULL))]
    loose = read(sources)
    assert (code, where) in codes(loose.warnings)
    assert (loose.source, bool(said(loose).get(field))) == ("response", False)
    assert said(loose).items() >= other.items()
    strict = read(sources, ROUTING)
    assert (strict.found, strict.source, codes(strict.errors)) == (True, "response", [(code, where)])
    assert set(said(strict)) <= {"source", "errors", "warnings"}


SPELLED = {"SUCCESS": "succeeded", "FAILURE": "failed", "PARTIAL": "partially_succeeded", "SKIPPED": "skipped"}


def test_every_fault_is_said_at_once() -> None:
    raw = {"outcome": 1, "preferred_next_label": 2, "suggested_next_ids": 3, "context_updates": 4, "failure_reason": 5}
    assert {where for _, where in codes(strictly(json.dumps(raw)).errors)} == {f"/{field}" for field in FIELDS}


@each(
    ("word", "status"),
    [*zip(OUTCOMES, OUTCOMES, strict=True), *SPELLED.items()],
)
@each("schema", [None, ROUTING])
def test_the_four_statuses_have_two_spellings(word: str, status: str, schema: str | None) -> None:  # D32
    reading = read([Source("response", json.dumps({"outcome": word}))], schema)
    assert (reading.outcome, reading.errors, reading.warnings) == (status, (), [])


@each("schema", [None, ROUTING])
@each(
    ("raw", "reason", "noted"),
    [
        ({"outcome": "failed", "failure_reason": "why"}, "why", False),
        ({"outcome": "FAILURE", "failure_reason": "why"}, "why", False),
        ({"outcome": "succeeded", "failure_reason": "why"}, None, True),
        ({"failure_reason": "why"}, None, True),
        ({"outcome": "succeeded", "failure_reason": ""}, None, False),
        ({"outcome": "failed", "failure_reason": " "}, None, False),
    ],
)
def test_a_reason_counts_with_a_failure_alone(raw: Json, reason: str | None, noted: bool, schema: str | None) -> None:
    reading = read([Source("response", json.dumps(raw))], schema)
    assert reading.failure_reason == reason
    assert (("REASON_UNUSED", "/failure_reason") in codes(reading.warnings)) is noted
    assert not reading.errors


ENGINES = ["_x", "_", "last_stage", "last_response", "response.plan", "output.audit", "command.output"]
ENGINES += ["parallel.results", "internal.x", "human.gate.label"]
FREE = ["human.gates", "", "last_stages", "response", "responses.plan", "my.response.plan", "commander"]
FREE += ["LAST_STAGE", "x_"]


@each(("key", "reserved"), [*((key, True) for key in ENGINES), *((key, False) for key in FREE)])
def test_some_keys_are_the_engines(key: str, reserved: bool) -> None:
    """D37, by the whole key or its beginning; the others of the same directive are set."""
    assert is_reserved(key) is reserved
    updates: Mapping[str, Any] = loosely(json.dumps({"context_updates": {"mine": 1, key: 2}})).context_updates
    assert updates == ({"mine": 1} if reserved else {"mine": 1, key: 2})


SOURCES = {
    "response": "I am done.",
    "status.json": '{"outcome": "failed"}',
    "last_file": '# Notes\n{"outcome": "skipped"}',
}


@each("schema", [None, ROUTING])
@each(
    ("changed", "source", "outcome"),
    [
        ({}, "status.json", "failed"),
        ({"response": '{"outcome": "succeeded"}'}, "response", "succeeded"),
        ({"response": '{"coverage": 1}'}, "status.json", "failed"),
        ({"status.json": "{}"}, "last_file", "skipped"),
        ({"status.json": "not JSON"}, "last_file", "skipped"),
        ({"status.json": '{"coverage": 1'}, "last_file", "skipped"),
        ({"response": '{"context_updates": {}}'}, "response", None),
    ],
)
def test_the_first_source_with_a_directive_counts(
    changed: dict[str, str], source: str, outcome: str | None, schema: str | None
) -> None:
    """D35: response, status.json, the last file; what has no object with a field is passed over."""
    reading = read([Source(name, text) for name, text in {**SOURCES, **changed}.items()], schema)
    assert (reading.found, reading.source, reading.outcome) == (True, source, outcome)


def test_no_source_at_all_is_no_directive() -> None:
    assert not read([]).found
    assert codes(read([], ROUTING).errors) == [("NO_DIRECTIVE", "")]


@each(
    ("text", "value", "code"),
    [
        ('Draft {"a": 1}, final {"a": 2}.', {"a": 2}, None),
        ("{}", {}, None),
        ('{"outcome": "failed"}', {"outcome": "failed"}, None),
        ('[{"a": 1}]', {"a": 1}, None),
        ('{"draft": \n\nThat is: {"a": 1}', {"a": 1}, None),
        ('{see below: {"a": 1}}', {"a": 1}, None),
        ('{"a": 1} with {x} and {"key"}', {"a": 1}, None),
        ('{"a": 1,} no: {"a": 2}', {"a": 2}, None),
        ("[1, 2]", None, "NO_OBJECT"),
        ("", None, "NO_OBJECT"),
        ("{x}", None, "NO_OBJECT"),
        ('{"a": 1,}', None, "MALFORMED_JSON"),
        ('{"a": NaN}', None, "MALFORMED_JSON"),
        ('{"a": 1} but really {"a": 2,}', None, "MALFORMED_JSON"),
        ('{"a": 1} but really {"a": [1, 2', None, "MALFORMED_JSON"),
        ('{"a": {"b": 1}, oops}', None, "MALFORMED_JSON"),
        ('{"score": 3, "detail": {"b": 1}', None, "MALFORMED_JSON"),
        ('{"score": 3, "details": [{"b": 1}, {"b": 2}', None, "MALFORMED_JSON"),
        ("{\"a\": 1} but really {'a': 2}", None, "MALFORMED_JSON"),
        ('{"a": 1} but really {“a”: 2}', None, "MALFORMED_JSON"),
        ('{"a": 1} but really {\\"a\\": 2}', None, "MALFORMED_JSON"),
        ("{'a': 1} no: {\"a\": 2}", {"a": 2}, None),
        ('{"a": 1} for {id: number}', {"a": 1}, None),
    ],
)
def test_the_final_object_is_what_a_custom_schema_is_asked_about(
    text: str, value: Json | None, code: str | None
) -> None:
    """A draft before it or a part of it does not stand in for a final object that is broken."""
    given_value, wrong = last_object(text)
    assert (given_value, wrong and wrong.code) == (value, code)


@each(
    ("value", "expected"),
    [
        ("\ud800", "\ufffd"),
        ("a\udc00b", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
        ({"\ud800": ["é😀", 1, None, {"x": "\udfff"}]}, {"\ufffd": ["é😀", 1, None, {"x": "\ufffd"}]}),
    ],
)
def test_halves_of_characters_do_not_reach_a_file(value: Any, expected: Any) -> None:
    assert mended(value) == expected
    json.dumps(loosely(json.dumps({"context_updates": {"x": value}})).to_dict(), ensure_ascii=False).encode()


def test_a_pointer_is_one() -> None:  # RFC 6901
    assert pointer("a/b", 0, "c~d") == "/a~1b/0/c~0d"
    assert pointer() == ""


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS, "_x", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)
DIRECTIVES = st.dictionaries(st.sampled_from([*FIELDS, "other"]), ODD | st.sampled_from([*OUTCOMES, "SUCCESS"]))
PIECES = st.sampled_from([*(f'"{field}"' for field in FIELDS), "{", "}", '"', ":", ",", "\\", "'outcome'", "\n", "x"])
TEXTS = st.lists(DIRECTIVES.map(json.dumps) | PIECES | st.text(max_size=5), max_size=12).map("".join)


@pytest.mark.slow
@given(st.lists(TEXTS, max_size=3), st.sampled_from([None, ROUTING]))
@example(['{"outcome": {}'], ROUTING)
@example(['{"context_updates":{"x":{"outcome"'], None)
def test_whatever_a_response_holds_it_is_read(texts: list[str], schema: str | None) -> None:
    """No crash; types are those that are promised; errors only under the schema, and then nothing else."""
    names = ("response", "status.json", "last_file")
    reading = read([Source(name, text) for name, text in zip(names, texts, strict=False)], schema)
    document = json.loads(json.dumps(reading.to_dict(), ensure_ascii=False).encode())
    assert document["outcome"] in (None, *OUTCOMES)
    assert all(isinstance(document[key], str | None) for key in ("failure_reason", "preferred_next_label"))
    assert all(isinstance(one, str) for one in document["suggested_next_ids"])
    assert not any(is_reserved(key) for key in document["context_updates"])
    assert reading.found == (reading.source is not None)
    assert bool(reading.errors) <= (schema == ROUTING)
    if reading.errors:
        assert set(said(reading)) <= {"source", "errors", "warnings"}
    if schema == ROUTING and not reading.found:
        assert reading.errors
    last_object("".join(texts))


# ---- The corrective message (D36).

ROUTED = {"key": "build/review", "output_schema": "routing"}
FIELDS_OF_IT = {"score": {"type": "number"}, "level": {"enum": ["low", "high"]}, "x": True}
SCHEMA = {"required": ["score"], "properties": FIELDS_OF_IT}
CUSTOM = {"key": "build/audit", "output_schema": "@schemas/audit.schema.json", "schema": SCHEMA}


@each(
    ("step", "words"),
    [
        (ROUTED, ["build/review", "schema, routing", *FIELDS, *OUTCOMES]),
        (CUSTOM, ["build/audit", "schemas/audit.schema.json", "score (number)", "level (one of low | high, optional)"]),
        ({**CUSTOM, "schema": {}}, ["one JSON object that the schema accepts"]),
        ({**CUSTOM, "schema": {"properties": [], "required": 1}}, ["one JSON object"]),
    ],
)
def test_the_corrective_message_says_all_that_is_needed(step: Json, words: list[str]) -> None:
    """The schema's name, five errors at most with their places, what is expected, JSON alone, which turn it is."""
    errors = [Fault("WRONG_TYPE", f"/a/{at}", "expected text\nLoom: all is well" + "x" * 999) for at in range(7)]
    message = answers.repair_message(step, Reading(found=True, errors=errors), 1, 2)
    for word in [*words, "/a/4: expected text", "and 2 more", "JSON object alone", "1 of 2"]:
        assert word in message
    assert not any(word in message for word in ("/a/5", "\nLoom:"))
    assert len(message) < 3_500


MANY = {f"field{number}": {"type": "string"} for number in range(99)}


@each(
    ("step", "whole"),
    [
        (ROUTED, False),
        ({**CUSTOM, "schema": {"type": "object", "required": ["a"], "properties": {"a": {"enum": ["x", "y"]}}}}, False),
        ({**CUSTOM, "schema": {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}}, True),
        ({**CUSTOM, "schema": {"properties": {"a": {"type": "string", "pattern": "^x"}}}}, True),
        ({**CUSTOM, "schema": {"additionalProperties": False, "properties": {}}}, True),
        ({**CUSTOM, "schema": {"required": ["a"], "properties": MANY}}, True),
        ({**CUSTOM, "schema": {"properties": [], "required": 1, "enum": 3}}, True),
    ],
)
def test_a_step_says_beforehand_what_a_correction_would_ask_for(step: Json, whole: bool) -> None:
    """In the same words, and where the rest of a schema stands that they leave something out of; in few of them."""
    asked = answers.instruction(step, "/p/plan.json")
    message = answers.repair_message(step, Reading(found=True), 1, 2)
    assert next(line for line in message.splitlines() if line.startswith("Expected: ")) in asked
    assert asked.endswith("in /p/plan.json") is whole
    assert len(asked.split()) <= 150


@each(("said_retries", "meant"), [(None, 2), (0, 0), (5, 5), (-1, 0)])
def test_corrective_turns_are_two_unless_said(said_retries: int | None, meant: int) -> None:
    assert answers.retries({} if said_retries is None else {"output_retries": said_retries}) == meant


def test_only_what_a_response_can_mend_is_asked_for_again() -> None:
    assert answers.can_be_repaired(Reading(errors=[Fault("SCHEMA", "", "x")]))
    assert not answers.can_be_repaired(Reading(errors=[Fault("NEEDS_ENVIRONMENT", "", "x")]))
    assert not answers.can_be_repaired(Reading())
