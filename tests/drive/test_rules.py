"""What a driver decides before and after a turn (D73)."""

from __future__ import annotations

from loomctl.drive import rules
from loomctl.drive.rules import Stand, Tries, Turn, after, before, pause_after
from tests.helpers.tables import each

OPEN = Stand("in_progress", "build/write", 1, "001-build.write@1", 1)
NEXT = Stand("in_progress", "build/check", 1, "002-build.check@1", 2)


@each(
    "stand, first, told, code, kind",
    [
        (OPEN, False, False, None, ""),
        (OPEN._replace(status="pending"), True, False, None, ""),
        (Stand("completed"), True, False, 0, "completed"),
        (Stand("cancelled"), True, False, 1, "cancelled"),
        (Stand("failed"), False, False, 1, "failed"),
        (Stand("failed"), True, False, None, ""),  # who calls the driver means it to go on
        (Stand("paused"), False, False, 9, "paused"),
        (Stand("paused"), True, False, None, ""),
        (Stand("paused", capped=True), False, False, None, ""),
        (Stand("awaiting_feedback", waits="approval"), True, True, 9, "approval"),
        (Stand("awaiting_feedback", waits="trust"), True, True, 9, "trust"),
        (Stand("awaiting_feedback", waits="denied"), False, True, 9, "denied"),
        (Stand("awaiting_feedback", waits="denied"), True, False, None, ""),  # it may be allowed by now
        (Stand("awaiting_feedback", waits="question"), True, False, 9, "question"),
        (Stand("awaiting_feedback", waits="question"), True, True, None, ""),  # its user has answered
    ],
)
def test_before_a_turn(stand: Stand, first: bool, told: bool, code: int | None, kind: str) -> None:
    verdict = before(stand, told=told, first=first)
    assert (verdict.code, verdict.kind) == (code, kind)
    assert verdict.code is None or verdict.why


@each(
    "now, turn, tries, code, kind, anew, left",
    [
        (NEXT, Turn("done"), Tries(2, 1), None, "", False, Tries()),  # it went on, so the conversation does
        (OPEN, Turn("done"), Tries(), None, "", True, Tries(0, 1)),
        (OPEN, Turn("done"), Tries(0, 1), 9, "stuck", False, Tries()),
        (Stand("completed"), Turn("infra", "x"), Tries(), 0, "completed", False, Tries()),  # the state counts
        (Stand("failed", why="no"), Turn("done"), Tries(), 1, "failed", False, Tries()),
        (Stand("paused"), Turn("done"), Tries(), 9, "paused", False, Tries()),
        (OPEN, Turn("stopped", "x"), Tries(), 9, "stopped", False, Tries()),
        (NEXT, Turn("stopped", "x"), Tries(), 9, "stopped", False, Tries()),
        (OPEN, Turn("spent", "x"), Tries(), 10, "limit", False, Tries()),
        (NEXT, Turn("refused", "x"), Tries(), 1, "refused", False, Tries()),
        (OPEN, Turn("limit", "x", until=99.0), Tries(3, 1), None, "limit", False, Tries(0, 1)),
        (OPEN, Turn("infra", "x"), Tries(), None, "infra", True, Tries(1, 0)),
        (OPEN, Turn("infra", "x"), Tries(4, 0), None, "infra", True, Tries(5, 0)),
        (OPEN, Turn("infra", "x"), Tries(5, 0), 1, "infra", False, Tries()),
        (NEXT, Turn("infra", "x"), Tries(5, 0), None, "infra", True, Tries(1, 0)),
        (OPEN, Turn("stuck", "x"), Tries(), None, "", True, Tries(0, 1)),
        (NEXT, Turn("stuck", "x"), Tries(), None, "", True, Tries()),
        (OPEN, Turn("done", denied=("Write",)), Tries(), 9, "denied", False, Tries()),
        (NEXT, Turn("done", denied=("Write",)), Tries(), None, "", False, Tries()),  # it ended all the same, proven
        (OPEN._replace(status="awaiting_feedback", waits="question"), Turn("done", denied=("Write",)), Tries(), 9,
         "denied", False, Tries()),
        (OPEN._replace(status="awaiting_feedback", waits="denied"), Turn("done"), Tries(), 9, "denied", False, Tries()),
    ],
)  # fmt: skip
def test_after_a_turn(
    now: Stand, turn: Turn, tries: Tries, code: int | None, kind: str, anew: bool, left: Tries
) -> None:
    verdict = after(OPEN, now, turn, tries)
    assert (verdict.code, verdict.kind, verdict.anew, verdict.tries) == (code, kind, anew, left)
    assert verdict.code is None or verdict.why


def test_the_pauses_double_up_to_ten_minutes() -> None:
    assert [pause_after(failed) for failed in (1, 2, 3, 6, 7, 9, 10_000)] == [10, 20, 40, 320, 600, 600, 600]


def test_a_process_that_ended_without_a_word_is_begun_again_at_once_and_then_with_patience() -> None:
    crash = Turn("infra", "x", crashed=True)
    assert after(OPEN, OPEN, crash, Tries()).until == 0
    assert after(OPEN, OPEN, crash, Tries(1, 0)).until == -20


def test_a_limit_with_a_time_is_waited_for() -> None:
    assert after(OPEN, OPEN, Turn("limit", "x", until=123.0), Tries()).until == 123.0


def test_a_step_that_backs_off_is_waited_for() -> None:
    assert before(OPEN._replace(not_before=77.0)).until == 77.0
    assert after(OPEN, NEXT._replace(not_before=88.0), Turn("done"), Tries()).until == 88.0


@each(
    "state, expected",
    [
        ({"status": "in_progress", "steps": []}, Stand("in_progress")),
        ({"status": "x", "steps": [], "current_step": "a/b", "feedback": "no object"}, Stand("x", "a/b")),
        (
            {"status": "awaiting_feedback", "steps": [], "feedback": {"kind": "trust", "message": "m"}},
            Stand("awaiting_feedback", waits="trust", why="m"),
        ),
        (
            {"status": "awaiting_feedback", "steps": [], "feedback": {"kind": "denied", "message": "m"}},
            Stand("awaiting_feedback", waits="denied", why="m"),
        ),
        (
            {"status": "awaiting_feedback", "steps": [], "pending_approvals": [{"id": "x"}]},
            Stand("awaiting_feedback", waits="approval"),
        ),
    ],
)
def test_a_state_is_read_whatever_stands_in_it(state: dict[str, object], expected: Stand) -> None:
    assert rules.stand({"current_step": None, "pending_approvals": [], **state}) == expected
