"""That a command began and how it ended: each told once in the run's log, whoever was killed in between (D41).

What is told already stands in the log itself. So whoever holds the run's lock can tell what is missing, and who was
killed behind a command's start or end, or never came to tell it, is stood in for by the next who looks.
"""

from __future__ import annotations

from loomctl.flow import lines
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.commands import command_runs
from loomctl.runs.model import visits
from loomctl.runs.store import event_log
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.flow.commands.work import Work
    from loomctl.runs.caller import Workspace
    from loomctl.runs.commands.command_runs import Standing
    from loomctl.runs.model.state import State
    from loomctl.runs.store.store import Run

STARTED, ENDED = "command.started", "command.ended"
_OPENED = "stage.started"


def is_running_by_the_log(run: Run, stage: str) -> bool:
    """Tell whether a stage's command was told to begin, and not to end."""
    return _last(run, stage).get("event") == STARTED


def tell_start(space: Workspace, run: Run, work: Work, standing: Standing) -> Run:
    """Tell that a command began, unless it was told; gives the run as it is then."""
    if _last(run, work.stage).get("event") == STARTED:
        return run
    return run._replace(state=_update(space, run, work, lambda: start(space, run, work, standing)))


def tell_end(space: Workspace, run: Run, work: Work, standing: Standing) -> Run:
    """Tell how a command ended, unless it was told; gives the run as it is then."""
    return run._replace(state=_update(space, run, work, lambda: end(space, run, work, standing)))


def start(space: Workspace, run: Run, work: Work, standing: Standing) -> list[Event]:
    """Give the event of a command's start if the log lacks it. For who holds the run's lock."""
    last, supervisor = _last(run, work.stage), _supervisor(standing)
    if last.get("event") in (STARTED, ENDED) and _same(last, supervisor):
        return []
    properties = {"stage": work.stage, "timeout": work.step.get("timeout"), "supervisor": supervisor}
    return [Event("command.started", properties, space.caller.session_id, work.step_id)]


def end(space: Workspace, run: Run, work: Work, standing: Standing) -> list[Event]:
    """Give the event of a command's end, and of its start, as far as the log lacks them. For who holds the lock."""
    last, supervisor = _last(run, work.stage), _supervisor(standing)
    if last.get("event") == ENDED and _same(last, supervisor):
        return []
    told = standing.result
    properties = {
        "stage": work.stage,
        **{key: told.get(key) for key in ("exit_code", "signal", "duration_ms")},
        **{key: bool(told.get(key)) for key in ("timed_out", "stopped")},
        "lost": standing.kind == command_runs.LOST,
        "bytes": told.get("bytes", standing.bytes),
        "supervisor": supervisor,
        **({"error": masked_line(str(told["error"]), 300)} if told.get("error") else {}),
    }
    ended = Event("command.ended", properties, space.caller.session_id, work.step_id)
    return [*start(space, run, work, standing), ended]


def _update(space: Workspace, run: Run, work: Work, events: Any) -> State:
    def change(state: State) -> tuple[State, list[Event]]:
        entry = visits.open_visit(state)
        return state, events() if entry is not None and entry["stage"] == work.stage else []

    return lines.update(space, run, change).state


def _last(run: Run, stage: str) -> Mapping[str, Any]:
    """Give what the log told last of a stage's command since the stage began; an empty object where it told nothing."""

    def wanted(entry: Mapping[str, Any]) -> bool:
        named = entry["event"] in (STARTED, ENDED, _OPENED)
        return named and (entry.get("properties") or {}).get("stage") == stage

    mentions = [f'"{name}"'.encode() for name in (STARTED, ENDED, _OPENED)]
    lines = event_log.tail(run.folder, 1, wanted, mentions)
    return next((line.entry for line in lines if line.entry is not None), {})


def _supervisor(standing: Standing) -> int | None:
    named = standing.record.get("supervisor")
    pid = named.get("pid") if isinstance(named, dict) else None
    return pid if type(pid) is int else None


def _same(entry: Mapping[str, Any], supervisor: int | None) -> bool:
    """Tell whether an event is of the command that this process watched; what names none is."""
    told = (entry.get("properties") or {}).get("supervisor")
    return told is None or supervisor is None or told == supervisor
