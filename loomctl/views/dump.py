"""A whole run written out for reading elsewhere: its record as it is, its context with every value, every blob (D38).

What a dump holds is listed in its `dump.json`. Nothing of it is of this machine's alone: no locks, bindings, baselines
or leftovers. It is made beside its place and renamed, so that a kill leaves a whole one or none in it.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.kit import clock, digests, files
from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted
from loomctl.kit.package import __version__
from loomctl.kit.text.fences import one_line
from loomctl.runs import command_runs, context_values, run_blobs, stage_records, stages
from loomctl.runs.artifact_paths import is_inside
from loomctl.runs.model import visits
from loomctl.runs.store import arrivals, blobs, event_log, events, leftovers, recovery
from loomctl.runs.tools import recording, tool_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

LIST = "dump.json"
# What is copied of a run's folder, as it is; the state and the plan are written from what was read.
_FILES = (events.FILE, tool_log.FILE, recovery.SESSIONS_FILE)
_FOLDERS = ("stages", "assets", "outputs")
_PIECE = 1 << 20


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
    arrivals.clear_up(path, _MARK)
    with arrivals.swapped_folder(path, _MARK) as beside:
        told = _Dump(space, run, beside).write()
    return told._replace(path=path)


_MARK = ".dump-"  # a dump that is being made, with the number of its process


def _check_target(space: Workspace, run_id: str, path: str, *, force: bool) -> None:
    if is_inside(os.path.realpath(path), os.path.realpath(space.store.folder)):
        raise LoomError(
            "BAD_TARGET",
            "a dump is not written into the store, where runs would be looked for in it",
            where=path,
            hint=f"loomctl dump {run_id} ./{run_id}",
            exit_code=EXIT_USAGE,
        )
    if not os.path.lexists(path) or (_is_folder(path) and not os.listdir(path)):
        return
    is_dump = _is_folder(path) and os.path.isfile(os.path.join(path, LIST))
    if force and is_dump:
        return
    other = path if is_dump else f"{path}-2"
    again = " --force" if is_dump else ""
    raise LoomError(
        "FOLDER_TAKEN",
        "there is something in the place of the dump, and nothing was written",
        where=path,
        why="--force replaces it, for it is a dump" if is_dump else "--force replaces a dump, and this is none",
        hint=f"loomctl dump {run_id} {quoted(other)}{again}",
        exit_code=EXIT_USAGE,
    )


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


class _Dump:
    """One dump on its way. The state is read first: what it says of is in the files that are copied behind it."""

    def __init__(self, space: Workspace, run: Run, folder: str) -> None:
        self._space, self._run, self._folder = space, run, folder
        self._troubles: list[LoomError] = []
        self._written: dict[str, dict[str, Any]] = {}
        self._blobs = 0

    def write(self) -> Dumped:
        """Write all of it; the list comes last."""
        for name, data in (("state.json", self._state()), ("plan.json", files.to_json(self._run.plan))):
            self._put(name, data)
        for name in _FILES:
            self._copy(os.path.join(self._run.folder, name), name, may_lack=True)
        for name in _FOLDERS:
            self._copy_all(name)
        values, troubles = context_values.read_all(self._space, self._run)
        self._troubles += [one for one in troubles if one.code == "RESPONSE_GONE"]  # blobs are looked at below
        self._put("context.json", files.to_json(values))
        self._copy_blobs()
        entries = [line.entry is not None for line in self._log()]
        counts = {
            "stages": self._stages(),
            "events": sum(entries),
            "broken_lines": len(entries) - sum(entries),
            "blobs": self._blobs,
        }
        told = {
            "schema_version": 1,
            "run_id": self._run.run_id,
            "made_at": clock.now(),
            "made_by": f"loomctl {__version__}",
            **counts,
            "files": self._written,
            "troubles": [one.to_dict() for one in self._troubles],
        }
        total = sum(one["bytes"] for one in self._written.values())
        self._put(LIST, files.to_json(told))
        parts = (len(self._written), total, counts["stages"], counts["events"], self._blobs)
        return Dumped(self._folder, *parts, self._troubles)

    def _state(self) -> bytes:
        """Give the state as its file has it; FABER's in FABER's own words."""
        own = os.path.join(self._run.folder, "state.json")
        if self._run.state_path == own:
            return files.to_json(self._run.state)
        return files.read_bytes(self._run.state_path)

    def _log(self) -> Iterator[event_log.Line]:
        return event_log.all_of(os.path.join(self._folder, events.FILE))

    def _stages(self) -> int:
        """Count the stages of the run whose files are here; say which status of one that ended is not.

        What an undo left of a stage that the run no longer has is here, too, and is no stage.
        """
        there = {name.split("/")[1] for name in self._written if name.startswith("stages/")}
        for entry in stage_records.entries(self._run):
            name = f"stages/{entry['stage']}/{stages.STATUS}"
            if entry["status"] in visits.OUTCOMES and name not in self._written and not self._is_told(name):
                self._fail(name, "STATUS_GONE", "it is not there")
        return len(there & {entry["stage"] for entry in stage_records.entries(self._run)})

    def _is_told(self, name: str) -> bool:
        return any(one.where == os.path.join(self._run.folder, name) for one in self._troubles)

    # ---- Blobs.

    def _copy_blobs(self) -> None:
        """Copy what the record names, at any remove, to where a store has it; say which references lead to nothing."""
        named = run_blobs.named_below(self._folder)
        found: set[str] = set()
        for ref, data in run_blobs.named(self._space, self._run.folder, named):
            sha256 = blobs.sha256_of(ref)
            self._put(os.path.join(blobs.FOLDER, "sha256", sha256[:2], sha256), data)
            found.add(ref)
        self._blobs = len(found)
        for ref in sorted(self._held() - found):
            trouble = run_blobs.trouble(self._space.store.folder, self._run.folder, ref)
            if trouble is not None:
                self._troubles.append(trouble)

    def _held(self) -> set[str]:
        """Give the references that the state and the statuses hold where Loom writes them; events hold none."""
        held = set(blobs.refs_of_state(self._run.state))
        for name in self._written:
            if name.startswith("stages/") and name.endswith("/status.json"):
                with open(os.path.join(self._folder, name), "rb") as source:
                    held.update(_refs(source.read()))
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
                self._fail(inside, "UNREADABLE", error.strerror or str(error))
                continue
            for entry in held:
                relative = f"{inside}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(relative)
                elif entry.is_file(follow_symlinks=False):
                    if not leftovers.is_leftover(entry.name) and entry.name != command_runs.LOCK:
                        self._copy(entry.path, relative)
                else:
                    self._fail(relative, "NOT_A_FILE", "it is a link or another thing that is no plain file")

    def _copy(self, source: str, name: str, *, may_lack: bool = False) -> None:
        """Copy a file as far as it reaches now."""
        try:
            files.refuse_links(self._run.folder, source)
            descriptor = files.open_regular(source)
        except FileNotFoundError as error:
            if not may_lack:  # it went meanwhile
                self._fail(name, "UNREADABLE", error.strerror or str(error))
            return
        except LoomError as error:
            self._fail(name, error.code, error.what)
            return
        except OSError as error:
            self._fail(name, "UNREADABLE", error.strerror or str(error))
            return
        with os.fdopen(descriptor, "rb") as held:
            left = os.fstat(descriptor).st_size
            digest, written = hashlib.sha256(), 0
            with os.fdopen(self._open(name), "wb") as target:
                while left > 0 and (piece := held.read(min(_PIECE, left))):
                    target.write(piece)
                    digest.update(piece)
                    written += len(piece)
                    left -= len(piece)
        self._written[name] = {"bytes": written, "sha256": digest.hexdigest()}

    def _put(self, name: str, data: bytes) -> None:
        with os.fdopen(self._open(name), "wb") as target:
            target.write(data)
        self._written[name] = {"bytes": len(data), "sha256": digests.of_bytes(data)}

    def _open(self, name: str) -> int:
        at = self._folder
        for part in os.path.dirname(name).split("/") if "/" in name else ():
            at = os.path.join(at, part)
            if not os.path.isdir(at):
                os.mkdir(at, 0o700)
        return os.open(os.path.join(self._folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _fail(self, name: str, code: str, why: str) -> None:
        what = f"{one_line(name, 300)} is not in the dump: {why}"
        self._troubles.append(LoomError(code, what, where=os.path.join(self._run.folder, name), hint="loomctl doctor"))


def _refs(data: bytes) -> list[str]:
    """Give the references that a `status.json` holds; of what is no JSON none."""
    if blobs.REF_PREFIX.encode() not in data:
        return []
    try:
        return blobs.refs_of_status(json.loads(data))
    except (ValueError, RecursionError):
        return []
