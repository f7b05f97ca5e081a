"""A workflow in DOT as the raw workflow that JSON files hold: nodes are steps, arrows their transitions (D61)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit.ids import slug
from loomctl.kit.problems import at, choices, error, errors, shown
from loomctl.workflows.dot import steps as dot_steps
from loomctl.workflows.dot import text as dot_text
from loomctl.workflows.dot import ways as dot_ways
from loomctl.workflows.dot.steps import DECISION, END, PARALLEL, START, Attributes, unused
from loomctl.workflows.dot.text import Lines
from loomctl.workflows.model.workflow import is_workflow_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.workflows.dot.steps import Role
    from loomctl.workflows.dot.text import Graph, Value
    from loomctl.workflows.dot.ways import Branch, Way

DEFAULT_PHASE = "main"


class Converted(NamedTuple):
    """raw: None if a problem is an error; places: JSON paths of raw with where in the text each comes from."""

    raw: dict[str, Any] | None
    problems: list[Problem]
    places: dict[str, str]


def convert(text: str, *, name: str) -> Converted:
    """Read a workflow written in DOT. name: the workflow's where the digraph has none. Raises nothing for the text."""
    graph, problems = dot_text.parse(text)
    if graph is None:
        return Converted(None, problems, {})
    made = _Conversion(graph, Lines(text), name)
    raw = made.raw()
    made.problems += unused(graph, made.lines.of)
    return Converted(None if errors(made.problems) else raw, made.problems, made.places)


class _Conversion:
    """One file on its way to a raw workflow; problems and places gather on the way."""

    def __init__(self, graph: Graph, lines: Lines, name: str) -> None:
        self.graph, self.lines, self._name = graph, lines, name
        self.problems: list[Problem] = []
        self.places: dict[str, str] = {}
        self._attributes = Attributes(graph.attributes, lines.of, self.problems)
        self._roles: dict[str, Role] = {}
        self._ids: dict[str, str] = {}
        self._phases: dict[str, str] = {}
        self._ways: dict[str, list[Way]] = {}
        self._branches: dict[str, list[Branch]] = {}
        self._first: str | None = None

    def raw(self) -> dict[str, Any] | None:
        """Make the workflow; None if there is nothing to make it of."""
        self._roles, found = dot_steps.roles_of(self.graph, self.lines.of)
        self.problems += found
        self._name_steps()
        self._find_ways()
        if errors(self.problems) or self._first is None:
            return None
        order = self._in_order()
        workflow = {"id": self._workflow_id(), **self._workflow_fields()}
        explicit = "extends" in workflow
        phases: dict[str, dict[str, Any]] = {}
        for index, node in enumerate(order):
            following = order[index + 1] if index + 1 < len(order) else dot_ways.END
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
                self._fail("RESERVED_ID", node.at, "end is where a run ends, no step's name", "give it another name")
            taken.setdefault(step_id, name)

    def _find_ways(self) -> None:
        """Read the arrows, take the branches of parallel steps out of them, and fold the decisions."""
        roles = self._roles
        ways: dict[str, list[Way]] = {name: [] for name in self.graph.nodes}
        for edge in self.graph.edges:
            if dot_ways.is_only_drawn(edge):
                continue
            if roles[edge.tail].kind == END:
                self._fail("AFTER_END", edge.at, f"a way leads on from {shown(edge.tail)}, where the run ends")
            else:
                ways[edge.tail].append(dot_ways.read(edge, self.lines.of, self.problems))
        self._first = self._find_first(ways)
        for name, leading in ways.items():
            ways[name] = [self._settled(way) for way in leading]
        self._branches, found = dot_ways.take_branches(ways, roles, self.graph.nodes, self.lines.of)
        self.problems += found
        passed = [name for name, role in roles.items() if not dot_steps.is_step(role) and role.kind not in (START, END)]
        decisions = {name for name in passed if roles[name].kind == DECISION}
        steps = {name: leading for name, leading in ways.items() if roles[name].kind not in (START, END)}
        self._ways, found = dot_ways.fold(steps, passed, decisions, self.lines.of)
        self.problems += found

    def _find_first(self, ways: Mapping[str, Sequence[Way]]) -> str | None:
        start = next((name for name, role in self._roles.items() if role.kind == START), None)
        if start is None:
            return self._only_beginning()
        heads = list(dict.fromkeys(way.to for way in ways[start]))
        place = self.graph.nodes[start].at
        if len(heads) != 1 or any(way.condition for way in ways[start]):
            hint = "a parallel step (shape=component) begins several; a step comes before a decision"
            self._fail("BAD_START", place, f"{shown(start)} leads to one step, without a condition", hint)
        elif not dot_steps.is_step(self._roles[heads[0]]):
            message = f"{shown(start)} leads to {shown(heads[0])}, which is no step"
            self._fail("BAD_START", place, message, "put the first step between them")
        else:
            return heads[0]
        return None

    def _only_beginning(self) -> str | None:
        """Find where a graph without a start begins: at its one step that no way leads to."""
        heads = {edge.head for edge in self.graph.edges}
        steps = [name for name, role in self._roles.items() if dot_steps.is_step(role)]
        free = [name for name in steps if name not in heads]
        named = next((name for name in ("start", "Start") if name in steps), None)
        if named is not None:
            return named
        if len(free) == 1:
            return free[0]
        if not steps:
            self._fail("NO_STEPS", 0, "there is no step in this digraph", "start -> plan -> exit")
        else:
            hint = f"start [shape=Mdiamond]; start -> {(free or steps)[0]}"
            self._fail("BAD_START", 0, "nothing says where the workflow begins", hint)
        return None

    def _settled(self, way: Way) -> Way:
        """Lead a way to the start on to the first step, and one to an end to the run's end."""
        kind = self._roles[way.to].kind
        if kind == END:
            return way._replace(to=dot_ways.END)
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
        self.places[where] = self.lines.of(node.at)
        self.places.update(dot_steps.places(node, where, self.lines.of))
        step = dot_steps.fields(node, self._ids[name], self._roles[name], self.lines.of, self.problems)
        if fidelity is not None:
            step = {**step, "fidelity": fidelity}
        target = self._target_of(node.get("retry_target"), name)
        if target is not None:
            step["retry_target"] = target
        if self._roles[name].kind == PARALLEL:
            branches = self._branches.get(name, [])
            held = [self._branch(branch, at(where, "parallel", "branches", n)) for n, branch in enumerate(branches)]
            step["parallel"] = {"join": dot_steps.join_of(node, self.lines.of, self.problems), "branches": held}
        transitions = self._transitions(name, where, following)
        return {**step, "transitions": transitions} if transitions else step

    def _branch(self, branch: Branch, where: str) -> dict[str, Any]:
        order = [name for name in self._met(branch.members, self._ways) if name in branch.members]
        steps: list[dict[str, Any]] = []
        for index, name in enumerate(order):
            following = order[index + 1] if index + 1 < len(order) else dot_ways.END
            fidelity = branch.fidelity if name == branch.first else None
            steps.append(self._step(name, at(where, "steps", index), following, fidelity))
        return {"id": branch.id or self._ids[branch.first], "steps": steps}

    def _transitions(self, name: str, where: str, following: str | None) -> list[dict[str, Any]]:
        ways = self._ways.get(name) or [dot_ways.Way(dot_ways.END, self.graph.nodes[name].at)]
        if len(ways) == 1 and dot_ways.is_plain(ways[0]) and ways[0].to == following:
            return []
        found: list[dict[str, Any]] = []
        for index, way in enumerate(ways):
            self.places[at(where, "transitions", index)] = self.lines.of(way.at)
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
        if target == dot_ways.END:
            return "end"
        same = self._phases[target] == self._phases[of] or any(
            {target, of} <= set(branch.members) for branches in self._branches.values() for branch in branches
        )
        return self._ids[target] if same else f"{self._phases[target]}/{self._ids[target]}"

    def _target_of(self, said: Value | None, of: str | None) -> str | None:
        """Give a retry_target as a raw workflow names it."""
        if said is None or not said.text:
            return None
        name = said.text
        if name in self._roles and self._roles[name].kind == START and self._first is not None:
            name = self._first
        if name in self._ids:
            return f"{self._phases[name]}/{self._ids[name]}" if of is None else self._address(name, of)
        hint = choices(name, list(self._ids))
        self._fail("UNKNOWN_STEP", said.at, f"retry_target: {shown(name)} is no step", hint)
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
                self.places[f"$.{field}"] = self.lines.of(said.at)
        visits = held.value("max_visits", "max_node_visits")
        fields = {
            "description": held.text("description", "goal", "label"),
            "extends": held.text("extends"),
            "autonomy": held.text("autonomy"),
            "default_fidelity": held.text("default_fidelity"),
            "retry_target": self._target_of(self.graph.attributes.get("retry_target"), None),
            "max_visits": dot_steps.visits(held, visits, self.problems, self.lines.of),
        }
        return {key: value for key, value in fields.items() if value is not None}

    def _fail(self, code: str, place: int, message: str, hint: str = "") -> None:
        self.problems.append(error(code, self.lines.of(place), message, hint))
