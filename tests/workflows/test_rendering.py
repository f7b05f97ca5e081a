"""Drawings are drawn by their real renderers: Mermaid in a browser, DOT by Graphviz."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from loomctl.workflows import draw
from loomctl.workflows.draw import cut, lay_out
from loomctl.workflows.resolve import resolve_file
from loomctl.workflows.workflow import build_plan
from loomctl.workflows.workflow_files import Places
from tests.helpers import drawings, graphviz, mermaid
from tests.helpers.scenes import CHECKOUT

LABELS = ["Pass", "outcome=succeeded", "Fix", "on failure", "[A] Approve", "[R] Revise", "retry", "wait_all"]
NAMES = ["✓ Plan", "✓ Look from two sides", "✓ api", "✓ Draw", "Take pictures", "✗ Run the tests", "Approve?", "Tag"]
CURRENT = "▸ Implement ×2"  # noqa: RUF001 - times
CORE = ["Fetch the work", "Write the specification", "Implement", "Verify", "Ship"]


def core() -> dict[str, Any]:
    path = CHECKOUT / "config" / "workflows" / "core.yaml"
    found = resolve_file(str(path), Places("/nowhere", "/nowhere/.loom", str(CHECKOUT)))
    return build_plan(found.checked(), plan_id="p", created_at="", sources=[])


@pytest.mark.slow
def test_mermaid_draws_them(tmp_path: Path) -> None:
    """The core workflow, and one that loops and works in parallel, the current step marked; hostile names as text."""
    looping = lay_out(drawings.frozen(drawings.LOOPING), drawings.UNDER_WAY)
    drawn = mermaid.rendered(
        [draw.mermaid(one) for one in (lay_out(core()), looping, lay_out(drawings.hostile()))], tmp_path
    )
    assert set(CORE) <= set(mermaid.words(drawn[0]))
    told = "\n".join(_labels(drawn[1]))
    for word in (*NAMES, CURRENT, *LABELS):
        assert word in told, word
    node = _node_with(drawn[1], CURRENT)
    assert "current" in node
    assert "stroke-width:4px" in node.replace(" ", "")
    assert len(re.findall(r'<g class="cluster[ "]', drawn[1])) == 5
    shown = "\n".join(_labels(drawn[2]))
    for name in drawings.HOSTILE_NAMES:
        assert cut("".join(one if one.isprintable() else " " for one in name), 60) in shown.replace("  ", " "), name
    assert not re.search(r"<(script|img|a|math|iframe)\b", drawn[2])


def test_graphviz_draws_them() -> None:
    """As SVG: every name and label is in it, the current step bold."""
    assert set(CORE) <= set(_texts(graphviz.rendered(draw.dot(lay_out(core())))))
    looping = lay_out(drawings.frozen(drawings.LOOPING), drawings.UNDER_WAY)
    svg = graphviz.rendered(draw.dot(looping))
    assert {*NAMES, CURRENT, *LABELS} <= set(_texts(svg))
    bold = re.findall(r'<polygon[^>]*stroke-width="3"[^>]*/>\s*<text[^>]*>([^<]*)<', svg)
    assert [html.unescape(name) for name in bold] == [CURRENT]
    assert svg.count('stroke-dasharray="5,2"') == 3
    hostile = graphviz.rendered(draw.dot(lay_out(drawings.hostile())))
    shown = _texts(hostile)
    for name in drawings.HOSTILE_NAMES:
        assert cut("".join(one if one.isprintable() else " " for one in name), 60) in shown, name
    assert not re.search(r"<(script|img|a|image)\b", hostile)


def _labels(svg: str) -> list[str]:
    return mermaid.words(svg)


def _node_with(svg: str, title: str) -> str:
    """Give the part of a drawing that holds a node's shape and name."""
    before = svg[: svg.index(title)]
    return before[before.rindex('<g class="node') :]


def _texts(svg: str) -> list[str]:
    return [html.unescape(text).replace("\xa0", " ") for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
