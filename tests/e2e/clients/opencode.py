"""OpenCode: `opencode run` for single prompts, its terminal for a session that stays open, a server for driven runs."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sqlite3
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.clients.client import TIME_LIMIT, Client, Talk, Turn, wait_until
from tests.e2e.clients.models import Says
from tests.e2e.terminal import Terminal

_marks = itertools.count(1)
TOAST = "┃  Loom: run"
QUIET = 4.0  # seconds without a request after which a driven run goes no further


class OpenCode(Client):
    """Its plugins' folder gets the one file.

    At each start it has npm install the types of its plugins; they pass for installed, else a client that is killed
    meanwhile would leave a lock for which the next one waits a minute.
    """

    host = "opencode"
    folder = "opencode-1.18.33"
    compacts_at = 99_000
    shows_lines = False  # a toast, which a terminal alone shows

    def __init__(self, bundle: Path, cache: Path, *, beside: Client | None = None) -> None:
        self.calls: dict[str, tuple[str, dict[str, Any]]] = {}
        super().__init__(bundle, cache, beside=beside)

    @property
    def binary(self) -> Path:
        return self.program("opencode-linux-x64/bin/opencode")

    @property
    def settings(self) -> Path:
        return self.home / ".config" / "opencode"

    @property
    def plugin(self) -> Path:
        return self.settings / "plugin" / "loom.js"

    def kind(self, body: dict[str, Any]) -> str:
        """Tell a summary and a title by their words; both have no tools."""
        if body.get("tools"):
            return "main"
        return "compaction" if "summary process" in json.dumps(body.get("messages", [])[-1:]) else "title"

    def shell_tool(self, command: str) -> tuple[str, dict[str, Any]]:
        """Give its shell's call, or another tool's that a test has named so."""
        if command in self.calls:
            return self.calls[command]
        return "bash", {"command": command, "description": "A command", "timeout": 60_000}

    def environment(self) -> dict[str, str]:
        """Let it ask nobody else, know no other model, and compile nothing for long runs: its processes are short."""
        switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "FFF")
        own = {f"OPENCODE_DISABLE_{name}": "1" for name in switches}
        own |= {"BUN_JSC_useFTLJIT": "0", "OPENCODE_MODELS_PATH": str(self.settings / "models.json")}
        return {**super().environment(), **own}

    def install(self) -> None:
        """Write its settings, and let Loom write its one file."""
        folder = self.settings
        (folder / "node_modules").mkdir(parents=True)
        installed = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "1.18.33"}}}}
        (folder / "package-lock.json").write_text(json.dumps(installed), encoding="utf-8")
        (folder / "models.json").write_text("{}", encoding="utf-8")
        state = self.home / ".local" / "state" / "opencode"
        state.mkdir(parents=True)
        (state / "kv.json").write_text('{"animations_enabled": false}', encoding="utf-8")
        limit = {"context": 100_000, "output": 8_000}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "models": {"m": {"name": "m", "limit": limit}},
        }
        provider["options"] = {"baseURL": f"{self.model.url}/v1", "apiKey": "dummy"}
        settings = {"autoupdate": False, "share": "disabled", "enabled_providers": ["scripted"]}
        models = {"model": "scripted/m", "small_model": "scripted/m", "provider": {"scripted": provider}}
        (folder / "opencode.json").write_text(json.dumps({**settings, **models}), encoding="utf-8")
        self.renew()

    def renew(self) -> None:
        self.loomctl("plugin", "install", "opencode", "--yes")

    def silence_hooks(self) -> None:
        self.plugin.unlink()

    def tell(self, prompt: str, *answers: Says | str, session: str = "") -> Turn:
        self.model.script(answers)
        before = len(self.model.requests)
        resumed = ["--session", session] if session else []
        printed, complaint = self.finished([self.binary, "run", "--format", "json", *resumed, prompt])
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        assert events, complaint
        return Turn(events[0]["sessionID"], self.asked(before), printed + complaint)

    def drive(self, words: str, says: Sequence[Says | str]) -> Turn:
        """Begin a run with the slash command, which runs `loomctl run` itself, in a server: `run` ends when idle."""
        self.model.script([Says(shell="loomctl next"), *says])
        before = len(self.model.requests)
        with self.server() as ask:
            session = ask("/session", {})["id"]
            ask(f"/session/{session}/command", {"command": "loom:run", "arguments": words})
            self.rest()
        return Turn(session, self.asked(before))

    def rest(self, quiet: float = QUIET) -> None:
        """Wait until nothing more is asked of the model. quiet: seconds for which nothing is."""
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < quiet:
            if len(self.model.requests) != seen:
                seen, since = len(self.model.requests), time.monotonic()
            time.sleep(0.1)

    @contextmanager
    def server(self) -> Iterator[Any]:
        """Start a server; gives what asks it: a path, and a body to post. It is killed when the block ends."""
        with self.started([self.binary, "serve", "--port", "0"]) as process:
            assert process.stdout is not None
            said = ""
            while (at := re.search(r"http://127\.0\.0\.1:\d+", said)) is None:
                line = process.stdout.readline()
                assert line, f"no server: {said}"
                said += line
            url = at[0]

            def ask(path: str, body: Any = None) -> Any:
                data = None if body is None else json.dumps(body).encode()
                request = urllib.request.Request(url + path, data=data, headers={"content-type": "application/json"})
                with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
                    return json.loads(answer.read() or b"null")

            yield ask

    @contextmanager
    def open(self, session: str = "") -> Iterator[Talk]:
        words = [str(self.binary), *(["--session", session] if session else [])]
        with Terminal(words, cwd=self.project, environment=self.environment()) as terminal:
            terminal.wait_for("ctrl+p commands")
            try:
                yield OpenCodeTalk(self, terminal)
            finally:
                os.kill(terminal.pid(), signal.SIGKILL)

    def newest(self) -> str:
        """Give the session that was last written to."""
        with sqlite3.connect(self.home / ".local" / "share" / "opencode" / "opencode.db") as opened:
            asked = "SELECT id FROM session WHERE parent_id IS NULL ORDER BY time_updated DESC LIMIT 1"
            (found,) = opened.execute(asked).fetchone()
        return str(found)


class OpenCodeTalk(Talk):
    """A session in its terminal. Each answer ends with a word of its own, by which the end of the turn is seen."""

    def __init__(self, client: OpenCode, terminal: Terminal) -> None:
        self.client, self.terminal = client, terminal

    def say(self, prompt: str, *answers: Says | str) -> Turn:
        before, mark = len(self.client.model.requests), f"Word{next(_marks)}end"
        given = answers or ("OK",)
        last = given[-1] if isinstance(given[-1], Says) else Says(given[-1])
        self.client.model.script([*given[:-1], Says(f"{last.words} {mark}", last.shell, last.tokens)])
        self.type(prompt)
        toasts = self.wait_for(mark)
        time.sleep(1)  # the turn's end is told to Loom then
        shown = "\n".join([*toasts, self.terminal.screen()])
        return Turn(self.client.newest(), self.client.asked(before), shown)

    def wait_for(self, word: str) -> list[str]:
        """Wait for a word on the screen; give the first screen before it with a toast of Loom's: it goes again."""
        toasts: list[str] = []
        deadline = time.monotonic() + TIME_LIMIT
        while word not in (screen := self.terminal.screen()):
            assert time.monotonic() < deadline, f"{word} not on the screen:\n{screen}"
            toasts += [screen] if TOAST in screen and not toasts else []
            time.sleep(0.1)
        return toasts

    def compact(self) -> None:
        before = len(self.client.model.requests)
        self.type("/compact")
        wait_until(lambda: [one for one in self.client.asked(before) if one.kind == "compaction"], "compacted")
        self.terminal.wait_for("Compaction ·")
        time.sleep(1)

    def clear(self) -> None:
        self.type("/new")
        self.terminal.wait_for("Ask anything")

    def type(self, line: str) -> None:
        """Type a line and send it: an Enter that comes with the words passes for a paste's, or for a command's name."""
        self.terminal.type(line)
        self.terminal.wait_for(line[-20:])
        time.sleep(1)
        self.terminal.press("Enter")
