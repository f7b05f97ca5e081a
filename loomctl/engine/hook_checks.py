"""Whether hooks can do their work, and whether they did: the switch, the bundle's entries, when each last fired."""

from __future__ import annotations

import calendar
import os
import shlex
import time
from typing import TYPE_CHECKING, Any

from loomctl.disk import bundle_lines, files, heartbeats
from loomctl.disk.local import TERMINAL
from loomctl.model.errors import LoomError, quoted
from loomctl.model.findings import FAIL, PASS, WARN, Finding, gathered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.disk.heartbeats import Beat
    from loomctl.engine.patient import Patient

# What a conversation cannot go without for long; the other two come with a compaction and at the end.
_EXPECTED = ("session-start", "user-prompt-submit", "pre-tool-use", "stop")
# How much later than its last hook a session may show that it lives: commands that a prompt brings along run between.
_BETWEEN = 10 * 60
# How long a run must have been driven before a hook that never fired is worth a word.
_LONG = 30 * 60
_DAY = 24 * 3600


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
    called = {command.rpartition(" ")[2] for command in entries}
    troubles += [Finding(FAIL, f"no hook for {event}", mended) for event in heartbeats.EVENTS if event not in called]
    if not os.path.isfile(os.path.join(_package(), "__main__.py")):
        whole = bundle_lines.repair(patient.bundle, "loomctl")
        troubles.append(Finding(FAIL, "the package is not where the launcher looks for it", whole, [_package()]))
    return gathered(troubles, f"{len(entries)} hooks, each calls {patient.launcher}")


def _package() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


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
    if len(words) != 3 or words[1] != "hook" or words[2] not in heartbeats.EVENTS:
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
    driving = [entry for entry in patient.local.bindings() if entry.get("host") != TERMINAL]
    beats = beats_of(patient)
    details = [f"{event}: {_when(patient, beats.get(event))}" for event in heartbeats.EVENTS]
    facts = {"fired": [{"event": event, **_fact(beat)} for event, beat in beats.items()]}
    if not heartbeats.has_room(patient.store.local):
        if not driving:
            return Finding(PASS, "no session has driven a run here yet, so no hook is noted")
        return Finding(WARN, "hooks have no place here to note that they fired", "loomctl resume")
    if not driving and not beats:
        return Finding(PASS, "no session of an assistant drives a run here, and no hook has fired")
    troubles = list(_silence(patient, driving, beats)) or list(_gaps(driving, beats))
    newest = max(beats, key=lambda event: beats[event].at) if beats else ""
    fine = f"{len(beats)} of {len(heartbeats.EVENTS)} hooks have fired here, the last one {newest}: "
    fine += _when(patient, beats.get(newest))
    return gathered(troubles, fine, details=details, facts=facts)


def _silence(patient: Patient, driving: list[dict[str, Any]], beats: dict[str, Beat]) -> Iterator[Finding]:
    """Find that a session worked on its run while no hook fired at all."""
    if not driving or patient.local is None:
        return
    latest = max(driving, key=patient.local.last_sign)
    sign = patient.local.last_sign(latest)
    heard = max((beat.at for beat in beats.values()), default=0.0)
    if heard >= sign - _BETWEEN:
        return
    name = str(latest["session_id"])[:60]
    if not beats and patient.now - _seconds(latest.get("bound_at")) < _BETWEEN:
        bound = _ago(patient.now - _seconds(latest.get("bound_at")))
        yield Finding(
            WARN, f"no hook has fired yet; the session {name} drives a run since {bound}", "claude plugin list"
        )
        return
    since = f"since {_ago(patient.now - heard)}" if heard else "here, ever"
    found = f"no hook has fired {since}, though the session {name} worked on its run {_ago(patient.now - sign)}"
    yield Finding(FAIL, found, "claude plugin enable loom@loom")


def _gaps(driving: list[dict[str, Any]], beats: dict[str, Beat]) -> Iterator[Finding]:
    """Find hooks that stayed silent while others fired."""
    newest = max(beat.at for beat in beats.values())
    begun = min((_seconds(entry.get("bound_at")) for entry in driving), default=newest)
    for event in _EXPECTED:
        if event not in beats and newest - begun > _LONG:
            yield Finding(WARN, f"the hook {event} has never fired here, though others have", "claude plugin list")
    prompt, stop = beats.get("user-prompt-submit"), beats.get("stop")
    if prompt and stop and abs(prompt.at - stop.at) > _DAY:
        late = "stop" if stop.at < prompt.at else "user-prompt-submit"
        yield Finding(WARN, f"the hook {late} has been silent for over a day while others fired", "claude plugin list")


def _fact(beat: Beat) -> dict[str, str]:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(beat.at))
    return {"at": at, "session_id": beat.session_id, "version": beat.version, "launcher": beat.launcher}


def _when(patient: Patient, beat: Beat | None) -> str:
    if beat is None:
        return "never"
    said = _ago(patient.now - beat.at)
    said += f", in the session {beat.session_id[:60]}" if beat.session_id else ""
    return said + (f", by {beat.version[:40]}" if beat.version else "")


def _ago(seconds: float) -> str:
    """Say how long ago something was: `5 minutes ago`."""
    if seconds < -60:
        return "in the future (the clock was set back)"
    for size, unit in ((_DAY, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def _seconds(stamp: object) -> float:
    """Give a `YYYY-MM-DDTHH:MM:SSZ` as seconds since 1970; 0 for what is none."""
    try:
        return float(calendar.timegm(time.strptime(str(stamp), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return 0.0


def session_start_entry(bundle: str) -> tuple[str, float]:
    """Give the command and the timeout (seconds) with which a host calls the SessionStart hook.

    Raises OSError, LoomError, or what a file of another form raises.
    """
    raw = files.read_json(os.path.join(bundle, "hooks", "hooks.json"))
    entry = raw["hooks"]["SessionStart"][0]["hooks"][0]
    return str(entry["command"]), float(entry.get("timeout", 60))
