"""Lines of a history are made when they are told: of a long one the newest alone (D22)."""

from __future__ import annotations

from loomctl.kit.text.units import utf8_bytes
from loomctl.priming.slip import Budget, Lines, Texts, compose


def test_of_a_long_history_only_what_is_told_is_made() -> None:
    """And each once, however often it is packed; how many there are is said all the same."""
    made: list[int] = []

    def make(at: int) -> str:
        made.append(at)
        return f"- step {at}"

    lines = Lines(100_000, make)
    budget = Budget(2_000, utf8_bytes)
    first = compose(Texts("head", lines, "", []), [], budget).bodies[0]
    assert "- step 99999" in first
    count = first.count("- step ")
    assert f"({100_000 - count} earlier lines left out)" in first
    assert count <= len(made) <= count + 1  # the first that does not fit is looked at
    assert compose(Texts("head", lines, "", []), [], budget).bodies[0] == first
    assert len(made) == len(set(made))
    assert lines.newest(30) == "- step 99997\n- step 99998\n- step 99999"


def test_a_history_that_fits_is_told_whole_and_in_order() -> None:
    """As a list of the same lines would be."""
    words = [f"line {number}" for number in range(5)]
    lines = Lines(5, lambda at: words[at])
    budget = Budget(2_000, utf8_bytes)
    told = [compose(Texts("head", some, "next", []), [], budget).bodies[0] for some in (lines, words)]
    assert told[0] == told[1]
    assert lines.newest(10_000) == "\n".join(words)
    assert Lines(0, lambda at: words[at]).newest(10) == ""
