"""What this store has agreed on with each remote, run by run: `.loom/local/agreed/{run_id}.json`, never carried.

`{remote: {commit, line}}`. commit: what both sides have, or what was settled here by a word; line: the SHA-256 of the
last line that the run's log had here then. A log that has that line no more is one from before: it was put back from a
backup, or a branch was changed, and then what was agreed on says nothing of it.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from loomctl.kit import digests, files, git, ids
from loomctl.kit.errors import LoomError

FOLDER = "agreed"
_MOST_REMOTES = 50


class Agreed(NamedTuple):
    """commit: the remote's; line: the SHA-256 of the log's last line here then, empty where no log was."""

    commit: str
    line: str


def read(local: str, run_id: str) -> dict[str, Agreed]:
    """Give what was agreed on about a run, by remote, the newest last. Raises nothing."""
    try:
        value = files.read_json(_path(local, run_id))
    except (OSError, LoomError):
        return {}
    found = {}
    for key, held in value.items() if isinstance(value, dict) else ():
        commit, line = (held.get("commit"), held.get("line")) if isinstance(held, dict) else (None, None)
        if isinstance(commit, str) and git.is_oid(commit) and isinstance(line, str):
            found[key] = Agreed(commit, line)
    return found


def write(local: str, run_id: str, remote: str, agreed: Agreed) -> None:
    """Note what was agreed on with a remote. Raises OSError and UNSAFE_LINK."""
    path = _path(local, run_id)
    others = [(key, held) for key, held in read(local, run_id).items() if key != remote]
    kept = dict([*others[1 - _MOST_REMOTES :], (remote, agreed)])
    files.make_folder(os.path.dirname(path))
    told = {key: held._asdict() for key, held in kept.items()}
    files.write_atomically(path, files.to_json(told), durable=False)


def forget(local: str, run_id: str) -> None:
    """Forget a run that is gone."""
    try:
        files.remove(_path(local, run_id))
    except LoomError:  # a link in its place is not Loom's to remove
        pass


def last_line(log: bytes) -> str:
    """Give the SHA-256 of a log's last line; empty where it has none."""
    lines = log.rstrip(b"\n").rsplit(b"\n", 1)
    return digests.of_bytes(lines[-1]) if lines[-1] else ""


def lines_of(log: bytes) -> frozenset[str]:
    """Give the SHA-256 of each line of a log."""
    return frozenset(digests.of_bytes(line) for line in log.split(b"\n"))


def _path(local: str, run_id: str) -> str:
    path = os.path.join(local, FOLDER, f"{ids.checked_id(run_id)}.json")
    files.refuse_links(os.path.dirname(local), path)
    return path
