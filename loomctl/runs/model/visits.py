"""The visits of a run's steps: one is opened, worked on, marked, and ended (D27, D31, D36, D41)."""

from __future__ import annotations

from loomctl.kit import ids
from loomctl.kit.errors import EXIT_INVALID, LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs.model.visit_list import BATCH, Visits, with_newest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from loomctl.runs.model.state import State

SUCCEEDED, FAILED, PARTIAL, SKIPPED = OUTCOMES = ("succeeded", "failed", "partially_succeeded", "skipped")  # D32
PENDING, CANCELLED = "pending", "cancelled"  # a branch before its first step, and one that a join went on without
BRANCH_ENDS = (*OUTCOMES, CANCELLED)
WAIT_ALL, FIRST_SUCCESS, ANY = JOINS = ("wait_all", "first_success", "any")
# Why a step came next; with the last three there is no way on: the run is over, or fails.
CONDITION, LABEL, SUGGESTED, UNCONDITIONAL = "condition", "label", "suggested", "unconditional"
ON_FAILURE, ORDER, RETRY, RETRY_TARGET = "on_failure", "order", "retry", "retry_target"
NEXT_TASK = "next_task"  # the same step again, with the next task of its list (D65)
END, NOWHERE, MAX_VISITS = "end", "none", "max_visits"
REASONS = (
    *(RETRY, NEXT_TASK, CONDITION, LABEL, SUGGESTED, UNCONDITIONAL, ON_FAILURE, ORDER, RETRY_TARGET),
    *(END, NOWHERE, MAX_VISITS),
)
SPELLINGS = {"SUCCESS": "succeeded", "FAILURE": "failed", "PARTIAL": "partially_succeeded", "SKIPPED": "skipped"}
OPEN = ("in_progress", "closing")


def recent(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the visits that the state itself holds, oldest first; all that are open are among them."""
    steps: list[dict[str, Any]] = state["steps"]
    return steps.newest if isinstance(steps, Visits) else steps


def _moved(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give what a state keeps of the visits that left it (`visit_list.KEY`)."""
    steps = state["steps"]
    return steps.earlier.record if isinstance(steps, Visits) else _NONE


_NONE: Mapping[str, Any] = {"ended": {}, "steps": {}}


def count(state: Mapping[str, Any], key: str) -> int:
    """Count a step's visits."""
    earlier = _moved(state)["steps"].get(key)
    before: int = earlier["count"] if earlier is not None else 0
    return before + sum(1 for entry in recent(state) if entry["step_id"] == key)


def count_bounded(state: Mapping[str, Any], key: str) -> int:
    """Count a step's visits as `max_visits` does: the visits that go through a task list once are one (D65)."""
    earlier = _moved(state)["steps"].get(key)
    before = _rounds(earlier) if earlier is not None else 0
    return before + sum(_ends_a_round(entry) for entry in recent(state) if entry["step_id"] == key)


def _rounds(record: Mapping[str, Any]) -> int:
    """Read how many rounds are known of a step; a record of before they were counted has as many as visits."""
    rounds: int = record.get("rounds", record["count"])
    return rounds


def _ends_a_round(entry: Mapping[str, Any]) -> bool:
    said = entry.get("next") or {}
    goes_on = said.get("step_id") == entry["step_id"] and said.get("reason") in (NEXT_TASK, RETRY)
    return not (goes_on and task_of(entry))


def newest_of(state: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Give a step's visits, newest first: those in the state, and of those before them the last."""
    yield from (entry for entry in reversed(recent(state)) if entry["step_id"] == key)
    earlier = _moved(state)["steps"].get(key)
    if earlier is not None:
        yield earlier["last"]


def task_of(entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Give the task of a visit, `{text, number, of, …}`; None where its step goes through no list (D65)."""
    found = entry.get("task") if entry is not None else None
    return found if isinstance(found, dict) else None


def task(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the task that is being worked on, as `task_of` does."""
    return task_of(open_visit(state))


def task_line(found: Mapping[str, Any] | None) -> str:
    """Say which task it is, `task 4 of 12: parse the date header`, in its first line; empty where there is none."""
    if not found:
        return ""
    return f"task {found.get('number')} of {found.get('of')}: {str(found.get('text')).partition(chr(10))[0]}"


def short_task(entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Give the task of a visit as documents tell it, `{number, of, text}`; None where it has none."""
    found = task_of(entry)
    return {key: found.get(key) for key in ("number", "of", "text")} if found else None


def current_step(state: Mapping[str, Any]) -> str:
    """Say at which step a run stands, with its task: `build/implement, task 4 of 12: …`; empty where at none."""
    return ", ".join(filter(None, (str(state.get("current_step") or ""), task_line(task(state)))))


def place_line(state: Mapping[str, Any]) -> str:
    """Return where a run stands, for people: its task or step, and whether it waits for a decision."""
    at = task_line(task(state)).partition(":")[0] or str(state.get("current_step") or "")
    waits = state.get("status") == "awaiting_feedback" and state.get("pending_approvals")
    return f"{at} waits for you".lstrip() if waits else at


def with_task(entry: Mapping[str, Any]) -> str:
    """Name the step of a visit, and its task if it has one: `build/implement, task 4 of 12: …`."""
    return ", ".join(filter(None, (str(entry["step_id"]), task_line(task_of(entry)))))


def has_next_task(entry: Mapping[str, Any]) -> bool:
    """Tell whether a visit ended well and another task of its list was left then."""
    return (entry.get("next") or {}).get("reason") == NEXT_TASK


def counts(state: Mapping[str, Any]) -> dict[str, int]:
    """Count the visits of every step that has some; those of branches, too."""
    found: dict[str, int] = {key: known["count"] for key, known in _moved(state)["steps"].items()}
    for entry in every({"steps": recent(state)}):
        found[entry["step_id"]] = found.get(entry["step_id"], 0) + 1
    return found


def last_of_each(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the last visit of every step that has some; those of branches, too."""
    found = {key: known["last"] for key, known in _moved(state)["steps"].items()}
    return found | {entry["step_id"]: entry for entry in every({"steps": recent(state)})}


def newest_ended(state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the visits that ended, newest first; what the engine did by itself is none."""
    return (entry for entry in reversed(state["steps"]) if has_ended(entry))


def readable(entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Give visits as far as they can be read: where the file of those that left the state is damaged, it ends there."""
    try:
        yield from entries
    except LoomError:
        return


def count_ended(state: Mapping[str, Any]) -> dict[str, int]:
    """Count `newest_ended` by how they ended."""
    found: dict[str, int] = dict(_moved(state)["ended"])
    for entry in newest_ended({"steps": recent(state)}):
        found[how_it_ended(entry)] = found.get(how_it_ended(entry), 0) + 1
    return found


def has_ended(entry: Mapping[str, Any]) -> bool:
    """Tell whether a visit ended that somebody worked on: what the engine did by itself is none."""
    return entry.get("by") != "engine" and entry["status"] not in OPEN


def every(state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give all visits in the order in which they began, those in branches behind their parallel step's (D43)."""
    for entry in state["steps"]:
        yield entry
        yield from within(entry)


def within(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the visits in the branches of a parallel step's, in the order in which they began; none of any other."""
    return sorted((one for record in entry.get("branches", ()) for one in record["steps"]), key=lambda one: one["rank"])


def highest_rank(state: Mapping[str, Any]) -> int:
    """Give the rank of the stage that was begun last, in whatever branch; 0 where none was."""
    last = (known["last"]["rank"] for known in _moved(state)["steps"].values())
    return max((*last, *(entry["rank"] for entry in every({"steps": recent(state)}))), default=0)


def main_rank(state: Mapping[str, Any]) -> int:
    """Give the rank of the stage of the main line that was begun last; 0 where none was."""
    known = max((entry["rank"] for entry in recent(state)), default=0)
    return known or next((entry["rank"] for entry in reversed(state["steps"]) if entry["rank"]), 0)


# ---- Visits that leave the state.


def due(state: Mapping[str, Any], most: int) -> int:
    """Count the oldest visits that are to leave a state which holds more than `most` ended ones before any open one."""
    held = recent(state)
    ended = next((at for at, entry in enumerate(held) if entry["status"] in OPEN), len(held))
    return max(0, -(-(ended - most) // BATCH) * BATCH)


def record_of(earlier: Mapping[str, Any] | None, leaving: list[dict[str, Any]], **file: Any) -> dict[str, Any]:
    """Give what a state keeps of visits that leave it, behind those that left before. file: where they stand."""
    known = earlier or {"count": 0, **_NONE}
    how, steps = dict(known["ended"]), dict(known["steps"])
    for entry in every({"steps": leaving}):
        before = steps.get(entry["step_id"], {"count": 0})
        rounds = _rounds(before) + _ends_a_round(entry)
        steps[entry["step_id"]] = {"count": before["count"] + 1, "rounds": rounds, "last": entry}
    for entry in filter(has_ended, leaving):
        how[how_it_ended(entry)] = how.get(how_it_ended(entry), 0) + 1
    return {**file, "count": known["count"] + len(leaving), "ended": how, "steps": steps}


class Outside(NamedTuple):
    """Which branch a state is that is seen as a run (D43), and what that run has outside of it that counts within.

    stage, step_id: of the parallel step's visit; name, place: of the branch; outcome: how it ended, None if it has not.
    rank: the highest of the run; visits: how often each of its steps was visited in earlier rounds of the parallel
    step; before: the visits of the main line up to that step. open: the stages that are being
    worked on, in whatever branch; left: what is left to do in the run, in a sentence.
    """

    stage: str = ""
    step_id: str = ""
    name: str = ""
    place: int = 0
    outcome: str | None = None
    rank: int = 0
    visits: Mapping[str, int] = {}
    before: Sequence[Mapping[str, Any]] = ()
    open: Sequence[str] = ()
    left: str = ""


_OUTSIDE = Outside()
AS_BRANCH = "as_branch"  # the key of an `Outside` in a state that is seen, never in one that is stored


def seen_from(state: Mapping[str, Any]) -> Outside:
    """Give what a branch that is seen as a run has outside of it; empty for a run itself."""
    found = state.get(AS_BRANCH)
    return found if isinstance(found, Outside) else _OUTSIDE


def is_branch(state: Mapping[str, Any]) -> bool:
    """Tell whether a state is a branch that is seen as a run."""
    return bool(seen_from(state).stage)


def is_done(last: Mapping[str, Any] | None) -> bool:
    """Tell from a step's last visit whether it needs no more work."""
    return last is not None and is_last_word(last)


def is_last_word(entry: Mapping[str, Any]) -> bool:
    """Tell whether a visit ended well, or failed and was passed; one that stopped the run or was reopened did not."""
    if entry.get("stopped") or entry.get("reopened") or has_next_task(entry):
        return False
    return entry["status"] in (SUCCEEDED, PARTIAL, SKIPPED) or bool(entry.get("passed"))


def how_it_ended(entry: Mapping[str, Any]) -> str:
    """Say how a visit stands: its status, or that its step is to be done again."""
    return "to be done again" if entry.get("reopened") else str(entry["status"])


def nth(count: int) -> str:
    """Give `2nd time` for 2."""
    ending = "th" if 10 < count % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending} time"


def reason_of(entry: Mapping[str, Any]) -> str:
    """Say why a visit failed, as far as anybody said; empty for one that did not fail."""
    return str(entry.get("failure_reason") or entry.get("note") or "") if entry["status"] == "failed" else ""


def open_visit(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the visit that is being worked on (or closing), if there is one."""
    return next((entry for entry in reversed(recent(state)) if entry["status"] in OPEN), None)


def named(state: Mapping[str, Any], word: str) -> tuple[dict[str, Any], str] | None:
    """Give the visit whose stage has a number or a name, and the branch that it is in ("" for none); else None."""
    rank = int(word) if word.isascii() and word.isdigit() and len(word) < 10 else None
    for entry in reversed(state["steps"]):
        if _is_named(entry, word, rank):
            return entry, ""
        for record in entry.get("branches", ()):
            for inner in record["steps"]:
                if _is_named(inner, word, rank):
                    return inner, str(record["id"])
    return None


def _is_named(entry: Mapping[str, Any], word: str, rank: int | None) -> bool:
    return entry.get("stage") is not None and (entry["stage"] == word or entry["rank"] == rank)


def done_command(entry: Mapping[str, Any] | None) -> str:
    """Give the command that ends a visit, which names its stage (D67)."""
    return f"loomctl done --for {entry['rank']:03}" if entry is not None and entry.get("stage") else "loomctl done"


def start_visit(
    state: State, key: str, phase: str, *, at: str, by_engine: bool = False
) -> tuple[State, dict[str, Any]]:
    """Open a visit of a step, or give the one that is open already.

    Rank counts visits in order of their start, from 1 (D41). What the engine does itself has no stage, and rank 0.
    Raises STEP_OPEN where another step is being worked on: one visit is open at a time.
    """
    current = open_visit(state)
    if current is not None and current["step_id"] == key:
        return state, current
    if current is not None:
        raise LoomError(
            "STEP_OPEN",
            f"{current['step_id']} is still open, but {key} comes before it",
            why="only one step can be open, and it must end first; somebody changed this state by hand",
            hint=done_command(current),
        )
    outside = seen_from(state)
    visit = count(state, key) + outside.visits.get(key, 0) + 1
    rank = 0 if by_engine else max(outside.rank, highest_rank(state)) + 1
    entry: dict[str, Any] = {
        "step_id": key,
        "phase": phase,
        "visit": visit,
        "rank": rank,
        "stage": None if by_engine else ids.stage_name(rank, key, visit),
        "status": "in_progress",
        "started_at": at,
        "completed_at": None,
    }
    if by_engine:
        entry["by"] = "engine"
    state = {**state, "steps": state["steps"] + [entry]}
    attempt = attempt_of(state, entry)
    if attempt > 1:
        entry["attempt"] = attempt
    return state, entry


def last_ended(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the visit that `undone` takes back; None where there is none. One that is closing has not ended."""
    worked = (entry for entry in reversed(state["steps"]) if entry.get("stage") is not None)  # by no engine, nor FABER
    return next((entry for entry in worked if entry["status"] in OUTCOMES), None)


def mark_closing(
    state: State,
    *,
    outcome: str | None,
    note: str,
    artifacts: Mapping[str, str],
    at: str,
    session_id: str | None = None,
) -> State:
    """Mark the open visit as closing: its response is still to come, as the conversation's next final message (D27).

    session_id: whose conversation that is.
    """
    entry = open_visit(state)
    if entry is None:
        raise nothing_open()
    closing = {"outcome": outcome, "note": note, "artifacts": dict(artifacts), "at": at}
    closing["session_id"] = session_id
    return replaced(state, {**entry, "status": "closing", "closing": closing})


def repaired(state: State) -> State:
    """Count a corrective turn of the open visit (D36); one that was closing still is."""
    entry = open_visit(state)
    if entry is None:
        raise nothing_open()
    return replaced(state, {**entry, "repairs": repairs_of(entry) + 1})


def repairs_of(entry: Mapping[str, Any]) -> int:
    """Give how often a visit's answer was asked to be repaired."""
    count = entry.get("repairs")
    return count if type(count) is int and count > 0 else 0


def without_closing(state: State) -> State:
    """Take the mark of a closing visit off; it is open as before."""
    entry = open_visit(state)
    if entry is None or entry["status"] != "closing":
        return state
    bare = {key: value for key, value in entry.items() if key != "closing"}
    return replaced(state, {**bare, "status": "in_progress"})


def replaced(state: State, entry: Mapping[str, Any]) -> State:
    """Put a visit in its place; it is looked for from the newest on."""
    steps = list(recent(state))
    if not _put(steps, entry):
        _put(steps := list(state["steps"]), entry)
        return {**state, "steps": steps}
    return {**state, "steps": with_newest(state["steps"], steps)}


def _put(steps: list[dict[str, Any]], entry: Mapping[str, Any]) -> bool:
    for at in range(len(steps) - 1, -1, -1):
        if steps[at]["step_id"] == entry["step_id"] and steps[at]["visit"] == entry["visit"]:
            steps[at] = dict(entry)
            return True
    return False


def nothing_open() -> LoomError:
    """Say that no step is being worked on."""
    what = "no step of this run is open"
    return LoomError("NO_OPEN_STEP", what, hint="loomctl next", exit_code=EXIT_INVALID)


def attempt_of(state: Mapping[str, Any], entry: Mapping[str, Any]) -> int:
    """Give which try a visit is since its step was come to, from 1: the failed ones directly before it count.

    A visit that a transition led to, even from the step itself, is a first try.
    """
    attempt, seen = 1, False
    for other in reversed(state["steps"]):
        if not seen:
            seen = (other["step_id"], other["visit"]) == (entry["step_id"], entry["visit"])
        elif other["step_id"] == entry["step_id"] and is_failed_try(other):
            attempt += 1
        else:
            break
    return attempt


def is_failed_try(entry: Mapping[str, Any]) -> bool:
    """Tell whether a visit failed and neither a transition led on from it nor was it reopened."""
    said = entry.get("next")
    led_on = isinstance(said, dict) and bool(said.get("step_id")) and said.get("reason") != RETRY
    return entry["status"] == FAILED and not (led_on or entry.get("reopened"))


class Joined(NamedTuple):
    """outcome: of the parallel step; merged: the places of the branches whose contexts it takes over, as declared."""

    outcome: str
    merged: Sequence[int]


def joined(join: str, outcomes: Sequence[str | None]) -> Joined | None:
    """Say what a join comes to; None: it is waited for.

    outcomes: of each branch as declared, None of one that has not ended. It is asked whenever a branch ends, so what is
    the first to end, or to succeed, is the only one; of several the one that was declared first counts.

    `wait_all` waits for all: succeeded if all are, failed if all did, skipped if all were, else partially_succeeded
    where one failed or is partial. `first_success` goes on with the first that succeeded, and with it alone; where none
    did it is as `wait_all`. `any` goes on with the first that ended, however it did.
    """
    for index, outcome in enumerate(outcomes):
        if (join == ANY and outcome is not None) or (join == FIRST_SUCCESS and outcome == SUCCEEDED):
            return Joined(str(outcome), (index,))
    if any(outcome is None for outcome in outcomes):
        return None
    return Joined(_of_all({str(outcome) for outcome in outcomes}), tuple(range(len(outcomes))))


def _of_all(outcomes: set[str]) -> str:
    if len(outcomes) == 1:
        return outcomes.pop()
    return PARTIAL if outcomes & {FAILED, PARTIAL} else SUCCEEDED
