"""`loomctl plugin`: set up other assistants for Loom, and show the bundle."""

from __future__ import annotations

import os
from typing import Any

import click

from loomctl.cli import output, person
from loomctl.cli.command_line import json_option, yes_option
from loomctl.cli.verbs import Group
from loomctl.hosts.setup import install
from loomctl.install import on_path
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SETUP, LoomError
from loomctl.runs import project

_SAID = {install.THERE: "✓", install.OTHER: "! changed since:", install.MISSING: "✗ missing:"}


@click.group(cls=Group)
def plugin() -> int:
    """Set up other assistants, and show this loomctl's bundle.

    \b
    Examples:
      loomctl plugin install codex
      loomctl plugin status
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
    if not os.path.isfile(os.path.join(root, "plugin.json")):
        what = "this loomctl has no plugin bundle"
        why = "install it from a checkout to get the bundle"
        raise LoomError("NO_BUNDLE", what, where=root, why=why, hint="pipx install .", exit_code=EXIT_SETUP)
    if as_json:
        output.document({"path": root})
    else:
        click.echo(root)
    return EXIT_OK


@plugin.command("install")
@click.argument("host", type=click.Choice(install.HOSTS))
@yes_option
@json_option
def set_up(host: str, yes: bool, as_json: bool) -> int:
    """Set up an assistant as far as its own install cannot.

    It shows each file that it would change, and asks. `loomctl plugin remove` puts every file back as it was.

    \b
    Examples:
      loomctl plugin install codex
      loomctl plugin install gemini --yes
    """
    found = install.look(host)
    changes = bool(found.missing or found.makes_link)
    if changes and not yes:
        again = f"loomctl plugin install {host} --yes"
        if not as_json:
            output.note("\n".join([f"For {found.title}, Loom would write:", *_would_change(found)]))
        output.must_agree(
            "Write this?",
            asks=output.may_ask(as_json=as_json),
            what="Loom wrote nothing",
            why="these are your own files, so a person, or --yes, has to agree",
            hint=again,
        )
    if changes:
        person.must_decide_anywhere("plugin install", host, *(["--yes"] if yes else []))
    after = install.install(found) if changes else found
    lines = [f"Loom: wrote what {found.title} needs" if changes else f"Loom: {found.title} has it already"]
    lines += [*_lines(after), *(["Then:"] if after.plan.then else []), *(f"  {line}" for line in after.plan.then)]
    output.answer({**_document(after), "changed": changes}, lines, as_json=as_json)
    return EXIT_OK


@plugin.command()
@click.argument("host", type=click.Choice(install.HOSTS))
@json_option
def remove(host: str, as_json: bool) -> int:
    """Undo `loomctl plugin install`.

    A file that nobody changed since is as it was before, to the byte. From any other it takes Loom's part alone.

    \b
    Examples:
      loomctl plugin remove codex
      loomctl plugin remove gemini --json
    """
    person.must_decide_anywhere("plugin remove", host)
    changed = install.remove(host)
    lines = [f"Removed Loom from {path}" for path in changed]
    lines = lines or [f"Loom has written nothing for {install.title_of(host)}"]
    output.answer({"host": host, "changed": changed}, lines, as_json=as_json)
    return EXIT_OK


@plugin.command()
@click.argument("host", type=click.Choice(install.HOSTS), required=False)
@json_option
def status(host: str | None, as_json: bool) -> int:
    """Show what is set up for an assistant, and what is missing.

    Without HOST it shows every assistant that `loomctl plugin install` has set up. Exit code 1 if something is missing.

    \b
    Examples:
      loomctl plugin status
      loomctl plugin status codex --json
    """
    named = [host] if host else [one for one in install.HOSTS if install.is_noted(one)]
    found = [install.look(one) for one in named]
    lines = [line for one in found for line in (f"{one.title}:", *_lines(one))]
    lines = lines or ["Loom has set up no other assistant. To do so: loomctl plugin install HOST"]
    output.answer({"hosts": [_document(one) for one in found]}, lines, as_json=as_json)
    return EXIT_OK if all(one.is_whole for one in found) else EXIT_FINDINGS


def _would_change(found: install.Standing) -> list[str]:
    lines = []
    for piece in found.missing:
        lines += [f"  {piece.part.path}", f"    {piece.part.what}: {piece.part.shown}"]
    if found.makes_link:
        lines += [
            f"  {os.path.join(on_path.default_folder(), on_path.NAME)}",
            "    a link, so that a shell finds loomctl",
        ]
    return lines


def _lines(found: install.Standing) -> list[str]:
    lines = [f"  {_SAID[piece.state]} {piece.part.path}: {piece.part.what}" for piece in found.pieces]
    if found.plan.needs_link:
        lines.append(f"  ✓ {found.link}" if found.link else "  ✗ its shell does not find loomctl")
        mended = f"loomctl plugin install {found.host}" if found.makes_link else found.to_find
        lines += [] if found.link else [f"    to mend it: {mended}"]
    return lines


def _document(found: install.Standing) -> dict[str, Any]:
    return {
        "host": found.host,
        "whole": found.is_whole,
        "files": [{"path": one.part.path, "what": one.part.what, "state": one.state} for one in found.pieces],
        "loomctl": found.link or None,
        "then": list(found.plan.then),
    }
