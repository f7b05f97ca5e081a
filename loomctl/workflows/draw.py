"""A workflow or a run as a drawing, in the form that is asked for: Mermaid, DOT, or the SVG that Graphviz makes of it.

`dot_workflow` reads the DOT back as the workflow that was drawn (D61). Lost on the way back: critical artifacts,
approvals by phase, autonomy, result handling, and what a plan's phases say besides their steps. A step of a branch that
nothing leads to is left out: in DOT a branch is what its arrows reach.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import processes
from loomctl.kit.errors import EXIT_SETUP, LoomError
from loomctl.runs import stages
from loomctl.workflows import drawing, workflow_files
from loomctl.workflows.dot_conditions import as_written
from loomctl.workflows.dot_steps import id_of
from loomctl.workflows.dot_text import quoted
from loomctl.workflows.dot_workflow import DEFAULT_PHASE
from loomctl.workflows.drawing import CURRENT, DONE, END, FAILED, JOIN, RETRY, START, each_node
from loomctl.workflows.plan import build_plan
from loomctl.workflows.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loomctl.runs.project import Workspace
    from loomctl.workflows.drawing import Arrow, Drawing, Group, Node

FORMATS = ("mermaid", "dot", "svg")
_GRAPHVIZ_SECONDS = 60.0
_SHAPES = {
    START: "Mdiamond",
    END: "Msquare",
    JOIN: "tripleoctagon",
    "agent": "box",
    "prompt": "tab",
    "command": "parallelogram",
    "human": "hexagon",
    "parallel": "component",
}
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
    made = drawing.lay_out(plan, state)
    text = drawing.mermaid(made) if form == "mermaid" else dot(made)
    return Drawn(str(plan["workflow_id"]), run_id, _svg(text) if form == "svg" else text)


def _meant(space: Workspace, word: str | None) -> tuple[str | None, Mapping[str, Any], Mapping[str, Any] | None]:
    if word is None or word in space.store.run_ids():
        run = stages.read_current(space, word)
        return run.run_id, run.plan, run.state
    project = space.project
    places = workflow_files.Places(os.path.dirname(project.store), project.store, project.plugin_root)
    try:
        found = resolve(word, **places._asdict())
    except LoomError as unknown:
        if unknown.code not in ("UNKNOWN_WORKFLOW", "BAD_ID"):
            raise
        run_id = _matched(space, word, unknown)
        run = stages.read_current(space, run_id)
        return run.run_id, run.plan, run.state
    return None, build_plan(found.checked(), plan_id="graph", created_at="", sources=[]), None


def _matched(space: Workspace, word: str, unknown: LoomError) -> str:
    try:
        return space.store.match(word)
    except LoomError as error:
        if error.code != "NO_SUCH_RUN":
            raise
        unknown.what = f"there is neither a workflow nor a run {word[:80]!r}"
        raise unknown from None


def _svg(text: str) -> str:
    """Draw a text in DOT. Raises LoomError: NO_GRAPHVIZ, or GRAPHVIZ_FAILED with what it says."""
    program = shutil.which("dot")
    if program is None:
        raise LoomError(
            "NO_GRAPHVIZ",
            "Graphviz is not installed, and it alone draws SVG",
            why="its program dot is not on the PATH (apt-get install graphviz, brew install graphviz)",
            hint="loomctl graph --format mermaid",
            exit_code=EXIT_SETUP,
        )
    ended = processes.run(
        [program, "-Tsvg"],
        cwd=os.path.abspath(os.sep),
        environ=os.environ,
        patience=_GRAPHVIZ_SECONDS,
        given=text.encode(),
    )
    if ended.code != 0:
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise LoomError(
            "GRAPHVIZ_FAILED",
            "Graphviz could not draw this",
            why=said[0][:300] if said else f"it took more than {_GRAPHVIZ_SECONDS:g} s" if ended.code is None else "",
            hint="loomctl graph --format dot",
            exit_code=EXIT_SETUP,
        )
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
        bare = [node.own_id for node in steps]
        taken: set[str] = set()
        for node, name in zip(steps, bare, strict=True):
            own = name if bare.count(name) == 1 and name != "end" else id_of(str(node.step["key"]))
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
        said: dict[str, Any] = {"shape": _SHAPES.get(node.kind, _SHAPES["agent"]), "label": _drawn(node.title)}
        if node.step:
            said |= self._said(node, phase)
        return f"{quoted(self._names[node.id])} {_attributes({**said, **_COLORS.get(node.mark, {})})}"

    def _said(self, node: Node, phase: str) -> dict[str, Any]:
        step = node.step
        said: dict[str, Any] = {key: value for key in _FIELDS if (value := step.get(key)) is not None}
        said["name"] = node.name if node.name != _drawn(node.title) else None
        said["phase"] = phase if phase != DEFAULT_PHASE else None
        said["script"] = step.get("run")
        said["timeout"] = f"{step['timeout']:g}s" if step.get("timeout") else None
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
