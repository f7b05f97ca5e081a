"""OpenCode alone: what a server of several sessions, subagents, its commands and odd folders ask for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import scenes
from tests.e2e.clients.client import Turn, wait_until
from tests.e2e.clients.machines import Machines
from tests.e2e.clients.models import Says
from tests.e2e.clients.opencode import OpenCode, OpenCodeTalk
from tests.e2e.promises import DONE, ENDED, begun, done_steps, first, flow
from tests.e2e.scenes import SENTENCE, state_of
from tests.e2e.test_outcomes import step, workflow
from tests.helpers import bytecode


class Odd(OpenCode):
    """A bundle and a project whose folders have names that must be written otherwise in an address."""

    def __init__(self, bundle: Path, cache: Path) -> None:
        super().__init__(bundle, cache)
        odd = self.root / "каталог #1 100% ö"
        odd.mkdir()
        self.bundle = self.bundle.rename(odd / "loom")
        self.compiled.add(bytecode.share(cache, self.bundle))
        link = self.home / ".local" / "bin" / "loomctl"
        link.unlink()
        link.symlink_to(self.bundle / "bin" / "loomctl")
        self.project = self.make_project("проект ö")


@pytest.fixture
def odd(bundle: Path, cache: Path) -> Iterator[OpenCode]:
    with Odd(bundle, cache) as client:
        yield client


@pytest.fixture
def client(machines: Machines) -> OpenCode:
    return machines.of(OpenCode)


class Session:
    """A session of a server's."""

    def __init__(self, client: OpenCode, ask: Any, known: str = "") -> None:
        self.client, self.ask = client, ask
        self.id = known or ask("/session", {})["id"]

    def say(self, prompt: str, *answers: Says | str) -> Turn:
        return self._after(answers, "message", {"parts": [{"type": "text", "text": prompt}]})

    def command(self, name: str, arguments: str, *answers: Says | str) -> Turn:
        return self._after(answers, "command", {"command": name, "arguments": arguments})

    def _after(self, answers: tuple[Says | str, ...], path: str, body: Any) -> Turn:
        self.client.model.script(answers)
        before = len(self.client.model.requests)
        self.ask(f"/session/{self.id}/{path}", body)
        self.client.rest(1.5)
        return Turn(self.id, self.client.asked(before))


def test_two_sessions_of_one_server_do_not_share_a_run(client: OpenCode) -> None:
    """The second may be another person's tab: it is told, loads nothing, and does not become the first one's heir."""
    turn = begun(client)
    with client.server() as ask:
        one = Session(client, ask, turn.session_id)
        one.say("go on")
        two = Session(client, ask)
        seen = first(two.say("hello")).seen()
        assert "drives" in seen
        assert SENTENCE not in seen
        refused = two.say("Take it up.", Says(shell="loomctl resume 2>&1"), "No.")
        assert "--take-over" in refused.conversation[-1].seen()
        one.say("go on", Says(shell=DONE.format("")), "It is written.")
    assert done_steps(client) == ["frame/fetch-work", "architect/spec"]
    assert state_of(client.project)["sessions"]["current_session_id"] == one.id


def test_a_killed_servers_session_goes_on_in_the_next_one_and_is_given_nothing_twice(client: OpenCode) -> None:
    turn = begun(client)
    with client.server() as ask:
        one = Session(client, ask, turn.session_id)
        one.say("go on")
        ask(f"/session/{one.id}/summarize", {"providerID": "scripted", "modelID": "m"})
        assert first(one.say("go on")).seen().count(SENTENCE) == 1  # said at once, before the host tells of the summary
    with client.server() as ask:
        again = Session(client, ask, turn.session_id)
        assert first(again.say("go on")).seen().count(SENTENCE) == 1
        done = again.say("go on", Says(shell=DONE.format("")), "It is written.")
        assert done.conversation[-1].seen().count(SENTENCE) == 1
    assert done_steps(client) == ["frame/fetch-work", "architect/spec"]


def test_a_summary_that_loom_was_told_nothing_of_is_made_up_for_once(
    client: OpenCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = begun(client)
    with client.server() as ask:
        Session(client, ask, turn.session_id).say("go on")
    without = {**client.environment(), "LOOM_DISABLED": "1"}
    with monkeypatch.context() as off:
        off.setattr(client, "environment", lambda: without)
        with client.server() as ask:
            ask(f"/session/{turn.session_id}/summarize", {"providerID": "scripted", "modelID": "m"})
    with client.server() as ask:
        again = Session(client, ask, turn.session_id)
        assert [first(again.say("go on")).seen().count(SENTENCE) for _ in range(2)] == [1, 1]


def test_a_subagent_is_given_nothing_and_its_calls_are_the_runs(
    client: OpenCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = begun(client)
    words = {"description": "Look", "prompt": "Look around.", "subagent_type": "general"}
    monkeypatch.setitem(client.calls, "subagent", ("task", words))
    with client.server() as ask:
        main = Session(client, ask, turn.session_id)
        shell = "echo seen-by-$OPENCODE_SESSION_ID"
        after = main.say("look", Says(shell="subagent"), Says(shell=shell), "It is all there.", "Thanks.")
    child = next(one for one in after.conversation if "Look around." in json.dumps(one.body["messages"][1]))
    assert SENTENCE not in child.seen()
    assert any(f"seen-by-{main.id}" in one.seen() for one in after.conversation)
    assert "seen-by" in client.loomctl("steps", "--agents", "--json")


def test_its_users_command_decides_in_a_terminal_alone(client: OpenCode) -> None:
    """Nobody is asked about the assistant's own call; a server takes a command from whoever reaches its port (D68)."""
    workflow(client.project, {"id": "gate", "kind": "human", "prompt": "Is it good?"}, step("after"))
    with client.server() as ask:
        one = Session(client, ask)
        one.command("loom:run", "'x' --workflow flow", "It waits.")
        hidden = "v=approve; loomctl $v 2>&1"
        told = one.say("go on", Says(shell="loomctl approve 2>&1"), Says(shell=hidden), "No.").conversation[-1].seen()
        assert told.count("ASK_FIRST") == 2
        assert "ASK_FIRST" in one.command("loom:approve", "", "It waits.").conversation[-1].seen()
    assert state_of(client.project)["approvals"] == []
    with client.open(one.id) as talk:
        assert isinstance(talk, OpenCodeTalk)
        talk.say("go on")
        client.model.script(["It goes on."])
        talk.terminal.type("/loom:approve")
        talk.terminal.wait_for("/loom:approve")
        time.sleep(1)  # an Enter too soon chooses in the list of commands
        talk.terminal.press("Enter")
        talk.terminal.press("Enter")
        wait_until(lambda: state_of(client.project)["approvals"], "approved")


def test_a_run_in_one_go_ends_its_step_and_is_driven_no_further(client: OpenCode) -> None:
    """`opencode run` ends when its turn does, whatever a plugin would say (the page of assistants says so)."""
    flow(client, 3)
    before = len(client.asked(0))
    client.model.script([f"One is done. {ENDED}", f"Two is done. {ENDED}"])
    words = ["run", "--format", "json", "--command", "loom:run", "--", "three", "--workflow", "flow"]
    client.finished([client.binary, *words])
    assert len([one for one in client.asked(before) if one.kind == "main"]) == 1
    assert done_steps(client) == ["build/s1"]


def test_folders_of_any_name(odd: OpenCode) -> None:
    turn = begun(odd)
    assert SENTENCE in first(odd.tell("hello")).seen()
    after = odd.tell("look", Says(shell="seq 1 20000"), "I looked.", session=turn.session_id)
    assert "shortened by Loom" in after.conversation[-1].seen()
    scenes.write_spec(odd.project, scenes.SPEC + "\nIt is viridian.\n")
    assert "viridian" in first(odd.tell("go on", session=turn.session_id)).seen()


def test_a_bundle_that_goes_away_stops_nothing(client: OpenCode) -> None:
    turn = begun(client)
    with client.server() as ask:
        one = Session(client, ask, turn.session_id)
        one.say("go on")
        gone = client.bundle.rename(client.root / "elsewhere")
        told = one.say("go on", Says(shell="echo still here"), "It works.")
        assert "still here" in told.conversation[-1].seen()
        gone.rename(client.bundle)
        one.say("go on", Says(shell=DONE.format("")), "It is written.")
    assert done_steps(client) == ["frame/fetch-work", "architect/spec"]
