"""A helper and a plugin of two versions in one session: said once, by whoever can know it for nothing."""

import pytest

from loomctl import __version__
from tests.cli.conftest import Cli
from tests.helpers.scenes import OTHER, SESSION, Json, Scene

NEWER, OLDER = "99.0.0", "0.0.1"


def fired(scene: Scene, version: str, session: str = SESSION) -> None:
    (scene.store / "local/hooks/pre-tool-use").write_text(f"{version} {session} /x/bin/loomctl\n")


@pytest.mark.parametrize("version", [NEWER, OLDER])
def test_a_command_says_once_that_the_hooks_are_of_another_version(begun: Scene, cli: Cli, version: str) -> None:
    fired(begun, version)
    ended = cli("runs", "--json")
    assert ended.json["runs"]
    assert ended.stderr == (
        f"loomctl: this is version {__version__}; this session's hooks are version {version}\n  hint: loomctl doctor\n"
    )
    assert cli("runs").stderr == ""
    fired(begun, "98.0.0")
    assert "98.0.0" in cli("runs").stderr


def test_one_version_is_not_worth_a_word(begun: Scene, cli: Cli) -> None:
    fired(begun, __version__)
    assert cli("runs").stderr == ""
    fired(begun, NEWER, OTHER)
    assert cli("runs").stderr == ""
    fired(begun, NEWER)
    assert cli("runs", session=None).stderr == ""


def last_environment(scene: Scene, **changes: str) -> None:
    sessions: Json = scene.state["sessions"]
    sessions["session_history"][-1]["environment"].update(changes)
    scene.edit(sessions=sessions)


def test_a_session_record_names_the_version_and_an_odd_one_is_passed_over(begun: Scene) -> None:
    """What starts a run and what a hook enters both write theirs down (D25)."""
    assert begun.state["sessions"]["session_history"][-1]["environment"]["loom"] == __version__
    last_environment(begun, loom=OLDER)
    begun.hook("session-start", source="resume")
    assert begun.state["sessions"]["session_history"][-1]["environment"]["loom"] == __version__
    sessions = begun.state["sessions"]
    for odd in (5, None, ["9"], {"x": 1}):
        sessions["session_history"][-1]["environment"]["loom"] = odd
        begun.edit(sessions=sessions)
        assert "worked on it" not in begun.hook("session-start", source="compact").message


@pytest.mark.parametrize(("version", "said"), [(NEWER, True), (OLDER, False), (__version__, False), ("", False)])
def test_a_session_start_says_that_its_plugin_is_the_older(begun: Scene, version: str, said: bool) -> None:
    """In its one line; that a run is older than the plugin is what every update looks like."""
    last_environment(begun, loom=version)
    ended = begun.hook("session-start", source="compact")
    note = f"loomctl {version} worked on it, but the plugin is {__version__}: loomctl doctor"
    assert (note in ended.message) == said
    assert ended.message.startswith("Loom: run ")
