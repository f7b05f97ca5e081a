"""A run's own plan as a priming shows it: a line for each step, done, current or open (D63).

What a step asks for stands in its own prompt, once, when it is its turn.
"""

from __future__ import annotations

from loomctl.runs.model import visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any


def readable(plan: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """Render a plan and how far a run of it is: `✓ frame/fetch-work: Fetch the work`."""
    return "\n".join(_lines(plan, state)) + "\n"


def _lines(plan: Mapping[str, Any], state: Mapping[str, Any]) -> Iterator[str]:
    gated = (plan.get("autonomy") or {}).get("require_approval_for") or ()
    seen = visits.by_step(state)
    for phase in plan["phases"]:
        gate = " (after approval)" if phase.get("require_approval") or phase["id"] in gated else ""
        for step in phase["steps"]:
            if step.get("engine"):
                continue
            branches = [str(one["id"]) for one in (step.get("parallel") or {}).get("branches") or ()]
            among = f" ({', '.join(branches)} in parallel)" if branches else ""
            name = " ".join(str(step.get("name") or step.get("id")).split())
            yield f"{_sign(seen.get(step['key'], []))} {step['key']}: {name}{among}{gate}"
            gate = ""


def _sign(seen: list[dict[str, Any]]) -> str:
    if not seen:
        return "·"
    if seen[-1]["status"] in visits.OPEN:
        return "▸"
    return "✓" if visits.is_done(seen) else "✗"
