"""Drives the real assistant: a machine made from nothing, a project on it, one prompt at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.scripted_api import Reply, Request, ScriptedApi, reply

TIME_LIMIT = 60
"""Seconds that one prompt may take."""

API_KEY = "sk-ant-scripted-0123456789-0123456789"

LOOMCTL_ALLOWED = "Bash(loomctl:*)"
"""The permission that a Loom command gives for its turn."""


def searched_folders() -> str:
    """Give PATH without folders that hold a loomctl: the bundle's stands last and must be the one that is found."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not Path(folder, "loomctl").exists())


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One user's machine. Nothing of the real one reaches it but PATH and Loom's prepared packages (cache)."""

    root: Path
    cache: Path
    name: str = "machine-a"
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.home, self.config, self.temp):
            folder.mkdir(parents=True, exist_ok=True)
        settings = "[user]\n\tname = A Tester\n\temail = tester@example.invalid\n[init]\n\tdefaultBranch = main\n"
        (self.home / ".gitconfig").write_text(settings, encoding="utf-8")

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def temp(self) -> Path:
        return self.root / "temp"

    def environment(self) -> dict[str, str]:
        """Give the whole environment of a process on this machine."""
        return {
            "PATH": searched_folders(), "HOME": str(self.home), "TMPDIR": str(self.temp), "LANG": "C.UTF-8",
            "XDG_CACHE_HOME": str(self.cache), "LOOM_HOSTNAME": self.name,
            "LOOM_STATE_HOME": str(self.root / "state"), **self.extra,
        }  # fmt: skip

    def command(self, *words: str, cwd: Path) -> str:
        """Run a program as the user would in a terminal; give what it printed. Raises if it failed."""
        done = subprocess.run(
            words, cwd=cwd, env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=TIME_LIMIT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words} gave {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def project(self, name: str = "project") -> Path:
        folder = self.root / name
        folder.mkdir()
        (folder / "README.md").write_text("# A project\n", encoding="utf-8")
        for words in (["init", "-q"], ["add", "README.md"], ["commit", "-q", "-m", "Start"]):
            self.command("git", *words, cwd=folder)
        return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one prompt led to. result is the assistant's own JSON; events is its stream if that was asked for."""

    result: dict[str, Any]
    requests: tuple[Request, ...]
    events: tuple[dict[str, Any], ...]
    transcript: Path

    @property
    def session_id(self) -> str:
        return str(self.result["session_id"])

    @property
    def answer(self) -> str:
        return str(self.result["result"])

    @property
    def conversation(self) -> list[Request]:
        """The requests of the conversation itself, summaries and side calls left out."""
        return [request for request in self.requests if request.kind == "main"]

    def hook_answers(self, event: str) -> list[dict[str, Any]]:
        """Give the JSON that hooks of an event printed, in order; needs run(…, watch_hooks=True)."""
        outputs = [
            happening["stdout"].strip()
            for happening in self.events
            if happening.get("subtype") == "hook_response" and happening.get("hook_event") == event
        ]
        return [json.loads(output) for output in outputs if output]

    def told_user(self) -> list[str]:
        """Give the lines that hooks showed to the user; needs run(…, watch_hooks=True)."""
        hooks = [happening for happening in self.events if happening.get("subtype") == "hook_response"]
        printed = [json.loads(hook["stdout"]) for hook in hooks if hook["stdout"].strip().startswith("{")]
        return [answer["systemMessage"] for answer in printed if "systemMessage" in answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """The real assistant on a machine, in a project. plugin_dir None: what is installed there is what it has."""

    binary: str
    machine: Machine
    project: Path
    api: ScriptedApi
    plugin_dir: Path | None

    def environment(self) -> dict[str, str]:
        return {
            **self.machine.environment(),
            "CLAUDE_CONFIG_DIR": str(self.machine.config),
            "CLAUDE_CODE_TMPDIR": str(self.machine.temp),
            "ANTHROPIC_API_KEY": API_KEY,
            "ANTHROPIC_BASE_URL": self.api.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            # Its processes are short: what is compiled for long runs costs more than it gives back.
            "BUN_JSC_useDFGJIT": "0",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            # Whatever would leave this machine ends at a port where nobody listens.
            "HTTP_PROXY": "http://127.0.0.1:9",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def command_line(self, *words: str) -> list[str]:
        plugin = [] if self.plugin_dir is None else ["--plugin-dir", str(self.plugin_dir)]
        return [self.binary, *plugin, *words]

    def run(
        self,
        prompt: str,
        *,
        answers: Sequence[Reply | str] = (),
        resume: str | None = None,
        session_id: str | None = None,
        fork: bool = False,
        allowed_tools: str | None = None,
        extra_args: Sequence[str] = (),
        watch_hooks: bool = False,
        seconds: int = TIME_LIMIT,
    ) -> Turn:
        """Give the assistant one prompt and wait until it has ended.

        answers: what the scripted model says; "OK" when they have run out.
        resume, session_id, fork: which conversation; a new one by default. seconds: how long it may take.
        """
        self.api.script(*answers)
        before = len(self.api.requests)
        options = [
            *(["--resume", resume] if resume else []),
            *(["--session-id", session_id] if session_id else []),
            *(["--fork-session"] if fork else []),
            *(["--allowedTools", allowed_tools] if allowed_tools else []),
            *extra_args,
        ]
        form = ["stream-json", "--verbose", "--include-hook-events"] if watch_hooks else ["json"]
        words = self.command_line("-p", prompt, *options, "--output-format", *form)
        printed = _output(self._start(words), seconds)
        events = tuple(json.loads(line) for line in printed.splitlines())
        result = events[-1]
        assert result["type"] == "result", printed
        folders = (self.machine.config / "projects").glob(f"*/{result['session_id']}.jsonl")
        return Turn(
            result=result,
            requests=tuple(self.api.requests[before:]),
            events=events if watch_hooks else (),
            transcript=next(folders, self.machine.config / "projects" / "none"),
        )

    @contextmanager
    def working(self, prompt: str, *, resume: str) -> Iterator[None]:
        """Keep a session alive in the middle of a turn for the block; then it is killed, as by a crash."""
        held = threading.Event()
        self.api.script(reply("too late", held=held))
        before = len(self.api.requests)
        process = self._start(self.command_line("-p", prompt, "--resume", resume))
        try:
            deadline = time.monotonic() + TIME_LIMIT
            while len(self.api.requests) == before:
                assert process.poll() is None, "the session has ended before it asked anything"
                assert time.monotonic() < deadline, "the session asks nothing"
                time.sleep(0.02)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            held.set()

    def conversation(self, *words: str) -> Conversation:
        """Start a session that takes one prompt after the other until it is ended. words: more of its command line."""
        forms = (
            "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--include-hook-events",
        )  # fmt: skip
        return Conversation(self._start(self.command_line("-p", *forms, *words), told=True), self.api)

    def plugin(self, *words: str) -> str:
        """Run `claude plugin …`; give what it printed. Raises if it failed."""
        return _output(self._start([self.binary, "plugin", *words]))

    def _start(self, words: Sequence[str], *, told: bool = False) -> subprocess.Popen[str]:
        """Start the assistant in the project, leading a process group of its own. told: it reads what it is told."""
        return subprocess.Popen(
            words, cwd=self.project, env=self.environment(), stdin=subprocess.PIPE if told else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if told else subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip


class Conversation:
    """A session of the assistant that stays open for several prompts. session_id: of its last answer."""

    def __init__(self, process: subprocess.Popen[str], api: ScriptedApi) -> None:
        self._process, self._api = process, api
        self.session_id = ""

    def say(self, prompt: str, *answers: Reply | str) -> tuple[list[Request], list[str]]:
        """Give a prompt; returns the requests that it led to and the lines that hooks showed to the user.

        answers: what the scripted model says; "OK" when they have run out. Raises AssertionError if it ends.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._api.script(*answers)
        before, shown = len(self._api.requests), list[str]()
        stdin.write(json.dumps({"type": "user", "message": {"role": "user", "content": prompt}}) + "\n")
        stdin.flush()
        late = threading.Timer(TIME_LIMIT, self.kill)
        late.start()
        try:
            for line in stdout:
                event = json.loads(line)
                if event.get("subtype") == "hook_response" and event["stdout"].strip().startswith("{"):
                    shown += filter(None, [json.loads(event["stdout"]).get("systemMessage")])
                if event["type"] == "result":
                    self.session_id = event["session_id"]
                    return self._api.requests[before:], shown
        finally:
            late.cancel()
        raise AssertionError(f"the session ended at {prompt!r}")

    def ask(self, prompt: str, *answers: Reply | str) -> Request:
        """Give a prompt; returns the last request of the conversation itself that it led to."""
        return [request for request in self.say(prompt, *answers)[0] if request.kind == "main"][-1]

    def end(self) -> None:
        """Close it as its user would, and wait."""
        self._process.communicate(timeout=TIME_LIMIT)

    def kill(self) -> None:
        """End it and all that it started, as a crash would."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


def entries(transcript: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in transcript.read_text(encoding="utf-8").splitlines()]


def _output(process: subprocess.Popen[str], seconds: int = TIME_LIMIT) -> str:
    """Wait for the assistant; give its standard output. Ends it with all that it started when the time is up."""
    with process:
        try:
            printed, complaint = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, f"{process.args!r} gave {process.returncode}:\n{printed}\n{complaint}"
    return printed
