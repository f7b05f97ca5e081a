"""How a run stands: under way, waiting for its user, a time or a limit, a copy of another (D23, D27, D73)."""

from __future__ import annotations

from loomctl.kit.quick_json import as_object, as_objects, as_texts
from loomctl.kit.records import NamedTuple
from loomctl.runs.model import visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State

# Whose state a pull saved as a run of its own: the one that was here as the other was taken, or the remote's.
MINE, THEIRS = "mine", "theirs"
SAVED_KEYS = ("run_id", "whose", "machine", "by", "remote", "at")
# What a run can wait for: a decision, trust in its commands, its user's answer, a time, somebody to raise a limit.
APPROVAL, TRUST, QUESTION, TIME, LIMIT = KINDS = ("approval", "trust", "question", "time", "limit")
DENIED = "denied"  # a question, too: whether what an assistant's host refused it is allowed from now on
PAUSE_AFTER = "pause_after"  # of a state: the visit after whose end the run pauses
WAITS_FOR = "waits_for"  # of a state: the limit or the time at which whoever drove the run ended
_SHOWN = 3
_LONGEST = 200  # UTF-16 units of a text that somebody else wrote, in a line


def goes_on(state: Mapping[str, Any]) -> bool:
    """Tell whether a run is under way, so that its next step may be opened."""
    return state["status"] in ("pending", "in_progress")


def awaiting(state: State, entry: Mapping[str, Any], message: str, *, at: str) -> State:
    """Let a run wait for its user's answer: the assistant stopped twice without a result (D27).

    message: what it said last, in a line.
    """
    waits = {"stage": entry["stage"], "at": at, "message": message}
    return {**state, "status": "awaiting_feedback", "feedback": waits}


def await_permission(state: State, entry: Mapping[str, Any], message: str, *, at: str) -> State:
    """Let a run wait until its user allows what a host refused its assistant (D75)."""
    waits = awaiting(state, entry, message, at=at)
    return {**waits, "feedback": {**waits["feedback"], "kind": DENIED}}


def answered(state: State) -> State:
    """Put a run under way that waited for its user's answer and for nothing else; every other stays as it is."""
    if "feedback" not in state:
        return state
    bare = {key: value for key, value in state.items() if key != "feedback"}
    waits = state["status"] == "awaiting_feedback" and not state["pending_approvals"]
    return {**bare, "status": "in_progress"} if waits else bare


def is_under_way(state: Mapping[str, Any]) -> bool:
    """Tell whether a run goes on once its user has spoken, as they have where the assistant did."""
    return goes_on(answered(dict(state)))


# ---- Trust in a run's commands.


def waits_for_trust(state: Mapping[str, Any]) -> bool:
    """Tell whether a run waits for trust in its commands."""
    feedback = state.get("feedback")
    return state["status"] == "awaiting_feedback" and isinstance(feedback, dict) and feedback.get("kind") == TRUST


def await_trust(state: State, entry: Mapping[str, Any], commands: Sequence[Mapping[str, str]], *, at: str) -> State:
    """Let a run wait for trust at its open visit. commands: what is to be trusted."""
    asked = awaiting(state, entry, f"trust in its commands: {commands_named(commands)}", at=at)
    return {**asked, "feedback": {**asked["feedback"], "kind": TRUST}}


def commands_named(commands: Sequence[Mapping[str, str]]) -> str:
    """Name commands in a line, masked: `build/test (pytest -q) and 2 more`."""
    from loomctl.kit.text.secrets import masked_line

    first = [f"{masked_line(one['step'], 80)} ({masked_line(one['run'].strip(), 60)})" for one in commands[:_SHOWN]]
    more = len(commands) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def trust_line(handle: str, commands: Sequence[Mapping[str, str]]) -> str:
    """Ask a run's user for trust, in a line."""
    named = commands_named(commands)
    return f"the run {handle} waits for your trust in its commands: {named}. To decide: {trust_command(handle)}"


def trust_command(handle: str) -> str:
    """Give the command that shows a run's commands, and asks."""
    return f"loomctl trust {handle}"


# ---- A pause that comes when the open step has ended.


def pause_later(state: State, entry: Mapping[str, Any], *, at: str) -> State:
    """Note that a run is to pause once this visit has ended."""
    return {**state, PAUSE_AFTER: {"stage": entry["stage"], "step_id": entry["step_id"], "at": at}}


def pause_no_more(state: State) -> State:
    """Take that note away."""
    return _without(state, PAUSE_AFTER)


def pauses_after(state: Mapping[str, Any]) -> str:
    """Name the open step after which a run pauses; empty where it goes on."""
    entry = visits.open_visit(state)
    noted = as_object(state.get(PAUSE_AFTER)).get("stage")
    return str(entry["step_id"]) if entry is not None and noted and noted == entry.get("stage") else ""


def is_pause_due(state: Mapping[str, Any]) -> bool:
    """Tell whether a run is to pause now: the visit after which it was to is open no more."""
    return isinstance(as_object(state.get(PAUSE_AFTER)).get("stage"), str) and not pauses_after(state)


# ---- What waits for whom.


class Wait(NamedTuple):
    """One thing that a run waits for; texts are masked, in a line, and empty where nothing is known.

    kind: of KINDS; step: its key; since, until: UTC, `YYYY-MM-DDTHH:MM:SSZ`; choices: the labels among which somebody
    chooses; branch: of a parallel step; command: the one that answers it; id: of what is asked.
    """

    kind: str
    question: str
    command: str
    step: str = ""
    since: str = ""
    until: str = ""
    choices: tuple[str, ...] = ()
    branch: str = ""
    id: str = ""

    def ways(self, handle: str) -> tuple[str, ...]:
        """Give the commands that answer it: one for each choice, else the one there is."""
        choose = (command("choose", handle, label, self.branch) for label in self.choices)
        return tuple(choose) if self.choices else (self.command,)


def waiting(
    state: Mapping[str, Any], *, now: str = "", untrusted: Sequence[Mapping[str, str]] = ()
) -> tuple[Wait, ...]:
    """Give what a run waits for, whoever wrote its state; what is asked of a person first.

    now: a time, UTC; a retry that is due by then is not waited for. untrusted: the commands that keep the open step
    from going on, for only the machine knows which it trusts. A run that stands still otherwise waits for none of it:
    it is resumed first (D4).
    """
    status = state.get("status")
    found: list[Wait] = []
    if status in ("in_progress", "awaiting_feedback"):
        found += asked(state)
        found += _answers(state) if status == "awaiting_feedback" else ()
        if untrusted and all(one.kind != TRUST for one in found):
            found.append(_trust(state, f"trust in its commands: {commands_named(untrusted)}", _begun(state)))
    if status in ("in_progress", "awaiting_feedback", "paused"):
        found += _limits(state)
    return (*found, *_retries(state, now)) if status == "in_progress" else tuple(found)


def asked(state: Mapping[str, Any]) -> tuple[Wait, ...]:
    """Give the decisions that a state asks for, those of branches among them, also while the run stands still."""
    return tuple(_approval(state, one) for one in as_objects(state.get("pending_approvals")))


def _approval(state: Mapping[str, Any], item: Mapping[str, Any]) -> Wait:
    name, branch = _line(item.get("id")), _line(item.get("branch"))
    offered = tuple(label for one in as_texts(item.get("choices")) if (label := _line(one)))
    step = _line(item.get("step_id")) or (name[5:] if name.startswith("step:") else _line(state.get("current_step")))
    verb, label = ("choose", offered[0] if len(offered) == 1 else "LABEL") if offered else ("approve", "")
    return Wait(
        APPROVAL,
        _line(item.get("reason")) or name,
        command(verb, _handle(state), label, branch),
        step=step,
        since=_time(item.get("requested_at")),
        choices=offered,
        branch=branch,
        id=name,
    )


def _answers(state: Mapping[str, Any]) -> tuple[Wait, ...]:
    raw = state.get("feedback")
    if not isinstance(raw, dict):
        return ()
    said, since = _line(raw.get("message")), _time(raw.get("at"))
    if raw.get("kind") == TRUST:
        return (_trust(state, said, since),)
    step = _line(state.get("current_step"))
    onward = _allowing(state) if raw.get("kind") == DENIED else command("resume", _handle(state))
    return (Wait(QUESTION, said, onward, step=step, since=since),)


def _allowing(state: Mapping[str, Any]) -> str:
    """Give the command that drives a run on and allows what was refused, as far as a setting can (D75)."""
    from loomctl.kit.errors import quoted
    from loomctl.kit.text.secrets import masked_line

    noted = as_objects((visits.open_visit(state) or {}).get("denied"))
    rules = dict.fromkeys(masked_line(rule, _LONGEST) for one in noted if isinstance(rule := one.get("rule"), str))
    allows = [f" --allow {quoted(rule)}" for rule in rules if rule]
    return command("drive", _handle(state)) + "".join(allows[:5])


def _begun(state: Mapping[str, Any]) -> str:
    """Give when the open visit began; empty where none is open."""
    entry = visits.open_visit(state)
    return _time(entry.get("started_at")) if entry is not None else ""


def _trust(state: Mapping[str, Any], said: str, since: str) -> Wait:
    return Wait(TRUST, said, trust_command(_handle(state)), step=_line(state.get("current_step")), since=since)


def _limits(state: Mapping[str, Any]) -> tuple[Wait, ...]:
    raw = state.get(WAITS_FOR)
    if not isinstance(raw, dict) or raw.get("kind") not in (LIMIT, TIME):
        return ()
    again, step = command("drive", _handle(state)), _line(state.get("current_step"))  # only a driver ends at either
    since, until = _time(raw.get("at")), _time(raw.get("until"))
    return (Wait(str(raw["kind"]), _line(raw.get("what")), again, step=step, since=since, until=until),)


def _retries(state: Mapping[str, Any], now: str) -> tuple[Wait, ...]:
    """Give the time before which the open step is not tried again, while that lies ahead."""
    steps = state.get("steps")
    for entry in reversed(steps if steps is not None else ()):
        if entry.get("status") in visits.OPEN:
            continue
        way = as_object(entry.get("next"))
        until = _time(way.get("not_before"))
        if not until or until <= now or way.get("step_id") != state.get("current_step"):
            return ()
        key, since = _line(way.get("step_id")), _time(entry.get("completed_at"))
        onward = command("next", _handle(state))
        return (Wait(TIME, f"{key} is tried again", onward, step=key, since=since, until=until),)
    return ()


def limited(state: State, kind: str, what: str, *, at: str, until: str | None = None) -> State:
    """Note the limit (LIMIT), or the time (TIME), at which whoever drove a run ended. until: when it may go on."""
    return {**state, WAITS_FOR: {"kind": kind, "what": what, "until": until, "at": at}}


def unlimited(state: State) -> State:
    """Take that note away: the run goes on."""
    return _without(state, WAITS_FOR)


def _without(state: State, key: str) -> State:
    return {name: value for name, value in state.items() if name != key} if key in state else state


def command(verb: str, handle: str, label: str = "", branch: str = "") -> str:
    """Give the command by which something is decided, so that it can be pasted. branch: of a parallel step."""
    from loomctl.kit.errors import quoted
    from loomctl.kit.text.secrets import masked_line

    shown = masked_line(label, _LONGEST)
    option = f"--branch {quoted(branch)} " if branch else ""
    mark = "-- " if shown.startswith("-") else ""
    word = f"{shown if shown == 'LABEL' else quoted(shown)} " if label else ""
    return f"loomctl {verb} {option}{mark}{word}{handle}"


def _handle(state: Mapping[str, Any]) -> str:
    from loomctl.runs.model.state import handle

    return handle(state)


def _line(value: object) -> str:
    from loomctl.kit.text.secrets import masked_line

    return masked_line(value, _LONGEST) if isinstance(value, str) else ""


def _time(value: object) -> str:
    """Read a time that somebody wrote; empty for what is none."""
    is_time = isinstance(value, str) and len(value) == 20 and value.isascii()
    marks = "".join(one for one in str(value) if not one.isdigit()) if is_time else ""
    return str(value) if marks == "--T::Z" else ""


# ---- A copy that a pull saved.


def saved_from(state: Mapping[str, object]) -> dict[str, str] | None:
    """Read of which run this one is a copy: SAVED_KEYS as texts, empty where nothing is told; None for no copy.

    machine: where the state was, or from where it was pushed; by: who pushed theirs; at: when it was saved.
    """
    told = state.get("saved_from")
    return {key: str(told.get(key) or "") for key in SAVED_KEYS} if isinstance(told, dict) else None


def saved_from_line(copy: Mapping[str, str], of: Mapping[str, Any]) -> str:
    """Say of which run it is a copy, as it was where, and since when. of: both runs' work."""
    from loomctl.kit.text.fences import one_line
    from loomctl.kit.text.secrets import masked_line
    from loomctl.runs.model.state import handle

    machine, remote = masked_line(copy["machine"], 40), masked_line(copy["remote"], 60)
    if copy["whose"] == THEIRS:
        by = f" by {masked_line(copy['by'], 40)}" if copy["by"] else ""
        how = f"as it was pushed{by}{f' on {machine}' if machine else ''}{f' to {remote}' if remote else ''}"
    else:
        how = f"as it was{f' on {machine}' if machine else ' here'}"
        how += f" before {remote}'s took its place" if remote else ""
    return f"{handle({**of, 'run_id': copy['run_id']})} {how}; saved {one_line(copy['at'], 30)}"
