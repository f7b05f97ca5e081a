"""The stages of a run as a report holds them: what is on record of each, the beginnings of its files (D39-D41)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from loomctl.changes import stage_changes
from loomctl.kit.errors import LoomError
from loomctl.kit.text.fences import visible
from loomctl.kit.text.secrets import mask
from loomctl.runs import run_progress, stage_records, stages
from loomctl.runs.commands import command_files
from loomctl.runs.model import places, visits
from loomctl.views.report import report_files
from loomctl.workflows.model import ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loomctl.runs.stage_records import Record
    from loomctl.runs.store.store import Run

_TOGETHER = 3_000_000  # characters of all excerpts
_LEAST, _MOST = 400, 8_000  # of one
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_READ = 1 << 16  # bytes of a file that are looked at for it
_FILES = 40  # files touched that are listed of one stage
_SHOWN = (stages.RESPONSE, stages.PROMPT, command_files.LOG, stages.STATUS)


def all_of(run: Run, fail: Callable[[LoomError | OSError], None]) -> list[dict[str, Any]]:
    """Give every stage of a run. fail: is told of what cannot be read; the rest is given."""
    entries = stage_records.entries(run)
    limit = max(_LEAST, min(_MOST, _TOGETHER // max(1, 2 * len(entries))))
    within = _branches(run)
    return [_stage(run, entry, within.get(entry["stage"]), limit, fail) for entry in entries]


def _branches(run: Run) -> dict[str, dict[str, str]]:
    """Say of each stage in a branch which one that is."""
    return {
        entry["stage"]: {"of": str(outer["step_id"]), "stage": str(outer.get("stage")), "id": str(branch["id"])}
        for outer in run.state["steps"]
        for branch in outer.get("branches", ())
        for entry in branch["steps"]
        if entry.get("stage")
    }


def _stage(
    run: Run,
    entry: Mapping[str, Any],
    branch: dict[str, str] | None,
    limit: int,
    fail: Callable[[LoomError | OSError], None],
) -> dict[str, Any]:
    record = _record(run, entry, fail)
    changes = _changes(run, entry, fail)
    way = record.of("next")
    return {
        "stage": record.stage,
        "anchor": "stage-" + _NO_NAME.sub(".", record.stage),
        "step_id": str(entry["step_id"]),
        "phase": str(entry.get("phase") or ""),
        "visit": _number(entry.get("visit")) or 1,
        "rank": _number(entry.get("rank")) or 0,
        "status": str(entry["status"]),
        "started_at": _text(entry.get("started_at")),
        "completed_at": _text(entry.get("completed_at")),
        "seconds": record.seconds,
        "reason": record.reason,
        "branch": branch,
        "branches": [_branch(one) for one in entry.get("branches", ())],
        "way": _way(way) if isinstance(way, dict) else "",
        "source": _text(record.status.get("response_source")),
        "command": record.command,
        "attempt": _number(entry.get("attempt")),
        "repairs": record.repairs,
        "models": record.models,
        "tokens": dict(zip(("in", "out"), record.tokens, strict=True)) if record.tokens else None,
        "context": list(record.section("context_updates"))[:20],
        "evidence": _evidence(record.section("evidence").get("items")),
        "trouble": record.trouble.what if record.trouble else "",
        **changes,
        **_texts(run, record.stage, limit, fail),
    }


def _record(run: Run, entry: Mapping[str, Any], fail: Callable[[LoomError | OSError], None]) -> Record:
    try:
        record = stage_records.of_visit(run, entry)
    except LoomError as error:
        record = stage_records.Record(entry, {}, error)
    if record.trouble is not None:
        fail(record.trouble)
    return record


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if type(value) is int else None


def _branch(one: Mapping[str, Any]) -> dict[str, str]:
    return {"id": str(one["id"]), "status": str(one["status"]), "reason": _text(one.get("failure_reason"))}


def _way(way: Mapping[str, Any]) -> str:
    return f"→ {_text(way.get('step_id')) or 'end'} {ways.how(way)}".strip()


def with_evidence(told: Sequence[dict[str, Any]], checked: Mapping[str, Any]) -> None:
    """Give stages that did not end what the last check of their evidence found. checked: its items, by stage."""
    for one in told:
        if not one["evidence"] and one["status"] in visits.OPEN:
            one["evidence"] = _evidence(checked.get(one["stage"]))


def _evidence(items: object) -> list[dict[str, Any]]:
    """Give the evidence that the engine checked; none where a step declares none."""
    return [
        {
            "name": _text(one.get("name")),
            "kind": _text(one.get("kind")),
            "passed": one.get("passed") is True,
            "sha256": _text(one.get("sha256")),
            "why": _text(one.get("why")),
        }
        for one in (items if isinstance(items, list) else ())
        if isinstance(one, dict)
    ]


def _changes(run: Run, entry: Mapping[str, Any], fail: Callable[[LoomError | OSError], None]) -> dict[str, Any]:
    try:
        told = stage_changes.of_visit(run, entry)
    except (LoomError, OSError) as error:
        fail(error)
        return {"files": [], "files_total": 0, "assets": [], "passed_over": [], "touched": []}
    return {
        "files": [touched(one) for one in told.files[:_FILES]],
        "touched": [touched(one) for one in told.files],
        "files_total": told.total,
        "assets": [
            {"path": one.path, "bytes": _number(one.bytes) or 0, "there": one.there, "at": one.stored}
            for one in told.assets
        ],
        "passed_over": [{"path": one.path, "reason": one.reason} for one in told.passed_over],
    }


def touched(one: Mapping[str, Any]) -> dict[str, Any]:
    """Give a file that was touched: its path, how it was changed, and by how many lines where that is known."""
    return {
        "path": str(one["path"]),
        "change": _text(one.get("change")) or "by a tool",
        "added": _number(one.get("added")),
        "removed": _number(one.get("removed")),
    }


def _texts(
    run: Run, stage: str, limit: int, fail: Callable[[LoomError | OSError], None]
) -> dict[str, list[dict[str, Any]]]:
    """Give the beginnings of a stage's files, of a command's log the end; and name the other files."""
    try:
        folder = stages.folder(run.folder, stage)
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return {"texts": [], "others": []}
    except (LoomError, OSError) as error:
        fail(error)
        return {"texts": [], "others": []}
    repairs = [name for name in names if name.startswith(stages.REPAIRED)]
    wanted = [name for name in (*_SHOWN, *repairs) if name in names]
    told = []
    for name in wanted:
        try:
            told.append(_excerpt(os.path.join(folder, name), f"stages/{stage}/{name}", limit))
        except OSError as error:
            fail(error)
    apart = {*wanted, command_files.LOCK}
    hidden = [name for name in names if name not in apart and not name.startswith(".") and ".tmp" not in name]
    others = [{"name": name, "at": f"stages/{stage}/{name}"} for name in hidden]
    return {"texts": told, "others": others}


def _excerpt(path: str, relative: str, limit: int) -> dict[str, Any]:
    """Give the part of a file that is shown; secrets are masked in more than that, so that none is cut in two."""
    name = os.path.basename(path)
    tail = name == command_files.LOG
    raw, size = report_files.excerpt(path, _READ, tail=tail)
    text = mask(visible(raw))[0]
    whole = size <= _READ and len(text) <= limit
    shown = text if whole else _at_lines(text, limit, tail=tail)
    cut = "" if whole else "end" if tail else "begin"
    return {"name": name, "at": relative, "bytes": size, "text": shown, "cut": cut}


def _at_lines(text: str, limit: int, *, tail: bool) -> str:
    """Cut a text between two lines, or within one that is longer than all of it."""
    if tail:
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
    for place in places.with_branches(run.plan):
        inner = bool(parallel) and place.key.startswith(f"{parallel}.")
        parallel = place.key if place.step.get("parallel") else parallel
        told = {"key": place.key, "name": _text(place.step.get("name")), "inner": inner}
        steps.setdefault(str(place.phase["id"]), []).append(told)
    held = run.state.get("phases")
    known = held if isinstance(held, dict) else {}
    names = [*(str(phase["id"]) for phase in run.plan["phases"]), *(name for name in known if name not in steps)]
    return [
        {
            "id": name,
            "steps": steps.get(name, []),
            **{key: _text(_of(known, name).get(key)) for key in ("status", "started_at", "completed_at")},
        }
        for name in dict.fromkeys(names)
    ]


def _of(known: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = known.get(name)
    return found if isinstance(found, dict) else {}


def progress(run: Run) -> dict[str, int]:
    """Count the plan's steps and how many need no more work, as the status line does: branches and primings apart."""
    phases = run_progress.progress(run)
    return {name: sum(phase[name] for phase in phases) for name in ("done", "steps")}


def files_of(told: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Give every file that stages touched once, with the stages; the last change counts."""
    by_path: dict[str, dict[str, Any]] = {}
    for stage in told:
        for one in stage["touched"]:
            before = by_path.get(one["path"])
            listed = [*before["stages"], stage["stage"]] if before else [stage["stage"]]
            by_path[one["path"]] = {**one, "stages": listed}
            if before and one["added"] is not None and before["added"] is not None:
                by_path[one["path"]]["added"] += before["added"]
                by_path[one["path"]]["removed"] = (one["removed"] or 0) + (before["removed"] or 0)
    yield from (by_path[path] for path in sorted(by_path))
