"""JSON is read strictly, and every mistake has its line."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit.strict import parse_json
from tests.helpers.tables import each

MISTAKES = [
    ('{"a": 1,\n "a": 2}', "DUPLICATE_KEY", "line 2, column 2"),
    ('{"a": {"b": 1},\n "c": [{"d": 1, "\\u0064": 2}]}', "DUPLICATE_KEY", "line 2, column 17"),
    ('{"a": 1,}', "JSON_SYNTAX", None),
    ("{'a': 1}", "JSON_SYNTAX", "line 1, column 2"),
    ('{"a": 1} {}', "JSON_SYNTAX", "line 1, column 10"),
    ('{"a": "line\nbreak"}', "JSON_SYNTAX", "line 1, column 12"),
    ("// comment\n{}", "JSON_SYNTAX", "line 1, column 1"),
    ("", "JSON_SYNTAX", "line 1, column 1"),
    ('{"a": NaN}', "JSON_SYNTAX", "$"),
    ('{"a": -Infinity}', "JSON_SYNTAX", "$"),
    ('{"a": 1e999}', "JSON_SYNTAX", "$"),
    ('{"a": ' + "9" * 401 + "}", "JSON_SYNTAX", "$"),
    ('{"a": "\\ud83d"}', "BAD_TEXT", "$"),
    ('{"steps": [\n {{#if x}}\n]}', "JSON_SYNTAX", "line 2, column 3"),
    ("[" * 65 + "]" * 65, "TOO_DEEP", "line 1, column 65"),
    ('{"a":\n' * 1000 + "1" + "}" * 1000, "TOO_DEEP", "line 65, column 1"),
    ("[" * 200_000, "TOO_DEEP", "line 1, column 65"),
]


@each(("text", "code", "where"), MISTAKES)
def test_a_mistake_has_its_place(text: str, code: str, where: str | None) -> None:
    value, problems = parse_json(text, max_depth=64)
    assert value is None
    assert [problem.code for problem in problems] == [code]
    assert where is None or problems[0].where == where


def test_hints_meet_the_usual_mistakes() -> None:
    assert "template" in parse_json('{"steps": [\n {{#if x}}\n]}', max_depth=64)[1][0].hint
    assert "empty" in parse_json(" \n", max_depth=64)[1][0].hint


def test_keys_in_texts_are_no_keys() -> None:
    text = json.dumps({"a": '{"a": 1, "a": [[[', "b": ["a", "a"], "c": {"a": 1}, "d": '\\" : "'})
    assert parse_json(text, max_depth=3) == (json.loads(text), [])


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
)


@given(VALUES, st.booleans())
def test_good_json_is_read_as_it_is(value: object, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only), max_depth=500) == (value, [])


@given(st.text(alphabet='{}[]",:\\ \n1a\ud800', max_size=80))
def test_any_text_has_an_answer(text: str) -> None:
    value, problems = parse_json(text, max_depth=20)
    assert value is None or not problems
