"""No order of work, push, pull and kills on two machines loses a stage; some of the thousand that
`python -m tests.faults.interleavings` plays (D53).
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.helpers import tiers
from tests.helpers.scenes import CHECKOUT

COUNT = 10 if tiers.is_quick() else 25


def test_no_interleaving_of_push_pull_and_kills_loses_a_stage() -> None:
    """Processes are killed at any moment, and both are at it at once: every stage is in a run of its machine.

    So are its assets, its large values and what tools gave; what is the user's own is what it was.
    """
    command = [sys.executable, "-m", "tests.faults.interleavings", "--count", str(COUNT), "--seed", "11"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:])
    told = json.loads(done.stdout)
    assert (told["lost"], told["interleavings"]) == ([], COUNT)
    assert told["killed"] > 5
    assert told["stages"] > 10
    assert min(told["values"], told["files"], told["outputs"]) > 0
