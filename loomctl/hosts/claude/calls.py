"""When Claude Code must have called its hooks last, as the end of a session's transcript shows it.

A prompt, a tool that was used, a turn that came to its end, a compaction: each is written with its time, whether or not
a hook answered; a compaction calls PreCompact and PostCompact where the release of the host that wrote its entry does.
What may have had no hook counts nothing: calls that failed or were refused, what a command of the host's own left, what
the host said in the assistant's name, subagents' turns.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import time

from loomctl.kit import files
from loomctl.kit.errors import LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TAIL = 512 * 1024
"""Bytes of a transcript's end that are looked at: what was called before has been called again, or long ago."""
_HEAD = 64 * 1024
_SYNTHETIC = "<synthetic>"
_SHELL = "Bash"  # the tool that the PreToolUse hook is for
_BOTH_ENDS = (2, 1, 76)  # the first release that calls hooks on both ends of a compaction, by the host's changelog


def called(path: str | None) -> Mapping[str, float]:
    """Give event -> seconds since 1970; empty for a transcript that is not there, or cannot be read."""
    if not path:
        return {}
    try:
        head, tail = _ends(path)
    except (OSError, LoomError):
        return {}
    found: dict[str, float] = {}
    began = next((at for entry in _entries(head) if (at := _at(entry))), 0.0)
    if began:
        found["session-start"] = began
    shells: dict[str, float] = {}
    for entry in _entries(tail):
        at = _at(entry)
        if at and not entry.get("isSidechain"):
            _note(found, shells, entry, at)
    return found


def _ends(path: str) -> tuple[bytes, bytes]:
    """Give the whole lines of a file's beginning and of its end."""
    descriptor = files.open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        head = os.pread(descriptor, _HEAD, 0)
        at = max(0, size - TAIL)
        tail = os.pread(descriptor, TAIL, at)
    finally:
        os.close(descriptor)
    return head, tail[tail.find(b"\n") + 1 :] if at else tail


def _note(found: dict[str, float], shells: dict[str, float], entry: dict[str, Any], at: float) -> None:
    kind = entry.get("type")
    if kind == "system" and entry.get("subtype") == "compact_boundary":
        found["session-start"] = at
        if _release(entry) >= _BOTH_ENDS:
            found["pre-compact"] = found["post-compact"] = at
    elif kind == "assistant":
        message = _object(entry.get("message"))
        if message.get("model") == _SYNTHETIC:
            return
        for block in _blocks(message):
            if block.get("type") == "tool_use" and block.get("name") == _SHELL:
                shells[str(block.get("id"))] = at
        if message.get("stop_reason") == "end_turn":
            found["stop"] = at
    elif kind == "user" and not entry.get("isMeta") and not entry.get("isCompactSummary"):
        _note_user(found, shells, entry, at)


def _note_user(found: dict[str, float], shells: dict[str, float], entry: dict[str, Any], at: float) -> None:
    message = _object(entry.get("message"))
    results = [block for block in _blocks(message) if block.get("type") == "tool_result"]
    for result in results:
        if result.get("is_error"):
            continue
        found["post-tool-use"] = at
        asked = shells.get(str(result.get("tool_use_id")))
        if asked:
            found["pre-tool-use"] = asked
    said = message.get("content")
    if isinstance(said, list) and not results:
        said = next((block.get("text") for block in said if isinstance(block, dict) and block.get("text")), None)
    # What begins with these is a command of the host's own and what it printed, or says that a turn was broken off.
    if isinstance(said, str) and said.strip() and not said.lstrip().startswith(("<", "[Request interrupted")):
        found["user-prompt-submit"] = at


def _release(entry: dict[str, Any]) -> tuple[int, ...]:
    """Give the release of the host that wrote an entry; empty where it names none in numbers."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", str(entry.get("version")), re.ASCII)
    return tuple(map(int, found.groups())) if found else ()


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _entries(data: bytes) -> list[dict[str, Any]]:
    found = []
    for line in data.split(b"\n"):
        if b'"timestamp"' not in line:
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def _at(entry: dict[str, Any]) -> float:
    """Give an entry's time; 0.0 for what is none."""
    stamp = entry.get("timestamp")
    try:
        return float(calendar.timegm(time.strptime(str(stamp)[:19], "%Y-%m-%dT%H:%M:%S")))
    except (ValueError, OverflowError):
        return 0.0
