"""Loom's own processes under limits of memory and processor time, so that what grows without end fails the test."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers.scenes import CHECKOUT, MAIN, SESSION, Ended, Scene

MEMORY = 2 << 30  # bytes of address space
SECONDS = 20  # of processor time, for a command; what is asked here takes a tenth of it


def patience(event: str) -> int:
    """Give the seconds that hooks/claude-code.json allows a host to wait for an event's answer."""
    groups = json.loads((CHECKOUT / "hooks/claude-code.json").read_text())["hooks"].values()
    told: dict[str, float] = {
        entry["command"].partition(" --host claude-code ")[2].split()[0]: entry["timeout"]
        for of_event in groups
        for group in of_event
        for entry in group["hooks"]
    }
    return math.ceil(told.get(event, told["pre-tool-use"]))  # one that another host alone has stands before a call, too


def run(
    command: list[str], *, cwd: Path, environ: dict[str, str], given: bytes | None = None, seconds: int = SECONDS
) -> Ended:
    """Run a command under the limits; what the system had to end has a negative code."""
    limits = ["/bin/sh", "-c", f'ulimit -v {MEMORY >> 10}; ulimit -t {seconds}; exec "$@"', "sh"]
    with subprocess.Popen(
        [*limits, *command],
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        stdout, stderr = child.communicate(given)
    return Ended(child.returncode, stdout.decode("utf-8"), stderr.decode("utf-8", "replace"))


def loomctl(scene: Scene, *arguments: str, given: bytes | None = None, session: str | None = SESSION) -> Ended:
    command = [sys.executable, "-I", str(MAIN), *arguments]
    return run(command, cwd=scene.root, environ=scene.environ(session), given=given)


def hook(scene: Scene, event: str, given: bytes | None = None, *, session: str = SESSION, **told: Any) -> Ended:
    """Answer a hook event as a host asks for it: by the launcher, with the event's own time. given: standard input."""
    body = {"session_id": session, "cwd": str(scene.root), "transcript_path": "", "hook_event_name": event, **told}
    command = [str(CHECKOUT / "bin/loomctl"), "hook", event]
    data = json.dumps(body).encode() if given is None else given
    environ = {**scene.environ(session), "LOOM_PYTHON": sys.executable}
    return run(command, cwd=scene.root, environ=environ, given=data, seconds=patience(event))


def in_good_order(ended: Ended, *, as_json: bool = False) -> str:
    """Make sure that a command ended with an exit code of D52 and no traceback; gives the error's code, or ""."""
    assert ended.code in range(9), (ended.code, ended.stderr[-2000:])
    assert "Traceback" not in ended.stdout + ended.stderr
    if as_json:
        return str(ended.json.get("error", {}).get("code", ""))
    said = ended.stderr.removeprefix("loomctl: ")
    return said.partition(":")[0] if ended.stderr else ""


def fails_open(ended: Ended) -> str:
    """Make sure that a hook ended with 0, with nothing or one JSON document and no traceback; gives its message."""
    assert ended.code == 0, (ended.code, ended.stderr[-2000:])
    assert ended.stderr == ""
    if not ended.stdout:
        return ""
    document = json.loads(ended.stdout) if ended.stdout.startswith("{") else {}
    return str(document.get("systemMessage", ""))
