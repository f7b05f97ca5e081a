"""What run, resume, next and done tell: the packing slip, the step, where the run stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.cli import asking
from loomctl.engine import prompts
from loomctl.engine.resuming import restored_lines
from loomctl.model import run_life
from loomctl.model.fences import one_line, visible
from loomctl.model.secrets import masked_line
from loomctl.model.slip import cut_lines
from loomctl.model.units import utf8_bytes

if TYPE_CHECKING:
    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace
    from loomctl.engine.priming import Slip

# What may stand beside a slip's text, so that the host shows all of a command's output inline.
BESIDE = 4000


def step_document(space: Workspace, run: Run) -> dict[str, Any] | None:
    """Give the current step as `--json` shows it: `{id, visit, stage, prompt}`; None where none is open."""
    entry = run_life.open_visit(run.state)
    place = run_life.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None:
        return None
    prompt = prompts.step_prompt(place, entry["visit"], prompts.prompt_values(space.project, run))
    return {"id": entry["step_id"], "visit": entry["visit"], "stage": entry["stage"], "prompt": prompt}


def plan_lines(run: Run) -> list[str]:
    """Give the plan, a phase a line: its steps, and where approval is asked."""
    autonomy = run.plan.get("autonomy") or {}
    gated = autonomy.get("require_approval_for") or ()
    lines = []
    for phase in run.plan["phases"]:
        steps = [step["id"] for step in phase["steps"] if not step.get("engine")]
        gate = " (after approval)" if phase.get("require_approval") or phase["id"] in gated else ""
        lines.append(f"  {phase['id']}: {', '.join(steps) or 'no steps'}{gate}")
    return lines


def slip_lines(made: Slip, *, done: bool = True) -> list[str]:
    """Give the packing slip for people; done: False for a dry run."""
    loaded = "loaded" if done else "to load"
    head = f"Packing slip ({made.event}): {len(made.loaded)} {loaded}, {len(made.fresh)} fresh"
    if made.used:
        head += f"; {made.used:,} of {made.limit:,}"
    return [
        head,
        *(f"  {line}" for line in restored_lines(made, done=done)),
        *(f"  ! {one_line(code, 40)}: {masked_line(text, 300)}" for code, text in made.warnings),
    ]


def beside(text: str) -> str:
    """Cut what stands beside a slip's text to its share; the slip's own text says what was left out of it."""
    return cut_lines(visible(text), BESIDE, utf8_bytes)


def whole(space: Workspace, run: Run, lines: list[str], made: Slip | None) -> str:
    """Put what a verb tells together: its own lines, then the slip's text for an assistant, the step for a person."""
    own = beside("\n".join(lines))
    if asking.reader_is_an_assistant() and made is not None and made.text:
        return f"{own}\n\n{made.text}"
    return f"{own}\n\n{bounded_step(space, run)}"


def bounded_step(space: Workspace, run: Run) -> str:
    """Give the next thing to do in full; above a host's limit its beginning and the file that holds all of it."""
    text = prompts.upcoming(space.project, run, may_write=True)
    limit = space.settings.command_budget
    if utf8_bytes(text) <= limit:
        return text
    entry = run_life.open_visit(run.state)
    where = f"{run.folder}/stages/{entry['stage']}/prompt.md" if entry else run.folder
    rest = f"(the whole prompt: {where}; read it)\n\n{prompts.ENDING}"
    return f"{cut_lines(text, limit - utf8_bytes(rest) - 2, utf8_bytes)}\n\n{rest}"
