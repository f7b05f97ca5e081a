"""What the doctor tells, as text or JSON: the standard library alone, for it is asked where nothing could be set up."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from loomctl.disk import project
from loomctl.engine import doctoring
from loomctl.engine.patient import Patient
from loomctl.hosts import claude_doctoring
from loomctl.model.errors import EXIT_FINDINGS, EXIT_OK
from loomctl.model.findings import FAIL, PASS, WARN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.model.findings import Finding

CHECKS = {**doctoring.CHECKS, "assistant": claude_doctoring.assistant}
_COLOURS = {PASS: "32", WARN: "33", FAIL: "31"}


def main(*, as_json: bool) -> int:
    """Examine this installation, print what was found; gives 1 if anything is a FAIL, else 0 (D52)."""
    findings = doctoring.examine(_patient(), CHECKS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        print(_document(findings) if as_json else _text(findings), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FINDINGS if any(finding.status == FAIL for finding in findings.values()) else EXIT_OK


def _patient() -> Patient:
    try:
        cwd = os.getcwd()
    except OSError:  # it was removed
        cwd = ""
    # Started by the launcher with the standard library alone: it says which environment there is, if any.
    here = sys.executable if importlib.util.find_spec("click") and not sys.flags.no_site else ""
    return Patient(
        cwd=cwd,
        project=project.find((cwd, os.environ.get("CLAUDE_PROJECT_DIR", ""))),
        environment_python=os.environ.get("LOOM_ENV_PYTHON", "") if sys.flags.no_site else here,
        session_id=os.environ.get("CLAUDE_CODE_SESSION_ID", ""),
        now=time.time(),
        program="" if sys.flags.no_site else sys.argv[0],
    )


def _document(findings: Mapping[str, Finding]) -> str:
    checks = []
    for name, finding in findings.items():
        told = {"id": name, "status": finding.status, "found": finding.found, "hint": finding.hint}
        more = {"details": list(finding.details), **finding.facts}
        checks.append({key: value for key, value in {**told, **more}.items() if value not in ("", [])})
    ok = all(finding.status != FAIL for finding in findings.values())
    return json.dumps({"schema_version": 1, "ok": ok, "checks": checks}, ensure_ascii=False, indent=1)


def _text(findings: Mapping[str, Finding]) -> str:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = max(map(len, findings))
    lines = []
    for name, finding in findings.items():
        status = f"\033[{_COLOURS[finding.status]}m{finding.status}\033[0m" if coloured else finding.status
        lines.append(f"{status}  {name.ljust(width)}  {finding.found}")
        lines += [f"      {' ' * width}  {detail}" for detail in finding.details]
        lines += [f"      {' ' * width}  hint: {finding.hint}"] if finding.hint else []
    counts = {status: sum(one.status == status for one in findings.values()) for status in (PASS, WARN, FAIL)}
    lines.append(f"{counts[PASS]} passed, {counts[WARN]} to look at, {counts[FAIL]} failed")
    return "\n".join(lines)
