"""A run that machines share while it is driven: brought before, sent after each step (D77, D78).

The remote's state counts: who has another here keeps it as a run of its own, and goes on from the remote's.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from loomctl.flow.open_project import workspace
from loomctl.handoff import pull, push, raw_git, repository, work, work_parcel, work_restore, worktrees
from loomctl.handoff.handoff import Desk
from loomctl.kit import clock, machine
from loomctl.kit.errors import LoomError
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


def bring(
    space: Workspace, run_id: str, named: str | None = None, *, theirs: str | None = None, code: bool = True
) -> Brought:
    """Have a run's state here as the remote has it, and its code in its worktree, unless what is here goes on from it.

    theirs: its commit there, as it was just listed; code: False leaves that for another time. Raises as a pull does.
    """
    desk = Desk(space, named)
    there = work_parcel.listed(desk, run_id) if theirs is None or code else work_parcel.There(theirs, None)
    theirs = theirs or there.state
    if theirs is None:
        return Brought("")
    was_known = run_notes.is_known(run_id, space.store.folder)
    pulled = pull.pull(desk, run_id, theirs, keep=pull.TOOK_THEIRS)
    if was_known:  # its user took it up here, and goes on with it
        run_notes.note_taken_up(run_id, space.store.folder, shut_in=space.caller.shut_in)
    notes = list(pulled.notes)
    if pulled.saved:
        notes.append(f"The state that was here stays as {space.store.handle(pulled.saved)}")
    if code and there.code is not None:
        notes += _code(desk, run_id, there.code, is_new=pulled.kind not in (pull.NOTHING, pull.AHEAD))
    return Brought(theirs, notes)


def _code(desk: Desk, run_id: str, theirs: str, *, is_new: bool) -> Sequence[str]:
    """Have a run's worktree as the remote has its code; gives notes.

    theirs: the remote's commit of it; is_new: whatever stands there, for the state came just now. What stood there
    becomes a part of the code's history; what git does not keep stays in it, or beside it.
    """
    space, repo = desk.space, desk.repository
    branch = worktrees.branch_of(space.store.handle(run_id))
    known, here = worktrees.place_of(repo, branch), repo.commit_of(work.WORK + run_id)
    place = known or worktrees.default_place(space, run_id)
    worktrees.clear_cut_off(space, run_id, place)
    stands = known != "" and os.path.isdir(place)
    if stands:
        if not is_new and here is not None and repo.is_ancestor(theirs, here):
            return ()
        unsaved = _save(space, run_id, place)
        if repo.commit_of(work.WORK + run_id) == theirs:
            return ()
        worktrees.refuse_submodules(place)

    def clear() -> None:
        if stands:
            worktrees.keep(place, unsaved)
        worktrees.remove(space, run_id, branch, saved=repo.commit_of(work.WORK + run_id))
        work_restore.check_place(desk, run_id, place)

    notes = [*work_restore.put_back(desk, run_id, theirs, place, clear=clear).notes]
    left = worktrees.give_back(place)
    return [*notes, f"The rest of the run's worktree is in {left}"] if left else notes


def listed(space: Workspace, named: str | None = None) -> dict[str, str]:
    """List the remote's runs with their commits. Raises as a remote does."""
    desk = Desk(space, named)
    return desk.repository.list_runs(desk.remote)


def _save(space: Workspace, run_id: str, place: str) -> Sequence[str]:
    """Save what stands in a worktree before it goes: it becomes a part of the code's history.

    Gives what is not saved, relative to the worktree: what git ignores, what no other machine is to have, or all.
    """
    there = _in_worktree(space, place)
    saved = work.snapshot(there, run_id) if there is not None else None
    if there is None or saved is None or saved.commit is None:  # all of it is nowhere else
        return [name for name in os.listdir(place) if name != ".git"]
    return [*work.ignored(there), *work.changed_apart(there), *(one.name for one in saved.left_out)]


def _in_worktree(space: Workspace, place: str) -> Workspace | None:
    found = worktrees.project_in(space, place) if place else None
    return workspace(found, space.settings, space.caller._replace(cwd=found.root)) if found is not None else None


def send_end(space: Workspace, run_id: str) -> str:
    """Send a run that is over, from its worktree if it has one: whoever drove it may have died before. As `send`."""
    there = _in_worktree(space, worktrees.of_run(space, run_id))
    return send(there or space, run_id, saves=there is not None)


def send(space: Workspace, run_id: str, named: str | None = None, *, saves: bool = False) -> str:
    """Send a run's state and code to the remote; gives its commit there. Raises as a push does (ELSEWHERE).

    saves: the caller works in the run's own checkout: the code is what stands there.
    """
    desk = Desk(space, named)
    save = partial(work.snapshot, space, run_id) if saves else None
    pushed = push.send(desk, push.prepare(desk, run_id), save=save)
    return pushed.commit or pushed.parcel.standing.theirs or ""


def begin(space: Workspace, run_id: str) -> None:
    """Save the last commit as the code that a run begins with, wherever it is driven; nothing where there is none."""
    real, common = work.checkout_of(space)
    base = real.commit_of("HEAD")
    if base is None or real.commit_of(work.WORK + run_id) is not None:
        return
    with raw_git.over(space.store, real, common) as own:
        own.ask("read-tree", base)
        listed = os.fsdecode(own.ask("ls-files", "-z")).split("\0")
        apart = [path for path in listed if path and work.is_apart(path)]
        own.ask("update-index", "--force-remove", "-z", "--stdin", given=work.lines(apart))
        tree = own.ask("write-tree").decode().strip()
    message = work.Message(run_id, clock.now(), machine.hostname(), base, "", 0)
    commit = work.write(real, tree, (base,), message)
    real.ask("update-ref", "--no-deref", work.WORK + run_id, commit)


def address(space: Workspace, named: str | None = None) -> str:
    """Give where the remote is, as git knows it; empty where there is none."""
    try:
        repo = repository.of_store(space.store.folder)
        return repo.url_of(repository.find_remote(repo, named, space.caller.cwd))
    except LoomError:
        return ""
