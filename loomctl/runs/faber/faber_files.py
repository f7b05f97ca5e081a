"""FABER's state and plan files on disk: read whole, written back in their own form (D5)."""

from __future__ import annotations

import json
import os

from loomctl.kit import digests, files
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.lock import Lock
from loomctl.kit.records import NamedTuple
from loomctl.runs.faber import faber_words
from loomctl.runs.store import layouts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from loomctl.runs.store.layouts import Home


class PlanFile(NamedTuple):
    """A plan of FABER's. name: below the project's root; path: absolute; data: its bytes."""

    name: str
    path: str
    data: bytes

    @property
    def stamp(self) -> dict[str, str]:
        """Say which file and content a frozen plan was made from."""
        return {"path": "{project_root}/" + self.name, "sha256": digests.of_bytes(self.data)}


NO_PLAN = {"path": "", "sha256": ""}


def plan_in(source: PlanFile) -> dict[str, Any]:
    """Read what stands in a plan of FABER's. Raises LoomError: BAD_JSON, GIT_CONFLICT, BAD_PLAN."""
    raw = files.parse_json(source.data, where=source.path)
    if not faber_words.is_plan(raw):
        raise LoomError(
            "BAD_PLAN",
            "this is no plan of FABER's",
            where=source.path,
            why="it holds no workflow",
            hint=f"loomctl check {quoted(source.path)}",
        )
    found: dict[str, Any] = raw
    return found


def read_state(home: Home) -> dict[str, Any]:
    """Read a FABER state as it is. Raises OSError, and LoomError: UNSAFE_LINK, BAD_JSON, BAD_STATE, RUN_ID_MISMATCH."""
    files.refuse_links(home.top, home.state)
    raw = files.read_json(home.state)
    if not isinstance(raw, dict):
        why, hint = "it is no JSON object", f"loomctl check {quoted(home.state)}"
        raise LoomError("BAD_STATE", "this state cannot be used", where=f"{home.state} $", why=why, hint=hint)
    if not faber_words.belongs(raw, home.run_id):
        raise LoomError(
            "RUN_ID_MISMATCH",
            f"the file says it is run {str(raw['run_id'])[:200]!r}, not {home.run_id!r}",
            where=home.state,
            why="a run's place and its state carry one id: put it back where it was, or remove the copy",
            hint="loomctl runs",
        )
    return raw


def rendered(raw: dict[str, Any]) -> bytes:
    """Render a state as FABER does: indented by two, so that a commit of it shows what changed."""
    return (json.dumps(raw, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode("utf-8", "backslashreplace")


def write_state(home: Home, data: bytes, *, durable: bool) -> None:
    """Replace a FABER state, with the file mode that it has; the name beside it is Loom's own, for FABER has others.

    The caller holds the run's lock.
    """
    folder, name = os.path.split(home.state)
    files.make_folder(folder, mode=0o755)
    beside = os.path.join(folder, f".{name}.loom.tmp")
    files.write_atomically(home.state, data, mode=mode_of(home), durable=durable, locked=True, beside=beside)


def mode_of(home: Home) -> int:
    """Give the mode of a state's file, of its backup where it is gone."""
    for path in (home.state, home.backup):
        try:
            return os.lstat(path).st_mode & 0o777
        except OSError:
            continue
    return 0o644


class StateLock:
    """`with StateLock(home):` holds the lock that FABER's own writer takes, beside the state; patience: seconds.

    Raises HELD and UNSAFE_LINK. Where it cannot be made nobody else can write either, or the write itself will say so.
    One that was not there is removed again.
    """

    def __init__(self, home: Home, *, patience: float) -> None:
        self._path = f"{home.state}.lock"
        self._lock = Lock(self._path, patience=patience, signed=False)
        self._was_there = self._held = False

    def __enter__(self) -> StateLock:
        if os.path.isdir(os.path.dirname(self._path)):
            self._was_there = os.path.lexists(self._path)
            try:
                self._lock.__enter__()
                self._held = True
            except OSError:
                pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held:
            if not self._was_there:
                self._lock.remove()
            self._lock.__exit__(kind, error, trace)


def plan_places(home: Home, plan_id: str) -> list[str]:
    """List the names, below the project's root, at which a run's plan may stand; the last is beside its state."""
    beside = os.path.join(os.path.dirname(os.path.relpath(home.state, home.top)), "plan.json")
    return list(dict.fromkeys([*layouts.plan_names(home.run_id, plan_id), beside]))


def find_plan(home: Home, plan_id: str) -> PlanFile | None:
    """Find and read the plan that a run was made from; None if no file is there.

    Raises UNSAFE_LINK, TOO_LARGE and OSError for one that is there and cannot be read.
    """
    for name in plan_places(home, plan_id):
        path = os.path.join(home.top, name)
        if os.path.isfile(path):
            files.refuse_links(home.top, path)
            return PlanFile(name, path, files.read_bytes(path))
    return None


def pointed_at(root: str) -> str | None:
    """Give the run id in FABER's pointer file, trimmed: a hint, never proof (D4, D5)."""
    for name in layouts.POINTERS:
        try:
            files.refuse_links(root, os.path.join(root, name))
            text = files.read_bytes(os.path.join(root, name), limit=4096).decode("utf-8", "replace").strip()
        except (OSError, LoomError):
            continue
        if text:
            return layouts.last_part(text)
    return None
