"""`loomctl steps`, `debug reduce`: what the tools were called for, and what became of their output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from loomctl.cli import command_line, output
from loomctl.cli.command_line import Listing, complete_runs, json_option, run_argument
from loomctl.cli.verbs import views_of
from loomctl.hosts import tool_calls
from loomctl.kit import files
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text import fences
from loomctl.kit.text.fences import counted, one_line
from loomctl.kit.text.secrets import masked, masked_line
from loomctl.reduction import history, tool_steps
from loomctl.runs.tools import recall, tool_log

if TYPE_CHECKING:
    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.runs.project import Workspace

LAST = 20
_SUMMARY = 100  # UTF-16 units of what a line of the table says
_COMMAND = 60  # and of a shell's command in it
_COMPLETED = 200  # of the newest steps
_WIDE = 120  # columns of a screen that holds whole ids
_HELP_OF_REDUCE = "loomctl debug reduce --help"


def _complete_runs_and_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    words = [name for name in steps.commands if name.startswith(incomplete)]
    return [*map(CompletionItem, words), *complete_runs(ctx, param, incomplete)]


def _complete_steps(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        found = recall.record(command_line.space(), None, whole=False)
        newest = tool_log.tail(found.folder, _COMPLETED)
    except (LoomError, OSError):
        return []
    items = {step.id: one_line(step.observation.partition("\n")[0], 60) for step in reversed(newest)}
    return [CompletionItem(name, help=told) for name, told in items.items() if name.startswith(incomplete)]


def _record(space: Workspace, run: str | None) -> recall.Record:
    found = recall.record(space, command_line.shown_run_id(space, run))
    if found.trouble:
        output.note(f"loomctl: {found.trouble}; this list lacks the newest tool calls")
    return found


@views_of("steps")
@click.group(cls=Listing, invoke_without_command=True)
@click.argument("run", required=False, shell_complete=_complete_runs_and_words)
@click.option(
    "--last", type=click.IntRange(min=1), default=LAST, show_default=True, metavar="N", help="Only the newest N."
)
@click.option("--all", "every", is_flag=True, help="List all of them.")
@click.option("--tool", default="", metavar="NAME", help="Only calls of this tool, e.g. Bash or mcp__*.")
@click.option("--failed", is_flag=True, help="Only failed calls.")
@click.option("--agents", is_flag=True, help="Include calls of subagents.")
@json_option
@click.pass_context
def steps(
    context: click.Context,
    *,
    run: str | None = None,
    last: int = LAST,
    every: bool = False,
    tool: str = "",
    failed: bool = False,
    agents: bool = False,
    as_json: bool = False,
) -> int:
    """List a run's tool calls, their results and their tokens.

    Tokens are those before and after Loom shortened the output. `loomctl steps show ID` prints the full original. It
    also takes an ID that the list cut.

    \b
    Examples:
      loomctl steps
      loomctl steps shop-258 --last 50 --failed
      loomctl steps show toolu_01
    """
    if context.invoked_subcommand is not None:
        return EXIT_OK
    found = _record(command_line.space(), run)
    seen = recall.listed(found, last=None if every else last, tool=tool, failed=failed, agents=agents)
    wide = max((len(f"{step.tokens_before:,}") for step in seen.steps), default=0)
    rows = [_row(step, wide) for step in seen.steps]
    lines = [output.table(["ID", "TOOL", "WHAT", "TOKENS", "ENDED"], rows, keep=(0, 3), spare=(3,)), ""] if rows else []
    told = {
        "run_id": found.run_id,
        "handle": found.handle,
        "steps": [_document(step) for step in seen.steps],
        "found": seen.found,
        "agents_left_out": seen.agents,
        "total": seen.total,
    }
    output.answer(told, [*lines, _summary_line(found.handle, seen)], as_json=as_json)
    return EXIT_OK


def _summary_line(handle: str, seen: recall.Listed) -> str:
    if not seen.total:
        return f"{handle}: no tool calls yet"
    told = f"{handle}: {len(seen.steps):,} of {counted(seen.found, 'tool call')}"
    if len(seen.steps) < seen.found:
        told += "; --all lists the others"
    return told + (f"; --agents lists {seen.agents:,} more of subagents" if seen.agents else "")


def _row(step: ToolStep, wide: int) -> list[str]:
    """Give the cells of a step. wide: characters that the largest number of tokens before takes."""
    tool = one_line(step.tool_name, 40)
    agent = step.more.get("agent_id")
    return [
        fences.cut(one_line(step.id, 64), 64 if output.columns() >= _WIDE else 16),
        f"{tool} ({one_line(str(agent), 20)})" if agent else tool,
        masked_line(history.called(step, _COMMAND), _SUMMARY),
        f"{step.tokens_before:>{wide},} → {step.tokens_after:,}",
        "ok" if step.success else "failed",
    ]


def _document(step: ToolStep) -> dict[str, Any]:
    numbers = {"bytes": step.bytes, "tokens_before": step.tokens_before, "tokens_after": step.tokens_after}
    return {key: value for key, value in step.to_dict().items() if key != "rest"} | numbers


@steps.command("show")
@click.argument("step_id", metavar="ID", shell_complete=_complete_steps)
@run_argument
@click.option("--reduced", is_flag=True, help="Print the shortened text instead.")
@json_option
def show(step_id: str, run: str | None, reduced: bool, as_json: bool) -> int:
    """Print the full original of a tool call, byte for byte.

    This is your tool's own output; nothing is masked. The beginning of an ID is enough. --json prints the call with its
    arguments and whole result.

    \b
    Examples:
      loomctl steps show toolu_01AbC
      loomctl steps show toolu_01AbC shop-258 --json
      loomctl steps show toolu_01AbC --reduced
    """
    found = _record(command_line.space(), run)
    step = recall.find(found, step_id)
    if reduced:
        text = history.full(step)
        output.answer(
            {"run_id": found.run_id, "handle": found.handle, "step": _document(step), "text": text},
            [text],
            as_json=as_json,
        )
        return EXIT_OK
    if as_json:
        args, result = recall.original_call(found, step)
        told = {
            "run_id": found.run_id,
            "handle": found.handle,
            "step": masked(_document(step)),
            "args": args,
            "result": result,
        }
        output.original(told)
        return EXIT_OK
    output.raw([recall.original_text(found, step)])
    return EXIT_OK


@click.command("history")
@run_argument
@click.option(
    "--budget", type=click.IntRange(min=0), default=500, show_default=True, metavar="N", help="At most so many tokens."
)
@click.option(
    "--recent",
    type=click.IntRange(min=0),
    default=history.RECENT,
    show_default=True,
    metavar="N",
    help="Print the last N calls in full.",
)
@json_option
def history_command(run: str | None, budget: int, recent: int, as_json: bool) -> int:
    """Print a run's tool calls as a compaction gets them.

    It prints the last ones in full and a line for each earlier one, within the budget. It counts those that do not fit;
    `loomctl steps` lists them.

    \b
    Examples:
      loomctl steps --history
      loomctl steps --history shop-258 --budget 2000 --recent 5
    """
    space = command_line.space()
    found = _record(space, run)
    told = recall.recalled(space, found, budget, recent)
    document = {
        "run_id": found.run_id,
        "handle": found.handle,
        "text": told.text,
        "tokens": {"at_most": told.at_most, "estimate": told.estimated, "budget": budget},
        "steps": told.steps,
        "left_out": told.left_out,
    }
    text = told.text if told.text or told.steps else f"{found.handle}: no tool calls yet"
    output.document(document) if as_json else output.text(text)  # it quotes what tools gave
    return EXIT_OK


@click.command("reduce")
@json_option
def reduce_command(as_json: bool) -> int:
    """Shorten a tool call from standard input, as hooks do.

    It reads a hook event (tool_name, tool_input, tool_response or error, tool_use_id), or an object with tool, args and
    result. It prints the shortened text, or with --json the recorded call. It writes nothing.

    \b
    Examples:
      loomctl debug reduce < event.json
      loomctl debug reduce --json < event.json
    """
    call = tool_calls.read(_given())
    rules = tool_steps.of_settings(command_line.space(make=True).settings.reduce_rules)
    step, text = recall.reduced(call.tool_name, call.args, call.result, error=call.error, step_id=call.id, rules=rules)
    if as_json:
        output.document(recall.as_document(step, text))
    else:
        output.text(step.observation)
    return EXIT_OK


def _given() -> Any:
    data = (
        b""
        if sys.stdin.isatty()
        else command_line.read(command_line.STDIN, hint=_HELP_OF_REDUCE, largest=files.LARGEST_JSON)
    )
    if not data.strip():
        what = "there is no tool call on standard input"
        raise LoomError("NO_INPUT", what, hint=_HELP_OF_REDUCE, exit_code=EXIT_USAGE)
    try:
        return files.parse_json(data, where="standard input")
    except LoomError as error:
        error.hint = _HELP_OF_REDUCE
        raise


@click.command("savings")
@run_argument
@json_option
def savings_command(run: str | None, as_json: bool) -> int:
    """Count the tokens saved; check that every original is there.

    It counts, by tool, the tokens that Loom saved by shortening outputs; Loom's own calls do not count. Tokens are
    estimates. It reads every original. Exit code 1 if an original or a record is missing or changed.

    \b
    Examples:
      loomctl steps --savings
      loomctl steps --savings shop-258 --json
    """
    found = _record(command_line.space(), run)
    told = recall.savings(found)
    ends = EXIT_OK if told.all_there else EXIT_FINDINGS
    if as_json:
        recovery = {
            **{
                key: getattr(told, key)
                for key in ("steps", "recovered", "bytes", "bytes_recovered", "dangling", "missing")
            },
            "lost": [{"id": one.step_id, **one.error.to_dict()} for one in told.lost],
        }
        tools = [{"tool_name": one.tool_name, **_saved(one)} for one in told.tools]
        output.document(
            {
                "run_id": found.run_id,
                "handle": found.handle,
                "tools": tools,
                "all": _saved(told.whole),
                "recovery": recovery,
            }
        )
        return ends
    rows = [_cells(one.tool_name, one) for one in told.tools] + [_cells("all", told.whole)]
    columns = list(zip(["TOOL", "STEPS", "TOKENS BEFORE", "AFTER", "SAVED"], *rows, strict=True))
    wide = [max(map(len, column)) for column in columns[1:]]
    header, *rows = [
        [name, *(cell.rjust(width) for cell, width in zip(numbers, wide, strict=True))]
        for name, *numbers in zip(*columns, strict=True)
    ]
    lines = [output.table(header, rows), ""]
    lines += output.beside(
        "Originals: ",
        f"{told.recovered:,} of {counted(told.steps, 'call')}, {told.bytes_recovered:,} of "
        f"{counted(told.bytes, 'byte')}, {counted(told.dangling, 'dangling reference')}",
    )
    lines += [f"  ! {one_line(one.step_id, 64)}: {one.error.code}: {one.error.what}" for one in told.lost]
    if told.own:
        lines.append(f"{counted(told.own, 'call')} of Loom's own left out.")
    if told.missing:
        lines.append(f"  ! {told.missing:,} more calls are missing: their lines in {found.log} are damaged")
    output.text("\n".join(lines))
    return ends


def _saved(one: recall.Saved) -> dict[str, Any]:
    return {
        "steps": one.steps,
        "tokens_before": one.before,
        "tokens_after": one.after,
        "saved_percent": one.percent,
    }


def _cells(name: str, one: recall.Saved) -> list[str]:
    return [one_line(name, 40), f"{one.steps:,}", f"{one.before:,}", f"{one.after:,}", f"{one.percent:.1f} %"]
