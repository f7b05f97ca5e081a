"""What the user tells a run while the real assistant works on it: in its next request, exactly once (D76)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from tests.e2e.assistant import TIME_LIMIT, Assistant
from tests.e2e.scenes import run_folder, start_run, state_of
from tests.e2e.scripted_api import Reply, Request, bash, reply, tool
from tests.helpers.scenes import handle

ALLOWED = "Bash Read Agent"
WORD = "use blue, not red"


def wait_for(what: Callable[[], object], *, seconds: float = TIME_LIMIT) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def say(assistant: Assistant, *words: str) -> str:
    """Tell the run something as its user does, in a terminal of their own."""
    environ = {name: value for name, value in assistant.environment().items() if not name.startswith("CLAUDE")}
    assert assistant.plugin_dir is not None
    done = subprocess.run(
        [str(assistant.plugin_dir / "bin/loomctl"), "tell", handle(state_of(assistant.project)), *words],
        cwd=assistant.project, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=TIME_LIMIT, check=False, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def counts(requests: list[Request]) -> list[int]:
    return [request.seen().count(WORD) for request in requests]


def log(assistant: Assistant) -> str:
    return (run_folder(assistant.project) / "events.jsonl").read_text(encoding="utf-8")


class Worker:
    """The assistant in the middle of a turn: it runs a command that waits until the test lets it go on."""

    def __init__(self, assistant: Assistant, session: str, *rest: Reply | str, fails: bool = False) -> None:
        self.begun, self.go = assistant.project / "begun", assistant.project / "go"
        for path in (self.begun, self.go):
            path.unlink(missing_ok=True)
        command = f"touch begun; until [ -e go ]; do sleep 0.05; done; {'exit 3' if fails else 'echo done'}"
        assistant.api.script(reply(bash(command)), *rest)
        self.before, self.api = len(assistant.api.requests), assistant.api
        words = ("-p", "work on", "--resume", session, "--allowedTools", ALLOWED)
        self.process = assistant._start(assistant.command_line(*words))
        wait_for(self.begun.exists)

    def requests(self) -> list[Request]:
        return [one for one in self.api.requests[self.before :] if one.kind == "main"]

    def end(self) -> list[Request]:
        self.go.touch()
        self.process.communicate(timeout=TIME_LIMIT)
        return self.requests()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def killed_behind_the_hook(assistant: Assistant, session: str) -> None:
    """Tell it something during a call, and kill it when Loom's hook has given that and another's keeps the turn."""
    place = assistant.machine.config / "settings.json"
    hook = {"type": "command", "command": "while [ -e begun ]; do sleep 0.05; done", "timeout": 60}
    place.write_text(json.dumps({"hooks": {"PostToolUse": [{"matcher": "Bash", "hooks": [hook]}]}}), encoding="utf-8")
    worker = Worker(assistant, session, "too late")
    say(assistant, WORD)
    worker.go.touch()
    wait_for(lambda: [*(assistant.project / ".loom/local/tells").glob("*/*.given")])
    wait_for(lambda: "ended" in (assistant.project / ".loom/local/hooks/post-tool-use.work").read_text())
    worker.kill()
    place.unlink()
    assert counts(worker.requests()) == [0]
    worker.begun.unlink()


@pytest.mark.quick
@pytest.mark.parametrize("fails", [False, True], ids=["a call that succeeds", "a call that fails"])
def test_a_word_during_a_tools_call_is_in_the_next_request_once(assistant: Assistant, fails: bool) -> None:
    session = start_run(assistant).session_id
    worker = Worker(assistant, session, reply(bash("echo more")), "Enough for now.", fails=fails)
    assert "reads it with its next tool result" in say(assistant, WORD)
    assert counts(worker.end()) == [0, 1, 1]
    assert log(assistant).count('"drive.told"') == 1
    later = assistant.run("and now?", resume=session)
    assert counts(later.conversation)[-1] == 1


@pytest.mark.quick
@pytest.mark.parametrize("first", ["loomctl next", "echo first"])
def test_killed_behind_the_hook_a_new_session_has_it_once(assistant: Assistant, first: str) -> None:
    """The hook has given it, and the assistant dies before it asks its model anything."""
    session = start_run(assistant).session_id
    killed_behind_the_hook(assistant, session)
    called = handle(state_of(assistant.project))
    turn = assistant.run(
        f"/loom:resume {called}", answers=[reply(bash(first)), reply(bash("echo on")), "Enough."],
        allowed_tools=ALLOWED,
    )  # fmt: skip
    assert turn.session_id != session
    assert counts(turn.conversation) == [0, 1, 1]
    again = assistant.run("and now?", resume=turn.session_id)
    assert counts(again.conversation)[-1] == 1


def test_killed_behind_the_hook_the_same_session_has_it_once(assistant: Assistant) -> None:
    session = start_run(assistant).session_id
    killed_behind_the_hook(assistant, session)
    turn = assistant.run("go on", resume=session, answers=[reply(bash("echo on")), "Enough."], allowed_tools=ALLOWED)
    assert counts(turn.conversation)[0] == 1
    assert counts(turn.conversation)[-1] == 1


@pytest.mark.parametrize("delay", [0, 0.1, 0.2, 0.3, 0.4, 0.5])
def test_killed_at_any_moment_whoever_goes_on_has_it_once(assistant: Assistant, delay: float) -> None:
    session, held = start_run(assistant).session_id, threading.Event()
    worker = Worker(assistant, session, reply(bash("echo more")), reply("too late", held=held))
    say(assistant, WORD)
    worker.go.touch()
    time.sleep(delay)
    worker.kill()
    held.set()
    if round(delay * 10) % 2:
        prompt = f"/loom:resume {handle(state_of(assistant.project))}"
        turn = assistant.run(prompt, answers=[reply(bash("loomctl next")), "Enough."], allowed_tools=ALLOWED)
    else:
        turn = assistant.run("go on", resume=session, answers=["Enough."], allowed_tools=ALLOWED)
    assert counts(turn.conversation)[-1] == 1
    assert counts(assistant.run("and now?", resume=turn.session_id).conversation)[-1] == 1


def test_a_word_before_the_turn_ends_lets_it_go_on(assistant: Assistant) -> None:
    """No tool is called any more: the stop is not the end, and the word comes before the step's."""
    session = start_run(assistant).session_id
    held = threading.Event()
    assistant.api.script(reply("I am done.", held=held), "I used blue.")
    before = len(assistant.api.requests)
    process = assistant._start(assistant.command_line("-p", "work on", "--resume", session))
    wait_for(lambda: len(assistant.api.requests) > before)
    say(assistant, WORD)
    held.set()
    process.communicate(timeout=TIME_LIMIT)
    requests = [one for one in assistant.api.requests[before:] if one.kind == "main"]
    assert counts(requests) == [0, 2]  # this host shows a block's reason twice
    assert log(assistant).count('"drive.told"') == 1


def test_a_word_between_turns_comes_with_the_next_prompt(assistant: Assistant) -> None:
    session = start_run(assistant).session_id
    assert "It is read when the run goes on" in say(assistant, WORD)
    turn = assistant.run("go on", resume=session, watch_hooks=True)
    assert counts(turn.conversation) == [1]
    assert any("told the assistant: use blue" in line for line in turn.told_user())


def test_no_subagent_gets_it(assistant: Assistant) -> None:
    session = start_run(assistant).session_id
    for name in ("begun", "go"):
        (assistant.project / name).unlink(missing_ok=True)
    wait = "touch begun; until [ -e go ]; do sleep 0.05; done"
    assistant.api.script_subagent("Look around.", reply(bash(wait)), "Looked.")
    task = tool("Agent", description="look", prompt="Look around.", subagent_type="general-purpose",
                run_in_background=False)  # fmt: skip
    assistant.api.script(reply(task), "Enough.")
    before = len(assistant.api.requests)
    words = ("-p", "work on", "--resume", session, "--allowedTools", ALLOWED)
    process = assistant._start(assistant.command_line(*words))
    wait_for((assistant.project / "begun").exists)
    say(assistant, WORD)
    (assistant.project / "go").touch()
    process.communicate(timeout=TIME_LIMIT)
    assert [WORD in one.seen() for one in assistant.api.asked_by("Look around.")] == [False, False]
    assert counts([one for one in assistant.api.requests[before:] if one.kind == "main"]) == [0, 1]
