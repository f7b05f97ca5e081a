"""What a line of Codex CLI without a person means, and how its turn is begun (D73); lines as 0.169.0 printed them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.drive import signs
from loomctl.drive.process import Order
from loomctl.hosts import headless
from loomctl.hosts.dialects import codex as dialect
from loomctl.hosts.headless import codex
from loomctl.kit.errors import LoomError
from tests.helpers.tables import each

THREAD = "01a218a0-e601-79b1-9abd-c120af7417e6"
USAGE = {"input_tokens": 21528, "cached_input_tokens": 9, "cache_write_input_tokens": 0, "output_tokens": 20,
         "reasoning_output_tokens": 3}  # fmt: skip
AGAIN = "Reconnecting... 1/5 (unexpected status 401 Unauthorized: bad key, url: http://127.0.0.1:1/v1/responses)"
LIMIT = "You\u2019ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), … or try again at {}."
BUSY = "We\u2019re currently experiencing high demand, which may cause temporary errors."
SEALED = "touch: cannot touch '/etc/x': Read-only file system\n"
UNCONNECTED = "urllib.error.URLError: <urlopen error [Errno 1] Operation not permitted>\n"


def read(event: object) -> list[signs.Sign]:
    line = event if isinstance(event, bytes) else json.dumps(event).encode()
    return list(codex.read(line))


def ran(command: str, code: int | None, output: str, *, completed: bool = True) -> dict[str, Any]:
    item = {"id": "item_4", "type": "command_execution", "command": f"/bin/bash -lc '{command}'"}
    status = "in_progress" if code is None else "failed" if code else "completed"
    item |= {"aggregated_output": output, "exit_code": code, "status": status}  # type: ignore[dict-item]
    return {"type": "item.completed" if completed else "item.started", "item": item}


@each(
    "event, expected",
    [
        ({"type": "thread.started", "thread_id": THREAD}, [signs.Began(THREAD)]),
        ({"type": "turn.started"}, []),
        ({"type": "item.completed", "item": {"id": "item_2", "type": "error", "message": "Model metadata …"}}, []),
        (
            {"type": "item.completed", "item": {"id": "item_3", "type": "agent_message", "text": "I look."}},
            [signs.Said("I look.")],
        ),
        ({"type": "item.completed", "item": {"id": "item_3", "type": "reasoning", "text": "so"}}, []),
        ({"type": "error", "message": AGAIN}, [signs.Retry(401, 0.0, number=1)]),
        ({"type": "error", "message": f"Reconnecting... 5/5 ({BUSY})"}, [signs.Retry(503, 0.0, number=5)]),
        ({"type": "error", "message": BUSY}, []),  # what failed the turn is told again
        (
            {"type": "turn.completed", "usage": USAGE},
            [signs.Over(is_error=False, reason="done", tokens=21548, sums=True)],
        ),
        (
            {"type": "turn.completed", "usage": {"input_tokens": "many", "output_tokens": float("nan")}},
            [signs.Over(is_error=False, reason="done", sums=True)],
        ),
        (b"no json", []),
        (b"[1, 2]", []),
        (b"\xff\xfe", []),
        (b"[" * 100_000, []),
        ({"type": "item.started", "item": "no object"}, []),
        ({"type": "item.completed", "item": {"type": "file_change", "changes": [1, None, {"path": 2}]}}, None),
        ({"type": "turn.failed", "error": [1]}, [signs.Over(is_error=True, reason="api")]),
    ],
)
def test_a_line_is_read(event: object, expected: list[signs.Sign] | None) -> None:
    found = read(event)
    assert expected is None or found == expected


def test_a_call_and_its_result_are_known_by_what_they_say() -> None:
    (begun,) = read(ran("npm test", None, "", completed=False))
    (other,) = read(ran("npm test -- a", None, "", completed=False))
    (ended,) = read(ran("npm test", 1, "1 failed\n"))
    (again,) = read(ran("npm test", 1, "1 failed\n"))
    (well,) = read(ran("npm test", 0, "1 passed\n"))
    assert isinstance(begun, signs.Call)
    assert isinstance(other, signs.Call)
    assert (begun.id, begun.what) == ("item_4", "npm test")
    assert begun.key != other.key
    assert ended == again != well
    changed = {"id": "item_3", "type": "file_change", "changes": [{"path": "/p/n.txt", "kind": "add"}]}
    (call,) = read({"type": "item.started", "item": changed})
    assert isinstance(call, signs.Call)
    assert call.what == "apply_patch /p/n.txt"


@each(
    "code, output, is_denied",
    [
        (1, SEALED, True),
        (1, UNCONNECTED, True),
        (0, SEALED, False),
        (1, "no such test\n", False),
        (None, SEALED, False),
    ],
)
def test_a_command_that_its_sandbox_shuts_out_was_refused(code: int | None, output: str, is_denied: bool) -> None:
    *denied, result = read(ran("touch /etc/x", code, output))
    assert isinstance(result, signs.Result)
    assert denied == ([signs.Denied("item_4", "touch /etc/x")] if is_denied else [])


@each(
    "message, status",
    [
        ('{"error": {"message": "no", "type": "invalid_request_error", "code": "x"}}', 400),
        ("unexpected status 401 Unauthorized: bad key, url: http://127.0.0.1:1/v1/responses", 401),
        ("unexpected status 403 Forbidden: bad key", 403),
        ("exceeded retry limit, last status: 429 Too Many Requests", 429),
        ("Quota exceeded. Check your plan and billing details.", 429),
        (LIMIT.format("6:16 PM"), 429),
        (BUSY, 503),
        ("stream disconnected before completion", 0),
        ("{" * 50_000, 0),
    ],
)
def test_a_failed_turn_says_what_the_api_said(message: str, status: int) -> None:
    (over,) = read({"type": "turn.failed", "error": {"message": message}})
    assert isinstance(over, signs.Over)
    assert (over.is_error, over.status) == (True, status)


def test_a_plans_limit_lifts_at_the_minute_that_is_told() -> None:
    def lifts(at: str) -> float:
        (over,) = read({"type": "turn.failed", "error": {"message": LIMIT.format(at)}})
        assert isinstance(over, signs.Over)
        return over.until

    now = time.time()
    for ahead in (3_600, 23 * 3_600):
        told = time.strftime("%I:%M %p", time.localtime(now + ahead)).lstrip("0")
        assert 0 <= lifts(told) - now - ahead <= 3_660  # a clock may be set between the two
    assert lifts("Nov 28th, 2036 6:16 PM") == time.mktime((2036, 11, 28, 18, 17, 0, 0, 0, -1))
    assert lifts("Nov 28th, 2036 12:05 AM") == time.mktime((2036, 11, 28, 0, 6, 0, 0, 0, -1))
    assert lifts("some time") == 0


def test_a_turn_takes_the_run_up_in_its_conversation_and_bypasses_nothing() -> None:
    order = Order("id", "shop-1", "/p", THREAD, mark="id secret")
    first, later = codex.command(order), codex.command(order._replace(goes_on=True))
    assert first[:2] == ["codex", "exec"]
    assert "resume" not in first
    assert later[-3:] == ["resume", THREAD, "$loom:loom-resume shop-1"]
    assert first[-1] == later[-1]
    assert first[first.index("--sandbox") + 1] == "workspace-write"
    assert 'approval_policy="never"' in first
    assert 'shell_environment_policy.set.LOOM_DRIVEN="id secret"' in first
    assert not any("dangerously" in word for word in first)
    assert "--add-dir" not in codex.command(order._replace(store="/p/.loom"))
    elsewhere = codex.command(order._replace(store="/main/.loom"))
    assert elsewhere[elsewhere.index("--add-dir") + 1] == "/main/.loom"


@each(
    "cost, allow, code",
    [(1.0, (), "NO_COST"), (None, ("Write",), "NO_RULES"), (None, (), "")],
)
def test_what_it_cannot_keep_is_refused(cost: float | None, allow: tuple[str, ...], code: str) -> None:
    if not code:
        headless.refuse_unheld("codex", cost=cost, allow=allow)
        return
    with pytest.raises(LoomError) as refused:
        headless.refuse_unheld("codex", cost=cost, allow=allow)
    assert refused.value.code == code
    headless.refuse_unheld("claude-code", cost=cost, allow=allow)


# ---- What its rollout tells of refusals, which are in none of these lines.


def response(**payload: Any) -> str:
    return json.dumps({"timestamp": "2026-11-26T16:13:23.774Z", "type": "response_item", "payload": payload})


def said_by_user(text: str) -> str:
    return response(type="message", role="user", content=[{"type": "input_text", "text": text}])


def called(number: int, command: str, output: str) -> list[str]:
    call = response(type="function_call", name="exec_command", call_id=f"call_{number}",
                    arguments=json.dumps({"cmd": command, "yield_time_ms": 30000}))  # fmt: skip
    return [call, response(type="function_call_output", call_id=f"call_{number}", output=output)]


def printed(code: int, output: str) -> str:
    return f"Chunk ID: 4df943\nWall time: 0.0 seconds\nProcess exited with code {code}\nOutput:\n{output}"


REJECTED = (
    "exec_command failed: CreateProcess { message: \"Rejected(\\\"`/bin/bash -lc 'rm -rf b'` rejected: rm -f style "
    'commands are not permitted. Use a safer approach\\")" }'
)
OUTSIDE = "patch rejected: writing outside of the project; rejected by user approval settings"


@each(
    "lines, expected",
    [
        ([said_by_user("go"), *called(1, "rm -rf b", REJECTED)], ["rm -rf b"]),
        ([said_by_user("go"), *called(1, "apply_patch <<'E'\nx", OUTSIDE)], ["apply_patch <<'E' x"]),
        ([said_by_user("go"), *called(1, "git commit", printed(128, "fatal: … Read-only file system\n"))],
         ["git commit"]),
        ([said_by_user("go"), *called(1, "cat log", printed(0, "Read-only file system\n"))], []),
        ([said_by_user("go"), *called(1, "false", printed(1, ""))], []),
        ([said_by_user("go"), *called(1, "x", "Process exited with code 1")], []),
        # Another prompt begins anew; what sends the turn on is none.
        ([said_by_user("go"), *called(1, "rm -rf b", REJECTED), said_by_user("and now")], []),
        ([said_by_user("go"), *called(1, "rm -rf b", REJECTED), said_by_user("<hook_prompt id='x'>on</hook_prompt>")],
         ["rm -rf b"]),
        ([said_by_user("go"), response(type="custom_tool_call", name="apply_patch", call_id="c", input="*** Begin"),
          response(type="custom_tool_call_output", call_id="c", output=OUTSIDE)], ["apply_patch"]),
        (["{}", "[]", response(type="function_call_output", call_id=3, output=[{"text": OUTSIDE}])], []),
    ],
)  # fmt: skip
def test_its_record_names_what_was_refused(lines: list[str], expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "rollout.jsonl"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    assert dialect.Transcript(str(path)).refused() == expected


def test_what_is_nested_too_deeply_is_a_sign_of_life_and_no_more() -> None:
    deep = '{"a":' * 1500 + "1" + "}" * 1500
    call = f'{{"type":"item.started","item":{{"id":"a","type":"mcp_tool_call","arguments":{deep}}}}}'
    assert list(codex.read(call.encode())) == []
    assert list(codex.read(b"[" * 200_000)) == []
