"""Where a run stands and what it waits for, at a glance: for `loomctl status`, and in the one line of a status line.

`.loom/local/statusline/{session_id}` holds a head, the file that it was made from, how far the tool steps are counted,
and the line in each of its forms with its width, the richest first. The launcher prints the first that fits; it asks
for a new one once the state was written since, and once a minute while the session works.
"""

from __future__ import annotations

import os

from loomctl.flow import route
from loomctl.kit import clock, files
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.package import __version__
from loomctl.kit.records import NamedTuple
from loomctl.kit.text import fences
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import hook_health, stages
from loomctl.runs.machine import drivers
from loomctl.runs.model import driving, frozen_plan, lease, standing, visits
from loomctl.runs.tools import tool_log
from loomctl.runs.tools.tool_log import Tally
from loomctl.workflows import branches, gates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.log_verdict import Verdict
    from loomctl.runs.model.standing import Wait
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

WIDEST = 80  # columns of a status line
FOLDER = "statusline"
_REASON = 400
_BETWEEN = " · "
_TURN = "turn "  # of a driver, which is under way; every other word is the next thing to do
_LABEL, _STEP = 24, 40
_NARROW = (20, 12, 6)  # to these the last form of the line is cut
# Bytes of new tool steps that are counted for one line: the next one goes on, and tells the sum once it has all.
_AT_ONCE = 4 << 20
_LARGEST = 1 << 14
_LEAST_LABEL = 10  # columns in which a choice's label says something


class Waits(NamedTuple):
    """Who is to do what. who: `user`, `assistant`, `loom` or `nobody`; why: in a line.

    word: what comes next, in one word; command: the one that leads on, empty where there is none; choices: the
    commands among which a person chooses, where there are several; take_over: by which this session would get a run
    that another drives.
    """

    who: str
    why: str
    word: str
    command: str
    choices: tuple[str, ...] = ()
    take_over: str = ""


def waits(space: Workspace, run: Run, *, is_driven: bool, held: bool = False, where: str = "") -> Waits:
    """Say what a run waits for, and by which one command it goes on.

    is_driven: a live session here works on it; held: another than the caller does, and nothing leads on from here;
    where: the machine of that one, for people, where it is known.
    """
    by = ""
    if held and not is_driven:
        by = f", from its session on {masked_line(where, 40)}" if where else ", from the session that drives it"
    every = waiting(space, run)
    found = _waits(run, every, is_driven=is_driven or held, by=by)
    trust = next((one for one in every if one.kind == standing.TRUST), None)
    if not held and found.who != "user" and trust is not None:
        return Waits("user", trust.question, "trust", trust.command)
    drives = found.command.startswith(("loomctl next", "loomctl done", "loomctl resume"))
    if not held or run.state["status"] in ("completed", "cancelled") or not drives:
        return found
    driver, known = lease.holder(run.state), driving.told(run.state)
    if driver is not None and known is not None and driver.host == drivers.HOST:  # it ends politely where it can
        return found._replace(word=f"{_TURN}{known['turns'] + 1}", command="", take_over=f"loomctl resume {run.handle}")
    return found._replace(word="", command="", take_over=f"loomctl resume {run.handle} --take-over")


def waiting(space: Workspace, run: Run) -> tuple[Wait, ...]:
    """Give what a run waits for, trust on this machine among it."""
    return standing.waiting(run.state, now=clock.now(), untrusted=_untrusted(space, run))


def _waits(run: Run, every: Sequence[Wait], *, is_driven: bool, by: str) -> Waits:
    state, handle = run.state, run.handle
    unknown = frozen_plan.steps_unknown(run.plan)
    if unknown:
        return Waits("nobody", f"Loom does not know its steps here: {masked_line(unknown, _REASON)}", "", "")
    status = state["status"]
    if status == "awaiting_feedback":
        return _answer(run, every, is_driven=is_driven)
    if status == "paused":
        return _paused(run)
    if status == "failed":
        reason = next((why for entry in reversed(state["steps"]) if (why := visits.reason_of(entry))), "")
        said = f"it failed{f': {masked_line(reason, _REASON)}' if reason else ''}"
        return Waits("user", said, "resume", f"loomctl resume {handle}")
    if status == "completed":
        return Waits("nobody", "it is completed", "", "")
    if status == "cancelled":
        return Waits("nobody", "it was cancelled", "", f"loomctl resume {handle} --reopen")
    limit = next((one for one in every if one.kind in (standing.LIMIT, standing.TIME) and not is_driven), None)
    if limit is not None:
        return _limited(limit)
    return _under_way(run, is_driven=is_driven, by=by)


def _limited(wait: Wait) -> Waits:
    if wait.kind == standing.LIMIT:
        return Waits("user", f"a limit was reached: {wait.question}", "drive", wait.command)
    until = f"until {' '.join(clock.day_and_time(wait.until))}" if wait.until else ""
    return Waits("nobody", ": ".join(filter(None, (until, wait.question))), "", wait.command)


def _answer(run: Run, every: Sequence[Wait], *, is_driven: bool) -> Waits:
    first = next((one for one in every if one.kind in (standing.APPROVAL, standing.TRUST, standing.QUESTION)), None)
    onward = f"loomctl {'next' if is_driven else 'resume'} {run.handle}"
    if first is None or first.kind == standing.QUESTION:
        to = f" to: {first.question}" if first is not None and first.question else ""
        is_denied = first is not None and first.command.startswith("loomctl drive ")
        return Waits("user", f"an answer{to}", "answer", first.command if first is not None and is_denied else onward)
    if first.kind == standing.APPROVAL:
        from loomctl.flow import gate_texts

        ways = first.ways(run.handle)
        word, several = "choose" if first.choices else "approve", ways if len(ways) > 1 else ()
        return Waits("user", gate_texts.question(run), word, "" if several else ways[0], several)
    return Waits("user", first.question, "trust", first.command)


def _paused(run: Run) -> Waits:
    refused = gates.refusal(run.state) if run.state["pending_approvals"] else None
    why = "it is paused"
    if refused is not None:
        by, note = (masked_line(str(refused.get(key) or ""), _REASON) for key in ("by", "note"))
        why += f": {by or 'somebody'} rejected {masked_line(str(refused['id']), 120)}" + (f": {note}" if note else "")
    return Waits("user", why, "resume", f"loomctl resume {run.handle}")


def _under_way(run: Run, *, is_driven: bool, by: str) -> Waits:
    """by: from whom a result is waited for, where that is another."""
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    onward = f"loomctl next {run.handle}"
    if entry is None or place is None:
        to = route.onward(run.state, run.plan)
        come = "to begin the next step," if run.state["steps"] else "to begin the first step,"
        return Waits("assistant", f"{come} {to.key}" if to else "to end the run", "next", onward)
    if entry["status"] == "closing":
        return Waits("assistant", "the step's result, as its final message", "", onward)
    if place.step.get("run"):
        return Waits("loom", "to run a command", "next", onward)
    if not is_driven:
        return Waits("assistant", "no live session works on it", "resume", f"loomctl resume {run.handle}")
    if branches.fan(run.state) is not None:
        return Waits("assistant", "the branches of a parallel step", "", onward)
    if frozen_plan.is_human(place.step):
        return Waits("user", "a decision", "next", onward)
    return Waits("assistant", f"the step's result{by}{_refused(run, entry)}", "", visits.done_command(entry))


def _refused(run: Run, entry: Mapping[str, Any]) -> str:
    """Say, behind what is waited for, that Loom refused the step's last result, and why; empty where it did not."""
    count = visits.repairs_of(entry)
    if not count:
        return ""
    try:
        errors = stages.repair_errors(run.folder, entry["stage"], count)[-1]
    except (OSError, LoomError):
        errors = []
    said = "; ".join(f"{one.get('where') or ''}: {one.get('message') or ''}" for one in errors if isinstance(one, dict))
    why = masked_line(said.partition("; its output: ")[0].removeprefix(": "), _REASON)
    return "; Loom refused the last one" + (f": {why}" if why else "")


def _untrusted(space: Workspace, run: Run) -> Sequence[Mapping[str, str]]:
    """List the run's commands if one keeps the open step from going on and this machine does not trust them.

    A command that is evidence does so once a result was given.
    """
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None or run.state["status"] != "in_progress":
        return ()
    is_evidence = any(one.get("kind") == "command" for one in place.step.get("evidence") or ())
    if not place.step.get("run") and not is_evidence:
        return ()
    from loomctl.flow.commands import command_steps

    try:
        given = os.path.join(stages.folder(run.folder, str(entry.get("stage"))), stages.CANDIDATE)
        return command_steps.untrusted(space, run) if place.step.get("run") or os.path.lexists(given) else ()
    except (LoomError, OSError):  # of a run that was made elsewhere: `next` says what cannot be filled in here
        return ()


def fitted_choices(commands: Sequence[str], room: int) -> list[str]:
    """Give the commands of choices for a screen: where one is too wide, by their keys, each label as a comment."""
    import shlex

    if all(fences.width(command) <= room for command in commands):
        return [*commands]
    from loomctl.workflows import routing

    words = [shlex.split(command) for command in commands]
    labels = [parts[-2] for parts in words]
    fitted = []
    for command, parts in zip(commands, words, strict=True):
        key = routing.label_of(parts[-2]).key
        if not key or sum(routing.matches(key, label) for label in labels) != 1:
            fitted.append(command)
            continue
        short = " ".join([*parts[:2], *(parts[2:-2] if parts[2] != "--" else ()), key, parts[-1]])
        has_room = fences.width(short) + _LEAST_LABEL <= room
        fitted.append(fences.cut(f"{short} # {parts[-2]}", room) if has_room else short)
    return fitted


def open_step(run: Run) -> dict[str, Any] | None:
    """Give the step that is being worked on, `{id, visit, stage, status, task, since, branches}`; None: none is."""
    entry = visits.open_visit(run.state)
    if entry is None:
        return None
    told = {"id": entry["step_id"], "visit": entry["visit"], "stage": entry.get("stage"), "status": entry["status"]}
    parts = [
        {
            "id": str(one["id"]),
            "status": str(one["status"]),
            "step": one.get("current_step"),
            "task": visits.short_task(visits.open_visit(one)),
        }
        for one in entry.get(branches.KEY, ())
    ]
    return {**told, "task": visits.short_task(entry), "since": entry.get("started_at"), "branches": parts}


def given(space: Workspace, run: Run, session_id: str | None) -> dict[str, Any]:
    """Give what of the run's artifacts a session's conversation has: `{session_id, given, not_given}`, names.

    What the run has not made yet, and what has a condition that does not hold, is in neither.
    """
    has = _given(space, run, session_id)
    others = [artifact for artifact in run.plan["artifacts"] if str(artifact["id"]) not in has]
    if any(artifact.get("condition") or artifact.get("path_from_state") for artifact in others):
        from loomctl.priming.examine import Examiner
        from loomctl.workflows import triggers

        reader = Examiner(space, run, triggers.manual(), artifacts=others)
        others = [artifact for artifact in others if reader.applies(artifact)]
    return {"session_id": session_id, "given": has, "not_given": [str(artifact["id"]) for artifact in others]}


def _given(space: Workspace, run: Run, session_id: str | None) -> list[str]:
    primed = space.local.primed(session_id)
    has = primed["artifacts"] if primed.get("run_id") == run.run_id else {}
    return [name for artifact in run.plan["artifacts"] if (name := str(artifact["id"])) in has]


def verdict(found: Verdict) -> dict[str, Any]:
    """Give the verdict on a run's log as documents tell it (D54)."""
    fault = {"line": found.fault.line, "what": found.fault.what} if found.fault is not None else None
    return {"ok": found.ok, "entries": found.entries, "unproven": found.unproven, "fault": fault}


# ---- The status line.


class Line(NamedTuple):
    """What a line tells.

    label: of the run; step: `phase/id@visit`, empty where none is open; status: of the run; done, total: steps;
    artifacts: how many this session was given; saved: percent of tokens, None where that is not known; word: what
    comes next (`approve`, `resume`, …), empty where nobody need do anything; alarm: what is the matter with hooks.
    """

    label: str
    step: str
    status: str
    done: int
    total: int
    artifacts: int = 0
    saved: float | None = None
    word: str = ""
    alarm: str = ""

    def forms(self) -> list[str]:
        """Give the line in each of its forms, the richest first; none is wider than WIDEST.

        What goes first where there is less room: what was saved, the artifacts, the progress, what comes next, the
        run's label; the step and the alarm stay, and are cut in the end. A form that is too wide is left out.
        """
        label, step = _part(self.label, _LABEL), _part(self.step, _STEP)
        where = step if self.status == "in_progress" and step else self.status.replace("_", " ")
        where += f" at {step}" if step and where != step and self.status not in ("completed", "cancelled") else ""
        alarm = f"! {_part(self.alarm, _STEP)}" if self.alarm else ""
        known = {
            "alarm": alarm,
            "run": f"loom {label}",
            "where": where,
            "progress": f"{self.done}/{self.total}" if self.total else "",
            "artifacts": f"{self.artifacts} artifact{'' if self.artifacts == 1 else 's'}" if self.artifacts else "",
            "saved": f"saved {self.saved:.0f}%" if self.saved is not None and self.saved > 0 else "",
            "next": self.word if not self.word or self.word.startswith(_TURN) else f"next: {self.word}",
        }
        made = []
        for goes in ("", "saved", "artifacts", "progress", "next"):
            known.pop(goes, None)
            made.append(_BETWEEN.join(filter(None, known.values())))
        least = _BETWEEN.join(filter(None, (alarm, where if alarm else f"loom {where}")))
        made += [least, *(fences.cut(least, limit) for limit in _NARROW)]
        return [line for line in dict.fromkeys(made) if fences.width(line) <= WIDEST]


def _part(text: str, limit: int) -> str:
    return fences.cut(masked_line(text, 4 * limit), limit)


def fit(forms: Sequence[str], said: str) -> str:
    """Give the first form that fits; empty where none does. said: the columns, as the environment has them."""
    known = int(said[:6]) if said.isascii() and said.isdigit() else 0
    room = min(known, WIDEST) if known > 0 else WIDEST
    return next((line for line in forms if fences.width(line) <= room), "")


def line_of(space: Workspace, run: Run, session_id: str | None, tally: Tally, *, now: float) -> Line:
    """Put together what a line tells of a run in a session."""
    health = hook_health.look(space.local, space.store.local, space.caller.conversation, now=now, session_id=session_id)
    alarm = hook_health.in_short(tuple(health.silent))
    skew = hook_health.skews(health.beats, run.state)
    if not alarm and skew:
        alarm = "hooks of another version" if skew[0].part == "hooks" else "run of a newer Loom"
    phases = stages.progress(run)
    step = open_step(run)
    is_driven = session_id is not None or bool(space.local.live_sessions(run.run_id))
    waiting = waits(space, run, is_driven=is_driven, held=space.store.held(run.run_id, run.state) is not None)
    return Line(
        label=run.handle,
        step=_at(step) if step else str(run.state.get("current_step") or ""),
        status=run.state["status"],
        done=sum(phase["done"] for phase in phases),
        total=sum(phase["steps"] for phase in phases),
        artifacts=len(_given(space, run, session_id)),
        saved=tally.percent,
        word="" if waiting.who == "assistant" and waiting.word == "next" else waiting.word,
        alarm=alarm,
    )


def _at(step: Mapping[str, Any]) -> str:
    task = step["task"]
    return f"{step['id']} task {task['number']}/{task['of']}" if task else f"{step['id']}@{step['visit']}"


def session_line(space: Workspace, session_id: str, *, now: float) -> list[str]:
    """Make the line of a session that drives a run, keep it, and give its forms; none where it drives no run.

    now: seconds since 1970, before anything of the run was read. A store that cannot be written keeps nothing.
    """
    binding = space.local.binding(session_id)
    if binding is None or not space.store.has(binding["run_id"]):
        return []
    run_id, tally = binding["run_id"], Tally()
    path = os.path.join(space.store.local, FOLDER, checked_id(session_id, what="session id"))
    try:
        run = space.store.read(run_id, to_show=True)
        tally = _counted(run, path)
        forms = line_of(space, run, session_id, tally, now=now).forms()
    except LoomError as error:
        words = "of a newer Loom" if error.code == "SCHEMA_TOO_NEW" else "unreadable"
        forms = Line(space.store.handle(run_id), "", words, 0, 0, word="doctor").forms()
    state = space.store.home(run_id).state
    head = [f"loom {__version__}", "" if "\n" in state else state]
    head.append(f"saved {run_id} {tally.at} {tally.before} {tally.after}")
    _keep(space.store.folder, path, [*head, *(f"{fences.width(form)} {form}" for form in forms)], now)
    return forms


def _counted(run: Run, path: str) -> Tally:
    """Go on counting where the session's last line ended."""
    known = Tally()
    try:
        lines = files.read_bytes(path, limit=_LARGEST).decode("utf-8", "replace").split("\n")
        word, run_id, *numbers = lines[2].split(" ")
        if word == "saved" and run_id == run.run_id:
            at, before, after = (int(number) for number in numbers)
            known = Tally(at, before, after)
    except (OSError, LoomError, ValueError, IndexError):
        pass
    try:
        return tool_log.tally(run.folder, known, most=_AT_ONCE)
    except (OSError, LoomError):
        return Tally()


def _keep(store: str, path: str, lines: Sequence[str], now: float) -> None:
    """Write the session's file; its time is `now`, so that a state that was written meanwhile is newer."""
    try:
        files.refuse_links(store, path)
        files.make_folder(os.path.dirname(path))
        data = ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
        files.write_atomically(path, data, durable=False)
        os.utime(path, (now, now))
    except (OSError, LoomError):
        pass
