"""That a command began and how it ended: each told once in the run's log, whoever was killed in between (D41).

What is told already stands in the log itself. So whoever holds the run's lock can tell what is missing, and who was
killed behind a command's start or end, or never came to tell it, is stood in for by the next who looks.
"""

from __future__ import annotations

import codecs
import os

from loomctl.flow import lines
from loomctl.flow.commands.command_trust import open_work
from loomctl.kit import files
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.text.fences import utf8_bytes, visible
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.runs import command_runs, leases
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import visits
from loomctl.runs.store import event_log
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from loomctl.flow.commands.command_trust import Work
    from loomctl.runs.command_runs import Standing
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

STARTED, ENDED = "command.started", "command.ended"
_OPENED = "stage.started"
KEY = "command.output"
_INLINE = 100 * 1024  # bytes of an output that could not be stored as a blob
_TAIL_LINES = 20
_WINDOW = 1 << 16  # bytes of a log that its last lines are looked for in


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
    told = (entry.get("properties") or {}).get("supervisor")
    return told is None or supervisor is None or told == supervisor


def stored(space: Workspace, folder: str) -> tuple[Any, list[dict[str, str]]]:
    """Put a stage's output into a blob, always (D38): its text as JSON. Where that fails its end stays inline.

    Gives the value, and what is to be warned of. However large the output is, it is never held as a whole.
    """
    try:
        return Blobs(space.store.folder).put_parts(_as_json(folder)), []
    except (OSError, LoomError) as error:
        why = error.what if isinstance(error, LoomError) else str(error)
    end = _end(folder, _INLINE)[0].decode("utf-8", "replace")
    message = f"{command_runs.size_of(folder):,} bytes are in command.log, the end of them in the state: {why}"
    return end, [{"code": "NOT_OFFLOADED", "where": KEY, "message": message}]


def _as_json(folder: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield b'"'
    for part in command_runs.log_parts(folder):
        yield files.to_json_line(decoder.decode(part))[1:-2]
    yield files.to_json_line(decoder.decode(b"", final=True))[1:-2] + b'"'


def losses(folder: str, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say what of an output is not in its log, as (code, words). result: as `command_runs.Standing` has it."""
    if result.get("log_error"):
        why = masked_line(str(result["log_error"]), 200)
        return [("OUTPUT_LOST", f"the output could not be stored any more: {why}")]
    if isinstance(result.get("stored"), int) and command_runs.size_of(folder) < result["stored"]:
        return [("OUTPUT_LOST", f"of {result['stored']:,} bytes that were stored in command.log not all are there")]
    most = command_runs.MOST_HEAD + command_runs.MOST_END
    if isinstance(result.get("bytes"), int) and result["bytes"] > most:
        told = f"of {result['bytes']:,} bytes of output {most >> 20} MiB are stored: its beginning and its end"
        return [("OUTPUT_CUT", told)]
    return []


def _end(folder: str, most: int) -> tuple[bytes, bool]:
    path = os.path.join(folder, command_runs.LOG)
    try:
        return (b"", True) if os.path.islink(path) else files.end(path, most)
    except OSError:
        return b"", True


def tail_of(folder: str, most: int) -> str:
    """Give the last lines of a command's log for showing: masked, controls visible, `most` UTF-8 bytes at most."""
    data, whole = _end(folder, _WINDOW)
    text = data.decode("utf-8", "replace").rstrip("\n")
    if not whole and "\n" in text:
        text = text.partition("\n")[2]  # the first line is a part of one
    # A line that a program wrote over and over, such as a progress bar, is shown as it was last.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in mask(text)[0].split("\n")]
    shown: list[str] = []
    left = most
    for line in reversed([visible(line) for line in lines[-_TAIL_LINES:]]):
        size = utf8_bytes(line) + 1
        if size > left:
            if not shown:
                shown.append("…" + line.encode("utf-8")[-max(0, left - 4) :].decode("utf-8", "ignore"))
            break
        shown.append(line)
        left -= size
    return "\n".join(reversed(shown))


def stop_open(space: Workspace, run: Run) -> str:
    """Stop the command of the run's open visit, if one runs; gives a line that says so, or an empty string.

    How it ended is told, also of one that ended by itself and was not looked at since.
    """
    work = open_work(run)
    before = command_runs.look(work.folder) if work is not None else None
    if work is None or before is None or before.kind == command_runs.NONE:
        return ""
    standing = command_runs.stop(work.folder)
    if standing.kind == command_runs.RUNNING:
        return f"The command of {work.step_id} could not be stopped; its processes are named in command.json."
    tell_end(space, run, work, standing)
    return f"The command of {work.step_id} was stopped." if before.kind == command_runs.RUNNING else ""


def runs_now(space: Workspace, run: Run) -> bool:
    """Tell whether a command of a run's open visits, or of its branches', runs on this machine; or one as evidence."""
    from loomctl.flow.commands import evidence_commands

    works = [open_work(line) for line in lines.every(run)]
    return evidence_commands.runs_now(space, run) or any(
        work is not None and command_runs.look(work.folder).kind == command_runs.RUNNING for work in works
    )


def stop_all(space: Workspace, run: Run) -> list[str]:
    """Stop the commands of a run and of its branches, and those that are evidence.

    Gives a line for each that ran, or could not be stopped.
    """
    from loomctl.flow.commands import evidence_commands

    steps = [said for line in lines.every(run) if (said := stop_open(space, line))]
    return [*steps, *evidence_commands.stop(space, run)]


def stop_evidence(space: Workspace, line: Run) -> list[str]:
    """Stop what runs as evidence of a line's open visit; gives a line for each that ran, or could not be stopped."""
    from loomctl.flow.commands import evidence_commands

    entry = visits.open_visit(line.state)
    return evidence_commands.stop(space, line, [entry["stage"]]) if entry is not None else []


def stop_left(space: Workspace, line: Run) -> None:
    """Stop the command of a branch that its parallel step went on without; its end is told in the run's log."""
    stop_evidence(space, line)
    work = open_work(line)
    if work is None or command_runs.look(work.folder).kind == command_runs.NONE:
        return
    standing = command_runs.stop(work.folder)
    space.store.tell(line.run_id, lambda _: end(space, line, work, standing))


def take_over(space: Workspace, run: Run, outcome: str | None) -> bool:
    """Let a person end the open command step by hand; False where none has begun. Raises COMMAND_STEP.

    It takes an outcome, and a terminal: what an assistant says is no result of a command. A running one is stopped.
    """
    work = open_work(run)
    if work is None:
        return False
    if space.caller.host != TERMINAL or outcome is None:
        raise LoomError(
            "COMMAND_STEP",
            f"{work.step_id} is a command step: its exit code is its result",
            why="loomctl next runs it, or waits for it; a person may overrule it in a terminal, with --outcome",
            hint=f"loomctl next {run.run_id}",
            exit_code=EXIT_USAGE,
        )
    stop_open(leases.deciding(space), run)
    return True
