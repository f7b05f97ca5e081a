"""Where the steps of a plan stand: each by its key, and which comes after it (D7)."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

MOST_VISITS = 20  # of a step in a routed plan that says nothing of it (D45)
_NO_BOUND = 1 << 30


class Place(NamedTuple):
    """A step of the plan with the phase it belongs to."""

    phase: dict[str, Any]
    step: dict[str, Any]

    @property
    def key(self) -> str:
        """The step's name everywhere: `phase/id` (D7)."""
        return str(self.step["key"])


class _Index(NamedTuple):
    """phases: the plan's own list, by which the index is known again."""

    phases: Sequence[Any]
    size: int
    every: Sequence[Place]
    at: Mapping[str, int]
    branches: bool


_KEPT = 4  # a process works on one plan, and on those of its branches
_newest: list[_Index] = []


def _index(plan: Mapping[str, Any]) -> _Index:
    phases = plan["phases"]
    size = sum(len(phase["steps"]) for phase in phases)
    for known in _newest:
        if known.phases is phases and known.size == size:
            return known
    every = [Place(phase, step) for phase in phases for step in phase["steps"]]
    at: dict[str, int] = {}
    for number, place in enumerate(every):
        at.setdefault(place.step["key"], number)
    branches = any(place.step.get("transitions") or place.step.get("retry_target") for place in every)
    made = _Index(phases, size, every, at, branches)
    _newest[:] = [made, *_newest[: _KEPT - 1]]
    return made


def is_human(step: Mapping[str, Any]) -> bool:
    """Tell whether a step ends by what a person decides."""
    return step.get("kind") == "human"


def places(plan: Mapping[str, Any]) -> Sequence[Place]:
    """List the plan's steps in the order in which they are written."""
    return _index(plan).every


def place_of(plan: Mapping[str, Any], key: str | None) -> Place | None:
    """Find a step by its key."""
    found = _index(plan)
    number = found.at.get(key) if key is not None else None
    return None if number is None else found.every[number]


def inner(place: Place) -> list[Place]:
    """List the steps of a parallel step's branches, as declared; nothing of every other step (D43)."""
    parallel = place.step.get("parallel")
    branches = parallel["branches"] if isinstance(parallel, dict) else ()
    return [Place(place.phase, step) for branch in branches for step in branch["steps"]]


def with_branches(plan: Mapping[str, Any]) -> list[Place]:
    """List a run's steps in their order, those of its branches behind their parallel step, whatever it is seen as."""
    return [one for place in places(plan.get("whole") or plan) for one in (place, *inner(place))]


def find(plan: Mapping[str, Any], key: str | None) -> Place | None:
    """Find a step by its key, also one of a branch."""
    return place_of(plan, key) or next((place for place in with_branches(plan) if place.key == key), None)


def after(plan: Mapping[str, Any], key: str) -> Place | None:
    """Give the step that is written after another; None behind the last."""
    found = _index(plan)
    number = found.at.get(key, len(found.every)) + 1
    return found.every[number] if number < len(found.every) else None


def is_routed(plan: Mapping[str, Any]) -> bool:
    """Tell whether a plan says anywhere where to go on: else its steps are done in their order."""
    return bool(plan.get("retry_target")) or _index(plan).branches


def most_visits(plan: Mapping[str, Any], place: Place) -> int:
    """Give how often a step may be visited in all: as it says, as its workflow says, else MOST_VISITS if routed."""
    for said in (place.step.get("max_visits"), plan.get("max_visits")):
        if type(said) is int and said > 0:
            return said
    return MOST_VISITS if is_routed(plan) else _NO_BOUND
