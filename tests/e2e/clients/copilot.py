"""Copilot CLI: `copilot -p` for single prompts, its terminal for a session that stays open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.clients.client import Client, Talk, Turn, wait_until
from tests.e2e.clients.models import Says
from tests.e2e.clients.typed import TypedTalk
from tests.e2e.terminal import Terminal

READY = "/ commands"
TASK = "a task for a subagent"


class Copilot(Client):
    """A model of one's own, offline; what it unpacks itself into stays in the tests' cache."""

    host = "copilot"
    folder = "copilot-1.0.102"
    shows_lines = False
    compacts_at = 125_000
    told_after = 1
    own: dict[str, str] = {}  # noqa: RUF012 - set where there is a model
    mode: tuple[str, ...] = ("--allow-all",)

    @property
    def binary(self) -> Path:
        return self.program("@github/copilot-linux-x64/copilot")

    def kind(self, body: dict[str, Any]) -> str:
        """Tell the question for a summary by its words."""
        last = json.dumps(body.get("messages", [])[-1:])
        return "compaction" if "create a detailed summary of the conversation" in last else "main"

    def shell_tool(self, command: str) -> tuple[str, dict[str, Any]]:
        """Give its shell's call; of TASK, that of a subagent."""
        if command == TASK:
            given = {"description": "Look", "prompt": "Look at it.", "agent_type": "general-purpose", "name": "looks"}
            return "task", {**given, "mode": "sync"}
        return "bash", {"command": command, "description": "A command"}

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.own}

    def prepare(self) -> None:
        """Name the model, and let nothing else be asked."""
        super().prepare()
        self.own = {
            "COPILOT_CACHE_HOME": str(self.binary.parents[3] / "unpacked"), "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false", "COPILOT_ALLOW_ALL": "true", "COPILOT_MODEL": "scripted",
            "COPILOT_PROVIDER_BASE_URL": f"{self.model.url}/v1", "COPILOT_PROVIDER_API_KEY": "dummy",
        }  # fmt: skip

    def install(self) -> None:
        """Add the marketplace and the plugin."""
        self.command(self.binary, "plugin", "marketplace", "add", self.bundle)
        self.command(self.binary, "plugin", "install", "loom@loom")

    def silence_hooks(self) -> None:
        """Give one hook a matcher that this host finds invalid: it drops the whole file for it, in its log alone."""
        place = self.bundle / "hooks" / "copilot.json"
        raw = json.loads(place.read_text(encoding="utf-8"))
        raw["hooks"]["PostToolUse"][0]["matcher"] = ""
        place.write_text(json.dumps(raw), encoding="utf-8")

    def renew(self) -> None:
        """Update it, though a plugin of a marketplace on this machine is read where it lies."""
        self.command(self.binary, "plugin", "update", "loom@loom")

    def tell(self, prompt: str, *answers: Says | str, session: str = "") -> Turn:
        self.model.script(answers)
        before = len(self.model.requests)
        resumed = [f"--resume={session}"] if session else []
        words: list[str | Path] = [self.binary, "-p", prompt, "--output-format", "json", *self.mode, *resumed]
        printed, complaint = self.finished(words)
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        (opened,) = [event["sessionId"] for event in events if event["type"] == "result"]
        return Turn(opened, self.asked(before), printed + complaint)

    @contextmanager
    def open(self, session: str = "") -> Iterator[Talk]:
        words = [str(self.binary), *([f"--resume={session}"] if session else [])]
        with Terminal(words, cwd=self.project, environment=self.environment()) as terminal:
            terminal.wait_for(READY)
            try:
                yield CopilotTalk(self, terminal)
            finally:
                terminal.kill()


class CopilotTalk(TypedTalk):
    """It says of a compaction in its file alone that it is over."""

    ready = READY
    compacts, compacted = "/compact", READY

    def compact(self) -> None:
        super().compact()
        wait_until(lambda: "session.compaction_complete" in self.events().read_text(encoding="utf-8"), "compacted")

    def clear(self) -> None:
        super().clear()
        self.terminal.wait_for("Started a fresh session", READY)  # keys that come before are lost

    def events(self) -> Path:
        """Give the newest session's file."""
        found = (self.client.home / ".copilot" / "session-state").glob("*/events.jsonl")
        return max(found, key=os.path.getmtime)

    def session(self) -> str:
        return self.events().parent.name
