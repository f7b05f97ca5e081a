"""What the doctor tells, as text or JSON: the standard library alone, for it is asked where nothing could be set up."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from typing import TYPE_CHECKING

from loomctl.care import doctor
from loomctl.care.project_checks import Patient
from loomctl.cli import output
from loomctl.hosts import asking, hook_checks, shells, table
from loomctl.hosts.setup import checks
from loomctl.hosts.setup.claude import assistant
from loomctl.kit.errors import EXIT_FINDINGS, EXIT_OK, ON_INTERRUPT
from loomctl.kit.trouble import FAIL, PASS, WARN
from loomctl.runs import project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomctl.kit.trouble import Finding

_BY_NAME = {**doctor.CHECKS, **hook_checks.CHECKS, "assistant": assistant}
_FIRST = ("switch", "python", "environment", "versions", "path", "hooks", "round-trip", "heartbeats")
CHECKS = {name: _BY_NAME[name] for name in dict.fromkeys((*_FIRST, *_BY_NAME))}
_COLOURS = {PASS: "green", WARN: "yellow", FAIL: "red"}


def main(*, as_json: bool) -> int:
    """Examine this installation, print what was found; gives 1 if anything is a FAIL, else 0 (D52)."""
    output.prepare()
    code = tell(as_json=as_json)
    output.finish()
    return code


def tell(*, as_json: bool) -> int:
    """Do it with streams that are prepared already."""
    code = EXIT_OK
    try:
        findings = doctor.examine(_patient(), {**CHECKS, **checks.here()})
        code = EXIT_FINDINGS if any(finding.status == FAIL for finding in findings.values()) else EXIT_OK
        print(_document(findings) if as_json else _text(findings), flush=True)
    except KeyboardInterrupt:
        return _failed("interrupted", ON_INTERRUPT)
    except BrokenPipeError:  # `loomctl doctor | head`
        return code
    except OSError as problem:
        error = output.in_words(problem, "loomctl doctor")
        return _failed(f"loomctl: {error}", error.exit_code)
    return code


def _failed(words: str, code: int) -> int:
    try:
        print(words, file=sys.stderr, flush=True)
    except OSError:
        pass
    return code


def _patient() -> Patient:
    try:
        cwd = os.getcwd()
    except OSError:  # it was removed
        cwd = ""
    # Started by the launcher with the standard library alone: it says which environment there is, if any.
    here = sys.executable if importlib.util.find_spec("click") and not sys.flags.no_site else ""
    inner = shells.sessions(os.environ)[:1]
    patient = Patient(
        cwd=cwd,
        project=project.find((cwd, *table.started_in(os.environ))),
        environment_python=os.environ.get("LOOM_ENV_PYTHON", "") if sys.flags.no_site else here,
        session_id=inner[0].id if inner and not inner[0].rivals else "",
        now=time.time(),
        program="" if sys.flags.no_site else sys.argv[0],
    )
    patient.shut_in = bool(inner and inner[0].host.sandbox)
    patient.conversation = asking.conversation(table.CLAUDE, None)
    return patient


def _document(findings: Mapping[str, Finding]) -> str:
    checks = []
    for name, finding in findings.items():
        told = {"id": name, "status": finding.status, "found": finding.found, "hint": finding.hint}
        more = {"details": list(finding.details), **finding.facts}
        checks.append({key: value for key, value in {**told, **more}.items() if value not in ("", [])})
    ok = all(finding.status != FAIL for finding in findings.values())
    return output.rendered({"ok": ok, "checks": checks})


def _text(findings: Mapping[str, Finding]) -> str:
    width = max(map(len, findings))
    lines = []
    for name, finding in findings.items():
        first, *more = output.beside(f"{finding.status}  {name.ljust(width)}  ", finding.found)
        lines += [output.styled(finding.status, _COLOURS[finding.status]) + first[len(finding.status) :], *more]
        indent = " " * (len(finding.status) + width + 4)
        lines += [line for detail in finding.details for line in output.beside(indent, detail)]
        lines += [f"{indent}hint: {finding.hint}"] if finding.hint else []
    counts = {status: sum(one.status == status for one in findings.values()) for status in (PASS, WARN, FAIL)}
    lines.append(f"{counts[PASS]} passed, {counts[WARN]} to look at, {counts[FAIL]} failed")
    return "\n".join(lines)
