"""`loomctl run WORK --key K`: the open run of a key is found, however many ask at once, and no second one begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import fork, start
from loomctl.runs.store import keys
from tests.cli.conftest import Cli
from tests.helpers.errors import refusal
from tests.helpers.machines import Machine, server_of
from tests.helpers.scenes import MAIN, OTHER, Scene, fingerprint
from tests.helpers.tables import each
from tests.helpers.verbs import done

RUN = ("run", "add dark mode", "--workflow", "tiny")


@pytest.fixture(autouse=True)
def workflow(request: pytest.FixtureRequest) -> None:
    if "scene" in request.fixturenames:
        request.getfixturevalue("scene").workflow()


def test_the_second_who_asks_is_given_the_first_s_run_which_stays_as_it_is(scene: Scene, cli: Cli) -> None:
    first = cli(*RUN, "--key", "issue 258: dark", "--json").ends().json
    assert (first["created"], first["key"], scene.state["key"]) == (True, "issue 258: dark", "issue 258: dark")
    before = fingerprint(scene.run_dir)
    for session in (OTHER, None):
        told = cli("run", "another goal", "--key", "issue 258: dark", "--json", session=session).ends().json
        assert (told["run_id"], told["created"], told["goal"]) == (first["run_id"], False, "add dark mode")
        assert told["command"].startswith(f"loomctl resume {scene.handle}")
    assert fingerprint(scene.run_dir) == before
    assert len(scene.run_dirs) == 1
    said = cli(*RUN, "--key", "issue 258: dark").ends().stdout
    assert said == (
        f"Loom: {scene.handle} has the key issue 258: dark and is in progress: add dark mode\n"
        f"To continue it: loomctl resume {scene.handle}\n"
    )
    assert "key       issue 258: dark" in cli("show").stdout
    assert [one["key"] for one in cli("runs", "--json").json["runs"]] == ["issue 258: dark"]


def test_without_a_key_and_with_another_one_nothing_changes(scene: Scene, cli: Cli) -> None:
    told = cli(*RUN, "--json").ends().json
    assert not {"key", "created"} & set(told)
    assert "key" not in scene.state
    for key in ("k", "K", "k2"):  # a key is what it is, letter for letter
        assert cli(*RUN, "--key", key, "--json").ends().json["created"] is True
    assert len(scene.run_dirs) == 4


@each(
    "status, created",
    [
        ("pending", False),
        ("in_progress", False),
        ("paused", False),
        ("awaiting_feedback", False),
        ("failed", False),
        ("completed", True),
        ("cancelled", True),
    ],
)
def test_a_run_is_open_until_it_is_completed_or_cancelled(scene: Scene, cli: Cli, status: str, created: bool) -> None:
    """A failed one is resumed, and not begun anew; a paused one stays paused."""
    cli(*RUN, "--key", "k").ends()
    scene.edit(status=status)
    told = cli(*RUN, "--key", "k", "--json").ends().json
    assert (told["created"], told["status"]) == (created, "in_progress" if created else status)
    assert len(scene.run_dirs) == 1 + created


@each(
    "key",
    ["", "x" * 201, "two\nlines", "a\ttab", "a\x1b[2Jscreen", " k", "k ", "\u202eright", "\udce4"],
)
def test_a_key_can_be_read_and_typed(scene: Scene, key: str) -> None:
    error = refusal(start.start, scene.space(), "add dark mode", workflow="tiny", key=key)
    assert (error.code, error.exit_code) == ("BAD_KEY", 2)
    assert str(error).isprintable() or "\n" in str(error)
    assert scene.run_dirs == []
    assert keys.checked("x" * 200) == "x" * 200
    assert keys.checked("Bug №7: größer → kleiner") == "Bug №7: größer → kleiner"


def test_a_dry_run_begins_nothing_and_a_resume_takes_no_key(scene: Scene, cli: Cli) -> None:
    told = cli(*RUN, "--key", "k", "--dry-run", "--json").ends().json
    assert (told["created"], told["dry_run"], scene.run_dirs) == (False, True, [])
    cli(*RUN, "--key", "k").ends()
    told = cli(*RUN, "--key", "k", "--dry-run", "--json").ends().json
    assert (told["run_id"], told["created"]) == (scene.run_dir.name, False)
    assert cli("run", "--resume", scene.handle, "--key", "k").code == 2
    assert cli("run", "--key", "k").code == 2  # what is to be done is always said


def test_a_copy_is_not_what_the_key_means(scene: Scene) -> None:
    begun = start.start(scene.space(), "add dark mode", workflow="tiny", key="k")
    done(scene)
    copied = fork.fork(scene.space(), begun.run.run_id, "1").run
    assert "key" not in copied.state
    path = scene.store / "runs" / copied.run_id / "state.json"
    path.write_text(json.dumps({**copied.state, "key": "k", "saved_from": {"run_id": begun.run.run_id}}))
    assert keys.open_run(scene.space().store, "k") == begun.run.run_id


@each("key", [7, None, ["k"], {"k": "k"}])
def test_what_is_no_key_is_nobodys(scene: Scene, cli: Cli, key: object) -> None:
    cli(*RUN, "--key", "k").ends()
    scene.edit(key=key)
    assert cli("runs", "--json").json["runs"][0]["key"] is None
    assert cli(*RUN, "--key", "k", "--json").ends().json["created"] is True


@pytest.mark.slow
def test_twenty_processes_that_ask_at_once_begin_one_run(scene: Scene) -> None:
    """In sessions of their own; each of them ends well, and names the same run."""
    how: dict[str, Any] = {"cwd": scene.root, "env": scene.environ(None), "start_new_session": True}
    words = [sys.executable, "-I", str(MAIN), *RUN, "--key", "race", "--json"]
    racing = [
        subprocess.Popen(words, **how, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(20)
    ]
    ended = [(one, *one.communicate(timeout=120)) for one in racing]
    told = [json.loads(out) for one, out, _ in ended if one.returncode == 0]
    assert len(told) == 20, [(one.returncode, said) for one, _, said in ended if one.returncode]
    assert {one["run_id"] for one in told} == {scene.run_dir.name}
    assert [one["created"] for one in told].count(True) == 1


@pytest.mark.slow
def test_a_key_outlasts_a_push_and_a_pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laptop = Machine(tmp_path / "laptop", server_of(tmp_path))
    laptop.workflow()
    assert laptop.loomctl(*RUN, "--key", "issue-258").code == 0
    assert laptop.loomctl("push", "--release", "--yes").code == 0
    desktop = Machine(tmp_path / "desktop", tmp_path / "server.git")
    desktop.workflow()
    monkeypatch.setenv("LOOM_HOSTNAME", "desktop")
    assert desktop.loomctl("pull").code == 0
    told = desktop.loomctl(*RUN, "--key", "issue-258", "--json").ends().json
    assert (told["run_id"], told["created"]) == (laptop.run_dir.name, False)
