"""Processes that digest one spool at once, each killed at a random moment, and what is left of the calls in it.

`python -m tests.faults.spool_kills ROUNDS SEED` prints what was done and what is wrong, which is nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from loomctl.runs.machine import launcher_files
from loomctl.runs.project import Workspace
from loomctl.runs.tools import recording, tool_log
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.helpers.scenes import SESSION, Scene

AT_ONCE, NEW = 4, 6  # processes of a round, and calls that come before it
LONGEST = 0.15  # seconds that a process lives; a hook needs a third of them


def hook(space: Workspace) -> None:
    recording.digest(space, recording.HOOK_LIMIT, most=20_000)
    recording.note_bindings(space)
    recording.newest(space, space.store.run_ids()[0])
    recording.digest(space, recording.HOOK_LIMIT)


def command(space: Workspace) -> None:
    recording.digest(space)


DEEDS: tuple[Callable[[Workspace], None], ...] = (hook, hook, command)


def begin(scene: Scene, deed: Callable[[Workspace], None], after: float) -> int:
    """Let a process do something until it is done, or until the system ends it; gives its id."""
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        deed(scene.space())
    finally:
        os._exit(0)


def put(scene: Scene, number: int, chance: random.Random) -> str:
    text = f"call {number}\n" * chance.choice((1, 40, 4_000))
    event = {
        "session_id": SESSION,
        "hook_event_name": "PostToolUse",
        "tool_name": chance.choice(("Bash", "mcp__x__y")),
        "tool_input": {"command": f"make {number}"},
        "tool_response": {"stdout": text, "stderr": "", "interrupted": False, "isImage": False},
        "tool_use_id": f"toolu_{number:05}",
    }
    path = scene.store / f"local/spool/{SESSION}-{number}.json"
    path.write_text(json.dumps(event))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return text


def play(scene: Scene, rounds: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Play rounds of calls, processes and kills; gives what was done, and what is wrong at the end."""
    chance = random.Random(seed)
    printed: dict[int, str] = {}
    done: Counter[str] = Counter()
    printed[1] = put(scene, 1, chance)
    recording.digest(scene.space())  # what the others import is imported then
    for _ in range(rounds):
        for _ in range(NEW):
            number = len(printed) + 1
            printed[number] = put(scene, number, chance)
        started = [begin(scene, chance.choice(DEEDS), chance.uniform(0.001, LONGEST)) for _ in range(AT_ONCE)]
        for child in started:
            _, status = os.waitpid(child, 0)
            done["killed" if os.WIFSIGNALED(status) else "ended"] += 1
    troubles = {recording.digest(scene.space()).trouble for _ in range(2)} - {""}
    return done, [*troubles, *_wrong(scene, printed, done)]


def _wrong(scene: Scene, printed: dict[int, str], done: Counter[str]) -> list[str]:
    reducer = StepReducer(DataOffloader(str(scene.run_dir)))
    steps = list(tool_log.read(str(scene.run_dir)))
    left = {path.name for path in (scene.store / "local/spool").iterdir()}
    aside = {
        int(told["properties"]["file"].removeprefix(f"{SESSION}-").partition(".")[0])
        for told in scene.events()
        if told["event"] == "tools.unfinished"
    }
    bad = {number for number in printed if f"{SESSION}-{number}.json{launcher_files.BAD}" in left}
    done.update({"recorded": len(steps), "set aside": len(aside), "bad": len(bad)})
    found = []
    times = Counter(str(step.more["spool"]) for step in steps)
    for number, text in printed.items():
        if times[f"{SESSION}-{number}.json"] != (number not in bad):
            found.append(f"call {number} stands {times[f'{SESSION}-{number}.json']} times in the log")
        if number in bad and text not in json.loads(_left(scene, number))["tool_response"]["stdout"]:
            found.append(f"call {number} is lost")
    order = []
    for step in steps:
        number = int(step.id.removeprefix("toolu_"))
        args, result = reducer.original(step)
        if args != {"command": f"make {number}"} or result["stdout"] != printed[number]:
            found.append(f"call {number} comes back as another")
        if number not in aside:
            order.append(number)
    found += [] if order == sorted(order) else ["the calls are out of order"]
    found += [f"{name} is left" for name in left if not name.endswith(launcher_files.BAD)]
    return found


def _left(scene: Scene, number: int) -> str:
    return (scene.store / f"local/spool/{SESSION}-{number}.json{launcher_files.BAD}").read_text()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        scene = Scene(Path(folder) / "shop")
        scene.workflow()
        scene.begin()
        done, wrong = play(scene, int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(json.dumps({"done": done, "wrong": wrong}) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
