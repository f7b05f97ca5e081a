"""Signs of life in files, for when nothing was heard: hooks, tools, commands and subagents leave them (D75)."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import psutil

from loomctl.kit.errors import LoomError
from loomctl.runs.machine import launcher_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loomctl.runs.machine.local import Local
    from loomctl.runs.store.store import Run

_DRIVERS_OWN = ("state.json", "state.backup.json")  # the driver writes them itself, to say that it lives
_AHEAD = 300.0  # seconds by which another machine's clock, whose disk it is, may be ahead
_MOST = 20_000  # files that are looked at


def last_sign(local: Local, run: Run, conversation: str, processes: Iterable[psutil.Process], now: float) -> float:
    """Give when anything of a run's tree last left a sign, in seconds since 1970; 0 where nothing did.

    What the future holds is no sign: a clock was put back. processes: what was started for the run.
    """
    found = [*_in_run(run.folder), *_of_hooks(local, conversation), *_in_transcripts(local, conversation)]
    found += _written_by(processes)
    return max((min(at, now) for at in found if at <= now + _AHEAD), default=0.0)


def is_without_hooks(local: Local, since: float) -> bool:
    """Tell whether no hook of Loom's has fired in this project since a time, in seconds since 1970."""
    return all(beat.at < since for beat in launcher_files.beats(local.folder).values())


def _in_run(folder: str) -> Iterator[float]:
    for path in _files(folder):
        if os.path.basename(path) not in _DRIVERS_OWN:
            yield _time(path)


def _of_hooks(local: Local, conversation: str) -> Iterator[float]:
    for beat in launcher_files.beats(local.folder).values():
        if beat.session_id == conversation:
            yield beat.at
    for ending in (launcher_files.EVENT, launcher_files.UNFINISHED):
        for event in launcher_files.spooled(local.folder, ending):
            if conversation in launcher_files.sessions_of(event.name):
                yield event.at / 1e9


def _in_transcripts(local: Local, conversation: str) -> Iterator[float]:
    """Look at the conversation's transcript, and at those of its subagents in the folder of the same name."""
    try:
        binding = local.binding(conversation)
    except (OSError, LoomError):
        return
    path = (binding or {}).get("transcript_path")
    if isinstance(path, str) and os.path.isabs(path):
        yield _time(path)
        for other in _files(os.path.splitext(path)[0]):
            yield _time(other)


def _written_by(processes: Iterable[psutil.Process]) -> Iterator[float]:
    """Look at the files that processes have open for writing: logs of commands and tools grow there."""
    for one in processes:
        with contextlib.suppress(psutil.Error, OSError):
            for opened in one.open_files():
                if getattr(opened, "mode", "w") != "r":
                    yield _time(opened.path)


def _files(folder: str) -> Iterator[str]:
    left = _MOST
    for at, _, names in os.walk(folder):
        for name in names:
            left -= 1
            if left < 0:
                return
            yield os.path.join(at, name)


def _time(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0
