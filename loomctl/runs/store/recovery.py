"""The files of a run after something happened to them: what is kept beside them, and what can be read of it (D53, D56).

Who writes holds the run's lock.
"""

from __future__ import annotations

import itertools
import os

from loomctl.kit import files, ids, trouble
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import state, visits
from loomctl.runs.model.state import Migrated
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.store.layouts import Home

PLAN, SESSIONS_FILE = "plan.json", "sessions.jsonl"
BROKEN, REPLACED = "broken", "replaced"
"""What the name of a file that was set aside says of it: it could not be used, or it could and another was wanted."""


def kept_states(home: Home) -> list[str]:
    """Name what a state could be restored from: the backup first, then what was set aside, the newest first."""
    backup = os.path.basename(home.backup)
    stem = backup.removesuffix("backup.json")  # `state.`, or `faber-state.`
    found: list[tuple[float, str]] = []
    try:
        with os.scandir(home.folder) as entries:
            for entry in entries:
                name = entry.name
                kept = name.startswith(stem) and name.endswith(".json") and name not in (backup, f"{stem}json")
                plain = name.isascii() and name.replace(".", "").replace("-", "").isalnum()
                if kept and plain and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, name))
    except OSError:
        pass
    others = [name for _, name in sorted(found, reverse=True)]
    return [backup, *others] if os.path.lexists(home.backup) else others


def kept_home(home: Home, name: str) -> Home:
    """Give a run's home with another of its states in the place of its own, to read that one. Raises UNSAFE_LINK."""
    path = os.path.join(home.folder, name)
    files.refuse_links(home.folder, path)
    return home._replace(state=path)


def set_aside(path: str, beside: str, word: str) -> str | None:
    """Give a file a second name, `state.broken-1.json`, and leave it in its place until it is replaced.

    beside: what the second name is made of, `…/state.json`. Never over a file that is there. Gives the name, or None
    where there was nothing to keep. What is no plain file, and any file of which no second name can be made, is moved.
    """
    if not os.path.lexists(path):
        return None
    files.make_folder(os.path.dirname(beside), mode=0o755)
    for number in itertools.count(1):
        target = f"{beside.removesuffix('.json')}.{word}-{number}.json"
        if not os.path.lexists(target):
            break
        if os.path.samestat(os.lstat(path), os.lstat(target)):  # a kill came between this and the replacement
            return os.path.basename(target)
    plain = os.path.isfile(path) and not os.path.islink(path)
    try:
        (os.link if plain else os.rename)(path, target)
    except OSError:
        if not plain:
            raise
        os.rename(path, target)  # a file system without hard links
    files.sync_folder(os.path.dirname(beside))
    return os.path.basename(target)


def keep_original(path: str, read: dict[str, Any]) -> Event:
    """Keep a file of an older schema as `state.v1.backup.json`, `-2` where that is taken; gives the event that says so.

    read: what became of it in memory, as `state.migrated` gave it.
    """
    assert isinstance(read, Migrated)  # nobody asks for any other
    folder, name = os.path.split(path)
    what = name.removesuffix(".json")
    for number in itertools.count(1):
        kept = f"{what}.v{read.before}.backup{'' if number == 1 else f'-{number}'}.json"
        target = os.path.join(folder, kept)
        if not os.path.lexists(target):
            try:
                os.link(path, target)
            except OSError:  # a file system without hard links
                files.write_atomically(target, files.read_bytes(path), mode=0o644)
            files.sync_folder(folder)
            break
        if _same(path, target):
            break
    told = {"from": read.before, "to": read["schema_version"], "steps": list(read.steps), "kept": kept}
    told["sha256"] = files.sha256_of_json(read)
    return Event("plan.migrated" if what.startswith("plan") else "state.migrated", told)  # of a kept state, too


def _same(path: str, other: str) -> bool:
    try:
        return files.read_bytes(path) == files.read_bytes(other)
    except (OSError, LoomError):
        return False


def earlier_sessions(run_dir: str) -> list[dict[str, Any]]:
    """Give the session records that a run's state holds no more, oldest first; torn lines are left out.

    Raises UNSAFE_LINK, OSError.
    """
    path = os.path.join(run_dir, SESSIONS_FILE)
    files.refuse_links(os.path.dirname(os.path.dirname(run_dir)), path)
    try:
        lines = files.read_bytes(path).splitlines()
    except FileNotFoundError:
        return []
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        try:
            record = files.parse_json(line, where=path)
        except LoomError:
            continue
        if isinstance(record, dict) and isinstance(record.get("session_id"), str):
            found.pop(record["session_id"], None)  # it came back meanwhile: its last record counts
            found[record["session_id"]] = record
    return list(found.values())


def earlier_session(run_dir: str, session_id: str) -> dict[str, Any] | None:
    """Give the record of a session that a run's state holds no more; None, too, where nobody can read it."""
    try:
        if session_id.encode() not in files.read_bytes(os.path.join(run_dir, SESSIONS_FILE)):
            return None
        found = earlier_sessions(run_dir)
    except (OSError, LoomError):
        return None
    return next((record for record in found if record["session_id"] == session_id), None)


def keep_sessions(folder: str, records: Sequence[dict[str, Any]], *, durable: bool) -> None:
    """Append the records of a run that go out of its state, under its lock. folder: `{run_dir}`. Raises OSError."""
    lines = b"".join(files.to_json_line(record) for record in records)
    files.append(os.path.join(folder, SESSIONS_FILE), lines, durable=durable)


def handle(home: Home, letters: int = ids.MARK) -> str:
    """Name a run whose state cannot be used, by what can be read of it or of the one before; else by its id."""
    for top, path in ((home.top, home.state), (home.folder, home.backup)):
        try:
            held = None if files.leads_away(top, path) else files.read_json(path)
        except (OSError, LoomError):
            continue
        if isinstance(held, dict) and any(isinstance(held.get(key), str) for key in ("work_id", "goal")):
            return state.handle({**held, "run_id": home.run_id}, letters)
    return home.run_id


def unreadable(home: Home, error: OSError | LoomError) -> LoomError:
    """Say what is wrong with a run's state that cannot be read, and the way back."""
    restore = f"loomctl debug state restore {handle(home)}"
    if isinstance(error, FileNotFoundError):
        what = f"the state of the run {handle(home)} is missing, but its backup is there"
        branch = f"git log --all --oneline -- {quoted(os.path.relpath(home.state, home.top))}"
        why = f"FABER keeps it with the project, so another branch may have it: {branch}" if home.faber else ""
        return LoomError("NO_STATE", what, where=home.state, why=why, hint=restore)
    if isinstance(error, OSError):
        hint = trouble.way_out(error) or f"ls -l {quoted(home.state)}"
        return LoomError("UNREADABLE", "the state cannot be read", where=home.state, why=str(error), hint=hint)
    if error.code == "GIT_CONFLICT":  # its plan and its events are of the same side
        return files.in_conflict(error.where, home.folder)
    if error.code in ("BAD_JSON", "BAD_STATE", "TOO_LARGE"):
        error.hint = restore if os.path.lexists(home.backup) else f"loomctl check {quoted(home.state)}"
    elif error.code == "RUN_ID_MISMATCH" and _says(home.backup, home.run_id):  # else the whole folder is a copy
        error.hint = restore
    return error


def _says(path: str, run_id: str) -> bool:
    try:
        raw = files.read_json(path)
    except (OSError, LoomError):
        return False
    return isinstance(raw, dict) and raw.get("run_id") == run_id


# What changes with each write, or is told by itself.
_APART = (
    *("revision", "updated_at", "ledger_head", "lease", "steps", "sessions", "context_metadata", "schema_version"),
)


class Losses(NamedTuple):
    """How two states differ.

    steps: `{step_id, visit, was, now}`, None for a visit that is not there; sessions: `{session_id, was, now}`, each
    `open` or how it ended; keys: the other top-level keys whose values differ.
    """

    steps: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    keys: list[str]

    @property
    def any(self) -> bool:
        """Tell whether the two say anything different."""
        return bool(self.steps or self.sessions or self.keys)


def losses(before: Mapping[str, Any], after: Mapping[str, Any]) -> Losses:
    """Compare two accepted states of one run: the one that goes and the one that takes its place."""
    return Losses(
        [
            {"step_id": key[0], "visit": key[1], "was": was, "now": now}
            for key, was, now in _changes(_visit_standings(before), _visit_standings(after))
        ],
        [
            {"session_id": key, "was": was, "now": now}
            for key, was, now in _changes(_session_standings(before), _session_standings(after))
        ],
        sorted(key for key in {*before, *after} if key not in _APART and before.get(key) != after.get(key)),
    )


def _visit_standings(state: Mapping[str, Any]) -> dict[Any, str]:
    return {(entry["step_id"], entry["visit"]): entry["status"] for entry in visits.every(state)}


def _session_standings(state: Mapping[str, Any]) -> dict[Any, str]:
    records = state["sessions"].get("session_history", [])
    return {
        record["session_id"]: str(record.get("end_reason") or "ended") if record.get("ended_at") else "open"
        for record in records
    }


def _changes(before: Mapping[Any, str], after: Mapping[Any, str]) -> list[tuple[Any, str | None, str | None]]:
    keys = [*before, *(key for key in after if key not in before)]
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]
