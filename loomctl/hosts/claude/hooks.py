"""Claude Code's hook events, answered: JSON on standard input, JSON (or plain text) on standard output, always exit 0.

This is the hook path: the standard library alone (design §3), and each event imports what it needs inside its own
function, for most end early. A hook fails open (D55): what goes wrong is told in `systemMessage` and in the run's
events, and blocks nothing.
"""

from __future__ import annotations

import os
import sys

from loomctl.hosts.claude.events import (
    context,
    digest_rest,
    digested,
    for_people,
    kept,
    read_event,
    text,
    words,
    workspace_of,
)
from loomctl.hosts.claude.transcript import NOTICE, Transcript
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.json import quick_json
from loomctl.kit.lock import HOOK_PATIENCE
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from loomctl.priming.primed import Slip
    from loomctl.runs.caller import Workspace
    from loomctl.runs.model.state import State
    from loomctl.runs.store.events import Event as Happening
    from loomctl.runs.store.store import Run
    from loomctl.workflows.model.triggers import Event

KEY = "must_survive"  # as workflows.model.survival has it; not imported, for most runs declare nothing
# What a subagent's events are answered for: its conversation is another, though it bears the session's id.
_OF_SUBAGENTS = ("pre-tool-use",)
_LONGEST_WORD = 80  # of the host's own words, as `reason`
# Events at which a run may come to stand elsewhere, or a session to another one.
_CHANGING = ("session-start", "stop")
# A restore that cannot be seen is tried again this often for one compaction, then left to the user.
RESTORES = 2


class Given(NamedTuple):
    """What an event gives: text for the model, a line for people (each may be empty), and the slip that it came of."""

    text: str
    line: str
    slip: Slip | None = None


def main(arguments: list[str]) -> int:
    """Answer one hook event. arguments: the event's word, `session-start`, `pre-tool-use`, …; always gives 0.

    Behind `session-start` the launcher may say where parts are left for the other entries, and how many entries are.
    Events after a tool are the launcher's, and `live`'s where output is large.
    """
    name = arguments[0] if arguments else ""
    answer = _ANSWERS.get(name)
    if answer is None or os.environ.get("LOOM_DISABLED") == "1":
        return 0
    space: Workspace | None = None
    try:
        base, parts, bell = _entries(arguments[1:]) if arguments[1:] else ("", 1, -1)
        event = read_event(ends_do=name == "session-end")  # which has a second, and says little
        if event.get("agent_id") and name not in _OF_SUBAGENTS:
            return 0
        space = workspace_of(event, parts=parts)
        output = answer(space, event) if space is not None else None
        if output is not None and not isinstance(output, str):
            output = _left(output, base, parts, bell)
        if space is not None and name in _CHANGING:
            _keep_memory(space)
    except Exception as error:  # noqa: BLE001 - a hook fails open, whatever happened (D55)
        output = _failure(space, name, error)
    if output:
        try:
            files.write_all(sys.stdout.fileno(), output.encode("utf-8", "backslashreplace"))  # whatever the locale is
        except OSError:  # the host went away
            pass
    if space is not None:
        digest_rest(space)  # a Stop's, which alone has the time that a large event takes
    return 0


def _entries(arguments: list[str]) -> tuple[str, int, int]:
    """Read what the launcher says of a session start's entries: where parts are left for them, how many there are.

    The third is the bell at which the others wait from now on.
    """
    from loomctl.runs.machine import parts

    base, said = (*arguments, "", "")[:2]
    count = int(said) if said.isascii() and said.isdigit() and len(said) == 1 else 1
    fits = os.path.isabs(base) and 1 < count <= parts.MOST
    return (base, count, parts.hold_bell(base)) if fits else ("", 1, -1)


def _left(given: Given, base: str, count: int, bell: int) -> str:
    """Leave the parts behind the first to the entries that print them; give the first."""
    first, *others = given.slip.parts if given.slip is not None and given.slip.parts else [given.text]
    line = given.line
    if base:
        from loomctl.runs.machine import parts

        try:
            parts.leave(base, [context("SessionStart", one, None) for one in others], count, bell)
        except OSError as error:
            line += f"; {len(others)} more parts could not be given: {words(error)}" if others else ""
    return context("SessionStart", first, line)


def _keep_memory(space: Workspace) -> None:
    """Let `.loom/now.md` say what became of its run, where memory is on (D62); the next hook or command mends it."""
    if os.path.lexists(os.path.join(space.store.local, "memory.json")):
        from loomctl.priming import memory

        kept([], lambda: memory.keep(space, patience=HOOK_PATIENCE))


def _session_start(space: Workspace, event: dict[str, Any]) -> Given:
    from loomctl.kit import folders

    if os.path.lexists(folders.status_script()):
        from loomctl.install import status_shim  # most users have none

        kept([], status_shim.renew_own)
    session_id = space.caller.session_id
    if text(event, "source") in ("compact", "clear"):
        from loomctl.runs.machine import owed

        kept([], lambda: owed.drop(space.store.local, session_id))
    if session_id is not None:
        from loomctl.runs.machine import watched

        kept([], lambda: watched.doubt(space.store.local, session_id))
    given = session_start(space, event) or Given("", "")
    unsafe = folders.unsafe_folders()
    if unsafe:
        from loomctl.kit.text.secrets import masked_line

        line = f"Loom: nothing is run from {masked_line(unsafe[0], 200)}, for others may write there (loomctl doctor)"
        given = given._replace(line="; ".join(filter(None, (given.line, line))))
    return given


def session_start(space: Workspace, event: dict[str, Any]) -> Given | None:
    """Record and prime a session of a run; announce what may not be primed; say nothing where nothing is active."""
    from loomctl.hosts.claude import binding as claude_binding
    from loomctl.priming import announcements, memory_of_session
    from loomctl.runs import find, presence
    from loomctl.runs.machine import known
    from loomctl.workflows.model import triggers

    source = text(event, "source")[:_LONGEST_WORD] or "startup"
    unrecorded = digested(space)
    notes = [unrecorded] if unrecorded else []
    path = text(event, "transcript_path") or None
    kept(notes, lambda: claude_binding.inherit(space, source))
    before = space.local.primed(space.caller.session_id)
    compaction = text(before, "compacting")
    notes += [untold] if (untold := text(before, "untold")) else []
    if source in ("compact", "clear"):
        kept(notes, lambda: memory_of_session.forget(space))
    found = find.find(space, over=False)
    if found.run_id is None:
        if found.candidates:
            return _both(announcements.candidates(found.candidates))
        return _both(announcements.unreadable(found.unreadable)) if found.unreadable else None
    if not known.is_known(found.run_id, space.store.folder):
        announced = announcements.unknown_run(space, found.run_id)
        return Given(announced, announced.partition("\n")[0])
    damaged = space.local.damaged_binding(space.caller.session_id)
    if damaged:
        notes.append(f"this session's binding cannot be read: {damaged}; loomctl resume {found.run_id} binds it again")
    if not found.may_write:
        holders = space.local.live_sessions(found.run_id, but=space.caller.session_id, conversing=True)
        if holders:
            run = space.store.read(found.run_id)
            line = announcements.held_elsewhere(found.run_id, holders, space.store.held(found.run_id, run.state))
            return Given(announcements.beside(run, line), line)
        return primed(space, found.run_id, triggers.session_start(source), notes, may_write=False, begun=source)
    environment = presence.surroundings(space) if source != "compact" else {}
    return enter_and_prime(space, found.run_id, source, environment, compaction, path, notes)


def enter_and_prime(
    space: Workspace,
    run_id: str,
    source: str,
    environment: Mapping[str, Any],
    compaction: str,
    transcript_path: str | None,
    notes: list[str],
) -> Given:
    """Record the session and prime it in one update of the state; the text goes out even if it cannot be recorded.

    environment: this machine, as the session's record describes it. compaction: "auto" or "manual", as PreCompact said;
    after an automatic one the turn goes on, and the final message of a closing step is still to come (D27).
    """
    from loomctl.priming import announcements, memory_of_session, prime_run
    from loomctl.runs import leases, presence
    from loomctl.runs.model import visits
    from loomctl.workflows.model import triggers

    space = leases.entering(space)
    run = space.store.read(run_id)
    driver = space.store.held(run_id, run.state)
    if driver is not None:
        kept(notes, lambda: _entered(space, run_id, source, environment, compaction))
        line = announcements.held_elsewhere(run_id, (), driver)
        return Given(announcements.beside(run, line), "; ".join([line, *notes]))
    entry = visits.open_visit(run.state)
    in_a_turn = source == "compact" and compaction == "auto"
    if entry is not None and entry["status"] == "closing" and not in_a_turn:
        # Before the priming, which shows what stands on disk.
        from loomctl.hosts.claude import stop

        closed = kept(notes, lambda: stop.closed_at_a_start(space, run))
        notes.extend([closed.removeprefix("Loom: ")] if closed else [])
        run = space.store.read(run_id)
    made = list["Slip"]()
    notes += announcements.newer_writer(run.state)
    budget, started = prime_run.start_budget(space), triggers.session_start(source)

    def change(state: State) -> tuple[State, list[Happening]]:
        state, came = presence.enter(space, state, source, environment, compaction=compaction or "auto")
        here = run._replace(state=state)
        made[:] = [prime_run.prime(space, here, _with_owed(started, state), budget, may_write=True)]
        if source == "compact":
            state = _with_receipt(space, here, made[0])
        state, primed = memory_of_session.recorded(space, state, made[0])
        return state, [*came, *primed]

    after = run.state
    try:
        after = space.store.update(run_id, change, durable=False, patience=HOOK_PATIENCE)
    except (LoomError, OSError) as error:
        if not made:
            made.append(prime_run.prime(space, run, started, budget, may_write=True))
        notes.append(f"this could not be recorded: {words(error)}")
    kept(notes, lambda: presence.note_stage(space, after, transcript_path=transcript_path, told=bool(made[0].text)))
    return _delivered(space, made[0], notes, source)


def _with_receipt(space: Workspace, run: Run, made: Slip) -> State:
    if KEY not in run.plan and KEY not in run.state:
        return run.state
    from loomctl.priming.survival import survive  # most runs declare nothing

    return survive.begun(space, run, made)


def _entered(space: Workspace, run_id: str, source: str, environment: Mapping[str, Any], compaction: str) -> None:
    """Record the session's start beside who drives the run."""
    from loomctl.runs import presence

    space.store.update(
        run_id,
        lambda state: presence.enter(space, state, source, environment, compaction=compaction or "auto"),
        durable=False,
        patience=HOOK_PATIENCE,
    )


def _with_owed(event: Event, state: State) -> Event:
    if "pending_triggers" not in state:
        return event
    from loomctl.flow import settle  # most runs owe nothing

    return settle.with_owed(event, state)


def primed(space: Workspace, run_id: str, event: Event, notes: list[str], *, may_write: bool, begun: str = "") -> Given:
    """Prime a session whose record need not change; at a prompt, in one part.

    begun: as for `memory_of_session.remember`.
    """
    from loomctl.priming import memory_of_session, prime_run
    from loomctl.runs import leases, presence

    run = space.store.read(run_id)
    may_write = may_write and space.store.held(run_id, run.state) is None
    event = _with_owed(event, run.state) if may_write else event
    made = prime_run.prime(space, run, event, prime_run.start_budget(space), may_write=may_write)
    if may_write:
        try:
            leases.watching(space).store.update(
                run_id,
                lambda state: memory_of_session.recorded(space, state, made),
                durable=False,
                patience=HOOK_PATIENCE,
            )
        except (LoomError, OSError) as error:
            notes.append(f"this could not be recorded: {words(error)}")
    if may_write and made.text:
        kept(notes, lambda: presence.note_stage(space, run.state))
    return _delivered(space, made, notes, begun)


def _delivered(space: Workspace, made: Slip, notes: list[str], begun: str) -> Given:
    """Remember what was given, and say it in one line."""
    from loomctl.kit.text.secrets import masked_line
    from loomctl.priming import memory_of_session, prime_run

    kept(notes, lambda: memory_of_session.remember(space, made, begun))
    line = "; ".join([prime_run.one_line_for_people(made), *(masked_line(note, 600) for note in notes)])
    return Given(made.text, line, made)


def _both(line: str) -> Given:
    """One line, for the user and the assistant alike."""
    return Given(line, line)


def _pre_compact(space: Workspace, event: dict[str, Any]) -> str | None:
    from loomctl.hosts.claude import compaction as claude_compaction

    return claude_compaction.before(space, event)


def _post_compact(space: Workspace, event: dict[str, Any]) -> str | None:
    from loomctl.hosts.claude import compaction as claude_compaction

    return claude_compaction.after(space, event)


def _pre_tool_use(space: Workspace, event: dict[str, Any]) -> str | None:
    """Decide on a shell command that is one of Loom's own (D29); on anything else Loom has no say.

    What is asked about is noted, for it counts only where that was done (D68).
    """
    from loomctl.hosts import loom_commands

    given = event.get("tool_input")
    command = given.get("command") if isinstance(given, dict) else None
    verdict = loom_commands.judge(command) if isinstance(command, str) else None
    if verdict is None:
        return None
    if verdict.decision == loom_commands.ALLOW:
        if event.get("tool_name") != "Bash" or space.local.binding(space.caller.session_id) is None:
            return None
    elif event.get("tool_name") not in loom_commands.SHELLS:
        return None
    elif verdict.words and (pid := space.caller.pid) is not None:
        from loomctl.runs.machine import call_marks

        kept([], lambda: call_marks.note_asked(space.store.local, pid, verdict.words))
    output = {
        "hookEventName": "PreToolUse",
        "permissionDecision": verdict.decision,
        "permissionDecisionReason": verdict.reason,
    }
    return quick_json.plain({"hookSpecificOutput": output})


def _stop(space: Workspace, event: dict[str, Any]) -> str | None:
    """End the step with the final message, ask for a better one, hand the next step on, or do nothing (D27, D28)."""
    binding = space.local.binding(space.caller.session_id)
    if binding is None and (damaged := space.local.damaged_binding(space.caller.session_id)):
        line = f"this session's binding cannot be read: {damaged}; loomctl resume binds it again, then end the step"
        return context("Stop", None, line)
    if binding is None or not space.store.has(binding["run_id"]):
        missing = _missing(space, patient=True)  # of a bound session the turn's end was waited for
        return context("Stop", None, missing) if missing else None
    from loomctl.hosts.claude import stop
    from loomctl.runs import leases

    recorded = digested(space, rest_follows=True)
    space.local.refresh(binding, pid=space.caller.pid, transcript_path=text(event, "transcript_path") or None)
    answer = stop.answer(space, binding, event)
    missing = _missing(space)
    leases.refresh(space, binding["run_id"])  # last, for what ended a step is a sign by itself
    output: dict[str, Any] = {"decision": "block", "reason": answer.block} if answer.block else {}
    if answer.line or missing or recorded:
        lines = [for_people(line) for line in (answer.line, missing, recorded) if line]
        output["systemMessage"] = "\n".join(lines)
    return quick_json.plain(output) if output else None


def _missing(space: Workspace, *, patient: bool = False) -> str:
    """Tell what the conversation has not of what its start gave, once (D81). patient: the host may still write it."""
    if space.local.opened(space.caller.session_id) is None:
        return ""
    from loomctl.priming.survival import receive  # most turns are not the first

    return kept([], lambda: receive.settle(space, patience=receive.PATIENCE if patient else 0)) or ""


def _session_end(space: Workspace, event: dict[str, Any]) -> str | None:
    from loomctl.runs import presence

    binding = space.local.binding(space.caller.session_id)
    if binding is not None and space.store.has(binding["run_id"]):
        space.local.mark_ended(binding["session_id"])
        presence.leave(space, binding["run_id"], text(event, "reason")[:_LONGEST_WORD] or "other")
    return None


def _user_prompt_submit(space: Workspace, event: dict[str, Any]) -> str | None:
    """Note a notice of the host's; restore what a compaction took and nobody gave back; tell of edited files.

    The launcher answers a prompt with nothing to tell by itself.
    """
    conversation = space.caller.conversation
    session_id = space.caller.session_id
    if session_id is None or not isinstance(conversation, Transcript):
        return None
    binding = space.local.binding(session_id)
    if binding is not None and text(event, "prompt").startswith(NOTICE):
        from loomctl.hosts.claude import stop

        kept([], lambda: stop.note_notice(space, event))
    given = (
        _restored(space, conversation, session_id)
        or _put_back(space, conversation, session_id)
        or _edited(space)
        or None
    )
    if binding is not None:
        from loomctl.runs import leases

        leases.refresh(space, binding["run_id"])  # last, for what was recorded is a sign by itself
    return given


def _edited(space: Workspace) -> str:
    """Tell of edits of what the session was given (D80)."""
    from loomctl.priming import edits

    made = edits.notice(space, unasked=True)
    return context("UserPromptSubmit", made.text, made.line)


def _put_back(space: Workspace, conversation: Transcript, session_id: str) -> str | None:
    """Give what a compaction lost that must survive, once; look whether what was given before arrived."""
    from loomctl.runs.machine import owed

    if not owed.is_any(space.store.local, session_id):
        return None
    from loomctl.hosts.claude import compaction as claude_compaction

    return claude_compaction.put_back_at_a_prompt(space, seen=conversation.boundary() is not None)


def _restored(space: Workspace, conversation: Transcript, session_id: str) -> str | None:
    """Restore after a compaction whose restore cannot be seen in the transcript."""
    before = space.local.primed(session_id)
    run_id = before.get("run_id")
    if not isinstance(run_id, str):
        return None
    boundary = conversation.boundary()
    if boundary is None:
        _sure(space, session_id)
        return None
    from loomctl.priming import memory_of_session
    from loomctl.runs import find
    from loomctl.runs.machine import known
    from loomctl.workflows.model import triggers

    found = find.find(space, over=False)
    if found.run_id != run_id or not known.is_known(run_id, space.store.folder):
        return None
    if found.may_write and space.store.held(run_id, space.store.read_state(run_id)) is not None:
        return None
    if memory_of_session.held(space, run_id).any_slip:
        _sure(space, session_id)
        return None
    if not found.may_write and space.local.live_sessions(run_id, but=session_id, conversing=True):
        return None
    restores = before.get("restores")
    tried = restores.get(boundary, 0) if isinstance(restores, dict) else 0
    if type(tried) is not int or tried >= RESTORES:
        _sure(space, session_id)
        return None
    space.local.note_primed(session_id, {**before, "restores": {boundary: tried + 1}})
    memory_of_session.forget(space)
    event_now = triggers.session_start("compact")
    given = primed(space, run_id, event_now, [], may_write=found.may_write, begun="compact")
    return context("UserPromptSubmit", given.text, given.line)


def _sure(space: Workspace, session_id: str) -> None:
    """Let the launcher answer prompts by itself until the next compaction."""
    from loomctl.runs.machine import watched

    kept([], lambda: watched.confirm(space.store.local, session_id))


def _failure(space: Workspace | None, name: str, error: Exception) -> str | None:
    """Tell of a failure in one line, and note it in the bound run's events where that can be done (D55)."""
    if name == "pre-tool-use":
        return None
    from loomctl.hosts.claude import failures  # most hooks do not fail

    line = failures.line(space, name, error, words(error))
    if name in ("pre-compact", "session-end"):
        return None
    return context("SessionStart", f"Loom: {line}" if name == "session-start" else None, line)


_ANSWERS: dict[str, Callable[[Workspace, dict[str, Any]], str | Given | None]] = {
    "session-start": _session_start,
    "pre-compact": _pre_compact,
    "post-compact": _post_compact,
    "pre-tool-use": _pre_tool_use,
    "stop": _stop,
    "session-end": _session_end,
    "user-prompt-submit": _user_prompt_submit,
}
