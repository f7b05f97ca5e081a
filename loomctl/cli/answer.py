"""What run, resume, next and done tell: what was loaded, the step, where the run stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomctl.cli import command_line
from loomctl.flow import gate_texts, prompts, route
from loomctl.hosts import table
from loomctl.hosts.asking import Answer, written
from loomctl.kit import clock
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import counted, fenced, one_line, utf8_bytes, utf16_units, visible
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import prime_run
from loomctl.priming.slip import cut_lines
from loomctl.runs import artifact_paths
from loomctl.runs.machine import launcher_files, tells
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import frozen_plan, visits
from loomctl.workflows import gates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.flow.commands.run_commands import Pending, Ran
    from loomctl.priming.slip import Entry, Slip
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

# What may stand beside a slip's text, so that the host shows all of a command's output inline.
BESIDE = 4000
_FOLLOWS = "The files of this run follow this result."
_ROOM = 1 << 20  # UTF-16 units of what a person is shown
_WIDEST = 3  # UTF-8 bytes of one such unit
_BESIDE_PARTS = 1_400  # UTF-16 units, beside three parts of a slip


def step_document(space: Workspace, run: Run) -> dict[str, Any] | None:
    """Give the current step as `--json` shows it: `{id, visit, stage, prompt, task?, reason?, …}`; None: none is open.

    kind, choices: of one that a person decides.
    reason and what else the way to it tells: as the visit before it keeps it in `next` (D45).
    """
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    if entry is None or place is None:
        return None
    prompt = prompts.step_prompt(place, entry["visit"], artifact_paths.prompt_values(space.project, run))
    told = {key: value for key, value in route.way_to(run.state, entry["step_id"]).items() if key != "step_id"}
    asks = (
        {"kind": place.step["kind"], "choices": gates.choices(place.step)} if frozen_plan.is_human(place.step) else {}
    )
    own = {"id": entry["step_id"], "visit": entry["visit"], "stage": entry["stage"], "prompt": prompt}
    return {**own, **({"task": task} if (task := visits.short_task(entry)) else {}), **asks, **told}


def preamble_document(space: Workspace, run: Run) -> dict[str, Any] | None:
    """Give what precedes the current step, all of it, for who reads a document may know nothing yet (D46)."""
    if visits.open_visit(run.state) is None:
        return None
    from loomctl.flow import preambles

    return preambles.of(space, run).to_dict()


def plan_lines(run: Run) -> list[str]:
    """Give the plan, a phase a line: its steps, and where approval is asked."""
    autonomy = run.plan.get("autonomy") or {}
    gated = autonomy.get("require_approval_for") or ()
    lines = []
    for phase in run.plan["phases"]:
        steps = [step["id"] for step in phase["steps"] if not step.get("engine")]
        gate = " (after approval)" if phase.get("require_approval") or phase["id"] in gated else ""
        lines.append(f"  {phase['id']}: {', '.join(steps) or 'no steps'}{gate}")
    return lines


def command_lines(commands: Sequence[Mapping[str, str]]) -> list[str]:
    """Give commands in full, each under its step, for whoever is to trust them: nothing of them is cut."""
    lines = []
    for command in commands:
        where = f" (in {one_line(command['workdir'], 200)})" if command.get("workdir") else ""
        lines.append(f"  {one_line(command['step'], 200)}{where}:")
        lines += [f"      {line}" for line in visible(command["run"]).split("\n")]
    return lines


def allowed_lines(allowed: Sequence[Mapping[str, str]]) -> list[str]:
    """Give what a run lets an assistant use in full, a rule a line, each step's rules under it."""
    lines, step = [], None
    for one in allowed:
        if one["step"] != step:
            step = one["step"]
            lines.append(f"  {one_line(step, 200) or 'every step'}:")
        lines.append(f"      {visible(one['allow'])}")
    return lines


def ran_lines(ran: Sequence[Ran]) -> list[str]:
    """Give what command steps came to; the output's end of the last one, and of each that failed."""
    lines = []
    for one in ran:
        failed = one.status == "failed"
        took = (
            f"after {seconds(one.command['duration_ms'] / 1000)}" if one.command.get("duration_ms") is not None else ""
        )
        how = ", ".join(filter(None, [one.reason or "exit code 0", took]))
        lines.append(f"{'✗' if failed else '✓'} {one.step_id}: {one.status} ({one.stage}): {how}")
        if one.tail and (failed or one is ran[-1]):
            lines += [fenced(one.tail, "text")]
        if failed or one is ran[-1]:
            lines.append("It printed nothing." if one.command.get("bytes") == 0 else f"The whole output: {one.log}")
    return lines


def pending_lines(run: Run, pending: Pending) -> list[str]:
    """Say why a run stands at a command step, and what leads on."""
    from loomctl.flow.commands import run_commands

    branch = visits.seen_from(run.state).name
    again = f"loomctl next {run.handle}" + (f" --branch {branch}" if branch else "")
    if pending.kind == run_commands.NOT_TRUSTED:
        return [
            f"{pending.step_id} runs a command, and the user has not allowed this run's commands here yet:",
            *command_lines(pending.commands),
            f"Loom ran nothing. The user decides: loomctl trust {run.handle}",
        ]
    if pending.kind == run_commands.STOPPED:
        return [f"The command of {pending.step_id} was stopped. To start it again: {again}"]
    if pending.kind == run_commands.NOT_BEGUN:
        waits = (
            f" It failed, and Loom retries it after {clock.day_and_time(pending.not_before)[1]}."
            if pending.not_before
            else ""
        )
        return [f"Next: {pending.step_id}, a command.{waits} To run it: {again}"]
    lines = [f"{pending.step_id} has run for {seconds(pending.seconds)}. Output so far: {pending.bytes:,} bytes"]
    lines += [fenced(pending.tail, "text")] if pending.tail else ["It has printed nothing yet."]
    lines.append(f"The whole output: {pending.log}")
    lines.append(f"It keeps running. To wait for it: {again}")
    return lines


def seconds(count: float) -> str:
    """Give a duration for people: `0.4 s`, `12 s`, `3 min 20 s`."""
    if count < 10:
        return f"{count:.1f} s"
    minutes, rest = divmod(round(count), 60)
    return f"{minutes:,} min {rest} s" if minutes else f"{rest} s"


def of_slip(made: Slip) -> list[str]:
    """Give what stands above a slip's text: for an assistant, who reads that, what it was warned of alone (D63)."""
    if command_line.reader_is_an_assistant() and made.text:
        return warning_lines(made)
    return slip_lines(made)


def warning_lines(made: Slip) -> list[str]:
    """Give what a priming was warned of, a line each."""
    return [f"  ! {one_line(code, 40)}: {masked_line(text, 300)}" for code, text in made.warnings]


def slip_lines(made: Slip, *, done: bool = True) -> list[str]:
    """Say for people what was loaded; done: False for a dry run."""
    head = f"{'Loaded' if done else 'Would load'} {counted(len(made.loaded), 'file')}{_occasion(made.event)}"
    if not made.loaded:
        failed = any(entry.decision == "error" for entry in made.entries)
        head = ("Loaded nothing" if failed and done else "Nothing to load") + _occasion(made.event)
    elif made.used:
        head += f" ({made.used / 1000:.1f} of {made.limit / 1000:.3g} kB)"
    if made.fresh:
        head += f"; {len(made.fresh)} unchanged"
    return [
        head,
        *(f"  {line}" for entry in made.entries if (line := _restored(entry))),
        *warning_lines(made),
    ]


def _occasion(event: str) -> str:
    """Say at which event something was loaded; empty for those that need no word."""
    word, _, names = event.partition(":")
    phase = masked_line(names.rpartition("->")[2], 40)
    if word == "phase_end":
        return f" at the end of phase {phase}"
    return f" for phase {phase}" if phase else _OCCASIONS.get(word, "")


_OCCASIONS = {"compaction_detected": " after the compaction"}


def _restored(entry: Entry) -> str:
    """Say what became of an artifact; names and messages come from files, so each stays on its line."""
    name, message = masked_line(entry.id, 80), masked_line(entry.message, 200)
    size = f"{entry.bytes:,} bytes" if entry.bytes is not None else ""
    if entry.decision == "load" and entry.form == "full":
        return f"✓ {name}{f', {size}' if size else ''}"
    if entry.decision == "load" and entry.form == "diff":
        return f"✓ {name}, as a diff{f' of {size}' if size else ''}"
    if entry.decision == "load" and entry.form is not None:
        part = {"head": "its beginning fits", "pointer": "its path fits"}.get(entry.form, f"{entry.form} fits")
        path = masked_line(entry.path or "", 200)
        return f"◐ {name}{f', {size}' if size else ''}: only {part}; read the rest: {path}"
    if entry.decision == "load":
        return f"✗ {name}: no room"
    if entry.reason == "fresh":
        return f"✓ {name}, unchanged in this conversation"
    if entry.reason == "memory":
        return f"✓ {name}, in the assistant's memory"
    if entry.decision == "defer":
        return f"… {name}, later: {message}"
    at = f" ({masked_line(entry.path, 200)})" if entry.path else ""
    return f"✗ {name} {entry.reason}: {message}{at}" if entry.decision == "error" else ""


def beside(text: str) -> str:
    """Cut what stands beside a slip's text to its share; the slip's own text says what was left out of it."""
    return cut_lines(visible(text), BESIDE, utf8_bytes)


def whole(space: Workspace, run: Run, lines: list[str], made: Slip | None, *, goes_on: bool = False) -> str:
    """Put what a verb tells together: its own lines, then the slip's text for an assistant, the step for a person.

    goes_on: the reader has just ended the step before, and knows what precedes this one.
    """
    own = beside("\n".join(lines))
    if command_line.reader_is_an_assistant() and made is not None and made.text:
        return with_slip(space, lines, made)
    return f"{own}\n\n{bounded_step(space, run, goes_on=goes_on)}"


def with_slip(space: Workspace, lines: Sequence[str], made: Slip) -> str:
    """Put own lines above a slip's text; what the host takes with the result alone is left to the hook that follows.

    That is the last of four parts, or all of it (D62). What cannot be left is not given, and counts as not given (D15).
    """
    in_parts = len(made.parts) == launcher_files.MOST_PARTS
    too_long = utf8_bytes(made.text) > space.caller.printed - BESIDE and prime_run.is_left_behind(space)
    if not in_parts and not too_long:
        return f"{beside(chr(10).join(lines))}\n\n{made.text}"
    own = cut_lines(visible("\n".join(lines)), _BESIDE_PARTS, utf16_units)
    *first, last = made.parts if in_parts else (made.text,)
    behind = written(Answer("PostToolUse", last), table.HOSTS[space.caller.host])
    launcher_files.leave_behind_a_call(space.store.local, space.caller.session_id, space.caller.pid, behind)
    return "\n\n".join([own, *(first or [_FOLLOWS])])


def bounded_step(space: Workspace, run: Run, *, goes_on: bool = False) -> str:
    """Give the next thing to do in full, below what this conversation does not know yet of what precedes it (D46).

    Above a host's limit what precedes it is named alone, and the step's beginning is given with the file of all of it.
    """
    text = prompts.upcoming(space.project, run, may_write=True)
    limit = space.settings.command_budget
    before = _news(space, run, limit - utf8_bytes(text) - 2, goes_on=goes_on)
    if utf8_bytes(text) <= limit:
        return f"{before}\n\n{text}" if before else text
    entry = visits.open_visit(run.state)
    where = f"{run.folder}/stages/{entry['stage']}/prompt.md" if entry else run.folder
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    ending = ""
    if place is not None and frozen_plan.is_human(place.step):
        ending = gate_texts.ways(run, place)
    elif place is not None:
        ending = prompts.ending(run, place.step)
    rest = f"(read the whole prompt: {where})\n\n{ending}"
    return f"{cut_lines(text, limit - utf8_bytes(rest) - 2, utf8_bytes)}\n\n{rest}"


def _news(space: Workspace, run: Run, room: int, *, goes_on: bool) -> str:
    """Give what is new to this conversation of what precedes the open step, and note that it has it now.

    room: UTF-8 bytes; what does not fit into them is named by the command that prints it. A branch is worked on in a
    conversation that Loom does not see: it is told all, unless it goes on by itself (D43).
    """
    branch = visits.seen_from(run.state).name
    if run.state["status"] != "in_progress" or (branch and goes_on):
        return ""
    from loomctl.flow import preambles

    if branch:
        text = preambles.of(space, run).text if preambles.precedes(run) else ""
        return text if utf8_bytes(text) <= room else preambles.TOO_LONG * (room > 200)
    made = preambles.news(space, run)
    if made is None:
        return ""
    if utf8_bytes(made.text) > room:
        return preambles.TOO_LONG * (room > 200)
    return "\n".join([*preambles.note_told(space, made), made.text])


def look_for_words(space: Workspace, run: Run) -> None:
    """Let what the user told the run wait again, where this conversation has it not: the next hook gives it (D76)."""
    if tells.are_there(space.store.local, run.run_id):
        from loomctl.priming import messages  # most runs are told nothing

        try:
            messages.review(space, run.run_id, run.state, messages.COMMAND)
        except (LoomError, OSError):  # `loomctl next` looks, too
            pass


def user_said(space: Workspace, run: Run, printed: str | None = None) -> str:
    """Give what the user told the run, behind what a command prints beside; empty where nothing waits (D76).

    printed: that; None for a document, in which an assistant's mark could not be told from the slip's, so that its hook
    gives it.
    """
    if not tells.are_there(space.store.local, run.run_id) or visits.is_branch(run.state):
        return ""
    in_a_terminal = space.caller.host == TERMINAL
    if printed is None and not in_a_terminal:
        return ""
    from loomctl.priming import messages  # most runs are told nothing

    room = _ROOM if in_a_terminal else space.caller.printed - utf8_bytes(printed or "")
    try:
        said = messages.give(space, run.run_id, messages.COMMAND, room // (1 if in_a_terminal else _WIDEST)).text
    except (LoomError, OSError):
        return ""
    return f"\n\n{said}" if said and printed is not None else said
