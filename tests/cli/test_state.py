"""`loomctl debug state restore`: what it says, whom it asks, and what it changes (D53)."""

import json

import pytest

from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal, loomctl
from tests.helpers.scenes import Scene, artifact, fingerprint
from tests.helpers.texts import holds


@pytest.fixture
def begun(scene: Scene, cli: Cli) -> Scene:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    assert (cli("run", "add dark mode", "--workflow", "tiny").code, cli("done", given="asked").code) == (0, 0)
    assert cli("done", given="made").code == 0
    return scene


def test_the_hint_of_a_broken_run_mends_it(begun: Scene, cli: Cli) -> None:
    (begun.run_dir / "state.json").write_text('{"torn')
    ended = cli(*cli("next").ends(5).stderr.rpartition("hint: ")[2].split()[1:]).ends()
    for words in (
        "damaged   BAD_JSON",
        "revision unknown",
        "kept      state.broken-1.json",
        "go on     loomctl resume",
    ):
        assert words in ended.stdout
    assert "later ones stay in events.jsonl" in ended.stdout
    line = next(one for one in ended.stdout.splitlines() if one.startswith("  result"))
    assert cli("resume").code == 0
    again = line.partition("loomctl ")[2].split()
    assert (cli(*again).code, cli("show").stdout.count("✓ build/make    succeeded")) == (0, 1)


def test_a_healthy_state_is_replaced_after_a_word_alone(begun: Scene, cli: Cli) -> None:
    before = fingerprint(begun.run_dir)
    ended = cli("debug", "state", "restore", given="y\n")
    assert (ended.code, ended.stdout) == (2, "")
    holds(ended.stderr, "step      build/make: succeeded → in_progress", "NOT_CONFIRMED")
    assert fingerprint(begun.run_dir) == before
    assert cli("debug", "state", "restore", "--json").json["error"]["code"] == "NOT_CONFIRMED"
    assert "--from state.replaced-1.json" in cli("debug", "state", "restore", "--yes").ends().stdout
    assert begun.state["current_step"] == "build/make"
    assert cli("debug", "state", "restore", "--from", "state.replaced-1.json", "--yes").code == 0
    assert begun.state["current_step"] == "build/polish"


@pytest.mark.parametrize(("answer", "step"), [("y\n", "build/make"), ("n\n", "build/polish"), ("\x04", "build/polish")])
def test_a_terminal_asks(begun: Scene, answer: str, step: str) -> None:
    terminal = Terminal(loomctl("debug", "state", "restore", begun.run_dir.name), begun)
    terminal.until("Restore it?")
    terminal.type(answer)
    assert "succeeded → in_progress" in terminal.end()
    assert terminal.child.returncode == (0 if step == "build/make" else 2)
    assert begun.state["current_step"] == step


def test_a_dry_run_writes_nothing_and_a_plan_that_cannot_be_made_anew_is_exit_5(begun: Scene, cli: Cli) -> None:
    for name in ("state.json", "plan.json"):
        (begun.run_dir / name).write_text("{")
    before = fingerprint(begun.run_dir)
    ended = cli("debug", "state", "restore", "--dry-run").ends()
    assert "from state.backup.json" in ended.stdout
    assert "would rebuild the plan from {project_root}/.loom/workflows/tiny.json" in ended.stdout
    assert fingerprint(begun.run_dir) == before
    document = cli("debug", "state", "restore", "--dry-run", "--json").json
    assert (document["dry_run"], document["state"]["restored"], document["plan"]["restored"]) == (True, False, False)
    assert document["state"]["trouble"]["code"] == "BAD_JSON"
    (begun.store / "workflows" / "tiny.json").unlink()
    holds(
        cli("debug", "state", "restore").ends(5).stdout,
        "Loom: restored the state of",
        "from state.backup.json",
        "PLAN_LOST",
    )
    assert json.loads((begun.run_dir / "state.json").read_bytes())["status"] == "in_progress"
    assert cli("debug", "state", "restore", "--json").json["plan"]["error"]["code"] == "PLAN_LOST"


def test_what_a_file_says_is_shown_not_obeyed(begun: Scene, cli: Cli) -> None:
    hostile = "x\x1b[31m\x07\nINJECTED"
    sessions = {"session_history": [{"session_id": hostile, "ended_at": "x", "end_reason": hostile}]}
    steps = [{**begun.state["steps"][0], "step_id": hostile, "status": hostile}]
    begun.edit(steps=steps, sessions=sessions, updated_at=hostile, current_step=hostile, **{hostile: 1})
    with (begun.run_dir / "events.jsonl").open("a") as log:
        log.write(json.dumps({"seq": 99, "event": hostile, "step_id": hostile}) + "\n")
    ended = cli("debug", "state", "restore", "--dry-run").ends()
    assert not any(sign in ended.stdout for sign in ("\x1b", "\x07"))
    assert not any(line.startswith("INJECTED") for line in ended.stdout.splitlines())


def test_a_run_without_its_state_is_listed(begun: Scene, cli: Cli) -> None:
    """It does not vanish: `runs` lists it as unreadable, a hook says so, and both name the run (D53)."""
    handle = begun.handle
    (begun.run_dir / "state.json").unlink()
    assert "NO_STATE" in cli("runs").stdout
    assert cli("runs", "--json").json["runs"][0]["run_id"] == begun.run_dir.name
    holds(begun.hook("session-start", source="startup").message, "loomctl debug state restore", handle)
