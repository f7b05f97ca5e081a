"""How a turn ended, by what was seen of it (D73, D75). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomctl.drive import rules
from loomctl.drive.rules import Turn

if TYPE_CHECKING:
    from loomctl.drive.watch import Watch

REFUSED = {
    400: "Change what it names, then drive on",
    401: "Log the assistant in, or check its key",
    403: "Check what its account may do",
    404: "Check the name of its model",
    413: "Make shorter what the step has to load",
}
"""What the API refuses for good, and what is to be done."""
PATIENCE = 30.0  # seconds for which a process may wait for the API's limit
_ASKED = 2  # times that a host asks again what was refused for good; a key may have been renewed meanwhile
_EARLY = 1.0  # seconds by which clocks differ

_WHY = {
    "silence": (rules.INFRA, "nothing was heard of the assistant for too long"),
    "turn": (rules.INFRA, "the turn took too long"),
    "time": (rules.SPENT, "the time limit of the drive is reached"),
    "loop": (rules.STUCK, "the assistant made the same call with the same result again and again"),
    "stopped": (rules.STOPPED, "you ended the driver"),
    "cancelled": (rules.STOPPED, "the run is cancelled"),
    "leash": (rules.STOPPED, "the driver's leash is gone"),
}


def due(watch: Watch, now: float) -> str:
    """Say what the turn is to be ended for by the API's last answer: quota, refused, or empty. now: since 1970."""
    retry = watch.retry
    if retry is None or watch.over is not None:
        return ""
    if _reset(watch, now) > now + _EARLY:
        return "quota"
    return "refused" if retry.status in REFUSED and retry.number >= _ASKED else ""


def _reset(watch: Watch, now: float) -> float:
    """Give when the API's limit lifts, in seconds since 1970; 0 where it is not told, or soon."""
    retry = watch.retry
    if retry is None or retry.status != 429:
        return 0.0
    return retry.until or (now + retry.after if retry.after > PATIENCE else 0.0)


def of(watch: Watch, why: str, last_words: str, now: float) -> Turn:
    """Say how a turn ended. why: what the driver ended it for, or empty; last_words: on standard error."""
    turn = _ended(watch, why, last_words, now)
    refused = watch.denied.values()
    denied = tuple(dict.fromkeys(word for one in refused for word in one.rules or (one.what,)))
    allowed_by = tuple(dict.fromkeys(rule for one in refused for rule in one.rules))
    return turn._replace(said=watch.said, denied=denied, allowed_by=allowed_by)


def _ended(watch: Watch, why: str, last_words: str, now: float) -> Turn:
    over, retry = watch.over, watch.retry
    if why == "refused" and retry is not None:
        return _refused(retry.status, "")
    if why == "quota":
        return _limited(_reset(watch, now), now)
    if why in _WHY:
        return Turn(*_WHY[why])
    if over is None:
        said = f": {last_words.splitlines()[-1][:200]}" if last_words else ""
        return Turn(rules.INFRA, f"the assistant ended without a result{said}", crashed=True)
    if over.reason == "budget":
        return Turn(rules.SPENT, "the cost limit is reached")
    # Without a key a host may ask nobody: then it says why before it ends.
    status = over.status or (retry.status if retry is not None and over.reason == "api" else 0)
    if status in REFUSED:
        return _refused(status, over.text)
    if over.status == 429:
        return _limited(over.until or _reset(watch, now), now)
    said = f": {over.text[:200]}" if over.text else ""
    if over.reason == "api":
        return Turn(rules.INFRA, f"the API failed{f' ({over.status})' if over.status else said}")
    if over.reason in ("error", "interrupted"):
        return Turn(rules.INFRA, f"the assistant ended with an error{said}")
    return Turn(rules.FINE)


def _refused(status: int, text: str) -> Turn:
    said = f": {text[:300]}" if text else ""
    return Turn(rules.REFUSED, f"the API refused the request ({status}){said}. {REFUSED[status]}")


def _limited(until: float, now: float) -> Turn:
    """Say that the API's limit is reached; without a time, or with one that is over, it is tried as other failures."""
    if until > now + _EARLY:
        return Turn(rules.QUOTA, "the API's limit is reached", until + _EARLY)
    return Turn(rules.INFRA, "the API's limit is reached, and it does not say until when")
