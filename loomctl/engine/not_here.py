"""What a run refers to and was not carried to this machine: said as that, with where it lives, how to get it (D47)."""

from __future__ import annotations

import os

from loomctl.disk import files, handoff_notes, machine
from loomctl.model import sessions
from loomctl.model.errors import EXIT_NO_RUN, LoomError, quoted
from loomctl.model.secrets import masked_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_GONE = ("REF_GONE", "NO_SUCH_BLOB", "RESPONSE_GONE")


def instead(error: LoomError, run_dir: str, ref: str, session_id: object = None, why: str = "") -> LoomError:
    """Give the error of what was never brought here, for one of a file that is gone; every other error as it is.

    run_dir: the run's folder in its store; ref: as the run names it; session_id: of whose work it is, if that is known;
    why: that it was left out on purpose.
    """
    if error.code not in _GONE:
        return error
    run_id = os.path.basename(run_dir)
    local = os.path.join(os.path.dirname(os.path.dirname(run_dir)), "local")
    note = handoff_notes.read(local, run_id)
    where = _machine(run_dir, session_id, note)
    return _error(ref, run_id, where, why or _reason(note, ref), note) if where else error


def of_blob(error: LoomError, store: str, ref: str) -> LoomError:
    """Give the same for a blob that some run of a store refers to, of which a pull said that it was left out."""
    if error.code not in _GONE:
        return error
    for note in handoff_notes.every(os.path.join(store, "local")):
        why = _reason(note, ref)
        if why:
            return _error(ref, "RUN", str(note.get("machine")), why, note)
    return error


def _machine(run_dir: str, session_id: object, note: Mapping[str, Any]) -> str:
    """Name the machine on which something was made; empty where it was this one, or nobody knows of another."""
    host = _host_of(run_dir, session_id) if isinstance(session_id, str) else ""
    if host:
        return "" if host == machine.hostname() else host
    return str(note["machine"]) if isinstance(note.get("machine"), str) else ""


def _host_of(run_dir: str, session_id: str) -> str:
    """Give the machine of a session of a run; empty where the state does not say it."""
    try:
        state = files.read_json(os.path.join(run_dir, "state.json"))
        records = sessions.history(state) if isinstance(state, dict) else []
    except (OSError, LoomError, TypeError, AttributeError, KeyError):
        return ""
    for record in records:
        environment = record.get("environment")
        if record.get("session_id") == session_id and isinstance(environment, dict):
            return str(environment.get("hostname") or "")
    return ""


def _reason(note: Mapping[str, Any], ref: str) -> str:
    """Give why a pull did not bring something, in the words of who pushed it."""
    listed = note.get("left_out")
    last = ref.rpartition("/")[2]
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, list) and len(one) == 2 and str(one[0]).rpartition("/")[2] == last:
            return str(one[1])
    return ""


def _error(ref: str, run_id: str, where: str, why: str, note: Mapping[str, Any]) -> LoomError:
    on = masked_line(where, 60)
    told = f"it lives on {on}"
    how = f"{told} and was left out: {masked_line(why, 120)}" if why else f"{told}; there: {_push(run_id)}; then here"
    remote = str(note.get("remote") or "origin")
    option = "" if remote == "origin" else f" --remote {quoted(masked_line(remote, 120))}"
    return LoomError(
        "REF_NOT_HERE",
        f"{masked_line(ref, 200)} was not carried to this machine",
        where=f"on {on}",
        why=how,
        hint="loomctl runs --remote" if run_id == "RUN" else f"loomctl pull {run_id}{option}",
        exit_code=EXIT_NO_RUN,
    )


def _push(run_id: str) -> str:
    return f"loomctl push {run_id} --with-outputs"
