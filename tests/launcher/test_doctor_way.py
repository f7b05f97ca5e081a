"""The launcher's way for the doctor: the standard library alone, so that it speaks where nothing could be set up."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.world import CHECKOUT, PYTHON, SHELLS, World

LAUNCHER = CHECKOUT / "bin/loomctl"


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def examined(world: World, **how: Any) -> tuple[int, dict[str, dict[str, Any]]]:
    ended = world.start("doctor", "--json", launcher=LAUNCHER, **how)
    assert ended.stderr == b""
    return ended.returncode, {check["id"]: check for check in json.loads(ended.stdout)["checks"]}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_it_speaks_before_anything_was_set_up(world: World, shell: list[str]) -> None:
    world.add_python()
    code, checks = examined(world, shell=shell)
    assert (code, checks["environment"]["status"], checks["round-trip"]["status"]) == (0, "WARN", "PASS")
    assert checks["python"]["found"].endswith(", which hooks use")
    assert everything_below(world.home) == []


@pytest.mark.slow
def test_its_words_come_through_without_a_home_and_about_a_broken_environment(world: World) -> None:
    world.add_python()
    ended = world.start("doctor", launcher=LAUNCHER)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(b"PASS  switch")
    code, checks = examined(world, HOME="")
    assert (code, checks["known"]["status"]) == (1, "FAIL")
    assert checks["round-trip"]["status"] == "PASS"
    lock = (CHECKOUT / "requirements.lock").read_text().splitlines()[0].split()[-1]
    python = world.kept / f"env-{lock}-3.11/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/nonexistent\n")
    python.chmod(0o755)
    code, checks = examined(world)
    assert (code, checks["environment"]["status"]) == (1, "FAIL")
    assert str(python.parents[1]) in checks["environment"]["hint"]


def test_it_runs_on_the_python_that_hooks_remember(world: World) -> None:
    world.remember()
    _, checks = examined(world)
    assert checks["python"]["python"] == checks["python"]["remembered"] == str(PYTHON)
    assert everything_below(world.home / ".cache/loom")[-1] == "python"


@pytest.mark.slow
def test_it_speaks_where_hooks_are_silenced_by_their_python(world: World) -> None:
    """A remembered Python that crashes ends every hook without a word; the doctor takes another and says so."""
    world.add_script("broken", "kill -SEGV $$")
    world.remember(world.tools / "broken")
    world.add_python()
    code, checks = examined(world)
    assert (code, checks["python"]["status"]) == (1, "FAIL")
    assert checks["python"]["found"].endswith(str(world.tools / "broken"))
    assert (checks["python"]["hint"], checks["round-trip"]["status"]) == (f"rm '{world.kept}/python'", "FAIL")
    (world.kept / "python").unlink()
    assert examined(world)[0] == 0


def test_without_any_python_the_launcher_says_so(world: World) -> None:
    """In words, and as one document (D52)."""
    world.add_script("python3", 'echo "old 3.8"')
    ended = world.start("doctor", "--json", launcher=LAUNCHER)
    assert (ended.returncode, json.loads(ended.stdout)["error"]["code"]) == (8, "NO_PYTHON")
    ended = world.start("doctor", launcher=LAUNCHER)
    assert (ended.returncode, ended.stdout) == (8, b"")
    assert ended.stderr.startswith(b"loomctl: NO_PYTHON: ")


@pytest.mark.parametrize("arguments", [("doctor", "--help"), ("doctor --json",), ("--debug", "doctor")])
def test_other_words_go_the_usual_way(world: World, arguments: tuple[str, ...]) -> None:
    world.add_python()
    ended = world.start(*arguments, launcher=LAUNCHER, HOME="")
    assert ended.returncode == 8
    assert b"NO_HOME" in ended.stderr
