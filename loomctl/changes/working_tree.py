"""What changed in a checkout between two moments, by content, whatever was committed in between (D39).

Each moment is a tree that git makes of an index and an object folder of Loom's own: the user's index, stash and
objects are read and never written. Only what differs from that index by size or time is looked into.
"""

from __future__ import annotations

import os
import stat
import time

from loomctl.kit import files, git
from loomctl.kit.errors import LoomError
from loomctl.kit.ids import checked_id
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

PATIENCE = 2.0  # seconds, for one moment
LARGEST = 10 << 20  # bytes; a larger file is known by size and time
MOST_TOGETHER = 256 << 20  # bytes; of more the largest are known by size and time
LARGEST_PATCH = 1 << 20  # bytes
_LONGEST = 64 << 20  # bytes that one answer of git may have
_APART = (".loom", ".fractary")
_SETTINGS = (
    *("-c", "core.fsync=none", "-c", "core.splitIndex=false", "-c", "core.untrackedCache=false"),
    *("-c", "core.safecrlf=false", "-c", "core.quotePath=false", "--literal-pathspecs"),
)
BASELINES = "baselines"
"""`.loom/local/baselines/{run_id}/`: of a stage a file `{stage}.noted`, which is JSON, and a folder `{stage}.git`."""
_FILE, _GIT_FOLDER = ".noted", ".git"
_LARGEST_NOTED = 32 << 20
_INDEX, _END, _IGNORED, _NAMES = "index", "index.end", "ignored", "names"


class Unknown(Exception):  # noqa: N818 - it is an answer, not an error
    """What a checkout holds cannot be told; its text says why."""


class TooMuch(Unknown):
    """An answer of git is longer than asked for."""


class Moment(NamedTuple):
    """What a checkout held.

    tree: git's name of it; apart: what is known by `[size, mtime in ns, kind]` alone, by path; stood: size, time and
    inode of the user's index; at: the file system's own time then, in ns.
    """

    top: str
    tree: str
    apart: Mapping[str, Sequence[int]]
    stood: Sequence[int]
    at: int

    @staticmethod
    def from_dict(raw: object) -> Moment:
        """Read it. Raises Unknown for anything that is none."""
        try:
            held: dict[str, Any] = dict(raw)  # type: ignore[call-overload]
            apart = {str(path): tuple(map(int, known)) for path, known in held["apart"].items()}
            stood = tuple(map(int, held["stood"]))
            found = Moment(str(held["top"]), str(held["tree"]), apart, stood, int(held["at"]))
        except (LookupError, TypeError, ValueError, AttributeError):
            found = None
        if found is None or not git.is_oid(found.tree):
            raise Unknown("the snapshot from the start of the step is damaged")
        return found


class Change(NamedTuple):
    """A file that is not what it was. path: below the checkout's top; kind: `added`, `modified` or `deleted`.

    by_time: known by size and time alone; added, removed: lines, None where they are not counted.
    """

    path: str
    kind: str
    by_time: bool = False
    added: int | None = None
    removed: int | None = None


class Changes(NamedTuple):
    """What changed, by path; patch: in git's words, None where there is none; why_none: why, if there should be one."""

    entries: Sequence[Change]
    patch: bytes | None
    why_none: str = ""


def note(folder: str, own: str, apart: Collection[str] = (), *, patience: float = PATIENCE) -> Moment:
    """Note what the checkout that `folder` lies in holds. own: an empty folder, which `since` needs again.

    apart: real paths of files that are taken for not there.

    Raises Unknown where git cannot tell in `patience` seconds.
    """
    asked = _Checkout(folder, own, patience, apart)
    os.mkdir(os.path.join(own, "objects"), 0o700)
    index = asked.copy_index()
    at = os.lstat(own).st_ctime_ns  # a file was made in it just now
    ignored = asked.ask("ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z")
    files.write_atomically(os.path.join(own, _IGNORED), ignored, durable=False)
    tree, apart = asked.take(asked.others())
    return Moment(asked.top, tree, apart, index, at)


def since(folder: str, own: str, before: Moment, apart: Collection[str] = (), *, patience: float = PATIENCE) -> Changes:
    """Tell what changed in a checkout since it was noted. apart: as `note` takes it. Raises Unknown."""
    asked = _Checkout(folder, own, patience, apart, _END)
    if asked.top != before.top:
        raise Unknown("the step began in another checkout")
    files.remove(asked.index)
    files.remove(f"{asked.index}.lock")  # of a git that was killed
    _copy(os.path.join(own, _INDEX), asked.index)
    others = [name for name in asked.others() if not asked.was_there(name, before)]
    if asked.index_identity() != tuple(before.stood):
        others += asked.tracked_since(others)
    tree, apart = asked.take(others)
    entries = {path: Change(path, kind) for path, kind in asked.differences(before.tree, tree)}
    for path in {*before.apart, *apart}:
        was, now = before.apart.get(path), None if path in asked.passed else apart.get(path) or asked.look(path)
        if was == now:
            entries.pop(path, None)
        else:
            kind = "deleted" if now is None else "added" if was is None and path in others else "modified"
            entries[path] = Change(path, kind, by_time=True)
    patch, why_none = None, ""
    if tree != before.tree and entries:
        for path, added, removed in asked.counts(before.tree, tree):
            if path in entries and not entries[path].by_time:
                entries[path] = entries[path]._replace(added=added, removed=removed)
        patch, why_none = asked.patch(before.tree, tree)
    files.remove(asked.index)
    return Changes([entries[path] for path in sorted(entries)], patch, why_none)


class _Checkout:
    """One checkout, asked with an index and objects of Loom's own, until the time is over."""

    def __init__(
        self, folder: str, own: str, patience: float, apart: Collection[str] = (), index: str = _INDEX
    ) -> None:
        top = git.top_of(os.path.realpath(folder))
        folders = git.git_folders(top) if top is not None else None
        if top is None or folders is None or not os.path.lexists(os.path.join(folders[0], "HEAD")):
            raise Unknown("there is no git repository")
        self.top, self._git_folder, self._common = top, *folders
        self.passed = frozenset(os.path.relpath(one, top) for one in apart if one.startswith(f"{top}{os.sep}"))
        self._own, self._patience = own, patience
        self._deadline = time.monotonic() + patience
        self.index = os.path.join(own, index)

    # ---- Asking git.

    def ask(self, *words: str, given: bytes | None = None, limit: int = _LONGEST) -> bytes:
        """Ask git about the checkout as Loom's own index knows it. Raises Unknown."""
        objects = os.path.join(self._common, "objects").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        more = {
            "GIT_INDEX_FILE": self.index,
            "GIT_OBJECT_DIRECTORY": os.path.join(self._own, "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"',
        }
        return self._ask([*_SETTINGS, *words], more, given, limit)

    def _ask(self, words: list[str], more: Mapping[str, str], given: bytes | None, limit: int) -> bytes:
        patience = self._deadline - time.monotonic()
        path = os.path.join(self._own, _NAMES)  # what git is to read stands in a file, so that neither waits
        if given is not None:
            files.write_atomically(path, given, durable=False)
        descriptor = os.open(os.devnull if given is None else path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            answer = git.output(words, self.top, patience=patience, limit=limit + 1, given=descriptor, more=more)
        finally:
            os.close(descriptor)
        if answer is None:
            if time.monotonic() >= self._deadline:
                raise Unknown(f"git took over {self._patience:g} seconds")
            raise Unknown("git failed")
        if len(answer) > limit:
            raise TooMuch(f"git printed more than {limit:,} bytes")
        return answer

    # ---- The index.

    def copy_index(self) -> tuple[int, ...]:
        _copy(os.path.join(self._git_folder, "index"), self.index)
        return self.index_identity()

    def index_identity(self) -> tuple[int, ...]:
        """Give size, time and inode of the user's index; nothing where there is none yet."""
        try:
            status = os.lstat(os.path.join(self._git_folder, "index"))
        except FileNotFoundError:
            return ()
        return status.st_size, status.st_mtime_ns, status.st_ino

    def take(self, others: Iterable[str]) -> tuple[str, dict[str, Sequence[int]]]:
        """Bring Loom's index to what the checkout holds; gives its tree, and what is known by size and time.

        others: files that the index does not have.
        """
        changed, gone, torn = self._changed()
        gone |= self.passed
        apart: dict[str, Sequence[int]] = {}
        into: list[tuple[int, str]] = []
        for name in {*changed, *others} - self.passed:
            known = self.look(name)
            if known is None:
                gone.add(name)
            elif known[2] == stat.S_IFDIR or (known[0] <= LARGEST and self._is_readable(name, known)):
                into.append((known[0] if known[2] == stat.S_IFREG else 0, name))
            else:
                apart[name] = known
        left = MOST_TOGETHER
        small: list[str] = []
        for size, name in sorted(into):
            left -= size
            if left < 0:
                known = self.look(name)
                apart[name] = known or (0, 0, 0)
            else:
                small.append(name)
        gone |= torn & apart.keys()
        if gone:
            self.ask("update-index", "-z", "--force-remove", "--stdin", given=_lines(sorted(gone)))
        if small:
            self.ask("update-index", "-z", "--add", "--remove", "--replace", "--stdin", given=_lines(sorted(small)))
        tree = self.ask("write-tree", "--missing-ok").decode("ascii", "replace").strip()
        if not git.is_oid(tree):
            raise Unknown("git failed")
        return tree, apart

    def _changed(self) -> tuple[set[str], set[str], set[str]]:
        answer = self.ask("diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=dirty")
        changed: set[str] = set()
        gone: set[str] = set()
        torn: set[str] = set()
        for about, name in _pairs(answer):
            if not is_ours(name):
                word = about.rpartition(" ")[2][:1]
                (gone if word == "D" else torn if word == "U" else changed).add(name)
        return changed | torn, gone - changed - torn, torn

    def look(self, name: str) -> tuple[int, int, int] | None:
        """Give size, time and kind of what stands there; None where nothing does, or behind a link."""
        try:
            status = os.lstat(os.path.join(self.top, name))
        except OSError:
            return None
        if os.sep in name:
            folder = os.path.dirname(os.path.join(self.top, name))
            if os.path.realpath(folder) != folder:
                return None
        return status.st_size, status.st_mtime_ns, stat.S_IFMT(status.st_mode)

    def _is_readable(self, name: str, known: Sequence[int]) -> bool:
        if known[2] == stat.S_IFLNK:
            return True
        return known[2] == stat.S_IFREG and os.access(os.path.join(self.top, name), os.R_OK)

    # ---- What the index does not have.

    def others(self) -> list[str]:
        """Name the files that the index does not have and nothing ignores; of a nested repository its folder.

        What an interpreter leaves behind is taken for ignored, for many a project forgets to say so.
        """
        names = _names(self.ask("ls-files", "-o", "-z", "--exclude-standard", "-x", "__pycache__/"))
        return [name.rstrip("/") for name in names if not name.endswith("/") or self._is_another(name.rstrip("/"))]

    def _is_another(self, name: str) -> bool:
        folder = os.path.join(self.top, name)
        folders = git.git_folders(folder)
        if folders is None or os.path.realpath(folders[1]) == os.path.realpath(self._common):
            return False
        return git.head(folder).commit is not None

    def was_there(self, name: str, before: Moment) -> bool:
        """Tell a file that was there all the time and is ignored no more: the step did not make it."""
        ignored = self._ignored()
        folders = (name[: at + 1] for at, letter in enumerate(name) if letter == "/")
        if name in before.apart or not (name in ignored or any(folder in ignored for folder in folders)):
            return False
        try:
            return os.lstat(os.path.join(self.top, name)).st_ctime_ns < before.at
        except OSError:
            return False

    def _ignored(self) -> frozenset[str]:
        if not hasattr(self, "_ignored_names"):
            try:
                content = files.read_bytes(os.path.join(self._own, _IGNORED))
            except (OSError, LoomError):
                content = b""
            self._ignored_names = frozenset(_names(content))
        return self._ignored_names

    def tracked_since(self, others: Sequence[str]) -> list[str]:
        words = ["ls-files", "-c", "-z"]
        theirs = _names(self._ask([*_SETTINGS, *words], {}, None, _LONGEST))
        known = {*others, *_names(self.ask(*words))}
        return [name for name in dict.fromkeys(theirs) if name not in known and self.look(name) is not None]

    # ---- Two trees.

    def differences(self, before: str, after: str) -> Iterator[tuple[str, str]]:
        if before == after:
            return
        for about, name in _pairs(self.ask("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)):
            if not is_ours(name):
                yield name, {"A": "added", "D": "deleted"}.get(about.rpartition(" ")[2][:1], "modified")

    def counts(self, before: str, after: str) -> Iterator[tuple[str, int, int]]:
        try:
            answer = self.ask("diff-tree", *_PLAIN, "--numstat", "-z", before, after)
        except Unknown:
            return
        for line in _names(answer):
            added, removed, path = (*line.split("\t", 2), "", "")[:3]
            if added.isdigit() and removed.isdigit():
                yield path, int(added), int(removed)

    def patch(self, before: str, after: str) -> tuple[bytes | None, str]:
        try:
            return self.ask("diff-tree", *_PLAIN, "-p", "--full-index", before, after, limit=LARGEST_PATCH), ""
        except TooMuch:
            return None, f"it has over {LARGEST_PATCH:,} bytes"
        except Unknown as error:
            return None, str(error)


_PLAIN = ("-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--no-relative")


def _copy(source: str, target: str) -> None:
    """Copy an index with its time, by which git knows what it has to look into; without a source there is none."""
    try:
        descriptor = files.open_regular(source)
    except FileNotFoundError:
        return
    try:
        into = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            while part := os.read(descriptor, 1 << 20):
                files.write_all(into, part)
        finally:
            os.close(into)
        status = os.fstat(descriptor)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(descriptor)


def is_ours(name: str) -> bool:
    """Tell what Loom or FABER keeps, wherever it stands."""
    return any(part in _APART for part in name.split("/"))


def _names(answer: bytes) -> list[str]:
    return [name for name in os.fsdecode(answer).split("\0") if name and not is_ours(name)]


def _pairs(answer: bytes) -> Iterator[tuple[str, str]]:
    words = iter(os.fsdecode(answer).split("\0"))
    for about in words:
        if about.startswith(":"):
            yield about, next(words, "")


def _lines(names: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


# ---- What this machine notes when a stage begins: worth nothing elsewhere.


def begin_baseline(local: str, run_id: str, stage: str) -> str:
    """Make room for a stage's baseline, in place of any before; gives its folder for git, which is empty.

    Raises OSError, BAD_ID, UNSAFE_LINK.
    """
    own = baseline_folder(local, run_id, stage)
    files.remove(_file(local, run_id, stage))
    discard(own)
    files.make_folder(own)
    return own


def baseline_folder(local: str, run_id: str, stage: str) -> str:
    """Give the folder that git's index and objects of a stage's beginning stand in. Raises BAD_ID, UNSAFE_LINK."""
    return _file(local, run_id, stage).removesuffix(_FILE) + _GIT_FOLDER


def write_baseline(local: str, run_id: str, stage: str, baseline: Mapping[str, Any]) -> None:
    """Write a stage's baseline, as the last of its files. Raises OSError.

    In its place at once: one that a kill cut off is no JSON, and read as none.
    """
    descriptor = files.open_own(_file(local, run_id, stage), os.O_WRONLY | os.O_TRUNC)
    try:
        files.write_all(descriptor, files.to_json_line(dict(baseline)))
    finally:
        os.close(descriptor)


def read_baseline(local: str, run_id: str, stage: str) -> dict[str, Any] | None:
    """Give a stage's baseline; None where there is none that can be read."""
    try:
        found = files.read_json(_file(local, run_id, stage), limit=_LARGEST_NOTED)
    except (OSError, LoomError):
        return None
    return found if isinstance(found, dict) else None


def keep_two_baselines(local: str, run_id: str, stage: str, also: Collection[str] = ()) -> None:
    """Discard a run's baselines but this stage's and the last before it, which an undo needs again (D31).

    also: stages that are being worked on beside it, in branches.
    """
    folder = os.path.dirname(_file(local, run_id, stage))
    try:
        names = os.listdir(folder)
    except OSError:
        return
    stages = {name.removesuffix(_FILE).removesuffix(_GIT_FOLDER) for name in names}.difference(also, [stage])
    for other in sorted(stages, key=_rank)[:-1]:
        files.remove(os.path.join(folder, other + _FILE))
        discard(os.path.join(folder, other + _GIT_FOLDER))


def discard(path: str) -> None:
    """Remove a folder with all that is in it; a link is removed, not followed; what is not there is fine."""
    try:
        if os.path.islink(path):
            os.unlink(path)
            return
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    discard(entry.path)
                else:
                    files.remove(entry.path)
        os.rmdir(path)
    except FileNotFoundError:
        pass


def _rank(stage: str) -> tuple[int, str]:
    number = stage.partition("-")[0]
    return (int(number) if number.isascii() and number.isdigit() else 0, stage)


def _file(local: str, run_id: str, stage: str) -> str:
    checked_id(stage.replace("@", "."), what="stage")
    path = os.path.join(local, BASELINES, checked_id(run_id), stage + _FILE)
    files.refuse_links(os.path.dirname(local), path)
    return path
