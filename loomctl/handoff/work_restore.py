"""Put the code of a run back on another machine: a worktree of its own, its files byte for byte as saved (D10, D77).

What the remote has is not believed: its tree is looked at while git lists it, git's own protections of a checkout apply
to the rest, and links that lead out are taken only as the user's own history has them. A failure leaves neither a
worktree nor a branch.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from loomctl.handoff import handoff, raw_git, repository, work, work_parcel, worktrees
from loomctl.handoff.handoff import Desk
from loomctl.handoff.remotes import bad_handoff, last_line, not_fetched
from loomctl.handoff.repository import Repository
from loomctl.handoff.work import Message
from loomctl.kit import files, git
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_USAGE, LoomError, quoted
from loomctl.kit.processes import PATIENCE, Lock
from loomctl.kit.text.fences import counted, one_line
from loomctl.runs.model import visits

MOST_ENTRIES, LONGEST_LIST, LONGEST, LONGEST_NAME, LONGEST_LINK = 1_000_000, 256 << 20, 4000, 255, 4096
"""Of a tree: files and folders, bytes of their list; bytes of a path, of a name in it, and of what a link holds."""
_FILE, _TOOL, _LINK, _MODULE = "100644", "100755", "120000", "160000"

Tree = dict[str, tuple[str, str]]


class PutBack(NamedTuple):
    """What was made. path: of the worktree; message: what the code says of itself; notes: for its user."""

    path: str
    branch: str
    message: Message
    notes: Sequence[str] = ()


def check_place(desk: Desk, run_id: str, folder: str) -> str:
    """Give the absolute path at which a worktree may be made; nothing is written. Raises NOT_EMPTY and USAGE."""
    place = os.path.realpath(os.path.join(desk.space.caller.cwd, folder))
    repo = desk.repository
    for own in (os.path.realpath(repo.common), os.path.realpath(desk.space.store.folder)):
        if files.is_inside(place, own):
            what = "a worktree cannot stand in a folder that git or Loom keeps for itself"
            raise LoomError("USAGE", what, where=place, hint="loomctl pull --help", exit_code=EXIT_USAGE)
    if os.path.lexists(place) and not (os.path.isdir(place) and not os.listdir(place)):
        what = "refusing to put the code there: the folder is not empty" if os.path.isdir(place) else "a file is there"
        why, hint = "a worktree is made anew; nothing was pulled", f"ls -la {quoted(place)}"
        if worktrees.cut_off(desk.space, run_id) == place:
            branch = worktrees.branch_of(desk.space.store.handle(run_id))
            why = "an earlier pull of the run was cut off there, and left it unfinished; remove that first"
            hint = f"git worktree remove --force {quoted(place)} && git branch -D {branch}"
        raise LoomError("NOT_EMPTY", what, where=place, why=why, hint=hint, exit_code=EXIT_USAGE)
    return place


def find(desk: Desk, run_id: str) -> str:
    """Give the remote's commit of a run's code. Raises NO_CODE, and as a remote does."""
    found = desk.repository.list_runs(desk.remote, below=work.WORK, run_id=run_id).get(run_id)
    if found is None:
        what = f"the remote {desk.remote.shown} has no code of the run; nothing was pulled"
        why = (
            "loomctl drive saves the code after each step, and loomctl push takes it along. The state alone comes with"
        )
        hint = f"loomctl pull {run_id}{desk.remote.option}"
        where = f"{desk.remote.shown} {work.WORK}{run_id}"
        raise LoomError("NO_CODE", what, where=where, why=why, hint=hint, exit_code=EXIT_NO_RUN)
    return found


def put_back(desk: Desk, run_id: str, theirs: str, place: str, *, clear: Callable[[], None] = lambda: None) -> PutBack:
    """Make a worktree with the code of a run. theirs: the remote's commit of it; place: as `check_place` gives it.

    clear: makes room at the place, once what came is known to be sound. Raises BRANCH_EXISTS, BAD_HANDOFF,
    MOVED_MEANWHILE, GIT_FAILED, and what a remote raises; then there is none.
    """
    lock = os.path.join(desk.space.store.local, "locks", f"work-{run_id}.lock")
    with Lock(lock, patience=PATIENCE, what="the code of the run"):
        ref = work_parcel.incoming_ref(desk, run_id)
        try:
            work_parcel.get(desk, run_id, theirs)
            putting = _Putting(desk, run_id, theirs, place)
            clear()
            made = putting.put()
            _take(desk, run_id, theirs)
        finally:
            with suppress(LoomError):
                desk.repository.set_refs({ref: None})
        return made


def _take(desk: Desk, run_id: str, theirs: str) -> None:
    """Have the run's code here go on from what came; what was saved here before stays in its history."""
    repo, ref = desk.repository, work.WORK + run_id
    here = repo.commit_of(ref)
    if here is None or repo.is_ancestor(here, theirs):
        repo.set_refs({ref: theirs})
    elif not repo.is_ancestor(theirs, here):
        work_parcel.join(desk, run_id, theirs, here, now=here)


class _Putting:
    """One worktree on its way."""

    def __init__(self, desk: Desk, run_id: str, commit: str, place: str) -> None:
        self._desk, self._run_id, self._commit, self._place = desk, run_id, commit, place
        self._repo, self._store = desk.repository, desk.space.store
        self._is_made = False
        self._branch = worktrees.branch_of(self._store.handle(run_id))
        try:
            self._message, _, _ = work.read(self._repo, commit)
            self._base = self._message.base
            self._complete()
            self._history = self._tree(self._base, is_history=True) if self._base else {}
            self._files = self._tree(commit)
            self._hold_links()
        except ValueError as error:
            raise self._bad(str(error)) from None
        if self._message.run_id != run_id:
            raise self._bad(f"it calls itself the code of {one_line(self._message.run_id, 80)}")

    def _complete(self) -> None:
        """Fetch what a partial clone left at the remote that it was made from: all files of the code are needed."""
        source = raw_git.promisor(self._repo)
        if not source:
            return
        commits = [one for one in (self._commit, self._base) if one]
        listed = self._repo.ask("rev-list", "--objects", "--missing=print", "--no-walk", *commits)
        missing = b"".join(line[1:] + b"\n" for line in listed.splitlines() if line.startswith(b"?"))
        if not missing:
            return
        words = ["-c", "fetch.negotiationAlgorithm=noop", "-c", f"remote.{source}.fetch=", "fetch", "--quiet"]
        words += ["--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--recurse-submodules=no", "--filter=blob:none"]
        words += ["--stdin", "--", source]
        done = self._repo.run(*words, given=missing, patience=repository.CARRYING, far=True)
        if done.code != 0:
            raise not_fetched(self._desk.remote, done, self._run_id)

    def _bad(self, why: str) -> LoomError:
        error = bad_handoff(self._desk.remote, self._run_id, f"the code is not one that Loom saved: {why}")
        error.where = f"{self._desk.remote.shown} {work.WORK}{self._run_id}"
        error.what = "the remote has no valid code of the run; no worktree was made"
        return error

    # ---- What came.

    def _tree(self, commit: str, *, is_history: bool = False) -> Tree:
        """List a tree. is_history: of a commit of the user's own, which git looks at as it does at any."""
        found: Tree = {}
        total = 0
        with closing(self._repo.tree(commit, most=MOST_ENTRIES, longest=LONGEST_LIST)) as entries:
            for mode, kind, oid, size, path in entries:
                trouble = "" if is_history else _trouble(mode, kind, size, path)
                total += max(size, 0)
                if trouble or path in found or (total > handoff.LARGEST and not is_history):
                    raise ValueError(f"{one_line(path, 120)} {trouble or 'occurs twice, or the whole is too large'}")
                if kind != "tree":
                    found[path] = (mode, oid)
        if not is_history and raw_git.settings(self._repo, r"^core\.ignorecase$").get("core.ignorecase") == "true":
            self._hold_apart(found)
        return found

    def _hold_apart(self, found: Iterable[str]) -> None:
        seen: dict[str, str] = {}
        for path in found:
            parts = path.split("/")
            for at in range(1, len(parts) + 1):
                name = "/".join(parts[:at])
                if seen.setdefault(name.casefold(), name) != name:
                    raise ValueError(f"{one_line(name, 120)} and another name are the same on this disk")

    def _hold_links(self) -> None:
        """Refuse a link that may lead out of the worktree, unless the user's own history has it."""
        links = {path: oid for path, (mode, oid) in self._files.items() if mode == _LINK}
        unknown = [path for path, oid in links.items() if self._history.get(path) != (_LINK, oid)]
        with closing(self._repo.contents([links[path] for path in unknown])) as contents:
            for path, (size, stream) in zip(unknown, contents, strict=True):
                target = os.fsdecode(stream.read(size))
                if work.leads_out(path, target):
                    raise ValueError(f"the link {one_line(path, 120)} leads out of it")

    # ---- The worktree.

    def put(self) -> PutBack:
        self._refuse_branch()
        worktrees.note(self._desk.space, self._run_id, self._place, is_whole=False)
        try:
            there = self._make()
            self._write(there)
            notes = self._by_git(there)
            worktrees.note(self._desk.space, self._run_id, self._place)
        except BaseException:
            if self._is_made:
                self._undo()
            raise
        return PutBack(self._place, self._branch, self._message, [*notes, *self._notes()])

    def _refuse_branch(self) -> None:
        if f"refs/heads/{self._branch}" not in self._repo.refs(f"refs/heads/{self._branch}"):
            return
        place = worktrees.place_of(self._repo, self._branch)
        what = f"the branch {self._branch} exists already; no worktree was made"
        where = f"It is checked out in {place}, whose files may be older. " if place else ""
        why = f"it may hold work that is nowhere else, so it stays. {where}Rename it, then pull again"
        hint = f"git branch -m {self._branch} {self._branch}-before"
        raise LoomError("BRANCH_EXISTS", what, where=self._repo.top, why=why, hint=hint, exit_code=EXIT_USAGE)

    def _make(self) -> Repository:
        words = ["worktree", "add", "--quiet", "--no-checkout", "--no-track"]
        if self._base is not None:
            words += ["-b", self._branch, "--", self._place, self._base]
        else:
            words = [*words[:-1], "--detach", "--", self._place, self._commit]
        self._repo.ask(*words)
        self._is_made = True
        folders = git.git_folders(self._place)
        if folders is None:
            raise LoomError("GIT_FAILED", "git made no worktree", where=self._place, hint="git worktree list")
        there = raw_git.in_checkout(self._place, folders[0])
        if self._base is not None:
            there.ask("read-tree", self._base)
        else:
            there.ask("symbolic-ref", "HEAD", f"refs/heads/{self._branch}")
        return there

    def _write(self, there: Repository) -> None:
        with raw_git.over(self._store, there, self._repo.common) as own:
            own.ask("read-tree", self._commit)
            done = own.run("checkout-index", "--all", "--quiet", "--index", patience=repository.CARRYING)
            missing = own.ask("diff-files", "--name-only", "-z", "--ignore-submodules=all")
        if done.code != 0 or missing:
            name = one_line(os.fsdecode(missing.split(b"\0")[0]), 120)
            why = last_line(done.said) or f"{name} is not what was saved"
            what = "git could not write the code; no worktree was made"
            raise LoomError("GIT_FAILED", what, where=self._place, why=why, hint=f"df -h {quoted(self._place)}")

    def _by_git(self, there: Repository) -> list[str]:
        """Have git write what is not saved as bytes: files of Loom's and of filters, those left out; gives notes."""
        equal = [path for path, held in self._files.items() if self._history.get(path) == held]
        apart = {name for name, _ in self._message.left_out}
        stay = [path for path in self._history if path not in self._files and (work.is_apart(path) or path in apart)]
        made = work.filtered(there, equal)
        names = b"".join(os.fsencode(path) + b"\0" for path in (*made, *stay))
        done = there.run(
            "checkout-index", "-q", "-f", "-z", "--stdin", given=names, patience=repository.CARRYING, far=True
        )
        modules = [
            f"{mode},{oid},{path}"
            for path, (mode, oid) in self._files.items()
            if mode == _MODULE and self._history.get(path) != (mode, oid)
        ]
        if modules:  # else `git submodule update` would fetch the commit of before
            there.ask("update-index", *(word for one in modules for word in ("--add", "--cacheinfo", one)))
        self._track_ignored(there)
        there.run("update-index", "-q", "--refresh", patience=repository.CARRYING)
        if done.code == 0:
            return []
        again = f"git -C {quoted(self._place)} checkout -- ."
        return [f"Git could not write files that its filters make: {last_line(done.said)}. Try: {again}"]

    def _track_ignored(self, there: Repository) -> None:
        """Have git track what it tracked there and would ignore here, so that the next look at the code sees it."""
        said = there.ask("ls-files", "-z", "--others", "--ignored", "--exclude-standard")
        names = [path for path in os.fsdecode(said).split("\0") if path in self._files]
        entries = (f"{self._files[path][0]} {self._files[path][1]} 0\t{path}" for path in names)
        if names:
            given = b"".join(os.fsencode(entry) + b"\0" for entry in entries)
            there.ask("update-index", "--add", "-z", "--index-info", given=given)

    def _undo(self) -> None:
        self._repo.run("worktree", "remove", "--force", "--", self._place)
        self._repo.run("update-ref", "-d", f"refs/heads/{self._branch}")

    def _notes(self) -> Iterator[str]:
        state = self._store.read_state(self._run_id)
        more = sum(1 for one in visits.every(state) if one.get("stage")) - self._message.stages
        if more > 0:
            yield f"The code is older than the state: {counted(more, 'step')} began after it was saved"
        if self._message.filtered:
            yield f"{counted(self._message.filtered, 'file')} came through a filter of git's, such as Git LFS"


def _trouble(mode: str, kind: str, size: int, path: str) -> str:
    parts = path.split("/")
    if len(os.fsencode(path)) > LONGEST or any(len(os.fsencode(part)) > LONGEST_NAME for part in parts):
        return "is too long"
    if any(part.casefold() in ("", ".", "..", ".git", work.APART) for part in parts):
        return "is no name that a project's file can have"
    if kind == "tree" or (kind == "commit" and mode == _MODULE):
        return ""
    if kind != "blob" or mode not in (_FILE, _TOOL, _LINK):
        return "is neither a file nor a link"
    return "is too large" if size < 0 or (mode == _LINK and size > LONGEST_LINK) else ""
