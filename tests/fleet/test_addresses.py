"""Where a fleet's queue stands: what cannot be read is refused, and no error has a part of its password."""

from __future__ import annotations

import pytest

from loomctl.fleet.postgres import Server
from loomctl.kit.errors import LoomError

UNREADABLE = [
    "postgresql:loom:hunter2@db.example.org/loom", "loom:hunter2@db.example.org/loom", "hunter2",
    "postgresql://loom:hun@ter2@db.example.org/loom", "postgresql://loom:hun/ter2@db.example.org/loom",
    "postgresql://loom:hun?ter2@db.example.org/loom", "postgresql://loom:hunter2", "postgresql://loom:hun,ter2",
    "postgresql://loom:hun#ter2/db.example.org@x@y", "host=db.example.org password=hun ter2",
    "host=db.example.org password=hunter2", "mysql://loom:hunter2@db.example.org/loom",
    "postgresql://loom:hunter2%zz@db.example.org/loom", "postgresql://db.example.org/loom?pasword=hunter2", "",
]  # fmt: skip
READABLE = [
    "postgresql://", "postgres://db.example.org", "postgresql://loom:hun%40ter2@127.0.0.1:1/loom?connect_timeout=1",
    "postgresql:///loom?host=/nowhere&password=hunter2", "postgresql://loom@[fe80::1%25lo]:1/loom", "postgresql://loom@[::1]:1,127.0.0.1:1/loom",
    "postgresql://%2Fnowhere/loom?user=loom", "postgresql://loom:hunter2@nowhere.invalid/loom",
]  # fmt: skip


@pytest.mark.parametrize("address", UNREADABLE)
def test_what_could_be_misread_is_refused_unseen(address: str) -> None:
    with pytest.raises(LoomError) as refused:
        Server(address)
    assert refused.value.code == "BAD_QUEUE"
    assert not any(part in str(refused.value) for part in ("hun", "ter2", "db.example.org"))


@pytest.mark.parametrize("address", READABLE)
def test_no_error_shows_a_password(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "/nowhere")
    server = Server(address, 3.0)
    with pytest.raises(LoomError) as gone:
        server.version()
    assert gone.value.code == "QUEUE_GONE"
    assert not any(part in str(gone.value) for part in ("hun", "ter2"))
