"""Standard streams that are closed, full, slow or gone, and terminals: the exit code stays the command's own."""

import json
import os
import shlex
import subprocess
import sys
import time

import pytest

from tests.cli.terminal import at_a_terminal
from tests.helpers.scenes import MAIN, SESSION, Ended, Scene
from tests.helpers.texts import holds

LOOMCTL = f"{shlex.quote(sys.executable)} -I {shlex.quote(str(MAIN))}"


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin("größe 🧵")
    return scene


def shell(scene: Scene, line: str, session: str | None = SESSION, **environ: str) -> Ended:
    done = subprocess.run(
        ["sh", "-c", line.replace("loomctl", LOOMCTL)], cwd=scene.root, env={**scene.environ(session), **environ},
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode("utf-8", "replace"))


EVENT = f'{{"session_id": "{SESSION}", "source": "resume"}}'


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("loomctl show >&-", 0, ""),
        ("loomctl show --json >&-", 0, ""),
        ("loomctl show 2>&-", 0, "run  "),
        ("loomctl next <&- >&- 2>&-", 0, ""),
        ("loomctl nonsense 2>&-", 2, ""),
        ("loomctl nonsense --json >&- 2>&-", 2, ""),
        ("loomctl --debug nonsense 2>&-", 2, ""),
        ("loomctl done <&-", 0, "with your final message"),
        ("loomctl trust <&-", 0, "Loom: allowed on this machine"),
        ("loomctl runs rm shop --force <&-", 2, ""),
        ("loomctl run --arguments-from-stdin <&-", 2, ""),
        ("loomctl --help >&-", 0, ""),
        (f"echo '{EVENT}' | loomctl hook session-start >&-", 0, ""),
        (f"echo '{EVENT}' | loomctl hook session-start 2>&-", 0, "größe"),
        ("loomctl hook session-start <&-", 0, "not JSON"),
        ("loomctl hook stop <&- >&- 2>&-", 0, ""),
    ],
)
def test_a_stream_that_is_closed_is_no_failure(begun: Scene, line: str, code: int, said: str) -> None:
    begun.rest()
    ended = shell(begun, line, session=None if "show" in line else SESSION).ends(code)
    assert said in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "AttributeError" not in ended.stdout
    for path in begun.store.rglob("*"):
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("loomctl show >/dev/full", 5, "standard output"),
        ("loomctl show --json >/dev/full", 5, "standard output"),
        ("loomctl --help >/dev/full", 5, "standard output"),
        ("loomctl --version >/dev/full", 5, "standard output"),
        ("loomctl nonsense --json >/dev/full", 2, "USAGE"),
        ("loomctl nonsense 2>/dev/full", 2, ""),
        ("loomctl nonsense --json >/dev/full 2>/dev/full", 2, ""),
        (f"echo '{EVENT}' | loomctl hook session-start >/dev/full", 0, ""),
    ],
)
def test_an_output_that_takes_nothing_is_said_once(begun: Scene, line: str, code: int, said: str) -> None:
    """A full disk behind `>` is an error of its own, on standard error, with the code of D52; no traceback."""
    ended = shell(begun, line).ends(code)
    holds(ended.stderr, said, but=("Traceback", "Exception ignored"))
    if code == 5:
        assert ended.stderr.startswith("loomctl: SYSTEM: the system said: No space left on device\n")
        assert "\n  hint: " in ended.stderr


@pytest.mark.parametrize("words", ["state show", "show --json", "--help", "check"])
def test_a_reader_that_goes_away_ends_it_quietly(begun: Scene, words: str) -> None:
    ended = shell(begun, f"loomctl {words} | true")
    assert (ended.code, ended.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["state", "show"], ["state", "show", "--json"]])
def test_a_slow_reader_gets_all_of_it(scene: Scene, words: list[str]) -> None:
    """More than a pipe holds waits until it is read; a pipe that does not block its writer loses nothing either."""
    scene.workflow()
    scene.begin("x" * 300_000)
    for blocking in (True, False):
        ours, theirs = os.pipe()
        os.set_blocking(theirs, blocking)
        with subprocess.Popen(
            [sys.executable, "-I", str(MAIN), *words],
            cwd=scene.root,
            env=scene.environ(),
            stdout=theirs,
            stderr=subprocess.PIPE,
        ) as child:
            os.close(theirs)
            before, deadline = -1, time.monotonic() + 30
            while filled(ours) > before and time.monotonic() < deadline:  # until it no longer grows
                before = filled(ours)
                time.sleep(0.3)
            with open(ours, "rb") as reader:
                told = reader.read()
            assert child.wait(30) == 0
            assert child.stderr is not None
            assert child.stderr.read() == b""
        assert "x" * 300_000 in json.dumps(json.loads(told))


def filled(pipe: int) -> int:
    import fcntl
    import struct
    import termios

    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]) or 1


def test_without_a_terminal_of_its_own_a_command_asks_nobody(begun: Scene) -> None:
    """In a session without a terminal, as under cron, what would be asked is refused with the line that says yes."""
    done = subprocess.run(
        [sys.executable, "-I", str(MAIN), "runs", "rm", "shop", "--force"], cwd=begun.root, env=begun.environ(None),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    holds(done.stderr, "NOT_CONFIRMED", "--yes")


@pytest.mark.parametrize("environ", [{"LC_ALL": "C"}, {"LANG": "C.UTF-8"}, {"LC_ALL": "POSIX", "TERM": "dumb"}])
def test_a_terminal_of_any_locale_shows_the_run(begun: Scene, environ: dict[str, str]) -> None:
    holds(at_a_terminal(begun, "show", **environ), "größe 🧵", "▸ frame/ask", but=("Traceback",))


def test_a_hook_names_the_file_that_it_could_not_write(begun: Scene) -> None:
    """What went wrong is said with its place, in the line that the user sees; the text goes out all the same (D55)."""
    primed = begun.store / "local" / "primed"
    for path in primed.iterdir():
        path.unlink()
    primed.rmdir()
    primed.touch()
    told = begun.hook("session-start", source="resume")
    assert "Ask what is wanted." in told.context
    assert f"Loom could not record this: the system said: File exists: {primed}" in told.message
