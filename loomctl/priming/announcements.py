"""Short texts about runs that are not primed: lists, announcements, and what a summariser is told (D1, D23)."""

from __future__ import annotations

import os

from loomctl.kit.errors import LoomError
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.model import visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.model.lease import Holder
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run


_LONGEST_NAME, _LONGEST_NAMES = 120, 300


def candidates(run_ids: Sequence[str]) -> str:
    """List several active runs, a line each; none is guessed (D1)."""
    shown = "\n".join(f"  {run_id}" for run_id in run_ids[:10])
    more = f"\n  and {len(run_ids) - 10} more: loomctl runs" if len(run_ids) > 10 else ""
    return f"Loom: {len(run_ids)} runs are active here; /loom:resume RUN takes one up:\n{shown}{more}"


def unreadable(run_ids: Sequence[str]) -> str:
    """Say that a run cannot be read, instead of staying silent as if there were none."""
    return f"Loom: the state of the run {run_ids[0]} cannot be read; `loomctl show {run_ids[0]}` says why"


def unknown_run(space: Workspace, run_id: str) -> str:
    """Announce a run that was not taken up here, with the way that is open, its step and its files' paths (D23).

    Not a word of what the files hold is given, and no path that names nothing here.
    """
    from loomctl.runs import find

    way = find.way_in(space, run_id).removeprefix("loomctl ")
    held = way != f"resume {run_id}"
    driven = f" (another session drives it: loomctl show {run_id})" if held else ""
    line = f"Loom: the run {run_id} was not taken up here{driven}; /loom:{way} takes it {'over' if held else 'up'}"
    try:
        run = space.store.read(run_id, to_show=True)
        told = [*_at_its_step(run), *_its_files(space, run)]
    except (OSError, LoomError):
        told = []
    return f"{line}\n{'; '.join(told)}" if told else line


def _at_its_step(run: Run) -> list[str]:
    from loomctl.runs.model import frozen_plan

    place = frozen_plan.place_of(run.plan, str(run.state.get("current_step") or ""))
    return [f"It stands at {masked_line(place.key, 120)}"] if place is not None else []


def _its_files(space: Workspace, run: Run) -> list[str]:
    """Name a run's files that are here, as far as a short line goes. Whoever made the project chose their names."""
    from loomctl.expressions import state_paths
    from loomctl.priming import artifact_files
    from loomctl.runs import artifact_paths
    from loomctl.runs.artifact_paths import locate

    known = artifact_paths.placeholder_values(space.project, run)
    roots = artifact_files.roots_of(space, run)
    own = (os.path.realpath(run.state_path), os.path.realpath(run.plan_path))
    names: dict[str, None] = {}
    for artifact in run.plan["artifacts"]:
        declared = artifact.get("path")
        if artifact.get("path_steps") is not None:
            declared = state_paths.read(artifact["path_steps"], run.state)
        try:
            place = locate(declared, known, roots) if isinstance(declared, str) else None
        except LoomError:
            continue
        if place is None or place.path in own or place.shown.startswith("{plugin_root}"):
            continue
        name = masked_line(place.shown, _LONGEST_NAME + 1)
        if len(name) <= _LONGEST_NAME and "`" not in name and os.path.isfile(place.path):
            names[f"`{name}`"] = None
    fit: list[str] = []
    room = _LONGEST_NAMES
    for name in names:
        room -= len(name)
        if room < 0:
            break
        fit.append(name)
    more = f" and {len(names) - len(fit)} more" if len(names) > len(fit) else ""
    return [f"its files: {', '.join(fit)}{more}"] if fit else []


def held_elsewhere(run_id: str, holders: Sequence[str], driver: Holder | None = None) -> str:
    """Say that another live session drives a run; driver: who has its lease, if anybody."""
    if driver is not None:
        from loomctl.runs import leases

        return f"Loom: {leases.line(driver, run_id)}; this session is not primed"
    return (
        f"Loom: the run {run_id} is driven by another session ({masked_line(holders[0], 60)}); this one is not primed"
    )


def beside(run: Run, line: str) -> str:
    """Tell an assistant of a run that another session drives: which, where it stands, how it is taken up (D64).

    line: who drives it. Its files are for those who work on it.
    """
    state = run.state
    goal = f"goal: {masked_line(str(state['goal']), 300)}" if state.get("goal") else "no goal was given"
    steps = [step for phase in run.plan["phases"] for step in phase["steps"] if not step.get("engine")]
    last = visits.last_of_each(state)
    ended = sum(visits.is_done(last.get(step["key"])) for step in steps)
    at = f", at {masked_line(str(state['current_step']), 120)}" if state.get("current_step") else ""
    standing = f"workflow {masked_line(state['workflow_id'], 120)} · {state['status']}{at}"
    way = f"/loom:resume {run.run_id} --take-over takes it over, if its user wants that"
    return "\n".join(
        [
            line,
            goal,
            f"{standing} · {ended} of {len(steps)} steps",
            "What its user asks for here counts, not that run's step; its files are given to who works on it.",
            f"`loomctl show {run.run_id}` shows it; {way}.",
        ]
    )


def for_the_summary(run: Run, given: Sequence[str]) -> str:
    """Tell a summariser which run this is and what must be kept; plain text.

    given: the ids of the artifacts that the priming after the compaction will give in full.
    """
    state = run.state
    at = f", step {state['current_step']}" if state.get("current_step") else ""
    lines = [masked_line(f"This conversation works on the Loom run {run.run_id}{at}.", 500)]
    lines.append(
        "Keep in the summary: what is done and open in the step; decisions and their reasons; exact paths, names, "
        "numbers and errors that are still needed; what the user wants."
    )
    names = ", ".join(masked_line(name, 60) for name in given[:20])
    if names:
        lines.append(f"Loom gives back in full, so they need no retelling: {names}.")
    entry = visits.open_visit(state)
    if entry is not None and entry["status"] == "closing":
        key = masked_line(entry["step_id"], 120)
        lines.append(f"The step {key} is being ended; its result is expected as the final message.")
    return "\n".join(lines) + "\n"
