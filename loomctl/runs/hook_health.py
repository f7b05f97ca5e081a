"""What is known of the hooks in a project: which are silent, and what of Loom does not fit together."""

from __future__ import annotations

import os

from loomctl.kit import clock, package
from loomctl.kit.package import __version__
from loomctl.kit.records import NamedTuple
from loomctl.runs.machine import launcher_files
from loomctl.runs.machine.local import TERMINAL
from loomctl.runs.model import sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from loomctl.kit.package import Skew
    from loomctl.runs.machine.launcher_files import Beat
    from loomctl.runs.machine.local import Local
    from loomctl.runs.project import Conversation

# How far a hook's note and what the conversation says of the same moment may lie apart: other plugins' hooks run, too.
APART = 2 * 60
# How long before the conversation shows it a hook may have fired: a summary of all of it is written between the two.
EARLIER = {"pre-compact": 15 * 60}
# How long a hook may still come, or still work, after the conversation shows that it was called.
PATIENCE = 60
# How much later than its last hook a session may show that it lives: commands that a prompt brings along run between.
BETWEEN = 10 * 60
# How long a run must have been driven before a hook that never fired is worth a word, where no conversation is seen.
LONG = 30 * 60
DAY = 24 * 3600
# What a conversation that cannot be seen is known to have had after so long; the others may well not have come yet.
EXPECTED = ("session-start", "user-prompt-submit", "pre-tool-use", "stop")
# Those whose end is not waited for: a session's end is often cut short, and no harm is done.
MAY_BE_CUT_OFF = ("session-end",)

NEVER, STOPPED, CUT_OFF, ALL = "never", "stopped", "cut off", "all"


class Seen(NamedTuple):
    """What a conversation shows of the hooks that it must have called.

    called: event -> when it last was, seconds since 1970; until: up to when what is shown can be relied on: now, for
    one that lives or ended in order; for one that was killed, a moment before its last sign. over: it ended in order,
    so that no hook comes late.
    """

    called: Mapping[str, float] = {}
    until: float = 0.0
    over: bool = False


class Firings(NamedTuple):
    """fired: event -> when its hook last did; begun: event -> since when one works that has not ended its work.

    since: since when firings are noted here; sign: when the latest session that drives a run last showed that it
    lives, 0.0 where there is none; seen: what its conversation shows, nothing where that cannot be read. All in
    seconds since 1970.
    """

    now: float
    fired: Mapping[str, float]
    begun: Mapping[str, float] = {}
    since: float = 0.0
    sign: float = 0.0
    seen: Seen = Seen()


class Silent(NamedTuple):
    """A hook that is silent.

    event: empty for all of them; how: one of the four words; since: when it last fired, or began what it did not end;
    0.0 where it never did.
    """

    event: str
    how: str
    since: float = 0.0


def silent(firings: Firings) -> tuple[Silent, ...]:
    """Tell which hooks are silent, in their order; an idle session's are not, however long it is idle.

    All are, where a session that drives a run showed BETWEEN seconds after the last firing (or since firings are
    noted, if there was none) that it lives, or where the conversation called several, and none came. One is, where
    the conversation shows that it was called (since firings are noted, PATIENCE ago, or in a session that is over)
    and it did not fire then, APART at most before, or as long as EARLIER says; or where it began its work and has not
    ended it PATIENCE later, for a host kills a hook that takes too long. Where no conversation can be seen, one that
    never fired in LONG of driving while others did is, and so is a turn's beginning or end that stopped for a DAY
    while the other goes on.
    """
    if not firings.sign and not firings.fired:
        return ()
    heard = max(firings.fired.values(), default=0.0)
    if firings.sign and max(heard, firings.since) < firings.sign - BETWEEN:
        return (Silent("", ALL, heard),)
    missed = [event for event, at in firings.seen.called.items() if _missed(firings, event, at)]
    if len(missed) > 1 and len(missed) == len(_due(firings)):
        return (Silent("", ALL, heard),)
    found = [_silent(event, firings.fired.get(event, 0.0)) for event in missed]
    if not firings.seen.called:
        found += [one for one in _unseen(firings, heard) if one.event not in missed]
    named = {one.event for one in found}
    for event, at in firings.begun.items():
        if event not in named and event not in MAY_BE_CUT_OFF and 0 < at < firings.now - PATIENCE:
            found.append(Silent(event, CUT_OFF, at))
    return tuple(found)


def _silent(event: str, at: float) -> Silent:
    return Silent(event, STOPPED if at else NEVER, at)


def _due(firings: Firings) -> list[str]:
    """Name the hooks that were certainly called, and have had their time."""
    seen = firings.seen
    latest = seen.until if seen.over else seen.until - PATIENCE
    return [event for event, at in seen.called.items() if firings.since < at <= latest]


def _missed(firings: Firings, event: str, called: float) -> bool:
    return event in _due(firings) and firings.fired.get(event, 0.0) < called - EARLIER.get(event, APART)


def _unseen(firings: Firings, heard: float) -> list[Silent]:
    """Tell what can be told where only the firings themselves are known."""
    fired, found = firings.fired, []
    if firings.since and heard - firings.since > LONG:
        found = [_silent(event, 0.0) for event in EXPECTED if event not in fired]
    prompt, stop = fired.get("user-prompt-submit"), fired.get("stop")
    if prompt and stop and abs(prompt - stop) > DAY:
        event = "stop" if stop < prompt else "user-prompt-submit"
        found.append(_silent(event, min(prompt, stop)))
    return found


def silence_line(one: Silent, ago: str) -> str:
    """Say it in a line. ago: how long ago `since` is, such as `5 min ago`; empty where it never fired."""
    if one.how == ALL:
        return f"no hook has fired since {ago}, though the session works" if ago else "no hook has ever fired here"
    if one.how == CUT_OFF:
        return f"the hook {one.event} started {ago} and did not finish: it was cut off, or took too long"
    if one.how == NEVER:
        return f"the hook {one.event} has never fired here, though it should have"
    return f"the hook {one.event} should have fired since, but last did {ago}"


def in_short(found: tuple[Silent, ...]) -> str:
    """Say it in the few words of a status line: `hooks silent`, `hook stop silent`; empty where none is."""
    if not found:
        return ""
    if not found[0].event:
        return "hooks silent"
    how = "cut off" if all(one.how == CUT_OFF for one in found) else "silent"
    if len(found) == 1:
        return f"hook {found[0].event} {how}"
    return f"{len(found)} hooks {how}"


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
    beats = launcher_files.beats(folder)
    has_room = launcher_files.has_room_for_beats(folder)
    if not has_room or (not driving and not beats):
        return Health(beats, (), driving, has_room)
    whose = next((entry for entry in driving if entry["session_id"] == session_id), driving[-1] if driving else None)
    firings = Firings(
        now=now,
        fired={event: beat.at for event, beat in beats.items()},
        begun=launcher_files.begun(folder) if driving else {},
        since=min((clock.seconds_of(str(entry.get("bound_at"))) for entry in driving), default=0.0),
        sign=local.last_sign(driving[-1]) if driving else 0.0,
        seen=_seen(local, whose, conversation, now) if whose else Seen(),
    )
    return Health(beats, silent(firings), driving, has_room)


def _seen(local: Local, binding: Mapping[str, Any], conversation: Conversation, now: float) -> Seen:
    """Give what a session's conversation shows; of one that was killed all but its last moment.

    Where the transcript is hooks tell; where none did, or it is not there, it is looked for where the host keeps them.
    """
    path, host = binding.get("transcript_path"), str(binding.get("host") or "")
    if not isinstance(path, str) or not os.path.isfile(path):
        path = conversation.another(None, host).kept_at(binding["session_id"])
    if not path:
        return Seen()
    called = conversation.another(path, host).called()
    if not called:
        return Seen()
    over = bool(binding.get("ended"))
    if over or local.is_alive(binding):
        return Seen(called, now, over)
    try:
        return Seen(called, os.stat(path).st_mtime - PATIENCE)
    except OSError:
        return Seen()


def skews(beats: Mapping[str, Beat], state: Mapping[str, Any] | None) -> Sequence[Skew]:
    """Tell what does not fit this `loomctl`: the hooks that fired last here, and what last worked on a run."""
    latest = max(beats.values(), key=lambda beat: beat.at, default=None)
    writer = sessions.last_writer(state) if state is not None else ""
    return package.skews(__version__, hooks=latest.version if latest else "", writer=writer)


def said(one: Silent, now: float) -> str:
    """Say of a silent hook what is the matter, in a line."""
    return silence_line(one, clock.ago_of(one.since, now) if one.since else "")
