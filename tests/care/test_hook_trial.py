"""The doctor's trial of a hook: a real call through the launcher, judged by what a host would get."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path

import pytest

from loomctl.hosts import hook_checks
from loomctl.kit.processes import Ended
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding
from tests.helpers.patients import copied_bundle, patient
from tests.helpers.scenes import Scene, fingerprint
from tests.helpers.tables import each
from tests.helpers.waiting import in_time, until

# What a launcher that works as it should answers, with the mark that the trial looks for.
GOOD = json.dumps(
    {"systemMessage": "fine", "hookSpecificOutput": {"additionalContext": hook_checks.MARK, "hookEventName": "x"}}
)
BEAT = 'printf "0.1.0 x y\\n" >"$CLAUDE_PROJECT_DIR/.loom/local/hooks/session-start"'


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary ü"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def tried(where: Path, script: str, *, timeout: int = 10) -> Finding:
    bundle = copied_bundle(where / "a 'bundle'")
    launcher = bundle / "bin/loomctl"
    launcher.write_text(f"#!/bin/sh\n{script}\n")
    raw = json.loads((bundle / "hooks/claude-code.json").read_text())
    raw["hooks"]["SessionStart"][0]["hooks"][0]["timeout"] = timeout
    (bundle / "hooks/claude-code.json").write_text(json.dumps(raw))
    return hook_checks.round_trip(patient(where, bundle=bundle))


def test_a_hook_that_works_tells_its_time(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole SessionStart through this bundle's own launcher; nothing is left, and no caller's setting disturbs it."""
    monkeypatch.setenv("LOOM_DISABLED", "1")
    monkeypatch.setenv("CLAUDE_PID", "1")
    monkeypatch.setenv("LOOM_STATE_HOME", "/dev/null/nowhere")
    found = hook_checks.round_trip(patient(tmp_path))
    assert found.status == PASS
    assert found.facts["milliseconds"] > 0
    assert found.details[0].startswith("Loom: run try-a-hook-")
    assert list(temporary.iterdir()) == []


def test_the_callers_own_session_and_store_stay_as_they_are(scene: Scene, user_folders: Path) -> None:
    """In a session that drives a run neither its store nor its home knows of the trial."""
    scene.workflow()
    scene.begin()
    before = [fingerprint(place) for place in (scene.root, user_folders)]
    assert hook_checks.round_trip(patient(scene)).status == PASS
    assert [fingerprint(place) for place in (scene.root, user_folders)] == before


BROKEN: dict[str, tuple[str, str]] = {
    "nothing": ("exit 0", "answered nothing"),
    "a code that blocks": ("echo usage >&2; exit 2", "ended with 2 instead of 0"),
    "a missing program": ("exec /nonexistent/python", "instead of 0"),
    "text": ("echo hello", "no host understands"),
    "a list": ("echo '[]'", "no host understands"),
    "another form": ("echo '{\"hookSpecificOutput\": []}'", "did not load its run's files"),
    "a message alone": ('echo \'{"systemMessage": "Loom: no Python"}\'', "did not load its run's files"),
    "bytes": ("printf '\\377\\376'", "no host understands"),
}


@each("name", BROKEN)
def test_a_hook_that_does_not_do_its_work_fails(tmp_path: Path, temporary: Path, name: str) -> None:
    script, words = BROKEN[name]
    found = tried(tmp_path, script)
    assert (found.status, words in found.found) == (FAIL, True), found
    assert found.hint
    assert list(temporary.iterdir()) == []


def test_what_a_failing_hook_said_is_told(tmp_path: Path) -> None:
    assert tried(tmp_path / "a", "echo no such thing >&2; exit 1").details == ["it said: no such thing"]
    assert tried(tmp_path / "b", 'echo \'{"systemMessage": "Loom: no Python"}\'').details == [
        "it said: Loom: no Python"
    ]


@pytest.mark.slow
def test_a_hook_that_hangs_is_ended_with_its_children(tmp_path: Path, temporary: Path) -> None:
    began = tmp_path / "pid"

    def hang(seconds: float) -> None:
        limit = math.ceil(seconds)
        found = tried(tmp_path / f"{limit}-{seconds}", f"sleep 60 & echo $! >{began}; wait", timeout=limit)
        assert (found.status, f"did not end within {limit} s" in found.found) == (FAIL, True)

    in_time(hang, lambda: began.is_file() and began.read_text().endswith("\n"))
    pid = int(began.read_text())
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: not stat.exists() or stat.read_text().split()[2] == "Z", "a killed process to be gone")
    assert list(temporary.iterdir()) == []


def test_a_hook_that_takes_most_of_its_time_warns(tmp_path: Path) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/session-start").write_text("0.1.0 x y\n")
    for seconds, status in ((4.9, PASS), (5.1, WARN)):
        found = hook_checks._judged(Ended(0, GOOD.encode(), b"", seconds), 10.0, str(tmp_path))
        assert (found.status, found.facts) == (status, {"milliseconds": seconds * 1000})


def test_a_slow_first_start_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first call that looks for Python and compiles is called again, and both times are told."""
    monkeypatch.setattr(hook_checks, "SLOW", 0.0)
    found = tried(tmp_path, f"echo x >>{tmp_path}/calls; {BEAT}; echo '{GOOD}'")
    assert (tmp_path / "calls").read_text() == "x\nx\n"
    assert found.status == PASS
    assert found.details[-1].startswith("the first call took ")


def test_a_launcher_that_notes_nothing_is_noticed(tmp_path: Path) -> None:
    found = tried(tmp_path, f"echo '{GOOD}'")
    assert (found.status, "did not record it" in found.found) == (WARN, True)


def test_without_a_temporary_folder_nothing_is_tried_in_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert hook_checks.round_trip(patient(tmp_path)).status == WARN
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null/nowhere")
    assert hook_checks.round_trip(patient(tmp_path)).status == WARN
    assert os.listdir(tmp_path) == []
