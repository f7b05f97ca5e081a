"""`loomctl simulate --event` prints, byte for byte, what the real assistant is sent then."""

import os
import re
import uuid
from pathlib import Path

import pytest

from tests.e2e.assistant import Assistant
from tests.e2e.scenes import SENTENCE, InRun, fingerprint, given_at_starts, state_of, write_spec
from tests.helpers.scenes import handle

SLIP = re.compile(r"(?<=\nLoom slip )[0-9a-f]{16}\Z")


def simulated(assistant: Assistant, bundle: Path, event: str, *words: str) -> str:
    before = fingerprint(assistant.project)
    loomctl = os.path.join(bundle, "bin", "loomctl")
    text = assistant.machine.command(loomctl, "simulate", "--event", event, *words, cwd=assistant.project)
    assert fingerprint(assistant.project) == before
    return text


def test_after_a_compaction_and_in_a_new_session(in_run: InRun, bundle: Path) -> None:
    assistant, first = in_run
    assistant.run("go on", resume=first.session_id)
    text = simulated(assistant, bundle, "compact")
    assert SENTENCE in text
    assistant.run("/compact", resume=first.session_id)
    assert simulated(assistant, bundle, "resume") == ""  # the next prompt comes in a process of its own
    assert given_at_starts(assistant.run("go on", resume=first.session_id)) == [text]
    session_id = str(uuid.uuid4())
    text = simulated(assistant, bundle, "startup", "--session", session_id)
    assert SENTENCE in text
    assert given_at_starts(assistant.run("hello", session_id=session_id)) == [text]


def test_of_a_workflow_without_a_run(assistant: Assistant, bundle: Path) -> None:
    words = ("core", "--goal", "add dark mode")
    text = simulated(assistant, bundle, "compact", *words)
    first = assistant.run('/loom:run "add dark mode" --workflow core', answers=["I shall look into it."])
    assistant.run("/compact", resume=first.session_id)
    (real,) = given_at_starts(assistant.run("go on", resume=first.session_id))
    (run_id,) = set(re.findall(r"project-add-dark-mode-run-2000[0-9TZ-]+", text))
    assert simulated(assistant, bundle, "compact", *words) == text
    text = text.replace(run_id, state_of(assistant.project)["run_id"])
    text = text.replace(handle(run_id), handle(state_of(assistant.project)))
    assert SLIP.sub("", real) == SLIP.sub("", text)


def test_in_a_resumed_session(in_run: InRun, bundle: Path) -> None:
    """What its conversation holds is left out of both, and what changed meanwhile is in both (D15)."""
    assistant, first = in_run
    spec = simulated(assistant, bundle, "resume")
    assert SENTENCE in spec
    assert given_at_starts(assistant.run("go on", resume=first.session_id)) == [spec]
    assert simulated(assistant, bundle, "resume") == ""
    assert given_at_starts(assistant.run("go on", resume=first.session_id)) == [spec]
    write_spec(assistant.project, "# Dark mode\n\nEverything is viridian.\n")
    text = simulated(assistant, bundle, "resume")
    assert "viridian" in text
    assert given_at_starts(assistant.run("go on", resume=first.session_id)) == [spec, text]


def test_after_a_clear(in_run: InRun, bundle: Path) -> None:
    assistant, first = in_run
    text = simulated(assistant, bundle, "clear")
    assert SENTENCE in text
    cleared = assistant.run("/clear", resume=first.session_id)
    assert simulated(assistant, bundle, "resume") == ""  # the next prompt comes in a process of its own
    (real,) = given_at_starts(assistant.run("go on", resume=cleared.session_id))
    assert SLIP.sub("", real) == SLIP.sub("", text)


@pytest.mark.quick
def test_in_a_forked_session(in_run: InRun, bundle: Path) -> None:
    assistant, first = in_run
    session_id = str(uuid.uuid4())
    text = simulated(assistant, bundle, "fork", "--session", session_id)
    assert SENTENCE in text
    turn = assistant.run("go on", resume=first.session_id, session_id=session_id, fork=True)
    assert turn.session_id == session_id
    assert given_at_starts(turn) == [text]
