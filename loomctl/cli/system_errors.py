"""What the system refused while a command ran, with what the command line knows besides (D52)."""

from __future__ import annotations

import errno

from loomctl.cli import streams
from loomctl.kit import trouble
from loomctl.kit.errors import EXIT_BUG, LoomError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def in_words(error: OSError, again: str) -> LoomError:
    """Make the one error that says what was refused, where, and what can be done. Code SYSTEM, exit 5.

    again: the command line to paste that shows where in Loom it happened, for what nothing better is known.
    """
    said = trouble.of(error)
    # What a full disk refuses in one piece is not kept in the stream; every file that Loom writes is named.
    if not said.where and (error.errno in _FULL or streams.output_fails()):
        said.where = "standard output"
        said.why = said.why or "the work is done; what it says did not reach who was to read it"
        said.hint = "df -h"
    said.hint = said.hint or again
    return said


def bug(error: Exception, again: str) -> LoomError:
    """Make the error of what no user did: code BUG, exit 70. again: as above."""
    return LoomError(
        "BUG",
        f"{type(error).__name__}: {error}",
        why="this is a fault in Loom, not in what you did; please report it with what this prints under --debug",
        hint=again,
        exit_code=EXIT_BUG,
    )
