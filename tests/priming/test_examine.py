"""What is due, and why: declared, triggered, true, and not in the conversation already (D13-D15)."""

from __future__ import annotations

from typing import Any

from loomctl.priming.examine import Verdict, fresh, wanted
from loomctl.priming.memory_of_session import Given
from loomctl.priming.slip import DEFER, LOAD, SKIP
from loomctl.workflows import triggers
from loomctl.workflows.triggers import Event
from tests.helpers.tables import each

START, MANUAL = triggers.session_start(), triggers.manual()
ALWAYS = {"id": "spec", "when": "always", "phase": None, "triggers": ["session_start"]}
QUIET = {**ALWAYS, "triggers": []}
BUILD = {**ALWAYS, "when": "phase", "phase": "build"}


@each(
    ("artifact", "event", "phase", "only", "condition", "expected"),
    [
        (ALWAYS, START, None, None, "true", (LOAD, "trigger")),
        (ALWAYS, MANUAL, None, None, "true", (LOAD, "manual")),
        (QUIET, START, None, None, "true", (SKIP, "not_triggered")),
        (QUIET, MANUAL, None, None, "true", (LOAD, "manual")),
        (QUIET, START, None, ["spec"], "true", (LOAD, "manual")),
        (ALWAYS, MANUAL, None, ["other"], "true", (SKIP, "not_asked_for")),
        (ALWAYS, MANUAL, None, [], "true", (SKIP, "not_asked_for")),
        (ALWAYS, START, None, None, "false", (SKIP, "condition_false")),
        (ALWAYS, MANUAL, None, ["spec"], "false", (SKIP, "condition_false")),
        (ALWAYS, START, None, None, "unknown", (DEFER, "needs_environment")),
        (QUIET, START, None, None, "unknown", (SKIP, "not_triggered")),
        (BUILD, START, "build", None, "true", (LOAD, "trigger")),
        (BUILD, START, "frame", None, "true", (SKIP, "other_phase")),
        (BUILD, MANUAL, None, None, "true", (SKIP, "other_phase")),
        ({"id": "bare"}, START, None, None, "true", (SKIP, "not_triggered")),
        ({"id": "bare"}, MANUAL, None, None, "true", (LOAD, "manual")),
    ],
)
def test_the_declaration_decides_first(
    *,
    artifact: dict[str, Any],
    event: Event,
    phase: str | None,
    only: list[str] | None,
    condition: str,
    expected: tuple[str, str],
) -> None:
    """Asked for, in its phase, triggered, condition true: in this order, and the first that fails is the reason."""
    assert wanted(artifact, event=event, phase=phase, only=only, condition=condition) == expected


@each(
    ("given", "sha256", "force", "expected"),
    [
        (None, "a", False, None),
        (Given("a", "full", "s"), "a", False, Verdict(SKIP, "fresh")),
        (Given("a", "full", "s"), "a", True, None),
        (Given("a", "full", "s"), "b", False, Verdict(LOAD, "changed")),
        (Given("a", "full", "s"), "b", True, None),
        (Given("a", "pointer", "s"), "a", False, None),
        (Given("a", "head", "s"), "a", False, None),
        (Given("a", "head", "s"), "b", False, Verdict(LOAD, "changed")),
        (Given("", "full", "s"), "", False, Verdict(SKIP, "fresh")),
    ],
)
def test_fresh_is_full_and_unchanged(given: Given | None, sha256: str, force: bool, expected: Verdict | None) -> None:
    """Only what stands in the conversation in full, with the same content, is fresh; force asks for it again."""
    assert fresh(given, sha256, force=force) == expected
