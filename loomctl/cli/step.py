"""`loomctl next`, `done`, `undo`, `debug outcome`: from step to step, and what a response would mean without a run."""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import sys
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import answer, ask, command_line, output
from loomctl.cli.command_line import branch_option, json_option, run_argument
from loomctl.flow import advance, finish_records
from loomctl.flow.commands import run_commands
from loomctl.flow.outcomes import answers
from loomctl.flow.outcomes.directives import ROUTING, Reading
from loomctl.kit import trouble
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_MISSING, EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.text import fences
from loomctl.kit.text.fences import one_line, visible
from loomctl.kit.text.secrets import mask, masked_line
from loomctl.priming import prime_run
from loomctl.runs import find, leases
from loomctl.runs.model import frozen_plan, visits
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.model.visits import OUTCOMES, SPELLINGS
from loomctl.runs.store import write_rules
from loomctl.workflows import gates

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.flow.advance import Driven
    from loomctl.flow.commands.run_commands import Pending
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@click.command("next")
@run_argument
@branch_option
@json_option
def next_command(run: str | None, branch: str | None, as_json: bool) -> int:
    """Show the step to work on now.

    After an interruption this is the first step that is not done. Loom runs a command step itself and then shows the
    step after it. A command that takes longer than 90 seconds keeps running; call `loomctl next` again to wait for it.

    \b
    Examples:
      loomctl next
      loomctl next --branch api
    """
    space = command_line.space()
    line = _ProgressLine() if sys.stderr.isatty() and not as_json else None
    try:
        driven = advance.next_step(space, find.to_drive(space, run), line.show if line else None, branch=branch)
    finally:
        if line:
            line.clear()
    may_go_on = branch is None and driven.pending is None and driven.run.state["status"] not in OVER
    if may_go_on and (caught := prime_run.give_owed(space, driven.run, driven.slip)):
        made, lines = caught
        driven = driven._replace(slip=made, notes=[*lines, *driven.notes])
    return told(space, driven, as_json=as_json)


class _ProgressLine:
    """One line on a terminal, written over and over while a command runs."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, pending: Pending) -> None:
        """Show how far a command is: how long it runs, and what it printed last."""
        last = pending.tail.rpartition("\n")[2]
        said = f"{pending.step_id}: {answer.seconds(pending.seconds)}, {pending.bytes:,} bytes  {last}"
        click.echo(f"\r\x1b[K{fences.cut(one_line(said, 400), output.columns() - 1)}", nl=False, err=True)
        self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)


@click.command()
@run_argument
@click.option(
    "--for",
    "stage",
    metavar="STAGE",
    help="The step that you worked on: its number or name.  [default: the one you got last]",
)
@click.option(
    "--outcome", type=click.Choice([*OUTCOMES, *SPELLINGS]), help="How the step ended.  [default: as its result says]"
)
@click.option("--note", default="", metavar="TEXT", help="One line for the run's history.")
@click.option(
    "--artifact", "artifacts", multiple=True, metavar="NAME=PATH", help="Register a file that later steps need."
)
@click.option(
    "--response-file",
    type=click.Path(),
    metavar="FILE",
    help="Read the result from FILE ('-': standard input).",
)
@branch_option
@json_option
def done(
    run: str | None,
    stage: str | None,
    outcome: str | None,
    note: str,
    artifacts: tuple[str, ...],
    response_file: str | None,
    branch: str | None,
    as_json: bool,
) -> int:
    """End a step with its result and show the next one.

    --for names the step that you worked on. Called twice, it changes nothing and says how that step ended. Loom reads
    the result from standard input or --response-file. Without either it takes an assistant's next final message, and
    asks a person for a line. A person is also asked for each file that the step has to leave. The result may contain a
    JSON object that says how the step ended and what later steps should know: outcome, failure_reason, context_updates
    and so on. If the step has an output schema, the object must match it.

    \b
    Examples:
      loomctl done --for 002 <<'LOOM'
      The spec is in specs/258.md; two questions are open.
      LOOM
      loomctl done --for 002 --artifact spec_path=specs/258.md < notes.md
      loomctl done --for 002 --outcome failed --note "the tests need a database"
    """
    space = command_line.space()
    given: list[str | None] = []
    may_ask = ask.may_ask(space, as_json=as_json)
    try:
        run_id = find.to_drive(space, run, by_hand=outcome is not None)
        given.append(_response(response_file))
        driven = advance.done(
            space,
            run_id,
            response=given[0],
            outcome=SPELLINGS.get(outcome or "", outcome),
            note=note,
            artifacts=dict(_artifact(space, run_id, one) for one in artifacts),
            branch=branch,
            stage=stage,
            ask=ask.result if may_ask else None,
            ask_file=functools.partial(ask.file, space, run_id) if may_ask else None,
        )
    except LoomError as error:
        if error.code == leases.HELD_BY_ANOTHER:
            said = (given or [_response(response_file)])[0]
            more = _options(stage, outcome, note, artifacts, branch)
            _keep(space, run, error, said, response_file, more)
        raise
    return told(space, driven, as_json=as_json)


def _options(stage: str | None, outcome: str | None, note: str, artifacts: tuple[str, ...], branch: str | None) -> str:
    """Give what a `done` was called with besides its result, to be pasted."""
    named = [("--for", stage), ("--outcome", outcome), ("--note", note), ("--branch", branch)]
    named += [("--artifact", one) for one in artifacts]
    return "".join(f" {name} {quoted(value)}" for name, value in named if value)


def _keep(space: Workspace, run: str | None, error: LoomError, given: str | None, path: str | None, more: str) -> None:
    """Keep the result of a step that another drives: it may have cost hours, and nobody types it again."""
    if given is None or not given.strip():
        return
    kept = path if path not in (None, command_line.STDIN) else ""
    run_id = find.to_read(space, run).run_id or ""
    kept = kept or leases.keep_result(space, run_id, given)
    if kept:
        called = space.store.handle(run_id)
        again = f"loomctl done {called}{more} --response-file {quoted(kept)}"
        error.why += f". Loom kept your result. Once this session drives the run again: {again}"


def _response(path: str | None) -> str | None:
    """Read the step's response; None where none was given. An empty response is one only if a file was named."""
    if path is None and not _has_input():
        return None
    text = command_line.read_text(
        command_line.STDIN if path is None else path,
        why="write a longer result to a file and register that",
        hint="loomctl done --artifact notes=notes.md",
    )
    return text if text.strip() or path is not None else None


def _has_input() -> bool:
    """Tell whether standard input is a pipe or a file; a terminal, /dev/null and a host's socket give nothing."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _artifact(space: Workspace, run_id: str, given: str) -> tuple[str, str]:
    name, equals, path = given.partition("=")
    if not equals or not path or not _NAME.fullmatch(name):
        what = f"--artifact {given!r:.80} is not NAME=PATH"
        why = "an example: --artifact spec_path=specs/258.md"
        raise LoomError("USAGE", what, why=why, hint="loomctl done --help", exit_code=EXIT_USAGE)

    from loomctl.flow import finish  # `next` has no use for it

    return name, finish.portable(space, run_id, path)


@click.command("undo")
@run_argument
@branch_option
@json_option
def undo_command(run: str | None, branch: str | None, as_json: bool) -> int:
    """Undo the last `done`: its step opens again.

    Loom keeps the undone result in the step's folder.

    \b
    Examples:
      loomctl undo
      loomctl undo shop-258
    """
    from loomctl.flow import rewind  # `next` and `done` have no use for it

    space = command_line.space()
    return told(space, rewind.undo(space, find.to_drive(space, run), branch), as_json=as_json)


def told(space: Workspace, driven: Driven, *, as_json: bool) -> int:
    """Print what a verb did and where the run stands, and give the exit code."""
    ended = bool(driven.ran) or (driven.ended is not None and not driven.had_ended)
    if ended and write_rules.started_for()[0] == driven.run.run_id:
        from loomctl.handoff import work  # nobody drives most runs

        work.save_stage(space, driven.run.run_id)
    if as_json:
        output.document(_document(space, driven))
    else:
        text = _text(space, driven)
        shows_step = driven.move.kind == "step" and driven.closing is None and not driven.had_ended
        text += answer.user_said(space, driven.run, text) if shows_step else ""
        output.prose(text, last=lambda: _last(driven))
    if driven.pending is not None and driven.pending.kind == run_commands.NOT_TRUSTED:
        return EXIT_USAGE
    if driven.repair:
        return EXIT_FINDINGS
    return EXIT_MISSING if driven.slip is not None and driven.slip.failed else EXIT_OK


def _document(space: Workspace, driven: Driven) -> dict[str, object]:
    visit = driven.closing or driven.ended
    reading = (driven.reading or Reading()).to_dict()
    goes_on = driven.closing is None and driven.run.state["status"] not in OVER
    return {
        **reading,
        "run_id": driven.run.run_id,
        "handle": driven.run.handle,
        "status": driven.run.state["status"],
        "branch": _branch(driven),
        "closing": driven.closing is not None,
        "had_ended": driven.had_ended,
        "stage": visit["stage"] if visit else None,
        "outcome": driven.ended["status"] if driven.ended else reading["outcome"],
        "failure_reason": visits.reason_of(driven.ended) or None if driven.ended else reading["failure_reason"],
        "repair": driven.repair or None,
        "next": answer.step_document(space, driven.run) if goes_on else None,
        "way": driven.ended.get("next") if driven.ended else None,
        "preamble": answer.preamble_document(space, driven.run) if goes_on else None,
        "pending_approvals": driven.run.state["pending_approvals"],
        "slip": driven.slip.with_text() if driven.slip is not None else None,
        "notes": list(driven.notes),
        "ran": [one._asdict() for one in driven.ran],
        "pending": None if driven.pending is None else driven.pending._asdict(),
        "told": answer.user_said(space, driven.run) or None if goes_on and driven.move.kind == "step" else None,
    }


def _branch(driven: Driven) -> dict[str, object] | None:
    """Give the branch that was worked on: `{id, outcome}`, its outcome null until it has ended; null for the run."""
    outside = visits.seen_from(driven.run.state)
    return {"id": outside.name, "outcome": outside.outcome} if outside.stage else None


def _repair(driven: Driven) -> list[str]:
    entry = visits.open_visit(driven.run.state)
    name = masked_line(entry["step_id"], 120) if entry else "The step"
    lines = [f"{name} is not ended.", "", visible(mask(driven.repair)[0])]
    if driven.repair.startswith(("EVIDENCE_MISSING", "NOT_PRODUCED")):
        return lines
    end = f"Run `{visits.done_command(entry)}` again with the corrected JSON on standard input."
    return [*lines, "", end]


def _at_a_command(driven: Driven, lines: list[str]) -> str:
    """Say where a run stands that is at a command step: nothing there is for the assistant to do."""
    assert driven.pending is not None  # the caller looked
    lines += answer.pending_lines(driven.run, driven.pending)
    if driven.slip is not None:
        lines += answer.of_slip(driven.slip)
    own = "\n".join(lines)
    if command_line.reader_is_an_assistant() and driven.slip is not None and driven.slip.text:
        return f"{own}\n\n{driven.slip.text}"
    return own


def _decided(run: Run, ended: Mapping[str, Any]) -> str:
    """Give what a person chose, who it was and their note, of a step that a person decides; empty for any other."""
    place = frozen_plan.place_of(run.plan, ended["step_id"])
    return masked_line(str(ended.get("note") or ""), 300) if place and frozen_plan.is_human(place.step) else ""


def _asks_at_a_step(driven: Driven) -> bool:
    """Tell whether the run waits at a step that a person decides, whose question is then shown whole."""
    return driven.move.kind == "approval" and gates.open_human(driven.run.state, driven.run.plan) is not None


def _had_ended(driven: Driven) -> list[str]:
    entry = driven.ended or {}
    said = f"{entry['stage']} has ended already: {visits.how_it_ended(entry)}. Nothing changed."
    now = visits.open_visit(driven.run.state)
    lines = [said, driven._replace(ended=None).line]
    if now is None or driven.move.kind != "in_progress":
        return lines
    shows = f"loomctl next --branch {branch}" if (branch := visits.seen_from(driven.run.state).name) else "loomctl next"
    lines.append(f"`{shows}` shows that step. `{visits.done_command(now)}` ends it.")
    return lines


def _unchanged(run: Run, ended: Mapping[str, Any]) -> str:
    """Say of a step whose proof is a command that it changed no file; empty where it did, or nobody knows."""
    place = frozen_plan.place_of(run.plan, ended["step_id"])
    proofs = place.step.get("evidence") if place and place.step.get("kind") != "command" else None
    has_command = any(one["kind"] == "command" for one in proofs or ())
    if not has_command or ended["status"] not in ("succeeded", "partially_succeeded") or visits.is_branch(run.state):
        return ""
    from loomctl.changes import stage_changes  # few steps end by a command

    try:
        found = stage_changes.of_visit(run, ended)
    except (OSError, LoomError):
        return ""
    return "; no file changed in this step" if found.told and not found.unknown and not found.total else ""


def _ended(driven: Driven, ended: Mapping[str, Any]) -> str:
    mark = "✗" if ended["status"] == "failed" else "✓"
    why = finish_records.why(ended, driven.reading, 300) or _decided(driven.run, ended)
    of = ", ".join(filter(None, (ended["stage"], finish_records.by_file(driven.reading))))
    told = f"{mark} {ended['step_id']}: {ended['status']} ({of}){_unchanged(driven.run, ended)}"
    return f"{told}: {why}" if why else told


def _last(driven: Driven) -> list[str]:
    """Say once more what was done and where the run stands, for a person whose screen has lost the first lines."""
    if driven.repair and driven.ended is None:
        return _repair(driven)[:1]
    if driven.closing is not None or driven.pending is not None or driven.had_ended:
        return []
    undone = [note for note in driven.notes if note.startswith("Undone: ")]
    return [*undone, *([_ended(driven, driven.ended)] if driven.ended is not None else []), driven.line]


def _text(space: Workspace, driven: Driven) -> str:
    if driven.closing is not None:
        return (
            f"Now end {driven.closing['step_id']} with your final message: the work done, "
            "the decisions, what is still open. Loom takes that message as the step's result."
        )
    lines = [*driven.notes]
    if driven.had_ended:
        return "\n".join([*lines, *_had_ended(driven)])
    if driven.repair and driven.ended is None:
        return "\n".join([*lines, *_repair(driven)])
    if driven.ended is not None:
        lines.append(_ended(driven, driven.ended))
    lines += (
        [f"  ! {one.code}: {masked_line(one.message, 300)}" for one in driven.reading.warnings]
        if driven.reading
        else []
    )
    lines += answer.ran_lines(driven.ran)
    if driven.pending is not None:
        return _at_a_command(driven, lines)
    lines.append(driven.line)
    if driven.slip is not None:
        lines += answer.of_slip(driven.slip)
    is_over = visits.seen_from(driven.run.state).outcome is not None
    if is_over or (driven.move.kind != "step" and driven.slip is None and not _asks_at_a_step(driven)):
        return "\n".join(lines)
    return answer.whole(space, driven.run, lines, driven.slip, goes_on=driven.ended is not None)


_HELP = "loomctl debug outcome --help"
_SHOWN = 200


@click.command()
@click.option(
    "--from", "source", default="-", show_default=True, metavar="FILE", help="The answer ('-': standard input)."
)
@click.option(
    "--schema", default=None, metavar="routing|FILE", help="Check it against this JSON Schema, or the routing one."
)
@click.option("--status-json", default=None, metavar="FILE", help="The status.json to fall back on.")
@click.option("--last-file", default=None, metavar="FILE", help="The file written last, the next fallback.")
@json_option
def outcome(source: str, schema: str | None, status_json: str | None, last_file: str | None, as_json: bool) -> int:
    """Show how Loom would read an answer at the end of a step.

    It prints the JSON object that counts. It needs no run and writes nothing. Exit code 1 if the answer does not match
    the schema.

    \b
    Examples:
      loomctl debug outcome --from response.md
      loomctl debug outcome --schema routing --status-json status.json
      loomctl debug outcome --from response.md --schema schemas/audit.schema.json
    """
    command_line.only_one_from_stdin(source, schema, status_json, last_file, hint=_HELP)
    step: dict[str, Any] = {"kind": "agent", "output_schema": schema}
    if schema is not None and schema != ROUTING:
        step = {**step, "output_schema": f"@{schema}", "schema": _schema(schema)}
    touched = None if last_file is None else _fallback(last_file)
    counts = last_file is None or last_file == command_line.STDIN or last_file.endswith(answers.ENDINGS)
    if not counts:
        ends = " or ".join(answers.ENDINGS)
        output.note(f"loomctl: ignored {command_line.source_name(last_file or '')}: the last file must end in {ends}")
    reading = answers.understood(
        step,
        command_line.read_text(source, hint=_HELP),
        status_json=None if status_json is None else _fallback(status_json),
        last_file=touched if counts else None,
    )
    output.answer(reading.to_dict(), _lines(reading), as_json=as_json)
    return EXIT_FINDINGS if reading.errors else EXIT_OK


def _fallback(source: str) -> str:
    """Read what may stand in for a response; a run reads no more of it either."""
    return command_line.read_text(source, hint=_HELP, largest=answers.LARGEST_SOURCE)


def _schema(path: str) -> dict[str, Any]:
    from loomctl.expressions import output_schemas
    from loomctl.kit.problems import refusal

    data = command_line.read(path, hint=_HELP, largest=output_schemas.LARGEST)
    loaded = output_schemas.loaded(data, name=command_line.source_name(path))
    for problem in loaded.problems:
        if problem.severity != "error":
            output.note(f"loomctl: {problem.code}: {problem.message}")
    refused = refusal(
        loaded.problems, what="this schema is invalid", where=command_line.source_name(path), code="BAD_SCHEMA"
    )
    if refused is not None:
        refused.hint = _HELP if path == command_line.STDIN else trouble.look(path)
        raise refused
    assert loaded.schema is not None
    return loaded.schema


def _lines(reading: Reading) -> list[str]:
    said = reading.to_dict()
    lines = [f"found in: {reading.source}" if reading.found else "found no JSON object that says how the step ended"]
    texts = ("outcome", "failure_reason", "preferred_next_label")
    lines += [f"{key}: {one_line(said[key], _SHOWN)}" for key in texts if said[key] is not None]
    if reading.suggested_next_ids:
        lines.append(f"suggested_next_ids: {one_line(', '.join(reading.suggested_next_ids), _SHOWN)}")
    lines += [f"context {one_line(key, _SHOWN)} = {_brief(value)}" for key, value in reading.context_updates.items()]
    lines += [f"artifact {name} = {one_line(path, _SHOWN)}" for name, path in reading.artifacts.items()]
    if reading.output is not None:
        lines.append(f"output: {_brief(reading.output)}")
    for kind, found in (("error", reading.errors), ("warning", reading.warnings)):
        lines += [f"{kind}: {one.code} at {one.where or 'the object'}: {one_line(one.message, 400)}" for one in found]
    return lines


def _brief(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False), _SHOWN)
