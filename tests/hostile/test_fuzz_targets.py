"""The fuzzer's targets hold for their seeds, and for what the fuzzer has found."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import SEEDS, TARGETS

FOUND: list[tuple[str, bytes]] = [
    ("secrets", b'{"token":A\x00\x00\x00c\xf2123def45rd = hu' + b"\xff" * 15 + b'6ghi789AAA"a}'),
    ("dot-condition", b"js:"),
]


@pytest.mark.slow(quick=24)
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_holds_for_its_seeds(target: str) -> None:
    assert SEEDS[target]
    for seed in SEEDS[target]:
        TARGETS[target](seed)


@pytest.mark.parametrize(("target", "data"), FOUND)
def test_what_the_fuzzer_found_stays_mended(target: str, data: bytes) -> None:
    TARGETS[target](data)
