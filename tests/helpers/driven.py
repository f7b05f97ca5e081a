"""Driven runs that are killed and raced for, with the real assistant or a shell script that speaks its lines."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from tests.e2e.drives import DIRECTIVE
from tests.e2e.scripted_api import bash, reply

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.e2e.assistant import Assistant
    from tests.e2e.scripted_api import ScriptedApi

MAIN = Path(__file__).resolve().parent.parent.parent / "loomctl" / "__main__.py"
WAIT = 120  # seconds that one drive may take
DRIVE = ("drive", "--allow", "Bash")
PRICE = 0.0402  # of each of its model's answers in USD, as the assistant says
PROMPTS = ("Do it.", "Say that it is so.")  # of the steps in turn

# What its scripts share. APART: each run has notes of its own; MARKER: seconds that what an attempt leaves behind would
# sleep, and nobody else.
_SCRIPT = """#!/bin/sh
say() { printf '%s\\n' "$1"; }
case ${APART-},$NOTES in
1,*/${LOOM_DRIVEN%% *} | ,*) ;;
*) NOTES=$NOTES/${LOOM_DRIVEN%% *} && mkdir -p "$NOTES/left" ;;
esac
step() { sed -n 's/^ "current_step": "\\(.*\\)".*/\\1/p' "${STORE-.}/.loom/runs/${LOOM_DRIVEN%% *}/state.json"; }
"""

# It notes that it begins, and looks for earlier attempts that still live, and for what they left behind.
_BEGINS = """
for pid in $(cut -d' ' -f1 "$NOTES/starts" 2>/dev/null) $(ls "$NOTES/left"); do
    if { tr '\\0' ' ' </proc/"$pid"/cmdline; } 2>/dev/null | grep -q 'bin/claude\\|MARKER'; then
        say "$pid" >>"$NOTES/overlaps"
    fi
done
say "$$ $LOOM_DRIVEN" >>"$NOTES/starts"
"""

# The stand-in itself.
_STANDS_IN = """
say '{"type":"system","subtype":"init","session_id":"stand-in"}'
if [ -e "$NOTES/../refuses" ]; then
    say '{"type":"result","subtype":"success","is_error":true,"result":"API Error: 400 no","api_error_status":400}'
    exit 1
fi
while [ -n "$(step)" ]; do
    say '{"type":"assistant","message":{"content":[{"type":"text","text":"I work"}]}}'
    work || exit 1
done
say '{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.01}'
"""

# A step's work: it leaves processes behind, notes what it does, and ends the step.
_WORK = """
[ -z "${LEAVES-}" ] || (setsid sh -c ': >"$NOTES/left/$$"; eval "$0"; exec sleep MARKER' "$LEAVES" &)
while [ -e "$NOTES/hold" ]; do sleep 0.05; done
sleep "${PACE-0}"
step >>"$NOTES/begun"
[ -z "${WRITES-}" ] || step >>"$WRITES"
echo "It is done." | loomctl done --outcome succeeded
"""


def answer(api: ScriptedApi) -> None:
    """Let the model do what it is told, in however many conversations.

    Every other step is ended by `work`, which it calls, and the others by its own answer at a turn's end.
    """
    used = {"input_tokens": 10_000, "output_tokens": 10}
    api.react("The run is completed", reply("It is done.", usage=used))
    api.react("run `loomctl next`", reply(bash("loomctl next"), usage=used))
    api.react(PROMPTS[0], reply(bash("work"), usage=used))
    api.react(PROMPTS[1], reply(DIRECTIVE, usage=used))


class Blow(NamedTuple):
    """What was killed at once, and after how many seconds."""

    victims: tuple[str, ...]
    after: float


class Driven:
    """A project whose runs are driven, with the stand-in or the real assistant.

    leaves: a command of what a step's work leaves behind; assistant: the real one, on a machine of its own.
    """

    def __init__(self, root: Path, *, steps: int = 2, leaves: str = "", assistant: Assistant | None = None) -> None:
        self.root, self.notes = root, root / "notes"
        self.project = assistant.project if assistant else root / "project"
        self.marker = str(10_000_000 + secrets.randbelow(10_000_000))
        programs = root / "bin"
        for folder in (self.notes / "left", programs, root / "home", self.project / ".loom" / "workflows"):
            folder.mkdir(parents=True, exist_ok=True)
        listed = [{"id": f"step-{number}", "prompt": PROMPTS[number % 2]} for number in range(steps)]
        workflow = {"id": "driven", "autonomy": "autonomous", "phases": {"build": {"steps": listed}}}
        (self.project / ".loom" / "workflows" / "driven.json").write_text(json.dumps(workflow))
        self.command, does = [sys.executable, "-I", str(MAIN)], _STANDS_IN
        self.environment = {"HOME": str(root / "home"), "LANG": "C.UTF-8"}
        if assistant is not None:
            self.command = [f"{assistant.plugin_dir}/bin/loomctl"]
            does = f'exec {shlex.join(assistant.command_line())} "$@"\n'
            self.environment = assistant.environment()
            answer(assistant.api)
        path = self.environment.get("PATH", os.environ["PATH"])
        self.environment |= {"PATH": f"{programs}:{path}", "NOTES": str(self.notes), "LEAVES": leaves}
        scripts = {"claude": _BEGINS + does, "work": _WORK, "loomctl": f'exec {shlex.join(self.command)} "$@"\n'}
        for name, script in scripts.items():
            self.program(name, script)

    def program(self, name: str, script: str) -> None:
        """Put a shell script onto the PATH of what is driven."""
        path = self.root / "bin" / name
        path.write_text(_SCRIPT + script.replace("MARKER", self.marker))
        path.chmod(0o755)

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
        return self._running(lambda one: self.marker in " ".join(one.cmdline()))

    def alive(self) -> list[psutil.Process]:
        """Give what attempts started that still runs, with themselves."""

        def is_own(one: psutil.Process) -> bool:
            environ = one.environ()
            notes = environ.get("NOTES", "")  # of a run where each has its own
            return "LOOM_DRIVEN" in environ and (notes == str(self.notes) or notes.startswith(f"{self.notes}/"))

        return self._running(is_own) + self.left()

    def _running(self, fits: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
        found = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                found += [one] if fits(one) else []
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
        self.loomctl(*DRIVE, run_id)
        return struck

    def _after(self, driver: subprocess.Popen[str] | None, run_id: str) -> subprocess.Popen[str]:
        if driver is not None:
            driver.communicate(timeout=WAIT)
        return self.start(*DRIVE, run_id)

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
        """Give the steps that were begun after a later one, or behind their end, or ended twice: they had been done."""
        begun = [int(step.rpartition("-")[2]) for step in self.noted("begun") if step]
        found = [f"step-{step} was done again" for at, step in enumerate(begun) if step < max(begun[:at], default=0)]
        ended = set[str]()
        for event in self.events(run_id):
            if event["event"] in ("stage.started", "stage.completed") and event["step_id"] in ended:
                found.append(f"{event['step_id']}: {event['event']} behind its end")
            ended |= {event["step_id"]} if event["event"] == "stage.completed" else set()
        return found
