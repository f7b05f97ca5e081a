"""A command step: trusted by the hash of what it runs here (D23), and told in the run's log, once each (D41).

What the log told already stands there. So whoever holds the run's lock can tell what is missing, and who was
killed behind a command's start or end, or never came to tell it, is stood in for by the next who looks.
"""

from __future__ import annotations

import codecs
import os

from loomctl.expressions import placeholders
from loomctl.flow import lines
from loomctl.kit import clock, digests, files
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.processes import HOOK_PATIENCE, PATIENCE
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import utf8_bytes, visible
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.runs import artifact_paths, command_runs, leases, stages
from loomctl.runs.machine import allowances, run_notes
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import frozen_plan, standing, visits
from loomctl.runs.store import event_log, write_rules
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.runs.command_runs import Standing
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_WAIT = 90.0  # seconds


def is_command(step: Mapping[str, Any]) -> bool:
    """Tell whether Loom runs a step of a plan itself."""
    return step.get("kind") == "command" and isinstance(step.get("run"), str)


def listed(space: Workspace, run: Run) -> list[dict[str, str]]:
    """List what a run's steps run on this machine, in their order: `{step, run, workdir?}`, placeholders expanded.

    It is read off the steps themselves, for they are what is executed, and expanded, for what a state holds goes into
    the command. Only the task of a list stays `{task}`, a word of its own in quotes: what is trusted holds for each of
    them (D65). Raises UNRESOLVED_PLACEHOLDER, PLACEHOLDER_UNQUOTABLE.
    """
    return [
        expanded(space, run, one, task=f"{{{placeholders.TASK}}}")
        for place in frozen_plan.with_branches(run.plan)
        for one in _commands_of(place.step)
    ]


def _commands_of(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give what a step of a plan runs, each as a step: its own command, then those that its evidence asks for."""
    listed = step.get("evidence")
    pieces = [one for one in (listed if isinstance(listed, list) else ()) if one["kind"] == "command"]
    return [*([step] if is_command(step) else []), *(as_step(step, one) for one in pieces)]


def as_step(step: Mapping[str, Any], piece: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a piece of evidence as the step that runs it; the project's tests run at its root."""
    return {"key": step["key"], "run": piece["run"], "workdir": None if "tests" in piece else step.get("workdir")}


def expanded(space: Workspace, run: Run, step: Mapping[str, Any], *, task: str = "") -> dict[str, str]:
    """Give one step's command as it is run here: `{step, run, workdir?}`. Raises as `listed`.

    task: what stands for the task of a step that goes through a list; empty: that of the open visit.
    """
    values = artifact_paths.placeholder_values(space.project, run)
    if task:
        values[placeholders.TASK] = task
    key, found = str(step["key"]), placeholders.expand_in_shell(str(step["run"]), values)
    if found.missing:
        what = f"{key} needs {{{found.missing[0]:.80}}}, which has no value in this run"
        raise LoomError("UNRESOLVED_PLACEHOLDER", what, where=run.plan_path, hint="loomctl paths")
    if found.refused:
        what = f"Loom cannot quote {{{found.refused[0]:.80}}} in this place, and its value has shell signs"
        why = 'Loom cannot quote inside $(…), here-documents and comments; set a variable first: x="{…}"'
        raise LoomError("PLACEHOLDER_UNQUOTABLE", what, where=f"{run.plan_path} {key}", why=why, hint="loomctl paths")
    command = {"step": key, "run": found.text}
    if step.get("workdir"):
        command["workdir"] = artifact_paths.expanded(str(step["workdir"]), values)
    return command


def digest_of(commands: Sequence[Mapping[str, str]], allowed: Sequence[Mapping[str, str]]) -> str:
    """Give the hash by which a list of commands is trusted, with what the run lets an assistant use."""
    return digests.of_bytes(files.to_json([*commands, *allowed]))


def is_trusted(space: Workspace, run: Run) -> bool:
    """Tell whether this machine trusts exactly what the run would run here, and lets an assistant use."""
    said = run_notes.known(run.run_id, space.store.folder).get("trusted")
    return isinstance(said, str) and said == digest_of(listed(space, run), frozen_plan.allowed(run.plan))


def trust(space: Workspace, run: Run, commands: Sequence[Mapping[str, str]]) -> str:
    """Trust exactly these commands of a run and its allowances, as shown; gives what went wrong, or an empty string."""
    digest = digest_of(commands, frozen_plan.allowed(run.plan))
    return run_notes.note_known(run.run_id, space.store.folder, trusted=digest)


def untrusted(space: Workspace, run: Run) -> list[dict[str, str]]:
    """Give what the run would run here if this machine does not trust it; else nothing."""
    commands = listed(space, run)
    return commands if commands and not is_trusted(space, run) else []


def untrusted_allowances(space: Workspace, run: Run) -> list[dict[str, str]]:
    """Give what the run lets an assistant use, `{step, allow}`, if this machine does not trust it; else nothing.

    Raises as `listed`.
    """
    allowed = frozen_plan.allowed(run.plan)
    return allowed if allowed and not is_trusted(space, run) else []


def trusted_rules(space: Workspace, run: Run) -> tuple[str, ...]:
    """Give what an assistant may use without being asked: what the plan says, as far as it is trusted here.

    It is that of all steps, for an assistant's process goes from one to the next. A run whose commands cannot be filled
    in here is not trusted.
    """
    rules = tuple(dict.fromkeys(one["allow"] for one in frozen_plan.allowed(run.plan)))
    try:
        return rules if rules and is_trusted(space, run) else ()
    except LoomError:
        return ()


def wait(space: Workspace, run: Run, commands: Sequence[Mapping[str, str]]) -> Run:
    """Let a run that stands at a command step wait for its user's trust, and say so in its state; gives the run.

    A branch waits for nobody: who works on it is told, and the others go on.
    """
    if visits.is_branch(run.state):
        return run

    def change(state: State) -> tuple[State, list[Event]]:
        entry = visits.open_visit(state)
        if entry is None or standing.waits_for_trust(state) or not standing.goes_on(standing.answered(state)):
            return state, []
        asked = standing.await_trust(state, entry, commands, at=clock.now())
        properties = {"stage": entry["stage"], "reason": "trust"}
        return asked, [Event("run.awaiting_feedback", properties, space.caller.session_id, entry["step_id"])]

    patience = HOOK_PATIENCE if space.caller.on_hook_path else PATIENCE
    return run._replace(state=space.store.update(run.run_id, change, patience=patience))


def answer(space: Workspace, run: Run) -> bool:
    """Put a run under way that waited for trust, once it is given; tells whether it did."""
    waited: list[bool] = []

    def change(state: State) -> tuple[State, list[Event]]:
        waited[:] = [standing.waits_for_trust(state)]
        if not waited[0]:
            return state, []
        given = Event("run.feedback_given", {"stage": state["feedback"].get("stage")}, space.caller.session_id)
        return standing.answered(state), [given]

    if standing.waits_for_trust(run.state):
        leases.deciding(space).store.update(run.run_id, change)
    return waited == [True]


def trust_what_is_allowed(space: Workspace, run: Run, sources: Sequence[Mapping[str, str]]) -> str:
    """Trust a new run whose commands are the bundle's own or allowed in this project; gives what went wrong.

    sources: as the resolver found them, never as a plan on disk tells it, which anybody may have written. The test
    command is the project's word even in the bundle's workflows. What an assistant may use is the bundle's word alone.
    """
    commands, lets = listed(space, run), frozen_plan.allowed(run.plan)
    tests = test_command(space, run)
    allowed = bool(tests) and allowances.is_allowed(space.store.folder, tests)
    others = [one for one in commands if one.get("workdir") or one["run"] != tests]
    own = bool(sources) and all(source["path"].startswith("{plugin_root}/") for source in sources)
    fits = (own or not (others or lets)) and (allowed or len(others) == len(commands))
    return trust(space, run, commands) if (commands or lets) and fits else ""


def test_command(space: Workspace, run: Run) -> str:
    """Give the project's test command as a run executes it; empty where it has none."""
    said = run.plan.get("test_command")
    return expanded(space, run, {"key": "tests", "run": said})["run"] if isinstance(said, str) and said else ""


def workdir(space: Workspace, run: Run, declared: str | None) -> str:
    """Give the absolute folder a command works in: the project's root, or one below it (D10). Raises PATH_ESCAPE."""
    root = space.project.root
    path = os.path.realpath(os.path.join(root, declared or ""))
    allowed = (root, run.folder, *space.settings.extra_roots)
    if "\0" in path or not any(artifact_paths.is_inside(path, artifact_paths.real(one)) for one in allowed):
        what = "the step's workdir is outside of the project"
        why = "to allow a folder elsewhere, add it to extra_roots in your own config.yaml"
        raise LoomError("PATH_ESCAPE", what, where=masked_line(declared or "", 300), why=why, hint="loomctl paths")
    return path if declared else root


def environment(run_id: str, step_id: str, stage_dir: str, around: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give a command's environment: the caller's, without what the launcher of Loom set for Loom, and who it is for.

    around: in place of the caller's.
    """
    found = dict(os.environ if around is None else around)
    python = found.pop("LOOM_ENV_PYTHON", "")
    found.pop("LOOM_PLUGIN_ROOT", None)
    if os.path.isabs(python):
        own = os.path.dirname(python)
        if found.get("VIRTUAL_ENV") == os.path.dirname(own):
            del found["VIRTUAL_ENV"]
        folders = found.get("PATH", "").split(os.pathsep)
        found["PATH"] = os.pathsep.join(folder for folder in folders if folder.rstrip(os.sep) != own)
    return {**found, "LOOM_RUN_ID": run_id, "LOOM_STEP_ID": step_id, "LOOM_STAGE_DIR": stage_dir}


def patience() -> float:
    """Give the seconds that `next` waits: `$LOOM_COMMAND_WAIT`, else 90."""
    try:
        seconds = float(os.environ.get("LOOM_COMMAND_WAIT", ""))
    except ValueError:
        return _WAIT
    return seconds if 0 <= seconds < float("inf") else _WAIT


class Work(NamedTuple):
    """An open visit of a command step. entry: as the state has it; folder: its stage's, absolute."""

    entry: Mapping[str, Any]
    step: Mapping[str, Any]
    folder: str

    @property
    def stage(self) -> str:
        """The stage's name."""
        return str(self.entry["stage"])

    @property
    def step_id(self) -> str:
        """The step's key."""
        return str(self.entry["step_id"])

    @property
    def log(self) -> str:
        """The file with all that its command printed."""
        return os.path.join(self.folder, command_runs.LOG)


def open_work(run: Run) -> Work | None:
    """Give the command step whose visit is open; None where none is."""
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None or not is_command(place.step) or not entry.get("stage"):
        return None
    return Work(entry, place.step, stages.folder(run.folder, entry["stage"]))


# ---- Told in the log (D41).


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
    message = f"all {command_runs.size_of(folder):,} bytes are in command.log; the state has only the end: {why}"
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
        return [("OUTPUT_LOST", f"Loom could not store the whole output: {why}")]
    if isinstance(result.get("stored"), int) and command_runs.size_of(folder) < result["stored"]:
        return [("OUTPUT_LOST", f"command.log has lost a part of its {result['stored']:,} bytes")]
    most = command_runs.MOST_HEAD + command_runs.MOST_END
    if isinstance(result.get("bytes"), int) and result["bytes"] > most:
        told = f"Loom stored the beginning and the end, {most >> 20} MiB, of {result['bytes']:,} bytes of output"
        return [("OUTPUT_CUT", told)]
    return []


def _end(folder: str, most: int) -> tuple[bytes, bool]:
    path = os.path.join(folder, command_runs.LOG)
    try:
        return (b"", True) if os.path.islink(path) else files.end(path, most)
    except OSError:
        return b"", True


def tail_of(folder: str, most: int, count: int = _TAIL_LINES) -> str:
    """Give the last lines of a command's log for showing: masked, controls visible, `most` UTF-8 bytes at most.

    count: lines of the log that are looked at.
    """
    data, whole = _end(folder, _WINDOW)
    text = data.decode("utf-8", "replace").rstrip("\n")
    if not whole and "\n" in text:
        text = text.partition("\n")[2]  # the first line is a part of one
    # A line that a program wrote over and over, such as a progress bar, is shown as it was last.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in mask(text)[0].split("\n")]
    shown: list[str] = []
    left = most
    for line in reversed([visible(line) for line in lines[-count:]]):
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
        return f"Loom could not stop the command of {work.step_id}; command.json names its processes."
    tell_end(space, run, work, standing)
    return f"Stopped the command of {work.step_id}." if before.kind == command_runs.RUNNING else ""


def take_over(space: Workspace, run: Run, outcome: str | None) -> bool:
    """Let a person end the open command step by hand; False where none has begun. Raises COMMAND_STEP.

    It takes an outcome, and a terminal: what an assistant says, or whatever a driver started, is no result of a
    command. A running one is stopped.
    """
    work = open_work(run)
    if work is None:
        return False
    if space.caller.host != TERMINAL or outcome is None or write_rules.started_for()[0]:
        what = f"{work.step_id} is a command, and its exit code is its result"
        why = "loomctl next runs it or waits for it; a person may overrule it in a terminal with --outcome"
        raise LoomError("COMMAND_STEP", what, why=why, hint=f"loomctl next {run.handle}", exit_code=EXIT_USAGE)
    stop_open(leases.deciding(space), run)
    return True
