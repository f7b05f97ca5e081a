"""The runs that a remote has, and how each stands to the one here.

A commit that nobody here knows is fetched once, alone where the server can give it so, and what it says is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.handoff import git_refs, handoff, received
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.store import arrivals

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from loomctl.handoff.git_refs import Repository
    from loomctl.handoff.handoff import Desk
    from loomctl.handoff.received import Told

NOT_HERE, UNKNOWN = "not here", "unknown"
_WORDS = {
    handoff.SAME: "the same",
    handoff.MINE: "newer here",
    handoff.THEIRS: "newer there",
    handoff.DIVERGED: "diverged",
}

_CLAIMS = (_WORDS[handoff.THEIRS], _WORDS[handoff.DIVERGED])  # nobody says so of what cannot be read


class RemoteRun(NamedTuple):
    """A run of a remote's, in words for people. here: how it stands to the one here; trouble: why it cannot be read."""

    run_id: str
    commit: str
    work: str
    status: str
    step: str
    by: str
    machine: str
    at: str
    here: str
    trouble: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return self._asdict()


def listed(desk: Desk) -> list[RemoteRun]:
    """List a remote's runs by id. Raises as a remote does."""
    there = desk.listed()
    held = desk.held()
    unknown = {run_id: oid for run_id, oid in there.items() if oid not in held}
    told: dict[str, Told | LoomError] = {}
    for run_id in there.keys() - unknown.keys():
        told[run_id] = _in(desk.repository, desk, run_id, there[run_id])[0]
    if unknown:
        told |= _of_unknown(desk, unknown)
    return [_run(desk, run_id, there[run_id], told[run_id]) for run_id in sorted(there)]


def _of_unknown(desk: Desk, wanted: Mapping[str, str]) -> dict[str, Told | LoomError]:
    """Tell what commits say that are not in the project's repository. wanted: commit by run."""
    store, key = desk.space.store, desk.remote.key
    seen = read_seen(store.local, key, wanted.values(), desk.repository.object_format)
    told = {run_id: _read(desk, run_id, seen[commit]) for run_id, commit in wanted.items() if commit in seen}
    missing = {run_id: commit for run_id, commit in wanted.items() if commit not in seen}
    if missing:
        store.prepare(commit_runs=desk.space.settings.commit_runs)
        with arrivals.room(store, "look-") as room:
            for run_id, (said, text) in _of_commits(desk, missing, room).items():
                told[run_id] = said
                if text:
                    seen[missing[run_id]] = text
        with contextlib.suppress(OSError):  # then it is asked for again
            write_seen(store.local, key, seen)
    return told


def _of_commits(desk: Desk, wanted: Mapping[str, str], room: str) -> dict[str, tuple[Told | LoomError, bytes]]:
    """Fetch the commits alone into a repository that is thrown away, so that the project's takes no part in it."""
    bare = os.path.join(room, "commits.git")
    desk.repository.ask("init", "--quiet", "--bare", f"--object-format={desk.repository.object_format}", bare)
    scratch = git_refs.Repository(desk.repository.top, bare)
    failed = _fetched(desk, sorted(wanted), bare)
    found: dict[str, tuple[Told | LoomError, bytes]] = {run_id: (error, b"") for run_id, error in failed.items()}
    for run_id in wanted.keys() - failed.keys():
        said, text = _in(scratch, desk, run_id, f"refs/seen/{run_id}")
        found[run_id] = said, text if scratch.commit_of(f"refs/seen/{run_id}") == wanted[run_id] else b""
    return found


def _fetched(desk: Desk, run_ids: Sequence[str], bare: str) -> dict[str, LoomError]:
    """Fetch runs' commits; gives those that cannot be, each with the reason. Raises where the remote is not reached.

    One that git refuses has the whole fetch fail, so halves of it are tried until it stands alone.
    """
    try:
        desk.repository.fetch(desk.remote, {run_id: f"refs/seen/{run_id}" for run_id in run_ids}, bare=bare)
    except LoomError as error:
        if error.code not in ("BAD_HANDOFF", "REMOTE_UNREACHABLE"):
            raise
        desk.repository.listed(desk.remote)  # it answers still: the trouble is with a run
        if len(run_ids) == 1:
            return {run_ids[0]: error}
        half = len(run_ids) // 2
        return _fetched(desk, run_ids[:half], bare) | _fetched(desk, run_ids[half:], bare)
    return {}


def _in(repository: Repository, desk: Desk, run_id: str, commit: str) -> tuple[Told | LoomError, bytes]:
    """Give what a commit in a repository says of itself, and its text; the error where it cannot be read."""
    try:
        text = repository.commit_text(commit, received.LONGEST_MESSAGE)
    except ValueError as error:
        return received.bad(received.where_of(desk.remote, run_id), str(error)), b""
    except LoomError as error:
        return error, b""
    return _read(desk, run_id, text), text


def _read(desk: Desk, run_id: str, text: bytes) -> Told | LoomError:
    try:
        return received.read_message(git_refs.message_of(text), run_id, received.where_of(desk.remote, run_id))
    except LoomError as error:
        return error


def _run(desk: Desk, run_id: str, commit: str, told: Told | LoomError) -> RemoteRun:
    here = _here(desk, run_id, commit)
    if isinstance(told, LoomError):
        here = UNKNOWN if here in _CLAIMS else here
        return RemoteRun(run_id, commit, "", "unreadable", "", "", "", "", here, f"{told.code}: {told.what}")
    work = told.summary.get("work_id") or told.summary.get("goal") or ""
    status, step = told.summary.get("status") or "", told.summary.get("step") or ""
    words = (masked_line(str(word), 60) for word in (work, status, step, told.by, told.machine, told.at))
    return RemoteRun._make((run_id, commit, *words, here, ""))


def _here(desk: Desk, run_id: str, commit: str) -> str:
    """Say how a run here stands to the remote's; what has no common beginning is told by a pull alone."""
    if not desk.space.store.has(run_id):
        return NOT_HERE
    try:
        found = desk.standing_as_known(run_id, commit)
        return _WORDS[found.kind] if found.told is not None or found.base is not None else UNKNOWN
    except LoomError as error:
        return one_line(f"{UNKNOWN} ({error.code})", 60)


FILE = "seen-commits.json"


_LARGEST = 16 << 20  # bytes of what is kept of one remote


_MOST_REMOTES = 20


def read_seen(local: str, remote: str, commits: Collection[str], algorithm: str) -> dict[str, bytes]:
    """Give those of the commits that are known. algorithm: by which objects are named. Raises nothing."""
    held = _all(local).get(remote)
    if not isinstance(held, dict):
        return {}
    found: dict[str, bytes] = {}
    for commit in commits:
        text = held.get(commit)
        try:
            data = text.encode("latin-1") if isinstance(text, str) else b""
        except UnicodeEncodeError:
            continue
        if _name(data, algorithm) == commit:
            found[commit] = data
    return found


def write_seen(local: str, remote: str, seen: Mapping[str, bytes]) -> None:
    """Keep what commits of a remote say, and nothing else of that remote. Raises OSError and UNSAFE_LINK."""
    path = _path(local)
    kept: dict[str, str] = {}
    left = _LARGEST
    for commit, data in seen.items():
        left -= len(data)
        if left >= 0:
            kept[commit] = data.decode("latin-1")
    others = [(key, held) for key, held in _all(local).items() if key != remote]
    files.write_atomically(path, files.to_json(dict([*others, (remote, kept)][-_MOST_REMOTES:])), durable=False)


def _name(data: bytes, algorithm: str) -> str:
    return hashlib.new(algorithm, b"commit %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _path(local: str) -> str:
    path = os.path.join(local, FILE)
    files.refuse_links(os.path.dirname(local), path)
    return path


def _all(local: str) -> dict[str, Any]:
    try:
        value = files.read_json(_path(local))
    except (OSError, LoomError):
        return {}
    return value if isinstance(value, dict) else {}
