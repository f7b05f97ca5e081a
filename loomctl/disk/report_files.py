"""The files of a report: the page's style and script, the page where it is written, what is copied beside it."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from loomctl.disk import files, whole_folders
from loomctl.model.errors import EXIT_USAGE, LoomError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PARTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "page")
_GENERATOR = b'<meta name="generator" content="loomctl report '
_LOOKED_AT = 4096  # bytes of a page in which it says by whom it was made
_MARK = "loom-report.txt"  # in a folder of copies: what stands in it came from a report
_SAYS = "Copies that `loomctl report --with-files` made, and replaces.\n"
_PROJECT = "project"  # the folder of copies whose originals are not in the run's folder
_COPYING = ".copies-"  # a folder of copies on its way, with the number of its process
_SAFE = re.compile(r"[^A-Za-z0-9._@+-]")
_LONGEST = 100  # characters of a copy's name
_PIECE = 1 << 20


def part(name: str) -> str:
    """Give the page's style or script: `report.css`, `report.js`."""
    return files.read_bytes(os.path.join(_PARTS, name)).decode()


def excerpt(path: str, limit: int, *, tail: bool = False) -> tuple[str, int]:
    """Give so many bytes of a file as text, from its beginning or its end, and the file's size. Raises OSError.

    Bytes that are no UTF-8 are replaced.
    """
    descriptor = files.open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        if tail and size > limit:
            os.lseek(descriptor, size - limit, os.SEEK_SET)
        data = files.read_up_to(descriptor, limit)
    finally:
        os.close(descriptor)
    return files.text_of(data, "replace"), size


def link(relative: str) -> str:
    """Give a relative path as a link that is one whatever its names are."""
    before = "" if relative.startswith("../") else "./"
    return before + quote(os.fsencode(relative.replace(os.sep, "/")), safe="/@+~")


def check_target(path: str, *, force: bool, again: str) -> None:
    """Refuse to write over a file that is no report, unless forced; over a folder always, and where no folder is.

    Raises FILE_EXISTS and NO_FOLDER.
    """
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise LoomError(
            "NO_FOLDER",
            "there is no folder for the report, and nothing was written",
            where=folder,
            why="a file stands in its place, or on the way to it" if _is_barred(folder) else "",
            hint=f"ls -ld {quoted(_first_there(folder))}" if _is_barred(folder) else f"mkdir -p {quoted(folder)}",
            exit_code=EXIT_USAGE,
        )
    if not os.path.lexists(path) or (not os.path.isdir(path) and (force or _is_report(path))):
        return
    raise LoomError(
        "FILE_EXISTS",
        "there is something in the place of the report, and nothing was written",
        where=path,
        why="a folder stands there" if os.path.isdir(path) else "it is no report of Loom's; --force replaces it",
        hint=f"ls -ld {quoted(path)}" if os.path.isdir(path) else again,
        exit_code=EXIT_USAGE,
    )


def _first_there(path: str) -> str:
    """Give the last part of a path that is there."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _is_barred(folder: str) -> bool:
    return not os.path.isdir(_first_there(folder))


def _is_report(path: str) -> bool:
    try:
        descriptor = files.open_regular(path)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as held:
        return _GENERATOR in held.read(_LOOKED_AT)


def write(path: str, page: str) -> int:
    """Write the page, whole or not at all; gives its size. Raises OSError."""
    data = page.encode("utf-8", "backslashreplace")
    files.write_atomically(path, data)
    return len(data)


class Source(NamedTuple):
    """A file that a report leads to. in_project: `at` is its path below the project's folder, not below the run's."""

    in_project: bool
    at: str


class Copies(NamedTuple):
    """What was copied. folder: where; links: of each file; bytes: in all; failed: `(path, why)`."""

    folder: str
    links: dict[Source, str]
    bytes: int
    failed: list[tuple[str, str]]


def folder_beside(path: str) -> str:
    """Give the folder of a report's copies: `report_files` beside `report.html`."""
    return f"{os.path.splitext(path)[0]}_files"


def check_folder(folder: str) -> None:
    """Refuse a folder that holds something else than a report's copies. Raises FOLDER_TAKEN."""
    if not os.path.lexists(folder):
        return
    own = os.path.isdir(folder) and not os.path.islink(folder)
    if own and (os.path.isfile(os.path.join(folder, _MARK)) or not os.listdir(folder)):
        return
    raise LoomError(
        "FOLDER_TAKEN",
        "there is something in the place of the report's files, and nothing was written",
        where=folder,
        why="it holds no copies of a report; name another report with -o, or move it away",
        hint=f"ls -l {quoted(folder)}",
        exit_code=EXIT_USAGE,
    )


def copy(run_dir: str, project: str, sources: Iterable[Source], folder: str) -> Copies:
    """Copy files of a run and of its project beside its report, byte for byte, in the place of those before.

    Those of the project stand in `project/`. Names that a file system or a browser could take for something else are
    written with `_`, and a part of their hash. It is made beside its place and renamed. Raises OSError; then the copies
    before are still there.
    """
    whole_folders.clear_up(folder, _COPYING, whole_folders.REPLACED)
    with whole_folders.made(folder, _COPYING) as beside:
        files.write_atomically(os.path.join(beside, _MARK), _SAYS.encode(), durable=False)
        return _all_copied({False: run_dir, True: os.path.realpath(project)}, sources, beside, folder)


def _all_copied(bases: Mapping[bool, str], sources: Iterable[Source], beside: str, folder: str) -> Copies:
    made = Copies(folder, {}, 0, [])
    for source in sources:
        base, name = bases[source.in_project], _copy_name(source)
        path = os.path.join(base, source.at)
        try:
            files.refuse_links(base, path)
            size = _copied(path, os.path.join(beside, name))
        except LoomError as error:
            made.failed.append((source.at, error.what))
        except FileExistsError:
            made.failed.append((source.at, "the copy of another file has its name"))
        except OSError as error:
            if error.filename != path:
                raise
            made.failed.append((source.at, error.strerror or str(error)))
        else:
            made.links[source] = link(f"{os.path.basename(folder)}/{name}")
            made = made._replace(bytes=made.bytes + size)
    return made


def _copy_name(source: Source) -> str:
    name = _safe(source.at)
    return f"{_PROJECT}/{name}" if source.in_project else name


def _safe(relative: str) -> str:
    return "/".join(_safe_name(name) for name in relative.split("/"))


def _safe_name(name: str) -> str:
    shown = _SAFE.sub("_", name)
    if shown == name and len(name) <= _LONGEST and not name.startswith("."):
        return name
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    stem, extension = os.path.splitext(shown.lstrip(".") or "_")
    return f"{stem[: _LONGEST - 30]}-{digest}{extension[:20]}"


def _copied(source: str, target: str) -> int:
    descriptor = _opened(source)
    with os.fdopen(descriptor, "rb") as held:
        files.make_folder(os.path.dirname(target))
        size = 0
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as out:
            while piece := held.read(_PIECE):
                out.write(piece)
                size += len(piece)
    return size


def _opened(source: str) -> int:
    try:
        return files.open_regular(source)
    except OSError as error:
        raise files.naming(error, source) from None
