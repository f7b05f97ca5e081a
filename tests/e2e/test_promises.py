"""Every promise, in every assistant: the real client, a scripted model, a home of its own.

What a host cannot do is an expected no, with its reason in the table of hosts: the scene is played, and must fail.
"""

from pathlib import Path

import pytest

from loomctl.hosts import table
from tests.e2e.clients.claude import Claude
from tests.e2e.clients.client import Client
from tests.e2e.clients.codex import Codex
from tests.e2e.promises import PROMISES

CLIENTS: list[type[Client]] = [Claude, Codex]
CASES = [(client, name) for client in CLIENTS for name in PROMISES]


@pytest.mark.parametrize(("client", "name"), CASES, ids=[f"{client.host}: {name}" for client, name in CASES])
def test_a_promise_holds(client: type[Client], name: str, bundle: Path, cache: Path) -> None:
    with client(bundle, cache) as here:
        reason = dict(table.HOSTS[client.host].cannot).get(name, "")
        if not reason:
            PROMISES[name](here)
            return
        with pytest.raises(AssertionError):
            PROMISES[name](here)
