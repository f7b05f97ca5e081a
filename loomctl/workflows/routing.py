"""The way on from an ended visit: retry, transition, retry target, order, decided once and pure (D45).

Also what that decision stands on: what a failure is, what a label means, and the fidelity that a way may ask for (D46).
"""

from __future__ import annotations

from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import counted
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.model import frozen_plan, visits
from loomctl.runs.model.visits import (
    CONDITION,
    END,
    FAILED,
    LABEL,
    MAX_VISITS,
    NEXT_TASK,
    NOWHERE,
    ON_FAILURE,
    ORDER,
    RETRY,
    RETRY_TARGET,
    SUGGESTED,
    UNCONDITIONAL,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    from loomctl.runs.model.frozen_plan import Place

    # Says what the conditions of a step's transitions come to, None for those without, and what is to be warned of.
    # It is given the state with the visit ended, the step, and that visit.
    Judge: TypeAlias = Callable[
        [Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], tuple[Sequence[bool | None], Sequence[str]]
    ]

FIDELITIES = ("full", "truncate", "compact", "summary:low", "summary:medium", "summary:high")
AFTER_RESUME = "summary:high"  # what `full` becomes in a conversation that has not seen the work


class ChosenFidelity(NamedTuple):
    """source: who named it: `transition`, `step`, `workflow`, or `default`; warnings: what was named and is none."""

    fidelity: str
    source: str
    warnings: Sequence[str] = ()


def choose_fidelity(*, transition: object = None, step: object = None, workflow: object = None) -> ChosenFidelity:
    """Choose the fidelity: the transition's, the step's, the workflow's, else `compact`. None: it names none.

    What is no fidelity is warned of and passed over, for a run is not held up by it (a check before it refuses it).
    """
    warnings: list[str] = []
    for source, named in (("transition", transition), ("step", step), ("workflow", workflow)):
        if named is None:
            continue
        if isinstance(named, str) and named in FIDELITIES:
            return ChosenFidelity(named, source, tuple(warnings))
        warnings.append(f"Loom ignores the unknown fidelity {masked_line(str(named), 60)!r} of the {source}")
    return ChosenFidelity("compact", "default", tuple(warnings))


# ---- A label, as people mean it.

_LONGEST_KEY = 3  # characters of an accelerator in brackets: `F`, `F2`, `Esc`


class Label(NamedTuple):
    """A label as people mean it: its words without case and accelerator, and the accelerator; either may be empty."""

    words: str
    key: str


def label_of(text: str) -> Label:
    """Read a label: `[F] Fix`, `F) Fix`, `F - Fix` and ` fix ` are the same words, the first three with the key f.

    An é is an é, in one character or in two.
    """
    text = " ".join(text.split())
    if not text.isascii():
        import unicodedata  # few labels need it

        text = unicodedata.normalize("NFC", text)
    key, words = "", text
    if text.startswith("["):
        inner, closed, rest = text[1:].partition("]")
        if closed and 0 < len(inner.strip()) <= _LONGEST_KEY and inner.strip().isalnum():
            key, words = inner.strip(), rest
    elif text[:1].isalnum() and text[1:2] == ")":
        key, words = text[0], text[2:]
    elif text[:1].isalnum() and text[1:4] in (" - ", " -"):
        key, words = text[0], text[4:]
    return Label(words.strip().casefold(), key.casefold())


def normalise(label: str) -> str:
    """Give what a label is compared by: its words, or its accelerator where it has no words."""
    read = label_of(label)
    return read.words or read.key


def matches(said: str, label: str) -> bool:
    """Tell whether what somebody said means a label: the same words, or its accelerator alone."""
    asked, offered = label_of(said), label_of(label)
    meant = asked.words or asked.key
    if not meant:
        return False
    if asked.words and asked.words == offered.words:
        return True
    return meant == offered.key and not (asked.words and asked.key)


# ---- A choice among transitions.

_CHOSEN_BEFORE = {
    CONDITION: "a true condition goes first",
    LABEL: "the given label goes first",
    ON_FAILURE: "a way for failures goes first",
    SUGGESTED: "a suggested step goes first",
}
_OUTWEIGHED = "another one weighs more, or as much and is first by name"


class Choice(NamedTuple):
    """The transition that was chosen.

    step_id: a step's key; None: the run ends (reason END), or nothing applies (NOWHERE). by: how it was chosen:
    CONDITION, LABEL, SUGGESTED, UNCONDITIONAL or ON_FAILURE. transition: its place in the step's list. label,
    fidelity: what it says. weighed: every transition with what became of it, `{to, label?, condition?, truth?, why}`.
    """

    step_id: str | None
    reason: str
    by: str
    transition: int | None
    label: str | None
    fidelity: str | None
    weighed: Sequence[Mapping[str, Any]]


def choose(
    step: Mapping[str, Any],
    *,
    outcome: str,
    label: str | None,
    suggested: Sequence[str],
    truths: Sequence[bool | None],
) -> Choice | None:
    """Choose among a step's transitions, as a plan holds them.

    outcome: how the step ended; a failed one takes only what is meant for failure: a condition that is true, the label
    that was said, or `on_failure`. truths: what each condition comes to, None where a transition has none. Ties are
    broken by weight, the highest first, then by where a transition leads, then by its place.

    None: the step has no transitions, or it failed and none is meant for that.
    """
    transitions: Sequence[Mapping[str, Any]] = step.get("transitions") or ()
    if not transitions:
        return None
    index, by = _chosen(transitions, outcome, label, suggested, truths)
    if index is None and outcome == FAILED:
        return None
    told = weigh(transitions, outcome=outcome, label=label, truths=truths, index=index, by=by)
    if index is None:
        return Choice(None, NOWHERE, NOWHERE, None, None, None, told)
    taken = transitions[index]
    to = None if taken["to"] == END else str(taken["to"])
    return Choice(to, by if to else END, by, index, taken.get("label"), taken.get("fidelity"), told)


def _chosen(
    transitions: Sequence[Mapping[str, Any]],
    outcome: str,
    label: str | None,
    suggested: Sequence[str],
    truths: Sequence[bool | None],
) -> tuple[int | None, str]:
    """Give the place of the transition that is taken, and how it was chosen; (None, NOWHERE) where none applies."""
    every = range(len(transitions))
    free = [index for index in every if truths[index] is None]
    true = [index for index in every if truths[index]]
    if true:
        return _best(transitions, true), CONDITION
    named = [index for index in free if label and matches(label, str(transitions[index].get("label") or ""))]
    named = [index for index in free if label and transitions[index].get("label") == label] or named
    if named:
        return _best(transitions, named), LABEL
    if outcome == FAILED:
        meant = [index for index in free if transitions[index].get("on_failure") is True]
        return (_best(transitions, meant), ON_FAILURE) if meant else (None, NOWHERE)
    for name in suggested:
        there = [index for index in free if leads_to(str(transitions[index]["to"]), name)]
        if there:
            return _best(transitions, there), SUGGESTED
    others = [index for index in free if transitions[index].get("on_failure") is not True]
    return (_best(transitions, others), UNCONDITIONAL) if others else (None, NOWHERE)


def _best(transitions: Sequence[Mapping[str, Any]], indexes: Sequence[int]) -> int:
    return min(indexes, key=lambda index: (-(transitions[index].get("weight") or 0), str(transitions[index]["to"])))


def leads_to(to: str, name: str) -> bool:
    """Tell whether a suggested id means where a transition leads: its key, or its id within the phase."""
    return bool(name.strip()) and name.strip() in (to, to.partition("/")[2])


def weigh(
    transitions: Sequence[Mapping[str, Any]],
    *,
    outcome: str,
    label: str | None,
    truths: Sequence[bool | None],
    index: int | None = None,
    by: str = NOWHERE,
) -> list[dict[str, Any]]:
    """Tell of every transition what became of it: `{to, label?, condition?, truth?, why}`, in their order.

    index, by: the one that was taken, as `choose` gives it; None where none was.
    """
    told = []
    for number, transition in enumerate(transitions):
        one = {key: transition[key] for key in ("to", "label", "condition") if transition.get(key) is not None}
        truth = truths[number]
        if truth is not None:
            one["truth"] = truth
        said = bool(label) and matches(label or "", str(transition.get("label") or ""))
        why = f"chosen: {by}" if number == index else _passed_over(transition, outcome, by, truth=truth, said=said)
        told.append({**one, "why": why})
    return told


def _passed_over(transition: Mapping[str, Any], outcome: str, by: str, *, truth: bool | None, said: bool) -> str:
    if truth is not None:
        return _OUTWEIGHED if truth else "its condition is false"
    for_failure = transition.get("on_failure") is True
    if (by == LABEL and said) or (by == ON_FAILURE and for_failure):
        return _OUTWEIGHED
    if by in _CHOSEN_BEFORE:
        return _CHOSEN_BEFORE[by]
    if outcome == FAILED:
        return "the step failed, and this is not for failures"
    return "it is only for failures" if for_failure else _OUTWEIGHED


# ---- The way on.


class Way(NamedTuple):
    """How a run goes on after a visit.

    next: as the visit keeps it, `{step_id, reason, by?, to?, transition?, label?, fidelity?, not_before?}`; step_id
    None: it ends or fails. asks: somebody is to be asked before it goes on. why: why it fails, else empty. weighed:
    what became of each transition; warnings: of their conditions.
    """

    next: dict[str, Any]
    asks: bool = False
    why: str = ""
    weighed: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()


def handling(step: Mapping[str, Any], outcome: str) -> str:
    """Give what the plan says of an outcome: `continue`, `prompt` or `stop`."""
    word = {FAILED: "on_failure", "partially_succeeded": "on_warning"}.get(outcome, "on_success")
    said = (step.get("result_handling") or {}).get(word)
    return str(said or ("stop" if outcome == FAILED else "continue"))


def retry(ended: Mapping[str, Any], attempt: int, at: str) -> Way:
    """Give the way of a visit that is tried again. attempt: which try it was, from 1."""
    waits = not_before(ended.get("error"), attempt, at)
    found = {"step_id": ended["step_id"], "reason": RETRY}
    return Way({**found, "not_before": waits} if waits else found)


def to_next_task(step: Mapping[str, Any], ended: Mapping[str, Any]) -> Way | None:
    """Give the way of a visit that ended well and leaves tasks of its list; None: its plan stops the run (D65)."""
    said = handling(step, ended["status"])
    return None if said == "stop" else Way({"step_id": ended["step_id"], "reason": NEXT_TASK}, asks=said == "prompt")


def choose_way(
    state: Mapping[str, Any], plan: Mapping[str, Any], place: Place, ended: Mapping[str, Any], judge: Judge
) -> Way:
    """Decide on the way on from a visit that is not tried again.

    state: with the visit ended in it, and the context as it is then.
    """
    failed, said = ended["status"] == FAILED, handling(place.step, ended["status"])
    if said == "stop" and not failed:
        why = f"{ended['step_id']} ended {ended['status']}, and its result_handling stops the run"
        return Way({"step_id": None, "reason": NOWHERE, "by": "result_handling"}, why=why)
    transitions = place.step.get("transitions") or ()
    truths, warnings = judge(state, place.step, ended) if transitions else ((), ())
    label = ended.get("preferred_next_label")
    suggested = ended.get("suggested_next_ids") or ()
    choice = choose(place.step, outcome=ended["status"], label=label, suggested=suggested, truths=truths)
    if choice is not None:
        way = Way({}, said == "prompt" and not failed, weighed=choice.weighed, warnings=warnings)
        return _taken(state, plan, ended, choice, way)
    told = weigh(transitions, outcome=FAILED, label=label, truths=truths) if transitions else ()
    way = Way({}, weighed=told, warnings=warnings)
    if not failed:
        return _in_order(state, plan, place, way, asks=said == "prompt")
    target = place.step.get("retry_target") or plan.get("retry_target")
    if target:
        return _to(state, plan, way, {"step_id": target, "reason": RETRY_TARGET})
    if said in ("continue", "prompt"):
        return _in_order(state, plan, place, way, asks=said == "prompt")
    why = f"{place.key} failed, and the workflow has no way for that"
    return way._replace(next={"step_id": None, "reason": NOWHERE}, why=why)


def _taken(
    state: Mapping[str, Any], plan: Mapping[str, Any], ended: Mapping[str, Any], choice: Choice, way: Way
) -> Way:
    if choice.reason == NOWHERE:
        label = ended.get("preferred_next_label")
        how = f"ended {ended['status']}" + (f" with the label {label!r:.60}" if label else "")
        why = f"no transition of {ended['step_id']} applies, because it {how}"
        return way._replace(next={"step_id": None, "reason": NOWHERE}, asks=False, why=why)
    said = {"by": choice.by, "transition": choice.transition, "label": choice.label, "fidelity": choice.fidelity}
    said = {key: value for key, value in said.items() if value is not None}
    return _to(state, plan, way, {"step_id": choice.step_id, "reason": choice.reason, **said})


def _in_order(state: Mapping[str, Any], plan: Mapping[str, Any], place: Place, way: Way, *, asks: bool) -> Way:
    behind = frozen_plan.after(plan, place.key)
    found = {"step_id": behind.key, "reason": ORDER} if behind else {"step_id": None, "reason": END, "by": ORDER}
    return _to(state, plan, way._replace(asks=asks), found)


def _to(state: Mapping[str, Any], plan: Mapping[str, Any], way: Way, found: dict[str, Any]) -> Way:
    """Go where a way leads, unless that step was visited as often as it may be."""
    place = frozen_plan.place_of(plan, found["step_id"])
    if place is None:
        return way._replace(next=found)
    most = frozen_plan.most_visits(plan, place)
    if visits.count_bounded(state, found["step_id"]) < most:
        return way._replace(next=found)
    why = f"{place.key} has run {counted(most, 'time')}, its max_visits"
    found = {**found, "step_id": None, "reason": MAX_VISITS, "by": found["reason"], "to": place.key}
    return way._replace(next=found, asks=False, why=why)


_SHORT = 60  # characters of a condition that is said as it stands
_SAID = {
    CONDITION: "because its condition is true",
    SUGGESTED: "because the result suggests it",
    UNCONDITIONAL: "by its transition",
    ON_FAILURE: "because the step failed",
    RETRY_TARGET: "because the step failed",
    RETRY: "again",
    NEXT_TASK: "with the next task",
}


def how(
    way: Mapping[str, Any], transitions: Sequence[Mapping[str, Any]] = (), *, at: Callable[[str], str] = str
) -> str:
    """Say in some words how a way was chosen, as a visit keeps it; empty where it is the next in the plan's order.

    transitions: of the step that was left; a short condition of theirs stands in its own words. at: gives a time, which
    is in UTC, as its reader knows it.
    """
    by = way.get("by") if way.get("reason") == END else way.get("reason")
    if by == LABEL:
        return f"because the choice is “{way.get('label') or ''}”"
    index = way.get("transition")
    if by == CONDITION and isinstance(index, int) and index < len(transitions):
        condition = str(transitions[index].get("condition") or "")
        if 0 < len(condition) <= _SHORT:
            return f"because {condition}"
    waits = f", not before {at(str(way['not_before']))}" if way.get("not_before") else ""
    return _SAID.get(str(by), "") + waits


def onward(state: Mapping[str, Any], plan: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Give the step that a routed run is at or goes on to, and whether that is known; None: it is at its end.

    It is what the last visit says of the way on. A visit that says of none is done again; where its way was refused for
    its visits, that step is visited once more: who takes such a run up again has decided so.
    """
    if not state["steps"]:
        first = frozen_plan.places(plan)
        return (first[0].key if first else None), True
    again = _to_be_done_again(state)
    if again is not None:
        return again, True
    last = state["steps"][-1]
    said = last.get("next")
    if not isinstance(said, dict):
        return None, False
    if said.get("step_id"):
        return str(said["step_id"]), True
    if said.get("reason") == END:
        return None, True
    return str(said.get("to") or last["step_id"]), True


def _to_be_done_again(state: Mapping[str, Any]) -> str | None:
    """Give the step of a visit that was reopened; what the engine did by itself after it is passed over."""
    for entry in reversed(state["steps"]):
        if entry.get("reopened"):
            return str(entry["step_id"])
        if entry.get("by") != "engine":
            return None
    return None


# ---- A failure.

TERMINAL, TRANSIENT, TIMEOUT, FAILURE = "TERMINAL", "TRANSIENT", "TIMEOUT", "FAILURE"
FIRST_WAIT, LONGEST_WAIT = 5, 60  # seconds
# Words of a failure that passes by itself; in small letters, anywhere in the reason.
TRANSIENT_WORDS = (
    *("rate limit", "rate-limit", "ratelimit", "too many requests", "overloaded", "try again later"),
    *("temporarily unavailable", "temporary failure", "service unavailable", "bad gateway", "gateway timeout"),
    *("connection reset", "connection refused", "connection timed out", "connection closed", "connection aborted"),
    *("could not resolve host", "name resolution", "network is unreachable", "no route to host"),
    *("econnreset", "econnrefused", "etimedout", "eai_again", "http 429", "http 502", "http 503", "http 504"),
    *("resource temporarily", "database is locked"),
)
# Exit codes of a shell whose command cannot run at all; and the one that `sysexits.h` has for "try again later".
_NEVER_RUNS = (126, 127)
_TRY_LATER = 75
_KILLED = ("SIGKILL", "SIGTERM", "SIGHUP")  # from outside: memory ran out, the machine went down


def error_of(reason: str, *, command: Mapping[str, Any] | None = None, final: bool = False) -> dict[str, Any]:
    """Tell a failed visit's error: `{type, message, retryable, details}`.

    TERMINAL: what trying again does not mend, and is not retried: an answer that did not fit its schema though it was
    asked for again (D36) and what a person rejected (final), and a command that cannot be run (exit code 126 or 127).
    TIMEOUT: a command that took too long. TRANSIENT: the reason holds one of TRANSIENT_WORDS; a command ended with 75
    (`EX_TEMPFAIL`), was killed, or was lost with the machine: a retry waits for a while. All others: FAILURE.
    command: what `status.json` tells of a command step.
    """
    if final or (command is not None and command.get("exit_code") in _NEVER_RUNS and not command.get("timed_out")):
        kind = TERMINAL
    elif command is None:
        kind = TRANSIENT if any(word in reason.casefold() for word in TRANSIENT_WORDS) else FAILURE
    elif command.get("timed_out"):
        kind = TIMEOUT
    else:
        killed = command.get("signal") in _KILLED or reason.startswith("lost:")
        kind = TRANSIENT if killed or command.get("exit_code") == _TRY_LATER else FAILURE
    details = {key: command[key] for key in ("exit_code", "signal") if command and command.get(key) is not None}
    return {"type": kind, "message": reason, "retryable": kind != TERMINAL, "details": details}


def not_before(error: Mapping[str, Any] | None, attempt: int, at: str) -> str | None:
    """Give the time before which a passing failure is not to be tried again; None where there is nothing to wait for.

    It is FIRST_WAIT seconds after the first try's end, twice as long after each other, LONGEST_WAIT at most.
    at: when the try ended, UTC, `YYYY-MM-DDTHH:MM:SSZ`; attempt: which one that was, from 1.
    """
    if error is None or error.get("type") != TRANSIENT:
        return None
    return _later(at, min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(attempt - 1, 10)))


def _later(at: str, seconds: int) -> str | None:
    """Give a time some seconds, less than a day, after another; None where that is none. A hook has no datetime."""
    parts = [at[:4], at[5:7], at[8:10], at[11:13], at[14:16], at[17:19]]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    year, month, day, hour, minute, second = map(int, parts)
    if not 1 <= month <= 12:
        return None
    days, left = divmod(hour * 3600 + minute * 60 + second + seconds, 86_400)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day + days > _DAYS[month - 1] + (month == 2 and leap):
        year, month, day, days = year + month // 12, month % 12 + 1, 1, 0
    return f"{year:04}-{month:02}-{day + days:02}T{left // 3600:02}:{left // 60 % 60:02}:{left % 60:02}Z"


_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
