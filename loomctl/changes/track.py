"""Which files a stage touched and which assets its commands left, from its beginning to its end (D39, D40)."""

from __future__ import annotations

import os

from loomctl.changes import asset_files, baselines, elsewhere, own_reports, working_tree
from loomctl.kit import clock, digests, files, git, ids, machine
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.counts import counted
from loomctl.runs import stages
from loomctl.runs.model import places, visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from loomctl.changes import tool_files
    from loomctl.changes.working_tree import Change, Changes
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

CHANGES, PATCH = stages.CHANGED
MOST = 1000  # names of files that a stage's outcome lists
_MOST_KEPT = 10_000  # that its own record lists


class Tracked(NamedTuple):
    """What came of a stage.

    files: what it touched, relative to the project root (outside of the checkout: absolute), sorted, at most `MOST` of
    `total`; unknown: why only tool calls are known, else empty; assets: `{path, bytes, sha256, stored}`; patch: whether
    `changes.patch` stands in its folder; warnings: what is known less well than it looks; passed_over: assets that were
    not captured, `{path, bytes, reason}`; unwritten: the files and the patch that `write` is to write.
    """

    files: list[str]
    unknown: str
    assets: list[dict[str, Any]]
    patch: bool
    warnings: list[str]
    total: int = 0
    passed_over: Sequence[dict[str, Any]] = ()
    unwritten: tuple[list[dict[str, Any]], bytes | None] | None = None


def begin(space: Workspace, run: Run, entry: Mapping[str, Any]) -> None:
    """Note what the checkout and its assets are as a visit begins, or the command of one (D40).

    Raises nothing: what could not be noted is said at the visit's end. entry: the visit as the state has it; one
    without a stage, the engine's own, is passed over.
    """
    stage = entry.get("stage")
    if not isinstance(stage, str):
        return
    try:
        beside = visits.seen_from(run.state).open
        _begin(space, run.run_id, stage, elsewhere.folder(space, run, entry), beside)
    except Exception:  # noqa: BLE001, S110 - whatever it is, no step is held up by it
        pass


def _begin(space: Workspace, run_id: str, stage: str, workdir: str | None, beside: Sequence[str]) -> None:
    local = space.store.local
    own = baselines.begin(local, run_id, stage)
    baselines.keep_two(local, run_id, stage, beside)
    ours = own_reports.standing(local)
    assets = asset_files.without(asset_files.look(space.project.root), space.project.root, ours)
    noted: dict[str, Any] = {
        "schema_version": 1,
        "stage": stage,
        "machine": machine.hostname(),
        "root": space.project.root,
        "at": os.lstat(own).st_ctime_ns,
        "assets": {"found": assets.found, "why_not_all": assets.why_not_all},
    }
    try:
        noted["tree"] = working_tree.note(space.project.root, own, ours).to_dict()
    except working_tree.Unknown as error:
        noted["why"] = str(error)
    except (OSError, LoomError) as error:
        noted["why"] = _said(error)
    if workdir is not None:
        noted["workdir"] = elsewhere.begin(space, workdir, own)
    baselines.write(local, run_id, stage, noted)


def ended(space: Workspace, run: Run, entry: Mapping[str, Any]) -> Tracked:
    """Tell what a visit touched and left, for `write`. Raises nothing.

    The baseline stays until the next but one stage begins: a step that an undo takes up again is told whole (D31).
    """
    stage = entry.get("stage")
    if not isinstance(stage, str):
        return Tracked([], "", [], patch=False, warnings=[])
    try:
        return _ended(space, run, entry, stage)
    except Exception as error:  # noqa: BLE001 - whatever it is, no step is kept from ending by it
        return Tracked([], f"it could not be told: {_said(error)}", [], patch=False, warnings=[])


def _ended(space: Workspace, run: Run, entry: Mapping[str, Any], stage: str) -> Tracked:
    root = space.project.root
    warnings: list[str] = []
    is_command = _is_command(run, entry)
    if is_command and not _began(run, stage):
        return Tracked([], "", [], patch=False, warnings=[])  # it was ended by hand before it began
    from loomctl.changes import tool_files  # a visit's beginning asks for none

    # What an assistant does while a command waits or runs is none of the command's.
    started_at = str(entry.get("started_at") or "")
    told = tool_files.Told(set(), ran=True) if is_command else tool_files.of_stage(run.folder, stage, started_at)
    waiting = 0 if is_command else tool_files.waiting(space, run.run_id)
    if waiting:
        warnings.append(f"not recorded yet: {counted(waiting, 'tool call')}, so that files may be missing")
    baseline = baselines.read(space.store.local, run.run_id, stage)
    changes, unknown = _changes(space, run.run_id, stage, baseline)
    workdir = elsewhere.folder(space, run, entry)
    touched = _touched(space, told, changes, workdir)
    if workdir is not None:
        unknown = "; ".join(filter(None, (unknown, _of_workdir(space, run, stage, baseline, workdir, touched))))
    by_time = [change.path for change in changes.entries if change.by_time] if changes is not None else []
    if changes is not None and changes.entries and visits.is_branch(run.state):
        warnings.append("the branches of a parallel step work in one folder: some of the files may be another's")
    if by_time:
        warnings.append(f"told by size and time alone, for they are large: {asset_files.named(by_time)}")
    if changes is not None and changes.why_none:
        warnings.append(f"there is no {PATCH}: {changes.why_none}")
    collected = asset_files.Collected((), ())
    if told.ran or waiting:
        ours = own_reports.standing(space.store.local)
        collected = _assets(run, entry, root, baseline, warnings, ours)
        if workdir is not None:
            there = _assets(run, entry, workdir, _noted_of(baseline, "workdir"), warnings, ours, elsewhere.NAMED)
            collected = collected.and_of(there)
    names = sorted(touched)
    if len(names) > MOST:
        warnings.append(f"{len(names):,} files were touched; the first {MOST:,} are listed")
    patch = changes.patch if changes is not None else None
    assets, passed_over = ([one._asdict() for one in some] for some in (collected.assets, collected.passed_over))
    found = Tracked(names[:MOST], unknown, assets, patch is not None, warnings, len(names), tuple(passed_over))
    return found._replace(unwritten=([touched[name] for name in names[:_MOST_KEPT]], patch))


def write(run: Run, stage: str, found: Tracked) -> tuple[Tracked, dict[str, str]]:
    """Write what came of a stage into its folder; gives it as it is then, and the hashes of its files by name.

    The caller holds the run's lock: who was about to end the same stage writes nothing behind it. Raises nothing.
    """
    if found.unwritten is None:
        return found, {}
    told = found._replace(unwritten=None)
    try:
        return told, _write(run, stage, told, *found.unwritten)
    except (OSError, LoomError) as error:
        why = f"what changed could not be written: {_said(error)}"
        return told._replace(patch=False, warnings=[*told.warnings, why]), {}


def _touched(
    space: Workspace, told: tool_files.Told, changes: working_tree.Changes | None, workdir: str | None
) -> dict[str, dict[str, Any]]:
    """Give what tool calls and git tell of the project, by path, each with who told of it."""
    root = space.project.root
    top = git.top_of(root) or root
    touched: dict[str, dict[str, Any]] = {}
    for path in told.paths:
        shown = _shown(space, top, path, workdir)
        if shown is not None:
            touched[shown] = {"path": shown, "by": ["tools"]}
    for change in changes.entries if changes is not None else ():
        shown = os.path.relpath(os.path.join(top, change.path), root)
        known = touched.setdefault(shown, {"path": shown, "by": []})
        known.update(_described(change), by=[*known["by"], "git"])
    return touched


def _of_workdir(
    space: Workspace,
    run: Run,
    stage: str,
    baseline: Mapping[str, Any] | None,
    workdir: str,
    touched: dict[str, dict[str, Any]],
) -> str:
    """Add what git says of a workdir outside of the project; gives why that is unknown, else nothing."""
    own = baselines.git_folder(space.store.local, run.run_id, stage)
    ours = own_reports.standing(space.store.local)
    changes, unknown = elsewhere.changes(workdir, _noted_of(baseline, "workdir"), own, ours)
    for change in changes.entries if changes is not None else ():
        shown = elsewhere.name(workdir, change.path)
        known = touched.setdefault(shown, {"path": shown, "by": []})
        known.update(_described(change), by=[*known["by"], "git"])
    return unknown


def _noted_of(baseline: Mapping[str, Any] | None, part: str) -> dict[str, Any] | None:
    """Give a part of a baseline, with what is said of all of it."""
    found = (baseline or {}).get(part)
    if baseline is None or not isinstance(found, dict):
        return None
    return {**{key: baseline.get(key) for key in ("machine", "at")}, **found}


def _described(change: Change) -> dict[str, Any]:
    counted = {"added": change.added, "removed": change.removed} if change.added is not None else {}
    return {"change": change.kind, **counted, **({"by_time": True} if change.by_time else {})}


def _write(run: Run, stage: str, found: Tracked, kept: list[dict[str, Any]], patch: bytes | None) -> dict[str, str]:
    """Write a stage's own record and its patch; a patch of an end that was undone goes (D31). Raises OSError."""
    folder = stages.folder(run.folder, stage)
    files.make_folder(folder, mode=0o755)
    path = os.path.join(folder, PATCH)
    if patch is None:
        files.remove(path)
    else:
        files.write_atomically(path, patch)
    record = {
        "schema_version": 1,
        "run_id": run.run_id,
        "stage": stage,
        "files": kept,
        "count": found.total,
        "files_unknown": found.unknown,
        "patch": PATCH if found.patch else None,
        "assets": found.assets,
        "assets_passed_over": list(found.passed_over),
        "warnings": found.warnings,
    }
    files.write_atomically(os.path.join(folder, CHANGES), files.to_json(record))
    hashes = {CHANGES: stages.sha256_of_json(record)}
    return {**hashes, PATCH: digests.of_bytes(patch)} if patch is not None else hashes


def began_at(space: Workspace, run: Run, entry: Mapping[str, Any]) -> int:
    """Give when a visit began, in nanoseconds since 1970; to the second where this machine noted nothing then."""
    baseline = baselines.read(space.store.local, run.run_id, str(entry.get("stage"))) or {}
    noted = baseline.get("at")
    if baseline.get("stage") == entry.get("stage") and type(noted) is int:
        return noted
    return clock.seconds_of(str(entry.get("started_at") or "")) * 1_000_000_000


def last_written(space: Workspace, run: Run, entry: Mapping[str, Any]) -> str | None:
    """Give the absolute path of the file that a file tool wrote last in a visit; None where none did, or it is gone."""
    from loomctl.changes import tool_files

    path = tool_files.last_written(run.folder, str(entry.get("stage")), str(entry.get("started_at") or ""))
    return os.path.normpath(os.path.join(space.project.root, path)) if path and "\0" not in path else None


# ---- What git says.


def _changes(
    space: Workspace, run_id: str, stage: str, baseline: Mapping[str, Any] | None
) -> tuple[Changes | None, str]:
    """Give what changed by content since the stage began, or why that is unknown."""
    if baseline is None or baseline.get("stage") != stage:
        return None, "on this machine nothing was noted when the step began"
    if baseline.get("machine") != machine.hostname():
        return None, "the step began on another machine"
    if "tree" not in baseline:
        return None, str(baseline.get("why") or "when the step began git could not tell")
    own = baselines.git_folder(space.store.local, run_id, stage)
    try:
        before = working_tree.Moment.from_dict(baseline["tree"])
        return working_tree.since(space.project.root, own, before, own_reports.standing(space.store.local)), ""
    except working_tree.Unknown as error:
        return None, str(error)
    except (OSError, LoomError) as error:
        return None, _said(error)


def _shown(space: Workspace, top: str, path: str, workdir: str | None) -> str | None:
    """Give a path relative to the project root, absolute outside of the checkout; None for what Loom keeps itself.

    Below a workdir that lies outside of the project it counts from there.
    """
    root = space.project.root
    if "\0" in path:
        return None
    whole = os.path.normpath(os.path.join(root, path))
    whole = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
    inside = any(_is_below(whole, folder) for folder in (root, top))
    if _is_below(whole, os.path.realpath(space.store.folder)):
        return None
    if not inside:
        return elsewhere.name_of(workdir, whole) or whole
    return None if working_tree.is_ours(os.path.relpath(whole, top)) else os.path.relpath(whole, root)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


# ---- What commands left.


def _began(run: Run, stage: str) -> bool:
    from loomctl.runs import command_runs  # a session's start ends no command

    return os.path.lexists(os.path.join(stages.folder(run.folder, stage), command_runs.RECORD))


def _is_command(run: Run, entry: Mapping[str, Any]) -> bool:
    place = places.place_of(run.plan, str(entry.get("step_id")))
    return place is not None and place.step.get("kind") == "command"


def _assets(
    run: Run,
    entry: Mapping[str, Any],
    root: str,
    baseline: Mapping[str, Any] | None,
    warnings: list[str],
    ours: Collection[str],
    named: str = "",
) -> asset_files.Collected:
    """Capture the assets that are new or changed since the stage began; adds to `warnings` what could not be.

    ours: real paths of Loom's own reports; named: what paths begin with that do not count from the project.
    """
    before = _look_of(baseline, root)
    if before is None:
        why = "on this machine nothing was noted when the step began"
        if named and baseline is not None:
            why = str(baseline.get("why") or why)
        where = " in the step's workdir" if named else ""
        warnings.append(f"no assets are captured{where}: {why}")
        return asset_files.Collected((), ())
    after = asset_files.without(asset_files.look(root), root, ours)
    why = after.why_not_all or before.why_not_all
    if why:
        warnings.append(f"not every asset may be captured: {why}")
    fresh = asset_files.fresh(before, after, at=int((baseline or {})["at"]))
    folder = f"{ids.step_slug(str(entry['step_id']))}/retry_{int(entry['visit'])}{'.workdir' if named else ''}"
    collected = asset_files.collect(root, fresh, run.folder, folder)
    warnings += collected.warnings
    return collected.named(named)


def _look_of(baseline: Mapping[str, Any] | None, root: str) -> asset_files.Look | None:
    """Read the walk at a stage's beginning; None where there was none here."""
    if baseline is None or (baseline.get("machine"), baseline.get("root")) != (machine.hostname(), root):
        return None
    try:
        int(baseline["at"])
        found = {str(path): (int(size), int(at)) for path, (size, at) in baseline["assets"]["found"].items()}
        return asset_files.Look(found, str(baseline["assets"]["why_not_all"]))
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    return error.what if isinstance(error, LoomError) else f"{type(error).__name__}: {error}"
