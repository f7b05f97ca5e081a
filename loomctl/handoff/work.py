"""Save the code of a run: what the files of its checkout hold, as a commit under `refs/loom/work/{run_id}` (D77).

The tree holds each file's own bytes, tracked or not, as far as git does not ignore it. The user's branches, index,
HEAD, stash and files are only read, and no hook, filter or other program of theirs runs. The commit's parents are HEAD
and the commit before, so nothing that was saved gets lost, and git sends only what is new.
"""

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from loomctl.handoff import carried, raw_git, repository
from loomctl.handoff.carried import LeftOut
from loomctl.handoff.repository import Repository
from loomctl.kit import clock, files, git, machine
from loomctl.kit.errors import EXIT_SETUP, EXIT_SKEW, UPDATE, LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.processes import PATIENCE, Lock
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import mask, masked
from loomctl.runs.model import visits
from loomctl.runs.project import Workspace
from loomctl.runs.store import leftovers

WORK = "refs/loom/work/"
FOLDER = leftovers.CODE
"""`.loom/local/work/{run_id}.index`: git's index of what was saved last, so that unchanged files are not read again."""
SCHEMA = 1
STAGE_PATIENCE = 20.0
"""Seconds that a stage's end waits for its code to be saved: a third of what hosts give the hook."""
LARGEST = 100 << 20
"""Bytes of a file that is saved: most servers take no larger one."""
APART = ".loom"
_NO_REPOSITORY = ("NO_GIT", "NO_REPOSITORY")
_MOST_NAMED, _MOST_SHOWN = 1000, 3
_LARGE_FILES = "lfs"
_LONGEST = 1 << 20  # bytes of a commit that is read
_LONGEST_POINTER, _PIECE = 1024, 1 << 20
_NO_COMMIT = {"sha1": "0" * 40, "sha256": "0" * 64}
# Untracked files that projects are to ignore and that hold what nobody may push.
_SECRET = re.compile(
    r"\.env(\.(?!example$|sample$|template$|dist$).+)?|\.(envrc|netrc|pgpass|pypirc|npmrc|git-credentials|htpasswd)"
    r"|id_(rsa|dsa|ecdsa|ed25519)|.+\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk|tfvars|tfstate)|credentials(\.json)?|secrets\.(json|ya?ml|toml)",
    re.IGNORECASE,
)


class Snapshot(NamedTuple):
    """What became of saving. commit: what the run's ref names now, None where git refused; is_new: made just now.

    left_out: files that are not in it, with the reason; notes: lines for the user, which were not told before.
    """

    commit: str | None
    is_new: bool = False
    left_out: Sequence[LeftOut] = ()
    notes: Sequence[str] = ()


class Message(NamedTuple):
    """What such a commit says. base: the HEAD of then, None where there was none yet; step, stages: of the run then.

    at: UTC; filtered: how many files git's own filters are to make, such as those of Git LFS.
    """

    run_id: str
    at: str
    machine: str
    base: str | None
    step: str
    stages: int
    left_out: tuple[tuple[str, str], ...] = ()
    filtered: int = 0

    def text(self) -> str:
        """Give the message: a line for people, then the same as JSON. Secrets in it are masked."""
        said = {"schema_version": SCHEMA, **masked(self._asdict()), "run_id": self.run_id, "base": self.base}
        head = one_line(f"Loom: code of {self.run_id} at {said['step'] or 'no step'}", 200)
        return f"{head}\n\n{json.dumps(said, ensure_ascii=False)}\n"


def snapshot(space: Workspace, run_id: str) -> Snapshot | None:
    """Save what the caller's checkout holds as the code of a run. None: there is no git, or no repository.

    What git refuses is told in the notes, and raises nothing: the run goes on without.
    """
    try:
        return _Saving(space, run_id).save()
    except LoomError as error:
        if error.code in _NO_REPOSITORY:
            return None
        return Snapshot(None, notes=(_refusal(f"{error.what} ({error.why})" if error.why else error.what),))
    except (OSError, ValueError) as error:
        return Snapshot(None, notes=(_refusal(str(error)),))


def ignored(space: Workspace) -> list[str]:
    """Name what git ignores in the caller's checkout, folders as a whole, Loom's own apart. Raises GIT_FAILED."""
    words = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--no-empty-directory")
    listed = os.fsdecode(checkout_of(space)[0].ask(*words)).split("\0")
    return [path.rstrip("/") for path in listed if path and not is_apart(path)]


def changed_apart(space: Workspace) -> list[str]:
    """Name what of Loom's own in the caller's checkout is not as its last commit has it: no snapshot saves that."""
    words = (
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--ignored",
        "--",
        f":(glob)**/{APART}/**",
    )
    listed = os.fsdecode(checkout_of(space)[0].ask(*words)).split("\0")
    return [line[3:].rstrip("/") for line in listed if line and line[:2] not in (" D", "D ")]


def save_stage(space: Workspace, run_id: str) -> None:
    """Save what a stage of a driven run left, before the next one changes it.

    A hook can wait for so long; what takes longer is made up for by the driver, with what stands there then.
    """
    child = os.fork()
    if child:
        until = time.monotonic() + STAGE_PATIENCE
        while os.waitpid(child, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.005)
        return
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)  # nobody waits for what it would say
        snapshot(space, run_id)
    finally:
        os._exit(0)


def _refusal(why: str) -> str:
    return f"Loom could not save the code of this step for another machine: {one_line(why, 300)}"


def checkout_of(space: Workspace) -> tuple[Repository, str]:
    """Give git for the checkout that the caller works in, and the folder of its repository that all checkouts share.

    Raises NO_GIT, and NO_REPOSITORY where it is none of the repository that has the run's store.
    """
    owner = repository.of_store(space.store.folder)
    top = git.top_of(space.project.root)
    folders = git.git_folders(top) if top is not None else None
    if top is None or folders is None or os.path.realpath(folders[1]) != os.path.realpath(owner.common):
        raise _no_checkout("this is no checkout of the project's repository", space.project.root)
    if folders[0] != folders[1] and not git.is_worktree_of(top, *folders):
        raise _no_checkout("the repository does not know this worktree", top)
    return raw_git.in_checkout(top, folders[0]), folders[1]


def _no_checkout(what: str, where: str) -> LoomError:
    return LoomError("NO_REPOSITORY", what, where=where, hint="git worktree list", exit_code=EXIT_SETUP)


def read(repo: Repository, commit: str) -> tuple[Message, str, list[str]]:
    """Read a commit of a run's code: what it says, its tree, its parents.

    Raises GIT_FAILED, NEWER_HANDOFF, and ValueError for another commit.
    """
    head, _, body = repo.commit_text(commit, _LONGEST).decode("utf-8", "replace").partition("\n\n")
    lines = [line.split(" ", 1) for line in head.splitlines() if " " in line]
    parents = [value for key, value in lines if key == "parent"]
    try:
        raw = files.parse_json(body.partition("\n\n")[2].encode(), where=commit)
    except LoomError as error:
        raise ValueError(f"its message cannot be read ({error.code})") from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if type(version) is int and version > SCHEMA:
        what = f"a newer Loom saved the run's code (schema {version}; this one reads {SCHEMA})"
        raise LoomError("NEWER_HANDOFF", what, where=commit, hint=UPDATE, exit_code=EXIT_SKEW)
    if not isinstance(raw, dict) or version != SCHEMA:
        raise ValueError("its message is not one of a run's code")
    base, listed = raw.get("base"), raw.get("left_out")
    if base is not None and base not in parents[:1]:
        raise ValueError("it does not go on from the commit that it names")
    run_id, at, where, step = (str(raw.get(key) or "") for key in ("run_id", "at", "machine", "step"))
    stages, by_filters = (raw[key] if type(raw.get(key)) is int else 0 for key in ("stages", "filtered"))
    pairs = [one for one in listed if isinstance(one, list)] if isinstance(listed, list) else []
    left_out = tuple((pair[0], pair[1]) for pair in pairs if [type(part) for part in pair] == [str, str])
    return Message(run_id, at, where, base, step, stages, left_out, by_filters), lines[0][1], parents


def write(repo: Repository, tree: str, parents: Iterable[str | None], message: Message) -> str:
    """Write a commit of a run's code. Raises GIT_FAILED."""
    known = repo.committer()
    who = f"{known[0]} <{known[1]}>" if known is not None else "Loom <loom@localhost>"
    when = f"{who} {clock.seconds_of(message.at)} +0000"
    lines = [f"tree {tree}", *(f"parent {one}" for one in dict.fromkeys(parents) if one)]
    lines += [f"author {when}", f"committer {when}", "", message.text()]
    data = "\n".join(lines).encode("utf-8", "backslashreplace")
    return repo.ask("hash-object", "-t", "commit", "-w", "--stdin", given=data).decode().strip()


def leads_out(path: str, target: str) -> bool:
    """Tell whether a link may lead out of its checkout, whatever other links stand in it.

    Only upward first and then downward is certain: what `a/..` is depends on where `a` leads.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or up > path.count("/") or ".." in parts[up:]


class _Entry(NamedTuple):
    """What the user's index says of a path."""

    mode: str
    oid: str
    is_sparse: bool


class _Saving:
    """One look at a checkout, and the commit that is made of it."""

    def __init__(self, space: Workspace, run_id: str) -> None:
        self._space, self._run_id = space, checked_id(run_id)
        if not repository.fits_a_ref(run_id):
            raise ValueError("the run's id cannot be part of a git ref")
        self._real, self._common = checkout_of(space)
        self._top = self._real.top
        self._left_out: list[LeftOut] = []
        self._tracked: dict[str, _Entry] = {}
        self._others: list[str] = []

    def save(self) -> Snapshot:
        store = self._space.store
        index = os.path.join(store.local, FOLDER, f"{self._run_id}.index")
        files.refuse_links(store.folder, index)
        files.make_folder(os.path.dirname(index))
        lock = os.path.join(store.local, "locks", f"work-{self._run_id}.lock")
        with Lock(lock, patience=PATIENCE, what="the code of the run"):
            files.remove(f"{index}.lock")  # of a git that was killed: whoever lives holds the lock above
            try:
                return self._save(index)
            except LoomError as error:
                if error.code != "GIT_FAILED" or not os.path.lexists(index):
                    raise
                files.remove(index)  # what git noted of the files may be damaged, or name objects that are gone
                return self._save(index)

    def _save(self, index: str) -> Snapshot:
        self._left_out = []
        self._list()
        ref = WORK + self._run_id
        base, before = self._real.commit_of("HEAD"), self._real.commit_of(ref)
        files_here, as_committed, filtered = self._sort(base)
        with raw_git.over(self._space.store, self._real, self._common, index) as own:
            tree = self._tree(own, files_here, as_committed)
        told: tuple[tuple[str, str], ...] = ()
        if before is not None:
            with suppress(ValueError):
                said, tree_before, _ = read(self._real, before)
                told = said.left_out
                if tree_before == tree and said.base == base:
                    return Snapshot(before, left_out=tuple(self._left_out), notes=self._news(told))
        left_out = tuple((mask(one.name)[0], one.why) for one in self._left_out[:_MOST_NAMED])
        state = self._space.store.read_state(self._run_id)
        step, stages = str(state.get("current_step") or ""), sum(1 for one in visits.every(state) if one.get("stage"))
        message = Message(self._run_id, clock.now(), machine.hostname(), base, step, stages, left_out, filtered)
        commit = write(self._real, tree, (base, before), message)
        expected = before or _NO_COMMIT[self._real.object_format]
        self._real.ask("update-ref", "--no-deref", ref, commit, expected)
        return Snapshot(commit, True, tuple(self._left_out), self._news(told))

    def _news(self, told: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        new = [one for one in self._left_out if (mask(one.name)[0], one.why) not in told]
        if not new:
            return ()
        named = "; ".join(f"{one_line(mask(one.name)[0], 120)}: {one.why}" for one in new[:_MOST_SHOWN])
        more = f"; and {len(new) - _MOST_SHOWN:,} more" if len(new) > _MOST_SHOWN else ""
        return (f"{counted(len(new), 'file')} will not go along to another machine ({named}{more})",)

    # ---- What stands there.

    def _list(self) -> None:
        answer = self._real.ask("ls-files", "-z", "-s", "-t", "--cached", "--others", "--exclude-standard")
        self._tracked, self._others = {}, []
        for entry in os.fsdecode(answer).split("\0"):
            about, _, path = entry.partition("\t")
            if entry.startswith("? "):
                path = entry[2:]
                self._others += [path] if not is_apart(path) else []
            elif path and not is_apart(path):
                tag, mode, oid, _ = about.split(" ")
                self._tracked[path] = _Entry(mode, oid, tag == "S")

    def _sort(self, base: str | None) -> tuple[list[str], dict[str, _Entry], int]:
        """Give the files whose bytes are saved, what is saved as git has it, and how many of these a filter makes."""
        found: list[str] = []
        as_committed: dict[str, _Entry] = {}
        links: dict[str, str] = {}
        standing = list(self._standing(as_committed))
        filters = self._filters()
        large = {path for path, status in standing if stat.S_ISREG(status.st_mode) and status.st_size > LARGEST}
        unchanged = self._unchanged(filters, large)
        for path, status in standing:
            entry = self._tracked.get(path)
            why = self._trouble(path, status, is_tracked=entry is not None)
            if stat.S_ISDIR(status.st_mode):
                if git.git_folders(os.path.join(self._top, path)) and git.head(os.path.join(self._top, path)).commit:
                    found.append(path)
                elif entry is not None and entry.mode == "160000":
                    as_committed[path] = entry
            elif entry is not None and path in unchanged:
                as_committed[path] = entry
            elif path in filters and filters[path] != _LARGE_FILES:
                self._left_out.append(
                    LeftOut(path, f"git is to store what its filter {one_line(filters[path], 40)} makes of it")
                )
            elif why:
                self._left_out.append(LeftOut(path, why))
            elif stat.S_ISLNK(status.st_mode) and leads_out(path, target := os.readlink(os.path.join(self._top, path))):
                links[path] = target
            else:
                found.append(path)
        found += self._as_in_history(links, base)
        return found, as_committed, sum(1 for path in as_committed if path in filters)

    def _standing(self, as_committed: dict[str, _Entry]) -> Iterator[tuple[str, os.stat_result]]:
        """Give what stands in the checkout, with its status; what a sparse checkout leaves out is as git has it."""
        real: dict[str, bool] = {"": True}
        for path in (*self._tracked, *self._others):
            if path.endswith("/"):
                self._left_out.append(LeftOut(path, "it is a repository of its own"))
                continue
            folder = os.path.dirname(path)
            if folder not in real:
                whole = f"{self._top}/{folder}"
                real[folder] = os.path.realpath(whole) == whole
            try:
                status = os.lstat(f"{self._top}/{path}")
            except OSError:
                status = None
            if status is not None and real[folder]:  # what is behind a link is not there, as git sees it
                yield path, status
            elif path in self._tracked and self._tracked[path].is_sparse:
                as_committed[path] = self._tracked[path]

    def _trouble(self, path: str, status: os.stat_result, *, is_tracked: bool) -> str:
        if not is_tracked and _SECRET.fullmatch(os.path.basename(path)):
            return "it looks like a secret, and git does not track it"
        if stat.S_ISREG(status.st_mode) and status.st_size > LARGEST:
            return f"it is larger than {LARGEST >> 20} MiB"
        return "" if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) else "it is not a plain file"

    def _as_in_history(self, links: Mapping[str, str], base: str | None) -> list[str]:
        """Give the links that lead out of the checkout as those do that the last commit has; others stay here."""
        if not links:
            return []
        words = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", base or "", "--", *links)
        listed = os.fsdecode(self._real.ask(*words)).split("\0") if base and len(links) < _MOST_NAMED else []
        known = {path: about.split(" ")[2] for about, _, path in (one.partition("\t") for one in listed if one)}
        algorithm = self._real.object_format
        found = [path for path in links if known.get(path) == carried.oid_of(os.fsencode(links[path]), algorithm)]
        self._left_out += [
            LeftOut(path, "it is a link that leads out of the project") for path in links if path not in found
        ]
        return found

    def _filters(self) -> dict[str, str]:
        """Give the files that a filter of git's makes, with its name."""
        return filtered(self._real, [*self._tracked, *(path for path in self._others if path[-1] != "/")])

    def _unchanged(self, filters: Mapping[str, str], large: set[str]) -> set[str]:
        """Give the tracked files among these that are as git has them, by size and time; no filter is asked."""
        if not (filters or large):
            return set()
        off = [f"filter.{name}.{key}={no}" for name in set(filters.values()) for key, no in _OFF if "=" not in name]
        words = [word for setting in off for word in ("-c", setting)]
        said = self._real.ask(*words, "diff-files", "--name-only", "-z", "--no-renames", "--ignore-submodules=dirty")
        changed = set(os.fsdecode(said).split("\0"))
        asked = (filters.keys() | large) & self._tracked.keys()
        return {path for path in asked if path not in changed or self._is_as_its_pointer(path, filters.get(path))}

    def _is_as_its_pointer(self, path: str, by: str | None) -> bool:
        """Tell of a file of Git LFS's, which git takes for changed by its time, whether its pointer names its bytes."""
        if by != _LARGE_FILES or not self._tracked[path].mode.startswith("100"):
            return False
        try:
            pointer = self._real.content(self._tracked[path].oid) if self._size(path) <= _LONGEST_POINTER else b""
            named = re.search(rb"^oid sha256:([0-9a-f]{64})\nsize (\d+)$", pointer, re.MULTILINE)
            with os.fdopen(files.open_regular(os.path.join(self._top, path)), "rb") as source:
                if named is None or os.fstat(source.fileno()).st_size != int(named[2]):
                    return False
                sha256 = hashlib.sha256()
                while piece := source.read(_PIECE):
                    sha256.update(piece)
        except (OSError, LoomError):
            return False
        return sha256.hexdigest().encode() == named[1]

    def _size(self, path: str) -> int:
        return int(self._real.ask("cat-file", "-s", self._tracked[path].oid))

    # ---- The tree.

    def _tree(self, own: Repository, found: Sequence[str], as_committed: Mapping[str, _Entry]) -> str:
        wanted = {*found, *as_committed}
        gone = [path for path in os.fsdecode(own.ask("ls-files", "-z")).split("\0") if path and path not in wanted]
        if gone:
            own.ask("update-index", "--force-remove", "-z", "--stdin", given=lines(gone))
        self._add(own, found)
        if as_committed:
            entries = (f"{entry.mode} {entry.oid} 0\t{path}" for path, entry in as_committed.items())
            own.ask("update-index", "--add", "--replace", "-z", "--index-info", given=lines(entries))
        is_partial = as_committed and raw_git.promisor(self._real)
        return own.ask("write-tree", *(["--missing-ok"] if is_partial else [])).decode().strip()

    def _add(self, own: Repository, found: Sequence[str]) -> None:
        words = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        done = own.run(*words, given=lines(found), patience=repository.CARRYING)
        if done.code != 0:  # git stops at the first file that it cannot read
            bad = [path for path in found if not _is_readable(os.path.join(self._top, path))]
            self._left_out += [LeftOut(path, "it cannot be read") for path in bad]
            found = [path for path in found if path not in set(bad)]
            own.ask("update-index", "--force-remove", "-z", "--stdin", given=lines(bad))
            done = own.run(*words, given=lines(found), patience=repository.CARRYING)
        if done.code != 0:
            what, why = "git could not store the files", one_line(done.said, 200)
            raise LoomError("GIT_FAILED", what, where=self._top, why=why, hint="git status")
        refused = re.findall(r"^Ignoring path (.*)$", done.said, re.MULTILINE)
        self._left_out += [LeftOut(path, "git takes no such name") for path in refused]


_OFF = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))


def filtered(repo: Repository, paths: Iterable[str]) -> dict[str, str]:
    """Give those of a checkout's files that a filter makes which git has settings for, with its name."""
    pattern = r"^filter\..*\.(clean|smudge|process)$"
    known = {key.split(".", 1)[1].rpartition(".")[0] for key, value in raw_git.settings(repo, pattern).items() if value}
    if not known:
        return {}
    answer = repo.ask("check-attr", "-z", "--stdin", "filter", given=lines(paths))
    words = os.fsdecode(answer).split("\0")
    return {path: value for path, value in zip(words[::3], words[2::3], strict=False) if value in known}


def is_apart(path: str) -> bool:
    """Tell whether a path is one of Loom's own, which is never saved."""
    return APART in path.split("/")


def _is_readable(path: str) -> bool:
    return os.path.islink(path) or not os.path.lexists(path) or os.access(path, os.R_OK)


def lines(paths: Iterable[str]) -> bytes:
    """Give paths as git reads a list of them."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def summary(message: Message | None) -> dict[str, Any] | None:
    """Give what a commit says as a JSON document."""
    return message._asdict() if message is not None else None
