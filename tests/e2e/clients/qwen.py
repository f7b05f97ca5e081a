"""Qwen Code: `-p` for single prompts, its terminal for a session that stays open. It needs a newer node than others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.e2e.clients.client import Client, Talk, Turn
from tests.e2e.clients.models import Says
from tests.e2e.clients.node import compiled, node
from tests.e2e.clients.typed import TypedTalk, session_in
from tests.e2e.terminal import Terminal

SETTINGS: dict[str, Any] = {
    "security": {"auth": {"selectedType": "openai"}},
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "tools": {"useRipgrep": False, "approvalMode": "default"},
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False, "enableAutoSkill": False},
    "ui": {"enableFollowupSuggestions": False},
    "permissions": {"allow": [f"run_shell_command({name})" for name in ("true", "seq", "cp")]},
}
ONCE = ("env", "QWEN_CODE_NO_RELAUNCH=true")
"""Before what runs without a terminal: its program is not read twice, as where it starts itself with more memory."""
CHATS = ".qwen/projects/*/chats/*.jsonl"


class Qwen(Client):
    """Linked as an extension; `loomctl` is allowed by the rule that `loomctl plugin install qwen` writes.

    Without a terminal nobody could be asked, and lines behind a `<<` count as commands of their own: there it is yolo.
    """

    host = "qwen"
    folder = "qwen-0.24.4"
    shows_lines = False
    compacts_at = 172_000
    told_after = 1  # until then its system prompt has what the last start gave
    mode: tuple[str, ...] = ("--approval-mode", "yolo")

    @property
    def words(self) -> list[str]:
        return [str(node()), str(self.program("@qwen-code", "qwen-code", "cli.js"))]

    def prepare(self) -> None:
        super().prepare()
        summary = "<state_snapshot>The work goes on.</state_snapshot>"
        self.model.answers["compaction"] = Says(summary, tokens=171_000)

    def kind(self, body: dict[str, Any]) -> str:
        """Tell a summary by what is asked for last."""
        asked = json.dumps(body.get("messages", [])[-1:])
        return "compaction" if "produce the <state_snapshot>" in asked else "main"

    def shell_tool(self, command: str) -> tuple[str, dict[str, Any]]:
        return "run_shell_command", {"command": command, "is_background": False}

    def environment(self) -> dict[str, str]:
        own = super().environment()
        if not hasattr(self, "model"):  # while the machine is made
            return own
        api = {"OPENAI_API_KEY": "dummy", "OPENAI_MODEL": "scripted", "OPENAI_BASE_URL": f"{self.model.url}/v1"}
        return {
            **own,
            **api,
            "PATH": f"{node().parent}:{own['PATH']}",
            "NO_COLOR": "1",
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
            **compiled(),
        }

    def install(self) -> None:
        """Link the extension, and allow `loomctl`."""
        (self.home / ".qwen").mkdir()
        (self.home / ".qwen" / "settings.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
        self.loomctl("plugin", "install", "qwen", "--yes")
        link = [*ONCE, *self.words, "extensions", "link", str(self.bundle)]
        self.command("sh", "-c", 'echo y | "$@"', "sh", *link)  # it has no option to consent

    def silence_hooks(self) -> None:
        """Switch them off in the user's settings."""
        path = self.home / ".qwen" / "settings.json"
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "disableAllHooks": True}))

    def renew(self) -> None:
        """Do nothing: an extension that is linked is read where it lies."""

    def drive(self, words: str, says: Sequence[Says | str]) -> Turn:
        """Begin a run: the command itself runs `loomctl run`."""
        return self.tell(self.typed("run", words), Says(shell="loomctl next"), *says)

    def tell(self, prompt: str, *answers: Says | str, session: str = "") -> Turn:
        self.model.script(answers)
        before = len(self.model.requests)
        resumed = ["--resume", session] if session else []
        printed, complaint = self.finished([*ONCE, *self.words, *self.mode, *resumed, "-p", prompt])
        newest = max(self.home.glob(CHATS), key=lambda path: path.stat().st_mtime)
        return Turn(session_in(newest), self.asked(before), printed + complaint)

    @contextmanager
    def open(self, session: str = "") -> Iterator[Talk]:
        resumed = ["--resume", session] if session else []
        with Terminal([*self.words, *resumed], cwd=self.project, environment=self.environment()) as terminal:
            terminal.wait_for("Type your message")
            try:
                yield TypedTalk(self, terminal, CHATS)
            finally:
                self.kill("qwen-code/")
