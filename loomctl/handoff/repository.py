"""Git for handoffs: a repository's objects and refs, the remotes that it knows, and what they answer. Plumbing alone.

Nothing here reads or writes the user's index, HEAD, branches or working tree, and no hook of the repository runs:
refs below `refs/loom/` and objects are all that changes.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import IO, NamedTuple

from loomctl.handoff import remotes
from loomctl.handoff.remotes import RUNS, Done, Remote, is_address, last_line
from loomctl.kit import digests, git, ids
from loomctl.kit.errors import EXIT_SETUP, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.secrets import masked_line

_HALF_MADE = "bad object worktrees/"
_MADE, _CUT_OFF = 10.0, 60.0
"""Seconds that a fetch waits for a worktree that is being made; after which one that is not whole was cut off."""
ASKING, CARRYING, LOCAL = 60.0, 900.0, 60.0
"""Seconds that a remote may take to list its refs, to take or give objects, and that git may take on this machine."""
_LONGEST_ANSWER = 256 << 20
_PIECE = 1 << 16
_LOOKED_AT = "loom-looked-at"  # what the scratch repository calls the remote
_ANY_REMOTE = "runs travel through a git remote. Any will do, even a bare repository on a shared disk"
_OF_A_REPOSITORY = frozenset(
    f"GIT_{name}"
    for name in (
        *("ALTERNATE_OBJECT_DIRECTORIES", "CONFIG", "OBJECT_DIRECTORY", "DIR", "WORK_TREE", "IMPLICIT_WORK_TREE"),
        *("GRAFT_FILE", "INDEX_FILE", "NO_REPLACE_OBJECTS", "REPLACE_REF_BASE", "PREFIX", "SHALLOW_FILE", "COMMON_DIR"),
        *("NAMESPACE", "QUARANTINE_PATH", "LITERAL_PATHSPECS"),
    )
)
# No hook, no tidying up behind the user's back, no signing, and no settings of a remote that would change more refs.
_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false"),
    *("commit.gpgSign=false", "push.gpgSign=false", "fetch.writeCommitGraph=false", "core.logAllRefUpdates=false"),
)
_QUIET = (*(word for setting in _SETTINGS for word in ("-c", setting)), "--no-replace-objects", "--no-pager")
_PROMPTS = {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never", "GCM_INTERACTIVE": "never"}
# An object that a partial clone lacks is not fetched unasked.
_HERE_ALONE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
_IDENTITY = re.compile(r"([^<>\n]+) <([^<>\n]+)> ")


class Move(NamedTuple):
    """What a push does to a ref. expected: the commit that the remote must still have there; None: it has none."""

    ref: str
    commit: str
    expected: str | None


class Repository:
    """A repository's objects and refs. top: its checkout, from which a remote's relative path counts.

    asks: a person sits at a terminal and may be asked for a password by git or ssh; more: of git's environment, such
    as an index that is not the user's.
    """

    def __init__(self, top: str, common: str, *, asks: bool = False, more: Mapping[str, str] | None = None) -> None:
        self.top, self.common, self._asks, self._more = top, common, asks, more or {}
        self._format = ""

    # ---- Git itself.

    def run(self, *words: str, given: bytes = b"", patience: float = LOCAL, far: bool = False) -> Done:
        """Run git to its end. far: it talks to a remote, and may ask a person where one is there."""
        asks = far and self._asks
        process = self._begin(words, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE, far=far)
        try:
            out, said = process.communicate(given, timeout=patience)
        except subprocess.TimeoutExpired:
            _end(process, alone=asks)
            return Done(None, b"", f"it took over {patience:g} s")
        except BaseException:
            _end(process, alone=asks)
            raise
        return Done(process.returncode, out, said.decode("utf-8", "replace"))

    def _begin(
        self, words: Sequence[str], source: IO[bytes] | int, out: int, said: IO[bytes] | int, *, far: bool = False
    ) -> subprocess.Popen[bytes]:
        asks = far and self._asks
        environment = {key: value for key, value in os.environ.items() if key not in _OF_A_REPOSITORY}
        environment |= {"LC_ALL": "C", **({} if asks else _PROMPTS if far else _HERE_ALONE), **self._more}
        command = ["git", f"--git-dir={self.common}", *_QUIET, *words]
        try:
            return subprocess.Popen(
                command,
                cwd=self.top,
                env=environment,
                stdin=source,
                stdout=out,
                stderr=said,
                start_new_session=not asks,
            )
        except OSError as error:
            what, hint = "git is not installed, and push and pull need it", "loomctl runs archive --help"
            why = f"{error}; you can move the run as an archive instead"
            raise LoomError("NO_GIT", what, why=why, hint=hint, exit_code=EXIT_SETUP) from None

    @contextmanager
    def _beside(self, *words: str, given: bytes | None, patience: float) -> Iterator[tuple[IO[bytes], "_Ended"]]:
        """Run a local git command while it is read from or, without `given`, written to; at the end it is stopped."""
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as said:
            source.write(given or b"")
            source.seek(0)
            is_read = given is not None
            process = self._begin(
                words,
                source if is_read else subprocess.PIPE,
                subprocess.PIPE if is_read else subprocess.DEVNULL,
                said,
            )
            stream = process.stdout if is_read else process.stdin
            assert stream is not None  # it is a pipe
            watch = threading.Timer(patience, process.kill)
            watch.daemon = True
            watch.start()
            try:
                yield stream, _Ended(process, said)
            finally:
                watch.cancel()
                _end(process)
                with suppress(BrokenPipeError):
                    stream.close()

    def ask(self, *words: str, given: bytes = b"") -> bytes:
        """Run a local git command that has to end well; gives what it printed. Raises GIT_FAILED."""
        done = self.run(*words, given=given)
        if done.code != 0:
            raise self._failed(words[0], done.said or f"it ended with {done.code}")
        return done.out

    def _failed(self, what: str, said: str) -> LoomError:
        look = f"git -C {quoted(self.top)} fsck --connectivity-only"
        hint = f"df -h {quoted(self.common)}" if remotes.is_full(said) else look
        return LoomError("GIT_FAILED", f"git {what} failed", where=self.common, why=last_line(said), hint=hint)

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
        there = self.refs("refs/loom/")
        lines = [
            f"update {name} {oid}\n" if oid else f"delete {name}\n"
            for name, oid in wanted.items()
            if oid or name in there
        ]
        if lines:
            self.ask("update-ref", "--no-deref", "--stdin", given="".join(lines).encode())

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Tell whether a commit is the other one or comes before it; not of one that is not here."""
        return self.run("merge-base", "--is-ancestor", older, newer).code == 0

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

    def tree(self, commit: str, *, most: int, longest: int) -> Generator[tuple[str, str, str, int, str], None, None]:
        """List a commit's files and folders as git comes upon them, a folder before what is in it, whatever they are.

        Gives mode, kind, object, size in bytes (-1: not known) and path. Of a tree that says one thing again and again
        a few kB unfold without end, so git is stopped with the generator. Raises GIT_FAILED, and ValueError beyond
        `most` entries or `longest` bytes of them, or where git takes too long.
        """
        rest, count, total = b"", 0, 0
        words = ("ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit)
        with self._beside(*words, given=b"", patience=LOCAL) as (stream, ended):
            while piece := stream.read1(_PIECE):  # type: ignore[attr-defined]
                total += len(piece)
                *lines, rest = (rest + piece).split(b"\0")
                count += len(lines)
                if count > most or total > longest:
                    raise ValueError(f"it holds more than {most:,} files and folders, or {longest:,} bytes of names")
                for line in lines:
                    told, _, path = line.partition(b"\t")
                    mode, kind, oid, size = told.decode("ascii", "replace").split()
                    yield mode, kind, oid, int(size) if size.isdigit() else -1, os.fsdecode(path)
            code, said = ended.outcome()
        if code < 0:
            raise ValueError("git took too long to list its files")
        if code:
            raise self._failed("ls-tree", said)

    def contents(self, oids: Sequence[str]) -> Generator[tuple[int, IO[bytes]], None, None]:
        """Give the content of blobs, one after the other: its size, and a stream of which so much is to be read."""
        given = "".join(f"{oid}\n" for oid in oids).encode()
        with self._beside("cat-file", "--batch", given=given, patience=CARRYING) as (stream, _):
            for oid in oids:
                head = stream.readline(200).decode("ascii", "replace").split()
                if len(head) != 3 or head[1] != "blob" or not head[2].isdigit():
                    raise self._failed("cat-file", f"the object {oid} is not here")
                yield int(head[2]), stream
                stream.read(1)

    def content(self, oid: str) -> bytes:
        """Give a blob's content. Raises GIT_FAILED."""
        with closing(self.contents([oid])) as contents:
            size, stream = next(contents)
            return stream.read(size)

    def write(self, ref: str, parts: Iterable[bytes]) -> str:
        """Have `git fast-import` write objects and a commit, and point a ref to it; gives the commit.

        parts: of its stream. Raises GIT_FAILED; then the ref is what it was.
        """
        words = ("fast-import", "--quiet", "--force", "--done")
        with self._beside(*words, given=None, patience=CARRYING) as (stream, ended):
            try:
                for part in parts:
                    stream.write(part)
                stream.close()
                code, said = ended.outcome()
            except BrokenPipeError:
                code, said = ended.outcome()
                code = code or 1
        oid = self.commit_of(ref) if code == 0 else None
        if oid is None:
            raise self._failed("fast-import", said or f"{ref} names no commit")
        return oid

    # ---- A remote.

    def list_runs(self, remote: Remote, *, below: str = RUNS, run_id: str = "*") -> dict[str, str]:
        """Give the runs of a remote with their commits: of their state or, with `below`, of their code.

        Raises as `list_refs`.
        """
        found = self.list_refs(remote, f"{below}{run_id}")
        named = {name.removeprefix(below): oid for name, oid in found.items() if name.startswith(below)}
        return {name: oid for name, oid in named.items() if fits_a_ref(name)}

    def list_refs(self, remote: Remote, *patterns: str) -> dict[str, str]:
        """Give a remote's refs that fit, with their commits.

        Raises REMOTE_UNREACHABLE, REMOTE_DENIED, and OTHER_OBJECT_FORMAT for commits whose names are not of this kind.
        """
        done = self.run("ls-remote", "--refs", "--", remote.source, *patterns, patience=ASKING, far=True)
        if done.code != 0:
            raise remotes.unreachable(remote, done)
        lines = done.out[:_LONGEST_ANSWER].decode("utf-8", "replace").splitlines()
        pairs = (line.partition("\t") for line in lines)
        found = {name: oid for oid, _, name in pairs if git.is_oid(oid)}
        digits = 64 if self.object_format == "sha256" else 40
        if any(len(oid) != digits for oid in found.values()):
            raise remotes.other_names(remote, f"this repository uses {self.object_format}")
        return found

    def fetch(self, remote: Remote, wanted: Mapping[str, str], *, bare: str = "", below: str = RUNS) -> None:
        """Fetch runs into refs of one's own. wanted: run id -> ref; below: where the remote has them.

        Raises REMOTE_UNREACHABLE, REMOTE_DENIED, GIT_FAILED for trouble here, BAD_HANDOFF for objects that git refuses.

        bare: a scratch repository that gets the commits alone instead of this one; a server that cannot give them so
        gives their files along. One on a disk always can, for it is this machine's git that serves it.
        """
        specs = [f"+{below}{run_id}:{ref}" for run_id, ref in wanted.items()]
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
        until = time.monotonic() + _MADE
        while done.code != 0 and _HALF_MADE in done.said and time.monotonic() < until:
            time.sleep(0.2)  # somebody makes a worktree just now
            heal_half_made(self.common)
            done = where.run(*config, *words, "--", name, *specs, patience=CARRYING, far=True)
        if done.code != 0:
            raise remotes.not_fetched(remote, done, "*" if len(wanted) > 1 else next(iter(wanted)))

    def url_of(self, remote: Remote) -> str:
        """Give the address from which a remote is fetched."""
        done = self.run("ls-remote", "--get-url", remote.source)
        return os.fsdecode(done.out).strip() if done.code == 0 else remote.source

    def push(self, remote: Remote, moves: Sequence[Move]) -> Done:
        """Have a remote's refs point to commits, all of them or none, if each still points to what is expected."""
        words = ["push", "--porcelain", "--thin", "--no-verify", "--no-follow-tags", "--no-signed"]
        words += ["--recurse-submodules=no", *(["--atomic"] if len(moves) > 1 else [])]
        words += [f"--force-with-lease={move.ref}:{move.expected or ''}" for move in moves]
        specs = [f"{move.commit}:{move.ref}" for move in moves]
        config = ["-c", f"remote.{remote.name}.mirror=false"] if "=" not in remote.name else []
        return self.run(*config, *words, "--", remote.name, *specs, patience=CARRYING, far=True)

    # ---- People.

    def committer(self) -> tuple[str, str] | None:
        """Give name and address of whom git would have a commit be by: what the environment says, else the settings.

        None where neither tells of both; what git makes up of the account and the machine is nobody's.
        """
        for who in ("GIT_COMMITTER_IDENT", "GIT_AUTHOR_IDENT"):
            done = self.run("-c", "user.useConfigOnly=true", "var", who)
            said = _IDENTITY.match(done.out.decode("utf-8", "replace")) if done.code == 0 else None
            name, mail = (
                ("".join(filter(str.isprintable, part)).strip() for part in said.groups()) if said else ("", "")
            )
            if name and mail:
                return name, mail
        return None


class _Ended(NamedTuple):
    process: subprocess.Popen[bytes]
    said: IO[bytes]

    def outcome(self) -> tuple[int, str]:
        code = self.process.wait()
        self.said.seek(0)
        return code, self.said.read(_PIECE).decode("utf-8", "replace") or (f"it ended with {code}" if code else "")


def _end(process: subprocess.Popen[bytes], *, alone: bool = False) -> None:
    """End a git command, and what it began unless it is alone in its group."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL) if alone else os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def heal_half_made(common: str) -> None:
    """Let worktrees that git was killed over as it made them name a commit: while one names none it fetches nothing.

    They stay marked as not whole.
    """
    folder = os.path.join(common, "worktrees")
    with suppress(OSError):
        for name in os.listdir(folder):
            own = os.path.join(folder, name)
            with suppress(OSError):
                if is_half_made(own) and time.time() - os.stat(own).st_mtime > _CUT_OFF:
                    shutil.copyfile(os.path.join(common, "HEAD"), os.path.join(own, "HEAD"))


def is_half_made(own: str) -> bool:
    """Tell of the git folder of a worktree whether git is making that, or was cut off while it did."""
    try:
        with open(os.path.join(own, "locked"), "rb") as lock:
            return lock.read(20).startswith(b"initializing")
    except OSError:
        return False


def fits_a_ref(name: str) -> bool:
    """Tell whether a name can be the last part of a ref."""
    return ids.is_fit(name) and not name.endswith((".lock", "."))


def of_store(store: str, *, asks: bool = False) -> Repository:
    """Give the repository of the checkout in which a store stands. Raises NO_GIT and NO_REPOSITORY."""
    owner = os.path.dirname(store)
    top = git.top_of(owner)
    folders = git.git_folders(top) if top is not None else None
    if top is None or folders is None or not os.path.isdir(folders[1]):
        what = "the project is not in a git repository, and worktrees, push and pull need one"
        why = "without git a run works in the project's own folder, and moves as an archive"
        raise LoomError("NO_REPOSITORY", what, where=owner, why=why, hint="git init", exit_code=EXIT_SETUP)
    if not git.is_trusted(top, folders[0], patience=LOCAL):
        what = "another user owns the project's repository, so git refuses to work in it"
        why = "git could execute what that user put into its settings"
        hint = f"git config --global --add safe.directory {quoted(top)}"
        raise LoomError("NO_REPOSITORY", what, where=folders[0], why=why, hint=hint, exit_code=EXIT_SETUP)
    made = Repository(top, folders[1], asks=asks)
    done = made.run("rev-parse", "--git-dir")
    if done.code != 0:
        what, hint = "git does not accept the project's repository", f"git -C {quoted(top)} status"
        why = last_line(done.said)
        raise LoomError("NO_REPOSITORY", what, where=folders[1], why=why, hint=hint, exit_code=EXIT_SETUP)
    return made


# ---- Which remote is meant.


def find_remote(repository: Repository, named: str | None, cwd: str) -> Remote:
    """Find a remote by its name, its URL, or its path from `cwd`; without one, `origin`, or the only one.

    Runs are read where they are pushed: a remote may be fetched from one repository and pushed to another. Raises
    NO_REMOTE.
    """
    found = _named(repository, named, cwd)
    return found._replace(pushed_at=_pushed_at(repository, found))


def _pushed_at(repository: Repository, remote: Remote) -> str:
    """Give the first address to which is pushed, where no push goes to the one from which is fetched; else nothing.

    A path of this machine is given whole: git reads it from the checkout's top, whoever is told it may be elsewhere.
    """
    done = repository.run("remote", "get-url", "--push", "--all", remote.name)
    if done.code != 0:  # it is an address
        return _rewritten(repository, remote.name)
    addresses = os.fsdecode(done.out).splitlines()
    if not addresses or repository.url_of(remote) in addresses:
        return ""
    first = addresses[0]
    is_path = not is_address(first) and not first.startswith(("/", "~"))
    return os.path.realpath(os.path.join(repository.top, first)) if is_path else first


def _rewritten(repository: Repository, address: str) -> str:
    """Give what `url.*.pushInsteadOf` makes of an address, the longest beginning first; nothing where it is not met."""
    done = repository.run("config", "-z", "--get-regexp", r"^url\..*\.pushinsteadof$")
    settings = (entry.partition("\n") for entry in os.fsdecode(done.out).split("\0") if entry)
    met = [(held, key[len("url.") : -len(".pushinsteadof")]) for key, _, held in settings if address.startswith(held)]
    beginning, instead = max(met, key=lambda pair: len(pair[0]), default=("", ""))
    return instead + address[len(beginning) :] if met else ""


def _named(repository: Repository, named: str | None, cwd: str) -> Remote:
    names = [name for name in repository.ask("remote").decode("utf-8", "replace").split("\n") if name]
    wanted = named if named is not None else names[0] if len(names) == 1 else "origin"
    if wanted in names:
        return _configured(wanted)
    if named and not named.startswith("-"):
        if is_address(named):
            return Remote(named, _hashed(named), masked_line(named, 200))
        if "/" in named or os.path.isdir(os.path.join(cwd, named)):
            return _folder(repository, named, os.path.join(cwd, named))
    known = ", ".join(masked_line(name, 60) for name in names)
    raise LoomError(
        "NO_REMOTE",
        f"the repository has no remote {masked_line(wanted, 80)!r}",
        where=repository.top,
        why=f"its remotes are {known}; choose one with --remote" if known else f"it has none; {_ANY_REMOTE}",
        hint=_configured("origin" if "origin" in names else names[0]).listing if known else "git remote add origin URL",
        exit_code=EXIT_USAGE,
    )


def _configured(name: str) -> Remote:
    return Remote(name, name if fits_a_ref(name) else _hashed(name), name)


def _folder(repository: Repository, named: str, path: str) -> Remote:
    """Give the repository in a folder of this machine as a remote. Raises NO_REMOTE for none, and for this one."""
    found, own = os.path.realpath(path), os.path.realpath(repository.common)
    folders = git.git_folders(found)
    is_own = found == own or (folders is not None and os.path.realpath(folders[1]) == own)
    shown = masked_line(named, 200)
    if os.path.isdir(found) and not is_own:
        return Remote(found, _hashed(found), shown)
    what = f"{shown} is this repository itself" if is_own else f"there is neither a remote nor a folder {shown!r}"
    where = os.path.normpath(path)
    raise LoomError("NO_REMOTE", what, where=where, why=_ANY_REMOTE, hint="git remote -v", exit_code=EXIT_USAGE)


def _hashed(name: str) -> str:
    return f"url-{digests.of_text(name)[:12]}"
