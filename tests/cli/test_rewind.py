"""`loomctl rewind` and `fork` as a person and a script call them."""

import json
from pathlib import Path

import click
import pytest

from loomctl.cli.command_line import complete_stages
from tests.cli.conftest import Cli
from tests.helpers.scenes import OTHER, SESSION, Scene, handle
from tests.helpers.tables import each

ANSWER = '{"context_updates": {"a": 1}}'


@pytest.fixture
def worked(scene: Scene, cli: Cli) -> Scene:
    scene.workflow()
    scene.begin()
    for _ in range(2):
        assert cli("done", given=ANSWER).code == 0
    return scene


def test_a_rewind_and_what_is_damaged_are_told_in_words(worked: Scene, cli: Cli) -> None:
    lines = cli("rewind", "--to", "make").ends().stdout.splitlines()
    assert lines[:4] == [
        f"Loom: {worked.handle} is back at 002-build.make@1",
        "  undone    1 step: 003-build.polish@1",
        "  results   kept in the steps' folders, as *.undone-N",
        "  files     Loom changed none of yours but task boxes; the undone steps changed none that Loom knows of",
    ]
    assert "Next: build/make" in lines
    assert "Make it." in lines
    again = cli("rewind", "--to", "2")
    assert again.stdout.startswith("002-build.make@1 is open already. Nothing changed.\n")
    (worked.run_dir / "stages" / "001-frame.ask@1" / "status.json").write_text("{")
    ended = cli("rewind", "--to", "1").ends()
    assert "  ! the context stays as it is, because Loom cannot read from" in ended.stdout


def test_a_rewind_as_a_document(worked: Scene, cli: Cli) -> None:
    told = cli("rewind", "--to", "1", "--json").json
    assert {key: told[key] for key in ("stage", "changed", "undone", "gone", "files", "patches", "status")} == {
        "stage": "001-frame.ask@1", "changed": True, "undone": ["002-build.make@1", "001-frame.ask@1"],
        "gone": ["002-build.make@1", "003-build.polish@1"], "files": [], "patches": [], "status": "in_progress",
    }  # fmt: skip
    assert told["next"]["id"] == "frame/ask"
    assert cli("rewind", "--to", "1", "--json").json["changed"] is False
    assert worked.state["context"] == {}


@each("words", [["rewind", "--to", "1"], ["fork", "--at", "1"]])
def test_without_a_stage_or_with_an_unknown_one(worked: Scene, cli: Cli, words: list[str]) -> None:
    refused = cli(words[0], words[1], "nowhere")
    assert (refused.code, "NO_SUCH_STAGE" in refused.stderr) == (3, True)
    assert "001-frame.ask@1, 002-build.make@1, 003-build.polish@1" in refused.stderr
    missing = cli(words[0])
    assert (missing.code, "USAGE" in missing.stderr) == (2, True)
    assert worked.run_dirs == [worked.run_dir]


def test_another_session_does_not_rewind_a_run_that_is_driven(worked: Scene, cli: Cli) -> None:
    """As with every verb that drives (D1); a fork it may make, for that changes nothing of the run."""
    name = worked.run_dir.name
    refused = worked.loomctl("rewind", "--to", "1", session=OTHER)
    assert (refused.code, "HELD_BY_ANOTHER" in refused.stderr) == (6, True)
    before = (worked.run_dir / "state.json").read_bytes()
    made = worked.loomctl("fork", "--at", "1", "--json", session=OTHER).json
    assert made["forked_from"]["run_id"] == name
    assert (worked.store / "runs" / name / "state.json").read_bytes() == before
    assert cli("done", given=ANSWER).code == 0


@pytest.mark.slow
def test_a_fork_is_told_in_words_and_taken_up(worked: Scene, cli: Cli) -> None:
    first = worked.run_dir.name
    lines = cli("fork", "--at", "make").stdout.splitlines()
    new = next(path.name for path in worked.run_dirs if path.name != first)
    assert lines == [
        f"Loom: {handle(new)} is a copy of {handle(first)} after 002-build.make@1",
        "  copied    2 steps, 0 tool calls and the context of that time",
        "  files     Loom touched none of yours; later steps changed none that Loom knows of",
        f"{handle(first)} is unchanged. To continue the copy: loomctl resume {handle(new)}",
    ]
    assert cli("show", "--json").json["run_id"] == first
    assert cli("resume", new, "--json").json["step"]["id"] == "build/polish"
    assert cli("done", given=ANSWER).code == 0
    states = {path.name: worked.state_of(path) for path in worked.run_dirs}
    assert (states[new]["current_step"], states[first]["current_step"]) == ("ship/send", "build/polish")
    assert cli("doctor", "--json").json["ok"]


def test_a_fork_as_a_document(worked: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first = worked.run_dir.name
    told = cli("fork", first, "--at", "1", "--json").json
    assert told["forked_from"] == {"run_id": first, "stage": "001-frame.ask@1", "at": told["forked_from"]["at"]}
    assert (told["status"], told["stages"], told["tool_steps"]) == ("pending", ["001-frame.ask@1"], 0)
    assert told["way"] == {"step_id": "build/make", "reason": "order"}
    assert json.loads((Path(told["run_dir"]) / "state.json").read_text())["run_id"] == told["run_id"]
    changes = cli("context", "history", told["run_id"], "--json").json["changes"]
    assert [(one["key"], one["by"], one["stage"]) for one in changes if one["key"] == "a"] == [
        ("a", "step", "001-frame.ask@1")
    ]
    assert {one["by"] for one in changes} == {"step"}
    monkeypatch.setenv("COLUMNS", "300")
    listed = cli("events", told["run_id"]).stdout.splitlines()
    assert [line.split()[2] for line in listed] == ["run.created", "run.forked"]
    assert f"from {first} at 001-frame.ask@1" in listed[1]


def test_stages_are_completed(worked: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(worked.root)
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", SESSION)
    context = click.Context(click.Command("rewind"))
    option = click.Option(["--to"])
    found = [item.value for item in complete_stages(context, option, "00")]
    assert found == ["001-frame.ask@1", "002-build.make@1", "003-build.polish@1"]
    context.params["run"] = "nowhere"
    assert complete_stages(context, option, "00") == []
