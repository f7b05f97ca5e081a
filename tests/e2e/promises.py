"""What Loom promises in every assistant, each as one scene that any client can play.

A promise takes a client in whose project nothing of Loom's stands yet, and fails where it does not hold.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from tests.e2e import scenes
from tests.e2e.clients.client import Client, Talk, Turn
from tests.e2e.clients.models import Asked, Says
from tests.e2e.scenes import SENTENCE, state_of

Promise = Callable[[Client], None]
PROMISES: dict[str, Promise] = {}
SHARED: dict[str, str] = {}
"""What several promises look at, by the promise: whoever tries them one after the other plays it once."""

DONE = "loomctl done --outcome succeeded{} <<'LOOM'\nDone as asked.\nLOOM"
ENDED = '{"outcome": "succeeded"}'
NEXT = Says(shell="loomctl next")
WITH_SPEC = DONE.format(" --artifact spec_path=specs/dark-mode.md")
MUST_SURVIVE = "The blue lamp hangs over door seven"
HANG = {"id": "hang", "prompt": "Hang the lamps."}
LARGE = 30_000  # characters of a specification that must be back in full


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
    """Give lines that are each like no other, of a size in characters together."""
    lines, length = list[str](), 0
    while length < size:
        lines.append(f"Fact {len(lines)}: {words} {len(lines) * 7919 % 10007} holds.")
        length += len(lines[-1]) + 1
    return lines


def counts(asked: Asked, lines: list[str]) -> set[int]:
    """Give how often each line stands in a request: {1} where every one does once."""
    seen = asked.seen()
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
        after = (done, taken_up, done_steps(client), state_of(client.project))
        client.played["session"] = Session(resumed, beside, compaction, compacted, cleared, grown, *after)
    return cast("Session", client.played["session"])


@dataclass
class Looked:
    """A resumed session in which commands were run, and what Loom keeps of the first; then the spec was changed."""

    turn: Turn
    listed: str
    shown: str
    resumed: Turn


def looked(client: Client) -> Looked:
    """Play it where that was not done yet, and give what came of it."""
    if "looked" not in client.played:
        known = begun(client).session_id
        turn = client.tell("look", Says(shell="seq 1 40"), Says(shell="seq 1 20000"), "I looked.", session=known)
        listed = client.loomctl("steps", "--json")
        own = [step for step in json.loads(listed)["steps"] if "seq 1 40" in json.dumps(step)]
        shown = client.loomctl("steps", "show", str(own[0]["id"])) if own else ""
        scenes.write_spec(client.project, scenes.SPEC + "\nIt follows the system's colours: viridian.\n")
        client.played["looked"] = Looked(turn, listed, shown, client.tell("go on", session=known))
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
    begun(client)
    turn = client.tell("hello")
    assert SENTENCE in first(turn).seen()
    assert "add-dark-mode" in turn.shown or not client.shows_lines


@promise("a session is primed when it is resumed", on=looked)
def at_a_resume(client: Client) -> None:
    """What stands live in the conversation is not given twice; what changed since is given."""
    assert "viridian" in first(looked(client).resumed).seen()


@promise("a session is primed after /clear", on=session)
def after_clear(client: Client) -> None:
    played = session(client)
    assert played.cleared.session_id != played.resumed.session_id
    assert SENTENCE in first(played.cleared).seen()


@promise("a session is primed after a compaction by hand", on=session)
def after_a_manual_compaction(client: Client) -> None:
    played = session(client)
    assert SENTENCE in first(played.resumed).seen()
    assert SENTENCE in first(played.compacted).seen()


@promise("a session is primed after an automatic compaction in mid-turn", on=session)
def after_an_automatic_compaction(client: Client) -> None:
    grown = session(client).grown
    kinds = [request.kind for request in grown.requests]
    assert "compaction" in kinds, kinds
    later = [one for one in grown.requests[kinds.index("compaction") :] if one.kind == "main"]
    assert SENTENCE in later[-1].seen()


@promise("30,000 characters of a specification are back in full")
def a_large_specification(client: Client) -> None:
    lines = facts("the rule")
    turn = begun(client, "\n".join(lines))
    with client.open(turn.session_id) as talk:
        talk.say("go on")
        talk.compact()
        after = talk.say("and now")
    assert counts(first(after), lines) == {1}


@promise("a full budget of Cyrillic and emoji arrives uncut")
def every_letter(client: Client) -> None:
    lines = facts("правило 🌒 держится", 25_000)
    begun(client, "\n".join(lines))
    assert counts(first(client.tell("hello")), lines) == {1}


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
    assert MUST_SURVIVE in proven["restored"], proven


@promise("the user is shown one line", on=session)
def a_line_for_its_user(client: Client) -> None:
    assert "Loom: run add-dark-mode" in session(client).resumed.shown


@promise("the summariser is told what must survive", on=session)
def told_before_a_compaction(client: Client) -> None:
    (asked,) = session(client).compaction
    assert "Keep in the summary: what is done and open in the step" in asked.seen()


@promise("a killed session's run goes on in a new one", on=session)
def after_a_kill(client: Client) -> None:
    played = session(client)
    assert played.state["sessions"]["current_session_id"] == played.taken_up.session_id
    assert played.done_after == played.done
    assert SENTENCE in played.taken_up.conversation[-1].seen()


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
    assert SENTENCE in turn.conversation[-1].seen()


# ---- The run goes on.


@promise("a run of four steps is driven to its end")
def driven_to_its_end(client: Client) -> None:
    """Each step ends by its final message, and the next one is handed on in the same turn (D27)."""
    flow(client, 4)
    said = [one for number in range(1, 5) for one in (f"Step {number} is done. {ENDED}", NEXT)][:-1]
    turn = client.drive("'four things' --workflow flow", said)
    assert (state_of(client.project)["status"], len(done_steps(client))) == ("completed", 4), turn.shown


@promise("twenty stops in a row come to an end")
def stops_end(client: Client) -> None:
    """A model that calls no tool is sent on only so often; then the run waits for its user (D28)."""
    flow(client, 24)
    before = len(client.asked(0))
    client.drive("'many things' --workflow flow", [f"Done. {ENDED}"] * 30)
    assert state_of(client.project)["status"] == "paused"
    assert 1 < len(client.asked(before)) < 20


@promise("tool calls are recorded", on=looked)
def tool_calls(client: Client) -> None:
    played = looked(client)
    assert "seq 1 40" in played.listed
    assert played.shown


@promise("large output is shortened while the assistant works", on=looked)
def live_reduction(client: Client) -> None:
    seen = looked(client).turn.conversation[-1].seen()
    assert "\n7777\n" not in seen
    assert "shortened by Loom" in seen


# ---- Two at once, and other hosts.


@promise("a run has one driver", on=session)
def one_driver(client: Client) -> None:
    """A session that comes to a driven run is told who drives it, and loads nothing of it (D64)."""
    other = session(client).beside
    assert SENTENCE not in first(other).seen()
    assert "another session" in first(other).seen() or "drives" in first(other).seen()


@promise("a host that calls no hook is said within one command")
def silent_death(client: Client) -> None:
    """Hooks that are untrusted, or switched off, say nothing themselves (D72)."""
    begun(client)
    client.silence_hooks()
    turn = client.tell("Where do we stand?", Says(shell="loomctl status 2>&1"), "There.")
    assert "no hook of Loom has run in this" in turn.conversation[-1].seen()


@promise("an update of the bundle does not disturb an open session", on=session)
def an_update(client: Client) -> None:
    """What is open goes on; what starts behind it is primed by the new one."""
    played = session(client)
    assert played.done == ["frame/fetch-work", "architect/spec"]
    assert SENTENCE in first(played.taken_up).seen()
