"""`loomctl show`, `sessions` and `paths`: what there is to see of a run and of Loom's places."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import asking, printing, stages, telling
from loomctl.cli.options import json_option, run_argument
from loomctl.disk import config, user_folders
from loomctl.engine import finding, prompts
from loomctl.model import run_life, sessions
from loomctl.model.errors import EXIT_OK, EXIT_USAGE, LoomError
from loomctl.model.fences import one_line
from loomctl.model.secrets import masked_line

if TYPE_CHECKING:
    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace


def _read(named: str | None) -> tuple[Workspace, Run]:
    space = asking.space()
    found = finding.to_read(space, named)
    assert found.run_id is not None  # to_read raises instead
    return space, space.store.read(found.run_id, to_show=True)


@click.command()
@run_argument
@click.argument("stage", required=False)
@click.option("--file", metavar="NAME", help="Print one file of the STAGE, byte for byte; nothing is masked.")
@json_option
def show(run: str | None, stage: str | None, file: str | None, as_json: bool) -> int:
    """Show a run: where it stands, what was done, what comes next; or all of one STAGE.

    A STAGE is meant by its rank, its name or the beginning of it, its step's id (the last visit), or `step@visit`; a
    stage's whole name alone is one of the current run. It is told how it ended, what it set, touched and left, then its
    prompt and answers follow, and the last lines of its command. In --json each file is whole up to 1 MiB, of a longer
    one the end.

    \b
    Examples:
      loomctl show
      loomctl show shop-258 001-frame.fetch-work@1
      loomctl show shop-258 implement@2
      loomctl show shop-258 3 --file response.md
    """
    if run is not None and stage is None and "@" in run:  # no run's id has that
        run, stage = None, run
    if file is not None and stage is None:
        what = "--file prints a file of a stage, and none is named"
        raise LoomError("USAGE", what, hint="loomctl show --help", exit_code=EXIT_USAGE)
    if file is not None and as_json:
        what = "--file prints a file as it is, --json a document"
        raise LoomError("USAGE", what, hint="loomctl show --help", exit_code=EXIT_USAGE)
    space, found = _read(run)
    if stage is not None:
        return stages.show_stage(found, stage, file=file, as_json=as_json)
    if as_json:
        printing.document(
            {
                "run_id": found.run_id,
                "run_dir": found.folder,
                "state": found.state,
                "step": telling.step_document(space, found),
            }
        )
        return EXIT_OK
    state = found.state
    lines = [
        f"run       {found.run_id}",
        f"status    {one_line(state['status'], 80)}",
        f"workflow  {one_line(state['workflow_id'], 120)}",
    ]
    if isinstance(state.get("feedback"), dict):
        lines[1] += f", waits for “{masked_line(str(state['feedback'].get('message') or 'an answer'), 300)}”"
    if state.get("work_id"):
        lines.append(f"work item {one_line(state['work_id'], 120)}")
    if state.get("goal"):
        lines.append(f"goal      {masked_line(str(state['goal']), 300)}")
    for name, path in state["artifacts"].items():
        lines.append(f"artifact  {one_line(str(name), 80)}: {masked_line(str(path), 300)}")
    lines += [f"sessions  {sessions.summary(state)}", f"folder    {found.folder}", ""]
    visits = run_life.visits_by_step(state)
    for place in run_life.places(found.plan):
        seen = visits.get(place.key, [])
        mark = "✓" if run_life.is_done(seen) else "▸" if seen and seen[-1]["status"] in run_life.OPEN else " "
        its_stage = f" ({seen[-1]['stage']})" if seen and seen[-1].get("stage") else ""
        told = run_life.how_it_ended(seen[-1]) + its_stage if seen else ""
        why = masked_line(run_life.reason_of(seen[-1]), 300) if seen else ""
        line = f"{mark} {one_line(place.key, 120)}  {one_line(told, 200)}".rstrip()
        lines.append(f"{line}: {why}" if why else line)
    lines += ["", prompts.upcoming(space.project, found, may_write=True)]
    printing.text("\n".join(lines))
    return EXIT_OK


@click.command("sessions")
@run_argument
@json_option
def sessions_command(run: str | None, as_json: bool) -> int:
    """Show the sessions of a run: who worked on it, where, when, and how each ended.

    \b
    Example:
      loomctl sessions shop-258
    """
    space, found = _read(run)
    held = sessions.history(found.state)
    names = {record.get("session_id") for record in held}
    earlier = [record for record in space.store.earlier_sessions(found.run_id) if record["session_id"] not in names]
    records = [*earlier, *held]
    if as_json:
        printing.document(
            {
                "run_id": found.run_id,
                "current_session_id": found.state["sessions"].get("current_session_id"),
                "summary": sessions.summary(found.state),
                "sessions": records,
            }
        )
        return EXIT_OK
    rows = [_row(record) for record in records]
    header = ["SESSION", "HOST", "MACHINE", "STARTED", "ENDED", "COMMIT", "PHASES", "COMPACTIONS", "ARTIFACTS"]
    printing.text(f"{found.run_id}: {sessions.summary(found.state)}\n\n" + printing.table(header, rows))
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
    space = asking.any_space()
    found: dict[str, str | None] = {
        "project_root": space.project.root,
        "store": space.store.folder,
        "plugin_root": space.project.plugin_root,
        "user_config": config.user_config() or None,
        "project_config": config.project_config(space.store.folder),
        "machine_state": user_folders.state_home() or None,
        "environment": os.environ.get("LOOM_ENV_PYTHON") or None,
    }
    run_id = finding.find(space, run).run_id
    if run_id is not None:
        read = space.store.read(run_id, to_show=True)
        found |= {
            key: value for key, value in prompts.placeholder_values(space.project, read).items() if key not in found
        }
    if as_json:
        printing.document({"paths": found})
    else:
        width = max(len(name) for name in found)
        printing.text("\n".join(f"{name.ljust(width)}  {value or '-'}" for name, value in found.items()))
    return EXIT_OK
