"""Objects are found in a text as D33 says, whatever a model wrote around and between them."""

from __future__ import annotations

import json
import random
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loomctl.flow.outcomes import json_objects
from loomctl.flow.outcomes.json_objects import DEEPEST, Found, broken, objects, read
from tests.helpers.tables import each

MEGABYTE = 1 << 20


def values(text: str) -> list[dict[str, Any]]:
    return [found.value for found in objects(text)]


@each(
    ("text", "expected"),
    [
        ("", []),
        ("no object at all", []),
        ('{"a": 1}', [{"a": 1}]),
        ('It is done.\n\n{"a": 1}\n\nBye.', [{"a": 1}]),
        ('```json\n{\n  "a": 1\n}\n```', [{"a": 1}]),
        ('~~~\n> {"a": 1}\n~~~', [{"a": 1}]),
        ('{"a": 1} and {"b": 2}', [{"a": 1}, {"b": 2}]),
        ('{"a": 1}{"b": 2}', [{"a": 1}, {"b": 2}]),
        ("{}", [{}]),
        ("{ \n\t\r }", [{}]),
        ('{"a": {"b": {"c": 1}}}', [{"a": {"b": {"c": 1}}}]),
        ('[{"a": 1}, {"b": 2}]', [{"a": 1}, {"b": 2}]),
        ("[1, 2]", []),
        ('"{}"', [{}]),
    ],
)
def test_objects_are_found_wherever_they_stand(text: str, expected: list[Any]) -> None:
    assert values(text) == expected


@each(
    ("text", "expected"),
    [
        ('{"a": "}"}', [{"a": "}"}]),
        ('{"a": "{"}', [{"a": "{"}]),
        ('{"a": "\\"}"}', [{"a": '"}'}]),
        ('{"a": "\\\\"}', [{"a": "\\"}]),
        ('{"a": "\\\\\\"}"}', [{"a": '\\"}'}]),
        ('{"}": "{{{", "{": "}}}"}', [{"}": "{{{", "{": "}}}"}]),
        ('{"a": "```"}', [{"a": "```"}]),
        ('{"a\\u0062": "\\ud83d\\ude00"}', [{"ab": "😀"}]),
        ('{"a": "\\ud83d"}', [{"a": "\ud83d"}]),
    ],
)
def test_braces_and_quotes_in_strings_are_text(text: str, expected: list[Any]) -> None:
    assert values(text) == expected


@each(
    ("text", "expected"),
    [
        ('{ and then {"a": 1}', [{"a": 1}]),
        ('{{{{ {"a": 1}', [{"a": 1}]),
        ('{"draft": {"a": 1}', [{"a": 1}]),
        ('{"draft": \n\nno: {"a": 1}', [{"a": 1}]),
        ('it\'s "quoted {"a": 1}', [{"a": 1}]),
        ('it\'s "quoted { then {"a": 1}', [{"a": 1}]),
        ('5" wide {"a": 1}', [{"a": 1}]),
        ('{she said "hello} and {"a": 1}', [{"a": 1}]),
        ('"\\" {"a": 1}', [{"a": 1}]),
        ("}}}} " + '{"a": 1}', [{"a": 1}]),
        ('{"a": 1}}}}', [{"a": 1}]),
        ('{see below: {"a": 1}}', [{"a": 1}]),
        ("{{'a'} {\"a\": 1}}", [{"a": 1}]),
        ('function f() { return {"a": 1}; }', [{"a": 1}]),
        ("{'b': '{\"a\": 1}'}", [{"a": 1}]),
        ('{"b": {"a": 1}, "c": {"d": {}}, oops}', [{"a": 1}, {"d": {}}]),
        ('{"b": [{"a": 1}, [{"c": 2}]], oops}', [{"a": 1}, {"c": 2}]),
        ('{"b": {"c": {"a": 1}, oops}}', [{"a": 1}]),
        ('{"b": "{\\"a\\": 1}", oops}', []),
        ('{"b" {"a": 1}}', [{"a": 1}]),
    ],
)
def test_what_does_not_parse_hides_nothing(text: str, expected: list[Any]) -> None:
    """Unclosed and malformed braces, and quotes in the prose, are gone past; what stands in them is found."""
    assert values(text) == expected


NO_JSON = [
    *('{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}', '{"a": [NaN]}', '{"a": 1,}', '{"a": [1,]}', "{,}"),
    *('{"a": 1 "b": 2}', "{'a': 1}", "{a: 1}", '{"a": 01}', '{"a": .5}', '{"a": +1}', '{"a": 0x1}', '{"a": \u0661}'),
    *('{"a": True}', '{"a": nul}', '{"a": undefined}', '{"a": 1 // no', '{"a": 1 /* no */}', '{"a": "one\ntwo"}'),
    *('{"a": "\t"}', '{"a": "\\x41"}', '{"a": "\\u12"}', '{"a": 1e999}', '{"a": -1e999}', f'{{"a": {"1" * 401}}}'),
    *('{"a": "b}', '{"a\\": 1}', '{"a":}', '{"a"}', '{"a": 1]', '{"a": [1}', "{\u00a0}", "{\ufeff}", "{“a”: 1}"),
]


@each("text", NO_JSON)
def test_json_is_strict(text: str) -> None:
    assert values(text) == []


@each(
    ("text", "expected"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": {"b": 1}, "a": {}}', {"a": {}}),
        ('{"a": 1, "\\u0061": 2}', {"a": 2}),
        ('{"a": ' + "1" * 400 + "}", {"a": int("1" * 400)}),
        ('{"a": -0.5e-3}', {"a": -0.0005}),
    ],
)
def test_of_a_doubled_key_the_last_counts(text: str, expected: Any) -> None:
    assert values(text) == [expected]


@each("opening", ['{"a":', '{"a":[', '{"b": 0, "a": [[{"a":'])
def test_what_is_nested_too_deep_is_gone_into(opening: str) -> None:
    """The limit counts objects and lists; the outermost object that keeps it is given, and it is a deep one."""
    closing = "".join({"{": "}", "[": "]"}[char] for char in reversed(opening) if char in "{[")
    levels = len(closing)
    for times in (DEEPEST // levels, DEEPEST // levels + 1, 5 * DEEPEST // levels):
        text = opening * times + "1" + closing * times
        (found,) = objects(text)
        passed = max(0, times - DEEPEST // levels)
        assert (found.start, found.end) == (len(opening) * passed, len(text) - levels * passed)
        assert json.loads(text[found.start : found.end]) == found.value


# ---- A slow and obvious reader, by the letter of D33.


def slow_end(text: str, start: int) -> int:
    depth, in_string, at = 0, False, start
    while at < len(text):
        char = text[at]
        if in_string:
            if char == "\\":
                at += 1
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return -1


def height(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(height, children), default=0)


def slow_value(text: str) -> Any:

    def refuse(word: str) -> Any:
        raise ValueError(word)

    def number(digits: str) -> Any:
        if len(digits) > 400 or abs(float(digits)) == float("inf"):
            raise ValueError(digits)
        return float(digits) if set(digits) & set(".eE") else int(digits)

    try:
        value = json.loads(text, parse_constant=refuse, parse_float=number, parse_int=number)
    except (ValueError, OverflowError, RecursionError):
        return None
    return value if height(value) <= DEEPEST else None


def slow_objects(text: str) -> list[Found]:
    found, at = [], 0
    while at < len(text):
        end = slow_end(text, at) if text[at] == "{" else -1
        value = slow_value(text[at:end]) if end >= 0 else None
        if value is None:
            at += 1
        else:
            found.append(Found(at, end, value))
            at = end
    return found


def slow_broken(text: str) -> list[tuple[int, int]]:
    inside = {at for found in slow_objects(text) for at in range(found.start, found.end)}
    return [(at, slow_end(text, at)) for at, char in enumerate(text) if char == "{" and at not in inside]


ATOMS = st.sampled_from(
    [
        *'{}[]":,\\ \n1a`',
        *('{"a":', '{"outcome": "failed"}', '"context_updates": ', '\\"', "\\\\", "{}", '"{"', '"}"', '":"'),
        *('","', "NaN", "null", "-1.5e3", "1e999", '"a":1', "\x00", "\ud800", "é😀", "'"),
    ]
)
SOUP = st.lists(ATOMS, max_size=60).map("".join)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text('{}[]":,\\ a'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{}":,\\a', max_size=4), inner, max_size=3),
    max_leaves=12,
)


@st.composite
def cut_json(draw: st.DrawFn) -> str:
    """JSON with prose around it, some characters of it gone, doubled or changed."""
    text = "".join(draw(st.lists(JSON.map(json.dumps) | SOUP | st.text(max_size=10), max_size=4)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", '"', "{", "}", "\\", ",", text[at : at + 1] * 2])) + text[at + 1 :]
    return text


@pytest.mark.slow
@given(SOUP | cut_json() | st.text())
@settings(max_examples=600)
@example('{"{":":",","' * 3)
@example('{"a":{"a":NaN}{"a":{"b":[{},{"c":{}},x')
@example('{"{"{"\\"{"\\\\{"}"}')
@example('\\"{\\"}{"')
def test_it_finds_what_a_slow_and_obvious_reader_finds(text: str) -> None:
    """Objects, their places and values, and what is broken, are those of D33 by the letter; nothing raises."""
    assert list(objects(text)) == slow_objects(text)
    assert broken(text) == slow_broken(text)


@pytest.mark.slow
@given(SOUP | cut_json())
@settings(max_examples=400)
def test_from_every_brace_on_the_same_is_read(text: str) -> None:
    for at in (at for at, char in enumerate(text) if char == "{"):
        value, found = slow_value(text[at : slow_end(text, at)]), read(text, at)
        assert isinstance(found, Found) == (value is not None)
        assert (
            found == Found(at, slow_end(text, at), value) if isinstance(found, Found) else at <= found.at <= len(text)
        )


@given(st.dictionaries(st.text(), JSON, max_size=4), st.text(st.characters(exclude_characters="{}")), st.text())
def test_an_object_behind_any_prose_is_found_whole(value: dict[str, Any], before: str, after: str) -> None:
    text = before + json.dumps(value) + after
    assert next(iter(objects(text))).value == value


PATTERNS = [
    *("{", "}", '"', "\\", "{}", "}{", "{ ", '{"', '"{', '\\"{', '{"a":', '{"a":1}', '{"a":[{},', '{"a":1,'),
    *('{"a":{},"b":', '{"\\x', '{"a":x', '{"{\\"', '{"b\\"{', '":","', '{"{":":",","a":', '{"a":"\\', "{'a':"),
    *('{"a":"b"}{"a":NaN}', '[{"a":['),
]


class Counted(str):
    """A text that counts the characters that are cut out of it."""

    __slots__ = ("looked",)
    looked: int

    def __getitem__(self, key: Any) -> str:
        taken = super().__getitem__(key)
        self.looked += len(taken)
        return taken


class Tokens:
    """The pattern of tokens, which counts what it passes over."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.looked = 0

    def finditer(self, text: str, *bounds: int) -> Iterator[re.Match[str]]:
        before = bounds[0] if bounds else 0
        for match in self._pattern.finditer(text, *bounds):
            self.looked += match.end() - before
            before = match.end()
            yield match


def looked_at(text: str) -> int:
    counted, tokens = Counted(text), Tokens(json_objects._TOKEN)
    counted.looked = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_objects, "_TOKEN", tokens)
        deque(objects(counted), maxlen=0)
        broken(counted)
    return counted.looked + tokens.looked


@each("head", ["", "{", '{"', '{"a": "', '"'])
@each("pattern", PATTERNS)
def test_what_is_looked_at_grows_with_the_text_alone(pattern: str, head: str) -> None:
    """Twice the text is twice the work, counted in characters, and never many times its length."""
    one, two = (looked_at(head + pattern * (size // len(pattern))) for size in (6_000, 12_000))
    assert two <= 2.1 * one + 1_000
    assert two <= 100 * 12_000


@each("seed", range(40))
def test_no_mixture_of_such_patterns_takes_more(seed: int) -> None:
    drawn = random.Random(seed)
    parts = [drawn.choice(PATTERNS) * drawn.choice([1, 1, 2, 50]) for _ in range(drawn.randint(2, 6))]
    one, two = (looked_at("".join(parts) * (size // len("".join(parts)) + 1)) for size in (6_000, 12_000))
    assert two <= 2.3 * one + 2_000


@each("pattern", ["{", '"', "\\", "{}", '{"a":', '{"', '"{', "}{", '{"b\\"{'])
def test_a_megabyte_of_it_before_a_good_object_is_gone_past(pattern: str) -> None:
    """The object behind it is found, unless what stands before leaves a string open that it ends."""
    good = '\n{"outcome": "failed"}'
    text = pattern * (MEGABYTE // len(pattern)) + good
    assert deque(objects(text), maxlen=1)[0].value == {"outcome": "failed"}


@each(
    ("text", "where", "why"),
    [
        ('{"a": 1,}', 8, "expected a key in double quotes, not a comma before it"),
        ('{"a": 1 "b"', 8, "expected a comma or }"),
        ('{"a": [1 2]}', 9, "expected a comma or ]"),
        ('{"a" 1}', 5, "expected a colon after the key"),
        ("{a: 1}", 1, "expected a key in double quotes"),
        ('{"a": NaN}', 6, "NaN is not JSON"),
        ('{"a": x}', 6, "expected a value"),
        ('{"a": ', 6, "the text ends before the object does"),
        ('{"a": 1', 7, "the text ends before the object does"),
        ('{"a": "b', 6, "a string is not closed"),
        ('{"a": "b\nc"}', 8, "a line break or control character in a string is not escaped"),
        ('{"a": "\\x"}', 7, "a backslash in a string is not escaped"),
        ('{"a": 1e999}', 6, "a number is too large"),
        ('{"a": ' + "1" * 401, 6, "a number has more than 400 digits"),
        ('{"a":' * 201 + "1" + "}" * 201, 0, "it is nested deeper than 200 levels"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, where: int, why: str) -> None:
    assert read(text, 0) == (where, why)
