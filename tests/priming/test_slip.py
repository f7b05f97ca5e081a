"""Of a long history the newest lines are told, and how many came before (D22)."""

from __future__ import annotations

from loomctl.kit.text.fences import utf8_bytes
from loomctl.priming.slip import Budget, Texts, compose


def test_a_history_is_told_in_order_and_what_does_not_fit_is_counted() -> None:
    lines = [f"- step {number}" for number in range(1000)]
    budget = Budget(2_000, utf8_bytes)
    told = compose(Texts("head", lines, "", [], earlier=99_000), [], budget).texts[0]
    count = told.count("- step ")
    assert told == "\n".join([f"head\n\n({100_000 - count} earlier lines left out)", *lines[-count:]])
    assert compose(Texts("head", lines[:5], "next", []), [], budget).texts[0] == "\n".join(
        ["head", "", *lines[:5], "", "next"]
    )
    assert compose(Texts("head", lines, "", []), [], Budget(100, utf8_bytes)).texts == ["head"]
