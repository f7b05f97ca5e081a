"""Running a program to its end, within a time: it and all that it started end then."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Ended(NamedTuple):
    """code: negative for a signal, None where it was stopped because its time was over; seconds: how long it took."""

    code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float


def run(command: Sequence[str], *, cwd: str, environ: Mapping[str, str], patience: float, given: bytes = b"") -> Ended:
    """Run a command without a shell. given: its standard input; patience: seconds. Raises OSError where none starts."""
    began = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(given, timeout=patience)
        except subprocess.TimeoutExpired:
            _end(process.pid)
            return Ended(None, b"", b"", time.monotonic() - began)
        except BaseException:
            _end(process.pid)
            raise
        return Ended(process.returncode, stdout, stderr, time.monotonic() - began)


def _end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:  # all of them have ended meanwhile
        pass
