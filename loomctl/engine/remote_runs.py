"""The runs that a remote has, and how each stands to the one here; only the commits that nobody knows are fetched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.disk import arrivals, git_refs, received
from loomctl.engine import handoff
from loomctl.model.errors import LoomError
from loomctl.model.fences import one_line
from loomctl.model.secrets import masked_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.disk.git_refs import Repository
    from loomctl.disk.received import Told
    from loomctl.engine.handoff import Desk

NOT_HERE, UNKNOWN = "not here", "unknown"
_WORDS = {
    handoff.SAME: "the same",
    handoff.MINE: "newer here",
    handoff.THEIRS: "newer there",
    handoff.DIVERGED: "diverged",
}


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
    there = desk.repository.listed(desk.remote)
    known = {run_id: desk.base(run_id, oid) for run_id, oid in there.items()}
    unknown = {run_id: oid for run_id, oid in there.items() if known[run_id] != oid}
    told: dict[str, Told | LoomError] = {}
    for run_id in there.keys() - unknown.keys():
        told[run_id] = _told(desk.repository, desk, run_id, there[run_id])
    if unknown:
        desk.space.store.prepare(commit_runs=desk.space.settings.commit_runs)
        with arrivals.room(desk.space.store, "look-") as room:
            told |= _of_commits(desk, unknown, room)
    return [_run(desk, run_id, there[run_id], known[run_id], told[run_id]) for run_id in sorted(there)]


def _of_commits(desk: Desk, wanted: Mapping[str, str], room: str) -> dict[str, Told | LoomError]:
    """Fetch the commits alone into a repository that is thrown away, so that the project's takes no part in it."""
    bare = os.path.join(room, "commits.git")
    desk.repository.ask("init", "--quiet", "--bare", f"--object-format={desk.repository.object_format}", bare)
    scratch = git_refs.Repository(desk.repository.top, bare)
    desk.repository.fetch(desk.remote, {run_id: f"refs/seen/{run_id}" for run_id in wanted}, bare=bare)
    return {run_id: _told(scratch, desk, run_id, f"refs/seen/{run_id}") for run_id in wanted}


def _told(repository: Repository, desk: Desk, run_id: str, commit: str) -> Told | LoomError:
    where = received.where_of(desk.remote, run_id)
    try:
        return received.read_message(repository.message(commit, received.LONGEST_MESSAGE), run_id, where)
    except ValueError as error:
        return received.bad(where, str(error))
    except LoomError as error:
        return error


def _run(desk: Desk, run_id: str, commit: str, base: str | None, told: Told | LoomError) -> RemoteRun:
    here = _here(desk, run_id, commit, base)
    if isinstance(told, LoomError):
        return RemoteRun(run_id, commit, "", "unreadable", "", "", "", "", here, f"{told.code}: {told.what}")
    work = told.summary.get("work_id") or told.summary.get("goal") or ""
    status, step = told.summary.get("status") or "", told.summary.get("step") or ""
    words = (masked_line(str(word), 60) for word in (work, status, step, told.by, told.machine, told.at))
    return RemoteRun._make((run_id, commit, *words, here, ""))


def _here(desk: Desk, run_id: str, commit: str, base: str | None) -> str:
    """Say how a run here stands to the remote's; what has no common beginning is told by a pull alone."""
    if not desk.space.store.has(run_id):
        return NOT_HERE
    try:
        if base is None:
            return UNKNOWN
        return _WORDS[desk.standing(run_id, commit, fetch=False).kind]
    except LoomError as error:
        return one_line(f"{UNKNOWN} ({error.code})", 60)
