"""What a local git command prints, read while it runs: nobody knows how much it will be."""

from __future__ import annotations

import os
import signal
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from loomctl.kit.errors import LoomError

_PIECE = 1 << 16


class Reading(NamedTuple):
    """A git command that is read while it runs. ended: waits for its end, gives its code; failed: makes the error."""

    stream: IO[bytes]
    ended: Callable[[], int]
    failed: Callable[[int], LoomError]


def entries_of(reading: Reading, most: int, longest: int) -> Iterator[tuple[str, str, str, int, bytes]]:
    """Give what `git ls-tree -z -l` lists, as it does."""
    rest, count, total = b"", 0, 0
    while piece := reading.stream.read1(_PIECE):  # type: ignore[attr-defined]
        total += len(piece)
        *lines, rest = (rest + piece).split(b"\0")
        count += len(lines)
        if count > most or total > longest:
            raise ValueError(f"it holds over {most:,} files and folders, or names of over {longest:,} bytes")
        for line in lines:
            told, _, path = line.partition(b"\t")
            mode, kind, oid, size = told.decode("ascii", "replace").split()
            yield mode, kind, oid, int(size) if size.isdigit() else -1, path
    code = reading.ended()
    if code < 0:
        raise ValueError("git does not come to the end of its files")
    if code:
        raise reading.failed(code)


def end(process: subprocess.Popen[bytes], *, alone: bool = False) -> None:
    """End a git command, and what it began unless it is alone in its group."""
    if process.poll() is None:
        try:
            os.kill(process.pid, signal.SIGKILL) if alone else os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
