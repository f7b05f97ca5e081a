"""What `loomctl plugin install` and `loomctl memory on --host` do, in the real assistants (D72, D62)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.client import Client
from tests.e2e.clients.codex import Codex
from tests.e2e.clients.copilot import Copilot
from tests.e2e.clients.gemini import Gemini
from tests.e2e.clients.machines import Machines
from tests.e2e.clients.models import Says
from tests.e2e.clients.qwen import Qwen
from tests.e2e.promises import begun

MINE = '{"hooks": {"Stop": [{"hooks": [{"type": "command",   "command": "true"}]}]}}'


def server(codex: Codex, method: str, given: dict[str, Any]) -> Any:
    """Call Codex CLI's app-server; gives the result."""
    about = {"clientInfo": {"name": "test", "version": "1"}}
    calls = [(0, "initialize", about), (1, method, given)]
    with subprocess.Popen(
        [codex.binary, "app-server"], cwd=codex.project, env=codex.environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for number, name, params in calls:
            print(json.dumps({"id": number, "method": name, "params": params}), file=process.stdin, flush=True)
        for line in process.stdout:
            said = json.loads(line)
            if said.get("id") == 1:
                process.kill()
                return said["result"]
    raise AssertionError("it gave no answer")


def hooks_of(codex: Codex) -> list[dict[str, Any]]:
    listed = server(codex, "hooks/list", {"cwds": [str(codex.project)]})
    return [hook for one in listed["data"] for hook in one["hooks"]]


def trust(codex: Codex, hooks: list[dict[str, Any]]) -> None:
    """Do what its user does with /hooks."""
    state = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in hooks}
    edits = [{"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}]
    server(codex, "config/batchWrite", {"edits": edits})


def doctor(client: Client) -> dict[str, Any]:
    """Give what the doctor says of this assistant."""
    found = json.loads(client.loomctl("doctor", "--json", check=False))
    (check,) = [one for one in found["checks"] if one["id"] == client.host]
    return dict(check)


def test_hooks_of_the_users_own_answer_alone_and_stay_trusted_at_an_update(bundle: Path, cache: Path) -> None:
    with Codex(bundle, cache) as codex:
        codex.silence_hooks()  # from here on its user alone trusts
        (codex.home / ".local/bin/codex").symlink_to(codex.binary)
        settings = codex.home / ".codex/hooks.json"
        settings.write_text(MINE)
        codex.loomctl("plugin", "install", "codex", "--yes")
        assert "skips 7 of Loom's 7 hooks" in doctor(codex)["found"]
        trust(codex, [hook for hook in hooks_of(codex) if hook["source"] == "user"])
        assert doctor(codex)["status"] == "PASS"
        turn = begun(codex)

        codex.update()

        assert doctor(codex)["status"] == "PASS"
        trust(codex, hooks_of(codex))  # those of the plugin, too, which are called now and give way
        codex.tell("go on", Says(shell="echo lantern"), "Done.", session=turn.session_id)
        assert codex.loomctl("steps", "--all").count("echo lantern") == 1
        codex.loomctl("plugin", "remove", "codex")
        assert settings.read_text() == MINE


@pytest.mark.parametrize("kind", [Codex, Copilot, Gemini, Qwen])
def test_a_line_in_its_memory_leads_an_assistant_without_hooks_to_the_run(
    kind: type[Client], machines: Machines
) -> None:
    client = machines.of(kind)
    begun(client)
    client.silence_hooks()
    client.loomctl("memory", "on", "--host", client.host, "--yes")

    seen = client.tell("hello").conversation[0].seen()

    imports = kind in (Gemini, Qwen)
    assert ("This is for the session that drives the run." in seen) == imports
    assert ("read .loom/now.md" in seen) != imports
