"""Copies of runs elsewhere: those that a remote has, and what git keeps here of the last push or pull.

A commit that nobody here knows is fetched once, alone where the server can give it so, and what it says is kept in
`.loom/local/seen-commits.json`.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from loomctl.handoff import carried, handoff, repository
from loomctl.handoff.handoff import Desk, commit_text, read_message
from loomctl.handoff.repository import Repository
from loomctl.kit import files, ids
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import log_verdict
from loomctl.runs.project import Workspace
from loomctl.runs.store import arrivals, event_log, events

NOT_HERE, UNKNOWN = "not here", "unknown"
_WORDS = {
    handoff.SAME: "the same",
    handoff.MINE: "newer here",
    handoff.THEIRS: "newer there",
    handoff.DIVERGED: "diverged",
}
_CLAIMS = (_WORDS[handoff.THEIRS], _WORDS[handoff.DIVERGED])  # nobody says so of what cannot be read
FILE = "seen-commits.json"
_LARGEST = 16 << 20  # bytes of what is kept of one remote
_MOST_REMOTES = 20
_MOST_EARLIER = 20  # commits before the last that are looked at for a file's copy
_LARGEST_COPY = 64 << 20  # bytes of one that is looked at


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

    @property
    def handle(self) -> str:
        """What people call the run; its id where nobody can read what it is for."""
        return ids.handle(self.run_id, self.work) if self.work else self.run_id


def list_runs(desk: Desk) -> list[RemoteRun]:
    """List a remote's runs by id. Raises as a remote does."""
    there, held = desk.list_runs(), desk.commits_here()
    texts = {run_id: _text(desk.repository, desk, run_id, oid) for run_id, oid in there.items() if oid in held}
    unknown = {run_id: oid for run_id, oid in there.items() if oid not in held}
    if unknown:
        texts |= _of_unknown(desk, unknown)
    return [_run(desk, run_id, there[run_id], texts[run_id]) for run_id in sorted(there)]


def _of_unknown(desk: Desk, wanted: Mapping[str, str]) -> dict[str, bytes | LoomError]:
    """Give what commits say that are not in the project's repository. wanted: commit by run."""
    seen = _seen(desk, wanted)
    texts: dict[str, bytes | LoomError] = {run_id: seen[oid] for run_id, oid in wanted.items() if oid in seen}
    missing = {run_id: oid for run_id, oid in wanted.items() if oid not in seen}
    if missing:
        desk.space.store.prepare(commit_runs=desk.space.settings.commit_runs)
        with arrivals.room(desk.space.store, "look-") as room:
            came = _of_commits(desk, sorted(missing), os.path.join(room, "commits.git"))
        texts |= came
        seen |= {missing[run_id]: text for run_id, text in came.items() if isinstance(text, bytes)}
        with suppress(OSError):  # then it is asked for again
            _write_seen(desk, seen)
    return texts


def _of_commits(desk: Desk, run_ids: Sequence[str], bare: str) -> dict[str, bytes | LoomError]:
    """Fetch the commits alone into a repository that is thrown away, so that the project's takes no part in it."""
    desk.repository.ask("init", "--quiet", "--bare", f"--object-format={desk.repository.object_format}", bare)
    scratch = Repository(desk.repository.top, bare)
    failed = _fetched(desk, run_ids, bare)
    return {run_id: failed.get(run_id) or _text(scratch, desk, run_id, f"refs/seen/{run_id}") for run_id in run_ids}


def _fetched(desk: Desk, run_ids: Sequence[str], bare: str) -> dict[str, LoomError]:
    """Fetch runs' commits; gives those that cannot be, each with the reason. Raises where the remote is not reached.

    One that git refuses has the whole fetch fail, so halves of it are tried until it stands alone.
    """
    try:
        desk.repository.fetch(desk.remote, {run_id: f"refs/seen/{run_id}" for run_id in run_ids}, bare=bare)
    except LoomError as error:
        if error.code not in ("BAD_HANDOFF", "REMOTE_UNREACHABLE"):
            raise
        desk.repository.list_runs(desk.remote)  # it answers still: the trouble is with a run
        if len(run_ids) == 1:
            return {run_ids[0]: error}
        half = len(run_ids) // 2
        return _fetched(desk, run_ids[:half], bare) | _fetched(desk, run_ids[half:], bare)
    return {}


def _text(where: Repository, desk: Desk, run_id: str, commit: str) -> bytes | LoomError:
    try:
        return commit_text(where, commit, run_id, desk.remote)
    except LoomError as error:
        return error


def _run(desk: Desk, run_id: str, commit: str, text: bytes | LoomError) -> RemoteRun:
    here = _here(desk, run_id, commit)
    try:
        if isinstance(text, LoomError):
            raise text
        message = read_message(text, run_id, desk.remote)
    except LoomError as error:
        here = UNKNOWN if here in _CLAIMS else here
        return RemoteRun(run_id, commit, "", "unreadable", "", "", "", "", here, f"{error.code}: {error.what}")
    work = message.summary.get("work_id") or message.summary.get("goal") or ""
    status, step = message.summary.get("status") or "", message.summary.get("step") or ""
    words = (masked_line(str(word), 60) for word in (work, status, step, message.by, message.machine, message.at))
    return RemoteRun._make((run_id, commit, *words, here, ""))


def _here(desk: Desk, run_id: str, commit: str) -> str:
    if not desk.space.store.has(run_id):
        return NOT_HERE
    try:
        found = desk.standing_as_known(run_id, commit)
        return _WORDS[found.kind] if found.message is not None or found.base is not None else UNKNOWN
    except LoomError as error:
        return one_line(f"{UNKNOWN} ({error.code})", 60)


# ---- What was seen of commits that are not here.


def _seen(desk: Desk, wanted: Mapping[str, str]) -> dict[str, bytes]:
    """Give what those of the commits say that are known, believed for its hash alone."""
    held = _all_seen(desk).get(desk.remote.key)
    found: dict[str, bytes] = {}
    for commit in wanted.values():
        text = held.get(commit) if isinstance(held, dict) else None
        data = text.encode("latin-1", "replace") if isinstance(text, str) else b""
        whole = b"commit %d\0" % len(data) + data
        if hashlib.new(desk.repository.object_format, whole, usedforsecurity=False).hexdigest() == commit:
            found[commit] = data
    return found


def _write_seen(desk: Desk, seen: Mapping[str, bytes]) -> None:
    kept: dict[str, str] = {}
    left = _LARGEST
    for commit, data in seen.items():
        left -= len(data)
        if left >= 0:
            kept[commit] = data.decode("latin-1")
    others = [(key, held) for key, held in _all_seen(desk).items() if key != desk.remote.key]
    value = dict([*others, (desk.remote.key, kept)][-_MOST_REMOTES:])
    files.write_atomically(_path(desk), files.to_json(value), durable=False)


def _path(desk: Desk) -> str:
    local = desk.space.store.local
    path = os.path.join(local, FILE)
    files.refuse_links(os.path.dirname(local), path)
    return path


def _all_seen(desk: Desk) -> dict[str, Any]:
    try:
        value = files.read_json(_path(desk))
    except (OSError, LoomError):
        return {}
    return value if isinstance(value, dict) else {}


# ---- A file of a run that is not the one that was written: where it may still be whole.


class WayOn(NamedTuple):
    """What a person does about a file that does not fit. hint: one command line that shows more."""

    said: str
    hint: str


def way_on(space: Workspace, run_id: str, path: str, *, otherwise: str) -> WayOn:
    """Say where another copy of a run's file is. path: below the run's folder; otherwise: the hint where none is.

    The copy is what was last pushed or pulled here, as git holds it, or the newest before it that is not damaged as it
    is; no remote is asked. A log is held against its own chain, another file against the one that is here. That a copy
    is whole nobody says: it was masked, and may be older.
    """
    found, looked = _copy(space, run_id, path)
    if found and looked == 0:
        said = "the copy from the last push or pull may be intact (its secrets are masked)"
    elif found:
        said = "an earlier copy from a push or pull may be intact (its secrets are masked); the last one is damaged"
    elif looked:
        said = "the copies from pushes and pulls are damaged, too; look in your own backups"
    else:
        said = "the run was never pushed from here; look in your own backups"
    return WayOn(said, f"git show {quoted(f'{found}:{carried.RUN}{path}')}" if found else otherwise)


def _copy(space: Workspace, run_id: str, path: str) -> tuple[str, int]:
    """Give a ref or commit whose copy of a file is not known to be damaged, "" for none; and how many were before."""
    looked = 0
    with suppress(LoomError, OSError):
        where = repository.of_store(space.store.folder)
        names = [name for name in sorted(where.refs("refs/loom/remotes/")) if name.endswith(f"/{run_id}")]
        for commit in (commit for name in names for commit in (name, *_earlier(where, name))):
            there = f"{commit}:{carried.RUN}{path}"
            if where.run("cat-file", "-e", there).code != 0:
                continue
            if not _is_damaged(space, where, run_id, path, there):
                return commit, looked
            looked += 1
    return "", looked


def _earlier(where: Repository, name: str) -> Iterator[str]:
    """Give the commits before a ref's, the newest first; they are asked for where the ref's own does not do."""
    done = where.run("rev-list", "--first-parent", f"--max-count={_MOST_EARLIER}", "--skip=1", name)
    yield from done.out.decode("ascii", "replace").split() if done.code == 0 else ()


def _is_damaged(space: Workspace, where: Repository, run_id: str, path: str, there: str) -> bool:
    """Tell of a copy that it is no better than what is here; of one that is too large to be looked at nobody knows."""
    size = where.run("cat-file", "-s", there).out.strip()
    if not size.isdigit() or int(size) > _LARGEST_COPY:
        return False
    data = where.run("cat-file", "blob", there).out
    try:
        if path != events.FILE:
            return files.read_bytes(os.path.join(space.store.run_dir(run_id), path), limit=_LARGEST_COPY) == data
        with tempfile.NamedTemporaryFile(prefix="loom-log-") as copy:
            copy.write(data)
            copy.flush()
            return not log_verdict.of_log(copy.name, run_id, None, event_log.all_of(copy.name)).ok
    except (LoomError, OSError):
        return False


def give(source: str, target: str) -> None:
    """Give a file a second name, or a copy where it is appended to or cannot have one. Raises OSError."""
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    if not source.endswith((".jsonl", ".log")):
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # a file system without hard links
            pass
        else:
            return
    shutil.copy2(source, target, follow_symlinks=False)


def give_all(folder: str, target: str) -> None:
    """Give every file below a folder a second name in one that is not there yet; links stay links. Raises OSError."""
    shutil.copytree(folder, target, symlinks=True, copy_function=_given)


def _given(source: str, target: str) -> None:
    give(source, target)
