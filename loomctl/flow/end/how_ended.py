"""How a visit ended, in a few words, for its user's line and console: by which file, and why it failed."""

from __future__ import annotations

from loomctl.flow.outcomes import output_checks
from loomctl.kit.text.secrets import masked_line
from loomctl.runs.model import visits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from loomctl.flow.outcomes.directives import Reading

_LONGEST_PATH = 200
_LONGEST_ERRORS = 600


def by_file(reading: Reading | None) -> str:
    """Name the file that says how a visit ended; empty where its response does (D35)."""
    return f"by {masked_line(reading.file, _LONGEST_PATH)}" if reading is not None and reading.file else ""


def why(entry: Mapping[str, Any], reading: Reading | None, limit: int) -> str:
    """Say why a visit failed, empty for one that did not; of an answer that never fitted, the first errors too (D36).

    limit: characters of a reason that somebody gave.
    """
    reason = masked_line(visits.reason_of(entry), limit)
    exhausted = output_checks.exhausted(visits.repairs_of(entry))
    if reading is None or not reading.errors or entry.get("failure_reason") != exhausted:
        return reason
    return f"{reason}: {masked_line(output_checks.first_errors(reading), _LONGEST_ERRORS)}"
