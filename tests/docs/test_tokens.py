"""The page of costs says what a fresh measurement says, within a twentieth."""

import re
from pathlib import Path

import pytest

from tests.docs import tokens
from tests.docs.pages import DOCS, WRITE, hold, part, table

PAGE = DOCS / "reference" / "tokens.md"
NUMBER = re.compile(r"[\d,]+")


@pytest.mark.slow
def test_each_event_costs_what_the_page_says(tmp_path: Path) -> None:
    """Characters and tokens of all that the model is told, at every event of a run of each bundled workflow.

    Paths and ids are part of what is told, so numbers may differ by a twentieth, or by 60 where they are small.
    """
    costs = tokens.measure(tmp_path)
    by_event = {cost.event: {one.workflow: one for one in costs if one.event == cost.event} for cost in costs}
    rows = []
    for event, found in sorted(by_event.items(), key=lambda one: one[0].startswith("`")):  # hooks first
        rows.append([event, *(cell for name in ("core", "default") for cell in _cells(found.get(name)))])
    header = ["event", "core: characters", "tokens", "default: characters", "tokens"]
    measured = table(header, rows)
    if WRITE and not _close(part(PAGE, "costs"), measured):
        hold(PAGE, "costs", measured)
    assert _close(part(PAGE, "costs"), measured), measured


def _cells(cost: tokens.Cost | None) -> list[str]:
    return [f"{cost.units:,}", f"{cost.tokens:,}"] if cost is not None else ["", ""]


def _close(shown: str, measured: str) -> bool:
    if NUMBER.sub("N", shown) != NUMBER.sub("N", measured):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(measured), strict=True)
    numbers = [(int(one.replace(",", "") or 0), int(two.replace(",", "") or 0)) for one, two in pairs]
    return all(abs(one - two) <= max(one / 20, 60) and (one == 0) == (two == 0) for one, two in numbers)


def test_a_wrong_number_would_be_found() -> None:
    assert _close("| a | 1,000 | 250 |", "| a | 1,040 | 260 |")
    assert not _close("| a | 1,000 | 250 |", "| a | 1,110 | 250 |")
    assert not _close("| a | 1,000 |", "| b | 1,000 |")
    assert not _close("| a | 0 |", "| a | 7 |")


def test_the_page_says_how_large_the_measured_files_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"{tokens.SPEC_BYTES:,} bytes" in page
    assert f"{len(tokens.WORK.encode()):,} bytes" in page
