"""`loomctl check`: every problem of a workflow, plan or state file, or of a run's events, at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from loomctl.cli import answer, caller, output
from loomctl.cli.arguments import complete_workflows, json_option
from loomctl.kit.errors import EXIT_INVALID, EXIT_OK
from loomctl.kit.problems import Problem, errors
from loomctl.workflows import workflow_files
from loomctl.workflows.check import check_file, commands_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FABERS_LIST = "workflows.yaml"  # which of its workflows FABER offers


@click.command()
@click.argument("targets", nargs=-1, metavar="FILE|WORKFLOW...", shell_complete=complete_workflows)
@json_option
def check(targets: tuple[str, ...], as_json: bool) -> int:
    """Check workflow, plan and state files and a run's events: every problem with its place and what to do.

    Of a workflow it lists the commands that a run of it would run. Without a target: the project's own workflows,
    FABER's among them. Exit code 5 if anything is an error.

    \b
    Examples:
      loomctl check .loom/workflows/review.yaml
      loomctl check core
      loomctl check .loom/runs/*/state.json .loom/runs/*/events.jsonl
    """
    project = caller.space(make=True).project
    places = workflow_files.Places(os.path.dirname(project.store), project.store, project.plugin_root)
    found: dict[str, list[Problem]] = {}
    runs: dict[str, list[dict[str, str]]] = {}
    for target in targets or _own(places):
        path = target if os.path.exists(target) else workflow_files.locate(target, places).path
        found[target] = check_file(
            path, project_dir=places.project_dir, store=places.store, bundle=places.bundle, by_user=bool(targets)
        )
        if not errors(found[target]):
            runs[target] = commands_of(path, project_dir=places.project_dir, store=places.store, bundle=places.bundle)
    failed = any(errors(problems) for problems in found.values())
    if as_json:
        files = [
            {
                "target": target,
                "problems": [problem._asdict() for problem in problems],
                "commands": runs.get(target, []),
            }
            for target, problems in found.items()
        ]
        output.document({"ok": not failed, "files": files})
    else:
        told = [_lines(target, problems, runs.get(target, ())) for target, problems in found.items()]
        output.text("\n".join(line for lines in told for line in lines) or "nothing to check here")
    return EXIT_INVALID if failed else EXIT_OK


def _own(places: workflow_files.Places) -> list[str]:
    """List the project's own workflow files; beside FABER's its list of them may stand, which is none."""
    found: list[str] = []
    for folder in workflow_files.project_folders(places):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        paths = [os.path.join(folder, name) for name in names if name.endswith(workflow_files.SUFFIXES)]
        is_fabers = not folder.startswith(places.store)
        found += [path for path in paths if not (is_fabers and os.path.basename(path) == FABERS_LIST)]
    return found


def _lines(target: str, problems: list[Problem], commands: Sequence[Mapping[str, str]]) -> list[str]:
    lines = [] if problems else [f"{target}: ok"]
    for problem in problems:
        lines.append(f"{target}: {problem.severity}: {problem.code} at {problem.where}: {problem.message}")
        if problem.hint:
            lines.append(f"  hint: {problem.hint}")
    return [*lines, f"{target}: it runs, in a shell:", *answer.command_lines(commands)] if commands else lines
