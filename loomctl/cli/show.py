"""`loomctl show`: a run, or all of one of its steps, as it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import command_line, output
from loomctl.cli.command_line import json_option, run_argument
from loomctl.cli.verbs import views_of
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text import fences
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import leases, stages
from loomctl.runs.model import driving, frozen_plan, lease, sessions, standing, visits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.flow.tasks import Listed
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

_STEP = 40  # columns of a step's id, of which longer ones stand out


@views_of("show")
@click.command()
@run_argument
@click.argument("stage", required=False)
@click.option("--file", metavar="NAME", help="Print one file of the STAGE, unmasked.")
@json_option
def show(run: str | None, stage: str | None, file: str | None, as_json: bool) -> int:
    """Show a run: what is done and what is next; or one STAGE.

    A step that goes through a task list shows 20 of its tasks; --json has them all.

    STAGE is a finished or open step: its number (3), its name or id (implement, the last time), or which time
    (implement@2). Without a RUN before it, it belongs to the current one. You see how it ended, what it set and
    changed, its prompt, its result and the last lines of its command. --json prints the last 1 MiB of each file.

    \b
    Examples:
      loomctl show
      loomctl show 3
      loomctl show shop-258 001-frame.fetch-work@1
      loomctl show shop-258 implement@2
      loomctl show shop-258 3 --file response.md
    """
    if file is not None and as_json:
        raise _misused("--file prints a file as it is; leave out --json")
    space = command_line.space()
    with command_line.offered_again():
        found, meant, is_last = stages.find_with_run(space, run, stage)
    if is_last:
        command_line.say_last(space, found.run_id)
    if meant is not None:
        from loomctl.cli.stages import show_stage

        return show_stage(found, meant, file=file, as_json=as_json)
    if file is not None:
        raise _misused("--file needs a STAGE: loomctl show 3 --file response.md")
    if as_json:
        from loomctl.cli import answer

        driver = leases.document(space, found.run_id, found.state)
        told = {
            "run_id": found.run_id,
            "handle": found.handle,
            "run_dir": found.folder,
            "driver": driver,
            "driving": driving.told(found.state),
            "state": found.state,
        }
        lists = [one.to_dict() for one in _task_lists(space, found)]
        output.document({**told, "step": answer.step_document(space, found), "task_lists": lists})
    else:
        from loomctl.flow import prompts

        upcoming = prompts.upcoming(space.project, found, may_write=True)
        tasks = [line for one in _task_lists(space, found) for line in _tasks(found.handle, one)]
        output.prose("\n".join([*_standing(found), *_driver(space, found), "", *_course(found), *tasks, "", upcoming]))
    return EXIT_OK


def _task_lists(space: Workspace, run: Run) -> list[Listed]:
    from loomctl.flow import lines, tasks

    return [found for line in lines.every(run) if (found := tasks.listed(space, line)) is not None]


_BOXES = {"done": "[x]", "now": "[▸]", "open": "[ ]"}
_TASKS, _BEFORE_IT = 20, 6  # tasks of a list that are shown, and how many of them stand before the current one


def _tasks(handle: str, found: Listed) -> list[str]:
    """Show a list of tasks around the current one."""
    states = [state for _, state in found.tasks]
    told = found.missing or f"{states.count('done'):,} of {len(states):,} done, {found.source}"
    lines = ["", *output.beside("tasks     ", f"{one_line(found.step_id, 80)}: {one_line(told, 300)}")]
    now = states.index("now") if "now" in states else 0
    first = max(0, min(now - _BEFORE_IT, len(states) - _TASKS))
    for text, state in found.tasks[first : first + _TASKS]:
        line = f"{_BOXES[state]} {masked_line(text.strip().partition(chr(10))[0], 300)}"
        lines.append(fences.cut(line, output.columns()))
    left = len(states) - _TASKS
    return [*lines, f"{left:,} more: loomctl show {handle} --json"] if left > 0 else lines


def _misused(what: str) -> LoomError:
    return LoomError("USAGE", what, hint="loomctl show --help", exit_code=EXIT_USAGE)


def _standing(run: Run) -> list[str]:
    state = run.state
    status = one_line(state["status"], 80)
    if isinstance(state.get("feedback"), dict):
        status += f", waits for “{masked_line(str(state['feedback'].get('message') or 'an answer'), 300)}”"
    lines = [f"run       {run.handle}", *output.beside("status    ", status)]
    lines += output.beside("workflow  ", one_line(state["workflow_id"], 120))
    copied = standing.saved_from(state)
    if copied is not None:
        lines += output.beside("copy of   ", standing.saved_from_line(copied, state))
    for label, name in (("work item ", "work_id"), ("goal      ", "goal"), ("key       ", "key")):
        if state.get(name):
            lines += output.beside(label, masked_line(str(state[name]), 300))
    for name, portable in state["artifacts"].items():
        path = str(portable).removeprefix("{project_root}/").replace("{run_dir}/", f"{run.folder}/")
        lines.append(f"artifact  {one_line(str(name), 80)}: {masked_line(path, 300)}")
    return [*lines, *output.beside("sessions  ", sessions.summary(state)), f"folder    {run.folder}"]


def _driver(space: Workspace, run: Run) -> list[str]:
    from loomctl.runs.machine import drivers

    told, known = leases.document(space, run.run_id, run.state), driving.told(run.state)
    found = lease.holder(run.state)
    turns = output.beside("drive     ", driving.line(known)) if known is not None else []
    if told is None or found is None:
        return turns
    return turns + output.beside("driver    ", "this session" if told["here"] else drivers.told(found))


def _course(run: Run) -> list[str]:
    """Tell of each step of the plan what became of it, by its last visit."""
    rows = []
    last_of = visits.last_of_each(run.state)
    parallel = ""
    for place in frozen_plan.with_branches(run.plan):
        last = last_of.get(place.key)
        inside = bool(parallel) and place.key.startswith(f"{parallel}.")
        parallel = place.key if place.step.get("parallel") else parallel
        key = place.key[len(parallel) + 1 :] if inside else place.key
        mark = "✓" if visits.is_done(last) else "▸" if last is not None and last["status"] in visits.OPEN else " "
        mark = "✗" if last is not None and visits.how_it_ended(last) == visits.FAILED else mark
        rows.append((mark, ("  " if inside else "") + one_line(key, 120), last))
    widest = min(max((len(key) for _, key, _ in rows), default=0), _STEP)
    return [_of_visit(f"{mark} {key:{widest}}", last) for mark, key, last in rows]


def _of_visit(head: str, last: Mapping[str, Any] | None) -> str:
    """Tell of a step's last visit in a line, by its number alone where its stage's name has no room."""
    if last is None:
        return fences.cut(head.rstrip(), output.columns())
    said = [masked_line(visits.reason_of(last), 300), masked_line(visits.task_line(visits.task_of(last)), 200)]
    stage, told = str(last.get("stage") or ""), "".join(f": {one}" for one in said if one)
    ended = [visits.how_it_ended(last) + (f" ({one})" if one else "") for one in (stage, stage.partition("-")[0])]
    whole, short = (f"{head}  {one_line(one, 200)}{told}" for one in ended)
    return whole if fences.width(whole) <= output.columns() else fences.cut(short, output.columns())
