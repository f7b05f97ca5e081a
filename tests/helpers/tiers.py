"""Two tiers of tests: a quick one that runs by default, and everything.

`@pytest.mark.slow` keeps a test out of the quick tier; `@pytest.mark.slow(quick=3)` keeps its first three rows in it.
`scripts/test` sets LOOM_TEST_QUICK=1; `scripts/test --all` and pytest itself run everything.
"""

import collections
import os

import pytest

SWITCH = "LOOM_TEST_QUICK"


def is_quick() -> bool:
    """Tell whether the quick tier alone is asked for."""
    return os.environ.get(SWITCH) == "1"


def split(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Part the tests into those of the quick tier and the others, in their order."""
    quick: list[pytest.Item] = []
    others: list[pytest.Item] = []
    rows: collections.Counter[str] = collections.Counter()
    for item in items:
        mark = item.get_closest_marker("slow")
        if mark is None:
            quick.append(item)
            continue
        function = item.nodeid.partition("[")[0]
        (quick if rows[function] < mark.kwargs.get("quick", 0) else others).append(item)
        rows[function] += 1
    return quick, others
