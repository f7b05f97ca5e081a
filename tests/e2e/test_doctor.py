"""The real assistant's hooks leave notes that the doctor reads, and the doctor is green where they do their work."""

import json
from pathlib import Path
from typing import Any

import pytest

from loomctl import __version__
from tests.e2e.assistant import Assistant
from tests.e2e.scenes import done, start_run


def examined(assistant: Assistant, bundle: Path) -> dict[str, dict[str, Any]]:
    told = assistant.machine.command(str(bundle / "bin/loomctl"), "doctor", "--json", cwd=assistant.project)
    return {check["id"]: check for check in json.loads(told)["checks"]}


@pytest.mark.quick
def test_each_hook_of_a_session_is_noted(assistant: Assistant, bundle: Path) -> None:
    first = start_run(assistant)
    assistant.run("go on", resume=first.session_id, answers=[done(), "It is done."])
    checks = examined(assistant, bundle)
    assert checks["heartbeats"]["status"] == "PASS"
    fired = {one["event"]: one for one in checks["heartbeats"]["fired"]}
    assert set(fired) == {"session-start", "user-prompt-submit", "pre-tool-use", "post-tool-use", "stop", "session-end"}
    assert {one["session_id"] for one in fired.values()} == {first.session_id}
    assert {one["version"] for one in fired.values()} == {__version__}
    assert all(one["launcher"].endswith("/bin/loomctl") for one in fired.values())
    assert (checks["round-trip"]["status"], checks["assistant"]["status"]) == ("PASS", "PASS")
