"""Exit codes, one by one (D52), and what an error says: what, where, why, and a hint that can be pasted."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.kit import errors
from loomctl.kit.errors import (
    EXIT_BUG,
    EXIT_FINDINGS,
    EXIT_HELD,
    EXIT_INVALID,
    EXIT_LIMIT,
    EXIT_MISSING,
    EXIT_NO_RUN,
    EXIT_OK,
    EXIT_SETUP,
    EXIT_SKEW,
    EXIT_USAGE,
    EXIT_WAITS,
)
from tests.cli.conftest import Cli
from tests.helpers.scenes import MAIN, OTHER, SESSION, Ended, Json, Scene, artifact, handle, run
from tests.helpers.tables import each
from tests.helpers.texts import holds


def begin(scene: Scene) -> None:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()


def without_spec(scene: Scene) -> None:
    begin(scene)
    (scene.root / "spec.md").unlink()


def broken_state(scene: Scene) -> None:
    begin(scene)
    (scene.run_dir / "state.json").write_text("{")


def newer_state(scene: Scene) -> None:
    begin(scene)
    scene.edit(schema_version=99)


def two_broken_states(scene: Scene) -> None:
    broken_state(scene)
    (scene.run_dir / "state.backup.json").write_text("{")


def no_state(scene: Scene) -> None:
    begin(scene)
    (scene.run_dir / "state.json").unlink()


def unwritable_home(scene: Scene) -> None:
    begin(scene)
    os.environ["LOOM_STATE_HOME"] = "/dev/null/nowhere"


Case = tuple[int, list[str], Callable[[Scene], None] | None, str]

CASES: list[Case] = [
    (0, ["runs"], begin, ""),
    (0, ["runs"], None, ""),
    (0, ["--help"], None, ""),
    (0, ["--version"], None, ""),
    (2, ["show", "--nonsense"], begin, "USAGE"),
    (2, ["done", "--outcome", "maybe"], begin, "USAGE"),
    (2, ["show", "../../etc"], begin, "BAD_ID"),
    (2, ["done", "--artifact", "x"], begin, "USAGE"),
    (2, ["debug", "state", "show", "--path", "artifacts.none"], begin, "NOTHING_THERE"),
    (2, ["debug", "state", "restore", "--from", "plan.json"], begin, "BAD_SOURCE"),
    (3, ["debug", "state", "restore"], None, "NO_ACTIVE_RUN"),
    (3, ["runs", "restore", "nowhere"], begin, "NO_SUCH_ARCHIVE"),
    (3, ["show", "nowhere"], begin, "NO_SUCH_RUN"),
    (3, ["show", "shop", "009-none"], begin, "NO_SUCH_STAGE"),
    (2, ["show", "--file", "prompt.md"], begin, "USAGE"),
    (3, ["show", "--stages"], None, "NO_ACTIVE_RUN"),
    (2, ["events", "--since", "soon"], begin, "USAGE"),
    (3, ["events", "nowhere"], begin, "NO_SUCH_RUN"),
    (3, ["dump", "nowhere", "out"], begin, "NO_SUCH_RUN"),
    (2, ["dump", "shop", "."], begin, "FOLDER_TAKEN"),
    (2, ["dump", "shop", ".loom/out"], begin, "BAD_TARGET"),
    (3, ["steps", "show", "toolu_01"], begin, "NO_SUCH_TOOL_STEP"),
    (3, ["steps", "--history"], None, "NO_ACTIVE_RUN"),
    (3, ["debug", "preamble"], None, "NO_ACTIVE_RUN"),
    (2, ["debug", "preamble", "--fidelity", "most"], begin, "USAGE"),
    (3, ["steps", "--savings"], None, "NO_ACTIVE_RUN"),
    (2, ["show", "--diff", "--stat", "--names"], begin, "USAGE"),
    (3, ["show", "--diff", "nowhere"], begin, "NO_SUCH_RUN"),
    (3, ["show", "--diff", "shop", "009-none"], begin, "NO_SUCH_STAGE"),
    (3, ["show", "--assets"], None, "NO_ACTIVE_RUN"),
    (3, ["show", "--assets", "cp", "nowhere", "out"], begin, "NO_SUCH_RUN"),
    (3, ["show", "--assets", "cp", "out", "--stage", "009-none"], begin, "NO_SUCH_STAGE"),
    (4, ["prime-context"], without_spec, ""),
    (4, ["resume"], without_spec, ""),
    (2, ["run", "x", "--workflow", "nowhere"], begin, "UNKNOWN_WORKFLOW"),
    (5, ["show"], broken_state, "BAD_JSON"),
    (5, ["show"], no_state, "NO_STATE"),
    (5, ["debug", "state", "restore"], two_broken_states, "NO_WAY_BACK"),
    (5, ["runs", "restore", "spec.md"], begin, "BAD_ARCHIVE"),
    (7, ["debug", "state", "restore", "--yes"], newer_state, "SCHEMA_TOO_NEW"),
]


@each("code, words, scenery, error", CASES)
def test_each_kind_of_end_has_its_code(
    scene: Scene, cli: Cli, code: int, words: list[str], scenery: Callable[[Scene], None] | None, error: str
) -> None:
    """The code, and the error's word; the same under `--json`, as one document (D52)."""
    if scenery is not None:
        scenery(scene)
    ended = cli(*words).ends(code)
    if error:
        assert ended.stdout == "" or words == ["trust"]  # which shows what it would trust first
        holds(ended.stderr, f"loomctl: {error}: ", "\n  hint: ", but=("Traceback",))
    if words[0].startswith("--"):
        return
    ended = cli(*words, "--json").ends(code)
    assert ended.json["schema_version"] == 1
    assert ended.json.get("error", {}).get("code", "") == error
    if error:
        assert ended.json["error"]["hint"]


def at_a_gate(scene: Scene) -> None:
    scene.workflow(phases={"build": {"steps": [{"id": "look", "kind": "human", "prompt": "Look."}]}})
    scene.begin()


def small_budget(_: Scene) -> None:
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "loom"
    settings.mkdir(parents=True)
    (settings / "config.yaml").write_text("hook_budget: 500\n")


# Python that runs one command line with a fault in Loom: exit 70 cannot be had from outside.
FAULTY = """
import sys
sys.path.insert(0, sys.argv[1])
from loomctl.runs import find
def fails(*_, **__):
    raise RuntimeError("nobody expected this")
find.find = fails
from loomctl.cli.main import main
sys.exit(main(sys.argv[2:]))
"""

# code → what provokes it, the words, the error's code, what else is said; empty where it is no error
PROVOKED: dict[int, tuple[Callable[[Scene], None] | None, list[str], str, str]] = {
    EXIT_OK: (begin, ["show"], "", "status    in_progress"),
    EXIT_FINDINGS: (small_budget, ["demo"], "", "Something was lost"),
    EXIT_USAGE: (begin, ["show", "--nonsense"], "USAGE", "No such option"),
    EXIT_NO_RUN: (begin, ["show", "nowhere"], "NO_SUCH_RUN", "'nowhere'"),
    EXIT_MISSING: (without_spec, ["resume"], "", "spec.md"),
    EXIT_INVALID: (broken_state, ["show"], "BAD_JSON", "state.json:1:2"),
    EXIT_HELD: (begin, ["runs", "rm", "shop", "--yes"], "RUN_IS_ACTIVE", "is still active"),
    EXIT_SKEW: (newer_state, ["show"], "SCHEMA_TOO_NEW", "99"),
    EXIT_SETUP: (unwritable_home, ["trust"], "NOT_REMEMBERED", "LOOM_STATE_HOME"),
    EXIT_WAITS: (at_a_gate, ["drive", "shop"], "", "waits for your decision"),
    EXIT_LIMIT: (begin, ["drive", "shop", "--max-time", "0.001s"], "", "limit of 0.001 s is reached"),
    EXIT_BUG: (begin, ["show"], "BUG", "nobody expected this"),
}


def real(scene: Scene, code: int, *words: str) -> Ended:
    """Run a command in a process of its own, as a person does; 70 with a fault in it."""
    if code != EXIT_BUG:
        return scene.loomctl(*words)
    command = [sys.executable, "-I", "-c", FAULTY, str(MAIN.parents[1]), *words]
    return run(command, cwd=scene.root, environ=scene.environ())


def test_the_table_has_every_code_of_d52() -> None:
    declared = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert set(PROVOKED) == declared == {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 70}


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("code", PROVOKED)
def test_a_real_process_ends_with_each_code_in_text_and_in_json(scene: Scene, code: int) -> None:
    """What a shell sees: errors on standard error alone; under `--json` one document on standard output alone (D52)."""
    scenery, words, error, said = PROVOKED[code]
    if scenery is not None:
        scenery(scene)
    told = real(scene, code, *words).ends(code)
    assert "Traceback" not in told.stdout + told.stderr
    if not error:
        assert (told.stderr, said in told.stdout) == ("", True), told
        document = real(scene, code, *words, "--json")
        assert (document.code, document.stderr, "error" in document.json) == (code, "", False)
        return
    assert told.stdout == "" or words == ["trust"]  # which shows what it would trust first
    assert told.stderr.startswith(f"loomctl: {error}: ")
    assert said in told.stderr
    document = real(scene, code, *words, "--json")
    assert (document.code, document.stderr, set(document.json)) == (code, "", {"schema_version", "error"})
    assert same(document.json["error"], told.stderr)
    debugged = real(scene, code, "--debug", *words, "--json").ends(code)
    assert debugged.stderr.startswith("Traceback (most recent call last):\n")
    assert debugged.json["error"]["code"] == error


def same(error: Json, text: str) -> bool:
    parts = [f"loomctl: {error['code']}: {error['message']}"]
    parts += [f"  {name}: {error[name]}" for name in ("where", "why", "hint") if name in error]
    return text.rstrip("\n") == "\n".join(parts)


def test_an_interrupted_process_says_so_and_no_more(scene: Scene) -> None:
    begin(scene)
    before = scene.state
    for more, document in (([], False), (["--json"], True)):
        with subprocess.Popen(
            [sys.executable, "-I", str(MAIN), "done", *more],
            cwd=scene.root,
            env=scene.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - a shell's job ignores it
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdin.write("x" * 1_000_000)  # more than a pipe holds: when this is through, it is being read
            child.stdin.flush()
            child.send_signal(signal.SIGINT)
            child.stdin.close()
            told = child.stdout.read(), child.stderr.read()
            assert child.wait(30) == 130, told
        if document:
            assert json.loads(told[0])["error"]["code"] == "INTERRUPTED"
        else:
            assert told == ("", "\ninterrupted\n")
    assert scene.state == before


def test_a_bug_names_the_line_that_shows_where_it_is(scene: Scene) -> None:
    begin(scene)
    told = real(scene, EXIT_BUG, "state", "show", "--path", "a b")
    assert told.stderr.endswith("  hint: loomctl --debug debug state show --path 'a b'\n")
    pasted = real(scene, EXIT_BUG, *shlex.split(told.stderr.rpartition("hint: loomctl ")[2]))
    assert "Traceback" in pasted.stderr


def test_no_active_run_and_several_runs_are_said_with_the_ways_forward(cli: Cli, scene: Scene) -> None:
    ended = cli("next")
    assert ended.stderr.startswith("loomctl: NO_ACTIVE_RUN: No active run")
    assert all(way in ended.stderr for way in ("loomctl run ", "loomctl resume", "loomctl runs"))
    scene.workflow()
    names = [scene.begin(work).run.run_id for work in ("first", "second")]
    ended = cli("show", session=OTHER).ends(3)
    assert all(handle(*one) in ended.stderr for one in zip(names, ("first", "second"), strict=True))
    assert cli("show", session=SESSION).code == 0


WRONG: list[object] = [None, 5, "x", [], {}, [5], {"x": 5}, [{}], True, -1]
VERBS = [
    ["show"],
    ["sessions"],
    ["prime-context", "--force"],
    ["prime-context", "--dry-run"],
    ["debug", "preamble", "--fidelity", "full"],
    ["next"],
    ["done", "--note", "x"],
    ["undo"],
    ["rewind", "--to", "1"],
    ["resume"],
    ["runs"],
    ["paths"],
    ["trust"],
    ["debug", "state", "show", "--path", "artifacts"],
    ["debug", "state", "restore", "--dry-run"],
]


def places(whole: object, depth: int = 5) -> list[tuple[str | int, ...]]:
    """Give the way to every value in a document, the first two entries of each list."""
    if depth == 0:
        return []
    items: list[tuple[str | int, object]] = []
    if isinstance(whole, dict):
        items = list(whole.items())
    if isinstance(whole, list):
        items = list(enumerate(whole[:2]))
    return [way for key, value in items for way in [(key,), *((key, *rest) for rest in places(value, depth - 1))]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["state.json", "plan.json"])
def test_no_wrong_type_in_a_file_is_a_bug(scene: Scene, cli: Cli, name: str) -> None:
    begin(scene)
    cli("done", "--response-file", "spec.md")
    path = scene.run_dir / name
    whole: Json = json.loads(path.read_text())
    kept = shutil.copytree(scene.run_dir, scene.root / "kept")
    bugs: list[tuple[object, ...]] = []
    for number, way in enumerate(places(whole)):
        for offset in (0, 3):
            broken = json.loads(json.dumps(whole))
            at = broken
            for step in way[:-1]:
                at = at[step]
            at[way[-1]] = WRONG[(number + offset) % len(WRONG)]
            path.write_text(json.dumps(broken))
            ended = cli(*VERBS[(number + offset) % len(VERBS)], "--json")
            if ended.code == 70 or ended.json["schema_version"] != 1:
                bugs.append((way, at[way[-1]], VERBS[(number + offset) % len(VERBS)], ended.stdout[:200]))
            shutil.rmtree(scene.run_dir)
            shutil.copytree(kept, path.parent)
    assert bugs == []
