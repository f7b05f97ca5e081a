"""`loomctl simulate`: a workflow played without an assistant, to test its ways."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from loomctl.cli import arguments, caller, output, simulated_event
from loomctl.cli.arguments import complete_runs, complete_workflows, json_option
from loomctl.cli.simulated_event import Asked
from loomctl.kit import files, strict_yaml
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, quoted
from loomctl.kit.json import strict_json
from loomctl.kit.problems import at, error, kind_of, refusal, warning
from loomctl.kit.text.fences import one_line
from loomctl.runs.model import run_context
from loomctl.simulate import play, scripts
from loomctl.workflows import resolve, workflow_files
from loomctl.workflows.plan import build_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.simulate.play import Played

_HELP = "loomctl simulate --help"
_SHOWN = 120


@click.command()
@click.argument("workflow", metavar="[WORKFLOW]", required=False, shell_complete=complete_workflows)
@click.option("--outcomes", metavar="FILE", help="How each step ends, JSON or YAML; -: standard input.")
@click.option("--context", "begins", metavar="FILE|JSON", help="The context that the run begins with.")
@click.option("--goal", default="", metavar="TEXT", help="What the run is for, as conditions see it in state.goal.")
@click.option(
    "--event", metavar="E", help="Print what the model gets at this event: startup, compact, phase_start:P, …"
)
@click.option(
    "--at", "where", metavar="STEP[@VISIT]", help="With --event: where the run stands (default: its first step)."
)
@click.option("--work-id", metavar="ID", help="With --event: the work item that the run is for.")
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=complete_runs,
    help="With --event: a run as it stands, no workflow.",
)
@click.option("--session", metavar="ID", help="With --event and a run: the session id of the conversation.")
@json_option
def simulate(
    workflow: str | None,
    outcomes: str | None,
    begins: str | None,
    goal: str,
    event: str | None,
    where: str | None,
    work_id: str | None,
    run_id: str | None,
    session: str | None,
    as_json: bool,
) -> int:
    """Play a workflow without an assistant: which steps it visits, in which order, and why each came next.

    Nothing is written, no command is run, approvals are taken as given, and so is evidence. The outcomes are {step: [an
    object for each visit]} in the words of a directive; the last object holds for all visits that follow, and a step
    that is not named succeeds. The branches of a parallel step are played one after the other, as declared, until its
    join goes on. Exit code 0 if the run would be completed, 1 if it would fail, 2 if a file cannot be read, 5 if it
    cannot be used.

    With --event it prints, byte for byte, what the model would get when a session starts (startup, resume, clear,
    fork), after a compaction (compact), or at a trigger (phase_start:build, phase_transition:frame->build): of a
    workflow that has come to --at, or without WORKFLOW of a run as it stands. Exit code 4 if a required artifact is
    missing.

    \b
    Examples:
      loomctl simulate core
      loomctl simulate .loom/workflows/review.yaml --outcomes tests/fix-once.yaml
      loomctl simulate review --outcomes tests/fix-once.yaml --context '{"coverage": 81}' --json
      loomctl simulate review --event compact --at build/fix
      loomctl simulate --event resume
    """
    asked = Asked(event, where, work_id, run_id, session)
    if workflow is None:
        asked.refuse_unused(("--outcomes", outcomes), ("--context", begins), ("--goal", goal))
        return simulated_event.of_run(asked, as_json=as_json)
    asked.refuse_beside_a_workflow()
    arguments.only_one_from_stdin(outcomes, begins, hint=_HELP)
    return _play(workflow, outcomes, begins, goal, asked, as_json=as_json)


def _play(workflow: str, outcomes: str | None, begins: str | None, goal: str, asked: Asked, *, as_json: bool) -> int:
    space = caller.space(make=True, writes=False)
    project = space.project
    resolved = resolve.resolve(
        workflow,
        project_dir=os.path.dirname(project.store),
        store=project.store,
        bundle=project.plugin_root,
        base=space.caller.cwd,
    )
    plan = build_plan(resolved.checked(), plan_id="simulation", created_at=play.AT, sources=resolved.sources)
    script, found = scripts.read(None if outcomes is None else _file(outcomes), plan)
    _refuse(found, "these outcomes cannot be played", outcomes or "")
    context, kept_out = _context(begins)
    judge = play.without_disk(space.caller.environment_python)
    if asked.event is not None:
        began = simulated_event.Began(plan, script, judge, context, goal, (*found, *kept_out))
        return simulated_event.of_workflow(space, asked, began, as_json=as_json)
    played = play.play(plan, script, judge=judge, context=context, goal=goal)
    told = [{"code": one.code, "where": one.where, "message": one.message} for one in (*found, *kept_out)]
    warnings = [*told, *played.warnings]
    if as_json:
        output.document(_document(plan, played, warnings))
    else:
        output.text("\n".join(_lines(played)))
        for one in warnings:
            output.note(f"loomctl: {one['code']} at {one_line(one['where'], 200)}: {one_line(one['message'], 400)}")
    return EXIT_OK if played.state["status"] == "completed" else EXIT_FINDINGS


def _file(source: str) -> Any:
    """Read JSON or YAML from a file or standard input. Raises LoomError with everything that is wrong with its form."""
    data = arguments.read(source, hint=_HELP, largest=workflow_files.LARGEST_JSON)
    value, problems = _parsed(data, source)
    _refuse(problems, "this cannot be read", source)
    return value


def _parsed(data: bytes, source: str) -> tuple[Any, list[Problem]]:
    try:
        text = files.text_of(data)
    except UnicodeDecodeError as problem:
        where = strict_json.position(data.decode("latin-1"), problem.start)
        return None, [error("NOT_UTF8", where, "it is not UTF-8 text", "save it as UTF-8")]
    is_json = text.lstrip().startswith("{") if source == arguments.STDIN else not source.endswith(workflow_files.YAML)
    if is_json:
        return strict_json.parse(text, max_depth=strict_json.DEEPEST)
    if len(data) > workflow_files.LARGEST_YAML:
        message = f"it has {len(data):,} bytes, {workflow_files.LARGEST_YAML:,} are read of YAML at most"
        return None, [error("TOO_LARGE", "$", message, "write it as JSON")]
    return strict_yaml.parse(text, max_depth=strict_json.DEEPEST)


def _refuse(problems: list[Problem], what: str, source: str) -> None:
    code = "BAD_CONTEXT" if problems and problems[0].code == "BAD_CONTEXT" else "BAD_OUTCOMES"
    refused = refusal(problems, what=what, where=arguments.source_name(source), code=code)
    if refused is not None:
        refused.hint = _HELP if source in ("", arguments.STDIN) else f"${{EDITOR:-vi}} {quoted(source)}"
        raise refused


def _context(given: str | None) -> tuple[dict[str, Any], list[Problem]]:
    """Give the context that a run begins with; keys that Loom itself writes are left out, with a warning (D37)."""
    if given is None:
        return {}, []
    is_text = given.lstrip().startswith("{")
    value, found = strict_json.parse(given, max_depth=strict_json.DEEPEST) if is_text else (_file(given), [])
    if not found and not isinstance(value, dict):
        found = [error("BAD_CONTEXT", "$", f"expected an object, got {kind_of(value)}")]
    _refuse(found, "this context cannot be used", "" if is_text else given)
    kept = {key: one for key, one in value.items() if not run_context.is_reserved(key)}
    message = "Loom itself writes this key of the context; it is left out"
    return kept, [warning("RESERVED_KEY", at("$", key), message) for key in value if key not in kept]


def _document(plan: Mapping[str, Any], played: Played, warnings: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "workflow_id": plan["workflow_id"],
        "stages": played.stages,
        "status": played.state["status"],
        "why": played.why,
        "context": played.state["context"],
        "approvals": played.approvals,
        "warnings": warnings,
    }


def _lines(played: Played) -> list[str]:
    rows = list(_rows(played.stages))
    lines = [output.table(["RANK", "STEP", "OUTCOME", "NEXT"], rows), ""] if rows else []
    lines += [simulated_event.gate(asked) for asked in played.approvals]
    why = f": {one_line(played.why, 300)}" if played.why else ""
    lines.append(f"{played.state['status']}{why}")
    lines += [
        f"context {one_line(key, 80)} = {one_line(json.dumps(value, ensure_ascii=False), 200)}"
        for key, value in sorted(played.state["context"].items())
    ]
    return lines


def _rows(stages: Sequence[Mapping[str, Any]], indent: str = "") -> Iterator[list[str]]:
    """Give a row for each stage; below a parallel step, further in, one for each branch with its stages."""
    for stage in stages:
        step = f"{indent}{stage['step_id']}@{stage['visit']}"
        yield [f"{stage['rank']:03}", step, str(stage["outcome"]), f"→ {one_line(_onward(stage), _SHOWN)}"]
        for branch in stage.get("branches", ()):
            yield ["", f"{indent}  {branch['id']}", str(branch["status"]), one_line(branch.get("why", ""), _SHOWN)]
            yield from _rows(branch["stages"], indent + "    ")


def _onward(stage: Mapping[str, Any]) -> str:
    """Say where a stage leads, and why."""
    way = stage["next"]
    ended = way["reason"] == "end"
    why = str(way.get("by") if ended else way["reason"])
    if why == "condition":
        why = f"condition: {stage['weighed'][way['transition']]['condition']}"
    elif why == "label":
        why = f"label: {way['label']}"
    elif way["reason"] == "max_visits":
        why = f"max_visits of {way['to']}"
    target = way["step_id"] or ("end" if ended else "failed")
    waits = f", not before {way['not_before']}" if "not_before" in way else ""
    return f"{target} ({why}{waits})"
