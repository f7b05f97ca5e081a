"""`loomctl memory`: a file of Loom's that Claude Code's memory imports, switched on and off."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import caller, output
from loomctl.cli.arguments import json_option
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.counts import counted
from loomctl.kit.text.fences import one_line
from loomctl.priming import memory_switch
from loomctl.priming.memory import NOW

if TYPE_CHECKING:
    from loomctl.priming.memory_switch import Standing

_IN = {"CLAUDE.local.md": memory_switch.LOCAL_FILE, "rule": memory_switch.RULE}


@click.group("memory", invoke_without_command=True)
@json_option
@click.pass_context
def memory(context: click.Context, *, as_json: bool = False) -> int:
    """Say whether Claude Code's memory imports where the run stands, what that brings along, and what it costs.

    Loom keeps .loom/now.md current: the run's standing, its next step, and an import of each of your artifacts that
    applies now. Claude Code reads it with CLAUDE.local.md, or with a rule, at a start, /clear and each compaction, and
    without the limit that hooks have. The hooks then give only what it has not.

    \b
    Examples:
      loomctl memory
      loomctl memory on
      loomctl memory off
    """
    if context.invoked_subcommand is not None:
        return EXIT_OK
    found = memory_switch.standing(caller.space(make=True))
    if as_json:
        output.document(_document(found))
    else:
        output.text("\n".join(_lines(found)))
    return EXIT_OK


@memory.command()
@click.option(
    "--in",
    "where",
    type=click.Choice(list(_IN)),
    default="CLAUDE.local.md",
    show_default=True,
    help="What gets the line: your own file, or the rule .claude/rules/loom.md.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def on(where: str, yes: bool, as_json: bool) -> int:
    """Show what would be written and what it costs, ask, and switch memory on.

    Written are .loom/now.md, and one line at the end of CLAUDE.local.md, or of a rule, which imports it.

    \b
    Examples:
      loomctl memory on
      loomctl memory on --in rule --yes
    """
    space = caller.space(make=True)
    memory_switch.refuse_a_worktree(space)
    found = memory_switch.standing(space, _IN[where])
    if not (found.is_on and found.has_line) and not yes:
        if not as_json:
            output.note("\n".join(["Loom would write:", *_would_write(found), *_price(found), *_warnings(found)]))
        asks = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
        if not (asks and output.is_agreed("Switch memory on?")):
            again = "loomctl memory on" if where == "CLAUDE.local.md" else "loomctl memory on --in rule"
            raise LoomError(
                "NOT_CONFIRMED",
                "nothing was written",
                why="each session in this folder would read it, so a person agrees, or --yes",
                hint=f"{again} --yes",
                exit_code=EXIT_USAGE,
            )
    was_on = found.is_on and found.has_line
    found = memory_switch.on(space, _IN[where])
    if as_json:
        output.document({**_document(found), "changed": not was_on})
    else:
        output.text("\n".join(_lines(found)))
    return EXIT_OK


@memory.command()
@json_option
def off(as_json: bool) -> int:
    """Take away what `loomctl memory on` wrote, and nothing else.

    A file that was made for the line goes, unless something else stands in it by now; every other is byte for byte
    what it was.

    \b
    Example:
      loomctl memory off
    """
    changed = memory_switch.off(caller.space(make=True))
    if as_json:
        output.document({"on": False, "changed": changed})
    else:
        output.text("Loom: memory is off" + ("; what was written for it is gone" if changed else " already"))
    return EXIT_OK


def _document(found: Standing) -> dict[str, Any]:
    return {
        "on": found.is_on,
        "file": found.file,
        "line": found.line,
        "has_line": found.has_line,
        "makes_file": found.makes,
        "ignored_by_git": found.ignored,
        "run_ids": list(found.now.run_ids),
        "imports": [{"id": one.id, "path": one.path, "bytes": one.bytes} for one in found.now.imports if one.line],
        "left_out": [{"id": one.id, "path": one.path, "why": one.why} for one in found.now.imports if not one.line],
        "bytes": found.now.bytes,
        "price": _costs(found),
    }


def _lines(found: Standing) -> list[str]:
    if not found.is_on:
        lines = ["Loom: memory is off; `loomctl memory on` would write:", *_would_write(found)]
    elif not found.has_line:
        lines = [f"Loom: memory is on, but {found.file} has lost its line; `loomctl memory on` puts it back"]
    else:
        lines = [f"Loom: memory is on: {found.file} imports .loom/{NOW} ({found.line})"]
    return [*lines, *_brought(found), *_price(found), *_warnings(found)]


def _would_write(found: Standing) -> list[str]:
    what = "a new file with" if found.makes else "at its end"
    wide = max(len(found.file), len(f".loom/{NOW}"))
    return [
        f"  {f'.loom/{NOW}'.ljust(wide)}  where the run stands, its next step, imports of its files",
        f"  {found.file.ljust(wide)}  {what} the line {found.line}",
    ]


def _brought(found: Standing) -> list[str]:
    runs = found.now.run_ids
    head = "no active run that was taken up here" if not runs else ", ".join(one_line(run, 80) for run in runs[:5])
    lines = [f"It tells of: {head}"]
    for one in found.now.imports:
        name = f"{one_line(one.id, 60)}: {one_line(one.path, 120)}"
        lines.append(
            f"  ✓ {name}, {counted(one.bytes, 'byte')}" if one.line else f"  ✗ {name}: {one_line(one.why, 120)}"
        )
    return lines


def _price(found: Standing) -> list[str]:
    return ["The price:", *(f"  - {line}" for line in _costs(found))]


def _costs(found: Standing) -> list[str]:
    size = counted(found.now.bytes, "byte")
    return [
        f"Each session that starts in this folder reads it, whatever it is for: now {size}.",
        "It is read at a start, /clear and compaction, not between prompts; below this folder its files are left out.",
        "Claude Code takes it for instructions of yours, where hooks give data.",
    ]


def _warnings(found: Standing) -> list[str]:
    warnings = []
    if found.ignored is False:
        warnings.append(f"git does not ignore {found.file}: a commit would take the line along")
    if found.has_line and not found.is_on:
        warnings.append(f"{found.file} has the line already, and not from Loom: `loomctl memory off` leaves it")
    return [f"! {line}" for line in warnings]
