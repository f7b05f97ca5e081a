"""Where a run stands and what it waits for, at a glance: what `loomctl status` and the status line tell."""

from __future__ import annotations

from loomctl.flow import route
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.model import frozen_plan, places, visits
from loomctl.workflows.model import branches, gates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

_REASON = 400
_RESULT = "the step's result"


class Waits(NamedTuple):
    """Who is to do what. who: `user`, `assistant`, `loom` or `nobody`; why: in a line.

    word: what comes next, in one word; command: the one that leads on, empty where there is none.
    """

    who: str
    why: str
    word: str
    command: str


def waits(run: Run, *, is_driven: bool, held: bool = False, where: str = "") -> Waits:
    """Say what a run waits for, and by which one command it goes on.

    is_driven: a live session here works on it; held: another than the caller does, so that driving it takes it over;
    where: the machine of that one, for people, where it is known.
    """
    found = _waits(run, is_driven=is_driven or held)
    if held and not is_driven and found.why == _RESULT:
        of = f"the session on {masked_line(where, 40)} that drives it" if where else "the session that drives it"
        found = found._replace(why=f"{_RESULT}, from {of}")
    drives = found.command.startswith(("loomctl next", "loomctl done", "loomctl resume"))
    if not held or run.state["status"] in ("completed", "cancelled") or not drives:
        return found
    return found._replace(word="take over", command=f"loomctl resume {run.run_id} --take-over")


def _waits(run: Run, *, is_driven: bool) -> Waits:
    state, run_id = run.state, run.run_id
    unknown = frozen_plan.steps_unknown(run.plan)
    if unknown:
        return Waits("nobody", f"its steps are not known here: {masked_line(unknown, _REASON)}", "", "")
    status = state["status"]
    if status == "awaiting_feedback":
        return _answer(run)
    if status == "paused":
        return _paused(run)
    if status == "failed":
        reason = next((why for entry in reversed(state["steps"]) if (why := visits.reason_of(entry))), "")
        said = f"it failed{f': {masked_line(reason, _REASON)}' if reason else ''}"
        return Waits("user", said, "resume", f"loomctl resume {run_id}")
    if status == "completed":
        return Waits("nobody", "it is completed", "", "")
    if status == "cancelled":
        return Waits("nobody", "it was cancelled", "", f"loomctl resume {run_id} --reopen")
    return _under_way(run, is_driven=is_driven)


def _answer(run: Run) -> Waits:
    """Say what a run's user is asked."""
    from loomctl.runs.model import trust_waits

    state, run_id = run.state, run.run_id
    asked = state["pending_approvals"]
    if asked:
        from loomctl.flow import gate_texts

        why = gate_texts.line(run).partition(" Its user decides:")[0].partition(" They decide:")[0]
        first = asked[0]
        found = gates.open_human(state, run.plan)
        offered = gates.choices(found[1].step) if found is not None else first.get("choices") or []
        branch = str(first.get("branch") or "")
        if offered:
            label = str(offered[0])
            return Waits("user", why, "choose", gates.command(gates.CHOOSE, run_id, label, branch))
        return Waits("user", why, "approve", gates.command(gates.APPROVE, run_id, "", branch))
    raw = state.get("feedback")
    message = masked_line(str(raw.get("message") or ""), _REASON) if isinstance(raw, dict) else ""
    if trust_waits.waits(state):
        return Waits("user", message, "trust", trust_waits.command(run_id))
    return Waits("user", f"an answer{f' to: {message}' if message else ''}", "answer", f"loomctl next {run_id}")


def _paused(run: Run) -> Waits:
    refused = gates.refusal(run.state) if run.state["pending_approvals"] else None
    why = "it is paused"
    if refused is not None:
        by, note = (masked_line(str(refused.get(key) or ""), _REASON) for key in ("by", "note"))
        why += f": {by or 'somebody'} rejected {masked_line(str(refused['id']), 120)}" + (f": {note}" if note else "")
    return Waits("user", why, "resume", f"loomctl resume {run.run_id}")


def _under_way(run: Run, *, is_driven: bool) -> Waits:
    entry = visits.open_visit(run.state)
    place = places.place_of(run.plan, entry["step_id"]) if entry else None
    onward = f"loomctl next {run.run_id}"
    if entry is None or place is None:
        to = route.onward(run.state, run.plan)
        come = "the step after this is" if run.state["steps"] else "its first step is"
        return Waits("assistant", f"{come} {to.key}" if to else "its end", "next", onward)
    if entry["status"] == "closing":
        return Waits("assistant", "the step's result, as the final message of the conversation", "", onward)
    if place.step.get("run"):
        return Waits("loom", "a command step, which Loom runs", "next", onward)
    if not is_driven:
        return Waits("assistant", "no live session works on it", "resume", f"loomctl resume {run.run_id}")
    if branches.fan(run.state) is not None:
        return Waits("assistant", "the branches of a parallel step", "", onward)
    if places.is_human(place.step):
        return Waits("user", "what its user decides", "next", onward)
    return Waits("assistant", _RESULT, "", visits.done_command(entry))


def open_step(run: Run) -> dict[str, Any] | None:
    """Give the step that is being worked on, `{id, visit, stage, status, since, branches}`; None where none is."""
    entry = visits.open_visit(run.state)
    if entry is None:
        return None
    told = {"id": entry["step_id"], "visit": entry["visit"], "stage": entry.get("stage"), "status": entry["status"]}
    records = entry.get(branches.KEY, ())
    parts = [{"id": str(one["id"]), "status": str(one["status"]), "step": one.get("current_step")} for one in records]
    return {**told, "since": entry.get("started_at"), "branches": parts}


def label(run_state: Mapping[str, Any]) -> str:
    """Name a run in a word or two: its work item, else its plan without the project."""
    return str(run_state.get("work_id") or run_state["plan_id"])


def given(space: Workspace, run: Run, session_id: str | None) -> dict[str, Any]:
    """Give what of the run's artifacts a session's conversation has: `{session_id, given, not_given}`, names."""
    primed = space.local.primed(session_id)
    has = primed["artifacts"] if primed.get("run_id") == run.run_id else {}
    names = [str(artifact["id"]) for artifact in run.plan["artifacts"]]
    return {
        "session_id": session_id,
        "given": [name for name in names if name in has],
        "not_given": [name for name in names if name not in has],
    }
