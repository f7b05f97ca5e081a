"""A run's context: what changes it, how that is taken back, what its built-in keys say (D31, D37, D43, D44)."""

from __future__ import annotations

from loomctl.kit.quick_json import as_object, as_texts
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import visits
from loomctl.runs.model.state import TERMINAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LAST_RESPONSE = 200  # characters of a response that `last_response` holds


class Changed(NamedTuple):
    """A context after a change.

    applied: what the step asked to be set, as it was kept. before: what each changed key held, None under `gone` for a
    key that was not there. output: what stands under the step's own output key, if it gave one.
    """

    context: dict[str, Any]
    applied: dict[str, Any]
    before: dict[str, Any]
    output: Any


def changed(
    context: Mapping[str, Any],
    own: Mapping[str, Any],
    updates: Mapping[str, Any],
    *,
    output: str,
    dropped: Sequence[str] = (),
) -> Changed:
    """Set the engine's own keys and a step's updates, and drop what no longer holds (D36).

    output: the key under which a checked object is kept.

    What was set last stands last (D46).
    """
    every = {**updates, **own}
    before = {
        "set": {key: context[key] for key in (*every, *dropped) if key in context},
        "gone": sorted(key for key in every if key not in context),
    }
    kept = {key: value for key, value in context.items() if key not in every and key not in dropped}
    return Changed({**kept, **every}, dict(updates), before, own.get(output))


def taken_back(context: Mapping[str, Any], before: object) -> dict[str, Any]:
    """Give a context as it was before a change; `before` is `Changed.before` as it was read from a file.

    Keys that were changed by others since are set back too: what is undone is undone with all that came after it.
    """
    told = as_object(before)
    gone = as_texts(told.get("gone"))
    return {**{key: value for key, value in context.items() if key not in gone}, **as_object(told.get("set"))}


# ---- What the engine itself says (D44).


def scope(state: Mapping[str, Any]) -> dict[str, Any]:
    """Give the flat context as a run and a simulation read it: what is set, and the built-in keys over it.

    References to blobs and responses stand in it as they are kept.
    """
    return {**state["context"], **builtin(state)}


def builtin(state: Mapping[str, Any]) -> dict[str, Any]:
    """Give the built-in keys of a run, or of a branch that is seen as one, as they are true now; none is ever stored.

    The current node is the step that is worked on; between two steps the one that ended last; None before the first,
    and once the run is over. A step that is tried again is one node: the previous one is the step before its first try.
    Times: UTC, as in the state.
    """
    passed = reversed(state["steps"])
    current = None if state["status"] in TERMINAL else next(passed, None)
    retries, previous = 0, next(passed, None)
    while current is not None and previous is not None and _was_tried(previous, current):
        retries, previous = retries + 1, next(passed, None)
    attempt = current.get("attempt") if current is not None else None
    begun = state.get("created_at") or (state["steps"][0].get("started_at") if state["steps"] else None)
    return {
        "_current_node": current["step_id"] if current is not None else None,
        "_previous_node": previous["step_id"] if previous is not None else None,
        "_pipeline_name": state.get("workflow_id"),
        "_run_id": state["run_id"],
        "_retry_count": attempt - 1 if type(attempt) is int and attempt > 0 else retries,
        "_start_time": begun or None,
        "_node_start_time": (current.get("started_at") if current is not None else None) or None,
    }


def _was_tried(entry: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    same = entry["step_id"] == current["step_id"]
    return same and visits.is_failed_try(entry) and not entry.get("passed")


# ---- Branches that come together (D43).


class Changes(NamedTuple):
    """What was changed of a context: keys that were set, with their values, and keys that were taken away."""

    set: Mapping[str, Any]
    gone: Sequence[str] = ()


class Merged(NamedTuple):
    """A context after a fan-in. conflicts: `{key, branches}` of each key that branches left with different values."""

    context: dict[str, Any]
    conflicts: list[dict[str, Any]]


def merged(context: Mapping[str, Any], branches: Sequence[tuple[str, Changes]]) -> Merged:
    """Put what branches changed into a context, in the order in which they were declared: the last one wins.

    branches: id and changes of each. What the engine itself writes differs in each branch, and is no conflict.
    """
    kept = dict(context)
    writers: dict[str, list[tuple[str, tuple[Any, ...]]]] = {}
    for name, changes in branches:
        for key in changes.gone:
            kept.pop(key, None)
            writers.setdefault(key, []).append((name, ()))
        for key, value in changes.set.items():
            kept.pop(key, None)
            kept[key] = copied(value)
            writers.setdefault(key, []).append((name, (value,)))
    conflicts = [
        {"key": key, "branches": [name for name, _ in wrote]}
        for key, wrote in writers.items()
        if not is_reserved(key) and any(not same(wrote[0][1], other) for _, other in wrote[1:])
    ]
    return Merged(kept, conflicts)


def copied(value: Any) -> Any:
    """Give a JSON value anew, down to its leaves."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal: 1 is 1.0, and neither is true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def written(context: Mapping[str, Any], changes: Changes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Set and take away keys by hand; gives the context, and what each key held before, as `Changed.before`.

    What was set last stands last.
    """
    keys = (*changes.set, *changes.gone)
    before = {
        "set": {key: context[key] for key in keys if key in context},
        "gone": sorted(key for key in keys if key not in context),
    }
    kept = {key: value for key, value in context.items() if key not in keys}
    return {**kept, **changes.set}, before


RESERVED_KEYS = ("last_stage", "last_response")


RESERVED_PREFIXES = ("_", "response.", "output.", "command.", "parallel.", "internal.", "human.gate.")


def is_reserved(key: str) -> bool:
    """Tell whether a context key is the engine's own (D37)."""
    return key in RESERVED_KEYS or key.startswith(RESERVED_PREFIXES)
