"""The driver on a machine, as its user starts it: what the tests of driven runs share (D73-D77)."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import Any

import psutil

from tests.e2e.assistant import TIME_LIMIT, Assistant

WORKFLOW = """
id: two
description: Two steps.
autonomy: autonomous
phases:
  build:
    steps:
      - {id: write, prompt: "Write a file."}
      - {id: check, prompt: "Check it."}
"""
DIRECTIVE = '{"outcome": "succeeded"}'


class Drive:
    """The driver on a machine, as its user starts it."""

    def __init__(self, assistant: Assistant) -> None:
        self.assistant, self.machine, self.project = assistant, assistant.machine, assistant.project
        programs = self.machine.root / "bin"
        programs.mkdir(exist_ok=True)
        plugin = assistant.plugin_dir
        assert plugin is not None
        self.wrap('exec {claude} "$@"')
        (programs / "loomctl").symlink_to(plugin / "bin" / "loomctl")
        (self.project / ".loom" / "workflows").mkdir(parents=True)
        self.environment = assistant.environment()
        self.environment["PATH"] = f"{programs}:{self.environment['PATH']}"

    def wrap(self, script: str) -> None:
        """Let a shell script stand for the assistant, which itself is {claude} in it."""
        program = self.machine.root / "bin" / "claude"
        claude = f'{self.assistant.binary} --plugin-dir "{self.assistant.plugin_dir}"'
        program.write_text(f"#!/bin/sh\n{script.replace('{claude}', claude)}\n", encoding="utf-8")
        program.chmod(0o755)

    def workflow(self, text: str = WORKFLOW, name: str = "two") -> None:
        (self.project / ".loom" / "workflows" / f"{name}.yaml").write_text(text, encoding="utf-8")

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["loomctl", *words], cwd=self.project, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def loomctl(self, *words: str, code: int | None = 0) -> str:
        process = self.start(*words)
        out, err = process.communicate(timeout=TIME_LIMIT)
        assert code is None or process.returncode == code, f"{words} gave {process.returncode}:\n{out}\n{err}"
        return out + err

    def state(self) -> dict[str, Any]:
        (folder,) = (self.project / ".loom" / "runs").iterdir()
        found: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return found

    def events(self) -> list[dict[str, Any]]:
        (folder,) = (self.project / ".loom" / "runs").iterdir()
        return [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]


def running(marker: str) -> list[psutil.Process]:
    """Give the processes that have these words, alone, among those of their command line."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if marker in one.cmdline():
                found.append(one)
    return found
