"""A pull that is killed at any of its steps: what came is never primed as one's own, and is told of as what it is (D23,
D53).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loomctl.flow import resume
from loomctl.handoff import pull
from loomctl.runs.machine import run_notes
from tests.faults import interleavings
from tests.helpers.machines import Machine, server_of

MOST_STEPS = 400


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return server_of(tmp_path)


@pytest.fixture
def laptop(tmp_path: Path, server: Path) -> Machine:
    """A clone with a run that has one stage behind it, which another one brought forward."""
    made = Machine(tmp_path / "laptop", server)
    made.workflow()
    run_id = made.begin().run.run_id
    made.done(run_id, "Asked.")
    made.push(run_id)
    desktop = Machine(tmp_path / "desktop", server)
    desktop.pull(run_id)
    resume.resume(desktop.space(), run_id, take_over=True)
    desktop.done(run_id, "Made on the desktop.")
    desktop.push(run_id)
    return made


def kills(machine: Machine, run_id: str, keep: str, before: Path, state_home: Path) -> Iterator[int]:
    """Kill a pull at its steps until one ends; each begins from what was before. Gives the steps.

    Every fourth until one is reached at which something is noted; from there on all, those included that were left out.
    """
    step, stride = 1, 4
    while step < MOST_STEPS:
        for folder in (machine.root, state_home):
            shutil.rmtree(folder)
            shutil.copytree(before / folder.name, folder, symlinks=True)
        child = os.fork()
        if not child:
            code = 2
            try:
                interleavings.arm(step, 0.0)
                machine.pull(run_id, keep)
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -9), code
        if stride > 1 and is_noted(machine, run_id):
            step, stride = step - stride, 1
        else:
            yield step
            if code == 0:
                return
        step += stride
    raise AssertionError("the pull has no end")


def is_noted(machine: Machine, run_id: str) -> bool:
    return "pulled" in run_notes.handoff(str(machine.store / "local"), run_id)


def names_of(machine: Machine, run_id: str) -> list[str]:
    lines = (machine.folder(run_id) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["event"] for line in lines]


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("keep", ["", pull.TOOK_THEIRS])
def test_what_a_killed_pull_brought_is_announced_until_it_is_resumed(
    laptop: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    """Whichever of both states is here: it is known only if it is the own one, and the log tells of no other pull."""
    run_id = laptop.run_dir.name
    state_home = tmp_path / "state-home"
    monkeypatch.setenv("LOOM_STATE_HOME", str(state_home))
    run_notes.note_known(run_id, str(laptop.store), trusted="x")
    if keep:
        laptop.done(run_id, "Made on the laptop.")
    for folder in (laptop.root, state_home):
        shutil.copytree(folder, tmp_path / "before" / folder.name, symlinks=True)
    before = (laptop.folder(run_id) / "state.json").read_bytes()
    came = (tmp_path / "desktop" / ".loom" / "runs" / run_id / "state.json").read_bytes()
    seen = []
    for _ in kills(laptop, run_id, keep, tmp_path / "before", state_home):
        there = (laptop.folder(run_id) / "state.json").read_bytes()
        assert there in (before, came)
        is_pulled = there == came
        seen.append(is_pulled)
        if is_pulled:
            assert run_notes.known(run_id, str(laptop.store)) == {}
            if sum(seen) == 1:
                announced = laptop.hook("session-start", session="another", source="startup").message
                assert "was not resumed here" in announced
        elif not is_noted(laptop, run_id) and len(seen) > 1:
            continue
        told = names_of(laptop, run_id).count("run.pulled")
        resume.resume(laptop.space(), run_id, take_over=True)
        assert names_of(laptop, run_id).count("run.pulled") == told + is_pulled
    assert seen == sorted(seen)
    assert seen.count(True) > 2
    assert seen.count(False) > 2
