"""`loomctl status --watch` at a real terminal."""

import signal

import pytest

from tests.cli.terminal import Terminal, at_a_terminal, loomctl
from tests.helpers.scenes import Scene
from tests.helpers.tables import each

CLEARED = "\x1b[2J"


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin()
    scene.let_go()
    return scene


def watched(scene: Scene, *words: str, **environ: str) -> Terminal:
    """Watch a run, its first screen drawn."""
    terminal = Terminal(loomctl("status", *words), scene, environ=environ)
    terminal.until("in progress", "Ctrl-C ends this")
    return terminal


def test_the_screen_follows_the_run_until_a_person_ends_it(begun: Scene) -> None:
    terminal = watched(begun, begun.handle, "--watch", "0.2", COLUMNS="60")
    assert "paused" not in terminal.seen
    assert begun.loomctl("pause", begun.handle, session=None).code == 0
    assert terminal.until("paused").count(CLEARED) == 1  # the rest is drawn over it
    terminal.child.send_signal(signal.SIGINT)
    assert "Traceback" not in terminal.end()
    assert terminal.child.returncode == 0


def test_a_terminal_of_another_size_is_drawn_anew(begun: Scene) -> None:
    """Of a low one the first lines, and how it is ended; a word that is no number is the run."""
    terminal = watched(begun, "--watch", begun.handle, COLUMNS="", NO_COLOR="1")
    terminal.resize(6, 60)
    drawn = terminal.until(CLEARED, times=2).rpartition(CLEARED)[2]
    terminal.child.send_signal(signal.SIGINT)
    drawn = terminal.end().rpartition(CLEARED)[2]
    lines = drawn.partition("\x1b[J")[0].replace("\x1b[K", "").splitlines()
    assert [line[:8].strip() for line in lines] == ["run", "status", "workflow", "", "Ctrl-C e"]


@each(("lost", "code", "said"), [("run", 3, "NO_SUCH_RUN"), ("state", 5, "loomctl debug state restore")])
def test_a_run_that_is_lost_meanwhile_is_named(begun: Scene, lost: str, code: int, said: str) -> None:
    terminal = watched(begun, "--watch=0.2")
    if lost == "run":
        begun.run_dir.rename(begun.root / "lost")
    else:
        (begun.run_dir / "state.json").write_text("{")
    seen = terminal.end()
    assert said in seen
    assert "Traceback" not in seen
    assert terminal.child.returncode == code


@each("given", ["nan", "0", "99999", "x"])
def test_seconds_that_are_none_are_refused(begun: Scene, given: str) -> None:
    said = at_a_terminal(begun, "status", begun.handle, "--watch", given)
    assert f"USAGE: --watch takes 0.1 to 3,600 seconds, not '{given}'" in said


def test_the_hint_of_a_watch_without_seconds_has_none(begun: Scene) -> None:
    begun.edit(status="completed")
    for given in ("--watch", "--watch="):
        said = at_a_terminal(begun, "status", given).splitlines()
        assert f"  hint: loomctl status {begun.handle} --watch" in [line.rstrip() for line in said]


def test_without_a_terminal_it_says_what_to_do(begun: Scene) -> None:
    ended = begun.loomctl("status", "--watch").ends(2)
    assert "USAGE: --watch needs a terminal" in ended.stderr
    assert begun.loomctl("status", "--watch", "--json").ends(2).json["error"]["hint"] == "loomctl status"
    assert "needs a terminal" in at_a_terminal(begun, "status", "--watch", TERM="dumb")
