"""How a state or plan of an older schema becomes one of today's: named steps from one version to the next (D56). Pure.

Schema 1 is the first that there is, so the tables are empty. Whoever makes schema 2 writes the steps from 1 under `1`
and raises `SCHEMA_VERSION` beside them; reading, the copy of the original, the event and `loomctl check` follow.
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    # From a version to the steps that lead to the next one.
    Table: TypeAlias = Mapping[int, Sequence["Step"]]


class Step(NamedTuple):
    """name: what it does, in words that stand in the event; change: from the whole file to a new value of it."""

    name: str
    change: Callable[[dict[str, Any]], dict[str, Any]]


STATE: Table = {}
PLAN: Table = {}


class Migrated(dict[str, "Any"]):
    """A file's content that was migrated as it was read; the file itself is still of the older schema.

    before: the version in the file; steps: the names of what was done.
    """

    before: int
    steps: tuple[str, ...]


def migrated(raw: Mapping[str, Any], current: int, table: Table) -> Migrated:
    """Bring what was read from a file up to the current schema; what is given stays as it is.

    Raises ValueError, in words, where there is no way from its version or a step could not be done.
    """
    version: int = raw["schema_version"]
    value = dict(raw)
    done: list[str] = []
    for reached in range(version, current):
        if reached not in table:
            raise ValueError(f"there is no way from schema {reached} to {reached + 1}")
        for step in table[reached]:
            try:
                value = step.change(value)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise ValueError(f"it is of schema {version}, and {step.name!r} failed: {error!r:.200}") from None
            done.append(step.name)
        value = {**value, "schema_version": reached + 1}
    made = Migrated(value)
    made.before, made.steps = version, tuple(done)
    return made
