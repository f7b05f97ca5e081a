"""The arguments of a slash command, handed over on standard input so that no shell reads them."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.cli import main
from loomctl.kit.errors import LoomError
from tests.cli.conftest import Cli
from tests.helpers.scenes import Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds

END = "\n--end-of-arguments--\n"


def given_as(text: str) -> list[str]:
    return main.split(text + END)


@each(
    ("text", "words"),
    [
        ("", []),
        ("258", ["258"]),
        ('"add dark mode" --workflow core', ["add dark mode", "--workflow", "core"]),
        ("'add dark mode' --workflow core", ["add dark mode", "--workflow", "core"]),
        ('--workflow core "add dark mode"', ["--workflow", "core", "add dark mode"]),
        ('--workflow "my flow" "add dark mode"', ["--workflow", "my flow", "add dark mode"]),
        ("add dark mode", ["add", "dark", "mode"]),
        ("it's me", ["it's", "me"]),
        ("don't do what's wrong", ["don't", "do", "what's", "wrong"]),
        ("'tis the season", ["'tis", "the", "season"]),
        ('rename "foo" to "bar"', ["rename", '"foo"', "to", '"bar"']),
        ('"foo" is not "bar"', ['"foo"', "is", "not", '"bar"']),
        ('say "hi', ["say", '"hi']),
        ("C:\\temp\\x $HOME `whoami` $(id)", ["C:\\temp\\x", "$HOME", "`whoami`", "$(id)"]),
        ("first\nsecond\r\nthird\t4", ["first", "second", "third", "4"]),
        ("--resume shop-258", ["--resume", "shop-258"]),
        ("--artifacts a,b --force", ["--artifacts", "a,b", "--force"]),
        ('--trigger "phase_transition:a->b" --dry-run', ["--trigger", "phase_transition:a->b", "--dry-run"]),
        ("Füge 😀 hinzu", ["Füge", "😀", "hinzu"]),
        ("a --end-of-arguments-- b", ["a", "--end-of-arguments--", "b"]),
    ],
)
def test_words_are_what_a_person_means(text: str, words: list[str]) -> None:
    """Quotes count around a whole goal or value; apostrophes, backslashes and dollars are text."""
    assert given_as(text) == words


@pytest.mark.slow
@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=200))
def test_no_text_is_lost_or_run(text: str) -> None:
    words = given_as(text)

    def bare(value: str) -> str:
        return "".join(value.split()).replace("'", "").replace('"', "")

    assert bare("".join(words)) == bare(text)


@pytest.mark.slow
@given(st.lists(st.from_regex(r"[a-z0-9./_:-]{1,12}", fullmatch=True), max_size=6))
def test_plain_words_are_split_as_a_shell_does(words: list[str]) -> None:
    text = " ".join(words)
    assert given_as(text) == shlex.split(text)


@each("text", ["", "add dark mode", "```", "--end-of-argument"])
def test_arguments_that_were_cut_are_an_error(text: str) -> None:
    with pytest.raises(LoomError) as caught:
        main.split(text)
    assert caught.value.code == "CUT_ARGUMENTS"


@each(
    "text, goal",
    [
        ("it's \"dark mode\", isn't it? $(rm /)", "it's \"dark mode\", isn't it? $(rm /)"),
        ('"remove the --verbose flag"', "remove the --verbose flag"),
        ('"add dark mode"', "add dark mode"),
        ("first line\nsecond line", "first line second line"),
        ("-- --json is broken", "--json is broken"),
    ],
)
def test_a_goal_arrives_as_it_was_typed(scene: Scene, cli: Cli, text: str, goal: str) -> None:
    scene.workflow(name="default")
    cli("run", "--arguments-from-stdin", given=text + END).ends()
    assert scene.state["goal"] == goal


def test_options_are_understood(scene: Scene, cli: Cli) -> None:
    scene.workflow()
    ended = cli("run", "--arguments-from-stdin", given='"add dark mode" --workflow tiny --json' + END)
    assert ended.json["goal"] == "add dark mode"
    assert ended.json["workflow_id"] == "tiny"


@each("given", [b"add \xff mode" + END.encode(), b"\x00" + END.encode()])
def test_odd_bytes_are_no_bug(scene: Scene, cli: Cli, given: bytes) -> None:
    scene.workflow()
    assert cli("run", "--workflow", "tiny", "--arguments-from-stdin", given=given).code in (0, 2)
    assert cli("prime-context", "--arguments-from-stdin", given=b"--run-id " + given).code in (2, 3)
    assert cli("run", "--arguments-from-stdin", given=b"x --workflow " + given).code == 2
    assert cli("run", "--arguments-from-stdin", given=b"x --workflow ./" + given).code == 2


def test_a_goal_with_an_option_in_it_and_arguments_that_were_cut_are_told(scene: Scene, cli: Cli) -> None:
    """A word that looks like an option is no part of a goal by guess, and the error says how to mean it."""
    scene.workflow(name="default")
    ended = cli("run", "--arguments-from-stdin", given="remove the --verbose flag" + END).ends(2)
    holds(ended.stderr, "--verbose", "in quotes")
    assert "in quotes" not in cli("run", "--verbose").stderr
    ended = cli("run", "--arguments-from-stdin", given="add ").ends(2)
    holds(ended.stderr, "cut the command's arguments before Loom could read them", "backticks")


def test_a_real_process_reads_them_from_a_pipe(scene: Scene) -> None:
    scene.workflow()
    ended = scene.loomctl("run", "--workflow", "tiny", "--arguments-from-stdin", given="it's me" + END)
    assert (ended.code, scene.state["goal"]) == (0, "it's me")
