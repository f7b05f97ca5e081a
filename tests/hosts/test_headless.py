"""What a line of an assistant without a person means, and how its turn is begun (D73)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loomctl.drive import signs
from loomctl.drive.process import Order
from loomctl.hosts import headless, table
from loomctl.hosts.headless import claude
from loomctl.kit import quick_json
from loomctl.kit.errors import LoomError
from tests.helpers.tables import each

USAGE = {"input_tokens": 12665, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


def message(*content: dict[str, Any]) -> dict[str, Any]:
    """As the client writes it, shortened."""
    return {"id": "msg_1", "role": "assistant", "model": "opus", "content": list(content), "usage": USAGE}


def read(event: object) -> list[signs.Sign]:
    line = event if isinstance(event, bytes) else json.dumps(event).encode()
    return list(claude.read(line))


def used(*content: dict[str, Any]) -> signs.Used:
    """What is said weighs five times what is read, four characters a token."""
    said = sum(len(quick_json.dumps(one)) for one in content)
    return signs.Used("msg_1", "opus", USAGE, 12665, said / 4 * 5)


USED = used({"type": "text", "text": "hi"})


@each(
    "event, expected",
    [
        ({"type": "system", "subtype": "init", "session_id": "s1"}, [signs.Began("s1")]),
        ({"type": "system", "subtype": "hook_started", "hook_event": "SessionStart"}, []),
        (
            {"type": "assistant", "message": message({"type": "text", "text": "hi"}), "parent_tool_use_id": None},
            [USED, signs.Said("hi")],
        ),
        (
            {"type": "assistant", "message": message({"type": "text", "text": "hi"}), "parent_tool_use_id": "toolu_1"},
            [USED],
        ),
        (
            {"type": "system", "subtype": "permission_denied", "tool_name": "Write", "tool_use_id": "t1",
             "decision_reason_type": "mode", "message": "Permission to use Write has been denied"},
            [signs.Denied("t1", "Write", ("Write",))],
        ),
        (
            {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "retry_delay_ms": 500,
             "error_status": 529},
            [signs.Retry(529, 0.5, number=1)],
        ),
        (
            {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1795707942}},
            [signs.Retry(429, 0.0, 1795707942.0)],
        ),
        ({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}}, []),
        ({"type": "assistant", "error": "authentication_failed", "message": {"content": []}}, [signs.Retry(401, 0.0)]),
        ({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "isUsingOverage": True}}, []),
        (b"no json", []),
        (b"[1, 2]", []),
        (b"\xff\xfe", []),
        ({"type": "assistant", "message": "no object"}, []),
        ({"type": "assistant", "message": {"content": [1, None, {"type": "tool_use"}]}}, None),
        ({"type": "user", "message": {"content": [{"type": "tool_result"}]}}, None),
    ],
)  # fmt: skip
def test_a_line_is_read(event: object, expected: list[signs.Sign] | None) -> None:
    found = read(event)
    assert expected is None or found == expected


def test_a_call_and_its_result_are_known_by_what_they_say() -> None:
    def called(number: int, **given: Any) -> signs.Call:
        block = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": given}
        (_, found) = read({"type": "assistant", "message": message(block)})
        assert isinstance(found, signs.Call)
        return found

    one, two, other = called(1, command="npm test -- a"), called(2, command="npm test -- a"), called(3, command="ls")
    assert one.key == two.key != other.key
    assert (one.what, one.rules, other.rules) == ("Bash npm test -- a", ("Bash(npm test:*)",), ("Bash(ls:*)",))


@each(
    ("tool", "given", "rule"),
    [
        ("Write", {"file_path": "/p/a.txt"}, "Write"),
        ("Bash", {"command": "loomctl approve shop-258"}, ""),  # a person's
        ("Bash", {"command": "cd /p && loomctl tell shop-258 'you may'"}, ""),
        ("Bash", {"command": "loomctl show shop-258 | head"}, "Bash(loomctl show:*)"),
        ("Write", {"file_path": "/p/.loom/local/x"}, ""),  # Loom's
        ("Edit", {"file_path": "/p/.loom/runs/258/state.json"}, ""),
        ("Edit", {"file_path": "/p/.loom/workflows/core.yaml"}, "Edit"),
    ],
)
def test_what_loom_refuses_anyway_has_no_rule(tool: str, given: dict[str, str], rule: str) -> None:
    denied = {"tool_use_id": "t1", "tool_name": tool, "tool_input": given}
    (over,) = read({"type": "result", "permission_denials": [denied]})
    assert isinstance(over, signs.Over)
    assert over.denied[0].rules == ((rule,) if rule else ())


@each(
    ("line", "rules"),
    [
        ("cd sub && npm test", ["npm test"]),  # a `cd` needs no rule, and none for it allows what is behind it
        ("cd sub && npm test 2>&1 | tail -5; echo done", ["npm test"]),
        ("make lint\nnpm run build && npm run build -- x", ["make lint", "npm run"]),
        ("git commit -m 'a && b; c' || make 'x", ["git commit", "make 'x"]),
        ("npm test > out.txt 2>&1 &", ["npm test"]),
        ("cat /etc/shadow | head", ["cat /etc/shadow", "head"]),  # nothing else can have been refused
        ("a; b; c; d; e; f; g", ["a", "b", "c", "d", "e"]),
        ("cat <<'E' > x && rm y\nz\nE", ["cat <<'E'"]),  # these are not read
        ("for f in $(ls); do rm $f; done", ["for f"]),
        (" ; ", [";"]),
    ],
)
def test_each_command_of_a_line_needs_a_rule_of_its_own(line: str, rules: list[str]) -> None:
    denied = {"tool_use_id": "t1", "tool_name": "Bash", "tool_input": {"command": line}}
    (over,) = read({"type": "result", "permission_denials": [denied]})
    assert isinstance(over, signs.Over)
    assert over.denied[0].rules == tuple(f"Bash({one}:*)" for one in rules)


@each(
    "result, expected",
    [
        ({"subtype": "success", "is_error": False, "total_cost_usd": 0.25, "result": "done"},
         signs.Over(is_error=False, reason="done", text="done", cost=0.25)),
        ({"subtype": "error_max_budget_usd", "is_error": True, "terminal_reason": "budget_exhausted",
          "total_cost_usd": 0.108}, signs.Over(is_error=True, reason="budget", cost=0.108)),
        ({"subtype": "success", "is_error": False, "total_cost_usd": 0.3, "model_usage_since_last_result": {
            "opus": {"costUSD": 0.2}, "haiku": {"costUSD": 0.05}}, "modelUsage": {"opus": {
                "inputTokens": 100, "outputTokens": 10, "cacheReadInputTokens": 200, "cacheCreationInputTokens": 24,
                "cacheCreationEphemeral1hInputTokens": 0, "costUSD": 0.3}, "haiku": {"costUSD": 0.05}, "x": 3}},
         signs.Over(is_error=False, reason="done", cost=0.3, spent=0.25, prices={"opus": 0.3 / 200})),
        ({"subtype": "success", "is_error": True, "terminal_reason": "api_error", "result": "refused"},
         signs.Over(is_error=True, reason="api", text="refused")),
        ({"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_tools"},
         signs.Over(is_error=True, reason="interrupted")),
        ({"subtype": "success", "is_error": True, "api_error_status": 400, "result": "bad"},
         signs.Over(is_error=True, reason="api", text="bad", status=400)),
        ({"subtype": "success", "total_cost_usd": "much", "permission_denials": "no list", "usage": [1]},
         signs.Over(is_error=False, reason="done")),
        ({"subtype": "success", "total_cost_usd": float("inf")}, signs.Over(is_error=False, reason="done", cost=0.0)),
        ({"subtype": "success", "permission_denials": [
            {"tool_name": "Write", "tool_use_id": "t1", "tool_input": {"file_path": "/a"}}, 3]},
         signs.Over(is_error=False, reason="done", denied=(signs.Denied("t1", "Write /a", ("Write",)),))),
    ],
)  # fmt: skip
def test_a_result_is_read(result: dict[str, Any], expected: signs.Over) -> None:
    assert read({"type": "result", **result}) == [expected]


def test_a_turn_takes_the_run_up_in_its_conversation_and_bypasses_nothing() -> None:
    order = Order("id", "shop-1", "/p", "uuid", cost=1.5, allow=("Bash(npm test:*)",))
    first, later = claude.command(order), claude.command(order._replace(goes_on=True))
    assert first[:3] == ["claude", "-p", "/loom:resume shop-1"]
    assert first[first.index("--session-id") + 1] == later[later.index("--resume") + 1] == "uuid"
    assert first[first.index("--permission-mode") + 1] == "dontAsk"
    assert first[first.index("--max-budget-usd") + 1] == "1.5000"
    allowed = first[first.index("--allowedTools") + 1 :]
    assert {"Edit(./**)", "Bash(loomctl:*)", "Bash(npm test:*)"} <= set(allowed)
    refused = first[first.index("--disallowedTools") + 1 :]
    assert {"Edit(./.loom/local/**)", "Edit(./.loom/runs/*/state*.json)"} <= set(refused)
    assert not any("dangerously" in word for word in first)


def test_a_host_that_cannot_be_driven_is_refused() -> None:
    with pytest.raises(LoomError) as refused:
        headless.of("nowhere")
    assert refused.value.code == "NO_DRIVER"


def test_an_assistant_that_is_started_on_its_own_inherits_settings_and_no_session() -> None:
    kept = {"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "LOOM_HOSTNAME": "m", "LOOM_COMMAND_WAIT": "5"}
    around = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s", "CLAUDE_PID": "1", "CODEX_THREAD_ID": "t"}
    own = {"LOOM_DRIVEN": "r w", "LOOM_HOST": "codex", "LOOM_RUN_ID": "r", "LOOM_COMMAND_KEY": "k"}
    assert table.for_another({**kept, **around, **own}) == kept
