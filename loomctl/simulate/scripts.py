"""How the steps of a simulated run end: scripted outcomes, read from what a file holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.flow.outcomes import directives
from loomctl.kit.problems import Problem, at, choices, error, kind_of, shown, warning
from loomctl.runs.model.frozen_plan import inner, places, with_branches
from loomctl.workflows import steps
from loomctl.workflows.branches import is_parallel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.flow.outcomes.directives import Reading
    from loomctl.runs.model.frozen_plan import Place

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

    step: a key (`phase/id`), or an id where one step has it; a branch's step has one in its phase (`fan.web.look`) and
    one of its own (`look`). A parallel step says nothing: its branches do. Gives every problem with its JSON path; a
    reserved key of `context_updates` is left out, with a warning.
    """
    if raw is None:
        return Script({}), []
    if not isinstance(raw, dict):
        return Script({}), [error("BAD_OUTCOMES", "$", f"expected an object of steps, got {kind_of(raw)}", _LIKE)]
    found: list[Problem] = []
    visits: dict[str, list[Reading]] = {}
    names = _Names(plan)
    for name, value in raw.items():
        where = at("$", name)
        key = names.key(name, where, found)
        if key in visits:
            found.append(error("BAD_OUTCOMES", where, f"{key} is named twice", "give all its visits under one name"))
        elif key is not None:
            visits[key] = _visits(value, where, found)
    return Script(visits), found


class _Names:
    """What the steps of a plan are called in a script."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        fans = [place for place in places(plan) if is_parallel(place.step)]
        self._fans = {place.key: [one.key for one in inner(place)] for place in fans}
        self._keys = [place.key for place in with_branches(plan)]
        self._own = {key: own for place in fans for key, own in _own_ids(place)}

    def key(self, name: str, where: str, found: list[Problem]) -> str | None:
        """Give the key of a step that has outcomes; None, with a problem, where that is none or not one."""
        named = self._named(name)
        if len(named) == 1 and named[0] in self._fans:
            message = f"{shown(name)} is a parallel step, which ends as its branches do"
            found.append(error("BAD_OUTCOMES", where, message, f"write {' or '.join(self._fans[named[0]])}"))
            return None
        if len(named) == 1:
            return named[0]
        if named:
            message = f"{shown(name)} names {len(named)} steps"
            found.append(error("BAD_OUTCOMES", where, message, f"write {' or '.join(named)}"))
            return None
        known = [*self._keys, *(key.partition("/")[2] for key in self._keys), *self._own.values()]
        message = f"the workflow has no step {shown(name)}"
        found.append(error("BAD_OUTCOMES", where, message, choices(name, list(dict.fromkeys(known)))))
        return None

    def _named(self, name: str) -> list[str]:
        """Give the steps that a name may mean: by the key, else by the id in a phase, else by that in a branch."""
        if name in self._keys:
            return [name]
        return [key for key in self._keys if key.partition("/")[2] == name] or [
            key for key, own in self._own.items() if own == name
        ]


def _own_ids(place: Place) -> Iterator[tuple[str, str]]:
    """Give key and own id of each step in the branches of a parallel one."""
    for branch in place.step[steps.PARALLEL]["branches"]:
        before = steps.inner_id(str(place.step["id"]), str(branch["id"]), "")
        yield from ((str(step["key"]), str(step["id"]).removeprefix(before)) for step in branch["steps"])


def _visits(value: Any, where: str, found: list[Problem]) -> list[Reading]:
    if isinstance(value, dict):
        return [_visit(value, where, found)]
    if not isinstance(value, list) or not value:
        what = "an empty list" if value == [] else kind_of(value)
        found.append(error("BAD_OUTCOMES", where, f"expected a list of objects, one for each visit, got {what}", _EACH))
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
_EACH = '[{"outcome": "failed"}, {"outcome": "succeeded"}]'
_LIKE = f'{{"build/test": {_EACH}}}'
