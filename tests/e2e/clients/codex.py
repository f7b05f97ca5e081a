"""Codex CLI: `codex exec` for single prompts, its terminal for a session that stays open."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.clients.client import Client, Talk, Turn
from tests.e2e.clients.models import Says
from tests.e2e.clients.typed import TypedTalk
from tests.e2e.terminal import Terminal
from tests.helpers import bytecode

SETTINGS = """\
model = "gpt-5.1"
model_provider = "scripted"
check_for_update_on_startup = false
web_search = "disabled"
model_context_window = 100000
model_auto_compact_token_limit = 50000
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
requires_openai_auth = false
supports_websockets = false
[analytics]
enabled = false
[feedback]
enabled = false
[otel]
exporter = "none"
[projects."{project}"]
trust_level = "trusted"
"""

HOOKS = """\
printf '%s\\n' '{{"id": 0, "method": "initialize", "params": {{"clientInfo": {{"name": "tests", "version": "1"}}}}}}' \\
    '{{"method": "initialized"}}' '{{"id": 1, "method": "hooks/list", "params": {{"cwds": ["{cwd}"]}}}}'
sleep 3
"""


class Codex(Client):
    """Hooks are trusted by the flag that is meant for automation; who trusts them is a test of its own."""

    host = "codex"
    folder = "codex-0.169.0"
    shows_lines = False
    tells_failures = False  # no hook of its hears an exit code, so what a command says is all that is known
    trusted: tuple[str, ...] = ("--dangerously-bypass-hook-trust",)

    @property
    def binary(self) -> Path:
        (found,) = self.program("@openai").glob("codex-*/vendor/*/bin/codex")
        return found

    def kind(self, body: dict[str, Any]) -> str:
        """Tell a summary, and the terminal's question for a title, by their words."""
        told = json.dumps(body.get("input", [])[-1:]) + str(body.get("instructions", ""))[:200]
        if "CONTEXT CHECKPOINT" in told:
            return "compaction"
        return "title" if "single-line task title" in json.dumps(body) else "main"

    def shell_tool(self, command: str) -> tuple[str, dict[str, Any]]:
        """Give its shell's call; a command gets the time that a machine under load takes."""
        return "exec_command", {"cmd": command, "yield_time_ms": 30_000}

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "SCRIPTED_KEY": "dummy"}

    def install(self) -> None:
        """Add the marketplace and the plugin."""
        (self.home / ".codex").mkdir()
        settings = SETTINGS.format(url=self.model.url, project=self.project)
        (self.home / ".codex" / "config.toml").write_text(settings, encoding="utf-8")
        self.command(self.binary, "plugin", "marketplace", "add", self.bundle)
        self.renew()

    def trust(self) -> None:
        """Trust each hook as its user does at a start; then its terminals share a process in the background."""
        asks = HOOKS.format(cwd=self.project)
        said = self.command("sh", "-c", f"({asks}) | {shlex.quote(str(self.binary))} app-server")
        (told,) = [json.loads(line) for line in said.splitlines() if line.startswith('{"id":1,')]
        lines = []
        for hook in (one for listed in told["result"]["data"] for one in listed["hooks"]):
            whole, _, content = hook["currentHash"].partition("/")
            lines += [f"[hooks.state.{json.dumps(hook['key'])}]", f'trusted_hash = "{whole}"']
            lines += [f'trusted_content_hash = "{content}"'] if content else []
        settings = self.home / ".codex" / "config.toml"
        settings.write_text("\n".join([settings.read_text(encoding="utf-8"), *lines, ""]), encoding="utf-8")
        self.trusted = ()

    def end_background(self) -> None:
        """End the process in the background, and the one that updates it."""
        self.command(self.binary, "app-server", "daemon", "stop", check=False)
        named = self.home / ".codex" / "app-server-daemon" / "daemon-updater.pid"
        if named.exists():
            os.kill(json.loads(named.read_text(encoding="utf-8"))["pid"], signal.SIGKILL)
        shutil.rmtree(self.home / ".codex" / "packages", ignore_errors=True)  # its own copy of the program

    def silence_hooks(self) -> None:
        """Trust none."""
        self.trusted = ()

    def renew(self) -> None:
        """Add the plugin, which takes the place of an older one."""
        self.command(self.binary, "plugin", "add", "loom@loom")
        self.compiled |= {*bytecode.share_installed(self.cache, self.home / ".codex" / "plugins")}

    def tell(self, prompt: str, *answers: Says | str, session: str = "") -> Turn:
        self.model.script(answers)
        before = len(self.model.requests)
        resumed = ["resume", session] if session else []
        printed, complaint = self.finished([self.binary, "exec", "--json", *self.trusted, *resumed, prompt])
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        (opened,) = [event["thread_id"] for event in events if event["type"] == "thread.started"]
        return Turn(opened, self.asked(before), printed + complaint)

    def move_to(self, project: Path) -> None:
        """Work in another folder, which is trusted, too."""
        super().move_to(project)
        settings = self.home / ".codex" / "config.toml"
        said = settings.read_text(encoding="utf-8")
        if f'"{project}"' not in said:
            settings.write_text(f'{said}[projects."{project}"]\ntrust_level = "trusted"\n', encoding="utf-8")

    def come_back(self, moment: str) -> bool:
        self.trusted = Codex.trusted
        return super().come_back(moment)

    @contextmanager
    def open(self, session: str = "") -> Iterator[Talk]:
        resumed = ["resume", session] if session else []
        words = [str(self.binary), *self.trusted, *resumed]
        with Terminal(words, cwd=self.project, environment=self.environment()) as terminal:
            talk = CodexTalk(self, terminal)
            terminal.wait_for("Ask Codex")
            try:
                yield talk
            finally:
                terminal.kill()


class CodexTalk(TypedTalk):
    """What it offers stands on the screen in the middle of a turn, too."""

    ready = ""
    compacts, compacted = "/compact", "ompacted"

    def session(self) -> str:
        """Give the id in the newest rollout's name."""
        found = (self.client.home / ".codex" / "sessions").glob("*/*/*/rollout-*.jsonl")
        newest = max(found, key=os.path.getmtime)
        return newest.stem.split("-", 6)[-1]
