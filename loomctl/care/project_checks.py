"""Whom the doctor examines; and what stands in the project: its store, settings, runs and locks."""

from __future__ import annotations

import json
import os
import shlex
from functools import cached_property
from typing import TYPE_CHECKING

from loomctl.kit import files, machine, processes, trouble
from loomctl.kit.errors import LoomError
from loomctl.kit.processes import holder
from loomctl.kit.text.fences import counted
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding, gathered
from loomctl.runs import config as settings
from loomctl.runs import faber_runs, log_verdict, run_blobs
from loomctl.runs.machine import drivers, launcher_files, run_notes
from loomctl.runs.machine.local import Local
from loomctl.runs.model import lease
from loomctl.runs.model.state import TERMINAL, handle, is_active
from loomctl.runs.project import Conversation, new, package_parent, plugin_root
from loomctl.runs.store import events
from loomctl.runs.store.blobs import Blobs, refs_of_state
from loomctl.runs.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.runs.machine.launcher_files import Beat
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Project
    from loomctl.runs.store.layouts import Home


class Patient:
    """cwd: the working directory, empty where it is gone; project: None where there is none.

    environment_python: the interpreter of Loom's own environment, empty where there is none. session_id: the host's.
    now: seconds since 1970. program: the file that this process was started from. shut_in: whether this is a sandbox
    that shuts the user's own folders, into which hooks write outside of it.
    """

    shut_in = False

    def __init__(
        self, *, cwd: str, project: Project | None, environment_python: str, session_id: str, now: float, program: str
    ) -> None:
        self.cwd, self.project, self.environment_python = cwd, project, environment_python
        self.session_id, self.now, self.program = session_id, now, program
        self.conversation = Conversation()  # whoever knows the host gives one that can be seen
        self.bundle = project.plugin_root if project else plugin_root()
        self.launcher = os.path.join(self.bundle, "bin", "loomctl")
        self.store = Store(project.store, project.faber_roots) if project else None  # as a hook has it
        self.local = Local(self.store.local) if self.store else None

    @property
    def is_helper(self) -> bool:
        """Tell whether this is a `loomctl` of its own (pipx), whose bundle stands inside of the package."""
        return os.path.basename(self.bundle) == "_bundle"

    @cached_property
    def states(self) -> dict[str, State | LoomError]:
        """Each run's state, or why it cannot be read."""
        found: dict[str, State | LoomError] = {}
        for run_id in self.store.run_ids() if self.store else ():
            try:
                found[run_id] = self.store.read_state(run_id) if self.store else {}
            except LoomError as error:
                if error.code != "BAD_ID":  # a folder of somebody else's
                    found[run_id] = error
        return found

    @property
    def active(self) -> dict[str, State]:
        """The states of the active runs."""
        return {
            run_id: state
            for run_id, state in self.states.items()
            if not isinstance(state, LoomError) and is_active(state)
        }


PATIENCE = 20.0  # seconds
# Bytes of logs, and of blobs, that are read; of more blobs it is only seen that they are there.
MOST_READ = 64 << 20
_NO_PROJECT = Finding(PASS, "no project")


def beats_of(patient: Patient) -> dict[str, Beat]:
    """Give when each hook last fired here; empty where there is no project."""
    return launcher_files.beats(patient.store.local) if patient.store else {}


def project(patient: Patient) -> Finding:
    """Which project and store this is and why, and whether the store is Loom's to write (D3)."""
    if not patient.cwd:
        return Finding(FAIL, "the working directory is gone", "cd")
    if patient.project is None or patient.store is None:
        try:
            new(patient.cwd)
        except LoomError as refused:  # a link or a file stands where the store would be
            followed = "; Loom does not follow it" if os.path.islink(refused.where) else ""
            return Finding(FAIL, f"{refused.what}{followed}: {refused.where}", refused.hint)
        return Finding(PASS, f"no project with a .loom folder at or above {patient.cwd}, so hooks stay silent")
    root, store = patient.project.root, patient.store
    details = [f"store: {store.folder}"]
    if os.path.dirname(store.folder) != root:
        details.append("a linked worktree uses the store of the main checkout")
    if not (patient.cwd + os.sep).startswith(root + os.sep):
        details.append("found from the folder that the assistant was started in, not from the working directory")
    if settings.load(store.folder, with_yaml=False).commit_runs:
        details.append("runs are committed with the project (commit_runs)")
    return gathered([*_links(patient), *_writing(patient)], f"project {root}", details=details)


def _links(patient: Patient) -> Iterator[Finding]:
    assert patient.store is not None  # the caller made sure
    for place in (patient.store.folder, patient.store.runs_folder, patient.store.local):
        if os.path.islink(place):
            found = f"a symbolic link stands where Loom keeps its own files; Loom does not follow it: {place}"
            yield Finding(FAIL, found, f"ls -l {shlex.quote(place)}")


def _writing(patient: Patient) -> Iterator[Finding]:
    assert patient.store is not None  # the caller made sure
    folder = patient.store.folder
    for place in (folder, patient.store.runs_folder, patient.store.local):
        if os.path.isdir(place) and not os.access(place, os.W_OK | os.X_OK):
            found = f"Loom cannot write to {place}: sessions get their files, but Loom cannot record it"
            yield Finding(WARN, found, f"ls -ld {shlex.quote(place)}")
            return
    if os.path.isdir(patient.store.runs_folder) and not os.path.lexists(os.path.join(folder, ".gitignore")):
        yield Finding(WARN, f"{folder} has no .gitignore, so git shows Loom's files", "loomctl resume")


def config(patient: Patient) -> Finding:
    """Whether the settings can be read, and are those that hooks use."""
    if patient.store is None:
        return _NO_PROJECT._replace(found="no project, so no project settings")
    folder = patient.store.folder
    stale = [said for code, said in settings.load(folder, with_yaml=False).warnings if code == "STALE_CONFIG"]
    read = _sources_read(patient, folder)
    if read is None:
        hint = "loomctl --version"
        if stale:
            return Finding(
                WARN, "settings changed, but hooks cannot read them until Loom's environment exists", hint, stale
            )
        return Finding(PASS, "settings have not changed")
    troubles = []
    for error in read:
        unused = error["code"] == settings.UNKNOWN
        why = [part for part in (error.get("where", ""), error.get("why", "")) if part]
        where = error.get("where", "").partition(" ")[0] or settings.project_config(folder)
        hint = error.get("hint") or ("loomctl paths" if unused else f"${{EDITOR:-vi}} {shlex.quote(where)}")
        troubles.append(Finding(WARN if unused else FAIL, error["message"], hint, why))
    if stale and not troubles:
        return Finding(PASS, "settings changed; the next hook or command uses them", "", stale)
    return gathered(troubles, "settings are valid, and hooks use them")


def _sources_read(patient: Patient, store: str) -> list[dict[str, str]] | None:
    """Give what is wrong with the sources, asked of the environment, which can read YAML; None where there is none."""
    if not patient.environment_python:
        return None
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from loomctl.runs import config; "
        "print(json.dumps([error.to_dict() for error in config.troubles(sys.argv[2])]))"
    )
    try:
        ended = processes.run(
            [patient.environment_python, "-I", "-B", "-c", program, package_parent(), store],
            cwd=os.sep,
            environ=os.environ,
            patience=PATIENCE,
        )
        told: list[dict[str, str]] = json.loads(ended.stdout)
    except (OSError, ValueError):  # the check of the environment says so
        return None
    return told


def runs(patient: Patient) -> Finding:
    """The active runs, and whether each can go on."""
    if patient.store is None or patient.local is None:
        return _NO_PROJECT._replace(found="no project, so no runs")
    bound = (patient.local.binding(patient.session_id or None) or {}).get("run_id")
    troubles = []
    details = []
    for run_id, state in patient.active.items():
        here = _driven(patient, run_id, state, is_bound=run_id == bound)
        details.append(f"{handle(state)}: {state['status']}, at {state.get('current_step') or '-'}{here}")
        try:
            if run_notes.is_known(run_id, patient.store.folder):  # no hook reads a stranger's, or one not taken up
                patient.store.read(run_id)
            _fabers_plan(patient.store.home(run_id), str(state["plan_id"]))
        except LoomError as error:
            said = [part for part in (error.where, error.why) if part]
            troubles.append(Finding(FAIL, f"the run {handle(state)} cannot go on: {error.what}", error.hint, said))
            continue
        try:
            list(state["steps"])
        except LoomError as error:
            troubles.append(
                Finding(WARN, f"{patient.store.handle(run_id)}: {error.what}", error.hint, [error.where, error.why])
            )
    count = len(details)
    fine = f"{counted(count, 'active run')} of {len(patient.states)}"
    if count > 1 and bound is None:
        fine += "; a session lists them, and loomctl resume RUN continues one"
    return gathered(troubles, fine, details=details, facts={"active": list(patient.active)})


def _driven(patient: Patient, run_id: str, state: State, *, is_bound: bool) -> str:
    found = lease.holder(state)
    if found is None or patient.local is None:
        return ", bound to this session" if is_bound else ""
    if found.session_id == patient.session_id:
        return ", driven by this session"
    lives = drivers.lives(patient.local.folder, run_id, found)
    told = drivers.told(found)
    return f", driven by {told}" if lives else f", its driver is gone: {told}"


def _fabers_plan(home: Home, plan_id: str) -> None:
    """Refuse the plan file of a FABER run that the next command could not read; hooks have the frozen one (D5)."""
    if not home.faber:
        return
    try:
        source = faber_runs.find_plan(home, plan_id)
    except OSError as error:
        what, hint = "the run's plan cannot be read", f"ls -l {shlex.quote(home.top)}"
        raise LoomError("BAD_PLAN", what, where=home.top, why=str(error), hint=hint) from None
    if source is not None:
        faber_runs.plan_in(source)


def states(patient: Patient) -> Finding:
    """States that cannot be read, each with the way back (D53, D56)."""
    if patient.store is None:
        return _NO_PROJECT._replace(found="no project, so no states")
    troubles = []
    for run_id, error in patient.states.items():
        if isinstance(error, LoomError):
            details = [part for part in (error.where, error.why) if part]
            found = f"the state of the run {patient.store.handle(run_id)} cannot be used: {error.what}"
            status = WARN if _was_over(patient, run_id) else FAIL
            troubles.append(Finding(status, found, _way_back(patient, run_id, error), details))
    facts = {"unreadable": [run_id for run_id, one in patient.states.items() if isinstance(one, LoomError)]}
    return gathered(troubles, f"{counted(len(patient.states), 'state')} can be read", facts=facts)


def _way_back(patient: Patient, run_id: str, error: LoomError) -> str:
    if error.code == "SCHEMA_TOO_NEW":
        return trouble.update(patient.bundle)
    return error.hint or f"loomctl show {patient.store.handle(run_id) if patient.store else run_id}"


def _was_over(patient: Patient, run_id: str) -> bool:
    """Tell whether the state before says that the run is over, so that no hook would need it."""
    assert patient.store is not None  # there are states
    try:
        backup = files.read_json(patient.store.home(run_id).backup)
    except (OSError, LoomError):
        return False
    return isinstance(backup, dict) and backup.get("status") in TERMINAL


def known(patient: Patient) -> Finding:
    """Whether this machine can remember what it started, and knows the active runs (D23)."""
    home = machine.state_home()
    unkept = "so Loom treats every run as unknown and loads nothing by itself"
    foreign = machine.foreign_folders()
    if foreign:
        found = f"Loom does not read {foreign[0]}: another user could have written to it"
        return Finding(FAIL, found, f"ls -ld {shlex.quote(foreign[0])}", foreign[1:])
    if found := run_notes.unkept():
        if home and patient.shut_in:
            return Finding(PASS, f"hooks remember this machine's runs in {home}, which this sandbox shuts")
        way = f"ls -ld {shlex.quote(machine.nearest(home))}" if home else "export LOOM_STATE_HOME=$(mktemp -d)"
        return Finding(FAIL, f"{found}, {unkept}", way)
    troubles = []
    named = os.environ.get("LOOM_STATE_HOME", "")
    if named and not os.path.isabs(named):
        troubles.append(
            Finding(
                WARN,
                f"Loom ignores LOOM_STATE_HOME, because it is not an absolute path: {named}",
                "unset LOOM_STATE_HOME",
            )
        )
    for run_id, state in patient.active.items() if patient.store else ():
        if patient.store and not run_notes.is_known(run_id, patient.store.folder):
            found = f"the run {handle(state)} was not resumed here, so sessions hear of it but get no files"
            driver = _other_driver(patient, run_id, state)
            found += f"; it is driven by {drivers.told(driver)}" if driver is not None else ""
            way = f"loomctl resume {handle(state)}{' --take-over' if driver is not None else ''}"
            troubles.append(Finding(WARN, found, way))
    return gathered(troubles, f"this machine remembers its runs in {home}", facts={"machine_state": home})


def _other_driver(patient: Patient, run_id: str, state: State) -> lease.Holder | None:
    """Give who drives a run and would have to be taken over by who asks; the same conversation elsewhere, too."""
    found = lease.holder(state)
    if found is None or patient.local is None:
        return None
    folder = patient.local.folder
    is_own = found.session_id == patient.session_id and drivers.is_here(folder, run_id, found)
    return found if not is_own and drivers.lives(folder, run_id, found) else None


def tool_calls(patient: Patient) -> Finding:
    """Whether tool calls were set aside, for whoever recorded them was killed (D59)."""
    if patient.store is None:
        return _NO_PROJECT._replace(found="no project, so no tool calls")
    aside = launcher_files.spooled(patient.store.local, launcher_files.UNFINISHED)
    if not aside:
        return Finding(PASS, "no hook was killed while it recorded a tool call")
    details = [f"{one.path}: {one.bytes:,} bytes" for one in aside[:5]]
    found = f"{counted(len(aside), 'tool call')} not recorded yet: a hook was killed"
    return Finding(WARN, found, "loomctl steps", details)


def locks(patient: Patient) -> Finding:
    """Who holds a run's lock right now; a holder that dies frees it by itself (D53)."""
    if patient.store is None:
        return _NO_PROJECT._replace(found="no project, so no locks")
    folder = os.path.join(patient.store.local, "locks")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    held = {name.removesuffix(".lock"): holder(os.path.join(folder, name)) for name in names if name.endswith(".lock")}
    details = [f"{patient.store.handle(run_id)}: {who}" for run_id, who in held.items() if who]
    if details:
        found = "somebody is writing to a run right now; look again in a moment"
        return Finding(WARN, found, "loomctl doctor", details)
    return Finding(PASS, "no run is locked")


def ledgers(patient: Patient) -> Finding:
    """Whether the logs of the active runs are those that were written, as `verify` has it."""
    if patient.store is None:
        return Finding(PASS, "no project, so no logs")
    troubles: list[Finding] = []
    left, unread, read = MOST_READ, 0, 0
    for run_id in patient.active:
        size = _size(os.path.join(patient.store.run_dir(run_id), events.FILE))
        if size > left:
            unread += 1
            continue
        left, read = left - size, read + 1
        fault = log_verdict.verify(patient.store, run_id).fault
        if fault is not None:
            called = patient.store.handle(run_id)
            found = f"the log of {called} is damaged at line {fault.line}: {fault.what}"
            troubles.append(Finding(WARN, found, f"loomctl prove --log {called}"))
    fine = (
        f"the logs of the active runs are intact ({read})"
        if read
        else "no log was read"
        if unread
        else "no active run has a log"
    )
    if unread:
        fine += f"; {counted(unread, 'log')} beyond {MOST_READ >> 20} MB in all not read: loomctl prove --log --all"
    return gathered(troubles, fine)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def blobs(patient: Patient) -> Finding:
    """Whether the large values in the contexts of runs can be read; those of runs under way are read first."""
    if patient.store is None:
        return Finding(PASS, "no project, so no blobs")
    store = Blobs(patient.store.folder)
    troubles: list[Finding] = []
    seen: set[str] = set()
    left, unread = MOST_READ, 0
    for run_id, state in _by_need(patient):
        for ref in refs_of_state(state):
            size = _blob_size(store, ref)
            is_read = size is None or ref in seen or size <= left
            if ref not in seen:
                seen.add(ref)
                left -= (size or 0) if is_read else 0
                unread += 0 if is_read else 1
            error = _blob_trouble(patient, run_id, ref) if is_read else None
            if error is not None:
                troubles.append(_unreadable(state, error))
    fine = f"all blobs that were read are intact ({len(seen) - unread:,})" if seen else "no run has blobs"
    if unread:
        fine += f"; {unread:,} beyond {MOST_READ >> 20} MB in all not read"
    return gathered(troubles, fine, facts={"blobs": len(seen)})


def _by_need(patient: Patient) -> Iterator[tuple[str, State]]:
    states = {run_id: state for run_id, state in patient.states.items() if not isinstance(state, LoomError)}
    yield from sorted(states.items(), key=lambda one: one[1]["status"] in TERMINAL)


def _blob_size(store: Blobs, ref: str) -> int | None:
    try:
        return os.lstat(store.path(ref)).st_size
    except OSError:
        return None


def _blob_trouble(patient: Patient, run_id: str, ref: str) -> LoomError | None:
    assert patient.store is not None  # the caller made sure
    return run_blobs.trouble(patient.store.folder, patient.store.run_dir(run_id), ref)


def _unreadable(state: State, error: LoomError) -> Finding:
    found = f"the run {handle(state)} refers to a value that cannot be read: {error.what}"
    status = WARN if state["status"] in TERMINAL else FAIL
    return Finding(status, found, f"loomctl show {handle(state)}", [part for part in (error.where, error.why) if part])
