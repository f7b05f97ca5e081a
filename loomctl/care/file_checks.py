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
from loomctl.kit.text.secrets import masked
from loomctl.runs import artifact_paths, command_runs, run_blobs, stages
from loomctl.runs.machine import run_notes
from loomctl.runs.model import visits
from loomctl.runs.model.visit_list import Visits
from loomctl.runs.store import blobs, event_log, events, visit_files
from loomctl.runs.store.store import Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from loomctl.runs.artifact_paths import Roots
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.layouts import Home

CHANGED_FILE, DAMAGED_BLOB = "CHANGED_FILE", "DAMAGED_BLOB"
MOST = 200  # files of a kind of verdict that are named
_MASK = b"[masked: "  # what stands for a secret in a file that was handed on
_LARGEST = 512 << 20  # bytes of a JSON file that is read whole
_BLOCK, _OVERLAP = 1 << 20, len(_MASK) - 1
_GONE = "it is missing"
_SINCE = "its content differs; a later step may have changed it"
_STATE, _PLAN = "state.json", "plan.json"
_ANSWERED = ("done", "conversation", "transcript", "candidate")  # of a `stage.completed` with a response
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
    moved, state = _moved_visits(home, state)
    run = Run(run_id, folder, state, {}, home.state, os.path.join(folder, "plan.json"))
    roots = artifact_paths.Roots(
        space.project.root, folder, space.project.plugin_root, tuple(space.settings.extra_roots)
    )
    log = _Log(run)
    held = _Held(
        run, artifact_paths.placeholder_values(space.project, run), roots, run_notes.handoff(space.store.local, run_id)
    )
    found = [held.own(one) for one in (*log.responses(), *log.assets.values(), *log.written())]
    found += [held.evidence(one) for one in log.evidence.values()]
    found += [_blob(space, run, ref) for ref in blobs.refs_of_state(state)]
    found += moved
    faults = [one for one in found if one is not None and one.code]
    unproven = [one for one in found if one is not None and not one.code]
    without = sum(not is_hashed for is_hashed in log.answered.values())
    return Files(found.count(None), len(unproven), len(faults), without, unproven[:MOST], faults[:MOST], log.bare())


def _moved_visits(home: Home, state: State) -> tuple[list[FileTold | None], State]:
    """Read the file of the visits that left a state; gives the state with what is left of them."""
    if not isinstance(state["steps"], Visits):
        return [], state
    file = f"stages/{state['steps'].earlier.record['file']}"
    try:
        list(state["steps"])
    except LoomError as error:
        line = error.where.rpartition(":")[2]
        told = FileTold("", file, CHANGED_FILE, f"line {line}: {error.why}" if line.isdigit() else error.what)
        return [told], {**state, "steps": visit_files.rebuilt(home, state)[0]}
    return [None], state


class _Own(NamedTuple):
    """A file that Loom alone writes, at `path` below the run's folder, and the hashes of what it may say.

    stage: whose, or up to which it was written; keys: what of a JSON file does not count, None of any other file;
    lost: the code where it is gone, damaged: where something else stands in its place.
    """

    stage: str
    file: str
    path: str
    sha256: Collection[str]
    keys: Collection[str] | None = None
    lost: str = CHANGED_FILE
    damaged: str = CHANGED_FILE


class _Evidence(NamedTuple):
    """A file of the project, or the output of a command, which is the stage's evidence of that number."""

    kind: str
    stage: str
    file: str
    sha256: str
    number: int


class _Log:
    """What a run's log says of its files. prompts, ends: hashes by stage, then by file; answered: whether hashed."""

    def __init__(self, run: Run) -> None:
        self._run, self._head = run, events.head_of(run.state.get("ledger_head"))
        self.prompts: dict[str, set[str]] = {}
        self.ends: dict[str, dict[str, str]] = {}
        self.plans: set[str] = set()
        self.state, self.stage = "", ""  # the state's checksum, and the stage that was told of last before it
        self.answered: dict[str, bool] = {}
        self.hashed: dict[str, str] = {}
        self.assets: dict[tuple[str, str], _Own] = {}
        self.evidence: dict[tuple[str, str, str], _Evidence] = {}
        try:
            for line in event_log.every(run.folder):
                if line.entry is not None:
                    told = line.entry.get("properties")
                    self._take(line.entry, told if isinstance(told, dict) else {})
        except FileNotFoundError:
            pass

    def _take(self, entry: Mapping[str, Any], told: Mapping[str, Any]) -> None:
        name, stage = entry["event"], told.get("stage")
        made = told.get("plan") if name == "run.created" else told if name in _PLANNED else None
        if isinstance(made, dict) and isinstance(made.get("sha256"), str):
            self.plans.add(made["sha256"])
        if self._head is not None and entry["seq"] == self._head.seq and isinstance(entry.get("state"), str):
            self.state = entry["state"]
        if not isinstance(stage, str):
            return
        if self._head is not None and entry["seq"] <= self._head.seq:
            self.stage = stage
        hashes = told.get("files_sha256")
        hashes = {key: one for key, one in hashes.items() if type(one) is str} if isinstance(hashes, dict) else {}
        if stages.PROMPT in hashes:
            known = self.prompts.get(stage, set()) if name == "stage.prompt_renewed" else set()
            self.prompts[stage] = {*known, hashes[stages.PROMPT]}
        if name == "stage.completed":
            self.ends[stage] = hashes
            if told.get("response_source") in _ANSWERED:
                self.answered[stage] = "response_sha256" in told
            if blobs.is_sha256(str(told.get("response_sha256"))):
                self.hashed[stage] = told["response_sha256"]
        elif name == "asset.captured" and blobs.is_sha256(str(told.get("sha256"))):
            stored = str(told.get("stored"))
            self.assets[stage, stored] = _Own(stage, stored, stored, (told["sha256"],), None, "", "")
        elif name == "evidence.checked" and told.get("passed") is True and isinstance(told.get("items"), list):
            self._take_evidence(stage, told["items"])

    def _take_evidence(self, stage: str, items: Sequence[Any]) -> None:
        for number, item in enumerate(items, 1):
            kind = item.get("kind") if isinstance(item, dict) else None
            if kind in ("file", "command") and blobs.is_sha256(str(item.get("sha256"))):
                one = _Evidence(str(kind), stage, str(item.get("name")), item["sha256"], number)
                self.evidence[one[:3]] = one

    def responses(self) -> Iterator[_Own]:
        """Give the answers; of a stage that is open again only one that an undo has put aside."""
        open_now = {entry["stage"] for entry in visits.every(self._run.state) if entry["status"] in visits.OPEN}
        for stage, sha256 in self.hashed.items():
            path = os.path.join("stages", stage, stages.RESPONSE)
            one = _Own(stage, stages.RESPONSE, path, (sha256,), None, CHANGED_FILE, "")
            if stage not in open_now or _is_aside(self._run, one):
                yield one

    def written(self) -> Iterator[_Own]:
        """Give prompts, what each stage that has ended left, the plan, and the state as at its checkpoint (D54)."""
        for entry in visits.every(self._run.state):
            stage = entry.get("stage")
            if not isinstance(stage, str):
                continue
            if stage in self.prompts:
                yield _Own(stage, stages.PROMPT, f"stages/{stage}/{stages.PROMPT}", self.prompts[stage])
            if entry["status"] not in visits.OPEN:
                for name, sha256 in self.ends.get(stage, {}).items():
                    keys = ("run_id",) if name.endswith(".json") else None
                    yield _Own(stage, name, f"stages/{stage}/{name}", (sha256,), keys)
        if self.plans:
            yield _Own("", _PLAN, _PLAN, self.plans, ())
        if self.state:
            yield _Own(self.stage, _STATE, _STATE, (self.state,), ())

    def bare(self) -> list[str]:
        """Name what the log has no hash of: it was written by an older Loom, came with a fork, or is FABER's too."""
        entries = [
            one for one in visits.every(self._run.state) if one.get("stage") and one["status"] in visits.OUTCOMES
        ]
        bare = [str(one["stage"]) for one in entries if not self.ends.get(str(one["stage"]))]
        return [*bare, *([] if self.plans else [_PLAN]), *([] if self.state else [_STATE])]


class _Held:
    """Holds files against what they may say. note: the machine's, of a run that a pull brought, which masks."""

    def __init__(self, run: Run, known: Mapping[str, str | None], roots: Roots, note: Mapping[str, Any]) -> None:
        self._run, self._known, self._roots, self._by_pull = run, known, roots, bool(note)
        left_out = note.get("left_out")
        items = left_out if isinstance(left_out, list) else []
        self._left_out = {str(one[0]) for one in items if isinstance(one, list) and one}

    def own(self, one: _Own) -> FileTold | None:
        """Say what is the matter with a file of Loom's own; None where it is the one that was written."""
        path = os.path.join(self._run.folder, one.path)
        try:
            if not artifact_paths.is_inside(os.path.normpath(path), self._run.folder):
                return FileTold(one.stage, one.file, "", "its path leads out of the run's folder")
            files.refuse_links(self._run.folder, path)
            is_written, is_masked = _read(one, path)
        except (FileNotFoundError, NotADirectoryError):
            if "/" in one.path and one.lost and _is_aside(self._run, one):  # by an undo, also one that was killed
                return None
            is_known = not one.lost or f"run/{one.path}" in self._left_out
            return FileTold(one.stage, one.file, "" if is_known else one.lost, _GONE if is_known else "it is gone")
        except LoomError as refused:
            return FileTold(one.stage, one.file, one.damaged, refused.what)
        except (OSError, ValueError) as error:  # such as a name that no file can have
            return FileTold(one.stage, one.file, one.damaged, f"it cannot be read: {error}")
        if is_written:
            return None
        if self._by_pull and is_masked:
            return FileTold(one.stage, one.file, "", "a secret in it was masked when the run was pushed")
        return FileTold(one.stage, one.file, CHANGED_FILE, "it differs from what Loom wrote")

    def evidence(self, one: _Evidence) -> FileTold | None:
        """Say what is the matter with evidence; None where it is as it was."""
        try:
            if one.kind == "command":
                is_same = one.sha256 in _outputs(stages.folder(self._run.folder, one.stage), one.number)
                why = "its output is missing or differs"
            else:
                seen = evidence_files.look(one.file, self._known, self._roots).digests
                is_same = bool(seen) and evidence_files.together(seen) == one.sha256
                why = _SINCE if seen else _GONE
        except LoomError as refused:
            is_same, why = False, refused.what
        except (OSError, ValueError) as error:
            is_same, why = False, str(error)
        return None if is_same else FileTold(one.stage, one.file, "", why)


def _is_aside(run: Run, one: _Own) -> bool:
    folder = os.path.dirname(os.path.join(run.folder, one.path))
    for name in stages.aside(run.folder, one.stage, one.file):
        try:
            if _read(one, os.path.join(folder, name))[0]:
                return True
        except (OSError, LoomError):
            continue
    return False


def _read(one: _Own, path: str) -> tuple[bool, bool]:
    """Tell whether a file says what it may, as it is or masked as it was pushed, and whether a mask stands in it."""
    if one.keys is None:
        sha256, is_masked = _sha256_of(path)
        return sha256 in one.sha256, is_masked
    data = files.read_bytes(path, limit=_LARGEST)
    try:
        value = files.parse_json(data, where=path)
    except LoomError:
        value = None
    values = (value, masked(value)) if isinstance(value, dict) else ()
    of_json = events.of_state if one.file == _STATE else lambda value: files.sha256_of_json(value, one.keys or ())
    return any(of_json(value) in one.sha256 for value in values), _MASK in data


def _sha256_of(path: str) -> tuple[str, bool]:
    seen, tail, is_masked = digests.begun(), b"", False
    with os.fdopen(files.open_regular(path), "rb", buffering=0) as source:
        while part := source.read(_BLOCK):
            seen.update(part)
            is_masked = is_masked or _MASK in tail + part
            tail = part[-_OVERLAP:]
    return str(seen.hexdigest()), is_masked


def _outputs(folder: str, number: int) -> set[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return set()
    tries = [name for name in names if name.partition(".")[0] == f"evidence-{number}"]
    return {digests.of_parts(command_runs.log_parts(os.path.join(folder, name))) for name in tries}


def _blob(space: Workspace, run: Run, ref: str) -> FileTold | None:
    error = run_blobs.trouble(space.store.folder, run.folder, ref)
    if error is None:
        return None
    return FileTold("", ref, DAMAGED_BLOB if error.code == DAMAGED_BLOB else "", error.why or error.what)
