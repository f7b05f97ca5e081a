"""`loomctl stop` and a polite `loomctl resume`: a driver of one's own is asked to end by a file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from loomctl.runs.machine import drivers
from loomctl.runs.model import lease
from tests.cli.conftest import Cli
from tests.helpers.fake_assistant import FakeAssistant
from tests.helpers.scenes import MAIN, OTHER, SESSION, Scene
from tests.helpers.waiting import Gate, until

ENDING = ("stop", "stop --after-step", "resume --take-over")


@pytest.fixture
def fake(fake: FakeAssistant) -> FakeAssistant:
    """One beside a run that has begun."""
    fake.scene.begin(session=None)
    return fake


def test_it_ends_the_driver_now_and_nothing_lives(fake: FakeAssistant, gate: Gate, cli: Cli) -> None:
    fake.play(f'trap "" INT; setsid sleep 73 & sleep 74 & {gate}; wait; wait')
    child = fake.start("drive", fake.scene.handle)
    gate.open()  # the assistant does not hear an interrupt from here on
    said = cli("stop", fake.scene.handle, session=None).ends()
    shop = fake.scene.handle
    assert said.stdout == f"Loom: the driver of {shop} has ended. To let it go on: loomctl drive {shop}\n"
    assert said.stderr == "loomctl: the driver was asked to end; it ends its assistant first, within 10 s\n"
    out, _ = fake.ends(child, 9)
    assert "you ended the driver" in out
    assert fake.scene.state["lease"]["session_id"] is None
    assert not any(str(fake.folder) in " ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))
    assert os.listdir(fake.scene.store / "local" / "drivers") == []
    told = cli("stop", "--json", session=None).ends().json
    assert told["how"] == "nobody"


@pytest.mark.slow
def test_resume_asks_politely_and_gets_the_run_after_the_step(fake: FakeAssistant, gate: Gate, cli: Cli) -> None:
    fake.play(f"{gate}; ends; sleep 75; over 0.1")
    child = fake.start("drive", fake.scene.handle)
    until(lambda: fake.is_at_work)
    for words, session in ((["resume"], None), (["resume", fake.scene.handle], SESSION)):
        refused = cli(*words, session=session).ends(6)
        assert "Loom has asked it to end after this step" in refused.stderr
        assert refused.stderr.rstrip().endswith(f"hint: loomctl resume {fake.scene.handle}")
    assert cli("stop", "--after-step", "--json", session=None).ends().json["how"] == "asked"
    gate.open()
    out, err = fake.ends(child, 9)
    assert "Ends after this step." in err
    assert f"you ended the driver\n  loomctl drive {fake.scene.handle}" in out
    assert fake.turns == 1
    assert [one["status"] for one in fake.scene.state["steps"]] == ["succeeded", "in_progress"]
    cli("resume", fake.scene.handle, session=SESSION).ends()
    assert fake.scene.state["lease"]["session_id"] == SESSION


@pytest.mark.slow
def test_a_driver_that_waits_for_a_time_is_no_more_to_wait_for(fake: FakeAssistant, cli: Cli) -> None:
    fake.play('calls a "try"; exit 1')
    child = fake.start("drive", fake.scene.handle)
    assert child.stderr is not None
    assert any("waits until" in line for line in child.stderr)
    cli("resume", fake.scene.handle, session=SESSION).ends()
    fake.ends(child, 9)
    assert fake.scene.state["lease"]["session_id"] == SESSION


@pytest.mark.slow
def test_take_over_is_at_once(fake: FakeAssistant, cli: Cli) -> None:
    fake.play("sleep 75; over 0.1")
    child = fake.start("drive", fake.scene.handle)
    until(lambda: fake.is_at_work)
    cli("resume", fake.scene.handle, "--take-over", session=SESSION).ends()
    out, _ = fake.ends(child, 6)
    assert "another took the run over" in out
    assert fake.scene.state["lease"]["session_id"] == SESSION


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", "env -u LOOM_DRIVEN "])
def test_what_is_driven_ends_no_driver(fake: FakeAssistant, before: str) -> None:
    """Neither its own, nor another's: that is a person's word."""
    shop = fake.scene.handle
    called = f"{before}'{sys.executable}' -I '{MAIN}'"
    ends = "; ".join(f"{called} {words} {shop} >>'{fake.folder}/tried' 2>&1" for words in ENDING)
    fake.play(f"{ends}; ends; ends; over 0.1")
    fake.drives(shop)
    tried = (fake.folder / "tried").read_text(encoding="utf-8")
    assert tried.count("ASK_FIRST") == len(ENDING)
    assert fake.turns == 1


# ---- Who may be asked, and what is heeded.


def held(scene: Scene, host: str) -> lease.Holder:
    """Let a session of a host hold the only run, by this process."""
    scene.space(OTHER, host=host, pid=os.getpid()).store.update(scene.run_dir.name, lambda state: (state, []))
    state = {**scene.state, "note": "taken"}
    scene.space(OTHER, host=host, pid=os.getpid()).store.update(scene.run_dir.name, lambda _: (state, []))
    found = lease.holder(scene.state)
    assert found is not None
    assert found.session_id == OTHER
    return found


def test_an_assistants_session_is_no_driver(fake: FakeAssistant, cli: Cli) -> None:
    held(fake.scene, "claude-code")
    refused = cli("stop", session=None).ends(6)
    assert "NOT_STOPPED" in refused.stderr
    assert refused.stderr.rstrip().endswith(f"hint: loomctl pause {fake.scene.handle}")


def test_a_driver_elsewhere_is_named(fake: FakeAssistant, cli: Cli) -> None:
    held(fake.scene, drivers.HOST)
    state = fake.scene.state
    fake.scene.edit(lease={**state["lease"], "hostname": "gpu-7", "epoch": state["lease"]["epoch"] + 1})
    refused = cli("stop", "--json", session=None).ends(6).json["error"]
    assert "gpu-7" in refused["message"]
    assert refused["why"] == "it was started elsewhere: stop it there, in its project"


def test_only_its_own_users_word_to_this_very_session_counts(
    fake: FakeAssistant, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, run_id = fake.scene, fake.scene.run_dir.name
    found = held(scene, drivers.HOST)
    local = scene.space(OTHER).local.folder
    assert drivers.asked_to_end(local, run_id, OTHER) == ""
    drivers.ask_to_end(local, run_id, found, drivers.NOW)
    drivers.ask_to_end(local, run_id, found, drivers.AFTER_STEP)
    assert drivers.asked_to_end(local, run_id, OTHER) == drivers.NOW  # who asked for more gets it
    assert drivers.asked_to_end(local, run_id, SESSION) == ""
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        assert drivers.asked_to_end(local, run_id, OTHER) == ""
        assert not drivers.may_ask(local, run_id, found)
    path = Path(local, "drivers", f"{run_id}.ask")
    for text in (b"", b"\xff" * 50, b"x" * 5000, f"{OTHER} later\n".encode(), json.dumps({"end": "now"}).encode()):
        path.write_bytes(text)
        assert drivers.asked_to_end(local, run_id, OTHER) == ""
    path.unlink()
    path.symlink_to(scene.write("elsewhere", f"{OTHER} now\n"))
    assert drivers.asked_to_end(local, run_id, OTHER) == ""
    drivers.forget(local, run_id, OTHER)
    assert not os.path.lexists(path)
