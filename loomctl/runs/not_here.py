"""What a run refers to and was not carried to this place: said as that, with where it lives, how to get it (D47)."""

from __future__ import annotations

import os

from loomctl.kit import files, machine
from loomctl.kit.errors import EXIT_NO_RUN, LoomError, quoted
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import project
from loomctl.runs.machine import run_notes
from loomctl.runs.model import sessions

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
    note = run_notes.handoff(local, run_id)
    where = _place(run_dir, session_id, note)
    return _error(ref, run_id, where, why or _reason(note, ref), note) if where else error


def of_blob(error: LoomError, store: str, ref: str) -> LoomError:
    """Give the same for a blob that some run of a store refers to, of which a pull said that it was left out."""
    if error.code not in _GONE:
        return error
    for note in run_notes.every_handoff(os.path.join(store, "local")):
        why = _reason(note, ref)
        if why:
            return _error(ref, "RUN", _noted(note) or "on another machine", why, note)
    return error


def _place(run_dir: str, session_id: object, note: Mapping[str, Any]) -> str:
    """Say where something was made; empty where that was here, or nobody knows of another place."""
    host, root = _session_of(run_dir, session_id) if isinstance(session_id, str) else ("", "")
    if host and host != machine.hostname():
        return _on(host)
    if host:
        return _another(root) if root and not _is_of(run_dir, root, came=bool(note)) else ""
    return _noted(note)


def _noted(note: Mapping[str, Any]) -> str:
    host = note.get("machine")
    if not isinstance(host, str):
        return ""
    return _on(host) if host != machine.hostname() else _another("")


def _on(host: str) -> str:
    return f"on {masked_line(host, 60)}"


def _another(root: str) -> str:
    return "in another copy of the project on this machine" + (f" ({masked_line(root, 200)})" if root else "")


def _is_of(run_dir: str, root: str, *, came: bool) -> bool:
    """Tell whether a project's root on a machine of this name leads to the store that a run stands in.

    came: a pull brought the run. A root that is gone is another copy's then; else the project was moved.
    """
    store = os.path.dirname(os.path.dirname(run_dir))
    found = project.find((root,))
    if found is None:
        return not came
    return os.path.realpath(found.store) == os.path.realpath(store)


def _session_of(run_dir: str, session_id: str) -> tuple[str, str]:
    try:
        state = files.read_json(os.path.join(run_dir, "state.json"))
        records = sessions.history(state) if isinstance(state, dict) else []
    except (OSError, LoomError, TypeError, AttributeError, KeyError):
        return "", ""
    for record in records:
        environment = record.get("environment")
        if record.get("session_id") == session_id and isinstance(environment, dict):
            return str(environment.get("hostname") or ""), sessions.root_of(record) or ""
    return "", ""


def _reason(note: Mapping[str, Any], ref: str) -> str:
    listed = note.get("left_out")
    last = ref.rpartition("/")[2]
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, list) and len(one) == 2 and str(one[0]).rpartition("/")[2] == last:
            return str(one[1])
    return ""


def _error(ref: str, run_id: str, where: str, why: str, note: Mapping[str, Any]) -> LoomError:
    told = f"it lives {where}"
    how = f"{told} and was left out: {masked_line(why, 120)}" if why else f"{told}; there: {_push(run_id)}; then here"
    remote = str(note.get("remote") or "origin")
    option = "" if remote == "origin" else f" --remote {quoted(masked_line(remote, 120))}"
    return LoomError(
        "REF_NOT_HERE",
        f"{masked_line(ref, 200)} was not carried here",
        where=where,
        why=how,
        hint="loomctl runs --remote" if run_id == "RUN" else f"loomctl pull {run_id}{option}",
        exit_code=EXIT_NO_RUN,
    )


def _push(run_id: str) -> str:
    return f"loomctl push {run_id} --with-outputs"
