"""What a conversation was given and still holds: kept on this machine and in the run, and forgotten in time (D15)."""

from __future__ import annotations

from loomctl.kit import clock
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.priming import slip
from loomctl.priming.slip import DEFER, ERROR, LOAD, OVER, WHOLE
from loomctl.runs import find, leases
from loomctl.runs.model import sessions
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.priming.slip import Entry, Slip
    from loomctl.runs.model.state import State
    from loomctl.runs.project import Workspace


FORMS = (*WHOLE, "head", "pointer")
WATCHED = (*WHOLE, "head")
"""The forms after which a session is told of an edit (D80)."""
_START = "start"
_KEPT_SLIPS = 20  # of before the last compaction, that tell an older content where they still stand
_LONGEST_READING = 3.0  # seconds from the reading of the first file until it is noted that all were given


class Given(NamedTuple):
    """What a session was given of one artifact: sha256 of its content, the form, the id of the slip that carried it.

    text: the SHA-256 of the text as it was given, by which a diff finds it; needs: the slips that a diff builds on.
    """

    sha256: str
    form: str
    slip: str
    text: str = ""
    needs: Sequence[str] = ()

    @property
    def slips(self) -> list[str]:
        """All slips that must stand in a conversation for it to hold the artifact."""
        return [self.slip, *self.needs]


class Held(NamedTuple):
    """What a conversation still holds: artifacts by id, and whether any slip of the run stands in it at all."""

    artifacts: Mapping[str, Given]
    any_slip: bool


NOTHING = Held({}, False)


def held(space: Workspace, run_id: str) -> Held:
    """Give what the caller's conversation still holds of a run, as far as it can be seen (D15)."""
    noted = space.local.primed(space.caller.session_id)
    if noted.get("run_id") != run_id:
        return NOTHING
    known = _given(noted)
    slips = {needed for given in known.values() for needed in given.slips}
    if isinstance(noted.get("slip"), str) and noted["slip"]:
        slips.add(noted["slip"])
    if not slips:
        return NOTHING
    live = space.caller.conversation.holds(slips)
    if space.caller.conversation.keeps_starts:
        live |= slips.intersection([str(noted.get(_START))])
    return Held({name: given for name, given in known.items() if live.issuperset(given.slips)}, bool(live))


def keep_start(space: Workspace, slip_id: str) -> None:
    """Note what slip the last start gave, for a host that keeps it out of sight until the next; "" for none."""
    session_id = space.caller.session_id
    before = space.local.primed(session_id)
    if session_id is not None and before.get(_START, "") != slip_id:
        space.local.note_primed(session_id, {**before, _START: slip_id})


def _given(noted: Mapping[str, Any]) -> dict[str, Given]:
    return {name: given for name, entry in noted["artifacts"].items() if (given := _read(entry)) is not None}


def _read(entry: object) -> Given | None:
    if not isinstance(entry, dict):
        return None
    sha256, form, slip_id, text = (entry.get(key) for key in ("sha256", "form", "slip", "text"))
    if not (isinstance(sha256, str) and isinstance(form, str) and isinstance(slip_id, str)):
        return None
    needs = entry.get("needs")
    slips = [one for one in needs if isinstance(one, str)] if isinstance(needs, list) else []
    return Given(sha256, form, slip_id, text if isinstance(text, str) else "", slips)


def record(space: Workspace, run_id: str, made: Slip, *, may_write: bool = True, begun: str = "") -> Slip:
    """Remember what a slip gave, here and (if the caller may write it) in the run.

    begun: as for `remember`. Where that cannot be, the slip says so and is given all the same.
    """

    def change(state: State) -> tuple[State, list[Event]]:
        after, happened = with_priming(space, state, made)
        return (after, happened) if made.id or after != state else (state, [])  # nothing is written for nothing's sake

    try:
        remember(space, made, begun)
        if may_write:
            leases.watching(space).store.update(run_id, change, durable=False)
    except (LoomError, OSError) as error:
        warning = ("NOT_RECORDED", f"Loom could not record what it gave: {error}")
        return made._replace(warnings=[*made.warnings, warning])
    return made


def remember(space: Workspace, made: Slip, begun: str = "") -> None:
    """Note in this machine's local files what the caller's session was given (D15).

    begun: what began with it, a key of `receipts.BEGUN`; then it is looked for later whether that arrived (D81).
    """
    session_id = space.caller.session_id
    if session_id is None:
        return
    before = space.local.primed(session_id)
    if before.get("run_id") != made.run_id:
        before = {**before, "artifacts": {}}
    after = before
    if made.id:
        after = _with_slip(space, made, before)
        space.local.note_primed(session_id, after)
        space.local.note_watched(session_id, after["artifacts"], age=_LONGEST_READING)
    due = [entry for entry in made.entries if entry.decision == LOAD or entry.reason in ("fresh", "memory")]
    if begun and due:
        given, earlier = _given(after), _given(before)
        artifacts = {}
        for entry in due:
            now, was = given.get(entry.id), earlier.get(entry.id)
            older = _older(before, entry.id, entry.sha256)
            older += was.slips if was is not None and was.sha256 != entry.sha256 else []
            artifacts[entry.id] = {
                "sha256": entry.sha256,
                "whole": now is not None and now.form in WHOLE and entry.reason != "memory",
                "in_memory": entry.reason == "memory",
                "slips": now.slips if now is not None else [made.id],
                "named": now is not None or entry.form == "pointer",
                "older": sorted(set(older)),
                "file": entry.file,
            }
        opened = {"run_id": made.run_id, "event": begun, "at": clock.now(), "artifacts": artifacts}
        space.local.note_opened(session_id, opened)


def _with_slip(space: Workspace, made: Slip, before: Mapping[str, Any]) -> dict[str, Any]:
    """Give what is noted of a session with what a slip gave it; what is gone or applies no longer is left out."""
    known = before["artifacts"]
    artifacts = {
        entry.id: known[entry.id]
        for entry in made.entries
        if entry.id in known
        and entry.reason not in OVER
        and not (entry.decision == ERROR and entry.reason == "missing")
    }
    for entry in made.entries:
        in_memory = entry.reason == "memory"  # the host reads it as the slip is given, so it holds as long as that
        form = "full" if in_memory else entry.form
        if not entry.sha256 or form not in FORMS or not (in_memory or entry.decision == LOAD):
            continue
        noted: dict[str, Any] = {"sha256": entry.sha256, "form": form, "slip": made.id}
        needs: list[Any] = slip.marks(made.id, entry.parts)
        if form in WATCHED:
            noted["text"] = _keep_text(space, entry)
            was = artifacts.get(entry.id)
            if form == "diff" and isinstance(was, dict):
                needs += [*(was["needs"] if isinstance(was.get("needs"), list) else ()), was.get("slip")]
        noted |= {"needs": needs} if needs else {}
        noted |= {"file": entry.file} if entry.file and form in WATCHED else {}
        artifacts[entry.id] = noted
    return {**before, "run_id": made.run_id, "artifacts": artifacts, "slip": made.id}


def _keep_text(space: Workspace, entry: Entry) -> str:
    try:
        return space.local.keep_given(entry.given)
    except (OSError, LoomError):  # then it is given whole again
        return ""


def _earlier(before: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Give the slips of before the last compaction, each with the SHA-256 of what it gave, by the artifacts' ids."""
    kept = before.get("earlier")
    every = kept.items() if isinstance(kept, dict) else ()
    return {slip_id: dict(names) for slip_id, names in every if isinstance(names, dict)}


def _older(before: Mapping[str, Any], name: str, sha256: str | None) -> list[str]:
    """Name the slips of before the last compaction that gave another content of an artifact."""
    return [slip_id for slip_id, names in _earlier(before).items() if name in names and names[name] != sha256]


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
        earlier = _earlier(before)
        for name, given in _given(before).items():
            for one in given.slips:  # what a diff builds on is of an older content
                is_part = one.partition("-")[0] == given.slip
                earlier.setdefault(one, {})[name] = given.sha256 if is_part else ""
        gone["earlier"] = dict(list(earlier.items())[-_KEPT_SLIPS:])
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


def with_priming(space: Workspace, state: State, made: Slip) -> tuple[State, list[Event]]:
    """Record a priming in the run's state and events; of one that gave nothing there is the event alone (D15).

    Once the run is over there is not even that: what was owed at its last step is owed no more.
    """
    at = clock.now()
    if "pending_triggers" in state and find.is_bound(space, made.run_id):  # whatever was owed is told now
        state = {key: value for key, value in state.items() if key != "pending_triggers"}
    if not made.id and not made.entries:  # nothing was given, and nothing could have been
        return state, []
    if state["status"] in TERMINAL and not made.loaded and not made.failed and not made.history:
        return state, []
    gave = [entry for entry in made.loaded if entry.form in FORMS]
    history = {"told_at": at, "load_trigger": made.event, **made.history} if made.history else None
    properties = {
        "slip_id": made.id or None,
        "event": made.event,
        "loaded": {entry.id: entry.form for entry in gave},
        "fresh": [entry.id for entry in made.fresh],
        "not_loaded": {e.id: e.reason for e in made.entries if e.decision in (DEFER, ERROR)},
        "budget": {"limit": made.limit, "used": made.used},
        **_size(space, made.text),
        "warnings": [code for code, _ in made.warnings],
        **({"tool_history": made.history} if made.history else {}),
    }
    session_id = space.caller.session_id
    if gave or history is not None:
        loaded = [
            {"artifact_id": e.id, "loaded_at": at, "load_trigger": made.event, "form": e.form, "sha256": e.sha256}
            for e in gave
        ]
        state = sessions.told_history(sessions.primed(state, session_id, loaded, at=at), history)
    return state, [Event("context.primed", properties, session_id)]
