"""A clock that jumps: no id is given twice, no entry is lost, nothing fresh becomes stale, nobody living is lost."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.faults.stand import RESPONSE, SENTENCE, Stand, chain, sound
from tests.helpers.scenes import OTHER, SESSION, TranscriptFile

DAY = 86_400
JUMPS = {"an hour back": -3600, "a day back": -DAY, "thirty years back": -30 * 365 * DAY, "a day on": DAY}


def stamps(value: object) -> list[str]:
    if isinstance(value, dict):
        return [found for inner in value.values() for found in stamps(inner)]
    if isinstance(value, list):
        return [found for inner in value for found in stamps(inner)]
    return [value] if isinstance(value, str) and len(value) == 20 and value[10] == "T" and value[-1] == "Z" else []


@pytest.mark.parametrize("jump", JUMPS)
def test_a_run_goes_on_when_the_clock_jumps(stand: Stand, jump: str) -> None:
    """Each verb does what it does, the log's numbers rise and its chain holds, and every time has its form."""
    wrong = JUMPS[jump]
    assert stand.cli("done", given=RESPONSE, clock=wrong).json["next"]["id"] == "frame/note"
    assert stand.cli("done", given=RESPONSE).json["next"]["id"] == "build/make"
    assert stand.cli("undo", clock=wrong).json["next"]["id"] == "frame/note"
    assert stand.cli("resume", clock=wrong).code == 0
    sound(stand.scene)
    assert stand.cli("check", str(stand.scene.run_dir / "events.jsonl")).json["ok"]
    for stamp in stamps(stand.scene.state):
        time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")
    assert stand.cli("runs").json["runs"][0]["status"] == "in_progress"


@pytest.mark.parametrize("jump", ["a day back", "a day on"])
def test_what_is_fresh_stays_fresh(stand: Stand, jump: str, tmp_path: Path) -> None:
    """Freshness knows no clock (D15): what the conversation holds is not sent again, before or after a jump."""
    transcript = TranscriptFile(tmp_path / "transcript.jsonl")
    told = {"source": "resume", "transcript_path": str(transcript.path)}
    first = stand.hook("session-start", told=dict(told))
    assert SENTENCE in first.context
    transcript.hook_text(first.context)
    assert "nothing to reload, 1 unchanged" in stand.hook("session-start", told=dict(told), clock=JUMPS[jump]).message


@pytest.mark.parametrize("wrong", [-DAY, -30 * DAY])
def test_a_living_session_is_not_lost_by_a_jump_back(stand: Stand, wrong: int) -> None:
    """A session whose process is known is judged by it, any other by its last sign of life, which is none to come."""
    answer = stand.hook("session-start", session=OTHER, told={"source": "startup"}, clock=wrong)
    assert "another session" in answer.message
    assert stand.cli("resume", session=OTHER, clock=wrong).code == 0
    records = {one["session_id"]: one for one in stand.scene.state["sessions"]["session_history"]}
    assert records[SESSION]["end_reason"] is None
    assert sorted(records) == [SESSION, OTHER]


def test_runs_started_in_one_second_of_a_repeated_hour_have_ids_of_their_own(stand: Stand) -> None:
    wrong = time.mktime(time.strptime("2026-10-25T01-30-00Z", "%Y-%m-%dT%H-%M-%SZ")) - time.timezone
    begun = []
    for _ in range(3):
        answer = stand.cli("run", "more work", "--workflow", "tiny", clock=wrong - time.time())
        assert answer.code == 0
        begun.append(answer.json["run_id"])
    assert len(set(begun)) == 3
    assert all("-run-2026-10-25T01-3" in run_id for run_id in begun)
    sound(stand.scene)


def test_a_step_that_ends_before_it_began_has_an_end(stand: Stand) -> None:
    """A result is not lost where the clock went back meanwhile: it is the Stop's message, whatever the time is."""
    assert stand.cli("done", clock=0).json["closing"]
    stopped = stand.hook("stop", told={"last_assistant_message": RESPONSE}, clock=-DAY)
    assert "frame/ask succeeded" in stopped.message
    (visit,) = [one for one in stand.scene.state["steps"] if one["step_id"] == "frame/ask"]
    assert (stand.scene.run_dir / "stages" / visit["stage"] / "response.md").read_text() == RESPONSE


def test_a_clock_that_runs_backwards_all_the_time_confuses_nobody(stand: Stand) -> None:
    """Each reading an hour before the last: ends, starts and signs of life all still stand, and a lock is waited for
    by a clock that does not jump.
    """
    assert stand.cli("done", given=RESPONSE, clock=[-3600 * number for number in range(200)]).code == 0
    assert len(chain(stand.scene.run_dir)) > 3
    sound(stand.scene)
    known = next(Path(os.environ["LOOM_STATE_HOME"], "runs").glob("*.json"))
    assert json.loads(known.read_bytes())["run_id"] == stand.scene.run_dir.name
