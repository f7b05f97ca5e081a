"""SIGKILL at every write of an end that ticks a box: one box is ticked in the end, and it is the task's own (D65)."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.bench import Answer
from tests.faults.stand import DECIDED, RESPONSE, Stand, essences, litter, sound, strikes

LIST = "# Tasks\r\n\r\n- [x] same\r\n- [ ] same\r\n  - [ ] child\r\n- [ ] same\r\n- [ ] other"
AFTER = LIST.replace("  - [ ] child", "  - [x] child")


def at_a_task(stand: Stand) -> None:
    """Let the second step go through a list, and come to its first task, a child."""
    phases = json.loads((stand.scene.run_dir / "plan.json").read_text(encoding="utf-8"))["phases"]
    phases[0]["steps"][1]["for_each"] = {"list": "artifacts.list", "path_steps": ["artifacts", "list"]}
    stand.scene.edit_plan(phases=phases)
    stand.scene.write("list.md", LIST)
    answer = stand.cli("done", "--for", "1", "--artifact", "list=list.md", given=RESPONSE)
    assert (answer.code, stand.scene.state["steps"][-1]["task"]["text"]) == (0, "child")


def done(stand: Stand, **how: Any) -> Answer:
    return stand.cli("done", "--for", "2", given=RESPONSE, **how)


def stop(stand: Stand, **how: Any) -> Answer:
    return stand.hook("stop", told={"last_assistant_message": DECIDED}, **how)


def ended(stand: Stand, deed: Callable[..., Answer]) -> Answer:
    """End the task as who was killed does: the same command ends no other task, and a host lets its turn end anew."""
    has_ended = len(stand.scene.state["steps"]) == 3
    answer = deed(stand) if deed is done or not has_ended else stand.cli("next")
    assert answer.code == 0, answer
    return stand.cli("next")


@pytest.mark.slow
@pytest.mark.parametrize("deed", [done, stop])
def test_a_tick_that_is_killed_at_every_write_is_made_once(stand: Stand, deed: Callable[..., Answer]) -> None:
    at_a_task(stand)
    stand.keep()
    path = stand.scene.root / "list.md"
    undisturbed = deed(stand, count=True)
    assert (undisturbed.code, undisturbed.signal, path.read_bytes()) == (0, 0, AFTER.encode())
    ended(stand, deed)
    goal = essences(stand)
    ticks, between = 0, 0
    for fault in strikes(undisturbed.calls):
        stand.put_back()
        assert deed(stand, fault=fault).signal == signal.SIGKILL, fault
        sound(stand.scene)
        is_ticked, has_ended = path.read_bytes() == AFTER.encode(), len(stand.scene.state["steps"]) == 3
        assert is_ticked or (path.read_bytes() == LIST.encode() and not has_ended), fault
        ticks, between = ticks + is_ticked, between + (is_ticked and not has_ended)
        answer = ended(stand, deed)
        assert answer.code == 0, (fault, answer)
        sound(stand.scene)
        assert path.read_bytes() == AFTER.encode(), fault
        assert essences(stand) == goal, fault
        assert [*litter(stand.scene), *stand.scene.root.glob("*.tmp"), *stand.scene.root.glob(".*.tmp")] == [], fault
    assert ticks > between > 0


EDITS = {
    "moved": ("  - [x] child\r\n", "", "- [ ] other", "- [x] child\r\n- [ ] other"),
    "reworded": ("child", "children"),
    "noted below": ("[x] child\r\n", "[x] child\r\n    in a1b2\r\n", "# Tasks", "# Tasks\r\n\r\n- [x] new"),
    "removed": ("  - [x] child\r\n", ""),
    "opened again": ("[x] child", "[ ] child"),
    "all done by hand": ("[ ]", "[x]"),
}


@pytest.mark.slow
def test_what_is_edited_between_a_kill_and_its_repetition_is_the_truth(stand: Stand) -> None:
    """The box was ticked, its visit not ended; somebody edits the list; the same end ticks no box but the task's."""
    at_a_task(stand)
    stand.keep()
    path = stand.scene.root / "list.md"
    for fault in strikes(done(stand, count=True).calls):
        stand.put_back()
        done(stand, fault=fault)
        if path.read_bytes() == AFTER.encode() and len(stand.scene.state["steps"]) == 2:
            break
    else:
        pytest.fail("no kill fell between tick and state")
    stand.keep()
    for name, changes in EDITS.items():
        stand.put_back()
        edited = AFTER
        for before, after in zip(changes[::2], changes[1::2], strict=True):
            edited = edited.replace(before, after)
        assert edited != AFTER
        path.write_bytes(edited.encode())
        answer = done(stand)
        assert answer.code == 0, (name, answer)
        sound(stand.scene)
        assert path.read_bytes() == edited.replace("[ ] child", "[x] child").encode(), name
        last = stand.scene.state["steps"][-1]
        now = (last.get("task") or {}).get("text")
        assert now == {"moved": "same", "all done by hand": None}.get(name, "same"), name
