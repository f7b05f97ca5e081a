"""What each node of a workflow in DOT is: by its type, its shape or its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loomctl.kit.problems import choices, error, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomctl.kit.problems import Problem
    from loomctl.workflows.dot.dot_text import Graph, Node

START, END, DECISION, JOIN, PARALLEL = "start", "end", "decision", "join", "parallel"
AGENT, PROMPT, COMMAND, HUMAN, WAIT = "agent", "prompt", "command", "human", "wait"
_STEPS = (AGENT, PROMPT, COMMAND, HUMAN, WAIT, PARALLEL)
_UNSUPPORTED = "unsupported"

_SHAPES = {
    "mdiamond": START,
    "msquare": END,
    "box": AGENT,
    "tab": PROMPT,
    "parallelogram": COMMAND,
    "hexagon": HUMAN,
    "diamond": DECISION,
    "component": PARALLEL,
    "tripleoctagon": JOIN,
    "insulator": WAIT,
    "house": _UNSUPPORTED,
}
_TYPES = {
    "start": START,
    "exit": END,
    "end": END,
    "agent": AGENT,
    "codergen": AGENT,
    "prompt": PROMPT,
    "command": COMMAND,
    "tool": COMMAND,
    "human": HUMAN,
    "wait.human": HUMAN,
    "conditional": DECISION,
    "parallel": PARALLEL,
    "parallel.fan_in": JOIN,
    "wait": WAIT,
    "stack.manager_loop": _UNSUPPORTED,
    "pull_request": _UNSUPPORTED,
}
_START_NAMES, _END_NAMES = ("start", "Start"), ("exit", "Exit", "end", "End")


class Role(NamedTuple):
    """kind: one of this module's words; asks: it has a prompt or script of its own; joins: branches may end there."""

    kind: str
    asks: bool
    joins: bool = False


def is_step(role: Role) -> bool:
    """Tell whether a step is made of the node: a decision that asks for nothing only routes, a join likewise."""
    return role.kind in _STEPS


def assigned(graph: Graph, where: Callable[[int], str]) -> tuple[dict[str, Role], list[Problem]]:
    """Give each node its role, and what is wrong with them."""
    problems: list[Problem] = []
    roles = {name: _role(node, where, problems) for name, node in graph.nodes.items()}
    for kind, names in ((START, _START_NAMES), (END, _END_NAMES)):
        if any(role.kind == kind for role in roles.values()):
            continue
        for name in names:
            if name in roles and not roles[name].asks and not graph.nodes[name].own.keys() & {"shape", "type"}:
                roles[name] = Role(kind, asks=False)
    starts = [name for name, role in roles.items() if role.kind == START]
    if len(starts) > 1:
        message = f"a workflow begins once: {', '.join(shown(name) for name in starts[:5])}"
        problems.append(error("BAD_START", where(graph.nodes[starts[1]].at), message, "keep one shape=Mdiamond"))
    return roles, problems


def _role(node: Node, where: Callable[[int], str], problems: list[Problem]) -> Role:
    asks = any((said := node.own.get(key)) and said.text.strip() for key in ("prompt", "script", "tool_command", "run"))
    kind, shape = node.get("type"), node.get("shape")
    if kind is not None and kind.text:
        found = _TYPES.get(kind.text)
        if found is None:
            message = f"{shown(kind.text)} is no type of a node that Loom knows"
            problems.append(error("UNKNOWN_VALUE", where(kind.at), message, choices(kind.text, list(_TYPES))))
    else:
        found = _SHAPES.get(shape.text.lower()) if shape is not None else None
    if found == _UNSUPPORTED:
        said = kind if kind is not None and kind.text else shape
        message = f"{said.text if said else ''}: Loom has no such step"
        hint = "a command step can do it (shape=parallelogram, script=…), or an agent's prompt ask for it"
        problems.append(error("NOT_SUPPORTED", where(said.at if said else node.at), message, hint))
    if found in (DECISION, JOIN) and asks:
        return Role(AGENT, asks, joins=found == JOIN)
    scripted = any(key in node.own for key in ("script", "tool_command", "run"))
    if found is None and scripted and "prompt" not in node.own:
        return Role(COMMAND, asks)
    return Role(found or AGENT, asks, joins=found == JOIN)
