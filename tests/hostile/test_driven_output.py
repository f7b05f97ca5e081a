"""A driven assistant that prints what no driver expects: its run goes on, and what it costs counts (D73, D75)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.fake_assistant import FakeAssistant


@pytest.fixture
def fake(fake: FakeAssistant) -> FakeAssistant:
    """One beside a run that has begun."""
    fake.scene.begin(session=None)
    return fake


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def block(**given: Any) -> str:
    return json.dumps({"type": "assistant", "message": {"id": "m", "content": [{"type": "tool_use", **given}]}})


LINES = {
    "deep JSON": "[" * 200_000,
    "a deep event": '{"type":"assistant","message":' + "[" * 100_000 + "]" * 100_000 + "}",
    "a deep call": block(id="a", name="Bash", input={}).replace("{}", nested(1500), 1),
    "half a character": block(id="\ud800", name="\udfff", input={"command": "\ud800"}),
    "a refusal of half a character": json.dumps(
        {"type": "result", "result": "\ud800", "total_cost_usd": 0.1, "session_id": "\ud800", "permission_denials": []}
    ),
    "another conversation": json.dumps({"type": "system", "subtype": "init", "session_id": "--help"}),
    "no numbers": '{"type":"result","subtype":"success","total_cost_usd":NaN,"usage":{"input_tokens":-1e999}}',
    "numbers that are too large": '{"type":"assistant","message":{"usage":{"input_tokens":' + "9" * 5000 + "}}}",
    "tokens of a million years": '{"type":"assistant","message":{"id":"m","usage":{"output_tokens":1e14}}}',
    "a wait for ever": '{"type":"system","subtype":"api_retry","error_status":429.5,"retry_delay_ms":"soon"}',
    "lists for objects": '{"type":"assistant","message":{"content":[[],{"type":"tool_use","input":[],"name":{}}]}}',
    "no text": "\0\x1b]0;x\x07\xff\xfe",
    "no line": "x" * (70 << 20),
}


@pytest.mark.slow(quick=2)
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_whatever_is_printed_the_run_goes_on(fake: FakeAssistant, line: str) -> None:
    """What it does counts: the state says so, and no line of its can stop its driver."""
    (fake.folder / "line").write_bytes(line.encode("utf-8", "surrogateescape") + b"\n")
    fake.play(f"cat '{fake.folder}/line'; ends; case $turn in 1) exit;; esac; ends; over 0.25")
    out, err = fake.drives(fake.scene.handle)
    assert "the run is completed" in out
    assert "Traceback" not in err
    places = json.loads((fake.scene.run_dir / "state.json").read_text(encoding="utf-8"))
    assert places["driving"]["cost"] >= 0.25 - 0.1


def test_the_name_of_a_conversation_is_no_option(fake: FakeAssistant) -> None:
    said = json.dumps({"type": "system", "subtype": "init", "session_id": "--dangerously-skip-permissions"})
    (fake.folder / "line").write_text(f"{said}\n", encoding="utf-8")
    fake.play(f"echo \"$session\" >> '{fake.folder}/sessions'; cat '{fake.folder}/line'; ends; over 0.25")
    fake.drives(fake.scene.handle)
    first, second = (fake.folder / "sessions").read_text(encoding="utf-8").split()
    assert first == second
    assert not first.startswith("-")


def test_each_result_of_a_process_is_paid(fake: FakeAssistant) -> None:
    """One that is called back by what works in the background gives a result each time, of what it spent since."""
    since = '"model_usage_since_last_result":{"m":{"costUSD":%s}}'
    one = '{"type":"result","subtype":"success","is_error":false,"total_cost_usd":%s,' + since + "}"
    (fake.folder / "lines").write_text("\n".join([one % (0.5, 0.5), one % (0.75, 0.25)]) + "\n", encoding="utf-8")
    fake.play(f"ends; ends; cat '{fake.folder}/lines'")
    fake.drives(fake.scene.handle)
    assert fake.scene.state["driving"]["cost"] == 0.75
