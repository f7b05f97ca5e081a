"""`loomctl plugin`, `schema` and `hook`: the bundle that loomctl ships, and what hosts call."""

from __future__ import annotations

import os

import click

from loomctl.cli import output
from loomctl.cli.arguments import json_option
from loomctl.kit import files
from loomctl.kit.errors import EXIT_OK, EXIT_SETUP, LoomError
from loomctl.runs import project

KINDS = ("workflow", "plan", "state", "tool_step", "status", "changes", "report")


@click.group()
def plugin() -> int:
    """The plugin bundle that belongs to this loomctl.

    \b
    Example:
      loomctl plugin path
    """
    return EXIT_OK


@plugin.command()
@json_option
def path(as_json: bool) -> int:
    """Print the bundle's folder.

    \b
    Example:
      claude --plugin-dir "$(loomctl plugin path)"
    """
    root = project.plugin_root()
    if not os.path.isfile(os.path.join(root, ".claude-plugin", "plugin.json")):
        raise LoomError(
            "NO_BUNDLE",
            "this loomctl was installed without its bundle",
            where=root,
            why="it is installed with it from a checkout",
            hint="pipx install .",
            exit_code=EXIT_SETUP,
        )
    if as_json:
        output.document({"path": root})
    else:
        click.echo(root)
    return EXIT_OK


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@json_option
def schema(kind: str, as_json: bool) -> int:
    """Print the JSON Schema of a kind of file, for editors.

    Of workflows, plans, states, recorded tool steps, of what stands in a stage's folder: status.json (how it ended) and
    changes.json (what it touched and left), and of the document that `loomctl report --json` prints.

    \b
    Examples:
      loomctl schema workflow > workflow.schema.json
      loomctl schema status
    """
    name = os.path.join(project.plugin_root(), "config", f"{kind}.schema.json")
    if as_json:
        output.document({"kind": kind, "schema": files.read_json(name)})
    else:
        click.echo(files.read_bytes(name).decode(), nl=False)
    return EXIT_OK


@click.command()
@click.argument("event")
def hook(event: str) -> int:
    """Answer a host's hook EVENT, its JSON on standard input. For hooks.json, not for people.

    \b
    Events: session-start, user-prompt-submit, pre-tool-use, pre-compact, stop, session-end; the launcher answers
    post-tool-use and post-tool-use-failure itself, or calls Python for what is large
    """
    from loomctl.hosts.claude.hooks import main

    return main([event])


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Examine this installation: PASS, WARN or FAIL for each check, with what mends it. Changes nothing.

    Exit code 1 if anything fails; a warning alone is 0. docs/reference/doctor.md says what each check means.

    \b
    Examples:
      loomctl doctor
      loomctl doctor --json
    """
    from loomctl.cli.doctor import tell

    return tell(as_json=as_json)
