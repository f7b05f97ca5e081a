"""OpenCode: events as its plugin sends them, answers as it takes them, its database, the one file to install (D70)."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.hosts import table
from loomctl.hosts.asking import Answer, written
from loomctl.hosts.dialects import opencode
from loomctl.hosts.setup import opencode as setup
from loomctl.runs.machine.local import Local
from tests.helpers.scenes import CHECKOUT, SESSION, Ended, Scene, artifact, run

FIXTURES = Path(__file__).parent / "fixtures" / "opencode"
EVENTS = {one["word"]: one["event"] for one in json.loads((FIXTURES / "events.json").read_text(encoding="utf-8"))}
CONVERSATION: dict[str, Any] = json.loads((FIXTURES / "conversation.json").read_text(encoding="utf-8"))
ID: str = CONVERSATION["session"]
OLD_SLIP, SLIP = "e5daf42aca49503c", "e245c4411f9fac3f"
TURN = CONVERSATION["messages"][0][0]
LAUNCHER = str(CHECKOUT / "bin" / "loomctl")
SENTENCE = "Stars never set."


def database(folder: Path, messages: list[Any], parts: list[Any]) -> Path:
    """Write a database as the host has it; rows are those of the fixture."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "opencode.db"
    opened = sqlite3.connect(path)
    opened.execute("PRAGMA journal_mode = WAL")
    columns = "session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT"
    opened.execute(f"CREATE TABLE message (id TEXT PRIMARY KEY, {columns})")
    opened.execute(f"CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, {columns})")
    for one, at, data in messages:
        opened.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (one, ID, at, at, text(data)))
    for one, message, at, data in parts:
        opened.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", (one, message, ID, at, at, text(data)))
    opened.commit()
    opened.close()
    return path


def text(data: object) -> str:
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def seen(tmp_path: Path, until: int | None = None) -> opencode.Transcript:
    """Read the recorded conversation, of which so many messages stand there."""
    messages = CONVERSATION["messages"][:until]
    held = {one[0] for one in messages}
    parts = [one for one in CONVERSATION["parts"] if one[1] in held]
    return opencode.Transcript(str(database(tmp_path / "ö #1?", messages, parts) / ID))


def test_events_come_as_the_protocols_and_get_the_place_of_their_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for word, event in EVENTS.items():
        assert opencode.read(word, event) == event
    path = database(tmp_path / "opencode", [], [])
    for word, event in EVENTS.items():
        assert opencode.read(word, event) == {**event, "transcript_path": f"{path}/{event['session_id']}"}
    assert {event["hook_event_name"].lower() for event in EVENTS.values()} == {word.replace("-", "") for word in EVENTS}


def test_answers_are_the_plugins() -> None:
    answer = Answer("Stop", "for the assistant", "for the user", goes_on="go on")
    said = {"text": "for the assistant", "line": "Loom: for the user", "goes_on": "go on"}
    assert json.loads(written(answer, table.OPENCODE)) == said
    assert json.loads(written(Answer("PostToolUse", output={"output": "short"}), table.OPENCODE)) == {
        "output": {"output": "short"}
    }
    assert written(Answer("PreToolUse", decision="ask", why="only the user decides"), table.OPENCODE) == ""


def test_what_a_summary_stands_for_is_gone_and_what_was_given_with_it_is_there(tmp_path: Path) -> None:
    before = seen(tmp_path / "before", 6)
    assert before.holds([OLD_SLIP]) == {OLD_SLIP}
    assert before.boundary() is None
    after = seen(tmp_path / "after")
    assert after.holds([OLD_SLIP, SLIP]) == {SLIP}
    assert after.boundary() == "2026-11-26T09:52:44.509Z"
    sent = after.sent([SLIP], [OLD_SLIP])
    assert sent is not None
    assert sent.slips == {SLIP}


def test_a_compaction_that_has_not_ended_takes_nothing(tmp_path: Path) -> None:
    upto = next(at for at, (_, _, data) in enumerate(CONVERSATION["messages"]) if data.get("summary") is True)
    assert seen(tmp_path, upto).holds([OLD_SLIP]) == {OLD_SLIP}


def test_turns_that_a_compaction_keeps_are_live(tmp_path: Path) -> None:
    parts = json.loads(json.dumps(CONVERSATION["parts"]))
    next(part for _, _, _, part in parts if part["type"] == "compaction")["tail_start_id"] = TURN
    path = database(tmp_path, CONVERSATION["messages"], parts)
    kept = opencode.Transcript(str(path / ID))
    assert kept.holds([OLD_SLIP, SLIP]) == {OLD_SLIP, SLIP}
    assert kept.boundary() == "2026-11-26T09:52:44.509Z"


def test_what_was_said_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary is nothing that the assistant says to its user."""
    conversation = seen(tmp_path)
    assert conversation.said_since("2026-11-26T09:52:26Z") == "The result of part 4 is done and fine.\n\nend of it"
    assert conversation.called_at() > conversation.interrupted_at() == 0
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits for what is there"))
    conversation.await_turn("", "end of it")


def test_a_turn_that_a_command_or_a_word_of_looms_began_is_driven(tmp_path: Path) -> None:
    conversation = seen(tmp_path)
    assert conversation.began_with_loom(TURN, [])
    assert conversation.began_with_loom(CONVERSATION["messages"][6][0], [])
    assert not conversation.began_with_loom(CONVERSATION["messages"][4][0], [])  # what Loom itself wrote
    assert conversation.began_with_loom("msg_other", ["msg_other"])


@pytest.mark.parametrize(
    "data",
    [
        *("", "[]", "null", "{", '{"type": ["text"], "text": 3}', '{"type": "tool", "state": "x"}'),
        *('{"type": "text", "text": {"a": 1}, "metadata": 5}', '{"type": "compaction", "tail_start_id": 7}'),
        *("[" * 100_000, '{"type": "text", "text": "\\ud800"}'),
    ],
)
def test_a_part_of_another_form_is_passed_over(tmp_path: Path, data: str) -> None:
    message = [["msg_1", 1, {"role": "user"}]]
    path = database(tmp_path, message, [["prt_1", "msg_1", 1, data]])
    conversation = opencode.Transcript(str(path / ID))
    assert (conversation.holds([SLIP]), conversation.boundary(), conversation.said_since("2000")) == (
        frozenset(), None, None,
    )  # fmt: skip


def test_a_database_that_is_none_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "opencode.db").write_text("no database", encoding="utf-8")
    for path in (tmp_path / "opencode.db" / ID, tmp_path / "none" / ID):
        assert opencode.Transcript(str(path)).boundary() is None
        assert opencode.Transcript(str(path)).sent([SLIP], []) is None
    assert not (tmp_path / "none").exists()


# ---- One process, several sessions.


def hook(scene: Scene, session: str, word: str, **told: Any) -> dict[str, Any]:
    """Answer an event of a session in this process, as the plugin asks."""
    name = "".join(part.capitalize() for part in word.split("-"))
    event = {"session_id": session, "hook_event_name": name, "cwd": str(scene.root), **told}
    words = [LAUNCHER, "hook", "--host", "opencode", word]
    ended = run(words, cwd=scene.root, environ=environ(session), given=json.dumps(event))
    answer: dict[str, Any] = json.loads(ended.ends().stdout or "{}")
    return answer


def environ(session: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CLAUDE")}
    here = {"LOOM_HOST": "opencode", "LOOM_HOST_SESSION": session, "LOOM_HOST_PID": str(os.getpid())}
    return {**inherited, **here, "OPENCODE": "1", "OPENCODE_PID": str(os.getpid()), "OPENCODE_SESSION_ID": session}


def loomctl(scene: Scene, session: str, *words: str) -> Ended:
    return run([LAUNCHER, *words], cwd=scene.root, environ=environ(session))


@pytest.fixture
def driven(scene: Scene) -> Scene:
    """A run that one session of the server drives."""
    scene.workflow(artifacts=[artifact("spec", "spec.md")])
    scene.write("spec.md", f"{SENTENCE}\n")
    loomctl(scene, SESSION, "run", "add dark mode", "--workflow", "tiny").ends()
    return scene


def test_another_session_of_the_same_server_gets_nothing_of_a_driven_run(driven: Scene) -> None:
    """Who opens a second tab may be somebody else: being of one process proves nothing."""
    said = hook(driven, "ses_other", "session-start", source="startup")
    assert "is driven by" in said["text"]
    assert SENTENCE not in said["text"]
    assert Local(str(driven.store / "local")).binding("ses_other") is None
    refused = loomctl(driven, "ses_other", "resume")
    assert refused.code != 0
    assert "--take-over" in refused.stderr
    assert driven.state["sessions"]["current_session_id"] == SESSION


def test_a_new_conversation_in_the_same_terminal_goes_on_with_the_run(driven: Scene) -> None:
    said = hook(driven, "ses_new", "session-start", source="clear")
    assert SENTENCE in said["text"]
    assert driven.state["sessions"]["current_session_id"] == "ses_new"


def test_two_sessions_of_one_server_drive_two_runs(driven: Scene) -> None:
    loomctl(driven, "ses_other", "run", "another thing", "--workflow", "tiny").ends()
    for session in (SESSION, "ses_other"):
        run_id = Local(str(driven.store / "local")).binding(session)
        assert run_id is not None
        local = Local(str(driven.store / "local"))
        assert local.live_sessions(run_id["run_id"]) == [session]


def test_what_a_session_decides_is_not_its_neighbours_rest(driven: Scene) -> None:
    """While a tool of one session runs, another that comes to rest makes nobody its user (D68)."""
    hook(driven, SESSION, "pre-tool-use", tool_name="bash", tool_input={"command": "true"})
    marks = driven.store / "local" / "hosts"
    event = json.dumps({"session_id": "ses_other", "hook_event_name": "Stop"})
    busy = {**environ("ses_other"), "LOOM_HOST_BUSY": "1"}
    words = [LAUNCHER, "hook", "--host", "opencode", "stop"]
    subprocess.run(words, cwd=driven.root, env=busy, input=event, text=True, check=True)
    assert not (marks / f"{os.getpid()}.rested").exists()
    subprocess.run(words, cwd=driven.root, env=environ("ses_other"), input=event, text=True, check=True)
    assert (marks / f"{os.getpid()}.rested").exists()


def test_who_writes_a_summary_hears_what_must_survive_whoever_asked_for_it(driven: Scene) -> None:
    driven.edit(must_survive=["Ask Ada before a release"])
    for trigger in ("manual", "auto"):
        event = json.dumps({"session_id": SESSION, "hook_event_name": "PreCompact", "trigger": trigger})
        words = [LAUNCHER, "hook", "--host", "opencode", "pre-compact"]
        told = run(words, cwd=driven.root, environ=environ(SESSION), given=event).ends().stdout
        assert "Ask Ada before a release" in told, trigger


# ---- What is installed.


def test_the_file_leads_to_the_bundle_whatever_its_folder_is_called() -> None:
    held = setup.text('/opt/ö "a\\b" #1?/loom')
    assert setup.is_ours(held)
    assert not setup.is_ours("export default 1\n")
    assert 'from "file:///opt/%C3%B6%20%22a%5Cb%22%20%231%3F/loom/hooks/opencode.js"' in held


def test_a_long_session_costs_no_more_than_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked is read from the end, back to what answers it."""
    read: list[object] = []
    plain = opencode._read

    def counted(data: object) -> object:
        read.append(data)
        return plain(data)

    monkeypatch.setattr(opencode, "_read", counted)
    costs: list[int] = []
    for turns in (8, 400):
        messages: list[Any] = []
        parts: list[Any] = []

        def add(role: str, part: Any, messages: list[Any] = messages, parts: list[Any] = parts, **more: object) -> str:
            name = f"m{len(messages):05}"
            messages.append((name, 1_000 * len(messages), {"role": role, **more}))
            parts.append((f"p{len(parts):05}", name, 1_000 * len(messages), part))
            return name

        for turn in range(turns):
            if turn == turns - 3:
                asked = add("user", {"type": "compaction"})
                add("assistant", {"type": "text", "text": "short"}, summary=True, finish="stop", parentID=asked)
            last = add("user", {"type": "text", "text": f"Loom slip {SLIP if turn else OLD_SLIP}"})
            add("assistant", {"type": "text", "text": f"said {turn}"})
        place = str(database(tmp_path / str(turns), messages, parts) / ID)
        asks: list[tuple[Any, object]] = [
            (opencode.Transcript(place).holds([SLIP, OLD_SLIP]), {SLIP}),
            (opencode.Transcript(place).boundary() is None, False),
            (opencode.Transcript(place).began_with_loom(last, ()), False),
        ]
        assert all(found == answer for found, answer in asks), asks
        costs.append(len(read))
        read.clear()
    assert costs[0] == costs[1]
