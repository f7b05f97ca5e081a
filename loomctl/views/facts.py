"""What a report says of a run beside its log: sessions, savings, what waits, artifacts, stages with their files."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.changes import stage_changes
from loomctl.expressions import state_paths
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.quick_json import as_object, as_objects, as_texts
from loomctl.kit.text.fences import visible
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.priming import artifact_files, prove, receipts
from loomctl.reduction import history
from loomctl.runs import artifact_paths, command_runs, leases, stages
from loomctl.runs.artifact_paths import Roots, is_inside, locate, real
from loomctl.runs.model import frozen_plan, sessions, standing, visits
from loomctl.runs.tools import tool_log
from loomctl.workflows import routing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loomctl.priming.receipts import Compacted
    from loomctl.runs.project import Workspace
    from loomctl.runs.stages import Record
    from loomctl.runs.store.store import Run

    Fail = Callable[[LoomError | OSError], None]

RUN, PROJECT = "run", "project"
"""What a file's path is below: the run's folder, or the project's."""
_POINTS = 200  # of the line that savings are drawn with
_WELL = ("succeeded", "partially_succeeded")
_SIZED = ("json", "markdown", "directory")
_TOGETHER = 3_000_000  # characters of all excerpts
_LEAST, _MOST = 400, 8_000  # of one
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_READ = 1 << 16  # bytes of a file that are looked at for it
_FILES = 40  # files touched that are listed of one stage
_SHOWN = (stages.RESPONSE, stages.PROMPT, command_runs.LOG, stages.STATUS)
_UNTESTED = [{"kind": "command", "name": "the tests", "passed": False, "why": "no test command"}]
_NEVER = ".git"  # what is in it is git's, and may hold a password of a remote


def text(value: object) -> str:
    """Give a text, empty for what is none."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int | None:
    """Give a whole number; None for what is none."""
    return value if type(value) is int else None


# ---- Sessions.


def all_sessions(space: Workspace, run: Run, earlier: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give every session, those that went out of the state first, with the receipts that the log alone tells."""
    held = sessions.history(run.state)
    names = {record.get("session_id") for record in held}
    records = [*(one for one in earlier if one["session_id"] not in names), *held]
    known = prove.completed(run.folder, list(receipts.compactions(records)))
    told = iter(prove.with_pending(space, run.run_id, known))
    return [_session(one, islice(told, len(as_objects(one.get("compactions"))))) for one in records]


def _session(record: Mapping[str, Any], compactions: islice[Compacted]) -> dict[str, Any]:
    """Give a session's record without the folder that it worked in."""
    around = as_object(record.get("environment"))
    return {
        "session_id": str(record.get("session_id") or ""),
        **{key: text(record.get(key)) for key in ("host", "started_at", "ended_at", "end_reason", "last_activity")},
        **{key: text(around.get(key)) for key in ("hostname", "platform", "git_branch", "git_commit")},
        "dirty": around.get("dirty") if isinstance(around.get("dirty"), bool) else None,
        "resumes": number(record.get("resumes")) or 0,
        "phases_completed": as_texts(record.get("phases_completed")),
        "artifacts_loaded": as_texts(record.get("artifacts_loaded")),
        "compactions": [
            {"at": one.at, "trigger": one.trigger or "unknown trigger", "receipt": _receipt(one)} for one in compactions
        ],
    }


def _receipt(one: Compacted) -> dict[str, Any] | None:
    if one.receipt is None:
        return None
    return {"absent": [], **one.receipt.to_dict(), "pending": [*one.pending]}


def driver(space: Workspace, run: Run) -> dict[str, str] | None:
    """Give who drives a run, as `loomctl status` does: `session_id`, `hostname`, `since`; None where nobody may."""
    found = leases.document(space, run.run_id, run.state)
    return None if found is None else {key: str(found[key]) for key in ("session_id", "hostname", "since")}


# ---- Savings.


def savings(folder: str) -> dict[str, Any]:
    """Sum up what the reduction of tool steps saved, by tool, and as it grew: `[calls, before, after]`."""
    by_tool: dict[str, list[int]] = {}
    whole, grown = [0, 0, 0], [[0, 0, 0]]
    for step in tool_log.read(folder):
        if history.has_looms(step):  # its output stands in the run already
            continue
        for sums in (whole, by_tool.setdefault(step.tool_name, [0, 0, 0])):
            for at, more in enumerate((1, step.tokens_before, step.tokens_after)):
                sums[at] += more
        grown.append([*whole])
    every = max(1, -(-len(grown) // _POINTS))
    points = grown[::every] + ([grown[-1]] if (len(grown) - 1) % every else [])
    tools = [{"tool_name": name, **_sums(sums)} for name, sums in by_tool.items()]
    tools.sort(key=lambda one: (-one["tokens_before"], one["tool_name"]))
    return {"tools": tools, "all": _sums(whole), "over_time": points if whole[0] else []}


def _sums(sums: Sequence[int]) -> dict[str, Any]:
    return dict(zip(("steps", "tokens_before", "tokens_after"), sums, strict=True))


# ---- What needs somebody.


def approvals(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the decisions that a person is asked for, in the run and in its branches."""
    return [
        {"id": one.id, "reason": one.question, "at": one.since, "choices": [*one.choices]}
        for one in standing.asked(state)
    ]


def errors(state: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give what went wrong, as the run's state has it, and where it has nothing, as its failed stages do.

    mended: whether the step ended well since, or the run is completed.
    """
    told: list[dict[str, Any]] = []
    for one in state.get("errors") or ():
        raw = one if isinstance(one, dict) else {"message": one}
        where = next((str(raw[key]) for key in ("stage", "step_id", "step", "where") if raw.get(key)), "")
        said = next((str(raw[key]) for key in ("message", "failure_reason", "reason", "error") if raw.get(key)), "")
        told.append({"where": where, "type": text(raw.get("type")), "message": said or str(one)})
    known = {one["where"] for one in told}
    untold = [one for one in stages if one["status"] == "failed" and not known & {one["stage"], one["step_id"]}]
    told += [
        {"where": one["stage"], "type": "", "message": one["reason"] or "failed without a reason"} for one in untold
    ]
    is_mended = _mended(stages)
    return [{**one, "mended": state.get("status") == "completed" or is_mended(one["where"])} for one in told]


def _mended(stages: Sequence[Mapping[str, Any]]) -> Callable[[str], bool]:
    well = {one["step_id"]: one["rank"] for one in stages if one["status"] in _WELL}
    step_of = {one["stage"]: (one["step_id"], one["rank"]) for one in stages}
    last = {one["step_id"]: one["rank"] for one in stages if one["status"] == "failed"}

    def mended(where: str) -> bool:
        step_id, rank = step_of.get(where, (where, last.get(where, 0)))
        return bool(well.get(step_id, -1) > rank)

    return mended


# ---- Artifacts.


class Artifacts(NamedTuple):
    """The artifacts of a run. own: the store's folder, of which the run's alone is anybody's to see."""

    run: Run
    values: Mapping[str, str | None]
    roots: Roots
    own: str

    def critical(self, primings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Give each critical one: in which forms it was given, which one is in context, when; its file and size."""
        held = as_objects(as_object(self.run.state.get("context_metadata")).get("artifacts_in_context"))
        current = {str(one.get("artifact_id")): one for one in held}
        return [self._critical(one, current.get(str(one["id"]), {}), primings) for one in self.run.plan["artifacts"]]

    def _critical(
        self, one: Mapping[str, Any], now: Mapping[str, Any], primings: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        name = str(one["id"])
        given = [(priming["loaded"][name], priming) for priming in primings if name in priming["loaded"]]
        last = given[-1][1] if given else {"at": "", "event": ""}
        forms: dict[str, int] = {}
        for form, _ in given:
            forms[form] = forms.get(form, 0) + 1
        size, path = self._on_disk(one)
        return {
            "id": name,
            "type": text(one.get("type")),
            "description": text(one.get("description")),
            "required": one.get("required") is True,
            "forms": forms,
            "form": text(now.get("form")),
            "at": text(now.get("loaded_at")) or last["at"],
            "event": text(now.get("load_trigger")) or last["event"],
            "bytes": size,
            "file": self._file(path),
        }

    def _on_disk(self, one: Mapping[str, Any]) -> tuple[int | None, str]:
        """Give an artifact's size and its path, links followed; None and empty where it is no file, or is not here."""
        declared = one.get("path")
        if one.get("path_from_state"):
            steps = one.get("path_steps")
            declared = state_paths.read(steps, self.run.state) if steps is not None else None
        if one.get("type") not in _SIZED or not isinstance(declared, str) or not declared:
            return None, ""
        found = artifact_files.read(one, declared, self.values, self.roots)
        return found.bytes, found.absolute

    def made(self) -> list[dict[str, Any]]:
        """Give what the run registered: its name, the path as it was said, its file."""
        held = self.run.state["artifacts"].items()
        return [{"name": str(name), "path": str(path), "file": self._made_file(path)} for name, path in held]

    def _made_file(self, path: object) -> dict[str, str] | None:
        try:
            return self._file(locate(path, self.values, self.roots).path) if isinstance(path, str) else None
        except (LoomError, OSError):
            return None

    def _file(self, path: str) -> dict[str, str] | None:
        """Give where a file lies, by a path without links: `below` the run's folder or the project's, and `at`.

        None for what is no file, lies elsewhere, in git's folder, or in Loom's own for another run or this machine.
        """
        if not path or not os.path.isfile(path):
            return None
        run, project = real(self.roots.run_dir), real(self.roots.project)
        if is_inside(path, run):
            return {"below": RUN, "at": os.path.relpath(path, run)}
        if not is_inside(path, project) or is_inside(path, real(self.own)):
            return None
        at = os.path.relpath(path, project)
        return None if _NEVER in at.split(os.sep) else {"below": PROJECT, "at": at}


def artifacts(space: Workspace, run: Run) -> Artifacts:
    """Give the artifacts of a run, to be read."""
    recorded = tuple(sessions.roots(run.state))
    roots = Roots(space.project.root, run.folder, space.project.plugin_root, space.settings.extra_roots, recorded)
    return Artifacts(run, artifact_paths.placeholder_values(space.project, run), roots, space.project.store)


# ---- Stages.


def all_stages(run: Run, checked: Mapping[str, Any], fail: Fail) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Give every stage of a run, and every file that they touched.

    checked: the items of the last check of evidence, by stage, for those that did not end. fail: is told of what
    cannot be read; the rest is given.
    """
    entries = stages.entries(run)
    limit = max(_LEAST, min(_MOST, _TOGETHER // max(1, 2 * len(entries))))
    within, touched = _branches(run), _Touched()
    told = []
    for entry in entries:
        record, changes = _record(run, entry, fail), _changes(run, entry, fail)
        stage = record.stage
        evidence = record.section("evidence").get("items")
        touched.add(stage, changes.pop("touched"))
        told.append(
            {
                **_recorded(record),
                "branch": within.get(stage),
                "evidence": _evidence(
                    evidence
                    or (checked.get(stage) if entry["status"] in visits.OPEN else None)
                    or (_UNTESTED if _is_untested(run, entry) else None)
                ),
                **changes,
                **_texts(run, stage, limit, fail),
            }
        )
    return told, touched.sorted()


def _branches(run: Run) -> dict[str, dict[str, str]]:
    return {
        entry["stage"]: {"of": str(outer["step_id"]), "stage": str(outer.get("stage")), "id": str(branch["id"])}
        for outer in run.state["steps"]
        for branch in outer.get("branches", ())
        for entry in branch["steps"]
        if entry.get("stage")
    }


def _record(run: Run, entry: Mapping[str, Any], fail: Fail) -> Record:
    try:
        record = stages.of_visit(run, entry)
    except LoomError as error:
        record = stages.Record(entry, {}, error)
    if record.trouble is not None:
        fail(record.trouble)
    return record


def _recorded(record: Record) -> dict[str, Any]:
    entry, way = record.entry, record.of("next")
    branches = entry.get("branches", ())
    return {
        "stage": record.stage,
        "anchor": "stage-" + _NO_NAME.sub(".", record.stage),
        "step_id": str(entry["step_id"]),
        "phase": str(entry.get("phase") or ""),
        "visit": number(entry.get("visit")) or 1,
        "rank": number(entry.get("rank")) or 0,
        "status": str(entry["status"]),
        "started_at": text(entry.get("started_at")),
        "completed_at": text(entry.get("completed_at")),
        "seconds": record.seconds,
        "reason": record.reason,
        "branches": [
            {"id": str(one["id"]), "status": str(one["status"]), "reason": text(one.get("failure_reason"))}
            for one in branches
        ],
        "way": f"→ {text(way.get('step_id')) or 'end'} {routing.how(way)}".strip() if isinstance(way, dict) else "",
        "source": text(record.status.get("response_source")),
        "command": record.command,
        "attempt": number(entry.get("attempt")),
        "task": masked_line(visits.task_line(visits.task_of(entry)), 400),
        "repairs": record.repairs,
        "models": record.models,
        "tokens": dict(zip(("in", "out"), record.tokens, strict=True)) if record.tokens else None,
        "context": list(record.section("context_updates"))[:20],
        "trouble": record.trouble.what if record.trouble else "",
    }


def _is_untested(run: Run, entry: Mapping[str, Any]) -> bool:
    return entry["status"] in _WELL and frozen_plan.is_untested(run.plan, str(entry["step_id"]))


def _evidence(items: object) -> list[dict[str, Any]]:
    keys = ("name", "kind", "sha256", "why")
    return [
        {"passed": one.get("passed") is True, **{key: text(one.get(key)) for key in keys}} for one in as_objects(items)
    ]


def _changes(run: Run, entry: Mapping[str, Any], fail: Fail) -> dict[str, Any]:
    try:
        told = stage_changes.of_visit(run, entry)
    except (LoomError, OSError) as error:
        fail(error)
        return {"files": [], "files_total": 0, "files_unknown": "", "assets": [], "passed_over": [], "touched": []}
    touched = [_change(one) for one in told.files]
    return {
        "files": touched[:_FILES],
        "touched": touched,
        "files_total": told.total,
        "files_unknown": told.unknown_line,
        "assets": [
            {"path": one.path, "bytes": number(one.bytes) or 0, "there": one.there, "at": one.stored}
            for one in told.assets
        ],
        "passed_over": [{"path": one.path, "reason": one.reason} for one in told.passed_over],
    }


def _change(one: Mapping[str, Any]) -> dict[str, Any]:
    """Give a file that was touched: its path, how it was changed, and by how many lines where that is known."""
    counts = {key: number(one.get(key)) for key in ("added", "removed")}
    return {"path": str(one["path"]), "change": text(one.get("change")) or "by a tool", **counts}


class _Touched:
    """Every file that stages touched once, with the stages; the last change counts."""

    def __init__(self) -> None:
        self._by_path: dict[str, dict[str, Any]] = {}

    def add(self, stage: str, files: Sequence[dict[str, Any]]) -> None:
        for one in files:
            before = self._by_path.get(one["path"], {"stages": [], "added": None, "removed": None})
            now = {**one, "stages": [*before["stages"], stage]}
            if one["added"] is not None and before["added"] is not None:
                now |= {key: (one[key] or 0) + (before[key] or 0) for key in ("added", "removed")}
            self._by_path[one["path"]] = now

    def sorted(self) -> list[dict[str, Any]]:
        return [self._by_path[path] for path in sorted(self._by_path)]


def _texts(run: Run, stage: str, limit: int, fail: Fail) -> dict[str, list[dict[str, Any]]]:
    """Give the beginnings of a stage's files, of a command's log the end; and name the other files."""
    try:
        folder = stages.folder(run.folder, stage)
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        names = []
    except (LoomError, OSError) as error:
        fail(error)
        names = []
    repairs = [name for name in names if name.startswith(stages.REPAIRED)]
    wanted = [name for name in (*_SHOWN, *repairs) if name in names]
    told = []
    for name in wanted:
        try:
            told.append(_excerpt(os.path.join(folder, name), f"stages/{stage}/{name}", limit))
        except OSError as error:
            fail(error)
    apart = {*wanted, command_runs.LOCK}
    others = [name for name in names if name not in apart and not name.startswith(".") and ".tmp" not in name]
    return {"texts": told, "others": [{"name": name, "at": f"stages/{stage}/{name}"} for name in others]}


def _excerpt(path: str, relative: str, limit: int) -> dict[str, Any]:
    """Give the part of a file that is shown; secrets are masked in more than that, so that none is cut in two."""
    name = os.path.basename(path)
    is_log = name == command_runs.LOG
    raw, size = _part(path, is_log=is_log)
    shown = mask(visible(raw))[0]
    cut = "" if size <= _READ and len(shown) <= limit else "end" if is_log else "begin"
    if cut:
        shown = _at_lines(shown, limit, is_log=is_log)
    return {"name": name, "at": relative, "bytes": size, "text": shown, "cut": cut}


def _part(path: str, *, is_log: bool) -> tuple[str, int]:
    descriptor = files.open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        if is_log and size > _READ:
            os.lseek(descriptor, size - _READ, os.SEEK_SET)
        return files.text_of(files.read_up_to(descriptor, _READ), "replace"), size
    finally:
        os.close(descriptor)


def _at_lines(text: str, limit: int, *, is_log: bool) -> str:
    if is_log:
        part = text[-limit:]
        at = part.find("\n")
        return part[at + 1 :] if 0 <= at < len(part) // 2 else part
    part = text[:limit]
    at = part.rfind("\n")
    return part[:at] if at > len(part) // 2 else part


def phases(run: Run) -> list[dict[str, Any]]:
    """Give the plan's phases with their steps, and how each phase stands. Omit the steps that Loom performs itself."""
    steps: dict[str, list[dict[str, Any]]] = {}
    parallel = ""
    for place in frozen_plan.with_branches(run.plan):
        inner = bool(parallel) and place.key.startswith(f"{parallel}.")
        parallel = place.key if place.step.get("parallel") else parallel
        if place.step.get("engine"):
            continue
        told = {"key": place.key, "name": text(place.step.get("name")), "inner": inner}
        steps.setdefault(str(place.phase["id"]), []).append(told)
    known = as_object(run.state.get("phases"))
    names = [*(str(phase["id"]) for phase in run.plan["phases"]), *(name for name in known if name not in steps)]
    return [
        {
            "id": name,
            "steps": steps.get(name, []),
            **{key: text(as_object(known.get(name)).get(key)) for key in ("status", "started_at", "completed_at")},
        }
        for name in dict.fromkeys(names)
    ]


def progress(run: Run) -> dict[str, int]:
    """Count the plan's steps and how many need no more work, as the status line does: branches and primings apart."""
    phases = stages.progress(run)
    return {name: sum(phase[name] for phase in phases) for name in ("done", "steps")}
