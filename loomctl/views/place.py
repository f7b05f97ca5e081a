"""Where a report is written, what may be replaced there, and the copies of a run's files beside it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from loomctl.kit import digests, files
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.fences import one_line
from loomctl.runs.store import arrivals

if TYPE_CHECKING:
    from collections.abc import Iterable

_GENERATOR = b'<meta name="generator" content="loomctl report '
_LOOKED_AT = 4096  # bytes of a page in which it says by whom it was made
_RUNS = re.compile(r"/\.loom/(?:runs|local)/")
_MARK = "loom-report.txt"  # in a folder of copies: what stands in it came from a report
_SAYS = "Copies that `loomctl report --with-files` made, and replaces."
_PAGE = re.compile(r"page: (\".*\")")  # in that file, whose page's they are
_LISTED = re.compile(r"([0-9a-f]{64})  (\".*\")")  # and each copy with its hash
_PROJECT = "project"  # the folder of copies whose originals are not in the run's folder
_COPYING = ".copies-"  # a folder of copies on its way, with the number of its process
_SAFE = re.compile(r"[^A-Za-z0-9._@+-]")
_LONGEST = 100  # characters of a copy's name
_PIECE = 1 << 20


def href(relative: str) -> str:
    """Give a relative path as a link that is one whatever its names are."""
    before = "" if relative.startswith("../") else "./"
    return before + quote(os.fsencode(relative.replace(os.sep, "/")), safe="/@+~")


def check_target(path: str, *, force: bool, again: str, printed: str, own: Iterable[str] = ()) -> None:
    """Refuse to write over a file that is no report, unless forced; over what is no file, and where no folder is.

    again, printed: the hints, commands that write the same report elsewhere, and that print it. own: folders of
    Loom's, in which no report is written; nor is one among the runs of another store. Raises FILE_EXISTS, BAD_TARGET
    and NO_FOLDER.
    """
    folder = os.path.dirname(path)
    whole = os.path.join(os.path.realpath(folder), os.path.basename(path))
    if _RUNS.search(whole) or any(whole.startswith(os.path.realpath(one) + os.sep) for one in own):
        what = "a report is not written among Loom's own files, which it could be taken for or replace"
        raise LoomError("BAD_TARGET", what, where=path, hint=printed, exit_code=EXIT_USAGE)
    if not os.path.isdir(folder):
        there = _first_there(folder)
        is_barred = not os.path.isdir(there)
        raise LoomError(
            "NO_FOLDER",
            "there is no folder for the report, and nothing was written",
            where=folder,
            why="a file stands in its place, or on the way to it" if is_barred else "",
            hint=f"ls -ld {quoted(there)}" if is_barred else f"mkdir -p {quoted(folder)}",
            exit_code=EXIT_USAGE,
        )
    why, hint = "it is no report of Loom's; --force replaces it", again
    if os.path.isdir(path):
        why, hint = "a folder stands there", f"ls -ld {quoted(path)}"
    elif os.path.lexists(path) and not files.is_replaceable(path):
        why, hint = f"{files.NO_FILE}; -o - prints the page", printed
    elif force or not os.path.lexists(path) or _is_report(path):
        return
    what = "there is something in the place of the report, and nothing was written"
    raise LoomError("FILE_EXISTS", what, where=path, why=why, hint=hint, exit_code=EXIT_USAGE)


def _first_there(path: str) -> str:
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


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


def check_folder(folder: str, page: str) -> None:
    """Refuse a folder that holds something else than the copies of the page at `page`. Raises FOLDER_TAKEN.

    One of a page that is gone may be had; of copies that were not listed yet, all are Loom's.
    """
    if not os.path.lexists(folder):
        return
    own = os.path.isdir(folder) and not os.path.islink(folder)
    why = _foreign(folder, os.path.basename(page)) if own else "it holds no copies of a report"
    if not why:
        return
    raise LoomError(
        "FOLDER_TAKEN",
        "there is something in the place of the report's files, and nothing was written",
        where=folder,
        why=f"{why}; name another report with -o, or move it away",
        hint=f"ls -l {quoted(folder)}",
        exit_code=EXIT_USAGE,
    )


def _foreign(folder: str, page: str) -> str:
    """Say what in a folder is none of a page's copies; empty where nothing is."""
    if not os.listdir(folder):
        return ""
    try:
        text = files.read_bytes(os.path.join(folder, _MARK)).decode("utf-8", "replace")
    except (OSError, LoomError):
        return "it holds no copies of a report"
    other = next((_unquoted(name) for name in _PAGE.findall(text)), None)
    if other is None:  # a kill came before anything was listed
        return ""
    other = os.path.basename(other)
    if other not in ("", page) and os.path.lexists(os.path.join(os.path.dirname(folder), other)):
        return f"it holds the copies of another page, {one_line(other, 200)}"
    known = {_unquoted(name): sha256 for sha256, name in _LISTED.findall(text)}
    for at, within, names in os.walk(folder):
        for name in (*names, *(name for name in within if os.path.islink(os.path.join(at, name)))):
            path = os.path.join(at, name)
            relative = os.path.relpath(path, folder).replace(os.sep, "/")
            if relative != _MARK and not _is_copy(path, known.get(relative)):
                return f"{one_line(relative, 200)} in it is no copy that Loom made, or was changed since"
    return ""


def _unquoted(text: str) -> str:
    """Read a name as it is listed; empty for what can be none."""
    try:
        name = str(json.loads(text))
    except ValueError:
        return ""
    return "" if "\0" in name else name


def _is_copy(path: str, sha256: str | None) -> bool:
    if sha256 is None or os.path.islink(path):
        return False
    try:
        descriptor = files.open_regular(path)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as held:
        return digests.of_parts(iter(lambda: held.read(_PIECE), b"")) == sha256


def copy(run_dir: str, project: str, sources: Iterable[Source], page: str, run_id: str) -> Copies:
    """Copy files of a run and of its project beside its report, byte for byte, in the place of those before.

    Those of the project stand in `project/`. Names that a file system or a browser could take for something else are
    written with `_`, and a part of their hash. It is made beside its place and renamed. Raises OSError; then the copies
    before are still there. page: the report's path.
    """
    folder = folder_beside(page)
    bases = {False: run_dir, True: os.path.realpath(project)}
    made, hashes, size = Copies(folder, {}, 0, []), dict[str, str](), 0
    arrivals.clear_up(folder, _COPYING, arrivals.SWAPPED)
    with arrivals.swapped_folder(folder, _COPYING) as beside:
        mark = os.path.join(beside, _MARK)
        files.write_atomically(mark, b"", durable=False)
        for source in sources:
            base = bases[source.in_project]
            name = "/".join([*([_PROJECT] if source.in_project else []), *map(_safe_name, source.at.split("/"))])
            path = os.path.join(base, source.at)
            try:
                files.refuse_links(base, path)
                copied, hashes[name] = _copied(path, os.path.join(beside, name))
            except LoomError as error:
                made.failed.append((source.at, error.what))
            except FileExistsError:
                made.failed.append((source.at, "the copy of another file has its name"))
            except OSError as error:
                if error.filename != path:
                    raise
                made.failed.append((source.at, error.strerror or str(error)))
            else:
                made.links[source] = href(f"{os.path.basename(folder)}/{name}")
                size += copied
        named = (f"page: {json.dumps(os.path.basename(page))}", f"run: {json.dumps(run_id)}")
        listed = (f"{sha256}  {json.dumps(name)}" for name, sha256 in sorted(hashes.items()))
        files.write_atomically(mark, "\n".join([_SAYS, *named, "", *listed, ""]).encode(), durable=False)
    return made._replace(bytes=size)


def _safe_name(name: str) -> str:
    shown = _SAFE.sub("_", name)
    if shown == name and len(name) <= _LONGEST and not name.startswith("."):
        return name
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    stem, extension = os.path.splitext(shown.lstrip(".") or "_")
    return f"{stem[: _LONGEST - 30]}-{digest}{extension[:20]}"


def _copied(source: str, target: str) -> tuple[int, str]:
    """Copy one file; gives its size and its hash. An error of the source names it."""
    try:
        descriptor = files.open_regular(source)
    except OSError as error:
        raise files.naming(error, source) from None
    with os.fdopen(descriptor, "rb") as held:
        files.make_folder(os.path.dirname(target))
        size, seen = 0, hashlib.sha256()
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as out:
            while piece := held.read(_PIECE):
                out.write(piece)
                seen.update(piece)
                size += len(piece)
    return size, seen.hexdigest()
