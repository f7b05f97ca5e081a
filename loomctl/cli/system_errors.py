"""What the system refused, in words: an error that passed through Loom from a file, a folder or a full disk (D52)."""

from __future__ import annotations

import errno
import os

from loomctl.cli import streams
from loomctl.model.errors import EXIT_INVALID, LoomError, quoted

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM)


def in_words(error: OSError, again: str) -> LoomError:
    """Make the one error that says what was refused, where, and what can be done. Code SYSTEM, exit 5.

    again: the command line to paste that shows where in Loom it happened, for what nothing better is known.
    """
    where = _name(error.filename)
    if not where and streams.output_fails():
        where, hint = "standard output", "send it to where there is room, or close what reads it; the work is done"
    else:
        hint = _hint(error.errno, where, again)
    return LoomError("SYSTEM", _what(error), where=where, why=_why(error.errno), hint=hint, exit_code=EXIT_INVALID)


def _name(given: object) -> str:
    return os.fsdecode(given) if isinstance(given, (str, bytes)) else ""


def _what(error: OSError) -> str:
    said = error.strerror or str(error) or type(error).__name__
    return f"the system said: {said}"


def _why(number: int | None) -> str:
    if number in _REFUSED:
        return "this user may not do that there"
    if number == errno.EROFS:
        return "what is mounted there can only be read"
    if number == errno.ENAMETOOLONG:
        return "a name has at most 255 bytes, a path some thousand"
    return "a disk, a quota or a limit on file sizes is used up" if number in _FULL else ""


def _hint(number: int | None, where: str, again: str) -> str:
    folder = quoted(os.path.dirname(os.path.abspath(where)) if where else ".")
    if number in _FULL:
        return f"df -h {folder}"
    if number in _REFUSED:
        return f"ls -ld {folder} {quoted(where)}" if where else f"ls -ld {folder}"
    if number == errno.EROFS:
        return f"df {folder}"
    return again
