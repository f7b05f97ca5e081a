"""`loomctl tell`: what a person tells a run's assistant, and what they are answered (D76)."""

from __future__ import annotations

import stat

import pytest

from loomctl.kit import clock
from loomctl.runs.machine import tells
from tests.cli.conftest import Cli
from tests.helpers.scenes import OTHER, SESSION, Ended, Scene
from tests.runs.test_leases import edit

NOBODY = None  # a person's shell


def waiting(scene: Scene) -> list[str]:
    return [one.text for one in tells.read(str(scene.store / "local"), scene.run_dir.name)]


def unread(ended: Ended) -> list[str]:
    return [one["text"] for one in ended.ends().json["unread"]]


def test_words_are_kept_for_whoever_works_on_the_run(begun: Scene, cli: Cli) -> None:
    said = cli("tell", begun.handle, "use blue", session=NOBODY).ends().stdout
    assert said == f"Loom: kept for {begun.handle}. The assistant reads it with its next tool result.\n"
    told = cli("tell", "and bold", "--json", session=NOBODY).ends().json
    assert told["heard"] is True
    assert unread(cli("tell", "--list", "--json", session=NOBODY)) == ["use blue", "and bold"] == waiting(begun)
    (path,) = (begun.store / "local/tells").glob("*/000001.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_where_nobody_works_it_is_said_when_it_is_read(begun: Scene, cli: Cli) -> None:
    begun.let_go()
    begun.space().local.mark_ended(SESSION)
    said = cli("tell", begun.handle, "use blue", session=NOBODY).ends().stdout
    assert said == (
        f"Loom: kept for {begun.handle}, on which nobody works now. It is read when the run goes on: "
        f"loomctl resume {begun.handle}\n"
    )
    shown = cli("resume", begun.handle, session=NOBODY).ends().stdout
    assert shown.count("use blue") == 1


def test_a_person_who_drives_is_shown_it_with_the_step_each_time(begun: Scene, cli: Cli) -> None:
    assert cli("resume", begun.handle, "--take-over", session=NOBODY).code == 0
    cli("tell", begun.handle, "use blue", session=NOBODY).ends()
    for _ in range(2):
        assert "use blue" in cli("next", session=NOBODY).ends().stdout
        assert "use blue" in cli("next", "--json", session=NOBODY).ends().json["told"]
    assert "use blue" not in cli("done", session=NOBODY, given="It is asked.").ends().stdout
    assert not (begun.store / "local/tells").exists()


def test_standard_input_is_read(begun: Scene, cli: Cli) -> None:
    cli("tell", begun.handle, "-", session=NOBODY, given="use blue\nand bold\n").ends()
    assert waiting(begun) == ["use blue\nand bold"]


def test_what_waits_is_listed_and_taken_back(begun: Scene, cli: Cli) -> None:
    assert cli("tell", "--list", session=NOBODY).ends().stdout == f"Loom: {begun.handle} has no unread messages.\n"
    cli("tell", begun.handle, "use blue", session=NOBODY).ends()
    assert cli("tell", begun.handle, "--list", session=NOBODY).ends().stdout == (
        f"Loom: {begun.handle} has 1 unread message\n  just now  use blue\n"
    )
    assert "1 unread message, taken back" in cli("tell", begun.handle, "--take-back", session=NOBODY).ends().stdout
    assert waiting(begun) == []
    assert not (begun.store / "local/tells").exists()


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ([], 2, "the text is missing"),
        (["", " "], 2, "the message is empty"),
        (["", "x" * 4001], 2, "more than 4,000 characters"),
        (["", "use", "blue"], 2, "has to stand in quotes"),
        (["no-such-run", "use blue"], 3, "NO_SUCH_RUN"),
        (["", "use blue", "--list"], 2, "there is text too much"),
    ],
)
def test_what_cannot_be_told_is_refused(begun: Scene, cli: Cli, words: list[str], code: int, part: str) -> None:
    ended = cli("tell", *(word or begun.handle for word in words), session=NOBODY)
    assert (ended.code, part in ended.stderr) == (code, True), ended.stderr
    assert waiting(begun) == []


def test_no_more_than_twenty_wait(begun: Scene, cli: Cli) -> None:
    for number in range(20):
        cli("tell", begun.handle, f"word {number}", session=NOBODY).ends()
    ended = cli("tell", begun.handle, "one more", session=NOBODY)
    assert (ended.code, "TOO_MANY" in ended.stderr) == (2, True)
    assert waiting(begun) == [f"word {number}" for number in range(20)]


def test_a_run_that_is_over_is_told_nothing(begun: Scene, cli: Cli) -> None:
    assert cli("cancel", begun.handle, session=NOBODY).code == 0
    ended = cli("tell", begun.handle, "use blue", session=NOBODY)
    assert (ended.code, "BAD_STATUS" in ended.stderr, "--reopen" in ended.stderr) == (2, True, True)
    ended = cli("tell", begun.handle, "use blue", session=OTHER)  # which does not drive it
    assert ended.stderr.endswith(f"hint: loomctl resume {begun.handle} --reopen\n")


def test_of_a_run_that_another_machine_drives_it_is_refused(begun: Scene, cli: Cli) -> None:
    edit(begun, hostname="machine-b", session_id="theirs", seen=clock.now())
    ended = cli("tell", begun.handle, "use blue", session=NOBODY)
    assert (ended.code, "type it there" in ended.stderr) == (6, True)
    assert waiting(begun) == []


def test_an_assistant_does_not_tell_itself(begun: Scene) -> None:
    """Its user is asked, where the host asks; else it is refused (D29, D68)."""
    command = f"loomctl tell {begun.handle} 'you may push'"
    asked = begun.hook("pre-tool-use", tool_name="Bash", tool_input={"command": command})
    assert asked.json["hookSpecificOutput"]["permissionDecision"] == "ask"


def test_a_run_that_is_removed_takes_its_words_along(begun: Scene, cli: Cli) -> None:
    cli("tell", begun.handle, "use blue", session=NOBODY).ends()
    assert cli("cancel", begun.handle, session=NOBODY).code == 0
    assert cli("runs", "rm", begun.handle, "--yes", session=NOBODY).code == 0
    assert not (begun.store / "local/tells").exists()


def test_a_session_that_does_not_drive_the_run_tells_it_nothing(begun: Scene, cli: Cli) -> None:
    assert cli("tell", begun.handle, "use blue", session=OTHER).code != 0
    assert waiting(begun) == []
