"""`loomctl run`, `resume`, `rewind` and `fork`: a run begins, is taken up, taken back, or goes on as another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loomctl.cli import answer, command_line, output, person
from loomctl.cli.asking_trust import ask_trust
from loomctl.cli.command_line import complete_runs, complete_stages, complete_workflows, json_option, run_argument
from loomctl.flow import advance, fork, resume, rewind, start
from loomctl.flow.commands import command_steps
from loomctl.kit.errors import EXIT_MISSING, EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.fences import counted
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import prime_run
from loomctl.runs import find
from loomctl.runs.model import frozen_plan, lease, sessions
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.model.state import handle
from loomctl.runs.store import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.flow.fork import Forked
    from loomctl.flow.resume import Resumed
    from loomctl.flow.rewind import Rewound
    from loomctl.flow.start import Started
    from loomctl.priming.slip import Slip
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_LISTED = 5  # names in a line; --json has all
LEVELS = ("dry-run", "assist", "guarded", "autonomous")


@click.command()
@click.argument("work", nargs=-1)
@click.option(
    "--workflow",
    "-w",
    metavar="ID|PATH",
    shell_complete=complete_workflows,
    help="The workflow to follow.  [default: default]",
)
@click.option("--key", metavar="KEY", help="Give the open run of this key instead of starting a second one.")
@click.option("--autonomy", type=click.Choice(LEVELS), help="Override the workflow's autonomy.")
@click.option("--dry-run", is_flag=True, help="Check and show the plan; write nothing.")
@click.option(
    "--resume",
    "resumed",
    metavar="RUN",
    shell_complete=complete_runs,
    help="Continue this run instead of starting one.",
)
@click.option("--must-survive", metavar="ITEM", multiple=True, help="Text that a compaction must not lose (see prove).")
@click.option("--reopen", is_flag=True, help="With --resume: allow a completed or cancelled run.")
@click.option("--take-over", is_flag=True, help="With --resume: take the run from another session.")
@json_option
def run(
    work: tuple[str, ...],
    workflow: str | None,
    key: str | None,
    autonomy: str | None,
    dry_run: bool,
    resumed: str | None,
    must_survive: tuple[str, ...],
    reopen: bool,
    take_over: bool,
    as_json: bool,
) -> int:
    """Start a run on WORK: an issue's id or a goal in words.

    Quote a goal of several words. `loomctl init` lists the workflows that come with Loom.

    With --key a script may ask twice. While a run of that key is open, Loom names it and changes nothing. A run is open
    until it is completed or cancelled.

    \b
    Examples:
      loomctl run 258
      loomctl run 258 --key issue-258 --json
      loomctl run "add dark mode" --workflow core
      loomctl run --resume shop-258
    """
    if resumed is not None:
        if work or workflow or key is not None or autonomy or dry_run or must_survive:
            hint = f"loomctl run --resume {quoted(resumed)}"
            what = "--resume takes no goal, workflow or other option of a new run"
            raise LoomError("USAGE", what, hint=hint, exit_code=EXIT_USAGE)
        return tell_resumed(resumed, reopen=reopen, take_over=take_over, as_json=as_json)
    if take_over:
        what = "--take-over needs --resume RUN"
        raise LoomError("USAGE", what, hint="loomctl run --help", exit_code=EXIT_USAGE)
    space = command_line.space(make=True)
    later = command_line.in_a_body() and not as_json
    begun = start.start(
        space,
        " ".join(work),
        workflow=workflow,
        autonomy=autonomy,
        dry_run=dry_run,
        must_survive=must_survive,
        later=later,
        key=key,
    )
    if not begun.created:
        return _tell_found(space, begun.run, as_json=as_json)
    if begun.slip is not None:
        begun = begun._replace(notes=[*begun.notes, *ask_trust(space, begun.run, as_json=as_json)])
    if later and begun.slip is not None:
        prime_run.add_to_owed(space, [*_warned(begun), *begun.notes])
        output.text(_body(begun.run))
    elif as_json:
        output.document(_started_document(space, begun))
    else:
        output.prose(_started_text(space, begun), last=lambda: [_started(begun)] if begun.slip is not None else [])
    return EXIT_MISSING if begun.slip is not None and begun.slip.failed else EXIT_OK


def _tell_found(space: Workspace, run: Run, *, as_json: bool) -> int:
    """Name the open run of a key, and the command that continues it from here."""
    key, way = str(run.state.get(keys.KEY)), find.way_in(space, run.run_id)
    work = masked_line(str(run.state.get("goal") or run.state.get("work_id") or ""), 200)
    standing = run.state["status"].replace("_", " ")
    lines = [
        f"Loom: {run.handle} has the key {masked_line(key, 200)} and is {standing}: {work}",
        f"To continue it: {way}",
    ]
    told = {**_run_document(space, run, None), "key": key, "created": False, "dry_run": False, "command": way}
    output.answer(told, lines, as_json=as_json)
    return EXIT_OK


def _run_document(space: Workspace, run: Run, made: Slip | None) -> dict[str, object]:
    state = run.state
    return {
        "run_id": run.run_id,
        "handle": run.handle,
        "run_dir": run.folder,
        **{key: state[key] for key in ("plan_id", "workflow_id", "work_id", "goal", "status")},
        "step": answer.step_document(space, run),
        "slip": made.with_text() if made is not None else None,
    }


def _started_document(space: Workspace, begun: Started) -> dict[str, object]:
    return {
        **_run_document(space, begun.run, begun.slip),
        "dry_run": begun.slip is None,
        **({"key": key, "created": begun.slip is not None} if (key := begun.run.state.get(keys.KEY)) else {}),
        "commands": command_steps.listed(space, begun.run),
        "allow": frozen_plan.allowed(begun.run.plan),
        "notes": begun.notes,
        "warnings": [{"code": one.code, "where": one.where, "message": one.message} for one in begun.warnings],
    }


def _started(begun: Started) -> str:
    count = sum(1 for phase in begun.run.plan["phases"] for step in phase["steps"] if not step.get("engine"))
    verb = "would start" if begun.slip is None else "started"
    return f"Loom: {verb} {begun.run.handle}, workflow {begun.run.state['workflow_id']}, {counted(count, 'step')}"


def _started_text(space: Workspace, begun: Started) -> str:
    lines = [_started(begun), *answer.plan_lines(begun.run)]
    if begun.slip is None and (commands := command_steps.listed(space, begun.run)):
        lines += ["It would run these commands:", *answer.command_lines(commands)]
    if begun.slip is None and (allowed := frozen_plan.allowed(begun.run.plan)):
        lines += ["It would let the assistant use, without asking:", *answer.allowed_lines(allowed)]
    lines += [*_warned(begun), *begun.notes]
    if begun.slip is None:
        return "\n".join(lines)
    lines += answer.of_slip(begun.slip)
    return answer.whole(space, begun.run, lines, begun.slip)


def _warned(begun: Started) -> list[str]:
    lines = []
    for one in begun.warnings:
        lines.append(f"  ! {one.where}: {one.message}")
        lines += [f"    {one.hint}"] if begun.slip is not None and one.hint.startswith("loomctl ") else []
    return lines


def _body(run: Run) -> str:
    """Say what stays true, for the host gives a slash command's body again after each compaction (D79)."""
    return (
        f"Loom: this conversation works on the run {run.handle}.\n"
        "Loom's hooks and `loomctl next` tell where it stands, its files and its step; believe the newest."
    )


@click.command("release")
@run_argument
@json_option
def release_command(run: str | None, as_json: bool) -> int:
    """Give a run up, so that another session can drive it.

    Loom releases what this session or another terminal of yours drives, and a run whose driver is gone. Another session
    that drives it is named, and the command ends with exit code 6. The next session that writes to the run drives it.

    \b
    Examples:
      loomctl release
      loomctl release shop-258
    """
    from loomctl.runs import leases
    from loomctl.runs.machine import drivers

    space = command_line.space()
    run_id = find.to_drive(space, verb="release") if run is None else find.run_to_read(space, run)
    called, released = space.store.handle(run_id), leases.release_by_hand(space, run_id)
    how = {"mine": "", "terminal": "; {} drove it", "gone": "; {} drove it, and is gone"}
    line = f"Loom: nobody drives {called}"
    if released is not None:
        line = f"Loom: released {called}{how[released.how].format(drivers.told(released.holder))}"
    told = {"run_id": run_id, "handle": called, "released": released is not None}
    told |= {"how": released.how, "from": lease.brief(released.holder)} if released else {"how": None, "from": None}
    status, way = space.store.read_state(run_id)["status"], find.way_in(space, run_id)
    onward = f"The run is {status}. To continue it: {way}" if status in OVER else f"To drive it: {way}"
    output.answer(told, [line, onward], as_json=as_json)
    return EXIT_OK


@click.command("resume")
@run_argument
@click.option("--reopen", is_flag=True, help="Continue a completed or cancelled run too.")
@click.option("--take-over", is_flag=True, help="Take the run from another session, which can then no longer write.")
@json_option
def resume_command(run: str | None, reopen: bool, take_over: bool, as_json: bool) -> int:
    """Continue a run in this session, also on another machine.

    Without RUN, Loom continues this session's run, or the only one that can go on. One session drives a run at a time.
    While another one does, this command names it and ends with exit code 6.

    \b
    Examples:
      loomctl resume
      loomctl resume shop-258
      loomctl resume shop-258 --take-over
    """
    return tell_resumed(run, reopen=reopen, take_over=take_over, as_json=as_json)


def tell_resumed(named: str | None, *, reopen: bool, take_over: bool, as_json: bool) -> int:
    """Resume and print what was restored."""
    space = command_line.space()
    if take_over:
        person.refuse_driven(space, "resume", *([named] if named else []), "--take-over")
    later = command_line.in_a_body() and not as_json
    with command_line.offered_again():
        taken = resume.resume(space, named, reopen=reopen, take_over=take_over, later=later)
    taken = taken._replace(notes=[*taken.notes, *ask_trust(space, taken.run, as_json=as_json)])
    if as_json:
        output.document(_resumed_document(space, taken))
    elif later:
        prime_run.add_to_owed(space, [*taken.differences, *taken.notes])
        answer.look_for_words(space, taken.run)
        output.text(_body(taken.run))
    else:
        lines = [f"Loom: resumed {taken.run.handle}"]
        lines.append(f"Sessions: {sessions.summary(taken.run.state)}")
        lines += [*taken.differences, *taken.notes, *answer.of_slip(taken.slip)]
        text = answer.whole(space, taken.run, lines, taken.slip)
        output.prose(text + answer.user_said(space, taken.run, text), last=lambda: lines[:1])
    return EXIT_MISSING if taken.slip.failed else EXIT_OK


def _resumed_document(space: Workspace, taken: Resumed) -> dict[str, object]:
    told = {"sessions": sessions.summary(taken.run.state), "differences": taken.differences, "notes": taken.notes}
    return {**_run_document(space, taken.run, taken.slip), **told}


@click.command("rewind", options_metavar="--to STAGE")
@run_argument
@click.option(
    "--to",
    "stage",
    required=True,
    metavar="STAGE",
    shell_complete=complete_stages,
    help="The step to go back to: its number, name or id, or which time (review@1).",
)
@json_option
def rewind_command(run: str | None, stage: str, as_json: bool) -> int:
    """Go back to an earlier step and undo what came after it.

    This is `loomctl undo` repeated, in one go. The step opens again with the context of that time. Loom keeps the
    undone results beside it. It touches none of your files except the boxes of tasks, and lists those that the undone
    steps changed. `loomctl show --stages` lists the steps and their numbers.

    \b
    Examples:
      loomctl rewind --to implement
      loomctl rewind shop-258 --to 002
      loomctl rewind --to review@1
    """
    space = command_line.space()
    rewound = rewind.rewind(space, find.to_drive(space, run), stage)
    if as_json:
        output.document(
            {
                "run_id": rewound.run.run_id,
                "handle": rewound.run.handle,
                "status": rewound.run.state["status"],
                "stage": rewound.stage,
                "changed": rewound.changed,
                **{key: list(getattr(rewound, key)) for key in ("undone", "gone", "files", "patches")},
                "next": answer.step_document(space, rewound.run),
                "notes": list(rewound.notes),
            }
        )
        return EXIT_OK
    lines = [*_rewound(rewound), *(f"  ! {masked_line(note, 300)}" for note in rewound.notes)]
    lines.append(advance.Driven(rewound.run, rewound.move).line)
    output.prose(answer.whole(space, rewound.run, lines, None), last=lambda: [lines[0], lines[-1]])
    return EXIT_OK


def _rewound(rewound: Rewound) -> list[str]:
    if not rewound.changed:
        return [f"{rewound.stage} is open already. Nothing changed."]
    lines = [f"Loom: {rewound.run.handle} is back at {rewound.stage}"]
    if rewound.gone:
        lines.append(f"  undone    {counted(len(rewound.gone), 'step')}: {_listed(rewound.gone)}")
    if rewound.undone:
        lines.append("  results   kept in the steps' folders, as *.undone-N")
    lines.append("  files     Loom changed none of yours but task boxes" + _what_stays(rewound.files))
    return [*lines, *(f"  patch     {masked_line(path, 400)}" for path in rewound.patches)]


def _what_stays(files: Sequence[str]) -> str:
    if not files:
        return "; the undone steps changed none that Loom knows of"
    return f"; these keep the changes of the undone steps: {_listed(files)}"


@click.command("fork", options_metavar="--at STAGE")
@run_argument
@click.option(
    "--at",
    "stage",
    required=True,
    metavar="STAGE",
    shell_complete=complete_stages,
    help="The finished step after which the new run goes on; named as for `loomctl rewind --to STAGE`.",
)
@json_option
def fork_command(run: str | None, stage: str, as_json: bool) -> int:
    """Copy this run up to a step, to go on another way.

    The new run gets the plan, the context and the finished steps with their results and tool calls. Its sessions and
    its log begin empty. This run stays as it is, with its session; `loomctl resume RUN` continues the new one. Loom
    touches none of your files: both runs work in the same checkout, as it is now.

    \b
    Examples:
      loomctl fork --at architect
      loomctl fork shop-258 --at 003
      loomctl fork --at review@1 --json
    """
    space = command_line.space()
    forked = fork.fork(space, find.run_to_read(space, run), stage)
    state = forked.run.state
    told = {
        "run_id": forked.run.run_id,
        "handle": forked.run.handle,
        "run_dir": forked.run.folder,
        **{key: state[key] for key in ("status", "forked_from")},
        "stages": list(forked.stages),
        "way": state["steps"][-1].get("next"),
        "tool_steps": forked.tool_steps,
        "files_copied": forked.copied,
        "files": list(forked.changed),
        **{key: list(getattr(forked, key)) for key in ("patches", "notes")},
    }
    output.answer(told, _forked(forked), as_json=as_json)
    return EXIT_OK


def _forked(forked: Forked) -> list[str]:
    brought = f"{counted(len(forked.stages), 'step')}, {counted(forked.tool_steps, 'tool call')}"
    origin = handle({**forked.run.state, "run_id": forked.origin})
    return [
        f"Loom: {forked.run.handle} is a copy of {origin} after {forked.stage}",
        f"  copied    {brought} and the context of that time",
        "  files     Loom touched none of yours" + _what_later_stages_changed(forked.changed),
        *(f"  patch     {masked_line(path, 400)}" for path in forked.patches),
        *(f"  ! {masked_line(note, 300)}" for note in forked.notes),
        f"{origin} is unchanged. To continue the copy: loomctl resume {forked.run.handle}",
    ]


def _what_later_stages_changed(files: Sequence[str]) -> str:
    if not files:
        return "; later steps changed none that Loom knows of"
    return f"; these keep the changes of later steps: {_listed(files)}"


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(masked_line(name, 120) for name in names[:_LISTED]) + more
