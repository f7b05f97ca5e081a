"""`loomctl runs`, `show`, `sessions`, `state`, `paths`, `trust`: looking at runs and putting them away."""

import os
import shlex
import subprocess

import pytest

from loomctl.runs.machine import run_notes
from tests.cli.conftest import Cli
from tests.cli.terminal import at_a_terminal
from tests.helpers.scenes import OTHER, SESSION, Scene, artifact, fingerprint
from tests.helpers.texts import holds


@pytest.fixture
def begun(scene: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("LOOM_HOSTNAME", "machine-a")
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    assert cli("run", "add dark mode", "--workflow", "tiny").code == 0
    assert cli("done", given="the first result").code == 0
    return scene


def test_a_terminal_is_asked_about_a_run_by_its_handle(begun: Scene) -> None:
    begun.edit(status="cancelled")
    seen = at_a_terminal(begun, "runs", "rm", begun.handle, typed="n\n", COLUMNS="60")
    holds(seen, f"Remove {begun.handle} and all that Loom recorded of it? [y/N]:", "NOT_CONFIRMED")
    assert begun.run_dir.is_dir()


def test_runs_are_listed_with_their_standing(begun: Scene, cli: Cli) -> None:
    broken = begun.store / "runs" / "broken-run"
    broken.mkdir()
    (broken / "state.json").write_text("{")
    lines = cli("runs").stdout.splitlines()
    assert lines[0].split() == ["RUN", "STATUS", "STEP", "UPDATED", "SESSIONS"]
    (own,) = [line for line in lines if "add-dark-mode-" in line]
    assert own.startswith("* ")
    for words in ("in_progress", "build/make", "1 session (machine-a)"):
        assert words in own
    (other,) = [line for line in lines if "broken-run" in line]
    holds(other, "unreadable", "BAD_JSON")


def test_an_option_counts_on_either_side_of_the_sub_command_that_has_it(begun: Scene, cli: Cli) -> None:
    for words in ("--json", "list --json", "--json list"):
        assert [one["run_id"] for one in cli("runs", *words.split()).json["runs"]] == [begun.run_dir.name]
    for words in ("--remote nope rm shop --yes --force", "archive shop --remote=x"):
        ended = cli("runs", *words.split())
        assert (ended.code, "No such option" in ended.stderr) == (2, True)
    remote = ("--remote nope", "--remote=nope", "--remote nope list", "--remote=nope list", "list --remote nope")
    subprocess.run(["git", "init", "-q", str(begun.root)], check=True)
    for words in (*remote, "--json --remote nope list"):
        ended = cli("runs", *words.split())
        assert ended.code != 0
        holds(ended.stdout + ended.stderr, "nope", "NO_REMOTE")
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
        holds(ended.stdout + ended.stderr, but=("\x1b", "\x07"))
        assert not any(line.startswith("INJECTED") for line in ended.stdout.splitlines())


def test_no_runs_say_how_to_start_one(cli: Cli) -> None:
    assert "loomctl run" in cli("runs").ends().stdout


def test_show_masks_keys_in_a_goal_and_a_stage(begun: Scene, cli: Cli) -> None:
    """`show` masks the goal as a priming does (D21)."""
    begun.edit(goal="deploy with ghp_" + "a1B2" * 9)
    assert "a1B2a1B2" not in cli("show").stdout
    cli("done", given="used ghp_" + "a1B2" * 9)
    for more in ([], ["--json"]):
        ended = cli("show", begun.run_dir.name, "002", *more).ends()
        holds(ended.stdout, "Make it.", "[masked", but=("a1B2a1B2",))


def test_sessions_are_a_table(begun: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LOOM_HOSTNAME", "machine-b")
    begun.space().local.mark_ended(SESSION)
    cli("resume", "--take-over", session=OTHER)
    lines = cli("sessions").stdout.splitlines()
    assert lines[0] == f"{begun.handle}: 2 sessions (machine-a, machine-b)"
    assert lines[2].split()[:5] == ["SESSION", "HOST", "MACHINE", "STARTED", "ENDED"]
    holds(lines[3], "machine-a", "(lost)")
    holds(lines[4], "machine-b", "open")


def test_looking_tells_where_a_run_stands_and_writes_nothing(begun: Scene, cli: Cli) -> None:
    before = fingerprint(begun.run_dir)
    looking = (
        ["show"],
        ["sessions"],
        ["debug", "state", "show"],
        ["paths"],
        ["runs"],
        ["check"],
        ["show", "shop", "001"],
    )
    for words in looking:
        assert cli(*words).code == 0, words
    assert fingerprint(begun.run_dir) == before
    for session in (SESSION, OTHER):
        ended = cli("show", session=session)
        assert "✓ frame/ask     succeeded (001-frame.ask@1)\n" in ended.stdout
        assert "▸ build/make    in_progress" in ended.stdout
        assert "add dark mode" in ended.stdout
        assert str(begun.run_dir) in ended.stdout
    assert cli("debug", "state", "show", "--path", "goal").stdout == "add dark mode\n"
    assert cli("debug", "state", "show", "--path", "$.steps[0]['status']").stdout == "succeeded\n"
    assert cli("debug", "state", "show", "--path", "steps[?(@.visit == 1)].stage").stdout == "001-frame.ask@1\n"
    assert cli("debug", "state", "show", "--path", "sessions.total_sessions", "--json").json["value"] == 1
    assert cli("debug", "state", "show", "--path", "work_id", "--json").json["value"] is None
    assert cli("debug", "state", "show", "--path", "][").code == 2
    found = cli("paths", "--json").json["paths"]
    assert found["project_root"] == str(begun.root)
    assert found["store"] == str(begun.store)
    assert found["machine_state"] == os.environ["LOOM_STATE_HOME"]
    assert found["run_dir"] == str(begun.run_dir)
    assert os.path.isfile(os.path.join(str(found["plugin_root"]), "plugin.json"))
    assert str(begun.root) in cli("paths").stdout


@pytest.mark.shows("`loomctl trust RUN` first shows what the run loads and runs")
def test_trust_shows_what_it_trusts(begun: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run loads is shown, and then its sessions are primed on this machine (D23)."""
    monkeypatch.setenv("LOOM_STATE_HOME", str(begun.root.parent / "another machine"))
    assert not run_notes.is_known(begun.run_dir.name, str(begun.store))
    assert cli("trust", session=OTHER).code == 3  # not for an assistant that does not drive the run
    assert "  spec: spec.md" in cli("trust", session=None).ends().stdout
    assert run_notes.is_known(begun.run_dir.name, str(begun.store))


def test_a_run_is_removed_after_a_word(begun: Scene, cli: Cli) -> None:
    cli("cancel")
    begun.space().local.mark_ended(SESSION)
    assert (cli("runs", "rm", "shop", given="n\n").code, cli("runs", "rm", "shop").code) == (2, 2)
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
    assert (ended.code, begun.run_dirs) == (0, [])
    assert cli(*shlex.split(ended.stdout.rpartition("To bring it back: ")[2])[1:]).code == 0
    assert begun.run_dir.name == run_id
    assert not run_notes.is_known(run_id, str(begun.store))
    assert cli("resume", "shop", "--reopen").code == 0


def test_a_broken_run_comes_back_with_its_hint(begun: Scene, cli: Cli) -> None:
    (begun.run_dir / "state.json").write_text("{")
    begun.space().local.mark_ended(SESSION)
    assert cli("runs", "archive", "shop").code == 0
    assert "(BAD_JSON). Restore it: loomctl debug state restore" in cli("runs", "restore", "shop").ends().stdout
    assert cli("debug", "state", "restore", "shop").code == 0


def test_a_run_comes_back_where_there_is_no_store_yet(begun: Scene, cli: Cli) -> None:
    begun.space().local.mark_ended(SESSION)
    archive = begun.root.parent / "a.tar.gz"
    assert cli("runs", "archive", "shop", "--to", str(archive), "--force").code == 0
    other = Scene(begun.root.parent / "elsewhere")
    ended = other.loomctl("runs", "restore", str(archive), "--json")
    assert (ended.code, ended.json["trouble"]) == (0, None)
    assert other.state["goal"] == "add dark mode"
    assert (other.store / ".gitignore").is_file()
