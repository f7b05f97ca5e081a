"""What a summary dropped of what must survive comes back in the real assistant, it alone and once, and is proven."""

import json
import subprocess
from typing import Any

import pytest

from tests.e2e.assistant import Assistant, Turn
from tests.e2e.scenes import SENTENCE, InRun, edit_state, state_of
from tests.e2e.scripted_api import AUTO_COMPACT, bash, reply
from tests.helpers.compactions import OWN
from tests.helpers.scenes import handle

ITEMS = [
    f"The {colour} lamp hangs over door {number}"
    for number, colour in enumerate(("red", "blue", "green", "grey", "pink"))
]
KEPT = [ITEMS[0], ITEMS[2], ITEMS[4]]
IN_STATE, IN_FILE = ITEMS[1], ITEMS[3]
DROPPED = ["$.context['lamps.attic']", "cellar"]
"""A path into the state and an artifact: what is put back is their text."""
SUMMARY = f"The user wants lamps. {ITEMS[0]}.\n- {ITEMS[2].replace(' ', chr(10), 1)}\n- {ITEMS[4]}"
CELLAR = {
    "id": "cellar", "type": "markdown", "path": "docs/cellar.md", "description": "which lamp hangs in the cellar",
    "required": False, "reload_triggers": ["manual"],
}  # fmt: skip
WORKFLOW = {
    "id": "lamps",
    "must_survive": [KEPT[0], DROPPED[0], KEPT[1], DROPPED[1], KEPT[2]],
    "critical_artifacts": {"always_load": [CELLAR]},
    "phases": {"build": {"steps": [{"id": "hang", "prompt": "Hang the lamps."}]}},
}


def begin(assistant: Assistant) -> Turn:
    """Start a run of which five items must survive, and let a summary hold three of them.

    Of the two others one is a value of the state and one a file; no priming loads either.
    """
    folder = assistant.project / ".loom" / "workflows"
    folder.mkdir(parents=True)
    (folder / "lamps.json").write_text(json.dumps(WORKFLOW), encoding="utf-8")
    cellar = assistant.project / "docs" / "cellar.md"
    cellar.parent.mkdir()
    cellar.write_text(f"{IN_FILE}\n", encoding="utf-8")
    assistant.api.summary = SUMMARY
    first = assistant.run("/loom:run hang --workflow lamps", answers=["I shall hang them."])
    edit_state(assistant.project, context={"lamps.attic": IN_STATE})
    return first


def proven(assistant: Assistant) -> Any:
    assert assistant.plugin_dir is not None
    launcher = str(assistant.plugin_dir / "bin" / "loomctl")
    ended = subprocess.run(
        [launcher, "prove", str(state_of(assistant.project)["run_id"]), "--json"],
        cwd=assistant.project,
        env=assistant.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    (one,) = json.loads(ended.stdout)["compactions"]
    return one


def counts(text: str) -> list[int]:
    flat = " ".join(text.split())
    return [flat.count(item) for item in ITEMS]


def test_two_of_five_come_back_with_the_next_prompt_after_compact(assistant: Assistant) -> None:
    """The next event after /compact is a prompt: it brings what summary and priming do not hold."""
    first = begin(assistant)
    assistant.run("/compact", resume=first.session_id)
    assert counts(assistant.run("go on", resume=first.session_id).conversation[0].seen()) == [1, 1, 1, 1, 1]
    assert counts(assistant.run("go on", resume=first.session_id).conversation[0].seen()) == [1, 1, 1, 1, 1]
    one = proven(assistant)
    assert (one["proven"], one["trigger"]) == (True, "manual")
    assert (one["kept"], one["lost"], one["restored"]) == ([*KEPT, *OWN], DROPPED, DROPPED)


@pytest.mark.quick
def test_two_of_five_come_back_with_the_next_result_in_the_middle_of_a_turn(assistant: Assistant) -> None:
    """After an automatic compaction the next event is a tool's result: the request after it has all five, once."""
    first = begin(assistant)
    turn = assistant.run(
        "go on",
        resume=first.session_id,
        allowed_tools="Bash(true)",
        answers=[reply(bash("true"), usage=AUTO_COMPACT), reply(bash("true")), reply(bash("true")), "finished"],
    )
    kinds = [request.kind for request in turn.requests]
    assert kinds.count("compaction") == 1
    later = turn.requests[kinds.index("compaction") + 1 :]
    assert counts(later[0].seen()) == [1, 0, 1, 0, 1]
    assert [counts(request.seen()) for request in later[1:]] == [[1, 1, 1, 1, 1]] * len(later[1:])
    assert len(later) > 2
    one = proven(assistant)
    assert (one["proven"], one["trigger"]) == (True, "auto")
    assert (one["kept"], one["lost"], one["restored"]) == ([*KEPT, *OWN], DROPPED, DROPPED)


@pytest.mark.quick
def test_a_run_that_declares_nothing_is_proven_after_its_first_compaction(in_run: InRun) -> None:  # D66
    """Its goal, its step and the specification that it registered; a line says so in passing."""
    assistant, first = in_run
    assistant.api.summary = "The user wants something."
    assistant.run("/compact", resume=first.session_id)
    turn = assistant.run("go on", resume=first.session_id, watch_hooks=True)
    (line,) = [line for line in turn.told_user() if "survived" in line]
    assert line == f"Loom: {handle(state_of(assistant.project))}, architect/spec. 3 of 3 survived."
    assert SENTENCE in turn.conversation[0].seen()
    one = proven(assistant)
    assert (one["proven"], one["kept"], one["lost"]) == (True, ["goal", "step", "specification"], [])
