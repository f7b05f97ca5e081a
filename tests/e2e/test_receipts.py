"""The receipts of starts say what the requests of the real assistant show (D81)."""

import json
import subprocess
from typing import Any

import pytest

from tests.e2e.assistant import Assistant
from tests.e2e.scripted_api import bash, reply, tool

SPEC = {
    "id": "spec", "type": "markdown", "path": "spec.md", "description": "what is to be built", "required": True,
    "reload_triggers": ["session_start"],
}  # fmt: skip
WORKFLOW = {
    "id": "lamps",
    "critical_artifacts": {"always_load": [SPEC]},
    "phases": {"build": {"steps": [{"id": "hang", "prompt": "Hang the lamps."}]}},
}
LINES = [f"Lamp {number:03} hangs over door {number * 7 % 101}." for number in range(250)]


def prepare(assistant: Assistant) -> None:
    folder = assistant.project / ".loom" / "workflows"
    folder.mkdir(parents=True)
    (folder / "lamps.json").write_text(json.dumps(WORKFLOW), encoding="utf-8")
    (assistant.project / "spec.md").write_text("\n".join(LINES) + "\n", encoding="utf-8")


def proven(assistant: Assistant) -> tuple[int, list[Any]]:
    """Give the exit code of `loomctl prove`, and what it says of each start: the event, and what became of the spec."""
    ended = subprocess.run(
        [f"{assistant.plugin_dir}/bin/loomctl", "prove", "--json"], cwd=assistant.project,
        env=assistant.environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    found = json.loads(ended.stdout)["starts"]
    return ended.returncode, [(one["event"], one["artifacts"]["spec"]) for one in found]


def test_what_the_host_gives_again_of_a_file_that_was_read_is_counted(assistant: Assistant) -> None:
    """Loom has room for its beginning; the host's own copy stands in the next request, and the receipt says so."""
    prepare(assistant)
    (assistant.project / ".loom" / "config.yaml").write_text("hook_budget: 5000\n", encoding="utf-8")
    session = assistant.conversation("--allowedTools", "Bash,Read")
    read = reply(tool("Read", file_path=str(assistant.project / "spec.md")))
    session.say("/loom:run hang --workflow lamps", reply(bash("loomctl next")), "Under way.")
    session.say("read it", read, "Read.")
    _, told = session.say("/compact")
    requests, more = session.say("go on")
    session.end()
    assert LINES[-1] in requests[0].seen()
    assert not any("lost" in line for line in [*told, *more])
    assert proven(assistant) == (0, [("run", "reachable"), ("compact", "restored")])


@pytest.mark.quick
def test_an_old_text_in_a_commands_body_is_a_finding_and_its_user_is_told(assistant: Assistant) -> None:
    """The host gives the body of a command again as it was; Loom's own bodies hold nothing that ages (D79)."""
    prepare(assistant)
    commands = assistant.project / ".claude" / "commands"
    commands.mkdir(parents=True)
    body = "---\nallowed-tools: Bash(loomctl:*)\n---\n!`loomctl prime-context --force`\n\nLook at it.\n"
    (commands / "look.md").write_text(body, encoding="utf-8")
    session = assistant.conversation("--allowedTools", "Bash,Read")
    session.say("/loom:run hang --workflow lamps", reply(bash("loomctl next")), "Under way.")
    session.say("/look")
    changed = [line.replace("door", "gate") for line in LINES]
    (assistant.project / "spec.md").write_text("\n".join(changed) + "\n", encoding="utf-8")
    session.say("/compact")
    requests, told = session.say("go on")
    session.end()
    seen = requests[0].seen()
    assert changed[0] in seen
    assert LINES[0] in seen
    assert "Loom: after a compaction: stale: spec (loomctl prove)" in told
    assert proven(assistant) == (1, [("run", "present"), ("compact", "stale")])


def test_each_start_has_its_receipt(assistant: Assistant) -> None:
    prepare(assistant)
    session = assistant.conversation("--allowedTools", "Bash,Read")
    session.say("/loom:run hang --workflow lamps", reply(bash("loomctl next")), "Under way.")
    session.say("/clear")
    session.say("go on")
    session.end()
    again = assistant.conversation("--resume", session.session_id)
    again.say("go on")
    again.kill()
    fresh = assistant.conversation()
    requests, _ = fresh.say("go on")
    fresh.end()
    assert LINES[-1] in requests[0].seen()
    starts = ["run", "clear", "resume", "startup"]
    assert proven(assistant) == (0, [(event, "present") for event in starts])
