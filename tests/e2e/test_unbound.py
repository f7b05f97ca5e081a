"""A session that was not bound by run or resume is never blocked, driven or written for (D1)."""

import json
from dataclasses import replace

import pytest

from tests.e2e.scenes import SENTENCE, InRun, fingerprint, run_folders, start_run, state_of
from tests.e2e.scripted_api import ScriptedApi, bash, reply
from tests.helpers.scenes import handle


def test_two_runs_are_listed_and_none_is_guessed(in_run: InRun) -> None:
    assistant, _ = in_run
    start_run(assistant, work='"mend the login"')
    before = fingerprint(assistant.project)
    seen = assistant.run("hello", watch_hooks=True).conversation[0].seen()
    names = [handle(json.loads((folder / "state.json").read_text())) for folder in run_folders(assistant.project)]
    assert len(names) == 2
    for name in names:
        assert name in seen
    assert SENTENCE not in seen
    assert fingerprint(assistant.project) == before


@pytest.mark.quick
def test_a_directive_in_an_unbound_session_completes_nothing(in_run: InRun) -> None:
    assistant, _ = in_run
    before = fingerprint(assistant.project)
    turn = assistant.run("hello", answers=['{"outcome": "succeeded"}'])
    assert (turn.answer, len(turn.conversation)) == ('{"outcome": "succeeded"}', 1)
    assert fingerprint(assistant.project) == before


def test_an_unbound_session_cannot_drive_and_is_primed_again_after_its_compaction(in_run: InRun) -> None:
    assistant, _ = in_run
    before = fingerprint(assistant.project)
    calls = reply(bash("loomctl done <<'EOF'\nMine.\nEOF"), bash("loomctl next"))
    turn = assistant.run("hello", answers=[calls, "given up"], allowed_tools="Bash(loomctl:*)")
    results = turn.conversation[-1].tool_results()
    assert [result.is_error for result in results] == [True, True]
    for result in results:
        assert "loomctl resume" in result.text
    assert fingerprint(assistant.project) == before
    before = fingerprint(assistant.project)
    reader = assistant.run("hello")
    assistant.run("/compact", resume=reader.session_id)
    after = assistant.run("go on", resume=reader.session_id)
    assert (after.conversation[0].seen().count(SENTENCE), fingerprint(assistant.project)) == (1, before)


def test_a_live_bound_session_keeps_the_run_to_itself(in_run: InRun) -> None:
    assistant, first = in_run
    with ScriptedApi() as other_api, assistant.working("go on", resume=first.session_id):
        turn = replace(assistant, api=other_api).run("hello", watch_hooks=True)
    assert SENTENCE not in turn.conversation[0].seen()
    (line,) = turn.told_user()
    assert handle(state_of(assistant.project)) in line
