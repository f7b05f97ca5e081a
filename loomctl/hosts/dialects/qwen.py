"""Qwen Code: events and answers as Claude Code's, and its chat files (hosts as of 0.24.4).

What a session's start gave stands in its system prompt, which no file shows, until the next start; what a prompt was
given stands in no file either. A compaction is a line of its own.
"""

from __future__ import annotations

import os

from loomctl.hosts.asking import plain
from loomctl.hosts.dialects.written import (
    BOUNDARY,
    CALL,
    GIVEN,
    PROMPT,
    SAID,
    Passage,
    Written,
    is_of_loom,
    text_of,
    texts_of,
)
from loomctl.kit import files, quick_json
from loomctl.kit.errors import LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

    from loomctl.hosts.asking import Answer
    from loomctl.runs.project import Sent

_CAP, _BLOCKS, _HIGHEST = "stopHookBlockingCap", 8, 100


def read(word: str, event: dict[str, Any]) -> dict[str, Any]:
    """Give an event in the protocol's shape, which it has."""
    return event


def write(answer: Answer) -> str:
    """Give an answer as the host takes it; empty where nothing is said."""
    if answer.decision and answer.event == "PermissionRequest":
        own = {"hookEventName": answer.event, "decision": {"behavior": answer.decision}}
        return quick_json.plain({"hookSpecificOutput": own})
    return plain(answer._replace(output=None))  # a tool's stays as it is


def for_the_summary(told: str) -> str:
    """Give what the summariser is to be told, as the host takes it."""
    return quick_json.plain({"hookSpecificOutput": {"hookEventName": "PreCompact", "additionalContext": told}})


def stops() -> int:
    """Give how many stops in a row may be blocked: it ends the turn in place of the one at which its user's cap is."""
    from loomctl.kit import machine

    bases = (os.environ.get("QWEN_PROJECT_DIR", ""), machine.home())
    said = [os.environ.get("QWEN_CODE_STOP_HOOK_BLOCK_CAP", "").strip()]
    said += [_setting(os.path.join(base, ".qwen", "settings.json"), _CAP) for base in bases if os.path.isabs(base)]
    cap = next(filter(None, said), "")
    number = int(cap) if cap.isascii() and cap.isdigit() and len(cap) < 6 else 0
    return (min(number, _HIGHEST) or _BLOCKS) - 1


def _setting(path: str, name: str) -> str:
    try:
        held = quick_json.loads(files.read_bytes(path, limit=1 << 20).decode("utf-8"))
    except (OSError, ValueError, RecursionError, LoomError):
        return ""
    value = held.get(name) if isinstance(held, dict) else None
    return str(value) if type(value) is int else ""


class Transcript(Written):
    """A session's chat: `~/.qwen/projects/PROJECT/chats/ID.jsonl`."""

    keeps_starts = True
    compacts = b'"chat_compression"'

    def kept_at(self, session_id: str) -> str | None:
        """Find where the host keeps a session's chat."""
        from loomctl.kit import machine  # most hooks are told the path

        home = machine.home()
        base = os.path.join(home, ".qwen", "projects") if home else ""
        try:
            projects = sorted(os.listdir(base)) if base else []
        except OSError:
            return None
        paths = (os.path.join(base, project, "chats", f"{session_id}.jsonl") for project in projects)
        return next((path for path in paths if os.path.isfile(path)), None)

    def sent(self, wanted: Collection[str], older: Collection[str], *, patience: float = 0) -> Sent | None:  # noqa: ARG002
        """Tell nothing: what a start gave stands in no file."""
        return None

    def began_with_loom(self, prompt_id: str, driven: Collection[str], unwritten: str = "") -> bool:
        """Tell whether the turn began with a command of Loom's: its prompt is what `loomctl` printed then."""
        if prompt_id in driven:
            return True
        return is_of_loom(unwritten or self._newest((PROMPT,))[1].text)

    def entries_of(self, line: dict[str, Any]) -> Iterator[Passage]:
        """Give what a line tells: prompts, answers, calls and their results, compactions."""
        at, kind = text_of(line, "timestamp"), text_of(line, "type")
        if kind == "system" and text_of(line, "subtype") == "chat_compression":
            yield Passage(BOUNDARY, at, _summary(line))
        role = {"user": PROMPT, "assistant": SAID, "tool_result": GIVEN}.get(kind)
        if role is None:
            return
        message = line.get("message")
        parts = message.get("parts") if isinstance(message, dict) else None
        for place, part in enumerate(parts if isinstance(parts, list) else ()):
            result = part.get("functionResponse") if isinstance(part, dict) else None
            given = text_of(result, "response", "output") or text_of(result, "response", "error")
            given = given or text_of(part, "text")
            if given and not (isinstance(part, dict) and part.get("thought")):
                yield Passage(GIVEN if place and role == PROMPT else role, at, given)  # behind a prompt: a hook's text
            elif isinstance(part, dict) and "functionCall" in part:
                yield Passage(CALL, at)


def _summary(line: dict[str, Any]) -> str:
    payload = line.get("systemPayload")
    history = payload.get("compressedHistory") if isinstance(payload, dict) else None
    first = history[0] if isinstance(history, list) and history else None
    return texts_of(first.get("parts")) if isinstance(first, dict) else ""
