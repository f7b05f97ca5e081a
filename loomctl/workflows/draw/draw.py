"""A workflow or a run as a drawing: found, laid out, written in the form that is asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit.errors import LoomError
from loomctl.runs import stage_records
from loomctl.workflows import workflow_files
from loomctl.workflows.draw import graph_dot, graph_mermaid, graphviz
from loomctl.workflows.draw.graph_text import drawing
from loomctl.workflows.plan import build_plan
from loomctl.workflows.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.runs.caller import Workspace

FORMATS = ("mermaid", "dot", "svg")


class Drawn(NamedTuple):
    """run_id: None of a workflow."""

    workflow_id: str
    run_id: str | None
    text: str


def drawn(space: Workspace, word: str | None, form: str) -> Drawn:
    """Draw what a word names: a run by its id, a workflow, a run by the beginning of its id; the current run for none.

    form: one of FORMATS. Raises what finding and reading them do, and NO_GRAPHVIZ.
    """
    run_id, plan, state = _meant(space, word)
    made = drawing(plan, state)
    text = graph_mermaid.written(made) if form == "mermaid" else graph_dot.written(made)
    return Drawn(str(plan["workflow_id"]), run_id, graphviz.svg(text) if form == "svg" else text)


def _meant(space: Workspace, word: str | None) -> tuple[str | None, Mapping[str, Any], Mapping[str, Any] | None]:
    if word is None or word in space.store.run_ids():
        run = stage_records.read_current(space, word)
        return run.run_id, run.plan, run.state
    project = space.project
    places = workflow_files.Places(os.path.dirname(project.store), project.store, project.plugin_root)
    try:
        found = resolve(word, **places._asdict())
    except LoomError as unknown:
        if unknown.code not in ("UNKNOWN_WORKFLOW", "BAD_ID"):
            raise
        run_id = _matched(space, word, unknown)
        run = stage_records.read_current(space, run_id)
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
