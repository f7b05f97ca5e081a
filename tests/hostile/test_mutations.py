"""Each value of each file that Loom reads, replaced by what should not stand there: accepted, or refused by one error.

A sample of some hundred of the 700,000 pairs of damage and reader; `scripts/fuzz 10 files` tries others for as long as
it is told.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each
from tests.hostile.victim import KINDS, READERS, Trial, Victim, tried

COUNTS = {"state": 50, "plan": 50, "workflow": 20, "events": 15, "transcript": 20, "primed": 20}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_of_a_file_is_a_fault_of_looms(kind: str) -> None:
    """No traceback, no exit code 70, nothing raw, no broken JSON, in bounded memory and time."""
    command = [sys.executable, "-m", "tests.hostile.mutations", kind, str(COUNTS.get(kind, 10))]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    wrong = [line for line in done.stdout.splitlines() if not line.startswith("# ")]
    assert (done.returncode, wrong) == (0, []), done.stdout[-3000:] + done.stderr[-2000:]


FOUND: list[tuple[str, tuple[str | int, ...], str, str]] = [
    ("primed", ("artifacts", "state", "slip"), "controls", "UserPromptSubmit"),
    ("primed", ("artifacts", "data", "slip"), "controls", "closing, then next"),
    ("state", ("context_metadata", "artifacts_in_context", 0, "form"), "controls", "state show"),
    ("state", ("context_metadata", "artifacts_in_context", 0, "sha256"), "controls", "show --json"),
    ("state", ("revision",), "a number of 4,300 digits", "pause"),
    ("state", ("steps", 0, "visit"), "a number of 401 digits", "done"),
    ("state", ("context",), "nested deeply", "show --json"),
    ("state", ("context",), "nested deeply", "SessionStart"),
    ("plan", ("artifacts", 6, "condition_code"), "a list of everything", "SessionStart"),
    ("plan", ("artifacts", 6, "condition_code"), "a list of everything", "PreCompact"),
    ("plan", ("artifacts", 6, "condition_code"), "nested", "prime-context"),
    ("plan", ("artifacts", 6, "condition_code", 0), "controls", "resume"),
    ("state", ("approvals", 0, "after_rank"), "an empty object", "undo"),
    ("state", ("steps", 0, "artifacts"), "true", "undo"),
    ("state", ("steps", 0, "artifacts", "before"), "null", "undo"),
    ("state", ("sessions", "session_history", 0, "environment", "dirty"), "an empty list", "sessions"),
    *(("state", (key,), "minus one", "runs") for key in ("created_at", "updated_at")),
    ("binding", ("process", "started"), "an empty list", "resume elsewhere"),
    ("plan", ("commands",), "true", "trust"),
]


@pytest.mark.slow
@pytest.mark.usefixtures("at_the_victims")
@each(("kind", "path", "hostile", "reader"), FOUND)
def test_what_was_found_once_stays_mended(
    victim: Victim, kind: str, path: tuple[str | int, ...], hostile: str, reader: str
) -> None:
    assert tried(victim, Trial(kind, path, hostile), reader) is None


@pytest.mark.slow
@pytest.mark.usefixtures("at_the_victims")
@each("reader", READERS)
def test_an_undamaged_project_is_read_in_good_order(victim: Victim, reader: str) -> None:
    """Every reader of these tests works where nothing is wrong: what they refuse is the damage."""
    assert tried(victim, Trial("known", ("since",), "no text"), reader) is None
