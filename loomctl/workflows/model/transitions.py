"""What a transition of a workflow is, how one is read, and the step that it leads to (D45)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomctl.kit.json.fields import ID_RULE, Fields, is_id, only
from loomctl.kit.problems import at, kind_of, shown
from loomctl.runs.model.visits import END
from loomctl.workflows.model.fidelity import FIDELITIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loomctl.kit.problems import Problem

HEAVIEST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A possible way from a step to another. to: a step id of the same phase, `phase/id`, or `end`.

    condition: JavaScript over `state outcome context preferred_label` (D12). weight: the higher one wins a tie.
    fidelity: of the preamble of the step that it leads to. on_failure: it is for a step that failed.
    """

    to: str
    label: str | None = None
    condition: str | None = None
    weight: float | None = None
    fidelity: str | None = None
    on_failure: bool | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    KEYS = ("to", "label", "condition", "weight", "fidelity", "on_failure")

    def to_dict(self) -> dict[str, Any]:
        """Give the transition as a workflow file writes it."""
        return only(self.KEYS, {key: getattr(self, key) for key in self.KEYS}, self.extra)


def read_all(fields: Fields, problems: list[Problem]) -> tuple[Transition, ...] | None:
    """Read a step's transitions; None where it says nothing of them."""
    entries = fields.items("transitions")
    if entries is None:
        return None
    found = (_read(raw, where, problems) for where, raw in entries)
    return tuple(transition for transition in found if transition is not None)


def _read(raw: object, where: str, problems: list[Problem]) -> Transition | None:
    fields = Fields.opened(raw, where, problems)
    if fields is None:
        return None
    return Transition(
        to=read_target(fields, "to", required=True) or "",
        label=fields.text("label"),
        condition=fields.text("condition"),
        weight=_read_weight(fields),
        fidelity=fields.choice("fidelity", FIDELITIES),
        on_failure=fields.flag("on_failure"),
        extra=fields.rest(),
    )


def read_target(fields: Fields, key: str, *, required: bool = False) -> str | None:
    """Take the name of a step: its id or `phase/id`."""
    text = fields.text(key, required=required)
    if text is not None and not all(is_id(part) for part in text.split("/", 1)):
        fields.fail("BAD_ID", key, f"{shown(text)} is no step: an id of the same phase, or phase/id", ID_RULE)
        return None
    return text


def _read_weight(fields: Fields) -> float | None:
    if not fields.has("weight"):
        return None
    value = fields.raw("weight")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        fields.fail("WRONG_TYPE", "weight", f"weight: expected a number, got {kind_of(value)}", '"weight": 5')
        return None
    if not -HEAVIEST <= value <= HEAVIEST:
        fields.fail("OUT_OF_RANGE", "weight", f"weight is between -{HEAVIEST:,} and {HEAVIEST:,}")
        return None
    return value


def declared(raw: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give every transition of a workflow as it was read, with its JSON path; what has another shape is passed over."""
    phases = raw.get("phases") if isinstance(raw, dict) else None
    for name, phase in phases.items() if isinstance(phases, dict) else ():
        for part in ("pre_steps", "steps", "post_steps"):
            listed = phase.get(part) if isinstance(phase, dict) else None
            for index, step in enumerate(listed if isinstance(listed, list) else ()):
                yield from _of_step(step, at("$", "phases", name, part, index))


def _of_step(step: object, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for place, transition in _objects(step, "transitions", where):
        yield place, transition
    parallel = step.get("parallel") if isinstance(step, dict) else None
    for place, branch in _objects(parallel, "branches", at(where, "parallel")):
        for inner, one in _objects(branch, "steps", place):
            for found, transition in _objects(one, "transitions", inner):
                yield found, transition


def _objects(holder: object, key: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the objects of a list, each with its JSON path; nothing where there is none."""
    listed = holder.get(key) if isinstance(holder, dict) else None
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, dict):
            yield at(where, key, index), entry


def key_of(name: str, phase: str) -> str:
    """Give the key of what a step of a phase calls `name`; `end` stays."""
    return name if name == END or "/" in name else f"{phase}/{name}"
