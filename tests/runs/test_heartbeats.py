"""What is read of the hooks' firings: only what the launcher could have written, whatever stands there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loomctl.hosts.protocol.hooks import _ANSWERS
from loomctl.runs.machine import launcher_files
from loomctl.runs.machine.launcher_files import Beat
from loomctl.runs.machine.local import Local
from tests.helpers.tables import each


@pytest.fixture
def local(tmp_path: Path) -> Path:
    folder = tmp_path / ".loom/local"
    folder.mkdir(parents=True)
    launcher_files.make_rooms(str(folder))
    return folder


def test_the_events_are_those_that_are_answered() -> None:
    """But for one that a single host has, which says nothing about whether its hooks are called."""
    answered = {*_ANSWERS, "post-tool-use", "post-tool-use-failure"} - {"permission-request"}
    assert sorted(launcher_files.EVENTS) == sorted(answered)


@each(
    "content, told",
    [
        ("0.1.0 5f0c-1 /a path/bin/loomctl\n", ("5f0c-1", "0.1.0", "/a path/bin/loomctl")),
        ("0.1.0 - /bin/loomctl\n", ("", "0.1.0", "/bin/loomctl")),
        ("0.1.0 - /bin/two\nlines\n", ("", "0.1.0", "/bin/two")),
        ("", ("", "", "")),
        ("\n\n", ("", "", "")),
        ("0.1.0", ("", "0.1.0", "")),
    ],
)
def test_a_note_is_read(local: Path, content: str, told: tuple[str, str, str]) -> None:
    """Version, session and launcher of one line; the time is the file's; half a note is half known."""
    path = local / "hooks/stop"
    path.write_text(content)
    os.utime(path, (1000, 1000.5))
    assert launcher_files.beats(str(local)) == {"stop": Beat(1000.5, *told)}


def test_what_is_no_note_is_left_out(local: Path) -> None:
    hooks = local / "hooks"
    (hooks / "stop").write_bytes(b"\xff\xfe x y\n")
    (hooks / "session-start").mkdir()
    os.mkfifo(hooks / "session-end")
    (hooks / "pre-compact").symlink_to("stop")
    (hooks / "pre-tool-use").write_text("x" * 100_000)
    (hooks / "another").write_text("0.1.0 - /bin/loomctl\n")
    assert list(launcher_files.beats(str(local))) == ["stop"]


def test_a_place_has_notes_from_the_moment_a_binding_makes_room(tmp_path: Path) -> None:
    """A link in that place is left alone and not used."""
    outside = tmp_path / "outside"
    (outside / "hooks").mkdir(parents=True)
    (outside / "hooks/stop").write_text("0.1.0 - x\n")
    linked = tmp_path / "linked"
    linked.symlink_to(outside)
    launcher_files.make_rooms(str(tmp_path / "nowhere/local"))
    assert launcher_files.beats(str(tmp_path / "nowhere/local")) == {}
    assert launcher_files.beats(str(linked)) == {}
    assert not (tmp_path / "nowhere").exists()
    local = Local(str(tmp_path / ".loom/local"))
    local.bind("a-session", "a-run", host="claude-code", pid=None)
    assert launcher_files.has_room_for_beats(str(tmp_path / ".loom/local"))
    other = tmp_path / "other/.loom/local"
    other.mkdir(parents=True)
    (other / "hooks").symlink_to(tmp_path / "dangling")
    Local(str(other)).bind("a-session", "a-run", host="claude-code", pid=None)
    assert not launcher_files.has_room_for_beats(str(other))
    assert not (tmp_path / "dangling").exists()


def test_a_sessions_version_is_its_latest_hooks(local: Path) -> None:
    for event, at, line in (
        ("session-start", 10, "0.1.0 mine x\n"),
        ("stop", 20, "0.2.0 mine x\n"),
        ("pre-tool-use", 30, "0.3.0 theirs x\n"),
    ):
        (local / "hooks" / event).write_text(line)
        os.utime(local / "hooks" / event, (at, at))
    assert launcher_files.version_in(str(local), "mine") == "0.2.0"
    assert launcher_files.version_in(str(local), "nobody") == ""


def test_a_thing_is_first_told_once(local: Path, tmp_path: Path) -> None:
    assert [launcher_files.is_first_telling(str(local), words) for words in ("a", "a", "b", "b", "a")] == [
        True, False, True, False, True,
    ]  # fmt: skip
    assert [launcher_files.is_first_telling(str(tmp_path / "none"), "a") for _ in range(2)] == [True, True]


def test_what_a_drivers_end_of_a_turn_cut_off_is_no_trouble(local: Path) -> None:
    """What was begun before that turn still is."""
    folder = Path(launcher_files.beats_folder(str(local)))
    for event, at in (("stop", 1_000.0), ("pre-compact", 2_000.0)):
        (folder / f"{event}.work").write_text("begun\n")
        os.utime(folder / f"{event}.work", (at, at))
    launcher_files.excuse(str(local), 1_500.0)
    assert launcher_files.begun(str(local)) == {"stop": 1_000.0}
