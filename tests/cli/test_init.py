"""`loomctl init`: a workflow of the project's own and its test command, and nothing that stood there is lost."""

from __future__ import annotations

import json
import re

import pytest

from loomctl.cli.init import WORK
from loomctl.flow import init
from loomctl.flow.commands import command_steps
from loomctl.kit.errors import EXIT_INVALID, EXIT_USAGE
from loomctl.kit.text import fences
from loomctl.runs import config_edit
from loomctl.runs.machine import allowances
from tests.cli.terminal import at_a_terminal
from tests.helpers.errors import refused
from tests.helpers.scenes import OTHER, Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds

TESTED = {"build": {"steps": [{"id": "make", "prompt": "x", "evidence": [{"tests": "pass"}]}]}}


def read(scene: Scene, path: str) -> str:
    return (scene.store / path).read_bytes().decode()


def test_two_questions_make_a_workflow_and_set_the_test_command(scene: Scene) -> None:
    """What was found is offered; the command that was agreed to runs unasked in every run from then on.

    A misspelt answer is asked again.
    """
    scene.write("pytest.ini", "")
    seen = at_a_terminal(scene, "init", typed="defualt\ndefault\n\n")
    holds(seen, "Which one do you want to start from?", "pytest -q", ".loom/workflows/my-default.yaml")
    holds(seen, "there is no 'defualt' in this list; did you mean default?")
    assert "test_command: pytest -q\n" in read(scene, "config.yaml")
    first = read(scene, "workflows/my-default.yaml").partition("\n")[0]
    assert first == "# yaml-language-server: $schema=../workflow.schema.json"
    assert json.loads(read(scene, "workflow.schema.json"))["title"]
    assert scene.loomctl("check", "my-default").ends().stdout.startswith("my-default: ok")
    scene.workflow(phases=TESTED)
    begun = scene.begin()
    assert command_steps.is_trusted(scene.space(), begun.run)


@each("wide", [60, 200])
def test_what_there_is_to_choose_from_has_a_line_each(scene: Scene, wide: int) -> None:
    """Cut at the screen's width, so that the question's whole list stands above it; the default is marked."""
    known = init.bundled(scene.space())
    seen = at_a_terminal(scene, "init", typed="\n\n", COLUMNS=str(wide))
    lines = [line for line in seen.partition("Which one")[0].splitlines() if line[:2] in ("  ", "* ")]
    assert [line[2:].split()[0] for line in lines] == [*known]
    assert [line[2:].split()[0] for line in lines if line.startswith("* ")] == ["core"]
    assert all(fences.width(line) <= wide for line in lines)
    assert wide < 200 or all(words in seen for words in known.values())


def test_options_answer_for_a_script(scene: Scene) -> None:
    words = ("init", "--from", "core", "--tests", "npm test", "--name", "mine", "--yes", "--json")
    told = scene.loomctl(*words, session=None).ends().json
    expected = {"workflow": "mine", "extends": "core", "test_command": "npm test", "copy": None}
    assert {key: told[key] for key in expected} == expected
    assert told["path"] == str(scene.store / "workflows" / "mine.yaml")
    assert allowances.is_allowed(str(scene.store), "npm test")


def test_tests_alone_write_no_workflow(scene: Scene) -> None:
    scene.loomctl("init", "--tests", "make 'a b' # c", session=None).ends()
    assert not (scene.store / "workflows").exists()
    assert scene.space().settings.test_command == "make 'a b' # c"
    told = scene.loomctl("init", "--tests", "", session=None).ends().stdout
    assert scene.space().settings.test_command == ""
    holds(told, "No tests will run: test_command is empty in .loom/config.yaml (before: ", but=("Wrote",))


@each(
    ("base", "work"),
    [
        ("core", "what to build"),
        ("bugfix", "which bug to fix"),
        ("docs", "what to document"),
        ("spike", "which question to answer"),
    ],
)
def test_the_next_command_asks_for_work_that_fits_the_workflow(scene: Scene, base: str, work: str) -> None:
    ended = scene.loomctl("init", "--from", base, "--yes").ends()
    assert ended.stdout.splitlines()[-1] == f'Next: loomctl run "{work}"'
    other = scene.loomctl("init", "--from", base, "--name", "other", "--yes").ends().stdout.splitlines()
    assert other[-1] == f'Next: loomctl run "{work}" --workflow other'


def test_the_workflow_that_init_writes_is_the_projects_default(scene: Scene) -> None:
    told = scene.loomctl("init", "--from", "bugfix", "--yes", session=None).ends().stdout
    holds(told, "`loomctl run` takes it from now on (default_workflow in .loom/config.yaml).")
    assert "default_workflow: my-bugfix\n" in read(scene, "config.yaml")
    assert scene.loomctl("run", "it crashes", "--json").ends().json["workflow_id"] == "my-bugfix"


@each(
    ("settings", "default"),
    [
        ("default_workflow: tdd\n", "tdd"),
        ("default_workflow: default\n", "default"),
        ("{commit_runs: true}\n", "default"),
    ],
)
def test_a_default_workflow_that_stands_stays(scene: Scene, settings: str, default: str) -> None:
    """One that is set, and the settings that a line would change."""
    scene.write(".loom/config.yaml", settings)
    told = scene.loomctl("init", "--from", "docs", "--yes").ends().stdout
    holds(told, f"`loomctl run` without --workflow takes {default} as before", "--workflow my-docs")
    assert read(scene, "config.yaml") == settings


def test_each_bundled_workflow_has_words_of_its_own_for_its_work(scene: Scene) -> None:
    assert set(WORK) == set(init.bundled(scene.space()))


def test_a_project_whose_tests_nobody_knows_is_told_what_a_test_command_does(scene: Scene) -> None:
    """Not one that said that it has none, and none whose command is known. An empty answer writes no setting."""
    told = (
        "Loom found no test command, so no tests will run.",
        "test_command in .loom/config.yaml",
        "loomctl init --tests 'pytest -q'",
    )
    holds(scene.loomctl("init", "--yes").ends().stdout, *told)
    asked = at_a_terminal(scene, "init", "--name", "asked", typed="core\n\n", COLUMNS="200")
    holds(asked, "An empty line for none: ", *told, but=("Wrote test_command", "[-]"))
    assert scene.space().settings.test_command is None
    for words in (["--tests", ""], ["--tests", "make test", "--name", "b", "--yes"], ["--name", "c", "--yes"]):
        assert told[0] not in scene.loomctl("init", *words).ends().stdout


def test_a_new_test_command_is_none_of_the_runs_under_way(scene: Scene) -> None:
    """They are named, but for those whose steps ask for no tests; and the run itself says so as it begins."""
    told = "It counts from the next run on. Open runs keep what they began with: "
    assert told not in scene.loomctl("init", "--tests", "make test").ends().stdout
    scene.workflow(name="untested")
    scene.begin("mend a bug", workflow="untested")
    scene.workflow(phases=TESTED)
    run = scene.begin().run
    assert f"{told}{run.handle}.\n" in scene.loomctl("init", "--tests", "make all").ends().stdout
    assert told not in scene.loomctl("init", "--tests", "make all").ends().stdout


def test_without_anybody_to_ask_nothing_is_written(scene: Scene) -> None:
    ended = scene.loomctl("init").ends(EXIT_USAGE)
    holds(ended.stderr, "NO_TERMINAL", "loomctl init --from core --tests 'pytest -q' --yes")
    assert not scene.store.exists()


@each("suffix", [".yaml", ".json"])
def test_a_workflow_that_is_there_is_never_lost(scene: Scene, suffix: str) -> None:
    before = scene.write(f".loom/workflows/mine{suffix}", "id: mine\nextends: core\n").read_bytes()
    words = ("init", "--name", "mine", "--yes", "--tests", "x")
    holds(scene.loomctl(*words).ends(EXIT_USAGE).stderr, "FILE_EXISTS", "--force")
    assert not (scene.store / "config.yaml").exists()
    scene.loomctl(*words, "--force").ends()
    scene.loomctl(*words, "--force").ends()
    assert len(list((scene.store / "workflows").glob("*.before-*"))) == 2
    assert (scene.store / "workflows" / f"mine{suffix}.before-1").read_bytes() == before
    assert scene.loomctl("check", "mine").ends()


@each(
    ("words", "code"),
    [
        (["--from", "none"], "UNKNOWN_WORKFLOW"),
        (["--name", "../x"], "BAD_ID"),
        (["--tests", "a\nb"], "BAD_CONFIG"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(scene: Scene, words: list[str], code: str) -> None:
    assert scene.loomctl("init", "--yes", *words, "--json").json["error"]["code"] == code
    assert not scene.store.exists()


def test_every_part_of_the_workflow_can_be_switched_on(scene: Scene) -> None:
    """With its comment signs taken out it is a valid workflow, and says what it said."""
    scene.write("CONTRIBUTING.md", "x")
    scene.loomctl("init", "--from", "core", "--yes").ends()
    path = scene.store / "workflows" / "my-core.yaml"
    path.write_text(re.sub(r"^#(?! \S|$)", "", path.read_text(), flags=re.MULTILINE))
    told = scene.loomctl("check", "my-core", "--json").ends().json
    assert told["files"][0]["problems"] == []
    assert told["files"][0]["commands"] == [{"step": "build/lint", "run": "ruff check ."}]


@pytest.mark.shows("a test command that a repository brings")
def test_what_a_repository_says_is_not_allowed_unasked(scene: Scene) -> None:  # D23
    scene.write(".loom/config.yaml", "test_command: sh evil.sh\n")
    ended = scene.loomctl("init", "--yes", session=None).ends()
    holds(ended.stdout, "Each run will ask before Loom executes `sh evil.sh`")
    assert not allowances.is_allowed(str(scene.store), "sh evil.sh")
    scene.loomctl("init", "--tests", "sh evil.sh", session=None).ends()
    assert allowances.is_allowed(str(scene.store), "sh evil.sh")


def test_what_was_allowed_once_is_not_asked_for_again(scene: Scene) -> None:
    """A second workflow of the project's, or the same from an assistant's session."""
    scene.write("pytest.ini", "")
    told = "Loom may execute `pytest -q` in this project."
    for name, session in (("one", None), ("two", None), ("three", OTHER)):
        ended = scene.loomctl("init", "--name", name, "--yes", session=session).ends()
        holds(ended.stdout, told, but=("Each run will ask",))


def test_an_assistant_allows_nothing(scene: Scene) -> None:  # D68
    ended = scene.loomctl("init", "--tests", "make test", session=OTHER).ends()
    holds(ended.stdout, "Each run will ask", "type in a terminal: loomctl init --tests 'make test'")
    assert not allowances.is_allowed(str(scene.store), "make test")
    assert scene.space().settings.test_command == "make test"


@each("place", [".loom/workflows", ".loom/config.yaml"])
def test_no_link_is_written_through(scene: Scene, place: str) -> None:
    outside = scene.root.parent / "outside"
    outside.mkdir()
    (scene.root / ".loom").mkdir()
    (scene.root / place).symlink_to(outside)
    assert "UNSAFE_LINK" in scene.loomctl("init", "--yes", "--tests", "x").ends(EXIT_INVALID).stderr
    assert list(outside.iterdir()) == []


EDITS: list[tuple[str, str]] = [
    ("", "t: x y\n"),
    ("# mine\n", "# mine\nt: x y\n"),
    ("a: 1", "a: 1\nt: x y\n"),
    ("a: 1\r\nb: 2\r\n", "a: 1\r\nb: 2\r\nt: x y\r\n"),
    ("t: old # why\na: 1\n", "t: x y # why\na: 1\n"),
    ("t: 'o # d'\na: 1\n", "t: x y\na: 1\n"),
    ("b:\n  t: 3\n", "b:\n  t: 3\nt: x y\n"),
    ("{a: 1, t: old}\n", "{a: 1, t: x y}\n"),
]


@each(("text", "made"), EDITS)
def test_a_setting_is_written_and_all_else_stays(text: str, made: str) -> None:
    assert config_edit.with_setting(text, "t", "x y", where="c").rstrip() == made.rstrip()


@each("text", ["{a: 1}\n", "a: 1\n...\n", "- a\n", "a: [1\n", "t: |\n  o\n  d\na: 1\n"])
def test_settings_that_a_line_would_change_are_left_alone(text: str) -> None:
    with refused("NOT_EDITABLE", why="add this line yourself: t: x y"):
        config_edit.with_setting(text, "t", "x y", where="c")
