"""What a step's answer means: its response and, for an agent, the files that may stand in for it (D35)."""

from __future__ import annotations

import os

from loomctl.flow.outcomes import outcomes, output_checks
from loomctl.flow.outcomes.directives import LAST_FILE, RESPONSE, STATUS_JSON, Fault, mended
from loomctl.flow.stop import turn_ends
from loomctl.kit import files
from loomctl.kit.errors import LoomError
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.flow.outcomes.directives import Reading
    from loomctl.runs.caller import Workspace
    from loomctl.runs.store.store import Run

LARGEST_SOURCE = 1 << 20  # bytes of a file that may stand in for a response
ENDINGS = (".json", ".md")  # of the file touched last, where it may hold a directive
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
    beside: list[_Beside] = []
    if not alone and step.get("kind", "agent") == "agent" and not is_custom(step):
        from loomctl.changes import track  # a message that nobody gave as an answer needs none

        since = track.began_at(space, run, entry)
        workdir = _workdir(space, run, step)
        status_json = os.path.join(workdir, STATUS_JSON)
        touched = track.last_written(space, run, entry) or ""
        roots = (space.project.root, run.folder, workdir)
        beside.append(_beside(roots, STATUS_JSON, status_json, since))
        if touched.endswith(ENDINGS) and touched != status_json:
            beside.append(_beside(roots, LAST_FILE, touched, since))
    texts = {one.source: one.text for one in beside}
    reading = outcomes.understood(
        step,
        response or "",
        status_json=texts.get(STATUS_JSON),
        last_file=texts.get(LAST_FILE),
        environment_python=space.caller.environment_python,
    )
    return _with_files(reading, beside)


class _Beside(NamedTuple):
    """A file that may stand in for a response. source: STATUS_JSON or LAST_FILE; text: None where it does not count.

    path: from the project's root, the run's folder or the step's workdir; fault: why it was not read though it might
    count.
    """

    source: str
    path: str
    text: str | None = None
    fault: Fault | None = None


def _beside(roots: Sequence[str], source: str, path: str, since: int) -> _Beside:
    """Read such a file; one that leads out of all the roots is refused unread (D10)."""
    from loomctl.runs.artifact_paths import is_inside, real

    try:
        there = os.path.realpath(path)
    except ValueError:  # no file has such a name
        return _Beside(source, "")
    folder = next((one for one in roots if is_inside(there, real(one))), None)
    if folder is None:
        return _Beside(source, "")
    shown = mended(os.path.relpath(there, real(folder)))
    try:
        return _Beside(source, shown, _written_since(there, since))
    except LoomError as error:
        return _Beside(source, shown, fault=Fault("PASSED_OVER", "", f"{shown} is not looked at: {error.what}"))


def _with_files(reading: Reading, beside: Sequence[_Beside]) -> Reading:
    """Name the file that the directive stands in; and each that was not read and might have held one before it."""
    file = next((one.path for one in beside if one.source == reading.source), None)
    names = [one.source for one in beside]
    before = 0 if reading.source == RESPONSE else names.index(reading.source) if reading.source in names else len(names)
    faults = [one.fault for one in beside[:before] if one.fault is not None]
    if reading.errors and not reading.found:
        return reading._replace(errors=[*reading.errors, *faults])
    return reading._replace(file=file, warnings=[*faults, *reading.warnings])


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
    """Give the folder that a step works in: in the project, or where its user allows one; else the project's root."""
    from loomctl.runs import run_values
    from loomctl.runs.artifact_paths import is_inside, real

    root = space.project.root
    path = os.path.join(root, run_values.workdir(space.project, run, step) or "")
    allowed = (root, *space.settings.extra_roots)
    return path if any(is_inside(real(path), real(one)) for one in allowed) else root


def _written_since(path: str, since: int) -> str | None:
    """Read a file that was written at or after a time in nanoseconds; None for every other. Raises TOO_LARGE."""
    try:
        if os.stat(path).st_mtime_ns < since:
            return None
        return files.read_bytes(path, limit=LARGEST_SOURCE).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
