"""Commands that are evidence: run by `loomctl done`, each for one answer, and ended with what they are to show.

A result counts only where this machine started the command for this very answer, and where it still ran as the `done`
began that takes it: what ended unseen may be of another tree by now, and is run again. Here is also what stops all that
a run has running.
"""

from __future__ import annotations

import os
import time

from loomctl.changes import working_tree
from loomctl.flow import lines
from loomctl.flow.commands import command_steps
from loomctl.flow.outcomes.evidence import COMMAND, TIMEOUT, Command, Item, name_of
from loomctl.kit import digests, files, processes
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id, is_fit
from loomctl.kit.quick_json import as_object
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import is_encoded, masked_line
from loomctl.runs import command_runs, stages
from loomctl.runs.model import visits
from loomctl.runs.model.state import TERMINAL as OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run


_LAST, _LAST_LINES = 16_000, 400  # bytes and lines of a log that are looked at
_SHOWN_LINES, _SHOWN = 12, 800
_ROOM, _ROOMS_BESIDE = 250, (250, 150, 100, 50, 0)  # estimated tokens: of messages; of all, tried in this order
_FEW = 6  # lines of trouble beside which the last lines are shown too
_OTHERS = ("(node:", "node:internal/", "node_modules/", "site-packages/")  # places of nobody's own code


class Place(NamedTuple):
    """Where one command of a visit is kept. local: this machine's folder; number: of the evidence, from 1."""

    local: str
    run_id: str
    stage: str
    number: int
    folder: str


def run(space: Workspace, run: Run, asked: Command) -> Item:
    """Run a command to its end, or to where `next` would stop waiting; what still runs then is waited for again.

    Without trust nothing is run. Raises nothing of its own.
    """
    try:
        if not command_steps.untrusted(space, run):
            return _run(space, run, asked)
        why = f"the user has not allowed this run's commands here: loomctl trust {run.handle}"
    except (LoomError, OSError) as error:
        why = masked_line(error.what if isinstance(error, LoomError) else str(error), 300)
    return Item(COMMAND, name_of(asked.wanted), passed=False, why=why, pending=True)


def _run(space: Workspace, run: Run, asked: Command) -> Item:
    entry, wanted, number, claim = asked.entry, asked.wanted, asked.number, asked.claim
    at = _place(space, run, str(entry["stage"]), number)
    until = time.monotonic() + command_steps.patience()
    seconds = float(wanted.get("timeout") or TIMEOUT)
    with space.store.lock(f"{run.run_id}.command") as lock:
        if not _may_be_waited_for(at, claim):
            if os.path.lexists(at.folder):
                command_runs.stop(at.folder)
                _put_aside(at)
            command = command_steps.expanded(space, run, command_steps.as_step(asked.step, wanted))
            cwd = command_steps.workdir(space, run, command.get("workdir"))
            order = command_runs.Order(
                at.folder, at.run_id, str(entry["step_id"]), at.stage, command["run"], cwd, seconds, run.handle
            )
            note = {"claim": claim, "name": name_of(wanted), "supervisor": None}
            _start(at, order, note, command_steps.environment(at.run_id, str(entry["step_id"]), at.folder))
            if _is_over(space, run, at.stage):  # somebody ended the step, or cancelled the run, in this moment
                stop(space, run, [at.stage])
        supervisor = read(at).get("supervisor")
        lock.remove()
    standing = command_runs.wait(at.folder, until)
    name = name_of(wanted)
    if standing.kind == command_runs.RUNNING:
        why = "it is still running: give the same result again to wait for it; another result starts it anew"
        return Item(COMMAND, name, passed=False, why=why, pending=True)
    if not _is_of(standing, supervisor):
        why = "something stopped or replaced it: give the result again"
        return Item(COMMAND, name, passed=False, why=why, pending=True)
    if standing.result.get("stopped"):
        _put_aside(at)
        return Item(COMMAND, name, passed=False, why="something stopped it: give the result again", pending=True)
    sha256 = digests.of_parts(command_runs.log_parts(at.folder))
    said = command_steps.tail_of(at.folder, _LAST, _LAST_LINES)
    kept = _put_aside(at)
    why = _lacking(wanted, standing, seconds, said)
    if not why:
        return Item(COMMAND, name, passed=True, sha256=sha256)
    why = f"{why}; its output: {kept}"
    return Item(COMMAND, name, passed=False, sha256=sha256, why=why, output=_excerpt(said))


def _excerpt(said: str) -> str:
    """Give what tells most of an output: all of a short one, else its lines of trouble, or where these are few its end.

    At most `_SHOWN_LINES` lines and `_SHOWN` characters, and none of a private key, whose first line may lie too far
    back for masking to know it.
    """
    said = "\n".join(line for line in said.split("\n") if not is_encoded(line))
    lines = [line.rstrip() for line in said.split("\n") if line.strip()]
    told = [] if len(lines) <= _SHOWN_LINES and sum(map(len, lines)) <= _SHOWN else _trouble(said)
    if len(told) < _FEW:
        rest = [line if len(line) <= _SHOWN else f"…{line[1 - _SHOWN :]}" for line in lines if line.strip() not in told]
        last = _fitting(reversed(rest), _SHOWN_LINES - len(told), _SHOWN - sum(len(line) + 1 for line in told))
        told += reversed(last)
    return "\n".join(told)


def _trouble(said: str) -> list[str]:
    """Choose the lines that tell of trouble, and as much of what explains them as fits."""
    from loomctl.reduction import trouble  # few commands fail

    told: list[str] = []
    for beside in _ROOMS_BESIDE:
        found = trouble.trouble(said, trouble.Rooms(_ROOM, beside, 0))
        told = [line for line in found if not any(mark in line for mark in _OTHERS)]
        if told == _fitting(told, _SHOWN_LINES, _SHOWN):
            return told
    return _fitting(told, _SHOWN_LINES, _SHOWN)


def _fitting(lines: Iterable[str], count: int, room: int) -> list[str]:
    """Give the first lines, so many and no more characters, each with the end of its line but the last."""
    shown: list[str] = []
    for line in lines:
        room -= len(line) + bool(shown)
        if room < 0 or len(shown) == count:
            break
        shown.append(line)
    return shown


def _place(space: Workspace, run: Run, stage: str, number: int) -> Place:
    """Give where a command is kept. Raises BAD_ID, UNSAFE_LINK."""
    folder = os.path.join(stages.folder(run.folder, stage), f"evidence-{number}")
    files.refuse_links(run.folder, folder)
    return Place(space.store.local, run.run_id, stage, number, folder)


def _start(at: Place, order: command_runs.Order, note: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Note that a command is started, start it, and note who watches it: one of a kill in between counts nothing."""
    write(at, note)
    command_runs.start(order, environ)
    supervisor = command_runs.look(at.folder).record.get("supervisor")
    write(at, {**note, "supervisor": supervisor})


def _may_be_waited_for(at: Place, claim: str) -> bool:
    standing, note = command_runs.look(at.folder), read(at)
    is_its = note.get("claim") == claim and _is_of(standing, note.get("supervisor"))
    return standing.kind == command_runs.RUNNING and is_its


def _is_of(standing: command_runs.Standing, supervisor: object) -> bool:
    told = standing.record.get("supervisor")
    return isinstance(supervisor, dict) and isinstance(told, dict) and processes.same(told, supervisor)


def _put_aside(at: Place) -> str:
    """Keep what a command left under a name of its own, so that the next check runs it anew; gives its log's path."""
    number = 1
    while os.path.lexists(f"{at.folder}.{number}"):
        number += 1
    os.rename(at.folder, f"{at.folder}.{number}")
    forget(at)
    return os.path.join(f"{at.folder}.{number}", command_runs.LOG)


def _lacking(wanted: Mapping[str, Any], standing: command_runs.Standing, seconds: float, said: str) -> str:
    """Say why an ended command does not show what was wanted; empty where it does. said: the end of its log.

    Tests that are to fail have to run (`missing_runners`).
    """
    code = standing.result.get("exit_code") if standing.kind == command_runs.ENDED else None
    if code == 0:
        return "the tests pass, and one has to fail" if wanted.get("tests") == "fail" else ""
    how = _ended(standing.kind, standing.result, seconds)
    if standing.result.get("timed_out") or code is None or not wanted.get("tests"):
        return how
    from loomctl.flow.commands import missing_runners  # tests that ran and failed as they should are few

    if code in missing_runners.NOT_STARTED:
        return f"the tests did not start: {how}"
    if missing := missing_runners.missing(str(wanted["run"]), said):
        return f"the tests did not start: {masked_line(missing, 200)}"
    return "" if wanted["tests"] == "fail" else how


def _ended(kind: str, result: Mapping[str, Any], seconds: float) -> str:
    if kind != command_runs.ENDED:
        return "nobody saw how it ended"
    if result.get("timed_out"):
        return f"timed out after {seconds:g} s"
    if result.get("exit_code") is None:
        return masked_line(str(result.get("error") or f"ended by {result.get('signal') or 'a signal'}"), 200)
    return f"exit code {result['exit_code']}"


# ---- What is decided about a run whose evidence is looked for just now.


def _begun(space: Workspace, run: Run, only: Collection[str] | None) -> list[Place]:
    """Give the commands of a run that this machine started and nobody has taken the end of. only: of these stages."""
    found: list[Place] = []
    for stage, number in listed(space.store.local, run.run_id):
        try:
            found += [_place(space, run, stage, number)] if only is None or stage in only else []
        except LoomError:  # a link in its place: what it leads to is not Loom's to stop
            pass
    return found


def _is_over(space: Workspace, run: Run, stage: str) -> bool:
    whole = space.store.read(run.run_id)
    return whole.state["status"] in OVER or stage not in _open(whole)


def _open(whole: Run) -> set[str]:
    entries = [visits.open_visit(line.state) for line in lines.every(whole)]
    return {str(entry["stage"]) for entry in entries if entry is not None}


def stop_ended(space: Workspace, run_id: str) -> list[str]:
    """Stop what runs as evidence of stages that have ended, however they did; gives lines as `stop`. Raises nothing."""
    try:
        begun = {stage for stage, _ in listed(space.store.local, run_id)}
        run = space.store.read(run_id)  # after the look: what begins from now on is of a stage that is open
        left = begun - _open(run)
        return stop(space, run, left) if left else []
    except (OSError, LoomError):  # the step has ended all the same
        return []


def stop(space: Workspace, run: Run, only: Collection[str] | None = None) -> list[str]:
    """Stop the commands that are evidence in a run; gives a line for each that ran, or could not be stopped.

    only: of these stages; None: of all. What they showed so far counts for nothing. A hook waits for no end: who
    watches the command is told to end it. Raises BAD_ID, UNSAFE_LINK.
    """
    said = []
    how = {"patience": 0.0} if space.caller.on_hook_path else {}
    for at in _begun(space, run, only):
        before, name = command_runs.look(at.folder).kind, masked_line(str(read(at).get("name")), 300)
        if command_runs.stop(at.folder, **how).kind == command_runs.RUNNING:
            failed = f"Loom could not stop the evidence `{name}`; command.json names its processes."
            said.append(f"Stopping the evidence `{name}`." if how else failed)
            continue
        try:
            _put_aside(at)
        except OSError:  # who waited for it did
            pass
        if before == command_runs.RUNNING:
            said.append(f"Stopped the evidence `{name}`.")
    return said


def runs_now(space: Workspace, run: Run) -> bool:
    """Tell whether a command of a run's open visits, or of its branches', runs on this machine; or one as evidence."""
    works = [command_steps.open_work(line) for line in lines.every(run)]
    folders = [*(at.folder for at in _begun(space, run, None)), *(work.folder for work in works if work is not None)]
    return any(command_runs.look(folder).kind == command_runs.RUNNING for folder in folders)


def stop_all(space: Workspace, run: Run) -> list[str]:
    """Stop the commands of a run and of its branches, and those that are evidence.

    Gives a line for each that ran, or could not be stopped.
    """
    steps = [said for line in lines.every(run) if (said := command_steps.stop_open(space, line))]
    return [*steps, *stop(space, run)]


def stop_evidence(space: Workspace, line: Run) -> list[str]:
    """Stop what runs as evidence of a line's open visit; gives a line for each that ran, or could not be stopped."""
    entry = visits.open_visit(line.state)
    return stop(space, line, [entry["stage"]]) if entry is not None else []


def stop_left(space: Workspace, line: Run) -> None:
    """Stop the command of a branch that its parallel step went on without; its end is told in the run's log."""
    stop_evidence(space, line)
    work = command_steps.open_work(line)
    if work is None or command_runs.look(work.folder).kind == command_runs.NONE:
        return
    standing = command_runs.stop(work.folder)
    space.store.tell(line.run_id, lambda _: command_steps.end(space, line, work, standing))


def read(at: Place) -> dict[str, Any]:
    """Give the note of one command; empty where there is none that can be read."""
    try:
        return as_object(files.read_json(_file(at)))
    except (OSError, LoomError):
        return {}


def listed(local: str, run_id: str) -> list[tuple[str, int]]:
    """Give the stage and the number of each command of a run that has its note. Raises BAD_ID, UNSAFE_LINK."""
    try:
        names = sorted(os.listdir(_folder(local, run_id)))
    except OSError:
        return []
    found = [name.rpartition(".") for name in names]
    return [(stage, int(number)) for stage, _, number in found if is_fit(stage.replace("@", ".")) and _counts(number)]


def _counts(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5


def write(at: Place, note: Mapping[str, Any]) -> None:
    """Note that a command is started. Raises OSError, BAD_ID, UNSAFE_LINK."""
    path = _file(at)
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, files.to_json(dict(note)), durable=False)


def forget(at: Place) -> None:
    """Remove the note of a command that is over. Raises OSError, BAD_ID, UNSAFE_LINK."""
    path = _file(at)
    files.remove(path)
    try:
        os.rmdir(os.path.dirname(path))
    except OSError:  # others' notes are in it, or none ever was
        pass


def forget_run(local: str, run_id: str) -> None:
    """Remove the notes of a run that is gone. Raises OSError, BAD_ID, UNSAFE_LINK."""
    working_tree.discard(_folder(local, run_id))


def _folder(local: str, run_id: str) -> str:
    path = os.path.join(local, lines.EVIDENCE, checked_id(run_id))
    files.refuse_links(os.path.dirname(local), path)
    return path


def _file(at: Place) -> str:
    checked_id(at.stage.replace("@", "."), what="stage")
    path = os.path.join(_folder(at.local, at.run_id), f"{at.stage}.{at.number}")
    files.refuse_links(os.path.dirname(at.local), path)
    return path
