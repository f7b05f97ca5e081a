"""A session that starts, resumes, forks or is cleared has its run's context back by itself (D1, D2, D15)."""

from dataclasses import replace

import pytest

from tests.e2e.assistant import Assistant
from tests.e2e.scenes import SENTENCE, InRun, fingerprint, set_status, state_of
from tests.helpers.scenes import handle


@pytest.mark.quick
def test_no_store_means_nothing_is_said(assistant: Assistant) -> None:
    turn = assistant.run("hello", watch_hooks=True)
    assert "SessionStart hook additional context" not in turn.conversation[0].seen()
    assert turn.told_user() == []
    assert not (assistant.project / ".loom").exists()


def test_a_resumed_session_does_not_pay_twice_and_gets_what_changed(in_run: InRun) -> None:
    """What still stands live in the resumed conversation is not sent again; the run stays bound (D15)."""
    assistant, first = in_run
    primed = assistant.run("go on", resume=first.session_id)
    again = assistant.run("go on", resume=first.session_id)
    assert primed.conversation[0].seen().count(SENTENCE) == 1
    assert again.conversation[0].seen().count(SENTENCE) == 1
    assert state_of(assistant.project)["sessions"]["current_session_id"] == first.session_id
    spec = assistant.project / "specs" / "dark-mode.md"
    spec.write_text(
        spec.read_text(encoding="utf-8") + "\nIt follows the system's colours: viridian.\n", encoding="utf-8"
    )
    assert "viridian" in assistant.run("go on", resume=first.session_id).conversation[0].seen()


def test_clear_keeps_the_run(in_run: InRun) -> None:
    """After /clear the new conversation is bound to the same run, has its context and one line says so (D2)."""
    assistant, first = in_run
    cleared = assistant.run("/clear", resume=first.session_id, watch_hooks=True)
    assert cleared.session_id != first.session_id
    (line,) = [line for line in cleared.told_user() if cleared.session_id and "Loom: run" in line][-1:]
    assert handle(state_of(assistant.project)) in line
    assert assistant.run("go on", resume=cleared.session_id).conversation[0].seen().count(SENTENCE) == 1
    history = state_of(assistant.project)["sessions"]["session_history"]
    assert [record["session_id"] for record in history] == [first.session_id, cleared.session_id]
    assert history[0]["end_reason"] == "clear"


def test_a_fork_inherits_the_run(in_run: InRun) -> None:
    """A forked conversation works on its parent's run, as a session of its own (D2)."""
    assistant, first = in_run
    forked = assistant.run("go on", resume=first.session_id, fork=True)
    assert SENTENCE in forked.conversation[0].seen()
    assert forked.session_id != first.session_id
    history = state_of(assistant.project)["sessions"]["session_history"]
    assert forked.session_id in [record["session_id"] for record in history]


def test_a_new_session_also_in_a_sub_directory_is_primed_but_writes_nothing(in_run: InRun) -> None:
    """An unbound session in a project with one active run has its context, and the run's files stay untouched (D1)."""
    assistant, _ = in_run
    before = fingerprint(assistant.project)
    turn = assistant.run("hello", watch_hooks=True)
    assert turn.conversation[0].seen().count(SENTENCE) == 1
    assert any("Loom: run" in line for line in turn.told_user())
    assert fingerprint(assistant.project) == before
    (assistant.project / "src" / "ui").mkdir(parents=True)
    turn = replace(assistant, project=assistant.project / "src" / "ui").run("hello")
    assert turn.conversation[0].seen().count(SENTENCE) == 1
    for status in ("completed", "cancelled"):  # and of a run that has ended gets nothing (D4)
        set_status(assistant.project, status)
        turn = assistant.run("hello", watch_hooks=True)
        assert (SENTENCE in turn.conversation[0].seen(), turn.told_user()) == (False, [])


def test_a_crash_costs_nothing(in_run: InRun) -> None:
    """After a kill in the middle of a turn, a new session takes the run up where it stood; the old is `lost` (D24)."""
    assistant, first = in_run
    before = state_of(assistant.project)
    with assistant.working("go on", resume=first.session_id):
        pass
    turn = assistant.run("/loom:resume")
    after = state_of(assistant.project)
    assert SENTENCE in turn.conversation[0].seen()
    assert after["current_step"] == before["current_step"]
    endings = [(record["session_id"], record["end_reason"]) for record in after["sessions"]["session_history"]]
    assert endings[0] == (first.session_id, "lost")
    assert after["sessions"]["current_session_id"] == turn.session_id


def test_loom_can_be_switched_off(in_run: InRun) -> None:
    """LOOM_DISABLED=1 silences every hook (D57)."""
    assistant, first = in_run
    before = fingerprint(assistant.project)
    off = replace(assistant, machine=replace(assistant.machine, extra={"LOOM_DISABLED": "1"}))
    turn = off.run("go on", resume=first.session_id, watch_hooks=True)
    assert "SessionStart hook additional context" not in turn.conversation[0].seen()
    assert (turn.told_user(), fingerprint(assistant.project)) == ([], before)
