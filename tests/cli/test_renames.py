"""Old names of commands do what was asked until 1.0: the same output and exit code, and on a terminal a line beside."""

import sys
from pathlib import Path

import pytest

from loomctl.cli.verbs import DEBUG, PLACES, RENAMED, current
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal
from tests.helpers.scenes import CHECKOUT, MAIN, Scene
from tests.helpers.tables import each

GIVEN = {
    "outcome": '{"outcome": "failed"}',
    "reduce": '{"tool": "Bash", "args": {"command": "ls"}, "result": {"stdout": "a"}}',
}
# Each old name, as it was called: alone, and with words behind it.
OLD: list[list[str]] = [
    *(["stages"], ["stages", "shop", "--last", "1"], ["stages", "nowhere"]),
    *(["diff"], ["diff", "shop", "001", "--stat"], ["diff", "--stat", "--names"]),
    *(["assets"], ["assets", "shop"], ["assets", "cp", "shop", "out"], ["assets", "cp"]),
    *(["why"], ["why", "001", "shop"], ["why", "nothing"]),
    *(["savings"], ["savings", "shop"]),
    *(["history"], ["history", "--budget", "90", "--recent", "1"]),
    *(["verify"], ["verify", "shop"], ["verify", "--all"], ["verify", "shop", "--all"]),
    *(["outcome", "--from", "-"], ["outcome", "--from", "-", "--schema", "routing"]),
    *(["preamble"], ["preamble", "--fidelity", "full"]),
    ["reduce"],
    *(["blob", "get", "x"], ["blob"]),
    *(["state", "show"], ["state", "show", "--path", "goal"], ["state", "restore", "--dry-run"]),
    *(["schema", "state"], ["schema", "nonsense"]),
    *(["gc", "--dry-run"], ["tidy", "--dry-run"]),
]  # fmt: skip


@pytest.mark.usefixtures("begun")
@each("words", OLD)
def test_an_old_name_does_what_the_new_one_does(cli: Cli, words: list[str]) -> None:
    given = GIVEN.get(words[0])
    for more in ([], ["--json"], ["--help"]):
        old = cli(*words, *more, given=given)
        assert old == cli(*RENAMED[words[0]].split(), *words[1:], *more, given=given)
        assert "is now" not in old.stderr  # it is no terminal


def test_every_old_name_is_played_and_none_of_them_is_a_verb_of_today() -> None:
    assert {words[0] for words in OLD} == set(RENAMED)
    assert not set(RENAMED) & set(PLACES)
    assert {f"debug {name}" for name in DEBUG if name != "hook"} <= set(RENAMED.values())


def test_a_person_is_told_the_new_name_in_one_line(begun: Scene) -> None:
    told = Terminal([sys.executable, "-I", str(MAIN), "stages", "--last", "1"], begun).end()
    assert told.splitlines()[0] == "`loomctl stages` is now `loomctl show --stages`"
    document = Terminal([sys.executable, "-I", str(MAIN), "stages", "--json"], begun).end()
    assert document.startswith("{")
    assert "is now" not in Terminal([sys.executable, "-I", str(MAIN), "show", "--stages"], begun).end()


@each(
    ("words", "now"),
    [
        (["--debug", "stages", "shop"], ["--debug", "show", "--stages", "shop"]),
        (["help", "verify"], ["prove", "--log", "--help"]),
        (["help"], ["--help"]),
        (["run", "stages"], ["run", "stages"]),
        (["done", "--note", "diff"], ["done", "--note", "diff"]),
        (["--version"], ["--version"]),
        ([], []),
    ],
)
def test_only_the_verb_is_put_into_the_words_of_today(words: list[str], now: list[str]) -> None:
    assert current(words)[0] == now


def test_hooks_are_called_as_manifests_call_them(begun: Scene) -> None:
    """`loomctl hook` is no old name: it is called so for good, and answers without any part of the command line."""
    assert begun.loomctl("hook", "stop", given="{}").code == 0
    manifests: list[Path] = [*CHECKOUT.glob("hooks/*.json")]
    assert manifests
    assert all("debug hook" not in path.read_text(encoding="utf-8") for path in manifests)
