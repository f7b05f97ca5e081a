"""Where a path from another machine may lie here (D9)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loomctl.expressions.placeholders import LONGEST_SUFFIX, below_recorded, candidates, is_absolute, parts_of
from tests.helpers.tables import each


@each("path", ["/x", "//x", "C:\\x", "c:/x", "\\\\server\\x", "/"])
def test_a_path_of_any_system_may_be_absolute(path: str) -> None:
    assert is_absolute(path)


@each("path", ["", "x", "./x", "C:x", "1:/x", ":/x", "\\x", "~/x", "C:"])
def test_what_depends_on_a_folder_is_not_absolute(path: str) -> None:
    assert not is_absolute(path)


@each(
    ("path", "recorded", "expected"),
    [
        ("/home/b/shop/specs/x.md", ["/home/b/shop"], ["specs/x.md", "home/b/shop/specs/x.md", "b/shop/specs/x.md"]),
        ("/home/b/shop/specs/x.md", ["/home/b"], ["shop/specs/x.md"]),
        ("C:\\Users\\b\\shop\\specs\\x.md", ["C:\\Users\\b\\shop"], ["specs/x.md", "Users/b/shop/specs/x.md"]),
        ("\\\\server\\shop\\specs\\x.md", [], ["shop/specs/x.md", "specs/x.md"]),
        ("/specs/x.md", [], ["specs/x.md"]),
        ("/x.md", [], ["x.md"]),
        ("C:\\x.md", [], []),
        ("/shopping/x.md", ["/shop"], ["shopping/x.md"]),
    ],
)
def test_the_likeliest_place_comes_first(path: str, recorded: list[str], expected: list[str]) -> None:
    found = list(candidates(path, recorded))
    assert found[: len(expected)] == expected


@given(
    st.lists(st.sampled_from(["..", ".", "a", "etc", "C:", "", "x\\..\\y"]), max_size=8),
    st.lists(st.sampled_from(["/", "/a", "/a/..", "..", "C:\\a", ""]), max_size=3),
    st.sampled_from(["/", "C:\\", "\\\\h\\", ""]),
)
def test_no_candidate_climbs(parts: list[str], recorded: list[str], start: str) -> None:
    """Whatever the path, no candidate is absolute, holds `..`, or is empty."""
    for separator in "/\\":
        path = start + separator.join(parts)
        offered = [*candidates(path, recorded), below_recorded(path, recorded) or "none"]
        for candidate in offered:
            assert candidate
            assert not candidate.startswith("/")
            assert ".." not in candidate.split("/")


def test_an_endless_path_is_tried_a_few_times_and_a_backslash_is_a_letter_in_a_posix_path() -> None:
    assert len(list(candidates("/" + "a/" * 5000 + "x", []))) <= LONGEST_SUFFIX + 1
    assert (parts_of("/a\\b/c"), parts_of("C:\\a\\.\\b")) == (["a\\b", "c"], ["C:", "a", "b"])
