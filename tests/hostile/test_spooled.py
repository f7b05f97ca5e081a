"""Whatever a tool printed, hooks give what they promise, and no event stops them twice (D59)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from loomctl.kit.text import secrets
from loomctl.reduction import calls, observations, tool_outputs
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.machine import launcher_files
from loomctl.runs.tools import recording, tool_log
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.helpers.scenes import CHECKOUT, MAIN, SESSION, Ended, Json, Scene, artifact, run
from tests.hostile.limited import fails_open, hook

SPEC = "# The specification\n\n" + "what is wanted\n" * 100


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.write("spec.md", SPEC)
    scene.workflow([artifact("spec", "spec.md", required=True)])
    scene.begin()
    return scene


def event(number: int = 1, text: str = "ok\n", tool: str = "Bash", **more: Any) -> Json:
    response = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    call = {"tool_name": tool, "tool_input": {"command": f"make {number}"}, "tool_response": response}
    told = {"session_id": SESSION, "hook_event_name": "PostToolUse", **call}  # in the host's order
    return {**told, "tool_use_id": f"toolu_{number:03}", **more}


def failure(text: str) -> Json:
    told = event(hook_event_name="PostToolUseFailure", error=text)
    del told["tool_response"]
    return told


def put(scene: Scene, told: Json, number: int = 1) -> Path:
    path = scene.store / f"local/spool/{SESSION}-{number}.json"
    path.write_text(json.dumps(told))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return path


def put_all(scene: Scene, count: int) -> None:
    for number in range(1, count + 1):
        put(scene, event(number), number)


def steps(scene: Scene) -> list[ToolStep]:
    return list(tool_log.read(str(scene.run_dir)))


def recorded(scene: Scene) -> list[int]:
    """Number the calls that are recorded."""
    return [int(step.id.removeprefix("toolu_")) for step in steps(scene)]


def spooled(scene: Scene) -> list[str]:
    return sorted(os.listdir(scene.store / "local/spool"))


def original(scene: Scene, step: ToolStep) -> tuple[Any, Any]:
    return StepReducer(DataOffloader(str(scene.run_dir))).original(step)


LARGE: dict[str, Json] = {
    "lines of a password file": event(text="h:5432:d:u:p " * 300_000),
    "a failure of 20 MB": failure("error: it failed\n" * 1_250_000),
    "colour codes": event(text="\x1b[31m" * 2_000_000),
    "paths without end": event(text="a+" * 900_000),
    "a list of a million values": event(tool="mcp__x__y", tool_response=["a"] * 1_000_000),
    "a list that is parsed": event(tool="mcp__x__y", tool_response=["a"] * 400_000),
    "arguments of a million values": event(tool_input={f"a{number}": 1 for number in range(200_000)}),
    "a wide command": event(tool_input={"command": "a" * 9_000_000}),
}


@pytest.mark.slow(quick=1)
@pytest.mark.shows("No tool output silences Loom")
@pytest.mark.parametrize("case", LARGE)
def test_a_priming_comes_whole_and_the_event_is_kept(begun: Scene, case: str) -> None:
    """The hook ends within the host's time, the event waits for the turn's end, and every byte comes back."""
    put(begun, LARGE[case])
    ended = hook(begun, "session-start", source="compact")
    fails_open(ended)
    assert SPEC in ended.context
    assert spooled(begun) == [f"{SESSION}-1.json"]
    fails_open(hook(begun, "stop", last_assistant_message="so far"))
    (step,) = steps(begun)
    told = LARGE[case]
    assert original(begun, step) == (told["tool_input"], told.get("tool_response", told.get("error")))
    assert len(step.observation) < 20_000
    assert spooled(begun) == []


@pytest.mark.slow(quick=4)
@pytest.mark.parametrize("case", LARGE)
def test_only_what_is_kept_is_masked(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counting(text: str, mask: Any = secrets.mask) -> tuple[str, int]:
        seen.append(len(text))
        return (text, 0) if len(text) > 100_000 else mask(text)

    for module in (secrets, tool_outputs, observations):
        if hasattr(module, "mask"):
            monkeypatch.setattr(module, "mask", counting)
    told = LARGE[case]
    error = str(told.get("error") or "")
    calls.reduce_call(told["tool_name"], told["tool_input"], told.get("tool_response"), error=error)
    assert sum(seen) < tool_outputs.CLEANED * 1.5
    assert len(seen) < tool_outputs.MOST_VALUES * 2


@pytest.mark.slow
def test_a_secret_at_a_cut_is_masked_whole() -> None:
    token = "ghp_" + "Zq7Xw2Kd9" * 12
    around = [tool_outputs.FIRST, tool_outputs.FIRST + tool_outputs.MARGIN]
    for place in [at + off for at in around for off in range(-len(token) - 2, 4, 7)]:
        text = "x " * (place // 2) + token + " y" * (tool_outputs.CLEANED // 2)
        for one in (text, text[::-1].replace(token[::-1], token)):
            told = tool_outputs.cleaned(one, str)
            assert not any(token[at : at + 12] in told for at in range(len(token) - 12)), place


KILLED = """
import os, signal, sys
sys.path.insert(0, {checkout!r})
from loomctl.reduction import calls
inner = calls.reduce_call
def reduce_call(name, args, *given, **more):
    if args.get("command") == {command!r}:
        {deed}
    return inner(name, args, *given, **more)
calls.reduce_call = reduce_call
sys.argv = {words!r}
from loomctl.runs.tools import reducer
reducer.reduce_call = reduce_call
from loomctl.__main__ import main
main()
"""
DIES = "os.kill(os.getpid(), signal.SIGKILL)"


def dying(scene: Scene, command: str, *words: str, deed: str = DIES, **told: Any) -> Ended:
    """Let a process do something, in which looking at one call has its own deed; words: a hook's or a command's."""
    words = words or ("hook", "session-start")
    program = KILLED.format(checkout=str(CHECKOUT), command=command, deed=deed, words=["loomctl", *words])
    body = json.dumps({"session_id": SESSION, "cwd": str(scene.root), "source": "resume", **told})
    return run([sys.executable, "-c", program], cwd=scene.root, environ=scene.environ(), given=body)


def killed(scene: Scene, command: str, *words: str, **told: Any) -> None:
    assert dying(scene, command, *words, **told).code == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.shows("a call over which a hook was killed is set aside, and said")
def test_an_event_that_killed_a_hook_is_set_aside_and_said_once(begun: Scene) -> None:
    """The others are recorded, a second one that kills goes the same way, and a command records both."""
    put_all(begun, 4)
    killed(begun, "make 2")
    killed(begun, "make 3")
    assert recorded(begun) == []
    said = fails_open(first := hook(begun, "session-start", source="resume"))
    assert all(words in said for words in ("a hook was killed while it recorded a tool call", "loomctl"))
    assert SPEC in first.context
    hook(begun, "stop", last_assistant_message="so far")  # what the start had no time for
    assert spooled(begun) == [f"{SESSION}-{number}.json{launcher_files.UNFINISHED}" for number in (2, 3)]
    assert recorded(begun) == [1, 4]
    assert begun.event_names().count("tools.unfinished") == 2
    assert "killed" not in fails_open(hook(begun, "session-start", source="resume"))
    doctor = begun.loomctl("doctor", "--json").json["checks"]
    told = next(one for one in doctor if one["id"] == "tool-calls")
    assert (told["status"], "2 tool calls" in told["found"]) == ("WARN", True)
    assert "2 tool calls" in begun.loomctl("status").stdout
    assert begun.loomctl("steps").code == 0
    assert recorded(begun) == [1, 4, 2, 3]
    assert [original(begun, step)[0] for step in steps(begun)] == [{"command": f"make {n}"} for n in (1, 4, 2, 3)]
    assert ["stage" in step.more for step in steps(begun)] == [True, True, False, False]  # others may have ended since
    assert spooled(begun) == []


@pytest.mark.slow
def test_a_call_that_kills_who_looks_ahead_to_it_is_set_aside(begun: Scene) -> None:
    for number in range(1, 5):
        put(begun, event(number, "a line\n" * 17_000), number)
    put(begun, event(9), 9)
    killed(begun, "make 9")
    first = hook(begun, "session-start", source="compact")
    assert ("a hook was killed" in fails_open(first), SPEC in first.context) == (True, True)
    assert f"{SESSION}-9.json{launcher_files.UNFINISHED}" in spooled(begun)
    assert SPEC in hook(begun, "session-start", source="compact").context
    recording.digest(begun.space())
    assert recorded(begun) == [1, 2, 3, 4, 9]


@pytest.mark.slow
@pytest.mark.shows("so that it stops nothing twice")
def test_a_stop_that_a_call_killed_ends_its_step_the_next_time(begun: Scene) -> None:
    put_all(begun, 3)
    said: Json = {"last_assistant_message": "I am done with it.\n\nOUTCOME: succeeded"}
    (begun.store / "local/spool").joinpath(f"{SESSION}-1.json").write_text(json.dumps(event(1, "x\n" * 200_000)))
    killed(begun, "make 2", "hook", "session-start")
    killed(begun, "make 3", "hook", "stop", **said)
    assert "a hook was killed" in fails_open(hook(begun, "stop", **said))
    assert begun.event_names().count("tools.unfinished") == 2
    assert recorded(begun) == [1]


def test_a_call_that_no_code_of_looms_gets_through_stops_nobody_twice(begun: Scene) -> None:
    """A failure that nobody foresaw counts as a kill; what ends a command, too, is bad, and kept as it was."""
    put_all(begun, 3)
    failing = "raise RuntimeError('nobody foresaw it')"
    assert dying(begun, "make 2", deed=failing).code == 0
    assert SPEC in hook(begun, "session-start", source="resume").context
    dying(begun, "make 2", "steps", deed=failing)
    content = json.dumps(event(2))
    assert begun.loomctl("steps").code == 0
    assert recorded(begun) == [1, 3]
    assert spooled(begun) == [f"{SESSION}-2.json{launcher_files.BAD}"]
    assert (begun.store / f"local/spool/{SESSION}-2.json{launcher_files.BAD}").read_text() == content
    assert "tools.unreadable" in begun.event_names()


def test_what_was_set_aside_and_is_no_event_is_bad(begun: Scene) -> None:
    path = put(begun, event())
    path.write_text("{")
    path.rename(f"{path}{launcher_files.UNFINISHED}")
    os.utime(f"{path}{launcher_files.UNFINISHED}", (1_700_000_000, 1_700_000_000))
    assert recording.digest(begun.space()).trouble == ""
    assert spooled(begun) == [f"{SESSION}-1.json{launcher_files.BAD}"]


def test_a_trouble_of_the_disk_sets_no_call_aside(begun: Scene) -> None:
    put(begun, event())
    log = begun.run_dir / "tool_steps.jsonl"
    log.symlink_to("nowhere")
    for _ in range(2):
        said = fails_open(hook(begun, "session-start", source="resume"))
        assert ("could not record" in said, "killed" in said) == (True, False)
    log.unlink()
    assert fails_open(hook(begun, "session-start", source="resume"))
    assert recorded(begun) == [1]


@pytest.mark.slow
def test_a_hook_that_is_still_at_work_is_not_taken_for_killed(begun: Scene) -> None:
    put_all(begun, 3)
    reading, writing = os.pipe()
    deed, words = f"os.write(2, b'x'); os.read({reading}, 1)", ["loomctl", "hook", "session-start"]
    program = KILLED.format(checkout=str(CHECKOUT), command="make 2", deed=deed, words=words)
    told = json.dumps({"session_id": SESSION, "cwd": str(begun.root), "source": "resume"})
    pipes: Json = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    how: Json = {"cwd": begun.root, "env": begun.environ(), "pass_fds": [reading], **pipes}
    child: Any = subprocess.Popen([sys.executable, "-c", program], **how)
    with child as at_work:
        at_work.stdin.write(told.encode())
        at_work.stdin.close()
        assert at_work.stderr.read(1) == b"x"
        assert SPEC in hook(begun, "session-start", source="compact").context
        assert spooled(begun) == [f"{SESSION}-{number}.json" for number in (1, 2, 3)]
        os.write(writing, b"x")
    os.close(reading)
    os.close(writing)
    fails_open(hook(begun, "stop", last_assistant_message="so far"))
    assert recorded(begun) == [1, 2, 3]
    assert spooled(begun) == []


def test_many_hooks_after_a_kill_set_one_event_aside(begun: Scene) -> None:
    for number in range(1, 9):
        put(begun, event(number), number)
    killed(begun, "make 5")
    told = json.dumps({"session_id": SESSION, "cwd": str(begun.root), "source": "resume"}).encode()
    command = [sys.executable, "-I", "-S", str(MAIN), "hook", "session-start"]
    started = [
        subprocess.Popen(command, cwd=begun.root, env=begun.environ(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for _ in range(4)
    ]
    for one in started:
        one.communicate(told)
    hook(begun, "session-start", source="resume")
    hook(begun, "stop", last_assistant_message="so far")
    assert [step.id for step in steps(begun)] == [f"toolu_{number:03}" for number in range(1, 9) if number != 5]
    assert spooled(begun) == [f"{SESSION}-5.json{launcher_files.UNFINISHED}"]
    assert begun.event_names().count("tools.unfinished") == 1


@pytest.mark.parametrize("name", ["../../config.json", "x.json", "\udcff.json", ".json", "a/b.json", "", "\0.json"])
def test_a_note_that_somebody_else_wrote_moves_nothing_else(begun: Scene, name: str) -> None:
    put(begun, event())
    outside = begun.write(".loom/config.json", "{}")
    begun.write(".loom/local/locks/spool.begun", os.fsencode(name))
    recording.digest(begun.space(), 0.2)
    assert outside.exists()
    assert recorded(begun) == [1]


@pytest.mark.slow
def test_what_waits_behind_the_answer_keeps_the_step_that_it_was_made_in(begun: Scene) -> None:
    stage = begun.space().local.binding(SESSION)["stage"]  # type: ignore[index] # it is bound
    for number in range(1, 7):
        put(begun, event(number, "a line\n" * 12_000), number)
    fails_open(hook(begun, "stop", last_assistant_message="I am done with it.\n\nOUTCOME: succeeded"))
    recording.digest(begun.space())
    assert [(step.id, step.more["stage"]) for step in steps(begun)] == [(f"toolu_{n:03}", stage) for n in range(1, 7)]


scalars = some.none() | some.integers() | some.text(max_size=30)
values = some.recursive(
    scalars,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(value=some.dictionaries(some.text(max_size=8), values, min_size=1, max_size=6), cut=some.integers(1, 400))
def test_the_beginning_of_an_object_is_read_up_to_any_cut(value: dict[str, Any], cut: int) -> None:
    """What stands whole before the cut is what it was; nothing else is raised than ValueError."""
    text = json.dumps(value)
    found = recording.read_cut(text[:cut], text[-20:])
    found.pop("tool_use_id", None)
    keys = list(found)
    assert keys == list(value)[: len(keys)]
    for key in keys[:-1]:
        assert found[key] == value[key]
