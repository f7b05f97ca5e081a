"""What a driver is to the processes around it (D74)."""

from __future__ import annotations

import ctypes
import sys

import pytest

from loomctl.drive import process


def adopts() -> bool:
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(found), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
    return bool(found.value)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system adopts")
def test_it_adopts_as_long_as_it_drives_and_no_longer() -> None:
    """Else every orphan of a process that drove once would stay a zombie below it."""
    with process.adopting():
        assert adopts()
    assert not adopts()
