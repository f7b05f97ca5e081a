"""What the model would get at one of Claude Code's session events, made by the hook's own code and never written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.hosts import asking
from loomctl.hosts.protocol import sessions
from loomctl.hosts.protocol.sessions import Given
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.priming import prime_run
from loomctl.runs import leases
from loomctl.runs.machine import launcher_files
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import visits
from loomctl.runs.project import Caller, Workspace
from loomctl.runs.store.store import LOCAL
from loomctl.runs.store.unwritten import UnwrittenLocal, UnwrittenStore
from loomctl.runs.store.write_rules import Driver, Fence
from loomctl.runs.tools import recording
from loomctl.workflows import triggers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.store.store import Run

# The host's words for why a session starts, each with what it is.
SOURCES = ("startup", "resume", "clear", "compact", "fork")
# Those that give a conversation a new session id.
_NEW = ("startup", "clear", "fork")
# Those by which a new session inherits its run (D2).
_INHERITS = ("clear", "fork")
SESSION = "simulation"


def of_run(space: Workspace, run_id: str, event: str, session_id: str | None = None) -> Given | None:
    """Give what the model would get at an event now; None where a hook would be silent.

    event: one of SOURCES, or a trigger's word. session_id: of the conversation that it would come in; by default the
    latest that is bound to the run, and a new one where the host would make one. What tools gave counts as if it were
    digested. Raises STEP_CLOSING where a start would end a step before it primes.
    """
    latest = _latest(space, run_id)
    if session_id is None:
        session_id = SESSION if latest is None or event in _NEW else str(latest["session_id"])
    binding = space.local.binding(session_id)
    path = (binding or {}).get("transcript_path")
    # A compaction and a clear happen within the process that drives; the others begin one.
    pid = _pid(latest) if event in ("compact", "clear") else None
    simulated = _workspace(space, session_id, path if isinstance(path, str) else None, pid)
    assert isinstance(simulated.store, UnwrittenStore)
    simulated.store.put_steps(recording.foreseen(simulated))
    if binding is None and latest is not None and event in _INHERITS:
        bound = {"host": asking.CLAUDE.name, "pid": pid, "inherited_from": latest["session_id"]}
        simulated.local.bind(session_id, run_id, **bound)
    if event not in SOURCES:
        return _at_a_trigger(simulated, space.store.read(run_id), event)
    _refuse_closing(simulated, session_id, event)
    if event == "compact":  # as PreCompact notes it; after one that a person asked for a closing step would be ended
        simulated.local.note_primed(session_id, {**simulated.local.primed(session_id), "compacting": "auto"})
    told = {"session_id": session_id, "source": event, "transcript_path": path or "", "cwd": space.project.root}
    return sessions.start(simulated, told)


def unwritten(space: Workspace) -> Workspace:
    """Give a workspace of the same caller through which nothing is written."""
    store = UnwrittenStore(space.project.store, space.project.faber_roots)
    return space._replace(store=store, local=UnwrittenLocal(os.path.join(space.project.store, LOCAL)))


def of_workflow(space: Workspace, run: Run, event: str) -> Given:
    """Give what the model would get in a run that is on no disk, and that one session has driven so far."""
    simulated = _workspace(space, SESSION, None)
    store, local = simulated.store, simulated.local
    assert isinstance(store, UnwrittenStore)
    store.put(run)
    if event == "startup":  # a new conversation drives no run
        return sessions.prime(simulated, run.run_id, triggers.session_start(event), [], may_write=False, begun="")
    environment = {"hostname": SESSION, "project_root": space.project.root}
    local.bind(SESSION, run.run_id, host=asking.CLAUDE.name, pid=None)
    store.update(run.run_id, lambda state: leases.enter(simulated, state, "bound", environment))
    if event not in SOURCES:
        return _at_a_trigger(simulated, store.read(run.run_id), event)
    if event in _INHERITS:
        simulated = simulated._replace(caller=simulated.caller._replace(session_id=f"{SESSION}-{event}"))
        local.bind(f"{SESSION}-{event}", run.run_id, host=asking.CLAUDE.name, pid=None, inherited_from=SESSION)
    return sessions.enter_and_prime(simulated, run.run_id, event, environment, "auto", None, [])


def _at_a_trigger(space: Workspace, run: Run, word: str) -> Given:
    """Give what `next` would put before the step, or `prime-context` gives, in a command's budget (D19)."""
    event = triggers.from_word(word)
    assert event is not None  # its caller checked the word
    made = prime_run.prime(space, run, event, prime_run.command_budget(space), may_write=True)
    return Given(made.text, prime_run.one_line_for_people(made), made)


def _workspace(space: Workspace, session_id: str, transcript: str | None, pid: int | None = None) -> Workspace:
    caller = Caller(
        session_id=session_id,
        host=asking.CLAUDE.name,
        pid=pid,
        cwd=space.project.root,
        conversation=asking.conversation(asking.CLAUDE, transcript),
        on_hook_path=True,
        environment_python=os.environ.get("LOOM_ENV_PYTHON") or None,
        parts=launcher_files.MOST_PARTS,
        memory=asking.MEMORY_LINES,
        rereads=asking.rereads(asking.CLAUDE),
        started_in=os.environ.get(asking.CLAUDE.project, ""),
    )
    local = UnwrittenLocal(os.path.join(space.project.store, LOCAL))

    def heir_of() -> object:
        return (local.binding(session_id) or {}).get("inherited_from")

    fence = Fence(local.folder, Driver(session_id, caller.host, pid, heir_of))
    store = UnwrittenStore(space.project.store, space.project.faber_roots, fence)
    return Workspace(space.project, store, local, space.settings, caller, space.upcoming)


def _latest(space: Workspace, run_id: str) -> dict[str, Any] | None:
    bound = [one for one in space.local.bindings() if one["run_id"] == run_id and one.get("host") != TERMINAL]
    return bound[-1] if bound else None


def _pid(binding: Mapping[str, Any] | None) -> int | None:
    process = (binding or {}).get("process")
    pid = process.get("pid") if isinstance(process, dict) else None
    return pid if type(pid) is int else None


def _refuse_closing(space: Workspace, session_id: str, source: str) -> None:
    binding = space.local.binding(session_id)
    if binding is None or source == "compact" or not space.store.has(binding["run_id"]):
        return
    entry = visits.open_visit(space.store.read_state(binding["run_id"]))
    if entry is not None and entry["status"] == "closing":
        raise LoomError(
            "STEP_CLOSING",
            f"the step {entry['step_id']} still waits for its result, and a new session would end it",
            why="Loom would read the result from the transcript",
            hint=f"loomctl next {space.store.handle(binding['run_id'])}",
            exit_code=EXIT_USAGE,
        )
