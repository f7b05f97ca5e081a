"""What is wrong with the `events.jsonl` of runs, as `check` and the doctor tell it: the verdict of `verify` (D54)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.kit import files
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.findings import PASS, WARN, Finding, gathered
from loomctl.kit.problems import error, warning
from loomctl.kit.text.counts import counted
from loomctl.runs import log_verdict
from loomctl.runs.store import event_log, events

if TYPE_CHECKING:
    from typing import Any

    from loomctl.kit.problems import Problem
    from loomctl.runs.patient import Patient
    from loomctl.runs.store.event_log import Fault

MOST_READ = 64 << 20  # bytes of logs that the doctor reads
COPY = "what is gone is in no other file of Loom's; a copy of yours may have it"


def check_log(path: str) -> list[Problem]:
    """Give every fault of a log by its path, and the state beside it; what a kill left at its end is a warning."""
    run_id = os.path.basename(os.path.dirname(os.path.abspath(path)))
    try:
        found = log_verdict.of_log(path, run_id, _state_beside(path), event_log.all_of(path))
    except LoomError as unreadable:
        return [error("UNREADABLE", "$", unreadable.why or unreadable.what, f"ls -l {quoted(path)}")]
    problems = [_problem(fault) for fault in found.faults]
    if found.torn_at is not None and found.ok:
        message = "this is no entry: a kill cut a write off here; the next write closes it"
        problems.append(warning("TORN_LINE", f"line {found.torn_at.line}", message, f"loomctl verify {run_id}"))
    return problems


def _problem(fault: Fault) -> Problem:
    message = f"{fault.what}: {fault.why}" if fault.why else fault.what
    return error(fault.code, f"line {fault.line}", message, COPY)


def _state_beside(path: str) -> dict[str, Any] | None:
    try:
        state = files.read_json(os.path.join(os.path.dirname(path), "state.json"))
    except (OSError, LoomError):  # has an error of its own
        return None
    return state if isinstance(state, dict) else None


def ledgers(patient: Patient) -> Finding:
    """Whether the logs of the active runs are those that were written, as `verify` has it."""
    if patient.store is None:
        return Finding(PASS, "no project, so no logs")
    troubles: list[Finding] = []
    left, unread, read = MOST_READ, 0, 0
    for run_id in patient.active:
        size = _size(os.path.join(patient.store.run_dir(run_id), events.FILE))
        if size > left:
            unread += 1
            continue
        left, read = left - size, read + 1
        fault = log_verdict.verify(patient.store, run_id).fault
        if fault is not None:
            found = f"the log of {run_id} does not fit at line {fault.line}: {fault.what}"
            troubles.append(Finding(WARN, found, f"loomctl verify {run_id}"))
    fine = f"the logs of the active runs are those that were written ({read})" if read else "no active run has a log"
    if unread:
        fine += f"; {counted(unread, 'log')}, over {MOST_READ >> 20} MB in all, were not read: loomctl verify --all"
    return gathered(troubles, fine)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
