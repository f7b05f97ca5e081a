"""A fleet of the real assistant, on one machine and on two that share a queue and a git remote (D78)."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.scripted_api import ScriptedApi, bash, failing, reply
from tests.fleet.conftest import database, postgres, shared_server
from tests.helpers.driven import PRICE, PROMPTS, WAIT
from tests.helpers.postgres import Postgres
from tests.helpers.shared_fleets import Client, Machines

__all__ = ["database", "postgres", "shared_server"]

TWO = ("alpha", "beta")
Make = Callable[..., Machines]


@pytest.fixture
def make(
    claude: str, bundle: Path, cache: Path, api: ScriptedApi, postgres: Postgres, tmp_path: Path
) -> Iterator[Make]:
    """Make machines with the real assistant, and a queue of theirs."""
    made: list[tuple[Machines, str]] = []

    def machines(*names: str) -> Machines:
        base = postgres.createdb()
        fleet = Machines(
            tmp_path / f"fleet-{len(made)}", postgres.address(base), names, Client(claude, bundle, cache, api)
        )
        made.append((fleet, base))
        return fleet

    yield machines
    for fleet, base in made:
        fleet.close()
        postgres.dropdb(base)


def done(process: subprocess.Popen[bytes], code: int = 0) -> None:
    assert process.wait(WAIT) == code


def until(holds: Callable[[], object]) -> None:
    """Wait as long as a drive may take, and not for ever."""
    late = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < late, "waited in vain"
        time.sleep(0.1)


def end(*working: subprocess.Popen[bytes]) -> None:
    for process in working:
        process.send_signal(signal.SIGTERM)
    for process in working:
        done(process, 130)


def test_two_machines_of_which_one_dies_make_what_one_alone_makes(make: Make) -> None:
    alone, two = make("alpha"), make(*TWO)
    kept = {}
    for machines in (alone, two):
        kept[machines] = [machines.all[0].put(f"make {at}", workflow=f"steps-{at + 3}")[0] for at in range(3)]
    done(alone.all[0].work(2, "--until-idle"))
    alpha, beta = two.all
    first = kept[two][0]
    two.hold(first)
    working = alpha.work(2)
    until(lambda: two.is_begun(first) and len(two.noted(kept[two][1], "starts")) > 0)
    luck = random.Random(0)
    while (struck := two.strike(luck, working)) != "tree":
        working = alpha.work(2) if struck == "worker" else working
    two.let_go(first)
    done(beta.work(2, "--until-idle"))
    assert beta.counts() == {"done": 3}
    assert [two.kept(one) for one in kept[two]] == [alone.kept(one) for one in kept[alone]]
    assert [two.noted(one, "overlaps") for one in kept[two]] == [[], [], []]
    assert not [one for machine in two.all for one in machine.alive()]


def test_a_person_at_the_other_machine_answers_a_gate(make: Make) -> None:
    machines = make(*TWO)
    alpha, beta = machines.all
    alpha.workflow(
        "gated", [{"id": "step-0", "prompt": PROMPTS[0]}, {"id": "ask", "kind": "human", "prompt": "Is it good?"},
                  {"id": "step-1", "prompt": PROMPTS[1]}],
    )  # fmt: skip
    (run_id,) = alpha.put("make it", workflow="gated")
    working = beta.work(1)
    until(lambda: alpha.counts() == {"waits": 1})
    assert not beta.alive()
    row = alpha.row(run_id)
    assert (row["kind"], row["why"], row["command"]) == ("approval", "Is it good?", f"loomctl approve {row['handle']}")
    alpha.loomctl("approve", run_id)
    until(lambda: alpha.counts() == {"done": 1})
    assert "parts/step-1.txt" in machines.kept(run_id)["code"]
    end(working)


def test_a_question_is_answered_by_the_line_of_the_board_on_any_machine(make: Make, api: ScriptedApi) -> None:
    machines = make(*TWO)
    alpha, beta = machines.all
    for one in machines.all:
        one.workflow("asks", [{"id": "one", "prompt": "Nobody knows how."}])
    (run_id,) = alpha.put("make it", workflow="asks")
    working = beta.work(1)
    until(lambda: alpha.counts() == {"waits": 1})
    tell, drive = alpha.row(run_id)["command"].split(" && ")
    handle = alpha.row(run_id)["handle"]
    assert (tell, drive) == (f'loomctl tell {handle} "ANSWER"', f"loomctl drive {handle} --share")
    api.react("use blue", reply(bash("part ends")))
    alpha.loomctl("tell", handle, "use blue")
    alpha.loomctl("drive", handle, "--share", *alpha.allows)
    until(lambda: alpha.counts() == {"done": 1})
    assert machines.told(run_id)["status"] == "completed"
    end(working)


def test_what_is_asked_of_a_run_reaches_the_assistant_elsewhere(make: Make) -> None:
    machines = make(*TWO)
    alpha, beta = machines.all
    paused, cancelled = (alpha.put(work, workflow="steps-3")[0] for work in ("make it", "make another"))
    for one in (paused, cancelled):
        machines.hold(one)
    working = beta.work(2)
    until(lambda: all(machines.is_begun(one) for one in (paused, cancelled)))
    assert "told" in alpha.fleet("cancel", cancelled)
    assert "told" in alpha.fleet("pause", paused)
    until(lambda: alpha.counts() == {"cancelled": 1, "driven": 1})
    machines.let_go(paused)
    until(lambda: alpha.counts() == {"cancelled": 1, "paused": 1})
    assert not beta.alive()
    assert machines.told(cancelled)["status"] == "cancelled"
    alpha.fleet("resume", paused)
    until(lambda: alpha.counts() == {"cancelled": 1, "done": 1})
    end(working)


def test_what_was_not_allowed_is_named_on_the_board_with_the_command_that_allows_it(make: Make) -> None:
    machines = make(*TWO)
    alpha, beta = machines.all
    (run_id,) = alpha.put("make it", workflow="steps-3")
    beta.allows = ()
    done(beta.work(1, "--until-idle"))
    row = alpha.row(run_id)
    assert (row["state"], row["kind"]) == ("waits", "denied")
    assert row["why"] == "the assistant was refused Bash(part ends:*)"
    assert row["command"] == f"loomctl drive {row['handle']} --share --allow 'Bash(part ends:*)'"


def test_a_plans_limit_holds_every_worker_until_its_time(make: Make, api: ScriptedApi) -> None:
    machines = make(*TWO)
    alpha, beta = machines.all
    for one in machines.all:
        del one.environment["ANTHROPIC_API_KEY"]
        one.environment["CLAUDE_CODE_OAUTH_TOKEN"] = "scripted-token-of-a-plan"
    runs = [alpha.put(work, workflow="steps-3")[0] for work in ("make it", "make another")]
    limit = {"status": "rejected", "reset": "now+45", "representative-claim": "five_hour"}
    api.requests.clear()
    api.script(failing(429, **{f"anthropic-ratelimit-unified-{name}": value for name, value in limit.items()}))
    working = [alpha.work(1)]
    until(lambda: [one["host"] for one in alpha.board()["held_hosts"]] == ["claude-code"])
    working.append(beta.work(2))
    assert sorted(alpha.counts()) == ["later", "queued"]
    until(lambda: alpha.counts() == {"done": 2})
    first, second, *_ = [one for one in api.requests if one.kind == "main"]
    assert second.at > first.at + 44
    assert [machines.told(one)["status"] for one in runs] == ["completed"] * 2
    end(*working)


def test_a_fleet_ends_at_its_cost_within_an_answer_a_slot(make: Make, api: ScriptedApi) -> None:
    machines = make(*TWO)
    alpha, beta = machines.all
    for one in machines.all:  # nobody knows a price before the first turn has ended on a machine
        one.put("begin", workflow="steps-3")
        done(one.work(1, "--until-idle"))
        one.environment["PACE"] = "3"  # between two answers, as a model takes
    alpha.workflow("slow", [{"id": f"step-{at}", "prompt": PROMPTS[0]} for at in range(8)])
    alpha.fleet("clean")
    runs = [alpha.put(f"make {at}", workflow="slow")[0] for at in range(4)]
    api.requests.clear()
    working = [one.work(1, "--max-cost", "0.6") for one in (alpha, beta)]
    for process in working:
        done(process, 10)
    answered = PRICE * sum(one.kind == "main" for one in api.requests)
    assert 0.6 <= answered <= 0.6 + 2 * PRICE
    assert sum(machines.cost(one) for one in runs if machines.noted(one, "starts")) == pytest.approx(answered, abs=0.01)
    assert set(alpha.counts()) <= {"done", "queued", "later"}


def test_slots_share_the_cost_until_a_price_is_known(make: Make, api: ScriptedApi) -> None:
    machines = make("alpha")
    (alpha,) = machines.all
    for at in range(2):
        alpha.put(f"make {at}", workflow="steps-8")
    api.requests.clear()
    done(alpha.work(2, "--max-cost", "0.6"), 10)
    assert PRICE * sum(one.kind == "main" for one in api.requests) <= 0.6 + 2 * PRICE
    assert set(alpha.counts()) <= {"done", "queued", "later"}


def test_no_assistant_has_the_way_to_the_queue(make: Make, api: ScriptedApi) -> None:
    machines = make("alpha")
    (alpha,) = machines.all
    alpha.environment["LOOM_QUEUE"] = alpha.words[-1]
    api.react(PROMPTS[0], reply(bash("env; part ends")))
    (run_id,) = alpha.put("make it", workflow="steps-3")
    alpha.words = []
    done(alpha.work(1, "--until-idle"))
    assert alpha.counts() == {"done": 1}
    seen = "\n".join(one.seen() for one in api.requests)
    assert f"LOOM_DRIVEN={run_id}" in seen
    assert "LOOM_QUEUE" not in seen
    assert "postgresql://" not in seen
