"""What a handoff asks of git: objects and refs of a repository, and the refs of a remote. Plumbing alone.

Nothing here reads or writes the user's index, HEAD, branches or working tree, and no hook of the repository runs:
refs below `refs/loom/` and objects are all that changes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, NamedTuple

from loomctl.handoff.git_answers import Done, Remote, is_full, last_line, no_git, not_fetched, other_names, unreachable
from loomctl.kit import git, ids
from loomctl.kit.errors import EXIT_SETUP, LoomError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

RUNS = "refs/loom/runs/"
ASKING, CARRYING = 60.0, 900.0
"""Seconds that a remote may take to list its refs, and to take or give objects."""
LOCAL = 60.0
_LONGEST_ANSWER = 256 << 20
_LOOKED_AT = "loom-looked-at"  # what the scratch repository calls the remote
_OF_A_REPOSITORY = frozenset(
    f"GIT_{name}"
    for name in (
        *("ALTERNATE_OBJECT_DIRECTORIES", "CONFIG", "OBJECT_DIRECTORY", "DIR", "WORK_TREE", "IMPLICIT_WORK_TREE"),
        *("GRAFT_FILE", "INDEX_FILE", "NO_REPLACE_OBJECTS", "REPLACE_REF_BASE", "PREFIX", "SHALLOW_FILE", "COMMON_DIR"),
        *("NAMESPACE", "QUARANTINE_PATH", "LITERAL_PATHSPECS"),
    )
)
# No hook, no tidying up behind the user's back, no signing, and no settings of a remote that would change more refs.
_QUIET = (
    *(
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "gc.auto=0",
        "-c",
        "maintenance.auto=false",
    ),
    *("-c", "commit.gpgSign=false", "-c", "push.gpgSign=false", "-c", "fetch.writeCommitGraph=false"),
    *("-c", "core.logAllRefUpdates=false", "--no-replace-objects", "--no-pager"),
)
_PROMPTS = {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never", "GCM_INTERACTIVE": "never"}


class Repository:
    """A repository's objects and refs. top: its checkout, from which a remote's relative path counts.

    asks: a person sits at a terminal and may be asked for a password by git or ssh.
    """

    def __init__(self, top: str, common: str, *, asks: bool = False) -> None:
        self.top, self.common, self._asks = top, common, asks
        self._format = ""

    # ---- Git itself.

    def run(self, *words: str, given: bytes = b"", patience: float = LOCAL, far: bool = False) -> Done:
        """Run git to its end. far: it talks to a remote, and may ask a person where one is there."""
        talks = far and self._asks
        with tempfile.TemporaryFile() as source:
            source.write(given)
            source.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", f"--git-dir={self.common}", *_QUIET, *words],
                    cwd=self.top,
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=self._environment(asks=talks, far=far),
                    start_new_session=not talks,
                )
            except OSError as error:
                raise no_git(str(error)) from None
            try:
                out, said = process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                _end_process(process, alone=talks)
                return Done(None, b"", f"it took over {patience:g} s")
            except BaseException:
                _end_process(process, alone=talks)
                raise
        return Done(process.returncode, out, said.decode("utf-8", "replace"))

    @staticmethod
    def _environment(*, asks: bool, far: bool) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key not in _OF_A_REPOSITORY}
        kept["LC_ALL"] = "C"
        if far and not asks:
            kept |= _PROMPTS
        if not far:  # an object that a partial clone lacks is not fetched unasked
            kept |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
        return kept

    def ask(self, *words: str, given: bytes = b"") -> bytes:
        """Run a local git command that has to end well; gives what it printed. Raises GIT_FAILED."""
        done = self.run(*words, given=given)
        if done.code != 0:
            raise self._failed(words[0], done)
        return done.out

    def _failed(self, what: str, done: Done) -> LoomError:
        return LoomError(
            "GIT_FAILED",
            f"git {what} failed",
            where=self.common,
            why=last_line(done.said) or f"it ended with {done.code}",
            hint=f"df -h {quoted(self.common)}"
            if is_full(done.said)
            else f"git -C {quoted(self.top)} fsck --connectivity-only",
        )

    # ---- Refs.

    def commit_of(self, ref: str) -> str | None:
        """Give the commit that a ref names, if it and its objects' root are here; None where there is none."""
        done = self.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        oid = done.out.decode("ascii", "replace").strip()
        return oid if done.code == 0 and git.is_oid(oid) else None

    def refs(self, below: str) -> dict[str, str]:
        """Give the refs below a name with what they point to."""
        lines = self.ask("for-each-ref", "--format=%(objectname) %(refname)", below).decode("utf-8", "replace")
        pairs = (line.split(" ", 1) for line in lines.splitlines())
        return {name: oid for oid, name in pairs}

    def set_refs(self, wanted: Mapping[str, str | None]) -> None:
        """Set refs, or delete those that are to be None, all of them or none."""
        lines = [f"update {name} {oid}" if oid else f"delete {name}" for name, oid in wanted.items()]
        there = self.refs("refs/loom/")
        lines = [line for line, (name, oid) in zip(lines, wanted.items(), strict=True) if oid or name in there]
        if lines:
            self.ask("update-ref", "--no-deref", "--stdin", given=("\n".join(lines) + "\n").encode())

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Tell whether a commit is the other one or comes before it."""
        return self.run("merge-base", "--is-ancestor", older, newer).code == 0

    def history(self, commit: str, path: str, *, most: int) -> Iterator[tuple[str, str, int]]:
        """Give a commit and those before it, newest first, each with object and size of a file: empty and 0 for none.

        most: so many of them. Raises GIT_FAILED.
        """
        commits = self.ask("rev-list", "--topo-order", f"--max-count={most}", commit).decode("ascii").split()
        given = "".join(f"{one}:{path}\n" for one in commits).encode()
        lines = self.ask("cat-file", "--batch-check", given=given).decode("ascii", "replace").splitlines()
        for one, line in zip(commits, lines, strict=True):
            words = line.split()
            is_file = len(words) == 3 and words[1] == "blob" and words[2].isdigit()
            yield (one, words[0], int(words[2])) if is_file else (one, "", 0)

    # ---- Objects.

    @property
    def object_format(self) -> str:
        """`sha1` or `sha256`."""
        if not self._format:
            self._format = self.ask("rev-parse", "--show-object-format").decode().strip() or "sha1"
        return self._format

    def commit_text(self, commit: str, limit: int) -> bytes:
        """Give a commit as git holds it. Raises GIT_FAILED, and ValueError for one over `limit` bytes."""
        if int(self.ask("cat-file", "-s", commit)) > limit:
            raise ValueError("its message is too long")
        return self.ask("cat-file", "commit", commit)

    @contextmanager
    def tree(self, commit: str, *, most: int, longest: int) -> Iterator[Iterator[tuple[str, str, str, int, bytes]]]:
        """List a commit's files and folders as git comes upon them, a folder before what is in it, whatever they are.

        Gives mode, kind, object, size in bytes (-1: not known) and path. Of a tree that says one thing again and again
        a few kB unfold without end, so git is stopped by whoever has seen enough. Raises GIT_FAILED, and ValueError
        beyond `most` entries or `longest` bytes of them, or where git takes too long.
        """
        with self._reading("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit) as reading:
            yield entries_of(reading, most, longest)

    @contextmanager
    def contents(self, oids: Sequence[str]) -> Iterator[Iterator[tuple[str, int, IO[bytes]]]]:
        """Give the content of blobs, one after the other: object, size, and a stream of which so much is to be read."""
        given = "".join(f"{oid}\n" for oid in oids).encode()
        with self._reading("cat-file", "--batch", given=given, patience=CARRYING) as reading:
            yield self._each(oids, reading.stream)

    @contextmanager
    def _reading(self, *words: str, given: bytes = b"", patience: float = LOCAL) -> Iterator[Reading]:
        """Read from a local git command while it runs; at the end it is stopped. patience: seconds that it may take."""
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as said:
            source.write(given)
            source.seek(0)
            process = subprocess.Popen(
                ["git", f"--git-dir={self.common}", *_QUIET, *words],
                cwd=self.top,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=said,
                env=self._environment(asks=False, far=False),
                start_new_session=True,
            )
            assert process.stdout is not None  # it is a pipe
            watch = threading.Timer(patience, process.kill)
            watch.daemon = True
            watch.start()

            def failed(code: int) -> LoomError:
                said.seek(0)
                return self._failed(words[0], Done(code, b"", said.read(1 << 16).decode("utf-8", "replace")))

            try:
                yield Reading(process.stdout, process.wait, failed)
            finally:
                watch.cancel()
                _end_process(process)
                process.stdout.close()

    def _each(self, oids: Sequence[str], stream: IO[bytes]) -> Iterator[tuple[str, int, IO[bytes]]]:
        for oid in oids:
            head = stream.readline(200).decode("ascii", "replace").split()
            if len(head) != 3 or head[1] != "blob" or not head[2].isdigit():
                raise self._failed("cat-file", Done(1, b"", f"the object {oid} is not here"))
            yield oid, int(head[2]), stream
            stream.read(1)

    def write(self, ref: str, parts: Iterable[bytes]) -> str:
        """Have `git fast-import` write objects and a commit, and point a ref to it; gives the commit.

        parts: of its stream. Raises GIT_FAILED; then the ref is what it was.
        """
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                ["git", f"--git-dir={self.common}", *_QUIET, "fast-import", "--quiet", "--force", "--done"],
                cwd=self.top,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=self._environment(asks=False, far=False),
                start_new_session=True,
            )
            assert process.stdin is not None  # it is a pipe
            watch = threading.Timer(CARRYING, process.kill)
            watch.daemon = True
            watch.start()
            try:
                with process.stdin as stream:
                    for part in parts:
                        stream.write(part)
                code = process.wait()
            except BrokenPipeError:
                code = process.wait() or 1
            except BaseException:
                _end_process(process)
                raise
            finally:
                watch.cancel()
            if code != 0:
                said.seek(0)
                raise self._failed("fast-import", Done(code, b"", said.read(1 << 16).decode("utf-8", "replace")))
        oid = self.commit_of(ref)
        if oid is None:
            raise self._failed("fast-import", Done(1, b"", f"{ref} names no commit"))
        return oid

    # ---- A remote.

    def listed(self, remote: Remote) -> dict[str, str]:
        """Give the runs of a remote with their commits.

        Raises REMOTE_UNREACHABLE, REMOTE_DENIED, and OTHER_OBJECT_FORMAT for commits whose names are not of this kind.
        """
        done = self.run("ls-remote", "--refs", "--", remote.source, f"{RUNS}*", patience=ASKING, far=True)
        if done.code != 0:
            raise unreachable(remote, done)
        found: dict[str, str] = {}
        for line in done.out[:_LONGEST_ANSWER].decode("utf-8", "replace").splitlines():
            oid, _, name = line.partition("\t")
            run_id = name.removeprefix(RUNS)
            if name.startswith(RUNS) and fits_a_ref(run_id) and git.is_oid(oid):
                found[run_id] = oid
        digits = 64 if self.object_format == "sha256" else 40
        if any(len(oid) != digits for oid in found.values()):
            raise other_names(remote, f"this repository names them by {self.object_format}")
        return found

    def fetch(self, remote: Remote, wanted: Mapping[str, str], *, bare: str = "") -> None:
        """Fetch runs into refs of one's own. wanted: run id -> ref.

        Raises REMOTE_UNREACHABLE, REMOTE_DENIED, GIT_FAILED for trouble here, BAD_HANDOFF for objects that git refuses.

        bare: a scratch repository that gets the commits alone instead of this one; a server that cannot give them so
        gives their files along. One on a disk always can, for it is this machine's git that serves it.
        """
        specs = [f"+{RUNS}{run_id}:{ref}" for run_id, ref in wanted.items()]
        words = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules"]
        words += ["--no-prune", "--refmap=", "--no-show-forced-updates"]
        words += ["--depth=1", "--filter=tree:0"] if bare else ["--no-filter"]
        config = ["-c", "fetch.fsckObjects=true"]
        where, name = self, remote.source
        if bare:
            where, name, url = Repository(self.top, bare, asks=self._asks), _LOOKED_AT, self.url_of(remote)
            config += ["-c", f"remote.{name}.url={url}"]  # git takes no path for a remote that leaves something out
            if url.startswith("file://") or os.path.isdir(os.path.join(self.top, url)):
                words += ["--upload-pack=git -c uploadpack.allowFilter=true upload-pack"]
        done = where.run(*config, *words, "--", name, *specs, patience=CARRYING, far=True)
        if done.code != 0:
            raise not_fetched(remote, done, f"{remote.shown} {RUNS}{'*' if len(wanted) > 1 else next(iter(wanted))}")

    def url_of(self, remote: Remote) -> str:
        """Give the address from which a remote is fetched."""
        done = self.run("ls-remote", "--get-url", remote.source)
        return os.fsdecode(done.out).strip() if done.code == 0 else remote.source

    def push(self, remote: Remote, commit: str, run_id: str, expected: str | None) -> Done:
        """Have a remote's run point to a commit, if it still points to what is expected; None: if it has none."""
        ref = RUNS + run_id
        words = ["push", "--porcelain", "--thin", "--no-verify", "--no-follow-tags", "--no-signed"]
        words += ["--recurse-submodules=no", f"--force-with-lease={ref}:{expected or ''}"]
        config = ["-c", f"remote.{remote.name}.mirror=false"] if "=" not in remote.name else []
        return self.run(*config, *words, "--", remote.name, f"{commit}:{ref}", patience=CARRYING, far=True)


def of_store(store: str, *, asks: bool = False) -> Repository:
    """Give the repository of the checkout in which a store stands. Raises NO_GIT and NO_REPOSITORY."""
    owner = os.path.dirname(store)
    top = git.top_of(owner)
    folders = git.git_folders(top) if top is not None else None
    if top is None or folders is None or not os.path.isdir(folders[1]):
        raise LoomError(
            "NO_REPOSITORY",
            "the project is in no git repository, and runs are handed on through one",
            where=owner,
            why="a run can also be moved as an archive",
            hint="git init",
            exit_code=EXIT_SETUP,
        )
    if not git.is_trusted(top, folders[0], patience=LOCAL):
        raise LoomError(
            "NO_REPOSITORY",
            "the project's repository belongs to another user, and git would not work in it",
            where=folders[0],
            why="what another user put into its settings could be run",
            hint=f"git config --global --add safe.directory {quoted(top)}",
            exit_code=EXIT_SETUP,
        )
    made = Repository(top, folders[1], asks=asks)
    done = made.run("rev-parse", "--git-dir")
    if done.code != 0:
        raise LoomError(
            "NO_REPOSITORY",
            "git does not take the project's repository for one",
            where=folders[1],
            why=last_line(done.said),
            hint=f"git -C {quoted(top)} status",
            exit_code=EXIT_SETUP,
        )
    return made


def message_of(text: bytes) -> str:
    """Give the message of a commit as git holds it."""
    return text.partition(b"\n\n")[2].decode("utf-8", "replace")


def fits_a_ref(name: str) -> bool:
    """Tell whether a name can be the last part of a ref."""
    return ids.is_fit(name) and not name.endswith((".lock", "."))


_IDENTITY = re.compile(r"([^<>\n]+) <([^<>\n]+)> ")


def committer(repository: Repository) -> tuple[str, str] | None:
    """Give name and address of whom git would have a commit be by: what the environment says, else the settings.

    None where neither tells of both; what git makes up of the account and the machine is nobody's.
    """
    for who in ("GIT_COMMITTER_IDENT", "GIT_AUTHOR_IDENT"):
        done = repository.run("-c", "user.useConfigOnly=true", "var", who)
        said = _IDENTITY.match(done.out.decode("utf-8", "replace")) if done.code == 0 else None
        name, mail = ("".join(filter(str.isprintable, part)).strip() for part in said.groups()) if said else ("", "")
        if name and mail:
            return name, mail
    return None


_PIECE = 1 << 16


class Reading(NamedTuple):
    """A git command that is read while it runs. ended: waits for its end, gives its code; failed: makes the error."""

    stream: IO[bytes]
    ended: Callable[[], int]
    failed: Callable[[int], LoomError]


def entries_of(reading: Reading, most: int, longest: int) -> Iterator[tuple[str, str, str, int, bytes]]:
    """Give what `git ls-tree -z -l` lists, as it does."""
    rest, count, total = b"", 0, 0
    while piece := reading.stream.read1(_PIECE):  # type: ignore[attr-defined]
        total += len(piece)
        *lines, rest = (rest + piece).split(b"\0")
        count += len(lines)
        if count > most or total > longest:
            raise ValueError(f"it holds over {most:,} files and folders, or names of over {longest:,} bytes")
        for line in lines:
            told, _, path = line.partition(b"\t")
            mode, kind, oid, size = told.decode("ascii", "replace").split()
            yield mode, kind, oid, int(size) if size.isdigit() else -1, path
    code = reading.ended()
    if code < 0:
        raise ValueError("git does not come to the end of its files")
    if code:
        raise reading.failed(code)


def _end_process(process: subprocess.Popen[bytes], *, alone: bool = False) -> None:
    """End a git command, and what it began unless it is alone in its group."""
    if process.poll() is None:
        try:
            os.kill(process.pid, signal.SIGKILL) if alone else os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
