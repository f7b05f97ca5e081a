"""A spool that several processes digest at once and are killed over: each call is recorded once, in its order (D59)."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.helpers.scenes import CHECKOUT

ROUNDS, SEED = 12, 59


def test_no_kill_loses_a_call_or_records_it_twice() -> None:
    command = [sys.executable, "-m", "tests.faults.spool_kills", str(ROUNDS), str(SEED)]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(ended.stdout)
    assert told["done"]["killed"] >= 3
    assert told["done"]["recorded"] > ROUNDS
