"""What opens a step: the facts of the stages before it, told as its fidelity asks (D46).

`prompt.md` of a stage holds all of it; a conversation is told what it does not know yet. What is missing or damaged is
named and holds nothing up.
"""

from __future__ import annotations

from loomctl.flow import preamble_text, prompts, recount, route
from loomctl.flow.preamble_text import MODES, Facts
from loomctl.kit import digests, trouble
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_USAGE, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.priming import slip
from loomctl.reduction.tokens import at_most, estimate
from loomctl.runs import artifact_paths
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import frozen_plan, sessions, visits
from loomctl.workflows.routing import AFTER_RESUME, FIDELITIES, ChosenFidelity, choose_fidelity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.frozen_plan import Place
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

ASKED = "asked"  # the source of a fidelity that the caller named
TOO_LONG = "What the stages before this step did and said is too long for here: `loomctl preamble`"
_LOOKED_AT = 60  # of the newest stages, whose session is read


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

    def to_dict(self) -> dict[str, Any]:
        """Give the document that `--json` prints."""
        return {
            "schema_version": 1,
            "run_id": self.run_id,
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
        raise LoomError(
            "BAD_FIDELITY",
            f"{fidelity!r:.60} is no fidelity",
            why=f"there are {', '.join(FIDELITIES)}",
            hint="loomctl preamble --help",
            exit_code=EXIT_USAGE,
        )
    place = _meant(run, step_key)
    return _made(space, run, place, recount.ended(run.state), fidelity=fidelity, transition=transition)


def opening(space: Workspace, run: Run, state: State, place: Place, visit: int) -> tuple[str, Sequence[str]]:
    """Give what `prompt.md` holds, and what is to be warned of: the preamble and the step's prompt, assembled.

    A command step has no preamble: nobody is told anything there.
    """
    run = run._replace(state=state)
    prompt = prompts.step_prompt(place, visit, artifact_paths.prompt_values(space.project, run))
    if place.step.get("run"):
        return prompt, ()
    made = _made(space, run, place, recount.ended(state))
    return f"{made.text}\n\n{prompt}", made.warnings


def news(space: Workspace, run: Run) -> Preamble | None:
    """Give what the caller's conversation does not know yet of what precedes the open step; None where it knows all.

    A conversation knows the stages that it ended itself, and those that an earlier preamble told it of, since its last
    compaction and as far as it can be seen to hold that preamble (D15); what was printed in a terminal stands there.
    One without a session is told everything.
    """
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    ended = recount.ended(run.state)
    if place is None or place.step.get("run") or not ended:
        return None
    unknown = _unknown(space, run, ended)
    if not unknown:
        return None
    made = _made(space, run, place, unknown, already=len(ended) - len(unknown))
    if space.caller.host == TERMINAL:
        return made
    mark = slip.short_id(digests.of_text(f"{space.caller.session_id}\0{made.newest}\0{made.text}"))
    return made._replace(text=slip.seal(made.text, mark), id=mark)


def precedes(run: Run) -> bool:
    """Tell whether there is anything that precedes the open step and is told to it: a command is told nothing."""
    entry = visits.open_visit(run.state)
    place = frozen_plan.place_of(run.plan, entry["step_id"]) if entry else None
    return place is not None and not place.step.get("run") and bool(recount.ended(run.state))


def note_told(space: Workspace, made: Preamble) -> list[str]:
    """Remember that the caller's conversation was given a preamble; what goes wrong is given as a line, not raised."""
    session_id = space.caller.session_id
    if session_id is None:
        return []
    told = {"run_id": made.run_id, "rank": made.newest, "at": made.newest_at, "id": made.id}
    try:
        space.local.note_primed(session_id, {**space.local.primed(session_id), "preamble": told})
    except (OSError, LoomError) as error:
        return [f"What this session was told of could not be noted ({trouble.said(error)})."]
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
    raise LoomError(
        "NO_SUCH_STEP",
        f"{str(step_key or '')!r:.80} names {len(found)} steps of this run",
        where=run.plan_path,
        why=masked_line(f"there are {known or 'none'}", 600),
        hint=f"loomctl show {run.run_id}",
        exit_code=EXIT_NO_RUN,
    )


# ---- Which stages there are, and which of them a conversation knows.


def _unknown(space: Workspace, run: Run, ended: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    session_id = space.caller.session_id
    if session_id is None:
        return list(ended)
    newest = _told_up_to(space, run, ended)
    record = sessions.record_of(run.state, session_id) or {}
    compacted = [str(one.get("at") or "") for one in record.get("compactions") or () if isinstance(one, dict)]
    since = max([str(record.get("started_at") or "~"), *compacted])  # "~": after every time
    unknown: list[Mapping[str, Any]] = []
    for number, entry in enumerate(reversed(ended)):
        if _rank(entry) <= newest:
            break
        if str(entry.get("completed_at") or "") < since or not _is_own(
            run, entry, session_id, look=number < _LOOKED_AT
        ):
            unknown.append(entry)
    return unknown[::-1]


def _told_up_to(space: Workspace, run: Run, ended: Sequence[Mapping[str, Any]]) -> int:
    """Give the rank of the newest stage that a preamble told the conversation of, which it holds still; 0 for none.

    A stage that was undone and done again has its rank, and is another (D31).
    """
    told = space.local.primed(space.caller.session_id).get("preamble")
    if not isinstance(told, dict) or told.get("run_id") != run.run_id or not isinstance(told.get("id"), str):
        return 0
    newest = next((one for one in reversed(ended) if _rank(one) == told.get("rank")), None)
    if newest is None or str(newest.get("completed_at") or "") != told.get("at"):
        return 0
    is_held = space.caller.host == TERMINAL or space.caller.conversation.holds({told["id"]})
    return _rank(newest) if is_held else 0


def _is_own(run: Run, entry: Mapping[str, Any], session_id: str, *, look: bool) -> bool:
    """Tell whether a session ended a visit; without a look at its file, one that ended while it was there is taken so.

    What it cost to look at all of a long conversation's stages, it would cost at each of its steps.
    """
    return recount.read_status(run, entry)[0].get("session_id") == session_id if look and entry.get("stage") else True


def _rank(entry: Mapping[str, Any]) -> int:
    rank = entry.get("rank")
    return rank if type(rank) is int else 0


# ---- The facts.


def _made(
    space: Workspace,
    run: Run,
    place: Place,
    told: Sequence[Mapping[str, Any]],
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
    reader = recount.Reader(space, run, place.step, mode)
    entry = visits.open_visit(run.state)
    is_open = entry is not None and entry["step_id"] == place.key
    facts = Facts(
        run_id=run.run_id,
        workflow=str(run.state["workflow_id"]),
        step_id=place.key,
        name=str(place.step.get("name") or ""),
        visit=entry["visit"] if entry is not None and is_open else len(visits.of_step(run.state, place.key)) + 1,
        goal=str(run.state.get("goal") or run.state.get("work_id") or ""),
        stages=(),
        tools=recount.tool_steps(run.folder, space.store.unlogged(run.run_id)) if mode.tools and not already else (),
        already=already,
        warnings=choice.warnings,
    )
    keys = _changed_keys(run, told) if already and mode.value else None
    text = None
    while text is None or not reader.readables.make(text):
        found = facts._replace(stages=reader.stages(told), context=reader.context(keys))
        text = preamble_text.render(found, choice.fidelity)
    last = max(told, key=_rank, default={})
    warnings = (*choice.warnings, *reader.troubles, *reader.readables.troubles)
    return Preamble(
        text,
        run.run_id,
        place.key,
        choice.fidelity,
        choice.source,
        degraded,
        len(told),
        _rank(last),
        str(last.get("completed_at") or ""),
        warnings,
    )


def _came_after(space: Workspace, run: Run) -> bool:
    """Tell whether the session that works on the run came to it after its last stage had ended (D46).

    It has not seen the work before, so `full`, which counts on that, is none for its first step.
    """
    ended = [entry for entry in recount.ended(run.state) if entry.get("stage")]
    named = space.caller.session_id
    if named is None or sessions.record_of(run.state, named) is None:
        named = run.state["sessions"].get("current_session_id")
    record = sessions.record_of(run.state, named) if isinstance(named, str) else None
    if not ended or record is None:
        return False
    by = recount.read_status(run, ended[-1])[0].get("session_id")
    if by == named:
        return False
    return str(record.get("started_at") or "") >= str(ended[-1].get("completed_at") or "")


def _changed_keys(run: Run, told: Sequence[Mapping[str, Any]]) -> set[str] | None:
    keys: set[str] = set()
    for entry in told:
        if not entry.get("stage"):
            continue
        status, missing = recount.read_status(run, entry)
        if missing:
            return None
        updates = status.get("context_updates")
        keys.update(updates if isinstance(updates, dict) else ())
        keys.add(f"output.{entry['step_id']}")
    return keys
