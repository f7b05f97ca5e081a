"""Fleets of several machines: clones of a bare remote, a home each, one queue; a stand-in drives, or the client."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from loomctl.runs.model.state import handle
from tests.e2e.assistant import Assistant, Machine
from tests.e2e.scripted_api import bash, reply
from tests.helpers.driven import PROMPTS
from tests.helpers.fleets import Fleet

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.e2e.scripted_api import ScriptedApi

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
IGNORED = "*\n!.gitignore\n!workflows/\n!workflows/*\n"

# A step's work, which gives the same bytes however often it is done, and only with what the steps before it left.
_PART = """
at="${STORE-.}/.loom/runs/${LOOM_DRIVEN%% *}/state.json" step=$(step)
goal=$(sed -n 's/^ "goal": "\\(.*\\)".*/\\1/p' "$at")
[ -n "$step" ] || exit 0
step=${step##*/}
while [ -e "$NOTES/hold" ]; do sleep 0.05; done
sleep "${PACE-0}"
mkdir -p parts
{ echo "$goal: $step"; seq 200; } >"parts/$step.txt"
cat parts/*.txt >whole.txt
if [ "${1-}" = ends ]; then
    printf 'It is done.\\n{"context_updates": {"%s": "%s"}}\\n' "$step" "$goal" |
        loomctl done --outcome succeeded --artifact "$step=parts/$step.txt"
else
    echo "The part is written"
fi
"""
_SAID = '{"outcome": "succeeded", "context_updates": {"said": "as it is"}}'


def git(folder: Path, *words: str) -> str:
    done = subprocess.run([*GIT, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass(frozen=True)
class Client:
    """The real client. cache: Loom's prepared packages."""

    binary: str
    bundle: Path
    cache: Path
    api: ScriptedApi

    def on(self, root: Path) -> Assistant:
        """Give it on a machine of its own, without a project yet."""
        machine = Machine(root=root, cache=self.cache, name=root.name)
        (root / "project").mkdir()
        return Assistant(
            binary=self.binary, machine=machine, project=root / "project", api=self.api, plugin_dir=self.bundle
        )


class Machines:
    """Clones of a bare remote, each with a home of its own, and one queue. client: a stand-in where None.

    All of them note in one folder: an attempt on one machine that meets another's is seen.
    """

    def __init__(
        self, root: Path, address: str, names: Sequence[str] = ("alpha", "beta"), client: Client | None = None
    ) -> None:
        self.root, self.remote = root, root / "remote.git"
        self.all: list[Fleet] = []
        root.mkdir(exist_ok=True)
        git(root, "init", "-q", "--bare", str(self.remote))
        for name in names:
            assistant = client.on(root / name) if client else None
            one = Fleet(root / name, words=["--queue", address], assistant=assistant)
            if self.all:
                shutil.rmtree(one.project)
                git(root, "clone", "-q", str(self.remote), str(one.project))
            else:
                self._first(one.project)
            one.environment |= {"STORE": str(one.project), "WRITES": "work.txt", "PACE": "0.2"}
            if assistant:
                one.environment["PACE"] = "0"
                one.notes = self.all[0].notes if self.all else one.notes
                one.environment["NOTES"] = str(one.notes)
                one.program("part", _PART)
            self.all.append(one)
        if client:
            _answer(client.api)
        self.all[0].fleet("init")

    def _first(self, project: Path) -> None:
        git(project, "init", "-q")
        (project / ".loom" / ".gitignore").write_text(IGNORED)
        git(project, "add", ".")
        git(project, "commit", "-q", "-m", "First")
        git(project, "remote", "add", "origin", str(self.remote))
        git(project, "push", "-q", "origin", "main")

    def code(self, run_id: str) -> str:
        """Give what the remote has of a run's file."""
        return git(self.remote, "show", f"refs/loom/work/{run_id}:work.txt")

    def state(self, run_id: str) -> str:
        return git(self.remote, "show", f"refs/loom/runs/{run_id}:run/state.json")

    def told(self, run_id: str) -> dict[str, Any]:
        """Give the state of a run on the remote."""
        found: dict[str, Any] = json.loads(self.state(run_id))
        return found

    def hold(self, run_id: str) -> None:
        """Let whoever drives a run wait in the middle of a step."""
        for one in self.all:
            (one.notes / run_id).mkdir(exist_ok=True)
            (one.notes / run_id / "hold").touch()

    def let_go(self, run_id: str) -> None:
        """Let it work on."""
        for one in self.all:
            (one.notes / run_id / "hold").unlink(missing_ok=True)

    def is_begun(self, run_id: str) -> bool:
        """Tell whether somebody works on a run that is held."""
        return bool(self.noted(run_id, "starts")) and any(one.alive() for one in self.all)

    def close(self) -> None:
        for one in self.all:
            one.close()

    def kept(self, run_id: str) -> dict[str, Any]:
        """Give what the remote has of a run, without LEFT_OUT: its state, the files of its stages, its code's tree."""
        ref, name = f"refs/loom/runs/{run_id}:run", handle(self.told(run_id))

        def shown(path: str) -> str:
            return git(self.remote, "show", f"{ref}/{path}").replace(run_id, "RUN").replace(name, "HANDLE")

        def bare(path: str) -> Any:
            return _bare(json.loads(shown(path)))

        paths = git(self.remote, "ls-tree", "-r", "--name-only", ref).splitlines()
        stages = {one: _UNEQUAL.sub("", shown(one)) for one in paths if one.endswith(("/prompt.md", "/response.md"))}
        code = git(self.remote, "ls-tree", "-r", f"refs/loom/work/{run_id}")
        return {"state": bare("state.json"), "plan": bare("plan.json"), "stages": stages, "code": code}

    def cost(self, run_id: str) -> float:
        """Give what a run's state says that it cost, in USD: nothing where whoever paid died before that was booked."""
        return float(self.told(run_id)["driving"].get("cost", 0.0))

    def saved(self) -> int:
        """Count the states that machines kept beside what others went on with."""
        states = [path for one in self.all for path in one.project.glob(".loom/runs/*/state.json")]
        return sum("saved_from" in json.loads(path.read_text()) for path in states)

    def noted(self, run_id: str, name: str) -> list[str]:
        """Give what was noted of a run, on all machines: starts, overlaps."""
        paths = {one.notes / run_id / name for one in self.all}
        return [line for path in paths if path.exists() for line in path.read_text().splitlines()]

    @staticmethod
    def strike(luck: random.Random, working: subprocess.Popen[bytes]) -> str:
        """Kill a worker with its tree, or alone, or a driver or an assistant of its; gives which, empty for none."""
        what, found = luck.choice(("tree", "tree", "worker", "driver", "assistant")), []
        if working.poll() is not None:  # its number may be another's by now
            return ""
        with contextlib.suppress(psutil.Error):
            worker = psutil.Process(working.pid)
            tree = worker.children(recursive=True)
            if what == "driver":
                found = [one for one in worker.children() if "drive" in one.cmdline()]
            elif what == "assistant":
                found = [one for one in tree if one.name() == "claude"]
            if what in ("tree", "worker"):
                found = [worker, *(tree if what == "tree" else ())]
            else:
                found = [luck.choice(found)] if found else []
        for one in found:
            with contextlib.suppress(psutil.Error):
                one.kill()
        if what in ("tree", "worker"):
            working.wait()
        return what if found else ""


LEFT_OUT = (
    "revision", "created_at", "updated_at", "started_at", "completed_at", "added_at", "sessions", "context_metadata",
    "ledger_head", "lease", "driving",
)  # fmt: skip
"""Of a state and a plan: times, how often it was written, who worked on it when and where, what that cost, and how much
of the history a conversation was given.

Beside them ids of runs and handles, and of what a step is told of those before it (`prompt.md`) the models' tokens and
the changed files, which are not known of a step that began on another machine.
"""
_UNEQUAL = re.compile(r"\n  - (?:Model|Files): [^\n]*|; files: [^\n]*")


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(one) for key, one in value.items() if key not in LEFT_OUT}
    return [_bare(one) for one in value] if isinstance(value, list) else value


def _answer(api: ScriptedApi) -> None:
    """Let the model write each step's part, and end every other step by its answer at the turn's end."""
    used = {"input_tokens": 10_000, "output_tokens": 10}
    api.react(PROMPTS[0], reply(bash("part ends"), usage=used))
    api.react(PROMPTS[1], reply(bash("part"), usage=used))
    api.react("The part is written", reply(_SAID, usage=used))
