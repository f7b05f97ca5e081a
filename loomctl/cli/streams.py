"""Standard output and error as they come: other encodings, pipes that do not block, and what takes nothing at all."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from loomctl.kit import files


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


def output_fails() -> bool:
    """Tell whether standard output still holds what it could not get rid of."""
    return _fails(sys.stdout)


def _fails(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        return True
    return False
