"""A Stop that the host calls before it has written down what the turn began and ended with (D27, D28)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow.stop import Stopped
from loomctl.hosts.protocol import stop, transcript
from tests.helpers.scenes import Scene, TranscriptFile
from tests.helpers.verbs import done, go_on, read, take_back

COMMAND = "<command-message>loom:run</command-message>\n<command-name>/loom:run</command-name>"
DIRECTIVE = '{"outcome": "succeeded"}'


class Clock:
    """A clock that goes on while somebody waits, and does something at a time."""

    def __init__(self) -> None:
        self.at = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        for at, do in [one for one in self.due if one[0] <= self.at]:
            self.due.remove((at, do))
            do()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(transcript, "time", made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> TranscriptFile:
    return TranscriptFile(tmp_path / "session.jsonl")


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow(autonomy="autonomous")
    scene.begin()
    return scene


def prompted(file: TranscriptFile, words: str = COMMAND, prompt_id: str = "p") -> None:
    file.add({"type": "user", "promptId": prompt_id, "message": {"role": "user", "content": words}})


def prompted_and_said(file: TranscriptFile) -> None:
    prompted(file)
    file.says(DIRECTIVE)


def stops(scene: Scene, file: TranscriptFile, message: str = DIRECTIVE, prompt_id: str = "p") -> Stopped:
    space = scene.space(transcript=file.path, on_hook_path=True)
    binding = space.local.binding(space.caller.session_id)
    assert binding is not None
    event: dict[str, Any] = {"prompt_id": prompt_id, "last_assistant_message": message}
    return stop.end_turn(space, space.store.read(binding["run_id"]), binding, event)


def test_that_a_run_is_over_is_said_once_each_time(
    begun: Scene, file: TranscriptFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompted_and_said(file)
    while begun.state["status"] == "in_progress":
        done(begun)
    assert [stops(begun, file).line for _ in range(3)] == ["Loom: The run is completed.", "", ""]
    take_back(begun)
    monkeypatch.setattr("loomctl.kit.clock.now", lambda: "2030-01-01T00:00:00Z")
    done(begun)
    assert [stops(begun, file).line for _ in range(2)] == ["Loom: The run is completed.", ""]


def test_a_turn_after_the_end_is_no_more_looms(begun: Scene, file: TranscriptFile) -> None:
    """An answer ended the run; what its user says next is not about it, though it is opened again."""
    prompted(file)
    file.says("Which colour?")
    stops(begun, file, "Which colour?")
    assert stops(begun, file, "Which colour?").waits
    while begun.state["status"] not in ("completed", "failed"):
        done(begun)
    prompted(file, "blue", "q")
    file.says("It is done.")
    assert stops(begun, file, "It is done.", "q").line == "Loom: The run is completed."
    take_back(begun)
    prompted(file, "what is the weather?", "r")
    file.says("Sunny.")
    assert stops(begun, file, "Sunny.", "r") == Stopped()


def test_what_a_stop_itself_ended_is_not_said_again(begun: Scene, file: TranscriptFile) -> None:
    prompted_and_said(file)
    while begun.state["current_step"] != "ship/send":
        done(begun)
    go_on(begun)
    said = [stops(begun, file).line for _ in range(2)]
    assert ("The run is completed." in said[0], said[1]) == (True, "")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_prompt_that_is_written_after_the_stop_is_waited_for(
    begun: Scene, file: TranscriptFile, clock: Clock, is_there: bool
) -> None:
    """Or its file; else a turn of Loom's would pass for its user's, and the run would stand still."""
    if not is_there:
        file.path.unlink()
    clock.due = [(0.3, lambda: prompted_and_said(file))]
    assert "loomctl next" in stops(begun, file).block
    assert 0.3 <= clock.at < 0.4


def test_a_prompt_that_is_half_written_is_waited_for(begun: Scene, file: TranscriptFile, clock: Clock) -> None:
    prompted(file)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-20])
    clock.due = [(0.1, lambda: (file.path.write_bytes(whole), file.says(DIRECTIVE)))]
    assert "loomctl next" in stops(begun, file).block


def test_the_message_is_waited_for_so_that_it_is_taken_whole(begun: Scene, file: TranscriptFile, clock: Clock) -> None:
    """The host hands over the last block; the others stand in the transcript, also where one before ended alike."""
    prompted(file)
    file.says("of the step before", message="m-1")
    file.says(DIRECTIVE, message="m-1")
    prompted(file, "Stop hook feedback")
    clock.due = [
        (0.1, lambda: file.says("What I did.", message="m-2")),
        (0.2, lambda: file.says(DIRECTIVE, message="m-2")),
    ]
    stops(begun, file)
    assert read(begun, "001-frame.ask@1", "response.md") == f"What I did.\n\n{DIRECTIVE}"


def test_what_stands_there_is_not_waited_for(begun: Scene, file: TranscriptFile, clock: Clock) -> None:
    prompted(file)
    file.says(DIRECTIVE)
    file.note({"type": "last-prompt", "lastPrompt": "x"})
    assert "loomctl next" in stops(begun, file).block
    assert clock.at == 0


@pytest.mark.parametrize("told", [False, True])
def test_a_host_that_writes_nothing_down_is_not_waited_for_long(
    begun: Scene, file: TranscriptFile, clock: Clock, *, told: bool
) -> None:
    """Neither for the prompt nor for the message; the step ends by what was handed over, its user's next turn."""
    file.note({"type": "last-prompt", "lastPrompt": "of an earlier turn"})
    if told:
        prompted(file, "go on")
    stopped = stops(begun, file)
    assert not stopped.block
    assert "frame/ask succeeded" in stopped.line
    assert clock.at == pytest.approx(1.0 if told else 3.0, abs=0.1)


def test_a_session_that_is_kept_in_no_transcript_is_hardly_waited_for(
    begun: Scene, file: TranscriptFile, clock: Clock
) -> None:
    """Its host names a file that never comes (`--no-session-persistence`), at each stop."""
    file.path.unlink()
    assert "frame/ask succeeded" in stops(begun, file).line
    assert clock.at == pytest.approx(0.5, abs=0.1)


def test_a_session_without_a_transcript_is_not_waited_for(begun: Scene, clock: Clock) -> None:
    transcript.Transcript(None).await_turn("p", "the end")
    assert clock.at == 0
    assert begun.state["status"] == "in_progress"


def test_no_content_of_a_transcript_breaks_the_waiting(file: TranscriptFile, clock: Clock) -> None:
    for line in (b'"p"', b"p", b'["p"]', b'{"promptId": 1, "p": 2}', b"\xffp", json.dumps({"type": "user"}).encode()):
        file.path.write_bytes(line + b"\n")
        transcript.Transcript(str(file.path)).await_turn("p", "the end")
    assert clock.at == pytest.approx(18, abs=1)
