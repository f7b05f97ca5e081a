"""FABER's plan files, read as they are: the workflow in them, fit to be frozen for a run (D5).

Real files are of several years and break FABER's own schema, so what does not fit is left out, never refused.
"""

from __future__ import annotations

import re

from loomctl.expressions.placeholders import NAMES
from loomctl.runs.faber import faber_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

_PARTS = {"pre_step": "pre_steps", "post_step": "post_steps"}
_TEXTS = ("id", "name", "description", "prompt", "command", "skill")
_OTHERS: dict[str, type] = {"max_retries": int, "require_approval": bool, "result_handling": dict}


# What FABER's state fills in as a step begins stands in these instead of braces while the plan is built.
_OPENING, _CLOSING = "\ue000", "\ue001"
_NAMED = re.compile(r"(?<!\{)\{([a-z][a-z0-9_]*)\}(?!\})")


def workflow_id(raw: Mapping[str, Any]) -> str:
    """Name the workflow that a FABER plan was made from; empty if it does not say."""
    found = raw["workflow"].get("id")
    return found if isinstance(found, str) else ""


def workflow(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Give the workflow that stands in a FABER plan: its phases with the steps that ran there, and its autonomy.

    What is no phase or step, or has no name, is left out. `critical_artifacts` is there only if the plan has them.
    """
    inner = raw["workflow"]
    found: dict[str, Any] = {
        "id": workflow_id(raw) or "faber",
        "description": str(inner.get("description") or "the workflow of a FABER plan"),
        "phases": {name: _phase(phase) for name, phase in faber_state.phases_in(inner.get("phases"))},
    }
    autonomy = raw.get("autonomy") or inner.get("autonomy")
    if isinstance(autonomy, (str, dict)):
        found["autonomy"] = autonomy
    if isinstance(inner.get("critical_artifacts"), dict):
        found["critical_artifacts"] = inner["critical_artifacts"]
    return found


def _phase(phase: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"pre_steps": [], "steps": [], "post_steps": []}
    for part in ("pre_steps", "steps", "post_steps"):
        entries = phase.get(part)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and faber_state.name_of(entry, "id", "name"):
                where = _PARTS.get(str(entry.get("position")), part) if part == "steps" else part
                found[where].append(_step(entry))
    if isinstance(phase.get("description"), str):
        found["description"] = phase["description"]
    for key, kind in (("enabled", bool), ("require_approval", bool), ("max_retries", int)):
        if type(phase.get(key)) is kind:
            found[key] = phase[key]
    return found


def _step(entry: Mapping[str, Any]) -> dict[str, Any]:
    step = {key: entry[key] for key in _TEXTS if isinstance(entry.get(key), str) and entry[key].strip()}
    return step | {key: entry[key] for key, kind in _OTHERS.items() if type(entry.get(key)) is kind}


def ignored(raw: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Give what a FABER plan says and nothing here acts on: its JSON path, whose it is, the field."""
    from loomctl.workflows.model.steps import (  # for a check or a freezing, never for a hook
        ADDED_FIELDS,
        INERT_FIELDS,
        LATER_FIELDS,
    )
    from loomctl.workflows.model.workflow import INERT_PHASE_FIELDS

    listed = raw["workflow"].get("phases")
    places = {id(phase): f"[{index}]" for index, phase in enumerate(listed)} if isinstance(listed, list) else {}
    for name, phase in faber_state.phases_in(listed):
        at = "$.workflow.phases" + places.get(id(phase), f".{name}")
        for key in INERT_PHASE_FIELDS:
            if _says(phase.get(key)):
                yield f"{at}.{key}", name, key
        for part in ("pre_steps", "steps", "post_steps"):
            entries = phase.get(part)
            for index, entry in enumerate(entries if isinstance(entries, list) else ()):
                step_id = faber_state.name_of(entry, "id", "name")
                for key in (*INERT_FIELDS, *LATER_FIELDS, *ADDED_FIELDS) if step_id else ():
                    if _says(entry.get(key)):
                        yield f"{at}.{part}[{index}].{key}", f"{name}/{step_id}", key


def _says(value: object) -> bool:
    return bool(any(value.values()) if isinstance(value, dict) else value)


def held_open(merged: Mapping[str, Any]) -> dict[str, Any]:
    """Give a workflow with those placeholders of its steps kept apart that Loom does not know; `filled_in` ends it."""
    phases = merged["phases"]
    return {**merged, "phases": {name: _mapped(phase, _hold) for name, phase in phases.items()}}


def filled_in(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Give a plan that was built of such a workflow with braces again: `{pr_number}` is for the run's state to fill."""
    released = _mapped(plan["phases"], lambda text: text.replace(_OPENING, "{").replace(_CLOSING, "}"))
    return {**plan, "phases": released}


def _hold(text: str) -> str:
    return _NAMED.sub(lambda match: match[0] if match[1] in NAMES else f"{_OPENING}{match[1]}{_CLOSING}", text)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Give a value with every text in it changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(entry, change) for key, entry in value.items()}
    return [_mapped(entry, change) for entry in value] if isinstance(value, list) else value
