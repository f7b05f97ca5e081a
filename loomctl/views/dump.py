"""Files of a run written out: all of it as a dump (D38), or copies beside a report, and what may be replaced there.

Nothing of a dump is of this machine alone: no locks, bindings, baselines or leftovers; what it holds is listed in its
`dump.json`. A dump and a folder of copies are made beside their place and renamed: a kill leaves a whole one or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from loomctl.kit import clock, digests, files
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.package import __version__
from loomctl.kit.text.fences import one_line
from loomctl.runs import command_runs, context_values, run_blobs, stages
from loomctl.runs.artifact_paths import is_inside
from loomctl.runs.model import visits
from loomctl.runs.store import arrivals, blobs, event_log, events, leftovers, recovery
from loomctl.runs.tools import recording, tool_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

LIST = "dump.json"
# What is copied of a run's folder, as it is; the state and the plan are written from what was read.
_FILES = (events.FILE, tool_log.FILE, recovery.SESSIONS_FILE)
_FOLDERS = ("stages", "assets", "outputs")


class Dumped(NamedTuple):
    """What was written. bytes: of all files; troubles: what is not in it, or not whole, each with its place."""

    path: str
    files: int
    bytes: int
    stages: int
    events: int
    blobs: int
    troubles: Sequence[LoomError]


def dump(space: Workspace, run_id: str, path: str, *, force: bool = False) -> Dumped:
    """Write a run out into a folder that is not there yet, or is empty.

    force: a folder that holds a dump is replaced. Raises FOLDER_TAKEN, BAD_TARGET for a place in the store, OSError;
    then nothing stands there.
    """
    path = os.path.abspath(path)
    _check_target(space, run_id, path, force=force)
    recording.digest(space)  # what waits belongs into it
    run = space.store.read(run_id, to_show=True)
    files.make_folder(os.path.dirname(path), mode=0o755)
    arrivals.clear_up(path, _MAKING)
    with arrivals.swapped_folder(path, _MAKING) as beside:
        told = _Dump(space, run, beside).write()
    return told._replace(path=path)


_MAKING = ".dump-"  # a dump that is being made, with the number of its process


def _check_target(space: Workspace, run_id: str, path: str, *, force: bool) -> None:
    called = space.store.handle(run_id)
    if is_inside(os.path.realpath(path), os.path.realpath(space.store.folder)):
        what = "refusing to write a dump below .loom, where Loom looks for runs"
        raise LoomError("BAD_TARGET", what, where=path, hint=f"loomctl dump {called} ./{called}", exit_code=EXIT_USAGE)
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    if not os.path.lexists(path) or (is_folder and not os.listdir(path)):
        return
    is_dump = is_folder and os.path.isfile(os.path.join(path, LIST))
    if force and is_dump:
        return
    again = f"{quoted(path)} --force" if is_dump else quoted(f"{path}-2")
    raise LoomError(
        "FOLDER_TAKEN",
        "refusing to overwrite a dump" if is_dump else "refusing to overwrite what is not a dump",
        where=path,
        why="to replace it, add --force" if is_dump else "choose another folder",
        hint=f"loomctl dump {called} {again}",
        exit_code=EXIT_USAGE,
    )


class _Dump:
    """One dump on its way. The state is read first: what it says of is in the files that are copied behind it."""

    def __init__(self, space: Workspace, run: Run, folder: str) -> None:
        self._space, self._run, self._folder = space, run, folder
        self._troubles: list[LoomError] = []
        self._written: dict[str, dict[str, Any]] = {}

    def write(self) -> Dumped:
        """Write all of it; the list comes last."""
        run = self._run
        # FABER's own state stands in FABER's own words.
        is_own = run.state_path == os.path.join(run.folder, "state.json")
        self._put("state.json", files.to_json(run.state) if is_own else files.read_bytes(run.state_path))
        self._put("plan.json", files.to_json(run.plan))
        for name in _FILES:
            self._copy(os.path.join(run.folder, name), name, may_lack=True)
        for name in _FOLDERS:
            self._copy_all(name)
        values, troubles = context_values.read_all(self._space, run)
        self._troubles += [one for one in troubles if one.code == "RESPONSE_GONE"]  # blobs are looked at below
        self._put("context.json", files.to_json(values))
        blobs_there = self._copy_blobs()
        entries = [line.entry is not None for line in event_log.all_of(os.path.join(self._folder, events.FILE))]
        counts = {"stages": self._stages(), "events": sum(entries), "blobs": blobs_there}
        total = sum(one["bytes"] for one in self._written.values())
        told = Dumped(self._folder, len(self._written) + 1, total, **counts, troubles=self._troubles)
        self._put(
            LIST,
            files.to_json(
                {
                    "schema_version": 1,
                    "run_id": run.run_id,
                    "made_at": clock.now(),
                    "made_by": f"loomctl {__version__}",
                    **counts,
                    "broken_lines": len(entries) - sum(entries),
                    "files": self._written,
                    "troubles": [one.to_dict() for one in self._troubles],
                }
            ),
        )
        return told

    def _stages(self) -> int:
        """Count the stages of the run whose files are here; say which status of one that ended is not.

        What an undo left of a stage that the run no longer has is here, too, and is no stage.
        """
        there = {name.split("/")[1] for name in self._written if name.startswith("stages/")}
        told = {one.where for one in self._troubles}
        entries = stages.entries(self._run)
        for entry in entries:
            name = f"stages/{entry['stage']}/{stages.STATUS}"
            is_lost = entry["status"] in visits.OUTCOMES and name not in self._written
            if is_lost and os.path.join(self._run.folder, name) not in told:
                self._fail(name, "STATUS_GONE", "it is missing")
        return len(there & {entry["stage"] for entry in entries})

    # ---- Blobs.

    def _copy_blobs(self) -> int:
        """Copy what the record names, at any remove, to where a store has it; say which references lead to nothing."""
        found: set[str] = set()
        for ref, data in run_blobs.named(self._space, self._run.folder, run_blobs.named_below(self._folder)):
            sha256 = blobs.sha256_of(ref)
            self._put(os.path.join(blobs.FOLDER, "sha256", sha256[:2], sha256), data)
            found.add(ref)
        for ref in sorted(self._held() - found):
            trouble = run_blobs.trouble(self._space.store.folder, self._run.folder, ref)
            self._troubles += [trouble] if trouble is not None else []
        return len(found)

    def _held(self) -> set[str]:
        """Give the references that the state and the statuses hold where Loom writes them; events hold none."""
        held = set(blobs.refs_of_state(self._run.state))
        for name in self._written:
            if name.startswith("stages/") and name.endswith("/status.json"):
                with open(os.path.join(self._folder, name), "rb") as source:
                    data = source.read()
                try:
                    held.update(blobs.refs_of_status(json.loads(data)) if blobs.REF_PREFIX.encode() in data else ())
                except (ValueError, RecursionError):  # it is no JSON
                    pass
        return held

    # ---- Files.

    def _copy_all(self, name: str) -> None:
        """Copy a folder with everything below it; what is no plain file is said, and left out."""
        waiting = [name]
        while waiting:
            inside = waiting.pop()
            try:
                with os.scandir(os.path.join(self._run.folder, inside)) as entries:
                    held = sorted(entries, key=lambda entry: entry.name)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._fail(inside, *_code_and_why(error))
                continue
            for entry in held:
                relative = f"{inside}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(relative)
                elif entry.is_file(follow_symlinks=False):
                    if not leftovers.is_leftover(entry.name) and entry.name != command_runs.LOCK:
                        self._copy(entry.path, relative)
                else:
                    self._fail(relative, "NOT_A_FILE", "it is not a plain file (a link, for example)")

    def _copy(self, source: str, name: str, *, may_lack: bool = False) -> None:
        try:
            files.refuse_links(self._run.folder, source)
            size, sha256 = _copied(source, os.path.join(self._folder, name))
        except (OSError, LoomError) as error:
            if isinstance(error, OSError) and error.filename != source:
                raise
            if not (may_lack and isinstance(error, FileNotFoundError)):
                self._fail(name, *_code_and_why(error))
            return
        self._written[name] = {"bytes": size, "sha256": sha256}

    def _put(self, name: str, data: bytes) -> None:
        with _created(os.path.join(self._folder, name)) as target:
            target.write(data)
        self._written[name] = {"bytes": len(data), "sha256": digests.of_bytes(data)}

    def _fail(self, name: str, code: str, why: str) -> None:
        what = f"{one_line(name, 300)} is not in the dump: {why}"
        self._troubles.append(LoomError(code, what, where=os.path.join(self._run.folder, name), hint="loomctl doctor"))


def _code_and_why(error: OSError | LoomError) -> tuple[str, str]:
    return (error.code, error.what) if isinstance(error, LoomError) else ("UNREADABLE", error.strerror or str(error))


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
        what = "refusing to write a report among Loom's own files"
        raise LoomError("BAD_TARGET", what, where=path, hint=printed, exit_code=EXIT_USAGE)
    if not os.path.isdir(folder):
        there = _first_there(folder)
        is_barred = not os.path.isdir(there)
        raise LoomError(
            "NO_FOLDER",
            "the folder for the report does not exist",
            where=folder,
            why="a file is in its place, or on the way to it" if is_barred else "",
            hint=f"ls -ld {quoted(there)}" if is_barred else f"mkdir -p {quoted(folder)}",
            exit_code=EXIT_USAGE,
        )
    why, hint = "", again
    if os.path.isdir(path):
        why, hint = "it is a folder", f"ls -ld {quoted(path)}"
    elif os.path.lexists(path) and not files.is_replaceable(path):
        why, hint = f"{files.NO_FILE}; -o - prints the page", printed
    elif not force and os.path.lexists(path):
        why = _why_kept(path)
    if not why:
        return
    what = f"refusing to overwrite {one_line(os.path.basename(path), 120)}"
    raise LoomError("FILE_EXISTS", what, where=path, why=why, hint=hint, exit_code=EXIT_USAGE)


def _first_there(path: str) -> str:
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _why_kept(path: str) -> str:
    """Say why a file is not replaced; empty for a report."""
    try:
        descriptor = files.open_regular(path)
    except OSError as error:
        return f"Loom cannot tell whether it wrote this file: {error.strerror or error}; --force replaces it"
    with os.fdopen(descriptor, "rb") as held:
        return "" if _GENERATOR in held.read(_LOOKED_AT) else "Loom did not write this file; --force replaces it"


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
    why = _foreign(folder, os.path.basename(page)) if own else "it is not a folder of a report's copies"
    if not why:
        return
    raise LoomError(
        "FOLDER_TAKEN",
        "refusing to write the report's files into this folder",
        where=folder,
        why=f"{why}; name another report with -o, or move the folder away",
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
        return "it is not a folder of a report's copies"
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
                return f"somebody made or changed {one_line(relative, 200)} in it"
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
                made.failed.append((source.at, "another file's copy has its name"))
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
    """Copy one file, as long as it is now; gives its size and its hash. An error of the source names it."""
    try:
        descriptor = files.open_regular(source)
    except OSError as error:
        raise files.naming(error, source) from None
    with os.fdopen(descriptor, "rb") as held, _created(target) as out:
        left = size = os.fstat(descriptor).st_size
        seen = hashlib.sha256()
        while left > 0 and (piece := held.read(min(_PIECE, left))):
            out.write(piece)
            seen.update(piece)
            left -= len(piece)
    return size - left, seen.hexdigest()


def _created(path: str) -> BinaryIO:
    missing, folder = [], os.path.dirname(path)
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for one in reversed(missing):
        os.mkdir(one, 0o700)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
