"""A drawing in Mermaid, as GitHub and others render it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from loomctl.workflows.draw.graph_text import CURRENT, DONE, END, FAILED, JOIN, START

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loomctl.workflows.draw.graph_text import Arrow, Drawing, Group, Node

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


def written(drawing: Drawing) -> str:
    """Write a drawing as a flowchart."""
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
