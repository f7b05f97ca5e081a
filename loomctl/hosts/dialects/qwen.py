"""Qwen Code: events and answers as Claude Code's, and its chat files (hosts as of 0.24.4).

What a session's start gave stands in its system prompt, which no file shows, until the next start; what a prompt was
given stands in no file either. A compaction is a line of its own.
"""

from __future__ import annotations

import os
import sys

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

_CAP, _BLOCKS, _HIGHEST, _TRUST = "stopHookBlockingCap", 8, 100, "folderTrust"
_ELSEWHERE = "/etc/qwen-code/settings.json"
_MACHINE_WIDE = {"darwin": "/Library/Application Support/QwenCode/settings.json"}


def read(word: str, event: dict[str, Any]) -> dict[str, Any]:
    """Give an event in the protocol's shape, which it has."""
    return event


def write(answer: Answer) -> str:
    """Give an answer as the host takes it; empty where nothing is said."""
    if answer.decision and answer.event == "PermissionRequest":
        own = {"hookEventName": answer.event, "decision": {"behavior": answer.decision}}
        return quick_json.plain({"hookSpecificOutput": own})
    return plain(answer)


def for_the_summary(told: str) -> str:
    """Give what the summariser is to be told, as the host takes it."""
    return quick_json.plain({"hookSpecificOutput": {"hookEventName": "PreCompact", "additionalContext": told}})


def stops() -> int:
    """Give how many stops in a row may be blocked: it ends the turn in place of the one at which its user's cap is."""
    said = os.environ.get("QWEN_CODE_STOP_HOOK_BLOCK_CAP", "").strip()
    if not said:
        return _cap_of_settings() - 1
    return _normal(int(said) if said.isascii() and said.isdigit() and len(said) < 10 else None) - 1


def _cap_of_settings() -> int:
    """Give the cap that its settings set, as it merges them: the machine's, the project's, the user's, its defaults.

    Where folders are trusted one by one, it does not read the settings of a project that is not: the lower cap counts,
    for only its own list of folders, and an editor beside it, know which that is.
    """
    from loomctl.kit import machine

    machine_wide = os.environ.get("QWEN_CODE_SYSTEM_SETTINGS_PATH") or _MACHINE_WIDE.get(sys.platform, _ELSEWHERE)
    below = os.environ.get("QWEN_CODE_SYSTEM_DEFAULTS_PATH") or os.path.join(
        os.path.dirname(machine_wide), "system-defaults.json"
    )
    own = os.path.expanduser(os.environ.get("QWEN_HOME") or os.path.join(machine.home() or "", ".qwen"))
    others = [_settings(path) for path in (machine_wide, os.path.join(own, "settings.json"), below)]
    project = _settings(os.path.join(os.environ.get("QWEN_PROJECT_DIR", ""), ".qwen", "settings.json"))
    alone = next((held[_CAP] for held in others if _CAP in held), None)
    if _CAP not in project or _CAP in others[0]:
        return _normal(alone)
    is_surely_read = not any(_trusts_one_by_one(held) for held in others)
    return _normal(project[_CAP]) if is_surely_read else min(_normal(project[_CAP]), _normal(alone))


def _trusts_one_by_one(held: dict[str, Any]) -> bool:
    security = held.get("security")
    trust = security.get(_TRUST) if isinstance(security, dict) else None
    return isinstance(trust, dict) and bool(trust.get("enabled"))


def _normal(value: object) -> int:
    """Give a cap as it counts it: another value than a number of 1 or more is its default."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1:
        return int(min(value, _HIGHEST))
    return _BLOCKS


def _settings(path: str) -> dict[str, Any]:
    """Give a file's settings if it may say something of the cap; most do not, and to read such takes a moment."""
    try:
        raw = files.read_bytes(path, limit=1 << 20) if os.path.isabs(path) else b""
    except (OSError, LoomError):
        return {}
    if _CAP.encode() not in raw and _TRUST.encode() not in raw:
        return {}
    from loomctl.kit import commented_json

    return commented_json.settings(raw)


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
