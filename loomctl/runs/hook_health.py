"""What is known of the hooks in a project: which are silent, and what of Loom does not fit together."""

from __future__ import annotations

import calendar
import os
import time

from loomctl.kit import package
from loomctl.kit.package import __version__
from loomctl.kit.records import NamedTuple
from loomctl.runs.machine import heartbeats
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import sessions, silence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.kit.package import Skew
    from loomctl.runs.caller import Conversation
    from loomctl.runs.machine.heartbeats import Beat
    from loomctl.runs.machine.local import Local
    from loomctl.runs.model.silence import Seen, Silent


class Health(NamedTuple):
    """beats: the last firing of each event; driving: the bindings of sessions that hooks fire in, the latest last.

    has_room: whether firings are noted here.
    """

    beats: Mapping[str, Beat]
    silent: Sequence[Silent]
    driving: Sequence[Mapping[str, Any]]
    has_room: bool


def look(local: Local, folder: str, conversation: Conversation, *, now: float, session_id: str | None = None) -> Health:
    """Look at what hooks left in a project.

    folder: the store's `local`; conversation: of the host whose hooks they are, by which others are found; session_id:
    whose conversation counts, where it drives a run; else the latest that does.
    """
    driving = [entry for entry in local.bindings() if entry.get("host") != TERMINAL]
    beats = heartbeats.read(folder)
    has_room = heartbeats.has_room(folder)
    if not has_room or (not driving and not beats):
        return Health(beats, (), driving, has_room)
    whose = next((entry for entry in driving if entry["session_id"] == session_id), driving[-1] if driving else None)
    firings = silence.Firings(
        now=now,
        fired={event: beat.at for event, beat in beats.items()},
        begun=heartbeats.begun(folder) if driving else {},
        since=min((seconds(entry.get("bound_at")) for entry in driving), default=0.0),
        sign=local.last_sign(driving[-1]) if driving else 0.0,
        seen=_seen(local, whose, conversation, now) if whose else silence.Seen(),
    )
    return Health(beats, silence.silent(firings), driving, has_room)


def _seen(local: Local, binding: Mapping[str, Any], conversation: Conversation, now: float) -> Seen:
    """Give what a session's conversation shows; of one that was killed all but its last moment.

    Where the transcript is hooks tell; where none did, or it is not there, it is looked for where the host keeps them.
    """
    path = binding.get("transcript_path")
    if not isinstance(path, str) or not os.path.isfile(path):
        path = conversation.kept_at(binding["session_id"])
    if not path:
        return silence.Seen()
    called = conversation.another(path).called()
    if not called:
        return silence.Seen()
    over = bool(binding.get("ended"))
    if over or local.is_alive(binding):
        return silence.Seen(called, now, over)
    try:
        return silence.Seen(called, os.stat(path).st_mtime - silence.PATIENCE)
    except OSError:
        return silence.Seen()


def skews(beats: Mapping[str, Beat], state: Mapping[str, Any] | None) -> Sequence[Skew]:
    """Tell what does not fit this `loomctl`: the hooks that fired last here, and what last worked on a run."""
    latest = max(beats.values(), key=lambda beat: beat.at, default=None)
    writer = sessions.last_writer(state) if state is not None else ""
    return package.skews(__version__, hooks=latest.version if latest else "", writer=writer)


def said(one: Silent, now: float) -> str:
    """Say of a silent hook what is the matter, in a line."""
    return silence.silence_line(one, ago(now - one.since) if one.since else "")


def ago(elapsed: float) -> str:
    """Say how long ago something was: `5 minutes ago`. elapsed: seconds."""
    if elapsed < -60:
        return "in the future (the clock was set back)"
    for size, unit in ((silence.DAY, "day"), (3600, "hour"), (60, "minute")):
        if elapsed >= size:
            count = int(elapsed // size)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def seconds(stamp: object) -> float:
    """Give a `YYYY-MM-DDTHH:MM:SSZ` as seconds since 1970; 0 for what is none."""
    try:
        return float(calendar.timegm(time.strptime(str(stamp), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return 0.0
