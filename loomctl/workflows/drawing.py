"""What there is to draw of a plan and of a run's progress (D61), and the same as Mermaid writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.runs.model import visits
from loomctl.workflows.dot_conditions import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

START, END, JOIN = "start", "end", "join"  # besides the kinds of steps
ORDER, WAY, FAILURE, RETRY = "order", "way", "failure", "retry"
DONE, FAILED, CURRENT = "done", "failed", "current"
_FIRST, _LAST = "start_", "end_"  # end is a word of Mermaid's
LONGEST_NAME, LONGEST_LABEL = 60, 70  # characters
_MARKS = {DONE: "✓", FAILED: "✗", CURRENT: "▸", "": ""}
_SHAPES = {
    START: ("((", "))"),
    END: ("(((", ")))"),
    JOIN: ("{{", "}}"),
    "agent": ("[", "]"),
    "prompt": ("([", "])"),
    "command": ("[/", "/]"),
    "human": ("{{", "}}"),
    "parallel": ("[[", "]]"),
}
_STYLES = {
    DONE: "fill:#d7f0dc,stroke:#2e7d32,color:#123",
    FAILED: "fill:#f9d9d7,stroke:#b3261e,color:#123",
    CURRENT: "fill:#fff3c4,stroke:#8a6100,stroke-width:4px,font-weight:bold,color:#123",
}
_PLAIN = frozenset(" ,'?!%@=~^/+✓✗▸×…")  # noqa: RUF001 - times


class Node(NamedTuple):
    """id: unique in its drawing, letters, digits and _; mark: DONE, FAILED, CURRENT or empty; step: the plan's own.

    own_id: the step's id in its phase, or in its branch.
    """

    id: str
    kind: str
    name: str
    mark: str = ""
    visits: int = 0
    step: Mapping[str, Any] = {}
    own_id: str = ""

    @property
    def title(self) -> str:
        """Give what is written in the node: its name, how it stands, how often it was visited."""
        times = f"×{self.visits}" if self.visits > 1 else ""  # noqa: RUF001 - times
        return " ".join(part for part in (_MARKS[self.mark], cut(self.name, LONGEST_NAME), times) if part)


class Arrow(NamedTuple):
    """kind: ORDER (nothing but the order leads there), WAY, FAILURE, or RETRY (what a step's retry_target says)."""

    tail: str
    head: str
    kind: str
    transition: Mapping[str, Any] = {}
    branch: str = ""

    @property
    def dashed(self) -> bool:
        """Tell whether only a failure leads there."""
        return self.kind in (FAILURE, RETRY)

    @property
    def lines(self) -> Sequence[str]:
        """Give what is written at the arrow: its label, then its condition."""
        label, condition = self.transition.get("label"), self.transition.get("condition")
        told = [str(label)] if label else []
        told += [readable(str(condition))] if condition else []
        told = told or {FAILURE: ["on failure"], RETRY: ["retry"]}.get(self.kind, [])
        return [cut(line, LONGEST_LABEL) for line in told]


class Group(NamedTuple):
    """A phase, or a branch of a parallel step, with what is in it."""

    id: str
    title: str
    nodes: Sequence[Node]
    groups: Sequence[Group] = ()


class Drawing(NamedTuple):
    """title: of a run, which it is and how it stands; empty for a workflow. loose: start and end, in no group."""

    plan: Mapping[str, Any]
    title: str
    groups: Sequence[Group]
    loose: Sequence[Node]
    arrows: Sequence[Arrow]


def lay_out(plan: Mapping[str, Any], state: Mapping[str, Any] | None = None) -> Drawing:
    """Lay out a plan; with the state of a run of it, what was done, what failed, what is open, how often."""
    return _Drawer(plan, state).drawing()


def cut(text: str, limit: int) -> str:
    """Give a text as one line of at most `limit` characters."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def each_node(groups: Sequence[Group]) -> Iterator[Node]:
    """Go through all nodes of groups and of the groups in them."""
    for group in groups:
        yield from group.nodes
        yield from each_node(group.groups)


class _Drawer:
    def __init__(self, plan: Mapping[str, Any], state: Mapping[str, Any] | None) -> None:
        self._plan, self._state = plan, state
        self._visits = visits.by_step(state) if state is not None else {}
        self._ids: dict[str, str] = {}
        self._joins: dict[str, str] = {}
        self._arrows: list[Arrow] = []

    def drawing(self) -> Drawing:
        phases = [
            (phase, [step for step in phase["steps"] if not step.get("engine")]) for phase in self._plan["phases"]
        ]
        steps = [step for _, listed in phases for step in listed]
        for step in steps:
            self._name(step)
        groups = [
            Group(f"p{index}", str(phase["id"]), *self._members(listed))
            for index, (phase, listed) in enumerate(phases)
            if listed
        ]
        over = self._state is not None and self._state.get("status") == "completed"
        loose = [Node(_FIRST, START, "start"), Node(_LAST, END, "end", DONE if over else "")]
        if steps:
            self._arrows.insert(0, Arrow(_FIRST, self._ids[steps[0]["key"]], ORDER))
        for index, step in enumerate(steps):
            following = self._ids[steps[index + 1]["key"]] if index + 1 < len(steps) else _LAST
            self._lead_on(step, following, _LAST)
        return Drawing(self._plan, self._title(), groups, loose, self._arrows)

    def _title(self) -> str:
        return "" if self._state is None else f"{self._state['run_id']}: {self._state['status']}"

    def _name(self, step: Mapping[str, Any]) -> None:
        self._ids[step["key"]] = f"s{len(self._ids)}"
        for branch in _branches(step):
            for inner in branch["steps"]:
                self._name(inner)
        if _branches(step):
            self._joins[step["key"]] = "j" + self._ids[step["key"]][1:]

    def _members(self, steps: Sequence[Mapping[str, Any]], prefix: str = "") -> tuple[list[Node], list[Group]]:
        nodes: list[Node] = []
        groups: list[Group] = []
        for step in steps:
            nodes.append(self._node(step, str(step["id"]).removeprefix(prefix)))
            for index, branch in enumerate(_branches(step)):
                group = f"b{self._ids[step['key']][1:]}_{index}"
                members = self._members(branch["steps"], f"{step['id']}.{branch['id']}.")
                groups.append(Group(group, str(branch["id"]), *members))
            if step["key"] in self._joins:
                nodes.append(Node(self._joins[step["key"]], JOIN, str(step["parallel"].get("join") or "wait_all")))
        return nodes, groups

    def _node(self, step: Mapping[str, Any], own_id: str) -> Node:
        seen = self._visits.get(step["key"], [])
        mark = ""
        if seen:
            last = seen[-1]["status"]
            mark = CURRENT if last in visits.OPEN else FAILED if last == "failed" else DONE
        kind = str(step.get("kind") or "agent")
        return Node(self._ids[step["key"]], kind, str(step.get("name") or own_id), mark, len(seen), step, own_id)

    def _lead_on(self, step: Mapping[str, Any], following: str, end: str) -> None:
        """Draw what a step leads to. following: the next in order; end: where a way to the end goes."""
        tail = self._ids[step["key"]]
        for branch in _branches(step):
            listed, join = branch["steps"], self._joins[step["key"]]
            first = self._ids[listed[0]["key"]] if listed else join
            self._arrows.append(Arrow(tail, first, ORDER, branch=str(branch["id"])))
            for index, inner in enumerate(listed):
                onward = self._ids[listed[index + 1]["key"]] if index + 1 < len(listed) else join
                self._lead_on(inner, onward, join)
        tail = self._joins.get(step["key"], tail)
        transitions = step.get("transitions") or ()
        for one in transitions:
            head = end if one["to"] == "end" else self._ids.get(one["to"])
            if head is not None:
                self._arrows.append(Arrow(tail, head, FAILURE if one.get("on_failure") else WAY, one))
        if not transitions:
            self._arrows.append(Arrow(tail, following, ORDER))
        retried = self._ids.get(str(step.get("retry_target")))
        if retried is not None:
            self._arrows.append(Arrow(tail, retried, RETRY))


def _branches(step: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    parallel = step.get("parallel")
    return parallel["branches"] if isinstance(parallel, dict) else ()


# ---- Mermaid.


def mermaid(drawing: Drawing) -> str:
    """Write a drawing as a flowchart of Mermaid's."""
    return "\n".join(_lines(drawing)) + "\n"


def _lines(drawing: Drawing) -> Iterator[str]:
    if drawing.title:
        yield from ("---", f"title: {json.dumps(drawing.title)}", "---")
    yield "flowchart TD"
    for node in drawing.loose:
        yield f"    {_node(node)}"
    for group in drawing.groups:
        yield from _group(group, "    ")
    for arrow in drawing.arrows:
        yield f"    {_arrow(arrow)}"
    for mark, style in _STYLES.items():
        yield f"    classDef {mark} {style}"


def _group(group: Group, indent: str) -> Iterator[str]:
    yield f"{indent}subgraph {group.id} [{_quoted([group.title])}]"
    for node in group.nodes:
        yield f"{indent}    {_node(node)}"
    for inner in group.groups:
        yield from _group(inner, indent + "    ")
    yield f"{indent}end"


def _node(node: Node) -> str:
    opening, closing = _SHAPES.get(node.kind, _SHAPES["agent"])
    marked = f":::{node.mark}" if node.mark else ""
    return f"{node.id}{opening}{_quoted([node.title])}{closing}{marked}"


def _arrow(arrow: Arrow) -> str:
    label = f"|{_quoted(arrow.lines)}|" if arrow.lines else ""
    return f"{arrow.tail} {'-.->' if arrow.dashed else '-->'}{label} {arrow.head}"


def _quoted(lines: Sequence[str]) -> str:
    """Write text so that nothing in it is Mermaid's, Markdown's or HTML's."""
    return '"' + "<br/>".join("".join(_character(one) for one in line) for line in lines) + '"'


def _character(one: str) -> str:
    if one.isalnum() or one in _PLAIN:
        return one
    return f"#{ord(one)};" if one.isprintable() else " "
