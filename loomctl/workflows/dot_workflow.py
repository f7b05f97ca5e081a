"""A workflow in DOT as the raw workflow that JSON files hold: nodes are steps, arrows their transitions (D61)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit.ids import slug
from loomctl.kit.problems import at, choices, errors, shown
from loomctl.workflows import dot_decisions, dot_steps, dot_text, dot_ways
from loomctl.workflows.dot_steps import DECISION, END, PARALLEL, START, Attributes, is_step
from loomctl.workflows.dot_text import Report
from loomctl.workflows.dot_ways import OUT, Way
from loomctl.workflows.workflow import is_workflow_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.workflows.dot_steps import Role
    from loomctl.workflows.dot_text import Graph, Node, Value

DEFAULT_PHASE = "main"


class Converted(NamedTuple):
    """raw: None if a problem is an error; places: JSON paths of raw with where in the text each comes from."""

    raw: dict[str, Any] | None
    problems: list[Problem]
    places: dict[str, str]


def convert(text: str, *, name: str) -> Converted:
    """Read a workflow written in DOT. name: the workflow's where the digraph has none. Raises nothing for the text."""
    report = Report(text)
    graph = dot_text.parse(text, report)
    if graph is None:
        return Converted(None, report.problems, {})
    made = _Conversion(graph, report, name)
    raw = made.raw()
    dot_steps.report_unused(graph, report)
    return Converted(None if errors(report.problems) else raw, report.problems, made.places)


class _Conversion:
    def __init__(self, graph: Graph, report: Report, name: str) -> None:
        self.graph, self._report, self._name = graph, report, name
        self._fail = report.fail
        self.places: dict[str, str] = {}
        self._attributes = Attributes(graph.attributes, report)
        self._roles = dot_steps.roles_of(graph, report)
        self._ids: dict[str, str] = {}
        self._phases: dict[str, str] = {}
        self._ways: dict[str, list[Way]] = {}
        self._branches: dict[str, list[Branch]] = {}
        self._first: str | None = None

    def raw(self) -> dict[str, Any] | None:
        self._name_steps()
        self._find_ways()
        if errors(self._report.problems) or self._first is None:
            return None
        order = self._in_order()
        workflow = {"id": self._workflow_id(), **self._workflow_fields()}
        explicit = "extends" in workflow
        phases: dict[str, dict[str, Any]] = {}
        for index, node in enumerate(order):
            following = order[index + 1] if index + 1 < len(order) else OUT
            phase = phases.setdefault(self._phases[node], {"steps": []})
            where = at("$", "phases", self._phases[node], "steps", len(phase["steps"]))
            phase["steps"].append(self._step(node, where, None if explicit else following))
        retries = self._attributes.whole("default_max_retries")
        if retries is not None:
            phases = {name: {"max_retries": retries, **phase} for name, phase in phases.items()}
        return {**workflow, "phases": phases}

    def _name_steps(self) -> None:
        taken: dict[str, str] = {}
        for name, node in self.graph.nodes.items():
            if not dot_steps.is_step(self._roles[name]):
                continue
            self._ids[name] = step_id = dot_steps.id_of(name)
            phase = node.get("phase")
            self._phases[name] = dot_steps.id_of(phase.text) if phase is not None and phase.text else DEFAULT_PHASE
            if step_id in taken:
                message = f"{shown(name)} and {shown(taken[step_id])} would both be the step {step_id}"
                self._fail("DUPLICATE_ID", node.at, message, "give one of them another name; its label is shown")
            elif step_id == "end":
                self._fail("RESERVED_ID", node.at, "end means the run's end; no step can have this name", "rename it")
            taken.setdefault(step_id, name)

    def _find_ways(self) -> None:
        roles = self._roles
        ways: dict[str, list[Way]] = {name: [] for name in self.graph.nodes}
        for edge in self.graph.edges:
            if dot_ways.is_only_drawn(edge):
                continue
            if roles[edge.tail].kind == END:
                self._fail("AFTER_END", edge.at, f"an arrow leads on from {shown(edge.tail)}, where the run ends")
            else:
                ways[edge.tail].append(dot_ways.way_of(edge, self._report))
        self._first = self._find_first(ways)
        for name, leading in ways.items():
            ways[name] = [self._settled(way) for way in leading]
        self._branches = take_branches(ways, roles, self.graph.nodes, self._report)
        passed = [name for name, role in roles.items() if not dot_steps.is_step(role) and role.kind not in (START, END)]
        decisions = {name for name in passed if roles[name].kind == DECISION}
        steps = {name: leading for name, leading in ways.items() if roles[name].kind not in (START, END)}
        self._ways = dot_decisions.fold(steps, passed, decisions, self._report)

    def _find_first(self, ways: Mapping[str, Sequence[Way]]) -> str | None:
        start = next((name for name, role in self._roles.items() if role.kind == START), None)
        if start is None:
            return self._only_beginning()
        heads = list(dict.fromkeys(way.to for way in ways[start]))
        place = self.graph.nodes[start].at
        if len(heads) != 1 or any(way.condition for way in ways[start]):
            hint = "to begin several steps, use a parallel step (shape=component); put a step before a decision"
            self._fail("BAD_START", place, f"{shown(start)} must lead to one step, without a condition", hint)
        elif not dot_steps.is_step(self._roles[heads[0]]):
            message = f"{shown(start)} leads to {shown(heads[0])}, which is not a step"
            self._fail("BAD_START", place, message, "put the first step between them")
        else:
            return heads[0]
        return None

    def _only_beginning(self) -> str | None:
        heads = {edge.head for edge in self.graph.edges}
        steps = [name for name, role in self._roles.items() if dot_steps.is_step(role)]
        free = [name for name in steps if name not in heads]
        named = next((name for name in ("start", "Start") if name in steps), None)
        if named is not None:
            return named
        if len(free) == 1:
            return free[0]
        if not steps:
            self._fail("NO_STEPS", 0, "this digraph has no step", "start -> plan -> exit")
        else:
            hint = f"start [shape=Mdiamond]; start -> {(free or steps)[0]}"
            self._fail("BAD_START", 0, "nothing says where the workflow begins", hint)
        return None

    def _settled(self, way: Way) -> Way:
        kind = self._roles[way.to].kind
        if kind == END:
            return way._replace(to=OUT)
        return way._replace(to=self._first) if kind == START and self._first is not None else way

    def _in_order(self) -> list[str]:
        """Order the steps as they are met along the arrows from the first, then those that nothing leads to."""
        inside = {name for branches in self._branches.values() for branch in branches for name in branch.members}
        main = [name for name in self._ids if name not in inside]
        met = self._met([self._first or "", *main], self._ways)
        phases = list(dict.fromkeys(self._phases[name] for name in met))
        return sorted(met, key=lambda name: phases.index(self._phases[name])) if len(phases) > 1 else met

    def _met(self, begins: Iterable[str], ways: Mapping[str, Sequence[Way]]) -> list[str]:
        met: dict[str, None] = {}
        for begin in begins:
            waiting = [begin]
            while waiting:
                name = waiting.pop()
                if name not in met and name in self._ids:
                    met[name] = None
                    waiting += [way.to for way in reversed(ways.get(name, ()))]
        return list(met)

    def _step(self, name: str, where: str, following: str | None, fidelity: str | None = None) -> dict[str, Any]:
        """Make one step. following: the node that the order leads to, None if every way is to be said."""
        node = self.graph.nodes[name]
        self.places[where] = self._report.where(node.at)
        self.places.update(dot_steps.places(node, where, self._report))
        step = dot_steps.fields(node, self._ids[name], self._roles[name], self._report)
        if fidelity is not None:
            step = {**step, "fidelity": fidelity}
        target = self._target_of(node.get("retry_target"), name)
        if target is not None:
            step["retry_target"] = target
        if self._roles[name].kind == PARALLEL:
            branches = self._branches.get(name, [])
            held = [self._branch(branch, at(where, "parallel", "branches", n)) for n, branch in enumerate(branches)]
            step["parallel"] = {"join": dot_steps.join_of(node, self._report), "branches": held}
        transitions = self._transitions(name, where, following)
        return {**step, "transitions": transitions} if transitions else step

    def _branch(self, branch: Branch, where: str) -> dict[str, Any]:
        order = [name for name in self._met(branch.members, self._ways) if name in branch.members]
        steps: list[dict[str, Any]] = []
        for index, name in enumerate(order):
            following = order[index + 1] if index + 1 < len(order) else OUT
            fidelity = branch.fidelity if name == branch.first else None
            steps.append(self._step(name, at(where, "steps", index), following, fidelity))
        return {"id": branch.id or self._ids[branch.first], "steps": steps}

    def _transitions(self, name: str, where: str, following: str | None) -> list[dict[str, Any]]:
        ways = self._ways.get(name) or [Way(OUT, self.graph.nodes[name].at)]
        if len(ways) == 1 and dot_ways.is_plain(ways[0]) and ways[0].to == following:
            return []
        found: list[dict[str, Any]] = []
        for index, way in enumerate(ways):
            self.places[at(where, "transitions", index)] = self._report.where(way.at)
            said = {
                "to": self._address(way.to, name),
                "label": way.label,
                "condition": way.condition or None,
                "weight": way.weight,
                "fidelity": way.fidelity,
                "on_failure": way.on_failure or None,
            }
            found.append({key: value for key, value in said.items() if value is not None})
        return found

    def _address(self, target: str, of: str) -> str:
        if target == OUT:
            return "end"
        same = self._phases[target] == self._phases[of] or any(
            {target, of} <= set(branch.members) for branches in self._branches.values() for branch in branches
        )
        return self._ids[target] if same else f"{self._phases[target]}/{self._ids[target]}"

    def _target_of(self, said: Value | None, of: str | None) -> str | None:
        if said is None or not said.text:
            return None
        name = said.text
        if name in self._roles and self._roles[name].kind == START and self._first is not None:
            name = self._first
        if name in self._ids:
            return f"{self._phases[name]}/{self._ids[name]}" if of is None else self._address(name, of)
        hint = choices(name, list(self._ids))
        self._fail("UNKNOWN_STEP", said.at, f"retry_target: there is no step {shown(name)}", hint)
        return None

    def _workflow_id(self) -> str:
        said = self._attributes.value("id") or self.graph.name
        name = said.text.strip() if said is not None else self._name
        return name if is_workflow_id(name) else slug(name, empty="workflow")

    def _workflow_fields(self) -> dict[str, Any]:
        held = self._attributes
        for field in ("extends", "autonomy", "default_fidelity"):
            said = held.value(field)
            if said is not None:
                self.places[f"$.{field}"] = self._report.where(said.at)
        fields = {
            "description": held.text("description", "goal", "label"),
            "extends": held.text("extends"),
            "autonomy": held.text("autonomy"),
            "default_fidelity": held.text("default_fidelity"),
            "retry_target": self._target_of(self.graph.attributes.get("retry_target"), None),
            "max_visits": held.visits(),
            "allow": held.rules("allow"),
        }
        return {key: value for key, value in fields.items() if value is not None}


class Branch(NamedTuple):
    """first: the node that it begins with; members: its nodes; id and fidelity: as the arrow to it says."""

    first: str
    members: Mapping[str, None]
    id: str | None
    fidelity: str | None


def take_branches(
    ways: dict[str, list[Way]], roles: Mapping[str, Role], nodes: Mapping[str, Node], report: Report
) -> dict[str, list[Branch]]:
    """Give each parallel step's branches; `ways` is changed.

    A way to the join becomes the branch's end, and the parallel step's own one way leads to the join.
    """
    found = _Finder(ways, roles, nodes, report)
    branches = {name: found.of(name) for name, role in roles.items() if role.kind == PARALLEL}
    found.check_entries(branches)
    return branches


class _Finder:
    def __init__(
        self, ways: dict[str, list[Way]], roles: Mapping[str, Role], nodes: Mapping[str, Node], report: Report
    ) -> None:
        self._ways, self._roles, self._nodes, self._report = ways, roles, nodes, report
        self._fail = report.fail

    def of(self, name: str) -> list[Branch]:
        """Take the branches of one parallel step out."""
        joins: dict[str, None] = {}
        branches: list[Branch] = []
        for way in self._ways[name]:
            if way.condition:
                message = "Loom ignores the condition of this arrow: every branch begins"
                self._report.warn("IGNORED_FIELD", way.at, message)
            members = self._members(name, way, joins)
            if members and not is_step(self._roles[way.to]):
                self._fail("BAD_BRANCH", way.at, "a branch cannot begin with a decision", "put a step before it")
            elif members:
                branches.append(Branch(way.to, members, way.branch, way.fidelity))
        self._check_apart(name, branches)
        if not branches or len(joins) != 1:
            what = f"{len(joins)} joins" if len(joins) > 1 else "no join" if not joins else "no branches"
            hint = "let all its branches lead to one node with shape=tripleoctagon, and nowhere else"
            self._fail("BAD_PARALLEL", self._nodes[name].at, f"the parallel step {shown(name)} has {what}", hint)
            return branches
        join = next(iter(joins))
        for branch in branches:
            for member in branch.members:
                self._ways[member] = [way._replace(to=OUT) if way.to == join else way for way in self._ways[member]]
        self._ways[name] = [Way(join, self._nodes[name].at)]
        return branches

    def _members(self, parallel: str, way: Way, joins: dict[str, None]) -> dict[str, None]:
        members: dict[str, None] = {}
        waiting = [(way.to, way.at)]
        while waiting:
            name, place = waiting.pop()
            if name in (OUT, parallel):
                target = "the run's end" if name == OUT else shown(name)
                self._fail(
                    "BAD_BRANCH", place, f"a branch of {shown(parallel)} leads to {target}", "let it lead to the join"
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
                    hint = "let branches meet at their join: shape=tripleoctagon"
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
                    message = f"an arrow from outside leads to {shown(way.to)}, in a branch of {shown(parallel)}"
                    self._fail("BAD_BRANCH", way.at, message, "lead to the parallel step itself")
