"""Random interleavings of work, push, pull and kills on two clones of one project, and what must hold after each.

    python -m tests.faults.interleavings [--count 1000] [--seed 1]

Every deed is done in a process of its own, a fork of this one, so that a kill is a kill: at its n-th write or git call,
or after so many milliseconds, wherever it is then; what git had begun goes on. Sometimes both machines are at it at
once. After each interleaving every stage that was ever recorded stands, as it was recorded, in a run of the machine on
which it was, and every run on both can be read and has a whole log. The exit code is 1 where one is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from loomctl.disk import arrivals, carried, digests, event_log, exchange, files, git_refs, handoff_notes
from loomctl.disk.events import Event
from loomctl.engine import leasing, pulling, pushing
from loomctl.engine.handoff import Desk
from loomctl.model.errors import LoomError
from tests.scenes import Scene

DEEDS = 5  # of one interleaving
AFRESH = 20  # interleavings after which a new project begins, for a log grows
REFUSED = ("REMOTE_NEWER", "DIVERGED", "HELD", "MOVED_MEANWHILE", "WORKED_ON_MEANWHILE", "NO_SUCH_RUN")


class Told(NamedTuple):
    """What was done. killed: deeds that a kill ended; refused: pushes and pulls that were; stages: recorded in all."""

    interleavings: int
    deeds: int
    killed: int
    refused: int
    stages: int
    seconds: float


class Pair:
    """Two clones of a project and the bare repository between them, with one run that began on the first."""

    def __init__(self, base: Path) -> None:
        self.base = base
        git(base, "init", "-q", "--bare", str(base / "server.git"))
        self.machines = [self._clone("laptop"), self._clone("dé sk top")]
        first = self.machines[0]
        first.workflow()
        self.run_id = first.begin().run.run_id
        self.recorded: dict[str, int] = {}  # token -> the machine on which it was recorded
        self.tokens = 0

    def _clone(self, name: str) -> Scene:
        git(self.base, "clone", "-q", "server.git", name)
        made = Scene.__new__(Scene)
        made.root, made.store = self.base / name, self.base / name / ".loom"
        return made

    def desk(self, at: int) -> Desk:
        """Give one machine's way to the remote."""
        return Desk(self.machines[at].space())


def git(folder: Path, *words: str) -> str:
    """Ask git; gives what it prints."""
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


# ---- Deeds.


def work(pair: Pair, at: int, token: str) -> None:
    """Record a stage: its response, then the state and the log that say so, as ending a step does."""
    space = leasing.taking_over(pair.machines[at].space())  # whoever drove it last
    if not space.store.has(pair.run_id):
        raise LoomError("NO_SUCH_RUN", "it did not come here yet", hint="loomctl pull")

    def change(state: dict[str, Any]) -> tuple[dict[str, Any], list[Event]]:
        rank = 1 + max((one["rank"] for one in state["steps"]), default=0)
        stage = f"{rank:03}-build.make@{rank}"
        folder = os.path.join(space.store.run_dir(pair.run_id), "stages", stage)
        files.make_folder(folder)
        files.write_atomically(os.path.join(folder, "response.md"), token.encode())
        entry = {"step_id": "build/make", "phase": "build", "visit": rank, "rank": rank, "stage": stage}
        told = {**entry, "status": "succeeded", "started_at": "2026-01-01T00:00:00Z", "token": token}
        return {**state, "steps": [*state["steps"], told]}, [Event("stage.completed", {"stage": stage})]

    space.store.update(pair.run_id, change)


def push(pair: Pair, at: int, _: str) -> None:
    """Hand the run on."""
    desk = pair.desk(at)
    pushing.send(desk, pushing.prepare(desk, pair.run_id))


def pull(pair: Pair, at: int, keep: str) -> None:
    """Take the run."""
    desk = pair.desk(at)
    there = desk.repository.listed(desk.remote)
    if pair.run_id not in there:
        raise LoomError("NO_SUCH_RUN", "nobody pushed it yet", hint="loomctl push")
    pulling.pull(desk, pair.run_id, there[pair.run_id], keep=keep)


KEEPS = ("", "", pulling.KEPT_MINE, pulling.TOOK_THEIRS)


# ---- Kills.


def arm(at_call: int, after: float) -> None:
    """Have this process killed at its so manieth call of what writes or asks git, or after so many seconds."""
    if after:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, after)
    if not at_call:
        return
    left = [at_call]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*words: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*words, **named)

        return wrapper

    for owner, name in (
        *((git_refs.Repository, name) for name in ("run", "write", "push", "fetch")),
        *((os, name) for name in ("rename", "replace", "link", "write", "unlink", "mkdir")),
        *((module, name) for module, name in ((exchange, "swap"), (arrivals, "into_place"), (handoff_notes, "write"))),
        (carried, "form"),
        (shutil, "rmtree"),
    ):
        setattr(owner, name, counted(getattr(owner, name)))


def begin(deed: Callable[[Pair, int, str], None], pair: Pair, at: int, word: str, kill: tuple[int, float]) -> int:
    """Begin a deed in a fork; gives its process id. It ends with 0, with 1 where it was refused, with 2 for a fault."""
    child = os.fork()
    if child:
        return child
    code = 2
    try:
        arm(*kill)
        deed(pair, at, word)
        code = 0
    except LoomError as error:
        code = 1 if error.code in REFUSED else 2
        if code == 2:
            sys.stderr.write(f"{deed.__name__} {at} {word}: {error}\n")
    except BaseException as error:  # noqa: BLE001 - a child says it and ends
        sys.stderr.write(f"{deed.__name__} {at} {word}: {error!r}\n")
    finally:
        os._exit(code)


# ---- What must hold.


def stages_of(pair: Pair) -> Iterator[tuple[tuple[int, str], str]]:
    """Give what each stage of each run on both machines says: machine and token in its state, and its response."""
    for at, scene in enumerate(pair.machines):
        store = scene.space().store
        for run_id in store.run_ids():
            run = store.read(run_id)
            for entry in run.state["steps"]:
                if entry.get("token"):
                    path = Path(run.folder, "stages", entry["stage"], "response.md")
                    yield (at, entry["token"]), path.read_text(encoding="utf-8")


def broken_logs(pair: Pair) -> Iterator[str]:
    """Name the runs whose log is no whole chain, or does not hold what the state remembers."""
    for scene in pair.machines:
        store = scene.space().store
        for run_id in store.run_ids():
            run = store.read(run_id)
            before, seen = "", {}
            for line in event_log.all_of(os.path.join(run.folder, "events.jsonl")):
                if line.entry is None:
                    continue
                if line.entry["prev"] != before or line.entry["run_id"] != run_id:
                    yield f"{run_id} at {line.entry['seq']}"
                before = digests.of_bytes(line.data)
                seen[line.entry["seq"]] = before
            head = run.state["ledger_head"]
            if seen.get(head["seq"]) != head["sha256"]:
                yield f"{run_id}: no head"


def lost(pair: Pair) -> list[str]:
    """Name what was lost on the machine on which it was recorded, or broken on either; empty where nothing was."""
    there = dict(stages_of(pair))
    gone = [f"stage {token} of {at}" for token, at in pair.recorded.items() if there.get((at, token)) != token]
    return gone + [f"log of {name}" for name in broken_logs(pair)]


def alone(deed: Callable[[Pair, int, str], None], pair: Pair, at: int, word: str) -> int:
    """Do a deed in a fork that nobody kills; gives its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(begin(deed, pair, at, word, (0, 0.0)), 0)[1])


def settle(pair: Pair) -> list[str]:
    """Bring both machines to one state by plain commands; names what did not end well."""
    for at in (0, 1, 0, 1):
        pulled = alone(pull, pair, at, "")
        if pulled == 1:  # diverged, or nobody pushed it yet
            pulled = alone(pull, pair, at, pulling.KEPT_MINE)
        pushed = alone(push, pair, at, "")
        if pulled not in (0, 1) or pushed not in (0, 1) or (at == 1 and pushed):
            return [f"a pull at {at} ended with {pulled} and a push with {pushed} when nobody was in the way"]
    states = [json.loads((scene.store / "runs" / pair.run_id / "state.json").read_text()) for scene in pair.machines]
    same = [[one.get("token") for one in state["steps"]] for state in states]
    return [] if same[0] == same[1] else ["both machines have another state after pull and push"]


def interleave(pair: Pair, chance: random.Random) -> tuple[int, int, int]:
    """Do some deeds, one after the other or two at once; gives how many, how many were killed, how many refused."""
    deeds = killed = refused = 0
    for _ in range(DEEDS):
        at = chance.randrange(2)
        both = chance.random() < 0.25
        begun = []
        for machine in (at, 1 - at) if both else (at,):
            deed, word = chance.choice(((work, ""), (work, ""), (push, ""), (push, ""), (pull, chance.choice(KEEPS))))
            if deed is work:
                pair.tokens += 1
                word = f"token {pair.tokens}"
            kill = chance.choice(((0, 0.0), (0, 0.0), (chance.randrange(1, 60), 0.0), (0, chance.uniform(0.002, 0.4))))
            begun.append((begin(deed, pair, machine, word, kill), deed, word, machine))
        for child, deed, word, machine in begun:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code != 2, "a deed failed otherwise than by a refusal"
            deeds += 1
            killed += code < 0
            refused += code == 1
            if deed is work and code == 0:
                pair.recorded[word] = machine
    return deeds, killed, refused


def play(count: int, seed: int) -> tuple[Told, list[str]]:
    """Play so many interleavings; gives what was done, and what was lost in the first that lost anything."""
    chance = random.Random(seed)
    began = time.monotonic()
    sums = [0, 0, 0]
    stages = 0
    with tempfile.TemporaryDirectory(prefix="loom-interleavings-", ignore_cleanup_errors=True) as folder:
        os.environ |= {"HOME": folder, "LOOM_STATE_HOME": f"{folder}/state", "GIT_CONFIG_NOSYSTEM": "1"}
        for first in range(0, count, AFRESH):
            base = Path(folder, f"pair-{first}")
            base.mkdir()
            pair = Pair(base)
            for number in range(first, min(count, first + AFRESH)):
                sums = [one + more for one, more in zip(sums, interleave(pair, chance), strict=True)]
                found = lost(pair)
                if found:
                    return Told(number, sums[0], sums[1], sums[2], stages, time.monotonic() - began), [
                        f"interleaving {number}",
                        *found,
                    ]
            found = settle(pair) or lost(pair)
            stages += len(pair.recorded)
            if found:
                return Told(number, sums[0], sums[1], sums[2], stages, time.monotonic() - began), [
                    f"after {number}",
                    *found,
                ]
            shutil.rmtree(base, ignore_errors=True)
    return Told(count, sums[0], sums[1], sums[2], stages, time.monotonic() - began), []


def main() -> int:
    """Play, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    told, found = play(options.count, options.seed)
    sys.stdout.write(json.dumps({**told._asdict(), "lost": found}) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
