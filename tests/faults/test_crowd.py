"""16 processes with 200 updates each lose none, and whoever reads meanwhile sees whole files (D53, D54)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.faults.bench import CHECKOUT
from tests.faults.stand import RESPONSE, chain, litter, sound
from tests.helpers.scenes import OTHER, Scene
from tests.helpers.verbs import begin, go_on
from tests.helpers.verbs import done as ends

WRITERS, TIMES, READERS = 16, 200, 2


@pytest.mark.slow
def test_a_crowd_loses_nothing_and_no_reader_sees_a_torn_file(begun: Scene) -> None:
    """Every update of every process is in the state, in its count and once in the log, whose chain has no gap; readers
    saw numbers that only rise, and each file whole.
    """
    folder = begun.run_dir
    first = begun.state["revision"]
    counts = (str(count) for count in (WRITERS, TIMES, READERS))
    command = [sys.executable, "-B", "-m", "tests.faults.crowd", str(begun.store), folder.name, *counts]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True)
    seen = json.loads(done.stdout)
    assert None not in seen["writers"] + seen["readers"]
    everything = WRITERS * TIMES
    assert sorted(number for writer in seen["writers"] for number in writer) == list(range(1, everything + 1))
    assert all(reader["reads"] > 20 for reader in seen["readers"])
    state = begun.state
    assert (state["context"]["n"], state["revision"]) == (everything, first + everything)
    assert state["context"]["by"] == {str(who): TIMES for who in range(WRITERS)}
    ticks = [entry["properties"]["n"] for entry in chain(folder) if entry["event"] == "tick"]
    assert ticks == list(range(1, everything + 1))
    sound(begun)
    assert litter(begun) == []


def test_commands_and_hooks_that_meet_lose_nothing(begun: Scene) -> None:
    """Real commands and hooks of two sessions at once: each says what it did or who was first, and all is whole."""
    begun.loomctl("resume", "--take-over", session=OTHER)
    words = [("done", "--json"), ("next", "--json"), ("resume", "--json"), ("prime-context", "--json", "--force")]
    commands = [
        [sys.executable, "-I", str(CHECKOUT / "loomctl" / "__main__.py"), *line] for line in words for _ in range(2)
    ]
    hook = [sys.executable, "-I", "-S", str(CHECKOUT / "loomctl" / "__main__.py"), "hook", "session-start"]
    started = [
        subprocess.Popen(
            command,
            cwd=begun.root,
            env=begun.environ(*((OTHER,) if number % 2 else ())),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, command in enumerate([*commands, hook, hook])
    ]
    event = json.dumps({"cwd": str(begun.root), "source": "compact"})
    for process in started:
        assert process.stdin is not None
        process.stdin.write(event if "hook" in process.args else RESPONSE)  # type: ignore[operator]
        process.stdin.close()
        process.stdin = None
    for process in started:
        out, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors
        assert process.returncode in (0, 2, 6), (process.args, out)
        assert json.loads(out)
    sound(begun)
    assert litter(begun) == []
    assert [visit["status"] for visit in begun.state["steps"]].count("in_progress") <= 1
    stages = [visit["stage"] for visit in begun.state["steps"]]
    assert len(set(stages)) == len(stages)
    for visit in begun.state["steps"]:
        if visit["status"] == "succeeded":
            place = begun.run_dir / "stages" / visit["stage"]
            assert (place / "response.md").read_text() == RESPONSE
            assert os.path.exists(place / "status.json")


def test_branches_whose_tasks_end_at_once_tick_each_its_own(scene: Scene) -> None:
    """Two sections of one file, a branch each, in real processes that begin together (D65)."""

    def branch(name: str) -> dict[str, object]:
        each = {"list": "artifacts.spec", "section": name}
        return {"id": name, "steps": [{"id": "each", "prompt": "{task}", "for_each": each}]}

    fan = {"id": "fan", "parallel": {"branches": [branch("a"), branch("b")]}, "prompt": "Both."}
    begin(scene, "spec", fan, "after")
    path = scene.write("spec.md", "# A\r\n- [ ] a1\r\n  - [ ] a0\r\n# B\r\n* [ ] b0\r\n1. [ ] b1\r\n")
    ends(scene, artifacts={"spec": "{project_root}/spec.md"})
    for name in ("a", "b"):
        go_on(scene, branch=name)
    for left in (2, 0):
        words = [sys.executable, "-I", str(CHECKOUT / "loomctl" / "__main__.py"), "done", "--json", "--branch"]
        environ = scene.environ()
        started = [
            subprocess.Popen(
                [*words, name], cwd=scene.root, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for name in ("a", "b")
        ]
        for process in started:
            out, _ = process.communicate(RESPONSE, timeout=60)
            assert process.returncode == 0, out
        assert path.read_bytes().count(b"[ ]") == left
    assert path.read_bytes() == b"# A\r\n- [x] a1\r\n  - [x] a0\r\n# B\r\n* [x] b0\r\n1. [x] b1\r\n"
    assert scene.state["current_step"] == "build/after"
