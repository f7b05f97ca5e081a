"""What a person hands to a command: a file that is named on its line, or standard input, where `-` is named (D52)."""

from __future__ import annotations

import sys

from loomctl.kit import files, trouble
from loomctl.kit.errors import EXIT_USAGE, LoomError

STDIN = "-"
LARGEST = 16 << 20


def read(source: str, *, hint: str, largest: int = LARGEST, why: str = "") -> bytes:
    """Give the bytes of a named file, or of standard input where `source` is `-`.

    hint: a line that can be pasted where standard input has more than `largest` bytes; why: said with it. Raises
    UNREADABLE for a file that is not there, is none or is forbidden, and TOO_LARGE; both exit 2, for it was typed.
    """
    if source == STDIN:
        data = sys.stdin.buffer.read(largest + 1)
        if len(data) > largest:
            what = f"standard input has more than {largest:,} bytes"
            raise LoomError("TOO_LARGE", what, where=named(source), why=why, hint=hint, exit_code=EXIT_USAGE)
        return data
    try:
        return files.read_bytes(source, limit=largest)
    except LoomError as error:
        error.exit_code, error.why = EXIT_USAGE, why or error.why
        raise
    except OSError as error:
        raise LoomError(
            "UNREADABLE",
            "the file cannot be read",
            where=source,
            why=error.strerror or str(error),
            hint=trouble.look(source),
            exit_code=EXIT_USAGE,
        ) from None


def text(source: str, *, hint: str, largest: int = LARGEST, why: str = "") -> str:
    """Give the same as text; bytes that are no UTF-8 are replaced, so that they hide nothing."""
    return files.text_of(read(source, hint=hint, largest=largest, why=why), "replace")


def named(source: str) -> str:
    """Name a source in a message."""
    return "standard input" if source == STDIN else source


def only_one_from_stdin(*sources: str | None, hint: str) -> None:
    """Raise USAGE where more than one of a command's sources is standard input, which can be read but once."""
    if sources.count(STDIN) > 1:
        raise LoomError("USAGE", "two things are asked of standard input", hint=hint, exit_code=EXIT_USAGE)
