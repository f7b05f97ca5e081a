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
from loomctl.runs import command_runs, context_values, run_blobs, stages
from loomctl.runs.artifact_paths import is_inside
from loomctl.runs.model import visits
from loomctl.runs.store import arrivals, blobs, event_log, events, leftovers, recovery
from loomctl.runs.tools import recording, tool_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.runs.project import Workspace
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
        what = "a dump is not written into the store, where runs would be looked for in it"
        raise LoomError("BAD_TARGET", what, where=path, hint=f"loomctl dump {run_id} ./{run_id}", exit_code=EXIT_USAGE)
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    if not os.path.lexists(path) or (is_folder and not os.listdir(path)):
        return
    is_dump = is_folder and os.path.isfile(os.path.join(path, LIST))
    if force and is_dump:
        return
    again = f"{quoted(path)} --force" if is_dump else quoted(f"{path}-2")
    raise LoomError(
        "FOLDER_TAKEN",
        "there is something in the place of the dump, and nothing was written",
        where=path,
        why="--force replaces it, for it is a dump" if is_dump else "--force replaces a dump, and this is none",
        hint=f"loomctl dump {run_id} {again}",
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
        told = Dumped(self._folder, len(self._written), total, **counts, troubles=self._troubles)
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
                self._fail(name, "STATUS_GONE", "it is not there")
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
                    self._fail(relative, "NOT_A_FILE", "it is a link or another thing that is no plain file")

    def _copy(self, source: str, name: str, *, may_lack: bool = False) -> None:
        try:
            files.refuse_links(self._run.folder, source)
            descriptor = files.open_regular(source)
        except (OSError, LoomError) as error:
            if not (may_lack and isinstance(error, FileNotFoundError)):
                self._fail(name, *_code_and_why(error))
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
        for part in name.split("/")[:-1]:
            at = os.path.join(at, part)
            if not os.path.isdir(at):
                os.mkdir(at, 0o700)
        return os.open(os.path.join(self._folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _fail(self, name: str, code: str, why: str) -> None:
        what = f"{one_line(name, 300)} is not in the dump: {why}"
        self._troubles.append(LoomError(code, what, where=os.path.join(self._run.folder, name), hint="loomctl doctor"))


def _code_and_why(error: OSError | LoomError) -> tuple[str, str]:
    return (error.code, error.what) if isinstance(error, LoomError) else ("UNREADABLE", error.strerror or str(error))
