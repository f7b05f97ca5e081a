"""Of a large output enough is looked at, and never more than a hook has time for."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomctl.reduction.calls import reduce_call
from loomctl.reduction.kinds import BINARY, TEXT, kind_of
from loomctl.reduction.signal import plain
from loomctl.reduction.tokens import estimate
from loomctl.reduction.tool_outputs import (
    CLEANED,
    FIRST,
    HEAD,
    MARGIN,
    TAIL,
    WHOLE,
    cleaned,
    ends_with_a_search,
    hides_exit_code,
    looked_at,
)
from tests.helpers.tables import each
from tests.hostile import keys

LINES = [f"[{number}] INFO src/shop/part_{number % 97}.py did a thing, as it does" for number in range(40_000)]
ERROR = "src/shop/cart.py:41: AssertionError: the total is 7"


def told(lines: list[str]) -> str:
    """What stands for the output of a command that succeeded."""
    response = {"stdout": "\n".join(lines), "stderr": "", "interrupted": False}
    return reduce_call("Bash", {"command": "make all"}, response).observation


@pytest.mark.slow
@each("place", [0, 1, 900, 20_000, 39_000, 39_998])
def test_an_error_is_told_wherever_it_stands(place: int) -> None:
    lines = [*LINES[:place], ERROR, *LINES[place + 1 :]]
    observation = told(lines)
    assert observation.split("\n")[0] == "make all: exit 0, 40000 lines output"
    assert ERROR in observation


def test_an_error_is_told_that_stands_in_the_middle_of_megabytes() -> None:
    lines = [f"item {number}: copied to the other side, with what belongs to it" for number in range(60_000)]
    lines[25_000] = "item 25000: checksum differs, wanted 9f31 got 77c0, so it failed"
    assert sum(map(len, lines)) > CLEANED
    assert lines[25_000] in told([*lines, "1 of 60000 items failed"])


def test_a_large_output_that_was_written_over_keeps_its_words() -> None:
    """A bar of progress: two megabytes of which a terminal shows a line."""
    bar = "".join(f"\r{number / 400:6.2f} % of the whole is done" for number in range(80_000))
    observation = told([f"begun{bar}", "ERROR: the disk is full"])
    assert "ERROR: the disk is full" in observation


@each("begun", [20, 30, 60])
def test_no_half_of_a_key_is_left_where_megabytes_are_cut(begun: int) -> None:
    """A terminal leaves nothing of the blank forms before it, and the margin is as long as it was."""
    key = "ghp_" + "Zq7Xw2Kd9" * 12
    told = cleaned("\r" * (FIRST + MARGIN - begun) + key + " y" * (CLEANED // 2), plain)
    assert [start for start in range(len(key) - 12) if key[start : start + 12] in told] == []


COMMANDS = [
    ("make", False), ("make 2>&1 | tail -5", True), ("make || true", True), ("make; echo done", True),
    ("cd shop && make", False), ("grep 'a|b' x.log", False), ('echo "a;b"', False), ("make\ndate", True),
]  # fmt: skip


@each(("command", "hides"), COMMANDS)
def test_the_exit_code_of_a_pipe_says_little(command: str, hides: bool) -> None:
    assert hides_exit_code({"command": command}) is hides


@pytest.mark.parametrize("unit", ['\\"', '"\\\n', '"', "'", "\\"])
def test_quotes_that_nobody_closes_are_read_once(unit: str) -> None:
    """As a pattern that looks on from each of them to the end they would take an hour."""
    assert not ends_with_a_search({"command": unit * 200_000})


def test_a_log_with_a_zero_in_it_is_no_binary() -> None:
    assert kind_of("a log\n" * 500 + "\0" + "error: no\n") == TEXT
    assert kind_of("\x7fELF" + "\0" * 400 + "words") == BINARY


@pytest.mark.parametrize("cut", [HEAD, -TAIL])
def test_a_key_is_masked_wherever_a_part_ends(cut: int) -> None:
    """Half of it would not be known for a key."""
    key = keys.PLANTED["github"]
    half = len(key) * 2 // 3
    near = ("word " * HEAD)[: HEAD - half - 1] if cut > 0 else (" word" * TAIL)[: TAIL - len(key) + half]
    text = f"{near} {key}{' word' * 60_000}" if cut > 0 else f"{' word' * 60_000} {key}{near}"
    observation = reduce_call("Bash", {"command": "make"}, {"stdout": text, "stderr": ""}).observation
    assert not [start for start in range(len(key) - 8) if key[start : start + 8] in observation]


@pytest.mark.slow
@each("words", range(80, 130, 2))
def test_a_key_is_masked_wherever_a_line_is_cut(words: int) -> None:
    """Of a long line what stands around its trouble is looked at, from a key's middle or up to it."""
    key = keys.PLANTED["github"]
    for line in (
        f"{'y ' * 700}error: bad {'word ' * words}{key}{' w' * 500}",
        f"{'w ' * 500}{key}{' word' * words} error: bad{' y' * 700}",
    ):
        some = LINES if words == 104 else LINES[:8000]  # more than is cleaned whole, more than is looked at whole
        observation = told([*some[: len(some) // 2], line, *some[len(some) // 2 :]])
        assert not [start for start in range(len(key) - 8) if key[start : start + 8] in observation]


def test_a_private_key_is_not_looked_at_for_the_trouble_in_it() -> None:
    body = [base64.b64encode(hashlib.sha512(bytes([line])).digest())[:64].decode() for line in range(26)]
    begin, end = keys.PLANTED["private key"].split("\n")[0], keys.PLANTED["private key"].split("\n")[-1]
    rare = [f"{chr(97 + one % 26) * (one + 3)} is a line of its own" for one in range(300)]
    broken = [begin, *body[:10], "error: broke off here", *body[10:], end]
    text = "\n".join([*LINES[:20_000], *rare, *broken, *LINES[20_000:]])
    observation = reduce_call("Bash", {"command": "make"}, None, error=f"Exit code 1\n{text}").observation
    assert "broke off here" in observation
    assert not [line for line in body if line[:12] in observation or line[-12:] in observation]


def test_a_text_that_is_not_large_is_looked_at_whole() -> None:
    assert (looked_at("x" * WHOLE), looked_at("error\n" * 1000)) == ("x" * WHOLE, "error\n" * 1000)


TEXTS = {
    "one line": "x" * 3_000_000, "trouble alone": "Error: something failed at 0x1234\n" * 100_000,
    "one line of trouble": "error " * 500_000, "lines of nothing": "\n" * 3_000_000, "all": "\n".join(LINES),
}  # fmt: skip


@pytest.mark.slow
@each("name", TEXTS)
def test_no_more_is_looked_at_than_there_is_time_for(name: str) -> None:
    seen = looked_at(TEXTS[name])
    assert HEAD < len(seen) <= WHOLE
    assert TEXTS[name].startswith(seen[: HEAD - 2000])
    assert TEXTS[name].endswith(seen[-(TAIL - 2000) :])


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.sampled_from([*LINES[:50], ERROR, "", "x" * 5000, "FAILED\n    because\n    of this"]), max_size=40))
def test_what_is_looked_at_stands_in_the_text(lines: list[str]) -> None:
    text = "\n".join([*LINES[:3000], *lines * 20, *LINES[:3000]])
    at = 0
    for line in looked_at(text).split("\n"):
        at = text.find(line, at)
        assert at >= 0


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("name", TEXTS)
def test_the_tokens_of_a_large_text_are_judged_by_samples(name: str) -> None:
    text = TEXTS[name]
    parts = sum(estimate(text[start : start + 100_000]) for start in range(0, len(text), 100_000))
    assert abs(estimate(text) - parts) <= 0.05 * parts + 100
