"""`loomctl prime-context`, `memory` and `prove`: give a conversation what it must have, and show that it had it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import answer, command_line, output
from loomctl.cli.command_line import complete_artifacts, complete_runs, json_option, run_argument, yes_option
from loomctl.cli.verbs import views_of
from loomctl.hosts import table
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_MISSING, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import memory_of_session, memory_switch, prime_run
from loomctl.priming.memory import NOW
from loomctl.runs import find
from loomctl.runs.machine import run_notes
from loomctl.runs.model import frozen_plan, sessions
from loomctl.workflows import survival, triggers

if TYPE_CHECKING:
    from loomctl.priming.memory_switch import Standing
    from loomctl.priming.prove import Proof
    from loomctl.priming.receipts import Compacted, Receipt, Start
    from loomctl.priming.slip import Slip
    from loomctl.runs.project import Workspace
    from loomctl.workflows.survival import Item

_OWN, _RULE = table.CLAUDE.memory
_IN = {_OWN: _OWN, "rule": _RULE}


@click.command("prime-context")
@click.option(
    "--run-id",
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run.  [default: this session's, or the only active one]",
)
@click.option("--artifacts", metavar="A,B", shell_complete=complete_artifacts, help="Load only these artifacts.")
@click.option("--force", is_flag=True, help="Load again what this conversation has already.")
@click.option(
    "--trigger", "word", metavar="T", help="Load what belongs to this event, e.g. phase_transition:architect->build."
)
@click.option("--dry-run", is_flag=True, help="Show what it would load; load and record nothing.")
@click.option("--text", "as_text", is_flag=True, help="Print the text that an assistant would get.")
@json_option
def prime_context(
    run_id: str | None,
    artifacts: str | None,
    force: bool,
    word: str | None,
    dry_run: bool,
    as_text: bool,
    as_json: bool,
) -> int:
    """Reload a run's critical artifacts into this conversation.

    \b
    Examples:
      loomctl prime-context
      loomctl prime-context --artifacts specification,workflow-plan --force
      loomctl prime-context --trigger "phase_transition:architect->build" --dry-run
    """
    event = _event(word)
    space = command_line.space()
    space.store.unwritten = dry_run  # not even the index of runs
    with command_line.offered_again():
        found = find.to_read(space, run_id)
    assert found.run_id is not None  # to_read raises instead
    is_known = run_notes.is_known(found.run_id, space.store.folder)
    if found.how == "only" and not dry_run:
        find.must_be_known(space, found.run_id)
    run = space.store.read(found.run_id, to_show=True)
    may_write = found.may_write and not frozen_plan.steps_unknown(run.plan)
    is_read = command_line.reader_is_an_assistant()
    budget = prime_run.result_budget(space) if is_read and not as_json else prime_run.command_budget(space)
    made = prime_run.prime(space, run, event, budget, may_write=may_write, only=_only(artifacts), force=force)
    if not dry_run:
        made = memory_of_session.record(space, found.run_id, made, may_write=may_write and is_known)
    if as_json:
        output.document(made.to_dict() if dry_run else made.with_text())
    else:
        lines = _slip_lines(made, sessions.summary(run.state), dry_run=dry_run)
        has_text = (as_text or is_read) and not dry_run and made.text
        output.text(answer.with_slip(space, lines, made) if has_text else "\n".join(lines))
    if any(entry.reason == "unknown_artifact" for entry in made.entries):
        return EXIT_USAGE
    return EXIT_MISSING if made.failed else EXIT_OK


def _event(word: str | None) -> triggers.Event:
    event = triggers.from_word(word) if word is not None else triggers.manual()
    if event is None:
        known = "session_start, compaction_detected, manual, phase_start:build, phase_transition:architect->build"
        what = f"unknown trigger {word!r:.80}"
        hint = "loomctl prime-context --trigger manual --dry-run"
        raise LoomError("UNKNOWN_TRIGGER", what, why=f"examples: {known}", hint=hint, exit_code=EXIT_USAGE)
    return event


def _only(artifacts: str | None) -> list[str] | None:
    only = [name.strip() for name in artifacts.split(",") if name.strip()] if artifacts is not None else None
    if only == []:
        why = "give ids, separated by commas: --artifacts specification,workflow-plan"
        hint = "loomctl prime-context --help"
        raise LoomError("USAGE", "--artifacts names no artifact", why=why, hint=hint, exit_code=EXIT_USAGE)
    return only


def _slip_lines(made: Slip, history: str, *, dry_run: bool) -> list[str]:
    lines = [f"Loom: {made.handle}" + (" (dry run)" if dry_run else ""), *answer.slip_lines(made, done=not dry_run)]
    if not made.entries:
        lines.append("  this workflow declares no critical artifacts")
    return [*lines, f"Sessions: {history}"]


# ---- What the host's memory imports.


@click.group("memory", invoke_without_command=True)
@json_option
@click.pass_context
def memory(context: click.Context, *, as_json: bool = False) -> int:
    """Show whether the assistant's memory leads to the run's state.

    With memory on, Loom keeps .loom/now.md up to date: where the run stands, its next step, and an import of each
    artifact that applies now. A line in a file that the assistant reads as its memory imports it, or points to it. The
    output shows what that brings and costs.

    \b
    Examples:
      loomctl memory
      loomctl memory on
      loomctl memory off
    """
    if context.invoked_subcommand is not None:
        return EXIT_OK
    space = command_line.space(make=True)
    found = memory_switch.standing(space, _OWN)
    output.answer(_document(found), _lines(space, found), as_json=as_json)
    return EXIT_OK


@memory.command()
@click.option(
    "--host",
    type=click.Choice(list(table.MEMORY)),
    default=table.CLAUDE.name,
    show_default=True,
    help="The assistant; other for one that reads AGENTS.md.",
)
@click.option(
    "--in",
    "where",
    type=click.Choice(list(_IN)),
    default=_OWN,
    show_default=True,
    help=f"Where to write the line for {table.CLAUDE.name}: your own file, or {_RULE}.",
)
@yes_option
@json_option
def on(host: str, where: str, yes: bool, as_json: bool) -> int:
    """Switch memory on, after showing what it writes and costs.

    It writes .loom/now.md, and one line into the file that the assistant reads as its memory. The line imports it
    where the assistant follows imports, and points to it where not. Memory is on for one assistant at a time.

    \b
    Examples:
      loomctl memory on
      loomctl memory on --host codex --yes
    """
    file = _IN[where] if host == table.CLAUDE.name else table.MEMORY[host][0]
    again = "loomctl memory on" + (f" --host {host}" if host != table.CLAUDE.name else "")
    again += " --in rule" if file == _RULE else ""
    space = command_line.space(make=True)
    memory_switch.refuse_a_worktree(space)
    found = memory_switch.standing(space, file, again)
    was_on = found.is_on and found.has_line
    if not was_on and not yes:
        if not as_json:
            output.note("\n".join(["Loom would write:", *_would_write(found), *_costs(found)]))
        output.must_agree(
            "Switch memory on?",
            asks=output.may_ask(as_json=as_json),
            what="Loom wrote nothing",
            why="every session in this folder would read it, so a person, or --yes, has to agree",
            hint=f"{again} --yes",
        )
    found = memory_switch.on(space, file, again)
    output.answer({**_document(found), "changed": not was_on}, _lines(space, found), as_json=as_json)
    return EXIT_OK


@memory.command()
@json_option
def off(as_json: bool) -> int:
    """Remove what `loomctl memory on` wrote, and nothing else.

    It removes the line, and the file too if that holds nothing else. Every other byte stays as it was.

    \b
    Example:
      loomctl memory off
    """
    changed = memory_switch.off(command_line.space(make=True))
    line = "Loom: memory is off" + ("; removed what it had written" if changed else " already")
    output.answer({"on": False, "changed": changed}, [line], as_json=as_json)
    return EXIT_OK


def _document(found: Standing) -> dict[str, Any]:
    return {
        "on": found.is_on,
        "file": found.file,
        "line": found.line,
        "has_line": found.has_line,
        "makes_file": found.makes,
        "ignored_by_git": found.ignored,
        "run_ids": list(found.now.run_ids),
        "imports": [{"id": one.id, "path": one.path, "bytes": one.bytes} for one in found.now.imports if one.line],
        "left_out": [{"id": one.id, "path": one.path, "why": one.why} for one in found.now.imports if not one.line],
        "bytes": found.now.bytes,
        "price": _price(found),
    }


def _lines(space: Workspace, found: Standing) -> list[str]:
    if not found.is_on:
        lines = ["Loom: memory is off; `loomctl memory on` would write:", *_would_write(found)]
    elif not found.has_line:
        lines = [f"Loom: memory is on, but {found.file} has lost its line. To restore it: loomctl memory on"]
    else:
        leads = f"imports .loom/{NOW} ({found.line})" if _imports(found) else f"points to .loom/{NOW}"
        lines = [f"Loom: memory is on: {found.file} {leads}"]
    return [*lines, *_brought(space, found), *_costs(found)]


def _would_write(found: Standing) -> list[str]:
    what = "a new file with" if found.makes else "at its end"
    wide = max(len(found.file), len(f".loom/{NOW}"))
    return [
        f"  {f'.loom/{NOW}'.ljust(wide)}  where the run stands, its next step, imports of its files",
        f"  {found.file.ljust(wide)}  {what} the line {found.line}",
    ]


def _brought(space: Workspace, found: Standing) -> list[str]:
    runs = found.now.run_ids
    head = "no active run of this machine" if not runs else ", ".join(map(space.store.handle, runs[:5]))
    lines = [f"It covers: {head}"]
    for one in found.now.imports:
        name = f"{one_line(one.id, 60)}: {one_line(one.path, 120)}"
        lines.append(
            f"  ✓ {name}, {counted(one.bytes, 'byte')}" if one.line else f"  ✗ {name}: {one_line(one.why, 120)}"
        )
    return lines


def _imports(found: Standing) -> bool:
    return found.line.startswith("@")


def _price(found: Standing) -> list[str]:
    size = counted(found.now.bytes, "byte")
    if not _imports(found):
        return [
            "The line alone is in the conversation: the assistant reads the file if it does what the line says.",
            f"With the files that it names it is {size}, and each session in this folder may read it.",
        ]
    title = table.HOSTS[_reader(found)].title if _reader(found) in table.HOSTS else "The assistant"
    when = "at a start, /clear and compaction" if _reader(found) == table.CLAUDE.name else "at a start"
    return [
        f"Every session that starts in this folder reads it, also for other work: now {size}.",
        f"{title} reads it {when}, not between prompts.",
        "In a folder below this one it does not read the imported files.",
        f"{title} treats it as your instructions, while it treats what hooks give as data.",
    ]


def _reader(found: Standing) -> str:
    return next(host for host, files in table.MEMORY.items() if found.file in files)


def _costs(found: Standing) -> list[str]:
    warnings = []
    if found.ignored is False:
        warnings.append(f"git does not ignore {found.file}: a commit would contain the line")
    if found.has_line and not found.is_on:
        warnings.append(f"somebody else wrote the line in {found.file}: `loomctl memory off` leaves it there")
    return ["The price:", *(f"  - {line}" for line in _price(found)), *(f"! {line}" for line in warnings)]


_SHOWN, _NOTE = 100, 200  # UTF-16 units of an item, and of what is noted of it
_PENDING = "lost; Loom gives it back with the next tool result or prompt"
_ABSENT = "absent: it had no text then"


@views_of("prove")
@click.command()
@run_argument
@click.option("--add", "added", metavar="ITEM", multiple=True, help="Make ITEM survive too (repeatable).")
@click.option("--drop", "dropped", metavar="ITEM", multiple=True, help="Remove an ITEM that --add gave.")
@json_option
def prove(run: str | None, added: tuple[str, ...], dropped: tuple[str, ...], as_json: bool) -> int:
    """Show what survived each compaction; --log checks every file.

    Every run must keep its goal, step, task and registered artifacts. Its workflow adds items under must_survive, you
    with --add. An ITEM is a text, the id of an artifact, or a path into the run's state such as `$.context.budget`.

    \b
    What became of an item at a compaction:
      kept      the summary contains it
      lost      the summary does not contain it
      put back  Loom gave it to the assistant again
      pending   Loom gives it with the session's next tool result or prompt
      unproven  the assistant left no summary to check

    \b
    What a conversation has of an artifact from a start on:
      present    its text
      restored   its text again, by the host or a Read
      reachable  its name and how to read it
      stale      an older text
      lost       nothing

    Exit code 1 if something is lost and not put back, or stale, or the log is damaged.

    \b
    Examples:
      loomctl prove
      loomctl prove shop-258 --json
      loomctl prove --add "The deadline is 3 May" --add '$.context.budget'
    """
    from loomctl.priming import prove as proving
    from loomctl.runs import log_verdict

    space = command_line.space()
    doubtful = proving.declare(space, run, added, dropped) if added or dropped else []
    for one in doubtful:
        hint = f"\n  hint: {one_line(one.hint, 400)}" if one.hint else ""
        output.note(f"loomctl: {one.code}: {one_line(one.message, 400)}{hint}")
    found = proving.proof(space, command_line.shown_run_id(space, run))
    verdict = log_verdict.verify(space.store, found.run_id)
    log = f"log: {'✓' if verdict.ok else '✗'} {verdict.summary} (loomctl prove --log)"
    output.answer({**found.to_dict(), "log": verdict.to_dict()}, [*_proof_lines(found), log], as_json=as_json)
    return EXIT_FINDINGS if found.lost or found.stale or not verdict.ok else EXIT_OK


def _proof_lines(found: Proof) -> list[str]:
    from loomctl.priming import prove as proving

    if not found.items and not found.starts and not any(one.receipt for one in found.compactions):
        return [f"{found.handle} has no open step, and Loom has checked no session's start yet. Nothing to show"]
    items = counted(len(found.items), "item")
    lines = [f"{found.handle}: {items} must survive, {counted(len(found.compactions), 'compaction')} so far"]
    lines += [f"  {_item(item)}" for item in found.items]
    if not found.compactions and not found.starts:
        return lines
    for one in found.compactions:
        lines += _of_one(one)
    if found.starts:
        lines.append(f"artifacts at {counted(len(found.starts), 'start')}:")
    for start in found.starts:
        lines += _of_start(start)
    return [*lines, proving.CLAIM]


def _item(item: Item) -> str:
    if item.kind == survival.RUN:
        return f"{one_line(item.name, _SHOWN)}: {masked_line(item.value, _SHOWN)}"
    return f"{item.kind}: {one_line(item.name, _SHOWN)}"


def _of_start(one: Start) -> list[str]:
    from loomctl.priming import receipts

    head = f"{output.when(one.at)}: {receipts.BEGUN[one.event]}, session {one_line(one.session_id, 8)}"
    counts = ", ".join(f"{fate} {len(one.of(fate))}" for fate in receipts.FATES if one.of(fate))
    named = [f"  {fate}: {one_line(', '.join(one.of(fate)), _NOTE)}" for fate in receipts.FATES if one.of(fate)]
    return [f"{head}: {counts or 'nothing to load'}", *named]


def _of_one(one: Compacted) -> list[str]:
    head = f"{output.when(one.at)}: {one_line(one.trigger, 40)}, session {one_line(one.session_id, 8)}"
    receipt = one.receipt
    if receipt is None:
        return [f"{head}: nothing recorded"]
    kept = [f"  {_noted('kept', receipt, name)}: {one_line(name, _SHOWN)}" for name in receipt.kept]
    if not receipt.proven:
        given = [f"  {_noted('given', receipt, name)}: {one_line(name, _SHOWN)}" for name in receipt.kept]
        return [f"{head}: unproven, there is no summary; Loom gave {len(receipt.kept)} again", *given]
    put_back = f", put back {len(receipt.restored)}" if receipt.lost else ""
    pending = f", pending {len(one.pending)}" if one.pending else ""
    absent = f", absent {len(receipt.absent)}" if receipt.absent else ""
    counts = f"kept {len(receipt.kept)}, lost {len(receipt.lost)}{put_back}{pending}{absent}"
    lines = [f"{head}: {receipt.survived}: {counts}", *kept]
    for name in receipt.lost:
        pending = _PENDING if name in one.pending else _noted("lost", receipt, name)
        how = "lost, put back" if name in receipt.restored else pending
        lines.append(f"  {how}: {one_line(name, _SHOWN)}")
    absences = ((_noted("absent", receipt, name, _ABSENT), name) for name in receipt.absent)
    return lines + [f"  {why}: {one_line(name, _SHOWN)}" for why, name in absences]


def _noted(what: str, receipt: Receipt, name: str, otherwise: str = "") -> str:
    note = receipt.notes.get(name)
    return f"{what}, {one_line(note, _NOTE)}" if note else otherwise or what
