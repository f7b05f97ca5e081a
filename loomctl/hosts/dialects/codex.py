"""Codex CLI: events and answers as Claude Code's but for a tool's output, and its rollout files (hosts as of 0.169).

Its events name the turn `turn_id`. A tool's output is replaced by what blocks it; a call is neither allowed nor asked
about, for its sandbox decides. What a compaction keeps of a conversation are its user's messages and the summary.
"""

from __future__ import annotations

import os

from loomctl.hosts.dialects.written import (
    BOUNDARY,
    BROKEN_OFF,
    CALL,
    GIVEN,
    PROMPT,
    SAID,
    Passage,
    Written,
    text_of,
    texts_of,
)
from loomctl.kit import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from loomctl.hosts.asking import Answer


_SHUT_OUT = ("Read-only file system", "Operation not permitted")  # what its sandbox says by the system's mouth
_REJECTED = ("patch rejected: ", 'exec_command failed: CreateProcess { message: "Rejected(')
_EXIT, _OUTPUT = "Process exited with code ", "\nOutput:\n"
_PUSHED = "<hook_prompt"  # of a Stop that was blocked: the turn goes on
_NAMED = 80  # characters of a refused call


def is_shut_out(exit_code: object, output: str) -> bool:
    """Tell whether a command failed at the sandbox: at a file that it must not write, or at the network."""
    return type(exit_code) is int and exit_code != 0 and any(words in output for words in _SHUT_OUT)


def read(word: str, event: dict[str, Any]) -> dict[str, Any]:
    """Give an event in the protocol's shape."""
    turn = event.get("turn_id")
    return {**event, "prompt_id": turn} if isinstance(turn, str) and "prompt_id" not in event else event


def write(answer: Answer) -> str:
    """Give an answer as the host takes it; empty where nothing is said."""
    told: dict[str, Any] = {}
    stands_for = answer.goes_on or (answer.output if isinstance(answer.output, str) else "")
    if stands_for:
        told |= {"decision": "block", "reason": stands_for}
    if answer.text:
        told["hookSpecificOutput"] = {"hookEventName": answer.event, "additionalContext": answer.text}
    if answer.line:
        told["systemMessage"] = answer.line
    return quick_json.plain(told) if told else ""


class Transcript(Written):
    """A session's rollout: `~/.codex/sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl`."""

    compacts = b'"compacted"'

    def kept_at(self, session_id: str) -> str | None:
        """Find where the host keeps a session's rollout, the newest where there are several."""
        from loomctl.kit import machine  # most hooks are told the path

        home = machine.home()
        base = os.path.join(os.environ.get("CODEX_HOME") or (os.path.join(home, ".codex") if home else ""), "sessions")
        for year in _newest(base):
            for month in _newest(year):
                for day in _newest(month):
                    for path in _newest(day):
                        if path.endswith(f"-{session_id}.jsonl"):
                            return path
        return None

    def refused(self) -> list[str]:
        """Name the calls since the last prompt that its sandbox or its rules refused; no hook tells of that."""
        refused: list[str] = []
        found: dict[str, None] = {}
        for _, line in self._read().back():
            payload = quick_json.as_object(line.get("payload"))
            of = text_of(payload, "type") if text_of(line, "type") == "response_item" else ""
            if of == "message" and text_of(payload, "role") == "user":
                if not texts_of(payload.get("content")).lstrip().startswith(_PUSHED):
                    break
            elif of.endswith("_call_output") and _is_refusal(texts_of(payload.get("output"))):
                refused.append(text_of(payload, "call_id"))
            elif of.endswith("_call") and text_of(payload, "call_id") in refused:
                found[_named(payload)] = None
        return list(found)

    def entries_of(self, line: dict[str, Any]) -> Iterator[Passage]:
        """Give what a line tells: messages, calls and their results, compactions, turns that were broken off."""
        at, payload = text_of(line, "timestamp"), line.get("payload")
        kind, of = text_of(line, "type"), text_of(payload, "type")
        if kind == "compacted":
            yield Passage(BOUNDARY, at, text_of(payload, "message"))
        if not isinstance(payload, dict):
            return
        if kind == "event_msg" and of == "turn_aborted":
            yield Passage(BROKEN_OFF, at)
        if kind != "response_item":
            return
        turn = text_of(payload, "internal_chat_message_metadata_passthrough", "turn_id")
        if of == "message":
            roles = {"assistant": SAID, "developer": GIVEN, "user": PROMPT}
            role = roles.get(text_of(payload, "role"))
            if role:
                yield Passage(role, at, texts_of(payload.get("content")), turn)
        elif of.endswith("_call_output"):
            yield Passage(GIVEN, at, texts_of(payload.get("output")), turn)
        elif of.endswith("_call"):
            yield Passage(CALL, at, "", turn)


def _is_refusal(output: str) -> bool:
    if output.startswith(_REJECTED):
        return True
    head, found, printed = output.partition(_OUTPUT)
    code = head.partition(_EXIT)[2].partition("\n")[0] if found else ""
    return code.isdigit() and is_shut_out(int(code), printed)


def _named(payload: dict[str, Any]) -> str:
    from loomctl.kit.text.fences import one_line  # little is refused

    said = text_of(payload, "arguments") or text_of(payload, "input")
    try:
        given = quick_json.as_object(quick_json.loads(said))
    except (ValueError, RecursionError):
        given = {}
    command = given.get("cmd") or given.get("command") or given.get("input")
    return one_line(command if isinstance(command, str) else text_of(payload, "name") or "a tool", _NAMED)


def _newest(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder), reverse=True)]
    except OSError:
        return []
