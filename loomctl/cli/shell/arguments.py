"""The arguments of a slash command, handed over on standard input so that no shell ever reads them."""

from __future__ import annotations

import sys

from loomctl.kit.errors import EXIT_USAGE, LoomError

OPTION = "--arguments-from-stdin"
END = "--end-of-arguments--"
LARGEST = 100_000


def expanded(arguments: list[str]) -> list[str]:
    """Replace the option by the words that standard input holds. Raises CUT_ARGUMENTS where the end mark is missing.

    Words are split at blanks. Quotes count only around all that stands between two options, so that the quotes,
    apostrophes, backslashes and dollars within a goal stay what they are.
    """
    if OPTION not in arguments:
        return arguments
    at = arguments.index(OPTION)
    return [*arguments[:at], *split(sys.stdin.buffer.read(LARGEST).decode("utf-8", "replace")), *arguments[at + 1 :]]


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
    words: list[str] = []
    rest = body.strip()
    while rest:
        quoted = _quoted(rest, words)
        word = quoted if quoted is not None else rest.split(None, 1)[0]
        words.append(word)
        rest = rest[len(word) + (2 if quoted is not None else 0) :].lstrip()
    return words


def _quoted(rest: str, words: list[str]) -> str | None:
    """Give what the quotes at the beginning of `rest` hold, where they count; None where they are text."""
    close = rest.find(rest[0], 1) if rest[0] in "'\"" else -1
    while close > 0 and not _ends_a_word(rest, close):
        close = rest.find(rest[0], close + 1)
    if close < 0:
        return None
    is_value = bool(words) and words[-1].startswith("--")
    begins = not words or (len(words) > 1 and words[-2].startswith("--"))
    behind = rest[close + 1 :].lstrip()
    if is_value or (begins and (not behind or behind.startswith("--"))):
        return rest[1:close]
    return None


def _ends_a_word(rest: str, at: int) -> bool:
    return at + 1 == len(rest) or rest[at + 1].isspace()
