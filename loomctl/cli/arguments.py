"""The arguments of a slash command, handed over on standard input so that no shell ever reads them."""

from __future__ import annotations

import shlex
import sys

from loomctl.model.errors import EXIT_USAGE, LoomError

OPTION = "--arguments-from-stdin"
END = "--end-of-arguments--"
LARGEST = 100_000


def expanded(arguments: list[str]) -> list[str]:
    """Replace the option by the words that standard input holds. Raises CUT_ARGUMENTS where the end mark is missing.

    Words are split as a shell does; where the quotes do not match (an apostrophe), at blanks.
    """
    if OPTION not in arguments:
        return arguments
    at = arguments.index(OPTION)
    return [*arguments[:at], *split(sys.stdin.read(LARGEST)), *arguments[at + 1 :]]


def split(given: str) -> list[str]:
    """Split a slash command's arguments, which end with a line that says so."""
    body, mark, _ = given.rpartition(END)
    if not mark:
        raise LoomError(
            "CUT_ARGUMENTS",
            "the command's arguments were cut before they reached Loom",
            why="three backticks in them end the host's block",
            hint="leave the backticks out",
            exit_code=EXIT_USAGE,
        )
    try:
        return shlex.split(body)
    except ValueError:
        return body.split()
