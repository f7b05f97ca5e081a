"""How the steps of a simulated run end: scripted outcomes, read from what a file holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.model import directives
from loomctl.model.places import places
from loomctl.model.problems import Problem, at, choices, error, kind_of, shown, warning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.model.directives import Reading

_NOTES = ("RESERVED_KEY", "REASON_UNUSED")  # what a run warns of, a simulation does too


class Script(NamedTuple):
    """visits: of each step that is named, what its visits say, by its key; the last one holds for all that follow."""

    visits: Mapping[str, Sequence[Reading]]

    def of(self, key: str, visit: int) -> Reading:
        """Give what a step says at a visit, counted from 1; a step that is not named says nothing and succeeds."""
        said = self.visits.get(key)
        return said[min(visit, len(said)) - 1] if said else directives.Reading()


def read(raw: Any, plan: Mapping[str, Any]) -> tuple[Script, list[Problem]]:
    """Read `{step: [object per visit]}`, in the words of a directive (D33); a single object is a list of one.

    step: a key (`phase/id`), or an id where one step has it. Gives every problem with its JSON path; a reserved key of
    `context_updates` is left out, with a warning.
    """
    if raw is None:
        return Script({}), []
    if not isinstance(raw, dict):
        return Script({}), [error("BAD_OUTCOMES", "$", f"expected an object of steps, got {kind_of(raw)}")]
    found: list[Problem] = []
    visits: dict[str, list[Reading]] = {}
    for name, value in raw.items():
        where = at("$", name)
        key = _key(name, plan, where, found)
        if key in visits:
            found.append(error("BAD_OUTCOMES", where, f"{key} is named twice", "name each step once"))
        elif key is not None:
            visits[key] = _visits(value, where, found)
    return Script(visits), found


def _key(name: str, plan: Mapping[str, Any], where: str, found: list[Problem]) -> str | None:
    known = [place.key for place in places(plan)]
    if name in known:
        return name
    same = [key for key in known if key.partition("/")[2] == name]
    if len(same) == 1:
        return same[0]
    if same:
        found.append(
            error("BAD_OUTCOMES", where, f"{shown(name)} is in {len(same)} phases", f"write {' or '.join(same)}")
        )
    else:
        hint = choices(name, [*known, *(key.partition("/")[2] for key in known)])
        found.append(error("BAD_OUTCOMES", where, f"the workflow has no step {shown(name)}", hint))
    return None


def _visits(value: Any, where: str, found: list[Problem]) -> list[Reading]:
    if isinstance(value, dict):
        return [_visit(value, where, found)]
    if not isinstance(value, list) or not value:
        what = "an empty list" if value == [] else kind_of(value)
        found.append(error("BAD_OUTCOMES", where, f"expected a list of objects, one for each visit, got {what}"))
        return []
    return [_visit(one, at(where, index), found) for index, one in enumerate(value)]


def _visit(raw: Any, where: str, found: list[Problem]) -> Reading:
    if not isinstance(raw, dict):
        found.append(error("BAD_OUTCOMES", where, f"expected an object, got {kind_of(raw)}", f"known: {_FIELDS}"))
        return directives.Reading()
    for field in raw.keys() - set(directives.FIELDS):
        hint = choices(field, directives.FIELDS)
        found.append(error("BAD_OUTCOMES", at(where, field), f"{shown(field)} is no word of a directive", hint))
    reading = directives.of_object(raw)
    for fault in reading.warnings:
        place = at(where, *(part for part in fault.where.split("/")[1:2]))
        told = (
            warning(fault.code, place, fault.message)
            if fault.code in _NOTES
            else error("BAD_OUTCOMES", place, fault.message)
        )
        found.append(told)
    return reading


_FIELDS = ", ".join(directives.FIELDS)
