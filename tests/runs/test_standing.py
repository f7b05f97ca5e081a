"""A state that a pull saved as a run of its own says of which run it is a copy, as it was where, and since when."""

from __future__ import annotations

from loomctl.kit import ids
from loomctl.runs.model.standing import SAVED_KEYS, saved_from, saved_from_line
from tests.helpers.tables import each

HANDLE = ids.handle("shop-run-1", "add dark mode")
AT = "2026-01-15T09:30:00Z"


@each(
    ("told", "words"),
    [
        ({"whose": "theirs", "machine": "desktop", "by": "You", "remote": "origin"},
         f"{HANDLE} as it was pushed by You on desktop to origin; saved {AT}"),
        ({"whose": "mine", "machine": "laptop", "remote": "origin"},
         f"{HANDLE} as it was on laptop before origin's took its place; saved {AT}"),
        ({"whose": "theirs"}, f"{HANDLE} as it was pushed; saved {AT}"),
        ({"whose": "mine"}, f"{HANDLE} as it was here; saved {AT}"),
    ],
)  # fmt: skip
def test_a_copy_is_told_on_one_line(told: dict[str, str], words: str) -> None:
    found = saved_from({"saved_from": {"run_id": "shop-run-1", "at": AT, **told}})
    assert found is not None
    assert (tuple(found), saved_from_line(found, {"goal": "add dark mode"})) == (SAVED_KEYS, words)


@each("told", [None, "x", ["shop-run-1"], 7])
def test_what_is_no_origin_makes_no_copy(told: object) -> None:
    """A state is hostile until it is read."""
    assert saved_from({"saved_from": told}) is None
    assert saved_from({}) is None


def test_a_hostile_origin_is_shown_not_obeyed() -> None:
    text = "x\x1b[2J\n" + "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z04" + "y" * 5000
    for whose in ("mine", "theirs"):
        found = saved_from({"saved_from": {**dict.fromkeys(SAVED_KEYS, text), "whose": whose, "by": {"a": 1}}})
        assert found is not None
        line = saved_from_line(found, {"goal": "add dark mode"})
        assert len(line) < 400
        assert not {"\x1b", "\n"} & set(line)
    assert saved_from({"saved_from": {"run_id": None}}) == dict.fromkeys(SAVED_KEYS, "")
