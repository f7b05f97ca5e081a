"""`loomctl check` and `prove --log`: mistakes in files, and whether a run's files are those that were written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loomctl.care import file_checks
from loomctl.cli import answer, command_line, output
from loomctl.cli.command_line import complete_workflows, json_option, run_argument
from loomctl.flow import suites
from loomctl.handoff import copies
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_INVALID, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.problems import Problem, errors, is_id, warning
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import config, log_verdict
from loomctl.runs.model import frozen_plan
from loomctl.runs.store import events, visit_files
from loomctl.workflows import workflow_files
from loomctl.workflows.check import check_file, plan_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.care.file_checks import Files, FileTold
    from loomctl.handoff.copies import WayOn
    from loomctl.runs.log_verdict import Verdict
    from loomctl.runs.project import Workspace

FABERS_LIST = "workflows.yaml"  # which of its workflows FABER offers
_SHOWN = 5  # faults behind the first one that are listed


@click.command()
@click.argument("targets", nargs=-1, metavar="FILE|WORKFLOW...", shell_complete=complete_workflows)
@json_option
def check(targets: tuple[str, ...], as_json: bool) -> int:
    """Check workflows and a run's files for mistakes.

    It reads workflow, plan and state files, settings and a run's events. It names each problem, its place and what to
    do. It lists the commands that a run of a workflow would execute, and what its steps let an assistant use. Without
    a target it checks the settings and the project's own workflows, FABER's too. Exit code 5 if it finds an error.

    \b
    Examples:
      loomctl check .loom/workflows/review.yaml
      loomctl check core
      loomctl check .loom/runs/*/state.json .loom/runs/*/events.jsonl
    """
    space = command_line.space(make=True)
    places, tests = workflow_files.places_of(space.project), suites.of(space).command
    found: dict[str, list[Problem]] = {}
    plans: dict[str, dict[str, Any]] = {}
    settings = _settings(space)
    if not targets:
        found |= {path: problems for path, problems in settings.items() if problems}
    for target in targets or _own(places):
        if os.path.realpath(target) in settings:
            found[target] = settings[os.path.realpath(target)]
            continue
        is_file = os.path.exists(target) and not (is_id(target) and os.path.isdir(target))
        path = target if is_file else workflow_files.locate(target, places).path
        found[target] = check_file(path, places, by_user=bool(targets))
        if not errors(found[target]) and (plan := plan_of(path, places, tests)) is not None:
            plans[target] = plan
    failed = any(errors(problems) for problems in found.values())
    said = {target: [problem._asdict() for problem in problems] for target, problems in found.items()}
    runs = {one: plan["commands"] for one, plan in plans.items()}
    uses = {one: frozen_plan.allowed(plan) for one, plan in plans.items()}
    listed = [
        {"target": one, "problems": said[one], "commands": runs.get(one, []), "allow": uses.get(one, [])}
        for one in found
    ]
    lines = [
        line for one, problems in found.items() for line in _lines(one, problems, runs.get(one, ()), uses.get(one, ()))
    ]
    output.answer(
        {"ok": not failed, "files": listed},
        lines or ["This project has no workflow of its own. To check a bundled one: loomctl check core"],
        as_json=as_json,
    )
    return EXIT_INVALID if failed else EXIT_OK


def _settings(space: Workspace) -> dict[str, list[Problem]]:
    """Give what is wrong with each file of settings that is there; one that cannot be read was refused before."""
    found: dict[str, list[Problem]] = {}
    for path in (config.user_config(), config.project_config(space.store.folder)):
        said = [text for code, text in space.settings.warnings if code == config.UNKNOWN]
        own = [text.removeprefix(f"{path}: ") for text in said if text.startswith(f"{path}: ")]
        if os.path.isfile(path):
            found[os.path.realpath(path)] = [warning(config.UNKNOWN, "$", text) for text in own]
    return found


def _own(places: workflow_files.Places) -> list[str]:
    """List the project's own workflow files; beside FABER's its list of them may stand, which is none."""
    found: list[str] = []
    for folder in workflow_files.project_folders(places):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        paths = [os.path.join(folder, name) for name in names if name.endswith(workflow_files.SUFFIXES)]
        is_fabers = not folder.startswith(places.store)
        found += [path for path in paths if not (is_fabers and os.path.basename(path) == FABERS_LIST)]
    return found


def _lines(
    target: str,
    problems: list[Problem],
    commands: Sequence[Mapping[str, str]],
    allowed: Sequence[Mapping[str, str]],
) -> list[str]:
    lines = [] if problems else [f"{target}: ok"]
    for problem in problems:
        lines.append(f"{target}: {problem.severity}: {problem.code} at {problem.where}: {problem.message}")
        if problem.hint:
            lines.append(f"  hint: {problem.hint}")
    if commands:
        lines += [f"{target}: it runs these commands in a shell:", *answer.command_lines(commands)]
    if allowed:
        lines += [f"{target}: the steps may use, without asking:", *answer.allowed_lines(allowed)]
    return lines


@click.command()
@run_argument
@click.option("--all", "every", is_flag=True, help="Check every run of this project.")
@json_option
def verify(run: str | None, every: bool, as_json: bool) -> int:
    """Check a run's log and files against their hashes.

    Each log entry holds the hash of the line before it, and the state that of the last one. So Loom finds a changed
    byte and a line that somebody removed, added or moved. It also compares answers, assets, evidence and large values
    with their hashes.

    It names the first entry that does not match. "Unproven" means that Loom cannot tell: the file may have changed
    since, or is elsewhere. It does not detect somebody who forges log and state together. Exit code 1 if something does
    not match, 5 if Loom cannot read a run.

    \b
    Examples:
      loomctl prove --log
      loomctl prove --log shop-258 --json
      loomctl prove --log --all
    """
    if every and run:
        raise LoomError("USAGE", "give RUN or --all, not both", hint="loomctl prove --log --all", exit_code=EXIT_USAGE)
    space = command_line.space()
    if not every:
        return _print([_examine(space, command_line.shown_run_id(space, run))], [], as_json=as_json)
    found, unread = _every(space)
    return _print(found, unread, as_json=as_json, every=True)


class _Verified(NamedTuple):
    verdict: Verdict
    files: Files
    way: WayOn | None
    handle: str

    @property
    def ok(self) -> bool:
        return self.verdict.ok and self.files.ok

    def to_dict(self) -> dict[str, Any]:
        more = {"left": self.way.said, "hint": self.way.hint} if self.way is not None else {}
        return {**self.verdict.to_dict(), "handle": self.handle, "ok": self.ok, "files": self.files.to_dict(), **more}


def _examine(space: Workspace, run_id: str) -> _Verified:
    verdict, held = log_verdict.verify(space.store, run_id), file_checks.check(space, run_id)
    return _Verified(verdict, held, _way_on(space, verdict, held), space.store.handle(run_id))


def _way_on(space: Workspace, verdict: Verdict, held: Files) -> WayOn | None:
    run_id = verdict.run_id
    called = space.store.handle(run_id)
    if verdict.fault is not None:
        return copies.way_on(space, run_id, events.FILE, otherwise=f"loomctl show --stages {called}")
    if not held.faults:
        return None
    first = held.faults[0]
    if not first.stage and first.code == file_checks.DAMAGED_BLOB:
        return copies.WayOn("the run uses it; a backup of yours may have it undamaged", "loomctl doctor")
    if visit_files.is_one(first.file.removeprefix("stages/")):
        said = "Loom can rebuild it from its good lines and the steps' own records"
        return copies.WayOn(said, f"loomctl debug state restore {space.store.handle(run_id)}")
    whole = "/" in first.file or first.file in ("state.json", "plan.json")
    path = first.file if whole else f"stages/{first.stage}/{first.file}"
    return copies.way_on(space, run_id, path, otherwise=f"loomctl show {called} {first.stage}".rstrip())


def _every(space: Workspace) -> tuple[list[_Verified], list[tuple[str, str, LoomError]]]:
    found: list[_Verified] = []
    unread: list[tuple[str, str, LoomError]] = []
    for run_id in space.store.run_ids():
        try:
            found.append(_examine(space, run_id))
        except LoomError as error:
            unread.append((run_id, space.store.handle(run_id), error))
    return found, unread


def _print(
    found: Sequence[_Verified], unread: Sequence[tuple[str, str, LoomError]], *, as_json: bool, every: bool = False
) -> int:
    if as_json and not every:
        output.document(found[0].to_dict())
    elif as_json:
        refused = [{"run_id": run_id, "handle": handle, "error": error.to_dict()} for run_id, handle, error in unread]
        ok = not refused and all(one.ok for one in found)
        output.document({"ok": ok, "runs": [one.to_dict() for one in found], "unreadable": refused})
    else:
        lines = [line for one in found for line in _run_lines(one)]
        for _, handle, error in unread:
            lines.append(f"✗ {handle}: {error.code}: {one_line(error.what, 200)}")
            lines += [f"  hint: {error.hint}"] if error.hint else []
        output.prose("\n".join(lines) or "No runs here yet.")
    if unread:
        return EXIT_INVALID
    return EXIT_OK if all(one.ok for one in found) else EXIT_FINDINGS


def _run_lines(looked: _Verified) -> list[str]:
    lines = [*_log_lines(looked.verdict, looked.handle, mark="✓" if looked.ok else "✗"), *_file_lines(looked.files)]
    if looked.way is not None:
        lines += [f"  next: {looked.way.said}", f"  hint: {looked.way.hint}"]
    return lines


def _log_lines(verdict: Verdict, handle: str, *, mark: str) -> list[str]:
    if verdict.fault is None:
        lines = [f"{mark} {handle}: {verdict.summary}"]
    else:
        lines = [f"{mark} {handle}: {verdict.fault.what}", f"  where: {verdict.path}"]
        lines.append(f"  first: line {verdict.fault.line}, byte {verdict.fault.at:,} ({verdict.fault.code})")
        lines += [f"  why: {verdict.fault.why}"] if verdict.fault.why else []
        for fault in verdict.faults[1 : 1 + _SHOWN]:
            lines.append(f"  then: line {fault.line}, byte {fault.at:,} ({fault.code}): {fault.what}")
        more = verdict.total - 1 - _SHOWN
        lines += [f"  and {more:,} more"] if more > 0 else []
    if verdict.unproven and verdict.beyond is not None:
        said = f"unproven: {counted(verdict.unproven, 'event')} after the last checkpoint"
        lines.append(f"  {said}, from line {verdict.beyond.line}")
    if verdict.torn_at is not None and verdict.fault is None:
        said = f"torn: line {verdict.torn_at.line} is incomplete ({counted(verdict.torn, 'byte')})"
        lines.append(f"  {said}; a killed process left it, and the next write repairs it")
    if verdict.told_torn:
        lines.append(f"  torn before: {counted(verdict.told_torn, 'line')}, recorded in the log")
    return lines


def _file_lines(held: Files) -> list[str]:
    counts = [f"{held.proven:,} proven"] if held.proven else []
    counts += [f"{held.faulty:,} changed"] if held.faulty else []
    counts += [f"{held.unproven:,} unproven"] if held.unproven else []
    lines = [f"  files: {', '.join(counts)}"] if counts else []
    lines += [f"  {one.code}: {_file(one)}" for one in held.faults[:_SHOWN]]
    lines += [f"  and {counted(held.faulty - _SHOWN, 'file')} more"] if held.faulty > _SHOWN else []
    lines += [f"  unproven: {_file(one)}" for one in held.open[:_SHOWN]]
    lines += [f"  and {counted(held.unproven - _SHOWN, 'file')} more"] if held.unproven > _SHOWN else []
    lines += [f"  unproven: {counted(held.without, 'answer')} without a hash in the log"] if held.without else []
    if held.bare:
        named = masked_line(", ".join(held.bare[:_SHOWN]), 300)
        more = f" and {len(held.bare) - _SHOWN} more" if len(held.bare) > _SHOWN else ""
        lines.append(f"  not covered: {named}{more}: the log holds no hash of these")
    return lines


def _file(one: FileTold) -> str:
    of = f" of {masked_line(one.stage, 120)}" if one.stage else ""
    return f"{masked_line(one.file, 200)}{of}: {masked_line(one.why, 300)}"
