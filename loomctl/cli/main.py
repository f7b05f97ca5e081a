"""The command line as a whole: its commands, and the one place that turns errors into words and exit codes (D52)."""

from __future__ import annotations

import importlib
import shlex

import click

from loomctl.cli.shell import arguments as slash_arguments
from loomctl.cli.shell import damage, output, printing
from loomctl.kit import bundle_lines
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, ON_INTERRUPT, LoomError
from loomctl.kit.version import __version__
from loomctl.runs import project

LONGEST_LINE = 300


COMMANDS = {
    "run": "work.run:run",
    "next": "work.step:next_command",
    "done": "work.step:done",
    "undo": "work.step:undo",
    "rewind": "work.rewind:rewind",
    "fork": "work.rewind:fork",
    "resume": "work.run:resume",
    "pause": "work.standing:pause",
    "cancel": "work.standing:cancel",
    "approve": "work.decide:approve",
    "reject": "work.decide:reject",
    "choose": "work.decide:choose",
    "trust": "work.standing:trust",
    "prime-context": "work.prime:prime_context",
    "memory": "work.memory:memory",
    "preamble": "work.preamble:preamble",
    "status": "look.status:status",
    "statusline": "look.statusline:statusline",
    "runs": "work.runs:runs",
    "push": "work.handoff:push",
    "pull": "work.handoff:pull",
    "show": "look.show:show",
    "graph": "look.graph:graph",
    "stages": "look.stages:stages_command",
    "sessions": "look.show:sessions_command",
    "events": "look.events:events",
    "steps": "look.steps:steps",
    "prove": "look.prove:prove",
    "history": "look.steps:history_command",
    "savings": "look.steps:savings_command",
    "reduce": "look.steps:reduce_command",
    "outcome": "look.outcome:outcome",
    "why": "look.why:why",
    "diff": "look.diff:diff",
    "assets": "look.assets:assets",
    "report": "look.report:report",
    "dump": "look.report:dump_command",
    "context": "work.context:context",
    "state": "state:state",
    "blob": "look.blob:blob",
    "paths": "look.show:paths",
    "clean": "clean:clean",
    "check": "check:check",
    "verify": "verify:verify",
    "simulate": "simulate:simulate",
    "doctor": "doctor:doctor",
    "schema": "bundle:schema",
    "plugin": "bundle:plugin",
    "hook": "bundle:hook",
    "demo": "demo:demo",
}
"""Each command's module of `loomctl.cli` and its name there, in the order in which a run's life needs them."""


class _OnCall(click.Group):
    """Imports a command when it is asked for: each stands on a part of the engine that most others never need."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the shape of click's own
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(importlib.import_module(f"loomctl.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click looks for the near one among what is imported
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None


@click.group(cls=_OnCall, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="loomctl")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def loomctl(debug: bool) -> int:
    """Loom keeps long work with a coding assistant alive across compactions, sessions and machines.

    \b
    A first run:
      loomctl run "add dark mode" --workflow core
      loomctl next
      loomctl done

    \b
    Completion, a line for your shell's start-up file:
      eval "$(_LOOMCTL_COMPLETE=bash_source loomctl)"
      eval "$(_LOOMCTL_COMPLETE=zsh_source loomctl)"
      _LOOMCTL_COMPLETE=fish_source loomctl | source
    """
    return EXIT_OK


def main(arguments: list[str]) -> int:
    """Run one command; gives its exit code (D52). Errors are one document under `--json`, else lines on stderr."""
    output.prepare()
    code = _run(arguments)
    output.finish()
    return code


def _run(arguments: list[str]) -> int:
    as_json = _wants("--json", arguments)
    debug = _wants("--debug", arguments)
    words = arguments
    try:
        words = slash_arguments.expanded(arguments)
        as_json = as_json or _wants("--json", words)
        result = loomctl.main(
            args=words, prog_name="loomctl", standalone_mode=False, obj=slash_arguments.OPTION in arguments
        )
        return result if isinstance(result, int) else EXIT_OK
    except LoomError as error:
        return _said(error, as_json=as_json, debug=debug)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return EXIT_USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else _command_of(words)
        typed = slash_arguments.OPTION in arguments and isinstance(error, click.NoSuchOption)
        why = "a goal that holds words like this one is given in quotes" if typed else ""
        said = LoomError("USAGE", error.format_message(), why=why, hint=f"{command} --help", exit_code=EXIT_USAGE)
        return _said(said, as_json=as_json, debug=debug)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(as_json=as_json)
    except BrokenPipeError:
        return EXIT_OK
    except OSError as error:
        return _said(output.in_words(error, _again(words)), as_json=as_json, debug=debug)
    except ImportError as error:  # a package that one command alone needs
        return _said(damage.of(error), as_json=as_json, debug=debug)
    except Exception as error:  # noqa: BLE001 - a bug: say so, and how to show it to us
        return _said(output.bug(error, _again(words)), as_json=as_json, debug=debug)


def _command_of(words: list[str]) -> str:
    """Give the command that words are for, as far as they name one: click does not say where a value is missing."""
    found: click.Command | None = loomctl
    path = ["loomctl"]
    for word in words:
        context = click.Context(found) if isinstance(found, click.Group) else None
        named = found.get_command(context, word) if context is not None and isinstance(found, click.Group) else None
        if named is not None:
            found, path = named, [*path, word]
    return " ".join(path)


def _wants(option: str, words: list[str]) -> bool:
    """Tell whether an option is given; what stands behind `--` is text."""
    return option in (words[: words.index("--")] if "--" in words else words)


def _again(words: list[str]) -> str:
    """Give the command line that shows where an error came from."""
    line = shlex.join(word for word in words if word not in ("--debug", "--json"))
    return f"loomctl --debug {line}" if len(line) <= LONGEST_LINE else "loomctl --debug doctor"


def _interrupted(*, as_json: bool) -> int:
    said = LoomError("INTERRUPTED", "interrupted", hint="loomctl show", exit_code=ON_INTERRUPT)
    try:
        printing.document({"error": said.to_dict()}) if as_json else printing.note(said.what)
    except OSError:
        pass
    return ON_INTERRUPT


def _said(error: LoomError, *, as_json: bool, debug: bool) -> int:
    """Print an error where it belongs; where that takes nothing, on standard error; else the exit code says it all."""
    if debug:
        import traceback

        printing.note(traceback.format_exc())
    error = bundle_lines.fitting(error, project.plugin_root())
    try:
        if as_json and not output.is_stuck():
            printing.document({"error": error.to_dict()})
            return error.exit_code
    except OSError:
        pass
    try:
        printing.note(f"loomctl: {error}")
    except OSError:
        pass
    return error.exit_code
