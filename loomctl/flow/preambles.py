"""What opens a step: the facts of the stages before it, told as its fidelity asks (D46).

`prompt.md` of a stage holds all of it; a conversation is told what it does not know yet. What is missing or damaged is
named and holds nothing up.
"""

from __future__ import annotations

from itertools import chain, islice

from loomctl.flow import preamble_text, prompts, route
from loomctl.flow.preamble_reader import Reader, count_ended, newest_ended
from loomctl.flow.preamble_text import MODES, Facts, path
from loomctl.kit import digests, trouble
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_USAGE, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import slip
from loomctl.reduction.tokens import at_most, estimate
from loomctl.runs import artifact_paths, stages
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import frozen_plan, sessions, visits
from loomctl.workflows.routing import AFTER_RESUME, FIDELITIES, ChosenFidelity, choose_fidelity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from loomctl.reduction.tool_steps import ToolStep
    from loomctl.runs.model.frozen_plan import Place
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

ASKED = "asked"  # the source of a fidelity that the caller named
TOO_LONG = "The results of the earlier steps are too long for here. Read them: `loomctl debug preamble`"
_UNREAD = "Loom cannot read the earlier steps. To repair them: `loomctl debug state restore {}`"
_JUDGED = 200  # of the newest stages; those before are known as the last of these is
_LOOKED_AT = 60  # of the newest stages, whose session is read
_SHORTEST_LINE = 8  # tokens of a stage's line: so many stages at most have one


class Preamble(NamedTuple):
    """What opens a step.

    fidelity: what it was made with; source: who named it (`transition`, `step`, `workflow`, `default`, `asked`);
    degraded: the fidelity that was named, where another is told after a resume. newest, newest_at: the rank of the
    newest stage that it tells of, and when that ended. id: of the line by which a conversation that was given it is
    found to hold it; empty where it has none.
    """

    text: str
    run_id: str
    step_id: str
    fidelity: str
    source: str
    degraded: str | None
    stages: int
    newest: int
    newest_at: str
    warnings: Sequence[str] = ()
    id: str = ""
    handle: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give the document that `--json` prints."""
        return {
            "schema_version": 1,
            "run_id": self.run_id,
            "handle": self.handle,
            "step_id": self.step_id,
            "fidelity": self.fidelity,
            "source": self.source,
            "degraded_from": self.degraded,
            "stages": self.stages,
            "tokens": {
                "target": MODES[self.fidelity].target,
                "at_most": at_most(self.text),
                "about": estimate(self.text),
            },
            "warnings": list(self.warnings),
            "text": self.text,
        }


# ---- What is asked for.


def of(
    space: Workspace, run: Run, step_key: str | None = None, fidelity: str | None = None, *, transition: object = None
) -> Preamble:
    """Give the preamble of a step, all of it; without a name that of the step that is open or comes next.

    fidelity: one of D46's, which holds; None: as the plan says. transition: the fidelity of the transition that led to
    the step; None: as the run's state tells. Raises NO_SUCH_STEP and BAD_FIDELITY.
    """
    if fidelity is not None and fidelity not in FIDELITIES:
        what, why = f"unknown fidelity {fidelity!r:.60}", f"expected one of {', '.join(FIDELITIES)}"
        raise LoomError("BAD_FIDELITY", what, why=why, hint="loomctl debug preamble --help", exit_code=EXIT_USAGE)
    place = _meant(run, step_key)
    return _made(space, run, place, _all(run.state), fidelity=fidelity, transition=transition)


def opening(space: Workspace, run: Run, state: State, place: Place, visit: int) -> tuple[str, Sequence[str]]:
    """Give what `prompt.md` holds, and what is to be warned of: the preamble and the step's prompt, assembled.

    A command step has no preamble: nobody is told anything there.
    """
    run = run._replace(state=state)
    prompt = prompts.step_prompt(place, visit, artifact_paths.prompt_values(space.project, run))
    if place.step.get("run"):
        return prompt, ()
    made = _made(space, run, place, _all(state))
    return f"{made.text}\n\n{prompt}", made.warnings


def news(space: Workspace, run: Run) -> Preamble | None:
    """Give what the caller's conversation does not know yet of what precedes the open step; None where it knows all.

    A conversation knows the stages that it ended itself, and those that an earlier preamble told it of, since its last
    compaction and as far as it can be seen to hold that preamble (D15); what was printed in a terminal stands there.
    One without a session is told everything.
    """
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    if place is None or place.step.get("run") or not _any_ended(run.state):
        return None
    unknown = _unknown(space, run)
    if not unknown.total:
        return None
    made = _made(space, run, place, unknown, already=_all(run.state).total - unknown.total)
    if space.caller.host == TERMINAL:
        return made
    mark = slip.short_id(digests.of_text(f"{space.caller.session_id}\0{made.newest}\0{made.text}"))
    return made._replace(text=slip.seal(made.text, mark), id=mark)


def precedes(run: Run) -> bool:
    """Tell whether there is anything that precedes the open step and is told to it: a command is told nothing."""
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    return place is not None and not place.step.get("run") and _any_ended(run.state)


def note_told(space: Workspace, made: Preamble) -> list[str]:
    """Remember that the caller's conversation was given a preamble; what goes wrong is given as a line, not raised."""
    session_id = space.caller.session_id
    if session_id is None:
        return []
    told = {"run_id": made.run_id, "rank": made.newest, "at": made.newest_at, "id": made.id}
    try:
        space.local.note_primed(session_id, {**space.local.primed(session_id), "preamble": told})
    except (OSError, LoomError) as error:
        return [f"Loom could not note what this session knows ({trouble.said(error)})."]
    return []


def _meant(run: Run, step_key: str | None) -> Place:
    entry = visits.open_visit(run.state)
    named = step_key or (entry["step_id"] if entry else run.state.get("current_step"))
    every = frozen_plan.places(run.plan)
    found = [place for place in every if place.key == named]
    if not found and step_key:
        found = [place for place in every if place.step["id"] == step_key]
    if not found and not step_key:
        next_place = route.onward(run.state, run.plan) or (every[-1] if every else None)
        found = [next_place] if next_place is not None else []
    if len(found) == 1:
        return found[0]
    known = ", ".join(place.key for place in every[:40])
    what = f"{len(found) or 'no'} steps of this run are called {str(step_key or '')!r:.80}"
    why, hint = masked_line(f"the steps are: {known or 'none'}", 600), f"loomctl show {run.handle}"
    raise LoomError("NO_SUCH_STEP", what, where=run.plan_path, why=why, hint=hint, exit_code=EXIT_NO_RUN)


# ---- Which stages there are, and which of them a conversation knows.


class Told(NamedTuple):
    """The visits that a preamble tells of. newest: the newest first; how: how many of them ended how."""

    newest: Iterable[Mapping[str, Any]]
    how: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.how.values())


def _all(state: Mapping[str, Any]) -> Told:
    return Told(newest_ended(state), count_ended(state))


def _any_ended(state: Mapping[str, Any]) -> bool:
    return next(iter(newest_ended(state)), None) is not None


def _unknown(space: Workspace, run: Run) -> Told:
    session_id = space.caller.session_id
    if session_id is None:
        return _all(run.state)
    newest = _told_up_to(space, run)
    record = sessions.record_of(run.state, session_id) or {}
    compacted = [str(one.get("at") or "") for one in record.get("compactions") or () if isinstance(one, dict)]
    since = max([str(record.get("started_at") or "~"), *compacted])  # "~": after every time
    unknown: list[Mapping[str, Any]] = []
    how: dict[str, int] = {}
    ended = iter(newest_ended(run.state))
    counts = known = dict[str, int]()
    is_older = False  # than what this conversation can know
    for number, entry in enumerate(ended):
        if _rank(entry) <= newest or (number >= _JUDGED and not is_older):
            break
        if number >= _JUDGED:  # so is all that went before, and none of it is looked at
            return Told(chain(unknown, [entry], ended), _but(run.state, known))
        is_older = str(entry.get("completed_at") or "") < since
        counts = known
        if is_older or not _is_own(run, entry, session_id, look=number < _LOOKED_AT):
            unknown.append(entry)
            counts = how
        counts[visits.how_it_ended(entry)] = counts.get(visits.how_it_ended(entry), 0) + 1
    else:
        if counts is how:  # so it is of those that cannot be read
            return Told(unknown, _but(run.state, known))
    return Told(unknown, how)


def _but(state: Mapping[str, Any], known: Mapping[str, int]) -> dict[str, int]:
    return {how: count - known.get(how, 0) for how, count in count_ended(state).items()}


def _told_up_to(space: Workspace, run: Run) -> int:
    """Give the rank of the newest stage that a preamble told the conversation of, which it holds still; 0 for none.

    A stage that was undone and done again has its rank, and is another (D31).
    """
    told = space.local.primed(space.caller.session_id).get("preamble")
    if not isinstance(told, dict) or told.get("run_id") != run.run_id or not isinstance(told.get("id"), str):
        return 0
    newest = next((one for one in newest_ended(run.state) if _rank(one) == told.get("rank")), None)
    if newest is None or str(newest.get("completed_at") or "") != told.get("at"):
        return 0
    is_held = space.caller.host == TERMINAL or space.caller.conversation.holds({told["id"]})
    return _rank(newest) if is_held else 0


def _is_own(run: Run, entry: Mapping[str, Any], session_id: str, *, look: bool) -> bool:
    """Tell whether a session ended a visit; without a look at its file, one that ended while it was there is taken so.

    What it cost to look at all of a long conversation's stages, it would cost at each of its steps.
    """
    return stages.read_status(run, entry)[0].get("session_id") == session_id if look and entry.get("stage") else True


def _rank(entry: Mapping[str, Any]) -> int:
    rank = entry.get("rank")
    return rank if type(rank) is int else 0


# ---- The preamble.


def _made(
    space: Workspace,
    run: Run,
    place: Place,
    told: Told,
    *,
    already: int = 0,
    fidelity: str | None = None,
    transition: object = None,
) -> Preamble:
    transition = route.way_to(run.state, place.key).get("fidelity") if transition is None else transition
    by_plan = choose_fidelity(
        transition=transition, step=place.step.get("fidelity"), workflow=run.plan.get("default_fidelity")
    )
    choice = ChosenFidelity(fidelity, ASKED) if fidelity is not None else by_plan
    degraded = None
    if choice.fidelity == "full" and choice.source != ASKED and _came_after(space, run):
        choice, degraded = choice._replace(fidelity=AFTER_RESUME), "full"
    mode = MODES[choice.fidelity]
    reader = Reader(space, run, place.step, mode)
    entry = visits.open_visit(run.state)
    is_open = entry is not None and entry["step_id"] == place.key
    facts = Facts(
        handle=run.handle,
        workflow=str(run.state["workflow_id"]),
        step_id=place.key,
        name=str(place.step.get("name") or ""),
        visit=entry["visit"] if entry is not None and is_open else visits.count(run.state, place.key) + 1,
        goal=str(run.state.get("goal") or run.state.get("work_id") or ""),
        stages=(),
        tools=_tools(space, run) if mode.tools and not already else (),
        already=already,
        warnings=choice.warnings,
    )
    keys = _changed_keys(run, told.newest) if already and mode.value and isinstance(told.newest, list) else None
    most = mode.target // _SHORTEST_LINE
    stages = list(islice(told.newest, most))[::-1]
    earlier = dict(told.how)
    for one in stages:
        earlier[visits.how_it_ended(one)] -= 1
    facts = facts._replace(earlier={how: count for how, count in earlier.items() if count > 0})
    text = None
    while text is None or not reader.readables.make(text, path):
        found = facts._replace(stages=reader.stages(stages), context=reader.context(keys))
        text = preamble_text.render(found, choice.fidelity)
    last = max(stages, key=_rank, default={})
    unread = [_UNREAD.format(run.run_id)] if len(stages) < min(most, told.total) else []
    warnings = (*choice.warnings, *unread, *reader.troubles, *reader.readables.troubles)
    return Preamble(
        text,
        run.run_id,
        place.key,
        choice.fidelity,
        choice.source,
        degraded,
        told.total,
        _rank(last),
        str(last.get("completed_at") or ""),
        warnings,
        handle=run.handle,
    )


def _came_after(space: Workspace, run: Run) -> bool:
    """Tell whether the session that works on the run came to it after its last stage had ended (D46).

    It has not seen the work before, so `full`, which counts on that, is none for its first step.
    """
    last = next((entry for entry in newest_ended(run.state) if entry.get("stage")), None)
    named = space.caller.session_id
    if named is None or sessions.record_of(run.state, named) is None:
        named = run.state["sessions"].get("current_session_id")
    record = sessions.record_of(run.state, named) if isinstance(named, str) else None
    if last is None or record is None:
        return False
    by = stages.read_status(run, last)[0].get("session_id")
    if by == named:
        return False
    return str(record.get("started_at") or "") >= str(last.get("completed_at") or "")


def _tools(space: Workspace, run: Run) -> Sequence[ToolStep]:
    from loomctl.runs.tools import tool_log  # most fidelities tell no tools

    return tool_log.of_the_main_line(run.folder, space.store.unlogged(run.run_id))


def _changed_keys(run: Run, told: Iterable[Mapping[str, Any]]) -> set[str] | None:
    keys: set[str] = set()
    for entry in told:
        if not entry.get("stage"):
            continue
        status, missing = stages.read_status(run, entry)
        if missing:
            return None
        updates = status.get("context_updates")
        keys.update(updates if isinstance(updates, dict) else ())
        keys.add(f"output.{entry['step_id']}")
    return keys
