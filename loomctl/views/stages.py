"""The stages of a run as a report holds them: what is on record of each, the beginnings of its files (D39-D41)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from loomctl.changes import stage_changes
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import visible
from loomctl.kit.text.secrets import mask
from loomctl.runs import command_runs, stage_records, stages
from loomctl.runs.model import frozen_plan, visits
from loomctl.views.facts import number, objects, section, text
from loomctl.workflows.model import ways

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loomctl.runs.stage_records import Record
    from loomctl.runs.store.store import Run

    Fail = Callable[[LoomError | OSError], None]

_TOGETHER = 3_000_000  # characters of all excerpts
_LEAST, _MOST = 400, 8_000  # of one
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_READ = 1 << 16  # bytes of a file that are looked at for it
_FILES = 40  # files touched that are listed of one stage
_SHOWN = (stages.RESPONSE, stages.PROMPT, command_runs.LOG, stages.STATUS)


def all_of(run: Run, checked: Mapping[str, Any], fail: Fail) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Give every stage of a run, and every file that they touched.

    checked: the items of the last check of evidence, by stage, for those that did not end. fail: is told of what
    cannot be read; the rest is given.
    """
    entries = stage_records.entries(run)
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
                "evidence": _evidence(evidence or (checked.get(stage) if entry["status"] in visits.OPEN else None)),
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
        record = stage_records.of_visit(run, entry)
    except LoomError as error:
        record = stage_records.Record(entry, {}, error)
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
        "way": f"→ {text(way.get('step_id')) or 'end'} {ways.how(way)}".strip() if isinstance(way, dict) else "",
        "source": text(record.status.get("response_source")),
        "command": record.command,
        "attempt": number(entry.get("attempt")),
        "repairs": record.repairs,
        "models": record.models,
        "tokens": dict(zip(("in", "out"), record.tokens, strict=True)) if record.tokens else None,
        "context": list(record.section("context_updates"))[:20],
        "trouble": record.trouble.what if record.trouble else "",
    }


def _evidence(items: object) -> list[dict[str, Any]]:
    keys = ("name", "kind", "sha256", "why")
    return [
        {"passed": one.get("passed") is True, **{key: text(one.get(key)) for key in keys}} for one in objects(items)
    ]


def _changes(run: Run, entry: Mapping[str, Any], fail: Fail) -> dict[str, Any]:
    try:
        told = stage_changes.of_visit(run, entry)
    except (LoomError, OSError) as error:
        fail(error)
        return {"files": [], "files_total": 0, "assets": [], "passed_over": [], "touched": []}
    touched = [_change(one) for one in told.files]
    return {
        "files": touched[:_FILES],
        "touched": touched,
        "files_total": told.total,
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
    """Give the plan's phases with their steps, and how each phase stands."""
    steps: dict[str, list[dict[str, Any]]] = {}
    parallel = ""
    for place in frozen_plan.with_branches(run.plan):
        inner = bool(parallel) and place.key.startswith(f"{parallel}.")
        parallel = place.key if place.step.get("parallel") else parallel
        told = {"key": place.key, "name": text(place.step.get("name")), "inner": inner}
        steps.setdefault(str(place.phase["id"]), []).append(told)
    known = section(run.state, "phases")
    names = [*(str(phase["id"]) for phase in run.plan["phases"]), *(name for name in known if name not in steps)]
    return [
        {
            "id": name,
            "steps": steps.get(name, []),
            **{key: text(section(known, name).get(key)) for key in ("status", "started_at", "completed_at")},
        }
        for name in dict.fromkeys(names)
    ]


def progress(run: Run) -> dict[str, int]:
    """Count the plan's steps and how many need no more work, as the status line does: branches and primings apart."""
    phases = stage_records.progress(run)
    return {name: sum(phase[name] for phase in phases) for name in ("done", "steps")}
