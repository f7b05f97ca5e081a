"""What Loom promises in every assistant, each as one scene that any client can play.

A promise takes a client in whose project nothing of Loom's stands yet, and fails where it does not hold.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from loomctl.hosts import table
from tests.e2e import scenes
from tests.e2e.clients.client import NEW_VERSION, Client, Talk, Turn, wait_until
from tests.e2e.clients.models import Asked, Says
from tests.e2e.scenes import SENTENCE, state_of
from tests.helpers.scenes import handle

Promise = Callable[[Client], None]


class BrokenError(AssertionError):
    """A promise does not hold. What a scene asserts before is what it needs to be about that at all."""


def holds(claim: object, *seen: object) -> None:
    """Make the claim of a scene. seen: what tells why it does not hold."""
    if not claim:
        raise BrokenError(*seen)


PROMISES: dict[str, Promise] = {}
SHARED: dict[str, str] = {}
"""What several promises look at, by the promise: whoever tries them one after the other plays it once."""

DONE = "loomctl done --outcome succeeded{} <<'LOOM'\nDone as asked.\nLOOM"
ENDED = '{"outcome": "succeeded"}'
NEXT = Says(shell="loomctl next")
WITH_SPEC = DONE.format(" --artifact spec_path=specs/dark-mode.md")
MUST_SURVIVE = "The blue lamp hangs over door seven"
TELLS = "Paint the lamps in cobalt"
HANG = {"id": "hang", "prompt": "Hang the lamps."}
LISTS, FAILS = "seq 1 40", "cp lamps.txt elsewhere"
LARGE = 30_000  # characters of a specification that must be back in full
BESIDE = 3_000  # UTF-16 units of a start that stand beside its specification


def promise(named: str, *, on: Callable[[Client], object] | None = None) -> Callable[[Promise], Promise]:
    """Add to the list. named: as the page of hosts says it; on: what it looks at, with other promises."""

    def add(scene: Promise) -> Promise:
        PROMISES[named] = scene
        if on is not None:
            SHARED[named] = on.__name__
        return scene

    return add


# ---- What scenes begin with.


def begun(client: Client, spec: str = scenes.SPEC) -> Turn:
    """Begin a run of five steps, end its first step, and register the spec."""
    if spec == scenes.SPEC and client.come_back("begun"):
        return client.begun[0]
    scenes.write_plain(client.project)
    scenes.write_spec(client.project, spec)
    turn = client.begin("'add dark mode' --workflow plain", Says(shell=WITH_SPEC), "The first step is done.")
    assert done_steps(client) == ["frame/fetch-work"], turn.shown
    if spec == scenes.SPEC and not client.shares and not client.begun:
        client.keep("begun")
        client.begun.append(turn)
    return turn


def flow(client: Client, steps: int) -> None:
    """Write a workflow of steps that go on by themselves."""
    listed = [{"id": f"s{number}", "prompt": f"Do part {number}."} for number in range(1, steps + 1)]
    write_workflow(client, {"id": "flow", "autonomy": "autonomous", "phases": {"build": {"steps": listed}}})


def write_workflow(client: Client, raw: dict[str, Any]) -> None:
    place = client.project / ".loom" / "workflows" / f"{raw['id']}.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(raw), encoding="utf-8")


def done_steps(client: Client) -> list[str]:
    """Give the steps that have ended well, in order."""
    visits = state_of(client.project)["steps"]
    return [entry["step_id"] for entry in visits if entry["status"] == "succeeded" and entry.get("by") != "engine"]


def first(turn: Turn) -> Asked:
    return turn.conversation[0]


def facts(words: str, size: int = LARGE) -> list[str]:
    """Give lines that are each like no other, of a size in UTF-16 units together."""
    lines, length = list[str](), 0
    while length < size:
        lines.append(f"Fact {len(lines)}: {words} {len(lines) * 7919 % 10007} holds.")
        length += units(lines[-1]) + 1
    return lines


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def slips(asked: Asked) -> set[str]:
    """Give the ids of what Loom gave at some time and stands in a request, each of which is given once."""
    return set(re.findall(r"Loom slip ([0-9a-f]{16})", asked.seen()))


def counts(asked: Asked, lines: list[str]) -> set[int]:
    """Give how often each line stands in a request: {1} where every one does once."""
    return counts_in(asked.seen(), lines)


def counts_in(seen: str, lines: list[str]) -> set[int]:
    return {seen.count(json.dumps(line, ensure_ascii=False)[1:-1]) for line in lines}


@dataclass
class Session:
    """One open session on a run, beginning to end, about which several promises are: it is played once.

    Beside it another session looks in; it is compacted by hand, cleared, and compacts by itself; the bundle is updated
    behind its back, it ends a step, and is killed; then somebody takes the run up.
    """

    resumed: Turn
    beside: Turn
    compaction: tuple[Asked, ...]
    compacted: Turn
    cleared: Turn
    grown: Turn
    done: list[str]
    taken_up: Turn
    done_after: list[str]
    state: dict[str, Any]
    version: str


def session(client: Client) -> Session:
    """Play it where that was not done yet, and give what came of it."""
    if "session" not in client.played:
        turn = begun(client)
        with client.open(turn.session_id) as talk:
            resumed = talk.say("go on")
            beside = client.tell("hello")
            before = len(client.asked(0))
            talk.compact()
            compaction = tuple(one for one in client.asked(before) if one.kind == "compaction")
            compacted = talk.say("and now")
            talk.clear()
            cleared = talk.say("and anew")
            grown = grow(client, talk)
            client.update()
            talk.say("go on", Says(shell=DONE.format("")), "It is written.")
            done = done_steps(client)
        taken_up = client.tell("Please take it up.", Says(shell="loomctl resume"), "It goes on.")
        after = (done, taken_up, done_steps(client), state_of(client.project), version_of_hooks(client))
        client.played["session"] = Session(resumed, beside, compaction, compacted, cleared, grown, *after)
    return cast("Session", client.played["session"])


def version_of_hooks(client: Client) -> str:
    """Give the version of the bundle whose launcher was last called for a prompt."""
    return (client.project / ".loom/local/hooks/user-prompt-submit").read_text(encoding="utf-8").split()[0]


@dataclass
class Looked:
    """A resumed session in which commands were run, and what Loom keeps of two; then the spec was changed."""

    before: Turn
    turn: Turn
    kept: list[str]
    succeeded: list[bool | None]
    resumed: Turn


def looked(client: Client) -> Looked:
    """Play it where that was not done yet, and give what came of it."""
    if "looked" not in client.played:
        before = begun(client)
        known = before.session_id
        calls = [Says(shell=command) for command in (LISTS, FAILS, "seq 1 20000")]
        turn = client.tell("look", *calls, "I looked.", session=known)
        steps = json.loads(client.loomctl("steps", "--json"))["steps"]
        own = [one for command in (LISTS, FAILS) for one in steps if one["minimal_args"].get("command") == command]
        kept = [client.loomctl("steps", "show", str(one["id"])) for one in own]
        scenes.write_spec(client.project, scenes.SPEC + "\nIt follows the system's colours: viridian.\n")
        client.played["looked"] = Looked(
            before, turn, kept, [one["success"] for one in own], client.tell("go on", session=known)
        )
    return cast("Looked", client.played["looked"])


def grow(client: Client, talk: Talk) -> Turn:
    """Talk until there is something to compact, and let a turn have more tokens than its model has room for."""
    for at in range(client.grows):
        talk.say(f"and {at}", " ".join(f"word{at}x{number}" for number in range(200)))
    shell = Says(shell="true")
    return talk.say("go on", Says(shell="true", tokens=client.compacts_at), shell, shell, "finished")


# ---- The context is back.


@promise("a session is primed at its start")
def at_a_start(client: Client) -> None:
    """By one dialect, though the bundle has the hooks of all hosts: nothing is given twice."""
    begun(client)
    turn = client.tell("hello")
    assert len(slips(first(turn))) == 1
    assert "add-dark-mode" in turn.shown or not client.shows_lines
    holds(first(turn).seen().count(SENTENCE) == 1, first(turn).seen())


@promise("a session is primed when it is resumed", on=looked)
def at_a_resume(client: Client) -> None:
    """What its run got since the last prompt is given by a start alone; a file that changed, by a prompt, too."""
    played = looked(client)
    assert SENTENCE not in played.before.conversation[-1].seen()
    assert "viridian" in first(played.resumed).seen()
    holds(first(played.turn).seen().count(SENTENCE) == 1, first(played.turn).seen())


@promise("a session is primed after /clear", on=session)
def after_clear(client: Client) -> None:
    """The session that a hook lets enter is this host's."""
    played = session(client)
    assert played.cleared.session_id != played.resumed.session_id
    entered = played.state["sessions"]["session_history"]
    assert [one["host"] for one in entered if one["session_id"] == played.cleared.session_id] == [client.host]
    holds(first(played.cleared).seen().count(SENTENCE) == 1, first(played.cleared).seen())


@promise("a session is primed after a compaction by hand", on=session)
def after_a_manual_compaction(client: Client) -> None:
    played = session(client)
    assert SENTENCE in first(played.resumed).seen()
    again = slips(first(played.compacted)) - slips(played.resumed.conversation[-1])
    holds(again and SENTENCE in first(played.compacted).seen(), first(played.compacted).seen())


@promise("a session is primed after an automatic compaction in mid-turn", on=session)
def after_an_automatic_compaction(client: Client) -> None:
    grown = session(client).grown
    kinds = [request.kind for request in grown.requests]
    assert "compaction" in kinds, kinds
    at = kinds.index("compaction")
    before, later = [[one for one in part if one.kind == "main"] for part in (grown.requests[:at], grown.requests[at:])]
    told = later[client.told_after]
    holds(slips(told) - slips(before[-1]) and told.seen().count(SENTENCE) == 1, told.seen())


@promise("30,000 characters of a specification are back in full")
def a_large_specification(client: Client) -> None:
    lines = facts("the rule")
    turn = begun(client, "\n".join(lines))
    with client.open(turn.session_id) as talk:
        talk.say("go on")
        talk.compact()
        after = talk.say("and now")
    holds(counts(first(after), lines) == {1}, first(after).seen())


@promise("a full budget of Cyrillic and emoji arrives uncut")
def every_letter(client: Client) -> None:
    """All that this host takes at a start, in its own measure, but what stands beside the specification."""
    host = table.HOSTS[client.host]
    lines = facts("правило 🌒 держится", host.room * host.parts - BESIDE)
    begun(client, "\n".join(lines))
    seen = first(client.tell("hello")).seen()
    holds(counts_in(seen, lines) == {1}, seen)


@promise("lost items are put back after a compaction, and proven")
def survival(client: Client) -> None:
    raw = {"id": "lamps", "must_survive": [MUST_SURVIVE], "phases": {"build": {"steps": [HANG]}}}
    write_workflow(client, raw)
    turn = client.begin("'hang lamps' --workflow lamps", "I shall hang them.")
    with client.open(turn.session_id) as talk:
        talk.say("go on")
        talk.compact()
        after = [talk.say("and now"), talk.say("and then")]
    assert MUST_SURVIVE in first(after[-1]).seen()
    proven = json.loads(client.loomctl("prove", "--json"))["compactions"][-1]
    holds(MUST_SURVIVE in proven["restored"], proven)


@promise("the user is shown one line", on=session)
def a_line_for_its_user(client: Client) -> None:
    played = session(client)
    assert SENTENCE in first(played.resumed).seen()
    holds("Loom: run add-dark-mode" in played.resumed.shown, played.resumed.shown)


@promise("the summariser is told what must survive", on=session)
def told_before_a_compaction(client: Client) -> None:
    (asked,) = session(client).compaction
    holds("Keep in the summary: what is done and open in the step" in asked.seen(), asked.seen())


@promise("a killed session's run goes on in a new one", on=session)
def after_a_kill(client: Client) -> None:
    played = session(client)
    assert played.state["sessions"]["current_session_id"] == played.taken_up.session_id
    assert played.done_after == played.done
    holds(SENTENCE in played.taken_up.conversation[-1].seen(), played.taken_up)


@promise("a copied project is announced, and taken up by a word")
def in_a_copy(client: Client) -> None:
    """Nothing of a run that this machine does not know is given before somebody takes it up (D23)."""
    begun(client)
    copy = client.root / "copy"
    shutil.copytree(client.project, copy, symlinks=True)
    client.move_to(copy)
    announced = client.tell("hello")
    assert SENTENCE not in first(announced).seen()
    assert "add-dark-mode" in first(announced).seen()
    turn = client.tell("Please take it up.", Says(shell="loomctl resume"), "It goes on.")
    holds(SENTENCE in turn.conversation[-1].seen(), turn)


# ---- The run goes on.


@promise("a run of four steps is driven to its end")
def driven_to_its_end(client: Client) -> None:
    """Each step ends by its final message, and the next one is handed on in the same turn (D27)."""
    flow(client, 4)
    said = [one for number in range(1, 5) for one in (f"Step {number} is done. {ENDED}", NEXT)][:-1]
    turn = client.drive("'four things' --workflow flow", said)
    holds((state_of(client.project)["status"], len(done_steps(client))) == ("completed", 4), turn.shown)


@promise("twenty stops in a row come to an end")
def stops_end(client: Client) -> None:
    """A model that calls no tool is sent on only so often; then the run waits for its user (D28)."""
    flow(client, 24)
    before = len(client.asked(0))
    client.drive("'many things' --workflow flow", [f"Done. {ENDED}"] * 30)
    assert state_of(client.project)["status"] == "paused"
    holds(1 < len(client.asked(before)) < 20, len(client.asked(before)))


@promise("tool calls are recorded", on=looked)
def tool_calls(client: Client) -> None:
    """One that succeeds, with its output, and one that fails, with what it said of that."""
    played = looked(client)
    assert "No such file" in played.turn.conversation[-1].seen()
    assert len(played.kept) == 2, played.kept
    assert "\n40" in played.kept[0], played.kept
    assert "No such file" in played.kept[1], played.kept
    holds(played.succeeded == [True, not client.tells_failures], played.succeeded)


@promise("large output is shortened while the assistant works", on=looked)
def live_reduction(client: Client) -> None:
    seen = looked(client).turn.conversation[-1].seen()
    assert "\n20000" in seen
    holds("\n7777\n" not in seen and "shortened by Loom" in seen, seen)


@promise("what the user tells a working assistant is in its next request, once")
def told_at_work(client: Client) -> None:
    """A command of the assistant's waits at a pipe until its user, in another terminal, has told it something (D76)."""
    session_id = begun(client).session_id
    gate = client.project / "gate"
    os.mkfifo(gate)

    def tell() -> None:
        ends: list[int] = []
        wait_until(lambda: _opened(gate, ends), "the command waits at the pipe")
        try:
            client.loomctl("tell", handle(state_of(client.project)), TELLS)
        finally:
            os.close(ends[0])

    beside = threading.Thread(target=tell)
    beside.start()
    told = client.tell(
        "Go on.", Says(shell="cp gate passed"), Says(shell="seq 1 3"), "For now.", session=session_id
    ).conversation  # fmt: skip
    beside.join()
    seen = [asked.seen().count(TELLS) for asked in told]
    holds(seen == [0, 1, 1], seen, told[-1].seen())


def _opened(pipe: Path, ends: list[int]) -> bool:
    """Open a pipe to write, once somebody reads there."""
    try:
        ends.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


# ---- Two at once, and other hosts.


@promise("a run has one driver", on=session)
def one_driver(client: Client) -> None:
    """A session that comes to a driven run is told who drives it, and loads nothing of it (D64)."""
    other = session(client).beside
    assert SENTENCE not in first(other).seen()
    holds("another session" in first(other).seen() or "drives" in first(other).seen(), first(other).seen())


@promise("a host that calls no hook is said within one command")
def silent_death(client: Client) -> None:
    """Hooks that are untrusted, or switched off, say nothing themselves (D72)."""
    begun(client)
    client.silence_hooks()
    turn = client.tell("Where do we stand?", Says(shell="loomctl status 2>&1"), "There.")
    holds("no hook of Loom has run in this" in turn.conversation[-1].seen(), turn)


@promise("an update of the bundle does not disturb an open session", on=session)
def an_update(client: Client) -> None:
    """What is open goes on; what starts behind it is primed by the new one, as that one's launcher notes."""
    played = session(client)
    assert played.done == ["frame/fetch-work", "architect/spec"]
    assert played.version == NEW_VERSION
    holds(SENTENCE in first(played.taken_up).seen(), first(played.taken_up).seen())
