"""Whether the placeholders in a text are ones that a run can fill (D8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.expressions.placeholders import NAMES, used
from loomctl.kit.problems import error, nearest, warning

if TYPE_CHECKING:
    from loomctl.kit.problems import Problem

# FABER's own run fills these in; here the assistant does, so they stay in the text as they are (D5).
LEFT_TO_ASSISTANT = ("pr_number", "pr_id")


def placeholder_problems(text: str | None, where: str, *, optional: bool = False) -> list[Problem]:
    """Find placeholders that no run can fill; what is optional goes without, with a warning (D8)."""
    found: list[Problem] = []
    for name in used(text or ""):
        if name in NAMES:
            continue
        literal = "{{" + name + "}}"
        if name in LEFT_TO_ASSISTANT:
            message = f"Loom has no value for {{{name}}}; it stays in the text for the assistant to fill in"
            found.append(warning("UNRESOLVED_PLACEHOLDER", where, message, f"write {literal} to say so yourself"))
            continue
        meant = nearest(name, NAMES)
        ask = f"did you mean {{{meant}}}? " if meant else ""
        hint = f"{ask}write {literal} for literal braces; known: {', '.join(NAMES)}"
        message = f"{{{name}}} is no placeholder that Loom knows"
        if optional:
            found.append(warning("UNRESOLVED_PLACEHOLDER", where, f"{message}: this artifact is left out", hint))
        else:
            found.append(error("UNRESOLVED_PLACEHOLDER", where, message, hint))
    return found
