"""Calling the user who is elsewhere: a bell at their terminal, or a command of their own (D73)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from loomctl.cli import output
from loomctl.kit import clock
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line

if TYPE_CHECKING:
    from loomctl.drive.seen import Ended, Seen
    from loomctl.kit.errors import LoomError

PATIENCE = 10.0  # seconds for the user's command
_LONG = 60  # seconds of a wait that is worth a call
_LONGEST = 300


class Notice:
    """Calls when a drive waits for long, and when it ends.

    command: of the user's own settings; empty for silence, None for a bell.
    """

    def __init__(self, command: str | None) -> None:
        self._command = command

    def __call__(self, seen: Seen) -> None:
        """Call where a wait has begun that is not over in a minute."""
        until = str(seen.told.get("until") or "")
        if seen.what == "waiting" and clock.seconds_of(until) - time.time() >= _LONG:
            day, at = clock.day_and_time(until)
            why = str(seen.told.get("why") or "")
            self._call(f"Loom: {seen.run.handle} waits until {day} {at}{f': {why}' if why else ''}", "")

    def ended(self, ended: Ended, command: str) -> None:
        """Call with how the drive ended, and what is next."""
        self._call(f"Loom: {ended.run.handle}: {ended.why}", command)

    def failed(self, handle: str, error: LoomError) -> None:
        """Call with the error that ended the drive."""
        self._call(f"Loom: {handle}: {error.what}", error.hint)

    def _call(self, sentence: str, command: str) -> None:
        sentence = masked_line(sentence, _LONGEST)
        try:
            if self._command is None:
                _ring(sentence)
            elif self._command and (trouble := _run(self._command, f"{sentence}\n{command}".rstrip() + "\n")):
                output.note(f"loomctl: your notify command {trouble}")
        except OSError:
            pass


def _ring(sentence: str) -> None:
    """Ring the terminal's bell, and give the sentence to those that show one as a notification (OSC 9)."""
    if output.is_a_screen(sys.stderr):
        sys.stderr.write(f"\a\033]9;{output.shown(sentence)}\a")
        sys.stderr.flush()


def _run(command: str, given: str) -> str:
    """Run the user's command in their home folder; gives what went wrong, in words."""
    home = os.path.expanduser("~")
    child = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=home if os.path.isdir(home) else "/",  # a relative path must not lead into a project
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, said = child.communicate(given.encode("utf-8", "replace"), timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"was ended after {PATIENCE:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
    words = one_line(said.decode("utf-8", "replace").strip().rpartition("\n")[2], 200)
    return "" if child.returncode == 0 else f"failed with {child.returncode}{f': {words}' if words else ''}"
