"""Every promise, in every assistant: the real client, a scripted model, a home of its own.

What a host cannot do is an expected no, with its reason in the table of hosts: the scene is played, and its claim must
fail; what comes before the claim must hold.
"""

from pathlib import Path

import pytest

from loomctl.hosts import table
from tests.e2e.clients.claude import Claude
from tests.e2e.clients.client import Client
from tests.e2e.clients.codex import Codex
from tests.e2e.clients.copilot import Copilot
from tests.e2e.clients.gemini import Gemini
from tests.e2e.clients.machines import Machines
from tests.e2e.clients.models import Says
from tests.e2e.clients.opencode import OpenCode
from tests.e2e.clients.qwen import Qwen
from tests.e2e.promises import DONE, ENDED, PROMISES, SHARED, BrokenError, done_steps, flow
from tests.e2e.scenes import state_of

CLIENTS: list[type[Client]] = [Claude, Codex, Copilot, OpenCode, Qwen, Gemini]
PAIRS = list(zip(CLIENTS, [*CLIENTS[1:], CLIENTS[0]], strict=True))
NAMES = sorted(PROMISES, key=lambda name: SHARED.get(name, ""))  # what looks at the same thing is tried in one worker
CASES = [(client, name) for client in CLIENTS for name in NAMES]


@pytest.mark.parametrize(("client", "name"), CASES, ids=[f"{client.host}: {name}" for client, name in CASES])
def test_a_promise_holds(client: type[Client], name: str, machines: Machines) -> None:
    here = machines.of(client)
    reason = dict(table.HOSTS[client.host].cannot).get(name, "")
    if not reason:
        PROMISES[name](here)
        return
    with pytest.raises(BrokenError):
        PROMISES[name](here)


@pytest.mark.parametrize(("begins", "ends"), PAIRS, ids=[f"{one.host} to {other.host}" for one, other in PAIRS])
def test_a_run_that_one_began_is_finished_in_another(
    begins: type[Client], ends: type[Client], machines: Machines, bundle: Path, cache: Path
) -> None:
    """While the one drives it the other loads nothing of it, and says who drives; then it takes it up, and ends it."""
    here = machines.of(begins)
    with ends(bundle, cache, beside=here) as there:
        flow(here, 3)
        first = here.begin("'three things' --workflow flow", f"One is done. {ENDED}")
        with here.open(first.session_id) as talk:
            talk.say("go on")
            told = there.tell("hello").conversation[0].seen()
            assert "drives" in told
            assert "Do part 2" not in told
        done = Says(shell=DONE.format(""))
        there.tell("Take it up.", Says(shell="loomctl resume"), *[done] * (3 - len(done_steps(here))), "All is done.")
        state = state_of(here.project)
        assert state["status"] == "completed"
        hosts = [session["host"] for session in state["sessions"]["session_history"]]
        assert (hosts[0], hosts[-1]) == (begins.host, ends.host)
