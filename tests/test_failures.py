"""The zoo of failures: its recordings can be read, what was planted stands in them, and its halves are the draw's."""

from __future__ import annotations

import pytest

from benchmarks.failures import draw, zoo


@pytest.mark.slow(quick=3)
@pytest.mark.parametrize("name", zoo.names())
def test_a_recording_has_every_kind_and_the_lines_that_matter(name: str) -> None:
    recording = zoo.load(name)
    assert recording is not None
    assert tuple(case["kind"] for case in recording["cases"]) == zoo.KINDS
    for case in recording["cases"]:
        lines = [zoo.ANSI.sub("", line) for line in case["output"].split("\n")]
        assert case["must"], case["kind"]
        for index, needs in case["must"]:
            assert needs, (case["kind"], index)
            assert zoo.carries(lines[index], needs), (case["kind"], lines[index], needs)
        assert "/root" not in case["output"], case["kind"]
        assert "zoo" not in case["output"], case["kind"]


@pytest.mark.slow(quick=3)
@pytest.mark.parametrize("name", zoo.names())
def test_a_recording_is_of_the_cases_that_stand_here(name: str) -> None:
    recording = zoo.load(name)
    assert recording is not None
    for case, recorded in zip(zoo.tool(name).cases, recording["cases"], strict=True):
        assert case.command == recorded["command"], case.kind
        assert zoo.truth(case, recorded["output"]) == [(index, needs) for index, needs in recorded["must"]]


def test_half_of_the_tools_is_kept_aside_by_lot() -> None:
    names = zoo.names()
    assert names == sorted(names)
    assert draw.draw(names) == sorted(zoo.aside())
    assert len(zoo.aside()) == len(names) // 2 == 23


def test_the_recordings_are_small() -> None:
    folder = zoo.HERE / "recordings"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 1_500_000


def test_a_planted_mistake_that_is_not_told_is_refused() -> None:
    case = zoo.Case("one", "", plants=[zoo.Plant(["tea"], "", "src/a.c", 12)])
    assert zoo.truth(case, "src/a.c:12: no tea") == [(0, ["12", "a.c", "tea"])]
    assert zoo.truth(case, "no tea\n --> src/a.c:12:3") == [(0, ["tea"]), (1, ["12", "a.c"])]
    with pytest.raises(ValueError, match="not in the output"):
        zoo.truth(case, "src/a.c:112: no tea")
