"""The command line as a whole: its commands, and the one place that turns errors into words and exit codes (D52)."""

from __future__ import annotations

import io
import os
import sys
import traceback

import click

from loomctl import __version__
from loomctl.cli import arguments as slash_arguments
from loomctl.cli import bundle, check, demo, doctor, prime, printing, run, runs, show, standing, state, step, tidy
from loomctl.model.errors import EXIT_BUG, EXIT_INVALID, EXIT_OK, EXIT_USAGE, LoomError

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="loomctl")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def loomctl(debug: bool) -> int:
    """Loom keeps long work with a coding assistant alive across compactions, sessions and machines.

    \b
    A first run:
      loomctl run "add dark mode" --workflow core
      loomctl next
      loomctl done
    """
    return EXIT_OK


for command in (
    run.run,
    step.next_command,
    step.done,
    step.undo,
    run.resume,
    standing.pause,
    standing.cancel,
    step.approve,
    standing.trust,
    prime.prime_context,
    runs.runs,
    show.show,
    show.sessions_command,
    state.state,
    show.paths,
    tidy.tidy,
    check.check,
    doctor.doctor,
    bundle.schema,
    bundle.plugin,
    bundle.hook,
    demo.demo,
):
    loomctl.add_command(command)


def main(arguments: list[str]) -> int:
    """Run one command; gives its exit code (D52). Errors are one document under `--json`, else lines on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without our signs shows others, and loses no result
    as_json = "--json" in arguments
    debug = "--debug" in arguments
    try:
        words = slash_arguments.expanded(arguments)
        as_json = as_json or "--json" in words
        result = loomctl.main(args=words, prog_name="loomctl", standalone_mode=False)
        return result if isinstance(result, int) else EXIT_OK
    except LoomError as error:
        return _said(error, as_json=as_json, debug=debug)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return EXIT_USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "loomctl"
        typed = slash_arguments.OPTION in arguments and isinstance(error, click.NoSuchOption)
        why = "a goal that holds words like this one is given in quotes" if typed else ""
        said = LoomError("USAGE", error.format_message(), why=why, hint=f"{command} --help", exit_code=EXIT_USAGE)
        return _said(said, as_json=as_json, debug=debug)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        printing.note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as error:
        said = LoomError(
            "SYSTEM", error.strerror or str(error), where=str(error.filename or ""), exit_code=EXIT_INVALID
        )
        return _said(said, as_json=as_json, debug=debug)
    except Exception as error:  # noqa: BLE001 - a bug: say so, and how to show it to us
        said = LoomError(
            "BUG",
            f"{type(error).__name__}: {error}",
            why="this is a fault in Loom, not in what you did",
            hint="run it again with --debug and report what it prints",
            exit_code=EXIT_BUG,
        )
        return _said(said, as_json=as_json, debug=debug)


def _said(error: LoomError, *, as_json: bool, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    if as_json:
        printing.document({"error": error.to_dict()})
    else:
        printing.note(f"loomctl: {error}")
    return error.exit_code
