"""A value that is put away meets a kill or a full disk at each of its writes: whole or not there, never half (D38)."""

from __future__ import annotations

import errno
import signal

import pytest

from loomctl.runs.run_blobs import stored
from loomctl.runs.store.blobs import Blobs, ref_of
from loomctl.runs.store.leftovers import is_leftover
from tests.faults.bench import HUNGRY
from tests.faults.stand import Stand, strikes

DATA = b"y" * 150_000


def sound(stand: Stand) -> int:
    found = list(stored(str(stand.scene.store)))
    assert all(Blobs(str(stand.scene.store)).get(blob.ref) == DATA for blob in found)
    return len(found)


@pytest.mark.slow
def test_a_put_that_is_killed_at_every_write_leaves_a_whole_blob_or_none(stand: Stand) -> None:
    """After each kill the next put gives the same reference, and what is left beside is known for a leftover."""
    store = str(stand.scene.store)
    stand.keep()
    undisturbed = stand.work("put", store, count=True)
    assert undisturbed.stdout.strip() == ref_of(DATA)
    assert len(undisturbed.calls) > 5
    for fault in strikes(undisturbed.calls):
        stand.put_back()
        assert stand.work("put", store, fault=fault).signal == signal.SIGKILL
        assert sound(stand) in (0, 1)
        assert stand.work("put", store).stdout.strip() == ref_of(DATA)
        assert sound(stand) == 1
        beside = [path.name for path in stand.scene.store.glob("blobs/sha256/*/.*")]
        assert all(is_leftover(name) for name in beside)


def test_a_put_on_a_full_disk_names_nothing_that_is_not_there(stand: Stand) -> None:
    """At whichever write the disk is full, the error names a file or the blob is there; with room it goes on."""
    store = str(stand.scene.store)
    stand.keep()
    for number, call in enumerate(stand.work("put", store, count=True).calls, 1):
        if call.partition(" ")[0] not in HUNGRY:
            continue
        stand.put_back()
        told = stand.work("put", store, fault={"at": number, "errno": errno.ENOSPC, "onward": True}).stdout.strip()
        if told == ref_of(DATA):  # the lock's owner could not be written, and needs not be
            assert sound(stand) == 1
        else:
            assert told.startswith(f"failed {errno.ENOSPC} {store}/blobs")
            assert sound(stand) == 0
            assert list(stand.scene.store.glob("blobs/sha256/*/.*")) == []
        assert stand.work("put", store).stdout.strip() == ref_of(DATA)
        assert sound(stand) == 1
