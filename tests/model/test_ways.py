"""A run's way through a plan with transitions: forth, back, round and out again (D45)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.walks import Walk, plan, step


def to(*targets: str, **more: Any) -> list[dict[str, Any]]:
    """Make transitions without conditions."""
    return [{"to": target, **more} for target in targets]


LABELS = [{"to": "build/fix", "label": "[F] Fix"}, {"to": "end", "label": "Approve"}]
REVIEW = plan(
    {
        "build": [
            step("build/make"),
            step("build/review", transitions=LABELS),
            step("build/fix", transitions=to("build/review")),
        ]
    }
)
WALKS: list[tuple[str, dict[str, Any], str]] = [
    (
        "a label leads back, another out",
        REVIEW,
        "next:build/make@1 done:build/review@1 done+fix:build/fix@1 done:build/review@2 done+approve:completed",
    ),
]


@pytest.mark.parametrize(("of", "walked"), [pytest.param(of, walked, id=name) for name, of, walked in WALKS])
def test_walks(of: dict[str, Any], walked: str) -> None:
    """Each verb leads to where the table says."""
    walk = Walk(of)
    for one in walked.split():
        said, _, wanted = one.partition(":")
        verb, _, label = said.partition("+")
        more = {"directive": {"preferred_next_label": label}} if label else {}
        assert walk.do(verb, **more) == wanted.replace("#", " "), one
