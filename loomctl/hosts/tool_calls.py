"""One tool call as somebody tells it: a host's hook event after the call, or `{"tool", "args", "result"}`."""

from __future__ import annotations

import json

from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FAILED = "PostToolUseFailure"


class ToolCall(NamedTuple):
    """A call that has ended. error: what the host said of one that failed, else empty; id: the host's, or empty."""

    tool_name: str
    args: Any
    result: Any
    error: str
    id: str


def read(told: object) -> ToolCall:
    """Read either form. Raises NO_TOOL_CALL, which says what is missing."""
    event = told if isinstance(told, dict) else {}
    is_an_event = "tool_name" in event
    name = event.get("tool_name" if is_an_event else "tool")
    if not isinstance(name, str) or not name.strip():
        raise LoomError(
            "NO_TOOL_CALL",
            "this is no tool call",
            where="standard input" + ("" if event else ": $"),
            why="it takes an object with tool_name, tool_input and tool_response or error; or with tool, args, result",
            hint="loomctl reduce --help",
        )
    error = _said(event.get("error"))
    if is_an_event:
        failed = event.get("hook_event_name") == FAILED
        error = error or ("failed" if failed else "")
        args, result, step_id = event.get("tool_input"), event.get("tool_response"), event.get("tool_use_id")
    else:
        args, result, step_id = event.get("args"), event.get("result"), event.get("id")
    return ToolCall(name, args, result, error, step_id if isinstance(step_id, str) else "")


def _said(error: object) -> str:
    if error in (None, "", False):
        return ""
    return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
