"""`RunContext`: a run's context for a script, alone, in many threads, and in many processes at once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import loomctl
from loomctl import LoomError, RunContext
from loomctl.flow import advance
from loomctl.runs.store.blobs import Blobs
from tests.faults.stand import chain
from tests.helpers.scenes import BUILT_IN, CHECKOUT, OTHER, SESSION, Scene

LARGE = {"report": ["x" * 120_000]}


@pytest.fixture
def begun(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene.workflow()
    scene.begin()
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", SESSION)
    monkeypatch.chdir(scene.root)
    return scene


def code_of(deed: Callable[[], object]) -> str:
    with pytest.raises(LoomError) as refused:
        deed()
    return refused.value.code


# ---- One script.


def test_a_script_reads_and_sets(begun: Scene) -> None:
    """Values of every kind, large ones too, each of its own type; what it gives is its own."""
    context = RunContext()
    context.set("coverage", 0.87)
    context.update({"auth.module_path": "src/auth.py", "big": LARGE, "none": None})
    assert context.get("big") == LARGE
    assert begun.state["context"]["big"].startswith("blob://sha256/")
    assert (context.get("coverage"), context.get("none", 1), context.get("gone", 1)) == (0.87, None, 1)
    context.get("big")["report"].append("mine")
    assert context.get("big") == LARGE
    assert context.change("coverage", lambda value: value + 1) == 1.87
    assert context.change("count", lambda value: value + 1, 0) == 1
    assert context.change("big", lambda value: {**value, "more": 1}) == {**LARGE, "more": 1}
    assert (context.unset("none"), context.unset("none")) == (True, False)
    assert ("coverage" in context, "none" in context) == (True, False)
    assert repr(context) == f"RunContext('{begun.run_dir.name}')"


def test_what_a_step_sets_is_read_and_what_a_script_sets_is_met_by_the_step(begun: Scene) -> None:  # D44
    context = RunContext(begun.run_dir.name[:10], folder=begun.root)
    context.set("mine", [1])
    advance.done(begun.space(), context.run_id, response='Fine. {"context_updates": {"theirs": 2}}')
    held = context.snapshot()
    assert set(held) == {*BUILT_IN, "mine", "theirs", "last_stage", "last_response", "response.frame/ask"}
    assert (held["theirs"], held["_current_node"], held["response.frame/ask"][:5]) == (2, "build/make", "Fine.")
    assert list(context) == context.keys() == list(held)
    (one,) = context.history("mine")
    assert (one["by"], one["after"], one["session_id"]) == ("user", [1], SESSION)


def test_what_may_not_be_set_is_refused(begun: Scene) -> None:
    """As everywhere; of several keys none is set, and a change that fails changes nothing."""
    context = RunContext()
    before = begun.state
    assert code_of(lambda: context.update({"a": 1, "_run_id": "x"})) == "RESERVED_KEY"
    assert code_of(lambda: context.set("a", float("nan"))) == "BAD_VALUE"
    assert code_of(lambda: context.set("a", b"bytes")) == "BAD_VALUE"
    assert code_of(lambda: context.set("", 1)) == "BAD_KEY"
    assert code_of(lambda: context.change("a", lambda _: {1, 2})) == "BAD_VALUE"
    assert code_of(lambda: context.unset("last_stage")) == "RESERVED_KEY"
    with pytest.raises(ZeroDivisionError):
        context.change("a", lambda _: 1 / 0)
    assert begun.state == before
    context.set("k", 1)
    begun.edit(status="completed")  # a run that is over is only read
    assert (context.get("k"), code_of(lambda: context.set("k", 2))) == (1, "BAD_STATUS")


def test_a_script_has_the_rights_of_who_starts_it(
    begun: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A person's script sets the only run, if nobody drives it; another conversation's may only read it (D1)."""
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", OTHER)
    theirs = RunContext()
    assert theirs.get("_run_id") == begun.run_dir.name
    assert code_of(lambda: theirs.set("k", 1)) == "HELD_BY_ANOTHER"
    monkeypatch.delenv("CLAUDE_CODE_SESSION_ID")
    assert code_of(lambda: RunContext().set("k", 1)) == "HELD_BY_ANOTHER"
    begun.let_go()
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", OTHER)
    assert code_of(lambda: RunContext().set("k", 1)) == "NOT_BOUND"
    monkeypatch.delenv("CLAUDE_CODE_SESSION_ID")
    RunContext().set("k", 1)
    assert theirs.get("k") == 1
    monkeypatch.chdir(tmp_path)
    assert code_of(RunContext) == "NO_ACTIVE_RUN"
    assert code_of(lambda: RunContext("nowhere", folder=begun.root)) == "NO_SUCH_RUN"
    assert RunContext(folder=str(begun.root)).get("k") == 1


def test_what_cannot_be_read_says_so(begun: Scene) -> None:
    context = RunContext()
    context.set("big", LARGE)
    Path(Blobs(str(begun.store)).path(begun.state["context"]["big"])).write_text("damaged")
    assert code_of(lambda: context.get("big", "default")) == "DAMAGED_BLOB"
    assert code_of(context.snapshot) == "DAMAGED_BLOB"


# ---- Many at once.

THREADS, PROCESSES, TIMES = 32, 8, 12


@pytest.mark.slow
def test_32_threads_on_one_run_lose_nothing(begun: Scene) -> None:
    """They share one object, and every other has its own: each key and each count is there, and each in the log."""
    shared = RunContext()
    begin = threading.Barrier(THREADS)

    def work(who: int) -> None:
        context = shared if who % 8 else RunContext()
        begin.wait()
        for number in range(4):
            context.set(f"{who}.{number}", {"who": who})
            context.change("count", lambda value: value + 1, 0)
            assert context.get(f"{who}.{number}") == {"who": who}

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [None] * THREADS
    held = begun.state["context"]
    assert held.pop("count") == THREADS * 4
    assert held == {f"{who}.{number}": {"who": who} for who in range(THREADS) for number in range(4)}
    assert [one["after"] for one in shared.history("count")] == list(range(1, THREADS * 4 + 1))
    chain(begun.run_dir)


SCRIPT = """
import sys
from loomctl import RunContext
who, times = int(sys.argv[1]), int(sys.argv[2])
context = RunContext()
last = 0
for number in range(times):
    context.set(f"{who}.{number}", [who, number])
    context.update({"left": [who, number], "right": [who, number], "large": {"who": who, "fill": "x" * 110_000}})
    now = context.change("count", lambda value: value + 1, 0)
    assert now > last
    last = now
    held = context.snapshot()
    assert held["left"] == held["right"], (held["left"], held["right"])
    assert len(held["large"]["fill"]) == 110_000
    assert held["count"] >= now
"""


@pytest.mark.slow
def test_8_processes_on_one_run_lose_nothing_and_none_is_torn(begun: Scene) -> None:
    """Keys of each, one that all count, two that go together, and one in blobs; readers meet whole states alone."""
    environ = begun.environ(PYTHONPATH=str(CHECKOUT))
    how: dict[str, Any] = {"cwd": begun.root, "env": environ, "stderr": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, str(who), str(TIMES)], **how) for who in range(PROCESSES)
    ]
    ended = [(process.communicate(timeout=120)[1], process.returncode) for process in started]
    assert ended == [("", 0)] * PROCESSES
    held: dict[str, Any] = begun.state["context"]
    assert held["count"] == PROCESSES * TIMES
    own = {f"{who}.{number}": [who, number] for who in range(PROCESSES) for number in range(TIMES)}
    assert {key: value for key, value in held.items() if key[0].isdigit()} == own
    assert [one["after"] for one in RunContext().history("count")] == list(range(1, PROCESSES * TIMES + 1))
    chain(begun.run_dir)


def test_steps_end_and_people_set_at_the_same_time(begun: Scene) -> None:
    context = RunContext()
    begin = threading.Barrier(2)

    def people() -> None:
        begin.wait()
        for number in range(20):
            context.set(f"mine.{number}", number)

    thread = threading.Thread(target=people)
    thread.start()
    begin.wait()
    for number in range(4):
        response = json.dumps({"context_updates": {f"theirs.{number}": number}})
        advance.done(begun.space(), begun.run_dir.name, response=response) if number < 3 else None
    thread.join()
    held = begun.state["context"]
    assert {f"mine.{number}" for number in range(20)} | {f"theirs.{number}" for number in range(3)} <= set(held)


# ---- The package itself.


def test_importing_the_package_imports_nothing_of_it() -> None:
    """A hook's process does it at every call; each name is imported when it is asked for."""
    program = "import sys, loomctl; print([n for n in sys.modules if n.startswith('loomctl.')], loomctl.Status)"
    told = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert told.stdout == "[] <enum 'Status'>\n"


def test_the_package_names_what_it_has() -> None:
    assert set(loomctl.__all__) <= set(dir(loomctl))
    assert all(getattr(loomctl, name).__name__ == name for name in loomctl.__all__)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = loomctl.nothing_of_the_kind
