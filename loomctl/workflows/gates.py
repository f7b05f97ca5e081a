"""What a person is asked for before a run goes on, and what their answer does to it.

A gate before a phase or a step, after a result, or a step of `kind: human`, whose visit ends by what somebody decides.
Pure, over a state and a plan: a branch that is seen as a run of its own has both.
"""

from __future__ import annotations

from loomctl.expressions import placeholders
from loomctl.kit.errors import EXIT_USAGE, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.model import frozen_plan, visits
from loomctl.runs.model.state import handle
from loomctl.workflows import routing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.frozen_plan import Place
    from loomctl.runs.model.state import State

APPROVE, REJECT, CHOOSE = "approve", "reject", "choose"
# A choice that a verb means by its words, without case and accelerator.
WORDS = {APPROVE: ("approve", "approved", "yes", "accept", "ok"), REJECT: ("reject", "rejected", "no", "decline")}
PREFIX = "human:"  # of a pending approval's id; the stage follows
LABEL_KEY, TEXT_KEY = "human.gate.label", "human.gate.text"  # of the context
LONGEST_REASON, LONGEST_LABEL = 200, 200  # UTF-16 units as they are shown


# ---- What is asked.


def needed_before(state: Mapping[str, Any], plan: Mapping[str, Any], place: Place) -> dict[str, Any] | None:
    """Give what must be approved before a step begins, or is asked for already, `{id, reason}`; None: nothing."""
    granted = {item["id"] for item in state.get("approvals", []) if not is_lapsed(item) and _holds(item)}
    for pending in state["pending_approvals"]:
        if pending.get("branch"):  # it holds up its branch alone
            continue
        return {"id": str(pending["id"]), "reason": str(pending.get("reason", ""))}
    if visits.open_visit(state) is not None:  # it was let in when its visit began
        return None
    phase_id = str(place.phase["id"])
    autonomy = plan.get("autonomy") or {}
    entering = state.get("current_phase") != phase_id
    asked = place.phase.get("require_approval") or phase_id in (autonomy.get("require_approval_for") or ())
    if autonomy.get("level") == "assist" and state.get("current_phase") is not None:
        asked = True
    if entering and asked and f"phase:{phase_id}" not in granted:
        return {"id": f"phase:{phase_id}", "reason": f"the workflow asks for approval before phase {phase_id}"}
    if place.step.get("require_approval") and f"step:{place.key}" not in granted:
        return {"id": f"step:{place.key}", "reason": f"the workflow asks for approval before step {place.key}"}
    return None


def _holds(item: Mapping[str, Any]) -> bool:
    return item.get("rejected_at") is None


def open_human(state: Mapping[str, Any], plan: Mapping[str, Any]) -> tuple[dict[str, Any], Place] | None:
    """Give the open visit of a human step, with its place in the plan; None where no such visit is open."""
    entry = visits.open_visit(state)
    place = frozen_plan.place_of(plan, entry["step_id"]) if entry is not None else None
    return (entry, place) if entry is not None and place is not None and frozen_plan.is_human(place.step) else None


def ask(state: State, plan: Mapping[str, Any], *, at: str, known: Mapping[str, str | None] | None = None) -> State:
    """Let a run whose open visit is a human step's wait for what is decided there; asked for once, however often.

    Every other state stays as it is, and so does a run that does not go on. known: the values of placeholders (D8).
    """
    found = open_human(state, plan)
    if found is None or state["pending_approvals"] or state["status"] not in ("pending", "in_progress"):
        return state
    entry, place = found
    request = {
        "id": PREFIX + str(entry["stage"]),
        "step_id": place.key,
        "stage": entry["stage"],
        "reason": question_line(place.step, known or {}),
        "choices": choices(place.step),
        "requested_at": at,
    }
    return {**state, "status": "awaiting_feedback", "current_step": place.key, "pending_approvals": [request]}


def question_line(step: Mapping[str, Any], known: Mapping[str, str | None]) -> str:
    """Give the first line of a human step's question. known: the values of placeholders."""
    words = str(step.get("prompt") or step.get("description") or step.get("name") or "")
    return masked_line(placeholders.expand(words, known).text.strip().partition("\n")[0], LONGEST_REASON)


def choices(step: Mapping[str, Any]) -> list[str]:
    """Give the labels among which somebody chooses at a human step, as the workflow writes them, each once.

    They are those of its transitions without a condition: where there is one, that alone decides (D45).
    """
    found: dict[str, str] = {}
    for one in step.get("transitions") or ():
        label = one.get("label")
        if label and one.get("condition") is None:
            found.setdefault(routing.normalise(str(label)) or str(label), str(label))
    return list(found.values())


# ---- What is decided.


class Decision(NamedTuple):
    """What somebody decided of a human step's visit: how that ends, and by which of its choices, None for none."""

    entry: Mapping[str, Any]
    outcome: str
    label: str | None


def decision(state: Mapping[str, Any], plan: Mapping[str, Any], verb: str, said: str = "") -> Decision | None:
    """Read a decision on the open visit of a human step; None: none is open, another gate is meant.

    verb: APPROVE, REJECT or CHOOSE; said: the label that was chosen. Raises UNKNOWN_LABEL, AMBIGUOUS_LABEL and
    CHOICE_NEEDED, which list the choices, BAD_STATUS where the run stands still, and NOTHING_TO_CHOOSE.
    """
    found = open_human(state, plan)
    if found is None:
        must_ask(state, plan, verb)
        return None
    if not _goes_on(state):  # D4
        hint = f"loomctl resume {handle(state)}"
        why = "resume it first; it asks again"
        raise LoomError("BAD_STATUS", f"the run is {state['status']}", why=why, hint=hint, exit_code=EXIT_USAGE)
    entry, place = found
    offered = choices(place.step)
    if verb == CHOOSE:
        return Decision(entry, "succeeded", _chosen(offered, said, state, place))
    meant = [label for label in offered if routing.label_of(label).words in WORDS[verb]]
    if len(meant) == 1:
        return Decision(entry, "succeeded", meant[0])
    if verb == REJECT and not meant:
        return Decision(entry, "failed", None)
    if verb == APPROVE and not offered:
        return Decision(entry, "succeeded", None)
    if verb == APPROVE and not meant and _is_the_only_way(place.step, offered):
        return Decision(entry, "succeeded", offered[0])
    raise _unclear("CHOICE_NEEDED", f"{place.key} needs a choice, not a plain {verb}", offered, state, place)


def _is_the_only_way(step: Mapping[str, Any], offered: Sequence[str]) -> bool:
    """Tell whether a choice is all that a plain approval can mean: there is no other, and it is no refusal."""
    others = [one for one in step["transitions"] if not one.get("label") and not one.get("on_failure")]
    return len(offered) == 1 and not others and routing.label_of(offered[0]).words not in WORDS[REJECT]


def _chosen(offered: Sequence[str], said: str, state: Mapping[str, Any], place: Place) -> str:
    exact = [label for label in offered if label.strip() == said.strip()]
    found = exact or [label for label in offered if routing.matches(said, label)]
    if len(found) == 1:
        return found[0]
    told = repr(masked_line(said, 60))
    if found:
        what = f"{told} matches {len(found)} choices of {place.key}"
        raise _unclear("AMBIGUOUS_LABEL", what, offered, state, place)
    raise _unclear("UNKNOWN_LABEL", f"{place.key} has no choice {told}", offered, state, place)


def _unclear(code: str, what: str, offered: Sequence[str], state: Mapping[str, Any], place: Place) -> LoomError:
    why = "it has no labels; approve or reject it"
    if offered:
        why = "the choices are " + ", ".join(f"“{masked_line(label, 60)}”" for label in offered)
    return LoomError(code, what, where=place.key, why=why, hint=shows(state), exit_code=EXIT_USAGE)


def shows(state: Mapping[str, Any]) -> str:
    """Give the command that shows what is asked: an error's hint gets pasted, and must decide nothing."""
    return f"loomctl status {handle(state)}"


def approve(state: State, *, at: str, by: str = "", note: str = "") -> tuple[State, list[str]]:
    """Grant every approval that is asked for; gives their ids. Raises NOTHING_TO_APPROVE.

    by, note: who granted it and what they said, in a line each. A run that is paused, failed or over asks for none,
    whatever its list holds: it is taken up again first (D4).
    """
    granted = _asked_for(state)
    given = [_on_record(state, name, "granted_at", at, by=by, note=note) for name in granted]
    approvals = [*state.get("approvals", []), *given]
    return {**state, "pending_approvals": [], "approvals": approvals, "status": "in_progress"}, granted


def reject(state: State, *, at: str, by: str, note: str) -> tuple[State, list[str]]:
    """Refuse every approval that is asked for; gives their ids. Raises NOTHING_TO_APPROVE.

    The run is paused with what it asks for, which is asked for again when it is taken up; the refusal is on record.
    """
    refused = _asked_for(state)
    given = [_on_record(state, name, "rejected_at", at, by=by, note=note) for name in refused]
    return {**state, "approvals": [*state.get("approvals", []), *given], "status": "paused"}, refused


def record(state: State, found: Decision, verb: str, *, at: str, by: str, note: str) -> State:
    """Put on record what was decided of a human step's visit, and let the run go on; the visit is still to be ended.

    by, note: in a line each.
    """
    entry = found.entry
    name = "rejected_at" if verb == REJECT else "granted_at"
    given = _on_record(state, PREFIX + str(entry["stage"]), name, at, by=by, note=note)
    # An undo of the visit takes what was decided of it back: its own rank is not among those before it.
    given.update(after_rank=entry["rank"], **({"label": found.label} if found.label else {}))
    approvals = [*state.get("approvals", []), given]
    return {**state, "pending_approvals": [], "approvals": approvals, "status": "in_progress"}


def refusal(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give the record of the refusal that what the run asks for met with last; None where it met with none."""
    pending = {str(item["id"]) for item in state["pending_approvals"]}
    last = next((item for item in reversed(state.get("approvals", [])) if item["id"] in pending), None)
    return None if last is None or _holds(last) else last


def with_refusal(entry: dict[str, Any], refused: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give a visit that is opened again with who refused its result and why; unchanged where nobody said why."""
    said = {key: str(refused[key]) for key in ("by", "note") if refused.get(key)} if refused else {}
    return {**entry, "rejected": said} if "note" in said else entry


def refusal_of(state: Mapping[str, Any], entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give who refused what a visit led to and why, `{by?, note?}`: noted in it, else on record; empty for none."""
    noted = entry.get("rejected")
    if isinstance(noted, dict):
        return noted
    for item in reversed(state.get("approvals", [])):
        if item.get("after_rank") == entry.get("rank") and not str(item["id"]).startswith(PREFIX):
            return {} if _holds(item) else item
    return {}


def must_ask(state: Mapping[str, Any], plan: Mapping[str, Any], verb: str) -> None:
    """Refuse a decision where none is asked for. Raises NOTHING_TO_CHOOSE and NOTHING_TO_APPROVE."""
    if open_human(state, plan) is not None:
        return
    if verb != CHOOSE:
        _asked_for(state)
        return
    waits = pending_ids(state) and _goes_on(state)
    why = "approve or reject what it asks for" if waits else ""
    hint = shows(state) if waits else f"loomctl show {handle(state)}"
    what = "this run does not wait for a choice"
    raise LoomError("NOTHING_TO_CHOOSE", what, why=why, hint=hint, exit_code=EXIT_USAGE)


def pending_ids(state: Mapping[str, Any]) -> list[str]:
    """Give the ids of what a run asks for."""
    return [str(item["id"]) for item in state["pending_approvals"]]


def _asked_for(state: Mapping[str, Any]) -> list[str]:
    names = pending_ids(state)
    if names and _goes_on(state):
        return names
    why = f"the run is {state['status']}; resume it first" if names else ""
    hint = f"loomctl {'resume' if names else 'show'} {handle(state)}"
    raise LoomError(
        "NOTHING_TO_APPROVE", "this run does not wait for an approval", why=why, hint=hint, exit_code=EXIT_USAGE
    )


def _goes_on(state: Mapping[str, Any]) -> bool:
    return state["status"] in ("awaiting_feedback", "in_progress")


def _on_record(state: Mapping[str, Any], name: str, key: str, at: str, *, by: str, note: str) -> dict[str, Any]:
    rank = visits.main_rank(state)
    said = {"by": by, "note": note}
    return {"id": name, key: at, "after_rank": rank, **{word: text for word, text in said.items() if text}}


def leave_phases(state: State, plan: Mapping[str, Any], phase_id: str | None, *, at: str) -> dict[str, Any]:
    """Give the phases with those before `phase_id` (None: all) marked: completed, or skipped if nothing was done there.

    In a plan without routes nothing is done only where there is no step; in one with them also where none was come to.
    """
    phases, routed = dict(state["phases"]), frozen_plan.is_routed(plan)
    for phase in plan["phases"]:
        if phase["id"] == phase_id:
            break
        known = phases.get(phase["id"], {})
        status = "completed" if phase["steps"] else "skipped"
        if routed and known.get("status", "pending") in ("pending", "skipped"):
            status = "skipped"
        if known.get("status") != status:
            phases[phase["id"]] = {**known, "status": status, **({"completed_at": at} if status == "completed" else {})}
    return phases


def reset_phases(phases: Mapping[str, Any], plan: Mapping[str, Any], phase_id: str) -> tuple[dict[str, Any], list[str]]:
    """Give the phases with those behind `phase_id` pending again, and their names: a run has gone back before them."""
    found, names = dict(phases), []
    for name in behind(plan, phase_id):
        known = found.get(name)
        if known is not None and known.get("status") != "pending":
            kept = {key: value for key, value in known.items() if key not in ("started_at", "completed_at")}
            found[name] = {**kept, "status": "pending"}
            names.append(name)
    return found, names


def undo_phases(
    state: State, plan: Mapping[str, Any], phase_id: str, left: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Give the phases as they were while a visit of `phase_id` was open, and the names of those that are open again.

    left: the visits before that one. In a plan with routes, what the run had gone back to is done again.
    """
    taken_back = [name for name in state["phases"] if name in (phase_id, *behind(plan, phase_id))]
    phases = dict(state["phases"])
    for name in taken_back:
        gone = ("completed_at",) if name == phase_id else ("started_at", "completed_at")
        kept = {key: value for key, value in phases[name].items() if key not in gone}
        phases[name] = {**kept, "status": "in_progress" if name == phase_id else "pending"}
    if frozen_plan.is_routed(plan):
        before = [str(phase["id"]) for phase in plan["phases"]]
        ended = {entry["phase"]: entry.get("completed_at") for entry in left}
        for name in before[: before.index(phase_id)] if phase_id in before else ():
            if phases.get(name, {}).get("status") in ("pending", "in_progress"):
                done = {"status": "completed", "completed_at": ended[name]} if name in ended else {"status": "skipped"}
                phases[name] = {**phases[name], **done}
    return phases, taken_back


def behind(plan: Mapping[str, Any], phase_id: str) -> list[str]:
    """Name the phases that come after one; none where the plan has no such phase."""
    order = [str(phase["id"]) for phase in plan["phases"]]
    return order[order.index(phase_id) + 1 :] if phase_id in order else []


def lapse(state: State, names: list[str]) -> list[Any]:
    """Give the approvals, those for phases that a run went back before marked as lapsed: they are asked for again.

    The mark is the rank of the newest visit, by which an undo finds it.
    """
    rank = visits.main_rank(state)
    asked = {*(f"phase:{name}" for name in names)}
    steps = tuple(f"step:{name}/" for name in names)
    return [
        {**item, "lapsed": rank}
        if not is_lapsed(item) and "rejected_at" not in item and (item["id"] in asked or item["id"].startswith(steps))
        else item
        for item in state.get("approvals", [])
    ]


def is_lapsed(approval: Mapping[str, Any]) -> bool:
    """Tell whether an approval holds no more."""
    return approval.get("lapsed") is not None


def restore_approvals(state: State, rank: int) -> list[Any]:
    """Give the approvals as they were before a visit: what was granted since goes, what lapsed since holds again."""
    kept = (item for item in state.get("approvals", []) if item.get("after_rank", 0) < rank)
    return [
        {key: value for key, value in item.items() if key != "lapsed"}
        if is_lapsed(item) and item["lapsed"] >= rank
        else item
        for item in kept
    ]
