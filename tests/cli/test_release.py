"""`loomctl release` and `push --release`: a run is given up by hand, and whoever comes next drives it at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import resume
from loomctl.kit import digests, processes
from loomctl.runs.model import lease
from tests.helpers.machines import Machine, server_of, tips
from tests.helpers.scenes import MAIN, OTHER, SESSION, Ended, Scene
from tests.helpers.verbs import events

PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
LOOMCTL = f'"{sys.executable}" -I "{MAIN}"'


def in_another_shell(scene: Scene, *words: str) -> Ended:
    ended = subprocess.run(
        [sys.executable, "-I", str(MAIN), *words], cwd=scene.root, env=scene.environ(None), start_new_session=True,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def holder(scene: Scene) -> str | None:
    found = lease.holder(scene.state)
    return found.session_id if found else None


@pytest.fixture
def terminal(scene: Scene) -> Iterator[subprocess.Popen[str]]:
    """A shell that lives, and drives a run that it began."""
    scene.workflow()
    script = f'{LOOMCTL} run "add dark mode" --workflow tiny >/dev/null && echo drives; read x'
    with subprocess.Popen(
        ["/bin/sh", "-c", script], cwd=scene.root, env=scene.environ(None), start_new_session=True, **PIPES
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "drives\n"
        yield shell
        shell.kill()


def test_what_this_session_drives_is_released_and_taken_by_the_next(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    name, epoch = scene.handle, scene.state["lease"]["epoch"]
    told = scene.loomctl("release", "--json").ends().json
    assert {key: told[key] for key in ("handle", "released", "how")} == {
        "handle": name,
        "released": True,
        "how": "mine",
    }
    assert told["from"]["session_id"] == SESSION
    assert (holder(scene), scene.state["lease"]["epoch"]) == (None, epoch)
    assert not (scene.store / f"local/drivers/{scene.run_dir.name}.json").exists()
    (event,) = events(scene, "lease.released")
    assert (event["reason"], event["how"], event["epoch"]) == ("by_hand", "mine", epoch)
    ended = scene.loomctl("release").ends()  # again: there is nothing to release
    assert ended.stdout == f"Loom: nobody drives {name}\nTo drive it: loomctl resume {name}\n"
    assert len(events(scene, "lease.released")) == 1
    assert scene.loomctl("resume", session=OTHER).code == 0
    assert (holder(scene), scene.state["lease"]["epoch"]) == (OTHER, epoch + 1)


def test_who_releases_a_run_that_is_over_is_told_how_it_goes_on(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    scene.loomctl("cancel", session=None).ends()
    for _ in range(2):
        ended = scene.loomctl("release", scene.handle, session=None).ends()
        onward = f"The run is cancelled. To continue it: loomctl resume {scene.handle} --reopen\n"
        assert ended.stdout.endswith(onward)


def test_another_session_that_lives_is_named_and_keeps_the_run(scene: Scene) -> None:
    scene.workflow()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as host:
        from loomctl.flow import start

        start.start(scene.space(pid=host.pid), "add dark mode", workflow="tiny")
        before = (scene.run_dir / "state.json").read_bytes()
        for session in (None, OTHER):
            ended = scene.loomctl("release", scene.handle, "--json", session=session)
            assert (ended.code, ended.json["error"]["code"]) == (6, "HELD_BY_ANOTHER")
            assert SESSION in str(ended.json["error"])
        assert (scene.run_dir / "state.json").read_bytes() == before
        host.communicate(b"\n")
    ended = scene.loomctl("release", session=None).ends()
    assert f"released {scene.handle}; the session {SESSION} (claude-code" in ended.stdout
    assert "drove it, and is gone" in ended.stdout
    assert holder(scene) is None


@pytest.mark.slow
def test_another_terminal_of_the_same_user_is_released_though_it_lives(
    scene: Scene, terminal: subprocess.Popen[str]
) -> None:
    """Nothing works there by itself; it takes the run again with its next command, unless another came first."""
    drove = holder(scene)
    assert terminal.poll() is None
    told = in_another_shell(scene, "release", "--json").ends().json
    assert (told["released"], told["how"], told["from"]["session_id"]) == (True, "terminal", drove)
    assert holder(scene) is None
    assert in_another_shell(scene, "resume", scene.handle).ends().code == 0
    assert holder(scene) not in (None, drove)


@pytest.mark.slow
def test_what_a_driver_started_cannot_give_its_driver_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An assistant writes in its driver's place, but the lease is the driver's (D74)."""
    scene.workflow()
    scene.begin(session="drive-1")
    run_id, word = scene.run_dir.name, "w" * 32
    path = scene.store / f"local/drivers/{run_id}.json"
    noted = json.loads(path.read_text())
    process = {**noted["process"], **processes.identity(os.getpid())}
    path.write_text(json.dumps({**noted, "process": process, "word": digests.of_text(word)}))
    monkeypatch.setenv("LOOM_DRIVEN", f"{run_id} {word}")
    ended = scene.loomctl("release", run_id, "--json", session=None)
    assert (ended.code, ended.json["error"]["code"]) == (6, "HELD_BY_ANOTHER")
    assert holder(scene) == "drive-1"


def test_no_state_and_no_run_end_as_elsewhere(scene: Scene) -> None:
    assert scene.loomctl("release", "--json").json["error"]["code"] == "NO_ACTIVE_RUN"
    scene.workflow()
    scene.begin()
    scene.edit(lease="nobody's")
    assert scene.loomctl("release", session=None).ends().stdout.startswith("Loom: nobody drives ")


# ---- A push that gives the run up.


@pytest.fixture
def laptop(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "laptop", server_of(tmp_path))
    made.workflow()
    made.begin()
    return made


@pytest.mark.slow
def test_a_pushed_run_that_was_released_goes_on_elsewhere_at_once(
    laptop: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = laptop.run_dir.name
    told = laptop.loomctl("push", "--release", "--yes", "--json").ends().json
    assert (told["released"], bool(told["commit"]), told["notes"]) == (True, True, [])
    assert holder(laptop) is None
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    assert desktop.loomctl("pull").code == 0
    assert "take-over" not in desktop.loomctl("pull").stdout
    began = time.monotonic()
    assert desktop.loomctl("resume", run_id).code == 0
    assert time.monotonic() - began < 30
    assert desktop.state_of(desktop.folder(run_id))["lease"]["hostname"] == "desktop"
    assert desktop.loomctl("done", given="It is done.").code == 0
    assert desktop.loomctl("push", "--release", "--yes").code == 0
    monkeypatch.setenv("LOOM_HOSTNAME", "laptop")
    assert laptop.loomctl("pull", run_id).code == 0  # and back
    resume.resume(laptop.space(), run_id)
    assert laptop.state["current_step"] == "build/make"


@pytest.mark.slow
def test_nothing_is_released_that_is_not_pushed(laptop: Machine, tmp_path: Path) -> None:
    """A dry run, a person who does not agree, another's run and a remote that has a newer one leave the lease."""
    for words in (["--dry-run"], [], ["--json"]):
        laptop.loomctl("push", "--release", *words)
        assert holder(laptop) == SESSION
    assert "--release --yes" in laptop.loomctl("push", "--release").stderr
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as host:
        resume.resume(laptop.space(OTHER, pid=host.pid), laptop.run_dir.name, take_over=True)
        ended = laptop.loomctl("push", "--release", "--yes", "--json", session=None)
        assert (ended.code, ended.json["error"]["code"]) == (6, "HELD_BY_ANOTHER")
        assert holder(laptop) == OTHER
        assert not any("loom" in name for name in tips(tmp_path / "server.git"))
        host.communicate(b"\n")
    assert laptop.loomctl("push", "--yes", session=None).code == 0
    told = laptop.loomctl("push", "--release", "--yes", "--json", session=None).ends().json
    assert (told["released"], holder(laptop)) == (True, None)  # all else was there already
    again = laptop.loomctl("push", "--release", "--yes", "--json", session=None).ends().json
    assert (again["commit"], again["released"]) == (None, True)
