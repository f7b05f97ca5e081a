"""Short texts about runs that are not primed: lists, announcements, and what a summariser is told (D1, D23)."""

from __future__ import annotations

from loomctl import __version__
from loomctl.model import sessions, visits
from loomctl.model.secrets import masked_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace
    from loomctl.model.lease import Holder
    from loomctl.model.state import State


def candidates(run_ids: Sequence[str]) -> str:
    """List several active runs, a line each; none is guessed (D1)."""
    shown = "\n".join(f"  {run_id}" for run_id in run_ids[:10])
    more = f"\n  and {len(run_ids) - 10} more: loomctl runs" if len(run_ids) > 10 else ""
    return f"Loom: {len(run_ids)} runs are active here; /loom:resume RUN takes one up:\n{shown}{more}"


def unreadable(run_ids: Sequence[str]) -> str:
    """Say that a run cannot be read, instead of staying silent as if there were none."""
    return f"Loom: the state of the run {run_ids[0]} cannot be read; `loomctl show {run_ids[0]}` says why"


def unknown_run(space: Workspace, run_id: str) -> str:
    """Announce a run that was not taken up here, with the way that is open; not a word of its files is given (D23)."""
    from loomctl.engine import finding

    way = finding.way_in(space, run_id).removeprefix("loomctl ")
    held = way != f"resume {run_id}"
    driven = f" (another session drives it: loomctl show {run_id})" if held else ""
    return f"Loom: the run {run_id} was not taken up here{driven}; /loom:{way} takes it {'over' if held else 'up'}"


def held_elsewhere(run_id: str, holders: Sequence[str], driver: Holder | None = None) -> str:
    """Say that another live session drives the only active run; driver: who has its lease, if anybody."""
    if driver is not None:
        from loomctl.engine import leasing

        return f"Loom: {leasing.line(driver, run_id)}; this session is not primed"
    return (
        f"Loom: the run {run_id} is driven by another session ({masked_line(holders[0], 60)}); this one is not primed"
    )


def for_the_summary(run: Run, given: Sequence[str]) -> str:
    """Tell a summariser which run this is and what must be kept; plain text.

    given: the ids of the artifacts that the priming after the compaction will give in full.
    """
    state = run.state
    at = f", phase {state['current_phase']}, step {state['current_step']}" if state.get("current_phase") else ""
    lines = [masked_line(f"This conversation works on the Loom run {run.run_id}{at}.", 500)]
    if state.get("goal"):
        lines.append(f"Its goal: {masked_line(str(state['goal']), 300)}")
    lines.append(
        "Keep in the summary: the run's id; the current step and what is done and open in it; decisions and their "
        "reasons; exact file paths, names, numbers and error messages that the next steps need; what the user wants."
    )
    names = ", ".join(masked_line(name, 60) for name in given[:20])
    if names:
        lines.append(f"Loom gives these back in full after the compaction, so they need no retelling: {names}.")
    entry = visits.open_visit(state)
    if entry is not None and entry["status"] == "closing":
        key = masked_line(entry["step_id"], 120)
        lines.append(f"The step {key} is being ended; its result is expected as the final message.")
    return "\n".join(lines) + "\n"


def newer_writer(state: State) -> list[str]:
    """Say that a newer Loom than this plugin worked on the run: the other way round is what every update looks like."""
    writer = sessions.last_writer(state)
    if writer in ("", __version__):
        return []
    from loomctl.model.versions import skews

    newer = skews(__version__, writer=writer)
    return [f"loomctl {writer} worked on it, the plugin is {__version__}: loomctl doctor"] if newer else []
