"""Lists are told in little room, and what is told can be read back."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from loomctl.reduction.lists import by_folder, files, ranges
from loomctl.reduction.tokens import estimate
from tests.helpers.tables import each

RANGES = [
    ([f"part_{n:03}.wv" for n in range(1, 121)], ["part_{001..120}.wv"]),
    ([f"https://example.com/3/{n}/red" for n in range(10)], ["https://example.com/3/{0..9}/red"]),
    (["v1.2", "v1.3", "v1.4"], ["v1.2", "v1.3", "v1.4"]),
    ([f"part_{n}" for n in (1, 2, 3, 5, 6)], [f"part_{n}" for n in (1, 2, 3, 5, 6)]),
    ([f"v{n}.{n}" for n in range(6)], [f"v{n}.{n}" for n in range(6)]),
    (["red", "blue"], ["red", "blue"]),
]


@each(("items", "told"), RANGES)
def test_what_differs_in_one_running_number_is_one_range(items: list[str], told: list[str]) -> None:
    assert ranges(items) == told


@given(st.lists(st.from_regex(r"[ab]{1,2}\d{1,2}[ab]?", fullmatch=True), unique=True, max_size=40))
def test_a_range_stands_for_what_it_was_made_of(items: list[str]) -> None:
    assert sorted(one for told in ranges(items) for one in expanded(told)) == sorted(items)


def expanded(told: str) -> list[str]:
    found = re.search(r"\{(\d+)\.\.(\d+)\}", told)
    if found is None:
        return [told]
    width = len(found[1])
    return [
        f"{told[: found.start()]}{n:0{width}}{told[found.end() :]}" for n in range(int(found[1]), int(found[2]) + 1)
    ]


def test_a_folder_is_told_once() -> None:
    paths = ["src/red.wv", "src/blue.wv", "src/green.wv", "docs/", "main.wv"]
    assert by_folder(paths) == ["src/{red.wv,blue.wv,green.wv}", "docs/", "main.wv"]


def test_files_are_told_whole_and_then_by_their_folders() -> None:
    paths = [f"/home/ann/work/shop/{folder}/{name}.wv" for folder in ("shed", "spool") for name in "abcdefghij"]
    told = files(paths, 60, 60)
    assert told[: len(told) - 2] == paths[: len(told) - 2]
    assert told[-1].startswith("/home/ann/work/shop/spool/{a.wv,b.wv")
    assert sum(estimate(one) + 1 for one in told) <= 130
    assert files(paths[:2], 60, 0, known=f"read {paths[0]}") == paths[1:2]
