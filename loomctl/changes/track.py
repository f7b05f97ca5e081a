"""Which files a stage touched and which assets its commands left, from its beginning to its end (D39, D40).

A step whose workdir lies outside of the project is told of there as here: by git, where the folder is in a repository,
and by a walk for assets. Its names begin with `{workdir}/`.
"""

from __future__ import annotations

import os

from loomctl.changes import asset_files, evidence_files, working_tree
from loomctl.kit import clock, digests, files, git, ids, machine
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import counted
from loomctl.runs import artifact_paths, stages
from loomctl.runs.artifact_paths import is_inside, real
from loomctl.runs.model import frozen_plan, visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.changes.working_tree import Change, Changes
    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

CHANGES, PATCH = stages.CHANGED
MOST = 1000  # names of files that a stage's outcome lists
NAMED = "{workdir}/"
_MOST_KEPT = 10_000  # that its own record lists
_WORKDIR = "workdir"
_IN_WORKDIR = "in the step's workdir: "
_NOT_NOTED = "this machine has no snapshot from the start of the step"
_OLDER = 200  # steps of other stages in a row, from before a stage began, after which none of its own follows


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


class _Place(NamedTuple):
    """A folder that is told of: the project, or a workdir outside of it. named: what its files' names begin with.

    own: the stage's folder for git's view of it; noted: of its baseline, with machine and time; why: in its place.
    """

    root: str
    own: str
    noted: Mapping[str, Any]
    why: str = ""
    named: str = ""


# ---- A stage begins.


def begin(space: Workspace, run: Run, entry: Mapping[str, Any]) -> None:
    """Note what the checkout and its assets are as a visit begins, or the command of one (D40).

    Raises nothing: what could not be noted is said at the visit's end. entry: the visit as the state has it; one
    without a stage, the engine's own, is passed over.
    """
    stage = entry.get("stage")
    if not isinstance(stage, str):
        return
    try:
        _begin(space, run, entry, stage)
    except Exception:  # noqa: BLE001, S110 - whatever it is, no step is held up by it
        pass


def _begin(space: Workspace, run: Run, entry: Mapping[str, Any], stage: str) -> None:
    local, root = space.store.local, space.project.root
    beside = visits.seen_from(run.state).open
    workdir = _workdir(space, run, entry)
    own = working_tree.begin_baseline(local, run.run_id, stage)
    working_tree.keep_two_baselines(local, run.run_id, stage, beside)
    ours = evidence_files.own_reports(local)
    noted: dict[str, Any] = {
        "schema_version": 1,
        "stage": stage,
        "machine": machine.hostname(),
        "root": root,
        "at": os.lstat(own).st_ctime_ns,
        **_assets_noted(root, ours),
        **_tree_noted(root, own, ours),
    }
    if workdir is not None:
        noted[_WORKDIR] = _workdir_noted(space, workdir, os.path.join(own, _WORKDIR), ours)
    working_tree.write_baseline(local, run.run_id, stage, noted)


def _assets_noted(root: str, ours: Collection[str]) -> dict[str, Any]:
    looked = asset_files.look(root, ours)
    return {"assets": {"found": looked.found, "why_not_all": looked.why_not_all}}


def _tree_noted(root: str, own: str, ours: Collection[str]) -> dict[str, Any]:
    try:
        return {"tree": working_tree.note(root, own, ours)._asdict()}
    except working_tree.Unknown as error:
        return {"why": str(error)}
    except (OSError, LoomError) as error:
        return {"why": _said(error)}


def _workdir(space: Workspace, run: Run, entry: Mapping[str, Any]) -> str | None:
    """Give a visit's workdir, links followed, if that lies outside of the project; else None."""
    place = frozen_plan.place_of(run.plan, str(entry.get("step_id")))
    declared = artifact_paths.workdir(space.project, run, place.step) if place is not None else None
    if not declared or "\0" in declared:
        return None
    root = real(space.project.root)
    found = os.path.realpath(os.path.join(root, declared))
    return None if is_inside(found, root) or is_inside(found, real(run.folder)) else found


def _workdir_noted(space: Workspace, found: str, own: str, ours: Collection[str]) -> dict[str, Any]:
    top = git.top_of(found)
    is_shared = top is not None and top == git.top_of(real(space.project.root))  # git tells of it anyhow
    noted = {"root": found, "shared": is_shared}
    if not any(is_inside(found, real(extra)) for extra in space.settings.extra_roots):
        return {**noted, "why": "it leads out of the project and is not one of your extra_roots"}
    if not os.path.isdir(found):
        return {**noted, "why": "it is not a directory"}
    noted |= _assets_noted(found, ours)
    if not is_shared:
        os.mkdir(own, 0o700)
        noted |= _tree_noted(found, own, ours)
    return noted


# ---- A stage ends.


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
        return Tracked([], f"Loom could not find out: {_said(error)}", [], patch=False, warnings=[])


def _ended(space: Workspace, run: Run, entry: Mapping[str, Any], stage: str) -> Tracked:
    warnings: list[str] = []
    is_command = _is_command(run, entry)
    if is_command and not _began(run, stage):
        return Tracked([], "", [], patch=False, warnings=[])  # it was ended by hand before it began
    # What an assistant does while a command waits or runs is none of the command's.
    written, ran = (set[str](), True) if is_command else _told_by_tools(run.folder, entry, stage)
    waiting = 0 if is_command else _waiting(space, run.run_id)
    if waiting:
        warnings.append(f"{counted(waiting, 'tool call')} not recorded yet, so files may be missing")
    ours = evidence_files.own_reports(space.store.local)
    baseline = working_tree.read_baseline(space.store.local, run.run_id, stage) or {}
    own = working_tree.baseline_folder(space.store.local, run.run_id, stage)
    project = _project(space, baseline, own, stage)
    workdir = _workdir(space, run, entry)
    beside = _beside(baseline, own, workdir) if workdir is not None else None
    changes, unknown = _changes(project, ours)
    touched = _touched_by_tools(space, written, workdir)
    _add(touched, changes, project)
    if beside is not None:
        there, why = _changes(beside, ours)
        _add(touched, there, beside)
        unknown = "; ".join(filter(None, (unknown, why and _IN_WORKDIR + why)))
    if changes is not None:
        warnings += _warnings_of(changes, is_branch=visits.is_branch(run.state))
    collected = asset_files.Collected((), ())
    if ran or waiting:
        collected = _assets(run, entry, project, warnings, ours)
        if beside is not None:
            collected = collected.and_of(_assets(run, entry, beside, warnings, ours))
    names = sorted(touched)
    if len(names) > MOST:
        warnings.append(f"{len(names):,} files changed; the first {MOST:,} are listed")
    patch = changes.patch if changes is not None else None
    assets, passed_over = ([one._asdict() for one in some] for some in (collected.assets, collected.passed_over))
    found = Tracked(names[:MOST], unknown, assets, patch is not None, warnings, len(names), tuple(passed_over))
    return found._replace(unwritten=([touched[name] for name in names[:_MOST_KEPT]], patch))


def _warnings_of(changes: Changes, *, is_branch: bool) -> Iterator[str]:
    if changes.entries and is_branch:
        yield "parallel branches share one folder, so some of these files may belong to another branch"
    by_time = [change.path for change in changes.entries if change.by_time]
    if by_time:
        yield f"compared by size and time only, because they are large: {asset_files.named(by_time)}"
    if changes.why_none:
        yield f"there is no {PATCH}: {changes.why_none}"


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
        why = f"Loom could not write the changes: {_said(error)}"
        return told._replace(patch=False, warnings=[*told.warnings, why]), {}


def _write(run: Run, stage: str, found: Tracked, kept: list[dict[str, Any]], patch: bytes | None) -> dict[str, str]:
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
    baseline = working_tree.read_baseline(space.store.local, run.run_id, str(entry.get("stage"))) or {}
    noted = baseline.get("at")
    if baseline.get("stage") == entry.get("stage") and type(noted) is int:
        return noted
    return clock.seconds_of(str(entry.get("started_at") or "")) * 1_000_000_000


# ---- What git says.


def _project(space: Workspace, baseline: Mapping[str, Any], own: str, stage: str) -> _Place:
    elsewhere = "" if baseline.get("machine") == machine.hostname() else "the step began on another machine"
    return _Place(space.project.root, own, baseline, elsewhere if baseline.get("stage") == stage else _NOT_NOTED)


def _beside(baseline: Mapping[str, Any], own: str, workdir: str) -> _Place:
    part = baseline.get(_WORKDIR)
    noted = {**{key: baseline.get(key) for key in ("machine", "at")}, **part} if isinstance(part, dict) else {}
    why = "" if noted.get("root") == workdir else _NOT_NOTED
    return _Place(workdir, os.path.join(own, _WORKDIR), noted, why, NAMED)


def _changes(place: _Place, ours: Collection[str]) -> tuple[Changes | None, str]:
    """Give what changed by content since the stage began, or why that is unknown.

    ours: real paths of Loom's own reports, which are no change.
    """
    noted = place.noted
    if place.why or noted.get("shared"):
        return None, place.why
    if "tree" not in noted:
        return None, str(noted.get("why") or "git failed when the step began")
    try:
        return working_tree.since(place.root, place.own, working_tree.Moment.from_dict(noted["tree"]), ours), ""
    except working_tree.Unknown as error:
        return None, str(error)
    except (OSError, LoomError) as error:
        return None, _said(error)


def _add(touched: dict[str, dict[str, Any]], changes: Changes | None, place: _Place) -> None:
    top = git.top_of(place.root) or place.root
    for change in changes.entries if changes is not None else ():
        shown = place.named + os.path.relpath(os.path.join(top, change.path), place.root)
        known = touched.setdefault(shown, {"path": shown, "by": []})
        known.update(_described(change), by=[*known["by"], "git"])


def _described(change: Change) -> dict[str, Any]:
    lines = {"added": change.added, "removed": change.removed} if change.added is not None else {}
    return {"change": change.kind, **lines, **({"by_time": True} if change.by_time else {})}


# ---- What tool calls say.


def _touched_by_tools(space: Workspace, written: Collection[str], workdir: str | None) -> dict[str, dict[str, Any]]:
    top = git.top_of(space.project.root) or space.project.root
    shown = (_shown(space, top, path, workdir) for path in written)
    return {path: {"path": path, "by": ["tools"]} for path in shown if path is not None}


def _shown(space: Workspace, top: str, path: str, workdir: str | None) -> str | None:
    """Give a path relative to the project root, absolute outside of the checkout; None for what Loom keeps itself.

    Below a workdir that lies outside of the project it counts from there.
    """
    root = space.project.root
    if "\0" in path:
        return None
    whole = os.path.normpath(os.path.join(root, path))
    whole = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
    if is_inside(whole, os.path.realpath(space.store.folder)):
        return None
    if is_inside(whole, root) or is_inside(whole, top):
        return None if working_tree.is_ours(os.path.relpath(whole, top)) else os.path.relpath(whole, root)
    is_in_workdir = workdir is not None and is_inside(whole, workdir)
    return NAMED + os.path.relpath(whole, workdir) if is_in_workdir else whole


def _told_by_tools(run_dir: str, entry: Mapping[str, Any], stage: str) -> tuple[set[str], bool]:
    from loomctl.reduction import tool_steps  # a visit's beginning asks for none

    paths: set[str] = set()
    ran = False
    for step in _steps_of(run_dir, stage, str(entry.get("started_at") or "")):
        ran = ran or tool_steps.rule_for(step.tool_name).action == tool_steps.SHELL
        if _wrote(step):
            paths.update(_paths_of(run_dir, step))
    return paths, ran


def last_written(space: Workspace, run: Run, entry: Mapping[str, Any]) -> str | None:
    """Give the absolute path of the file that a file tool wrote last in a visit; None where none did, or it is gone."""
    steps = _steps_of(run.folder, str(entry.get("stage")), str(entry.get("started_at") or ""))
    path = next((paths[-1] for step in steps if _wrote(step) and (paths := _paths_of(run.folder, step))), "")
    return os.path.normpath(os.path.join(space.project.root, path)) if path and "\0" not in path else None


def _wrote(step: ToolStep) -> bool:
    from loomctl.reduction import tool_steps

    return step.success and tool_steps.rule_for(step.tool_name).action in (tool_steps.WRITE, tool_steps.EDIT)


def _waiting(space: Workspace, run_id: str) -> int:
    """Count the tool calls of a run that are not in its log yet."""
    from loomctl.runs.machine import launcher_files

    found = 0
    for spooled in launcher_files.spooled(space.store.local):
        named = filter(ids.is_fit, launcher_files.sessions_of(spooled.name))
        found += any((space.local.binding(session) or {}).get("run_id") == run_id for session in named)
    return found


def _steps_of(run_dir: str, stage: str, started_at: str) -> Iterator[ToolStep]:
    """Give a stage's tool steps, subagents' too, newest first, without reading those of long before it."""
    from loomctl.runs.tools import tool_log

    older = 0
    for step in tool_log.backwards(run_dir):
        if step.more.get("stage") == stage:
            older = 0
            yield step
        elif str(step.more.get("at") or "") < started_at:
            older += 1
            if older >= _OLDER:
                return


def _paths_of(run_dir: str, step: ToolStep) -> list[str]:
    """Give the paths that a file tool was called with; from its original, where the step holds them cut or not."""
    from loomctl.reduction import tool_steps

    rule = tool_steps.rule_for(step.tool_name)
    for held in (step.rest.get("args_are", step.rest.get("args")), step.minimal_args):
        found = tool_steps.paths_of(rule, held)
        if found and (held is not step.minimal_args or not step.rest_ref or all(map(os.path.lexists, found))):
            return found
    if not step.rest_ref:
        return []
    from loomctl.runs.tools.reducer import StepReducer
    from loomctl.runs.tools.tool_log import DataOffloader

    try:
        whole, _ = StepReducer(DataOffloader(run_dir)).original(step)
    except (LoomError, OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        whole = step.minimal_args
    return tool_steps.paths_of(rule, whole)


# ---- What commands left.


def _began(run: Run, stage: str) -> bool:
    from loomctl.runs import command_runs  # a session's start ends no command

    return os.path.lexists(os.path.join(stages.folder(run.folder, stage), command_runs.RECORD))


def _is_command(run: Run, entry: Mapping[str, Any]) -> bool:
    place = frozen_plan.place_of(run.plan, str(entry.get("step_id")))
    return place is not None and place.step.get("kind") == "command"


def _assets(
    run: Run, entry: Mapping[str, Any], place: _Place, warnings: list[str], ours: Collection[str]
) -> asset_files.Collected:
    """Capture the assets that are new or changed since the stage began; adds to `warnings` what could not be.

    ours: real paths of Loom's own reports.
    """
    before = _look_of(place)
    if before is None:
        why = str(place.noted.get("why") or _NOT_NOTED) if place.named else _NOT_NOTED
        where = " in the step's workdir" if place.named else ""
        warnings.append(f"no assets were captured{where}: {why}")
        return asset_files.Collected((), ())
    after = asset_files.look(place.root, ours)
    why = after.why_not_all or before.why_not_all
    if why:
        warnings.append(f"some assets may be missing: {why}")
    fresh = asset_files.fresh(before, after, at=int(place.noted["at"]))
    folder = f"{ids.step_slug(str(entry['step_id']))}/retry_{int(entry['visit'])}{'.workdir' if place.named else ''}"
    collected = asset_files.collect(place.root, fresh, run.folder, folder)
    warnings += collected.warnings
    return collected.named(place.named)


def _look_of(place: _Place) -> asset_files.Look | None:
    noted = place.noted
    if (noted.get("machine"), noted.get("root")) != (machine.hostname(), place.root):
        return None
    try:
        int(noted["at"])
        found = {str(path): (int(size), int(at)) for path, (size, at) in noted["assets"]["found"].items()}
        return asset_files.Look(found, str(noted["assets"]["why_not_all"]))
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    return error.what if isinstance(error, LoomError) else f"{type(error).__name__}: {error}"
