"""What a person decides of a run, in a terminal or through a session that drives it: granted, refused, chosen.

The assistant's word is not a person's: its host asks its user before such a command is run (D29).
"""

from __future__ import annotations

from loomctl.flow import advance, finish, finish_records, lines, settle
from loomctl.flow.outcomes import directives
from loomctl.kit import clock, git
from loomctl.kit.errors import EXIT_HELD, EXIT_USAGE, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs import leases
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import visits
from loomctl.runs.model.state import handle
from loomctl.runs.store.events import Event
from loomctl.runs.tools import recording
from loomctl.workflows import branches, gates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace
    from loomctl.runs.store.store import Run

LONGEST_NAME = 80  # UTF-16 units
LONGEST_NOTE = 10_000  # characters
_LINE = 300  # UTF-16 units of a note where it stands in a line


class Said(NamedTuple):
    """What a person said. verb: `gates.APPROVE`, `REJECT` or `CHOOSE`; label: of a choice; by: who."""

    verb: str
    by: str
    note: str = ""
    label: str = ""

    @property
    def line(self) -> str:
        """The note in a line, its secrets masked."""
        return masked_line(self.note, _LINE)


def approve(
    space: Workspace, run_id: str, *, by: str = "", note: str = "", branch: str | None = None, later: bool = False
) -> advance.Driven:
    """Grant what the run asks for and go on. by: who does, empty: whom this machine knows.

    later: what is due stays owed to the session's next `next`.

    branch: of the open parallel step; None: the one that waits, where the run's own line does not (D43).

    At a human step it is the choice that means a yes, or the only one. Raises NOTHING_TO_APPROVE and CHOICE_NEEDED.
    """
    return _decide(space, run_id, "approval.granted", _said(space, gates.APPROVE, by, note), branch, later=later)


def reject(space: Workspace, run_id: str, *, by: str = "", note: str = "", branch: str | None = None) -> advance.Driven:
    """Refuse what the run asks for. by, note: who does and why.

    At a human step it is the choice that means a no, else the step fails; at every other gate the run is paused, and
    asks again when it is taken up. Raises NOTHING_TO_APPROVE and CHOICE_NEEDED.
    """
    return _decide(space, run_id, "approval.rejected", _said(space, gates.REJECT, by, note), branch)


def choose(
    space: Workspace, run_id: str, label: str, *, by: str = "", note: str = "", branch: str | None = None
) -> advance.Driven:
    """End a human step with one of its choices. Raises NOTHING_TO_CHOOSE, UNKNOWN_LABEL and AMBIGUOUS_LABEL."""
    return _decide(space, run_id, "approval.chosen", _said(space, gates.CHOOSE, by, note, label), branch)


def _said(space: Workspace, verb: str, by: str, note: str, label: str = "") -> Said:
    if len(note) > LONGEST_NOTE:
        what = f"a note may have at most {LONGEST_NOTE:,} characters"
        why = "write a longer text to a file and name the file in the note"
        raise LoomError("TOO_LARGE", what, why=why, hint=f"loomctl {verb} --help", exit_code=EXIT_USAGE)
    name = masked_line(by.strip() or git.user_name(space.project.root), LONGEST_NAME)
    return Said(verb, name, directives.mended(note.strip()), label)


def _decide(
    space: Workspace, run_id: str, event: str, said: Said, branch: str | None, *, later: bool = False
) -> advance.Driven:
    space = leases.deciding(space)
    notes = recording.noted(space)
    run = _line(space, run_id, branch)
    advance.refuse_over(run.state)
    gates.must_ask(run.state, run.plan, said.verb)  # nobody decides what they were not asked yet
    seen = _waits_for(run.state, run.plan)
    known = _gathered(space, run, said)
    settled: list[settle.Settled] = []
    ended: list[finish_records.Ended] = []

    def change(state: State) -> tuple[State, list[Event]]:
        settled.clear()
        ended.clear()
        advance.refuse_over(state)
        _refuse_moved(seen, _waits_for(state, run.plan), state)
        found = gates.decision(state, run.plan, said.verb, said.label)
        happened: list[Event] = []
        if found is None:
            state = _gate_answered(space, state, event, said, happened)
        else:
            ended.append(_visit_ended(space, run, state, event, said, found, known, happened))
            state = ended[0].state
        result = settle.rest_here(space, run, state)
        settled.append(result)
        return result.state, happened + result.happened

    run = settle.update(space, run, change, may_end=True)
    done = ended[0].entry if ended else None
    notes += settle.begun(space, run, settled[0])
    # What is decided in a terminal is not read by the assistant: what a phase loads is owed to its next `next`.
    is_told = not later and space.caller.host != TERMINAL and not visits.is_branch(run.state)
    made = settle.told_of(space, run, settled[0]) if is_told else None
    notes += leases.noted_stage(space, run.state)
    return advance.Driven(run, settled[0].move, done, slip=made, notes=notes)


def _line(space: Workspace, run_id: str, branch: str | None) -> Run:
    """Read what is decided of: the run, or the branch that waits. Raises AMBIGUOUS_BRANCH where several do."""
    run = space.store.read(run_id)
    entry = branches.fan(run.state)
    if branch is not None or entry is None:
        return run if branch is None else lines.seen(run, branch)
    waiting = list(dict.fromkeys(str(one["branch"]) for one in run.state["pending_approvals"] if one.get("branch")))
    if len(waiting) > 1:
        what = f"{len(waiting)} branches of {entry['step_id']} wait for a decision"
        why = f"name one with --branch: {', '.join(waiting)}"
        hint = gates.shows(run.state)
        raise LoomError("AMBIGUOUS_BRANCH", what, where=run.state_path, why=why, hint=hint, exit_code=EXIT_USAGE)
    return lines.seen(run, waiting[0]) if waiting else run


def _waits_for(state: Mapping[str, Any], plan: Mapping[str, Any]) -> tuple[str, ...]:
    found = gates.open_human(state, plan)
    return (*gates.pending_ids(state), *([str(found[0]["stage"])] if found else ()))


def _refuse_moved(seen: tuple[str, ...], now: tuple[str, ...], state: Mapping[str, Any]) -> None:
    """Refuse to decide something else than what was waited for when the command began. Raises DECIDED_MEANWHILE."""
    if seen[-1] in now:
        return
    last = (state.get("approvals") or [{}])[-1]
    who = masked_line(str(last.get("by") or ""), LONGEST_NAME)
    what = f"{handle(state)} no longer waits for this" + (f": {who} decided" if who else "")
    why = "somebody else decided at the same moment, and that decision counts"
    raise LoomError("DECIDED_MEANWHILE", what, why=why, hint=f"loomctl show {handle(state)}", exit_code=EXIT_HELD)


def _gate_answered(space: Workspace, state: State, event: str, said: Said, happened: list[Event]) -> State:
    """Grant or refuse what is asked for before a phase or a step, or after a result."""
    answer = gates.reject if said.verb == gates.REJECT else gates.approve
    state, names = answer(state, at=clock.now(), by=said.by, note=said.line)
    session_id = space.caller.session_id
    told = {"by": said.by, "label": None, "note": said.line}
    happened += [Event(event, {"id": name, **told}, session_id) for name in names]
    if said.verb == gates.REJECT:
        happened.append(Event("run.paused", {"before": "awaiting_feedback", "reason": "rejected"}, session_id))
    return state


def _gathered(space: Workspace, run: Run, said: Said) -> finish_records.Gathered | None:
    """Find out what the end of a human step's visit needs to know, before the lock is taken; None: none is open."""
    found = gates.open_human(run.state, run.plan)
    if found is None:
        return None
    given = finish_records.Given(said.note or None, "decision")
    return finish.gather(space, run, found[0], given, directives.Reading())


def _visit_ended(
    space: Workspace,
    run: Run,
    state: State,
    event: str,
    said: Said,
    found: gates.Decision,
    known: finish_records.Gathered | None,
    happened: list[Event],
) -> finish_records.Ended:
    entry, at = found.entry, clock.now()
    label = masked_line(found.label, gates.LONGEST_LABEL) if found.label else None
    what = label or ("rejected" if said.verb == gates.REJECT else "approved")
    given = finish_records.Given(
        said.note or None,
        "decision",
        outcome=found.outcome,
        note=f"{what} by {said.by}" + (f": {said.line}" if said.line else ""),
        context={gates.LABEL_KEY: found.label, gates.TEXT_KEY: said.note},
        decided={"by": said.by, "at": at, "label": found.label, "note": said.note},
    )
    reading = directives.Reading(preferred_next_label=found.label)
    if known is None or known.for_stage != entry["stage"]:
        known = finish.gather(space, run, entry, given, reading)
    told = {"id": gates.PREFIX + str(entry["stage"]), "by": said.by, "label": label, "note": said.line}
    happened.append(Event(event, told, space.caller.session_id, str(entry["step_id"])))
    state = gates.record(state, found, said.verb, at=at, by=said.by, note=said.line)
    return finish.end(space, run, state, happened, given, known._replace(reading=reading))
