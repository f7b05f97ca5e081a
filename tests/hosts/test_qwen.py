"""Qwen Code: its events as they come, its answers, its chat files, its settings; no client is asked (D70)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loomctl.hosts import table
from loomctl.hosts.asking import Answer, written
from loomctl.hosts.dialects import qwen
from loomctl.hosts.protocol import stop
from loomctl.hosts.setup import qwen as setup
from loomctl.kit.errors import LoomError
from loomctl.priming import memory_of_session
from tests.helpers.scenes import CHECKOUT, SESSION, Scene, artifact, run

FIXTURES = Path(__file__).parent / "fixtures" / "qwen"
EVENTS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "events.json").read_text(encoding="utf-8"))
SLIP, GIVEN_AT_A_PROMPT = "ab38ece10021b08b", "0123456789abcdef"
LAUNCHER = str(CHECKOUT / "bin" / "loomctl")


def chat(*lines: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / "chat.jsonl").read_text(encoding="utf-8").splitlines()]


def transcript(tmp_path: Path, text: str) -> qwen.Transcript:
    path = tmp_path / "chat.jsonl"
    path.write_text(text, encoding="utf-8")
    return qwen.Transcript(str(path))


@pytest.mark.parametrize("word", ["session-start", "user-prompt-submit", "pre-tool-use", "stop"])
def test_events_are_the_protocols(word: str) -> None:
    assert qwen.read(word, EVENTS[word]) == EVENTS[word]


def test_answers_are_the_protocols() -> None:
    answer = Answer("Stop", "for the assistant", "for the user", goes_on="go on")
    assert json.loads(written(answer, table.QWEN)) == json.loads(written(answer, table.CLAUDE))
    asked = Answer("PreToolUse", decision="ask", why="only the user decides")
    assert json.loads(written(asked, table.QWEN)) == json.loads(written(asked, table.CLAUDE))


def test_a_slip_in_a_result_is_live_until_the_next_compaction(tmp_path: Path) -> None:
    lines = recorded()
    at = next(place for place, line in enumerate(lines) if line.get("subtype") == "chat_compression")
    before = transcript(tmp_path, chat(*lines[:at]))
    assert before.holds([SLIP]) == {SLIP}
    assert before.boundary() is None
    after = transcript(tmp_path, chat(*lines))
    assert after.holds([SLIP, GIVEN_AT_A_PROMPT]) == {GIVEN_AT_A_PROMPT}
    assert after.boundary() == lines[at]["timestamp"]


def test_what_was_said_is_read(tmp_path: Path) -> None:
    seen = transcript(tmp_path, chat(*recorded()))
    assert seen.said_since("2026-11-26T09:45:50Z") == "idle a\n\nhello there quartz"
    assert seen.called_at() > 0
    assert seen.sent([SLIP], []) is None


def test_a_turn_that_a_command_began_is_driven(tmp_path: Path) -> None:
    assert transcript(tmp_path, chat(*recorded()[:4])).began_with_loom("a turn", [])
    assert not transcript(tmp_path, chat(*recorded())).began_with_loom("a turn", [])
    assert transcript(tmp_path, chat(*recorded())).began_with_loom("a turn", ["a turn"])


@pytest.mark.parametrize(
    "line",
    [
        {"type": "user", "message": None},
        {"type": "user", "message": {"parts": "text"}},
        {"type": "tool_result", "message": {"parts": [None, 3, [], {"functionResponse": "x"}, {"text": 5}]}},
        {"type": ["user"], "message": {"parts": [{"text": f"Loom slip {SLIP}"}]}},
        {"type": "system", "subtype": {"chat_compression": 1}},
        {"type": "assistant", "message": {"parts": [{"text": "thought", "thought": True}]}},
    ],
)
def test_a_line_of_another_form_is_passed_over(tmp_path: Path, line: dict[str, Any]) -> None:
    seen = transcript(tmp_path, chat(line))
    assert (seen.holds([SLIP]), seen.boundary(), seen.said_since("2000")) == (frozenset(), None, None)


# The launcher


def asked(scene: Scene, word: str, event: dict[str, Any] | str) -> str:
    environ = {**scene.environ(None), "QWEN_CODE_SESSION_ID": SESSION, "QWEN_PROJECT_DIR": str(scene.root)}
    given = event if isinstance(event, str) else json.dumps(event, separators=(",", ":"))
    return run([LAUNCHER, "hook", "--host", "qwen", word], cwd=scene.root, environ=environ, given=given).stdout


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.write("spec.md", "# The spec\n\nThe heliotrope switch survives a reload.\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    return scene


def told(scene: Scene, word: str) -> dict[str, Any]:
    return {**EVENTS[word], "session_id": SESSION, "cwd": str(scene.root), "transcript_path": ""}


def test_a_session_is_primed_and_its_process_known(begun: Scene) -> None:
    answer = json.loads(asked(begun, "session-start", told(begun, "session-start")))
    assert "The heliotrope switch survives a reload." in answer["hookSpecificOutput"]["additionalContext"]
    assert answer["systemMessage"].startswith("Loom: ")


def test_a_prompt_that_is_none_is_answered_with_nothing(begun: Scene) -> None:
    asked(begun, "session-start", told(begun, "session-start"))
    begun.write("spec.md", "# The spec\n\nThe cobalt switch.\n")
    marks = sorted((begun.store / "local/hosts").iterdir())
    times = [path.stat().st_mtime_ns for path in marks]
    empty = {**told(begun, "user-prompt-submit"), "prompt": ""}
    assert asked(begun, "user-prompt-submit", empty) == ""
    assert [path.stat().st_mtime_ns for path in marks] == times  # the turn goes on: nothing rests
    assert "cobalt" in asked(begun, "user-prompt-submit", told(begun, "user-prompt-submit"))


def test_a_prompt_that_speaks_of_an_empty_one_is_answered(begun: Scene) -> None:
    asked(begun, "session-start", told(begun, "session-start"))
    begun.write("spec.md", "# The spec\n\nThe cobalt switch.\n")
    event = {**told(begun, "user-prompt-submit"), "prompt": 'why is "prompt":"" there'}
    assert "cobalt" in asked(begun, "user-prompt-submit", event)


# What stands in the system prompt


def test_what_a_start_gave_counts_until_the_next_start(begun: Scene) -> None:
    space = begun.space()
    asked(begun, "session-start", told(begun, "session-start"))
    run_id = begun.run_dir.name
    seen = space._replace(caller=space.caller._replace(session_id=SESSION, conversation=qwen.Transcript(None)))
    assert memory_of_session.held(seen, run_id).any_slip
    memory_of_session.keep_start(seen, "")
    assert not memory_of_session.held(seen, run_id).any_slip


# Settings


SETTINGS = [
    "",
    "{}\n",
    '{\n  "b": 1,\n  "a": {"x": [1, 2]},\n  "z": "ä"\n}\n',
    '{\n\t"permissions": {\n\t\t"deny": [\n\t\t\t"web_fetch"\n\t\t]\n\t}\n}',
    '{\r\n    "permissions": {\r\n        "allow": [\r\n            "read_file"\r\n        ]\r\n    }\r\n}\r\n',
    '{"permissions":{"allow":["read_file","web_fetch"]},  "b":1}',
]
COMMENTED = [
    '// мои\n{\n    // "permissions": 1\n    "url": "http://example.invalid", /* { */\n    "$version": 4,\n}\n',
    '{\n  "permissions": {\n    "allow": [ // mine\n      "read_file", // for reading\n    ], /* all */\n  },\n}',
    '\ufeff{ "permissions": { "allow": ["a", /* and */ "b"] } }',
]


@pytest.mark.parametrize("before", SETTINGS)
def test_settings_get_one_rule_and_give_it_back(before: str) -> None:
    after = setup.with_loom(before)
    assert setup.has_loom(after)
    assert not setup.has_loom(before)
    assert setup.with_loom(after) == after
    back = setup.without_loom(after)
    assert json.loads(back) == (json.loads(before) if before else {})
    assert list(json.loads(back)) == (list(json.loads(before)) if before else [])


def test_the_files_own_way_of_writing_stays() -> None:
    assert setup.without_loom(setup.with_loom(SETTINGS[3])) == SETTINGS[3]
    assert setup.without_loom(setup.with_loom(SETTINGS[4])) == SETTINGS[4]
    assert "\r\n" in setup.with_loom(SETTINGS[4])


@pytest.mark.parametrize("before", [*SETTINGS[2:], *COMMENTED])
def test_comments_and_all_else_stand_as_they_stood(before: str) -> None:
    """The host reads comments and keeps them, so its user may have some."""
    after = setup.with_loom(before)
    assert setup.has_loom(after)
    assert all(word in after for word in ("мои", "mine", "for reading", "/* all */", "/* and */") if word in before)
    assert setup.without_loom(after) == before


def test_a_rule_is_taken_from_the_middle_and_its_neighbours_comments_stay() -> None:
    rule = f'"{setup.RULE}"'
    before = f'{{"permissions": {{"allow": [\n  "a", // first\n  {rule}, // second\n  "b" // third\n]}}}}'
    after = setup.without_loom(before)
    assert [word in after for word in ("first", "second", "third", setup.RULE)] == [True, True, True, False]
    assert setup.has_loom(setup.with_loom(after))


@pytest.mark.parametrize("text", ["/* no end", "[]", '{"permissions": []}', '{"permissions": {"allow": "x"}}', "{"])
def test_settings_that_cannot_be_read_are_left(text: str) -> None:
    with pytest.raises(LoomError, match="settings of Qwen Code"):
        setup.with_loom(text)


# The bundle


def test_the_extension_is_the_bundles() -> None:
    manifest = json.loads((CHECKOUT / "qwen-extension.json").read_text(encoding="utf-8"))
    plugin = json.loads((CHECKOUT / "plugin.json").read_text(encoding="utf-8"))
    assert [manifest[key] for key in ("name", "version", "description")] == [
        plugin[key] for key in ("name", "version", "description")
    ]
    for key in ("hooks", "skills", "commands"):
        assert (CHECKOUT / manifest[key]).exists()


def test_every_hook_calls_the_launcher_as_this_host() -> None:
    hooks = json.loads((CHECKOUT / "hooks" / "qwen.json").read_text(encoding="utf-8"))["hooks"]
    entries = [entry for groups in hooks.values() for group in groups for entry in group["hooks"]]
    for entry in entries:
        assert entry["command"].startswith('exec "${CLAUDE_PLUGIN_ROOT}/bin/loomctl" hook --host qwen ')
        assert 0 < entry["timeout"] <= 60  # seconds; from 1,000 on it would read them as milliseconds


def test_commands_are_those_of_the_bundle() -> None:
    done = subprocess.run(
        [str(CHECKOUT / "scripts" / "commands"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


# The cap of its stops

TRUSTS = '{"stopHookBlockingCap": %d, "security": {"folderTrust": {"enabled": true}}}'


@pytest.mark.parametrize(
    ("said", "project", "user", "stops"),
    [
        ("", "", "", 7),
        ("", "", '{"stopHookBlockingCap": 3}', 2),
        ("", '{"stopHookBlockingCap": 5}', '{"stopHookBlockingCap": 3}', 4),
        ("2", '{"stopHookBlockingCap": 5}', "", 1),
        ("1", "", "", 0),
        ("many", "", "", 7),
        ("5000", "", "", 99),
        ("", "// mine\n{}", '{"stopHookBlockingCap": "3"}', 7),
        ("", "", '// x\n{"stopHookBlockingCap": 3,}', 2),
        ("", '/* x */ {"stopHookBlockingCap": 3}', '{"stopHookBlockingCap": 6}', 2),
        ("", '{"stopHookBlockingCap": "3"}', '{"stopHookBlockingCap": 6}', 7),  # the project's wins, and is none
        ("", "", '{"stopHookBlockingCap": 3.9}', 2),
        ("", "", '{"stopHookBlockingCap": true}', 7),
        # Where folders are trusted one by one, a project's settings may not be read: the lower of both.
        ("", '{"stopHookBlockingCap": 5}', TRUSTS % 3, 2),
        ("", '{"stopHookBlockingCap": 2}', TRUSTS % 3, 1),
        ("", '{"stopHookBlockingCap": 20}', '{"security": {"folderTrust": {"enabled": true}}}', 7),
    ],
)
def test_its_users_cap_of_stops_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, project: str, user: str, stops: int
) -> None:
    """It ends the turn in place of the last one, with a word of its own and none of where the run stands."""
    for name, text in (("project", project), ("home", user)):
        (tmp_path / name / ".qwen").mkdir(parents=True)
        if text:
            (tmp_path / name / ".qwen" / "settings.json").write_text(text, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("QWEN_PROJECT_DIR", str(tmp_path / "project"))
    monkeypatch.setenv("QWEN_CODE_STOP_HOOK_BLOCK_CAP", said)
    monkeypatch.setenv("QWEN_CODE_SYSTEM_SETTINGS_PATH", str(tmp_path / "none"))
    assert stop.cap(table.QWEN) == stops


@pytest.mark.parametrize(
    ("system", "user", "stops"),
    [
        ({"settings": '{"stopHookBlockingCap": 2}'}, '{"stopHookBlockingCap": 5}', 1),
        ({"system-defaults": '{"stopHookBlockingCap": 2}'}, '{"stopHookBlockingCap": 5}', 4),
        ({"system-defaults": '{"stopHookBlockingCap": 2}'}, "{}", 1),
    ],
)
def test_the_machines_settings_stand_around_its_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: dict[str, str], user: str, stops: int
) -> None:
    for name, text in system.items():
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "settings.json").write_text(user, encoding="utf-8")
    monkeypatch.setenv("QWEN_HOME", str(tmp_path / "moved"))
    monkeypatch.delenv("QWEN_PROJECT_DIR", raising=False)
    monkeypatch.delenv("QWEN_CODE_STOP_HOOK_BLOCK_CAP", raising=False)
    monkeypatch.setenv("QWEN_CODE_SYSTEM_SETTINGS_PATH", str(tmp_path / "settings.json"))
    assert stop.cap(table.QWEN) == stops
