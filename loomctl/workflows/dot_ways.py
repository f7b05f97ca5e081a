"""What an arrow of a workflow in DOT says of the way on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loomctl.workflows import dot_conditions
from loomctl.workflows.dot_steps import Attributes

if TYPE_CHECKING:
    from loomctl.workflows.dot_text import Edge, Report

OUT = "\0end"  # where a way ends the run, or the branch


class Way(NamedTuple):
    """One way on.

    condition: JavaScript, empty for none; decided: it was one of a decision's; branch: the id of the branch that it
    begins, if one is said; at: its arrow's offset in the text.
    """

    to: str
    at: int
    label: str | None = None
    condition: str = ""
    weight: float | None = None
    fidelity: str | None = None
    on_failure: bool = False
    decided: bool = False
    branch: str | None = None


def way_of(edge: Edge, report: Report) -> Way:
    """Read an edge's attributes; what is wrong with them becomes a problem."""
    held = Attributes(edge.attributes, report)
    condition, said = "", held.value("condition")
    if said is not None:
        compiled = dot_conditions.compile_condition(said.text)
        condition = compiled.javascript
        hint = "outcome=succeeded && context.tests_passed=true"
        for message in compiled.errors:
            report.fail("CONDITION_SYNTAX", said.at, f"invalid condition: {message}", hint)
        for message in compiled.warnings:
            report.warn("NEVER_TRUE", said.at, message)
    return Way(
        edge.head,
        edge.at,
        held.line("choice" if "choice" in edge.attributes else "label"),
        condition,
        held.number("weight"),
        held.text("fidelity"),
        bool(held.flag("on_failure")),
        branch=held.text("branch"),
    )


def is_only_drawn(edge: Edge) -> bool:
    """Tell whether an arrow shows what something else says: `loomctl graph` draws where a retry_target leads."""
    said = edge.attributes.get("drawn_only")
    return said is not None and said.text == "true"


def is_plain(way: Way) -> bool:
    """Tell whether a way says nothing but where it leads."""
    return way._replace(to="", at=0, decided=False, branch=None) == Way("", 0)
