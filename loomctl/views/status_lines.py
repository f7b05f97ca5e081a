"""The status line of a session: made from its run's state, and kept where the launcher finds it without Python.

`.loom/local/statusline/{session_id}` holds a head, the file that it was made from, how far the tool steps are counted,
and the line in each of its forms with its width, the richest first. The launcher prints the first that fits; it asks
for a new one once the state was written since, and once a minute while the session works.
"""

from __future__ import annotations

import os
import time

from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.text import columns
from loomctl.kit.version import __version__
from loomctl.runs import hook_health, run_progress
from loomctl.runs.model import silence
from loomctl.runs.tools import savings
from loomctl.runs.tools.savings import Tally
from loomctl.views import overview, status_line
from loomctl.views.status_line import Told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

FOLDER = "statusline"
# Bytes of new tool steps that are counted for one line: the next one goes on, and tells the sum once it has all.
AT_ONCE = 4 << 20
_LARGEST = 1 << 14


def of_session(space: Workspace, session_id: str, *, now: float) -> list[str]:
    """Make the line of a session that drives a run, keep it, and give its forms; none where it drives no run.

    now: seconds since 1970, before anything of the run was read. A store that cannot be written keeps nothing.
    """
    binding = space.local.binding(session_id)
    if binding is None or not space.store.has(binding["run_id"]):
        return []
    run_id = binding["run_id"]
    state_path, tally = space.store.home(run_id).state, Tally()
    try:
        run = space.store.read(run_id, to_show=True)
        tally = _counted(space, run, session_id)
        made = status_line.forms(told(space, run, session_id, tally, now=now))
    except LoomError as error:
        words = "of a newer Loom" if error.code == "SCHEMA_TOO_NEW" else "not readable"
        made = status_line.forms(Told(run_id.rpartition("-run-")[0] or run_id, "", words, 0, 0, word="doctor"))
    _keep(space, session_id, run_id, state_path, tally, made, now)
    return made


def told(space: Workspace, run: Run, session_id: str | None, tally: Tally, *, now: float) -> Told:
    """Put together what a line tells of a run in a session."""
    health = hook_health.look(space.local, space.store.local, space.caller.conversation, now=now, session_id=session_id)
    alarm = silence.in_short(tuple(health.silent))
    skew = hook_health.skews(health.beats, run.state)
    if not alarm and skew:
        alarm = "hooks of another version" if skew[0].part == "hooks" else "run of a newer Loom"
    phases = run_progress.progress(run)
    step = overview.open_step(run)
    is_driven = session_id is not None or bool(space.local.live_sessions(run.run_id))
    held = space.store.held(run.run_id, run.state) is not None
    waits = overview.waits(run, is_driven=is_driven, held=held)
    return Told(
        label=overview.label(run.state),
        step=f"{step['id']}@{step['visit']}" if step else str(run.state.get("current_step") or ""),
        status=run.state["status"],
        done=sum(phase["done"] for phase in phases),
        total=sum(phase["steps"] for phase in phases),
        artifacts=len(overview.given(space, run, session_id)["given"]),
        saved=tally.percent,
        word="" if waits.who == "assistant" and waits.word == "next" else waits.word,
        alarm=alarm,
    )


def _counted(space: Workspace, run: Run, session_id: str) -> Tally:
    """Go on counting where the session's last line ended."""
    known = Tally()
    try:
        lines = files.read_bytes(_path(space, session_id), limit=_LARGEST).decode("utf-8", "replace").split("\n")
        word, run_id, *numbers = lines[2].split(" ")
        if word == "saved" and run_id == run.run_id:
            at, before, after = (int(number) for number in numbers)
            known = Tally(at, before, after)
    except (OSError, LoomError, ValueError, IndexError):
        pass
    try:
        return savings.of(run.folder, known, most=AT_ONCE)
    except (OSError, LoomError):
        return Tally()


def _keep(
    space: Workspace, session_id: str, run_id: str, state_path: str, tally: Tally, made: Sequence[str], now: float
) -> None:
    """Write the session's file; its time is `now`, so that a state that was written meanwhile is newer."""
    path = _path(space, session_id)
    known = state_path if "\n" not in state_path else ""
    head = [f"loom {__version__}", known, f"saved {run_id} {tally.at} {tally.before} {tally.after}"]
    lines = [f"{columns.width(line)} {line}" for line in made]
    try:
        files.refuse_links(space.store.folder, path)
        files.make_folder(os.path.dirname(path))
        data = ("\n".join([*head, *lines]) + "\n").encode("utf-8", "backslashreplace")
        files.write_atomically(path, data, durable=False)
        os.utime(path, (now, now))
    except (OSError, LoomError):
        pass


def _path(space: Workspace, session_id: str) -> str:
    return os.path.join(space.store.local, FOLDER, checked_id(session_id, what="session id"))


def room(environ_columns: str) -> int:
    """Give how many columns a line may take. environ_columns: what the environment says of the terminal."""
    said = environ_columns if environ_columns.isascii() and environ_columns.isdigit() else ""
    return min(int(said[:6]), status_line.WIDEST) if said and int(said[:6]) > 0 else status_line.WIDEST


def clock() -> float:
    """Give the time, in seconds since 1970."""
    return time.time()
