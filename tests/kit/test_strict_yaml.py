"""YAML is read as data that JSON could hold; what could surprise is refused with its line, or stays text."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit.strict import parse_yaml
from tests.helpers.tables import each
from tests.helpers.waiting import bounded_work

BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)

MISTAKES = [
    ("a: 1\nb: 2\na: 3\n", "DUPLICATE_KEY", "line 3, column 1"),
    ("a: {b: 1, b: 2}", "DUPLICATE_KEY", "line 1, column 11"),
    ("yes: 1", "NON_STRING_KEY", "line 1, column 1"),
    ("a:\n  no: 1", "NON_STRING_KEY", "line 2, column 3"),
    ("on: push", "NON_STRING_KEY", "line 1, column 1"),
    ("1: x", "NON_STRING_KEY", "line 1, column 1"),
    ("1.5: x", "NON_STRING_KEY", "line 1, column 1"),
    ("null: x", "NON_STRING_KEY", "line 1, column 1"),
    ("~: x", "NON_STRING_KEY", "line 1, column 1"),
    ("? [a, b]\n: x", "NON_STRING_KEY", "line 1, column 3"),
    ("a: &x 1", "YAML_ALIAS", "line 1, column 4"),
    ("a: *x", "YAML_ALIAS", "line 1, column 4"),
    ("a: !!python/object/apply:os.system [id]", "YAML_TAG", "line 1, column 4"),
    ("a: !secret x", "YAML_TAG", "line 1, column 4"),
    ("a: !!str 1", "YAML_TAG", "line 1, column 4"),
    ("a: !!binary eA==", "YAML_TAG", "line 1, column 4"),
    ("a: 1\n---\nb: 2", "YAML_DOCUMENTS", "line 2, column 1"),
    ("a: [1, 2", "YAML_SYNTAX", None),
    ("a:\n\tb: 1", "YAML_SYNTAX", "line 2, column 1"),
    ("a: b: c", "YAML_SYNTAX", "line 1, column 5"),
    ("a: {{x}}", "NON_STRING_KEY", None),
    ("a: \x07", "YAML_SYNTAX", None),
    ("[" * 1000 + "]" * 1000, "TOO_DEEP", "line 1, column 65"),
    ("[" * 200_000, "TOO_DEEP", "line 1, column 65"),
    ("{a: " * 1000, "TOO_DEEP", None),
    ("\n".join("  " * n + "a:" for n in range(1000)), "TOO_DEEP", None),
    ('a: "\\ud83d"', None, None),
]


@each(("text", "code", "where"), MISTAKES)
@pytest.mark.shows("Workflows and settings in YAML without aliases, anchors and tags")
def test_a_mistake_has_its_place(text: str, code: str | None, where: str | None) -> None:
    with bounded_work():
        value, problems = parse_yaml(text, max_depth=64)
    assert value is None
    assert problems
    assert code is None or {problem.code for problem in problems} == {code}
    assert where is None or problems[0].where == where


@pytest.mark.shows("with limits on size and depth")
def test_a_bomb_does_not_go_off() -> None:
    with bounded_work():
        value, problems = parse_yaml(BOMB, max_depth=64)
    assert value is None
    assert {problem.code for problem in problems} == {"YAML_ALIAS"}


def test_every_mistake_is_said_at_once() -> None:
    codes = [problem.code for problem in parse_yaml("a: &x 1\na: !t 2\nyes: *x\n", max_depth=64)[1]]
    assert codes == ["YAML_ALIAS", "DUPLICATE_KEY", "YAML_TAG", "NON_STRING_KEY", "YAML_ALIAS"]


SCALARS = [
    ("2026-01-01", "2026-01-01"),
    ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
    ("12:30", "12:30"),
    ("0755", "0755"),
    ("0x1F", "0x1F"),
    ("1_000", "1_000"),
    ("1.2.3", "1.2.3"),
    (".inf", ".inf"),
    ("1e999", "1e999"),
    ("9" * 30, "9" * 30),
    ("-7", -7),
    ("0", 0),
    ("1.5", 1.5),
    ("2e3", 2000.0),
    ("true", True),
    ("Yes", True),
    ("off", False),
    ("NO", False),
    ("null", None),
    ("", None),
    ("'yes'", "yes"),
    ('"1"', "1"),
    ("=", "="),
    ("<<", "<<"),
    ("n", "n"),
]


@each(("text", "expected"), SCALARS)
def test_plain_words_mean_what_people_expect(text: str, expected: object) -> None:
    """Dates, times, versions and octal-looking numbers stay text; decimal numbers and YAML's truth words do not."""
    assert parse_yaml(f"a: {text}", max_depth=64) == ({"a": expected}, [])


def test_long_prompts_keep_their_lines() -> None:
    text = 'steps:\n  - id: "1"\n    prompt: |\n      one: two\n\n      - {three}\n'
    assert parse_yaml(text, max_depth=64) == ({"steps": [{"id": "1", "prompt": "one: two\n\n- {three}\n"}]}, [])
    assert parse_yaml("", max_depth=64) == (None, [])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text(st.characters(codec="utf-8"), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_what_json_holds_comes_through_yaml(value: object) -> None:
    """A value written by a YAML writer is read back unchanged; the writer quotes whatever is not plain text."""
    read, problems = parse_yaml(yaml.safe_dump(value, sort_keys=False), max_depth=64)
    if problems:  # the writer itself uses aliases for a value that occurs twice
        assert {problem.code for problem in problems} == {"YAML_ALIAS"}
    else:
        assert json.dumps(read) == json.dumps(value)


@given(st.text(alphabet="ab:-[]{}&*!#|>'\"\n \t%@?,~", max_size=60))
def test_any_text_has_an_answer(text: str) -> None:
    value, problems = parse_yaml(text, max_depth=20)
    assert value is None or not problems
