"""Memory is switched on and off through kills at every write: again it is whole, and `off` leaves nothing (D62)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from loomctl.kit.errors import EXIT_OK
from tests.faults.stand import Stand, litter, strikes

OWN = b"Use tabs.\r\nNo final newline"


def files_of(stand: Stand) -> dict[str, bytes]:
    """Give what stands in the project but for the store, and what memory keeps in it."""
    root = stand.scene.root
    kept = [stand.scene.store / "now.md", stand.scene.store / "local/memory.json"]
    found = [path for path in root.rglob("*") if path.is_file() and stand.scene.store not in path.parents]
    return {str(path.relative_to(root)): path.read_bytes() for path in [*found, *(one for one in kept if one.exists())]}


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("where", ["CLAUDE.local.md", "rule"])
@pytest.mark.parametrize("verb", ["on", "off"])
def test_memory_is_killed_at_every_write(stand: Stand, verb: str, where: str) -> None:
    """The same command again completes it; `off` after any kill leaves what was there before `on`."""
    on = ("memory", "on", "--in", where, "--yes")
    words = on if verb == "on" else ("memory", "off")
    local = Path(stand.scene.root / "CLAUDE.local.md")
    local.write_bytes(OWN)
    before = files_of(stand)
    if verb == "off":
        assert stand.cli(*on).code == EXIT_OK
    stand.keep()
    everything = list(strikes(stand.cli(*words, count=True).calls))
    whole = files_of(stand)
    assert len(everything) > 5
    for fault in everything:
        stand.put_back()
        assert stand.cli(*words, fault=fault).signal == signal.SIGKILL
        assert local.read_bytes().startswith(OWN), fault
        assert stand.cli(*words).code == EXIT_OK
        assert files_of(stand) == whole, fault
        assert stand.cli("memory", "off").code == EXIT_OK
        assert files_of(stand) == before, fault
        assert [name for name in litter(stand.scene) if "memory" in name or "now" in name] == [], fault
