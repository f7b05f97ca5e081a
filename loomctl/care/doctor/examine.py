"""What is well and what is not in an installation of Loom: a table of checks, each fenced from the others.

The standard library alone: the doctor must speak where no environment could be made. It changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.care.doctor import blob_checks, hook_checks, hook_trial, machine_checks, project_checks
from loomctl.kit import bundle_lines
from loomctl.kit.errors import LoomError
from loomctl.kit.findings import FAIL, Finding
from loomctl.kit.text.fences import one_line
from loomctl.kit.text.secrets import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from loomctl.care.doctor.patient import Patient

    Check: TypeAlias = Callable[[Patient], Finding]

# A line of a finding has at most this many UTF-16 units.
LONGEST = 600

CHECKS: dict[str, Check] = {
    "switch": hook_checks.switch,
    "python": machine_checks.python,
    "environment": machine_checks.environment,
    "versions": machine_checks.versions,
    "hooks": hook_checks.hooks,
    "round-trip": hook_trial.round_trip,
    "heartbeats": hook_checks.firings,
    "project": project_checks.project,
    "config": project_checks.config,
    "runs": project_checks.runs,
    "states": project_checks.states,
    "ledgers": project_checks.ledgers,
    "blobs": blob_checks.blobs,
    "known": project_checks.known,
    "tool-calls": project_checks.tool_calls,
    "locks": project_checks.locks,
    "disk": machine_checks.disk,
    "git": machine_checks.git_found,
}
"""By id, in the order in which they are told; docs/reference/doctor.md says what each means."""


def examine(patient: Patient, checks: Mapping[str, Check]) -> dict[str, Finding]:
    """Run each check; one that fails by itself is a FAIL that says so, and the others go on."""
    return {name: _shown(_fenced(check, patient)) for name, check in checks.items()}


def _fenced(check: Check, patient: Patient) -> Finding:
    try:
        return check(patient)
    except LoomError as refused:
        error = bundle_lines.fitting(refused, patient.bundle)
        return Finding(
            FAIL, f"{error.code}: {error.what}", error.hint, [part for part in (error.where, error.why) if part]
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, the other checks shall speak
        return Finding(FAIL, f"this check failed itself: {type(error).__name__}: {error}", "loomctl --debug paths")


def _shown(finding: Finding) -> Finding:
    """Give a finding that can be shown: no secrets, no control characters, each part on a line of its own."""
    return Finding(
        finding.status,
        _line(finding.found),
        _line(finding.hint),
        [_line(detail) for detail in finding.details],
        _facts(finding.facts),
    )


def _facts(value: Any) -> Any:
    if isinstance(value, str):
        return _line(value)
    if isinstance(value, dict):
        return {key: _facts(part) for key, part in value.items()}
    return [_facts(part) for part in value] if isinstance(value, (list, tuple)) else value


def _line(text: str) -> str:
    return one_line(mask(text)[0], LONGEST)
