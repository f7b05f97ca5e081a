"""A run that machines share while it is driven: brought before, sent after each step (D77, D78).

The remote's state counts: who has another here keeps it as a run of its own, and goes on from the remote's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from loomctl.flow.open_project import workspace
from loomctl.handoff import pull, push, repository, work, work_restore, worktrees
from loomctl.handoff.handoff import Desk
from loomctl.kit.errors import LoomError
from loomctl.runs import project
from loomctl.runs.machine import run_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.project import Workspace

ELSEWHERE = ("REMOTE_NEWER", "DIVERGED")
"""Codes of errors that say that another machine goes on with the run."""


class Brought(NamedTuple):
    """What came. commit: of the run on the remote, empty where it has none; notes: for its user."""

    commit: str
    notes: Sequence[str] = ()


def bring(space: Workspace, run_id: str, named: str | None = None, *, code: bool = True) -> Brought:
    """Have a run's state here as the remote has it, and its code in its worktree, unless what is here goes on from it.

    code: False leaves that for another time. Raises as a pull does.
    """
    desk = Desk(space, named)
    theirs = desk.repository.list_runs(desk.remote, run_id=run_id).get(run_id)
    if theirs is None:
        return Brought("")
    was_known = run_notes.is_known(run_id, space.store.folder)
    pulled = pull.pull(desk, run_id, theirs, keep=pull.TOOK_THEIRS)
    if was_known:  # its user took it up here, and goes on with it
        run_notes.note_taken_up(run_id, space.store.folder, shut_in=space.caller.shut_in)
    notes = list(pulled.notes)
    if pulled.saved:
        notes.append(f"What was here stays as {space.store.handle(pulled.saved)}")
    if code:
        notes += _code(desk, run_id, is_new=pulled.kind not in (pull.NOTHING, pull.AHEAD))
    return Brought(theirs, notes)


def _code(desk: Desk, run_id: str, *, is_new: bool) -> Sequence[str]:
    """Put the remote's code of a run into its worktree. is_new: whatever stands there, for the state came just now."""
    space, repo = desk.space, desk.repository
    theirs = repo.list_runs(desk.remote, below=work.WORK, run_id=run_id).get(run_id)
    if theirs is None:
        return ()
    branch = worktrees.branch_of(space.store.handle(run_id))
    place, here = worktrees.place_of(repo, branch), repo.commit_of(work.WORK + run_id)
    if place and os.path.isdir(place):
        if here == theirs or (here is not None and not is_new and repo.is_ancestor(theirs, here)):
            return ()
        _save(space, run_id, place)
    worktrees.remove(space, run_id, branch)
    place = work_restore.check_place(desk, run_id, place or worktrees.default_place(space, run_id))
    return work_restore.put_back(desk, run_id, theirs, place).notes


def listed(space: Workspace, named: str | None = None) -> dict[str, str]:
    """List the remote's runs with their commits. Raises as a remote does."""
    desk = Desk(space, named)
    return desk.repository.list_runs(desk.remote)


def _save(space: Workspace, run_id: str, place: str) -> None:
    """Save what stands in a worktree before it goes: it becomes a part of the code's history."""
    found = project.find((place,))
    if found is not None and found.store == space.project.store:
        work.snapshot(workspace(found, space.settings, space.caller._replace(cwd=place)), run_id)


def send(space: Workspace, run_id: str, named: str | None = None) -> str:
    """Send a run's state and code to the remote; gives its commit there. Raises as a push does (ELSEWHERE)."""
    desk = Desk(space, named)
    pushed = push.send(desk, push.prepare(desk, run_id))
    return pushed.commit or desk.repository.list_runs(desk.remote, run_id=run_id).get(run_id, "")


def address(space: Workspace, named: str | None = None) -> str:
    """Give where the remote is, as git knows it; empty where there is none."""
    try:
        repo = repository.of_store(space.store.folder)
        return repo.url_of(repository.find_remote(repo, named, space.caller.cwd))
    except LoomError:
        return ""
