"""Which hooks count as silent: those that were called and did not fire, never those of a session that is idle."""

from __future__ import annotations

from loomctl.runs.hook_health import ALL, CUT_OFF, NEVER, STOPPED, Firings, Seen, Silent, in_short, silence_line, silent
from tests.helpers.tables import each

NOW = 1_000_000.0
MINUTE, HOUR, DAY = 60, 3600, 24 * 3600
START, PROMPT, PRE, POST, STOP = "session-start", "user-prompt-submit", "pre-tool-use", "post-tool-use", "stop"


def ago(**seconds: float) -> dict[str, float]:
    """Give times by event, from how long ago each was; `_` stands for `-`."""
    return {event.replace("_", "-"): NOW - elapsed for event, elapsed in seconds.items()}


BUSY = ago(session_start=HOUR, user_prompt_submit=300, pre_tool_use=200, post_tool_use=199, stop=HOUR)
COMPACTED = ago(session_start=250, pre_compact=250, post_compact=250)
WORKED = ago(user_prompt_submit=300, pre_tool_use=200, post_tool_use=199, stop=HOUR)


def without(fired: dict[str, float], *events: str) -> dict[str, float]:
    return {event: at for event, at in fired.items() if event not in events}


def firings(fired: dict[str, float], called: dict[str, float] | None = None, **more: object) -> Firings:
    """Give firings of a session that was bound a day ago and lives."""
    over = bool(more.pop("over", False))
    until = more.pop("until", NOW)
    known = {"sign": NOW - 60, "since": NOW - DAY, "seen": Seen(called or {}, until, over), **more}  # type: ignore[arg-type]
    return Firings(now=NOW, fired=fired, **known)  # type: ignore[arg-type]


CASES: dict[str, tuple[Firings, tuple[Silent, ...]]] = {
    "nothing is known": (Firings(NOW, {}), ()),
    "all as it should be": (firings(BUSY, WORKED), ()),
    "idle for a week": (
        firings({event: at - 7 * DAY for event, at in BUSY.items()}, {e: at - 7 * DAY for e, at in WORKED.items()},
            sign=NOW - 7 * DAY, since=NOW - 9 * DAY), ()),
    "bound a moment ago, nothing fired yet": (firings({}, sign=NOW, since=NOW - 60), ()),
    "nothing ever fired": (firings({}, sign=NOW), (Silent("", ALL, 0.0),)),
    "a long tool call": (firings(BUSY | ago(post_tool_use=HOUR), without(WORKED, POST)), ()),
    "a stop that may still come": (firings(BUSY, WORKED | ago(stop=MINUTE / 2)), ()),
    "no stop for the turn that ended": (firings(BUSY, WORKED | ago(stop=150)), (Silent(STOP, STOPPED, NOW - HOUR),)),
    "never a stop": (firings(without(BUSY, STOP), WORKED | ago(stop=150)), (Silent(STOP, NEVER),)),
    "no prompt's hook": (firings(without(BUSY, PROMPT), WORKED), (Silent(PROMPT, NEVER),)),
    "no hook after tools": (firings(BUSY | ago(post_tool_use=HOUR), WORKED), (Silent(POST, STOPPED, NOW - HOUR),)),
    "no start after a compaction": (firings(BUSY, WORKED | ago(session_start=250)),
        (Silent(START, STOPPED, NOW - HOUR),)),
    "a summary that took long": (firings(BUSY | COMPACTED | ago(pre_compact=250 + 14 * MINUTE), WORKED | COMPACTED),
        ()),
    "nobody was told of a compaction's end": (firings(BUSY | without(COMPACTED, "post-compact"), WORKED | COMPACTED),
        (Silent("post-compact", NEVER),)),
    "nobody was told of its end any more": (firings(BUSY | COMPACTED | ago(post_compact=HOUR), WORKED | COMPACTED),
        (Silent("post-compact", STOPPED, NOW - HOUR),)),
    "nobody was told of its beginning any more": (
        firings(BUSY | COMPACTED | ago(pre_compact=HOUR), WORKED | COMPACTED),
        (Silent("pre-compact", STOPPED, NOW - HOUR),)),
    "a start before firings were noted": (firings(without(BUSY, START), WORKED | ago(session_start=2 * DAY)), ()),
    "several at once": (firings(without(BUSY, PRE, POST), WORKED), (Silent(PRE, NEVER), Silent(POST, NEVER))),
    "none of those that were called": (
        firings(dict.fromkeys(BUSY, NOW - HOUR), ago(user_prompt_submit=300, post_tool_use=200), sign=NOW - HOUR),
        (Silent("", ALL, NOW - HOUR),)),
    "none since long, and the session works": (firings(dict.fromkeys(BUSY, NOW - HOUR)),
        (Silent("", ALL, NOW - HOUR),)),
    "over: nothing comes late": (firings(BUSY, WORKED | ago(stop=1), over=True),
        (Silent(STOP, STOPPED, NOW - HOUR),)),
    "killed in a turn: its last moment proves nothing": (firings(BUSY, WORKED | ago(stop=150), until=NOW - 150), ()),
    "works, and has not ended yet": (firings(BUSY, WORKED, begun=ago(stop=30)), ()),
    "cut off": (firings(BUSY, WORKED, begun=ago(stop=120)), (Silent(STOP, CUT_OFF, NOW - 120),)),
    "a session's end may be cut off": (firings(BUSY, WORKED, begun=ago(session_end=HOUR)), ()),
    "no conversation to be seen, one never": (firings(without(BUSY, STOP)), (Silent(STOP, NEVER),)),
    "no conversation to be seen, driven for a moment": (firings(without(BUSY, STOP), since=NOW - 600), ()),
    "no conversation to be seen, no end for days": (firings(BUSY | ago(stop=2 * DAY)),
        (Silent(STOP, STOPPED, NOW - 2 * DAY),)),
    "a conversation that shows it tells more than time": (firings(without(BUSY, START), WORKED), ()),
    "a clock set back": (firings(dict.fromkeys(BUSY, NOW + HOUR), WORKED), ()),
}  # fmt: skip


@each("name", CASES)
def test_the_rule(name: str) -> None:
    """Each case as its name says."""
    given, expected = CASES[name]
    assert silent(given) == expected


@each("idle", [0, 1, HOUR, DAY, 400 * DAY])
def test_to_wait_makes_nobody_silent(idle: float) -> None:
    """What is well stays well however long nothing happens, for nothing was called meanwhile."""
    given = firings(BUSY, WORKED)._replace(now=NOW + idle)
    assert silent(given._replace(seen=given.seen._replace(until=NOW + idle))) == ()


def test_each_is_said_in_a_line() -> None:
    assert silence_line(Silent(STOP, NEVER), "") == "the hook stop has never fired here, though it should have"
    assert "should have fired since, but last did 5 min ago" in silence_line(Silent(STOP, STOPPED, 1.0), "5 min ago")
    assert "started 5 min ago" in silence_line(Silent(STOP, CUT_OFF, 1.0), "5 min ago")
    assert "no hook has fired since 1 h ago" in silence_line(Silent("", ALL, 1.0), "1 h ago")
    assert (in_short(()), in_short((Silent("", ALL),))) == ("", "hooks silent")
    assert in_short((Silent(STOP, NEVER),)) == "hook stop silent"
    assert in_short((Silent(STOP, CUT_OFF),)) == "hook stop cut off"
    assert in_short((Silent(STOP, CUT_OFF), Silent(PRE, NEVER))) == "2 hooks silent"
