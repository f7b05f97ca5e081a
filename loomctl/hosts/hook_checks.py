"""Whether hooks can do their work, and whether they did: the switch, the bundle's entries, when each last fired."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

from loomctl.flow.open_project import workspace
from loomctl.hosts.setup import install
from loomctl.kit import clock, files, machine, package, processes, trouble
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding, gathered
from loomctl.runs import hook_health, project
from loomctl.runs.config import Settings
from loomctl.runs.machine import launcher_files
from loomctl.runs.project import Caller, Conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loomctl.care.project_checks import Patient
    from loomctl.runs.hook_health import Health, Silent
    from loomctl.runs.machine.launcher_files import Beat

_PARTS = [f"session-start {number}/{launcher_files.MOST_PARTS}" for number in range(1, launcher_files.MOST_PARTS + 1)]
"""What the entries of a session start call, each of which gives one part of the text (D62)."""


_HOOK = " hook --host claude-code "


def switch(patient: Patient) -> Finding:
    """LOOM_DISABLED=1 switches every hook off (D57)."""
    value = os.environ.get("LOOM_DISABLED", "")
    if value == "1":
        return Finding(FAIL, "LOOM_DISABLED=1 switches every hook off", "unset LOOM_DISABLED")
    if value:
        return Finding(WARN, f"LOOM_DISABLED is {value!r:.40}, but only 1 switches hooks off", "unset LOOM_DISABLED")
    return Finding(PASS, "hooks are switched on (LOOM_DISABLED is not set)")


def hooks(patient: Patient) -> Finding:
    """The bundle's hooks/claude-code.json: valid, each entry a command that can be run, each an event of Loom's."""
    path = os.path.join(patient.bundle, "hooks", "claude-code.json")
    mended = trouble.repair(patient.bundle, "hooks")
    try:
        groups = [group for groups in files.read_json(path)["hooks"].values() for group in groups]
        entries = [str(entry["command"]) for group in groups for entry in group["hooks"]]
    except (OSError, LoomError) as error:
        said = error.what if isinstance(error, LoomError) else str(error)
        return Finding(FAIL, f"Loom cannot read the bundle's hooks: {said}", mended, [path])
    except (KeyError, TypeError, AttributeError):
        return Finding(FAIL, "the bundle's hooks/claude-code.json has a form that no host reads", mended, [path])
    troubles = [finding for command in entries for finding in _entry_troubles(patient, command)]
    troubles = list({finding.found: finding for finding in troubles}.values())
    called = {command.rpartition(_HOOK)[2] for command in entries}
    expected = [part for event in launcher_files.EVENTS for part in (_PARTS if event == "session-start" else [event])]
    troubles += [Finding(FAIL, f"no hook for {event}", mended) for event in expected if event not in called]
    if not os.path.isfile(os.path.join(package.FOLDER, "__main__.py")):
        whole = trouble.repair(patient.bundle, "loomctl")
        troubles.append(Finding(FAIL, "the package is not where the launcher looks for it", whole, [package.FOLDER]))
    return gathered(troubles, f"{len(entries)} hooks, each calls {patient.launcher}")


def _entry_troubles(patient: Patient, command: str) -> Iterator[Finding]:
    mended = trouble.repair(patient.bundle, "hooks")
    try:
        words = [word.replace("${CLAUDE_PLUGIN_ROOT}", patient.bundle) for word in shlex.split(command)]
    except ValueError:
        words = []
    told = " ".join(words[4:])
    if words[1:4] != _HOOK.split() or told not in (*launcher_files.EVENTS, *_PARTS):
        yield Finding(FAIL, f"a hook calls a command that Loom does not have: {command:.200}", mended)
        return
    if not os.path.isfile(words[0]):
        yield Finding(FAIL, f"hooks call {words[0]}, which is not there", trouble.repair(patient.bundle, "bin"))
    elif not os.access(words[0], os.X_OK):
        yield Finding(FAIL, f"hooks call {words[0]}, which cannot be executed", f"chmod +x {shlex.quote(words[0])}")


def firings(patient: Patient) -> Finding:
    """When each hook last fired, against what the sessions that drive runs did; bindings that no hook can read."""
    found = _firings(patient)
    damaged = patient.local.damaged_bindings() if patient.local else []
    if not damaged:
        return found
    said = "a session's file is damaged, so its hooks do not know its run"
    troubles = [Finding(WARN, f"{said}: {path}", f"rm {quoted(path)}") for path in damaged]
    if found.status == PASS:
        return gathered(troubles, "", details=found.details, facts=found.facts)
    return gathered([found, *troubles], "")


def _firings(patient: Patient) -> Finding:
    if patient.store is None or patient.local is None:
        return Finding(PASS, "no project, so no hook has fired")
    health = hook_health.look(patient.local, patient.store.local, patient.conversation, now=patient.now)
    driving, beats = health.driving, health.beats
    details = [f"{event}: {_when(patient, beats.get(event))}" for event in launcher_files.EVENTS]
    silent = [{"event": one.event or "all", "how": one.how} for one in health.silent]
    fired = [{"event": event, **beat._asdict(), "at": clock.stamp(beat.at)} for event, beat in beats.items()]
    facts = {"fired": fired, "silent": silent}
    if not health.has_room:
        if not driving:
            return Finding(PASS, "no session has driven a run here yet, so no hook has fired")
        return Finding(WARN, "hooks cannot record here that they fired", "loomctl resume")
    if not driving and not beats:
        return Finding(PASS, "no session of an assistant drives a run here, and no hook has fired")
    troubles = [_silence(patient, health, one) for one in health.silent]
    if not beats and not troubles:
        bound = clock.ago(str(driving[-1].get("bound_at")), patient.now)
        said = f"no hook has fired yet; the session {str(driving[-1]['session_id'])[:60]} drives a run since "
        troubles = [Finding(WARN, said + bound, _mend(health, "claude plugin list"))]
    newest = max(beats, key=lambda event: beats[event].at) if beats else ""
    fine = f"{len(beats)} of {len(launcher_files.EVENTS)} hooks have fired here, the last one {newest}: "
    fine += _when(patient, beats.get(newest))
    return gathered(troubles, fine, details=details, facts=facts)


def _silence(patient: Patient, health: Health, one: Silent) -> Finding:
    """Tell of a silent hook; that none fires at all is a failure, but for a session that was bound a moment ago."""
    if one.event or patient.local is None:
        return Finding(WARN, hook_health.said(one, patient.now), _mend(health, "claude plugin list"))
    latest = health.driving[-1]
    name = str(latest["session_id"])[:60]
    since = f"since {clock.ago_of(one.since, patient.now)}" if one.since else "here, ever"
    sign = clock.ago_of(patient.local.last_sign(latest), patient.now)
    found = f"no hook has fired {since}, though the session {name} worked on its run {sign}"
    return Finding(FAIL, found, _mend(health, "claude plugin enable loom@loom"))


def _mend(health: Health, own: str) -> str:
    """Give the command line for the host of the session that drives a run. own: the first host's."""
    driver = str(health.driving[-1].get("host")) if health.driving else ""
    return f"loomctl plugin install {driver}" if driver in install.HOSTS else own


def _when(patient: Patient, beat: Beat | None) -> str:
    if beat is None:
        return "never"
    said = clock.ago_of(beat.at, patient.now)
    said += f", in the session {beat.session_id[:60]}" if beat.session_id else ""
    return said + (f", by {beat.version[:40]}" if beat.version else "")


def session_start_entry(bundle: str) -> tuple[str, float]:
    """Give the command and the timeout (seconds) with which a host calls the SessionStart hook.

    Raises OSError, LoomError, or what a file of another form raises.
    """
    raw = files.read_json(os.path.join(bundle, "hooks", "claude-code.json"))
    entry = raw["hooks"]["SessionStart"][0]["hooks"][0]
    return str(entry["command"]), float(entry.get("timeout", 60))


# A hook that takes more seconds is called again, to tell a first start from a slow machine.
SLOW = 0.5
SESSION = "loom-doctor-0000-trial-session"
MARK = "This sentence is what a hook on trial must bring back."
# What a session of the doctor's own caller must not lend to the trial.
_APART = ("CLAUDE_PID", "LOOM_DISABLED", "LOOM_ENV_PYTHON", "LOOM_PLUGIN_ROOT", "LOOM_HOSTNAME", "LOOM_CALLER")
_NOTE = {"id": "note", "type": "markdown", "path": "note.md", "description": "a note for the trial", "required": True}
_WORKFLOW = {
    "id": "trial",
    "critical_artifacts": {"always_load": [{**_NOTE, "reload_triggers": ["session_start"]}]},
    "phases": {"try": {"steps": [{"id": "answer", "prompt": "Answer the doctor."}]}},
}
# A folder of one's own for what is only made for a while.
_OWN_FOLDER = 'mkdir -p "$HOME/.cache/tmp" && export TMPDIR="$HOME/.cache/tmp"'


def round_trip(patient: Patient) -> Finding:
    """Call the SessionStart hook as a host does, in a temporary project with a run of its own, and read its answer."""
    base = tempfile.gettempdir()
    if os.path.realpath(base) == os.path.realpath(patient.cwd or os.sep):  # where Python turns without any other place
        return Finding(WARN, "Loom cannot try a hook: there is no writable temporary folder", _OWN_FOLDER)
    try:
        folder = tempfile.mkdtemp(prefix="loom-doctor-")
    except OSError as error:
        return Finding(WARN, f"Loom cannot try a hook: {error}", _OWN_FOLDER)
    try:
        return _tried(patient, os.path.realpath(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried(patient: Patient, folder: str) -> Finding:
    try:
        command, timeout = session_start_entry(patient.bundle)
    except (OSError, LoomError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        mended = trouble.repair(patient.bundle, "hooks")
        return Finding(FAIL, "hooks/claude-code.json names no command for SessionStart", mended)
    shop = os.path.join(folder, "project")
    environ = _environ(folder, shop)
    made = _made(shop, environ)
    if made:
        return Finding(FAIL, "Loom could not make a run to try a hook with", "loomctl demo", [made])
    event = {"session_id": SESSION, "transcript_path": "", "cwd": shop}
    event |= {"hook_event_name": "SessionStart", "source": "startup"}

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
    return again._replace(details=[*again.details, f"the first call took {first.seconds * 1000:.0f} ms"])


def _environ(folder: str, shop: str) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if name not in _APART}
    environ |= {
        "LOOM_STATE_HOME": os.path.join(folder, "state"),
        "CLAUDE_PROJECT_DIR": shop,
        "CLAUDE_CODE_SESSION_ID": SESSION,
        "PWD": shop,
    }
    cache = machine.cache_home()
    if not cache or not os.path.isdir(cache):  # it is not the doctor who makes it
        environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
    return environ


def _made(shop: str, environ: dict[str, str]) -> str:
    os.mkdir(shop)
    begin = "from loomctl.hosts.hook_checks import begin; begin(sys.argv[2])"
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
        return Finding(FAIL, f"a SessionStart hook did not end within {timeout:g} s", hint, said, facts)
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
        return Finding(FAIL, f"a SessionStart hook gave an answer that no host understands: {error}", hint, said, facts)
    if not primed:
        said.append(f"it said: {line}")
        return Finding(FAIL, "a SessionStart hook did not load its run's files", hint, said, facts)
    if "session-start" not in launcher_files.beats(local):
        return Finding(
            WARN, f"a SessionStart hook loaded its run's files, but did not record it ({took})", "", [], facts
        )
    if ended.seconds > timeout / 2:
        return Finding(WARN, f"a SessionStart hook took {took} of its {timeout:g} s", "loomctl paths", [line], facts)
    return Finding(PASS, f"a SessionStart hook loaded a trial run's files in {took}", "", [line], facts)


CHECKS: dict[str, Callable[[Patient], Finding]] = {
    "switch": switch,
    "hooks": hooks,
    "round-trip": round_trip,
    "heartbeats": firings,
}
