"""The runs of a project on disk: the one module that reads and writes their state (D53)."""

from __future__ import annotations

import os

from loomctl.disk import clock, events, files
from loomctl.disk.lock import PATIENCE, Lock
from loomctl.model import frozen_plan, ids
from loomctl.model.errors import EXIT_HELD, EXIT_NO_RUN, LoomError
from loomctl.model.records import NamedTuple
from loomctl.model.state import accepted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from loomctl.disk.events import Event
    from loomctl.model.state import State

    # What an update does: from the state as it is to the state as it shall be, and what happened.
    Change: TypeAlias = Callable[[State], tuple[State, Sequence[Event]]]

_IGNORE = """# written by Loom: only this file, config.yaml and workflows/ are the project's; the rest is this machine's
*
!.gitignore
!config.yaml
!workflows/
!workflows/**
"""
_COMMIT_RUNS = """!runs/
!runs/**
runs/*/outputs/
"""


class Run(NamedTuple):
    """A run as it was read: its folder, its state, its plan."""

    run_id: str
    folder: str
    state: State
    plan: dict[str, Any]


class Store:
    """The `.loom` folder of a project."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.runs_folder = os.path.join(folder, "runs")
        self.local = os.path.join(folder, "local")

    def prepare(self, *, commit_runs: bool = False) -> None:
        """Make the folder, with a `.gitignore` that keeps it out of the project's history. Raises UNSAFE_LINK."""
        files.refuse_links(os.path.dirname(self.folder), os.path.join(self.folder, "local"))
        files.make_folder(self.runs_folder, mode=0o755)
        files.make_folder(self.local)
        path = os.path.join(self.folder, ".gitignore")
        wanted = (_IGNORE + (_COMMIT_RUNS if commit_runs else "")).encode()
        try:
            present = files.read_bytes(path, limit=1 << 20)
        except FileNotFoundError:
            present = b""
        except (OSError, LoomError):  # the user's own, whatever it is
            return
        ours = not present or present.startswith(b"# written by Loom")
        if ours and present != wanted:
            files.write_atomically(path, wanted, mode=0o644)

    def run_dir(self, run_id: str) -> str:
        """Give `{run_dir}`. Raises BAD_ID, and UNSAFE_LINK where a link stands for it."""
        folder = os.path.join(self.runs_folder, ids.checked_id(run_id))
        files.refuse_links(self.folder, folder)
        return folder

    def run_ids(self) -> list[str]:
        """List the runs there are, oldest name first."""
        try:
            found = os.listdir(self.runs_folder)
        except OSError:
            return []
        return sorted(name for name in found if os.path.isfile(os.path.join(self.runs_folder, name, "state.json")))

    def match(self, prefix: str) -> str:
        """Give the one run whose id is, or begins with, `prefix` (D4). Raises NO_SUCH_RUN or AMBIGUOUS_RUN."""
        ids.checked_id(prefix)
        known = self.run_ids()
        if prefix in known:
            return prefix
        found = [run_id for run_id in known if run_id.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        if found:
            raise ambiguous(found)
        raise LoomError(
            "NO_SUCH_RUN",
            f"there is no run {prefix!r} here",
            where=self.runs_folder,
            hint="loomctl runs",
            exit_code=EXIT_NO_RUN,
        )

    def read_state(self, run_id: str) -> State:
        """Read a run's state. Raises LoomError: NO_SUCH_RUN, BAD_JSON, BAD_STATE, RUN_ID_MISMATCH, SCHEMA_TOO_NEW."""
        path = os.path.join(self.run_dir(run_id), "state.json")
        try:
            return accepted(files.read_json(path), where=path, run_id=run_id)
        except FileNotFoundError:
            raise LoomError(
                "NO_SUCH_RUN",
                f"there is no run {run_id!r} here",
                where=path,
                hint="loomctl runs",
                exit_code=EXIT_NO_RUN,
            ) from None
        except LoomError as error:
            if error.code in ("BAD_JSON", "BAD_STATE"):
                error.hint = self._way_back(run_id) or "loomctl check " + path
            raise
        except OSError as error:
            raise LoomError("UNREADABLE", "the state cannot be read", where=path, why=str(error)) from None

    def _way_back(self, run_id: str) -> str:
        """Offer the backup as a line to paste that keeps the broken file (D53); empty where the backup is no better."""
        folder = self.run_dir(run_id)
        backup = os.path.join(folder, "state.backup.json")
        try:
            accepted(files.read_json(backup), where=backup, run_id=run_id)
        except (OSError, LoomError):
            return ""
        quoted = "'" + folder.replace("'", "'\\''") + "'"
        return f"cd {quoted} && mv state.json state.broken.json && cp state.backup.json state.json"

    def read(self, run_id: str) -> Run:
        """Read a run: state and plan. Raises as `read_state`, and BAD_PLAN."""
        state = self.read_state(run_id)
        folder = self.run_dir(run_id)
        path = os.path.join(folder, "plan.json")
        try:
            plan = files.read_json(path)
        except OSError as error:
            raise LoomError(
                "BAD_PLAN",
                "the run's plan cannot be read",
                where=path,
                why=str(error),
                hint="a run without its plan can be shown, not continued: loomctl show " + run_id,
            ) from None
        return Run(run_id, folder, state, frozen_plan.accepted(plan, where=path))

    def create(self, state: State, plan: dict[str, Any], happened: Sequence[Event]) -> Run:
        """Write a new run: plan first, state last, so that a kill leaves either a run or no run. Raises RUN_EXISTS."""
        run_id = state["run_id"]
        folder = self.run_dir(run_id)
        files.make_folder(self.runs_folder, mode=0o755)
        try:
            os.mkdir(folder, 0o755)
        except FileExistsError:
            raise LoomError(
                "RUN_EXISTS",
                f"the run {run_id!r} was begun by somebody else at the same moment",
                where=folder,
                hint="try again",
                exit_code=EXIT_HELD,
            ) from None
        with self._lock(run_id, PATIENCE):
            files.write_atomically(os.path.join(folder, "plan.json"), files.to_json(plan), mode=0o644)
            state = self._save(run_id, state, happened, durable=True)
        files.sync_folder(self.runs_folder)
        return Run(run_id, folder, state, plan)

    def update(self, run_id: str, change: Change, *, durable: bool = True, patience: float = PATIENCE) -> State:
        """Change a run's state under its lock: read, decide, append what happened, replace (D53).

        A `change` that gives the state back as it was and no events writes nothing. What it raises passes through, and
        nothing is written. durable=False: no fsync, for what a hook may lose with the power.
        """
        with self._lock(run_id, patience):
            before = self.read_state(run_id)
            after, happened = change(before)
            if after == before and not happened:
                return before
            return self._save(run_id, after, happened, durable=durable)

    def _save(self, run_id: str, state: State, happened: Sequence[Event], *, durable: bool) -> State:
        folder = self.run_dir(run_id)
        known = events.head_of(state.get("ledger_head"))
        head = events.append(folder, run_id, happened, durable=durable, known=known)
        state = {
            **state,
            "revision": state.get("revision", 0) + 1,
            "updated_at": clock.now(),
            "ledger_head": {"seq": head.seq, "sha256": head.sha256},
        }
        path = os.path.join(folder, "state.json")
        self._keep_backup(path)
        files.write_atomically(path, files.to_json(state), mode=0o644, durable=durable, locked=True)
        return state

    @staticmethod
    def _keep_backup(path: str) -> None:
        """Let `state.backup.json` be the state before: a second name for the old file, which the rename then frees."""
        backup = path[: -len("state.json")] + "state.backup.json"
        beside = f"{backup}.tmp"
        try:
            files.remove(beside)
            os.link(path, beside)
            os.replace(beside, backup)
            files.remove(beside)  # after a kill both may be one file already, and such a rename does nothing
        except FileNotFoundError:
            return
        except OSError:  # a file system without hard links
            files.remove(beside)
            files.write_atomically(backup, files.read_bytes(path), mode=0o644, durable=False, locked=True)

    def _lock(self, run_id: str, patience: float) -> Lock:
        return Lock(os.path.join(self.local, "locks", f"{ids.checked_id(run_id)}.lock"), patience=patience)


def ambiguous(found: Sequence[str]) -> LoomError:
    """Make the error that lists several runs instead of guessing (D1)."""
    listed = "\n".join(f"    {run_id}" for run_id in found[:20])
    more = f"\n    and {len(found) - 20} more" if len(found) > 20 else ""
    return LoomError(
        "AMBIGUOUS_RUN",
        f"{len(found)} runs could be meant",
        why=f"they are\n{listed}{more}",
        hint="name one, or its beginning: loomctl show RUN",
        exit_code=EXIT_NO_RUN,
    )
