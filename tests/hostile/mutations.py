"""Damages the files of a victim and lets readers loose on them: `python -m tests.hostile.mutations KIND N`.

Prints what was not taken or refused in good order. A process of its own, so that what grows without end ends it.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import tempfile
from pathlib import Path

from tests.hostile.victim import READERS, Victim, trials, tried

MEMORY = 2 << 30


def main(kind: str, count: int, seed: int) -> int:
    """Try `count` damages of a file of this kind, each before one reader, chosen by the seed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    dice = random.Random(f"{kind} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        victim = Victim(Path(folder))
        known = list(trials(victim, (kind,)))
        readers = list(READERS)
        for _ in range(count):
            trial, reader = dice.choice(known), dice.choice(readers)
            _say(f"# {trial} before {reader}")  # the last one that stands there is what ended the process
            wrong = tried(victim, trial, reader)
            if wrong is not None:
                _say(wrong)
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    assert os.environ["LOOM_STATE_HOME"]
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0))
