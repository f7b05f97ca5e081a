"""`loomctl simulate --event`: the text that the model would get, on standard output, byte for byte."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.cli import arguments, caller, output
from loomctl.hosts.claude import simulate
from loomctl.hosts.claude.hooks import Given
from loomctl.kit import files, ids
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_MISSING, EXIT_OK, EXIT_USAGE, LoomError
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.units import utf8_bytes, utf16_units
from loomctl.runs.model import places, visits
from loomctl.runs.model.state import new_state
from loomctl.runs.store.store import Run
from loomctl.simulate import play
from loomctl.workflows.model import triggers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loomctl.kit.problems import Problem
    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.simulate.scripts import Script
    from loomctl.workflows.model.ways import Judge

_HELP = "loomctl simulate --help"
_SHOWN = 120
_WAY = 8  # visits that are named of a way that did not lead there
_ENDS = {"completed": "was completed", "failed": "failed"}


class Asked(NamedTuple):
    """The options of an event, as they were given."""

    event: str | None
    where: str | None
    work_id: str | None
    run_id: str | None
    session: str | None

    def refuse_unused(self, *others: tuple[str, str | None]) -> None:
        """Refuse what has no meaning for a run as it stands, or a command that names neither. Raises USAGE."""
        if self.event is None:
            raise _usage("a workflow is missing", "it is named, or with --event a run as it stands is meant")
        of_a_workflow = (*others, ("--at", self.where), ("--work-id", self.work_id))
        _refuse(of_a_workflow, "without WORKFLOW a run is looked at as it stands")

    def refuse_beside_a_workflow(self) -> None:
        """Refuse what has no meaning for a workflow. Raises USAGE."""
        of_a_run = (("--run", self.run_id), ("--session", self.session))
        _refuse(of_a_run, "it belongs to a run as it stands, without WORKFLOW")
        if self.event is None:
            _refuse((("--at", self.where), ("--work-id", self.work_id)), "it belongs to --event")


class Began(NamedTuple):
    """A workflow that is to be played up to a step. warnings: of what it is played with."""

    plan: dict[str, Any]
    script: Script
    judge: Judge
    context: Mapping[str, Any]
    goal: str
    warnings: Sequence[Problem]


def of_run(asked: Asked, *, as_json: bool) -> int:
    """Print what a run's conversation would get at the event now."""
    assert asked.event is not None  # refuse_unused
    _check(asked.event)
    space = simulate.unwritten(caller.space(writes=False))
    run_id = arguments.run_id(space, asked.run_id)
    _check_phases(asked.event, space.store.read(run_id, to_show=True).plan)
    given = simulate.of_run(space, run_id, asked.event, asked.session)
    return _print(asked.event, run_id, given, as_json=as_json)


def of_workflow(space: Workspace, asked: Asked, began: Began, *, as_json: bool) -> int:
    """Print what the model would get in a run of a workflow that has come to a step."""
    assert asked.event is not None  # its caller asks
    _check(asked.event)
    for one in began.warnings:
        output.note(f"loomctl: {one.code} at {one_line(one.where, 200)}: {one_line(one.message, 400)}")
    _check_phases(asked.event, began.plan)
    run, approvals = _run(space, asked, began)
    if not as_json:
        for taken in approvals:
            output.note(f"loomctl: {gate(taken)}")
    given = simulate.of_workflow(space, run, asked.event)
    return _print(asked.event, run.run_id, given, as_json=as_json, approvals=approvals)


def gate(asked: Mapping[str, Any]) -> str:
    """Say what somebody would have been asked, with the choices that they would have had."""
    told = f"{one_line(asked['id'], _SHOWN)}: {one_line(asked['reason'], 200)}"
    where = f" in the branch {asked['branch']}" if "branch" in asked else ""
    if "choices" not in asked:
        return f"approval taken as given{where}: {told}"
    offered = " · ".join(one_line(one, 60) for one in asked["choices"])
    return f"a person would be asked{where}: {told}" + (f" ({offered})" if offered else "")


def _run(space: Workspace, asked: Asked, began: Began) -> tuple[Run, list[dict[str, Any]]]:
    """Make the run that stands at the step, with the approvals that it came through.

    Without a step a trigger of a phase finds it at that phase's first. Raises NO_SUCH_STEP, NOT_REACHED.
    """
    work = asked.work_id or began.goal or "simulation"
    plan_id = ids.make_plan_id(space.project.name, work)
    run_id = f"{plan_id}-run-{play.AT.replace(':', '-')}"
    plan = {**began.plan, "plan_id": plan_id}
    work_id = asked.work_id.lstrip("#") if asked.work_id else None
    state = new_state(plan, run_id=run_id, work_id=work_id, goal=began.goal, at=play.AT)
    step, visit = _place(plan, asked.where) if asked.where is not None else (_first_of_phase(plan, asked.event), 1)
    there, approvals = play.until(
        plan, began.script, {**state, "context": dict(began.context)}, judge=began.judge, step=step, visit=visit
    )
    if visits.open_visit(there) is None:
        raise _not_reached(there, asked.where or step or "a step")
    _warn_of_another_phase(asked, there)
    folder = space.store.run_dir(run_id)
    paths = (os.path.join(folder, "state.json"), os.path.join(folder, "plan.json"))
    return Run(run_id, folder, there, plan, *paths), approvals


def _not_reached(ended: State, wanted: str) -> LoomError:
    """Say which way the play went instead, from the end back, and how that is seen whole."""
    went = [f"{one['step_id']}@{one['visit']}" for one in ended["steps"]]
    way = ", ".join([*([f"{len(went) - _WAY:,} visits"] if len(went) > _WAY else []), *went[-_WAY:]]) or "no step"
    return LoomError(
        "NOT_REACHED",
        f"the play ends without coming to {wanted}",
        why=f"its way was {one_line(way, 600)}; there it {_ENDS.get(ended['status'], 'stopped')}. "
        "Other --outcomes or another --context lead another way",
        hint=arguments.again(("event", "where", "work_id")) or _HELP,
        exit_code=EXIT_FINDINGS,
    )


def _phase_begun(event: str | None) -> str:
    """Give the phase that a trigger begins; empty where it names none."""
    _, left, right = triggers.split(event or "")
    return next((name for name in (right or left,) if name != "*"), "")


def _first_of_phase(plan: Mapping[str, Any], event: str | None) -> str | None:
    """Give the first step of the phase that an event begins; None where it begins none, or one without a step."""
    phase = _phase_begun(event)
    steps = (one for one in places.places(plan) if not one.step.get("engine"))
    return next((one.key for one in steps if phase and str(one.phase["id"]) == phase), None)


def _warn_of_another_phase(asked: Asked, state: Mapping[str, Any]) -> None:
    """Say that a run never meets an event at the step where it is: nothing of that phase is required there."""
    phase, at = _phase_begun(asked.event), str(state.get("current_phase") or "")
    if phase and at and phase != at:
        what = f"{asked.event} comes as a run enters {phase}, and this one stands in {at}"
        output.note(f"loomctl: ANOTHER_PHASE: {one_line(what, 400)}")


def _place(plan: Mapping[str, Any], named: str) -> tuple[str, int]:
    """Read `STEP[@VISIT]`; a step is named by its key, or by its id where one has it."""
    name, _, number = named.partition("@")
    visit = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 0 if number else 1
    keys = [place.key for place in places.places(plan) if not place.step.get("engine")]
    found = [key for key in keys if key == name] or [key for key in keys if key.partition("/")[2] == name]
    if len(found) == 1 and visit > 0:
        return found[0], visit
    what = (
        f"{len(found)} steps are called {name!r:.80}" if len(found) > 1 else f"{named!r:.80} is no step of the workflow"
    )
    known = ", ".join(keys[:20]) + (f" and {len(keys) - 20} more" if len(keys) > 20 else "")
    raise _usage(what, f"there are {one_line(known, 600)}; @2 names the second visit", code="NO_SUCH_STEP")


def _check(event: str) -> None:
    if event not in simulate.SOURCES and triggers.from_word(event) is None:
        words = ", ".join((*simulate.SOURCES, "phase_start:build", "phase_transition:frame->build", "manual"))
        raise _usage(f"{event!r:.80} is no event that gives a text", f"there are {words}", code="UNKNOWN_EVENT")


def _check_phases(event: str, plan: Mapping[str, Any]) -> None:
    """Refuse a trigger that names a phase which is not there: its test would test nothing. Raises UNKNOWN_EVENT."""
    _, *named = triggers.split(event)
    known = [str(phase["id"]) for phase in plan["phases"]]
    unknown = [name for name in named if name and name not in known]
    if unknown and event not in simulate.SOURCES:
        why = f"the workflow has {', '.join(known) or 'none'}"
        raise _usage(
            f"{one_line(unknown[0], 60)!r} is no phase of the workflow", one_line(why, 600), code="UNKNOWN_EVENT"
        )


def _print(
    event: str,
    run_id: str,
    given: Given | None,
    *,
    as_json: bool,
    approvals: Sequence[Mapping[str, Any]] = (),
) -> int:
    text, line, slip = given if given is not None else Given("", "")
    if as_json:
        output.document(
            {
                "event": event,
                "run_id": run_id,
                "text": text,
                "line": line,
                "size": {"utf16_units": utf16_units(text), "utf8_bytes": utf8_bytes(text)},
                "slip": slip.to_dict() if slip is not None else None,
                "approvals": [*approvals],
            }
        )
    else:
        files.write_all(sys.stdout.fileno(), text.encode("utf-8", "backslashreplace"))
        if text and not text.endswith("\n") and sys.stdout.isatty() and sys.stderr.isatty():
            output.note("")  # on one screen the line begins anew, and no byte more is given
        output.note(line or "loomctl: nothing would be given")
    return EXIT_MISSING if slip is not None and slip.failed else EXIT_OK


def _refuse(options: Sequence[tuple[str, str | None]], why: str) -> None:
    given = [name for name, value in options if value]
    if given:
        raise _usage(f"{' and '.join(given)} cannot be given here", why)


def _usage(what: str, why: str, *, code: str = "USAGE") -> LoomError:
    return LoomError(code, what, why=why, hint=_HELP, exit_code=EXIT_USAGE)
