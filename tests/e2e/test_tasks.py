"""A task list worked through in a real conversation, with a compaction in the middle of its fourth task (D65)."""

import json
from pathlib import Path

import pytest

from tests.e2e.assistant import Assistant
from tests.e2e.scenes import done, state_of
from tests.e2e.scripted_api import AUTO_COMPACT, bash, reply

TASKS = [f"Build part {number} of the mail reader" for number in range(1, 13)]
WORKFLOW = {
    "id": "listed",
    "phases": {
        "build": {
            "steps": [
                {"id": "spec", "prompt": "Write the specification.", "produces": ["spec_path"]},
                {
                    "id": "implement",
                    "prompt": "Build this task, and only this one:\n\n{task}",
                    "for_each": {"list": "artifacts.spec_path", "section": "Tasks"},
                },
            ]
        }
    },
}


def lay_out(project: Path) -> Path:
    place = project / ".loom" / "workflows" / "listed.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(WORKFLOW), encoding="utf-8")
    spec = project / "spec.md"
    spec.write_text("# Mail\n\n## Tasks\n\n" + "".join(f"- [ ] {one}\n" for one in TASKS), encoding="utf-8")
    return spec


@pytest.mark.quick
def test_task_4_of_12_stands_after_a_compaction_and_the_run_goes_on_there(assistant: Assistant) -> None:
    spec = lay_out(assistant.project)
    first = assistant.run(
        '/loom:run "read mail" --workflow listed',
        answers=[done(artifact="spec_path=spec.md"), done(), done(), done(), "I go on with the next part."],
    )
    told = first.conversation[-1].tool_results()[-1].text
    assert f"Next: build/implement, task 4 of 12: {TASKS[3]}" in told
    assert spec.read_text(encoding="utf-8").count("- [x] ") == 3

    turn = assistant.run(
        "go on",
        resume=first.session_id,
        allowed_tools="Bash(true),Bash(loomctl *)",
        answers=[reply(bash("true"), usage=AUTO_COMPACT), done(), "finished"],
    )
    kinds = [request.kind for request in turn.requests]
    at = kinds.index("compaction")
    assert f"build/implement, task 4 of 12: {TASKS[3]}" in turn.requests[at].seen()
    after = turn.requests[at + 1].seen()
    assert f"step build/implement, task 4 of 12: {TASKS[3]}" in after
    assert f"Build this task, and only this one:\n\n{TASKS[3]}" in after
    ticked = [line for line in spec.read_text(encoding="utf-8").splitlines() if line.startswith("- [x] ")]
    assert ticked == [f"- [x] {one}" for one in TASKS[:4]]
    assert state_of(assistant.project)["steps"][-1]["task"]["text"] == TASKS[4]
