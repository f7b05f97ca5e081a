"""`loomctl simulate`: a workflow played without an assistant, and what the model would get at an event of it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loomctl.cli import command_line, output
from loomctl.cli.command_line import complete_runs, complete_workflows, json_option
from loomctl.hosts.protocol.sessions import Given
from loomctl.hosts.protocol.simulate import SOURCES, of_run, of_workflow, unwritten
from loomctl.kit import files, ids, strict
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_MISSING, EXIT_OK, EXIT_USAGE, LoomError, quoted
from loomctl.kit.problems import at, error, kind_of, refusal, warning
from loomctl.kit.text.fences import one_line, utf8_bytes, utf16_units
from loomctl.runs.model import frozen_plan, run_context, visits
from loomctl.runs.model.state import new_state
from loomctl.runs.store.store import Run
from loomctl.simulate import play
from loomctl.workflows import resolve, triggers, workflow_files
from loomctl.workflows.workflow import build_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.simulate.play import Played, Script
    from loomctl.workflows.routing import Judge

_HELP = "loomctl simulate --help"
_SHOWN = 120
_WAY = 8  # visits that are named of a way that did not lead there
_ENDS = {"completed": "completed", "failed": "failed"}


class _Beginning(NamedTuple):
    plan: dict[str, Any]
    script: Script
    judge: Judge
    context: Mapping[str, Any]
    goal: str


@click.command()
@click.argument("workflow", metavar="[WORKFLOW]", required=False, shell_complete=complete_workflows)
@click.option("--outcomes", metavar="FILE", help="How each step ends: JSON or YAML ('-': standard input).")
@click.option("--context", "begins", metavar="FILE|JSON", help="The context at the start.")
@click.option("--goal", default="", metavar="TEXT", help="The goal (state.goal in conditions).")
@click.option(
    "--event", metavar="E", help="Print what the assistant gets at this event: startup, compact, phase_start:P, …"
)
@click.option("--at", "where", metavar="STEP[@VISIT]", help="With --event: the open step.  [default: the first]")
@click.option("--work-id", metavar="ID", help="With --event: the run's work item.")
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=complete_runs,
    help="With --event: this run as it stands, not a workflow.",
)
@click.option("--session", metavar="ID", help="With --event and a run: the conversation's session id.")
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
    """Play a workflow without an assistant: its steps, and why.

    It lists the steps in order, and why each came next. It writes nothing, runs no command, and takes approvals and
    evidence as given. --outcomes says how steps end: {step: [one object for each time]}, with the fields of a result
    (outcome, context_updates, …). The last object counts for all later times. Other steps succeed. It plays the
    branches of a parallel step one after the other.

    With --event it prints exactly what the assistant would get at that event. --at says which step is open. Without
    WORKFLOW it takes a run as it stands.

    \b
    Events:
      startup, resume, clear, fork   a session starts
      compact                        after a compaction
      phase_start:build, …            a trigger

    \b
    Exit codes:
      0  the run would complete
      1  the run would fail
      2  Loom cannot read a file
      4  a required artifact is missing
      5  a file is invalid

    \b
    Examples:
      loomctl simulate core
      loomctl simulate .loom/workflows/review.yaml --outcomes tests/fix-once.yaml
      loomctl simulate review --context '{"coverage": 81}' --json
      loomctl simulate review --event compact --at build/fix
      loomctl simulate --event resume
    """
    if workflow is None:
        of_a_workflow = {"--outcomes": outcomes, "--context": begins, "--goal": goal, "--at": where}
        return _at_a_run(event, run_id, session, {**of_a_workflow, "--work-id": work_id}, as_json=as_json)
    _refuse_options({"--run": run_id, "--session": session}, "only a run without WORKFLOW takes this")
    if event is None:
        _refuse_options({"--at": where, "--work-id": work_id}, "only --event takes this")
    command_line.only_one_from_stdin(outcomes, begins, hint=_HELP)
    space = command_line.space(make=True, writes=False)
    beginning, warnings = _read(space, workflow, outcomes, begins, goal)
    if event is None:
        return _play(beginning, warnings, as_json=as_json)
    _check_event(event)
    _note(warnings)
    return _at_an_event(space, beginning, event, where, work_id, as_json=as_json)


def _read(
    space: Workspace, workflow: str, outcomes: str | None, begins: str | None, goal: str
) -> tuple[_Beginning, list[dict[str, Any]]]:
    """Read what a workflow is played with, and what is to be said of that."""
    plan = _plan(space, workflow)
    script, found = play.read(None if outcomes is None else _file(outcomes), plan)
    _refuse(found, "these outcomes are invalid", outcomes or "")
    context, left_out = _context(begins)
    beginning = _Beginning(plan, script, play.without_disk(space.caller.environment_python), context, goal)
    warnings = [{"code": one.code, "where": one.where, "message": one.message} for one in (*found, *left_out)]
    return beginning, warnings


def _at_an_event(
    space: Workspace, beginning: _Beginning, event: str, where: str | None, work_id: str | None, *, as_json: bool
) -> int:
    """Print what the assistant would get at an event. where: the step that is open then, as --at says it."""
    _check_phases(event, beginning.plan)
    run, approvals = _until(space, beginning, event, where, work_id)
    if not as_json:
        for taken in approvals:
            output.note(f"loomctl: {_gate(taken)}")
    given = of_workflow(space, run, event)
    return _print(event, run.run_id, given, as_json=as_json, approvals=approvals)


def _plan(space: Workspace, workflow: str) -> dict[str, Any]:
    resolved = resolve.resolve(workflow, workflow_files.places_of(space.project), base=space.caller.cwd)
    return build_plan(resolved.checked(), plan_id="simulation", created_at=play.AT, sources=resolved.sources)


def _play(began: _Beginning, warnings: list[dict[str, str]], *, as_json: bool) -> int:
    played = play.play(began.plan, began.script, judge=began.judge, context=began.context, goal=began.goal)
    warnings = [*warnings, *played.warnings]
    state = played.state
    told = {"workflow_id": began.plan["workflow_id"], "stages": played.stages, "status": state["status"]}
    told |= {"why": played.why, "context": state["context"], "approvals": played.approvals, "warnings": warnings}
    output.answer(told, _lines(played), as_json=as_json)
    if not as_json:
        _note(warnings)
    return EXIT_OK if state["status"] == "completed" else EXIT_FINDINGS


def _note(warnings: Sequence[Mapping[str, str]]) -> None:
    for one in warnings:
        output.note(f"loomctl: {one['code']} at {one_line(one['where'], 200)}: {one_line(one['message'], 400)}")


def _file(source: str) -> Any:
    """Read JSON or YAML from a file or standard input. Raises LoomError with everything that is wrong with its form."""
    data = command_line.read(source, hint=_HELP, largest=workflow_files.LARGEST_JSON)
    value, problems = _parsed(data, source)
    _refuse(problems, "Loom cannot read this", source)
    return value


def _parsed(data: bytes, source: str) -> tuple[Any, list[Problem]]:
    try:
        text = files.text_of(data)
    except UnicodeDecodeError as problem:
        where = strict.position(data.decode("latin-1"), problem.start)
        return None, [error("NOT_UTF8", where, "the file is not UTF-8 text", "save it as UTF-8")]
    is_json = (
        text.lstrip().startswith("{") if source == command_line.STDIN else not source.endswith(workflow_files.YAML)
    )
    if is_json:
        return strict.parse_json(text, max_depth=strict.DEEPEST)
    if len(data) > workflow_files.LARGEST_YAML:
        message = f"a YAML file may have {workflow_files.LARGEST_YAML:,} bytes; this one has {len(data):,}"
        return None, [error("TOO_LARGE", "$", message, "write it as JSON")]
    return strict.parse_yaml(text, max_depth=strict.DEEPEST)


def _refuse(problems: list[Problem], what: str, source: str) -> None:
    code = "BAD_CONTEXT" if problems and problems[0].code == "BAD_CONTEXT" else "BAD_OUTCOMES"
    refused = refusal(problems, what=what, where=command_line.source_name(source), code=code)
    if refused is not None:
        refused.hint = _HELP if source in ("", command_line.STDIN) else f"${{EDITOR:-vi}} {quoted(source)}"
        raise refused


def _context(given: str | None) -> tuple[dict[str, Any], list[Problem]]:
    """Give the context that a run begins with; keys that Loom itself writes are left out, with a warning (D37)."""
    if given is None:
        return {}, []
    is_text = given.lstrip().startswith("{")
    value, found = strict.parse_json(given, max_depth=strict.DEEPEST) if is_text else (_file(given), [])
    if not found and not isinstance(value, dict):
        found = [error("BAD_CONTEXT", "$", f"expected an object, got {kind_of(value)}")]
    _refuse(found, "this context is invalid", "" if is_text else given)
    kept = {key: one for key, one in value.items() if not run_context.is_reserved(key)}
    message = "Loom itself writes this context key; it ignores yours"
    return kept, [warning("RESERVED_KEY", at("$", key), message) for key in value if key not in kept]


def _lines(played: Played) -> list[str]:
    rows = list(_rows(played.stages))
    lines = [output.table(["RANK", "STEP", "OUTCOME", "NEXT"], rows), ""] if rows else []
    lines += [_gate(asked) for asked in played.approvals]
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


# ---- What the model would get at an event.


def _at_a_run(
    event: str | None, named: str | None, session: str | None, others: Mapping[str, str | None], *, as_json: bool
) -> int:
    if event is None:
        raise _usage("name a WORKFLOW", "only --event works without one: it takes a run as it stands")
    _refuse_options(others, "only a WORKFLOW takes this; without one Loom takes a run as it stands")
    _check_event(event)
    space = unwritten(command_line.space(writes=False))
    run_id = command_line.run_id(space, named)
    _check_phases(event, space.store.read(run_id, to_show=True).plan)
    return _print(event, run_id, of_run(space, run_id, event, session), as_json=as_json)


def _gate(asked: Mapping[str, Any]) -> str:
    told = f"{one_line(asked['id'], _SHOWN)}: {one_line(asked['reason'], 200)}"
    where = f" in branch {asked['branch']}" if "branch" in asked else ""
    if "choices" not in asked:
        return f"approval assumed{where}: {told}"
    offered = " · ".join(one_line(one, 60) for one in asked["choices"])
    return f"a person would decide{where}: {told}" + (f" ({offered})" if offered else "")


def _until(
    space: Workspace, began: _Beginning, event: str, where: str | None, work_id: str | None
) -> tuple[Run, list[dict[str, Any]]]:
    """Make the run that stands at the step, with the approvals that it came through.

    Without a step a trigger of a phase finds it at that phase's first. Raises NO_SUCH_STEP, NOT_REACHED.
    """
    plan_id = ids.make_plan_id(space.project.name, work_id or began.goal or "simulation")
    run_id = f"{plan_id}-run-{play.AT.replace(':', '-')}"
    plan = {**began.plan, "plan_id": plan_id}
    work_id = work_id.lstrip("#") if work_id else None
    state = new_state(plan, run_id=run_id, work_id=work_id, goal=began.goal, at=play.AT)
    step, visit = _place(plan, where) if where is not None else (_first_of_phase(plan, event), 1)
    there, approvals = play.until(
        plan, began.script, {**state, "context": dict(began.context)}, judge=began.judge, step=step, visit=visit
    )
    if visits.open_visit(there) is None:
        raise _not_reached(there, where or step or "a step")
    _warn_of_another_phase(event, there)
    folder = space.store.run_dir(run_id)
    paths = (os.path.join(folder, "state.json"), os.path.join(folder, "plan.json"))
    return Run(run_id, folder, there, plan, *paths), approvals


def _not_reached(ended: State, wanted: str) -> LoomError:
    went = [f"{one['step_id']}@{one['visit']}" for one in ended["steps"]]
    way = ", ".join([*([f"{len(went) - _WAY:,} steps"] if len(went) > _WAY else []), *went[-_WAY:]]) or "no step"
    return LoomError(
        "NOT_REACHED",
        f"the run never comes to {wanted}",
        why=f"it went {one_line(way, 600)} and {_ENDS.get(ended['status'], 'stopped')} there. "
        "Other --outcomes or another --context may lead to it",
        hint=command_line.again(("event", "where", "work_id")) or _HELP,
        exit_code=EXIT_FINDINGS,
    )


def _phase_begun(event: str) -> str:
    _, left, right = triggers.split(event)
    return next((name for name in (right or left,) if name != "*"), "")


def _first_of_phase(plan: Mapping[str, Any], event: str) -> str | None:
    phase = _phase_begun(event)
    steps = (one for one in frozen_plan.places(plan) if not one.step.get("engine"))
    return next((one.key for one in steps if phase and str(one.phase["id"]) == phase), None)


def _warn_of_another_phase(event: str, state: Mapping[str, Any]) -> None:
    """Say that a run never meets an event at the step where it is: nothing of that phase is required there."""
    phase, at = _phase_begun(event), str(state.get("current_phase") or "")
    if phase and at and phase != at:
        what = f"{event} happens when a run enters {phase}, and this one is in {at}"
        output.note(f"loomctl: ANOTHER_PHASE: {one_line(what, 400)}")


def _place(plan: Mapping[str, Any], named: str) -> tuple[str, int]:
    """Read `STEP[@VISIT]`; a step is named by its key, or by its id where one has it."""
    name, _, number = named.partition("@")
    visit = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 0 if number else 1
    keys = [place.key for place in frozen_plan.places(plan) if not place.step.get("engine")]
    found = [key for key in keys if key == name] or [key for key in keys if key.partition("/")[2] == name]
    if len(found) == 1 and visit > 0:
        return found[0], visit
    what = (
        f"{len(found)} steps are called {name!r:.80}" if len(found) > 1 else f"the workflow has no step {named!r:.80}"
    )
    known = ", ".join(keys[:20]) + (f" and {len(keys) - 20} more" if len(keys) > 20 else "")
    raise _usage(what, f"the steps are: {one_line(known, 600)}; @2 means the second time", code="NO_SUCH_STEP")


def _check_event(event: str) -> None:
    if event not in SOURCES and triggers.from_word(event) is None:
        words = ", ".join((*SOURCES, "phase_start:build", "phase_transition:frame->build", "manual"))
        raise _usage(f"unknown event {event!r:.80}", f"examples: {words}", code="UNKNOWN_EVENT")


def _check_phases(event: str, plan: Mapping[str, Any]) -> None:
    """Refuse a trigger that names a phase which is not there: its test would test nothing. Raises UNKNOWN_EVENT."""
    _, *named = triggers.split(event)
    known = [str(phase["id"]) for phase in plan["phases"]]
    unknown = [name for name in named if name and name not in known]
    if unknown and event not in SOURCES:
        why = f"its phases are: {', '.join(known) or 'none'}"
        raise _usage(
            f"the workflow has no phase {one_line(unknown[0], 60)!r}", one_line(why, 600), code="UNKNOWN_EVENT"
        )


def _print(
    event: str, run_id: str, given: Given | None, *, as_json: bool, approvals: Sequence[Mapping[str, Any]] = ()
) -> int:
    text, line, slip = given if given is not None else Given("", "")
    if as_json:
        size = {"utf16_units": utf16_units(text), "utf8_bytes": utf8_bytes(text)}
        told = {"event": event, "run_id": run_id, "text": text, "line": line, "size": size}
        output.document({**told, "slip": slip.to_dict() if slip is not None else None, "approvals": [*approvals]})
    else:
        files.write_all(sys.stdout.fileno(), text.encode("utf-8", "backslashreplace"))
        if text and not text.endswith("\n") and sys.stdout.isatty() and sys.stderr.isatty():
            output.note("")  # on one screen the line begins anew, and no byte more is given
        output.note(line or "loomctl: the assistant would get nothing")
    return EXIT_MISSING if slip is not None and slip.failed else EXIT_OK


def _refuse_options(options: Mapping[str, str | None], why: str) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise _usage(f"leave out {' and '.join(given)}", why)


def _usage(what: str, why: str, *, code: str = "USAGE") -> LoomError:
    return LoomError(code, what, why=why, hint=_HELP, exit_code=EXIT_USAGE)
