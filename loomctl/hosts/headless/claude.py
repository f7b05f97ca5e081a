"""Claude Code without a person: `claude -p` with its events as JSON lines (as seen in 2.1.330)."""

from __future__ import annotations

import os.path
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from loomctl.drive import signs
from loomctl.hosts import signs as hook_signs
from loomctl.hosts import table, tool_calls
from loomctl.hosts.headless import json_events
from loomctl.hosts.headless.json_events import number, text
from loomctl.kit import digests, quick_json
from loomctl.kit.quick_json import as_object
from loomctl.kit.text.fences import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.drive.process import Order

PROGRAM = "claude"
INSTALL = "`npm install -g @anthropic-ai/claude-code` installs it"
SILENT = hook_signs.said(table.CLAUDE)
TELLS_COST = TAKES_RULES = NAMES_CONVERSATIONS = True
WIDENED = "no setting allows that"
# What it needs for Loom itself, what looks and changes nothing, and edits in the folder that it is started in.
_ALWAYS = ("Bash(loomctl:*)", "Edit(./**)", "Read", "Grep", "Glob", "Task", "Agent", "TodoWrite", "Skill")
# What Loom alone writes: with an edit there it could approve its own gates, and speak as its user.
_OF_LOOM = (
    *("local/**", "runs/*/state*.json", "runs/*/plan.json", "runs/*/events.jsonl", "runs/*/sessions.jsonl"),
    "runs/*/stages/*/status.json",
)
_TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_ENDS = {
    "error_max_turns": "turns",
    "error_max_budget_usd": "budget",
    "budget_exhausted": "budget",
    "aborted_streaming": "interrupted",
    "aborted_tools": "interrupted",
}
# What a token costs beside one of the input, for an estimate; and characters of a token.
_WRITTEN, _READ, _KEPT, _KEPT_LONG, _CHARACTERS = 5.0, 0.1, 1.25, 2.0, 4
# What it says of an answer that is none, as the status that its API would have given.
_REFUSED = {"authentication_failed": 401, "billing_error": 403}
# Where these only read it asks nobody of them: behind a command that was refused, they need no rule.
_ASKED_OF_NOBODY = frozenset(["cd", "cat", "echo", "false", "grep", "head", "ls", "pwd", "tail", "true", "wc"])
_MOST_RULES = 5
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_BETWEEN = re.compile(r"&&|\|\||\|&?|;|\n|&")
_PIECE = re.compile(rf"{_QUOTED.pattern}|\d*[<>]+&?\d*|&>+|{_BETWEEN.pattern}|.", re.DOTALL)
_WHAT = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt", "skill")


def command(order: Order) -> list[str]:
    """Give the command line of a turn: it takes the run up, in the conversation so far or in a new one."""
    words = [PROGRAM, "-p", f"/loom:resume {order.handle}", "--output-format", "stream-json", "--verbose"]
    words += ["--resume", order.session_id] if order.goes_on else ["--session-id", order.session_id]
    words += ["--permission-mode", "dontAsk"]
    words += ["--allowedTools", *_ALWAYS, *order.allow]
    store = os.path.relpath(order.store, order.root) if order.store else ".loom"
    if not store.startswith(os.pardir):  # else no rule above lets it edit there
        words += ["--disallowedTools", *(f"Edit(./{store}/{one})" for one in _OF_LOOM)]
    words += ["--max-budget-usd", f"{max(order.cost, 0.0001):.4f}"] if order.cost is not None else []
    return words


def read(line: bytes) -> Iterator[signs.Sign]:
    """Read one line of its output; what is no event of a known shape is a sign of life and no more."""
    return json_events.read(line, _signs)


def _signs(event: dict[str, Any]) -> Iterator[signs.Sign]:
    kind = event.get("type")
    if kind == "system":
        yield from _of_system(event)
    elif kind == "assistant":
        yield from _of_assistant(event)
    elif kind == "user":
        yield from _of_user(event)
    elif kind == "result":
        yield _over(event)
    elif kind == "rate_limit_event":
        told = as_object(event.get("rate_limit_info"))
        if told.get("status") == "rejected" and told.get("isUsingOverage") is not True:
            yield signs.Retry(429, 0.0, number(told.get("resetsAt")))


def _of_system(event: dict[str, Any]) -> Iterator[signs.Sign]:
    kind = event.get("subtype")
    if kind == "init":
        yield signs.Began(signs.conversation(event.get("session_id")))
    elif kind == "permission_denied":
        tool = text(event.get("tool_name"))
        yield signs.Denied(text(event.get("tool_use_id")), tool, (tool,))
    elif kind == "api_retry":
        status, after = int(number(event.get("error_status"))), number(event.get("retry_delay_ms")) / 1000
        yield signs.Retry(status, after, number=int(number(event.get("attempt"))))


def _of_assistant(event: dict[str, Any]) -> Iterator[signs.Sign]:
    message = as_object(event.get("message"))
    usage = as_object(message.get("usage"))
    if refused := _REFUSED.get(text(event.get("error"))):
        yield signs.Retry(refused, 0.0)
    sizes = {name: int(number(usage.get(name))) for name in _TOKENS}
    if any(sizes.values()):
        said = sum(len(quick_json.dumps(block)) for block in _blocks(message))
        weight, more = _weight(usage), said / _CHARACTERS * _WRITTEN
        yield signs.Used(text(message.get("id")), text(message.get("model")), sizes, weight, more)
    for block in _blocks(message):
        if block.get("type") == "tool_use":
            tool, given = text(block.get("name")), as_object(block.get("input"))
            key = digests.of_text(f"{tool}\0{quick_json.dumps(given)}")
            yield signs.Call(text(block.get("id")), _told(tool, given), key, _rules(tool, given))
        elif block.get("type") == "text" and event.get("parent_tool_use_id") is None:
            yield signs.Said(text(block.get("text")))


def _of_user(event: dict[str, Any]) -> Iterator[signs.Sign]:
    for block in _blocks(as_object(event.get("message"))):
        if block.get("type") == "tool_result":
            key = digests.of_text(quick_json.dumps([block.get("content"), block.get("is_error") is True]))
            yield signs.Result(text(block.get("tool_use_id")), key)


def _over(event: dict[str, Any]) -> signs.Over:
    reason = text(event.get("terminal_reason"))
    status = int(number(event.get("api_error_status")))
    is_error, failed = event.get("is_error") is True, status or reason == "api_error"
    word = _ENDS.get(text(event.get("subtype"))) or _ENDS.get(reason) or ("api" if failed else "")
    cost = event.get("total_cost_usd")
    since = event.get("model_usage_since_last_result")
    denials = event.get("permission_denials")
    sizes = as_object(event.get("usage"))
    return signs.Over(
        is_error=is_error,
        reason=word or ("error" if is_error else "done"),
        text=text(event.get("result")),
        cost=number(cost) if isinstance(cost, (int, float)) else None,
        spent=sum(number(one.get("costUSD")) for one in _objects(since)) if isinstance(since, dict) else None,
        prices=_prices(as_object(event.get("modelUsage"))),
        status=status,
        tokens=sum(int(number(sizes.get(name))) for name in _TOKENS),
        denied=tuple(
            signs.Denied(
                text(one.get("tool_use_id")),
                _told(text(one.get("tool_name")), as_object(one.get("tool_input"))),
                _rules(text(one.get("tool_name")), as_object(one.get("tool_input"))),
            )
            for one in (denials if isinstance(denials, list) else ())[:50]
            if isinstance(one, dict)
        ),
    )


def _weight(usage: dict[str, Any]) -> float:
    """Say what an answer's tokens cost, in input tokens; what it says is weighed as it comes, not here."""
    kept = number(usage.get("cache_creation_input_tokens"))
    longer = min(kept, number(as_object(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")))
    read = number(usage.get("cache_read_input_tokens"))
    return number(usage.get("input_tokens")) + read * _READ + (kept - longer) * _KEPT + longer * _KEPT_LONG


def _prices(models: dict[str, Any]) -> dict[str, float]:
    """Say what an input token of each model cost, as far as its sum shows."""
    found = {}
    for model, told in list(models.items())[:20]:
        sizes = as_object(told)
        longer = number(sizes.get("cacheCreationEphemeral1hInputTokens"))
        usage = {
            "input_tokens": sizes.get("inputTokens"),
            "cache_read_input_tokens": sizes.get("cacheReadInputTokens"),
            "cache_creation_input_tokens": sizes.get("cacheCreationInputTokens"),
            "cache_creation": {"ephemeral_1h_input_tokens": longer},
        }
        weight = _weight(usage) + number(sizes.get("outputTokens")) * _WRITTEN
        if weight and number(sizes.get("costUSD")):
            found[model] = number(sizes.get("costUSD")) / weight
    return found


def _objects(value: object) -> list[dict[str, Any]]:
    return [as_object(one) for one in value.values()] if isinstance(value, dict) else []


def _rules(tool: str, given: dict[str, Any]) -> tuple[str, ...]:
    """Give the rules in the host's settings that allow a call; none where Loom refuses it all the same (D68)."""
    if tool != "Bash":
        path = text(given.get("file_path"))
        return () if any(fnmatchcase(path, f"*/.loom/{one}") for one in _OF_LOOM) else (tool,)
    line = text(given.get("command"))
    verdict = tool_calls.judge(line)
    if verdict is not None and verdict.decision == tool_calls.ASK:
        return ()
    begins = [one_line(one, 200).split(" ")[:2] for one in _commands(line)]
    asking = [words for words in begins if words[0] not in _ASKED_OF_NOBODY] or begins
    return tuple(dict.fromkeys(f"Bash({' '.join(words)}:*)" for words in asking if words[0]))[:_MOST_RULES] or (tool,)


def _commands(line: str) -> list[str]:
    """Split a line into its commands, each of which the host wants to be allowed; a line that is not plain is one."""
    if "<<" in line or "$(" in line or "`" in line or "(" in _QUOTED.sub("", line):
        return [line]
    pieces = [""]
    for piece in _PIECE.findall(line):
        if _BETWEEN.fullmatch(piece):
            pieces.append("")
        else:
            pieces[-1] += piece
    return [one for one in map(str.strip, pieces) if one] or [line]


def _told(tool: str, given: dict[str, Any]) -> str:
    said = next((text(given[name]) for name in _WHAT if text(given.get(name))), "")
    return one_line(f"{tool} {said}".strip(), 120)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
