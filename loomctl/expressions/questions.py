"""Questions that the made environment answers, and the answers; how long one may keep the processor busy. Pure."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROCESSOR_SECONDS = 0.5  # of one question; then the system ends the child, whatever it is in the middle of
SCHEMA_SECONDS = 2.0  # as above, of a value held against a schema: the library takes longer to load
READY = b"ready"


class Question(NamedTuple):
    """kind: "condition" (JavaScript over the scope), "path" (JSONPath over the scope's state) or "schema".

    A schema's source is the JSON of {schema, value}; the answer is what the one says against the other, as a list of
    [JSON Pointer, message].
    """

    kind: str
    source: str


class Answer(NamedTuple):
    """status: "ok", "threw" (it threw, ran away, or is wrong in itself) or "needs_environment".

    value: a condition's truth, or what a path matches first, MISSING for nothing; None unless ok.
    message: what the engine said or why there is no answer, in one line; "" when ok.
    """

    status: str
    value: Any
    message: str


def processor_seconds(kind: str) -> float:
    """Give how long one question of a kind may keep the processor busy."""
    return SCHEMA_SECONDS if kind == "schema" else PROCESSOR_SECONDS


def one_line(problem: object) -> str:
    """Give the first line of an error or source for people."""
    lines = str(problem).splitlines() or [""]
    return "".join(char if char.isprintable() else " " for char in lines[0][:300]).strip()
