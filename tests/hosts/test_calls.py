"""When hooks must have been called, as the end of a transcript shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loomctl.hosts.protocol.transcript import Transcript
from loomctl.hosts.setup import claude

BASE = 1_795_000_000


def stamp(second: int) -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(BASE + second)) + ".250Z"


def user(second: int, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "timestamp": stamp(second), "message": {"role": "user", "content": content}, **more}


def said(second: int, *blocks: dict[str, Any], stop: str = "end_turn", model: str = "m", **more: Any) -> dict[str, Any]:
    message = {"id": f"m{second}", "model": model, "content": list(blocks), "stop_reason": stop}
    return {"type": "assistant", "timestamp": stamp(second), "message": message, **more}


def use(name: str = "Bash", ident: str = "t1") -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": name, "input": {}}


def result(ident: str = "t1", *, is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": "x", "is_error": is_error}


def boundary(second: int, **more: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": "compact_boundary", "timestamp": stamp(second), **more}


COMPACTED = dict.fromkeys(("session-start", "pre-compact", "post-compact"), 20)
START = [user(0, "hello")]
BEGUN = {"session-start": 0, "user-prompt-submit": 0}
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, int]]] = {
    "nothing": ([], {}),
    "a prompt": (START, BEGUN),
    "a turn": (
        [*START, said(5, use(), stop="tool_use"), user(9, [result()]), said(12, {"type": "text", "text": "ok"})],
        {"session-start": 0, "user-prompt-submit": 0, "pre-tool-use": 5, "post-tool-use": 9, "stop": 12},
    ),
    "a tool that is no shell": (
        [*START, said(5, use("Read"), stop="tool_use"), user(9, [result()])],
        {"session-start": 0, "user-prompt-submit": 0, "post-tool-use": 9},
    ),
    "a call that failed, or was refused": (
        [*START, said(5, use(), stop="tool_use"), user(9, [result(is_error=True)])],
        BEGUN,
    ),
    "a call that still runs": (
        [*START, said(5, use(), stop="tool_use")],
        BEGUN,
    ),
    "a turn that was broken off": (
        [*START, said(5, {"type": "text", "text": "I"}, stop=""), user(6, "[Request interrupted by user]")],
        BEGUN,
    ),
    "the host in the assistant's name": (
        [*START, said(5, model="<synthetic>")],
        BEGUN,
    ),
    "a command of the host's own": (
        [
            *START,
            user(7, "<command-name>/model</command-name>"),
            user(8, "<local-command-stdout>x</local-command-stdout>"),
        ],
        BEGUN,
    ),
    "a compaction": (
        [
            *START,
            boundary(20, version="2.1.330"),
            user(21, "the summary", isCompactSummary=True),
        ],
        {"user-prompt-submit": 0, **COMPACTED},
    ),
    "a compaction by the first release that tells of its end": (
        [*START, boundary(20, version="2.1.76")],
        {"user-prompt-submit": 0, **COMPACTED},
    ),
    "a compaction by the release before": (
        [*START, boundary(20, version="2.1.75")],
        {"session-start": 20, "user-prompt-submit": 0},
    ),
    "a compaction by a release to come": (
        [*START, boundary(20, version="3.0.0-beta.1")],
        {"user-prompt-submit": 0, **COMPACTED},
    ),
    "compactions by nobody knows what": (
        [*START, *(boundary(20, version=said) for said in (None, "", "new", "2.x", "²", [2, 1, 330], "9" * 5000))],
        {"session-start": 20, "user-prompt-submit": 0},
    ),
    "the host's own additions": ([*START, user(7, "x", isMeta=True)], BEGUN),
    "a subagent": (
        [*START, said(30, isSidechain=True), user(31, "do it", isSidechain=True)],
        BEGUN,
    ),
    "other shapes": (
        [
            *START,
            {"type": "assistant", "timestamp": stamp(3), "message": "x"},
            {"type": "user", "timestamp": 5, "message": {"content": 7}},
            {"type": "user", "timestamp": stamp(3), "message": {"content": [None, 1, {"type": "text"}]}},
            {"type": "assistant", "timestamp": "never", "message": {"stop_reason": "end_turn", "content": []}},
        ],
        BEGUN,
    ),
}


def test_what_was_called(tmp_path: Path) -> None:
    for name, (entries, expected) in CASES.items():
        path = tmp_path / "t.jsonl"
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        assert claude.calls_of(str(path)) == {event: float(BASE + at) for event, at in expected.items()}, name
        assert Transcript(None).another(str(path)).called() == claude.calls_of(str(path))


def test_damage_shows_nothing(tmp_path: Path) -> None:
    for data in [b"", b"\n\n", b"{", b'"timestamp"\n', b'["timestamp"]\n', b"\xff" * 99, b"[" * 9999]:
        path = tmp_path / "t.jsonl"
        path.write_bytes(data)
        assert claude.calls_of(str(path)) == {}
        assert claude.calls_of(str(tmp_path / "none")) == claude.calls_of(None) == {}


def test_of_a_long_conversation_its_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    noise = json.dumps({"type": "attachment", "timestamp": stamp(1), "text": "x" * 1000}) + "\n"
    path.write_text(json.dumps(START[0]) + "\n" + noise * 3000 + json.dumps(user(99, "go on")) + "\n")
    assert claude.calls_of(str(path)) == {"session-start": BASE, "user-prompt-submit": BASE + 99}
