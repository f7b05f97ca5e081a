"""A run of the fleet, as its state tells it: in `state["fleet"]`, in how its last drive ended, in what it waits for."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from loomctl.fleet.model import (
    CANCELLED,
    DONE,
    FAILED,
    LATER,
    MIDDLE,
    PAUSED,
    PRIORITIES,
    QUEUED,
    WAITS,
    Lane,
    Row,
)
from loomctl.kit import clock, digests
from loomctl.kit.errors import EXIT_HELD, EXIT_LIMIT, EXIT_OK, EXIT_WAITS, LoomError, quoted
from loomctl.kit.quick_json import as_object
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.machine import run_notes
from loomctl.runs.model import driving, standing
from loomctl.runs.model.state import TERMINAL, handle
from loomctl.runs.store import run_index, write_rules
from loomctl.runs.store.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace

KEY = driving.FLEET
"""Of a state: `{priority, after, host, added_at, shared?, paused?, failed?, again?}`. In the fleet while it has it.

shared: several machines may drive it, and its remote has it; failed: `{kind, why, at}` of what the state does not tell
otherwise; again: whoever retried or resumed it means it to go on, though it failed or is paused. The next drive takes
both away as it begins.
"""
_LONG, _GOAL = 300, 120
_ASKED_TO_END = ("stopped", "leash")  # how a drive ends that was asked to
HELD_FOR = 60.0  # seconds after which a run that somebody else drives is looked at again


def entry(*, host: str, priority: int = MIDDLE, after: Sequence[str] = (), shared: bool = False) -> dict[str, Any]:
    """Give what makes a run one of the fleet."""
    made = {"priority": priority, "after": [*after], "host": host, "added_at": clock.now()}
    return {**made, "shared": True} if shared else made


def is_in(state: Mapping[str, Any]) -> bool:
    """Tell whether a run is in the fleet; what a pull saved beside it is not."""
    return bool(as_object(state.get(KEY))) and not state.get("saved_from")


def host_of(state: Mapping[str, Any]) -> str:
    """Give the assistant that is to work on a run."""
    return str(as_object(state.get(KEY)).get("host") or "")


def row_of(state: State, repository: str, *, commit: str = "") -> Row:
    """Read how a run stands in the fleet. commit: of the run on the remote, as the state was read."""
    known = as_object(state.get(KEY))
    priority, after = _whole(known.get("priority")), known.get("after")
    lane = Lane(repository, host_of(state), str(state["workflow_id"]))
    row = Row(
        run_id=state["run_id"],
        handle=handle(state),
        goal=masked_line(str(state.get("goal") or state.get("work_id") or ""), _GOAL),
        lane=lane,
        revision=_whole(state.get("revision")),
        state=QUEUED,
        priority=priority if priority in PRIORITIES else MIDDLE,
        after=tuple(one for one in after if isinstance(one, str)) if isinstance(after, list) else (),
        step=masked_line(str(state.get("current_step") or ""), _GOAL),
        cost=_cost(state),
        commit=commit,
    )
    return _stands(row, state, known)


def _stands(row: Row, state: State, known: Mapping[str, Any]) -> Row:
    status = str(state.get("status"))
    if status in TERMINAL:
        return row._replace(state=CANCELLED if status == "cancelled" else DONE, after=())
    if known.get("again"):
        return row
    if known.get("paused") or status == "paused":
        return row._replace(state=PAUSED, command=f"loomctl fleet resume {row.handle}")
    ended = as_object(as_object(state.get(driving.KEY)).get("ended"))
    kind, why = str(ended.get("kind") or ""), masked_line(str(ended.get("why") or ""), _LONG)
    retry = f"loomctl fleet retry {row.handle}"
    failed = as_object(known.get("failed"))
    if failed:
        kind, why = str(failed.get("kind") or ""), masked_line(str(failed.get("why") or ""), _LONG)
        return row._replace(state=FAILED, kind=kind, why=why, command=retry)
    if status == "failed":
        return row._replace(state=FAILED, kind=kind or "failed", why=why or "a step failed for good", command=retry)
    now = clock.now()
    if status == "awaiting_feedback" and (waits := next(iter(standing.waiting(state, now=now)), None)) is not None:
        return _waits(row, waits, state, known)
    code = ended.get("code", EXIT_OK)
    if ended and kind not in _ASKED_TO_END and code not in (EXIT_OK, EXIT_WAITS, EXIT_HELD):
        if code == EXIT_LIMIT:  # of its user's; the fleet's own is looked at before each claim
            return row
        return row._replace(state=FAILED, kind=kind, why=why, command=retry)
    if code == EXIT_WAITS and kind == "denied":  # of all else that a person answers the state tells alone
        return _refused(row, ended, known)
    until = clock.seconds_of(str(ended.get("until") or "")) if code == EXIT_WAITS and kind == "time" else 0
    later = next((one for one in standing.waiting(state, now=now) if one.kind == standing.TIME), None)
    until = max(until, clock.seconds_of(later.until) if later is not None else 0)
    if until > clock.seconds_of(now):
        return row._replace(state=LATER, not_before=float(until), kind=str(ended.get("cause") or "retry"), why=why)
    return row


def _waits(row: Row, waits: standing.Wait, state: State, known: Mapping[str, Any]) -> Row:
    """Say of a run that waits for a person what for, and how it goes on."""
    row = row._replace(state=WAITS, kind=waits.kind, why=waits.question, command=waits.command)
    row = row._replace(since=float(clock.seconds_of(waits.since)))
    if waits.kind != standing.QUESTION:
        return row
    ended = as_object(as_object(state.get(driving.KEY)).get("ended"))
    if ended.get("kind") == "denied":
        return _refused(row, ended, known)
    if as_object(state.get("feedback")).get("kind") == standing.DENIED:
        return row
    return row._replace(command=_answered(row, known))


def _answered(row: Row, known: Mapping[str, Any]) -> str:
    """Say how a question is answered: the machine where that is typed keeps the word (D76), so it drives the run."""
    tell = f'loomctl tell {row.handle} "ANSWER"'
    if known.get("shared"):
        return f"{tell} && loomctl drive {row.handle} --share"
    return f"{tell} && loomctl fleet retry {row.handle}"


def _refused(row: Row, ended: Mapping[str, Any], known: Mapping[str, Any]) -> Row:
    """Say of a run whose assistant was refused what it needs how it goes on: somebody allows that, and drives it."""
    rules = [one for one in ended.get("allow") or () if isinstance(one, str)]
    words = ["loomctl drive", row.handle, *(["--share"] if known.get("shared") else [])]
    command = " ".join([*words, *(f"--allow {quoted(one)}" for one in rules)])
    return row._replace(
        state=WAITS, kind="denied", why=masked_line(str(ended.get("why") or ""), _LONG), command=command
    )


def _cost(state: Mapping[str, Any]) -> float:
    told = driving.told(state)
    return float(told["cost"]) if told is not None else 0.0


def _whole(value: object) -> int:
    return value if type(value) is int else 0


def mark(space: Workspace, run_id: str, **changes: Any) -> State:
    """Change what a run's state says of its place in the fleet; None takes a key away. Beside whoever drives it."""

    def change(state: State) -> tuple[State, list[Event]]:
        known = {**as_object(state.get(KEY)), **changes}
        known = {key: value for key, value in known.items() if value is not None}
        if known == as_object(state.get(KEY)):
            return state, []
        return {**state, KEY: known}, [Event("fleet.marked", {**changes}, space.caller.session_id)]

    return space.store.writing(write_rules.BESIDE).update(run_id, change)


def of_store(space: Workspace, *, travels: bool = False) -> Iterator[State]:
    """Read the runs of this store that are in the fleet; one that cannot be read is none.

    Neither is one that came with the project, and that nobody began or took up here; where runs travel, whoever may
    push to the remote may begin them. One that machines share is of their queue alone.
    """
    for summary in run_index.summaries(space.store):
        if summary["status"] is None or summary["saved_from"]:
            continue
        if not (travels or run_notes.is_known(summary["run_id"], space.store.folder)):
            continue
        try:
            state = space.store.read_state(summary["run_id"])
        except (OSError, LoomError):
            continue
        if is_in(state) and (travels or not as_object(state[KEY]).get("shared")):
            yield state


def repository_of(space: Workspace, address: str = "") -> str:
    """Name the repository alike wherever it was cloned. address: of the remote by which its runs travel, if any."""
    return digests.of_text(_bare(address) if address else os.path.realpath(space.store.folder))[:16]


def _bare(address: str) -> str:
    path = address.removeprefix("file://")
    if os.path.isabs(path):
        bare = os.path.realpath(path)
    else:  # by HTTPS and by SSH it is one
        bare = re.sub(r"^([a-z+]+://)?([^/@]*@)?", "", address.lower()).replace(":", "/").replace("//", "/")
    return re.sub(r"(\.git)?/*$", "", bare)
