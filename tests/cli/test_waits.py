"""`loomctl waits`: what waits for whom over all runs, for people and for scripts."""

from __future__ import annotations

import json
import time

import pytest

from tests.cli.conftest import Cli
from tests.helpers.scenes import OTHER, SESSION, Json, Scene, fingerprint, handle

LATER = "2026-11-20T10:00:01Z", "2026-11-20T10:00:02Z"
AT, FAR = "2026-11-20T10:00:00Z", "2999-01-01T00:00:00Z"
COST: Json = {"kind": "limit", "what": "cost 5.02 of 5.00 USD", "until": None}
WAYS: list[Json] = [{"to": "end", "label": "[A] Approve"}, {"to": "fix", "label": "[F] Fix"}]
NOBODY = None  # a person's shell


@pytest.fixture
def gated(scene: Scene, cli: Cli) -> Scene:
    gate = {"id": "gate", "kind": "human", "prompt": "Is it good?\n\nLook at it.", "transitions": WAYS}
    fix = {"id": "fix", "prompt": "Mend it.", "transitions": [{"to": "gate"}]}
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "Make it."}, gate, fix]}}, name="gated")
    assert cli("run", "add dark mode", "--workflow", "gated").code == 0
    assert cli("done", given="It is made.").code == 0
    return scene


def test_nothing_waits_and_nothing_is_there(scene: Scene, cli: Cli) -> None:
    for _ in range(2):
        assert cli("waits").ends().stdout == "Nothing waits.\n"
        told = cli("waits", "--json").ends().json
        assert told == {"schema_version": 1, "waits": [], "stopped": [], "unreadable": []}
        scene.workflow()
        scene.begin()


def test_a_gate_is_told_with_its_choices(gated: Scene, cli: Cli) -> None:
    run_id, shop = gated.run_dir.name, gated.handle
    for words in ([], [shop], [run_id]):
        (told,) = cli("waits", *words, "--json", session=NOBODY).ends().json["waits"]
        assert told == {
            "run_id": run_id,
            "handle": shop,
            "kind": "approval",
            "step": "build/gate",
            "since": gated.state["pending_approvals"][0]["requested_at"],
            "until": None,
            "question": "Is it good?",
            "choices": ["[A] Approve", "[F] Fix"],
            "command": f"loomctl choose LABEL {shop}",
            "branch": None,
        }
    assert cli("waits").ends().stdout == (
        f"{shop} waits for you: Is it good? (just now)\n"
        f"    loomctl choose '[A] Approve' {shop}\n"
        f"    loomctl choose '[F] Fix' {shop}\n"
    )
    assert cli("choose", "a", shop, session=NOBODY).code == 0
    assert cli("waits").ends().stdout == "Nothing waits.\n"


def test_what_was_refused_is_allowed_by_driving_on(begun: Scene, cli: Cli) -> None:
    noted = [
        {"what": "Bash npm test", "rule": "Bash(npm test:*)"},
        {"what": "Bash npm test -v", "rule": "Bash(npm test:*)"},
    ]
    (entry,) = begun.state["steps"]
    waits = {"message": "its host refused Bash npm test", "at": AT, "kind": "denied"}
    begun.edit(status="awaiting_feedback", feedback=waits, steps=[{**entry, "denied": noted}])
    allowing = f"loomctl drive {begun.handle} --allow 'Bash(npm test:*)'"
    assert cli("waits").ends().stdout.endswith(f"\n    {allowing}\n")
    assert allowing in cli("status").ends().stdout


def test_every_kind_over_all_runs_the_oldest_first(scene: Scene, cli: Cli) -> None:
    scene.workflow()
    scene.workflow(name="shell", phases={"build": {"steps": [{"id": "c1", "kind": "command", "run": "touch sprung"}]}})
    notes: dict[str, Json] = {
        "a question": {"status": "awaiting_feedback", "feedback": {"message": "Which colour?", "at": AT}},
        "a limit": {"waits_for": {"kind": "limit", "what": "cost 5.02 of 5.00 USD", "until": None, "at": LATER[0]}},
        "a time": {"waits_for": {"kind": "time", "what": "the plan's limit", "until": FAR, "at": LATER[1]}},
        "a pause": {"status": "paused"},
        "a failure": {"status": "failed"},
        "an end": {"status": "completed"},
        "a command": {},
        "work": {},
    }
    called = {}
    for number, (name, changes) in enumerate(notes.items()):
        workflow = "shell" if name == "a command" else "tiny"
        run = scene.begin(name, session=f"{OTHER[:-3]}{number:03}", workflow=workflow).run
        called[name] = run.handle
        path = scene.store / "runs" / run.run_id / "state.json"
        state = {**scene.state_of(path.parent), **changes}
        state["lease"] = {**state["lease"], "session_id": None}
        path.write_text(json.dumps(state))
    told = cli("waits", "--json", session=NOBODY).ends().json
    found = [(one["handle"], one["kind"], one["until"], one["command"]) for one in told["waits"]]
    assert found == [
        (called["a question"], "question", None, f"loomctl resume {called['a question']}"),
        (called["a limit"], "limit", None, f"loomctl drive {called['a limit']}"),
        (called["a time"], "time", FAR, f"loomctl drive {called['a time']}"),
        (called["a command"], "trust", None, f"loomctl trust {called['a command']}"),
    ]
    assert {(one["handle"], one["status"]) for one in told["stopped"]} == {
        (called["a pause"], "paused"),
        (called["a failure"], "failed"),
    }
    lines = cli("waits", session=NOBODY).ends().stdout.splitlines()
    assert [line for line in lines if not line.startswith("    ")][1:] == [
        f"{called['a limit']} waits at a limit: cost 5.02 of 5.00 USD (2026-11-20)",
        f"{called['a time']} waits until 2999-01-01 00:00:00: the plan's limit (2026-11-20)",
        f"{called['a command']} waits for trust in its commands: build/c1 (touch sprung) (just now)",
        "Besides, 2 runs are paused or failed: loomctl runs",
    ]
    assert lines[0] == f"{called['a question']} waits for your answer to: Which colour? (2026-11-20)"
    for name in ("a limit", "a time"):  # the run goes on, so that nothing is waited for
        assert cli("resume", called[name], "--json", session=f"{OTHER[:-3]}{list(notes).index(name):03}").code == 0
        assert "waits_for" not in scene.state_of(scene.store / "runs" / _id(scene, called[name]))
    assert cli("waits", called["an end"]).ends().stdout == "Nothing waits.\n"


def _id(scene: Scene, called: str) -> str:
    return next(folder.name for folder in scene.run_dirs if handle(scene.state_of(folder)) == called)


def test_status_says_the_same_of_a_limit(begun: Scene, cli: Cli) -> None:
    begun.let_go()
    path = begun.store / f"local/sessions/{SESSION}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ended": True}))
    begun.edit(waits_for={"kind": "limit", "what": "60 of 60 turns", "until": None, "at": AT})
    told = cli("status", "--json", session=OTHER).json
    assert told["waits"] == {"for": "user", "why": "a limit was reached: 60 of 60 turns"}
    assert told["next"] == f"loomctl drive {begun.handle}"
    begun.edit(waits_for={"kind": "time", "what": "the plan's limit", "until": FAR, "at": AT})
    told = cli("status", "--json", session=OTHER).json
    assert told["waits"]["for"] == "nobody"
    assert told["waits"]["why"].endswith(": the plan's limit")
    begun.edit(status="paused")
    (told,) = cli("waits", "--json", session=OTHER).json["waits"]
    assert (told["kind"], told["until"]) == ("time", FAR)


def test_what_another_drives_is_answered_there_or_taken_over(gated: Scene, cli: Cli) -> None:
    gated.edit(pending_approvals=[], feedback={"message": "Which colour?", "at": AT})
    (told,) = cli("waits", "--json").ends().json["waits"]
    assert told["command"] == f"loomctl resume {gated.handle}"
    seen = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    gated.edit(lease={"epoch": 9, "session_id": "far", "host": "x", "hostname": "laptop", "since": seen, "seen": seen})
    (told,) = cli("waits", "--json", session=OTHER).ends().json["waits"]
    assert told["command"] == f"loomctl resume {gated.handle} --take-over"


def test_the_question_of_a_run_that_was_driven_is_answered_by_a_word_and_driving_on(begun: Scene, cli: Cli) -> None:
    begun.let_go()
    begun.space().local.mark_ended(SESSION)
    ended = {"code": 9, "kind": "question", "why": "the run waits for your answer", "at": AT}
    waits = {"message": "Which colour?", "at": AT}
    begun.edit(status="awaiting_feedback", feedback=waits, driving={"host": "claude-code", "ended": ended})
    (asked,) = cli("waits", "--json", session=NOBODY).ends().json["waits"]
    assert asked["command"] == f"loomctl tell {begun.handle} -"
    said = cli(*asked["command"].split()[1:], session=NOBODY, given="blue\n").ends().stdout
    assert said.endswith(f"It is read when the run goes on: loomctl drive {begun.handle}\n")
    (asked,) = cli("waits", "--json", session=NOBODY).ends().json["waits"]
    assert asked["command"] == f"loomctl drive {begun.handle}"  # it is answered
    begun.edit(driving={"host": "claude-code"})  # its driver was killed, or another way to go on was taken
    (asked,) = cli("waits", "--json", session=NOBODY).ends().json["waits"]
    assert asked["command"] == f"loomctl resume {begun.handle}"


def test_a_run_that_cannot_be_read_is_said_and_no_other_is_lost_by_it(gated: Scene, cli: Cli) -> None:
    shop = gated.handle
    broken = gated.store / "runs" / "broken-run-2026-01-01T00-00-00Z"
    broken.mkdir()
    (broken / "state.json").write_text("{")
    told = cli("waits", "--json").ends().json
    assert [one["handle"] for one in told["waits"]] == [shop]
    assert [one["run_id"] for one in told["unreadable"]] == [broken.name]
    assert f"! {broken.name} is unreadable: " in cli("waits").ends().stdout
    assert cli("waits", broken.name).code == 5
    assert cli("waits", "nobody").code == 3


def test_looking_writes_nothing_into_a_run(gated: Scene, cli: Cli) -> None:
    before = fingerprint(gated.run_dir)
    cli("waits").ends()
    cli("waits", "--json", session=NOBODY).ends()
    assert fingerprint(gated.run_dir) == before
