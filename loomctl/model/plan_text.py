"""A run's own plan as a priming shows it: for reading, without what was compiled for machines (D15).

Its headings are the phases and steps, so that an outline of it is still the whole way ahead.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any


def readable(plan: Mapping[str, Any]) -> str:
    """Render a plan as Markdown: phases, steps with their texts, artifacts."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Mapping[str, Any]) -> Iterator[str]:
    autonomy = plan.get("autonomy") or {}
    gated = autonomy.get("require_approval_for") or []
    yield f"# Plan {plan['plan_id']} (workflow {plan['workflow_id']})"
    yield f"autonomy {autonomy.get('level')}" + (f"; approval before {', '.join(map(str, gated))}" if gated else "")
    for phase in plan["phases"]:
        yield ""
        yield f"## {phase['id']}" + (f": {phase['description']}" if phase.get("description") else "")
        for step in phase["steps"]:
            if step.get("engine"):
                continue
            yield f"### {step['key']}: {step.get('name') or step.get('id')}"
            for field in ("description", "prompt", "command", "skill"):
                if step.get(field):
                    yield f"{field}: {step[field]}" if field in ("command", "skill") else str(step[field])
    if plan["artifacts"]:
        yield ""
        yield "## Critical artifacts"
    for artifact in plan["artifacts"]:
        source = artifact.get("path") or artifact.get("path_from_state") or artifact.get("command")
        when = artifact.get("phase") or artifact.get("when")
        need = "required" if artifact.get("required") else "optional"
        yield f"- {artifact['id']} ({need}, {when}): {source}; on {', '.join(artifact.get('triggers') or [])}"
