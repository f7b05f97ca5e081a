"""SIGKILL at every write: whatever Loom was doing, the old or the new state is there and the work goes on (D53)."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from loomctl.kit.errors import EXIT_NO_RUN, EXIT_OK
from loomctl.runs.machine import run_notes
from tests.faults.bench import Answer
from tests.faults.stand import DECIDED, GUIDE, RESPONSE, SENTENCE, Stand, chain, essence, litter, sound, strikes
from tests.helpers.scenes import OTHER, SESSION, Json

UPDATES = 8
DAY = 86_400  # seconds; clean leaves alone what is new


@pytest.mark.slow
def test_a_long_run_of_updates_is_killed_at_every_write(stand: Stand) -> None:
    """One run, killed in turn before and half-way within each write of eight updates, is never put back in between:
    what was said to be written is there, nothing else is, and the next update works at once.
    """
    folder = stand.scene.run_dir

    def update(**more: Any) -> Answer:
        return stand.work("update", str(stand.scene.store), folder.name, str(UPDATES), **more)

    everything = list(strikes(update(count=True).calls))
    assert len(everything) > 100
    reached = UPDATES
    for fault in everything:
        answer = update(fault=fault)
        assert answer.signal == signal.SIGKILL, fault
        said = max([reached, *(int(line) for line in answer.stdout.split())])
        sound(stand.scene)
        state = stand.scene.state
        reached = state["context"]["n"]
        assert reached in (said, said + 1), fault
        assert len(state["context"]["fill"]) == 3000
    assert update().stdout.split()[-1] == str(reached + UPDATES)
    sound(stand.scene)
    assert litter(stand.scene) == []
    ticks = [entry["properties"]["n"] for entry in chain(folder) if entry["event"] == "tick"]
    assert sorted(set(ticks)) == list(range(1, reached + UPDATES + 1))


class Deed(NamedTuple):
    """A piece of work that is killed, and how it goes on afterwards.

    before: what is done first; do: the work; again: what a user or a host does after a kill; after: what must hold
    then, beside the same state as without a kill.
    """

    do: Callable[[Stand, Json], Answer]
    again: Callable[[Stand], Answer]
    before: Callable[[Stand], object] = lambda _: None
    after: Callable[[Stand, Answer], object] = lambda *_: None


def done(stand: Stand, **how: Any) -> Answer:
    return stand.cli("done", "--for", str(stand.scene.state["steps"][-1]["rank"]), given=RESPONSE, **how)


def next_or_done(stand: Stand) -> Answer:
    """Go on as an assistant does: end the step if it is still the one it works on, else ask for the next."""
    if stand.scene.state["current_step"] == "frame/note":
        answer = done(stand)
        assert answer.code == 0
        return answer
    return stand.cli("next")


def told_of_the_guide(stand: Stand, answer: Answer) -> None:
    """Hold that what the second phase brings was given, or stands noted as given in full."""
    given = stand.scene.state["context_metadata"]["artifacts_in_context"]
    assert GUIDE in answer.stdout or "guide" in {entry["artifact_id"] for entry in given}


def start(stand: Stand, source: str = "startup", session: str = SESSION, **how: Any) -> Answer:
    return stand.hook("session-start", session=session, told={"source": source}, **how)


def stop(stand: Stand, **how: Any) -> Answer:
    return stand.hook("stop", told={"last_assistant_message": RESPONSE}, **how)


def decided(stand: Stand, **how: Any) -> Answer:
    return stand.hook("stop", told={"last_assistant_message": DECIDED}, **how)


def closing_with_a_schema(stand: Stand) -> None:
    phases = json.loads((stand.scene.run_dir / "plan.json").read_text(encoding="utf-8"))["phases"]
    phases[0]["steps"][0]["output_schema"] = "routing"
    stand.scene.edit_plan(phases=phases)
    closing(stand)


def repaired_twice(stand: Stand) -> Answer:
    """Stop until a second repair is asked for: what was killed has counted one at most."""
    counts = [stand.scene.state["steps"][0].get("repairs", 0)]
    assert counts[0] in (0, 1)
    while counts[-1] < 2:
        answer = stop(stand)
        counts.append(stand.scene.state["steps"][0].get("repairs", 0))
        assert counts[-1] == counts[-2] + 1
    return answer


def at_a_gate(stand: Stand, then: Callable[[Stand], Answer] = lambda stand: stand.cli("next")) -> None:
    """Have the second step decided by a person, come to it, and do what follows."""
    phases = json.loads((stand.scene.run_dir / "plan.json").read_text(encoding="utf-8"))["phases"]
    ways = [{"to": "build/make", "label": "[O] On"}, {"to": "frame/ask", "label": "Again"}]
    phases[0]["steps"][1].update(kind="human", transitions=ways)
    stand.scene.edit_plan(phases=phases)
    assert done(stand).code == 0
    assert stand.scene.state["status"] == "awaiting_feedback"
    assert then(stand).code == 0


def at_a_fan(stand: Stand, *ended: str) -> None:
    """Have the second step be a parallel one of two branches, come to it, begin both, and end those that are named."""
    phases = json.loads((stand.scene.run_dir / "plan.json").read_text(encoding="utf-8"))["phases"]
    fan, like = phases[0]["steps"][1], phases[1]["steps"][0]
    held = [
        {"id": name, "steps": [{**like, "key": f"frame/note.{name}.look", "id": f"note.{name}.look"}]}
        for name in ("api", "web")
    ]
    fan.update(kind="parallel", parallel={"join": "wait_all", "branches": held})
    stand.scene.edit_plan(phases=phases)
    assert done(stand).code == 0
    for name in ("api", "web"):
        assert stand.cli("next", "--branch", name).code == 0
    for name in ended:
        assert branch_done(stand, name).code == 0


def branch_done(stand: Stand, name: str, **how: Any) -> Answer:
    return stand.cli("done", "--branch", name, given=DECIDED, **how)


def branch_done_again(stand: Stand, name: str) -> Answer:
    entry = next(one for one in stand.scene.state["steps"] if "branches" in one)
    record = next(one for one in entry["branches"] if one["id"] == name)
    if record["status"] == "in_progress":
        assert branch_done(stand, name).code == 0
    return stand.cli("next")


def joined(stand: Stand, _: Answer) -> None:
    """Hold that the branches came together, with what both did, and that the stage's file tells the same."""
    entry = next(one for one in stand.scene.state["steps"] if "branches" in one)
    told = json.loads((stand.scene.run_dir / "stages" / entry["stage"] / "status.json").read_bytes())
    assert [one["set"]["n"] for one in told["branches"]] == [1, 1]
    assert (told["status"], told["joined_by"], entry["status"]) == ("succeeded", "web", "succeeded")
    assert [one["status"] for one in stand.scene.state["context"]["parallel.results"]] == ["succeeded"] * 2
    assert stand.scene.state["context"]["n"] == 1


def choose(stand: Stand, **how: Any) -> Answer:
    return stand.cli("choose", "on", "--by", "Ada", "--note", RESPONSE.strip(), **how)


def chosen_again(stand: Stand) -> Answer:
    if stand.scene.state["status"] == "awaiting_feedback":
        assert choose(stand).code == 0
    return stand.cli("next")


def closing(stand: Stand) -> None:
    assert stand.cli("done").code == 0


def over(stand: Stand) -> None:
    assert stand.cli("cancel").code == 0


def the_run(stand: Stand) -> str:
    return stand.kept_runs[0]


def removed_again(stand: Stand) -> Answer:
    there = bool(stand.store.run_ids())
    assert stand.cli("runs", "rm", the_run(stand), "--yes").code == (EXIT_OK if there else EXIT_NO_RUN)
    return stand.cli("clean", clock=DAY)


def archived_again(stand: Stand) -> Answer:
    """Archive the run again, under another name where one stands already; if it is gone, that is said. Then clean."""
    there = bool(stand.store.run_ids())
    path = stand.scene.store / "archive" / f"{the_run(stand)}.tar.gz"
    more = ("--to", str(path.with_name("second.tar.gz"))) if path.exists() else ()
    assert stand.cli("runs", "archive", the_run(stand), *more).code == (EXIT_OK if there else EXIT_NO_RUN)
    return stand.cli("clean", clock=DAY)


def brought_back(stand: Stand, _: Answer) -> None:
    path = max((stand.scene.store / "archive").glob("*.tar.gz"))
    subprocess.run(["tar", "-xzf", path, "-C", stand.scene.store / "runs"], check=True)
    sound(stand.scene)
    assert stand.store.run_ids() == [the_run(stand)]


def told_without_a_gap(stand: Stand, _: Answer) -> None:
    """Hold that the history of a key explains what it holds: nothing came from nowhere, and nothing is told in vain."""
    changes = stand.cli("context", "history", "k").json["changes"]
    assert {one["by"] for one in changes} == {"user"}
    for one, following in itertools.pairwise(changes):
        assert one["after"] == following["before"]
    assert changes[-1]["after"] == stand.scene.state["context"]["k"]


def back_at_the_beginning(stand: Stand, _: Answer) -> None:
    """Hold that every response is kept once, and that the context explains itself."""
    folder = stand.scene.run_dir / "stages"
    assert sorted(path.name for path in folder.rglob("response*")) == ["response.undone-1.md"] * 3
    assert {one["by"] for one in stand.cli("context", "history").json["changes"]} <= {"step", "undo"}


DEEDS: dict[str, Deed] = {
    "done": Deed(
        lambda stand, fault: done(stand, **fault),
        next_or_done,
        before=done,
        after=told_of_the_guide,
    ),
    "done that closes": Deed(
        lambda stand, fault: stand.cli("done", **fault),
        lambda stand: stop(stand) if stand.cli("done").code == 0 else stand.cli("next"),
    ),
    "choose": Deed(
        lambda stand, fault: choose(stand, **fault), chosen_again, before=at_a_gate, after=told_of_the_guide
    ),
    "done of a branch": Deed(
        lambda stand, fault: branch_done(stand, "api", **fault),
        lambda stand: branch_done_again(stand, "api"),
        before=at_a_fan,
    ),
    "done of a branch that joins": Deed(
        lambda stand, fault: branch_done(stand, "web", **fault),
        lambda stand: branch_done_again(stand, "web"),
        before=lambda stand: at_a_fan(stand, "api"),
        after=joined,
    ),
    "undo of a join": Deed(
        lambda stand, fault: stand.cli("undo", **fault),
        lambda stand: stand.cli("next") if stand.scene.state["current_step"] == "frame/note" else stand.cli("undo"),
        before=lambda stand: at_a_fan(stand, "api", "web"),
    ),
    "undo of a choice": Deed(
        lambda stand, fault: stand.cli("undo", **fault),
        lambda stand: stand.cli("next") if stand.scene.state["status"] == "awaiting_feedback" else stand.cli("undo"),
        before=lambda stand: at_a_gate(stand, choose),
    ),
    "undo": Deed(
        lambda stand, fault: stand.cli("undo", **fault),
        lambda stand: stand.cli("next") if stand.scene.state["current_step"] == "frame/ask" else stand.cli("undo"),
        before=done,
    ),
    "rewind": Deed(
        lambda stand, fault: stand.cli("rewind", "--to", "frame/ask", **fault),
        lambda stand: stand.cli("rewind", "--to", "frame/ask"),
        before=lambda stand: [done(stand) for _ in range(3)],
        after=back_at_the_beginning,
    ),
    "resume": Deed(
        lambda stand, fault: stand.cli("resume", "--take-over", session=OTHER, **fault),
        lambda stand: stand.cli("resume", "--take-over", session=OTHER),
    ),
    "session-start": Deed(lambda stand, fault: start(stand, "compact", **fault), lambda stand: start(stand, "compact")),
    "session-start of another session": Deed(
        lambda stand, fault: start(stand, session=OTHER, **fault),
        lambda stand: start(stand, session=OTHER),
        before=lambda stand: stand.hook("session-end", told={"reason": "other"}),
    ),
    "stop": Deed(lambda stand, fault: stop(stand, **fault), stop),
    "stop that closes": Deed(
        lambda stand, fault: stop(stand, **fault), lambda stand: (stop(stand), stand.cli("next"))[1], before=closing
    ),
    "stop that ends": Deed(
        lambda stand, fault: decided(stand, **fault), lambda stand: (decided(stand), stand.cli("next"))[1]
    ),
    "stop that asks for a repair": Deed(
        lambda stand, fault: stop(stand, **fault), repaired_twice, before=closing_with_a_schema
    ),
    "session-end": Deed(
        lambda stand, fault: stand.hook("session-end", told={"reason": "other"}, **fault),
        lambda stand: stand.hook("session-end", told={"reason": "other"}),
    ),
    "pre-compact": Deed(
        lambda stand, fault: stand.hook("pre-compact", told={"trigger": "auto"}, **fault),
        lambda stand: stand.hook("pre-compact", told={"trigger": "auto"}),
    ),
    "context set": Deed(
        lambda stand, fault: stand.cli("context", "set", "k", "2", **fault),
        lambda stand: stand.cli("context", "set", "k", "2"),
        before=lambda stand: stand.cli("context", "set", "k", "1"),
        after=told_without_a_gap,
    ),
    "context set of a large value": Deed(
        lambda stand, fault: stand.cli("context", "set", "k", "--from", "large.txt", **fault),
        lambda stand: (stand.cli("context", "set", "k", "--from", "large.txt"), stand.cli("clean", clock=DAY))[1],
        before=lambda stand: (
            stand.scene.write("large.txt", "z" * 110_000),
            stand.cli("context", "set", "k", "y" * 3000),
        ),
        after=told_without_a_gap,
    ),
    "context unset": Deed(
        lambda stand, fault: stand.cli("context", "unset", "k", **fault),
        lambda stand: (stand.cli("context", "unset", "k"), stand.cli("context", "set", "k", "3"))[1],
        before=lambda stand: stand.cli("context", "set", "k", "1"),
    ),
    "runs rm": Deed(
        lambda stand, fault: stand.cli("runs", "rm", the_run(stand), "--yes", **fault), removed_again, before=over
    ),
    "runs archive": Deed(
        lambda stand, fault: stand.cli("runs", "archive", the_run(stand), **fault),
        archived_again,
        before=over,
        after=brought_back,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEDS)
def test_a_deed_that_is_killed_at_every_write_can_be_done_again(stand: Stand, name: str) -> None:
    """After each kill every file is whole, what a user or the host does next works, and it leads to where the deed
    without a kill leads; nothing half done is left.
    """
    deed = DEEDS[name]
    deed.before(stand)
    stand.keep()
    before = {run_id: essence(stand.store.read_state(run_id)) for run_id in stand.store.run_ids()}
    undisturbed = deed.do(stand, {"count": True})
    assert (undisturbed.code, undisturbed.signal) == (0, 0), undisturbed
    deed.again(stand)
    goal = {run_id: essence(stand.store.read_state(run_id)) for run_id in stand.store.run_ids()}
    assert undisturbed.calls
    for fault in strikes(undisturbed.calls):
        stand.put_back()
        assert deed.do(stand, {"fault": fault}).signal == signal.SIGKILL, fault
        sound(stand.scene)
        answer = deed.again(stand)
        assert answer.code == 0, (fault, undisturbed.calls[fault["at"] - 1], answer)
        sound(stand.scene)
        reached = {run_id: essence(stand.store.read_state(run_id)) for run_id in stand.store.run_ids()}
        assert reached == goal, (fault, undisturbed.calls[fault["at"] - 1], before)
        assert litter(stand.scene) == [], (fault, undisturbed.calls[fault["at"] - 1])
        deed.after(stand, answer)


@pytest.mark.slow
def test_a_start_that_is_killed_at_every_write_leaves_a_run_or_none(stand: Stand) -> None:
    """After each kill what is listed as a run is whole and can be taken up; and starting again starts a run."""
    first = stand.scene.run_dir.name
    stand.cli("cancel", first)
    stand.keep()
    for fault in strikes(stand.cli("run", "more work", "--workflow", "tiny", count=True).calls):
        stand.put_back()
        assert stand.cli("run", "more work", "--workflow", "tiny", fault=fault).signal == signal.SIGKILL
        sound(stand.scene)
        begun = [run_id for run_id in stand.store.run_ids() if run_id != first]
        for run_id in begun:
            taken = stand.cli("resume", run_id, "--take-over", session=OTHER)
            assert (taken.code, taken.json["step"]["id"]) == (0, "frame/ask"), (fault, taken)
            assert SENTENCE in taken.json["slip"]["text"]
        again = stand.cli("run", "more work", "--workflow", "tiny")
        assert again.code == 0, (fault, again)
        assert again.json["run_id"] not in begun
        sound(stand.scene)


@pytest.mark.slow
def test_a_fork_that_is_killed_at_every_write_leaves_a_whole_run_or_none(stand: Stand) -> None:
    """After each kill the first run is what it was to the byte, a second one is whole or not there, and to fork again
    makes one; what lies about is tidied.
    """
    first = stand.scene.run_dir.name
    for _ in range(2):
        done(stand)
    stand.keep()
    state = (stand.scene.store / "runs" / first / "state.json").read_bytes()
    calls = stand.cli("fork", first, "--at", "1", count=True).calls
    assert len(calls) > 20
    came = set()
    for fault in strikes(calls):
        stand.put_back()
        assert stand.cli("fork", first, "--at", "1", fault=fault).signal == signal.SIGKILL
        sound(stand.scene)
        assert (stand.scene.store / "runs" / first / "state.json").read_bytes() == state
        begun = [run_id for run_id in stand.store.run_ids() if run_id != first]
        came.add(len(begun))
        again = stand.cli("fork", first, "--at", "1")
        assert again.code == 0, (fault, again)
        assert again.json["run_id"] not in begun
        for run_id in [*begun, again.json["run_id"]]:
            folder = stand.scene.store / "runs" / run_id
            assert (folder / "stages/001-frame.ask@1/response.md").read_text() == RESPONSE
            taken = stand.cli("resume", run_id, "--take-over", session=OTHER)
            assert (taken.code, taken.json["step"]["id"]) == (0, "frame/note"), (fault, taken)
        assert stand.cli("clean", clock=DAY).code == 0
        assert not list((stand.scene.store / "local").glob("arriving-*")), fault
        sound(stand.scene)
    assert came == {0, 1}


def test_what_the_user_folder_holds_is_old_or_new_after_a_kill(stand: Stand) -> None:
    """The note that a run is known here and the compiled settings are whole after each kill, and nothing piles up."""
    run_id, store = stand.scene.run_dir.name, str(stand.scene.store)
    for work, arguments in (("note", (run_id, store)), ("settings", (store,))):
        stand.put_back()
        stand.scene.write(".loom/config.yaml", "hook_budget: 6000\n")
        for fault in strikes(stand.work(work, *arguments, count=True).calls):
            stand.put_back()
            stand.scene.write(".loom/config.yaml", "hook_budget: 6000\n")
            assert stand.work(work, *arguments, fault=fault).signal == signal.SIGKILL
            sound(stand.scene)
            assert run_notes.is_known(run_id, store)
            assert stand.work(work, *arguments).stdout == ("6000\n" if work == "settings" else "\n")
            sound(stand.scene)
            assert litter(stand.scene) == []
