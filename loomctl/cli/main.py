"""The command line as a whole: its commands, and the one place that turns errors into words and exit codes (D52)."""

from __future__ import annotations

import shlex
import sys

import click

from loomctl.cli import output, verbs
from loomctl.cli.verbs import PLACES, Face
from loomctl.kit import trouble
from loomctl.kit.errors import EXIT_OK, EXIT_USAGE, ON_INTERRUPT, LoomError
from loomctl.kit.package import __version__
from loomctl.runs import project

LONGEST_LINE = 300
FROM_STDIN = "--arguments-from-stdin"
IN_ONE_WORD = "--arguments-in-one-word"
_END = "--end-of-arguments--"
_MOST = 100_000  # bytes of a slash command's arguments


@click.group(
    cls=Face, places=PLACES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(__version__, prog_name="loomctl")
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
def loomctl(debug: bool) -> int:
    """Keep an assistant's long work alive across compactions, sessions and machines.

    \b
    A first run:
      loomctl run "add dark mode" --workflow core
      loomctl next
      loomctl done
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
    words = arguments
    try:
        words, renamed = verbs.current(expanded(arguments))
        as_json = as_json or _wants("--json", words)
        if renamed and not as_json and sys.stderr.isatty():
            output.note(renamed)
        result = loomctl.main(args=words, prog_name="loomctl", standalone_mode=False, obj=_is_slash(arguments))
        return result if isinstance(result, int) else EXIT_OK
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return EXIT_USAGE
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(as_json=as_json)
    except BrokenPipeError:
        return EXIT_OK
    except Exception as error:  # noqa: BLE001 - a bug, too, is told in words, and how to show it to us
        if _wants("--debug", arguments):
            import traceback

            output.note(traceback.format_exc())
        refused = _in_words(error, words, is_slash=_is_slash(arguments))
        return output.fail(trouble.fitting(refused, project.plugin_root()), as_json=as_json)


def _in_words(error: Exception, words: list[str], *, is_slash: bool) -> LoomError:
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else _command_of(words)
        is_goal = is_slash and isinstance(error, click.NoSuchOption)
        why = "put a goal that contains such a word in quotes" if is_goal else ""
        return LoomError("USAGE", error.format_message(), why=why, hint=f"{command} --help", exit_code=EXIT_USAGE)
    if isinstance(error, ImportError):  # a package that one command alone needs
        return output.damage(error)
    line = shlex.join(word for word in words if word not in ("--debug", "--json"))
    again = f"loomctl --debug {line}" if len(line) <= LONGEST_LINE else "loomctl --debug doctor"
    return output.told(error, again)


def _command_of(words: list[str]) -> str:
    """Give the command that words are for, as far as they name one: click does not say where a value is missing."""
    found: click.Command = loomctl
    path = ["loomctl"]
    while words and words[0].startswith("-"):
        words = words[1:]
    for word in verbs.joined(words) if words else ():
        named = found.get_command(click.Context(found), word) if isinstance(found, click.Group) else None
        if named is not None:
            found, path = named, [*path, word]
    return " ".join(path)


def _wants(option: str, words: list[str]) -> bool:
    """Tell whether an option is given; what stands behind `--` is text."""
    return option in (words[: words.index("--")] if "--" in words else words)


def _interrupted(*, as_json: bool) -> int:
    said = LoomError("INTERRUPTED", "interrupted", hint="loomctl show", exit_code=ON_INTERRUPT)
    try:
        output.document({"error": said.to_dict()}) if as_json else output.note(said.what)
    except OSError:
        pass
    return ON_INTERRUPT


# ---- What a slash command hands over on standard input, or quoted as one word, so that no shell ever reads it.


def _is_slash(arguments: list[str]) -> bool:
    return FROM_STDIN in arguments or IN_ONE_WORD in arguments


def expanded(arguments: list[str]) -> list[str]:
    """Replace the option by the words that standard input, or the word behind it, holds.

    Words are split at blanks. Quotes count only around all that stands between two options, so that the quotes,
    apostrophes, backslashes and dollars within a goal stay what they are. Raises CUT_ARGUMENTS where the end mark of
    standard input is missing.
    """
    if FROM_STDIN in arguments:
        at = arguments.index(FROM_STDIN)
        words = split(sys.stdin.buffer.read(_MOST).decode("utf-8", "replace"))
        return [*arguments[:at], *words, *arguments[at + 1 :]]
    if IN_ONE_WORD in arguments:
        at = arguments.index(IN_ONE_WORD)
        return [*arguments[:at], *_words("".join(arguments[at + 1 : at + 2])), *arguments[at + 2 :]]
    return arguments


def split(given: str) -> list[str]:
    """Split a slash command's arguments, which end with a line that says so."""
    body, mark, _ = given.rpartition(_END)
    if not mark:
        what = "the assistant cut the command's arguments before Loom could read them"
        why = "three backticks in the arguments end its code block"
        raise LoomError("CUT_ARGUMENTS", what, why=why, hint="leave out the backticks", exit_code=EXIT_USAGE)
    return _words(body)


def _words(given: str) -> list[str]:
    words: list[str] = []
    rest = given.strip()
    while rest:
        quoted = _quoted(rest, words)
        word = quoted if quoted is not None else rest.split(None, 1)[0]
        words.append(word)
        rest = rest[len(word) + (2 if quoted is not None else 0) :].lstrip()
    return words


def _quoted(rest: str, words: list[str]) -> str | None:
    """Give what the quotes at the beginning of `rest` hold, where they count; None where they are text."""
    close = rest.find(rest[0], 1) if rest[0] in "'\"" else -1
    while close > 0 and not (close + 1 == len(rest) or rest[close + 1].isspace()):
        close = rest.find(rest[0], close + 1)
    if close < 0:
        return None
    is_value = bool(words) and words[-1].startswith("--")
    begins = not words or (len(words) > 1 and words[-2].startswith("--"))
    behind = rest[close + 1 :].lstrip()
    if is_value or (begins and (not behind or behind.startswith("--"))):
        return rest[1:close]
    return None
