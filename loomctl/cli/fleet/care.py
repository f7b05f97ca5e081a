"""`loomctl fleet clean`, `doctor`, `init` and `rebuild`: the care of a fleet's queue."""

from __future__ import annotations

import click

from loomctl.cli import output, person
from loomctl.cli.command_line import json_option
from loomctl.cli.fleet.board import fleet_command
from loomctl.cli.fleet.commands import opened, postgres, queue_option
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK
from loomctl.kit.text.fences import counted


@fleet_command.command()
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@queue_option
@json_option
def clean(dry_run: bool, queue: str | None, as_json: bool) -> int:
    """Forget runs that are over, and remove worktrees of theirs that are merged.

    The runs themselves stay. The fleet's cost is that of the runs that it knows, so this lowers it.

    \b
    Examples:
      loomctl fleet clean
      loomctl fleet clean --dry-run
    """
    from loomctl.fleet.model import OVER
    from loomctl.handoff import worktrees

    fleet = opened(queue)
    over = fleet.queue.rows(OVER)
    trees = [one for one in worktrees.look(fleet.space) if one.run_id in {row.run_id for row in over}]
    goes = [one for one in trees if one.goes]
    if not dry_run:
        person.must_decide(fleet.space, "fleet clean")
        fleet.queue.drop([one.run_id for one in over])
        done = worktrees.clean(fleet.space, goes)
        goes = list(done.removed)
    would = "would forget" if dry_run else "forgot"
    lines = [f"Loom: {would} {counted(len(over), 'run')}, and removed {counted(len(goes), 'worktree')}"]
    stay = [one for one in trees if not one.goes]
    lines += [f"  {one.path} stays: {one.why}" for one in stay]
    lines += ["To remove what stays once that is mended: loomctl clean"] if stay else []
    told = {"runs": len(over), "worktrees": [one.path for one in goes], "dry_run": dry_run}
    output.answer(told, lines, as_json=as_json)
    return EXIT_OK


@fleet_command.command()
@click.option("--dry-run", is_flag=True, help="Say what differs; mend nothing.")
@queue_option
@json_option
def doctor(dry_run: bool, queue: str | None, as_json: bool) -> int:
    """Compare the queue with the runs, both ways, and mend the queue.

    Exit codes: 0 they agree, or the queue was mended. 1 they differ, with --dry-run.

    \b
    Examples:
      loomctl fleet doctor --dry-run
      loomctl fleet doctor
    """
    from loomctl.fleet import mend

    fleet = opened(queue)
    found, rows = mend.compare(fleet.space, fleet.queue, fleet.repository, travels=fleet.travels)
    if not dry_run:
        mend.mend(fleet.space, fleet.queue, found, rows, travels=fleet.travels)
    lines = [
        f"{one.handle}: the queue says {one.queue or 'nothing'}, the run {one.state or 'that it is none of the fleet'}"
        for one in found
    ]
    lines.append(f"Loom: {'the queue agrees with the runs' if not found else 'mended the queue'}")
    if dry_run and found:
        lines[-1] = "To mend the queue: loomctl fleet doctor"
    output.answer({"differences": [one._asdict() for one in found], "mended": not dry_run}, lines, as_json=as_json)
    return EXIT_FINDINGS if dry_run and found else EXIT_OK


@fleet_command.command("init")
@queue_option
@json_option
def init_command(queue: str | None, as_json: bool) -> int:
    """Make the tables of a queue that machines share, or bring them to this version.

    They stand in the schema `loom_fleet` of the database; PostgreSQL 14 or later has it. The queue of one machine needs
    none of this.

    \b
    Examples:
      loomctl fleet init --queue postgresql://loom@db.example.org/loom
      loomctl fleet init
    """
    if not queue:
        raise click.UsageError("give --queue postgresql://…, or set LOOM_QUEUE; on one machine there is nothing to do")
    made = postgres().Server(queue).make()
    said = f"Loom: {'made the tables' if made else 'the tables are there'}"
    output.answer({"made": made}, [said, "To put your runs into it: loomctl fleet rebuild"], as_json=as_json)
    return EXIT_OK


@fleet_command.command()
@queue_option
@json_option
def rebuild(queue: str | None, as_json: bool) -> int:
    """Make the queue anew from the runs of this machine, and of the remote if several share it.

    It has the runs that were cleaned away, too, and counts what they cost.

    \b
    Examples:
      loomctl fleet rebuild
      loomctl fleet rebuild --queue postgresql://loom@db.example.org/loom
    """
    from loomctl.fleet import mend

    if queue:
        postgres().Server(queue).make()
    fleet = opened(queue, note=False)
    number = mend.rebuild(fleet.space, fleet.queue, fleet.repository, travels=fleet.travels)
    output.answer({"runs": number}, [f"Loom: made the fleet's queue from {counted(number, 'run')}"], as_json=as_json)
    return EXIT_OK
