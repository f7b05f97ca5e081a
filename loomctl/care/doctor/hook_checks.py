"""Whether hooks can do their work, and whether they did: the switch, the bundle's entries, when each last fired."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from loomctl.kit import bundle_lines, clock, files, package
from loomctl.kit.errors import LoomError, quoted
from loomctl.kit.findings import FAIL, PASS, WARN, Finding, gathered
from loomctl.runs import hook_health
from loomctl.runs.machine import heartbeats, parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.care.doctor.patient import Patient
    from loomctl.runs.hook_health import Health
    from loomctl.runs.machine.heartbeats import Beat
    from loomctl.runs.model.silence import Silent

_PARTS = [f"session-start {number}/{parts.MOST}" for number in range(1, parts.MOST + 1)]
"""What the entries of a session start call, each of which gives one part of the text (D62)."""


def switch(patient: Patient) -> Finding:  # noqa: ARG001 - all checks have one shape
    """LOOM_DISABLED=1 switches every hook off (D57)."""
    value = os.environ.get("LOOM_DISABLED", "")
    if value == "1":
        return Finding(FAIL, "LOOM_DISABLED=1 switches every hook off", "unset LOOM_DISABLED")
    if value:
        return Finding(WARN, f"LOOM_DISABLED is {value!r:.40}, and only 1 switches anything off", "unset LOOM_DISABLED")
    return Finding(PASS, "hooks are switched on (LOOM_DISABLED is not set)")


def hooks(patient: Patient) -> Finding:
    """The bundle's hooks.json: valid, each entry a command that can be run, each event one that Loom answers."""
    path = os.path.join(patient.bundle, "hooks", "hooks.json")
    mended = bundle_lines.repair(patient.bundle, "hooks")
    try:
        entries = list(_entries(files.read_json(path)))
    except (OSError, LoomError) as error:
        said = error.what if isinstance(error, LoomError) else str(error)
        return Finding(FAIL, f"the bundle's hooks cannot be read: {said}", mended, [path])
    except (KeyError, TypeError, AttributeError):
        return Finding(FAIL, "the bundle's hooks.json does not have the form that a host reads", mended, [path])
    troubles = [trouble for command in entries for trouble in _entry_troubles(patient, command)]
    troubles = list({trouble.found: trouble for trouble in troubles}.values())
    called = {command.rpartition(" hook ")[2] for command in entries}
    expected = [part for event in heartbeats.EVENTS for part in (_PARTS if event == "session-start" else [event])]
    troubles += [Finding(FAIL, f"no hook for {event}", mended) for event in expected if event not in called]
    if not os.path.isfile(os.path.join(package.FOLDER, "__main__.py")):
        whole = bundle_lines.repair(patient.bundle, "loomctl")
        troubles.append(Finding(FAIL, "the package is not where the launcher looks for it", whole, [package.FOLDER]))
    return gathered(troubles, f"{len(entries)} hooks, each calls {patient.launcher}")


def _entries(raw: Any) -> Iterator[str]:
    for groups in raw["hooks"].values():
        for group in groups:
            for entry in group["hooks"]:
                yield str(entry["command"])


def _entry_troubles(patient: Patient, command: str) -> Iterator[Finding]:
    mended = bundle_lines.repair(patient.bundle, "hooks")
    try:
        words = [word.replace("${CLAUDE_PLUGIN_ROOT}", patient.bundle) for word in shlex.split(command)]
    except ValueError:
        words = []
    told = " ".join(words[2:])
    if words[1:2] != ["hook"] or told not in (*heartbeats.EVENTS, *_PARTS):
        yield Finding(FAIL, f"a hook calls what Loom does not answer: {command:.200}", mended)
        return
    if not os.path.isfile(words[0]):
        yield Finding(FAIL, f"hooks call {words[0]}, which is not there", bundle_lines.repair(patient.bundle, "bin"))
    elif not os.access(words[0], os.X_OK):
        yield Finding(FAIL, f"hooks call {words[0]}, which cannot be executed", f"chmod +x {shlex.quote(words[0])}")


def beats_of(patient: Patient) -> dict[str, Beat]:
    """Give when each hook last fired here; empty where there is no project."""
    return heartbeats.read(patient.store.local) if patient.store else {}


def firings(patient: Patient) -> Finding:
    """When each hook last fired, against what the sessions that drive runs did; bindings that no hook can read."""
    found = _firings(patient)
    damaged = patient.local.damaged_bindings() if patient.local else []
    if not damaged:
        return found
    said = "a session's binding is damaged, so that its hooks do not know its run"
    troubles = [Finding(WARN, f"{said}: {path}", f"rm {quoted(path)}") for path in damaged]
    if found.status == PASS:
        return gathered(troubles, "", details=found.details, facts=found.facts)
    return gathered([found, *troubles], "")


def _firings(patient: Patient) -> Finding:
    if patient.store is None or patient.local is None:
        return Finding(PASS, "no project, so no hook is noted")
    health = hook_health.look(patient.local, patient.store.local, patient.conversation, now=patient.now)
    driving, beats = health.driving, health.beats
    details = [f"{event}: {_when(patient, beats.get(event))}" for event in heartbeats.EVENTS]
    silent = [{"event": one.event or "all", "how": one.how} for one in health.silent]
    facts = {"fired": [{"event": event, **_fact(beat)} for event, beat in beats.items()], "silent": silent}
    if not health.has_room:
        if not driving:
            return Finding(PASS, "no session has driven a run here yet, so no hook is noted")
        return Finding(WARN, "hooks have no place here to note that they fired", "loomctl resume")
    if not driving and not beats:
        return Finding(PASS, "no session of an assistant drives a run here, and no hook has fired")
    troubles = [_silence(patient, health, one) for one in health.silent]
    if not beats and not troubles:
        bound = patient.now - hook_health.seconds(driving[-1].get("bound_at"))
        said = f"no hook has fired yet; the session {str(driving[-1]['session_id'])[:60]} drives a run since "
        troubles = [Finding(WARN, said + hook_health.ago(bound), "claude plugin list")]
    newest = max(beats, key=lambda event: beats[event].at) if beats else ""
    fine = f"{len(beats)} of {len(heartbeats.EVENTS)} hooks have fired here, the last one {newest}: "
    fine += _when(patient, beats.get(newest))
    return gathered(troubles, fine, details=details, facts=facts)


def _silence(patient: Patient, health: Health, one: Silent) -> Finding:
    """Tell of a silent hook; that none fires at all is a failure, but for a session that was bound a moment ago."""
    if one.event or patient.local is None:
        return Finding(WARN, hook_health.said(one, patient.now), "claude plugin list")
    latest = health.driving[-1]
    name = str(latest["session_id"])[:60]
    since = f"since {hook_health.ago(patient.now - one.since)}" if one.since else "here, ever"
    sign = hook_health.ago(patient.now - patient.local.last_sign(latest))
    found = f"no hook has fired {since}, though the session {name} worked on its run {sign}"
    return Finding(FAIL, found, "claude plugin enable loom@loom")


def _fact(beat: Beat) -> dict[str, str]:
    at = clock.stamp(beat.at)
    return {"at": at, "session_id": beat.session_id, "version": beat.version, "launcher": beat.launcher}


def _when(patient: Patient, beat: Beat | None) -> str:
    if beat is None:
        return "never"
    said = hook_health.ago(patient.now - beat.at)
    said += f", in the session {beat.session_id[:60]}" if beat.session_id else ""
    return said + (f", by {beat.version[:40]}" if beat.version else "")


def session_start_entry(bundle: str) -> tuple[str, float]:
    """Give the command and the timeout (seconds) with which a host calls the SessionStart hook.

    Raises OSError, LoomError, or what a file of another form raises.
    """
    raw = files.read_json(os.path.join(bundle, "hooks", "hooks.json"))
    entry = raw["hooks"]["SessionStart"][0]["hooks"][0]
    return str(entry["command"]), float(entry.get("timeout", 60))
