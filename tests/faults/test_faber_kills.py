"""SIGKILL at every write in a project of FABER's: its state is the old or the new one, with every key (D5, D53)."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.bench import Answer, Bench
from tests.faults.stand import RESPONSE, Stand, sound, strikes
from tests.helpers import faber
from tests.helpers.scenes import Json, Scene

# A plan that says what must be in context: else Loom's own workflow is read for that, anew after each kill.
PLAN: Json = {**faber.PLAN, "workflow": {**faber.PLAN["workflow"], "critical_artifacts": {}}}


def resume(stand: Stand, **how: Any) -> Answer:
    return stand.cli("resume", faber.RUN_ID, **how)


def done(stand: Stand, **how: Any) -> Answer:
    return stand.cli("done", given=RESPONSE, **how)


def restore(stand: Stand, **how: Any) -> Answer:
    return stand.cli("debug", "state", "restore", faber.RUN_ID, **how)


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("layout", ["runs", "by-plan"])
@pytest.mark.parametrize("deed", ["restore", "resume", "done"])
def test_a_kill_at_any_write_loses_no_key_of_fabers(
    tmp_path: Path, forks: Bench, user_folders: Path, layout: str, deed: str
) -> None:
    """After each kill the state is whole, what is done again works, and beside the state nothing of Loom's is left."""
    scene = Scene(tmp_path / "shop")
    path = faber.lay(scene, layout, plan=PLAN)
    stand = Stand(scene, forks, user_folders)
    do = {"resume": resume, "done": done, "restore": restore}[deed]
    before = json.loads(path.read_bytes())
    if deed != "resume":
        assert resume(stand).code == 0
    if deed == "restore":
        path.unlink()
    stand.keep()
    undisturbed = do(stand, count=True)
    assert undisturbed.code == 0, undisturbed
    goal = json.loads(path.read_bytes())["current_step"]
    struck = 0
    for fault in strikes(undisturbed.calls):
        stand.put_back()
        assert do(stand, fault=fault).signal == signal.SIGKILL, fault
        struck += 1
        if path.exists():
            assert kept(before, path), fault
            sound(scene)
        else:
            assert deed == "restore", fault
        again = do(stand)
        if deed == "done" and again.code != 0:  # it was done already
            again = stand.cli("next")
        assert again.code == 0, (fault, undisturbed.calls[fault["at"] - 1], again)
        assert kept(before, path), fault
        assert json.loads(path.read_bytes())["current_step"] in (goal, *after(goal)), fault
        assert [one.name for one in path.parent.iterdir() if one.name.endswith(".tmp")] == []
        sound(scene)
    assert struck > 10


def kept(before: Json, path: Path) -> bool:
    return faber.unknown_is_kept(before, json.loads(path.read_bytes())) == []


def after(step: str) -> list[str]:
    """Give the steps behind one: where a kill left the deed done, doing it again does the next."""
    ids = [key.partition("/")[2] for key in faber.ORDER]
    return ids[ids.index(step) :]
