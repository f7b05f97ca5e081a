"""Copilot CLI: events named as Claude Code's with some fields of its own, and its files of events (as of 1.0.102).

Its user's line is a line of its own before the answer; what its assistant is told stands at the answer's top level. A
tool's result is another object, and so is what replaces it. Its events name no turn, and its Stop no last message:
both stand in the session's file.
"""

from __future__ import annotations

import os
import time

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
)
from loomctl.kit import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from loomctl.hosts.asking import Answer
    from loomctl.runs.project import Conversation

_SOURCES = {"new": "startup"}
# What came before it is what a compaction takes; what takes nothing; what a start gave; that a turn ends.
_BEGUN, _FAILED, _STARTS, _STOPS = "compaction begun", "compaction failed", "started", "stops"
# That subagents begin and end, that none of those before lives, what its user wants of it.
_WORKS, _ENDS, _ANEW, _MODE, _USED = "works", "ends", "anew", "mode", "used"
_TOKENS = {
    "input_tokens": "inputTokens", "output_tokens": "outputTokens",
    "cache_creation_input_tokens": "cacheWriteTokens", "cache_read_input_tokens": "cacheReadTokens",
}  # fmt: skip
_BARE = {
    "tool.execution_start": CALL, "session.compaction_start": _BEGUN, "abort": BROKEN_OFF, "session.resume": _ANEW,
}  # fmt: skip
_PLAIN = {
    "tool.execution_complete": (GIVEN, "result", "content"), "skill.invoked": (GIVEN, "content"),
    "session.mode_changed": (_MODE, "newMode"),
}  # fmt: skip
_AGENTS = {"subagent.started": _WORKS, "subagent.completed": _ENDS, "subagent.failed": _ENDS}
_TOO_LARGE, _SAVED, _PREVIEW = "Output too large to read at once (", ". Saved to: ", "\n\nPreview (first 500 chars):\n"
_OUTPUT = "-copilot-tool-output-"
_SAYS = "report_intent"  # a tool that does nothing
_PATIENCE = 1.0  # seconds for what the host may write later than it calls a hook


def read(word: str, event: dict[str, Any]) -> dict[str, Any]:
    """Give an event in the protocol's shape."""
    made = dict(event)
    if word == "session-start":
        source = event.get("source")
        made["source"] = _SOURCES.get(source, source) if isinstance(source, str) else ""
    result = event.get("tool_result")
    if isinstance(result, dict) and "tool_response" not in event:
        made["tool_response"] = _put_away(made.pop("tool_result"))
    if text_of(event, "agent_id") and text_of(event, "parent_agent_id"):  # a subagent's, whose own is no session
        made["session_id"] = event["parent_agent_id"]
    if not text_of(event, "transcript_path"):
        made["transcript_path"] = _kept_at(text_of(made, "session_id"))
    return made


def _put_away(result: dict[str, Any]) -> dict[str, Any]:
    """Give a result in the protocol's words for one that the host put away: its beginning, and where the whole is.

    The file is the host's by its name, goes with the session, and is believed only if it begins with what is shown.
    """
    said = text_of(result, "text_result_for_llm")
    head, found, shown = said.partition(_PREVIEW)
    path = head.partition(_SAVED)[2].partition("\n")[0] if head.startswith(_TOO_LARGE) and found else ""
    number, mark, rest = os.path.basename(path).partition(_OUTPUT)
    if not mark or not number.isdigit() or not rest.endswith(".txt") or not os.path.isabs(path):
        return result
    shown = shown.rpartition("\n<shellId: ")[0].removesuffix("\n") or shown
    kept = {"persistedOutputPath": path, "persistedOutputShown": len(shown)}
    return {**result, "text_result_for_llm": shown, **kept}


def write(answer: Answer) -> str:
    """Give an answer as the host takes it; empty where nothing is said."""
    told: dict[str, Any] = {}
    own: dict[str, Any] = {}
    if answer.goes_on:
        told |= {"decision": "block", "reason": answer.goes_on}
    if answer.decision:
        own |= {"permissionDecision": answer.decision, "permissionDecisionReason": answer.why}
    stands_for = text_of(answer.output, "text_result_for_llm")
    if stands_for:
        kind = text_of(answer.output, "result_type") or "success"
        told["modifiedResult"] = {"resultType": kind, "textResultForLlm": stands_for}
    if answer.text:
        told["additionalContext"] = own["additionalContext"] = answer.text
    if own:
        told["hookSpecificOutput"] = {"hookEventName": answer.event, **own}
    lines = [quick_json.plain({"type": "progress", "message": answer.line})] if answer.line else []
    return "\n".join([*lines, *([quick_json.plain(told)] if told else [])])


class Transcript(Written):
    """A session's events: `~/.copilot/session-state/ID/events.jsonl`."""

    _starts = False
    compacts = b'"session.compaction_'

    def starts(self) -> None:
        """Know that a start is answered now, before the host has written down that it resumed."""
        self._starts = True

    def kept_at(self, session_id: str) -> str | None:
        """Give where the host keeps a session's events."""
        return _kept_at(session_id) or None

    def entries_of(self, line: dict[str, Any]) -> Iterator[Passage]:
        """Give what a line tells; what subagents do is no part of the conversation."""
        at, kind, data = text_of(line, "timestamp"), text_of(line, "type"), line.get("data")
        if not isinstance(data, dict):
            return
        yield from _of_any_agent(kind, at, line, data)
        if line.get("agentId") or data.get("parentToolCallId"):
            return
        if kind == "user.message":
            yield Passage(PROMPT, at, text_of(data, "content"), text_of(data, "messageId"))
            yield Passage(GIVEN, at, text_of(data, "transformedContent"), text_of(data, "messageId"))
        elif kind == "assistant.message":
            if text_of(data, "content") or not data.get("toolRequests"):
                yield Passage(SAID, at, text_of(data, "content"), text_of(data, "originatingMessageId"))
        elif kind == "session.compaction_complete":
            done = data.get("success") is True and text_of(data, "outcome") in ("applied", "")
            yield Passage(BOUNDARY if done else _FAILED, at, text_of(data, "summaryContent"))
        elif kind == "hook.end" and text_of(data, "hookType") == "sessionStart":
            yield Passage(_STARTS, at, text_of(data, "output", "additionalContext"))
        elif kind == "hook.start":
            yield from [Passage(_STOPS, at)] if text_of(data, "hookType") == "agentStop" else []
        elif kind in _PLAIN:
            of, *at_keys = _PLAIN[kind]
            yield Passage(of, at, text_of(data, *at_keys))
        elif kind in _BARE:
            yield Passage(_BARE[kind], at)

    def last_turn(self) -> tuple[str, str]:
        """Give the turn that ends and its last message: the host writes both down before it calls its Stop."""
        until = time.monotonic() + (_PATIENCE if self._path and os.path.isfile(self._path) else 0)
        while self._newest((SAID, PROMPT, CALL, _STOPS))[1].kind != _STOPS and self._grows(until):
            pass
        last = self._newest((SAID, PROMPT))[1]
        return (last.turn, last.text) if last.kind == SAID else ("", "")

    def summary(self) -> str | None:
        """Give the summary that the last compaction left; None while one works beside the turn."""
        return None if self.compacting() else super().summary()

    def usage_since(self, at: str, beside: Sequence[Conversation] = ()) -> dict[str, Any] | None:
        """Give the models and tokens of the calls since a time, those of subagents too, each counted once (D41)."""
        used: dict[str, dict[str, Any]] = {}
        for one in (*beside, self):
            recorded = one._used_since(at) if isinstance(one, Transcript) else ()  # noqa: SLF001 - of its own kind
            used.update((entry.turn or entry.at, quick_json.loads(entry.text)) for entry in recorded)
        if not used:
            return None
        models = dict.fromkeys(text_of(one, "model") for one in used.values())
        total: dict[str, Any] = {"models": [model for model in models if model], "messages": len(used)}
        for name, own in _TOKENS.items():
            counts = (one.get(own) for one in used.values())
            total[name] = sum(count for count in counts if type(count) is int and count > 0)
        return total

    def _used_since(self, at: str) -> list[Passage]:
        used: list[Passage] = []
        for _, entry in self._back(b'"session.usage_record"'):
            if entry.kind == _USED:
                if entry.at < at[:23].removesuffix("Z"):
                    break
                used.append(entry)
        return used[::-1]

    def calls_beside(self, command: str) -> bool:
        """Tell whether the answer that calls a command calls more, or is not written down: all hooks come first here.

        A question about the one would then stand when the other begins, whatever the user said.
        """
        until = time.monotonic() + _PATIENCE
        while True:
            place, calls = next(self._answers(), (0, []))
            over = self._read().back(place, holding=b'"tool.execution_complete"')
            ended = {text_of(line, "data", "toolCallId") for _, line in over}
            made = (one for one in calls if text_of(one, "arguments", "command") == command)
            if any(text_of(one, "toolCallId") not in ended for one in made):
                return len([one for one in calls if text_of(one, "name") != _SAYS]) > 1
            if not self._grows(until):
                return True

    def _answers(self) -> Iterator[tuple[int, list[Any]]]:
        """Give the assistant's answers that make calls from the last one back, each with these."""
        for place, line in self._read().back(holding=b'"toolRequests"'):
            calls = line["data"].get("toolRequests") if isinstance(line.get("data"), dict) else None
            if isinstance(calls, list) and calls:
                yield place, calls

    def is_planning(self) -> bool:
        """Tell whether it is in plan mode."""
        place, mode = self._newest((_MODE,), b'"session.mode_changed"')
        return mode.text == "plan" and not self._is_anew(place)

    def is_busy(self) -> bool:
        """Tell whether a subagent has begun and not ended, since its user broke a turn off or it was resumed."""
        over: set[str] = set()
        for place, entry in self._back(b'"subagent.'):
            if entry.kind == _WORKS and entry.text not in over:
                return not self._is_anew(place) and self._newest((BROKEN_OFF,), b'"abort"', place)[0] < 0
            over.add(entry.text if entry.kind == _ENDS else "")
        return False

    def compacting(self) -> bool:
        """Tell whether a compaction has begun and is not over."""
        return self._newest((BOUNDARY, _BEGUN, _FAILED), self.compacts)[1].kind == _BEGUN

    def _live_from(self) -> int:
        """Give where what stands before the assistant begins: where the last compaction did."""
        over, begun = self._newest((BOUNDARY,), self.compacts)[0], -1
        if over >= 0:
            before = self._back(self.compacts, end=over)
            begun = next((place for place, entry in before if entry.kind == _BEGUN), -1)
        return max(0, begun if begun >= 0 else over)

    def _given(self) -> Iterator[str]:
        """Give what stands before the assistant and has slips.

        What a start gave stands at the head and is kept nowhere: a resume takes it away, whatever its own start gives.
        """
        yield from super()._given()
        place, start = self._newest((_STARTS,), b'"sessionStart"', self._live_from())
        if not self._starts and place >= 0 and not self._is_anew(place):
            yield start.text

    def _is_anew(self, place: int) -> bool:
        """Tell whether the session was resumed behind a place."""
        return self._newest((_ANEW,), b'"session.resume"', place)[0] >= 0


def _of_any_agent(kind: str, at: str, line: dict[str, Any], data: dict[str, Any]) -> Iterator[Passage]:
    used = data.get("usage")
    if kind in _AGENTS:
        yield Passage(_AGENTS[kind], at, text_of(line, "agentId"))
    elif kind == "session.usage_record" and isinstance(used, dict):
        yield Passage(_USED, at, quick_json.plain(used), text_of(used, "accounting", "usageId"))


def _kept_at(session_id: str) -> str:
    from loomctl.kit import machine

    home = os.environ.get("COPILOT_HOME") or os.path.join(machine.home() or "", ".copilot")
    fits = session_id and session_id.replace("-", "").isalnum() and session_id.isascii()
    return os.path.join(home, "session-state", session_id, "events.jsonl") if fits and os.path.isabs(home) else ""
