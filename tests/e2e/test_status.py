"""The real assistant: a hook that it does not call is noticed, and its status line shows where the run stands."""

import dataclasses
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl import __version__
from tests.e2e.assistant import LOOMCTL_ALLOWED, Assistant, Conversation
from tests.e2e.played import Played
from tests.e2e.scenes import InRun, done, state_of, stay_in_run, write_plain
from tests.e2e.scripted_api import ScriptedApi, bash, reply
from tests.e2e.terminal import PROMPT, assistant_terminal
from tests.helpers import bytecode
from tests.helpers.scenes import handle

# What each hook is called in hooks/claude-code.json, of those whose silence the conversation shows.
WATCHED = {
    "Stop": "stop", "UserPromptSubmit": "user-prompt-submit", "PostToolUse": "post-tool-use",
    "PreToolUse": "pre-tool-use", "SessionStart": "session-start", "PreCompact": "pre-compact",
    "PostCompact": "post-compact",
}  # fmt: skip
LONG_AGO = 3600


def without(bundle: Path, cache: Path, folder: Path, event: str) -> Path:
    """Copy the bundle with the hooks of one event taken out, as a user's settings would."""
    copy = folder / "bundle"
    shutil.copytree(bundle, copy)
    bytecode.share(cache, copy)
    path = copy / "hooks/claude-code.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    del raw["hooks"][event]
    path.write_text(json.dumps(raw), encoding="utf-8")
    return copy


def asked(assistant: Assistant, bundle: Path, *words: str) -> Any:
    told = assistant.machine.command(str(bundle / "bin/loomctl"), *words, "--json", cwd=assistant.project)
    return json.loads(told)


def work(session: Conversation) -> None:
    """End a step, have the conversation compacted, and go on: what is watched is called for all of it."""
    session.say("go on", done(), "It is done.")
    session.say("/compact")
    session.say("go on", reply(bash("loomctl show")), "I see.")
    session.end()


def heartbeats(assistant: Assistant, bundle: Path) -> Any:
    checks = {check["id"]: check for check in asked(assistant, bundle, "doctor")["checks"]}
    return checks["heartbeats"]


@pytest.mark.parametrize("event", WATCHED)
def test_a_hook_that_is_not_called_is_noticed(assistant: Assistant, bundle: Path, tmp_path: Path, event: str) -> None:
    lame = dataclasses.replace(assistant, plugin_dir=without(bundle, assistant.machine.cache, tmp_path, event))
    work(stay_in_run(lame, LOOMCTL_ALLOWED))
    silent = asked(lame, bundle, "status")["hooks"]["silent"]
    assert [(one["event"], one["how"]) for one in silent] == [(WATCHED[event], "never")]
    told = heartbeats(lame, bundle)
    assert told["status"] == "WARN"
    assert f"the hook {WATCHED[event]} has never fired here" in told["found"]


def worked_long_ago(assistant: Assistant) -> str:
    """Work in a session with all hooks, and let that be an hour ago; give the session's id."""
    first = stay_in_run(assistant, LOOMCTL_ALLOWED)
    work(first)
    fired = sorted((assistant.project / ".loom/local/hooks").iterdir())
    assert {path.name for path in fired} >= set(WATCHED.values())
    then = time.time() - LONG_AGO
    for path in fired:
        os.utime(path, (then, then))
    return first.session_id


@pytest.mark.parametrize("event", ["Stop", "SessionStart", "PostCompact"])
def test_a_hook_that_is_called_no_longer_is_noticed(
    played: Played, api: ScriptedApi, bundle: Path, tmp_path: Path, event: str
) -> None:
    assistant, first = played.after(worked_long_ago, api)
    lame = dataclasses.replace(assistant, plugin_dir=without(bundle, assistant.machine.cache, tmp_path, event))
    work(lame.conversation("--resume", first, "--allowedTools", LOOMCTL_ALLOWED))
    silent = asked(lame, bundle, "status")["hooks"]["silent"]
    assert [(one["event"], one["how"]) for one in silent] == [(WATCHED[event], "stopped")]
    told = heartbeats(lame, bundle)
    assert told["status"] == "WARN"
    assert f"the hook {WATCHED[event]} should have fired since, but last did 1 h ago" in (told["found"])


@pytest.mark.quick
def test_with_all_hooks_nothing_is_silent(assistant: Assistant, bundle: Path) -> None:
    work(stay_in_run(assistant, LOOMCTL_ALLOWED))
    told = asked(assistant, bundle, "status")
    assert (told["hooks"]["silent"], told["compactions"]["count"]) == ([], 1)
    screen = assistant.machine.command(str(bundle / "bin/loomctl"), "status", cwd=assistant.project)
    assert len(screen.splitlines()) <= 24
    assert max(map(len, screen.splitlines())) <= 80


@pytest.mark.usefixtures("tmux")
def test_the_status_line_is_on_the_screen(installed: Assistant, bundle: Path, tmp_path: Path) -> None:
    """Installed from the marketplace, with the snippet in the user's settings: the run's step, then the next one.

    The snippet is of a Loom in another folder, as before an update; a session's start makes its script follow.
    """
    before = shutil.copytree(bundle, tmp_path / "before the update")
    given = asked(installed, before, "statusline", "--snippet")
    settings = installed.machine.config / "settings.json"
    known = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
    settings.write_text(json.dumps({**known, **given["settings"]}), encoding="utf-8")
    write_plain(installed.project)
    installed.api.script("It is begun.", done(), "The first step is done.")
    with assistant_terminal(installed) as terminal:
        terminal.wait_for(PROMPT)
        assert "loom " not in terminal.screen().splitlines()[-1]
        terminal.enter('/loom:run "add dark mode" --workflow plain')
        terminal.wait_for("It is begun.")
        first = state_of(installed.project)["current_step"]
        label = handle(state_of(installed.project))
        terminal.wait_for(f"loom {label[:20]}", f"{first}@1")
        terminal.enter("/loom:status")
        terminal.wait_for("The first step is done.")
        second = state_of(installed.project)["current_step"]
        assert second != first
        terminal.wait_for(f"{second}@1 · 1/")
        terminal.enter("/clear")
        terminal.wait_for("SessionStart:clear says: Loom: run ")
        terminal.enter("/exit")
    script = Path(given["script"]).read_text(encoding="utf-8")
    assert str(bundle / "bin/loomctl") in script
    assert str(before) not in script


def examined(assistant: Assistant, bundle: Path) -> dict[str, dict[str, Any]]:
    told = assistant.machine.command(str(bundle / "bin/loomctl"), "doctor", "--json", cwd=assistant.project)
    return {check["id"]: check for check in json.loads(told)["checks"]}


@pytest.mark.quick
def test_each_hook_of_a_session_is_noted(in_run: InRun, bundle: Path) -> None:
    assistant, first = in_run
    assistant.run("go on", resume=first.session_id, answers=[done(), "It is done."])
    checks = examined(assistant, bundle)
    assert checks["heartbeats"]["status"] == "PASS"
    fired = {one["event"]: one for one in checks["heartbeats"]["fired"]}
    assert set(fired) == {"session-start", "user-prompt-submit", "pre-tool-use", "post-tool-use", "stop", "session-end"}
    assert {one["session_id"] for one in fired.values()} == {first.session_id}
    assert {one["version"] for one in fired.values()} == {__version__}
    assert all(one["launcher"].endswith("/bin/loomctl") for one in fired.values())
    assert (checks["round-trip"]["status"], checks["assistant"]["status"]) == ("PASS", "PASS")
