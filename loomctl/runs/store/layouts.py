"""Where a run's files are: in Loom's own store, or in one of the folders where FABER keeps them (D5)."""

from __future__ import annotations

import os

from loomctl.kit import files, git, ids, quick_json
from loomctl.kit.errors import EXIT_NO_RUN, LoomError
from loomctl.kit.quick_json import as_object
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FABER = ".fractary"
# Each folder of runs, below a project's root, in the order in which they are looked into.
_RUN_FOLDERS = (".fractary/runs", ".fractary/faber/runs")
_PLAN_FOLDER = ".fractary/faber/runs"
_OLD_PLANS = "logs/fractary/plugins/faber/plans"
_OVER = ("run.completed", "run.cancelled")
_TAIL = 1 << 16  # bytes of a log that say how its run stands
POINTERS = (".fractary/faber/runs/.active-run-id", ".fractary/faber/.active-run-id")


class Home(NamedTuple):
    """A run's files, all absolute.

    folder: `{run_dir}`, what Loom keeps of the run; state, backup: the state file and the one before; top: the folder
    below which no symbolic link may lead to the state; faber: the state is FABER's.
    """

    run_id: str
    folder: str
    state: str
    backup: str
    top: str
    faber: bool


def looms(store: str, run_id: str) -> Home:
    """Give the home of a run of Loom's own."""
    return at(os.path.join(store, "runs", run_id), run_id)._replace(top=store)


def at(folder: str, run_id: str) -> Home:
    """Give the home of a run of Loom's own that stands in a folder, wherever that is."""
    state, backup = os.path.join(folder, "state.json"), os.path.join(folder, "state.backup.json")
    return Home(run_id, folder, state, backup, folder, faber=False)


def _fabers(store: str, root: str, run_id: str, state: str) -> Home:
    folder = os.path.join(store, "runs", run_id)
    return Home(run_id, folder, state, os.path.join(folder, "faber-state.backup.json"), root, True)


def home(store: str, roots: Sequence[str], run_id: str) -> Home | None:
    """Find a run by its id, checked before; None if nothing goes by it. roots: where FABER's folders may stand.

    A state of FABER's that is gone is named where it stood, for as long as Loom has its backup.
    """
    own = looms(store, run_id)
    if os.path.lexists(own.state) or os.path.isfile(own.backup):
        return own
    for root in roots:
        for name in state_names(run_id):
            path = os.path.join(root, name)
            if os.path.lexists(path):
                return _fabers(store, root, run_id, path)
    for root in roots:
        for folder in _nested(root):
            path = os.path.join(folder, run_id, "state.json")
            if os.path.lexists(path):
                return _fabers(store, root, run_id, path)
    return _gone(store, roots, run_id)


def homes(store: str, roots: Sequence[str]) -> dict[str, Home]:
    """Find every run there is; of two with one id the first counts, Loom's own before FABER's.

    FABER's states that are gone are among them, but for those of runs that were over. What bears a name that no run can
    have is somebody else's.
    """
    found: dict[str, Home] = {}
    others: list[str] = []
    for run_id in filter(ids.is_fit, _names(store, "runs")):
        looms_own = looms(store, run_id)
        if os.path.isfile(looms_own.state) or os.path.isfile(looms_own.backup):
            found[run_id] = looms_own
        else:
            others.append(run_id)
    for root in roots:
        for run_id, path in _faber_states(root):
            if ids.is_fit(run_id):
                found.setdefault(run_id, _fabers(store, root, run_id, path))
    for run_id in others:
        gone = None if run_id in found else _gone(store, roots, run_id)
        if gone is not None and not _was_over(gone.folder):
            found[run_id] = gone
    return found


def _gone(store: str, roots: Sequence[str], run_id: str) -> Home | None:
    """Give the home of a FABER run of which Loom has the backup alone; None where its state is in another worktree."""
    found = _fabers(store, os.path.dirname(store), run_id, "")
    if not roots or not os.path.isfile(found.backup) or files.leads_away(store, found.backup):
        return None
    name = _noted_name(found.folder) or state_names(run_id)[0]
    owner = os.path.dirname(store)
    top = git.top_of(owner)
    for other in git.worktrees(top) if top is not None else ():
        if os.path.lexists(os.path.join(other, os.path.relpath(owner, top), name)):
            return None
    places = [(root, os.path.join(root, name)) for root in roots]
    root, path = next((one for one in places if os.path.isdir(os.path.dirname(one[1]))), places[0])
    return found._replace(state=path, top=root)


def _noted_name(folder: str) -> str:
    """Give the name below the project's root that a frozen plan notes for its run's state; empty where none is."""
    try:
        plan = files.read_json(os.path.join(folder, "plan.json"))
    except (OSError, LoomError):
        return ""
    name = as_object(as_object(plan).get("faber")).get("state")
    parts = name.split("/") if isinstance(name, str) else []
    return str(name) if parts[:1] == [FABER] and all(map(ids.is_fit, parts[1:])) else ""


def _was_over(folder: str) -> bool:
    """Tell from the end of its log whether a run was completed or cancelled when it was last written."""
    try:
        with open(os.path.join(folder, "events.jsonl"), "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
            lines = [line for line in log.read(_TAIL).splitlines() if b'"run.' in line]
    except OSError:
        return False
    for line in reversed(lines):
        try:
            entry = quick_json.loads(line.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and str(entry.get("event")).startswith("run."):
            return entry["event"] in _OVER
    return False


def _faber_states(root: str) -> Iterator[tuple[str, str]]:
    for folder in _RUN_FOLDERS:
        for name in _names(root, folder):
            path = os.path.join(root, folder, name, "state.json")
            if os.path.isfile(path):
                yield name, path
    for folder in _nested(root):
        for name in _names(root, os.path.relpath(folder, root)):
            path = os.path.join(folder, name, "state.json")
            if os.path.isfile(path):
                yield name, path
    base = os.path.join(root, _PLAN_FOLDER)
    for plan_id in _names(root, _PLAN_FOLDER):
        for name in _names(base, plan_id):
            suffix = name[len("state-") : -len(".json")]
            if name.startswith("state-") and name.endswith(".json") and suffix and not suffix.endswith(".backup"):
                yield f"{plan_id}-run-{suffix}", os.path.join(base, plan_id, name)


def run_folders(store: str, roots: Sequence[str]) -> list[str]:
    """List the folders that runs stand in, there or not."""
    return [os.path.join(store, "runs"), *(os.path.join(root, name) for root in roots for name in _RUN_FOLDERS)]


def _nested(root: str) -> Iterator[str]:
    """Give the folders of runs whose id is `organisation/project/uuid`: one for each project."""
    for folder in _RUN_FOLDERS:
        for organisation in _names(root, folder):
            above = f"{folder}/{organisation}"
            if os.path.lexists(os.path.join(root, above, "state.json")):
                continue
            for project in _names(root, above):
                if os.path.isdir(os.path.join(root, above, project)):
                    yield os.path.join(root, above, project)


def _names(top: str, folder: str) -> list[str]:
    """List what lies in a folder below `top`; nothing where a link leads there, for then it is not this project's."""
    folder = os.path.join(top, folder)
    if files.leads_away(top, folder):
        return []
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []


def last_part(named: str) -> str:
    """Give the last part of an id of FABER's, `organisation/project/uuid`, by which its run goes."""
    parts = named.split("/")
    return parts[-1] if len(parts) == 3 and all(map(ids.is_fit, parts)) else named


def state_names(run_id: str) -> list[str]:
    """List the names, below a project's root, by which FABER knows a run's state."""
    plan_id, suffix = ids.split_run_id(run_id)
    names = [f"{folder}/{run_id}/state.json" for folder in _RUN_FOLDERS]
    return [*names, f"{_PLAN_FOLDER}/{plan_id}/state-{suffix}.json"] if suffix else names


def plan_names(run_id: str, plan_id: str) -> list[str]:
    """List the names, below a project's root, by which FABER knows a run's plan; an id fit for no file names none."""
    beside = f"{_PLAN_FOLDER}/{run_id}/plan.json"
    if not ids.is_fit(plan_id):
        return [beside]
    return [
        f"{_PLAN_FOLDER}/{plan_id}/plan.json",
        f"{_OLD_PLANS}/{plan_id}.json",
        beside,
        f"{_PLAN_FOLDER}/{plan_id}.json",
    ]


def no_such_run(named: str, store: str, roots: Sequence[str]) -> LoomError:
    """Make the error of a name that is no run's. store: its folder; roots: of FABER's runs."""
    where = os.path.join(store, "runs")
    if not os.path.isdir(where):  # FABER's, where Loom has none of its own
        where = next((path for root in roots if os.path.isdir(path := os.path.join(root, FABER))), where)
    what = f"there is no run {named!r} here"
    return LoomError("NO_SUCH_RUN", what, where=where, hint="loomctl runs", exit_code=EXIT_NO_RUN)


def shown(handle: str) -> str:
    """Give the command that shows a run, whatever its standing: what a hint says of one that was not named."""
    return f"loomctl show {handle}"
