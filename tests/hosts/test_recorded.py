"""What is asked of a conversation costs what its live part does, however long the session was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.hosts.dialects import codex, copilot, gemini, qwen
from loomctl.hosts.protocol import transcript
from loomctl.hosts.protocol.transcript import Recorded
from loomctl.hosts.protocol.transcript import Transcript as Claude
from loomctl.kit import json_lines

SLIP, OLDER, WORDS = "a" * 16, "b" * 16, "words " * 400
MARK, EARLIER = f"the run\n\nLoom slip {SLIP}", f"the run\n\nLoom slip {OLDER}"
Entry = dict[str, Any]


def at(number: int) -> str:
    return f"2026-11-26T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"


# Each gives a prompt of a turn, an answer, and what is written of a compaction.


def of_claude(number: int) -> tuple[Entry, ...]:
    ids = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}", "timestamp": at(number)}
    said = {"role": "assistant", "id": f"m{number}", "content": [{"type": "text", "text": f"said {number}"}]}
    return (
        {**ids, "type": "user", "promptId": f"t{number}", "message": {"content": MARK if number > 1 else EARLIER}},
        {**ids, "type": "assistant", "message": said},
        {**ids, "parentUuid": None, "type": "system", "subtype": "compact_boundary"},
    )


def of_codex(number: int) -> tuple[Entry, ...]:
    def message(role: str, text: str) -> Entry:
        turn = {"internal_chat_message_metadata_passthrough": {"turn_id": f"t{number}"}}
        content = [{"type": "input_text", "text": text}]
        payload = {"type": "message", "role": role, "content": content, **turn}
        return {"timestamp": at(number), "type": "response_item", "payload": payload}

    compacted = {"timestamp": at(number), "type": "compacted", "payload": {"message": "in short"}}
    return message("user", MARK if number > 1 else EARLIER), message("assistant", f"said {number}"), compacted


def of_copilot(number: int) -> tuple[Entry, ...]:
    def event(kind: str, **data: object) -> Entry:
        return {"type": kind, "timestamp": at(number), "data": data}

    given = {"content": "go on", "transformedContent": MARK if number > 1 else EARLIER}
    return (
        event("user.message", **given, messageId=f"t{number}"),
        event("assistant.message", content=f"said {number}", originatingMessageId=f"t{number}"),
        event("session.compaction_start"),
        event("session.compaction_complete", success=True, summaryContent="in short"),
    )


def of_gemini(number: int) -> tuple[Entry, ...]:
    ids = {"id": f"t{number}", "timestamp": at(number)}
    snapshot = {"id": "s", "timestamp": at(number), "type": "user", "content": [{"text": "<state_snapshot>in short"}]}
    return (
        {**ids, "type": "user", "content": [{"text": "go on"}, {"text": MARK if number > 1 else EARLIER}]},
        {**ids, "type": "gemini", "content": f"said {number}"},
        {"$set": {"messages": [snapshot]}},
    )


def of_qwen(number: int) -> tuple[Entry, ...]:
    def line(kind: str, *texts: str) -> Entry:
        return {"type": kind, "timestamp": at(number), "message": {"parts": [{"text": text} for text in texts]}}

    history = [{"parts": [{"text": "in short"}]}]
    payload = {"subtype": "chat_compression", "systemPayload": {"compressedHistory": history}}
    return (
        line("user", "go on", MARK if number > 1 else EARLIER),
        line("assistant", f"said {number}"),
        {"type": "system", "timestamp": at(number), **payload},
    )


HOSTS: dict[str, tuple[Callable[[str | None], Recorded], Callable[[int], tuple[Entry, ...]]]] = {
    "claude": (Claude, of_claude),
    "codex": (codex.Transcript, of_codex),
    "copilot": (copilot.Transcript, of_copilot),
    "gemini": (gemini.Transcript, of_gemini),
    "qwen": (qwen.Transcript, of_qwen),
}


def write(path: Path, entries: Callable[[int], tuple[Entry, ...]], turns: int) -> None:
    """Write a conversation that was compacted before its last turn but three."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(1, turns + 1):
            prompt, said, *compaction = entries(number)
            for entry in (*(compaction if number == turns - 3 else []), prompt, {"type": "other", "it": WORDS}, said):
                file.write(json.dumps(entry) + "\n")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the bytes that are read, in blocks that are small."""
    sizes: list[int] = []
    plain = os.pread

    def counted(descriptor: int, size: int, place: int) -> bytes:
        data = plain(descriptor, size, place)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(json_lines, "BLOCK", 4096)
    monkeypatch.setattr(json_lines, "OVER", 512)
    monkeypatch.setattr(transcript, "_CLOSE", 10 * 4096)
    monkeypatch.setattr(os, "pread", counted)
    return sizes


def cost_of_each(opened: Callable[[], Recorded], turns: int, read: list[int]) -> dict[str, int]:
    """Ask what hooks ask, and give how many bytes each question read."""
    last = f"said {turns}"
    asks: dict[str, tuple[Callable[[Recorded], object], object]] = {
        "held": (lambda seen: seen.holds([SLIP]), {SLIP}),
        "taken away": (lambda seen: seen.holds([OLDER]), set()),
        "compacted": (lambda seen: seen.boundary() is not None, True),
        "said": (lambda seen: seen.said_since(at(turns)), last),
        "began": (lambda seen: seen.began_with_loom(f"t{turns}", ()), False),
        "ended": (lambda seen: seen.await_turn("", last), None),
    }
    cost: dict[str, int] = {}
    for name, (ask, answer) in asks.items():
        read.clear()
        assert ask(opened()) == answer, name
        cost[name] = sum(read)
    return cost


@pytest.mark.parametrize(("kind", "entries"), HOSTS.values(), ids=HOSTS)
def test_a_long_session_costs_no_more_than_a_short_one(
    tmp_path: Path, read: list[int], kind: Callable[[str | None], Recorded], entries: Any
) -> None:
    path = tmp_path / "session.jsonl"
    costs: list[dict[str, int]] = []
    for turns in (12, 900):
        write(path, entries, turns)
        costs.append(cost_of_each(lambda: kind(str(path)), turns, read))
    short, long = costs
    assert not {name for name in short if long[name] > 3 * short[name] + 4 * json_lines.BLOCK}
