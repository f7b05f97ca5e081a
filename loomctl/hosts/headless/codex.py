"""Codex CLI without a person: `codex exec` with its events as JSON lines (as seen in 0.169.0).

Its sandbox stands in place of permissions: it writes in the project alone, has no network, and asks nobody. What it
refuses, and most of what its sandbox stops at once, stands in none of these lines: its own record has that
(`dialects.codex`).
"""

from __future__ import annotations

import calendar
import json
import re
import shlex
import time
from typing import TYPE_CHECKING, Any

from loomctl.drive import signs
from loomctl.hosts import signs as hook_signs
from loomctl.hosts import table
from loomctl.hosts.dialects import codex
from loomctl.hosts.headless import json_events
from loomctl.hosts.headless.json_events import number, text
from loomctl.kit import digests, quick_json
from loomctl.kit.quick_json import as_object
from loomctl.kit.text.fences import one_line
from loomctl.runs.store.write_rules import STARTED_FOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.drive.process import Order

PROGRAM = "codex"
INSTALL = "`npm install -g @openai/codex` installs it"
SILENT = hook_signs.said(table.CODEX)
TELLS_COST = TAKES_RULES = NAMES_CONVERSATIONS = False
WIDENED = "[sandbox_workspace_write] in ~/.codex/config.toml says what its sandbox lets it write and reach"
_TOKENS = ("input_tokens", "output_tokens")  # of the first, those from its cache are a part
_STATUS = re.compile(r"\bstatus:? (\d{3})\b", re.ASCII)
_AGAIN = re.compile(r"^Reconnecting\.\.\. (\d{1,3})/", re.ASCII)
_LIFTS = re.compile(r"try again at (?:([A-Z][a-z]{2}) (\d{1,2})[a-z]{2}, (\d{4}) )?(\d{1,2}):(\d{2}) ([AP])M", re.ASCII)
_KNOWN = (("usage limit", 429), ("Quota exceeded", 429), ("high demand", 503))
_DAY = 86_400
_LONGEST = 4_000  # characters of a message that are looked at


def command(order: Order) -> list[str]:
    """Give the command line of a turn: it takes the run up, in the conversation so far or in a new one."""
    words = [PROGRAM, "exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write"]
    words += ["-c", 'approval_policy="never"']
    words += ["--add-dir", order.store] if order.store and not order.store.startswith(f"{order.root}/") else []
    words += ["-c", f"shell_environment_policy.set.{STARTED_FOR}={json.dumps(order.mark)}"]
    words += ["resume", order.session_id] if order.goes_on else []
    return [*words, f"{table.CODEX.typed.format('resume')} {order.handle}"]


def read(line: bytes) -> Iterator[signs.Sign]:
    """Read one line of its output; what is no event of a known shape is a sign of life and no more."""
    return json_events.read(line, _signs)


def _signs(event: dict[str, Any]) -> Iterator[signs.Sign]:
    kind = event.get("type")
    if kind == "thread.started":
        yield signs.Began(signs.conversation(event.get("thread_id")))
    elif kind in ("item.started", "item.completed"):
        yield from _of_item(as_object(event.get("item")), ended=kind == "item.completed")
    elif kind == "error":
        message = text(event.get("message"))[:_LONGEST]
        if again := _AGAIN.match(message):
            yield signs.Retry(_status(message), 0.0, number=int(again[1]))
    elif kind == "turn.completed":
        sizes = as_object(event.get("usage"))
        tokens = sum(int(number(sizes.get(name))) for name in _TOKENS)
        yield signs.Over(is_error=False, reason="done", tokens=tokens, sums=True)
    elif kind == "turn.failed":
        message = text(as_object(event.get("error")).get("message"))[:_LONGEST]
        status = _status(message)
        until = _until(message) if status == 429 else 0.0
        yield signs.Over(is_error=True, reason="api", text=one_line(message, 400), status=status, until=until)


def _of_item(item: dict[str, Any], *, ended: bool) -> Iterator[signs.Sign]:
    kind, id_ = text(item.get("type")), text(item.get("id"))
    if kind == "agent_message":
        if ended:
            yield signs.Said(text(item.get("text")))
        return
    if kind not in _CALLS:
        return
    told = _told(kind, item)
    if not ended:
        yield signs.Call(id_, told, _key(kind, item, _CALLS[kind]))
        return
    if kind == "command_execution" and codex.is_shut_out(item.get("exit_code"), text(item.get("aggregated_output"))):
        yield signs.Denied(id_, told)
    yield signs.Result(id_, _key(kind, item, ("status", "exit_code", "aggregated_output", "result", "error")))


# What is a call, and which fields tell one from another.
_CALLS = {
    "command_execution": ("command",),
    "file_change": ("changes",),
    "mcp_tool_call": ("server", "tool", "arguments"),
    "web_search": ("query",),
    "collab_tool_call": ("tool", "prompt"),
}


def _key(kind: str, item: dict[str, Any], names: tuple[str, ...]) -> str:
    return digests.of_text(quick_json.dumps([kind, *(item.get(name) for name in names)]))


def _told(kind: str, item: dict[str, Any]) -> str:
    if kind == "command_execution":
        return one_line(_bare(text(item.get("command"))), 120)
    if kind == "file_change":
        changes = item.get("changes")
        paths = [text(as_object(one).get("path")) for one in (changes if isinstance(changes, list) else ())[:5]]
        return one_line(f"apply_patch {' '.join(paths)}".strip(), 120)
    said = next((text(item[name]) for name in ("tool", "query", "prompt") if text(item.get(name))), "")
    return one_line(f"{kind} {said}".strip(), 120)


def _bare(command: str) -> str:
    """Give a command without the shell that runs it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words[2] if len(words) == 3 and words[1] == "-lc" else command


def _status(message: str) -> int:
    """Give the API's status of what failed, as far as the words tell; 0 where they do not."""
    found = _STATUS.search(message)
    if found:
        return int(found[1])
    known = next((status for words, status in _KNOWN if words in message), 0)
    if known or not message.startswith("{"):
        return known
    try:
        kind = text(as_object(as_object(quick_json.loads(message)).get("error")).get("type"))
    except (ValueError, RecursionError):
        return 0
    return 400 if kind == "invalid_request_error" else 0


def _until(message: str) -> float:
    """Give when a plan's limit lifts, in seconds since 1970; 0 where that is not told. It tells the minute, here."""
    found = _LIFTS.search(message)
    if found is None:
        return 0.0
    now = time.localtime()
    months = list(calendar.month_abbr)  # in C's own words where nobody set a locale
    month = months.index(found[1]) if found[1] in months else now.tm_mon
    year, day = (int(found[3]), int(found[2])) if found[1] else (now.tm_year, now.tm_mday)
    hour = int(found[4]) % 12 + (12 if found[6] == "P" else 0)
    try:
        at = time.mktime((year, month, day, hour, int(found[5]) + 1, 0, 0, 0, -1))
    except (ValueError, OverflowError):
        return 0.0
    return at if found[1] or at > time.time() else at + _DAY
