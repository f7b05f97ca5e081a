"""The lease as data: who drives, since when, and for how long nobody else can (design §6, issue 7)."""

from __future__ import annotations

import calendar
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.kit import clock
from loomctl.runs.machine import drivers
from loomctl.runs.model import lease
from loomctl.runs.model.lease import AHEAD, SILENT_AFTER, Sight
from tests.helpers.tables import each

AT = "2026-01-01T00:00:00Z"
NOWHERE = Sight(
    known=False, same_boot=False, same_names=False, pid=False, running=False, same_host=False, came=False, ages=(10.0,)
)
HERE = NOWHERE._replace(known=True, same_boot=True, same_names=True, pid=True, running=True, same_host=True)


@each(
    ("seen", "drives"),
    [
        (HERE, True),
        (HERE._replace(ages=(1e6,)), True),  # a long turn: the process says it all
        (HERE._replace(running=False, ages=(0.0,)), False),  # a dead one, whatever it wrote a moment ago
        (HERE._replace(same_boot=False), False),  # of before a restart
        (HERE._replace(same_names=False), True),  # a container: its number means nothing here, its sign does
        (HERE._replace(same_names=False, ages=(SILENT_AFTER,)), False),
        (HERE._replace(pid=False), True),
        (HERE._replace(pid=False, ages=(SILENT_AFTER, 5.0)), True),  # any sign counts
        (HERE._replace(pid=False, ages=(SILENT_AFTER,)), False),
        (NOWHERE, True),  # another machine
        (NOWHERE._replace(ages=(SILENT_AFTER - 1,)), True),
        (NOWHERE._replace(ages=(SILENT_AFTER,)), False),
        (NOWHERE._replace(ages=(-AHEAD,)), True),
        (NOWHERE._replace(ages=(-AHEAD - 1,)), False),  # a time that nobody can believe is no sign
        (NOWHERE._replace(ages=()), False),
        (NOWHERE._replace(same_host=True), False),  # this machine's, and unknown to it: copied, or forgotten
        (NOWHERE._replace(same_host=True, came=True), True),  # another clone's, from which the run was pulled
        (NOWHERE._replace(same_host=True, came=True, ages=(SILENT_AFTER,)), False),
        (HERE._replace(came=True, running=False), False),  # a pull brought its own run back to it
        (HERE._replace(came=True, same_boot=False), False),
        (HERE._replace(same_boot=False, same_host=False), True),  # another machine that shares the folder
        (HERE._replace(same_boot=False, same_host=False, ages=(SILENT_AFTER,)), False),
    ],
)
def test_who_drives(seen: Sight, drives: bool) -> None:
    """A process that can be seen says it; else a sign of the last half hour does."""
    assert lease.lives(seen) is drives


@given(
    st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
    st.floats(-(10**9), 10**9), st.floats(0, 10**9),
)  # fmt: skip
def test_nobody_is_locked_out_for_longer_than_is_said(
    known: bool, boot: bool, names: bool, pid: bool, host: bool, came: bool, skew: float, waited: float
) -> None:
    """However wrong the other clock goes: once its process is gone, or unseen, half an hour and a minute are the most.

    skew: how far the driver's clock is ahead; waited: seconds since its last sign, by a true clock.
    """
    dead = Sight(known, boot, names, pid, running=False, same_host=host, came=came, ages=(waited - skew,))
    if waited >= SILENT_AFTER + AHEAD and skew <= AHEAD:
        assert not lease.lives(dead)
    if known and boot and names and pid:
        assert not lease.lives(dead)
    # Whatever the skew: from any moment on, a silent driver is gone after that time.
    later = dead._replace(ages=(waited - skew + SILENT_AFTER + AHEAD,))
    assert not (lease.lives(dead) and lease.lives(later))


@given(st.lists(st.sampled_from(["take", "release", "see", "anew"])))
def test_the_epoch_never_falls_and_grows_with_each_driver(done: list[str]) -> None:
    """Whatever happens: no two drivers have had one epoch."""
    state: dict[str, Any] = {"status": "in_progress"}
    seen: set[int] = set()
    for number, what in enumerate(done):
        before = lease.epoch(state)
        if what == "take":
            state = lease.taken(state, f"s{number}", host="h", hostname="m", at=AT)
            assert lease.epoch(state) not in seen
            seen.add(lease.epoch(state))
            found = lease.holder(state)
            assert found is not None
            assert found.session_id == f"s{number}"
        elif what == "release":
            state = lease.released(state, AT)
            assert lease.holder(state) is None
        elif what == "see":
            state = lease.seen(state, AT)
        else:
            state = lease.anew(state, 0)
            assert lease.holder(state) is None
        assert lease.epoch(state) >= before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner),
)


@pytest.mark.slow
@given(JSON | st.fixed_dictionaries({"epoch": JSON, "session_id": JSON, "since": JSON, "seen": JSON, "host": JSON}))
def test_whatever_stands_there_is_read(raw: object) -> None:
    state = {"lease": raw}
    found = lease.holder(state)
    if found is not None:
        assert "\n" not in drivers.told(found)
        assert drivers.refusal("run", found).exit_code == 6
        clock.seconds_of(found.seen)
    taken = lease.taken(state, "s", host="h", hostname="m", at=AT)
    assert lease.epoch(taken) == lease.epoch(state) + 1
    assert lease.holder(taken) is not None
    if not isinstance(raw, dict):
        assert taken["lease_before_loom"] == raw


@each("epoch", [2**53 - 2, 2**53 - 1, 2**53, 2**63, 10**400, -1, True, "7", None, 1.0])
def test_whatever_an_epoch_is_the_next_one_can_be_written(epoch: object) -> None:
    state: dict[str, Any] = {"lease": {"epoch": epoch, "session_id": "theirs"}}
    assert (lease.holder(state) is not None) == (epoch in (2**53 - 2, 2**53 - 1))
    for after in (lease.taken(state, "s", host="h", hostname="m", at=AT), lease.anew(state, 2**53 - 1)):
        assert 1 <= after["lease"]["epoch"] <= 2**53 - 1
        assert after["lease"]["epoch"] == lease.epoch(after) != lease.epoch(state)


@given(st.integers(0, 32_000_000_000))
def test_a_time_is_read_as_the_clock_wrote_it(seconds: int) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    assert clock.seconds_of(stamp) == (calendar.timegm(time.gmtime(seconds)) if len(stamp) == 20 else 0)


@each("text", ["", "now", "2026-01-01", "2026-01-01T00:00", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "é" * 20])
def test_what_is_no_time_is_0(text: str) -> None:
    assert clock.seconds_of(text) == 0
