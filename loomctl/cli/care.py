"""`loomctl clean` and `debug state`: what goes from a machine, and a run's state, looked into and put back."""

from __future__ import annotations

import os
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from loomctl.care import clean as machine
from loomctl.care import keep
from loomctl.cli import command_line, output
from loomctl.cli.command_line import json_option, run_argument, yes_option
from loomctl.cli.verbs import Group
from loomctl.expressions import conditions, engine
from loomctl.kit import clock
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_INVALID, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.fences import counted, one_line
from loomctl.runs import run_blobs
from loomctl.runs.machine import drivers
from loomctl.runs.model import visits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomctl.care.keep import Restoration, Restored, Standing
    from loomctl.handoff.worktrees import Removal as Felled
    from loomctl.handoff.worktrees import Worktree
    from loomctl.runs.model.lease import Holder
    from loomctl.runs.project import Workspace
    from loomctl.runs.run_blobs import Blob
    from loomctl.workflows.refreeze import Refrozen


_SHOWN = 20


@click.command()
@click.option("--dry-run", is_flag=True, help="List what Loom would remove; remove nothing.")
@yes_option
@json_option
def clean(dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove what old sessions and removed runs left behind.

    It removes what killed processes, dead sessions, removed runs and older versions of Loom left behind, and large
    values that no run uses any more. It asks first.

    It removes a worktree that Loom made, with its branch, if the run is over, all is committed, and another branch has
    the commits.

    It keeps your runs, everything of live sessions, and large values of the last hour. If it cannot read a run, it
    keeps all large values. To drop the tool outputs of old runs, set retention.outputs_days in config.yaml. Exit code
    1 if Loom could not read or remove something.

    \b
    Examples:
      loomctl clean --dry-run
      loomctl clean
    """
    from loomctl.handoff import worktrees

    space = command_line.space()
    now = time.time()
    left, blobs, trees = machine.look(space, now=now), run_blobs.look(space, now=now), worktrees.look(space)
    asks = not (dry_run or yes) and output.may_ask(as_json=as_json)
    if asks and (left.items or (blobs.going and not blobs.unsure) or any(tree.goes for tree in trees)):
        output.note("\n".join([*_machine_lines(left, None), *_blob_lines(blobs, None), *_tree_lines(trees, None)]))
        output.must_agree("Remove them?", asks=True, what="Loom removed nothing", hint="loomctl clean --yes")
    removal = None if dry_run else machine.clean(space, left)
    collected = None if dry_run else run_blobs.collect(space, blobs, now=now)
    felled = None if dry_run else worktrees.clean(space, trees)
    parts = {"machine": _machine_document(left, removal), "blobs": _blob_document(blobs, collected)}
    parts["worktrees"] = _tree_document(trees, felled)
    lines = [*_machine_lines(left, removal), *_blob_lines(blobs, collected), *_tree_lines(trees, felled)]
    output.answer({"dry_run": dry_run, **parts}, lines, as_json=as_json)
    has_failed = any(done is not None and done.failed for done in (removal, collected, felled))
    return EXIT_FINDINGS if blobs.unsure or has_failed else EXIT_OK


def _machine_document(look: machine.Look, removal: machine.Removal | None) -> dict[str, Any]:
    items = look.items if removal is None else removal.removed
    return {
        "items": [item._asdict() for item in items],
        "bytes": sum(item.bytes for item in items),
        "failed": [{**item._asdict(), "reason": reason} for item, reason in (removal.failed if removal else ())],
        "outputs_kept_bytes": look.outputs_kept,
    }


def _machine_lines(look: machine.Look, removal: machine.Removal | None) -> list[str]:
    items, failed = (look.items, ()) if removal is None else removal
    rows = [[item.kind, f"{item.bytes:,}", item.path, item.why] for item in items]
    lines = [output.table(["KIND", "BYTES", "PATH", "WHY"], rows, paths=(2,))] if rows else []
    lines += [f"could not remove {one_line(item.path, 300)}: {one_line(reason, 200)}" for item, reason in failed]
    if look.outputs_kept:
        lines.append(f"tool outputs of finished runs: {look.outputs_kept:,} bytes (set retention.outputs_days to drop)")
    size = f"{counted(len(items), 'item')}, {counted(sum(item.bytes for item in items), 'byte')}"
    if not items:
        return [*lines, "Loom: removed nothing" if failed else "Loom: there is nothing to remove"]
    if removal is None:
        return [*lines, f"Loom: would remove {size}"]
    return [*lines, f"Loom: removed {size}"]


def _tree_document(trees: Sequence[Worktree], felled: Felled | None) -> dict[str, Any]:
    going = [tree for tree in trees if tree.goes] if felled is None else felled.removed
    return {
        "items": [_tree(tree) for tree in going],
        "kept": [_tree(tree) for tree in trees if not tree.goes],
        "failed": [{**_tree(tree), "reason": reason} for tree, reason in (felled.failed if felled else ())],
    }


def _tree(tree: Worktree) -> dict[str, Any]:
    return {key: value for key, value in tree._asdict().items() if key != "goes"}


def _tree_lines(trees: Sequence[Worktree], felled: Felled | None) -> list[str]:
    going = [tree for tree in trees if tree.goes] if felled is None else felled.removed
    verb = "would remove" if felled is None else "removed"
    lines = [f"Loom: {verb} the worktree {one_line(one.path, 300)} and {one.branch}: {one.why}" for one in going]
    failed = felled.failed if felled is not None else ()
    lines += [f"could not remove {one_line(tree.path, 300)}: {one_line(reason, 200)}" for tree, reason in failed]
    return lines + [f"kept the worktree {one_line(one.path, 300)}: {one.why}" for one in trees if not one.goes]


def _blob_document(look: run_blobs.Look, collected: run_blobs.Collected | None) -> dict[str, Any]:
    going, failed = (look.going, ()) if collected is None else collected
    return {
        "blobs": [_blob(blob) for blob in going],
        "bytes": _size(going),
        "kept": {"blobs": len(look.kept), "bytes": _size(look.kept)},
        "young": {"blobs": len(look.young), "bytes": _size(look.young)},
        "unsure": [{"where": where, "reason": reason} for where, reason in look.unsure],
        "failed": [{**_blob(blob), "reason": reason} for blob, reason in failed],
    }


def _blob(blob: Blob) -> dict[str, Any]:
    return {"ref": blob.ref, "path": blob.path, "bytes": blob.bytes, "put_at": clock.stamp(blob.put)}


def _blob_lines(look: run_blobs.Look, collected: run_blobs.Collected | None) -> list[str]:
    going, failed = (look.going, ()) if collected is None else collected
    rows = [[f"{blob.bytes:,}", output.when(clock.stamp(blob.put)), blob.ref] for blob in going]
    lines = [output.table(["BYTES", "STORED", "BLOB"], rows)] if rows else []
    lines += [f"could not remove {blob.path}: {one_line(reason, 200)}" for blob, reason in failed]
    lines += [f"could not read {one_line(where, 300)}: {one_line(reason, 200)}" for where, reason in look.unsure]
    staying = [("there" if look.unsure else "in use", look.kept), ("of the last hour", look.young)]
    told = "; ".join(f"{why}: {_count(blobs)}" for why, blobs in staying if blobs)
    stays = f" ({told})" if told else ""
    if look.unsure:
        return [*lines, f"Loom: kept all large values; the files above may use them{stays}"]
    if not going:
        return [*lines, f"Loom: no large value to remove{stays}"]
    if collected is None:
        return [*lines, f"Loom: would remove {_count(going)}{stays}"]
    return [*lines, f"Loom: removed {_count(going)}{stays}"]


def _size(blobs: Sequence[Blob]) -> int:
    return sum(blob.bytes for blob in blobs)


def _count(blobs: Sequence[Blob]) -> str:
    return f"{counted(len(blobs), 'large value')}, {counted(_size(blobs), 'byte')}"


# ---- A run's state.


@click.group(cls=Group)
def state() -> int:
    """Print a run's state, or restore the one before.

    \b
    Examples:
      loomctl debug state show
      loomctl debug state restore --dry-run
    """
    return EXIT_OK


@state.command("show")
@run_argument
@click.option("--path", metavar="JSONPATH", help="Only the value at this path, e.g. artifacts.spec_path.")
@json_option
def show(run: str | None, path: str | None, as_json: bool) -> int:
    """Print a run's state, or one value of it.

    Loom masks secrets that it recognises; the file itself holds them.

    \b
    Examples:
      loomctl debug state show
      loomctl debug state show shop-258 --path artifacts.spec_path
    """
    space = command_line.space()
    run_id = command_line.run_id(space, run)
    found = space.store.read_state(run_id)
    if path is None:
        output.document(
            {"run_id": run_id, "handle": space.store.handle(run_id), "state": found}
        ) if as_json else output.plain(found)
        return EXIT_OK
    question = conditions.Question("path", path)
    answer = engine.answer([question], {"state": found}, environment_python=None)[0]
    if answer.status != "ok" or repr(answer.value) == "MISSING":
        what = f"the state has no value at {path!r:.120}"
        hint = f"loomctl debug state show {space.store.handle(run_id)}"
        raise LoomError("NOTHING_THERE", what, why=answer.message, hint=hint, exit_code=EXIT_USAGE)
    if as_json:
        output.document({"run_id": run_id, "handle": space.store.handle(run_id), "path": path, "value": answer.value})
    else:
        value = answer.value
        output.text(value) if isinstance(value, str) else output.plain(value)
    return EXIT_OK


@state.command("restore")
@run_argument
@click.option("--from", "source", metavar="FILE", help="A saved state of the run instead of state.backup.json.")
@click.option("--dry-run", is_flag=True, help="Show what would change and be lost; change nothing.")
@click.option("--yes", is_flag=True, help="Replace an undamaged state too, without asking.")
@json_option
def restore(run: str | None, source: str | None, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Restore a run's state from the backup of one write before.

    Loom replaces a damaged state at once. Before it replaces one that works, it asks; a script gives --yes. It rebuilds
    a damaged plan. It keeps the old file beside the new one, as state.broken-1.json or state.replaced-1.json, so that
    --from brings it back. Events stay in the log.

    \b
    Examples:
      loomctl debug state restore shop-258 --dry-run
      loomctl debug state restore shop-258
      loomctl debug state restore shop-258 --from state.replaced-1.json --yes
    """
    space = command_line.space()
    run_id = keep.run_to_restore(space, run)
    handle, standing = space.store.handle(run_id), keep.examine_state(space, run_id, source=source)
    wanted = standing.state
    driver = keep.driver(space, wanted, wanted.before) if wanted is not None else None
    if not dry_run and not yes and wanted is not None and wanted.changes and wanted.asks:
        if not as_json:
            output.note("\n".join([*_state_lines(standing, handle, None), *_driver_lines(space, run_id, driver)]))
        _confirm(handle, source, wanted.trouble)
    done = None if dry_run else keep.restore_state(space, standing)
    plan = standing.plan if done is None else done.plan
    lines = [*_state_lines(standing, handle, done), *_driver_lines(space, run_id, driver if dry_run else None)]
    lines += _plan_lines(standing, plan, done=done is not None)
    told = {
        "run_id": run_id,
        "handle": space.store.handle(run_id),
        "dry_run": done is None,
        "plan": _plan_document(plan, done=done is not None),
    }
    told["state"] = None if wanted is None else _state_document(wanted, done)
    output.answer(told, lines, as_json=as_json)
    return EXIT_INVALID if isinstance(plan, LoomError) else EXIT_OK


def _confirm(handle: str, source: str | None, trouble: LoomError | None) -> None:
    what = "the state works; Loom did not replace it" if trouble is None else "Loom did not replace the state"
    why = "the run would lose everything that happened after the restored state"
    if trouble is not None:
        why = f"it may be undamaged, although Loom cannot read it here: {trouble.why or trouble.what}"
    hint = f"loomctl debug state restore {handle}{f' --from {source}' if source else ''} --yes"
    output.must_agree("Restore it?", asks=sys.stdin.isatty(), what=what, why=why, hint=hint)


def _state_document(wanted: Restoration, done: Restored | None) -> dict[str, Any]:
    lost = wanted.lost
    return {
        "restored": done is not None and wanted.changes,
        "source": wanted.source,
        "kept": done.kept if done is not None else None,
        "trouble": wanted.trouble.to_dict() if wanted.trouble is not None else None,
        "before": {"revision": (wanted.before or {}).get("revision"), "updated_at": wanted.written or None},
        "after": {key: wanted.after.get(key) for key in ("revision", "updated_at", "status", "current_step")},
        "lost": lost._asdict() if lost is not None else None,
        "events_after": [{key: event.get(key) for key in ("seq", "ts", "event", "step_id")} for event in wanted.later],
        "results_on_disk": list(wanted.results),
        "damaged_event_lines": wanted.damaged_lines,
    }


def _plan_document(plan: Refrozen | LoomError | None, *, done: bool) -> dict[str, Any] | None:
    if plan is None:
        return None
    if isinstance(plan, LoomError):
        return {"restored": False, "error": plan.to_dict()}
    return {"restored": done, **plan._asdict()}


def _state_lines(standing: Standing, handle: str, done: Restored | None) -> list[str]:
    wanted = standing.state
    if wanted is None:
        return [f"Loom: the state of {handle} is undamaged"]
    if not wanted.changes:
        others = "" if "backup" not in wanted.source else "; --from takes another saved state"
        return [f"Loom: {wanted.source} equals the state of {handle}. Nothing to restore{others}"]
    verb = "restored" if done is not None else "would restore"
    lines = [f"Loom: {verb} the state of {handle} from {wanted.source}"]
    if wanted.trouble is not None:
        where = f" ({one_line(wanted.trouble.where, 300)})" if wanted.trouble.where else ""
        lines.append(f"  damaged   {wanted.trouble.code}: {one_line(wanted.trouble.what, 160)}{where}")
    revision = (wanted.before or {}).get("revision")
    number = f"revision {revision}" if revision is not None else "revision unknown"
    lines.append(f"  before    {number}" + (f", written {output.when(wanted.written)}" if wanted.written else ""))
    after = wanted.after
    at = f", at {one_line(str(after['current_step']), 120)}" if after.get("current_step") else ""
    written = output.when(after.get("updated_at"))
    lines.append(
        f"  after     revision {after.get('revision')}, written {written}: {one_line(after['status'], 60)}{at}"
    )
    lines += _lost_lines(wanted)
    if done is not None and done.kept:
        back = "" if wanted.trouble is not None else f": loomctl debug state restore {handle} --from {done.kept}"
        lines.append(f"  kept      {done.kept}{back}")
    return [*lines, f"  go on     loomctl resume {handle}"] if done is not None else lines


def _driver_lines(space: Workspace, run_id: str, driver: Holder | None) -> list[str]:
    if driver is None:
        return []
    fate = drivers.fate(is_here=drivers.is_here(space.local.folder, run_id, driver))
    return [f"  driver    {drivers.told(driver)}, {fate}"]


def _lost_lines(wanted: Restoration) -> list[str]:
    lines = []
    if wanted.lost is not None:
        for one in wanted.lost.steps[:_SHOWN]:
            nth = "" if one["visit"] == 1 else f", {visits.nth(one['visit'])}"
            lines.append(f"  step      {one_line(one['step_id'], 120)}{nth}: {_turn(one)}")
        for one in wanted.lost.sessions[:_SHOWN]:
            name = one_line(one["session_id"], 60)
            lines.append(f"  session   {name}: {_turn(one)}")
        if wanted.lost.keys:
            lines.append(f"  other     {one_line(', '.join(wanted.lost.keys), 300)}")
    for stage in wanted.results[:_SHOWN]:
        response = os.path.join(wanted.home.folder, "stages", one_line(stage, 160), "response.md")
        done = f"loomctl done --for {one_line(stage, 160).partition('-')[0]} --response-file {shlex.quote(response)}"
        lines.append(f"  result    to give a reopened step its result again: {done}")
    names = [one_line(f"{event['event']} {event.get('step_id') or ''}".strip(), 100) for event in wanted.later]
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        lines.append(f"  events    {len(names)} later ones stay in events.jsonl: {', '.join(names[-5:])}{more}")
    if wanted.damaged_lines:
        lines.append(f"  events    events.jsonl has {counted(wanted.damaged_lines, 'damaged line')}; they stay")
    return lines


def _turn(one: dict[str, Any]) -> str:
    return " → ".join(one_line(str(one[when] or "missing"), 60) for when in ("was", "now"))


def _plan_lines(standing: Standing, plan: Refrozen | LoomError | None, *, done: bool) -> list[str]:
    if plan is None:
        return []
    if isinstance(plan, LoomError):
        return [
            "Loom: the plan is damaged, and Loom cannot rebuild it",
            *(f"  {one}" for one in str(plan).splitlines()),
        ]
    verb = "rebuilt" if done else "would rebuild"
    sure = {
        True: "it equals the plan that the run began with",
        False: "the workflow's files are the same, but this version of Loom makes another plan of them",
        None: "nothing records whether it equals the plan that the run began with",
    }[plan.same]
    lines = [f"Loom: {verb} the plan from {one_line(', '.join(plan.sources), 300)}", f"  {sure}"]
    return [*lines, f"  kept      {plan.kept}"] if plan.kept else lines
