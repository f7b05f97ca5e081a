"""Worktrees of runs: one for each, on a branch of its own beside the project, and away again once merged (D77)."""

import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from loomctl.handoff import repository
from loomctl.handoff.remotes import last_line
from loomctl.handoff.repository import Repository
from loomctl.kit import digests, files, git, ids, machine
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.processes import PATIENCE, Lock
from loomctl.runs import project
from loomctl.runs.model.state import ACTIVE
from loomctl.runs.project import Project, Workspace

BRANCHES = "loom/"
KEPT = ".kept"  # behind the path of a worktree that is replaced: what is nowhere else of it
FOLDER = "worktrees"
"""`.loom/local/worktrees/{run_id}.json`: `{path, is_whole}` of the worktree that Loom made for a run."""


class Worktree(NamedTuple):
    """A worktree that Loom made. goes: whether it may go; why: it may, or stays; bytes: of its files, if it goes."""

    run_id: str
    path: str
    branch: str
    goes: bool
    why: str
    bytes: int = 0


class Removal(NamedTuple):
    """What was done. failed: what could not be removed, with the reason."""

    removed: Sequence[Worktree]
    failed: Sequence[tuple[Worktree, str]]


def branch_of(handle: str) -> str:
    """Name the branch of a run. handle: what people call it."""
    return f"{BRANCHES}{handle}"


def make(space: Workspace, run_id: str) -> str:
    """Give the worktree of a run, made at the caller's HEAD if there is none; gives its path.

    Raises NO_GIT, NO_REPOSITORY, NO_COMMIT, NOT_EMPTY, GIT_FAILED, HELD.
    """
    repo = repository.of_store(space.store.folder)
    handle = space.store.handle(run_id)
    branch = branch_of(handle)
    with Lock(os.path.join(space.store.local, "locks", f"worktree-{run_id}.lock"), patience=PATIENCE):
        found = place_of(repo, branch)
        if found and os.path.isdir(found):
            return found
        place = found or _place(repo, handle)
        clear_cut_off(space, run_id, place)
        if os.path.lexists(place) and (not os.path.isdir(place) or os.listdir(place)):
            what, why = "the place of the run's worktree is taken", "Loom removes nothing that it did not make"
            hint = f"mv {quoted(place)} {quoted(place + '.aside')}"
            raise LoomError("NOT_EMPTY", what, where=place, why=why, hint=hint, exit_code=EXIT_USAGE)
        note(space, run_id, place)
        # -f: one whose folder somebody removed is made anew.
        words = ["worktree", "add", "--quiet", *(["-f"] if found else [])]
        if repo.commit_of(f"refs/heads/{branch}") is not None:
            words += ["--", place, branch]
        else:
            words += ["--no-track", "-b", branch, "--", place, _head(space, repo)]
        done = repo.run(*words, patience=repository.CARRYING, far=True)
        if done.code != 0:
            why = last_line(done.said)
            raise LoomError(
                "GIT_FAILED", "git could not make the worktree", where=place, why=why, hint="git worktree list"
            )
        return place


def clear_cut_off(space: Workspace, run_id: str, place: str) -> None:
    """Remove what stands in a run's place where git, or Loom, was killed while it made the worktree there."""
    if _noted(space).get(run_id) != place or not os.path.isdir(place):
        return
    common = os.path.realpath(repository.of_store(space.store.folder).common)
    own = _folder_of(place)
    is_own = own != "" and files.is_inside(os.path.realpath(own), os.path.join(common, FOLDER))
    if cut_off(space, run_id) == place or (is_own and repository.is_half_made(own)):
        shutil.rmtree(place)
        if is_own:
            shutil.rmtree(own)


def _folder_of(place: str) -> str:
    """Give git's own folder of a worktree, as it says; empty where it says none."""
    try:
        text = files.read_bytes(os.path.join(place, ".git"), limit=1 << 16).decode("utf-8", "replace")
    except (OSError, LoomError):
        return ""
    name = text.removeprefix("gitdir:").strip()
    return os.path.join(place, name) if text.startswith("gitdir:") and os.path.isdir(os.path.join(place, name)) else ""


def refuse_without_commit(space: Workspace) -> None:
    """Refuse to begin a run in a worktree where none can be made. Raises NO_GIT, NO_REPOSITORY, NO_COMMIT."""
    _head(space, repository.of_store(space.store.folder))


def _head(space: Workspace, repo: Repository) -> str:
    found = git.head(git.top_of(space.project.root) or repo.top).commit or repo.commit_of("HEAD")
    if found is None:
        what = "a worktree begins at a commit, and the project has none yet"
        raise LoomError(
            "NO_COMMIT", what, where=repo.top, hint="git commit --allow-empty -m First", exit_code=EXIT_USAGE
        )
    return found


def _place(repo: Repository, handle: str) -> str:
    """Give where a run's worktree stands: beside the repository, as `REPOSITORY.worktrees/RUN`, where that can be."""
    top = os.path.realpath(repo.top)
    parent, name = os.path.split(top)
    beside = os.path.join(parent, f"{name}.worktrees")
    is_inside = git.top_of(parent) is not None  # another repository's tree
    nearest = beside if os.path.isdir(beside) else parent
    home = machine.state_home()
    if home and (is_inside or not os.access(nearest, os.W_OK)):
        beside = os.path.join(home, FOLDER, f"{name}-{digests.of_text(top)[:8]}")
    return os.path.join(beside, handle)


def default_place(space: Workspace, run_id: str) -> str:
    """Give where the worktree of a run stands if nobody says otherwise. Raises NO_GIT, NO_REPOSITORY."""
    return _place(repository.of_store(space.store.folder), space.store.handle(run_id))


def project_in(space: Workspace, place: str) -> Project | None:
    """Give the project as it stands in a worktree of its repository; None in one of another's."""
    top = git.top_of(space.project.root)
    below = os.path.relpath(os.path.realpath(space.project.root), os.path.realpath(top)) if top else os.curdir
    folder = os.path.join(place, below)
    files.make_folder(folder)  # a project that was not committed yet has none there
    found = project.find((folder,))
    return found if found is not None and found.store == space.project.store else None


def refuse_submodules(place: str) -> None:
    """Refuse to replace a worktree that has submodules: what is in them is saved nowhere. Raises NOT_EMPTY."""
    own = _folder_of(place)
    if own and os.path.isdir(os.path.join(own, "modules")):
        what, why = "the run's worktree has submodules, so newer code does not replace it", "Loom saves none of theirs"
        hint = f"git -C {quoted(place)} submodule status"
        raise LoomError("NOT_EMPTY", what, where=place, why=why, hint=hint, exit_code=EXIT_USAGE)


def remove(space: Workspace, run_id: str, branch: str, *, saved: str | None) -> None:
    """Remove the worktree of a run, whatever stands in it, and its branch. saved: the commit that has all of it.

    A branch that has more keeps it under another name. Raises GIT_FAILED.
    """
    repo = repository.of_store(space.store.folder)
    place = place_of(repo, branch)
    if place:
        repo.ask("worktree", "remove", "--force", "--force", "--", place)
    tip = repo.commit_of(f"refs/heads/{branch}")
    if tip is not None:
        if saved is None or not repo.is_ancestor(tip, saved):
            repo.ask("update-ref", f"refs/heads/{branch}-{tip[:12]}", tip)
        repo.ask("update-ref", "-d", f"refs/heads/{branch}", tip)
    files.remove(_note_path(space, run_id))


def keep(place: str, names: Sequence[str]) -> None:
    """Put beside what of a worktree is nowhere else, before it is replaced. names: relative to it. Raises OSError.

    What a call that was cut off left there goes back before, or gets a name of its own.
    """
    left = give_back(place)
    if left:
        os.rename(left, f"{left}-{secrets.token_hex(4)}")
    for name in names:
        source, target = os.path.join(place, name), os.path.join(place + KEPT, name)
        if os.path.lexists(source) and not os.path.lexists(target):
            files.make_folder(os.path.dirname(target))
            os.rename(source, target)


def give_back(place: str) -> str:
    """Put what was kept beside a worktree back into it, also that of a call that was cut off.

    Gives the folder in which the rest stays, for something else stands there now; empty where all of it went back.
    """
    kept = place + KEPT
    for below, folders, names in os.walk(kept) if os.path.isdir(kept) else ():
        there = os.path.normpath(os.path.join(place, os.path.relpath(below, kept)))
        for name in [*folders, *names]:
            source, target = os.path.join(below, name), os.path.join(there, name)
            if not os.path.lexists(target) and os.path.isdir(there) and not os.path.islink(there):
                os.rename(source, target)
        folders[:] = [name for name in folders if os.path.isdir(os.path.join(below, name))]
    for below, _, _ in os.walk(kept, topdown=False):
        with suppress(OSError):  # it holds what stays
            os.rmdir(below)
    return kept if os.path.lexists(kept) else ""


def place_of(repo: Repository, branch: str) -> str:
    """Give the worktree in which a branch is checked out, there or not; empty if in none."""
    return _checked_out(repo).get(f"refs/heads/{branch}", "")


def _checked_out(repo: Repository) -> dict[str, str]:
    found, path = {}, ""
    for line in os.fsdecode(repo.ask("worktree", "list", "--porcelain")).split("\n"):
        key, _, value = line.partition(" ")
        path = value if key == "worktree" else path
        if key == "branch":
            found[value] = path
    return found


# ---- What Loom made.


def note(space: Workspace, run_id: str, path: str, *, is_whole: bool = True) -> None:
    """Remember that Loom made a worktree, or is about to. Raises OSError and UNSAFE_LINK."""
    target = _note_path(space, run_id)
    files.make_folder(os.path.dirname(target))
    files.write_atomically(target, files.to_json({"path": path, "is_whole": is_whole}), durable=False)


def of_run(space: Workspace, run_id: str) -> str:
    """Give the worktree that Loom made for a run, where git still has it; else an empty text."""
    path = _noted(space).get(run_id, "")
    if not path or not os.path.isdir(path):
        return ""
    try:
        known = map(os.path.realpath, _checked_out(repository.of_store(space.store.folder)).values())
    except LoomError:
        return ""
    return path if os.path.realpath(path) in known else ""


def cut_off(space: Workspace, run_id: str) -> str:
    """Give the path of a worktree that a pull began to make and did not end; empty where there is none."""
    try:
        held = files.read_json(_note_path(space, run_id))
    except (OSError, LoomError):
        return ""
    path = held.get("path") if isinstance(held, dict) and held.get("is_whole") is False else None
    return path if isinstance(path, str) else ""


def _note_path(space: Workspace, run_id: str) -> str:
    path = os.path.join(space.store.local, FOLDER, f"{ids.checked_id(run_id)}.json")
    files.refuse_links(os.path.dirname(space.store.local), path)
    return path


def _noted(space: Workspace) -> dict[str, str]:
    folder = os.path.join(space.store.local, FOLDER)
    found = {}
    if not files.leads_away(os.path.dirname(space.store.local), folder) and os.path.isdir(folder):
        for name in sorted(os.listdir(folder)):
            run_id = name.removesuffix(".json")
            if name.endswith(".json") and ids.is_fit(run_id):
                try:
                    held = files.read_json(os.path.join(folder, name))
                except (OSError, LoomError):
                    continue
                path = held.get("path") if isinstance(held, dict) else None
                if isinstance(path, str) and os.path.isabs(path):
                    found[run_id] = path
    return found


# ---- What can go.


def look(space: Workspace) -> list[Worktree]:
    """List the worktrees that Loom made, and say of each whether it can go, and why it stays; nothing is written."""
    noted = _noted(space)
    if not noted:
        return []
    try:
        repo = repository.of_store(space.store.folder)
        branches = {path: ref.removeprefix("refs/heads/") for ref, path in _checked_out(repo).items()}
    except LoomError:
        return []
    found = []
    for run_id, path in noted.items():
        branch = branches.get(os.path.realpath(path), "")
        if os.path.isdir(path) and branch.startswith(BRANCHES):
            found.append(_judged(space, repo, Worktree(run_id, path, branch, False, "")))
    return found


def _judged(space: Workspace, repo: Repository, tree: Worktree) -> Worktree:
    """Say whether a worktree can go: its run is over, nothing in it is uncommitted, and its commits are elsewhere."""
    handle = space.store.handle(tree.run_id)
    try:
        status = str(space.store.read_state(tree.run_id)["status"]) if space.store.has(tree.run_id) else "gone"
    except LoomError:
        return tree._replace(why="its run cannot be read")
    if status in ACTIVE or status == "pending":
        return tree._replace(why=f"the run {handle} is not over ({status})")
    if files.is_inside(space.caller.cwd, tree.path):
        return tree._replace(why="you are in it")
    is_dirty = git.is_dirty(tree.path, patience=10.0)
    if is_dirty or is_dirty is None:
        why = "it has changes that are not committed" if is_dirty else "git did not say whether all of it is committed"
        return tree._replace(why=why)
    other = _other_branch(repo, tree.branch)
    if not other:
        return tree._replace(why=f"no other branch has the commits of {tree.branch}")
    why = f"its run is over, and {other} has its commits"
    return tree._replace(goes=True, why=why, bytes=machine.size_below(tree.path))


def _other_branch(repo: Repository, branch: str) -> str:
    """Name a branch, other than those of runs, that has all commits of a branch; empty where none has."""
    words = ("for-each-ref", "--format=%(refname)", f"--contains=refs/heads/{branch}", "refs/heads", "refs/remotes")
    names = os.fsdecode(repo.ask(*words)).splitlines()
    own = f"refs/heads/{BRANCHES}"
    others = [name for name in names if not name.startswith(own) and f"/{BRANCHES}" not in name]
    return others[0].removeprefix("refs/heads/").removeprefix("refs/remotes/") if others else ""


def clean(space: Workspace, found: Sequence[Worktree]) -> Removal:
    """Remove worktrees that can go, with their branches, as far as they still are what they were."""
    removed: list[Worktree] = []
    failed: list[tuple[Worktree, str]] = []
    for run_id, path in _noted(space).items():
        if not os.path.lexists(path):  # its user removed it
            files.remove(_note_path(space, run_id))
    for tree in found:
        if not tree.goes:
            continue
        try:
            repo = repository.of_store(space.store.folder)
            tip = repo.commit_of(f"refs/heads/{tree.branch}")
            now = _judged(space, repo, tree._replace(goes=False))
            if not now.goes or tip is None:
                failed.append((tree, now.why))
                continue
            repo.ask("worktree", "remove", "--", tree.path)  # git itself refuses one with changes, or a locked one
            repo.ask("update-ref", "-d", f"refs/heads/{tree.branch}", tip)
            files.remove(_note_path(space, tree.run_id))
            removed.append(tree)
        except (OSError, LoomError) as error:
            failed.append((tree, f"{error.what}: {error.why}" if isinstance(error, LoomError) else str(error)))
    return Removal(removed, failed)
