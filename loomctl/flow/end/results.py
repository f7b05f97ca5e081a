"""What a step is ended with, what is found out about its end, and what comes of it."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.changes.track import Tracked
    from loomctl.flow.evidence.items import Checked
    from loomctl.flow.outcomes.directives import Reading
    from loomctl.runs.model.state import State

# Outcomes that a person or the assistant gives, and that need no result to be believed (D36).
WITHOUT_RESULT = ("failed", "skipped")


class Given(NamedTuple):
    """What a step is ended with.

    source: where the response came from: `done`, `conversation`, `transcript`, `candidate`, `command`, `decision`
    or `none`.
    outcome: one that was given beside the response, which holds; None: the response decides. artifacts: what is
    registered, `{name: portable path}`. command, warnings: of a command step, what `status.json` tells of it;
    decided: of a human step, `{by, at, label, note}`; context: the engine's keys that either sets. updates,
    gone, branches: of a join, what it sets besides, the keys that it takes away, and the records of its branches.
    """

    response: str | None
    source: str
    outcome: str | None = None
    note: str = ""
    artifacts: Mapping[str, str] = {}
    command: Mapping[str, Any] | None = None
    context: Mapping[str, Any] = {}
    warnings: Sequence[Mapping[str, str]] = ()
    decided: Mapping[str, Any] | None = None
    updates: Mapping[str, Any] = {}
    gone: Sequence[str] = ()
    branches: Sequence[Mapping[str, Any]] = ()
    joined_by: str = ""


def is_result(given: Given) -> bool:
    """Tell whether a step may end by this: a text, an outcome that needs none, or one that was stated with a note."""
    if given.outcome in WITHOUT_RESULT or (given.response or "").strip():
        return True
    return bool(given.outcome and given.note.strip())


class Gathered(NamedTuple):
    """What was found out about a visit's end.

    for_stage: whose; reading: what its answer means; tracked: None of a visit that does not end by this answer;
    evidence: what was found of what the step has to show, None where that is nothing.
    """

    for_stage: str
    reading: Reading
    tracked: Tracked | None
    usage: Mapping[str, Any] | None
    evidence: Checked | None = None


class Ended(NamedTuple):
    """What came of an end: the visit as it ended, or (entry None) the corrective message that asks for another answer.

    attempt: which repair it is, from 1.
    """

    state: State
    entry: Mapping[str, Any] | None
    reading: Reading
    repair: str = ""
    attempt: int = 0
