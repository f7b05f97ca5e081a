"""A run as it came from a remote: looked at before anything of it is believed, and written beside (D10, D53)."""

from __future__ import annotations

import json
import os
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from loomctl.handoff import carried, carried_paths, git_answers, git_refs
from loomctl.kit import digests, files, ids
from loomctl.kit.errors import EXIT_SKEW, UPDATE, LoomError
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import masked
from loomctl.runs.model import frozen_plan
from loomctl.runs.model.state import accepted, counted_off
from loomctl.runs.store import blobs, event_log, events
from loomctl.runs.store.blobs import LARGEST as LARGEST_BLOB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.handoff.git_answers import Remote
    from loomctl.handoff.git_refs import Repository

SCHEMA = 1
MOST_FILES, LARGEST = 200_000, 8 << 30
LONGEST_MESSAGE = 1 << 20
_PIECE = 1 << 20
_MODES = ("100644", "100755")
# Of a tree: files and folders, and bytes of their list.
_MOST_ENTRIES, _LONGEST_LIST = 2 * MOST_FILES, 128 << 20
_SUMMARY = {**dict.fromkeys(("work_id", "goal", "status", "step", "updated_at"), str), "revision": int, "stages": int}

KEPT = "refs/loom/unreadable/"  # where a copy of what nobody can take is kept by who takes it away

bad = git_answers.bad


class Told(NamedTuple):
    """What a pushed commit says of itself. at: UTC; by, machine: who pushed, and where; outputs: whether they came.

    left_out: paths that were not carried, with the reasons; summary: `{work_id, goal, status, step, updated_at,
    revision, stages}`, of what was read those alone that are texts and numbers.
    """

    run_id: str
    at: str
    by: str
    machine: str
    outputs: bool
    left_out: tuple[tuple[str, str], ...]
    summary: dict[str, Any]


def message(told: Told) -> str:
    """Give the message of a commit: a line for people, then the same as JSON. Secrets in it are masked, names too."""
    said = {"schema_version": SCHEMA, **masked(told._asdict()), "run_id": told.run_id}
    summary = said["summary"]
    head = one_line(f"Loom: {told.run_id}, {summary.get('status')} at {summary.get('step') or 'no step'}", 200)
    return f"{head}\n\n{json.dumps(said, ensure_ascii=False)}\n"


def read_message(text: str, run_id: str, where: str) -> Told:
    """Read what a commit says of itself. Raises BAD_HANDOFF, NEWER_HANDOFF, and RUN_ID_MISMATCH."""
    _, _, body = text.partition("\n\n")
    try:
        raw = files.parse_json(body.encode("utf-8", "surrogateescape"), where=where)
    except LoomError as error:
        raise bad(where, f"its commit says nothing that can be read ({error.code})") from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    version = version if type(version) is int else None
    if version is not None and version > SCHEMA:
        raise LoomError(
            "NEWER_HANDOFF",
            f"the run was pushed by a newer Loom (handoff schema {version}; this one reads {SCHEMA})",
            where=where,
            why="nothing of it was read, and nothing here was changed",
            hint=UPDATE,
            exit_code=EXIT_SKEW,
        )
    texts = ("run_id", "at", "by", "machine")
    fits = isinstance(raw, dict) and version == SCHEMA and all(isinstance(raw.get(key), str) for key in texts)
    if not fits or type(raw.get("outputs")) is not bool or not isinstance(raw.get("summary"), dict):
        raise bad(where, "its commit was not made by loomctl push")
    if raw["run_id"] != run_id:
        raise LoomError(
            "RUN_ID_MISMATCH",
            f"the remote's run {run_id} says that it is {one_line(raw['run_id'], 80)}",
            where=where,
            why="nothing of it was read, and nothing here was changed",
            hint="loomctl runs --remote",
        )
    listed = raw.get("left_out")
    left = [one for one in listed if isinstance(one, list)] if isinstance(listed, list) else []
    named = tuple((one[0], one[1]) for one in left if [type(part) for part in one] == [str, str])
    summary = {key: held for key, held in raw["summary"].items() if type(held) is _SUMMARY.get(key)}
    return Told(run_id, raw["at"], raw["by"], raw["machine"], raw["outputs"], named, summary)


def tree(repository: Repository, commit: str, where: str) -> dict[str, tuple[str, int]]:
    """Give the files of a commit, object and size by path. Raises BAD_HANDOFF for whatever no push of Loom's makes."""
    found: dict[str, tuple[str, int]] = {}
    folders: set[str] = set()
    total = 0
    try:
        with repository.tree(commit, most=_MOST_ENTRIES, longest=_LONGEST_LIST) as entries:
            for mode, kind, oid, size, raw in entries:
                path = os.fsdecode(raw)
                why = _trouble(mode, kind, size, path)
                if why or path in found or path in folders:
                    raise bad(where, f"{one_line(path, 120)} {why or 'is there twice'}")
                if kind == "tree":
                    folders.add(path)
                    continue
                found[path] = (oid, size)
                total += size
                if len(found) > MOST_FILES or total > LARGEST:
                    raise bad(where, f"it holds over {MOST_FILES:,} files or {LARGEST:,} bytes")
    except ValueError as error:
        raise bad(where, str(error)) from None
    if carried.STATE not in found or f"{carried.RUN}plan.json" not in found:
        raise bad(where, "it holds no run's state and plan")
    return found


def _trouble(mode: str, kind: str, size: int, path: str) -> str:
    """Say what is wrong with an entry of a tree; empty where nothing is."""
    is_folder = kind == "tree"
    why = carried_paths.trouble(path, is_folder=is_folder)
    if why or is_folder:
        return why
    if kind != "blob" or mode not in _MODES:
        return "is a link or another thing that is no plain file"
    parts = path.split("/")
    if not (_is_of_the_run(parts) or _is_blob(parts)):
        return "has no place in a run"
    return f"is too large ({size:,} bytes)" if size < 0 or size > _limit(path) else ""


def _is_of_the_run(parts: list[str]) -> bool:
    """Tell a file that a run may bring: not what is this machine's own there, whoever sends it."""
    return parts[0] == "run" and len(parts) > 1 and not carried.is_this_machines("/".join(parts[1:]))


def _is_blob(parts: list[str]) -> bool:
    return (
        len(parts) == 4 and parts[:2] == ["blobs", "sha256"] and blobs.is_sha256(parts[3]) and parts[2] == parts[3][:2]
    )


def _limit(path: str) -> int:
    if path in (carried.STATE, f"{carried.RUN}plan.json"):
        return files.LARGEST_JSON
    return LARGEST_BLOB if path.startswith("blobs/") else carried.LARGEST_FILE


def write(repository: Repository, wanted: Mapping[str, str], folder: str) -> None:
    """Write files of a commit below a folder of one's own. wanted: object by path. Raises GIT_FAILED, OSError."""
    paths = list(wanted)
    with repository.contents([wanted[path] for path in paths]) as contents:
        for path, (_, size, stream) in zip(paths, contents, strict=True):
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
            mode = 0o600 if path.startswith(carried.OUTPUTS) else 0o644
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(target, flags, mode), "wb") as out:
                _copy(stream, out, size)


def _copy(stream: IO[bytes], out: IO[bytes], size: int) -> None:
    while size:
        piece = stream.read(min(_PIECE, size))
        if not piece:
            raise OSError("git ended in the middle of a file")
        out.write(piece)
        size -= len(piece)


def whole(folder: str, run_id: str, where: str) -> dict[str, Any]:
    """Hold that a run which was written beside can be worked with; gives its state.

    folder: the run's. Raises as reading a state and a plan does, RUN_ID_MISMATCH, and BAD_HANDOFF for a state that
    counts farther than a run can, for a plan that no run can be named after, and for a log of events that does not
    reach the place that the state remembers, or ends in a torn line.
    """
    try:
        state = accepted(
            files.read_json(os.path.join(folder, "state.json")), where=f"{where} state.json", run_id=run_id
        )
        plan = frozen_plan.accepted(files.read_json(os.path.join(folder, "plan.json")), where=f"{where} plan.json")
    except LoomError as error:
        if error.code in ("RUN_ID_MISMATCH", "SCHEMA_TOO_NEW"):
            raise
        raise bad(where, f"{error.code}: {error.what}") from None
    far = counted_off(state)
    if far:
        raise bad(where, f"its state counts {far} to what no run ever reaches")
    for plan_id in (state["plan_id"], plan["plan_id"]):
        if not ids.is_fit(plan_id) or len(plan_id) > ids.LONGEST_PLAN_ID:
            raise bad(where, f"no run can be named after its plan {one_line(plan_id, 80)!r}")
    why = _log_trouble(folder, run_id, events.head_of(state.get("ledger_head")))
    if why:
        raise bad(where, why)
    return state


def _log_trouble(folder: str, run_id: str, head: events.Head | None) -> str:
    """Say what is wrong with a log of events; empty where nothing is."""
    reached = head is None or head.seq == 0
    ends = True
    for line in event_log.all_of(os.path.join(folder, events.FILE)):
        if not line.ended:
            return "the last line of its log is torn"
        ends = line.entry is not None
        if line.entry is None:
            continue
        if line.entry.get("run_id") != run_id:
            return "its log holds an entry of another run"
        if head is not None and line.entry["seq"] == head.seq:
            reached = digests.of_bytes(line.data) == head.sha256
    if not ends:  # a push writes an entry of its own behind whatever stands there
        return "its log ends in lines that are no entries"
    return "" if reached else "its log does not hold the entry that the state remembers as the last"


def way_past(error: LoomError, remote: Remote, run_id: str, commit: str, *, is_here: bool) -> None:
    """Say in an error what becomes of a run that nobody can take. is_here: the run is here, and can be put there again.

    commit: what the remote has. Nothing is taken away without a copy, nor what came there since: what it holds may be
    all that there is of somebody's work. So the copy has a name of its own, and the rest waits for it.
    """
    ref = git_refs.RUNS + run_id
    keeps = f"git fetch {remote.read_at} {ref}:{KEPT}{run_id}/{commit}"
    away = f"git push --force-with-lease={ref}:{commit} {remote.written_at} --delete {ref}"
    then = f"`{keeps} && {away}` keeps a copy of it and takes it away there, and `loomctl push {run_id}{remote.option}`"
    if is_here:
        error.why += f"; the run that is here can take its place: {then} puts this one there"
        error.hint = keeps
    else:
        error.why += f"; who has the run can put it there again: {then} does it"
        error.hint = remote.listing


def where_of(remote: Remote, run_id: str) -> str:
    """Name a run at a remote."""
    return f"{remote.shown} {git_refs.RUNS}{ids.checked_id(run_id)}"
