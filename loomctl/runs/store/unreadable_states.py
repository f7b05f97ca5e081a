"""What is said of a run's state that cannot be read, and the way back (D53)."""

from __future__ import annotations

import os

from loomctl.kit import files, trouble
from loomctl.kit.errors import LoomError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loomctl.runs.store.layouts import Home


def of(home: Home, error: OSError | LoomError) -> LoomError:
    """Give the error that says what is wrong with a run's state, with what keeps the broken file and mends it."""
    return _with_way_back(home, error) if isinstance(error, LoomError) else _unreadable(home, error)


def _unreadable(home: Home, error: OSError) -> LoomError:
    if isinstance(error, FileNotFoundError):
        what = f"the state of the run {home.run_id} is gone; the one before is there"
        branch = f"git log --all --oneline -- {quoted(os.path.relpath(home.state, home.top))}"
        why = f"FABER keeps it with the project, so another branch may have it: {branch}" if home.faber else ""
        hint = f"loomctl state restore {home.run_id}"
        return LoomError("NO_STATE", what, where=home.state, why=why, hint=hint)
    hint = trouble.way_out(error) or f"ls -l {quoted(home.state)}"
    return LoomError("UNREADABLE", "the state cannot be read", where=home.state, why=str(error), hint=hint)


def _with_way_back(home: Home, error: LoomError) -> LoomError:
    """Offer what keeps the broken file and puts the one before in its place, if there is one (D53)."""
    if error.code == "GIT_CONFLICT":  # its plan and its events are of the same side
        return files.in_conflict(error.where, home.folder)
    if error.code in ("BAD_JSON", "BAD_STATE", "TOO_LARGE"):
        backup = os.path.lexists(home.backup)
        error.hint = f"loomctl state restore {home.run_id}" if backup else f"loomctl check {quoted(home.state)}"
    elif error.code == "RUN_ID_MISMATCH" and _says(home.backup, home.run_id):  # else the whole folder is a copy
        error.hint = f"loomctl state restore {home.run_id}"
    return error


def _says(path: str, run_id: str) -> bool:
    """Tell whether a state's file says that it is of this run."""
    try:
        raw = files.read_json(path)
    except (OSError, LoomError):
        return False
    return isinstance(raw, dict) and raw.get("run_id") == run_id
