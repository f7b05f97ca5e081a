"""What a conversation was given and still holds: kept on this machine and in the run, and forgotten in time (D15)."""

from __future__ import annotations

from loomctl.kit import clock
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.priming import slip
from loomctl.priming.due import DEFER, ERROR, LOAD, OVER, WHOLE, Given
from loomctl.runs import find, leases
from loomctl.runs.model import sessions
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.priming.examine import Entry
    from loomctl.priming.primed import Slip
    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State


FORMS = (*WHOLE, "head", "pointer")
WATCHED = (*WHOLE, "head")
"""The forms after which a session is told of an edit (D80)."""
_KEPT_SLIPS = 20  # of before the last compaction, that tell an older content where they still stand
_LONGEST_READING = 3.0  # seconds from the reading of the first file until it is noted that all were given


class Held(NamedTuple):
    """What a conversation still holds: artifacts by id, and whether any slip of the run stands in it at all."""

    artifacts: Mapping[str, Given]
    any_slip: bool


def held(space: Workspace, run_id: str) -> Held:
    """Give what the caller's conversation still holds of a run, as far as it can be seen (D15)."""
    primed = space.local.primed(space.caller.session_id)
    if primed.get("run_id") != run_id:
        return Held({}, False)
    known: dict[str, Given] = {}
    for name, entry in primed["artifacts"].items():
        if isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("sha256", "form", "slip")):
            known[name] = given_of(entry)
    slips = {needed for given in known.values() for needed in (given.slip, *given.needs)}
    if isinstance(primed.get("slip"), str) and primed["slip"]:
        slips.add(primed["slip"])
    if not slips:
        return Held({}, False)
    live = space.caller.conversation.holds(slips)
    held_whole = {name: given for name, given in known.items() if live.issuperset((given.slip, *given.needs))}
    return Held(held_whole, bool(live))


def given_of(entry: Mapping[str, Any]) -> Given:
    """Read what is noted of one artifact that was given."""
    text, needs = entry.get("text"), entry.get("needs")
    slips = [one for one in needs if isinstance(one, str)] if isinstance(needs, list) else []
    return Given(entry["sha256"], entry["form"], entry["slip"], text if isinstance(text, str) else "", slips)


def record(space: Workspace, run_id: str, made: Slip, *, may_write: bool = True, begun: str = "") -> Slip:
    """Remember what a slip gave, here and (if the caller may write it) in the run.

    begun: as for `remember`. Where that cannot be, the slip says so and is given all the same.
    """

    def change(state: State) -> tuple[State, list[Event]]:
        after, happened = recorded(space, state, made)
        return (after, happened) if made.id or after != state else (state, [])  # nothing is written for nothing's sake

    try:
        remember(space, made, begun)
        if may_write:
            leases.watching(space).store.update(run_id, change, durable=False)
    except (LoomError, OSError) as error:
        return made._replace(
            warnings=[*made.warnings, ("NOT_RECORDED", f"this priming could not be recorded: {error}")]
        )
    return made


def remember(space: Workspace, made: Slip, begun: str = "") -> None:
    """Note in this machine's local files what the caller's session was given (D15).

    begun: what began with it, a key of `receipts.BEGUN`; then it is looked for later whether that arrived (D81).
    """
    session_id = space.caller.session_id
    if session_id is None:
        return
    before = space.local.primed(session_id)
    after = _remembered(space, session_id, made, before) if made.id else before
    if begun:
        same_run = before.get("run_id") == made.run_id
        _expect(space, made, begun, before if same_run else {**before, "artifacts": {}}, after)


def _expect(space: Workspace, made: Slip, begun: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Note what is due to the caller's conversation from a start on.

    begun: what began, a key of `receipts.BEGUN`; before, after: what was noted of the session as `Local.primed` gives
    it, before this slip and with it.
    """
    session_id = space.caller.session_id
    due = [entry for entry in made.entries if entry.decision == LOAD or entry.reason in ("fresh", "memory")]
    if session_id is None or not due:
        return
    artifacts = {}
    for entry in due:
        known, known_before = after["artifacts"].get(entry.id), before["artifacts"].get(entry.id)
        given = given_of(known) if _is_given(known) else None
        older = _older(before, entry.id, entry.sha256)
        if _is_given(known_before) and known_before["sha256"] != entry.sha256:
            older += [known_before["slip"], *given_of(known_before).needs]
        artifacts[entry.id] = {
            "sha256": entry.sha256,
            "whole": given is not None and given.form in WHOLE and entry.reason != "memory",
            "in_memory": entry.reason == "memory",
            "slips": [given.slip, *given.needs] if given is not None else [made.id],
            "named": given is not None or entry.form == "pointer",
            "older": sorted(set(older)),
            "file": entry.file,
        }
    told = {"run_id": made.run_id, "event": begun, "at": clock.now(), "artifacts": artifacts}
    space.local.note_opened(session_id, told)


def _with_earlier(before: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Give the slips of a conversation that ends here, each with the SHA-256 of what it gave, by the artifacts' ids.

    before: as `Local.primed` gives it. What an artifact's diff builds on is of an older content.
    """
    found = _earlier(before)
    for name, known in before["artifacts"].items():
        if not _is_given(known):
            continue
        given = given_of(known)
        for one in (given.slip, *given.needs):
            is_part = one.partition("-")[0] == given.slip
            found.setdefault(one, {})[name] = given.sha256 if is_part else ""
    return dict(list(found.items())[-_KEPT_SLIPS:])


def _earlier(before: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    kept = before.get("earlier")
    return {
        slip: dict(names) for slip, names in (kept.items() if isinstance(kept, dict) else ()) if isinstance(names, dict)
    }


def _older(before: Mapping[str, Any], name: str, sha256: str | None) -> list[str]:
    """Name the slips of before the last compaction that gave another content of an artifact."""
    return [slip for slip, names in _earlier(before).items() if name in names and names[name] != sha256]


def _is_given(entry: object) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("sha256", "form", "slip"))


def _remembered(space: Workspace, session_id: str, made: Slip, before: dict[str, Any]) -> dict[str, Any]:
    kept = before["artifacts"] if before.get("run_id") == made.run_id else {}
    gone = {
        entry.id
        for entry in made.entries
        if (entry.decision == ERROR and entry.reason == "missing") or entry.reason in OVER
    }
    declared = {entry.id for entry in made.entries}
    kept = {name: entry for name, entry in kept.items() if name in declared - gone}
    gave = {
        entry.id: {"sha256": entry.sha256, "form": entry.form, "slip": made.id, **_more(space, made.id, entry, kept)}
        for entry in made.loaded
        if entry.form in FORMS and entry.sha256
    }
    for entry in made.entries:  # the host reads its memory as the slip is given, so it holds as long as that stands
        if entry.reason == "memory" and entry.sha256:
            whole = entry._replace(form="full")
            gave[entry.id] = {"sha256": entry.sha256, "form": "full", "slip": made.id}
            gave[entry.id] |= _more(space, made.id, whole, kept)
    artifacts = {**kept, **gave}
    after = {**before, "run_id": made.run_id, "artifacts": artifacts, "slip": made.id}
    space.local.note_primed(session_id, after)
    space.local.note_watched(session_id, artifacts, age=_LONGEST_READING)
    return after


def _more(space: Workspace, slip_id: str, entry: Entry, before: Mapping[str, Any]) -> dict[str, Any]:
    file = {"file": entry.file} if entry.file and entry.form in WATCHED else {}
    return {**_whole(space, slip_id, entry, before), **file}


def _whole(space: Workspace, slip_id: str, entry: Entry, before: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the text that was given whole, so that its next change can be told as a diff; name the parts it needs."""
    if entry.form not in WHOLE:
        parts = slip.marks(slip_id, entry.parts)
        return {"needs": parts} if parts else {}
    try:
        text = space.local.keep_given(entry.given)
    except (OSError, LoomError):  # then it is given whole again
        text = ""
    known = before.get(entry.id)
    needs: list[Any] = slip.marks(slip_id, entry.parts)
    if entry.form == "diff" and isinstance(known, dict):
        earlier = known.get("needs")
        needs += [*(earlier if isinstance(earlier, list) else ()), known.get("slip")]
    return {"text": text, **({"needs": needs} if needs else {})}


def forget(space: Workspace) -> None:
    """A compaction or clear took the conversation's content away: a new epoch, nothing given yet (D15)."""
    if space.caller.session_id is not None:
        _forget(space, space.caller.session_id)


def forget_run(space: Workspace, run_id: str) -> None:
    """A run was taken back: what sessions of this machine were given of it counts as not given (D15)."""
    for session_id in space.local.primed_of(run_id):
        _forget(space, session_id)


def _forget(space: Workspace, session_id: str) -> None:
    before = space.local.primed(session_id)
    gone = {**before, "epoch": before["epoch"] + 1, "artifacts": {}, "slip": ""}
    if before["artifacts"]:
        gone["earlier"] = _with_earlier(before)
    for key in ("compacting", "untold", "preamble"):
        gone.pop(key, None)
    space.local.note_primed(session_id, gone)


def _size(space: Workspace, text: str) -> dict[str, int]:
    """Give what the event tells of a text's size; to estimate tokens takes a fifth of the time that a hook has."""
    if not text:
        return {}
    if space.caller.on_hook_path:
        return {"characters": len(text)}
    from loomctl.reduction import tokens

    return tokens.size(text)


def recorded(space: Workspace, state: State, made: Slip) -> tuple[State, list[Event]]:
    """Record a priming in the run's state and events; of one that gave nothing there is the event alone (D15).

    Once the run is over there is not even that: what was owed at its last step is owed no more.
    """
    at = clock.now()
    if "pending_triggers" in state and find.is_bound(space, made.run_id):  # whatever was owed is told now
        state = {key: value for key, value in state.items() if key != "pending_triggers"}
    loaded = [
        {
            "artifact_id": entry.id,
            "loaded_at": at,
            "load_trigger": made.event,
            "form": entry.form,
            "sha256": entry.sha256,
        }
        for entry in made.loaded
        if entry.form in FORMS
    ]
    history = {"told_at": at, "load_trigger": made.event, **made.history} if made.history else None
    if not made.id and not made.entries:  # nothing was given, and nothing could have been
        return state, []
    if state["status"] in TERMINAL and not made.loaded and not made.failed and history is None:
        return state, []
    properties = {
        "slip_id": made.id or None,
        "event": made.event,
        "loaded": {entry["artifact_id"]: entry["form"] for entry in loaded},
        "fresh": [entry.id for entry in made.fresh],
        "not_loaded": {e.id: e.reason for e in made.entries if e.decision in (DEFER, ERROR)},
        "budget": {"limit": made.limit, "used": made.used},
        **_size(space, made.text),
        "warnings": [code for code, _ in made.warnings],
        **({"tool_history": made.history} if made.history else {}),
    }
    session_id = space.caller.session_id
    if loaded or history is not None:
        state = sessions.told_history(sessions.primed(state, session_id, loaded, at=at), history)
    return state, [Event("context.primed", properties, session_id)]
