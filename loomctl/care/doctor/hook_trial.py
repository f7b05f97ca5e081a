"""A hook's whole way, tried: from hooks.json through the launcher to what primes a session, in a project of its own."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

from loomctl.care.doctor import hook_checks
from loomctl.flow.open_project import workspace
from loomctl.kit import bundle_lines, files, folders
from loomctl.kit.errors import LoomError
from loomctl.kit.findings import FAIL, PASS, WARN, Finding
from loomctl.kit.process import processes
from loomctl.runs import project
from loomctl.runs.caller import Caller, Conversation
from loomctl.runs.machine import heartbeats
from loomctl.runs.settings.config import Settings

if TYPE_CHECKING:
    from loomctl.care.doctor.patient import Patient

# A hook that takes more seconds is called again, to tell a first start from a slow machine.
SLOW = 0.5
SESSION = "loom-doctor-0000-trial-session"
MARK = "This sentence is what a hook on trial must bring back."
# What a session of the doctor's own caller must not lend to the trial.
_APART = ("CLAUDE_PID", "LOOM_DISABLED", "LOOM_ENV_PYTHON", "LOOM_PLUGIN_ROOT", "LOOM_HOSTNAME")
_WORKFLOW = {
    "id": "trial",
    "critical_artifacts": {
        "always_load": [
            {
                "id": "note",
                "type": "markdown",
                "path": "note.md",
                "description": "what must come back",
                "required": True,
                "reload_triggers": ["session_start"],
            }
        ]
    },
    "phases": {"try": {"steps": [{"id": "answer", "prompt": "Answer the doctor."}]}},
}


# A folder of one's own for what is only made for a while.
_OWN_FOLDER = 'mkdir -p "$HOME/.cache/tmp" && export TMPDIR="$HOME/.cache/tmp"'


def round_trip(patient: Patient) -> Finding:
    """Call the SessionStart hook as a host does, in a temporary project with a run of its own, and read its answer."""
    base = tempfile.gettempdir()
    if os.path.realpath(base) == os.path.realpath(patient.cwd or os.sep):  # where Python turns without any other place
        return Finding(WARN, "a hook cannot be tried: no temporary folder can be written", _OWN_FOLDER)
    try:
        folder = tempfile.mkdtemp(prefix="loom-doctor-")
    except OSError as error:
        return Finding(WARN, f"a hook cannot be tried: {error}", _OWN_FOLDER)
    try:
        return _tried(patient, os.path.realpath(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried(patient: Patient, folder: str) -> Finding:
    try:
        command, timeout = hook_checks.session_start_entry(patient.bundle)
    except (OSError, LoomError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        mended = bundle_lines.repair(patient.bundle, "hooks")
        return Finding(FAIL, "hooks.json names no command for SessionStart", mended)
    shop = os.path.join(folder, "project")
    environ = _environ(folder, shop)
    made = _made(shop, environ)
    if made:
        return Finding(FAIL, "a run for the trial could not be made", "loomctl demo", [made])
    event = {
        "session_id": SESSION,
        "transcript_path": "",
        "cwd": shop,
        "hook_event_name": "SessionStart",
        "source": "startup",
    }

    def call() -> processes.Ended:
        return processes.run(
            ["/bin/sh", "-c", command],
            cwd=shop,
            environ={**environ, "CLAUDE_PLUGIN_ROOT": patient.bundle},
            patience=timeout,
            given=json.dumps(event).encode(),
        )

    first = call()
    local = os.path.join(shop, project.STORE, "local")
    found = _judged(first, timeout, local)
    if found.status != PASS or first.seconds < SLOW:
        return found
    again = _judged(call(), timeout, local)  # a first start may look for Python and compile, no other does
    return again._replace(details=[*again.details, f"the first one took {first.seconds * 1000:.0f} ms"])


def _environ(folder: str, shop: str) -> dict[str, str]:
    """Give the hook's environment: the caller's own without its session, and a state folder of the trial's."""
    environ = {name: value for name, value in os.environ.items() if name not in _APART}
    environ |= {
        "LOOM_STATE_HOME": os.path.join(folder, "state"),
        "CLAUDE_PROJECT_DIR": shop,
        "CLAUDE_CODE_SESSION_ID": SESSION,
        "PWD": shop,
    }
    cache = folders.cache_home()
    if not cache or not os.path.isdir(cache):  # it is not the doctor who makes it
        environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
    return environ


def _made(shop: str, environ: dict[str, str]) -> str:
    """Start the trial's run in a process of its own; gives what went wrong, or an empty string."""
    os.mkdir(shop)
    begin = "from loomctl.care.doctor.hook_trial import begin; begin(sys.argv[2])"
    program = f"import sys; sys.path.insert(0, sys.argv[1]); {begin}"
    ended = processes.run(
        [sys.executable, "-I", "-S", "-B", "-c", program, project.package_parent(), shop],
        cwd=shop,
        environ=environ,
        patience=30,
    )
    if ended.code == 0:
        return ""
    return ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2] or f"it ended with {ended.code}"


def begin(shop: str) -> None:
    """Start the trial's run in an empty folder, with the standard library alone."""
    with open(os.path.join(shop, "note.md"), "w", encoding="utf-8") as note:
        note.write(f"{MARK}\n")
    workflow = os.path.join(shop, "trial.json")
    with open(workflow, "wb") as file:
        file.write(files.to_json(_WORKFLOW))
    from loomctl.flow import start

    place = project.Project(shop, os.path.join(shop, project.STORE), project.plugin_root())
    caller = Caller(SESSION, "claude-code", None, shop, Conversation(), on_hook_path=True)
    start.start(workspace(place, Settings(), caller), "try a hook", workflow=workflow)


def _judged(ended: processes.Ended, timeout: float, local: str) -> Finding:
    hint = "loomctl demo"
    took = f"{ended.seconds * 1000:.0f} ms"
    facts = {"milliseconds": round(ended.seconds * 1000, 1)}
    words = ended.stderr.decode("utf-8", "replace").strip()
    said = [f"it said: {words}"] if words else []
    if ended.code is None:
        return Finding(FAIL, f"a SessionStart hook did not end within its {timeout:g} s", hint, said, facts)
    if ended.code != 0:
        return Finding(FAIL, f"a SessionStart hook ended with {ended.code} instead of 0", hint, said, facts)
    if not ended.stdout.strip():
        return Finding(FAIL, f"a SessionStart hook answered nothing ({took})", hint, said, facts)
    try:
        answer = json.loads(ended.stdout)
        given = answer.get("hookSpecificOutput") or {}
        primed = MARK in str(given.get("additionalContext", ""))
        line = str(answer.get("systemMessage", ""))
    except (ValueError, AttributeError) as error:
        return Finding(FAIL, f"a SessionStart hook answered what no host understands: {error}", hint, said, facts)
    if not primed:
        return Finding(FAIL, "a SessionStart hook did not prime its run", hint, [*said, f"it told: {line}"], facts)
    if "session-start" not in heartbeats.read(local):
        return Finding(
            WARN, f"a SessionStart hook primed its run, and did not note that it fired ({took})", "", [], facts
        )
    if ended.seconds > timeout / 2:
        return Finding(WARN, f"a SessionStart hook took {took} of its {timeout:g} s", "loomctl paths", [line], facts)
    return Finding(PASS, f"a SessionStart hook primed a run of its own in {took}", "", [line], facts)
