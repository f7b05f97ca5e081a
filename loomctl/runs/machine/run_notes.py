"""What this machine alone knows of runs: which were taken up here, where the others came from, what was agreed on.

That a run was started or resumed here, and which of its commands are trusted, is kept in the user's folder, where no
repository reaches (D23). The rest stands in `.loom/local` and is never carried:

`handoff/{run_id}.json`: `{machine, by, at, remote, commit, outputs, left_out: [[path, why]], driver?, pulled?, head?}`:
from where a run's files came and which did not. driver: `{epoch, session_id}` of who drove it as it came. pulled: what
the next resume is to write into the run's log, where that has the entry head, the last of what came: a pull notes this
before it gives the run its place, and a kill between both leaves the run as it was.

`agreed/{run_id}.json`: `{remote: {commit, line}}`. commit: what both sides have, or what was settled here by a word;
line: the SHA-256 of the last line that the run's log had here then. A log that has that line no more is one from
before: it was put back from a backup, or a branch was changed, and then what was agreed on says nothing of it.
"""

from __future__ import annotations

import os

from loomctl.kit import clock, digests, files, git, ids, machine
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loomctl.runs.model.lease import Holder

HANDOFF, AGREED = "handoff", "agreed"
_MOST_REMOTES = 50


# ---- What was taken up here.


def _known_path(run_id: str, store: str) -> str:
    base = machine.state_home()
    name = digests.of_text(f"{run_id}\0{os.path.realpath(store)}")[:40]
    return os.path.join(base, "runs", f"{name}.json") if base else ""


def is_known(run_id: str, store: str) -> bool:
    """Tell whether this machine started or resumed the run in this very place; a moved or copied store is new."""
    path = _known_path(run_id, store)
    return bool(path) and os.path.isfile(path)


def known(run_id: str, store: str) -> dict[str, Any]:
    """Give what is kept of a run: `{run_id, store, since, trusted?: hash of its commands}`; empty if unknown."""
    path = _known_path(run_id, store)
    return _read(path, limit=1 << 20) if path else {}


def note_known(run_id: str, store: str, **more: Any) -> str:
    """Remember a run as this machine's own; gives what went wrong, or an empty string. Never raises.

    more: `trusted`, the hash of the commands that may run.
    """
    path = _known_path(run_id, store)
    if not path:
        return "Loom has no folder to remember the run in: set LOOM_STATE_HOME"
    value = {"since": clock.now(), **known(run_id, store), "run_id": run_id, "store": os.path.realpath(store), **more}
    try:
        _write(path, value)
    except OSError as error:
        return f"Loom could not remember the run on this machine ({error}), so sessions get no files before a resume"
    return ""


def note_taken_up(run_id: str, store: str, *, shut_in: bool) -> str:
    """As `note_known`, for a run that a command takes up. shut_in: if it cannot be written, its hook does that."""
    said = note_known(run_id, store)
    return "" if shut_in else said


def unkept() -> str:
    """Say that this machine can remember no run, and where; empty where it can."""
    home = machine.state_home()
    if not home:
        return "Loom has no folder to remember runs in"
    place = machine.nearest(home)
    can = os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)
    return "" if can else f"Loom cannot remember runs in {home}"


def forget_known(run_id: str, store: str) -> None:
    """Forget that a run was taken up here."""
    path = _known_path(run_id, store)
    if path:
        files.remove(path)


# ---- Where a run came from.


def handoff(local: str, run_id: str) -> dict[str, Any]:
    """Give what is remembered of the pull that brought a run; empty where none did. Raises nothing."""
    return _read_local(local, HANDOFF, run_id)


def note_handoff(local: str, run_id: str, value: dict[str, Any]) -> None:
    """Remember where a run came from. Raises OSError and UNSAFE_LINK."""
    _write(_path(local, HANDOFF, run_id), value)


def came_driven(local: str, run_id: str, holder: Holder) -> bool:
    """Tell whether a pull brought a run while this driver drove it, wherever that was."""
    return handoff(local, run_id).get("driver") == {"epoch": holder.epoch, "session_id": holder.session_id}


def every_handoff(local: str) -> list[dict[str, Any]]:
    """Give what is remembered of all runs."""
    folder = os.path.join(local, HANDOFF)
    if files.leads_away(os.path.dirname(local), folder):
        return []
    try:
        found = [name.removesuffix(".json") for name in sorted(os.listdir(folder)) if name.endswith(".json")]
    except OSError:
        return []
    return [handoff(local, run_id) for run_id in found if ids.is_fit(run_id)]


# ---- What was agreed on with remotes.


class Agreed(NamedTuple):
    """commit: the remote's; line: the SHA-256 of the log's last line here then, empty where no log was."""

    commit: str
    line: str


def agreed(local: str, run_id: str) -> dict[str, Agreed]:
    """Give what was agreed on about a run, by remote, the newest last. Raises nothing."""
    found = {}
    for key, held in _read_local(local, AGREED, run_id).items():
        commit, line = (held.get("commit"), held.get("line")) if isinstance(held, dict) else (None, None)
        if isinstance(commit, str) and git.is_oid(commit) and isinstance(line, str):
            found[key] = Agreed(commit, line)
    return found


def note_agreed(local: str, run_id: str, remote: str, what: Agreed) -> None:
    """Note what was agreed on with a remote. Raises OSError and UNSAFE_LINK."""
    path = _path(local, AGREED, run_id)
    others = [(key, held) for key, held in agreed(local, run_id).items() if key != remote]
    _write(path, {key: held._asdict() for key, held in (*others[1 - _MOST_REMOTES :], (remote, what))})


def last_line(log: bytes) -> str:
    """Give the SHA-256 of a log's last line; empty where it has none."""
    last = log.rstrip(b"\n").rpartition(b"\n")[2]
    return digests.of_bytes(last) if last else ""


def lines_of(log: bytes) -> frozenset[str]:
    """Give the SHA-256 of each line of a log."""
    return frozenset(digests.of_bytes(line) for line in log.split(b"\n"))


# ---- The files.


def forget(local: str, run_id: str) -> None:
    """Forget all of a run that is gone but that it was taken up here."""
    for folder in (HANDOFF, AGREED):
        try:
            files.remove(_path(local, folder, run_id))
        except LoomError:  # a link in its place is not Loom's to remove
            pass


def _path(local: str, folder: str, run_id: str) -> str:
    path = os.path.join(local, folder, f"{ids.checked_id(run_id)}.json")
    files.refuse_links(os.path.dirname(local), path)
    return path


def _read_local(local: str, folder: str, run_id: str) -> dict[str, Any]:
    try:
        return _read(_path(local, folder, run_id))
    except LoomError:
        return {}


def _read(path: str, *, limit: int = files.LARGEST_JSON) -> dict[str, Any]:
    try:
        value = files.read_json(path, limit=limit)
    except (OSError, LoomError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(path: str, value: dict[str, Any]) -> None:
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, files.to_json(value), durable=False)
