"""Command steps: trusted first, run by `loomctl next` alone, awaited for a while, ended by their exit code (D23, D30).

A hook never comes here. What a command step does: its visit is open in the state; its command is started once,
detached; whoever calls `next` waits for it, and the first who sees its end ends the visit.
"""

from __future__ import annotations

import calendar
import os
import time

from loomctl.disk import artifact_paths, clock, command_files, command_runs, digests, files, known
from loomctl.disk.events import Event
from loomctl.disk.local import TERMINAL
from loomctl.engine import context_values, ending, prompts, settling, stages
from loomctl.model import blob_refs, run_life, sessions, shell_text
from loomctl.model.errors import EXIT_USAGE, ON_INTERRUPT, LoomError
from loomctl.model.fences import visible
from loomctl.model.records import NamedTuple
from loomctl.model.secrets import mask, masked_line
from loomctl.model.state import TERMINAL as OVER
from loomctl.model.units import utf8_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.disk.command_runs import Standing
    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace
    from loomctl.engine.settling import Settled
    from loomctl.model.state import State

PATIENCE = 90.0
"""Seconds that `next` waits; a host ends a shell call after 120."""
RUNNING, NOT_TRUSTED, NOT_BEGUN = "running", "not_trusted", "not_begun"
_OUTPUT = "command.output"
_TAIL_LINES = 20
_WINDOW = 1 << 16  # bytes of a log that its last lines are looked for in
_INLINE = 100 * 1024  # bytes of an output that could not be stored as a blob


class Ran(NamedTuple):
    """A command step that ended: its visit's status; reason: why it failed, or empty; log: the file with its output."""

    step_id: str
    stage: str
    status: str
    reason: str
    command: Mapping[str, Any]
    log: str
    tail: str


class Pending(NamedTuple):
    """A command step that the run stands at.

    kind: RUNNING; NOT_TRUSTED: nothing was run; NOT_BEGUN: commands before it took all the time that `next` waits.
    commands: what the run would run here, as `listed` gives it; bytes, seconds, tail: of one that runs.
    """

    kind: str
    step_id: str
    stage: str
    log: str
    commands: Sequence[Mapping[str, str]] = ()
    seconds: float = 0.0
    bytes: int = 0
    tail: str = ""


class Carried(NamedTuple):
    """How far a run came: what ran, in order; pending: the command step that it stands at, if it stands at one."""

    run: Run
    settled: Settled
    ran: Sequence[Ran] = ()
    pending: Pending | None = None
    notes: Sequence[str] = ()


class Result(NamedTuple):
    """What a command's end means for its visit. outcome: one of D32's words; command, warnings: for `status.json`."""

    outcome: str
    reason: str
    command: dict[str, Any]
    context: dict[str, Any]
    warnings: list[dict[str, str]]


class _Work(NamedTuple):
    entry: Mapping[str, Any]
    step: Mapping[str, Any]
    folder: str


# ---- What would be run here, and whether it may be (D23).


def listed(space: Workspace, run: Run) -> list[dict[str, str]]:
    """List what a run's steps run on this machine, in their order: `{step, run, workdir?}`, placeholders expanded.

    It is read off the steps themselves, for they are what is executed, and expanded, for what a state holds goes into
    the command. Raises UNRESOLVED_PLACEHOLDER, PLACEHOLDER_UNQUOTABLE.
    """
    return [_command(space, run, place.step) for place in run_life.places(run.plan) if is_command(place.step)]


def is_command(step: Mapping[str, Any]) -> bool:
    """Tell whether Loom runs a step of a plan itself."""
    return step.get("kind") == "command" and isinstance(step.get("run"), str)


def digest_of(commands: Sequence[Mapping[str, str]]) -> str:
    """Give the hash by which a list of commands is trusted."""
    return digests.of_bytes(files.to_json(list(commands)))


def is_trusted(space: Workspace, run: Run) -> bool:
    """Tell whether this machine trusts exactly what the run would run here."""
    said = known.entry(run.run_id, space.store.folder).get("trusted")
    return isinstance(said, str) and said == digest_of(listed(space, run))


def trust(space: Workspace, run: Run, commands: Sequence[Mapping[str, str]]) -> str:
    """Trust exactly these commands of a run, as they were shown; gives what went wrong, or an empty string."""
    return known.note(run.run_id, space.store.folder, trusted=digest_of(commands))


def untrusted(space: Workspace, run: Run) -> list[dict[str, str]]:
    """Give what the run would run here if this machine does not trust it; else nothing."""
    commands = listed(space, run)
    return commands if commands and not is_trusted(space, run) else []


def trust_the_bundles(space: Workspace, run: Run, sources: Sequence[Mapping[str, str]]) -> str:
    """Trust a run that has just been made of the bundle's own workflows alone; gives what went wrong.

    sources: as the resolver found them, never as a plan on disk tells it, which anybody may have written.
    """
    own = all(source["path"].startswith("{plugin_root}/") for source in sources)
    commands = listed(space, run) if own and sources else []
    return trust(space, run, commands) if commands else ""


def _command(space: Workspace, run: Run, step: Mapping[str, Any]) -> dict[str, str]:
    values = prompts.placeholder_values(space.project, run)
    key, found = str(step["key"]), shell_text.expand(str(step["run"]), values)
    if found.missing:
        raise LoomError(
            "UNRESOLVED_PLACEHOLDER",
            f"{key} needs {{{found.missing[0]:.80}}}, which has no value in this run",
            where=run.plan_path,
            hint="loomctl paths",
        )
    if found.refused:
        raise LoomError(
            "PLACEHOLDER_UNQUOTABLE",
            f"{{{found.refused[0]:.80}}} has signs that mean something to a shell, in a place that Loom cannot quote",
            where=f"{run.plan_path} {key}",
            why='outside of $(…), here-documents and comments it is quoted; so write it into a variable first: x="{…}"',
            hint="loomctl paths",
        )
    command = {"step": key, "run": found.text}
    if step.get("workdir"):
        command["workdir"] = artifact_paths.expanded(str(step["workdir"]), values)
    return command


# ---- Running.


def patience() -> float:
    """Give the seconds that `next` waits: `$LOOM_COMMAND_WAIT`, else PATIENCE."""
    try:
        seconds = float(os.environ.get("LOOM_COMMAND_WAIT", ""))
    except ValueError:
        return PATIENCE
    return seconds if 0 <= seconds < float("inf") else PATIENCE


def carried(space: Workspace, run: Run, settled: Settled, tell: Callable[[Pending], None] | None = None) -> Carried:
    """Run the command steps that a run has come to, one after the other, until it stands at something else.

    Waits for `patience()` seconds in all; what runs then goes on by itself. tell: is given about twice a second what
    runs. Without trust nothing is run. Raises PATH_ESCAPE, NOT_STARTED, WITHIN_COMMAND, and INTERRUPTED where its user
    stopped waiting.
    """
    if space.caller.on_hook_path:  # hooks never execute (D23)
        return Carried(run, settled)
    until = time.monotonic() + patience()
    ran: list[Ran] = []
    notes: list[str] = []
    while (work := _work(run)) is not None:
        _refuse_within(work, run)
        commands = untrusted(space, run)
        if commands:
            return Carried(run, settled, ran, _pending(NOT_TRUSTED, work, commands=commands), notes)
        standing = command_runs.look(work.folder)
        if standing.kind == command_runs.ENDED and standing.result.get("stopped"):
            standing = _cleared(space, run, work)
        if standing.kind == command_runs.NONE and ran and time.monotonic() >= until:
            return Carried(run, settled, ran, _pending(NOT_BEGUN, work), notes)
        try:
            if standing.kind == command_runs.NONE:
                run = _begun(space, run, work)
            standing = _awaited(work, until, tell)
        except KeyboardInterrupt:
            if command_runs.look(work.folder).kind != command_runs.RUNNING:
                raise
            raise _interrupted(run, work) from None
        if standing.kind == command_runs.RUNNING:
            return Carried(run, settled, ran, _running(work, standing), notes)
        if standing.kind == command_runs.NONE:  # somebody undid or stopped it meanwhile
            continue
        run, settled, one = _taken(space, run, settled, work, standing)
        if one is not None:
            ran.append(one)
            notes += _said_of(one, standing)
    return Carried(run, settled, ran, None, notes)


def _work(run: Run) -> _Work | None:
    """Give the command step that the run is at and may go on with; None where it is at something else."""
    entry = run_life.open_visit(run.state)
    place = run_life.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None or not is_command(place.step) or not entry.get("stage"):
        return None
    if not run_life.goes_on(run.state):
        return None
    return _Work(entry, place.step, _folder(run, entry["stage"]))


def _folder(run: Run, stage: str) -> str:
    """Give a stage's folder; no link stands where its command's files are."""
    folder = stages.folder(run.folder, stage)
    for name in (command_files.LOG, command_files.RECORD, command_files.LOCK):
        files.refuse_links(run.folder, os.path.join(folder, name))
    return folder


def _refuse_within(work: _Work, run: Run) -> None:
    if os.environ.get("LOOM_STAGE_DIR") == work.folder:
        raise LoomError(
            "WITHIN_COMMAND",
            f"the command of {work.entry['step_id']} cannot wait for its own end",
            why="loomctl next was called by the command that it would wait for",
            hint=f"loomctl show {run.run_id}",
            exit_code=EXIT_USAGE,
        )


def _cleared(space: Workspace, run: Run, work: _Work) -> Standing:
    """Put aside what is left of a command that was stopped with its run, so that its step can be done again."""

    def change(state: State) -> tuple[State, list[Event]]:
        standing = command_runs.look(work.folder)
        if standing.kind == command_runs.ENDED and standing.result.get("stopped"):
            stages.set_aside(run.folder, work.entry["stage"])
        return state, []

    space.store.update(run.run_id, change)
    return command_runs.look(work.folder)


def _begun(space: Workspace, run: Run, work: _Work) -> Run:
    """Start the command, unless another process does; gives the run with the event of it."""
    command = _command(space, run, work.step)
    cwd = _workdir(space, run, command.get("workdir"))
    timeout = work.step.get("timeout")
    stage, key = str(work.entry["stage"]), str(work.entry["step_id"])
    seconds = float(timeout) if isinstance(timeout, (int, float)) else None
    order = command_runs.Order(work.folder, run.run_id, key, stage, command["run"], cwd, seconds)
    if not command_runs.start(order, environment(run.run_id, key, work.folder)):
        return run
    event = Event("command.started", {"stage": stage, "timeout": timeout}, space.caller.session_id, key)
    run = run._replace(state=space.store.update(run.run_id, lambda state: (state, [event])))
    if run.state["status"] in OVER:  # somebody cancelled it in this moment
        command_runs.stop(work.folder)
    return run


def _workdir(space: Workspace, run: Run, declared: str | None) -> str:
    """Give the absolute folder a command works in: the project's root, or one below it (D10). Raises PATH_ESCAPE."""
    root = space.project.root
    path = os.path.realpath(os.path.join(root, declared or ""))
    allowed = (root, run.folder, *space.settings.extra_roots)
    if "\0" in path or not any(artifact_paths.is_inside(path, artifact_paths.real(one)) for one in allowed):
        raise LoomError(
            "PATH_ESCAPE",
            "the step's workdir leads out of the project",
            where=masked_line(declared or "", 300),
            why="links are followed first; a folder elsewhere is allowed under extra_roots in your own config.yaml",
            hint="loomctl paths",
        )
    return path if declared else root


def environment(run_id: str, step_id: str, stage_dir: str) -> dict[str, str]:
    """Give a command's environment: the caller's, without what the launcher of Loom set for Loom, and who it is for."""
    found = dict(os.environ)
    python = found.pop("LOOM_ENV_PYTHON", "")
    found.pop("LOOM_PLUGIN_ROOT", None)
    if os.path.isabs(python):
        own = os.path.dirname(python)
        if found.get("VIRTUAL_ENV") == os.path.dirname(own):
            del found["VIRTUAL_ENV"]
        folders = found.get("PATH", "").split(os.pathsep)
        found["PATH"] = os.pathsep.join(folder for folder in folders if folder.rstrip(os.sep) != own)
    return {**found, "LOOM_RUN_ID": run_id, "LOOM_STEP_ID": step_id, "LOOM_STAGE_DIR": stage_dir}


def _awaited(work: _Work, until: float, tell: Callable[[Pending], None] | None) -> Standing:
    if tell is None:
        return command_runs.wait(work.folder, until)
    return command_runs.wait(work.folder, until, lambda standing: tell(_running(work, standing)))


def _interrupted(run: Run, work: _Work) -> LoomError:
    return LoomError(
        "INTERRUPTED",
        f"the command of {work.entry['step_id']} goes on; only the waiting for it was interrupted",
        where=os.path.join(work.folder, command_files.LOG),
        why="loomctl next waits for it again; loomctl cancel stops it with its run",
        hint=f"loomctl next {run.run_id}",
        exit_code=ON_INTERRUPT,
    )


def _running(work: _Work, standing: Standing) -> Pending:
    pending = _pending(RUNNING, work, tail=tail_of(work.folder, 2000))
    return pending._replace(seconds=_seconds(standing.record), bytes=standing.bytes)


def _seconds(record: Mapping[str, Any]) -> float:
    """Give how long a command has run, by the wall clock; 0 where its start is not known."""
    try:
        began = calendar.timegm(time.strptime(str(record.get("started_at")), "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return 0.0
    return max(0.0, time.time() - began)


def _pending(kind: str, work: _Work, *, commands: Sequence[Mapping[str, str]] = (), tail: str = "") -> Pending:
    entry = work.entry
    log = os.path.join(work.folder, command_files.LOG)
    return Pending(kind, entry["step_id"], entry["stage"], log, commands=commands, tail=tail)


# ---- Its end.


def _taken(
    space: Workspace, run: Run, settled: Settled, work: _Work, standing: Standing
) -> tuple[Run, Settled, Ran | None]:
    """End the visit by how its command ended, unless somebody else did, and go on to where the run rests then."""
    if standing.kind == command_runs.LOST:
        command_runs.end_orphan(standing)
    result = _result(space, work, standing)
    given = ending.Given(
        None,
        "command",
        result.outcome,
        result.reason,
        command=result.command,
        context=result.context,
        warnings=result.warnings,
    )
    known = ending.gather(space, run, work.entry, given)
    held: list[tuple[Settled, Mapping[str, Any] | None]] = []

    def change(state: State) -> tuple[State, list[Event]]:
        entry = run_life.open_visit(state)
        if entry is None or entry["stage"] != work.entry["stage"] or state["status"] in OVER:
            held[:] = [(_as_it_stands(state), None)]
            return state, []
        happened: list[Event] = []
        ended = finish(space, run, state, happened, given, known)
        now = settling.rest_here(space, run, ended.state)
        held[:] = [(now, ended.entry)]
        return sessions.active(now.state, space.caller.session_id, at=clock.now()), happened + now.happened

    run = run._replace(state=space.store.update(run.run_id, change))
    now, ended = held[0]
    settling.begun(space, run, now)
    now = now._replace(
        entered=[*settled.entered, *now.entered], engine_primed=settled.engine_primed or now.engine_primed
    )
    if ended is None:
        return run, now, None
    log = os.path.join(work.folder, command_files.LOG)
    most = 1000 if result.outcome == "succeeded" else 4000
    tail = tail_of(work.folder, most)
    return run, now, Ran(ended["step_id"], ended["stage"], ended["status"], result.reason, result.command, log, tail)


def _as_it_stands(state: State) -> Settled:
    entry = run_life.open_visit(state)
    if entry is not None and run_life.goes_on(state):
        return settling.Settled(state, [], [], False, run_life.Move("step", step=entry["step_id"]))
    return settling.rest(state)


def finish(
    space: Workspace, run: Run, state: State, happened: list[Event], given: ending.Given, known: ending.Gathered
) -> ending.Ended:
    """End the open visit of a command step: its files, its outcome, what it leaves in the context."""
    entry = run_life.open_visit(state)
    assert entry is not None  # the caller looked
    command = given.command or {}
    told = {key: command[key] for key in ("exit_code", "signal", "duration_ms", "timed_out", "bytes")}
    happened.append(
        Event("command.ended", {"stage": entry["stage"], **told}, space.caller.session_id, entry["step_id"])
    )
    return ending.end(space, run, state, happened, given, known)


def _result(space: Workspace, work: _Work, standing: Standing) -> Result:
    """Say what a command's end means, and put its output away: outside of the state's lock, for it may be large."""
    told = standing.result
    exit_code = told.get("exit_code") if type(told.get("exit_code")) is int else None
    reason = _reason(work, standing, exit_code)
    data = command_runs.read_log(work.folder)
    output, warnings = _stored(space, data)
    for name, message in _losses(told):
        warnings.append({"code": name, "where": _OUTPUT, "message": message})
    command = {
        "script": work.step["run"],
        "exit_code": exit_code,
        "signal": told.get("signal"),
        "duration_ms": told.get("duration_ms"),
        "timed_out": bool(told.get("timed_out")),
        "output": output,
        "bytes": told.get("bytes", len(data)),
    }
    context = {_OUTPUT: output, "command.exit_code": exit_code}
    return Result("failed" if reason else "succeeded", reason, command, context, warnings)


def _reason(work: _Work, standing: Standing, exit_code: int | None) -> str:
    """Say why a command step failed; an empty string if it did not."""
    told = standing.result
    if standing.kind == command_runs.LOST:
        return "lost: what watched the command was ended (a kill, a restart), and how the command ended is not known"
    if told.get("error"):
        return masked_line(str(told["error"]), 300)
    if told.get("timed_out"):
        return f"timed out after {float(work.step.get('timeout') or 0):g} s"
    if told.get("stopped"):
        return "stopped"
    if exit_code is None:
        return f"ended by {masked_line(str(told.get('signal') or 'a signal'), 40)}"
    return f"exit code {exit_code}" if exit_code else ""


def _losses(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if told.get("log_error"):
        yield "OUTPUT_LOST", f"the output could not be stored any more: {masked_line(str(told['log_error']), 200)}"
    elif isinstance(told.get("bytes"), int) and told["bytes"] > command_files.MOST_HEAD + command_files.MOST_END:
        most = (command_files.MOST_HEAD + command_files.MOST_END) >> 20
        yield "OUTPUT_CUT", f"of {told['bytes']:,} bytes of output {most} MiB are stored: its beginning and its end"


def _stored(space: Workspace, data: bytes) -> tuple[Any, list[dict[str, str]]]:
    """Put an output into a blob, always (D38): its text as JSON. Where that fails its end stays inline."""
    values, warnings = context_values.stored(space, {_OUTPUT: data.decode("utf-8", "replace")})
    output = values[_OUTPUT]
    if blob_refs.is_ref(output):
        return output, warnings
    end = data[-_INLINE:].decode("utf-8", "replace")
    why = "; ".join(one["message"] for one in warnings)
    message = f"{len(data):,} bytes are in command.log, the end of them in the state: {why}"
    return end, [{"code": "NOT_OFFLOADED", "where": _OUTPUT, "message": message}]


def _said_of(one: Ran, standing: Standing) -> list[str]:
    said = [message for _, message in _losses(standing.result)]
    return [f"{one.step_id}: {message}" for message in said]


def tail_of(folder: str, most: int) -> str:
    """Give the last lines of a command's log for showing: masked, controls visible, `most` UTF-8 bytes at most."""
    data, whole = command_runs.read_end(folder, _WINDOW)
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


# ---- What a person decides about a command that runs.


def stop_open(run: Run) -> str:
    """Stop the command of the run's open visit, if one runs; gives a line that says so, or an empty string."""
    entry = run_life.open_visit(run.state)
    place = run_life.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None or not is_command(place.step) or not entry.get("stage"):
        return ""
    folder = _folder(run, entry["stage"])
    if command_runs.look(folder).kind != command_runs.RUNNING:
        return ""
    if command_runs.stop(folder).kind == command_runs.RUNNING:
        return f"The command of {entry['step_id']} could not be stopped; its processes are named in command.json."
    return f"The command of {entry['step_id']} was stopped."


def take_over(space: Workspace, run: Run, outcome: str | None) -> bool:
    """Let a person end a command step by hand; tells whether the open step is one. Raises COMMAND_STEP otherwise.

    It takes an outcome, and a terminal: what an assistant says is no result of a command. A running one is stopped.
    """
    entry = run_life.open_visit(run.state)
    place = run_life.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None or not is_command(place.step):
        return False
    if space.caller.host != TERMINAL or outcome is None:
        raise LoomError(
            "COMMAND_STEP",
            f"{entry['step_id']} is a command step: its exit code is its result",
            why="loomctl next runs it, or waits for it; a person may overrule it in a terminal, with --outcome",
            hint=f"loomctl next {run.run_id}",
            exit_code=EXIT_USAGE,
        )
    stop_open(run)
    return True
