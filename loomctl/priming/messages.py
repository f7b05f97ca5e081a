"""What the user tells the assistant that works on a run: given once to each conversation that works on the step (D76).

A message is given with the next event that can carry it, under a mark of its own. It is noted as given before that goes
out, so that of two hooks one gives it; and it is looked for in the conversation afterwards, so that what a kill or a
timeout took is given again. Where nobody can see the conversation, it counts as arrived while the assistant's process
lives, and is given again after that process: rather twice than never.
"""

from __future__ import annotations

from loomctl.kit import clock, digests, processes
from loomctl.kit.errors import LoomError
from loomctl.kit.processes import HOOK_PATIENCE
from loomctl.kit.records import NamedTuple
from loomctl.kit.text.fences import counted, fenced, one_line, utf16_units, visible
from loomctl.priming import slip
from loomctl.runs.machine import tells
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.machine.tells import GIVEN, KEPT, WAITS
from loomctl.runs.model import visits
from loomctl.runs.model.state import TERMINAL as OVER
from loomctl.runs.store.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from loomctl.runs.machine.tells import Tell
    from loomctl.runs.project import Workspace

STOP, PROMPT, RESULT, START, COMMAND, COMPACTION = "stop", "prompt", "tool result", "start", "command", "compaction"
"""With what a message is given, or by what it is looked for."""
_SURE = (STOP, PROMPT)  # by then a host has written down what it gave
_PATIENCE = 1.0  # seconds for what it may write later
_SEAL = 2 + len(slip.MARK) + 16  # characters
_SHOWN = 60


class Words(NamedTuple):
    """text: for the assistant; line: for the user. Both are empty where nothing is told."""

    text: str = ""
    line: str = ""


NOTHING = Words()


def to_hook(space: Workspace, by: str, room: int, *, look: bool = True) -> Words:
    """Give the bound session what its user said, where it drives its run. by: the event; room: UTF-16 units.

    look: whether to look for what was given before; where the launcher saw that something waits, it need not be.
    """
    binding = space.local.binding(space.caller.session_id)
    run_id = str(binding["run_id"]) if binding is not None else ""
    if not run_id or not tells.are_there(space.store.local, run_id) or not space.store.has(run_id):
        return NOTHING
    return give(space, run_id, by, room, look=look)


def look(space: Workspace) -> None:
    """Look what arrived before a compaction takes it from what can be seen."""
    binding = space.local.binding(space.caller.session_id)
    run_id = str(binding["run_id"]) if binding is not None else ""
    if run_id and tells.are_there(space.store.local, run_id) and space.store.has(run_id):
        state = space.store.read_state(run_id)
        if space.store.held(run_id, state) is None:
            review(space, run_id, state, COMPACTION)


def give(space: Workspace, run_id: str, by: str, room: int, *, look: bool = True) -> Words:
    """Give who drives a run what its user said; of what does not fit, the next event gives more."""
    if not tells.are_there(space.store.local, run_id):
        return NOTHING
    state = space.store.read_state(run_id)
    if space.store.held(run_id, state) is not None or (by == STOP and state["status"] != "in_progress"):
        return NOTHING
    if state["status"] in OVER:
        return _too_late(space, run_id)
    if look:
        review(space, run_id, state, by)
    stage = _stage(state)
    with tells.lock(space.store.local, run_id, HOOK_PATIENCE) as held:
        chosen, text = _chosen([one for one in tells.read(space.store.local, run_id) if one.ending == WAITS], room)
        if not chosen:
            tells.tidy(space.store.local, run_id, held)
            return NOTHING
        mark = _mark_of(space, chosen)
        given = [_hand(space, run_id, one, mark, stage) for one in chosen]
    _log(space, run_id, given, by)
    return Words(slip.seal(text, mark), _line(chosen))


def _too_late(space: Workspace, run_id: str) -> Words:
    unread = [one for one in tells.read(space.store.local, run_id) if one.ending == WAITS and not one.by]
    tells.forget(space.store.local, run_id)
    said = "; ".join(one_line(one.text, _SHOWN) for one in unread)
    return Words("", f"Loom: the run ended before the assistant could be told: {said}" if unread else "")


def review(space: Workspace, run_id: str, state: Mapping[str, Any], by: str) -> None:
    """Look what of the messages that were given arrived; what did not, or not in this conversation, waits again.

    by: the event, or the command, at which it is looked.
    """
    local = space.store.local
    known = [one for one in tells.read(local, run_id) if one.ending != WAITS]
    if not known:
        return
    marks = [mark for one in known for mark in one.marks]
    seen = _seen(space, known, patience=_PATIENCE if by in _SURE else 0)
    stage = _stage(state)
    with tells.lock(local, run_id, HOOK_PATIENCE):
        for one in tells.read(local, run_id):
            if one.ending != WAITS and set(one.marks) <= set(marks):  # else another has just given it
                _settle(space, run_id, one, seen, by, is_over=one.stage != stage)


def _settle(space: Workspace, run_id: str, tell: Tell, seen: Collection[str] | None, by: str, *, is_over: bool) -> None:
    local, last = space.store.local, tell.handed[-1] if tell.handed else {}
    arrived = _arrived(space, tell, last, seen, by)
    if arrived is None:
        return
    if arrived and is_over:
        tells.drop(local, run_id, tell)
    elif arrived:
        own = {"session_id": space.caller.session_id, "process": _process(space)}
        is_own = _is_own(space, tell)
        if tell.ending != KEPT or not is_own:
            handed = tell.handed if is_own else [*tell.handed, {**last, **own}]
            tells.put(local, run_id, tell._replace(ending=KEPT, handed=handed))
    elif tell.ending == KEPT and is_over:
        tells.drop(local, run_id, tell)
    else:
        tells.put(local, run_id, tell._replace(ending=WAITS))


def _arrived(
    space: Workspace, tell: Tell, last: Mapping[str, Any], seen: Collection[str] | None, by: str
) -> bool | None:
    """Tell whether this conversation has a message; None where that cannot be known yet."""
    if seen is not None and any(mark in seen for mark in tell.marks):
        return True
    if space.caller.host == TERMINAL or not _is_own(space, tell):
        return False  # who reads a command's output is shown it with the step each time
    if tell.ending == KEPT:  # a compaction took it from what can be seen
        return True
    if not _is_same(last.get("process"), _process(space)):
        return False
    if seen is None:
        return True
    return False if by in _SURE else None


def _is_same(known: object, now: Mapping[str, Any]) -> bool:
    """Tell whether the process lives on to which a message was given; one that is not known does."""
    if not isinstance(known, dict) or not known.get("pid") or not now.get("pid"):
        return True
    return processes.same(known, now)


def _seen(space: Workspace, known: Sequence[Tell], *, patience: float) -> Collection[str] | None:
    """Give the marks that stand in the conversation; None where nobody can see it.

    patience: seconds for which those are waited for that it was given last. One that it has is not looked for again.
    """
    open_ones = [one for one in known if one.ending != KEPT or not _is_own(space, one)]
    due = [one.marks[-1] for one in open_ones if one.marks and _is_own(space, one)]
    others = [mark for one in open_ones for mark in one.marks]
    if not others:
        return ()
    sent = space.caller.conversation.sent(due, others, patience=patience)
    return sent.slips if sent is not None else space.caller.conversation.holds(others) or None


def _is_own(space: Workspace, tell: Tell) -> bool:
    """Tell whether the caller's session was given a message last."""
    return bool(tell.handed) and tell.handed[-1].get("session_id") == space.caller.session_id


def _process(space: Workspace) -> dict[str, Any]:
    return processes.identity(space.caller.pid)


def _stage(state: Mapping[str, Any]) -> str:
    entry = visits.open_visit(state)
    return str(entry.get("stage") or "") if entry else ""


def _chosen(waiting: Sequence[Tell], room: int) -> tuple[list[Tell], str]:
    """Choose the first messages that fit, each with what comes before it; and give their text."""
    chosen: list[Tell] = []
    made = ""
    for one in waiting:
        text = _text([*chosen, one])
        if utf16_units(text) + _SEAL > room:
            break
        chosen, made = [*chosen, one], text
    return chosen, made


def _text(chosen: Sequence[Tell]) -> str:
    blocks: list[str] = []
    before = ""
    for one in chosen:
        heading = _heading(one)
        blocks += [heading] if heading != before else []
        blocks.append(fenced(slip.without_marks(visible(one.text))))
        before = heading
    return "\n\n".join(blocks)


def _heading(tell: Tell) -> str:
    if tell.by:
        return "Loom noticed, for this step:"
    if tell.handed:
        return "The user said, for this step (an earlier conversation may have acted on it):"
    return "The user says, for this step:"


def _mark_of(space: Workspace, chosen: Sequence[Tell]) -> str:
    parts = [str(space.caller.session_id), *(f"{one.number} {one.at} {len(one.handed)} {one.text}" for one in chosen)]
    return slip.short_id(digests.of_text("\0".join(parts)))


def _hand(space: Workspace, run_id: str, tell: Tell, mark: str, stage: str) -> Tell:
    handed = {"mark": mark, "session_id": space.caller.session_id, "process": _process(space), "at": clock.now()}
    ending = KEPT if space.caller.host == TERMINAL else GIVEN  # nobody can look whether a person read it
    now = tell._replace(ending=ending, stage=stage, handed=[*tell.handed, handed])
    return tells.put(space.store.local, run_id, now)


def _log(space: Workspace, run_id: str, given: Sequence[Tell], by: str) -> None:
    """Tell the run's log. What fails is no trouble of whoever reads the message."""
    from loomctl.kit.text.secrets import mask

    def happened(one: Tell) -> Event:
        told = {"text": mask(visible(one.text))[0], "said_at": one.at, "with": by, "again": len(one.handed) > 1}
        return Event("drive.told", {**told, "by": one.by or "user"}, space.caller.session_id)

    try:
        space.store.tell(run_id, lambda _: [happened(one) for one in given], durable=False, patience=HOOK_PATIENCE)
    except (OSError, LoomError):
        pass


def _line(chosen: Sequence[Tell]) -> str:
    said = one_line(chosen[0].text, _SHOWN) if len(chosen) == 1 else counted(len(chosen), "message")
    return f"Loom: told the assistant: {said}"
