"""What a parallel step of a workflow is: branches with steps of their own, and how they come together (D43)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomctl.kit.json.fields import ID_RULE, Fields, is_id, only
from loomctl.kit.problems import error, shown
from loomctl.runs.model.joins import JOINS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loomctl.kit.problems import Problem
    from loomctl.workflows.model.steps import Step

    ReadStep = Callable[[object, str, dict[str, str], list[Problem]], Step | None]

KEY = "parallel"
LONGEST = 100  # characters of a branch's step with the names before it, in which it is known
# What an assistant or a command is asked for; a parallel step asks for nothing but its branches.
NOT_FOR_PARALLEL = ("command", "skill", "run", "timeout", "workdir", "output_schema", "output_retries", "evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One line of a parallel step: an id, and steps that lead to one another and to its end."""

    id: str
    steps: tuple[Step, ...]
    extra: dict[str, Any] = field(default_factory=dict)

    KEYS = ("id", "steps")

    def to_dict(self) -> dict[str, Any]:
        """Give the branch as a workflow file writes it."""
        return only(self.KEYS, {"id": self.id, "steps": [step.to_dict() for step in self.steps]}, self.extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """The branches of a parallel step. join: one of `joins.JOINS`; None: `wait_all`."""

    join: str | None = None
    branches: tuple[Branch, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    KEYS = ("join", "branches")

    def to_dict(self) -> dict[str, Any]:
        """Give it as a workflow file writes it."""
        branches = [branch.to_dict() for branch in self.branches]
        return only(self.KEYS, {"join": self.join, "branches": branches}, self.extra)

    def each_step(self, owner: str) -> Iterator[tuple[Branch, str, Step]]:
        """Go through the steps of all branches: branch, id in the phase, step. owner: the parallel step's id."""
        for branch in self.branches:
            for step in branch.steps:
                yield branch, inner_id(owner, branch.id, step.id), step


def inner_id(owner: str, branch: str, step: str) -> str:
    """Give the id by which a branch's step is known in its phase (D7): parallel step, branch and step, with points."""
    return f"{owner}.{branch}.{step}"


def read(
    fields: Fields, owner: str, seen: dict[str, str], problems: list[Problem], read_step: ReadStep
) -> Parallel | None:
    """Read what `parallel` says; None where it is not there or is no object.

    owner: the step's id; seen: the ids of its phase so far with their JSON paths; it grows.
    """
    if not fields.has(KEY):
        return None
    inner = Fields.opened(fields.raw(KEY), fields.path(KEY), problems)
    if inner is None:
        return None
    join = inner.choice("join", JOINS)
    entries = inner.items("branches", required=True)
    if entries is not None and not entries:
        inner.fail("EMPTY_LIST", "branches", "a parallel step without branches", '"branches": [{"id": "api", …}]')
    known: dict[str, str] = {}
    found = [_read_branch(raw, where, owner, known, seen, problems, read_step) for where, raw in entries or ()]
    branches = tuple(branch for branch in found if branch is not None)
    return Parallel(join=join, branches=branches, extra=inner.rest())


def _read_branch(
    raw: object,
    where: str,
    owner: str,
    known: dict[str, str],
    seen: dict[str, str],
    problems: list[Problem],
    read_step: ReadStep,
) -> Branch | None:
    fields = Fields.opened(raw, where, problems)
    if fields is None:
        return None
    name = _read_id(fields, known)
    entries = fields.items("steps", required=True)
    if entries is not None and not entries:
        fields.fail("EMPTY_LIST", "steps", "a branch without steps", "give it a step, or leave the branch out")
    own: dict[str, str] = {}
    steps = []
    for place, entry in entries or ():
        step = read_step(entry, place, own, problems)
        if step is None:
            continue
        if step.kind == KEY or step.parallel is not None:
            message = "a parallel step in a branch of another"
            hint = "make one parallel step of both, or put one after the other"
            problems.append(error("NESTED_PARALLEL", place, message, hint))
        if known.get(name) == fields.where and own.get(step.id) == place:  # what stands twice was told
            _check_name(inner_id(owner, name, step.id), place, seen, problems)
        steps.append(step)
    return Branch(id=name, steps=tuple(steps), extra=fields.rest())


def _read_id(fields: Fields, known: dict[str, str]) -> str:
    name = fields.text("id", required=True) or ""
    if name and not is_id(name):
        fields.fail("BAD_ID", "id", f"{shown(name)} is no branch id", ID_RULE)
    elif name in known:
        fields.fail("DUPLICATE_ID", "id", f"the branch {name} stands already at {known[name]}", "give it another id")
    known.setdefault(name, fields.where)
    return name


def _check_name(name: str, where: str, seen: dict[str, str], problems: list[Problem]) -> None:
    """Check the id of a branch's step in its phase: a stage's folder is named by it."""
    if name in seen and seen[name] != where:
        message = f"the step would be known as {shown(name)}, which stands already at {seen[name]}"
        problems.append(error("DUPLICATE_ID", where, message, "give one of them another id"))
    elif len(name) > LONGEST:
        message = f"its name with those of its parallel step and branch has over {LONGEST} characters"
        problems.append(error("TOO_LONG", where, message, "give them shorter ids"))
    seen.setdefault(name, where)
