"""How a chain of workflows becomes one: what a child inherits, adds and replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.kit.ids import slug
from loomctl.workflows.model.survival import KEY
from loomctl.workflows.model.workflow import PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GROUPS = ("always_load", "conditional_load")
# Said key by key: a child that changes one of them keeps the others (an approval is not lost by naming a level).
_KEY_BY_KEY = ("autonomy", "result_handling")
_NOT_INHERITED = ("extends", "$schema")


def merge(chain: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Merge workflows into one, as a plain workflow without `extends`.

    chain: (id, raw workflow), the root ancestor first; each has passed `parse` without an error. pre_steps run root →
    child, post_steps child → root; steps are the nearest non-empty ones (an explicit [] inherits: FABER's children
    write it so). A step named again in its phase is one step, the nearest definition at the first place (D7). Critical
    artifacts are merged by id, the child's in the parent's place. skip_steps add up, and so does must_survive, the
    parent's items first. Phases keep the parent's order.
    """
    merged: dict[str, Any] = {}
    for _, raw in chain:
        merged = _over(merged, raw)
    return merged


def step_id(step: Mapping[str, Any]) -> str:
    """Give a raw step's id: its own, else the slug of its name (D7)."""
    return str(step["id"]) if "id" in step else slug(str(step.get("name", "")))


def _over(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**parent, **{key: value for key, value in child.items() if key not in _NOT_INHERITED}}
    for key in _KEY_BY_KEY:
        if key in parent and key in child:
            merged[key] = _keys_over(parent[key], child[key])
    if "skip_steps" in parent and "skip_steps" in child:
        merged["skip_steps"] = list(dict.fromkeys([*parent["skip_steps"], *child["skip_steps"]]))
    if KEY in parent and KEY in child:
        merged[KEY] = [*parent[KEY], *(entry for entry in child[KEY] if entry not in parent[KEY])]
    if "critical_artifacts" in parent and "critical_artifacts" in child:
        merged["critical_artifacts"] = _artifacts_over(parent["critical_artifacts"], child["critical_artifacts"])
    phases = {name: dict(phase) for name, phase in parent.get("phases", {}).items()}
    for name, phase in child.get("phases", {}).items():
        phases[name] = _phase_over(phases.get(name, {}), phase)
    if "phases" in parent or "phases" in child:
        merged["phases"] = phases
    return merged


def _keys_over(parent: Any, child: Any) -> dict[str, Any]:
    long = [{"level": said} if isinstance(said, str) else said for said in (parent, child)]
    return {**long[0], **long[1]}


def _phase_over(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**parent, **child}
    if "result_handling" in parent and "result_handling" in child:
        merged["result_handling"] = _keys_over(parent["result_handling"], child["result_handling"])
    own = {step_id(step): part for part in PARTS for step in child.get(part, ())}
    kept = {part: [step for step in parent.get(part, ()) if own.get(step_id(step), part) == part] for part in PARTS}
    parts = {
        "pre_steps": _one_each(kept["pre_steps"], child.get("pre_steps", ())),
        "steps": list(child.get("steps") or kept["steps"]),
        "post_steps": _one_each(child.get("post_steps", ()), kept["post_steps"], nearest=child.get("post_steps", ())),
    }
    for part, steps in parts.items():
        if steps or part in merged:
            merged[part] = steps
    return merged


def _one_each(
    first: Sequence[Mapping[str, Any]],
    then: Sequence[Mapping[str, Any]],
    nearest: Sequence[Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Join two lists, each step once at its first place, as `nearest` (else `then`) defines it."""
    placed: dict[str, dict[str, Any]] = {}
    for step in (*first, *then, *(then if nearest is None else nearest)):
        placed[step_id(step)] = dict(step)
    return list(placed.values())


def _artifacts_over(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    own = {entry["id"]: place for place, entries in _places(child).items() for entry in entries}
    groups = {
        place: [entry for entry in entries if own.get(entry["id"], place) == place]
        for place, entries in _places(parent).items()
    }
    for place, entries in _places(child).items():
        by_id = {entry["id"]: dict(entry) for entry in groups.get(place, ())}
        by_id.update((entry["id"], dict(entry)) for entry in entries)
        groups[place] = list(by_id.values())
    merged = {**parent, **child}
    for name in _GROUPS:
        if (name, None) in groups:
            merged[name] = groups[name, None]
    phases = {phase: entries for (name, phase), entries in groups.items() if name == "phase_specific" and phase}
    if phases:
        merged["phase_specific"] = phases
    return merged


def _places(groups: Mapping[str, Any]) -> dict[tuple[str, str | None], list[dict[str, Any]]]:
    """List a declaration's groups by place, such as `("always_load", None)` and `("phase_specific", "build")`."""
    places: dict[tuple[str, str | None], list[dict[str, Any]]] = {
        (name, None): groups[name] for name in _GROUPS if name in groups
    }
    places.update((("phase_specific", phase), entries) for phase, entries in groups.get("phase_specific", {}).items())
    return places
