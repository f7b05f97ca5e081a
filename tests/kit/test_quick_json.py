"""What hooks parse and render without the module json is what that module gives."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit import quick_json
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

TEXTS = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


def outcome(parse: Any, text: str) -> tuple[str, Any]:
    try:
        return "value", repr(parse(text))
    except ValueError:
        return "ValueError", None


@given(VALUES)
def test_a_value_is_rendered_as_json_renders_it_and_comes_back(value: Any) -> None:
    text = quick_json.dumps(value)
    assert text == json.dumps(value)
    assert repr(quick_json.loads(text)) == repr(json.loads(text))


@given(VALUES, st.sampled_from([0, 1, "\t"]), st.sampled_from(["", " ", "\r\n\t "]))
def test_any_spelling_of_a_value_is_parsed_alike(value: Any, indent: Any, blanks: str) -> None:
    for ascii_only in (True, False):
        text = blanks + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + blanks
        assert outcome(quick_json.loads, text) == outcome(json.loads, text)


@given(st.text(st.sampled_from('{}[]",:0123456789.eE+-\\/ubtrfalsn NI\n\t\x00é\ud800')))
def test_what_is_no_json_is_refused_alike(text: str) -> None:
    assert outcome(quick_json.loads, text) == outcome(json.loads, text)


@each("text", ["", " ", "{", "[1,]", "nul", '{"a":1} x', '"\n"', "\ufeff{}", "NaN", "-Infinity", "[" * 99])
def test_torn_and_odd_texts(text: str) -> None:
    assert outcome(quick_json.loads, text) == outcome(json.loads, text)


@each("value", [{1, 2}, object(), {("a",): 1}, b"x"])
def test_what_has_no_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        json.dumps(value)
    with pytest.raises(TypeError):
        quick_json.dumps(value)


def test_after_a_failure_the_next_value_is_rendered() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match=r"[Cc]ircular"):
        quick_json.dumps(loop)
    assert quick_json.dumps([[1], [1]]) == "[[1], [1]]"
    within: list[Any] = [1]
    with pytest.raises(TypeError):
        quick_json.dumps([within, object()])
    with pytest.raises(TypeError):
        quick_json.dumps([[within, object()]])
    assert quick_json.dumps([within]) == "[[1]]"


@each("stand_in", ["None", "types.ModuleType('_json')", "broken()"])
def test_without_the_c_code_json_does_the_work(stand_in: str) -> None:
    program = f"""
import sys, types
import json.decoder
def broken():
    module = types.ModuleType("_json")
    module.make_scanner = lambda context: lambda text, at: (None, at)
    module.make_encoder = lambda *settings: lambda value, level: ["{{}}"]
    module.encode_basestring_ascii = repr
    return module
sys.modules["_json"] = {stand_in}
sys.path.insert(0, {str(CHECKOUT)!r})
from loomctl.kit import quick_json
import json
assert quick_json.loads.func is json.loads and quick_json.dumps.func is json.dumps
assert quick_json.loads(quick_json.plain({{"é": [1]}})) == {{"é": [1]}}
"""
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)


@each("text", ["{", '"\0"', '"a', '{"a" 1}', '"\\q"', "[1,]", ""])
def test_a_misfit_is_refused_by_a_process_that_has_no_json_yet(text: str) -> None:
    """The C code takes its error from json.decoder, and gives none before that is imported."""
    program = (
        f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); from loomctl.kit import quick_json\n"
        f"try: quick_json.loads({text!r})\nexcept ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, capture_output=True, text=True)
    with pytest.raises(json.JSONDecodeError) as told:
        json.loads(text)
    assert done.stdout == f"{told.value}\n"


def test_neither_json_nor_re_is_imported() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); from loomctl.kit import quick_json; "
        "quick_json.loads(quick_json.dumps([1.5, 'é'])); print({'json', 're', 'enum', 'collections'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
