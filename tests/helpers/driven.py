"""Driven runs with a stand-in for the assistant: a shell script that speaks its lines and ends step after step."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

MAIN = Path(__file__).resolve().parent.parent.parent / "loomctl" / "__main__.py"
MARKER = 86_399  # seconds that what an attempt leaves behind would sleep
WAIT = 120  # seconds that one drive may take

# It notes what it begins, leaves processes behind, and looks for those of earlier attempts.
_STAND_IN = """#!/bin/sh
say() { printf '%s\\n' "$1"; }
state=.loom/runs/${LOOM_DRIVEN%% *}/state.json
say "$$ $LOOM_DRIVEN" >>"$NOTES/starts"
for left in "$NOTES"/left/*; do
    if { tr '\\0' ' ' </proc/"${left##*/}"/cmdline; } 2>/dev/null | grep -q MARKER; then
        say "$left" >>"$NOTES/overlaps"
    fi
done
say '{"type":"system","subtype":"init","session_id":"stand-in"}'
[ -z "${LEAVES-}" ] || (setsid sh -c ': >"$NOTES/left/$$"; eval "$0"; exec sleep MARKER' "$LEAVES" &)
while [ -e "$NOTES/hold" ]; do sleep 0.05; done
while step=$(sed -n 's/^ "current_step": "\\(.*\\)".*/\\1/p' "$state") && [ -n "$step" ]; do
    say "$step" >>"$NOTES/begun"
    say '{"type":"assistant","message":{"content":[{"type":"text","text":"I work"}]}}'
    echo "It is done." | loomctl done --outcome succeeded >/dev/null || exit 1
done
say '{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.01}'
""".replace("MARKER", str(MARKER))


class Blow(NamedTuple):
    """What was killed at once, and after how many seconds."""

    victims: tuple[str, ...]
    after: float


class Driven:
    """A project whose runs are driven with the stand-in. leaves: a command of what each attempt leaves behind."""

    def __init__(self, root: Path, *, steps: int = 2, leaves: str = "") -> None:
        self.root, self.notes, self.project = root, root / "notes", root / "project"
        programs = root / "bin"
        for folder in (self.notes / "left", programs, root / "home", self.project / ".loom" / "workflows"):
            folder.mkdir(parents=True)
        listed = [{"id": f"step-{number}", "prompt": "Do it."} for number in range(steps)]
        workflow = {"id": "driven", "autonomy": "autonomous", "phases": {"build": {"steps": listed}}}
        (self.project / ".loom" / "workflows" / "driven.json").write_text(json.dumps(workflow))
        for name, script in (("claude", _STAND_IN), ("loomctl", f'#!/bin/sh\nexec {sys.executable} -I {MAIN} "$@"\n')):
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(root / "home"), "NOTES": str(self.notes),
            "LEAVES": leaves, "LANG": "C.UTF-8",
        }  # fmt: skip
        self.command = [sys.executable, "-I", str(MAIN)]

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """Begin a loomctl command, in a session of its own."""
        more = {"stdin": subprocess.DEVNULL, **more}
        return subprocess.Popen(
            [*self.command, *words], cwd=self.project, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more,
        )  # fmt: skip

    def loomctl(self, *words: str, code: int = 0, **more: Any) -> str:
        process = self.start(*words, **more)
        out, err = process.communicate(timeout=WAIT)
        assert process.returncode == code, f"{words} gave {process.returncode}:\n{out}\n{err}"
        return out + err

    def begin(self, work: str = "make it") -> str:
        """Begin a run; gives its id."""
        return str(json.loads(self.loomctl("run", work, "--workflow", "driven", "--json"))["run_id"])

    def state(self, run_id: str) -> dict[str, Any]:
        path = self.project / ".loom" / "runs" / run_id / "state.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def events(self, run_id: str) -> list[dict[str, Any]]:
        path = self.project / ".loom" / "runs" / run_id / "events.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def noted(self, name: str) -> list[str]:
        """Give the lines of a file of notes: starts, begun, overlaps."""
        path = self.notes / name
        return path.read_text().splitlines() if path.exists() else []

    def starts(self, run_id: str) -> int:
        """Count how often the stand-in was started for a run."""
        return sum(f" {run_id} " in line for line in self.noted("starts"))

    def left(self) -> list[psutil.Process]:
        """Give what attempts left behind that still runs, in whatever numbering of processes."""
        found = []
        for one in psutil.process_iter():
            try:
                if str(MARKER) in " ".join(one.cmdline()) and one.environ().get("NOTES") == str(self.notes):
                    found.append(one)
            except psutil.Error:
                continue
        return found

    def strike(self, run_id: str, blows: int, luck: random.Random, slowest: float) -> list[Blow]:
        """Drive a run, killing driver, keeper, assistant or several of them at once, so many times; then to its end."""
        struck: list[Blow] = []
        driver: subprocess.Popen[str] | None = None
        while len(struck) < blows and self.state(run_id)["status"] != "completed":
            if driver is None or driver.poll() is not None:
                driver = self._after(driver, run_id)
            after = luck.uniform(0, slowest)
            time.sleep(after)
            victims = self._victims(driver, luck)
            for one in victims.values():
                try:
                    one.kill()
                except psutil.Error:
                    continue
            struck += [Blow(tuple(victims), after)] if victims else []
        if driver is not None:
            driver.communicate(timeout=WAIT)
        self.loomctl("drive", run_id)
        return struck

    def _after(self, driver: subprocess.Popen[str] | None, run_id: str) -> subprocess.Popen[str]:
        if driver is not None:
            driver.communicate(timeout=WAIT)
        return self.start("drive", run_id)

    def _victims(self, driver: subprocess.Popen[str], luck: random.Random) -> dict[str, psutil.Process]:
        found: dict[str, psutil.Process] = {}
        try:
            found["driver"] = psutil.Process(driver.pid)
            keepers = [one for one in found["driver"].children() if one.cmdline() == found["driver"].cmdline()]
            if keepers:
                found["keeper"] = keepers[0]
                found["assistant"] = keepers[0].children()[0]
        except (psutil.Error, IndexError):
            pass
        if driver.poll() is not None:
            return {}
        names = sorted(found)
        return {name: found[name] for name in luck.sample(names, luck.randint(1, len(names)))}

    def done_again(self, run_id: str) -> list[str]:
        """Give the steps that were begun after a later one, or ended twice: they had been done."""
        begun = [int(step.rpartition("-")[2]) for step in self.noted("begun")]
        late = [f"step-{step} begun again" for at, step in enumerate(begun) if step < max(begun[:at], default=0)]
        ends = [str(one["step_id"]) for one in self.events(run_id) if one["event"] == "stage.completed"]
        return [*late, *(f"{step} ended twice" for step in set(ends) if ends.count(step) > 1)]
