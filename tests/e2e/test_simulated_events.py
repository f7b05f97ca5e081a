"""`loomctl simulate --event` prints, byte for byte, what the real assistant is sent then."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.e2e.scenes import SENTENCE, fingerprint, start_run, write_spec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.assistant import Assistant

pytestmark = pytest.mark.e2e


def simulated(assistant: Assistant, bundle: Path, event: str, *words: str) -> str:
    """Give what the command prints in a terminal beside the assistant; the run's files stay as they are."""
    before = fingerprint(assistant.project)
    loomctl = os.path.join(bundle, "bin", "loomctl")
    text = assistant.machine.command(loomctl, "simulate", "--event", event, *words, cwd=assistant.project)
    assert fingerprint(assistant.project) == before
    return text


def test_after_a_compaction(assistant: Assistant, bundle: Path) -> None:
    """What stands in the request after /compact is what was printed before it."""
    first = start_run(assistant)
    assistant.run("go on", resume=first.session_id)
    text = simulated(assistant, bundle, "compact")
    assert SENTENCE in text
    assistant.run("/compact", resume=first.session_id)
    after = assistant.run("go on", resume=first.session_id)
    assert after.conversation[0].seen().count(text) == 1


def test_in_a_new_session(assistant: Assistant, bundle: Path) -> None:
    """A conversation that drives nothing is primed by the third rule (D1)."""
    start_run(assistant)
    session_id = str(uuid.uuid4())
    text = simulated(assistant, bundle, "startup", "--session", session_id)
    turn = assistant.run("hello", session_id=session_id)
    assert text
    assert turn.conversation[0].seen().count(text) == 1


def test_in_a_resumed_session(assistant: Assistant, bundle: Path) -> None:
    """What its conversation holds is left out of both, and what changed meanwhile is in both (D15)."""
    first = start_run(assistant)
    assistant.run("go on", resume=first.session_id)
    assert simulated(assistant, bundle, "resume") == ""
    write_spec(assistant.project, "# Dark mode\n\nEverything is viridian.\n")
    text = simulated(assistant, bundle, "resume")
    assert "viridian" in text
    turn = assistant.run("go on", resume=first.session_id)
    assert turn.conversation[0].seen().count(text) == 1


def test_after_a_clear(assistant: Assistant, bundle: Path) -> None:
    """The new session's id cannot be known before: it is in the slip's id, on the last line, and nowhere else."""
    first = start_run(assistant)
    text = simulated(assistant, bundle, "clear")
    assert SENTENCE in text
    cleared = assistant.run("/clear", resume=first.session_id)
    turn = assistant.run("go on", resume=cleared.session_id)
    assert turn.conversation[0].seen().count(text.rpartition("\n")[0]) == 1


def test_in_a_forked_session(assistant: Assistant, bundle: Path) -> None:
    """A fork holds what its parent's conversation held."""
    first = start_run(assistant)
    text = simulated(assistant, bundle, "fork")
    assert SENTENCE in text
    turn = assistant.run("go on", resume=first.session_id, fork=True)
    assert turn.conversation[0].seen().count(text.rpartition("\n")[0]) == 1
