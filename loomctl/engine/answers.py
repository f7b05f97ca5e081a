"""What a step's answer means: its response and, for an agent, the files that may stand in for it (D35)."""

from __future__ import annotations

import os

from loomctl.disk import files
from loomctl.disk.artifact_paths import is_inside, real
from loomctl.engine import outcomes, prompts, tracking
from loomctl.model import output_checks, turn_ends
from loomctl.model.errors import LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.disk.store import Run
    from loomctl.engine.caller import Workspace
    from loomctl.model.directives import Reading

LARGEST_SOURCE = 1 << 20  # bytes of a file that may stand in for a response
_ENDINGS = (".json", ".md")
_ROUTING = "routing"


def read(
    space: Workspace,
    run: Run,
    entry: Mapping[str, Any],
    step: Mapping[str, Any],
    response: str | None,
    *,
    alone: bool = False,
) -> Reading:
    """Read what a visit answered. Raises nothing for what a response or a file holds.

    A file counts only if it was written during the visit; a prompt step's answer is its response alone. alone: so is
    this one, for nobody gave it as a response: it may be a question, whatever a file says (D27).
    """
    status_json = last_file = None
    if not alone and step.get("kind", "agent") == "agent" and not is_custom(step):
        since = tracking.began_at(space, run, entry)
        at = os.path.join(_workdir(space, run, step), "status.json")
        status_json = _written_since(at, since) if is_inside(real(at), real(space.project.root)) else None
        touched = tracking.last_written(space, run, entry)
        if touched is not None and touched.endswith(_ENDINGS):
            last_file = _written_since(touched, since)
    return outcomes.understood(
        step,
        response or "",
        status_json=status_json,
        last_file=last_file,
        environment_python=space.caller.environment_python,
    )


def fits(step: Mapping[str, Any], reading: Reading) -> bool:
    """Tell whether an answer holds what its step asks for (D36)."""
    return reading.found and not reading.errors if step.get("output_schema") else True


def how(step: Mapping[str, Any], reading: Reading) -> str:
    """Tell whether a message that nobody gave as an answer holds a result: `turn_ends.ABSENT`, `FITS` or `UNFIT`."""
    if not step.get("output_schema"):
        return turn_ends.FITS if _says_something(reading) else turn_ends.ABSENT
    if fits(step, reading):
        return turn_ends.FITS
    if reading.errors and not output_checks.can_be_repaired(reading) and reading.found:
        return turn_ends.ABSENT  # nobody here can tell: `loomctl done` can
    return turn_ends.ABSENT if outcomes.is_absent(reading) else turn_ends.UNFIT


def _says_something(reading: Reading) -> bool:
    """Tell whether a directive that was read loosely says how a step ended: JSON that merely has such a key does not.

    One whose outcome is no word of D32 might mean a failure; it is not taken for a success.
    """
    if any(one.where == "/outcome" for one in reading.warnings):
        return False
    said = (reading.outcome, reading.preferred_next_label, reading.suggested_next_ids, reading.context_updates)
    return reading.found and any(said)


def is_custom(step: Mapping[str, Any]) -> bool:
    """Tell whether a step asks for an object of its own schema, which does not route (D35)."""
    return step.get("output_schema") not in (None, _ROUTING)


def _workdir(space: Workspace, run: Run, step: Mapping[str, Any]) -> str:
    path = os.path.join(space.project.root, prompts.workdir(space.project, run, step) or "")
    return path if is_inside(real(path), real(space.project.root)) else space.project.root


def _written_since(path: str, since: int) -> str | None:
    """Read a file that was written at or after a time in nanoseconds; None for every other."""
    try:
        if os.stat(path).st_mtime_ns < since:
            return None
        return files.read_bytes(path, limit=LARGEST_SOURCE).decode("utf-8", "replace")
    except (OSError, ValueError, LoomError):
        return None
