"""`loomctl runs`: list the runs of a project or of a remote, remove one, archive one, bring one back."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from loomctl.cli import caller, output
from loomctl.cli.arguments import Command, Listing, complete_runs, json_option, yes_option
from loomctl.kit.errors import EXIT_OK, LoomError
from loomctl.kit.text.fences import counted, one_line
from loomctl.runs import leases
from loomctl.runs.model import standing
from loomctl.runs.model.state import ACTIVE
from loomctl.runs.store import run_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.project import Workspace


_UNNAMED = "\0"  # no command line holds it


def _remote_option(command: Command) -> Command:
    return click.option(
        "--remote",
        is_flag=False,
        flag_value=_UNNAMED,
        metavar="[NAME|URL]",
        help="The runs of a git remote (without a name: of origin or the only one), and how they stand to those here.",
    )(command)


@click.group(cls=Listing, invoke_without_command=True)
@_remote_option
@json_option
@click.pass_context
def runs(context: click.Context, *, remote: str | None = None, as_json: bool = False) -> int:
    """List the runs of this project; `rm` and `archive` put them away, `restore` brings one back.

    \b
    Examples:
      loomctl runs
      loomctl runs --json
      loomctl runs --remote
      loomctl runs archive shop-258
    """
    if context.invoked_subcommand is not None:
        return EXIT_OK
    return _list_here(as_json) if remote is None else _list_there(remote, as_json)


@runs.command("list")
@_remote_option
@json_option
def list_command(remote: str | None, as_json: bool) -> int:
    """List the runs of this project, the newest first, or a remote's.

    \b
    Examples:
      loomctl runs list
      loomctl runs list --remote backup
    """
    return _list_here(as_json) if remote is None else _list_there(remote, as_json)


def _list_here(as_json: bool) -> int:
    space = caller.space(make=True)
    bound = (space.local.binding(space.caller.session_id) or {}).get("run_id")
    found = [
        {**one, "bound": one["run_id"] == bound, "driver": _driver(space, one)}
        for one in run_index.summaries(space.store)
    ]
    found.sort(key=lambda one: str(one.get("updated_at") or ""), reverse=True)
    if as_json:
        output.document({"runs": found})
        return EXIT_OK
    if not found:
        output.text('No runs here yet. Start one: loomctl run "what to do"')
        return EXIT_OK
    others = {one["run_id"]: one["driver"] for one in found if one["driver"] and not one["driver"]["here"]}
    copies = {one["run_id"]: standing.saved_from_line(one["saved_from"]) for one in found if one.get("saved_from")}
    rows = [
        [
            ("* " if one["bound"] else "  ") + one["run_id"],
            one.get("status") or "unreadable",
            one.get("current_step") or "",
            one.get("sessions") or one.get("error", ""),
            one.get("updated_at") or "",
            _who(others.get(one["run_id"])),
            copies.get(one["run_id"], ""),
        ]
        for one in found
    ]
    header = ["  RUN", "STATUS", "STEP", "SESSIONS", "UPDATED", "DRIVEN BY", "COPY OF"]
    shown = [at for at in range(len(header)) if at < 5 or any(row[at] for row in rows)]
    output.text(output.table([header[at] for at in shown], [[row[at] for at in shown] for row in rows]))
    return EXIT_OK


def _list_there(named: str, as_json: bool) -> int:
    from loomctl.handoff import copies
    from loomctl.handoff.handoff import Desk

    desk = Desk(caller.space(make=True), None if named == _UNNAMED else named, asks=not as_json and sys.stdin.isatty())
    found = copies.list_runs(desk)
    if as_json:
        output.document({"remote": desk.remote.shown, "runs": [one._asdict() for one in found]})
        return EXIT_OK
    if not found:
        output.text(f"{desk.remote.shown} has no runs. To hand one on: loomctl push{desk.remote.option}")
        return EXIT_OK
    header = ["RUN", "WORK", "STATUS", "STEP", "PUSHED", "HERE"]
    at = [f"{one.at} by {one.by} ({one.machine})" if one.at else "" for one in found]
    rows = [[one.run_id, one.work, one.status, one.step, when, one.here] for one, when in zip(found, at, strict=True)]
    output.text(output.table(header, rows))
    for one in found:
        if one.trouble:
            way = f"loomctl pull {one.run_id}{desk.remote.option}"
            output.text(f"! {one.run_id}: {one_line(one.trouble, 300)}; {way} says why, and what can be done")
    return EXIT_OK


def _driver(space: Workspace, summary: Mapping[str, Any]) -> dict[str, Any] | None:
    if summary.get("status") not in ACTIVE:
        return None
    try:
        return leases.document(space, summary["run_id"], space.store.glance(space.store.home(summary["run_id"])))
    except LoomError:
        return None


def _who(driver: Mapping[str, Any] | None) -> str:
    return f"{one_line(driver['session_id'], 20)} on {one_line(driver['hostname'], 40)}" if driver else ""


@runs.command("rm")
@click.argument("run", shell_complete=complete_runs)
@yes_option
@click.option("--force", is_flag=True, help="Remove a run that is still active.")
@json_option
def remove(run: str, yes: bool, force: bool, as_json: bool) -> int:
    """Remove a run and everything Loom recorded of it. The project's own files stay.

    \b
    Example:
      loomctl runs rm shop-258 --yes
    """
    from loomctl.care import keep

    space = caller.space()
    run_id = keep.removable(space, run, force=force)
    folder = space.store.run_dir(run_id)
    if not yes:
        question, hint = f"Remove {folder} and all that is in it?", f"loomctl runs rm {run_id} --yes"
        output.must_agree(question, asks=not as_json, what="nothing was removed", hint=hint)
    caller.must_decide(space, "runs rm", run_id, *(["--force"] if force else ()))
    keep.remove(space, run_id, force=force)
    if as_json:
        output.document({"run_id": run_id, "removed": True})
    else:
        output.text(f"Loom: run {run_id} is removed{_its_blobs(space)}")
    return EXIT_OK


def _its_blobs(space: Workspace) -> str:
    from loomctl.runs.store.blobs import Blobs

    some = os.path.isdir(Blobs(space.store.folder).folder)
    return "; loomctl clean removes the large values that no run refers to" if some else ""


@runs.command("archive")
@click.argument("run", shell_complete=complete_runs)
@click.option(
    "--to", "target", type=click.Path(), metavar="DIR|FILE", help="Where to (default: .loom/archive/RUN.tar.gz)."
)
@click.option("--force", is_flag=True, help="Archive a run that is still active.")
@json_option
def archive(run: str, target: str | None, force: bool, as_json: bool) -> int:
    """Pack a run and its large values into one .tar.gz, read it back, and remove the run's folder.

    \b
    Examples:
      loomctl runs archive shop-258
      loomctl runs archive shop-258 --to ~/archives/
      loomctl runs restore shop-258
    """
    from loomctl.care import keep

    space = caller.space()
    run_id = keep.removable(space, run, force=force)
    path = keep.archive_path(space, run_id, target)
    count, lost = keep.archive(space, run_id, path, force=force)
    if as_json:
        output.document({"run_id": run_id, "archive": path, "files": count, "lost_blobs": list(lost)})
        return EXIT_OK
    lines = [f"Loom: run {run_id} is in {path} ({counted(count, 'file')})", *_lost(lost)]
    output.text("\n".join([*lines, f"To bring it back: loomctl runs restore {shlex.quote(path)}"]))
    return EXIT_OK


def _lost(refs: Sequence[str]) -> list[str]:
    return [f"Not with it, for it is not here or damaged: {ref}" for ref in refs]


@runs.command("restore")
@click.argument("archive", type=click.Path())
@json_option
def restore(archive: str, as_json: bool) -> int:
    """Bring a run back from its archive: a file, or the beginning of the id of one below .loom/archive.

    The archive stays. Nothing of it is believed unseen: it must hold one run's folder with plain files, under the id
    that the run's state says, and no run of that id may be here.

    \b
    Examples:
      loomctl runs restore shop-258
      loomctl runs restore ~/archives/shop-258-run-2026-01-01T00-00-00Z.tar.gz
    """
    from loomctl.care import keep
    from loomctl.runs import archives

    space = caller.space(make=True)
    back = keep.bring_back(space, archives.named_archive(space.store.folder, archive))
    if as_json:
        trouble = back.trouble.to_dict() if back.trouble is not None else None
        told = {"run_id": back.run_id, "archive": back.archive, "files": back.files, "trouble": trouble}
        output.document({**told, "lost_blobs": list(back.lost)})
        return EXIT_OK
    lines = [f"Loom: run {back.run_id} is back ({counted(back.files, 'file')})", *_lost(back.lost)]
    if back.trouble is not None:
        lines.append(f"Its state cannot be read ({back.trouble.code}): loomctl state restore {back.run_id}")
    lines.append(f"To look at it: loomctl show {back.run_id}; to go on: loomctl resume {back.run_id}")
    output.text("\n".join(lines))
    return EXIT_OK
