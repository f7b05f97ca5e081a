"""A Stop: what kind of turn it ends, and how many blocks the host still honours (D27, D28).

It ends the step with the final message, asks for a better one, hands the next step on, or does nothing.
"""

from __future__ import annotations

from loomctl.flow import stop, turn_ends
from loomctl.hosts import asking
from loomctl.hosts.asking import Answer, for_people, written
from loomctl.hosts.protocol import events
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple
from loomctl.runs import leases
from loomctl.runs.machine import launcher_files
from loomctl.runs.model import visits
from loomctl.runs.store import write_rules
from loomctl.runs.tools import tool_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.hosts.asking import Host
    from loomctl.runs.project import Conversation, Workspace
    from loomctl.runs.store.store import Run

_REMEMBERED = 20  # turns that Loom drove


class Memory(NamedTuple):
    """What is kept of a session's turns on this machine.

    driven: the prompt ids of turns that Loom drives; prompt_id: of the last that was blocked; blocks: how often in a
    row since the last tool call; mark: the tool calls at that time; asked: whether the last block asked for a result;
    waits: whether that turn ended with a question to the user, whose next prompt is the answer; stage, nudges: how
    often the assistant was asked or sent on at a stage in that turn; total: how often in that turn it was blocked;
    rests: the key of the last end or pause that the user was told.
    """

    driven: tuple[str, ...] = ()
    prompt_id: str = ""
    blocks: int = 0
    mark: str = ""
    asked: bool = False
    waits: bool = False
    stage: str = ""
    nudges: int = 0
    total: int = 0
    rests: str = ""


def answer(space: Workspace, event: dict[str, Any]) -> str | None:
    """Answer a Stop event."""
    session_id = space.caller.session_id
    binding = space.local.binding(session_id)
    if binding is None and (damaged := space.local.damaged_binding(session_id)):
        line = f"Loom cannot read which run this session works on: {damaged}; run loomctl resume, then end the step"
        return written(Answer("Stop", line=line))
    if binding is None or not space.store.has(binding["run_id"]):
        missing = _missing(space, patient=True)  # of a bound session the turn's end was waited for
        return written(Answer("Stop", line=missing)) if missing else None
    recorded = events.digest(space, rest_follows=True)
    space.local.refresh(binding, pid=space.caller.pid, transcript_path=events.text(event, "transcript_path") or None)
    run = space.store.read(binding["run_id"])
    stopped = end_turn(space, run, binding, event)
    driven = write_rules.started_for()[0] == run.run_id
    if driven and (was := _stage(run.state)) and _stage(space.store.read_state(run.run_id)) != was:
        from loomctl.handoff import work  # nobody drives most runs

        work.save_stage(space, binding["run_id"])
    missing = _missing(space, patient=asking.dialect(asking.host()) is not None)
    leases.refresh(space, binding["run_id"])  # last, for what ended a step is a sign by itself
    lines = [for_people(line) for line in (events.survived(space), stopped.line, missing, recorded) if line]
    return written(Answer("Stop", line="\n".join(lines), goes_on=stopped.block or "")) or None


def _stage(state: Mapping[str, Any]) -> str:
    """Name the stage that is open; empty where none is."""
    return str((visits.open_visit(state) or {}).get("stage") or "")


def _missing(space: Workspace, *, patient: bool = False) -> str:
    """Tell what the conversation has not of what its start gave, once (D81). patient: the host may still write it."""
    if space.local.opened(space.caller.session_id) is None:
        return ""
    from loomctl.priming import receipts  # most turns are not the first

    return events.attempt([], lambda: receipts.settle(space, patience=receipts.PATIENCE if patient else 0)) or ""


def end_turn(space: Workspace, run: Run, binding: Mapping[str, Any], event: dict[str, Any]) -> stop.Stopped:
    """Act on a Stop event of a bound session; one whose run another drives ends nothing, and blocks nothing."""
    driver = space.store.held(run.run_id, run.state)
    if driver is not None:
        return stop.Stopped(line=leases.told_once(space, binding, driver))
    try:
        return _answer(space, run, binding, event)
    except LoomError as error:
        driver = space.store.held(run.run_id, space.store.read_state(run.run_id))
        if error.code != leases.HELD_BY_ANOTHER or driver is None:
            raise
        return stop.Stopped(line=leases.told_once(space, binding, driver))


def _answer(space: Workspace, run: Run, binding: Mapping[str, Any], event: dict[str, Any]) -> stop.Stopped:
    conversation, host = space.caller.conversation, asking.host()
    prompt_id, message = events.text(event, "prompt_id"), events.text(event, "last_assistant_message")
    if not prompt_id:
        prompt_id, said = conversation.last_turn()
        message = message or said
    memory = _memory(space)
    mark = _mark(space, run)
    going = memory.prompt_id == prompt_id and memory.mark == mark
    blocks = memory.blocks if going else 0
    total = memory.total if memory.prompt_id == prompt_id else 0
    conversation.await_turn(prompt_id, message)
    message = conversation.last_message(message) if message.strip() else message
    planning = event.get("permission_mode") == "plan" or conversation.is_planning()
    blocks_left = cap(host) - (total if host.counts_on else blocks)
    words, line = events.user_said(space, "stop") if not planning and blocks_left > 0 else ("", "")
    if words:
        driven = _with(memory.driven, prompt_id) if _is_driven(conversation, prompt_id, memory) else memory.driven
        nudged = (memory.stage, memory.nudges) if memory.prompt_id == prompt_id else ("", 0)
        _keep(
            space,
            Memory(
                driven, prompt_id, blocks + 1, mark, going and memory.asked, False, *nudged, total + 1, memory.rests
            ),
        )
        return stop.Stopped(words, line)
    told = binding.get("stage")
    turn = stop.Turn(
        told=told if isinstance(told, str) else None,
        driven=_is_driven(conversation, prompt_id, memory),
        planning=planning,
        busy=bool(event.get("background_tasks")) or conversation.is_busy(),
        asked=going and memory.asked,
        nudged=(memory.stage, memory.nudges) if memory.prompt_id == prompt_id else ("", 0),
        idle=blocks,
        blocks_left=blocks_left,
    )
    stopped = stop.stopped(space, run, turn, message)
    if stopped.rests:
        is_told = stopped.rests == memory.rests
        if not is_told or memory.waits:
            _keep(space, memory._replace(waits=False, rests=stopped.rests))
        return stop.Stopped() if is_told else stopped
    driven = _with(memory.driven, prompt_id)
    if stopped.block:
        nudges = turn.nudged[1] if turn.nudged[0] == stopped.stage else 0
        nudged = (stopped.stage, nudges + 1) if stopped.stage else turn.nudged
        _keep(space, Memory(driven, prompt_id, blocks + 1, mark, stopped.asked, False, *nudged, total + 1))
    elif stopped.waits or memory.waits:
        driven = driven if stopped.waits else memory.driven
        _keep(space, Memory(driven, prompt_id, 0, "", False, stopped.waits, *turn.nudged, total))
    return stopped


def note_notice(space: Workspace, event: dict[str, Any]) -> None:
    """Note of a turn that begins with a notice of the host's whether Loom drives it.

    Its Stop may come before the host has written the notice into the transcript.
    """
    prompt_id, conversation = events.text(event, "prompt_id"), space.caller.conversation
    memory = _memory(space)
    if not prompt_id or prompt_id in memory.driven:
        return
    if conversation.began_with_loom(prompt_id, memory.driven, events.text(event, "prompt")):
        _keep(space, memory._replace(driven=_with(memory.driven, prompt_id)))


def close_at_a_start(space: Workspace, run: Run) -> str:
    """Close a closing step before a session's first priming, where it is its own or nobody's; the line for its user."""
    return stop.closed_without_message(space, run) if turn_ends.is_closing_here(space, run.state) else ""


def cap(host: Host) -> int:
    """Give how many consecutive blocks a host honours."""
    own = getattr(asking.dialect(host) or asking, "stops", None)
    return int(own()) if own is not None else asking.STOPS


def _with(driven: tuple[str, ...], prompt_id: str) -> tuple[str, ...]:
    return (*(one for one in driven if one != prompt_id), prompt_id)[-_REMEMBERED:]


def _is_driven(conversation: Conversation, prompt_id: str, memory: Memory) -> bool:
    """Tell whether Loom drives a turn.

    It blocked it; it waited for the user, and this is the answer; or a Loom command, or a subagent of a driven turn,
    began it.
    """
    if not prompt_id:
        return False
    if prompt_id in memory.driven or memory.waits:
        return True
    return conversation.began_with_loom(prompt_id, memory.driven)


def _mark(space: Workspace, run: Run) -> str:
    """Give what changes with every tool call of the session: the host counts its blocks anew after one.

    It is the newest call's name in the spool, which its step in the log has too: digesting changes nothing.
    """
    begins = f"{space.caller.session_id}-"
    own = [one.name for one in launcher_files.spooled(space.store.local) if one.name.startswith(begins)]
    if own:
        return own[-1]
    newest = tool_log.tail(run.folder, 1)
    return str(newest[0].more.get("spool") or newest[0].id) if newest else ""


def _memory(space: Workspace) -> Memory:
    kept = space.local.turns(space.caller.session_id)
    driven = kept.get("driven")
    return Memory(
        tuple(one for one in driven if isinstance(one, str)) if isinstance(driven, list) else (),
        events.text(kept, "prompt_id"),
        _count(kept, "blocks"),
        events.text(kept, "mark"),
        kept.get("asked") is True,
        kept.get("waits") is True,
        events.text(kept, "stage"),
        _count(kept, "nudges"),
        _count(kept, "total"),
        events.text(kept, "rests"),
    )


def _keep(space: Workspace, memory: Memory) -> None:
    if space.caller.session_id is not None:
        space.local.note_turns(space.caller.session_id, {**memory._asdict(), "driven": list(memory.driven)})


def _count(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    return value if type(value) is int and value > 0 else 0
