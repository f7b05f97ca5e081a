"""A `claude` that a shell script plays: its turns are shell text, and it speaks stream-json like the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers.scenes import MAIN
from tests.helpers.waiting import Gate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.helpers.scenes import Json, Scene

STEPS = [{"id": "one", "prompt": "Make it."}, {"id": "two", "prompt": "Look at it."}]
_PROGRAM = """\
#!/bin/sh
# What a part of the play may say; $turn counts from 1, and the last part is played again and again.
session=
while [ $# -gt 0 ]; do
    case $1 in
        --session-id | --resume) session=$2 ;;
        -p) run=${{2#/loom:resume }} ;;
    esac
    shift
done
export CLAUDE_CODE_SESSION_ID="$session" CLAUDECODE=1
pwd >>'{folder}/places'
turn=$(($(cat '{folder}/turns' 2>/dev/null || echo 0) + 1))
echo $turn >'{folder}/turns'
loomctl() {{ '{python}' -I '{main}' "$@"; }}
ends() {{ echo "${{1:-It is done.}}" | loomctl done >>'{folder}/said' 2>&1; }}
calls() {{
    printf '{{"type":"assistant","message":{{"id":"%s","usage":{{"input_tokens":1200,"output_tokens":34}},' "m$1"
    printf '"content":[{{"type":"tool_use","id":"%s","name":"Bash","input":{{"command":"%s"}}}}]}}}}\\n' "$1" "$2"
}}
refused() {{
    calls "$1" "$2"
    printf '{{"type":"system","subtype":"permission_denied","tool_use_id":"%s","tool_name":"Bash"}}\\n' "$1"
}}
over() {{
    printf '{{"type":"result","subtype":"success","is_error":false,"total_cost_usd":%s,"result":"ok"}}\\n' "$1"
}}
printf '{{"type":"system","subtype":"init","session_id":"%s"}}\\n' "$session"
loomctl resume "$run" >>'{folder}/said' 2>&1
. '{folder}/part'
"""


class FakeAssistant:
    """Stands on PATH as `claude` beside a project; `play` says what it does in its turns."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.folder = scene.root.parent / "fake"
        self.folder.mkdir()
        self.children: list[subprocess.Popen[str]] = []
        program = self.folder / "claude"
        known = {"folder": self.folder, "python": sys.executable, "main": MAIN}
        program.write_text(_PROGRAM.format(**known), encoding="utf-8")
        program.chmod(0o755)

    def play(self, part: str) -> None:
        """Say in shell what a turn does: `case $turn in 1) …`."""
        (self.folder / "part").write_text(part, encoding="utf-8")

    @property
    def turns(self) -> int:
        path: Path = self.folder / "turns"
        return int(path.read_text(encoding="utf-8") or 0) if path.exists() else 0  # empty while it is written

    @property
    def is_at_work(self) -> bool:
        """Tell whether it has taken the run up."""
        said = self.folder / "said"
        return said.exists() and "resumed" in said.read_text(encoding="utf-8")

    @property
    def path(self) -> str:
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command as a person's shell does, without a terminal."""
        child = subprocess.Popen(
            [sys.executable, "-I", str(MAIN), *words], cwd=self.scene.root,
            env={**self.scene.environ(None), "PATH": self.path}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    def close(self) -> None:
        """Kill what still runs: its keeper ends the rest."""
        for child in self.children:
            child.kill()
            for stream in (child.stdout, child.stderr):
                if stream is not None:
                    stream.close()
            child.wait()

    def ends(self, child: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
        """Wait until a command ends as it should; gives both its streams."""
        out, err = child.communicate(timeout=60)
        assert child.returncode == code, f"{child.returncode}:\n{out}\n{err}"
        return out, err

    def drives(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Drive to the end."""
        return self.ends(self.start("drive", *words), code)


def documents(out: str) -> list[Json]:
    """Read JSON documents, one a line."""
    return [json.loads(line) for line in out.splitlines()]


# ---- Fixtures of the rooms that play with it.


@pytest.fixture
def fake(scene: Scene) -> Iterator[FakeAssistant]:
    """One on PATH beside a project with a workflow of two steps."""
    scene.workflow(phases={"build": {"steps": STEPS}})
    made = FakeAssistant(scene)
    yield made
    made.close()


@pytest.fixture
def gate(scene: Scene) -> Gate:
    """Something to wait for in a play."""
    return Gate(scene.root.parent / "gate")
