"""The files that a step has to show: found by a path or a pattern within the roots, known by what is in them (D10)."""

from __future__ import annotations

import os

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs import artifact_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from loomctl.runs.artifact_paths import Roots

MOST = 1000  # files that one pattern names
_MOST_LOOKED = 100_000  # entries of folders that are looked at for one pattern
_LARGEST = 256 << 20  # bytes of a file that is read; a larger one is known by size and time
_PASSED = (".git", ".loom", ".fractary")
_BLOCK = 1 << 20


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
            return found, f"only the first {MOST:,} files were looked at"
    return found, "" if left[0] > 0 else f"only the first {_MOST_LOOKED:,} entries of its folders were looked at"


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
