"""Claude Code, by the driver of its own tests, with what the others' adapters offer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.e2e.assistant import Assistant, Conversation, Machine
from tests.e2e.clients.client import Client, Talk, Turn
from tests.e2e.clients.models import Asked, Says
from tests.e2e.scripted_api import Reply, Request, ScriptedApi, bash, reply
from tests.helpers import bytecode

ALLOWED = "Bash(loomctl:*),Bash(true),Bash(seq:*),Bash(cp:*)"


class Claude(Client):
    """Its API is scripted in its own form; requests are turned into those of the others' models."""

    host = "claude-code"
    folder = "claude-code-2.1.330"
    compacts_at = 990_000

    def prepare(self) -> None:
        """Make a machine as its own tests have it."""
        self.api = ScriptedApi()
        machine = Machine(root=self.root / "machine", cache=self.cache, extra={"LOOM_STATE_HOME": str(self.state)})
        self.assistant = Assistant(
            binary=str(self.program(".bin", "claude")), machine=machine, project=self.project, api=self.api,
            plugin_dir=None,
        )  # fmt: skip

    @property
    def state(self) -> Path:
        return self.home / ".local" / "state" / "loom"

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "LOOM_STATE_HOME": str(self.state)}

    def start_model(self) -> None:
        self.api.__enter__()

    def stop_model(self) -> None:
        self.api.__exit__(None, None, None)

    def kind(self, body: dict[str, Any]) -> str:  # noqa: ARG002 - its own API tells, before its requests come here
        return "main"

    def shell_tool(self, command: str) -> tuple[str, dict[str, Any]]:
        return "Bash", {"command": command}

    def install(self) -> None:
        """Add the marketplace and the plugin."""
        self.assistant.plugin("marketplace", "add", str(self.bundle))
        self.assistant.plugin("install", "loom@loom")
        self._share_compiled()

    def silence_hooks(self) -> None:
        """Switch them off in the user's settings."""
        place = self.assistant.machine.config / "settings.json"
        kept = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
        place.write_text(json.dumps({**kept, "disableAllHooks": True}), encoding="utf-8")

    def renew(self) -> None:
        self.assistant.plugin("marketplace", "update", "loom")
        self.assistant.plugin("update", "loom@loom")
        self._share_compiled()

    def _share_compiled(self) -> None:
        self.compiled |= {*bytecode.share_installed(self.cache, self.assistant.machine.config / "plugins")}

    def tell(self, prompt: str, *answers: Says | str, session: str = "") -> Turn:
        replies = [self._reply(one) for one in answers]
        turn = self.assistant.run(
            prompt, answers=replies, resume=session or None, allowed_tools=ALLOWED, watch_hooks=True
        )  # fmt: skip
        shown = "\n".join([*turn.told_user(), turn.answer])
        return Turn(turn.session_id, tuple(map(_asked, turn.requests)), shown)

    def drive(self, words: str, says: Sequence[Says | str]) -> Turn:
        """Begin a run: the command's body runs `loomctl run` itself."""
        return self.tell(self.typed("run", words), Says(shell="loomctl next"), *says)

    def move_to(self, project: Path) -> None:
        super().move_to(project)
        self.assistant = replace(self.assistant, project=project)

    def asked(self, before: int) -> tuple[Asked, ...]:
        return tuple(map(_asked, self.api.requests[before:]))

    @contextmanager
    def open(self, session: str = "") -> Iterator[Talk]:
        resumed = ["--resume", session] if session else []
        conversation = self.assistant.conversation("--allowedTools", ALLOWED, *resumed)
        try:
            yield ClaudeTalk(self, conversation)
        finally:
            conversation.kill()

    def _reply(self, said: Says | str) -> Reply:
        said = Says(said) if isinstance(said, str) else said
        blocks: list[Any] = [*([said.words] if said.words else []), *([bash(said.shell)] if said.shell else [])]
        return reply(*blocks, usage={"input_tokens": said.tokens} if said.tokens else None)


class ClaudeTalk(Talk):
    """One process that takes prompts."""

    def __init__(self, client: Claude, conversation: Conversation) -> None:
        self.client, self.conversation = client, conversation

    def say(self, prompt: str, *answers: Says | str) -> Turn:
        requests, shown = self.conversation.say(prompt, *map(self.client._reply, answers))
        return Turn(self.conversation.session_id, tuple(map(_asked, requests)), "\n".join(shown))

    def compact(self) -> None:
        self.say("/compact")

    def clear(self) -> None:
        self.say("/clear")


def _asked(request: Request) -> Asked:
    return Asked(request.kind, {"system": request.system(), "messages": request.body.get("messages", [])})
