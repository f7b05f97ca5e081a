"""`loomctl why`: why a step came next, and why an artifact is loaded or is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from loomctl.cli import arguments, caller, output
from loomctl.cli.arguments import json_option, run_argument
from loomctl.kit.errors import EXIT_OK
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.views import explain
from loomctl.workflows.model import ways

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run
    from loomctl.views.explain import Came, Load

_SHOWN = 120


@click.command()
@click.argument("named", metavar="[STEP|ARTIFACT]", required=False)
@run_argument
@json_option
def why(named: str | None, run: str | None, as_json: bool) -> int:
    """Say why a run came to a step: after what, by which transition, and why by no other; or why it loads an artifact.

    STEP is a step's id, which means its last visit, `step@visit`, a stage's name or its rank; or the step that comes
    next. ARTIFACT is the id of a critical artifact: its triggers, what its condition comes to now with the values that
    it looks at, and the last priming that named it. A stage goes before an artifact of the same name.
    With neither: the step that the run is at.

    \b
    Examples:
      loomctl why
      loomctl why review
      loomctl why build/fix@2
      loomctl why 007 shop-258 --json
      loomctl why spec
    """
    space = caller.space()
    run_id = arguments.run_id(space, run)
    found = space.store.read(run_id, to_show=True)
    told = explain.here(found) if named is None else _named(space, found, named)
    if as_json:
        output.document({"run_id": run_id, **told.to_dict()})
    else:
        output.text("\n".join(_of_artifact(told) if isinstance(told, explain.Load) else _lines(told)))
    return EXIT_OK


def _named(space: Workspace, run: Run, named: str) -> Came | Load:
    load = explain.artifact(space, run, named)
    return explain.step(run, named) if load is None else load


def _lines(came: Came) -> list[str]:
    name = came.step_id if came.visit is None else f"{came.step_id}@{came.visit}"
    if came.after is None:
        return [f"{name} is where the run began: the first step of its plan"]
    before = f"{came.after['step_id']}@{came.after['visit']}"
    ended = f"{before}, which ended {one_line(str(came.after['status']), 40)}"
    if not came.way:
        return [f"{name} came after {ended}; that visit leads elsewhere or says nothing: the run was taken up again"]
    how = ways.how(came.way) or "as the next step in order"
    comes = "comes next" if came.visit is None else "came"
    lines = [f"{name} {comes} after {ended}: {masked_line(how, _SHOWN)}"]
    if came.weighed:
        lines += [
            "",
            output.table(["LEADS TO", "LABEL", "CONDITION", "IS", "WHY"], [_row(one) for one in came.weighed]),
        ]
    return lines


def _row(one: Mapping[str, Any]) -> list[str]:
    truth = "" if one.get("truth") is None else "true" if one["truth"] else "false"
    texts = [masked_line(str(one.get(key) or ""), 60) for key in ("to", "label", "condition")]
    return [*texts, truth, masked_line(str(one.get("why") or ""), _SHOWN)]


def _of_artifact(load: Load) -> list[str]:
    declared = load.artifact
    phase = f" in the phase {declared['phase']}" if declared.get("phase") else ""
    lines = [f"{declared['id']} is loaded at {', '.join(declared.get('triggers') or ()) or 'no trigger'}{phase}"]
    if declared.get("condition"):
        lines.append(f"if {masked_line(declared['condition'], _SHOWN)}, which is {load.holds} now")
        lines += [f"  {path} = {masked_line(json.dumps(value), _SHOWN)}" for path, value in load.values.items()]
    lines += [masked_line(text, 400) for text in load.warnings]
    if load.last is None:
        return [*lines, "no priming of this run has named it"]
    fired = f", by its trigger {load.last['fired']}" if load.last["fired"] else ""
    return [*lines, f"last at {load.last['at']}, {masked_line(load.last['event'], 80)}{fired}: {load.last['became']}"]
