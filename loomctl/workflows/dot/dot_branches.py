"""The branches of parallel steps in DOT: what lies between a fan-out (component) and its join (tripleoctagon)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit.problems import error, shown, warning
from loomctl.workflows.dot import dot_ways
from loomctl.workflows.dot.dot_roles import PARALLEL, is_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.workflows.dot.dot_roles import Role
    from loomctl.workflows.dot.dot_text import Node
    from loomctl.workflows.dot.dot_ways import Way


class Branch(NamedTuple):
    """first: the node that it begins with; members: its nodes; id and fidelity: as the arrow to it says."""

    first: str
    members: Mapping[str, None]
    id: str | None
    fidelity: str | None


def taken_out(
    ways: dict[str, list[Way]],
    roles: Mapping[str, Role],
    nodes: Mapping[str, Node],
    where: Callable[[int], str],
) -> tuple[dict[str, list[Branch]], list[Problem]]:
    """Give each parallel step's branches, and what is wrong with them; `ways` is changed.

    A way to the join becomes the branch's end, and the parallel step's own one way leads to the join.
    """
    found = _Finder(ways, roles, nodes, where)
    branches = {name: found.of(name) for name, role in roles.items() if role.kind == PARALLEL}
    found.check_entries(branches)
    return branches, found.problems


class _Finder:
    def __init__(
        self,
        ways: dict[str, list[Way]],
        roles: Mapping[str, Role],
        nodes: Mapping[str, Node],
        where: Callable[[int], str],
    ) -> None:
        self._ways, self._roles, self._nodes, self._where = ways, roles, nodes, where
        self.problems: list[Problem] = []

    def of(self, name: str) -> list[Branch]:
        """Take the branches of one parallel step out."""
        joins: dict[str, None] = {}
        branches: list[Branch] = []
        for way in self._ways[name]:
            if way.condition:
                message = "every branch begins, whatever its arrow's condition says"
                self.problems.append(warning("IGNORED_FIELD", self._where(way.at), message))
            members = self._members(name, way, joins)
            if members and not is_step(self._roles[way.to]):
                self._fail("BAD_BRANCH", way.at, "a branch begins with a decision", "put a step before it")
            elif members:
                branches.append(Branch(way.to, members, way.branch, way.fidelity))
        self._check_apart(name, branches)
        if not branches or len(joins) != 1:
            what = f"{len(joins)} joins" if len(joins) > 1 else "no join" if not joins else "no branches"
            hint = "its branches all lead to one node with shape=tripleoctagon, and only there"
            self._fail("BAD_PARALLEL", self._nodes[name].at, f"the parallel step {shown(name)} has {what}", hint)
            return branches
        join = next(iter(joins))
        for branch in branches:
            for member in branch.members:
                self._ways[member] = [
                    way._replace(to=dot_ways.END) if way.to == join else way for way in self._ways[member]
                ]
        self._ways[name] = [dot_ways.Way(join, self._nodes[name].at)]
        return branches

    def _members(self, parallel: str, way: Way, joins: dict[str, None]) -> dict[str, None]:
        """Collect the nodes from a branch's first to the join."""
        members: dict[str, None] = {}
        waiting = [(way.to, way.at)]
        while waiting:
            name, place = waiting.pop()
            if name in (dot_ways.END, parallel):
                target = "the run's end" if name == dot_ways.END else shown(name)
                self._fail(
                    "BAD_BRANCH", place, f"a branch of {shown(parallel)} leads to {target}", "it leads to the join"
                )
            elif self._roles[name].joins:
                joins[name] = None
            elif self._roles[name].kind == PARALLEL:
                message = f"{shown(name)} is a parallel step in a branch of another"
                self._fail("NOT_SUPPORTED", place, message, "make one parallel step of both, or one after the other")
            elif name not in members:
                members[name] = None
                waiting += [(onward.to, onward.at) for onward in self._ways[name]]
            if not waiting:
                waiting += self._retried(members)
        return members

    def _retried(self, members: Mapping[str, None]) -> list[tuple[str, int]]:
        """Give the steps to which nothing but the `retry_target` of a branch's step leads: they are of that branch."""
        found: list[tuple[str, int]] = []
        for name in members:
            said = self._nodes[name].get("retry_target")
            if said is None or said.text in members or said.text not in self._roles:
                continue
            role = self._roles[said.text]
            if is_step(role) and role.kind != PARALLEL and not role.joins and not self._is_led_to(said.text, members):
                found.append((said.text, said.at))
        return found[:1]

    def _is_led_to(self, name: str, members: Mapping[str, None]) -> bool:
        return any(way.to == name for tail, ways in self._ways.items() if tail not in (name, *members) for way in ways)

    def _check_apart(self, name: str, branches: Sequence[Branch]) -> None:
        owner: dict[str, str] = {}
        for branch in branches:
            for member in branch.members:
                if is_step(self._roles[member]) and owner.setdefault(member, branch.first) != branch.first:
                    message = f"{shown(member)} is in two branches of {shown(name)}"
                    hint = "branches meet at their join: shape=tripleoctagon"
                    self._fail("BAD_BRANCH", self._nodes[member].at, message, hint)
                    return

    def check_entries(self, branches: Mapping[str, Sequence[Branch]]) -> None:
        """Refuse ways that lead into a branch from outside of it."""
        inside = {
            member: (name, branch)
            for name, held in branches.items()
            for branch in held
            for member in branch.members
            if is_step(self._roles[member])
        }
        for name, leading in self._ways.items():
            for way in leading:
                parallel, branch = inside.get(way.to, ("", None))
                if branch is not None and name not in branch.members:
                    message = f"{shown(way.to)} is in a branch of {shown(parallel)}: nothing else leads there"
                    self._fail("BAD_BRANCH", way.at, message, "lead to the parallel step itself")

    def _fail(self, code: str, place: int, message: str, hint: str) -> None:
        self.problems.append(error(code, self._where(place), message, hint))
