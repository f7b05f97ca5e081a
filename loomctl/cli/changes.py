"""`loomctl show --diff`, `show --assets`, `debug blob`: what stages changed, which files they left, large values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from loomctl.changes import stage_changes
from loomctl.cli import command_line, output, person
from loomctl.cli.command_line import Listing, complete_runs, json_option, run_argument
from loomctl.cli.verbs import Group
from loomctl.kit import files
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text.fences import counted, one_line, visible
from loomctl.runs import context_values, stages
from loomctl.runs.store import blobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from click.shell_completion import CompletionItem

    from loomctl.changes.stage_changes import StageChanges
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run


def path_line(path: object) -> str:
    """Give a path on one line."""
    return visible(str(path)).replace("\n", "␤")


def changed_lines(file: Mapping[str, Any]) -> str:
    """Say how many lines of a file were added and removed; empty where that is not known."""
    added, removed = file.get("added"), file.get("removed")
    return f"+{added:,} -{removed:,}" if type(added) is int and type(removed) is int else ""


# ---- What changed.


@click.command()
@run_argument
@click.argument("stage", required=False)
@click.option("--stat", is_flag=True, help="List each file, its change and its lines.")
@click.option("--names", is_flag=True, help="List the files' names only.")
@json_option
def diff(run: str | None, stage: str | None, stat: bool, names: bool, as_json: bool) -> int:
    """Show what a step changed in your files, as a patch.

    Without a STAGE it shows every step, one after another. STAGE is a step's number, name or id, as for
    `loomctl show`; without a RUN it belongs to the current one.

    The patch is git's own, from the step's start to its end, commits included: nothing is masked, and `git apply`
    takes it. --stat and --names also list files that only a file tool's call names.

    \b
    Examples:
      loomctl show --diff shop-258 --stat
      loomctl show --diff implement
      loomctl show --diff shop-258 002 --names
    """
    if stat and names:
        raise LoomError(
            "USAGE", "give --stat or --names, not both", hint="loomctl show --diff --help", exit_code=EXIT_USAGE
        )
    space = command_line.space()
    with command_line.offered_again():
        read, meant, is_last = stages.find_with_run(space, run, stage)
    if is_last:
        command_line.say_last(space, read.run_id)
    run_id, told = read.run_id, stage_changes.of_run(read, meant)
    if as_json:
        output.document({"run_id": run_id, "handle": read.handle, "stages": [_document(one) for one in told]})
    elif names:
        found = sorted({one["path"] for stage_told in told for one in stage_told.files})
        output.text("\n".join(found)) if found else None
        _say(told)
    elif stat:
        lines = [line for one in told for line in _stat(one)]
        output.text("\n".join(lines) if lines else f"{read.handle}: no step has begun yet")
    else:
        output.raw(_patches(read.handle, told, alone=meant is not None))
        _say(told)
        if not told:
            output.note(f"{read.handle}: no step has begun yet")
    return EXIT_OK


def _document(one: StageChanges) -> dict[str, Any]:
    return {
        "stage": one.stage,
        "step_id": one.step_id,
        "status": one.status,
        "told": one.told,
        "files": list(one.files),
        "count": one.total,
        "files_unknown": one.unknown,
        "patch": one.patch_path if one.patch() is not None else None,
        "warnings": list(one.warnings),
    }


def _patches(handle: str, told: Sequence[StageChanges], *, alone: bool) -> Iterator[bytes]:
    """Give the patches byte for byte; of several, each under a line that git passes over."""
    for one in told:
        if not alone:
            yield f"# {handle} {one.stage}: {_counted(one)}\n".encode()
        yield one.patch() or b""


def _counted(one: StageChanges) -> str:
    if not one.told:
        return "nothing recorded" if one.ended else "not ended yet"
    return "files unknown" if one.unknown and not one.total else counted(one.total, "file")


def _say(told: Sequence[StageChanges]) -> None:
    for one in told:
        for said in _notes(one):
            output.note(f"{one.stage}: {said}")


def _notes(one: StageChanges) -> list[str]:
    if not one.told:
        return [_counted(one)]
    return [one_line(said, 500) for said in (one.unknown_line, *one.warnings) if said]


def _stat(one: StageChanges) -> list[str]:
    lines = [f"{one.stage}  {_counted(one)}"]
    rows = [
        [path_line(file["path"]), str(file.get("change") or "by a tool"), changed_lines(file)] for file in one.files
    ]
    lines += [output.table(["FILE", "CHANGE", "LINES"], rows, paths=(0,))] if rows else []
    lines += [line for said in _notes(one) for line in output.beside("  ! ", said)] if one.told else []
    return [*lines, ""]


# ---- What was left.


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    words = [CompletionItem(name) for name in assets.commands if name.startswith(incomplete)]
    return [*words, *complete_runs(ctx, param, incomplete)]


def _read(named: str | None, find: Callable[[Workspace, str | None], str] = command_line.run_id) -> Run:
    space = command_line.space()
    return space.store.read(find(space, named), to_show=True)


@click.group(cls=Listing, invoke_without_command=True)
@click.argument("run", required=False, shell_complete=_complete)
@json_option
@click.pass_context
def assets(context: click.Context, *, run: str | None = None, as_json: bool = False) -> int:
    """List the screenshots and reports that a run's commands left.

    Loom captures what is new or changed when a step ends: files below playwright-report, test-results, cypress/videos
    and cypress/screenshots, and files named junit*.xml or *.trace.zip. The list also names those that it did not
    capture, and why.

    \b
    Examples:
      loomctl show --assets
      loomctl show --assets shop-258
      loomctl show --assets cp shop-258 ./reports
    """
    if context.invoked_subcommand is not None:
        return EXIT_OK
    found = _read(run, command_line.shown_run_id)
    changes = stage_changes.of_run(found)
    held = [one for stage in changes for one in stage.assets]
    over = [one for stage in changes for one in stage.passed_over]
    bytes_held = sum(one.bytes for one in held)
    told = {"assets": [one._asdict() for one in held], "bytes": bytes_held}
    told["passed_over"] = [one._asdict() for one in over]
    lines = []
    if held:
        rows = [[one.stage, path_line(one.path), f"{one.bytes:,}" + ("" if one.there else " (gone)")] for one in held]
        lines += [output.table(["STAGE", "PATH", "BYTES"], rows, paths=(1,)), ""]
    if over:
        sizes = ["-" if one.bytes is None else f"{one.bytes:,}" for one in over]
        left = zip(over, sizes, strict=True)
        rows = [[one.stage, path_line(one.path), size, one_line(one.reason, 200)] for one, size in left]
        lines += [output.table(["STAGE", "NOT CAPTURED", "BYTES", "REASON"], rows, paths=(1,)), ""]
    size = f"{counted(len(held), 'asset')}, {counted(bytes_held, 'byte')}" if held else "no assets"
    lines.append(f"{found.handle}: {size}{f'; {len(over):,} not captured' if over else ''}")
    output.answer({"run_id": found.run_id, "handle": found.handle, **told}, lines, as_json=as_json)
    return EXIT_OK


@assets.command("cp")
@click.argument("words", nargs=-1, metavar="[RUN] DEST", shell_complete=complete_runs)
@click.option("--stage", metavar="STAGE", help="Only those of this step: its number or name.")
@click.option("--force", is_flag=True, help="Replace existing files that differ.")
@json_option
def copy(words: tuple[str, ...], stage: str | None, force: bool, as_json: bool) -> int:
    """Copy a run's assets into the folder DEST.

    They go to `{step}/retry_{number}/{path}` below it. Loom checks each against its hash. Without --force it overwrites
    nothing: if one file is in the way, it copies none. Exit code 1 if an asset is gone or changed.

    \b
    Examples:
      loomctl show --assets cp ./reports
      loomctl show --assets cp shop-258 ./reports --stage 003
    """
    if not 1 <= len(words) <= 2:
        what = f"expected [RUN] DEST, got {counted(len(words), 'word')}"
        raise LoomError("USAGE", what, hint="loomctl show --assets cp --help", exit_code=EXIT_USAGE)
    person.refuse_beyond(words[-1])
    found = _read(words[0] if len(words) == 2 else None)
    target = os.path.abspath(words[-1])
    held = [asset for one in stage_changes.of_run(found, stage) for asset in one.assets]
    again = stage_changes.listed_command(found.handle, words[-1], stage)
    done = stage_changes.copy(found, held, target, force=force, again=again)
    failed = [{**asset._asdict(), "reason": reason} for asset, reason in done.failed]
    told = {"dest": target, "written": list(done.written), "there_already": done.there, "failed": failed}
    lines = [f"could not copy {one_line(asset.path, 300)}: {one_line(why, 200)}" for asset, why in done.failed]
    there = f"; {done.there:,} were there already" if done.there else ""
    copied = f"copied {len(done.written):,} of {counted(len(held), 'asset')} to {one_line(target, 300)}"
    output.answer(
        {"run_id": found.run_id, "handle": found.handle, **told}, [*lines, f"Loom: {copied}{there}"], as_json=as_json
    )
    return EXIT_FINDINGS if done.failed else EXIT_OK


# ---- Large values.


@click.group(cls=Group)
def blob() -> int:
    """Read the large values of a run's context.

    Loom stores each one once and names it by its SHA-256: blob://sha256/….

    \b
    Example:
      loomctl debug blob get blob://sha256/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
    """
    return EXIT_OK


@blob.command()
@click.argument("ref")
@click.option("--out", type=click.Path(), metavar="FILE", help="Write it to a new file.")
@click.option("--text", "as_text", is_flag=True, help="Print a text as text, not as JSON.")
@json_option
def get(ref: str, out: str | None, as_text: bool, as_json: bool) -> int:
    """Print a large value, byte for byte.

    The value is compact JSON; --text prints a text with its line breaks. Loom checks the hash first, and masks nothing.
    With --json it describes the value instead.

    \b
    Examples:
      loomctl debug blob get blob://sha256/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
      loomctl debug blob get --out v.json blob://sha256/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
    """
    if out is not None:
        person.refuse_beyond(out)
    space = command_line.space()
    store = blobs.Blobs(space.store.folder)
    try:
        data = store.get(ref)
    except LoomError as error:
        raise context_values.of_blob(error, space.store.folder, ref) from None
    kind = _kind(data)
    told: dict[str, Any] = {"ref": ref, "sha256": blobs.sha256_of(ref), "bytes": len(data), "value": kind}
    told["path"] = store.path(ref)
    if as_text:
        data = _text(data, kind, ref)
    if out is not None:
        told["out"] = os.path.abspath(out)
        _write(told["out"], data, ref)
    if as_json:
        output.document(told)
    elif out is not None:
        output.text(f"Loom: {counted(len(data), 'byte')} written to {told['out']}")
    else:
        output.raw([data])
    return EXIT_OK


def _kind(data: bytes) -> str:
    """Name what JSON a blob holds: text, object, array, number, boolean, null; bytes where it is none."""
    try:
        value = files.parse_json(data, where="")
    except LoomError:
        return "bytes"
    names = {str: "text", dict: "object", list: "array", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _text(data: bytes, kind: str, ref: str) -> bytes:
    if kind != "text":
        why = "--text only prints texts; leave it out"
        what = f"this value is not a text (it is of type {kind})"
        raise LoomError("NO_TEXT", what, where=ref, why=why, hint=f"loomctl debug blob get {ref}", exit_code=EXIT_USAGE)
    text: str = files.parse_json(data, where=ref)
    return text.encode("utf-8", "surrogatepass")


def _write(path: str, data: bytes, ref: str) -> None:
    if os.path.lexists(path):
        hint = f"loomctl debug blob get {ref} --out {quoted(path + '.new')}"
        what = "refusing to overwrite a file"
        raise LoomError("FILE_EXISTS", what, where=path, hint=hint, exit_code=EXIT_USAGE)
    files.write_atomically(path, data)
