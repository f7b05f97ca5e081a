"""What goes out: the two streams as they come, JSON documents, and what the system refused. Standard library alone."""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
from typing import Any, TextIO

from loomctl.kit import files, trouble
from loomctl.kit.errors import EXIT_BUG, LoomError
from loomctl.kit.text.fences import visible_in_json
from loomctl.kit.text.secrets import masked

SCHEMA_VERSION = 1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Patient(io.RawIOBase):
    """The raw end of a stream whose pipe may be full at times: it waits until all is taken."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: object) -> int:
        """Write all of it. Raises OSError."""
        view = memoryview(data)  # type: ignore[arg-type]  # any buffer, as RawIOBase has it
        files.write_all(self._descriptor, view.tobytes())
        return len(view)


def prepare() -> None:
    """Make both streams show what they can: other signs where a locale lacks ours, all of it where a pipe is full."""
    sys.stdout, sys.stderr = _prepared(sys.stdout), _prepared(sys.stderr)


def _prepared(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        if not os.get_blocking(stream.fileno()):
            return io.TextIOWrapper(io.BufferedWriter(_Patient(stream.fileno())), stream.encoding, "replace")
    except (OSError, ValueError):
        pass
    stream.reconfigure(errors="replace")
    return stream


def finish() -> None:
    """Let go of what a stream holds and nobody takes, so that the process ends with its own code."""
    for stream in (sys.stdout, sys.stderr):
        if _fails(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def is_stuck() -> bool:
    """Tell whether standard output still holds what it could not get rid of."""
    return _fails(sys.stdout)


def _fails(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        return True
    return False


def rendered(value: dict[str, Any]) -> str:
    """Give one JSON document for standard output, its schema version first."""
    return plain({"schema_version": SCHEMA_VERSION, **value})


def plain(value: Any) -> str:
    """Give a JSON value for standard output, its secrets masked (D21) and nothing in it raw.

    All beyond ASCII is escaped where the stream speaks something else than UTF-8, or where half a character stands in
    it, as in the name of a folder that is no UTF-8: a reader gets back what was meant, never a `?`.
    """
    return _encoded(masked(value))


def line(value: Any) -> str:
    """Give a JSON value, its secrets masked already, in one line as Loom's logs have it, nothing in it raw."""
    printed = visible_in_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return printed if _goes_out_whole(printed) else json.dumps(value, separators=(",", ":"))


def unmasked(value: dict[str, Any]) -> str:
    """Give one JSON document as it is, for who asks for an original: what a tool gave, and nothing instead of it."""
    return _encoded({"schema_version": SCHEMA_VERSION, **value})


def _encoded(shown: Any) -> str:
    printed = visible_in_json(json.dumps(shown, ensure_ascii=False, indent=1))
    return printed if _goes_out_whole(printed) else json.dumps(shown, indent=1)


def _goes_out_whole(printed: str) -> bool:
    try:
        printed.encode()
        return codecs.lookup(sys.stdout.encoding).name == "utf-8"
    except (UnicodeEncodeError, LookupError):
        return False


def in_words(error: OSError, again: str) -> LoomError:
    """Make the one error that says what was refused, where, and what can be done. Code SYSTEM, exit 5.

    again: the command line to paste that shows where in Loom it happened, for what nothing better is known.
    """
    said = trouble.of(error)
    # What a full disk refuses in one piece is not kept in the stream; every file that Loom writes is named.
    if not said.where and (error.errno in _FULL or is_stuck()):
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
