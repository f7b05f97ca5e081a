"""Gemini CLI: `-p` for single prompts, its terminal for a session that stays open."""

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
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "tools": {"useRipgrep": False},
    "model": {"name": "gemini-2.5-pro"},  # else another model is asked first which one is to answer
    "ui": {"hideTips": True, "hideBanner": True},
}
ONCE = ("env", "GEMINI_CLI_NO_RELAUNCH=true")
"""Before what runs without a terminal: its program is not read twice, as where it starts itself with more memory."""
CHATS = ".gemini/tmp/*/chats/*.jsonl"
_RULE = '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "{}"\ndecision = "allow"\npriority = 120\n'
OTHERS = "".join(_RULE.format(name) for name in ("true", "seq", "cp"))
OTHERS += _RULE.format("loomctl status") + "allowRedirection = true\n"  # a scene wants its complaint, too


class Gemini(Client):
    """Linked as an extension; `loomctl` is allowed by the policy that `loomctl plugin install gemini` writes."""

    host = "gemini"
    folder = "gemini-0.61.0"
    compacts_at = 990_000
    grows = 3
    told_after = 1

    @property
    def words(self) -> list[str]:
        return [str(node()), str(self.program("@google", "gemini-cli", "bundle", "gemini.js"))]

    def prepare(self) -> None:
        super().prepare()
        summary = Says("<state_snapshot>The work goes on.</state_snapshot>")
        self.model.answers |= {"compaction": summary, "check": summary}

    def kind(self, body: dict[str, Any]) -> str:
        """Tell a summary by what is asked for last, the check of it, which follows, and an earlier session's title."""
        asked = json.dumps(body.get("contents", [])[-1:])
        if "Summary (max 80 chars)" in asked:
            return "title"
        if "Critically evaluate the <state_snapshot>" in asked:
            return "check"
        return "compaction" if "new <state_snapshot> based on" in asked else "main"

    def shell_tool(self, command: str) -> tuple[str, dict[str, Any]]:
        return "run_shell_command", {"command": command}

    def environment(self) -> dict[str, str]:
        if not hasattr(self, "model"):  # while the machine is made
            return super().environment()
        api = {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": self.model.url}
        own = {"GEMINI_TELEMETRY_ENABLED": "false", "GEMINI_CLI_TRUST_WORKSPACE": "true", "NO_COLOR": "1"}
        return {**super().environment(), **api, **own, **compiled()}

    def install(self) -> None:
        """Link the extension, and allow `loomctl`."""
        folder = self.home / ".gemini"
        (folder / "policies").mkdir(parents=True)
        (folder / "settings.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
        (folder / "policies" / "others.toml").write_text(OTHERS, encoding="utf-8")
        self.loomctl("plugin", "install", "gemini", "--yes")
        self.command(*ONCE, *self.words, "extensions", "link", str(self.bundle), "--consent")

    def silence_hooks(self) -> None:
        """Switch them off in the user's settings."""
        settings = {**SETTINGS, "hooksConfig": {"enabled": False}}
        (self.home / ".gemini" / "settings.json").write_text(json.dumps(settings), encoding="utf-8")

    def renew(self) -> None:
        """Do nothing: an extension that is linked is read where it lies."""

    def drive(self, words: str, says: Sequence[Says | str]) -> Turn:
        """Begin a run: the command itself runs `loomctl run`."""
        return self.tell(self.typed("run", words), Says(shell="loomctl next"), *says)

    def tell(self, prompt: str, *answers: Says | str, session: str = "") -> Turn:
        self.model.script(answers)
        before = len(self.model.requests)
        resumed = ["--resume", session] if session else []
        printed, complaint = self.finished([*ONCE, *self.words, *resumed, "-p", prompt])
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
                self.kill("gemini.js")
