"""Gemini CLI: its events, its answers, its chat files, whose shell it is; no client is asked (D70, D71)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loomctl.hosts import shells, table
from loomctl.hosts.asking import Answer, written
from loomctl.hosts.dialects import gemini
from loomctl.kit.errors import LoomError
from loomctl.runs.machine import launcher_files
from tests.helpers.scenes import CHECKOUT, Scene, artifact, run
from tests.launcher.world import SHELLS

FIXTURES = Path(__file__).parent / "fixtures" / "gemini"
LAUNCHER = str(CHECKOUT / "bin" / "loomctl")
if TYPE_CHECKING:
    from collections.abc import Sequence

GREP = shutil.which("grep")
SESSION = "f2df88c8-6283-4748-bb50-a79c7ddb025e"
SLIP, KEPT, EARLIER = "0123456789abcdef", "c58f4ba016658056", "ab38ece10021b08b"


def user(text: str, *more: str, at: str = "2026-11-26T09:53:47.935Z", name: str = "p1") -> dict[str, Any]:
    content = [{"text": one} for one in (text, *more)]
    return {"id": name, "timestamp": at, "type": "user", "content": content}


def says(text: str, at: str = "2026-11-26T09:53:48.973Z", **more: Any) -> dict[str, Any]:
    return {"id": "g1", "timestamp": at, "type": "gemini", "content": text, **more}


def compacted(*kept: dict[str, Any]) -> dict[str, Any]:
    snapshot = user("<state_snapshot>half is done</state_snapshot>", at="2026-11-26T09:54:00.000Z", name="s1")
    context = user("<session_context>\nThis is the Gemini CLI.\n</session_context>", name="c1")
    return {"$set": {"messages": [context, snapshot, says("Got it.", "2026-11-26T09:54:00.000Z"), *kept]}}


def given(slip: str) -> str:
    return f"<hook_context># Loom\n&lt;b&gt; ```\n\nLoom slip {slip}</hook_context>"


def transcript(tmp_path: Path, *lines: dict[str, Any]) -> gemini.Transcript:
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return gemini.Transcript(str(path))


def test_the_end_of_a_turn_tells_its_last_message() -> None:
    event = {"session_id": SESSION, "hook_event_name": "AfterAgent", "prompt": "go on", "prompt_response": "Done."}
    assert gemini.read("stop", event)["last_assistant_message"] == "Done."


def test_answers_bear_the_hosts_names() -> None:
    first = json.loads(written(Answer("SessionStart", "for the assistant", "for the user"), table.GEMINI))
    assert first["hookSpecificOutput"] == {"hookEventName": "BeforeAgent", "additionalContext": "for the assistant"}
    assert first["systemMessage"] == "Loom: for the user"
    assert json.loads(written(Answer("Stop", goes_on="go on"), table.GEMINI)) == {
        "decision": "block",
        "reason": "go on",
    }
    assert written(Answer("PreToolUse", decision="allow"), table.GEMINI) == ""  # its policy allows, no hook
    assert written(Answer("PostToolUse", output="short"), table.GEMINI) == ""


def test_what_a_compaction_keeps_stands_live_and_nothing_before(tmp_path: Path) -> None:
    before = [user("begin", given(EARLIER)), says("Begun.")]
    assert transcript(tmp_path, *before).holds([EARLIER]) == {EARLIER}
    seen = transcript(tmp_path, *before, compacted(user("go on", given(KEPT), name="p2")), user("x", given(SLIP)))
    assert seen.holds([EARLIER, KEPT, SLIP]) == {KEPT, SLIP}
    assert seen.boundary() == "2026-11-26T09:54:00.000Z"
    assert seen.summary() == "<state_snapshot>half is done</state_snapshot>"


def test_a_recorded_chat_is_read() -> None:
    """Of a session that was resumed, compacted by hand, and primed with the next prompt."""
    seen = gemini.Transcript(str(FIXTURES / "chat.jsonl"))
    assert seen.holds(["307f5995ae30e7a3", "48c05a357d9bcf88"]) == {"48c05a357d9bcf88"}
    assert (seen.summary() or "").startswith("<state_snapshot>")
    assert seen.last_turn() == ("a283e34f-818b-40c8-8b27-2180ed2189cd", "OK Word2end")
    assert (seen.said_since("2026-11-26T11:15:00Z") or "").count("One is done.") == 1


def test_messages_that_a_resume_sets_anew_are_no_compaction(tmp_path: Path) -> None:
    seen = transcript(tmp_path, {"$set": {"messages": [user("<session_context>x"), user("go on", given(SLIP))]}})
    assert seen.boundary() is None
    assert seen.holds([SLIP]) == {SLIP}


def test_what_is_written_twice_was_said_once(tmp_path: Path) -> None:
    seen = transcript(tmp_path, user("go on"), says("Done."), compacted(says("Done.")))
    assert seen.said_since("2026-11-26T09:53:00Z") == "Done."


def test_a_turn_goes_on_through_its_blocks(tmp_path: Path) -> None:
    body = "Loom: this conversation works on the run x.\nLoom's hooks tell the rest."
    lines = [user(body, name="first"), says("One."), user("Loom: a/b succeeded. The next step is a/c.", name="second")]
    seen = transcript(tmp_path, *lines, says("Two."))
    assert seen.last_turn() == ("first", "Two.")
    assert seen.began_with_loom("first", [])
    assert not transcript(tmp_path, *lines, user("and now something else", name="t")).began_with_loom("t", [])


@pytest.mark.parametrize(
    "line",
    [
        {"$set": {"messages": [None, 3, "x"]}},
        {"$set": ["messages"]},
        {"$set": {"messages": [{"content": {"text": "<state_snapshot>"}}]}},
        {"type": "gemini", "content": 5, "toolCalls": {"a": 1}},
        {"type": "user", "content": [None, {"functionResponse": []}, {"text": {}}]},
        {"type": ["user"], "content": given(SLIP)},
    ],
)
def test_a_line_of_another_form_is_passed_over(tmp_path: Path, line: dict[str, Any]) -> None:
    seen = transcript(tmp_path, line)
    assert (seen.holds([SLIP]), seen.said_since("2000")) == (frozenset(), None)
    assert seen.boundary() in (None, "unknown")


# The launcher


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.write("spec.md", "# The spec\n\nThe heliotrope switch survives a reload.\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin(session=SESSION)
    return scene


def asked(
    scene: Scene, word: str, *, session: str = SESSION, shell: Sequence[str] = (), **event: Any
) -> dict[str, Any]:
    environ = {**scene.environ(None), "GEMINI_SESSION_ID": session, "GEMINI_PROJECT_DIR": str(scene.root)}
    told = json.dumps({"session_id": session, "cwd": str(scene.root), **event}, separators=(",", ":"))
    ended = run([*shell, LAUNCHER, "hook", "--host", "gemini", word], cwd=scene.root, environ=environ, given=told)
    assert ended.code == 0
    return json.loads(ended.stdout) if ended.stdout else {}


def context(answer: dict[str, Any]) -> str:
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


def test_the_first_prompt_of_a_process_is_its_start(begun: Scene, tmp_path: Path) -> None:
    chat = tmp_path / "chät.jsonl"
    chat.write_text(json.dumps(user("x")) + "\n", encoding="utf-8")
    first = asked(begun, "user-prompt-submit", transcript_path=str(chat), prompt="hello")
    assert "heliotrope" in context(first)
    told = user("hello", f"<hook_context>{context(first)}</hook_context>")
    chat.write_text(json.dumps(told) + "\n", encoding="utf-8")
    assert asked(begun, "user-prompt-submit", transcript_path=str(chat), prompt="and now") == {}


def test_a_mark_without_an_end_holds_no_prompt(begun: Scene) -> None:
    """A repository may bring along what stands where the process marks its rest."""
    hosts = begun.store / "local" / "hosts"
    (hosts / f"{os.getpid()}.rested").symlink_to("/dev/zero")
    assert "heliotrope" in json.dumps(asked(begun, "user-prompt-submit", prompt="hello"))


def test_a_compaction_that_the_file_shows_primes_the_next_tool_result(begun: Scene, tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    chat.write_text("", encoding="utf-8")
    asked(begun, "user-prompt-submit", transcript_path=str(chat), prompt="hello")
    tool: dict[str, Any] = {
        "tool_name": "read_file",
        "tool_input": {"file_path": "a"},
        "tool_response": {"llmContent": "x"},
    }
    assert context(asked(begun, "post-tool-use", transcript_path=str(chat), **tool)) == ""
    chat.write_text(json.dumps(compacted(), separators=(",", ":")) + "\n", encoding="utf-8")
    assert "heliotrope" in context(asked(begun, "post-tool-use", transcript_path=str(chat), **tool))
    assert context(asked(begun, "post-tool-use", transcript_path=str(chat), **tool)) == ""


TOOL: dict[str, Any] = {"tool_name": "x", "tool_input": {"file_path": "a"}, "tool_response": {"llmContent": "x"}}


def line(told: dict[str, Any]) -> str:
    return json.dumps(told, separators=(",", ":")) + "\n"


@pytest.fixture
def begun_chat(begun: Scene, tmp_path: Path) -> Path:
    """A long chat, of which the session's first prompt was told."""
    chat = tmp_path / "chat.jsonl"
    chat.write_text(line(user("x" * 100)) * 2000, encoding="utf-8")
    asked(begun, "user-prompt-submit", transcript_path=str(chat), prompt="hello")
    return chat


def goes_on(scene: Scene, chat: Path, shell: Sequence[str] = ()) -> str:
    return context(asked(scene, "post-tool-use", shell=shell, transcript_path=str(chat), **TOOL))


def append(chat: Path, text: str) -> None:
    with chat.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_compaction_is_looked_for_in_what_is_new_alone(
    begun: Scene, begun_chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim, log = tmp_path / "shim", tmp_path / "read"
    shim.mkdir()
    (shim / "grep").write_text(f'#!/bin/sh\ncat >{log}.in\nwc -c <{log}.in >>{log}\nexec {GREP} "$@" <{log}.in\n')
    (shim / "grep").chmod(0o755)
    log.touch()
    monkeypatch.setenv("PATH", f"{shim}:{os.environ['PATH']}")
    for _ in range(3):
        append(begun_chat, line(says("One.")))
        assert goes_on(begun, begun_chat) == ""
    assert goes_on(begun, begun_chat) == ""
    read = [int(size) for size in log.read_text().split()]
    assert (len(read), max(read) < 1000) == (3, True), read
    append(begun_chat, line(compacted()))
    assert "heliotrope" in goes_on(begun, begun_chat)
    assert goes_on(begun, begun_chat) == ""


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_line_that_is_half_written_is_looked_at_when_it_is_whole(
    begun: Scene, begun_chat: Path, shell: list[str]
) -> None:
    told = line(compacted())
    for half in (told[:20], told[20:-1]):
        append(begun_chat, half)
        assert goes_on(begun, begun_chat, shell) == ""
    append(begun_chat, "\n")
    assert "heliotrope" in goes_on(begun, begun_chat, shell)
    assert goes_on(begun, begun_chat, shell) == ""


@pytest.mark.parametrize("noted", ["08 09", "1 999999999999999999999", "-1 x", "0x1 0x1"])
@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_note_of_another_form_counts_for_nothing(
    begun: Scene, begun_chat: Path, shell: list[str], noted: str
) -> None:
    append(begun_chat, line(compacted()))
    place = begun.store / "local" / "primed" / f"{SESSION}.snapshots"
    place.write_text(f"{noted} {begun_chat}\n", encoding="utf-8")
    goes_on(begun, begun_chat, shell)
    assert place.read_text(encoding="utf-8") == f"1 {begun_chat.stat().st_size} {begun_chat}\n"


def test_a_chat_that_became_shorter_or_is_another_is_looked_at_anew(begun: Scene, begun_chat: Path) -> None:
    begun_chat.write_text(line(compacted()), encoding="utf-8")
    assert "heliotrope" in goes_on(begun, begun_chat)
    other = begun_chat.with_name("other chat.jsonl")
    other.write_text(line(compacted()) * 2 + line(user("x" * 100)) * 2000, encoding="utf-8")
    assert "heliotrope" in goes_on(begun, other)
    assert goes_on(begun, other) == ""


def test_what_a_version_before_noted_of_a_chat_still_counts(begun: Scene, begun_chat: Path) -> None:
    append(begun_chat, line(compacted()))
    (begun.store / "local" / "primed" / f"{SESSION}.snapshots").write_text("1\n", encoding="utf-8")
    assert goes_on(begun, begun_chat) == ""


def test_without_its_mark_nothing_is_answered(begun: Scene) -> None:
    """Another host reads this one's hooks file, too."""
    ended = run([LAUNCHER, "hook", "--host", "gemini", "stop"], cwd=begun.root, environ=begun.environ(None), given="{}")
    assert (ended.code, ended.stdout) == (0, "")


# Whose shell


def in_a_shell(environ: dict[str, str], *outer: dict[str, str]) -> list[list[Any]]:
    """Give the sessions that a process sees below shells with these variables, the outermost first."""
    code = (
        "import json, os, sys; sys.path.insert(0, sys.argv[1]); from loomctl.hosts import shells\n"
        "print(json.dumps([[one.host.name, one.id, one.pid, one.rivals] for one in shells.sessions(os.environ)]))"
    )
    words = [sys.executable, "-c", code, str(CHECKOUT)]
    for variables in reversed([*outer, environ]):
        given = [f"{key}={value}" for key, value in variables.items()]
        words = ["env", *given, "sh", "-c", '"$@"; exit $?', "sh", *words]
    base = {"PATH": os.environ["PATH"]}
    done = subprocess.run(words, env=base, capture_output=True, text=True, check=True)
    found: list[list[Any]] = json.loads(done.stdout)
    return found


def test_the_innermost_of_nested_assistants_comes_first() -> None:
    inner, outer = {"QWEN_CODE_SESSION_ID": "inner"}, {"CLAUDE_CODE_SESSION_ID": "outer"}
    assert [one[:2] for one in in_a_shell(inner, outer)] == [["qwen", "inner"], ["claude-code", "outer"]]
    inner, outer = {"CLAUDE_CODE_SESSION_ID": "inner"}, {"QWEN_CODE_SESSION_ID": "outer"}
    assert [one[:2] for one in in_a_shell(inner, outer)] == [["claude-code", "inner"], ["qwen", "outer"]]


AROUND = {"QWEN_CODE_SESSION_ID": "q", "CLAUDE_CODE_SESSION_ID": "c"}


def test_which_assistant_is_the_innermost_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system may hide what other processes were given."""
    monkeypatch.setattr(shells, "_environment", lambda _: b"")
    (first, *_) = shells.sessions(AROUND)
    assert set(first.rivals) == set(AROUND)
    with pytest.raises(LoomError, match="which assistant") as raised:
        shells.innermost(AROUND)
    assert raised.value.hint == "unset CLAUDE_CODE_SESSION_ID; loomctl status"
    only = shells.innermost({"QWEN_CODE_SESSION_ID": "q"})
    assert (only and only.id) == "q"


def test_what_two_assistants_around_had_from_one_process_is_no_secret() -> None:
    """Whoever sets both variables at once is asked nothing."""
    assert len(in_a_shell(AROUND)) == 2
    assert all(one[3] == [] for one in in_a_shell(AROUND))


def test_processes_are_asked_where_the_system_has_no_folder_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {name: shells._environment(os.getppid()).split(b"\0") for name in ("/proc",)}
    monkeypatch.setattr(shells, "_PROCESSES", "/nowhere")
    assert set(shells._environment(os.getppid()).split(b"\0")) == set(seen["/proc"])
    assert shells._environment(2**22 + 1) == b""


def test_a_shell_without_an_id_is_its_processs(tmp_path: Path) -> None:
    state = {"LOOM_STATE_HOME": str(tmp_path)}
    (found,) = in_a_shell({"GEMINI_CLI": "1"}, state)
    assert found[:2] == ["gemini", f"gemini-{found[2]}"]


def test_an_id_of_further_out_is_not_taken_for_it() -> None:
    found = in_a_shell({"GEMINI_CLI": "1"}, {"CLAUDE_CODE_SESSION_ID": "outer"})
    assert found[0][0] == "gemini"
    found = in_a_shell({"CLAUDE_CODE_SESSION_ID": "inner"}, {"GEMINI_CLI": "1"})
    assert found[0][:2] == ["claude-code", "inner"]


def test_the_session_that_a_hook_noted_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook's parent is the host's process, and so is a shell's."""
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("GEMINI_SESSION_ID", SESSION)
    event = json.dumps(
        {"session_id": SESSION, "tool_name": "run_shell_command", "tool_input": {"command": "loomctl run"}}
    )
    subprocess.run(
        [LAUNCHER, "hook", "--host", "gemini", "pre-tool-use"], input=event, text=True, cwd=tmp_path, check=True
    )
    assert (tmp_path / "hosts" / str(os.getpid())).read_text(encoding="utf-8") == f"gemini {SESSION}\n"
    monkeypatch.delenv("GEMINI_SESSION_ID")
    assert session_seen() == SESSION
    os.utime(tmp_path / "hosts" / str(os.getpid()), (1, 1))  # as of a process that had this number before
    assert session_seen() == f"gemini-{os.getpid()}"


def session_seen() -> str:
    """Give the session that a shell of this process's sees."""
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from loomctl.hosts import shells\n"
        "print(shells.sessions(os.environ)[0].id)"
    )
    words = [sys.executable, "-c", code, str(CHECKOUT)]
    done = subprocess.run(words, env={**os.environ, "GEMINI_CLI": "1"}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_what_was_noted_of_processes_that_ended_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path / "state"))
    local, noted = tmp_path / ".loom" / "local", tmp_path / "state" / "hosts"
    for folder in (local / "hosts", noted):
        folder.mkdir(parents=True, mode=0o700)
    ended = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    gone, alive = ended.stdout.strip(), str(os.getpid())
    for place in (noted / gone, noted / alive, local / "hosts" / f"{gone}.called", noted / "else"):
        place.write_text(f"gemini {SESSION}\n", encoding="utf-8")
    launcher_files.make_room_for_calls(str(local))
    assert sorted(os.listdir(noted)) == sorted([alive, "else"])
    assert os.listdir(local / "hosts") == []


def test_no_shell_of_an_assistants_has_no_session() -> None:
    assert shells.sessions({}) == []


# The bundle


def test_the_extension_is_the_bundles() -> None:
    manifest = json.loads((CHECKOUT / "gemini-extension.json").read_text(encoding="utf-8"))
    plugin = json.loads((CHECKOUT / "plugin.json").read_text(encoding="utf-8"))
    assert manifest == {key: plugin[key] for key in ("name", "version", "description")}


def test_its_hooks_have_no_event_of_another_hosts() -> None:
    """Claude Code reads the same file, and passes over what it does not know; times are in milliseconds here."""
    hooks = json.loads((CHECKOUT / "hooks" / "hooks.json").read_text(encoding="utf-8"))["hooks"]
    assert sorted(hooks) == ["AfterAgent", "AfterTool", "BeforeAgent", "BeforeTool"]
    own = json.loads((CHECKOUT / "hooks" / "claude-code.json").read_text(encoding="utf-8"))["hooks"]
    assert not set(hooks) & set(own)
    entries = [entry for groups in hooks.values() for group in groups for entry in group["hooks"]]
    for entry in entries:
        assert entry["command"].startswith('exec "${extensionPath}/bin/loomctl" hook --host gemini ')
        assert 1_000 <= entry["timeout"] <= 60_000
