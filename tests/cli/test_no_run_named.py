"""Where no run is named and none is under way the last is shown or named; what is wrong with the only one is said."""

import shlex
from collections.abc import Callable

import pytest

from loomctl.cli.verbs import VIEW_COMMANDS
from tests.cli.conftest import Cli
from tests.cli.test_exit_codes import begin, broken_state, newer_state, no_state
from tests.helpers.scenes import OTHER, Scene, handle
from tests.helpers.tables import each

# What shows a run takes the last one where none is under way.
SHOWING = [
    ["status"],
    ["report"],
    ["prove"],
    ["prove", "--log"],
    ["show"],
    ["show", "ask"],
    ["show", "001-frame.ask@1"],
    ["show", "--stages"],
    ["show", "--assets"],
    ["show", "--diff"],
    ["show", "--why"],
    ["steps"],
    ["steps", "--history"],
    ["steps", "--savings"],
]
# What only looks besides: it takes RUN as its last word, so that the hint is the same command for the last run.
LOOKING = [["sessions"], ["events"], ["debug", "state", "show"], ["debug", "preamble"], ["push", "--dry-run"]]
OTHERS = [
    ["next"],
    ["done"],
    ["statusline"],
    ["fork", "--at", "1"],
    ["show", "--assets", "cp", "out"],
    ["prove", "--add", "x"],
    ["pause"],
]


@pytest.fixture(params=["completed", "cancelled", "failed"])
def over(scene: Scene, request: pytest.FixtureRequest) -> Scene:
    """Two runs that are over; the first was worked on last."""
    begin(scene)
    first = scene.run_dir
    scene.begin("another")
    for folder, at in ((first, "2026-11-22T10:00:00Z"), (scene.run_dirs[-1], "2026-11-21T10:00:00Z")):
        assert folder.name in [one.name for one in scene.run_dirs]
        _edit(scene, folder.name, status=request.param, updated_at=at)
    return scene


def _edit(scene: Scene, run_id: str, **changes: str) -> None:
    import json

    path = scene.store / "runs" / run_id / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_shows_a_run_shows_the_last_one_and_says_so(over: Scene, cli: Cli) -> None:
    """In any session and shell; one that is named or under way is shown without a word, one that never began is not."""
    last = max(over.run_dirs, key=lambda folder: over.state_of(folder)["updated_at"])
    called = handle(over.state_of(last))
    for session in (OTHER, None):
        for words in SHOWING:
            ended = cli(*words, "--json", session=session)
            found = int(words == ["prove", "--log"])  # the scene edited the state by hand
            assert (ended.code, f'"{called}"' in ended.stdout) == (found, True), words
            assert ended.stderr == f"loomctl: no run is under way. This is the last one: {called}\n", words
    assert cli("show", called, session=OTHER).stderr == ""
    _edit(over, last.name, status="pending")
    assert cli("show", session=OTHER).code == 3
    _edit(over, last.name, status="paused")
    assert cli("show", session=OTHER).stderr == ""


def test_what_only_looks_names_the_last_run_and_what_drives_has_it_shown(over: Scene, cli: Cli) -> None:
    """The run is not guessed (D1); the hint is the command that was typed, with the run that was worked on last."""
    for words in LOOKING:
        last = max(over.run_dirs, key=lambda folder: over.state_of(folder)["updated_at"]).name
        called = handle(over.state_of(over.store / "runs" / last))
        ended = cli(*words, "--json", session=OTHER)
        error = ended.json["error"]
        verb = " ".join(words[:2]) in VIEW_COMMANDS
        options = [word for word in words[1 + verb :] if word.startswith("-")]
        assert (ended.code, error["code"]) == (3, "NO_ACTIVE_RUN")
        assert shlex.split(error["hint"]) == ["loomctl", *words[: len(words) - len(options)], called, *options]
        assert f"the last one, {called}, is {over.state_of(over.store / 'runs' / last)['status']}" in error["why"]
        if words[0] != "push":  # there is no remote here
            found = int(words == ["prove", "--log"])  # the scene edited the state by hand
            assert cli(*shlex.split(error["hint"])[1:], session=OTHER).code == found
    for words in OTHERS:
        assert len(over.run_dirs) == 2
        error = cli(*words, "--json", session=OTHER, given="{}").json["error"]
        assert error["code"] == "NO_ACTIVE_RUN"
        assert error["hint"].startswith("loomctl show add-dark-mode-")
        assert cli(*shlex.split(error["hint"])[1:], session=OTHER).code == 0


@each(
    "scenery, code, said",
    [(newer_state, 7, "SCHEMA_TOO_NEW"), (broken_state, 5, "BAD_JSON"), (no_state, 5, "NO_STATE")],
)
def test_the_only_state_ends_a_command_alike_whether_it_is_named_or_not(
    scene: Scene, cli: Cli, scenery: Callable[[Scene], None], code: int, said: str
) -> None:
    scenery(scene)
    for command in ("status", "prove --log", "next", "resume", "statusline"):
        found = cli(*command.split(), "--json", session=OTHER)
        assert (found.code, found.json["error"]["code"]) == (code, said), command
        named = [] if command == "statusline" else [scene.run_dir.name]
        assert cli(*command.split(), *named, session=OTHER).code == code, command


def test_two_states_of_a_newer_loom_end_as_one_does(scene: Scene, cli: Cli) -> None:
    """One update reads them both; of two that are broken in their own ways none is meant, and both are named."""
    begin(scene)
    scene.begin("another")
    for folder in scene.run_dirs:
        path = folder / "state.json"
        path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 99'))
    assert cli("status", session=OTHER).code == 7
    for folder in scene.run_dirs:
        (folder / "state.json").write_text("{")
    ended = cli("status", "--json", session=OTHER)
    assert (ended.code, ended.json["error"]["code"]) == (3, "NO_ACTIVE_RUN")
    assert all(scene.space().store.handle(folder.name) in ended.json["error"]["why"] for folder in scene.run_dirs)


# Command lines that two runs could be meant by; RUN stands where the hint has the first of them.
SEVERAL = [
    (["status"], "status RUN"),
    (["status", "shop"], "status RUN"),
    (["prove", "shop"], "prove RUN"),
    (["prove", "--log", "shop"], "prove --log RUN"),
    (["report", "shop", "--with-files", "-o", "a page.html"], "report RUN -o 'a page.html' --with-files"),
    (["report", "--output=-page.html"], "report RUN -o -page.html"),
    (["push", "shop", "--with-outputs", "--yes"], "push RUN --with-outputs --yes"),
    (["resume"], "resume RUN"),
    (["resume", "--take-over"], "resume RUN --take-over"),
    (["resume", "shop", "--take-over", "--reopen"], "resume RUN --reopen --take-over"),
    (["run", "--resume", "shop", "--take-over"], "run --resume RUN --take-over"),
    (["show", "shop", "3", "--file", "x.md"], "show RUN 3 --file x.md"),
    (["show", "shop"], "show RUN"),
    (["show", "--diff", "shop", "--stat"], "show --diff RUN --stat"),
    (["steps", "--last", "5", "--tool=-x", "shop"], "steps RUN --last 5 --tool=-x"),
    (["steps", "show", "toolu_01", "shop"], "steps show toolu_01 RUN"),
    (["debug", "state", "show", "--path", "a b"], "debug state show RUN --path 'a b'"),
    (["show", "--why", "build"], "show --why build RUN"),
    (["show", "--why", "--", "-1"], "show --why -- -1 RUN"),
    (["show", "--why"], "show RUN"),
    (["context", "get", "a key", "shop"], "context get 'a key' RUN"),
    (["prime-context", "--dry-run"], "prime-context --run-id RUN --dry-run"),
    (["dump", "shop", "out"], "dump RUN out"),
    (["graph", "--format", "dot"], "graph RUN --format dot"),
    (["simulate", "--event", "compact", "--run", "shop"], "simulate --event compact --run RUN"),
    # Nothing that ends, undoes or removes is offered of a run that was guessed.
    (["next", "shop"], "show RUN"),
    (["done"], "show RUN"),
    (["cancel", "shop"], "show RUN"),
    (["runs", "rm", "shop", "--yes"], "show RUN"),
    (["prove", "shop", "--add", "x"], "show RUN"),
]


def test_of_several_runs_the_hint_is_the_callers_own_line_with_one_named(scene: Scene, cli: Cli) -> None:
    begin(scene)
    scene.begin("another")
    for words, line in SEVERAL:
        ended = cli(*words, session=OTHER)
        first = min(folder.name for folder in scene.run_dirs)
        assert ended.code == 3, ended
        assert "AMBIGUOUS_RUN: 2 runs could be meant" in ended.stderr
        assert ended.stderr.rstrip().endswith(f"\n  hint: loomctl {line.replace('RUN', handle(first))}"), ended.stderr
    ended = cli("status", "shop", "--json", session=OTHER)
    first = min(folder.name for folder in scene.run_dirs)
    assert ended.json["error"]["hint"] == f"loomctl status {handle(first)}"
    long = cli("debug", "state", "show", "shop", "--path", "y." * 9000, session=OTHER)
    assert long.stderr.rstrip().endswith(f"hint: loomctl show {handle(first)}")
