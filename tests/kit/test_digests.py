"""The digest that hooks can afford is SHA-256."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit import digests


@given(st.binary())
def test_bytes_have_the_digest_that_everybody_computes(data: bytes) -> None:
    assert digests.of_bytes(data) == hashlib.sha256(data).hexdigest()


@given(st.text(alphabet=st.characters()))
def test_any_text_has_a_digest(text: str) -> None:
    """A text's digest is that of its UTF-8 bytes; lone surrogates are no error and count."""
    assert digests.of_text(text) == hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def test_lone_surrogates_are_told_apart() -> None:
    assert len({digests.of_text(text) for text in ("\ud800", "\ud801", "?", "")}) == 4
