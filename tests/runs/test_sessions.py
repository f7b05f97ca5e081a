"""One record a session, kept through resumes and compactions, on whatever machine (D24-D26)."""

from __future__ import annotations

from typing import Any

from loomctl.runs.model import sessions
from loomctl.runs.model.state import accepted, new_state
from tests.helpers.tables import each

PLAN: dict[str, Any] = {"plan_id": "p", "workflow_id": "w", "phases": []}
A, B = {"hostname": "machine-a", "cwd": "/a"}, {"hostname": "machine-b", "cwd": "/b"}


def fresh() -> dict[str, Any]:
    return new_state(PLAN, run_id="r", work_id=None, goal="", at=at(0))


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


def enter(state: dict[str, Any], name: str, second: int, source: str = "startup", **more: Any) -> dict[str, Any]:
    return sessions.entered(
        state, name, host="h", source=source, at=at(second), environment=more.pop("environment", A), **more
    )


def test_a_first_session_has_a_whole_record() -> None:
    state = enter(fresh(), "s1", 1)
    assert state["sessions"] == {
        "current_session_id": "s1",
        "total_sessions": 1,
        "session_history": [
            {
                "session_id": "s1", "host": "h", "started_at": at(1), "ended_at": None, "end_reason": None,
                "last_activity": at(1), "resumes": 0, "compactions": [], "phases_completed": [],
                "artifacts_loaded": [], "environment": A,
            }
        ],
    }  # fmt: skip


@each(
    ("sources", "resumes", "compactions"),
    [
        (["startup", "startup", "bound"], 0, 0), (["startup", "resume", "resume"], 2, 0),
        (["startup", "compact", "compact"], 0, 2), (["startup", "compact", "resume", "clear"], 1, 1),
        (["compact"], 0, 1), (["resume"], 0, 0),
    ],
)  # fmt: skip
def test_one_record_counts_what_happens_to_its_session(sources: list[str], resumes: int, compactions: int) -> None:
    state = fresh()
    for second, source in enumerate(sources):
        state = enter(state, "s1", second, source, compaction="manual")
    (record,) = sessions.history(state)
    assert (record["resumes"], len(record["compactions"])) == (resumes, compactions)
    assert all(entry["trigger"] == "manual" for entry in record["compactions"])
    accepted(state, where="x")


def test_a_session_that_ended_is_resumed_and_one_that_a_kill_left_is_lost_until_its_next_sign() -> None:
    state = sessions.left(enter(fresh(), "s1", 1), "s1", at=at(2), reason="logout")
    assert sessions.history(state)[0]["end_reason"] == "logout"
    (record,) = sessions.history(enter(state, "s1", 3))
    assert (record["ended_at"], record["end_reason"], record["resumes"]) == (None, None, 1)
    state = sessions.active(enter(enter(fresh(), "s1", 1), "s2", 2, alive=["s1"]), "s1", at=at(5))
    state = enter(state, "s3", 9, alive=["s2"], environment=B)
    assert [(one["session_id"], one["ended_at"], one["end_reason"]) for one in sessions.history(state)] == [
        ("s1", at(5), "lost"),
        ("s2", None, None),
        ("s3", None, None),
    ]
    state = enter(enter(fresh(), "s1", 1), "s2", 2, environment=B)
    assert sessions.history(state)[0]["end_reason"] == "lost"
    state = sessions.active(state, "s1", at=at(3))
    assert [one["ended_at"] for one in sessions.history(state)] == [None, None]
    state = sessions.active(sessions.left(state, "s1", at=at(4), reason="other"), "s1", at=at(5))
    assert sessions.history(state)[0]["end_reason"] == "other"


def test_unknown_keys_of_a_record_survive() -> None:
    state = fresh()
    state["sessions"] = {"session_history": [{"session_id": "s1", "x-mood": "good"}], "x-kept": 1}
    state = enter(state, "s1", 1, "compact")
    state = enter(state, "s1", 2, "resume")
    state = sessions.primed(state, "s1", [{"artifact_id": "a", "form": "full"}], at=at(3))
    state = sessions.completed_phase(state, "s1", "frame")
    (record,) = sessions.history(state)
    assert (record["x-mood"], record["resumes"], len(record["compactions"])) == ("good", 1, 1)
    assert (record["artifacts_loaded"], record["phases_completed"]) == (["a"], ["frame"])
    assert state["sessions"]["x-kept"] == 1


@each(
    "change",
    [
        lambda state: sessions.left(state, "other", at=at(9), reason="x"),
        lambda state: sessions.active(state, "other", at=at(9)),
        lambda state: sessions.active(state, None, at=at(9)),
        lambda state: sessions.completed_phase(state, None, "frame"),
        lambda state: sessions.completed_phase(state, "other", "frame"),
        lambda state: sessions.primed(state, "s1", [], at=at(9)),
        lambda state: sessions.uncompleted_phases(state, ["frame"]),
    ],
)
def test_what_concerns_no_session_changes_nothing(change: Any) -> None:
    """A session without a record, none at all, and a priming that loaded nothing leave the state as it is (D15)."""
    state = enter(fresh(), "s1", 1)
    assert change(state) == state


def test_a_phase_is_completed_once_and_a_priming_is_recorded_and_forgotten() -> None:
    state = enter(fresh(), "s1", 1)
    for phase in ("frame", "build", "frame"):
        state = sessions.completed_phase(state, "s1", phase)
    assert sessions.history(state)[0]["phases_completed"] == ["frame", "build"]
    state = sessions.uncompleted_phases(state, ["build", "release"])
    assert sessions.history(state)[0]["phases_completed"] == ["frame"]
    state = sessions.primed(state, "s1", [{"artifact_id": "a", "sha256": "1"}, {"artifact_id": "b"}], at=at(2))
    state = sessions.primed(state, "s1", [{"artifact_id": "a", "sha256": "2"}], at=at(3))
    metadata = state["context_metadata"]
    assert metadata["artifacts_in_context"] == [{"artifact_id": "b"}, {"artifact_id": "a", "sha256": "2"}]
    assert (metadata["reload_count"], metadata["last_artifact_reload"]) == (2, at(3))
    state = sessions.forgotten(state)
    assert state["context_metadata"]["artifacts_in_context"] == []
    assert sessions.history(state)[0]["artifacts_loaded"] == ["a", "b"]


@each(
    ("entries", "expected"),
    [
        ([], "0 sessions"),
        ([("s1", A)], "1 session (machine-a)"),
        ([("s1", A), ("s2", B)], "2 sessions (machine-a, machine-b)"),
        ([("s1", A), ("s2", B), ("s3", A)], "3 sessions (machine-a, machine-b)"),
        ([("s1", {})], "1 session"),
        ([("s1", {"hostname": 7})], "1 session"),
    ],
)
def test_the_history_is_one_line(entries: list[tuple[str, dict[str, Any]]], expected: str) -> None:
    state = fresh()
    for second, (name, environment) in enumerate(entries):
        state = enter(state, name, second, environment=environment)
    assert sessions.summary(state) == expected


def test_of_a_thousand_sessions_the_newest_the_open_and_the_last_of_each_place_stay() -> None:
    """An open record may still grow; a place that the run was worked on at is needed to find its paths (D9)."""
    state, moved = fresh(), []
    for number in range(1000):
        state = enter(state, f"s{number}", number % 60)
        state, out = sessions.overflowing(sessions.left(state, f"s{number}", at=at(1), reason="logout"))
        moved += out
        accepted(state, where="x")
    held = [record["session_id"] for record in sessions.history(state)]
    assert held == [f"s{number}" for number in range(1000 - sessions.KEPT, 1000)]
    assert [record["session_id"] for record in moved] == [f"s{number}" for number in range(1000 - sessions.KEPT)]
    assert sessions.summary(state) == "1000 sessions (machine-a)"
    state = enter(fresh(), "far", 1, environment=B)
    state = sessions.left(state, "far", at=at(2), reason="logout")
    state = enter(state, "open", 3, alive=["open"])
    for number in range(60):
        state = enter(state, f"s{number}", 4, alive=["open"])
        state, _ = sessions.overflowing(sessions.left(state, f"s{number}", at=at(5), reason="logout"))
    held = [record["session_id"] for record in sessions.history(state)]
    assert (held[:2], len(held)) == (["far", "open"], sessions.KEPT + 2)
    assert sessions.summary(state) == "62 sessions (machine-b, machine-a)"


def test_a_session_that_went_out_comes_back_as_itself() -> None:
    state, moved = fresh(), []
    for number in range(30):
        state = enter(state, f"s{number}", number)
        state, out = sessions.overflowing(sessions.left(state, f"s{number}", at=at(number), reason="logout"))
        moved += out
    state = enter(state, "s3", 50, source="resume", earlier=moved[3])
    record = sessions.record_of(state, "s3")
    assert record is not None
    assert (record["started_at"], record["resumes"], record["ended_at"]) == (at(3), 1, None)
    assert sessions.summary(state) == "30 sessions (machine-a)"
