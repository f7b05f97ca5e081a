"""Qwen Code itself: whose cap of blocked stops counts, as `loomctl/hosts/dialects/qwen.py` reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.clients.machines import Machines
from tests.e2e.clients.qwen import Qwen

CAP = "stopHookBlockingCap"
TRUST: dict[str, Any] = {"security": {"folderTrust": {"enabled": True}}}


@pytest.mark.parametrize(
    ("user", "project", "stops"),
    [
        ({CAP: 3}, {}, 3),
        ({CAP: 3}, {CAP: 5}, 5),
        ({CAP: 5}, {CAP: 3}, 3),
        ({CAP: 3, **TRUST}, {CAP: 5}, 3),  # nobody has trusted the folder
    ],
)
def test_the_projects_cap_wins_where_the_folder_is_trusted(
    user: dict[str, Any], project: dict[str, Any], stops: int, machines: Machines
) -> None:
    """It ends the turn at that block, and reads comments."""
    qwen = machines.of(Qwen)
    log = qwen.root / "stops"
    blocks = f"echo x >>{log}; echo '{json.dumps({'decision': 'block', 'reason': 'go on'})}'"
    place = qwen.home / ".qwen" / "settings.json"
    held = json.loads(place.read_text(encoding="utf-8"))
    held["hooks"] = {"Stop": [{"hooks": [{"type": "command", "command": blocks}]}]}
    place.write_text(f"// mine\n{json.dumps(held | user)}", encoding="utf-8")
    (qwen.project / ".qwen").mkdir()
    (qwen.project / ".qwen" / "settings.json").write_text(f"// ours\n{json.dumps(project)}", encoding="utf-8")

    qwen.tell("hello", *["Done."] * 12)

    assert len(log.read_text(encoding="utf-8").split()) == stops
