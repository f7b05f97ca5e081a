"""A real terminal (tmux) in which a program is typed at and its screen is read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from tests.e2e.assistant import API_KEY, Assistant

PROMPT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
"""What stands before the cursor when the assistant waits for its user."""


class Terminal:
    """A program in a tmux server of its own, which ends with the `with` block."""

    def __init__(self, command: Sequence[str], *, cwd: Path, environment: dict[str, str]) -> None:
        self._command = command
        self._cwd = cwd
        self._environment = {**environment, "TERM": "xterm-256color"}
        # A socket's path may have about 100 characters; a test's folder is often longer.
        self._folder = tempfile.TemporaryDirectory(prefix="loom-tmux-")

    def __enter__(self) -> Terminal:
        self._tmux("new-session", "-d", "-x", "160", "-y", "50", "-c", str(self._cwd), *self._command)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tmux("kill-server", check=False)
        self._folder.cleanup()

    def pid(self) -> int:
        """Give the program's process."""
        return int(self._tmux("list-panes", "-F", "#{pane_pid}"))

    def screen(self) -> str:
        """Give what stands on the screen and above it, wrapped lines joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-1000", check=False)

    def visible(self) -> str:
        """Give what stands on the screen alone."""
        return self._tmux("capture-pane", "-p", check=False)

    def type(self, line: str) -> None:
        """Type words, and no Enter."""
        self._tmux("send-keys", "-l", line)

    def enter(self, line: str) -> None:
        """Type a line and press Enter until the prompt has let it go: on a slow machine Enter passes for a paste's."""
        self.type(line)
        self.wait_for(line.removeprefix("! ")[-20:])
        deadline = time.monotonic() + 60
        while True:
            time.sleep(0.3)
            self.press("Enter")
            for _ in range(20):
                if not self._is_typed(line):
                    return
                time.sleep(0.1)
            assert time.monotonic() < deadline, f"it stays at the prompt:\n{self.screen()}"

    def _is_typed(self, line: str) -> bool:
        """Tell whether a line still stands at the prompt, the last one on the screen; of one behind a ! nobody can."""
        prompts = [row for row in self.screen().split("\n") if row.lstrip().startswith(PROMPT)]
        return bool(prompts) and line in prompts[-1]

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def press_until_gone(self, key: str, words: str) -> None:
        """Press a key until words that stand on the screen are gone: a dialog takes no keys in its first moment."""
        deadline = time.monotonic() + 60
        while words in (screen := self.screen()):
            assert time.monotonic() < deadline, f"{key} changes nothing:\n{screen}"
            self.press(key)
            time.sleep(0.5)

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def kill(self) -> None:
        """Kill the program and wait until it is gone: one that only loses its terminal writes on for a while."""
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        self.wait_until(lambda: not Path(f"/proc/{pid}").exists())

    def wait_for(self, *words: str, within: float = 60) -> str:
        deadline = time.monotonic() + within
        while True:
            screen = self.screen()
            missing = [word for word in words if word not in screen]
            if not missing:
                return screen
            assert time.monotonic() < deadline, f"{missing} not on the screen:\n{screen}"
            time.sleep(0.1)

    def wait_until(self, holds: Callable[[], bool], within: float = 60) -> None:
        deadline = time.monotonic() + within
        while not holds():
            assert time.monotonic() < deadline, f"it does not come to hold:\n{self.screen()}"
            time.sleep(0.1)

    def _tmux(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(Path(self._folder.name, "socket")), "-f", "/dev/null", *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
        )
        return done.stdout


def assistant_terminal(assistant: Assistant, *words: str) -> Terminal:
    """Start the assistant in a terminal, past its first-start dialogs."""
    settings = assistant.machine.config / ".claude.json"
    known = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
    project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    known |= {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "lastOnboardingVersion": "2.1.330",
        "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
        "projects": {**known.get("projects", {}), str(assistant.project): project},
    }
    settings.write_text(json.dumps(known), encoding="utf-8")
    return Terminal(assistant.command_line(*words), cwd=assistant.project, environment=assistant.environment())
