"""`loomctl install`: the command on PATH, in one command, and off it again."""

from __future__ import annotations

import os

import click

from loomctl.cli import output
from loomctl.cli.command_line import json_option
from loomctl.install import on_path
from loomctl.install.on_path import Placed
from loomctl.kit import package
from loomctl.kit.errors import EXIT_OK
from loomctl.runs import project


@click.command("install")
@click.option("--to", "folder", metavar="DIR", help="The folder to put it in (default: ~/.local/bin).")
@click.option("--remove", is_flag=True, help="Take it away again.")
@json_option
def install_command(folder: str | None, remove: bool, as_json: bool) -> int:
    """Put loomctl on your PATH.

    It makes a link in ~/.local/bin to this bundle's bin/loomctl.

    Nothing else is copied: an update of the bundle is an update of the command. What is not Loom's is never replaced.

    \b
    Examples:
      ./bin/loomctl install
      loomctl install --remove
    """
    launcher = os.path.join(project.plugin_root(), "bin", on_path.NAME)
    if project.plugin_root() == os.path.join(package.FOLDER, "_bundle") and folder is None and not remove:
        return _tell_of_a_helper(as_json=as_json)
    place = os.path.abspath(os.path.expanduser(folder)) if folder else on_path.default_folder()
    done = on_path.remove(place) if remove else on_path.place(place, launcher)
    told = {**done._asdict(), "on_path": on_path.is_on_path(place), "first": on_path.first()}
    output.answer(told, _removed(done) if remove else _placed(done, place), as_json=as_json)
    return EXIT_OK


def _tell_of_a_helper(*, as_json: bool) -> int:
    first = on_path.first()
    told = {**Placed(first or "")._asdict(), "on_path": first is not None, "first": first}
    lines = ["This loomctl was installed by uv or pipx, which put it on PATH themselves."]
    lines.append(
        f"It is {first}." if first else "Their folder is not on your PATH: uv tool update-shell, or pipx ensurepath"
    )
    output.answer(told, lines, as_json=as_json)
    return EXIT_OK


def _removed(done: Placed) -> list[str]:
    return [f"Removed {done.path}." if done.changed else f"There is no {done.path}."]


def _placed(done: Placed, folder: str) -> list[str]:
    word = "a link" if done.kind == on_path.LINK else "a script"
    lines = [f"{done.path} is {word} to {done.target}."]
    if done.before and done.changed:
        lines.append(f"It was one to {done.before}.")
    first = on_path.first()
    if not on_path.is_on_path(folder):
        lines.append(f"{folder} is not on your PATH. Add it, then open a new terminal:")
        lines.append(f"  {on_path.line_for_shell(folder)}")
    elif first and not on_path.leads_to(first, done.target):
        lines.append(f"But another loomctl comes first on your PATH: {first}")
    else:
        lines.append("Type `loomctl --help` in any folder.")
    return [*lines, "To undo: loomctl install --remove"]
