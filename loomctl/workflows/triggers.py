"""Which event makes which artifact due (D13); pure matching of trigger words against an event's facts."""

from __future__ import annotations

from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MANUAL = "manual"
_BARE = ("session_start", "compaction_detected", MANUAL)
_PHASED = {"phase_start": 1, "phase_transition": 2}  # how many phases each names
_NONE = ("", "", "")


class Event(NamedTuple):
    """name: the word that people see; facts: what triggers are matched against, all in the triggers' own words."""

    name: str
    facts: tuple[str, ...]

    @property
    def is_manual(self) -> bool:
        """Tell whether everything eligible is wanted, not only what triggers name."""
        return MANUAL in self.facts


def session_start(source: str = "startup") -> Event:
    """A start, resume, clear or fork; a compaction is a session start too, and `compaction_detected` besides."""
    if source == "compact":
        return Event("compaction_detected", ("session_start", "compaction_detected"))
    return Event("session_start", ("session_start",))


def run_start(phase: str | None) -> Event:
    """A run begins (or is taken up) in this session: a session start, at whatever phase it stands."""
    return Event("session_start", ("session_start", f"phase_start:{phase}") if phase else ("session_start",))


def phase_transition(before: str | None, after: str) -> Event:
    """The run enters `after`; with no phase before it is a phase start alone."""
    if before is None:
        return Event(f"phase_start:{after}", (f"phase_start:{after}",))
    name = f"phase_transition:{before}->{after}"
    return Event(name, (name, f"phase_start:{after}"))


def of_facts(facts: Sequence[str]) -> Event:
    """Make one event of the facts of several; it is named after the last transition among them."""
    named = [fact for fact in facts if fact.startswith("phase_transition:")] or list(facts)
    return Event(named[-1] if named else MANUAL, tuple(facts))


def manual() -> Event:
    """Somebody asked for a priming by hand: everything eligible is due."""
    return Event(MANUAL, (MANUAL,))


def from_word(word: str) -> Event | None:
    """Make the event that a trigger word describes, for `--trigger`; None if it is no trigger or not one event."""
    kind, left, right = split(word)
    if not kind or "*" in (left, right):
        return None
    if kind == MANUAL:
        return manual()
    if kind == "session_start":
        return session_start()
    if kind == "compaction_detected":
        return session_start("compact")
    if kind == "phase_start":
        return Event(f"phase_start:{left}", (f"phase_start:{left}",)) if left else None
    return phase_transition(left, right) if left and right else None


def split(trigger: str) -> tuple[str, str, str]:
    """Give `(kind, left, right)`; kind is empty for what is no trigger.

    `phase_start:build` → `("phase_start", "build", "")`; the bare `phase_transition` has empty sides (= any).
    """
    kind, colon, rest = trigger.strip().partition(":")
    if not colon:
        return (kind, "", "") if kind in (*_BARE, *_PHASED) else _NONE
    sides = [side.strip() for side in rest.replace("→", "->").split("->")]
    if not all(sides) or len(sides) != _PHASED.get(kind):
        return _NONE
    return (kind, sides[0], sides[-1] if len(sides) > 1 else "")


def is_trigger(trigger: str) -> bool:
    """Tell whether a word in `reload_triggers` is one that Loom knows."""
    return bool(split(trigger)[0])


def fires(triggers: Iterable[str], event: Event) -> str | None:
    """Give the first trigger that matches one of the event's facts, or None."""
    facts = [split(fact) for fact in event.facts]
    for trigger in triggers:
        kind, left, right = split(trigger)
        if kind and any(
            kind == fact_kind and left in ("", "*", fact_left) and right in ("", "*", fact_right)
            for fact_kind, fact_left, fact_right in facts
        ):
            return trigger
    return None
