"""Plain paths read by the standard library find what jsonpath-ng finds first (D11, D12)."""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonpath_ng import parser as plain
from jsonpath_ng.ext import parser as extended

from loomctl.expressions.state_paths import MAX_SOURCE, MAX_STEPS, MISSING, compile_path, read
from tests.helpers.tables import each
from tests.helpers.waiting import bounded_work

# Python 3.10 gets an older one, which knows less.
MODERN = tuple(map(int, version("jsonpath-ng").split(".")[:2])) >= (1, 16)

STATE: dict[str, Any] = {
    "artifacts": {"spec_path": "specs/x.md", "spec-path": "dashed", "none": None, "a b": 1, "": "empty", "it's": 2},
    "steps": [{"id": "one"}, {"id": "two"}], "true": {"null": "words"}, "_x1": 0, "0": "zero",
}  # fmt: skip


@each(
    ("source", "expected"),
    [
        ("artifacts.spec_path", "specs/x.md"), ("$.artifacts.spec_path", "specs/x.md"),
        (" $.artifacts.spec_path\t", "specs/x.md"), ("$['artifacts'].spec_path", "specs/x.md"),
        ('artifacts["spec_path"]', "specs/x.md"), ("['artifacts']['a b']", 1), ("artifacts['']", "empty"),
        ('artifacts["it\'s"]', 2), ("artifacts.spec-path", "dashed"), ("artifacts.none", None),
        ("artifacts.none.deeper", MISSING), ("artifacts.absent", MISSING),
        ("artifacts.spec_path.length", MISSING), ("artifacts[0]", MISSING), ("steps[0].id", "one"),
        ("$.steps[-1].id", "two"), ("steps[-0].id", "one"), ("steps[2]", MISSING), ("steps[-3]", MISSING),
        ("steps.id", MISSING), ("steps['0']", MISSING), ("['0']", "zero"), ("[0]", MISSING),
        ("true.null", "words"), ("_x1", 0), ("$", STATE),
    ],
)  # fmt: skip
def test_a_plain_path_reads_what_the_library_reads(source: str, expected: object) -> None:
    steps = compile_path(source)
    assert steps is not None
    assert (json.loads(json.dumps(steps)), read(steps, STATE)) == (steps, expected)
    if known_to_the_library(steps, STATE):
        assert library(source, STATE) == expected


@each(
    "source",
    [
        "", " ", "$a", "$.", "a.", ".a", "a..b", "$..a", "a.*", "*", "a[*]", "a['*']", "a[0,1]", "a['b','c']",
        "a[0:1]", "a[:]", "a[?(@.b==1)]", "a.[0]", "$.['a']", "a.$", "a.0", "0", "a[01]", "a[--1]", "a[+1]",
        "a[ 0 ]", "a['b' ]", "a[b]", "a[]", "a[", "a['b", "a['b'", "a['b\\'c']", "a .b", "a. b", "a.\nb", "a\n",
        "where", "a.where", "wherenot", "a|b", "a&b", "(a)", "`this`", "a.`parent`", "a.b~", "@", "a@b", "ключ",
        "a.é", "a-b.-c", "-a", "a[9999999999]", "a[٣]", "a[0]b", "a['b']c", "a\x00",
    ],
)  # fmt: skip
def test_everything_else_is_left_to_the_library(source: str) -> None:
    assert compile_path(source) is None


def library(source: str, document: object) -> object:
    """Give jsonpath-ng's first match; its two parsers must agree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [parse(source).find(document) for parse in (plain.parse, extended.parse)]
    first, second = (matches[0].value if matches else MISSING for matches in found)
    assert first == second
    return first


def known_to_the_library(steps: list[Any], document: object) -> bool:
    """Tell whether the library here follows a path as its newest one does.

    The older takes `true…` for no name, finds letters in a text by an index, and raises where a list is too short.
    """
    value = document
    for step in steps if not MODERN else ():
        if isinstance(step, int) and not (isinstance(value, list) and step >= -len(value)):
            return False
        if isinstance(step, str) and step.startswith(("true", "false")):
            return False
        value = read([step], value)
    return True


KEYS = st.sampled_from(["a", "b", "a-b", "true", "null", "where", "0", "", "a b", "é", "*", "'"])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)
PIECES = [
    "$", ".", "..", "[", "]", "'", '"', "*", ",", ":", "-", " ", "\\", "@", "?", "0", "1", "-1", "01", "a", "b",
    "a-b", "é",
]  # fmt: skip
PIECES += [
    "true", "null", "where", "['a']", '["b"]', "[0]", "[-1]", "['a b']", "['']", ".a", ".b", ".a-b", ".true",
    ".where",
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=600)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join), DOCUMENTS)
def test_what_is_compiled_equals_the_library(source: str, document: object) -> None:
    """For random paths and documents: a path that compiles is one to jsonpath-ng too, with the same first match."""
    steps = compile_path(source)
    if steps is not None and known_to_the_library(steps, document):
        assert read(steps, document) == library(source, document)


@settings(max_examples=300)
@given(st.text(max_size=20))
def test_compiling_never_raises(source: str) -> None:
    """Any text at all is compiled or refused."""
    compile_path(source)


@each("source", ["a" + ".a" * 500_000, "[" * 1_000_000, "['" + "x" * 1_000_000, "a[" + "1" * 4_000, "$" * 4_000])
def test_hostile_sizes_take_no_time(source: str) -> None:
    with bounded_work():
        assert compile_path(source) is None


def test_the_limits_are_what_they_say_and_missing_is_neither_null_nor_true() -> None:
    assert compile_path("a" + ".a" * (MAX_STEPS - 1)) is not None
    assert compile_path("a" + ".a" * MAX_STEPS) is None
    assert compile_path("a" * MAX_SOURCE) is not None
    assert compile_path("a" * (MAX_SOURCE + 1)) is None
    assert not MISSING
    assert MISSING is not None
    assert repr(MISSING) == "MISSING"


@each("steps", [[None], [True, {}], [[]], [1.5], [10**30]])
def test_a_damaged_plan_finds_nothing(steps: list[Any]) -> None:
    assert read(steps, ["a"]) is MISSING
