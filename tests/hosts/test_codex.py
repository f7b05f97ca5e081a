"""Codex CLI: its events as they come, its answers, its rollout, its terminals; no client is asked (D70)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from loomctl.hosts import table
from loomctl.hosts.asking import Answer, written
from loomctl.hosts.dialects import codex
from loomctl.kit.processes import boot_id
from loomctl.runs.machine.local import Local
from tests.helpers.scenes import CHECKOUT, OTHER, SESSION, Scene, artifact, run

FIXTURES = Path(__file__).parent / "fixtures" / "codex"
EVENTS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "events.json").read_text(encoding="utf-8"))
BEGUN, RESUMED, COMPACTED = "7b24238bc0208bc4", "372d14e7772e4b1e", "fcc856014f9ec665"  # the slips in the rollout
LAUNCHER = str(CHECKOUT / "bin" / "loomctl")
THIRD = "5f2a7d1e-0000-4000-8000-000000000031"


# Its events and answers


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_the_protocols_but_for_the_name_of_its_turn(name: str) -> None:
    event = EVENTS[name]
    turn = {"prompt_id": event["turn_id"]} if "turn_id" in event else {}
    assert codex.read(name.partition(" ")[0], event) == {**event, **turn}


def test_events_of_a_turn_name_it() -> None:
    assert {name for name in EVENTS if "turn_id" not in EVENTS[name]} == {
        "session-start", "session-start of a resume", "session-start of a compaction", "session-start of a clear",
        "session-end",
    }  # fmt: skip


def test_an_answer_blocks_and_tells_and_decides_nothing() -> None:
    def said(**told: Any) -> Any:
        text = written(Answer("Stop", **told), table.CODEX)
        return json.loads(text) if text else None

    assert said(goes_on="go on") == {"decision": "block", "reason": "go on"}
    assert said(output="short") == {"decision": "block", "reason": "short"}
    own = {"hookEventName": "Stop", "additionalContext": "know"}
    assert said(text="know", line="Loom: it stands") == {"hookSpecificOutput": own, "systemMessage": "Loom: it stands"}
    assert said(decision="ask", why="only the user decides") is None


@pytest.mark.parametrize("name", [name for name in EVENTS if name.startswith("session-start")])
def test_each_start_is_primed(scene: Scene, name: str) -> None:
    scene.write("spec.md", "# The spec\n\nThe heliotrope switch survives a reload.\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    answer = json.loads(asked(scene, "session-start", {**EVENTS[name], "session_id": SESSION}))
    assert "The heliotrope switch survives a reload." in answer["hookSpecificOutput"]["additionalContext"]
    assert answer["systemMessage"].startswith("Loom: ")


@pytest.mark.parametrize("name", ["pre-tool-use", "post-tool-use of a command that fails"])
def test_a_call_is_answered_with_nothing(scene: Scene, name: str) -> None:
    scene.workflow()
    scene.begin()
    assert asked(scene, name.partition(" ")[0], {**EVENTS[name], "session_id": SESSION}) == ""


# Its rollout


def rollout(tmp_path: Path, until: str = "") -> codex.Transcript:
    """Write down the recorded lines. until: before the first one with these words."""
    lines = (FIXTURES / "rollout.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    end = next(place for place, line in enumerate(lines) if until in line) if until else None
    path = tmp_path / "rollout.jsonl"
    path.write_text("".join(lines[:end]), encoding="utf-8")
    return codex.Transcript(str(path))


def test_what_was_given_is_live_until_the_next_compaction(tmp_path: Path) -> None:
    before = rollout(tmp_path, '"type": "compacted"')
    assert before.holds([BEGUN, RESUMED]) == {BEGUN, RESUMED}  # in a command's output, and of a start
    assert (before.boundary(), before.summary()) == (None, None)
    after = rollout(tmp_path)
    assert after.holds([BEGUN, RESUMED, COMPACTED]) == {COMPACTED}
    assert after.boundary() == "2026-11-26T13:40:10.663Z"
    assert str(after.summary()).endswith("\nA short text.")


def test_what_was_said_is_read(tmp_path: Path) -> None:
    seen = rollout(tmp_path)
    said = ["The first step is done.", "I looked. Word1end", "A short text.", "It goes on. Word2end"]
    assert str(seen.said_since("2026-11-26T13:40:05Z")).split("\n\n") == said
    assert seen.said_since("2026-11-26T13:40:14Z") == "It goes on. Word2end"
    assert seen.called_at() > rollout(tmp_path, '"type": "compacted"').called_at() > 0


def test_its_turns_are_known_by_their_ids(tmp_path: Path) -> None:
    seen = rollout(tmp_path)
    turn = EVENTS["user-prompt-submit"]["turn_id"]
    assert not seen.began_with_loom(turn, [])
    assert seen.began_with_loom(turn, [turn])


# Its terminals, all of which have one process in the background that calls the hooks


@pytest.fixture
def terminals(scene: Scene) -> Scene:
    """A run that one terminal's session drives; its hooks have told which process that is."""
    scene.workflow()
    scene.begin()
    hook(scene, "session-start", SESSION, source="resume")
    hook(scene, "stop", SESSION)
    assert driver(scene) == SESSION
    return scene


def hook(scene: Scene, word: str, session: str, **told: Any) -> None:
    asked(scene, word, {"session_id": session, "hook_event_name": word, **told})


def asked(scene: Scene, word: str, event: dict[str, Any]) -> str:
    words = [LAUNCHER, "hook", "--host", "codex", word]
    environ = {**scene.environ(), "LOOM_CALLER": str(os.getpid())}
    event = {**event, "cwd": str(scene.root), "transcript_path": ""}
    return run(words, cwd=scene.root, environ=environ, given=json.dumps(event)).ends().stdout


def driver(scene: Scene) -> object:
    return scene.state["sessions"]["current_session_id"]


def bound(scene: Scene, session: str) -> object:
    return Local(str(Path(scene.store, "local"))).binding(session)


def test_a_second_terminal_does_not_take_the_run_of_the_first(terminals: Scene) -> None:
    hook(terminals, "session-start", OTHER, source="startup")
    assert bound(terminals, OTHER) is None
    assert driver(terminals) == SESSION


def test_a_terminal_that_is_cleared_goes_on_with_its_run(terminals: Scene) -> None:
    hook(terminals, "session-start", OTHER, source="clear")
    assert bound(terminals, OTHER)
    assert driver(terminals) == OTHER


def test_a_terminal_that_is_cleared_does_not_take_its_neighbours_run(terminals: Scene) -> None:
    hook(terminals, "session-start", OTHER, source="startup")
    hook(terminals, "user-prompt-submit", OTHER, prompt="hello")
    hook(terminals, "session-start", THIRD, source="clear")
    assert bound(terminals, THIRD) is None
    assert driver(terminals) == SESSION


def test_a_terminal_goes_on_after_a_clear_with_a_run_that_it_began_in_its_sandbox(scene: Scene) -> None:
    """There nobody knows the process that drives; a hook of the session does, and notes it."""
    scene.workflow()
    scene.begin()
    (note,) = (scene.store / "local/drivers").iterdir()
    note.write_text(json.dumps({**json.loads(note.read_text()), "process": {"pid": None, "boot_id": boot_id()}}))
    hook(scene, "user-prompt-submit", SESSION, prompt="hello")
    hook(scene, "stop", SESSION)
    hook(scene, "session-start", OTHER, source="clear")
    assert driver(scene) == OTHER
