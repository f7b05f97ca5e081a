"""Whether the blobs that runs refer to are there, and whole (D38)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loomctl.kit.errors import LoomError
from loomctl.kit.findings import FAIL, PASS, WARN, Finding, gathered
from loomctl.runs import run_blobs
from loomctl.runs.model.state import TERMINAL
from loomctl.runs.store.blobs import Blobs, refs_of_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.care.doctor.patient import Patient
    from loomctl.runs.model.state import State

MOST_READ = 64 << 20  # bytes that are held against their hashes; of more it is only seen that they are there


def blobs(patient: Patient) -> Finding:
    """Whether the large values in the contexts of runs can be read; those of runs under way are read first."""
    if patient.store is None:
        return Finding(PASS, "no project, so no blobs")
    store = Blobs(patient.store.folder)
    troubles: list[Finding] = []
    seen: set[str] = set()
    left, unread = MOST_READ, 0
    for run_id, state in _by_need(patient):
        for ref in refs_of_state(state):
            size = _size(store, ref)
            is_read = size is None or ref in seen or size <= left
            if ref not in seen:
                seen.add(ref)
                left -= (size or 0) if is_read else 0
                unread += 0 if is_read else 1
            error = _trouble(patient, run_id, ref) if is_read else None
            if error is not None:
                troubles.append(_said(run_id, state, error))
    fine = f"every blob that a run refers to is there ({len(seen):,})" if seen else "no run refers to a blob"
    if unread:
        fine += f"; {unread} of them, over {MOST_READ >> 20} MB in all, were not read"
    return gathered(troubles, fine, facts={"blobs": len(seen)})


def _by_need(patient: Patient) -> Iterator[tuple[str, State]]:
    states = {run_id: state for run_id, state in patient.states.items() if not isinstance(state, LoomError)}
    yield from sorted(states.items(), key=lambda one: one[1]["status"] in TERMINAL)


def _size(store: Blobs, ref: str) -> int | None:
    try:
        return os.lstat(store.path(ref)).st_size
    except OSError:
        return None


def _trouble(patient: Patient, run_id: str, ref: str) -> LoomError | None:
    assert patient.store is not None  # the caller made sure
    return run_blobs.trouble(patient.store.folder, patient.store.run_dir(run_id), ref)


def _said(run_id: str, state: State, error: LoomError) -> Finding:
    found = f"the run {run_id} refers to what cannot be read: {error.what}"
    status = WARN if state["status"] in TERMINAL else FAIL
    return Finding(status, found, f"loomctl show {run_id}", [part for part in (error.where, error.why) if part])
