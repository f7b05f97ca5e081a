"""The files that a run's log tells of, held against the hashes that it took down: what is Loom's own, and evidence.

What is another file now is a fault where Loom alone writes it; a file of the project may have changed since, and what
is gone, was never brought here or was masked on its way cannot be held against anything: those are unproven.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.changes import evidence_files
from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError
from loomctl.runs import artifact_paths, command_runs, run_blobs, stages
from loomctl.runs.machine import handoff_notes
from loomctl.runs.model import visits
from loomctl.runs.store import blobs, event_log, events
from loomctl.runs.store.store import Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from loomctl.runs.artifact_paths import Roots
    from loomctl.runs.caller import Workspace

CHANGED_FILE, DAMAGED_BLOB = "CHANGED_FILE", "DAMAGED_BLOB"
MOST = 200  # files of a kind of verdict that are named
_MASK = b"[masked: "  # what stands for a secret in a file that was handed on
_LARGEST = 512 << 20  # bytes of a file that is read whole
_BLOCK, _OVERLAP = 1 << 20, len(_MASK) - 1
_GONE = "it is not here"
_SINCE = "it is another now; a later step may have changed it"
_LOST = "it is gone"
_STATE, _PLAN = "state.json", "plan.json"
_ANSWERED = ("done", "conversation", "transcript", "candidate")  # of a `stage.completed` with a response
_TOLD = ("stage.completed", "asset.captured", "evidence.checked")
_RENEWED = "stage.prompt_renewed"
_PLANNED = ("plan.restored", "plan.migrated", "plan.frozen")


class FileTold(NamedTuple):
    """One file that is not proven. stage: whose it is, empty for what no stage owns; code: of a fault, else empty."""

    stage: str
    file: str
    code: str
    why: str


class Files(NamedTuple):
    """The verdict on a run's files: how many are those that were written, and the first MOST of the others.

    unproven, faulty: how many there are; without: responses of which the log has no hash; bare: stages and files of
    which it has none.
    """

    proven: int
    unproven: int
    faulty: int
    without: int
    open: Sequence[FileTold]
    faults: Sequence[FileTold]
    bare: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether none of Loom's own files is another than the log says."""
        return not self.faulty

    def to_dict(self) -> dict[str, Any]:
        """Give the verdict as `verify --json` prints it."""
        return {
            "proven": self.proven,
            "unproven_count": self.unproven,
            "unproven": [{"stage": one.stage, "file": one.file, "why": one.why} for one in self.open],
            "faults_count": self.faulty,
            "faults": [one._asdict() for one in self.faults],
            "without_hash": self.without,
            "not_covered": list(self.bare),
        }


def check(space: Workspace, run_id: str) -> Files:
    """Hold a run's files against its log and against the names of its blobs.

    Of each stage the last entry of a kind counts, for a stage that was undone is visited anew. Raises what reading the
    state does, UNSAFE_LINK, and OSError where the log cannot be read; one that is gone tells of no file.
    """
    home, state = space.store.home(run_id), space.store.read_state(run_id)
    folder = space.store.run_dir(run_id)
    run = Run(run_id, folder, state, {}, home.state, os.path.join(folder, "plan.json"))
    told, without, log = _told(run)
    roots = artifact_paths.Roots(
        space.project.root, run.folder, space.project.plugin_root, tuple(space.settings.extra_roots)
    )
    known = artifact_paths.placeholder_values(space.project, run)
    brought = _brought(space, run_id)
    found = [_looked(run, one, known, roots, brought) for one in told]
    found += [_blob(space, run, ref) for ref in blobs.refs_of_state(run.state)]
    kept = [*_kept(run, log), *_whole(log)]
    found += [_held(run, one, brought) for one in kept]
    faults = [one for one in found if one is not None and one.code]
    unproven = [one for one in found if one is not None and not one.code]
    return Files(
        found.count(None), len(unproven), len(faults), without, unproven[:MOST], faults[:MOST], _bare(run, log)
    )


class _Wanted(NamedTuple):
    """A file and its hash. kind: `response`, `asset`, `file` (evidence) or `command`; number: of the evidence."""

    kind: str
    stage: str
    file: str
    sha256: str
    number: int = 0


class _Kept(NamedTuple):
    """A file that Loom alone writes, at `path` below the run's folder, and the hashes of what it may say.

    stage: whose, or up to which it was written; keys: what of a JSON file does not count; None of any other file.
    """

    stage: str
    file: str
    path: str
    sha256: frozenset[str]
    keys: Collection[str] | None


class _Log:
    """What the log says of the files that Loom alone writes. prompts, ends: hashes by stage, then by file."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._head = events.head_of(state.get("ledger_head"))
        self.prompts: dict[str, set[str]] = {}
        self.ends: dict[str, dict[str, str]] = {}
        self.plans: set[str] = set()
        self.state, self.stage = "", ""  # the state's checksum, and the stage that was told of last before it

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take the next entry."""
        name, told = entry["event"], entry.get("properties")
        told = told if isinstance(told, dict) else {}
        stage, hashes = told.get("stage"), told.get("files_sha256")
        hashes = {key: one for key, one in hashes.items() if type(one) is str} if isinstance(hashes, dict) else {}
        if self._head is not None and entry["seq"] <= self._head.seq and isinstance(stage, str):
            self.stage = stage
        if self._head is not None and entry["seq"] == self._head.seq and isinstance(entry.get("state"), str):
            self.state = entry["state"]
        if isinstance(stage, str) and stages.PROMPT in hashes:
            known = self.prompts.get(stage, set()) if name == _RENEWED else set()
            self.prompts[stage] = {*known, hashes[stages.PROMPT]}
        if isinstance(stage, str) and name == "stage.completed":
            self.ends[stage] = hashes
        made = told.get("plan") if name == "run.created" else told if name in _PLANNED else None
        if isinstance(made, dict) and isinstance(made.get("sha256"), str):
            self.plans.add(made["sha256"])


def _kept(run: Run, log: _Log) -> Iterator[_Kept]:
    """Give the files of the stages that the state names: the prompt of each, what each that has ended left."""
    for entry in visits.every(run.state):
        stage = entry.get("stage")
        if not isinstance(stage, str):
            continue
        if stage in log.prompts:
            path = f"stages/{stage}/{stages.PROMPT}"
            yield _Kept(stage, stages.PROMPT, path, frozenset(log.prompts[stage]), None)
        if entry["status"] in visits.OPEN:
            continue
        for name, sha256 in log.ends.get(stage, {}).items():
            keys = ("run_id",) if name.endswith(".json") else None
            yield _Kept(stage, name, f"stages/{stage}/{name}", frozenset((sha256,)), keys)


def _whole(log: _Log) -> Iterator[_Kept]:
    """Give the plan, and the state as it was at its last checkpoint (D54)."""
    if log.plans:
        yield _Kept("", _PLAN, _PLAN, frozenset(log.plans), ())
    if log.state:
        yield _Kept(log.stage, _STATE, _STATE, frozenset((log.state,)), ())


def _bare(run: Run, log: _Log) -> list[str]:
    """Name what the log has no hash of: it was written by an older Loom, came with a fork, or is FABER's too."""
    entries = [one for one in visits.every(run.state) if one.get("stage") and one["status"] in visits.OUTCOMES]
    bare = [str(one["stage"]) for one in entries if not log.ends.get(str(one["stage"]))]
    return [*bare, *([] if log.plans else [_PLAN]), *([] if log.state else [_STATE])]


def _held(run: Run, kept: _Kept, brought: _Brought) -> FileTold | None:
    """Hold a file that Loom alone writes against what it may say."""
    path = os.path.join(run.folder, kept.path)
    try:
        if not artifact_paths.is_inside(os.path.normpath(path), run.folder):
            return FileTold(kept.stage, kept.file, "", "its path leads out of the run's folder")
        files.refuse_links(run.folder, path)
        data = files.read_bytes(path, limit=_LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        if kept.stage and "/" in kept.path and _is_put_aside(run, kept):
            return None  # by an undo that was killed before the state
        if f"run/{kept.path}" in brought.left_out:
            return FileTold(kept.stage, kept.file, "", _GONE)
        return FileTold(kept.stage, kept.file, CHANGED_FILE, _LOST)
    except LoomError as refused:
        return FileTold(kept.stage, kept.file, CHANGED_FILE, refused.what)
    except (OSError, ValueError) as error:
        return FileTold(kept.stage, kept.file, CHANGED_FILE, f"it cannot be read: {error}")
    if _says(kept, data):
        return None
    if brought.by_pull and _MASK in data:
        return FileTold(kept.stage, kept.file, "", "a secret in it was masked as the run was handed on")
    return FileTold(kept.stage, kept.file, CHANGED_FILE, "it is not the one that was written")


def _is_put_aside(run: Run, kept: _Kept) -> bool:
    folder = os.path.dirname(os.path.join(run.folder, kept.path))
    for name in stages.aside(run.folder, kept.stage, kept.file):
        try:
            if _says(kept, files.read_bytes(os.path.join(folder, name), limit=_LARGEST)):
                return True
        except (OSError, LoomError):
            continue
    return False


def _says(kept: _Kept, data: bytes) -> bool:
    """Tell whether a file says one of the things that it may: as it is, or masked as it was pushed."""
    if kept.keys is None:
        return digests.of_bytes(data) in kept.sha256
    try:
        value = files.parse_json(data, where=kept.path)
    except LoomError:
        return False
    if not isinstance(value, dict):
        return False
    from loomctl.kit.text.secrets import masked

    return any(_sha256_of(kept, one) in kept.sha256 for one in (value, masked(value)))


def _sha256_of(kept: _Kept, value: Mapping[str, Any]) -> str:
    return events.of_state(value) if kept.file == _STATE else digests.of_json(value, kept.keys or ())


class _Brought(NamedTuple):
    """Whether a pull brought a run here, which masks what it carries, and the paths that it left out."""

    by_pull: bool
    left_out: Collection[str]


def _brought(space: Workspace, run_id: str) -> _Brought:
    note = handoff_notes.read(space.store.local, run_id)
    said = note.get("left_out")
    left_out = {str(one[0]) for one in said if isinstance(one, list) and one} if isinstance(said, list) else set()
    return _Brought(bool(note), left_out)


def _told(run: Run) -> tuple[list[_Wanted], int, _Log]:
    """Give what the log has hashes of, by stage and name, how many responses it has none of, and the rest of it."""
    found: dict[tuple[str, str, str], _Wanted] = {}
    answered: dict[str, bool] = {}
    log, entries = _Log(run.state), []
    try:
        for line in event_log.every(run.folder):
            if line.entry is not None:
                log.take(line.entry)
                entries += [line.entry] if line.entry["event"] in _TOLD else []
    except FileNotFoundError:
        return [], 0, log
    open_now = {entry["stage"] for entry in visits.every(run.state) if entry["status"] in visits.OPEN}
    for entry in entries:
        for one in _of_entry(entry):
            found[one.kind, one.stage, one.file] = one
        if entry["event"] == "stage.completed" and _has_response(entry):
            answered[str(entry["properties"].get("stage"))] = "response_sha256" in entry["properties"]
    kept = [one for one in found.values() if one.kind != "response" or one.stage not in open_now or _is_aside(run, one)]
    return kept, sum(not hashed for hashed in answered.values()), log


def _has_response(entry: Mapping[str, Any]) -> bool:
    told = entry.get("properties")
    return isinstance(told, dict) and told.get("response_source") in _ANSWERED


def _of_entry(entry: Mapping[str, Any]) -> Iterator[_Wanted]:
    told = entry.get("properties")
    stage = told.get("stage") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(stage, str):
        return
    if entry["event"] == "stage.completed" and blobs.is_sha256(str(told.get("response_sha256"))):
        yield _Wanted("response", stage, stages.RESPONSE, told["response_sha256"])
    if entry["event"] == "asset.captured" and blobs.is_sha256(str(told.get("sha256"))):
        yield _Wanted("asset", stage, str(told.get("stored")), told["sha256"])
    items = told.get("items") if entry["event"] == "evidence.checked" and told.get("passed") is True else None
    for number, item in enumerate(items if isinstance(items, list) else (), 1):
        kind = item.get("kind") if isinstance(item, dict) else None
        if kind in ("file", "command") and blobs.is_sha256(str(item.get("sha256"))):
            yield _Wanted(str(kind), stage, str(item.get("name")), item["sha256"], number)


def _looked(
    run: Run, wanted: _Wanted, known: Mapping[str, str | None], roots: Roots, brought: _Brought
) -> FileTold | None:
    """Say what is the matter with a file; None where it is the one that the log tells of."""
    try:
        if wanted.kind == "file":
            seen = evidence_files.look(wanted.file, known, roots).digests
            same = bool(seen) and evidence_files.together(seen) == wanted.sha256
            return None if same else FileTold(wanted.stage, wanted.file, "", _SINCE if seen else _GONE)
        folder = stages.folder(run.folder, wanted.stage)
        if wanted.kind == "command":
            same = wanted.sha256 in _outputs(folder, wanted.number)
            return None if same else FileTold(wanted.stage, wanted.file, "", "its output is not here as it was")
        path = os.path.join(folder if wanted.kind == "response" else run.folder, wanted.file)
        if not artifact_paths.is_inside(os.path.normpath(path), run.folder):
            return FileTold(wanted.stage, wanted.file, "", "its path leads out of the run's folder")
        files.refuse_links(run.folder, path)
        return _own(run, wanted, path, brought)
    except LoomError as refused:
        return _untold(wanted, refused.what)
    except (OSError, ValueError) as error:  # a name that no file can have
        return _untold(wanted, str(error))


def _own(run: Run, wanted: _Wanted, path: str, brought: _Brought) -> FileTold | None:
    """Judge a file that Loom alone writes."""
    try:
        sha256, is_masked = _read(path)
    except FileNotFoundError:
        if wanted.kind == "response" and _is_aside(run, wanted):
            return None
        left_out = f"run/{os.path.relpath(path, run.folder)}" in brought.left_out
        if wanted.kind != "response" or left_out:
            return _untold(wanted, _GONE)
        return FileTold(wanted.stage, wanted.file, CHANGED_FILE, _LOST)
    except OSError as error:
        return _untold(wanted, f"it cannot be read: {error.strerror or error}")
    if sha256 == wanted.sha256:
        return None
    if brought.by_pull and is_masked:
        return _untold(wanted, "a secret in it was masked as the run was handed on")
    return FileTold(wanted.stage, wanted.file, CHANGED_FILE, "it is not the one that was written")


def _untold(wanted: _Wanted, why: str) -> FileTold:
    return FileTold(wanted.stage, wanted.file, "", why)


def _is_aside(run: Run, wanted: _Wanted) -> bool:
    """Tell whether a response that an undo put aside is the one that was written."""
    folder = stages.folder(run.folder, wanted.stage)
    for name in stages.aside(run.folder, wanted.stage, wanted.file):
        try:
            if _read(os.path.join(folder, name))[0] == wanted.sha256:
                return True
        except OSError:
            continue
    return False


def _outputs(folder: str, number: int) -> set[str]:
    """Give the hashes of what each try of a command that is evidence printed."""
    try:
        names = os.listdir(folder)
    except OSError:
        return set()
    tries = [name for name in names if name.partition(".")[0] == f"evidence-{number}"]
    return {digests.of_parts(command_runs.log_parts(os.path.join(folder, name))) for name in tries}


def _read(path: str) -> tuple[str, bool]:
    """Give a file's SHA-256, and whether a mask stands in it. Raises OSError."""
    seen, tail, is_masked = digests.begun(), b"", False
    with os.fdopen(files.open_regular(path), "rb", buffering=0) as source:
        while part := source.read(_BLOCK):
            seen.update(part)
            is_masked = is_masked or _MASK in tail + part
            tail = part[-_OVERLAP:]
    return str(seen.hexdigest()), is_masked


def _blob(space: Workspace, run: Run, ref: str) -> FileTold | None:
    error = run_blobs.trouble(space.store.folder, run.folder, ref)
    if error is None:
        return None
    return FileTold("", ref, DAMAGED_BLOB if error.code == DAMAGED_BLOB else "", error.why or error.what)
