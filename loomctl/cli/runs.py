"""`loomctl runs`, `sessions` and `paths`: the runs of a project or a remote, and what stands around one."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import command_line, output, person
from loomctl.cli.command_line import Command, Listing, complete_runs, json_option, run_argument, yes_option
from loomctl.kit import machine
from loomctl.kit.errors import EXIT_OK, LoomError
from loomctl.kit.text.fences import counted, one_line
from loomctl.runs import artifact_paths, config, find, leases
from loomctl.runs.model import sessions, standing
from loomctl.runs.model.state import ACTIVE
from loomctl.runs.store import run_index
from loomctl.runs.store.match import handles

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
        help="List a git remote's runs and compare them with those here.  [default: origin, or the only one]",
    )(command)


@click.group(cls=Listing, invoke_without_command=True)
@_remote_option
@json_option
@click.pass_context
def runs(context: click.Context, *, remote: str | None = None, as_json: bool = False) -> int:
    """List this project's runs; archive, restore or remove them.

    A list keeps to the width of the screen; --json has all of it.

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
    """List this project's runs, newest first, or a remote's.

    \b
    Examples:
      loomctl runs list
      loomctl runs list --remote backup
    """
    return _list_here(as_json) if remote is None else _list_there(remote, as_json)


def _list_here(as_json: bool) -> int:
    space = command_line.space(make=True)
    bound = (space.local.binding(space.caller.session_id) or {}).get("run_id")
    every = run_index.summaries(space.store)
    called = handles(space.store, every)
    found = [
        {"handle": called[one["run_id"]], **one, "bound": one["run_id"] == bound, "driver": _driver_word(space, one)}
        for one in every
    ]
    found.sort(key=lambda one: str(one.get("updated_at") or ""), reverse=True)
    if as_json or not found:
        output.answer({"runs": found}, ['No runs here yet. Start one: loomctl run "add dark mode"'], as_json=as_json)
        return EXIT_OK
    others = {one["run_id"]: one["driver"] for one in found if one["driver"] and not one["driver"]["here"]}
    copies = {one["run_id"]: standing.saved_from_line(one["saved_from"], one) for one in found if one.get("saved_from")}
    rows = [
        [
            ("* " if one["bound"] else "  ") + one["handle"],
            one["status"] or "unknown",
            one.get("current_step") or "",
            output.when(one.get("updated_at")),
            one.get("sessions") or "",
            _who(others.get(one["run_id"])),
            copies.get(one["run_id"], ""),
        ]
        for one in found
        if "error" not in one
    ]
    header = ["  RUN", "STATUS", "STEP", "UPDATED", "SESSIONS", "DRIVEN BY", "COPY OF"]
    lines = [output.table(header, rows, always=5, keep=(0, 1, 3), spare=(4,))] if rows else []
    broken = [f"{one['handle']} is unreadable: {one['error']}" for one in found if "error" in one]
    output.text("\n".join([*lines, *(line for one in broken for line in output.beside("! ", one))]))
    return EXIT_OK


def _list_there(named: str, as_json: bool) -> int:
    from loomctl.handoff import copies
    from loomctl.handoff.handoff import Desk

    desk = Desk(
        command_line.space(make=True), None if named == _UNNAMED else named, asks=not as_json and sys.stdin.isatty()
    )
    found = copies.list_runs(desk)
    if as_json or not found:
        none = f"{desk.remote.shown} has no runs. To push one: loomctl push{desk.remote.option}"
        told = {"remote": desk.remote.shown, "runs": [{**one._asdict(), "handle": one.handle} for one in found]}
        output.answer(told, [none], as_json=as_json)
        return EXIT_OK
    header = ["RUN", "WORK", "STATUS", "STEP", "PUSHED", "HERE"]
    at = [f"{output.when(one.at)} by {one.by} ({one.machine})" if one.at else "" for one in found]
    rows = [[one.handle, one.work, one.status, one.step, when, one.here] for one, when in zip(found, at, strict=True)]
    output.text(output.table(header, rows, keep=(0, 2, 5), spare=(1,)))
    for one in found:
        if one.trouble:
            called = one.handle
            way = f"loomctl pull {called}{desk.remote.option}"
            output.prose(f"! {called}: {one_line(one.trouble, 300)}. To see why: {way}")
    return EXIT_OK


def _driver_word(space: Workspace, summary: Mapping[str, Any]) -> dict[str, Any] | None:
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
    """Remove a run and everything that Loom recorded of it.

    Your own files stay.

    \b
    Examples:
      loomctl runs rm shop-258
      loomctl runs rm shop-258 --yes
    """
    from loomctl.care import keep

    space = command_line.space()
    run_id = keep.removable(space, run, force=force)
    called = space.store.handle(run_id)
    if not yes:
        question, hint = f"Remove {called} and all that Loom recorded of it?", f"loomctl runs rm {called} --yes"
        output.must_agree(question, asks=not as_json, what="Loom removed nothing", hint=hint)
    person.must_decide(space, "runs rm", called, *(["--force"] if force else ()))
    keep.remove(space, run_id, force=force)
    output.answer(
        {"run_id": run_id, "handle": called, "removed": True},
        [f"Loom: removed {called}{_its_blobs(space)}"],
        as_json=as_json,
    )
    return EXIT_OK


def _its_blobs(space: Workspace) -> str:
    from loomctl.runs.store.blobs import Blobs

    some = os.path.isdir(Blobs(space.store.folder).folder)
    return ". To remove its large values too: loomctl clean" if some else ""


@runs.command("archive")
@click.argument("run", shell_complete=complete_runs)
@click.option(
    "--to",
    "target",
    type=click.Path(),
    metavar="DIR|FILE",
    help="Where to write it.  [default: .loom/archive/RUN.tar.gz]",
)
@click.option("--force", is_flag=True, help="Archive a run that is still active.")
@json_option
def archive(run: str, target: str | None, force: bool, as_json: bool) -> int:
    """Pack a run into a .tar.gz and remove its folder.

    The archive contains the run's large values. Loom reads the archive back before it removes anything.

    \b
    Examples:
      loomctl runs archive shop-258
      loomctl runs archive shop-258 --to ~/archives/
      loomctl runs restore shop-258
    """
    from loomctl.care import keep

    space = command_line.space()
    run_id = keep.removable(space, run, force=force)
    path = keep.archive_path(space, run_id, target)
    person.refuse_beyond(path)
    called = space.store.handle(run_id)
    count, lost = keep.archive(space, run_id, path, force=force)
    told = {"run_id": run_id, "handle": called, "archive": path, "files": count, "lost_blobs": list(lost)}
    lines = [f"Loom: moved {called} to {path} ({counted(count, 'file')})", *_lost(lost)]
    lines.append(f"To bring it back: loomctl runs restore {shlex.quote(path)}")
    output.answer(told, lines, as_json=as_json)
    return EXIT_OK


def _lost(refs: Sequence[str]) -> list[str]:
    return [f"! missing or damaged, so not included: {ref}" for ref in refs]


@runs.command("restore")
@click.argument("archive", type=click.Path())
@json_option
def restore(archive: str, as_json: bool) -> int:
    """Bring an archived run back.

    ARCHIVE is a file, or the name of a run below .loom/archive. Loom checks the archive first: it must hold one run
    with plain files, and that run must not be here already. The archive stays.

    \b
    Examples:
      loomctl runs restore shop-258
      loomctl runs restore ~/archives/shop-258-run-2026-01-01T00-00-00Z.tar.gz
    """
    from loomctl.care import keep
    from loomctl.runs import archives

    space = command_line.space(make=True)
    back = keep.bring_back(space, archives.named_archive(space.store.folder, archive))
    trouble = back.trouble.to_dict() if back.trouble is not None else None
    called = space.store.handle(back.run_id)
    told = {"run_id": back.run_id, "handle": called, "archive": back.archive, "files": back.files, "trouble": trouble}
    lines = [f"Loom: restored {called} ({counted(back.files, 'file')})", *_lost(back.lost)]
    if back.trouble is not None:
        lines.append(f"! its state is damaged ({back.trouble.code}). Restore it: loomctl debug state restore {called}")
    lines.append(f"To look at it: loomctl show {called}. To continue it: loomctl resume {called}")
    output.answer({**told, "lost_blobs": list(back.lost)}, lines, as_json=as_json)
    return EXIT_OK


@click.command("sessions")
@run_argument
@json_option
def sessions_command(run: str | None, as_json: bool) -> int:
    """List a run's sessions: who, where, when, how each ended.

    Columns that do not fit are left out; --json has them all, with times in UTC.

    \b
    Examples:
      loomctl sessions
      loomctl sessions shop-258
    """
    space = command_line.space()
    found = space.store.read(command_line.run_id(space, run), to_show=True)
    held = sessions.history(found.state)
    names = {record.get("session_id") for record in held}
    from loomctl.runs.store import recovery

    earlier = recovery.earlier_sessions(space.store.run_dir(found.run_id))
    records = [*(record for record in earlier if record["session_id"] not in names), *held]
    rows = [_row(record) for record in records]
    header = ["SESSION", "HOST", "MACHINE", "STARTED", "ENDED", "COMMIT", "PHASES", "COMPACTIONS", "ARTIFACTS"]
    table = output.table(header, rows, keep=(3,), spare=(8, 1, 6, 5))
    summary = sessions.summary(found.state)
    current = found.state["sessions"].get("current_session_id")
    told = {
        "run_id": found.run_id,
        "handle": found.handle,
        "current_session_id": current,
        "summary": summary,
        "sessions": records,
    }
    output.answer(told, [f"{found.handle}: {summary}", "", table], as_json=as_json)
    return EXIT_OK


def _row(record: dict[str, Any]) -> list[str]:
    described = record.get("environment")
    environment: dict[str, Any] = described if isinstance(described, dict) else {}
    ended = f"{output.when(record['ended_at'])} ({record.get('end_reason')})" if record.get("ended_at") else "open"
    dirty = "+" if environment.get("dirty") is True else "" if environment.get("dirty") is False else "?"
    commit = environment.get("git_commit")
    return [
        str(record.get("session_id"))[:20],
        str(record.get("host") or ""),
        str(environment.get("hostname") or ""),
        output.when(record.get("started_at")),
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
    """Show where things are: project, runs, settings, bundle.

    \b
    Examples:
      loomctl paths
      loomctl paths shop-258
    """
    space = command_line.space(make=True)
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
