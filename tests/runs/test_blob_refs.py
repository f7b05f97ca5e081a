"""How a reference to a blob looks, and that nothing else is taken for one (D38)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit.errors import LoomError
from loomctl.runs.store import blobs
from tests.helpers.tables import each

HEX = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
REF = f"blob://sha256/{HEX}"


@each(
    "value",
    [
        "",
        "blob://sha256/",
        REF[:-1],
        REF + "0",
        REF + "\n",
        REF.upper(),
        f"blob://sha256/{HEX.upper()}",
        f"blob://sha512/{HEX}",
        f"blob://sha256//{HEX[1:]}",
        f"blob://sha256/../{HEX[3:]}",
        f" {REF}",
        f"blob://sha256/{'٣' * 64}",
        f"blob://sha256/{'g' * 64}",
        f"See: {REF}",
        HEX,
        None,
        7,
        [REF],
        {"ref": REF},
    ],
)
def test_what_is_no_reference(value: object) -> None:
    """Another case, another length, another hash, a way up, anything around it: all refused."""
    assert not blobs.is_ref(value)
    if isinstance(value, str):
        with pytest.raises(LoomError) as caught:
            blobs.sha256_of(value)
        assert (caught.value.code, caught.value.exit_code) == ("BAD_REF", 2)


def test_a_reference_and_its_hash() -> None:
    """There and back."""
    assert blobs.is_ref(REF)
    assert blobs.sha256_of(REF) == HEX
    assert blobs.ref_to(HEX) == REF


@given(st.text(max_size=120))
def test_any_text_is_judged(text: str) -> None:
    """Only what the grammar says is one, whatever the text holds."""
    strict = len(text) == 78 and text[:14] == "blob://sha256/" and all(c in "0123456789abcdef" for c in text[14:])
    assert blobs.is_ref(text) == strict
    assert not blobs.is_sha256(text) or len(text) == 64


OTHER = blobs.ref_to("a" * 64)


@each(
    ("context", "held"),
    [
        ({"b": OTHER, "a": REF, "again": REF}, [OTHER, REF]),
        ({"n": {"x": REF}, "l": [REF], "t": f"see {REF}", REF: 1}, []),
        ([REF], []),
        (None, []),
    ],
)
def test_a_context_holds_a_reference_as_the_value_of_a_key(context: object, held: list[str]) -> None:
    """Each once; what stands deeper, or in a text, is text."""
    assert blobs.refs_of(context) == sorted(held)


@each(
    ("status", "held"),
    [
        ({"context_updates": {"a": REF, "n": {"x": OTHER}}}, [REF]),
        ({"context_before": {"set": {"a": REF}, "gone": [OTHER]}}, [REF]),
        ({"output": REF, "command": {"output": OTHER, "script": REF}}, [OTHER, REF]),
        ({"output": {"x": REF}, "command": {"output": None}}, []),
        ({"failure_reason": REF, "note": REF, "warnings": [REF]}, []),
        ({"context_before": REF, "command": [REF], "context_updates": [REF]}, []),
        ([REF], []),
    ],
)
def test_a_status_holds_references_where_loom_writes_them(status: object, held: list[str]) -> None:
    """What its step set and replaced, its object and its output; of any other shape it holds none."""
    assert blobs.refs_of_status(status) == sorted(held)
