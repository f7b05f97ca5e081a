"""`loomctl show`, `sessions` and `paths`: what there is to see of a run and of Loom's places."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import answer, arguments, caller, output
from loomctl.cli.arguments import json_option, run_argument
from loomctl.flow import prompts
from loomctl.kit import machine
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import artifact_paths, config, find, leases, stages
from loomctl.runs.model import frozen_plan, lease, sessions, standing, visits
from loomctl.runs.store import recovery

if TYPE_CHECKING:
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run


_STEP = 40  # columns of a step's id, of which longer ones stand out


@click.command()
@run_argument
@click.argument("stage", required=False)
@click.option("--file", metavar="NAME", help="Print one file of the STAGE, byte for byte; nothing is masked.")
@json_option
def show(run: str | None, stage: str | None, file: str | None, as_json: bool) -> int:
    """Show a run: where it stands, what was done, what comes next; or all of one STAGE.

    A STAGE is meant by its rank, its name or the beginning of it, its step's id (the last visit), or `step@visit`;
    without a RUN before it, it is one of the current run. It is told how it ended, what it set, touched and left, then
    its prompt and answers follow, and the last lines of its command. In --json each file is whole up to 1 MiB, of a
    longer one the end.

    \b
    Examples:
      loomctl show
      loomctl show 3
      loomctl show shop-258 001-frame.fetch-work@1
      loomctl show shop-258 implement@2
      loomctl show shop-258 3 --file response.md
    """
    if file is not None and as_json:
        raise _misused("--file prints a file as it is, --json a document")
    space = caller.space()
    with arguments.offered_again():
        found, meant = stages.find_with_run(space, run, stage)
    if meant is not None:
        from loomctl.cli.look.stages import show_stage

        return show_stage(found, meant, file=file, as_json=as_json)
    if file is not None:
        raise _misused("--file prints a file of a stage, and none is named")
    if as_json:
        output.document(
            {
                "run_id": found.run_id,
                "run_dir": found.folder,
                "driver": leases.document(space, found.run_id, found.state),
                "state": found.state,
                "step": answer.step_document(space, found),
            }
        )
    else:
        upcoming = prompts.upcoming(space.project, found, may_write=True)
        output.text("\n".join([*_standing(found), *_driver(space, found), "", *_course(found), "", upcoming]))
    return EXIT_OK


def _misused(what: str) -> LoomError:
    return LoomError("USAGE", what, hint="loomctl show --help", exit_code=EXIT_USAGE)


def _standing(run: Run) -> list[str]:
    state = run.state
    status = one_line(state["status"], 80)
    if isinstance(state.get("feedback"), dict):
        status += f", waits for “{masked_line(str(state['feedback'].get('message') or 'an answer'), 300)}”"
    lines = [
        f"run       {run.run_id}",
        f"status    {status}",
        f"workflow  {one_line(state['workflow_id'], 120)}",
    ]
    copied = standing.saved_from(state)
    if copied is not None:
        lines.append(f"copy of   {standing.saved_from_line(copied)}")
    if state.get("work_id"):
        lines.append(f"work item {one_line(state['work_id'], 120)}")
    if state.get("goal"):
        lines.append(f"goal      {masked_line(str(state['goal']), 300)}")
    for name, path in state["artifacts"].items():
        lines.append(f"artifact  {one_line(str(name), 80)}: {masked_line(str(path), 300)}")
    return [*lines, f"sessions  {sessions.summary(state)}", f"folder    {run.folder}"]


def _driver(space: Workspace, run: Run) -> list[str]:
    told = leases.document(space, run.run_id, run.state)
    found = lease.holder(run.state)
    if told is None or found is None:
        return []
    return [f"driver    {'this session' if told['here'] else lease.told(found)}"]


def _course(run: Run) -> list[str]:
    """Tell of each step of the plan what became of it, by its last visit."""
    rows = []
    seen_of = visits.by_step(run.state)
    parallel = ""
    for place in frozen_plan.with_branches(run.plan):
        seen = seen_of.get(place.key, [])
        inside = bool(parallel) and place.key.startswith(f"{parallel}.")
        parallel = place.key if place.step.get("parallel") else parallel
        key, told = (
            ("  " if inside else "") + one_line(place.key[len(parallel) + 1 :] if inside else place.key, 120),
            "",
        )
        mark = "✓" if visits.is_done(seen) else " "
        if seen:
            last = seen[-1]
            mark = "▸" if mark == " " and last["status"] in visits.OPEN else mark
            stage = f" ({last['stage']})" if last.get("stage") else ""
            reason = masked_line(visits.reason_of(last), 300)
            told = one_line(visits.how_it_ended(last) + stage, 200) + (f": {reason}" if reason else "")
        rows.append((mark, key, told))
    widest = min(max((len(key) for _, key, _ in rows), default=0), _STEP)
    return [f"{mark} {key:{widest}}  {told}".rstrip() for mark, key, told in rows]


@click.command("sessions")
@run_argument
@json_option
def sessions_command(run: str | None, as_json: bool) -> int:
    """Show the sessions of a run: who worked on it, where, when, and how each ended.

    \b
    Example:
      loomctl sessions shop-258
    """
    space = caller.space()
    found = space.store.read(arguments.run_id(space, run), to_show=True)
    held = sessions.history(found.state)
    names = {record.get("session_id") for record in held}
    earlier = recovery.earlier_sessions(space.store.run_dir(found.run_id))
    records = [*(record for record in earlier if record["session_id"] not in names), *held]
    rows = [_row(record) for record in records]
    header = ["SESSION", "HOST", "MACHINE", "STARTED", "ENDED", "COMMIT", "PHASES", "COMPACTIONS", "ARTIFACTS"]
    summary = sessions.summary(found.state)
    told = {
        "run_id": found.run_id,
        "current_session_id": found.state["sessions"].get("current_session_id"),
        "summary": summary,
        "sessions": records,
    }
    output.answer(told, [f"{found.run_id}: {summary}", "", output.table(header, rows)], as_json=as_json)
    return EXIT_OK


def _row(record: dict[str, Any]) -> list[str]:
    described = record.get("environment")
    environment: dict[str, Any] = described if isinstance(described, dict) else {}
    ended = f"{record['ended_at']} ({record.get('end_reason')})" if record.get("ended_at") else "open"
    dirty = "+" if environment.get("dirty") is True else "" if environment.get("dirty") is False else "?"
    commit = environment.get("git_commit")
    return [
        str(record.get("session_id"))[:20],
        str(record.get("host") or ""),
        str(environment.get("hostname") or ""),
        str(record.get("started_at") or ""),
        ended,
        f"{str(commit)[:8]}{dirty}" if commit else "-",
        ",".join(str(one) for one in record.get("phases_completed") or []) or "-",
        str(len(record.get("compactions") or [])),
        str(len(record.get("artifacts_loaded") or [])),
    ]


@click.command()
@run_argument
@json_option
def paths(run: str | None, as_json: bool) -> int:
    """Show where everything is: project, store, run, bundle, settings, this machine's own state.

    \b
    Example:
      loomctl paths
    """
    space = caller.space(make=True)
    found: dict[str, str | None] = {
        "project_root": space.project.root,
        "store": space.store.folder,
        "plugin_root": space.project.plugin_root,
        "user_config": config.user_config() or None,
        "project_config": config.project_config(space.store.folder),
        "machine_state": machine.state_home() or None,
        "environment": os.environ.get("LOOM_ENV_PYTHON") or None,
    }
    run_id = find.find(space, run).run_id
    if run_id is not None:
        read = space.store.read(run_id, to_show=True)
        found |= {
            key: value
            for key, value in artifact_paths.placeholder_values(space.project, read).items()
            if key not in found
        }
    width = max(map(len, found))
    lines = (f"{name.ljust(width)}  {value or '-'}" for name, value in found.items())
    output.answer({"paths": found}, lines, as_json=as_json)
    return EXIT_OK
