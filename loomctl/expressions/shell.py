"""Placeholders in a shell command: each value is quoted for the place where it stands, so that it stays one word (D8).

A value of letters, digits and the signs that mean nothing to a shell is put as it is. Any other is escaped as the
quotes around it ask for; in a place whose quoting cannot be told for certain (a substitution, a here-document, a
comment) it is refused instead.
"""

from __future__ import annotations

from loomctl.expressions import placeholders
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN_SIGNS = frozenset("_-./:,+@%=")
_IN_DOUBLE_QUOTES = frozenset('\\"$`')
# What ends the places that can be told: behind it a quote may mean something else.
_UNCERTAIN = ("$(", "${", "`", "<<", "$'")
_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")


class ShellText(NamedTuple):
    """text: what the shell is given; missing: placeholders without a value; refused: those that cannot be quoted."""

    text: str
    missing: tuple[str, ...]
    refused: tuple[str, ...]


def expand(script: str, values: Mapping[str, str | None]) -> ShellText:
    """Replace every placeholder of a shell command by its value, quoted where it has to be.

    The script and the values hold no NUL; what holds one is no command, and every placeholder in it is refused.
    """
    used = placeholders.used(script)
    if "\0" in script or any("\0" in (values.get(name) or "") for name in used):
        return ShellText(script, (), used or ("NUL",))
    marked = placeholders.expand(script, {name: f"\0{name}\0" for name in used if values.get(name)})
    out: list[str] = []
    refused: list[str] = []
    quote = ""  # the quote that is open: ' or " or none; ? where that cannot be told any more
    pieces = marked.text.split("\0")
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            out.append(piece)
            quote = _after(piece, quote, starts_word=number == 0)
            continue
        value = values.get(piece) or ""
        if is_plain(value):
            out.append(value)
        elif quote == "?":
            refused.append(piece)
        else:
            out.append(_quoted(value, quote))
    return ShellText("".join(out), marked.missing, tuple(dict.fromkeys(refused)))


def is_plain(value: str) -> bool:
    """Tell whether a shell takes nothing out of a value but its characters, wherever it stands."""
    return not value.startswith(("-", "=")) and all(
        character.isalnum() or character in _PLAIN_SIGNS for character in value
    )


def _quoted(value: str, quote: str) -> str:
    if quote == "'":
        return value.replace("'", "'\\''")
    if quote == '"':
        return "".join("\\" + character if character in _IN_DOUBLE_QUOTES else character for character in value)
    return "'" + value.replace("'", "'\\''") + "'"


def _after(piece: str, quote: str, *, starts_word: bool) -> str:
    """Give the quote that is open behind a piece of the script, from the one that is open before it."""
    at, fresh = 0, starts_word
    while at < len(piece) and quote != "?":
        character = piece[at]
        if quote == "'":
            quote = "" if character == "'" else quote
        elif character == "\\":
            at += 1
            if at >= len(piece):  # it would escape the value's own first character
                return "?"
        elif (end := _end_of_variable(piece, at)) > at:
            at = end
        elif piece.startswith(_UNCERTAIN, at) or (character == "#" and not quote and fresh):
            return "?"
        elif character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        fresh = not quote and character in " \t\n;&|()"
        at += 1
    return quote


def _end_of_variable(piece: str, at: int) -> int:
    """Give the place of the brace that ends a plain `${NAME}`, which begins at `at`; -1 for anything else."""
    if not piece.startswith("${", at):
        return -1
    end = at + 2
    while end < len(piece) and piece[end] in _NAME:
        end += 1
    return end if piece.startswith("}", end) else -1
