"""The files of a run after something happened to them: what is kept beside them, and what can be read of it (D53, D56).

Who writes holds the run's lock.
"""

from __future__ import annotations

import json
import os

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.runs.model.migrations import Migrated
from loomctl.runs.store.events import FILE, Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from loomctl.runs.store.layouts import Home

PLAN = "plan.json"
LONGEST_LINE, LARGEST_LOG = 16 << 20, 256 << 20  # bytes; no entry is as long, no run's log as large
BROKEN, REPLACED = "broken", "replaced"
"""What the name of a file that was set aside says of it: it could not be used, or it could and another was wanted."""


def kept_states(home: Home) -> list[str]:
    """Name what a state could be restored from: the backup first, then what was set aside, the newest first."""
    backup = os.path.basename(home.backup)
    stem = backup.removesuffix("backup.json")  # `state.`, or `faber-state.`
    found: list[tuple[float, str]] = []
    try:
        with os.scandir(home.folder) as entries:
            for entry in entries:
                name = entry.name
                kept = name.startswith(stem) and name.endswith(".json") and name not in (backup, f"{stem}json")
                plain = name.isascii() and name.replace(".", "").replace("-", "").isalnum()
                if kept and plain and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, name))
    except OSError:
        pass
    others = [name for _, name in sorted(found, reverse=True)]
    return [backup, *others] if os.path.lexists(home.backup) else others


def kept_home(home: Home, name: str) -> Home:
    """Give a run's home with another of its states in the place of its own, to read that one. Raises UNSAFE_LINK."""
    path = os.path.join(home.folder, name)
    files.refuse_links(home.folder, path)
    return home._replace(state=path)


def set_aside(path: str, beside: str, word: str) -> str | None:
    """Give a file a second name, `state.broken-1.json`, and leave it in its place until it is replaced.

    beside: what the second name is made of, `…/state.json`. Never over a file that is there. Gives the name, or None
    where there was nothing to keep. What is no plain file, and any file of which no second name can be made, is moved.
    """
    if not os.path.lexists(path):
        return None
    folder = os.path.dirname(beside)
    files.make_folder(folder, mode=0o755)
    number = 0
    while True:
        number += 1
        target = f"{beside.removesuffix('.json')}.{word}-{number}.json"
        if os.path.lexists(target):
            if os.path.samestat(os.lstat(path), os.lstat(target)):
                return os.path.basename(target)  # a kill came between this and the replacement
            continue
        if os.path.isfile(path) and not os.path.islink(path):
            try:
                os.link(path, target)
            except OSError:  # a file system without hard links
                os.rename(path, target)
        else:
            os.rename(path, target)
        files.sync_folder(folder)
        return os.path.basename(target)


def keep_original(path: str, read: dict[str, Any]) -> Event:
    """Keep a file of an older schema as `state.v1.backup.json`, `-2` where that is taken; gives the event that says so.

    read: what became of it in memory, as `migrations.migrated` gave it.
    """
    assert isinstance(read, Migrated)  # nobody asks for any other
    folder, name = os.path.split(path)
    what = name.removesuffix(".json")
    number, kept = 1, f"{what}.v{read.before}.backup.json"
    while os.path.lexists(os.path.join(folder, kept)):
        if _same(path, os.path.join(folder, kept)):
            break
        number += 1
        kept = f"{what}.v{read.before}.backup-{number}.json"
    else:
        try:
            os.link(path, os.path.join(folder, kept))
        except OSError:  # a file system without hard links
            files.write_atomically(os.path.join(folder, kept), files.read_bytes(path), mode=0o644)
        files.sync_folder(folder)
    told = {"from": read.before, "to": read["schema_version"], "steps": list(read.steps), "kept": kept}
    kind = what.partition(".")[0]  # of a kept state, too
    told["sha256"] = digests.of_json(read)
    return Event(f"{kind}.migrated", told)


def _same(path: str, other: str) -> bool:
    try:
        return files.read_bytes(path) == files.read_bytes(other)
    except (OSError, LoomError):
        return False


def events(folder: str, *, after: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Read the log's entries behind a number; gives them and how many lines are no entries.

    What is no regular file has none. A line longer than any entry is none, and what stands behind LARGEST_LOG bytes
    counts as one such line.
    """
    path = os.path.join(folder, FILE)
    files.refuse_links(folder, path)
    found: list[dict[str, Any]] = []
    damaged = 0
    try:
        with os.fdopen(files.open_regular(path), "rb") as log:
            for line in _lines(log):
                entry = _entry(line)
                if entry is None:
                    damaged += bool(line.strip())
                elif entry["seq"] > after:
                    found.append(entry)
    except OSError:
        return found, damaged
    return found, damaged


def _lines(log: BinaryIO) -> Iterator[bytes]:
    """Give the lines of a log, of one that is too long only its beginning, which is no entry."""
    left = LARGEST_LOG
    while left > 0 and (line := log.readline(LONGEST_LINE)):
        left -= len(line)
        rest = line
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n") and left > 0:
            rest = log.readline(LONGEST_LINE)
            left -= len(rest)
        yield line if rest is line else line[:1]
    if left <= 0 and log.read(1):
        yield b"?"


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fit = isinstance(entry, dict) and isinstance(entry.get("event"), str) and type(entry.get("seq")) is int
    return entry if fit else None
