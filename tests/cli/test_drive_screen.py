"""The block and the lines of a drive, put together from what is seen: they fit, and say what is due."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import pytest

from loomctl.cli.unattended import screen
from loomctl.drive import rules, signs
from loomctl.drive.account import Sum
from loomctl.drive.seen import Seen
from loomctl.drive.watch import Limits, Watch
from loomctl.kit import clock
from loomctl.runs.store.store import Run
from tests.helpers.scenes import Json, Scene

HOSTILE = "rm \x1b]0;x\x07 " + "wide 宽" * 60
TASK: Json = {"number": 3, "of": 12, "text": "Write the parser\nof dates"}


@pytest.fixture
def run(scene: Scene) -> Run:
    scene.workflow()
    scene.begin()
    steps = scene.state["steps"]
    scene.edit(steps=[*steps[:-1], {**steps[-1], "task": TASK}])
    return scene.space().store.read(scene.run_dir.name)


def seen(run: Run, *, watch: Watch | None = None, **more: Any) -> Seen:
    limits = Limits(time=4 * 3600, cost=5.0, turns=60)
    return Seen(
        run, rules.stand(run.state), 4, watch, **{"spent": Sum(1.204), "limits": limits, "seconds": 2530.0, **more}
    )


def watched() -> Watch:
    watch = Watch(time.monotonic() - 725)
    call = signs.Call("a", HOSTILE, "a", (f"Bash({HOSTILE})",))
    for sign in (call, signs.Denied("a", "Bash", ("Bash",)), signs.Used("m", "model", {"input": 120_400})):
        watch.saw(sign, time.monotonic() - 12)
    return watch


def block(what: Seen, wide: int, monkeypatch: pytest.MonkeyPatch, made: screen.Block | None = None) -> list[str]:
    monkeypatch.setattr(screen, "_columns", lambda: wide)
    monkeypatch.setattr("sys.stderr", printed := io.StringIO())
    (made or screen.Block()).show(what, is_due=True)
    return printed.getvalue().replace("\r", "").replace("\033[K", "").splitlines()


def test_it_says_all_that_its_user_wants_to_know(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = block(seen(run, watch=watched()), 100, monkeypatch)
    told = {line[:9].strip(): line[11:] for line in lines[:-1]}
    assert list(told) == ["run", "step", "turn", "last", "silence", "refused", "cost", "time"]
    assert told["step"].endswith(", task 3 of 12: Write the parser")
    assert told["turn"] == "4 of 60, for 12 min; 1 call, 120,400 tokens"
    assert told["last"].startswith("12 s ago: rm ")
    assert told["silence"] == "12 s of 20 min"
    assert told["cost"] == "1.20 of 5.00 USD"
    assert told["time"] == "42 min of 4 h 00 min"


@pytest.mark.parametrize("wide", [20, 34, 60, 80, 200])
def test_it_fits_and_is_no_order_to_a_terminal(run: Run, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from loomctl.kit.text import fences

    lines = block(seen(run, watch=watched()), wide, monkeypatch)
    assert len(lines) == 9
    assert all(fences.width(line) < wide for line in lines)
    assert all(character.isprintable() for line in lines for character in line)


def test_a_wait_stands_until_a_turn_begins(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    until = {"until": clock.stamp(time.time() + 3600), "why": "the API's limit is reached"}
    made = screen.Block()
    waits = [
        any(line.startswith("  waits    until ") for line in block(one, 90, monkeypatch, made))
        for one in (
            seen(run),
            seen(run, what="waiting", told=until),
            seen(run),
            seen(run, watch=watched(), what="turn.started"),
        )
    ]
    assert waits == [False, True, True, False]


def test_a_line_for_each_thing_and_each_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines, watch = screen.Lines(), Watch(time.monotonic())
    lines(seen(run, watch=watch, what="turn.started", told={"goes_on": True}))
    for sign in (signs.Call("a", "Write a.txt", "a", ("Write",)), signs.Denied("a", "Write", ("Write",))):
        watch.saw(sign, time.monotonic())
    for _ in range(3):
        lines(seen(run, watch=watch))
    ended = {"seconds": 3725.2, "calls": 1, "cost": None, "killed": 2, "why": "the turn took too long"}
    lines(seen(run, watch=watch, what="turn.ended", told=ended))
    until = clock.stamp(time.time() + 40)
    lines(seen(run, what="waiting", told={"until": until, "why": "the API failed (529)"}))
    lines(seen(run, asked="step"))
    lines(seen(run, asked="step"))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "turn 4 begins, in the same conversation"
    assert said[1].startswith("step ")
    assert said[2:4] == [
        "refused: Write a.txt",
        "turn 4 ended after 1 h 02 min, 1 call, 2 killed: the turn took too long",
    ]
    assert said[4].startswith("waits until ")
    assert said[4].endswith(": the API failed (529)")
    assert said[5:] == ["Ends after this step. Ctrl-C ends it now."]


def test_json_tells_the_cost_when_it_is_another_and_at_most_twice_a_second(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, clock_ = screen.Told("claude-code", "/"), [100.0]
    monkeypatch.setattr("loomctl.cli.unattended.screen.time.monotonic", lambda: clock_[0])
    looks: list[tuple[float, Sum, str]] = [
        (0.0, Sum(0.0), "turn.started"),
        (0.5, Sum(0.1, 10, estimated=True), ""),
        (0.1, Sum(0.2, 20, estimated=True), ""),  # too soon, and the next one tells it
        (0.4, Sum(0.2, 20, estimated=True), ""),
        (0.5, Sum(0.2, 20, estimated=True), ""),
        (0.1, Sum(0.25, 24), "turn.ended"),  # the last one is never held back
        (0.1, Sum(0.25, 24), ""),
    ]
    for later, spent, what in looks:
        clock_[0] += later
        told(seen(run, watch=Watch(0), spent=spent, what=what))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["cost"], one["tokens"], one.get("estimated")) for one in lines if one["event"] == "cost"] == [
        (0.1, 10, True),
        (0.2, 20, True),
        (0.25, 24, None),
    ]


def test_a_cost_that_is_estimated_is_shown_as_such(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = block(seen(run, watch=watched(), spent=Sum(1.204, estimated=True)), 100, monkeypatch)
    assert any("about 1.20 of 5.00 USD" in line for line in lines)
