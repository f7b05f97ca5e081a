"""`loomctl runs`, `show`, `sessions`, `state`, `paths`, `trust`: looking at runs and putting them away."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from loomctl.runs.machine import run_notes
from tests.cli.conftest import Cli
from tests.helpers.scenes import OTHER, SESSION, Scene, artifact, fingerprint
from tests.helpers.tables import each


@pytest.fixture
def begun(scene: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("LOOM_HOSTNAME", "machine-a")
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    assert cli("run", "add dark mode", "--workflow", "tiny").code == 0
    assert cli("done", given="the first result").code == 0
    return scene


def test_runs_are_listed_with_their_standing(begun: Scene, cli: Cli) -> None:
    broken = begun.store / "runs" / "broken-run"
    broken.mkdir()
    (broken / "state.json").write_text("{")
    lines = cli("runs").stdout.splitlines()
    assert lines[0].split() == ["RUN", "STATUS", "STEP", "SESSIONS", "UPDATED"]
    (own,) = [line for line in lines if "shop-add-dark-mode" in line]
    assert own.startswith("* ")
    for words in ("in_progress", "build/make", "1 session (machine-a)"):
        assert words in own
    (other,) = [line for line in lines if "broken-run" in line]
    assert "unreadable" in other
    assert "BAD_JSON" in other


@each("words", [["--json"], ["list", "--json"], ["--json", "list"]])
def test_an_option_counts_on_either_side_of_the_sub_command(begun: Scene, cli: Cli, words: list[str]) -> None:
    assert [one["run_id"] for one in cli("runs", *words).json["runs"]] == [begun.run_dir.name]


@each(
    "words",
    [
        ["--remote", "nope"],
        ["--remote=nope"],
        ["--remote", "nope", "list"],
        ["--remote=nope", "list"],
        ["list", "--remote", "nope"],
        ["--json", "--remote", "nope", "list"],
    ],
)
def test_the_runs_of_a_remote_are_asked_for_on_either_side_of_the_sub_command(
    begun: Scene, cli: Cli, words: list[str]
) -> None:
    subprocess.run(["git", "init", "-q", str(begun.root)], check=True)
    ended = cli("runs", *words)
    assert ended.code != 0
    assert "nope" in ended.stdout + ended.stderr
    assert "NO_REMOTE" in ended.stdout + ended.stderr


def test_an_option_that_a_sub_command_has_not_is_refused(begun: Scene, cli: Cli) -> None:
    for words in (["--remote", "nope", "rm", "shop", "--yes", "--force"], ["archive", "shop", "--remote=x"]):
        ended = cli("runs", *words)
        assert (ended.code, "No such option" in ended.stderr) == (2, True)
    assert begun.run_dir.is_dir()


def test_a_hostile_name_is_shown_not_obeyed(begun: Scene, cli: Cli) -> None:
    hostile = "x\x1b[31m\x07\nINJECTED"
    history = [{**begun.state["sessions"]["session_history"][0], "host": hostile, "started_at": hostile}]
    sessions = {**begun.state["sessions"], "session_history": history}
    begun.edit(status=hostile, goal=hostile, workflow_id=hostile, current_step=hostile, sessions=sessions)
    odd = begun.store / "runs" / "a\x1b[2J\nb"
    odd.mkdir()
    (odd / "state.json").write_text("{}")
    for words in (["runs"], ["show"], ["sessions"]):
        ended = cli(*words)
        assert "\x1b" not in ended.stdout + ended.stderr
        assert "\x07" not in ended.stdout + ended.stderr
        assert not any(line.startswith("INJECTED") for line in ended.stdout.splitlines())


def test_no_runs_say_how_to_start_one(cli: Cli) -> None:
    ended = cli("runs")
    assert ended.code == 0
    assert "loomctl run" in ended.stdout


def test_show_tells_where_a_run_stands(begun: Scene, cli: Cli) -> None:
    for session in (SESSION, OTHER):
        ended = cli("show", session=session)
        assert "✓ frame/ask     succeeded (001-frame.ask@1)\n" in ended.stdout
        assert "▸ build/make    in_progress" in ended.stdout
        assert "add dark mode" in ended.stdout
        assert str(begun.run_dir) in ended.stdout


def test_show_prints_a_stage_with_secrets_masked(begun: Scene, cli: Cli) -> None:
    """A stage's prompt and response can be read again; keys in it are masked (D21)."""
    cli("done", given="used ghp_" + "a1B2" * 9)
    for more in ([], ["--json"]):
        ended = cli("show", begun.run_dir.name, "002", *more)
        assert ended.code == 0
        assert "Make it." in ended.stdout
        assert "a1B2a1B2" not in ended.stdout
        assert "[masked" in ended.stdout


def test_a_goal_with_a_key_is_masked(begun: Scene, cli: Cli) -> None:
    """`show` masks the goal as a priming does (D21)."""
    begun.edit(goal="deploy with ghp_" + "a1B2" * 9)
    assert "a1B2a1B2" not in cli("show").stdout


def test_sessions_are_a_table(begun: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_HOSTNAME", "machine-b")
    begun.space().local.mark_ended(SESSION)
    cli("resume", "--take-over", session=OTHER)
    lines = cli("sessions").stdout.splitlines()
    assert lines[0] == f"{begun.run_dir.name}: 2 sessions (machine-a, machine-b)"
    assert lines[2].split()[:5] == ["SESSION", "HOST", "MACHINE", "STARTED", "ENDED"]
    assert "machine-a" in lines[3]
    assert "(lost)" in lines[3]
    assert "machine-b" in lines[4]
    assert "open" in lines[4]


@pytest.mark.usefixtures("begun")
def test_a_path_in_the_state_is_read(cli: Cli) -> None:
    assert cli("state", "show", "--path", "goal").stdout == "add dark mode\n"
    assert cli("state", "show", "--path", "$.steps[0]['status']").stdout == "succeeded\n"
    assert cli("state", "show", "--path", "steps[?(@.visit == 1)].stage").stdout == "001-frame.ask@1\n"
    assert cli("state", "show", "--path", "sessions.total_sessions", "--json").json["value"] == 1
    assert cli("state", "show", "--path", "work_id", "--json").json["value"] is None
    assert cli("state", "show", "--path", "][").code == 2


def test_paths_name_every_place(begun: Scene, cli: Cli) -> None:
    found = cli("paths", "--json").json["paths"]
    assert found["project_root"] == str(begun.root)
    assert found["store"] == str(begun.store)
    assert found["machine_state"] == os.environ["LOOM_STATE_HOME"]
    assert found["run_dir"] == str(begun.run_dir)
    assert os.path.isfile(os.path.join(str(found["plugin_root"]), "plugin.json"))
    assert str(begun.root) in cli("paths").stdout


def test_looking_writes_nothing_to_the_run(begun: Scene, cli: Cli) -> None:
    before = fingerprint(begun.run_dir)
    looking = (["show"], ["sessions"], ["state", "show"], ["paths"], ["runs"], ["check"], ["show", "shop", "001"])
    for words in looking:
        assert cli(*words).code == 0, words
    assert fingerprint(begun.run_dir) == before


@pytest.mark.shows("`loomctl trust RUN` first shows what the run loads and runs")
def test_trust_shows_what_it_trusts(begun: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run loads is shown, and then its sessions are primed on this machine (D23)."""
    monkeypatch.setenv("LOOM_STATE_HOME", str(begun.root.parent / "another machine"))
    assert not run_notes.is_known(begun.run_dir.name, str(begun.store))
    assert cli("trust", session=OTHER).code == 3  # not for an assistant that does not drive the run
    ended = cli("trust", session=None)
    assert ended.code == 0
    assert "  spec: spec.md" in ended.stdout
    assert run_notes.is_known(begun.run_dir.name, str(begun.store))


def test_a_run_is_removed_after_a_word(begun: Scene, cli: Cli) -> None:
    cli("cancel")
    begun.space().local.mark_ended(SESSION)
    assert cli("runs", "rm", "shop", given="n\n").code == 2
    assert cli("runs", "rm", "shop").code == 2
    assert len(begun.run_dirs) == 1
    assert cli("runs", "rm", "shop", given="y\n").code == 0
    assert begun.run_dirs == []
    assert cli("runs", "rm", "shop", "--yes").code == 3


def test_an_archive_is_where_it_says_and_comes_back(begun: Scene, cli: Cli) -> None:
    """The printed command brings the run back, and it is announced until it is resumed (D23)."""
    cli("cancel")
    begun.space().local.mark_ended(SESSION)
    run_id = begun.run_dir.name
    ended = cli("runs", "archive", "shop")
    assert ended.code == 0
    assert begun.run_dirs == []
    command = ended.stdout.rpartition("To bring it back: ")[2]
    assert cli(*shlex.split(command)[1:]).code == 0
    assert begun.run_dir.name == run_id
    assert not run_notes.is_known(run_id, str(begun.store))
    assert cli("resume", "shop", "--reopen").code == 0


def test_a_broken_run_comes_back_with_its_hint(begun: Scene, cli: Cli) -> None:
    (begun.run_dir / "state.json").write_text("{")
    begun.space().local.mark_ended(SESSION)
    assert cli("runs", "archive", "shop").code == 0
    ended = cli("runs", "restore", "shop")
    assert ended.code == 0
    assert "(BAD_JSON): loomctl state restore" in ended.stdout
    assert cli("state", "restore", "shop").code == 0


def test_a_run_comes_back_where_there_is_no_store_yet(begun: Scene, cli: Cli) -> None:
    begun.space().local.mark_ended(SESSION)
    archive = begun.root.parent / "a.tar.gz"
    assert cli("runs", "archive", "shop", "--to", str(archive), "--force").code == 0
    other = Scene(begun.root.parent / "elsewhere")
    ended = other.loomctl("runs", "restore", str(archive), "--json")
    assert (ended.code, ended.json["trouble"]) == (0, None)
    assert other.state["goal"] == "add dark mode"
    assert (other.store / ".gitignore").is_file()
