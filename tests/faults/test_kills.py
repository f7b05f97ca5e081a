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
from tests.faults.stand import DECIDED, GUIDE, RESPONSE, SENTENCE, Stand, chain, essences, litter, sound, strikes
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

    do: Callable[..., Answer]
    again: Callable[[Stand], Answer]
    before: Callable[[Stand], object] = lambda _: None
    after: Callable[[Stand, Answer], object] = lambda *_: None


def done(stand: Stand, fault: Json | None = None) -> Answer:
    rank = stand.scene.state["steps"][-1]["rank"]
    return stand.cli("done", "--for", str(rank), given=RESPONSE, **(fault or {}))


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


def closing_with_a_schema(stand: Stand) -> None:
    phases = stand.scene.edit_plan()["phases"]
    phases[0]["steps"][0]["output_schema"] = "routing"
    stand.scene.edit_plan(phases=phases)
    closing(stand)


def repaired_twice(stand: Stand) -> Answer:
    """Stop until a second repair is asked for: what was killed has counted one at most."""
    counts = [stand.scene.state["steps"][0].get("repairs", 0)]
    assert counts[0] in (0, 1)
    while counts[-1] < 2:
        answer = STOP(stand)
        counts.append(stand.scene.state["steps"][0].get("repairs", 0))
        assert counts[-1] == counts[-2] + 1
    return answer


def at_a_gate(stand: Stand, then: Callable[[Stand], Answer] = lambda stand: stand.cli("next")) -> None:
    """Have the second step decided by a person, come to it, and do what follows."""
    phases = stand.scene.edit_plan()["phases"]
    ways = [{"to": "build/make", "label": "[O] On"}, {"to": "frame/ask", "label": "Again"}]
    phases[0]["steps"][1].update(kind="human", transitions=ways)
    stand.scene.edit_plan(phases=phases)
    assert done(stand).code == 0
    assert stand.scene.state["status"] == "awaiting_feedback"
    assert then(stand).code == 0


def at_a_fan(stand: Stand, *ended: str) -> None:
    """Have the second step be a parallel one of two branches, come to it, begin both, and end those that are named."""
    phases = stand.scene.edit_plan()["phases"]
    fan, like = phases[0]["steps"][1], phases[1]["steps"][0]
    ids = {name: f"note.{name}.look" for name in ("api", "web")}
    held = [{"id": name, "steps": [{**like, "key": f"frame/{one}", "id": one}]} for name, one in ids.items()]
    fan.update(kind="parallel", parallel={"join": "wait_all", "branches": held})
    stand.scene.edit_plan(phases=phases)
    assert done(stand).code == 0
    for name in ids:
        assert stand.cli("next", "--branch", name).code == 0
    for name in ended:
        assert branch_done(name)(stand).code == 0


def branch_done(name: str) -> Callable[..., Answer]:
    return cli("done", "--branch", name, given=DECIDED)


def branch_done_again(name: str) -> Callable[[Stand], Answer]:
    def deed(stand: Stand) -> Answer:
        entry = next(one for one in stand.scene.state["steps"] if "branches" in one)
        if next(one for one in entry["branches"] if one["id"] == name)["status"] == "in_progress":
            assert branch_done(name)(stand).code == 0
        return stand.cli("next")

    return deed


def with_large_values(stand: Stand) -> None:
    stand.scene.write("large.txt", "z" * 110_000)
    stand.cli("context", "set", "k", "y" * 3000)


def joined(stand: Stand, _: Answer) -> None:
    """Hold that the branches came together, with what both did, and that the stage's file tells the same."""
    entry = next(one for one in stand.scene.state["steps"] if "branches" in one)
    told = json.loads((stand.scene.run_dir / "stages" / entry["stage"] / "status.json").read_bytes())
    assert [one["set"]["n"] for one in told["branches"]] == [1, 1]
    assert (told["status"], told["joined_by"], entry["status"]) == ("succeeded", "web", "succeeded")
    assert [one["status"] for one in stand.scene.state["context"]["parallel.results"]] == ["succeeded"] * 2
    assert stand.scene.state["context"]["n"] == 1


def choose(stand: Stand, fault: Json | None = None) -> Answer:
    return stand.cli("choose", "on", "--by", "Ada", "--note", RESPONSE.strip(), **(fault or {}))


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


def remove(stand: Stand, **how: Any) -> Answer:
    return stand.cli("runs", "rm", the_run(stand), "--yes", **how)


def archive(stand: Stand, *more: str, **how: Any) -> Answer:
    return stand.cli("runs", "archive", the_run(stand), *more, **how)


def removed_again(stand: Stand) -> Answer:
    there = bool(stand.store.run_ids())
    assert remove(stand).code == (EXIT_OK if there else EXIT_NO_RUN)
    return stand.cli("clean", clock=DAY)


def archived_again(stand: Stand) -> Answer:
    """Archive the run again, under another name where one stands already; if it is gone, that is said. Then clean."""
    there = bool(stand.store.run_ids())
    path = stand.scene.store / "archive" / f"{the_run(stand)}.tar.gz"
    more = ("--to", str(path.with_name("second.tar.gz"))) if path.exists() else ()
    assert archive(stand, *more).code == (EXIT_OK if there else EXIT_NO_RUN)
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


def cli(*words: str, **more: Any) -> Callable[..., Answer]:
    """Give the deed of a command; without a fault it is the same command done again."""
    return lambda stand, fault=None: stand.cli(*words, **more, **(fault or {}))


def hook(event: str, session: str = SESSION, **told: str) -> Callable[..., Answer]:
    return lambda stand, fault=None: stand.hook(event, session=session, told=told, **(fault or {}))


def again(deed: Callable[..., Answer], **more: Any) -> Deed:
    """Do the same again after a kill."""
    return Deed(deed, deed, **more)


def taken_back(step: str = "", status: str = "") -> Callable[[Stand], Answer]:
    """Undo again, unless the run stands where the undo leads."""

    def deed(stand: Stand) -> Answer:
        state = stand.scene.state
        return stand.cli("next" if step == state["current_step"] or status == state["status"] else "undo")

    return deed


def in_turn(*deeds: Callable[[Stand], Answer]) -> Callable[[Stand], Answer]:
    return lambda stand: [deed(stand) for deed in deeds][-1]


STOP, DECIDE = hook("stop", last_assistant_message=RESPONSE), hook("stop", last_assistant_message=DECIDED)
RESUME = cli("resume", "--take-over", session=OTHER)
SET_LARGE = cli("context", "set", "k", "--from", "large.txt")
DEEDS: dict[str, Deed] = {
    "done": Deed(done, next_or_done, before=done, after=told_of_the_guide),
    "done that closes": Deed(
        cli("done"), lambda stand: STOP(stand) if stand.cli("done").code == 0 else stand.cli("next")
    ),
    "choose": Deed(choose, chosen_again, before=at_a_gate, after=told_of_the_guide),
    "done of a branch": Deed(branch_done("api"), branch_done_again("api"), before=at_a_fan),
    "done of a branch that joins": Deed(
        branch_done("web"), branch_done_again("web"), before=lambda stand: at_a_fan(stand, "api"), after=joined
    ),
    "undo of a join": Deed(cli("undo"), taken_back("frame/note"), before=lambda stand: at_a_fan(stand, "api", "web")),
    "undo of a choice": Deed(
        cli("undo"), taken_back(status="awaiting_feedback"), before=lambda stand: at_a_gate(stand, choose)
    ),
    "undo": Deed(cli("undo"), taken_back("frame/ask"), before=done),
    "rewind": again(cli("rewind", "--to", "frame/ask"), before=in_turn(done, done, done), after=back_at_the_beginning),
    "resume": again(RESUME),
    "session-start": again(hook("session-start", source="compact")),
    "session-start of another session": again(
        hook("session-start", OTHER, source="startup"), before=hook("session-end", reason="other")
    ),
    "stop": again(STOP),
    "stop that closes": Deed(STOP, in_turn(STOP, cli("next")), before=closing),
    "stop that ends": Deed(DECIDE, in_turn(DECIDE, cli("next"))),
    "stop that asks for a repair": Deed(STOP, repaired_twice, before=closing_with_a_schema),
    "session-end": again(hook("session-end", reason="other")),
    "pre-compact": again(hook("pre-compact", trigger="auto")),
    "context set": again(
        cli("context", "set", "k", "2"), before=cli("context", "set", "k", "1"), after=told_without_a_gap
    ),
    "context set of a large value": Deed(
        SET_LARGE, in_turn(SET_LARGE, cli("clean", clock=DAY)), before=with_large_values, after=told_without_a_gap
    ),
    "context unset": Deed(
        cli("context", "unset", "k"),
        in_turn(cli("context", "unset", "k"), cli("context", "set", "k", "3")),
        before=cli("context", "set", "k", "1"),
    ),
    "runs rm": Deed(lambda stand, fault: remove(stand, **fault), removed_again, before=over),
    "runs archive": Deed(lambda stand, fault: archive(stand, **fault), archived_again, before=over, after=brought_back),
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
    before = essences(stand)
    undisturbed = deed.do(stand, {"count": True})
    assert (undisturbed.code, undisturbed.signal) == (0, 0), undisturbed
    deed.again(stand)
    goal = essences(stand)
    assert undisturbed.calls
    for fault in strikes(undisturbed.calls):
        stand.put_back()
        assert deed.do(stand, {"fault": fault}).signal == signal.SIGKILL, fault
        sound(stand.scene)
        answer = deed.again(stand)
        assert answer.code == 0, (fault, undisturbed.calls[fault["at"] - 1], answer)
        sound(stand.scene)
        assert essences(stand) == goal, (fault, undisturbed.calls[fault["at"] - 1], before)
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
