"""Whether the doctor sees that hooks cannot do their work, or did not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl import __version__
from loomctl.flow import start
from loomctl.hosts import hook_checks
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding
from loomctl.runs.machine.launcher_files import EVENTS
from tests.helpers.patients import copied_bundle, patient
from tests.helpers.scenes import OTHER, SESSION, Scene
from tests.helpers.tables import each

MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


@each("value, status", [(None, PASS), ("", PASS), ("1", FAIL), ("true", WARN), ("0", WARN)])
def test_the_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, status: str) -> None:  # D57
    if value is not None:
        monkeypatch.setenv("LOOM_DISABLED", value)
    found = hook_checks.switch(patient(tmp_path))
    assert (found.status, found.hint) == (status, "" if status == PASS else "unset LOOM_DISABLED")


# ---- The bundle's entries.


def rewritten(bundle: Path, change: Callable[[str], str]) -> None:
    path = bundle / "hooks/claude-code.json"
    path.write_text(change(path.read_text()))


def without_stop(text: str) -> str:
    raw = json.loads(text)
    del raw["hooks"]["Stop"]
    return json.dumps(raw)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no launcher": (lambda bundle: (bundle / "bin/loomctl").unlink(), "which is not there"),
    "not executable": (lambda bundle: (bundle / "bin/loomctl").chmod(0o644), "cannot be executed"),
    "no file": (lambda bundle: (bundle / "hooks/claude-code.json").unlink(), "cannot read the bundle's hooks"),
    "no json": (
        lambda bundle: rewritten(bundle, lambda text: text[:-5]),
        "hooks: the file is not JSON",
    ),
    "a list": (lambda bundle: rewritten(bundle, lambda _: "[]"), "form"),
    "no commands": (lambda bundle: rewritten(bundle, lambda _: '{"hooks": {"Stop": [{}]}}'), "form"),
    "unknown event": (lambda bundle: rewritten(bundle, lambda text: text.replace("code stop", "code stopp")), "stopp"),
    "odd command": (
        lambda bundle: rewritten(bundle, lambda text: text.replace(" claude-code stop", "' x")),
        "does not have",
    ),
    "an event less": (lambda bundle: rewritten(bundle, without_stop), "no hook for stop"),
}


@each("is_clone", [True, False])
@each("name", DAMAGES)
def test_hooks_that_cannot_be_called_fail(tmp_path: Path, name: str, is_clone: bool) -> None:
    """Each kind of damage to the bundle is a failure with a command that mends it; git mends a clone."""
    damage, words = DAMAGES[name]
    bundle = copied_bundle(tmp_path / "a bundle")
    if is_clone:
        (bundle / ".git").mkdir()
    assert hook_checks.hooks(patient(tmp_path, bundle=bundle)).status == PASS
    damage(bundle)
    found = hook_checks.hooks(patient(tmp_path, bundle=bundle))
    assert found.status == FAIL
    assert words in " ".join([found.found, *found.details])
    part = "bin" if name == "no launcher" else "hooks"
    mended = f"git -C '{bundle}' checkout -- {part}" if is_clone else "claude plugin install loom@loom"
    assert found.hint == (f"chmod +x '{bundle}/bin/loomctl'" if name == "not executable" else mended)


# ---- When each last fired.


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """A run that a session of an assistant drives since two days, its last sign of life a minute ago."""
    scene.workflow()
    scene.begin()
    bind_times(scene, SESSION, bound=2 * DAY, sign=MINUTE)
    return scene


def bind_times(scene: Scene, session: str, *, bound: float, sign: float) -> None:
    """Say how many seconds ago a session was bound, and when it last gave a sign of life."""
    path = scene.store / f"local/sessions/{session}.json"
    binding = json.loads(path.read_text())
    binding["bound_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - bound))
    path.write_text(json.dumps(binding))
    os.utime(path, (time.time() - sign,) * 2)


def fire(scene: Scene, ago: dict[str, float], session: str = SESSION) -> None:
    for event, seconds in ago.items():
        path = scene.store / "local/hooks" / event
        path.write_text(f"{__version__} {session} /x/bin/loomctl\n")
        os.utime(path, (time.time() - seconds,) * 2)


ALL = {event: float(2 * MINUTE) for event in EVENTS}


def firings(scene: Scene) -> Finding:
    return hook_checks.firings(patient(scene))


def test_hooks_that_fire_are_told_one_by_one(begun: Scene) -> None:
    fire(begun, ALL)
    found = firings(begun)
    assert found.status == PASS
    assert found.details == tuple(f"{event}: 2 min ago, in the session {SESSION}, by {__version__}" for event in EVENTS)
    assert [one["event"] for one in found.facts["fired"]] == list(EVENTS)
    assert found.facts["fired"][0]["session_id"] == SESSION


SILENT = {"pre-compact", "post-compact", "session-end", "post-tool-use", "post-tool-use-failure"}
CASES: dict[str, tuple[dict[str, float], str, str]] = {
    "the rare ones may be silent": ({k: v for k, v in ALL.items() if k not in SILENT}, PASS, "4 of 9"),
    "none ever": ({}, FAIL, "no hook has fired here, ever, though the session"),
    "none since": (dict.fromkeys(ALL, 3 * HOUR), FAIL, "no hook has fired since 3 h ago"),
    "one never": ({k: v for k, v in ALL.items() if k != "stop"}, WARN, "the hook stop has never fired"),
    "start never": ({k: v for k, v in ALL.items() if k != "session-start"}, WARN, "session-start has never"),
    "no end of turn for long": ({**ALL, "stop": 2.0 * DAY}, WARN, "the hook stop should have fired since"),
    "no prompt for long": (
        {**ALL, "user-prompt-submit": 2.0 * DAY},
        WARN,
        "user-prompt-submit should have fired since",
    ),
    "a start long ago": ({**ALL, "session-start": 2.0 * DAY}, PASS, "9 of 9"),
    "a clock set back": (dict.fromkeys(ALL, -2.0 * HOUR), PASS, "in the future"),
}


@each("name", CASES)
def test_silence_is_told_from_what_is_usual(begun: Scene, name: str) -> None:
    """Hooks against what the session did: silence while it worked fails; one silent hook among others warns."""
    ago, status, words = CASES[name]
    fire(begun, ago)
    found = firings(begun)
    assert (found.status, words in found.found) == (status, True), found
    assert bool(found.hint) == (status != PASS)


def test_a_session_that_was_just_bound_is_given_time(begun: Scene) -> None:
    bind_times(begun, SESSION, bound=MINUTE, sign=0)
    found = firings(begun)
    assert (found.status, "no hook has fired yet" in found.found) == (WARN, True)


def test_a_session_that_ended_long_ago_proves_nothing_against_hooks(begun: Scene) -> None:
    bind_times(begun, SESSION, bound=9 * DAY, sign=8 * DAY)
    fire(begun, dict.fromkeys(ALL, 8.0 * DAY))
    assert firings(begun).status == PASS


def test_a_terminal_needs_no_hooks(scene: Scene) -> None:
    scene.workflow()
    start.start(scene.space("terminal-1", host="terminal"), "by hand", workflow="tiny")
    assert firings(scene).status == PASS


def test_without_room_for_notes_nothing_is_known(begun: Scene) -> None:
    """A session that was bound before notes were taken, or a link in their place, is a warning."""
    (begun.store / "local/hooks").rmdir()
    assert firings(begun).status == WARN
    (begun.store / "local/hooks").symlink_to(begun.root)
    assert firings(begun).status == WARN


def test_before_any_run_nothing_is_expected(scene: Scene, tmp_path: Path) -> None:
    scene.workflow()
    assert firings(scene).status == PASS
    (tmp_path / "empty").mkdir()
    assert hook_checks.firings(patient(tmp_path / "empty")).status == PASS


def test_hooks_of_an_unbound_session_count_too(scene: Scene) -> None:
    scene.workflow()
    scene.begin(session=None)
    (scene.store / "local/hooks").mkdir()
    fire(scene, {"session-start": 5.0}, OTHER)
    found = firings(scene)
    assert found.status == PASS
    for words in ("1 of 9 hooks have fired here, the last one session-start: just now", __version__):
        assert words in found.found


@each("text", ["{", "[]", '{"session_id": "other"}', ""])
def test_a_binding_that_cannot_be_read_warns(begun: Scene, text: str) -> None:
    """Hooks of that session know no run; the hint removes the file, and what else was found is still told."""
    path = begun.store / f"local/sessions/{OTHER}.json"
    before = hook_checks.firings(patient(begun))
    path.write_text(text)
    found = hook_checks.firings(patient(begun))
    told = [found.found, found.hint, *found.details]
    assert any(str(path) in line and "damaged" in line for line in told)
    assert any(f"rm {path}" in line for line in told)
    assert found.status == (WARN if before.status == PASS else before.status)
    assert set(before.details) <= set(found.details)


@pytest.mark.parametrize(
    ("host", "hint"),
    [("claude-code", "claude plugin enable loom@loom"), ("codex", "loomctl plugin install codex")],
)
def test_silence_is_mended_in_the_host_that_drives(begun: Scene, host: str, hint: str) -> None:
    path = begun.store / "local/sessions" / f"{SESSION}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": host}))

    found = firings(begun)

    assert (found.status, found.hint) == (FAIL, hint)
