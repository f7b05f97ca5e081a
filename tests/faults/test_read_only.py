"""A project that may only be read is shown and primed; what would have to be written is a clear error (D55)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_INVALID
from tests.faults.stand import RESPONSE, SENTENCE, Stand
from tests.helpers.scenes import OTHER, SESSION, fingerprint


def _below(*tops: Path) -> list[Path]:
    return [path for top in tops for path in (top, *top.rglob("*")) if not path.is_symlink()]


@pytest.fixture
def sealed(stand: Stand) -> Iterator[Stand]:
    """A run with a step that ended; nothing of the project and of the user's folder may be written."""
    assert stand.cli("done", given=RESPONSE).code == 0
    everything = _below(stand.scene.root, Path(os.environ["HOME"]))
    for path in everything:
        path.chmod(0o500 if path.is_dir() else 0o400)
    yield stand
    for path in everything:
        path.chmod(0o700)


READING = (
    ("show",),
    ("show", "shop", "1"),
    ("stages",),
    ("runs",),
    ("sessions",),
    ("state", "show"),
    ("report",),
    ("paths",),
    ("memory",),
    ("check",),
    ("run", "more work", "--workflow", "tiny", "--dry-run"),
)
WRITING = (
    ("next",),
    ("done",),
    ("undo",),
    ("resume",),
    ("pause",),
    ("cancel",),
    ("run", "more work", "--workflow", "tiny"),
    ("memory", "on", "--yes"),
    ("runs", "archive", "shop", "--force"),
    ("runs", "rm", "shop", "--yes", "--force"),
)


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_what_only_reads_works(sealed: Stand, words: tuple[str, ...]) -> None:
    before = fingerprint(sealed.scene.root)
    answer = sealed.cli(*words, unprivileged=True)
    assert (answer.code, "error" in answer.json) == (0, False), answer
    assert fingerprint(sealed.scene.root) == before


def test_memory_that_is_current_is_not_in_the_way(stand: Stand) -> None:
    """Where nothing is to be written, looking at a run says nothing of what may not be written."""
    assert stand.cli("memory", "on", "--yes").code == 0
    everything = _below(stand.scene.root)
    for path in everything:
        path.chmod(0o500 if path.is_dir() else 0o400)
    shown = stand.cli("show", unprivileged=True)
    for path in everything:
        path.chmod(0o700)
    assert (shown.code, shown.stderr) == (0, "")


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_what_writes_names_what_it_may_not_write(sealed: Stand, words: tuple[str, ...]) -> None:
    """One error: what is forbidden, where, and how it is allowed; nothing is half done."""
    before = fingerprint(sealed.scene.root)
    answer = sealed.cli(*words, given=RESPONSE if words == ("done",) else None, unprivileged=True)
    assert (answer.code, answer.error["code"]) == (EXIT_INVALID, "SYSTEM"), answer
    assert "Permission denied" in answer.error["message"]
    assert answer.error["where"].startswith(str(sealed.scene.root))
    assert answer.error["hint"].startswith("chmod u+")
    assert "Traceback" not in answer.stderr
    assert fingerprint(sealed.scene.root) == before


@pytest.mark.parametrize("session", [SESSION, OTHER], ids=["bound", "unbound"])
def test_a_session_is_primed_and_told_that_it_was_not_recorded(sealed: Stand, session: str) -> None:
    """The context is given by the hook and by the command, and both say that they could not record it."""
    if session == OTHER:
        (sealed.scene.store / "local" / "sessions" / f"{SESSION}.json").chmod(0)  # nobody is known to drive it
    before = fingerprint(sealed.scene.root / "spec.md")
    answer = sealed.hook("session-start", session=session, told={"source": "compact"}, unprivileged=True)
    assert (answer.code, answer.stderr) == (0, "")
    assert SENTENCE in answer.context
    assert "could not record" in answer.message
    assert f"Permission denied: {sealed.scene.store}" in answer.message
    primed = sealed.cli("prime-context", session=session, unprivileged=True)
    assert primed.code == 0
    assert SENTENCE in primed.json["text"]
    assert "NOT_RECORDED" in {warning["code"] for warning in primed.json["warnings"]}
    assert fingerprint(sealed.scene.root / "spec.md") == before


@pytest.mark.parametrize("event", ["stop", "session-end", "pre-compact", "user-prompt-submit", "pre-tool-use"])
def test_no_other_hook_fails(sealed: Stand, event: str) -> None:
    told = {"last_assistant_message": RESPONSE, "reason": "other", "trigger": "auto"}
    answer = sealed.hook(event, told=dict(told), unprivileged=True)
    assert (answer.code, answer.stderr) == (0, "")
    if event == "stop":
        assert "Permission denied" in answer.message


def test_a_folder_of_the_user_that_cannot_be_written_is_said(stand: Stand) -> None:
    """Where only the note that this run is known here cannot be kept, the run is taken up and that is said."""
    home = Path(os.environ["LOOM_STATE_HOME"])
    for path in home.rglob("*.json"):
        path.unlink()
    for path in (*home.rglob("*"), home):
        path.chmod(0o500)
    try:
        answer = stand.cli("resume", unprivileged=True)
    finally:
        for path in (home, *home.rglob("*")):
            path.chmod(0o700)
    assert answer.code == 0
    assert any("could not remember the run" in note and str(home) in note for note in answer.json["notes"])
