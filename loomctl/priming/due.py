"""Which critical artifacts must be in context again, and why (D13-D15). Pure: no disk, clock or environment."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.workflows.model.triggers import fires

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from loomctl.workflows.model.triggers import Event

WHOLE = ("full", "diff")
"""The forms after which a conversation has all of an artifact."""
OVER = ("condition_false", "other_phase")
"""The reasons for which an artifact does not apply now."""
LOAD, SKIP, DEFER, ERROR = "load", "skip", "defer", "error"


class Verdict(NamedTuple):
    """decision: load, skip, defer or error; reason: a code (`trigger`, `condition_false`, …)."""

    decision: str
    reason: str


class Given(NamedTuple):
    """What a session was given of one artifact: sha256 of its content, the form, the id of the slip that carried it.

    text: the SHA-256 of the text as it was given, by which a diff finds it; needs: the slips that a diff builds on.
    """

    sha256: str
    form: str
    slip: str
    text: str = ""
    needs: Sequence[str] = ()


def wanted(
    artifact: Mapping[str, Any], *, event: Event, phase: str | None, only: Collection[str] | None, condition: str
) -> Verdict:
    """Decide from the declaration alone whether an artifact is due; its file is not looked at yet.

    artifact: an entry of `plan.json`'s `artifacts`. only: ids asked for by name, None for all.
    condition: `true`, `false`, or `unknown` where it takes the environment and there is none (D12).
    """
    if only is not None and artifact["id"] not in only:
        return Verdict(SKIP, "not_asked_for")
    if artifact.get("when") == "phase" and artifact.get("phase") != phase:
        return Verdict(SKIP, "other_phase")
    fired = fires(artifact.get("triggers") or (), event) is not None
    if not fired and not event.is_manual and only is None:
        return Verdict(SKIP, "not_triggered")
    if condition == "unknown":
        return Verdict(DEFER, "needs_environment")
    if condition == "false":
        return Verdict(SKIP, "condition_false")
    return Verdict(LOAD, "trigger" if fired and only is None else "manual")


def fresh(given: Given | None, sha256: str, *, force: bool) -> Verdict | None:
    """Compare with what this session has: skip what stands in it in full and unchanged, name what changed (D15).

    None: nothing to add to the verdict of `wanted`.
    """
    if given is None or force:
        return None
    if given.sha256 != sha256:
        return Verdict(LOAD, "changed")
    return Verdict(SKIP, "fresh") if given.form in WHOLE else None
