"""`loomctl init`: two questions, then a workflow of the project's own and its test command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from loomctl.cli import command_line, output, person
from loomctl.cli.command_line import json_option
from loomctl.flow import init, suites
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.problems import nearest, shown
from loomctl.kit.text import fences
from loomctl.kit.text.fences import visible
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.runs import config

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.shell_completion import CompletionItem

    from loomctl.flow.init import Made, Wanted
    from loomctl.flow.suites import Suite
    from loomctl.runs.project import Workspace

_NONE = "-"  # typed for: no test command
# What a run of each bundled workflow is begun with, to be replaced by whoever pastes the command.
WORK = {
    "bugfix": "which bug to fix",
    "core": "what to build",
    "default": "what to build",
    "docs": "what to document",
    "migration": "what to migrate",
    "refactor": "what to restructure",
    "review": "what to review",
    "spike": "which question to answer",
    "tdd": "what to build",
}
_UNTESTED = (
    "Loom found no test command, so no tests will run. With one it runs them before a step that needs them can end.",
    "To set it (test_command in .loom/config.yaml): loomctl init --tests 'pytest -q'",
)


def _complete_bundled(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return command_line.completion(_ids)(context, parameter, incomplete)


def _ids(space: Workspace, context: click.Context, incomplete: str) -> Iterable[str]:
    return init.bundled(space)


@click.command("init")
@click.option("--from", "base", metavar="ID", shell_complete=_complete_bundled, help="The bundled workflow to extend.")
@click.option("--name", metavar="NAME", help="The name of your workflow.  [default: my-ID]")
@click.option("--tests", metavar="COMMAND", help="The project's test command; '' for none.")
@click.option("--force", is_flag=True, help="Replace a workflow of that name; keep a copy.")
@click.option("--yes", is_flag=True, help="Ask nothing: take core and the test command that Loom finds.")
@json_option
def init_command(base: str | None, name: str | None, tests: str | None, force: bool, yes: bool, as_json: bool) -> int:
    """Set up this project: its own workflow and test command.

    It asks two questions, and writes a workflow that extends a bundled one. Options answer the questions. With --tests
    alone it writes no workflow. By typing this you allow Loom to execute the test command in this project; runs do not
    ask again.

    \b
    Examples:
      loomctl init
      loomctl init --from bugfix --tests "pytest -q" --name my-flow
      loomctl init --tests "npm test"
    """
    space = command_line.space(make=True)
    found = suites.of(space)
    only_tests = tests is not None and base is None and name is None and not yes
    asks = not yes and not only_tests and (base is None or tests is None)
    if asks and not output.may_ask(as_json=as_json):
        said = f"--tests {quoted(tests or found.command or 'pytest -q')}"
        hint = f"loomctl init --from {quoted(base or init.FALLBACK)} {said} --yes"
        what, why = "init asks two questions, and there is no terminal", "in a script, give the answers as options"
        raise LoomError("NO_TERMINAL", what, why=why, hint=hint, exit_code=EXIT_USAGE)
    if not only_tests and base is None:
        base = _asked_base(space) if asks else init.FALLBACK
    base = (base or "").removeprefix("loom:")
    wanted = init.Wanted(base, name or f"my-{base}", tests, force)
    init.check(space, wanted)
    is_said = tests is not None or found.source != suites.SETTINGS
    if tests is None and asks:
        wanted, is_said = wanted._replace(tests=_asked_tests(found)), True
    elif tests is None and found.command:
        wanted = wanted._replace(tests=found.command)
    made = init.init(space, wanted)
    notes = [*made.notes, *_allowed(space, wanted, is_said=is_said)]
    if init.TESTS in made.wrote and (runs := init.keeping(space, wanted.tests or "")):
        listed = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
        notes.append(f"It counts from the next run on. Open runs keep what they began with: {listed}.")
    if not wanted.tests and tests is None and found.source != suites.SETTINGS:
        notes += _UNTESTED
    told = {
        "workflow": wanted.name if made.path else None,
        "extends": base or None,
        "path": made.path or None,
        "copy": made.copy or None,
        "default_workflow": made.default,
        "test_command": wanted.tests,
        "settings": made.settings or None,
        "notes": notes,
    }
    output.answer(told, _lines(space, wanted, made, notes), as_json=as_json)
    return EXIT_OK


def _asked_base(space: Workspace) -> str:
    known = init.bundled(space)
    width = max(map(len, known))
    lines = [f"The workflows that come with Loom; {init.FALLBACK} is the default:"]
    for name, description in known.items():
        line = f"{'*' if name == init.FALLBACK else ' '} {name.ljust(width)}  {visible(description)}"
        lines.append(fences.cut(line, output.columns()))
    output.note("\n".join(lines))

    def meant(said: str) -> str:
        if said in known:
            return said
        near = nearest(said, known)  # a slip of the pen is asked again
        raise click.UsageError(f"there is no {shown(said)} in this list" + (f"; did you mean {near}?" if near else ""))

    question = "Which one do you want to start from?"
    answer: str = click.prompt(question, default=init.FALLBACK, value_proc=meant, err=True)
    return answer


def _asked_tests(found: Suite) -> str | None:
    """Ask for the test command; None where none was found and none is given, so that nothing is said of them."""
    if found.command:
        output.note(f"Loom found a test command in {found.source}.")
        question = f"Which command runs the tests? Type {_NONE} for none"
        answer: str = click.prompt(question, default=visible(found.command), err=True)
    else:
        output.note("Loom found no test command.")
        question = "Which command runs the tests? An empty line for none"
        answer = click.prompt(question, default="", show_default=False, err=True)
        if not answer.strip():
            return None
    return "" if answer.strip() == _NONE else answer.strip()


def _allowed(space: Workspace, wanted: Wanted, *, is_said: bool) -> list[str]:
    """Let Loom execute the tests here, where a person said so; says what became of it.

    is_said: the command is this person's own word, or Loom's; what a repository's settings say is not, unless it was
    asked about.
    """
    if not wanted.tests:
        return []
    if init.is_allowed(space, wanted.tests):
        return [f"Loom may execute `{wanted.tests}` in this project."]
    later = f"Each run will ask before Loom executes `{wanted.tests}`"
    if not is_said:
        return [f"{later}. To allow it: loomctl init --tests {quoted(wanted.tests)}"]
    if not person.decides(space, "init"):
        return [f"{later}. To allow it, type in a terminal: loomctl init --tests {quoted(wanted.tests)}"]
    trouble = init.allow(space, wanted.tests)
    return [f"{later}: {trouble}"] if trouble else [f"Loom may execute `{wanted.tests}` in this project."]


def _lines(space: Workspace, wanted: Wanted, made: Made, notes: list[str]) -> list[str]:
    root = os.path.dirname(space.store.folder)
    lines = []
    if made.path:
        lines.append(f"Wrote {os.path.relpath(made.path, root)}, which extends {wanted.base}.")
    if made.copy:
        lines.append(f"Kept the old one as {os.path.relpath(made.copy, root)}.")
    is_default = made.path and made.default == wanted.name
    if is_default:
        where = os.path.relpath(config.project_config(space.store.folder), root)
        lines.append(f"`loomctl run` takes it from now on (default_workflow in {where}).")
    elif made.path:
        other = masked_line(made.default, 80)
        lines.append(f"`loomctl run` without --workflow takes {other} as before (default_workflow).")
    if init.TESTS in made.wrote:
        before = f" (before: {mask(made.tests_before)[0]!r})" if made.tests_before is not None else ""
        where = os.path.relpath(made.settings, root)
        none = f"No tests will run: test_command is empty in {where}{before}."
        lines.append(f"Wrote test_command to {where}{before}." if wanted.tests else none)
    lines += notes
    if made.path:
        own = "" if is_default else f" --workflow {wanted.name}"
        lines.append(f'Next: loomctl run "{WORK.get(wanted.base, "what to do")}"{own}')
    return lines or ["The settings say this already. Nothing to write."]
