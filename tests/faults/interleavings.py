"""Random interleavings of work, push, pull and kills on two clones of one project, and what must hold after each.

    python -m tests.faults.interleavings [--count 1000] [--seed 1]

Every deed is done in a process of its own, a fork of this one, so that a kill is a kill: at its n-th write or git call,
or after so many milliseconds, wherever it is then; what git had begun goes on. Sometimes both machines are at it at
once. After each interleaving every stage that was ever recorded stands, as it was recorded, in a run of the machine on
which it was, with its assets, its large values and what its tools gave; every run on both can be read and has a whole
log; and what is the user's own (branches, HEAD, index, working tree, settings, workflows) is byte for byte what it was.
The exit code is 1 where anything is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from loomctl.handoff import carried, repository
from loomctl.handoff import pull as pulling
from loomctl.handoff import push as pushing
from loomctl.handoff.handoff import Desk
from loomctl.kit import digests
from loomctl.kit.errors import LoomError
from loomctl.runs.machine import run_notes
from loomctl.runs.store import arrivals, event_log
from tests.faults import interleaved_work
from tests.helpers.machines import own_of_the_user
from tests.helpers.repositories import git
from tests.helpers.scenes import Scene

DEEDS = 5  # of one interleaving
AFRESH = 20  # interleavings after which a new project begins, for a log grows
REPORT_OF_A_KILL = ".git/fast_import_crash_"  # git's own, where what feeds it was killed; it replaces nothing
REFUSED = ("REMOTE_NEWER", "DIVERGED", "HELD", "MOVED_MEANWHILE", "WORKED_ON_MEANWHILE", "NO_SUCH_RUN")


class Told(NamedTuple):
    """What was done.

    killed: deeds that a kill ended; refused: pushes and pulls that were; stages: recorded in all; values, files,
    outputs: stages with one that were held against what they were ended with, on either machine.
    """

    interleavings: int
    deeds: int
    killed: int
    refused: int
    stages: int
    values: int
    files: int
    outputs: int
    seconds: float


class Pair:
    """Two clones of a project and the bare repository between them, with one run that began on the first."""

    def __init__(self, base: Path) -> None:
        self.base = base
        git(base, "init", "-q", "--bare", "-b", "main", str(base / "server.git"))
        self._begin_a_project()
        self.machines = [self._clone("laptop"), self._clone("dé sk top")]
        self.run_id = self.machines[0].begin().run.run_id
        self.own = [own_of_the_user(one.root) for one in self.machines]  # path -> digest, of each machine
        self.recorded: dict[str, int] = {}  # token -> the machine on which it was recorded
        self.tokens = 0

    def _begin_a_project(self) -> None:
        """Push a commit with what of Loom's folder is the user's: workflows and settings."""
        git(self.base, "clone", "-q", "server.git", "first")
        first = self.base / "first"
        for path, text in (
            (".loom/workflows/tiny.json", json.dumps(interleaved_work.WORKFLOW)),
            (".loom/config.yaml", "default_workflow: tiny\n"),
            ("a.txt", "one\n"),
            ("b.txt", "one\n"),
        ):
            (first / path).parent.mkdir(parents=True, exist_ok=True)
            (first / path).write_text(text, encoding="utf-8")
        git(first, "add", ".")
        git(first, "commit", "-q", "-m", "first")
        git(first, "push", "-q", "origin", "HEAD:refs/heads/main")

    def _clone(self, name: str) -> Scene:
        """Make a clone in which its user is at work: one file is staged, one changed, one new."""
        git(self.base, "clone", "-q", "server.git", name)
        made = Scene.__new__(Scene)
        made.root, made.store = self.base / name, self.base / name / ".loom"
        git(made.root, "branch", "-q", "idea")
        made.write("a.txt", f"of {name}\n")
        git(made.root, "add", "a.txt")
        made.write("b.txt", f"of {name}\n")
        made.write("new.txt", f"of {name}\n")
        return made

    def note_left(self, at: int, token: str) -> None:
        """Count what a step's work left in the project as its user's, where it came to that."""
        path, data = interleaved_work.left(token)
        if (self.machines[at].root / path).exists():
            self.own[at][path] = digests.of_bytes(data)

    def desk(self, at: int) -> Desk:
        return Desk(self.machines[at].space())


# ---- Deeds.


def work(pair: Pair, at: int, token: str) -> None:
    interleaved_work.end_a_step(pair.machines[at].space(), pair.run_id, token)


def push(pair: Pair, at: int, outputs: str) -> None:
    desk = pair.desk(at)
    pushing.send(desk, pushing.prepare(desk, pair.run_id, outputs=bool(outputs)))


def pull(pair: Pair, at: int, keep: str) -> None:
    desk = pair.desk(at)
    there = desk.repository.list_runs(desk.remote)
    if pair.run_id not in there:
        raise LoomError("NO_SUCH_RUN", "nobody pushed it yet", hint="loomctl push")
    pulling.pull(desk, pair.run_id, there[pair.run_id], keep=keep)


KEEPS = ("", "", pulling.KEPT_MINE, pulling.TOOK_THEIRS)
ALL = ((work, ("",)), (work, ("",)), (push, ("",)), (push, ("", "with outputs")), (pull, KEEPS))


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
        *((repository.Repository, name) for name in ("run", "write", "push", "fetch")),
        *((os, name) for name in ("rename", "replace", "link", "write", "unlink", "mkdir")),
        *(
            (module, name)
            for module, name in ((arrivals, "_exchanged"), (arrivals, "into_place"), (run_notes, "note_handoff"))
        ),
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


def stages_of(pair: Pair) -> Iterator[tuple[tuple[int, str], str, dict[str, Any], str]]:
    """Give each stage of each run on both: machine and token, its answer, its status, what it does not have."""
    for at, scene in enumerate(pair.machines):
        store = scene.space().store
        for run_id in store.run_ids():
            run = store.read(run_id)
            for token, told, status in interleaved_work.answers(run):
                missing = interleaved_work.missing(store, run, token, status)
                lacks = f"{token} in {run_id} on {scene.root.name}: {missing}" if missing else ""
                yield (at, token), told, status, lacks


def outputs_of(pair: Pair) -> Iterator[str]:
    for scene in pair.machines:
        store = scene.space().store
        for run_id in store.run_ids():
            yield from interleaved_work.outputs(store.read(run_id))


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
    stages, told = list(stages_of(pair)), set(outputs_of(pair))
    there = {token: answer for token, answer, _, _ in stages}
    gone = [missing for _, _, _, missing in stages if missing]
    for token, at in pair.recorded.items():
        if there.get((at, token)) != interleaved_work.answer(token):
            gone.append(f"stage {token} of {at}")
        if interleaved_work.has_output(token) and token not in told:
            gone.append(f"output of {token} of {at}")
    gone += [f"log of {name}" for name in broken_logs(pair)]
    for scene, before in zip(pair.machines, pair.own, strict=True):
        now = own_of_the_user(scene.root)
        changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
        changed = [path for path in changed if not path.startswith(REPORT_OF_A_KILL)]
        gone += [f"the user's own {path} on {scene.root.name}" for path in changed]
    return gone


def alone(deed: Callable[[Pair, int, str], None], pair: Pair, at: int, word: str) -> int:
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
    runs = [scene.space().store.read(pair.run_id) for scene in pair.machines]
    same = [[token for token, _, _ in interleaved_work.answers(run)] for run in runs]
    return [] if same[0] == same[1] else ["both machines have another state after pull and push"]


def interleave(pair: Pair, chance: random.Random) -> tuple[int, int, int]:
    """Do some deeds, one after the other or two at once; gives how many, how many were killed, how many refused."""
    deeds = killed = refused = 0
    for _ in range(DEEDS):
        at = chance.randrange(2)
        both = chance.random() < 0.25
        begun = []
        for machine in (at, 1 - at) if both else (at,):
            deed, words = chance.choice(ALL)
            word = chance.choice(words)
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
            if deed is work:
                pair.note_left(machine, word)
            if deed is work and code == 0:
                pair.recorded[word] = machine
    return deeds, killed, refused


def play(count: int, seed: int) -> tuple[Told, list[str]]:
    """Play so many interleavings; gives what was done, and what was lost in the first that lost anything."""
    chance = random.Random(seed)
    began = time.monotonic()
    sums = [0, 0, 0]
    kinds = [0, 0, 0, 0]

    def told(played: int) -> Told:
        return Told._make((played, *sums, *kinds, time.monotonic() - began))

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
                    return told(number), [f"interleaving {number}", *found]
            found = settle(pair) or lost(pair)
            kinds = [one + more for one, more in zip(kinds, kinds_of(pair), strict=True)]
            if found:
                return told(number), [f"after {number}", *found]
            shutil.rmtree(base, ignore_errors=True)
    return told(count), []


def kinds_of(pair: Pair) -> tuple[int, int, int, int]:
    """Count the stages that were recorded, and those of them with a large value, a file, an output."""
    files = {token for (_, token), _, status, _ in stages_of(pair) if status["assets"]}
    ways = (interleaved_work.has_value, files.__contains__, interleaved_work.has_output)
    return (len(pair.recorded), *(sum(map(way, pair.recorded)) for way in ways))  # type: ignore[return-value]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    told, found = play(options.count, options.seed)
    sys.stdout.write(json.dumps({**told._asdict(), "lost": found}) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
