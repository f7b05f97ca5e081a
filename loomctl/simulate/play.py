"""Play a workflow without an assistant and without a disk: scripted outcomes stand for the work (D45).

The clock stands at AT, approvals are taken as given, and commands are not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loomctl.expressions import state_paths
from loomctl.flow import route
from loomctl.flow.outcomes import directives
from loomctl.flow.outcomes.directives import Reading
from loomctl.kit.errors import LoomError
from loomctl.kit.problems import Problem, at, choices, error, kind_of, shown, warning
from loomctl.kit.text.fences import counted
from loomctl.runs.model import frozen_plan, run_context, standing, visits
from loomctl.runs.model.frozen_plan import inner, places, with_branches
from loomctl.runs.model.state import new_state
from loomctl.workflows import branches, gates, routing, steps
from loomctl.workflows.branches import is_parallel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.runs.model.frozen_plan import Place
    from loomctl.runs.model.state import State
    from loomctl.workflows.routing import Judge

_NOTES = ("RESERVED_KEY", "REASON_UNUSED")  # what a run warns of, a simulation does too


class Script(NamedTuple):
    """What steps say. visits: of each that is named, what its visits say, by its key; the last holds for all others.

    tasks: how many tasks the list of a step has, by its key.
    """

    visits: Mapping[str, Sequence[Reading]]
    tasks: Mapping[str, int] = {}

    def of(self, key: str, visit: int) -> Reading:
        """Give what a step says at a visit, counted from 1; a step that is not named says nothing and succeeds."""
        said = self.visits.get(key)
        return said[min(visit, len(said)) - 1] if said else directives.Reading()


def read(raw: Any, plan: Mapping[str, Any]) -> tuple[Script, list[Problem]]:
    """Read `{step: [object per visit]}`, in the words of a directive (D33); a single object is a list of one.

    step: a key (`phase/id`), or an id where one step has it; a branch's step has one in its phase (`fan.web.look`) and
    one of its own (`look`). A parallel step says nothing: its branches do. Gives every problem with its JSON path; a
    reserved key of `context_updates` is left out, with a warning. The first object of a step that goes through a task
    list may say how many `tasks` that has; a list of the context has its own length, every other one task (D65).
    """
    if raw is None:
        return Script({}), []
    if not isinstance(raw, dict):
        return Script({}), [error("BAD_OUTCOMES", "$", f"expected an object of steps, got {kind_of(raw)}", _LIKE)]
    found: list[Problem] = []
    visits: dict[str, list[Reading]] = {}
    tasks: dict[str, int] = {}
    names = _Names(plan)
    for name, value in raw.items():
        where, said = at("$", name), value
        key = names.key(name, where, found)
        if key in visits:
            message = f"{key} appears twice"
            found.append(error("BAD_OUTCOMES", where, message, "give all its outcomes under one name"))
        elif key is not None:
            place = frozen_plan.find(plan, key)
            if place is not None and place.step.get("for_each"):
                said = _counted(value, where, key, tasks, found)
            visits[key] = _visits(said, where, found)
    return Script(visits, tasks), found


def _counted(value: Any, where: str, key: str, tasks: dict[str, int], found: list[Problem]) -> Any:
    """Take the number of tasks from what a step says; gives the rest."""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict) or "tasks" not in first:
        return value
    count, rest = first["tasks"], {name: said for name, said in first.items() if name != "tasks"}
    if type(count) is int and 0 <= count <= _MOST_TASKS:
        tasks[key] = count
    else:
        place = at(where, *((0,) if isinstance(value, list) else ()), "tasks")
        message = f"expected a number of tasks, 0 to {_MOST_TASKS:,}, got {shown(count)}"
        found.append(error("BAD_OUTCOMES", place, message, '{"tasks": 3}'))
    return [rest, *value[1:]] if isinstance(value, list) else rest


class _Names:
    """What the steps of a plan are called in a script."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        fans = [place for place in places(plan) if is_parallel(place.step)]
        self._fans = {place.key: [one.key for one in inner(place)] for place in fans}
        self._keys = [place.key for place in with_branches(plan)]
        self._own = {key: own for place in fans for key, own in _own_ids(place)}

    def key(self, name: str, where: str, found: list[Problem]) -> str | None:
        """Give the key of a step that has outcomes; None, with a problem, where that is none or not one."""
        named = self._named(name)
        if len(named) == 1 and named[0] in self._fans:
            message = f"{shown(name)} is a parallel step, and its branches decide how it ends"
            found.append(error("BAD_OUTCOMES", where, message, f"write {' or '.join(self._fans[named[0]])}"))
            return None
        if len(named) == 1:
            return named[0]
        if named:
            message = f"{len(named)} steps are called {shown(name)}"
            found.append(error("BAD_OUTCOMES", where, message, f"write {' or '.join(named)}"))
            return None
        known = [*self._keys, *(key.partition("/")[2] for key in self._keys), *self._own.values()]
        message = f"the workflow has no step {shown(name)}"
        found.append(error("BAD_OUTCOMES", where, message, choices(name, list(dict.fromkeys(known)))))
        return None

    def _named(self, name: str) -> list[str]:
        """Give the steps that a name may mean: by the key, else by the id in a phase, else by that in a branch."""
        if name in self._keys:
            return [name]
        return [key for key in self._keys if key.partition("/")[2] == name] or [
            key for key, own in self._own.items() if own == name
        ]


def _own_ids(place: Place) -> Iterator[tuple[str, str]]:
    """Give key and own id of each step in the branches of a parallel one."""
    for branch in place.step[steps.PARALLEL]["branches"]:
        before = steps.inner_id(str(place.step["id"]), str(branch["id"]), "")
        yield from ((str(step["key"]), str(step["id"]).removeprefix(before)) for step in branch["steps"])


def _visits(value: Any, where: str, found: list[Problem]) -> list[Reading]:
    if isinstance(value, dict):
        return [_visit(value, where, found)]
    if not isinstance(value, list) or not value:
        what = "an empty list" if value == [] else kind_of(value)
        found.append(error("BAD_OUTCOMES", where, f"expected a list of objects, one for each time, got {what}", _EACH))
        return []
    return [_visit(one, at(where, index), found) for index, one in enumerate(value)]


def _visit(raw: Any, where: str, found: list[Problem]) -> Reading:
    if not isinstance(raw, dict):
        found.append(error("BAD_OUTCOMES", where, f"expected an object, got {kind_of(raw)}", f"known: {_FIELDS}"))
        return directives.Reading()
    for field in raw.keys() - set(directives.FIELDS):
        hint = choices(field, directives.FIELDS)
        found.append(error("BAD_OUTCOMES", at(where, field), f"unknown field {shown(field)}", hint))
    reading = directives.of_object(raw)
    for fault in reading.warnings:
        place = at(where, *(part for part in fault.where.split("/")[1:2]))
        told = (
            warning(fault.code, place, fault.message)
            if fault.code in _NOTES
            else error("BAD_OUTCOMES", place, fault.message)
        )
        found.append(told)
    return reading


_MOST_TASKS = 10_000
_FIELDS = ", ".join(directives.FIELDS)
_EACH = '[{"outcome": "failed"}, {"outcome": "succeeded"}]'
_LIKE = f'{{"build/test": {_EACH}}}'
_ROUND = 'FILE, with {"%s": [{}, {"outcome": "skipped"}]} or the like'


AT = "2000-01-01T00:00:00Z"


class Played(NamedTuple):
    """stages: in their order, as `loomctl simulate --json` gives them; approvals: what somebody would have been asked.

    A parallel step is one stage, with its branches' stages inside. warnings: `{code, where, message}`; why: why the run
    failed, empty where it did not.
    """

    state: State
    stages: list[dict[str, Any]]
    approvals: list[dict[str, Any]]
    warnings: list[dict[str, str]]
    why: str


def until(
    plan: Mapping[str, Any],
    script: Script,
    state: State,
    *,
    judge: Judge,
    step: str | None = None,
    visit: int = 1,
) -> tuple[State, list[dict[str, Any]]]:
    """Play a plan until a step is open; gives the state there and the approvals taken as given on the way.

    Where the play ends before, no visit is open in the state. step: its key, one of the run's own line; None: the first
    that is not the engine's. visit: which of its visits.
    """
    player = _Player(script, judge, [], [], _Goal(step, visit))
    state, _ = player.line(state, plan)
    return state, player.approvals


def without_disk(python: str | None) -> Judge:
    """Make what evaluates conditions over a context that holds plain values. python: as `judge_with` takes it."""
    return route.judge_with(route.values_held, python)


def play(
    plan: Mapping[str, Any],
    script: Script,
    *,
    judge: Judge,
    context: Mapping[str, Any] | None = None,
    goal: str = "",
) -> Played:
    """Play a plan to its end. context: what the run begins with; judge: says what conditions come to.

    Branches are played one after the other, as declared, until the join of their parallel step is met. It ends, for
    each step has a bound: its visits in a plan with routes, its retries in every other; in a branch, for each visit of
    the parallel step.
    """
    state = new_state(plan, run_id="simulation", work_id=None, goal=goal, at=AT)
    player = _Player(script, judge, [], [])
    state, stages = player.line({**state, "context": dict(context or {})}, plan)
    player.warnings.extend(_left_over(state, script))
    player.warnings.extend(_unsaid(stages, script))
    why = _why(state["errors"], stages) if state["status"] == "failed" else ""
    return Played(state, stages, player.approvals, player.warnings, why)


class _Goal(NamedTuple):
    """Where a play stops: at a visit of a step, or of the first that is not the engine's."""

    step: str | None
    visit: int

    def is_met(self, state: State, place: Place) -> bool:
        """Tell whether the visit that is about to begin is the one."""
        if self.step is None:
            return not place.step.get("engine")
        return place.key == self.step and visits.count(state, self.step) + 1 == self.visit


class _Player(NamedTuple):
    """Plays a run, and each branch of a parallel step as the run that it is seen as (D43)."""

    script: Script
    judge: Judge
    approvals: list[dict[str, Any]]
    warnings: list[dict[str, str]]
    goal: _Goal | None = None

    def line(self, state: State, plan: Mapping[str, Any]) -> tuple[State, list[dict[str, Any]]]:
        """Play to the end; gives the stages too."""
        stages: list[dict[str, Any]] = []
        while standing.goes_on(state):
            state, move = route.advance(state, plan, at=AT)
            place = frozen_plan.place_of(plan, move.step) if move.kind == "step" else None
            if place is not None and self.goal is not None and self.goal.is_met(state, place):
                return _opened(state, plan, place, self._tasks(state, place)), stages
            if place is not None:
                state = self._visit(state, plan, place, stages)
            if state["pending_approvals"]:
                self.approvals.extend(
                    _asked(state, {**one, "step_id": move.step}) for one in state["pending_approvals"]
                )
                state = gates.approve(state, at=AT)[0]
        return state, stages

    def _visit(self, state: State, plan: Mapping[str, Any], place: Place, stages: list[dict[str, Any]]) -> State:
        """Begin and end a visit, and tell of it; gives the state after it."""
        tasks = self._tasks(state, place)
        by_engine = bool(place.step.get("engine")) or tasks == 0
        state, entry = visits.start_visit(state, place.key, str(place.phase["id"]), at=AT, by_engine=by_engine)
        came_by = stages[-1]["next"] if stages else {}
        chosen = routing.choose_fidelity(
            transition=came_by.get("fidelity"), step=place.step.get("fidelity"), workflow=plan.get("default_fidelity")
        )
        if branches.is_parallel(place.step):
            end = self._joined(state, plan, place)
        else:
            end = self._said(state, plan, place, entry["visit"])
        task = None
        if tasks is not None:
            end, task = _at_a_task(end, place, tasks)
        directive = _directive(end.said)
        came = route.end_visit(
            end.state,
            plan,
            outcome=end.outcome,
            at=AT,
            note=end.note,
            directive=directive,
            error=routing.error_of(end.note, final=True) if end.outcome == "failed" and tasks == 0 else None,
            judge=self.judge,
            has_next_task=task is not None and task["number"] < task["of"],
        )
        where = f"{place.key}@{entry['visit']}"
        self.warnings.extend(_warning("CONDITION", where, text) for text in came.way.warnings)
        self.warnings.extend(_warning("FIDELITY", where, text) for text in chosen.warnings)
        told: dict[str, Any] = {
            "step_id": place.key,
            "visit": entry["visit"],
            "rank": entry["rank"],
            **{word: entry[word] for word in ("attempt", "by") if word in entry},
            **({"task": task} if task is not None else {}),
            "outcome": end.outcome,
            **{word: value for word, value in directive.items() if value},
            "fidelity": chosen.fidelity,
            **({"branches": end.branches} if end.branches else {}),
            "next": dict(came.way.next),
            "weighed": [dict(one) for one in came.way.weighed],
        }
        stages.append(told)
        return _bare(came.state, entry) if end.branches else came.state

    def _tasks(self, state: State, place: Place) -> int | None:
        """Count the tasks of the list that a step goes through; None: it goes through none."""
        asked = place.step.get("for_each")
        if not asked or self.script.tasks.get(place.key) is not None:
            return self.script.tasks.get(place.key) if asked else None
        path = list(asked["path_steps"])
        held = state_paths.read(path[1:], route.nested(run_context.scope(state))) if path[:1] == ["context"] else None
        return len(held) if isinstance(held, list) else 1

    def _said(self, state: State, plan: Mapping[str, Any], place: Place, visit: int) -> _End:
        """End a visit as the script says."""
        said = self.script.of(place.key, visit)
        end = _End(state, said, said.outcome or "succeeded")
        if place.step.get("engine"):
            return end
        own: dict[str, Any] = {"last_stage": place.key}
        if frozen_plan.is_human(place.step):
            state = self._decided(state, plan, said)
            own |= {gates.LABEL_KEY: _label(place, said), gates.TEXT_KEY: ""}
        context = run_context.changed(state["context"], own, said.context_updates, output="").context
        return end._replace(state={**state, "context": context})

    def _decided(self, state: State, plan: Mapping[str, Any], said: Reading) -> State:
        """Tell of a human step's gate, and warn of a label that nobody could choose; gives the state going on."""
        state = gates.ask(state, plan, at=AT)
        request = state["pending_approvals"][-1]
        self.approvals.append(_asked(state, request))
        label, offered = said.preferred_next_label, request["choices"]
        if label and not any(routing.matches(label, one) for one in offered):
            told = f"the choices are {', '.join(offered)}" if offered else "its transitions have no labels"
            self.warnings.append(_warning("UNKNOWN_LABEL", request["step_id"], f"unknown choice {label!r:.60}: {told}"))
        elif not label and said.outcome in (None, "succeeded"):
            try:
                gates.decision(state, plan, gates.APPROVE)
            except LoomError as error:  # a person would have to choose
                self.warnings.append(_warning(error.code, request["step_id"], f"{error.what}: {error.why}"))
        return {**state, "pending_approvals": [], "status": "in_progress"}

    def _joined(self, state: State, plan: Mapping[str, Any], place: Place) -> _End:
        """Play the branches of the open visit as far as the join waits for them, and join them."""
        state = branches.fan_out(state, place.step)
        played: dict[str, dict[str, Any]] = {}
        made = None
        for declared in place.step["parallel"]["branches"]:
            name = str(declared["id"])
            view = branches.view(state, plan, name)
            seen, stages = self.line(view.state, view.plan)
            why = _why(seen["errors"][len(state["errors"]) :], stages) if seen["status"] == "failed" else ""
            played[name] = {**({"why": why} if why else {}), "stages": stages}
            state = branches.fold(state, seen)
            made = branches.fan_in(state, place.step)
            if made is not None:
                break
        assert made is not None  # every branch has ended by now
        state = branches.cancel_open(state)
        own = {"last_stage": place.key, **made.own, **made.told}
        changed = run_context.changed(state["context"], own, made.updates, output="", dropped=made.changes.gone)
        told = [{**branches.short(one), **played.get(one["id"], {"stages": []})} for one in made.results]
        state = {**state, "context": changed.context, "status": "in_progress"}
        failed = made.outcome == "failed"
        return _End(state, Reading(failure_reason=made.note if failed else ""), made.outcome, made.note, told)


def _at_a_task(end: _End, place: Place, tasks: int) -> tuple[_End, dict[str, Any] | None]:
    """Give the open visit its task, of so many; without any its step ends as in a run (D65)."""
    if not tasks:
        outcome = visits.SKIPPED if place.step["for_each"].get("allow_empty") else visits.FAILED
        return end._replace(outcome=outcome, note="NO_TASKS: the task list is empty"), None
    state = _with_task(end.state, place, tasks)
    return end._replace(state=state), visits.task(state)


def _with_task(state: State, place: Place, tasks: int) -> State:
    entry, done = visits.open_visit(state), 0
    before = [one for one in state["steps"] if one["step_id"] == place.key][:-1]
    for one in reversed(before):
        if not visits.has_next_task(one) and not visits.is_failed_try(one):
            break
        done += visits.has_next_task(one)
    number = min(done + 1, tasks)
    return visits.replaced(state, {**(entry or {}), "task": {"text": f"task {number}", "number": number, "of": tasks}})


def _opened(state: State, plan: Mapping[str, Any], place: Place, tasks: int | None) -> State:
    """Begin a visit, as far as its step waits for a person."""
    state, _ = visits.start_visit(state, place.key, str(place.phase["id"]), at=AT)
    state = _with_task(state, place, tasks) if tasks else state
    return gates.ask(state, plan, at=AT) if frozen_plan.is_human(place.step) else state


class _End(NamedTuple):
    """How a visit ends. state: with its context; branches: of a parallel step, as its stage tells of them."""

    state: State
    said: Reading
    outcome: str
    note: str = ""
    branches: Sequence[Mapping[str, Any]] = ()


def _bare(state: State, entry: Mapping[str, Any]) -> State:
    """Give a state in which a parallel step's visit has ended."""
    ended = next(one for one in reversed(state["steps"]) if one["stage"] == entry["stage"])
    return visits.replaced(state, branches.without_contexts(ended))


def _asked(state: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Give what somebody would have been asked, with the branch that it is asked in, if any."""
    branch = visits.seen_from(state).name
    return {**asked, **({"branch": branch} if branch else {})}


def _why(errors: Sequence[Mapping[str, Any]], stages: Sequence[Mapping[str, Any]]) -> str:
    """Say why a run failed, or a branch, naming the step. errors: its own; stages: that it made."""
    if not errors:
        return ""
    last, way = errors[-1], stages[-1]["next"]
    names_it = way["reason"] == visits.MAX_VISITS or last["step_id"] in last["message"]
    return str(last["message"]) if names_it else f"{last['step_id']}: {last['message']}"


def _directive(said: Reading) -> dict[str, Any]:
    """Give what a visit keeps of its directive."""
    return {
        "failure_reason": said.failure_reason,
        "preferred_next_label": said.preferred_next_label,
        "suggested_next_ids": list(said.suggested_next_ids),
    }


def _label(place: Place, said: Reading) -> str | None:
    """Give the label that was chosen at a human step, as the workflow writes it."""
    label = said.preferred_next_label or ""
    return next((one for one in gates.choices(place.step) if routing.matches(label, one)), None)


def _left_over(state: State, script: Script) -> list[dict[str, str]]:
    """Say what of a script was not played: a test that means more visits than there were tests something else."""
    made = visits.counts(state)
    return [
        _warning(
            "NOT_PLAYED", key, f"it ran {counted(made.get(key, 0), 'time')}, but has {counted(len(said), 'outcome')}"
        )
        for key, said in script.visits.items()
        if made.get(key, 0) < len(said)
    ]


def _unsaid(stages: Sequence[Mapping[str, Any]], script: Script) -> list[dict[str, str]]:
    """Say of a loop that was gone round too often that nobody said how any of its steps ends."""
    way = stages[-1]["next"] if stages else {}
    key = str(way.get("to"))
    if way.get("reason") != visits.MAX_VISITS:
        return []
    keys = [stage["step_id"] for stage in stages]
    if not script.visits.keys().isdisjoint(keys[keys.index(key) :]):
        return []
    message = f"it has no outcomes, so it always succeeds; to end the loop: --outcomes {_ROUND % key}"
    return [_warning("NO_OUTCOMES", key, message)]


def _warning(code: str, where: str, message: str) -> dict[str, str]:
    return {"code": code, "where": where, "message": message}
