"""One session start's text reaches the conversation through four entries, of which one starts Python (D62)."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit.text.fences import utf16_units
from tests.helpers.scenes import SESSION, Scene, artifact
from tests.helpers.waiting import until
from tests.launcher.world import CHECKOUT, SHELLS

PID = str(os.getpid())
SPEC = "".join(f"Sentence {n} of the specification says that {n} is kept.\n" for n in range(400))
IN_EACH = pytest.mark.parametrize("shell", SHELLS, ids=[shell[0] for shell in SHELLS])


@pytest.fixture
def driven(scene: Scene) -> Scene:
    scene.workflow([artifact("spec", "spec.md")])
    scene.write("spec.md", SPEC)
    scene.begin()
    return scene


def folder(scene: Scene) -> Path:
    return scene.store / "local" / "parts"


class Entries:
    """The four entries of one session start, each a process that is started when a test says so."""

    def __init__(
        self, scene: Scene, shell: list[str] | None = None, source: str = "compact", session: str = SESSION
    ) -> None:
        self.session = session
        self.scene, self.shell = scene, [shutil.which(shell[0]) or shell[0], *shell[1:]] if shell else ["/bin/sh"]
        told = {"session_id": session, "cwd": str(scene.root), "transcript_path": "", "source": source}
        self.event = json.dumps(told).encode()
        self.started: dict[int, subprocess.Popen[bytes]] = {}

    def begin(self, number: int, *, hurried: bool = True) -> subprocess.Popen[bytes]:
        command = [*self.shell, str(CHECKOUT / "bin" / "loomctl"), "hook", "session-start", f"{number}/4"]
        environ = self.scene.environ(self.session, CLAUDE_PID=PID)
        child = subprocess.Popen(
            command, cwd=self.scene.root, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert child.stdin is not None
        if hurried:
            try:
                child.stdin.write(self.event)
                child.stdin.close()
            except BrokenPipeError:
                pass
            child.stdin = None
        self.started[number] = child
        return child

    def given(self) -> dict[int, str]:
        found = {}
        for number, child in self.started.items():
            output, errors = child.communicate(timeout=60)
            assert child.returncode == 0, errors
            assert errors == b"" or b"Killed" in errors  # as a shell says of a child
            said: dict[str, Any] = json.loads(output) if output else {}
            found[number] = str((said.get("hookSpecificOutput") or {}).get("additionalContext", ""))
        return found


@IN_EACH
def test_each_entry_gives_one_part_whatever_order_they_begin_in(driven: Scene, shell: list[str]) -> None:
    for order in [(1, 2, 3, 4), (4, 2, 3, 1), (3, 4, 1, 2)]:
        entries = Entries(driven, shell)
        for number in order:
            entries.begin(number)
        found = entries.given()
        assert [bool(found[number]) for number in (1, 2, 3, 4)] == [True, True, True, False]
        assert all(utf16_units(text) <= 9500 for text in found.values())
        shown = [line for number in (1, 2, 3) for line in found[number].split("\n") if line.startswith("Sentence ")]
        assert "".join(f"{line}\n" for line in shown) == SPEC
        slip_id = found[1].rpartition(" ")[2]
        for number in (2, 3):
            assert found[number].startswith(f"# Loom: part {number} of 3 ({slip_id})\n")
            assert found[number].endswith(f"\nLoom slip {slip_id}-{number}")
        assert list(folder(driven).iterdir()) == []


def test_entries_that_begin_after_the_first_or_find_no_bell_give_their_parts(driven: Scene) -> None:
    entries = Entries(driven)
    entries.begin(1).wait(60)
    for number in (2, 3, 4):
        entries.begin(number).wait(60)
    found = entries.given()
    assert sum(text.count("Sentence ") for text in found.values()) == 400
    (folder(driven) / f"{SESSION}-{PID}.bell").mkdir()
    entries = Entries(driven)
    for number in (2, 1, 3, 4):
        entries.begin(number)
    assert sum(text.count("Sentence ") for text in entries.given().values()) == 400


@IN_EACH
def test_a_killed_first_entry_leaves_the_others_silent(driven: Scene, shell: list[str]) -> None:
    entries = Entries(driven, shell)
    first = entries.begin(1, hurried=False)
    until(lambda: list(folder(driven).glob("*.by")), "the first entry is at work")
    for number in (2, 3, 4):
        entries.begin(number)
    with entries.started.pop(1):
        os.killpg(first.pid, signal.SIGKILL)
    assert set(entries.given().values()) == {""}


@IN_EACH
def test_a_bell_that_nobody_holds_keeps_nobody_waiting(driven: Scene, shell: list[str]) -> None:
    """A killed first entry can still be listed by the system when the others open the pipe that it no longer holds."""
    killed = subprocess.Popen(["sleep", "60"])
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # it stays listed
    base = folder(driven) / f"{SESSION}-{PID}"
    os.mkfifo(f"{base}.bell")
    Path(f"{base}.by").write_text(f"{killed.pid}\n")
    entries = Entries(driven, shell)
    for number in (2, 3, 4):
        entries.begin(number)
    until(lambda: len(list(folder(driven).glob("*.w?"))) == 3, "the others wait")
    killed.wait()
    assert set(entries.given().values()) == {""}
    assert [path.suffix for path in folder(driven).iterdir() if path.suffix.startswith(".w")] == []


def test_a_killed_python_leaves_the_others_silent(driven: Scene) -> None:
    (driven.root / "python").write_text('#!/bin/sh\nkill -9 "$$"\n')
    (driven.root / "python").chmod(0o755)
    cache = Path(os.environ["HOME"]) / ".cache" / "loom"
    (cache / "python").write_text(f"{driven.root / 'python'}\n")
    entries = Entries(driven)
    for number in (1, 2, 3, 4):
        entries.begin(number)
    assert (set(entries.given().values()), list(folder(driven).iterdir())) == ({""}, [])


@pytest.mark.slow
@IN_EACH
def test_a_first_entry_that_fails_lets_the_others_go_at_once(driven: Scene, shell: list[str]) -> None:
    """Also one that comes to the bell as it is taken away; they do not wait for their time limit."""
    for round_ in range(12):
        entries = Entries(driven, shell)
        entries.event = b"no JSON"
        entries.begin(1)
        time.sleep(0.03 + round_ * 0.004)  # about when Python ends
        for number in (2, 3, 4):
            entries.begin(number)
        began = time.monotonic()
        assert set(list(entries.given().values())[1:]) <= {""}
        assert time.monotonic() - began < 6
        assert list(folder(driven).iterdir()) == []


def test_what_an_earlier_event_left_is_never_given(driven: Scene) -> None:
    """A part that nobody printed goes before the next compaction, and as the next first entry begins."""
    base = f"{SESSION}-{PID}"
    for name in ("2", "3", "4", "by"):
        (folder(driven) / f"{base}.{name}").write_text('{"hookSpecificOutput": {"additionalContext": "old"}}')
    shell, launcher = "/bin/sh", str(CHECKOUT / "bin" / "loomctl")
    event = json.dumps({"session_id": SESSION, "cwd": str(driven.root), "trigger": "auto"}).encode()
    environ = driven.environ(SESSION, CLAUDE_PID=PID)
    subprocess.run([shell, launcher, "hook", "pre-compact"], input=event, env=environ, cwd=driven.root, check=True)
    assert list(folder(driven).iterdir()) == []
    stale = folder(driven) / f"{base}.2"
    stale.write_text('{"hookSpecificOutput": {"additionalContext": "old"}}')
    os.utime(stale, (time.time() - 600,) * 2)
    os.mkfifo(folder(driven) / f"{base}.bell")
    entries = Entries(driven)
    for number in (2, 1, 3, 4):
        entries.begin(number)
    found = entries.given()
    assert "old" not in found.values()
    assert sum(text.count("Sentence ") for text in found.values()) == 400


def linked(place: Path) -> None:
    place.rmdir()
    place.symlink_to(place.parent)


@pytest.mark.parametrize("spoil", [Path.rmdir, linked], ids=["gone", "a link"])
def test_without_a_place_for_parts_the_first_gives_what_fits(driven: Scene, spoil: Any) -> None:
    spoil(folder(driven))
    entries = Entries(driven)
    for number in (1, 2, 3, 4):
        entries.begin(number)
    found = entries.given()
    assert [bool(found[number]) for number in (1, 2, 3, 4)] == [True, False, False, False]
    assert "Before you go on, read spec.md from line " in found[1]
    assert utf16_units(found[1]) <= 9500


def test_where_nothing_is_to_be_given_all_are_silent(driven: Scene) -> None:
    driven.edit(status="completed")
    entries = Entries(driven, source="startup")
    for number in (1, 2, 3, 4):
        entries.begin(number)
    assert (set(entries.given().values()), list(folder(driven).iterdir())) == ({""}, [])


def test_two_sessions_that_start_at_once_get_each_its_own(driven: Scene) -> None:
    one, other = Entries(driven), Entries(driven, session="another-one")
    for number in (1, 2, 3, 4):
        one.begin(number)
        other.begin(number)
    given = [entries.given() for entries in (one, other)]  # the other inherits the run, unless it was the first
    counts = [sum(text.count("Sentence ") for text in found.values()) for found in given]
    assert counts[0] == 400
    assert counts[1] in (0, 400)
    slips = [{text.rpartition("Loom slip ")[2].partition("-")[0] for text in found.values() if text} for found in given]
    assert [len(found) for found in slips] == [1, 1 if counts[1] else len(slips[1])]
    assert list(folder(driven).iterdir()) == []
