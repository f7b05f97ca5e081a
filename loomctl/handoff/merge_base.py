"""Where a run here and a remote's meet: the newest commit of the remote's that what is here goes on from (D53).

A repository is one thing and a run's store another: several stores may share a repository's refs, and a store may be
put back to what it was, by a backup or by another branch. So no ref says what a run here goes on from, its log does:
each push writes an entry of its own into that, and carries it. A log that holds such an entry goes on from that push.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from loomctl.handoff import carried
from loomctl.kit import files
from loomctl.runs.machine import agreed
from loomctl.runs.store import events

if TYPE_CHECKING:
    from loomctl.handoff.carried import Entry, Look
    from loomctl.handoff.handoff import Desk

LOG = carried.RUN + events.FILE
_MOST_COMMITS = 10_000  # of a remote's run that are looked through


def log_of(look: Look) -> bytes:
    """Give a run's log as it was looked at; empty where none is carried."""
    entry = look.files.get(LOG)
    return files.read_bytes(entry.source, limit=carried.LARGEST_FILE)[: entry.bytes] if entry is not None else b""


def base(desk: Desk, run_id: str, theirs: str | None, look: Look) -> str | None:
    """Give the commit that a run here goes on from: the newest in what a remote has.

    One that was settled here by a word (`--keep-mine`) counts, as long as the log is the one from then or goes on from
    that. theirs: the remote's commit, if it is here; else what was last agreed on with it counts alone. None: there is
    none, or nobody knows.
    """
    fitting = _fitting(desk, run_id, look)
    own = fitting.get(desk.remote.key)
    if theirs is None:
        return own if own is not None and desk.repository.commit_of(own) else None
    if own == theirs:
        return own
    return _newest(desk, theirs, log_of(look), set(fitting.values()))


def _fitting(desk: Desk, run_id: str, look: Look) -> dict[str, str]:
    """Give the commits that were agreed on, by remote, as far as the log here is or goes on from the one from then."""
    held = agreed.read(desk.space.store.local, run_id)
    lines = agreed.lines_of(log_of(look)) if held else frozenset()
    return {key: one.commit for key, one in held.items() if one.line in lines}


def _newest(desk: Desk, theirs: str, log: bytes, settled: set[str]) -> str | None:
    """Give the newest commit that was settled, or whose log the one here begins with.

    Of several with one log it is the first, and none whose log is no longer than that of a settled one before it: only
    such are pushes of Loom's, which write an entry each time.
    """
    algorithm = desk.repository.object_format
    every = list(desk.repository.history(theirs, LOG, most=_MOST_COMMITS))
    by_word = next((at for at, one in enumerate(every) if one[0] in settled), len(every))
    by_log = next((at for at, one in enumerate(every[:by_word]) if _begins(log, *one[1:], algorithm)), by_word)
    while by_log + 1 < by_word and every[by_log + 1][1] == every[by_log][1]:
        by_log += 1
    if by_log < by_word < len(every) and every[by_log][2] <= every[by_word][2]:
        by_log = by_word
    return every[by_log][0] if by_log < len(every) else None


def _begins(log: bytes, oid: str, size: int, algorithm: str) -> bool:
    """Tell whether a log begins with the whole lines of another, of which size and git's name are known."""
    whole = 0 < size <= len(log) and log[size - 1 : size] == b"\n"
    return whole and carried.oid_of(log[:size], algorithm) == oid


def goes_on(desk: Desk, look: Look, commit: str, run_id: str) -> bool:
    """Tell whether a commit's log begins with the one that is here, byte for byte.

    A commit that merely follows ours does not show it: who kept another state put that behind ours.
    """
    entry, there = look.files.get(LOG), desk.tree(commit, run_id).get(LOG)
    return entry is not None and there is not None and entry.bytes > 0 and _is_beginning(desk, LOG, entry, there)


def is_part(desk: Desk, look: Look, base: str | None, theirs: str, run_id: str) -> bool:
    """Tell of a run whose log theirs goes on from that each of its files is a part of theirs, too, or was before.

    Before: as it is in base, or in what was agreed on with another remote.
    Not everything that is done to a run is told in its log: tool steps are not, nor what a person puts beside it. The
    state is what the log tells; outputs stay here, whatever comes.
    """
    there = desk.tree(theirs, run_id)
    known = {base, *_fitting(desk, run_id, look).values()}
    before = [desk.tree(one, run_id) for one in known if one is not None and desk.repository.commit_of(one)]
    for path, entry in look.files.items():
        if not path.startswith(carried.RUN) or path == carried.STATE or path.startswith(carried.OUTPUTS):
            continue
        if entry.oid in (one.get(path) for one in (there, *before)):
            continue
        if not (path.endswith(".jsonl") and path in there and _is_beginning(desk, path, entry, there[path])):
            return False
    return True


def has_news(desk: Desk, look: Look, base: str | None, run_id: str) -> bool:
    """Tell whether a run's log here has entries that its base has not."""
    return base is None or look.names().get(LOG) != desk.tree(base, run_id).get(LOG)


def _is_beginning(desk: Desk, path: str, entry: Entry, there: str) -> bool:
    """Tell whether a file begins with what is carried of the one that is here."""
    if entry.oid == there:
        return True
    mine, _ = carried.form(path, files.read_bytes(entry.source, limit=carried.LARGEST_FILE))
    if mine is None:
        return False
    mine = mine[: entry.bytes]
    with desk.repository.contents([there]) as contents:
        _, size, stream = next(contents)
        return size > len(mine) and stream.read(len(mine)) == mine


def note(desk: Desk, run_id: str, commit: str, log: bytes | None = None) -> None:
    """Note that both sides have a commit. log: the run's here, where that is not the commit's: it was settled so."""
    store, key = desk.space.store, desk.remote.key
    if log is not None:
        agreed.write(store.local, run_id, key, agreed.Agreed(commit, agreed.last_line(log)))
        return
    told = agreed.Agreed(commit, agreed.last_line(_log_in(desk, run_id, commit)))
    with contextlib.suppress(OSError):  # the logs tell it, too
        agreed.write(store.local, run_id, key, told)


def _log_in(desk: Desk, run_id: str, commit: str) -> bytes:
    oid = desk.tree(commit, run_id).get(LOG)
    if oid is None:
        return b""
    with desk.repository.contents([oid]) as contents:
        _, size, stream = next(contents)
        return stream.read(size)
