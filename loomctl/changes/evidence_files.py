"""The files that a step has to show: found by a path or a pattern within the roots, known by what is in them (D10)."""

from __future__ import annotations

import os

from loomctl.kit import digests, files, git
from loomctl.kit.errors import LoomError
from loomctl.kit.processes import Lock
from loomctl.kit.records import NamedTuple
from loomctl.runs import artifact_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from loomctl.runs.artifact_paths import Roots

MOST = 1000  # files that one pattern names
_MOST_LOOKED = 100_000  # entries of folders that are looked at for one pattern
_LARGEST = 256 << 20  # bytes of a file that is read; a larger one is known by size and time
_PASSED = (".git", ".loom", ".fractary")
_BLOCK = 1 << 20
_BLANKS_READ = 1 << 16
_PATIENCE = 2.0  # seconds for each of two questions to git
REPORTS = "reports.json"
"""`{path: [size, mtime, ctime, inode]}` of each file that `loomctl report` wrote where nothing stood, or such a report.

What a page says of itself proves nothing; a file whose content, time or place was changed since is its user's.
"""
_LOCK = "reports.lock"
_MOST_REPORTS = 20_000
_LARGEST_LIST = 8 << 20


class Seen(NamedTuple):
    """What a path or a pattern names.

    digests: by the path as it is shown; plain: of those that have CRLF, what they would be with LF; paths: where they
    lie; why: what kept it from being told whole, else empty.
    """

    digests: dict[str, str]
    plain: Mapping[str, str] = {}
    paths: Mapping[str, str] = {}
    why: str = ""

    def changed(self, digests: Mapping[str, str], plain: Mapping[str, str]) -> list[str]:
        """Name the files that are new or others than these were; ends of lines alone are no difference."""
        return [
            path
            for path, digest in self.digests.items()
            if digests.get(path) != digest and plain.get(path, digests.get(path)) != self.plain.get(path, digest)
        ]


def lacks_content(path: str) -> str:
    """Say why there is nothing at a resolved path; empty for a file with more than blanks, and a folder with entries.

    Of a large file nothing is read. Raises nothing.
    """
    try:
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                return "" if any(entries) else "it is an empty folder"
        descriptor = files.open_regular(path)
        try:
            size = os.fstat(descriptor).st_size
            held = size > _BLANKS_READ or bool(os.read(descriptor, _BLANKS_READ).strip())
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return "there is no such file"
    except (OSError, ValueError) as error:
        return f"it cannot be read: {getattr(error, 'strerror', None) or error}"
    return "" if held else "it is empty"


def is_pattern(text: str) -> bool:
    """Tell whether a text names files by a pattern."""
    return any(mark in text for mark in "*?[")


def look(declared: str, known: Mapping[str, str | None], roots: Roots, apart: Collection[str] = ()) -> Seen:
    """Find the files and hash them. Raises nothing for what is there; what is refused or unreadable is in `why`.

    apart: real paths of Loom's own reports, which show nothing.
    """
    try:
        paths, why = _paths(declared, known, roots)
    except LoomError as refused:
        return Seen({}, why=refused.what)
    found: dict[str, str] = {}
    plain: dict[str, str] = {}
    lies: dict[str, str] = {}
    for path in paths:
        if apart and os.path.realpath(path) in apart:
            why = why or f"{artifact_paths.shown(path, roots)} is a report that Loom wrote"
            continue
        try:
            digest, with_lf = _digests(path)
        except OSError as error:
            why = why or f"{artifact_paths.shown(path, roots)} cannot be read: {error.strerror or error}"
            continue
        shown = artifact_paths.shown(path, roots)
        found[shown], lies[shown] = digest, path
        if with_lf != digest:
            plain[shown] = with_lf
    return Seen(found, plain, lies, why)


def together(seen: Mapping[str, str]) -> str:
    """Give one hash of several files: of a single one its own, of more that of the lines `HASH  PATH`, by path."""
    if len(seen) == 1:
        (only,) = seen.values()
        return only
    lines = "".join(f"{seen[path]}  {path}\n" for path in sorted(seen))
    return digests.of_text(lines)


def _paths(declared: str, known: Mapping[str, str | None], roots: Roots) -> tuple[list[str], str]:
    if not is_pattern(declared):
        path = artifact_paths.locate(declared, known, roots).path
        return ([path] if os.path.isfile(path) else []), ""
    parts = declared.split("/")
    first = next(index for index, part in enumerate(parts) if is_pattern(part))
    base = artifact_paths.locate("/".join(parts[:first]) or "{project_root}", known, roots).path
    wanted = [artifact_paths.expanded(part, known) for part in parts[first:] if part not in ("", ".")]
    found: list[str] = []
    left = [_MOST_LOOKED]
    for path in _matching(base, wanted, left):
        try:
            place = artifact_paths.locate(path, known, roots)
        except LoomError:  # a link out of the roots
            continue
        if place.path not in found:
            found.append(place.path)
        if len(found) == MOST:
            return found, f"Loom checked only the first {MOST:,} files"
    return found, "" if left[0] > 0 else f"Loom checked only the first {_MOST_LOOKED:,} entries of its folders"


def _matching(folder: str, parts: Sequence[str], left: list[int]) -> Iterator[str]:
    """Give the files below a folder that match, by name; folders behind links are not entered."""
    from fnmatch import fnmatchcase

    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _matching(folder, rest or ("*",), left)
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        left[0] -= 1
        if left[0] <= 0:
            return
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and entry.name in _PASSED:
            continue
        if part == "**":
            if is_folder:
                yield from _matching(entry.path, parts, left)
        elif fnmatchcase(entry.name, part):
            if rest and is_folder:
                yield from _matching(entry.path, rest, left)
            elif not rest and not is_folder and entry.is_file():
                yield entry.path


def _digests(path: str) -> tuple[str, str]:
    """Give the hash of a file, and that of the file with LF for each CRLF."""
    descriptor = files.open_regular(path)
    try:
        status = os.fstat(descriptor)
        if status.st_size > _LARGEST:
            known = digests.of_text(f"{status.st_size} {status.st_mtime_ns}")
            return known, known
        return _of_blocks(iter(lambda: os.read(descriptor, _BLOCK), b""))
    finally:
        os.close(descriptor)


def _of_blocks(blocks: Iterator[bytes]) -> tuple[str, str]:
    whole, plain, held = digests.begun(), None, b""
    for block in blocks:
        if plain is None and b"\r" in block:
            plain = whole.copy()
        whole.update(block)
        if plain is not None:
            text = held + block
            held = b"\r" if text.endswith(b"\r") else b""
            plain.update(text[: len(text) - len(held)].replace(b"\r\n", b"\n"))
    if plain is None:
        return whole.hexdigest(), whole.hexdigest()
    plain.update(held)
    return whole.hexdigest(), plain.hexdigest()


def stands_since_before(path: str, moment: int) -> bool:
    """Tell whether a file is as the current commit has it, and no commit changed it since a moment.

    moment: seconds since the epoch, held against the committer's time. False where git cannot tell in time, for a file
    that it does not track, and outside of a repository. Raises nothing.
    """
    folder, name = os.path.split(path)
    if not moment or git.top_of(folder) is None:
        return False
    asked = ["--literal-pathspecs", "log", "-1", "--format=%ct", "--", name]
    when = (git.output(asked, folder, patience=_PATIENCE) or b"").strip()
    if not when.isdigit() or int(when) >= moment:
        return False
    # It fails where the file differs.
    return git.output(["--literal-pathspecs", "diff", "--quiet", "HEAD", "--", name], folder, patience=_PATIENCE) == b""


# ---- Reports that Loom wrote: no work of a step's, no asset and no evidence.


def own_reports(local: str) -> frozenset[str]:
    """Give the real paths of Loom's own reports as they stand. local: the store's folder of this machine."""
    base = _project_folder(local)
    return frozenset(
        whole for path, known in _noted_reports(local).items() if identity(whole := os.path.join(base, path)) == known
    )


def files_below(folder: str) -> set[str]:
    """Give the real paths of all files below a folder; none where there is no folder, or none is named."""
    if not folder:
        return set()
    return {os.path.join(at, name) for at, _, names in os.walk(os.path.realpath(folder)) for name in names}


def note_reports(local: str, written: Iterable[str], foreign: Collection[str]) -> None:
    """Note files that a report was written to. Raises OSError and LoomError.

    written: real paths; foreign: those at which something stood before that was no report of Loom's.
    """
    path, base = os.path.join(local, REPORTS), _project_folder(local)
    files.refuse_links(os.path.dirname(local), path)
    files.make_folder(local)
    with Lock(os.path.join(local, _LOCK), patience=1.0, what="the list of reports"):
        kept = {
            one: known for one, known in _noted_reports(local).items() if identity(os.path.join(base, one)) == known
        }
        for whole in written:
            known = identity(whole)
            if whole not in foreign and known:
                kept.pop(os.path.relpath(whole, base), None)
                kept[os.path.relpath(whole, base)] = known
        latest = list(kept.items())[-_MOST_REPORTS:]
        files.write_atomically(path, files.to_json({"schema_version": 1, "files": dict(latest)}), durable=False)


def _project_folder(local: str) -> str:
    """Give the folder from which paths count, so that a project may be moved: the one that the store stands in."""
    return os.path.dirname(os.path.dirname(os.path.realpath(local)))


def _noted_reports(local: str) -> dict[str, list[int]]:
    path = os.path.join(local, REPORTS)
    try:
        files.refuse_links(os.path.dirname(local), path)
        found = files.read_json(path, limit=_LARGEST_LIST)
    except (OSError, LoomError):
        return {}
    listed = found.get("files") if isinstance(found, dict) else None
    if not isinstance(listed, dict):
        return {}
    return {path: known for path, known in listed.items() if isinstance(known, list) and "\0" not in path}


def identity(path: str) -> list[int]:
    """Give size, times (ns) and inode of a file: whatever is done to it changes some; empty for none."""
    try:
        status = os.lstat(path)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
