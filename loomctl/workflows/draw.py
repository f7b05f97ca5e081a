"""A workflow or a run as a drawing, in the form that is asked for: Mermaid, DOT, or the SVG that Graphviz makes of it.

`dot_workflow` reads the DOT back as the workflow that was drawn (D61). Lost on the way back: critical artifacts,
approvals by phase, autonomy, result handling, and what a plan's phases say besides their steps. A step of a branch that
nothing leads to is left out: in DOT a branch is what its arrows reach.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import processes
from loomctl.kit.errors import EXIT_SETUP, LoomError
from loomctl.runs import stages
from loomctl.runs.model import visits
from loomctl.runs.model.frozen_plan import leaves
from loomctl.runs.model.state import handle
from loomctl.runs.store.match import match
from loomctl.workflows import workflow_files
from loomctl.workflows.dot_conditions import as_written, readable
from loomctl.workflows.dot_steps import id_of
from loomctl.workflows.dot_text import quoted
from loomctl.workflows.dot_workflow import DEFAULT_PHASE
from loomctl.workflows.resolve import resolve
from loomctl.workflows.workflow import build_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.runs.project import Workspace

START, END, JOIN = "start", "end", "join"  # besides the kinds of steps
ORDER, WAY, FAILURE, RETRY = "order", "way", "failure", "retry"
DONE, FAILED, CURRENT = "done", "failed", "current"
_FIRST, _LAST = "start_", "end_"  # end is a word of Mermaid's
LONGEST_NAME, LONGEST_LABEL = 60, 70  # characters
_MARKS = {DONE: "✓", FAILED: "✗", CURRENT: "▸", "": ""}
_SHAPES = {  # around a node in Mermaid, and DOT's word
    START: ("((", "))", "Mdiamond"),
    END: ("(((", ")))", "Msquare"),
    JOIN: ("{{", "}}", "tripleoctagon"),
    "agent": ("[", "]", "box"),
    "prompt": ("([", "])", "tab"),
    "command": ("[/", "/]", "parallelogram"),
    "human": ("{{", "}}", "hexagon"),
    "parallel": ("[[", "]]", "component"),
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
        self._last = visits.last_of_each(state) if state is not None else {}
        self._counts = visits.counts(state) if state is not None else {}
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
        title = "" if self._state is None else f"{handle(self._state)}: {self._state['status']}"
        return Drawing(self._plan, title, groups, loose, self._arrows)

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
        seen = self._last.get(step["key"])
        mark = ""
        if seen is not None:
            last = seen["status"]
            mark = CURRENT if last in visits.OPEN else FAILED if last == "failed" else DONE
        kind = str(step.get("kind") or "agent")
        count = self._counts.get(step["key"], 0)
        return Node(self._ids[step["key"]], kind, str(step.get("name") or own_id), mark, count, step, own_id)

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
    lines = ["---", f"title: {json.dumps(drawing.title)}", "---"] if drawing.title else []
    lines += ["flowchart TD", *(f"    {_node(node)}" for node in drawing.loose)]
    lines += [line for group in drawing.groups for line in _group(group, "    ")]
    lines += [f"    {_arrow(arrow)}" for arrow in drawing.arrows]
    lines += [f"    classDef {mark} {style}" for mark, style in _STYLES.items()]
    return "\n".join(lines) + "\n"


def _group(group: Group, indent: str) -> Iterator[str]:
    yield f"{indent}subgraph {group.id} [{_quoted([group.title])}]"
    for node in group.nodes:
        yield f"{indent}    {_node(node)}"
    for inner in group.groups:
        yield from _group(inner, indent + "    ")
    yield f"{indent}end"


def _node(node: Node) -> str:
    opening, closing, _ = _SHAPES.get(node.kind, _SHAPES["agent"])
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


FORMATS = ("mermaid", "dot", "svg")
_GRAPHVIZ_SECONDS = 60.0
_COLORS = {
    DONE: {"style": "filled", "fillcolor": "#d7f0dc", "color": "#2e7d32"},
    FAILED: {"style": "filled", "fillcolor": "#f9d9d7", "color": "#b3261e"},
    CURRENT: {"style": "filled,bold", "fillcolor": "#fff3c4", "color": "#8a6100", "penwidth": "3"},
}
_FIELDS = (
    *("description", "prompt", "command", "skill", "workdir", "output_schema", "output_retries", "fidelity"),
    *("max_visits", "max_retries", "require_approval"),
)
_SAID_BY_SILENCE = ("description", "max_retries", "require_approval")  # a plan says them always
_WORKFLOW_FIELDS = ("default_fidelity", "max_visits")


class Drawn(NamedTuple):
    """run_id: None of a workflow."""

    workflow_id: str
    run_id: str | None
    text: str


def draw(space: Workspace, word: str | None, form: str) -> Drawn:
    """Draw what a word names: a run by its id, a workflow, a run by the beginning of its id; the current run for none.

    form: one of FORMATS. Raises what finding and reading them do, and NO_GRAPHVIZ.
    """
    run_id, plan, state = _meant(space, word)
    made = lay_out(plan, state)
    text = mermaid(made) if form == "mermaid" else dot(made)
    return Drawn(str(plan["workflow_id"]), run_id, _svg(text) if form == "svg" else text)


def _meant(space: Workspace, word: str | None) -> tuple[str | None, Mapping[str, Any], Mapping[str, Any] | None]:
    if word is not None and word not in space.store.run_ids():
        try:
            found = resolve(word, workflow_files.places_of(space.project))
        except LoomError as unknown:
            if unknown.code not in ("UNKNOWN_WORKFLOW", "BAD_ID"):
                raise
            word = _matched(space, word, unknown)
        else:
            return None, build_plan(found.checked(), plan_id="graph", created_at="", sources=[]), None
    run = stages.read_current(space, word)
    return run.run_id, run.plan, run.state


def _matched(space: Workspace, word: str, unknown: LoomError) -> str:
    try:
        return match(space.store, word)
    except LoomError as error:
        if error.code != "NO_SUCH_RUN":
            raise
        unknown.what = f"there is no workflow and no run {word[:80]!r}"
        raise unknown from None


def _svg(text: str) -> str:
    """Draw a text in DOT. Raises LoomError: NO_GRAPHVIZ, or GRAPHVIZ_FAILED with what it says."""
    program = shutil.which("dot")
    if program is None:
        why = "the program dot is not on PATH (apt-get install graphviz, brew install graphviz)"
        what = "SVG needs Graphviz, which is not installed"
        raise LoomError("NO_GRAPHVIZ", what, why=why, hint="loomctl graph --format mermaid", exit_code=EXIT_SETUP)
    ended = processes.run(
        [program, "-Tsvg"],
        cwd=os.path.abspath(os.sep),
        environ=os.environ,
        patience=_GRAPHVIZ_SECONDS,
        given=text.encode(),
    )
    if ended.code != 0:
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        why = said[0][:300] if said else f"it took more than {_GRAPHVIZ_SECONDS:g} s" if ended.code is None else ""
        what = "Graphviz could not draw this"
        raise LoomError("GRAPHVIZ_FAILED", what, why=why, hint="loomctl graph --format dot", exit_code=EXIT_SETUP)
    return ended.stdout.decode("utf-8")


# ---- DOT.


def dot(made: Drawing) -> str:
    """Write a drawing as a digraph of DOT's."""
    return "\n".join(_Writer(made).lines()) + "\n"


class _Writer:
    def __init__(self, drawn: Drawing) -> None:
        self._drawing = drawn
        self._names: dict[str, str] = {}
        self._by_key: dict[str, str] = {}
        inside = [node.id for group in drawn.groups for node in each_node(group.groups) if node.step]
        self._left_out = set(inside) - _reached(drawn)
        steps = [node for node in each_node(drawn.groups) if node.step]
        bare = ["end", *(node.own_id for node in steps)]
        taken: set[str] = set()
        for node in steps:
            own = node.own_id if bare.count(node.own_id) == 1 else id_of(str(node.step["key"]))
            self._names[node.id] = own
            self._by_key[str(node.step["key"])] = own
            taken.add(own)
        first, last = drawn.loose
        listed = [first, *each_node(drawn.groups), last]
        # A join stands below its branches, wherever it is named.
        self._places = {node.id: place if node.kind != JOIN else 0 for place, node in enumerate(listed)}
        for node in (*drawn.loose, *each_node(drawn.groups)):
            if node.id not in self._names:
                base = {START: "start", END: "exit"}.get(node.kind, f"{node.id}_joined")
                while base in taken:
                    base += "_"
                self._names[node.id] = base
                taken.add(base)

    def lines(self) -> Iterator[str]:
        plan = self._drawing.plan
        yield f"digraph {quoted(str(plan['workflow_id']))} {{"
        head = {"goal": plan.get("description"), **{key: plan.get(key) for key in _WORKFLOW_FIELDS}}
        head["retry_target"] = self._by_key.get(str(plan.get("retry_target")))
        if self._drawing.title:
            head |= {"label": _drawn(self._drawing.title), "labelloc": "t"}
        head |= {"fontname": "Helvetica", "fontsize": 11, "labeljust": "l"}
        yield f"    graph {_attributes({key: value for key, value in head.items() if value})}"
        yield '    node [fontname="Helvetica", fontsize=11]'
        yield '    edge [fontname="Helvetica", fontsize=9]'
        for node in self._drawing.loose:
            yield f"    {self._node(node, DEFAULT_PHASE)}"
        for group in self._drawing.groups:
            yield from self._group(group, group.title, "    ")
        for arrow in self._drawing.arrows:
            if not {arrow.tail, arrow.head} & self._left_out:
                yield f"    {self._arrow(arrow)}"
        yield "}"

    def _group(self, group: Group, phase: str, indent: str) -> Iterator[str]:
        yield f"{indent}subgraph cluster_{group.id} {{"
        yield f"{indent}    label={quoted(_drawn(group.title))}; style=rounded; color=gray"
        for node in group.nodes:
            if node.id not in self._left_out:
                yield f"{indent}    {self._node(node, phase)}"
        for inner in group.groups:
            yield from self._group(inner, phase, indent + "    ")
        yield f"{indent}}}"

    def _node(self, node: Node, phase: str) -> str:
        said: dict[str, Any] = {"shape": _SHAPES.get(node.kind, _SHAPES["agent"])[2], "label": _drawn(node.title)}
        if node.step:
            said |= self._said(node, phase)
        return f"{quoted(self._names[node.id])} {_attributes({**said, **_COLORS.get(node.mark, {})})}"

    def _said(self, node: Node, phase: str) -> dict[str, Any]:
        step = node.step
        said: dict[str, Any] = {key: value for key in _FIELDS if (value := step.get(key)) is not None}
        said["name"] = node.name if node.name != _drawn(node.title) else None
        said["phase"] = phase if phase != DEFAULT_PHASE else None
        said["script"] = step.get("run")
        # A comma would end the path.
        left = [f"{name}={path}" if path and "," not in path else name for name, path in leaves(step).items()]
        said["produces"] = ", ".join(left) or None
        said["timeout"] = f"{step['timeout']:g}s" if step.get("timeout") else None
        task_list = step.get("for_each") or {}
        said |= {"for_each": task_list.get("list"), "section": task_list.get("section")}
        said["allow_empty"] = task_list.get("allow_empty")
        said["retry_target"] = self._by_key.get(str(step.get("retry_target")))
        said |= {key: None for key in _SAID_BY_SILENCE if not step.get(key)}
        if node.kind == "parallel":
            said["join_policy"] = step["parallel"].get("join")
            said.pop("prompt", None)
        return {key: value for key, value in said.items() if value is not None}

    def _arrow(self, arrow: Arrow) -> str:
        one, label = arrow.transition, _drawn("\n".join(arrow.lines))
        condition = one.get("condition")
        back = 0 < self._places[arrow.head] < self._places[arrow.tail]  # up the page
        said: dict[str, Any] = {
            "label": label or None,
            "choice": str(one.get("label") or "") if label != (one.get("label") or "") else None,
            "condition": as_written(str(condition)) if condition else None,
            "weight": one.get("weight"),
            "fidelity": one.get("fidelity"),
            "on_failure": True if one.get("on_failure") else None,
            "branch": arrow.branch or None,
            "drawn_only": True if arrow.kind == RETRY else None,
            "style": "dashed" if arrow.dashed else None,
            "constraint": False if back else None,
        }
        told = _attributes({key: value for key, value in said.items() if value is not None})
        return f"{quoted(self._names[arrow.tail])} -> {quoted(self._names[arrow.head])}{' ' + told if told else ''}"


def _reached(drawn: Drawing) -> set[str]:
    waiting = [node.id for node in (*drawn.loose, *(node for group in drawn.groups for node in group.nodes))]
    onward: dict[str, list[str]] = {}
    for arrow in drawn.arrows:
        onward.setdefault(arrow.tail, []).append(arrow.head)
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += onward.get(name, ())
    return reached


def _drawn(text: str) -> str:
    """Write a label so that Graphviz shows it as it is: it reads HTML's entities in each."""
    return text.replace("&", "&amp;")


def _attributes(said: Mapping[str, Any]) -> str:
    told = [f"{key}={_value(value)}" for key, value in said.items()]
    return f"[{', '.join(told)}]" if told else ""


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else quoted(str(value))
