"""A run as a report tells it: one document made of all that can be read of it, for the page and for scripts.

A run that is damaged is told as far as it can be read, and the document says what could not be (`troubles`). Nothing
of a run is changed; only what hooks put aside is recorded first, as for `loomctl savings`.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from loomctl.kit import clock, files, ids
from loomctl.kit.errors import LoomError
from loomctl.kit.text.secrets import masked
from loomctl.kit.version import __version__
from loomctl.runs import archives, log_verdict
from loomctl.runs.model import frozen_plan, saved_copies, sessions
from loomctl.runs.store import earlier_sessions, event_log, events, recovery
from loomctl.runs.store.store import Run, Store
from loomctl.runs.tools import recording
from loomctl.views.report import artifact_facts, run_facts, stage_facts
from loomctl.views.report.event_facts import Told
from loomctl.views.report.report_files import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from loomctl.runs.caller import Workspace

SCHEMA_VERSION = 1
_LONGEST, _EXCERPT = 1_000, 10_000  # characters of a text, and of the part of a file that is shown
_FILES = 500  # files touched that a report lists
_NEVER_READ = ("SCHEMA_TOO_NEW", "RUN_ID_MISMATCH")  # whole, but not to be told as this run by this version
_HOMES = re.compile(r"(?<![\w.}~-])(?:/home|/Users|/var/home)/[^/\s\"'<>:;,)\]]+")


@contextmanager
def opened(space: Workspace, named: str | None, find: Callable[[str | None], str]) -> Iterator[tuple[Workspace, str]]:
    """Give the workspace and the id of the run that is meant; an archived run is unpacked into a folder that goes.

    find: gives a run's id, or raises NO_SUCH_RUN. Raises what it does, and BAD_ARCHIVE.
    """
    try:
        run_id = find(named)
    except LoomError as error:
        path = _archive(space, named) if error.code in ("NO_SUCH_RUN", "BAD_ID") and named else None
        if path is None:
            raise
        with tempfile.TemporaryDirectory(prefix="loom-report-") as folder:
            into = os.path.join(folder, "runs")
            os.mkdir(into)
            unpacked = archives.unpack(path, into)
            yield space._replace(store=Store(folder)), ids.checked_id(unpacked.run_id)
        return
    recording.digest(space)  # what waits belongs into it
    yield space, run_id


def _archive(space: Workspace, named: str) -> str | None:
    try:
        return archives.named_archive(space.store.folder, named)
    except LoomError:
        return None


def gather(space: Workspace, run_id: str, say: Callable[[Mapping[str, Any]], str]) -> dict[str, Any]:
    """Give the report's document (docs/reference/report.md has its keys). say: puts an event into words.

    Its secrets are masked, and paths of this machine and of those that the run's sessions were on are shortened (D9,
    D21). Raises what finding the run does, SCHEMA_TOO_NEW and RUN_ID_MISMATCH; all else that cannot be read is said.
    """
    troubles: list[dict[str, str]] = []

    def fail(error: LoomError | OSError) -> None:
        told = error if isinstance(error, LoomError) else _as_trouble(error)
        found = {"code": told.code, "what": told.what + (f": {told.where}" if told.where else "")}
        if found not in troubles:
            troubles.append(found)

    run = _read(space, run_id, fail)
    told = Told(say)
    try:
        told.read(_log(run))
    except (LoomError, OSError) as error:
        fail(error)
    stages = stage_facts.all_of(run, fail)
    stage_facts.with_evidence(stages, told.evidence)
    touched = list(stage_facts.files_of(stages))
    for one in stages:
        del one["touched"]
    document = {
        "schema_version": SCHEMA_VERSION,
        "made_at": clock.now(),
        "made_by": __version__,
        "run": _run(space, run),
        "ledger": _ledger(run, fail),
        "progress": stage_facts.progress(run),
        "troubles": troubles,
        "phases": stage_facts.phases(run),
        "stages": stages,
        "sessions": run_facts.all_sessions(space, run, _earlier(space, run_id, fail)),
        "turns": told.turns,
        "decisions": told.decisions,
        "approvals": run_facts.approvals(run.state),
        "errors": run_facts.errors(run.state, stages),
        "primings": told.primings,
        "savings": run_facts.savings(run.folder),
        "artifacts": artifact_facts.critical(space, run, told.primings),
        "made": {str(name): str(path) for name, path in run.state["artifacts"].items()},
        "made_files": artifact_facts.made(space, run),
        "files": touched[:_FILES],
        "files_total": len(touched),
        "moments": told.moments(),
    }
    short = _shortener(space, run)
    rows = _shortened(told.rows(), short)
    return {
        **_fit_to_show(document, short),
        "events": {"total": told.total, "broken": told.broken, "rows": rows},
    }


def _as_trouble(error: OSError) -> LoomError:
    what = error.strerror or str(error)
    return LoomError("UNREADABLE", what, where=str(error.filename or ""), hint="loomctl doctor")


def _log(run: Run) -> Iterator[event_log.Line]:
    path = os.path.join(run.folder, events.FILE)
    files.refuse_links(run.folder, path)
    return event_log.all_of(path)


def _ledger(run: Run, fail: Callable[[LoomError | OSError], None]) -> dict[str, Any] | None:
    """Give the verdict on the run's log (D54), which alone says what of it is damaged; None where there is none."""
    try:
        found = log_verdict.of_log(
            os.path.join(run.folder, events.FILE), run.run_id, run.state, event_log.every(run.folder)
        )
    except (LoomError, OSError) as error:
        fail(error)
        return None
    fault = found.fault
    told = {"line": fault.line, "what": fault.what} if fault is not None else None
    if fault is not None:
        what = f"line {fault.line:,} of {events.FILE}: {fault.what}; loomctl verify {run.run_id} tells more"
        fail(LoomError(fault.code, what))
    return {"ok": found.ok, "entries": found.entries, "unproven": found.unproven, "fault": told}


def _earlier(space: Workspace, run_id: str, fail: Callable[[LoomError | OSError], None]) -> list[dict[str, Any]]:
    try:
        return earlier_sessions.every(space.store, run_id)
    except (LoomError, OSError) as error:
        fail(error)
        return []


def _run(space: Workspace, run: Run) -> dict[str, Any]:
    state = run.state
    forked, waits = state.get("forked_from"), state.get("feedback")
    names = ("work_id", "goal", "created_at", "updated_at", "completed_at")
    return {
        "run_id": run.run_id,
        "plan_id": str(state.get("plan_id") or ""),
        "workflow_id": str(state.get("workflow_id") or ""),
        "status": str(state["status"]),
        **{key: str(state.get(key) or "") for key in names},
        "phase": str(state.get("current_phase") or ""),
        "step": str(state.get("current_step") or ""),
        "forked_from": {key: str(forked.get(key) or "") for key in ("run_id", "stage", "at")}
        if isinstance(forked, dict)
        else None,
        "saved_from": saved_copies.origin(state),
        "waits_for": str(waits.get("message") or waits.get("kind") or "an answer") if isinstance(waits, dict) else "",
        "driver": run_facts.driver(space, run),
    }


# ---- Reading what may be damaged.


def _read(space: Workspace, run_id: str, fail: Callable[[LoomError | OSError], None]) -> Run:
    """Read a run; in the place of a state or plan that cannot be read, the newest that can, or an empty one."""
    home = space.store.home(run_id)
    try:
        return space.store.read(run_id, to_show=True)
    except LoomError as error:
        if error.code in _NEVER_READ:
            raise
        fail(error)
    state = None
    for name in (os.path.basename(home.state), *recovery.kept_states(home)):
        try:
            own = name == os.path.basename(home.state)
            state = space.store.read_home(home if own else recovery.kept_home(home, name))
            if not own:
                fail(LoomError("OLDER_STATE", f"the run is told as {name} has it", hint="loomctl state restore"))
            break
        except LoomError as error:
            if error.code in _NEVER_READ:
                raise
            fail(error)
    path = os.path.join(home.folder, "plan.json")
    try:
        files.refuse_links(home.folder, path)
        plan = frozen_plan.accepted(files.read_json(path), where=path)
    except (LoomError, OSError) as error:
        fail(error)
        plan = {"plan_id": run_id, "workflow_id": "", "phases": [], "artifacts": []}
    return Run(run_id, home.folder, state or _unknown(run_id), plan, home.state, path)


def _unknown(run_id: str) -> dict[str, Any]:
    """Give a state that knows nothing, for a run of which only the log and the stages' files are left."""
    return {
        "run_id": run_id,
        "plan_id": ids.split_run_id(run_id)[0],
        "workflow_id": "",
        "status": "unknown",
        "phases": {},
        "steps": [],
        "context": {},
        "artifacts": {},
        "errors": [],
        "pending_approvals": [],
        "sessions": {"session_history": [], "total_sessions": 0},
        "context_metadata": {},
    }


# ---- What leaves the machine.


def _shortener(space: Workspace, run: Run) -> Callable[[str], str]:
    """Give what writes a machine's own folders short: the project as `{project_root}`, a home as `~`."""
    known = {root: "{project_root}" for root in (space.project.root, *sessions.roots(run.state)) if len(root) > 1}
    known[os.path.dirname(run.folder)] = "{runs}"
    for home in (os.path.expanduser("~"), "/root"):
        if len(home) > 1:
            known.setdefault(home, "~")
    roots = sorted(known, key=len, reverse=True)
    pattern = re.compile("(?:" + "|".join(map(re.escape, roots)) + r")(?![\w.-])")

    def short(text: str) -> str:
        if "/" not in text:
            return text
        return _HOMES.sub("~", pattern.sub(lambda found: known[found.group()], text))

    return short


def _fit_to_show(document: dict[str, Any], short: Callable[[str], str]) -> dict[str, Any]:
    """Mask secrets and shorten paths in every text; where a file is (its `at`) stays, for links are made of it."""
    kept = [one["at"] for one in _every_file(document)]
    shown: dict[str, Any] = _shortened(masked(document), short)
    for one, at in zip(_every_file(shown), kept, strict=True):
        one["at"] = at
    return shown


def _files_of(stage: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*stage["texts"], *stage["others"], *stage["assets"]]


def _every_file(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    held = [one for stage in document["stages"] for one in _files_of(stage)]
    artifacts = [*document["artifacts"], *document["made_files"]]
    return held + [one["file"] for one in artifacts if one["file"] is not None]


def _shortened(value: Any, short: Callable[[str], str], most: int = _LONGEST) -> Any:
    if isinstance(value, str):
        told = short(value)
        return told if len(told) <= most else f"{told[:most]}…"
    if isinstance(value, dict):
        return {
            short(key)[:_LONGEST]: _shortened(child, short, _EXCERPT if key == "text" else _LONGEST)
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [_shortened(child, short) for child in value]
    return value


# ---- Files beside the page.


def files_of(document: Mapping[str, Any]) -> list[Source]:
    """Name every file that a report leads to."""
    there = [one for one in _every_file(document) if one.get("there", True)]
    return list(dict.fromkeys(map(_source, there)))


def _source(one: Mapping[str, Any]) -> Source:
    return Source(one.get("below") == artifact_facts.PROJECT, str(one["at"]))


def linked(document: Mapping[str, Any], links: Mapping[Source, str], said: str) -> dict[str, Any]:
    """Give the document with the links of its files. said: where they lead."""

    def with_link(one: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if one is None:
            return None
        href = links.get(_source(one))
        return {**one, "href": href} if href is not None else dict(one)

    stages = [
        {**stage, **{key: [with_link(one) for one in stage[key]] for key in ("texts", "others", "assets")}}
        for stage in document["stages"]
    ]
    told = {
        key: [{**one, "file": with_link(one["file"])} for one in document[key]] for key in ("artifacts", "made_files")
    }
    return {**document, **told, "stages": stages, "linked": {"files": len(links), "said": said}}
