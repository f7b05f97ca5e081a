"""A run's context: what an ended step changes of it, and how that is taken back (D31, D37)."""

from __future__ import annotations

from loomctl.model.records import NamedTuple

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
    kept = dict(context)
    if not isinstance(before, dict):
        return kept
    gone, values = before.get("gone"), before.get("set")
    for key in gone if isinstance(gone, list) else ():
        if isinstance(key, str):
            kept.pop(key, None)
    kept.update(values if isinstance(values, dict) else {})
    return kept
