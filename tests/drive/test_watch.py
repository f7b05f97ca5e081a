"""What is watched while an assistant works (D75)."""

from __future__ import annotations

from loomctl.drive import signs
from loomctl.drive.watch import END, TELL, Limits, Watch
from tests.helpers.tables import each


def call(watch: Watch, number: int, key: str, result: str, now: float = 0) -> None:
    watch.saw(signs.Call(f"c{number}", key, key), now)
    watch.saw(signs.Result(f"c{number}", result), now)


A, B, C = ("a", "x"), ("b", "y"), ("c", "z")


@each(
    "calls, told, ended",
    [
        ([A] * 2, [], None),
        ([A] * 6, [3], 5),
        ([("a", str(number)) for number in range(20)], [], None),  # the same call with another result is no loop
        ([A, B] * 4, [6], 8),
        ([A, B, C] * 4, [9], 12),
        ([A] * 4 + [B] + [A] * 4, [3], None),
        ([A] * 4 + [B] * 4, [3, 7], None),
    ],
)
def test_a_loop_is_told_once_then_ended(calls: list[tuple[str, str]], told: list[int], ended: int | None) -> None:
    watch = Watch(0)
    seen = []
    for number, (key, result) in enumerate(calls, 1):
        call(watch, number, key, result)
        seen.append((number, watch.loop()))
    assert [number for number, what in seen if what == TELL] == told
    assert next((number for number, what in seen if what == END), None) == ended


@each(
    "last, over, now, why",
    [
        (0, None, 1199, ""),
        (0, None, 1200, "silence"),
        (3000, None, 3599, ""),
        (3000, None, 3600, "turn"),
        (3000, 3000, 3002, ""),
        (3000, 3000, 3003, "lingers"),  # after its last word nothing else counts
    ],
)
def test_what_a_turn_is_ended_for(last: float, over: float | None, now: float, why: str) -> None:
    watch = Watch(0)
    watch.heard(last)
    if over is not None:
        watch.saw(signs.Over(is_error=False, reason="done"), over)
    ended, wait = watch.due(Limits(), now)
    assert ended == why
    assert (wait == 0) is bool(why)


def test_a_refusal_is_known_by_its_call() -> None:
    watch = Watch(0)
    watch.saw(signs.Call("c1", "Write a.txt", "k", ("Write",)), 0)
    watch.saw(signs.Denied("c1", "Write"), 0)
    watch.saw(signs.Over(is_error=False, reason="done", denied=(signs.Denied("c1", "Write b", ("Write",)),)), 0)
    assert list(watch.denied.values()) == [signs.Denied("c1", "Write a.txt", ("Write",))]


def test_an_answer_that_is_told_twice_counts_once() -> None:
    watch = Watch(0)
    for _ in range(2):
        watch.saw(signs.Used("m1", "opus", {"input_tokens": 10, "output_tokens": 5}), 0)
    assert watch.tokens == 15
