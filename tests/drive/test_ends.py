"""How a turn ended, by what was seen of it (D73, D75)."""

from __future__ import annotations

from loomctl.drive import ends, rules, signs
from loomctl.drive.watch import Watch
from tests.helpers.tables import each

NOW = 1_800_000_000.0


def watch(*seen: signs.Sign) -> Watch:
    made = Watch(0)
    for one in seen:
        made.saw(one, 0)
    return made


@each(
    "seen, why",
    [
        (signs.Retry(429, 0, NOW + 60), "quota"),
        (signs.Retry(429, 60), "quota"),  # nobody need wait so long in a process
        (signs.Retry(429, 5), ""),
        (signs.Retry(429, 0, NOW - 60), ""),  # a clock that is wrong must not turn the driver round and round
        (signs.Retry(529, 60), ""),
        (signs.Retry(401, 1, number=1), ""),  # a key may be renewed
        (signs.Retry(401, 1, number=2), "refused"),
        (signs.Retry(500, 1, number=9), ""),
    ],
)
def test_what_a_turn_is_ended_for_by_the_apis_answer(seen: signs.Sign, why: str) -> None:
    assert ends.due(watch(seen), NOW) == why


@each(
    "over, retry, end, until",
    [
        (signs.Over(is_error=False, reason="done"), None, rules.FINE, 0),
        (signs.Over(is_error=True, reason="turns"), None, rules.FINE, 0),
        (signs.Over(is_error=True, reason="budget"), None, rules.SPENT, 0),
        (signs.Over(is_error=True, reason="api", status=400), None, rules.REFUSED, 0),
        (signs.Over(is_error=True, reason="api", status=401), None, rules.REFUSED, 0),
        (signs.Over(is_error=True, reason="api", status=529), None, rules.INFRA, 0),
        (signs.Over(is_error=True, reason="api"), None, rules.INFRA, 0),  # it could not be reached
        (signs.Over(is_error=True, reason="error"), None, rules.INFRA, 0),
        (signs.Over(is_error=True, reason="interrupted"), None, rules.INFRA, 0),
        (signs.Over(is_error=True, reason="api", status=429), None, rules.INFRA, 0),
        (signs.Over(True, "api", status=429), signs.Retry(429, 0, NOW + 60), rules.QUOTA, NOW + 61),
        (signs.Over(True, "api", status=429), signs.Retry(429, 0, NOW - 60), rules.INFRA, 0),
        (signs.Over(True, "api", text="Not logged in"), signs.Retry(401, 0), rules.REFUSED, 0),
        (signs.Over(True, "done"), signs.Retry(401, 0), rules.FINE, 0),  # the key was renewed
        (None, None, rules.INFRA, 0),
    ],
)
def test_how_a_turn_ended(over: signs.Over | None, retry: signs.Retry | None, end: str, until: float) -> None:
    turn = ends.of(watch(*(one for one in (retry, over) if one is not None)), "", "", NOW)
    assert (turn.end, turn.until) == (end, until)


def test_what_is_refused_for_good_says_what_to_do() -> None:
    over = signs.Over(is_error=True, reason="api", text="invalid key", status=401)
    assert ends.of(watch(over), "", "", NOW).why == (
        "the API refused the request (401): invalid key. Log the assistant in, or check its key"
    )
    assert "Log the assistant in" in ends.of(watch(signs.Retry(401, 1, number=2)), "refused", "", NOW).why


def test_a_turn_ended_by_the_driver_is_what_it_was_ended_for() -> None:
    over = signs.Over(is_error=True, reason="interrupted")
    assert ends.of(watch(over), "silence", "", NOW).end == rules.INFRA
    assert ends.of(watch(over), "time", "", NOW).end == rules.SPENT
    assert ends.of(watch(over), "loop", "", NOW).end == rules.STUCK
    assert ends.of(watch(signs.Retry(429, 60), over), "quota", "", NOW).until == NOW + 61
