"""Hook events, answered: JSON on standard input, JSON (or plain text) on standard output, always exit 0.

This is the hook path: the standard library alone, and each event imports what it needs inside its own
function, for most end early. A hook fails open (D55): what goes wrong is told in `systemMessage` and in the run's
events, and blocks nothing.
"""

from __future__ import annotations

import os
import sys

from loomctl.hosts import asking
from loomctl.hosts.asking import Answer, written
from loomctl.hosts.protocol import events
from loomctl.hosts.protocol.events import attempt, text
from loomctl.kit import files, trouble
from loomctl.kit.processes import HOOK_PATIENCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from loomctl.hosts.protocol.sessions import Given
    from loomctl.runs.project import Conversation, Workspace

# What a subagent's events are answered for: its conversation is another, though it bears the session's id.
_OF_SUBAGENTS = ("pre-tool-use",)
# Events whose failure nobody is told of, for the host shows no such line.
_SILENT = ("pre-tool-use", "permission-request", "pre-compact", "session-end")
# Events at which a run may come to stand elsewhere, or a session to another one.
_CHANGING = ("session-start", "stop")
# A restore that cannot be seen is tried again this often for one compaction, then left to the user.
_MOST_TRIES = 2


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
        event = events.read_event(name, ends_do=name == "session-end")  # which has a second, and says little
        if event.get("agent_id") and name not in _OF_SUBAGENTS:
            return 0
        space = events.workspace_of(event, parts=parts)
        output = answer(space, event) if space is not None else None
        if output is not None and not isinstance(output, str):
            output = _leave_parts(output, base, parts, bell)
        if space is not None and name in _CHANGING:
            _keep_memory(space)
    except Exception as error:  # noqa: BLE001 - a hook fails open, whatever happened (D55)
        line = events.failure(space, name, error)
        told = f"Loom: {line}" if name == "session-start" else ""
        output = written(Answer("SessionStart", told, line)) if name not in _SILENT else None
    if output:
        try:
            files.write_all(sys.stdout.fileno(), output.encode("utf-8", "backslashreplace"))  # whatever the locale is
        except OSError:  # the host went away
            pass
    if space is not None:
        events.digest_rest(space)  # a Stop's, which alone has the time that a large event takes
    return 0


def _entries(arguments: list[str]) -> tuple[str, int, int]:
    """Read what the launcher says of a session start's entries: where parts are left for them, how many there are.

    The third is the bell at which the others wait from now on.
    """
    from loomctl.runs.machine import launcher_files

    base, said = (*arguments, "", "")[:2]
    count = int(said) if said.isascii() and said.isdigit() and len(said) == 1 else 1
    fits = os.path.isabs(base) and 1 < count <= launcher_files.MOST_PARTS
    return (base, count, launcher_files.hold_bell(base)) if fits else ("", 1, -1)


def _leave_parts(given: Given, base: str, count: int, bell: int) -> str:
    first, *others = given.slip.parts if given.slip is not None and given.slip.parts else [given.text]
    line = given.line
    if base:
        from loomctl.runs.machine import launcher_files

        try:
            parts = [written(Answer("SessionStart", one)) for one in others]
            launcher_files.leave_parts(base, parts, count, bell)
        except OSError as error:
            line += f"; Loom could not give {len(others)} more parts: {trouble.said(error)}" if others else ""
    return written(Answer("SessionStart", first, line))


def _keep_memory(space: Workspace) -> None:
    """Let `.loom/now.md` say what became of its run, where memory is on (D62); the next hook or command mends it."""
    if os.path.lexists(os.path.join(space.store.local, "memory.json")):
        from loomctl.priming import memory

        attempt([], lambda: memory.keep(space, patience=HOOK_PATIENCE))


def _session_start(space: Workspace, event: dict[str, Any]) -> Given:
    from loomctl.hosts.protocol import sessions
    from loomctl.kit import machine

    if os.path.lexists(machine.status_script()):
        from loomctl.install import status_shim  # most users have none

        attempt([], status_shim.renew_own)
    session_id = space.caller.session_id
    if not asking.host().starts:
        event = {**event, "source": _source(space)}
    if text(event, "source") in ("compact", "clear"):
        from loomctl.runs.machine import session_notes

        attempt([], lambda: session_notes.drop_owed(space.store.local, session_id))
    if session_id is not None:
        from loomctl.runs.machine import session_notes

        attempt([], lambda: session_notes.doubt(space.store.local, session_id))
        if asking.host().primes_at:  # what the start gives, no later event need give again
            session_notes.claim_compacted(space.store.local, session_id)
        if not asking.host().shows_starts:  # the prompt that comes with it leaves all to it
            attempt([], lambda: session_notes.note_starting(space.store.local, session_id))
    space.caller.conversation.starts()
    _keep_start(space, "")
    given = sessions.start(space, event) or sessions.Given("", "")
    slip_id = given.slip.id if given.slip is not None else ""
    if session_id is not None and not slip_id:
        session_notes.claim_starting(space.store.local, session_id)
    _keep_start(space, slip_id)
    if not asking.host().starts:  # else a prompt follows, or a tool's result
        given = _and(given, *events.user_said(space, "start", before=given.text))
    unsafe = machine.unsafe_folders()
    if unsafe:
        from loomctl.kit.text.secrets import masked_line

        line = f"Loom: {masked_line(unsafe[0], 200)} is not used, because others can write there (loomctl doctor)"
        given = given._replace(line="; ".join(filter(None, (given.line, line))))
    return given


def _and(given: Given, words: str, line: str) -> Given:
    """Put what the user told the run behind what a start gives, in a host that takes one output."""
    joined = "\n\n".join(filter(None, (given.text, words)))
    line = "; ".join(filter(None, (given.line, line)))
    return given._replace(text=joined, line=line, slip=None if words else given.slip)


def _source(space: Workspace) -> str:
    """Tell how a session began whose host does not say it."""
    if space.local.binding(space.caller.session_id) is not None:
        return "resume"
    pid = space.caller.pid
    return "clear" if pid is not None and space.local.of_process(pid) is not None else "startup"


def _keep_start(space: Workspace, slip_id: str) -> None:
    if space.caller.conversation.keeps_starts:
        from loomctl.priming import memory_of_session

        attempt([], lambda: memory_of_session.keep_start(space, slip_id))


def _pre_compact(space: Workspace, event: dict[str, Any]) -> str | None:
    from loomctl.hosts.protocol import sessions

    told, host = sessions.before_compaction(space, event), asking.host()
    form = getattr(asking.dialect(host), "for_the_summary", None) if told else None
    return form(told) if form is not None else told


def _post_compact(space: Workspace, event: dict[str, Any]) -> str | None:
    from loomctl.hosts.protocol import sessions

    return sessions.after_compaction(space, event)


def _pre_tool_use(space: Workspace, event: dict[str, Any]) -> str | None:
    """Decide on a shell command that is one of Loom's own (D29); on anything else Loom has no say.

    What is asked about is noted, for it counts only where that was done (D68). Where another call's hook came before
    it, and the call itself comes after, the question could serve that one: it is not put.
    """
    from loomctl.hosts import tool_calls

    given, host = event.get("tool_input"), asking.host()
    command = given.get("command") if isinstance(given, dict) else None
    verdict = tool_calls.judge(command) if isinstance(command, str) else None
    if verdict is None:
        return None
    if verdict.decision == tool_calls.ALLOW:
        if event.get("tool_name") not in tool_calls.ALLOWED_IN or space.local.binding(space.caller.session_id) is None:
            return None
    elif event.get("tool_name") not in tool_calls.SHELLS or not host.asks:
        return None
    elif verdict.words and space.caller.conversation.calls_beside(str(command)):
        why = f"{verdict.reason}: call it in an answer of its own, and they are asked"
        return written(Answer("PreToolUse", decision=tool_calls.DENY, why=why))
    elif verdict.words and (pid := space.caller.pid) is not None:
        from loomctl.runs.machine import launcher_files

        attempt([], lambda: launcher_files.note_asked(space.store.local, pid, verdict.words))
    return written(Answer("PreToolUse", decision=verdict.decision, why=verdict.reason))


def _permission_request(space: Workspace, event: dict[str, Any]) -> str | None:
    """Allow what is harmless where a host asks its user apart from the call itself."""
    from loomctl.hosts import tool_calls

    given = event.get("tool_input")
    command = given.get("command") if isinstance(given, dict) else None
    verdict = tool_calls.judge(command) if isinstance(command, str) else None
    if verdict is None or verdict.decision != tool_calls.ALLOW or event.get("tool_name") not in tool_calls.ALLOWED_IN:
        return None
    if space.local.binding(space.caller.session_id) is None:
        return None
    return written(Answer("PermissionRequest", decision=verdict.decision, why=verdict.reason))


def _stop(space: Workspace, event: dict[str, Any]) -> str | None:
    from loomctl.hosts.protocol import stop

    if asking.host().primes_at:
        from loomctl.hosts.protocol import restores

        attempt([], lambda: restores.settle(space))
    return stop.answer(space, event)


def _session_end(space: Workspace, event: dict[str, Any]) -> str | None:
    from loomctl.runs import leases

    binding = space.local.binding(space.caller.session_id)
    if binding is not None and space.store.has(binding["run_id"]):
        space.local.mark_ended(binding["session_id"])
        leases.leave(space, binding["run_id"], text(event, "reason")[:80] or "other")
    return None


def _user_prompt_submit(space: Workspace, event: dict[str, Any]) -> str | None:
    """Note a notice of the host's; restore what a compaction took and nobody gave back; tell of edited files.

    The launcher answers a prompt with nothing to tell by itself.
    """
    conversation = space.caller.conversation
    session_id = space.caller.session_id
    if session_id is None:
        return None
    binding = space.local.binding(session_id)
    if binding is not None and conversation.is_notice(text(event, "prompt")):
        from loomctl.hosts.protocol import stop

        attempt([], lambda: stop.note_notice(space, event))
    from loomctl.runs.machine import session_notes

    comes_with_a_start = session_notes.claim_starting(space.store.local, session_id)
    given = None if comes_with_a_start else _primed_again(space, event) or _restored(space, conversation, session_id)
    if not given:
        told, line = _put_back(space, conversation, session_id), ""
        if not told:
            from loomctl.priming import edits

            told, line = edits.notice(space, unasked=True)
        words, said = events.user_said(space, "prompt", before=told)
        told = "\n\n".join(filter(None, (told, words)))
        line = "\n".join(filter(None, (events.survived(space), line, said)))
        given = written(Answer("UserPromptSubmit", told, line))
    if binding is not None:
        from loomctl.runs import leases

        leases.refresh(space, binding["run_id"])  # last, for what was recorded is a sign by itself
    return given or None


def _primed_again(space: Workspace, event: dict[str, Any]) -> str | None:
    if not asking.host().primes_at:
        return None
    from loomctl.hosts.protocol import restores

    given = restores.restored(space, "user-prompt-submit", event, asking.host().room)
    return written(Answer("UserPromptSubmit", given.text, given.line)) if given is not None else None


def _put_back(space: Workspace, conversation: Conversation, session_id: str) -> str:
    """Give what a compaction lost that must survive, once; look whether what was given before arrived."""
    from loomctl.runs.machine import session_notes

    if not session_notes.is_owed(space.store.local, session_id, or_given=True):
        return ""
    from loomctl.priming import prime_run, survive

    if conversation.boundary() is not None:
        attempt([], lambda: survive.confirm(space))
    return survive.put_back(space, prime_run.hook_budget(space, room=asking.host().room), "UserPromptSubmit")


def _restored(space: Workspace, conversation: Conversation, session_id: str) -> str | None:
    before = space.local.primed(session_id)
    run_id = before.get("run_id")
    if not isinstance(run_id, str):
        return None
    boundary = conversation.boundary()
    if boundary is None:
        _sure(space, session_id)
        return None
    from loomctl.hosts.protocol import sessions
    from loomctl.priming import memory_of_session
    from loomctl.runs import find
    from loomctl.runs.machine import run_notes
    from loomctl.workflows import triggers

    found = find.find(space, over=False)
    if found.run_id != run_id or not run_notes.is_known(run_id, space.store.folder):
        return None
    if found.may_write and space.store.held(run_id, space.store.read_state(run_id)) is not None:
        return None
    if memory_of_session.held(space, run_id).any_slip:
        _sure(space, session_id)
        return None
    if not found.may_write and space.local.live_sessions(run_id, but=session_id, conversing=True):
        return None
    known = before.get("restores")
    tried = known.get(boundary, 0) if isinstance(known, dict) else 0
    if type(tried) is not int or tried >= _MOST_TRIES:
        _sure(space, session_id)
        return None
    space.local.note_primed(session_id, {**before, "restores": {boundary: tried + 1}})
    memory_of_session.forget(space)
    event_now = triggers.session_start("compact")
    given = sessions.prime(space, run_id, event_now, [], may_write=found.may_write, begun="compact")
    return written(Answer("UserPromptSubmit", given.text, given.line))


def _sure(space: Workspace, session_id: str) -> None:
    from loomctl.runs.machine import session_notes

    attempt([], lambda: session_notes.confirm(space.store.local, session_id))


_ANSWERS: dict[str, Callable[[Workspace, dict[str, Any]], str | Given | None]] = {
    "session-start": _session_start,
    "pre-compact": _pre_compact,
    "post-compact": _post_compact,
    "pre-tool-use": _pre_tool_use,
    "permission-request": _permission_request,
    "stop": _stop,
    "session-end": _session_end,
    "user-prompt-submit": _user_prompt_submit,
}


def status_line() -> int:
    """Answer for the status line where the launcher has none prepared; always gives 0.

    It is started as a hook is. What goes wrong shows nothing, for the line is drawn again and again.
    """
    if os.environ.get("LOOM_DISABLED") == "1":
        return 0
    try:
        import time

        from loomctl.views import overview

        now = time.time()
        space = events.workspace_of(events.read_event())
        if space is not None and space.caller.session_id is not None:
            forms = overview.session_line(space, space.caller.session_id, now=now)
            line = overview.fit(forms, os.environ.get("COLUMNS", ""))
            files.write_all(sys.stdout.fileno(), f"{line}\n".encode("utf-8", "backslashreplace") if line else b"")
    except Exception:  # noqa: BLE001, S110 - a status line fails open, as a hook does (D55)
        pass
    return 0
