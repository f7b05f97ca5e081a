"""Which version is older."""

from __future__ import annotations

from loomctl.kit.package import is_older
from tests.helpers.tables import each


@each(
    ("one", "other", "older"),
    [
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "0.10.0", True),
        ("0.1", "0.1.0", True),
        ("1.0.0", "0.99.99", False),
        ("0.1.0", "0.1.0", False),
        ("", "0.1.0", False),
        ("0.1.0", "", False),
        ("0.1.0-rc1", "0.2.0", False),
        ("0.1.0", "٣.0", False),
        ("0.1.0", "9" * 5000, False),
    ],
)
def test_versions_are_compared_by_their_numbers(one: str, other: str, older: bool) -> None:
    assert is_older(one, other) == older
