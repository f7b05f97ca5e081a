"""What a person sees of `loomctl drive`, and how they end it: an assistant that a shell script plays."""

from __future__ import annotations

import json
import re
import shlex
import signal

import psutil
import pytest

from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal, loomctl
from tests.helpers.fake_assistant import STEPS, FakeAssistant, documents
from tests.helpers.scenes import OTHER
from tests.helpers.waiting import Gate, until

ENDS_ALL = 'calls a "make it"; ends; ends; over 0.25'


def begun(fake: FakeAssistant) -> str:
    run_id: str = fake.scene.begin(session=None).run.run_id
    return run_id


def lives(word: str) -> bool:
    """Tell whether a process lives whose command line has a word."""
    return any(word in " ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))


def test_without_a_terminal_there_is_a_line_for_each_thing_that_happens(fake: FakeAssistant) -> None:
    fake.play(ENDS_ALL)
    begun(fake)
    out, err = fake.drives(fake.scene.handle)
    assert out == f"Loom: {fake.scene.handle}: the run is completed\n  loomctl report {fake.scene.handle}\n"
    first, *others, last = err.splitlines()
    assert last == "loomctl: no hook of Loom has run in this Claude Code session; see loomctl doctor"  # it has none
    assert first == "turn 1 begins, in a new conversation"
    assert others[0] == "step build/one"
    assert others[-1].startswith("turn 1 ended after ")
    assert others[-1].endswith(" s, 1 call, 0.25 USD")
    assert len(others) in (2, 3)  # a step that lasts less than half a second need not be seen
    assert "\033" not in err


@pytest.mark.slow
def test_json_is_an_object_a_line(fake: FakeAssistant) -> None:
    fake.play(ENDS_ALL)
    run_id = begun(fake)
    out, err = fake.drives(fake.scene.handle, "--json", "--max-turns", "3")
    assert err == ""
    told = documents(out)
    assert all(one["schema_version"] == 1 for one in told)
    names = [one["event"] for one in told]
    assert names[:3] == ["drive.started", "turn.started", "step"]
    assert [name for name in names if name != "cost"][-2:] == ["turn.ended", "drive.ended"]
    started, _, step, *_, ended = told
    (turn,) = (one for one in told if one["event"] == "turn.ended")
    *_, cost = (one for one in told if one["event"] == "cost")  # before its turn's end where it was read by then
    assert (started["run_id"], started["host"], started["limits"]["turns"]) == (run_id, "claude-code", 3)
    assert (step["step"], step["visit"], step["turn"]) == ("build/one", 1, 1)
    assert (turn["class"], turn["cost"], turn["calls"], turn["tokens"]) == ("done", 0.25, 1, 1234)
    assert (cost["turn"], cost["cost"], cost["tokens"], "estimated" in cost) == (1, 0.25, 1234, False)
    assert ended["code"] == 0
    assert ended["kind"] == ended["status"] == "completed"
    assert ended["command"] == f"loomctl report {fake.scene.handle}"


@pytest.mark.slow
def test_an_error_is_told_in_lines_too(fake: FakeAssistant) -> None:
    fake.play('calls a "wait"; sleep 70')
    begun(fake)
    child = fake.start("drive", fake.scene.handle, "--json")
    until(lambda: fake.is_at_work)
    newer = fake.scene.run_dir / "newer.json"
    newer.write_text(json.dumps({**fake.scene.state, "schema_version": 99}), encoding="utf-8")
    newer.replace(fake.scene.run_dir / "state.json")
    out, _ = fake.ends(child, 7)
    *_, ended, error = documents(out)
    assert (ended["event"], ended["kind"], ended["code"]) == ("drive.ended", "error", 7)
    assert ended["why"] == error["error"]["message"]
    assert ended["status"] == "in_progress"


@pytest.mark.slow
def test_what_a_turn_costs_is_told_while_it_goes_on(fake: FakeAssistant, gate: Gate) -> None:
    """Whoever drives several at a common budget can end them after the answer that is one too many."""
    usage = '"modelUsage":{"":{"costUSD":0.25,"inputTokens":250000}}'
    result = f'{{"type":"result","subtype":"success","is_error":false,"total_cost_usd":0.25,{usage}}}'
    (fake.folder / "result").write_text(f"{result}\n", encoding="utf-8")
    fake.play(f"case $turn in 1) ends; cat '{fake.folder}/result';; *) calls a x; {gate}; ends; over 0.5;; esac")
    begun(fake)
    child = fake.start("drive", fake.scene.handle, "--json")
    assert child.stdout is not None
    told = (json.loads(line) for line in child.stdout)
    known = next(one for one in told if one["event"] == "cost" and one["cost"])
    assert (known["cost"], known["turn"], "estimated" in known) == (0.25, 1, False)
    running = next(one for one in told if one["event"] == "cost")
    assert (running["turn"], running["tokens"], running["estimated"]) == (2, 1234, True)
    assert 0.2512 <= running["cost"] < 0.26
    gate.open()
    last = [one for one in told if one["event"] == "cost"][-1]
    assert (last["cost"], "estimated" in last) == (0.5, False)
    fake.ends(child)


@pytest.mark.slow
def test_nobody_reads_on_and_the_run_goes_on(fake: FakeAssistant) -> None:
    fake.play(ENDS_ALL)
    begun(fake)
    child = fake.start("drive", fake.scene.handle, "--json")
    assert child.stdout is not None
    child.stdout.close()
    child.stdout = None
    fake.ends(child)
    assert fake.scene.state["status"] == "completed"


@pytest.mark.shows("with the rules that you, or a workflow that you trusted, allow")
def test_a_refusal_is_a_line_and_names_what_allows_it(fake: FakeAssistant) -> None:
    fake.play('refused a "npm test"; over 0.1')
    begun(fake)
    out, err = fake.drives(fake.scene.handle, code=9)
    assert "refused: Bash npm test\n" in err
    assert f"loomctl drive {fake.scene.handle} --allow 'Bash(npm test:*)'" in out


@pytest.mark.slow
def test_of_a_refusal_that_nothing_allows_no_rule_is_named(fake: FakeAssistant) -> None:
    fake.play(f'refused a "loomctl approve {begun(fake)}"; ends; over 0.25')
    out, _ = fake.drives(fake.scene.handle, code=9)
    assert "the assistant was refused Bash loomctl approve" in out
    assert "--allow" not in out
    assert "; no setting allows that\n" in out


@pytest.mark.slow
def test_ctrl_c_ends_it_after_the_step(fake: FakeAssistant, gate: Gate) -> None:
    fake.play(f'calls a "wait"; {gate}; ends; sleep 70; ends; over 0.1')
    begun(fake)
    child = fake.start("drive", fake.scene.handle)
    until(lambda: fake.turns)
    child.send_signal(signal.SIGINT)
    gate.open()
    out, err = fake.ends(child, 9)
    assert "Ends after this step. Ctrl-C ends it now." in err
    assert f"you ended the driver\n  loomctl drive {fake.scene.handle}" in out
    state = fake.scene.state
    assert [one["status"] for one in state["steps"]] == ["succeeded", "in_progress"]
    assert state["lease"]["session_id"] is None
    assert not lives(str(fake.folder))


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize(
    ("signals", "code"), [((signal.SIGINT, signal.SIGINT), 130), ((signal.SIGTERM,), 9), ((signal.SIGHUP,), 9)]
)
def test_twice_or_a_closed_terminal_ends_it_now(
    fake: FakeAssistant, signals: tuple[signal.Signals, ...], code: int
) -> None:
    fake.play('calls a "wait"; trap "exit 0" INT; sleep 71 & wait')
    begun(fake)
    child = fake.start("drive", fake.scene.handle)
    until(lambda: fake.turns)
    assert child.stderr is not None
    for one in signals:
        child.send_signal(one)
        while len(signals) > 1 and "Ends after this step" not in child.stderr.readline():
            pass
        signals = signals[1:]
    fake.ends(child, code)
    state = fake.scene.state
    assert state["status"] == "in_progress"
    assert state["lease"]["session_id"] is None
    assert fake.scene.events()[-2]["properties"]["code"] == code
    assert not lives(str(fake.folder))


@pytest.mark.slow
def test_nohup_keeps_it_through_a_closed_terminal(fake: FakeAssistant, gate: Gate) -> None:
    fake.play(f"{gate}; ends; ends; over 0.1")
    begun(fake)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        child = fake.start("drive", fake.scene.handle)
    finally:
        signal.signal(signal.SIGHUP, before)
    until(lambda: fake.turns)
    child.send_signal(signal.SIGHUP)
    gate.open()
    fake.ends(child)


# ---- The block at a terminal.


@pytest.mark.slow
def test_a_terminal_gets_a_block_that_fits_it(fake: FakeAssistant, gate: Gate) -> None:
    long = "run a command that is far too long for a line of a narrow terminal and goes on and on"
    fake.play(f'calls a "{long}"; {gate}; ends; ends; over 0.5')
    begun(fake)
    words = loomctl("drive", fake.scene.handle, "--max-cost", "5", "--max-time", "4h")
    terminal = Terminal(words, fake.scene, environ={"PATH": fake.path})
    terminal.resize(20, 60)
    block = terminal.until("Ctrl-C ends it after this step, twice now.", "0 s ago: Bash run a command")
    for label in ("run", "step", "turn", "silence", "cost", "time"):
        assert f"  {label:<9}" in block
    assert "1,234 tokens" in block
    assert "0.00 of 5.00 USD" in block
    terminal.resize(20, 30)
    terminal.until("Ctrl-C ends it after this st…")
    gate.open()
    seen = terminal.end()
    narrow = seen.rpartition("A  run")[2].partition("Ctrl-C")[0]
    for text, wide in ((block, 60), (narrow, 30)):
        assert all(len(line) < wide for line in re.sub(r"\033\[\d*[AK]|\r", "", text).split("\n"))
    assert "the run is completed loomctl report" in " ".join(seen.split())
    assert terminal.child.returncode == 0


@pytest.mark.slow
def test_in_the_background_of_a_terminal_nothing_is_drawn(fake: FakeAssistant) -> None:
    fake.play(ENDS_ALL)
    begun(fake)
    shell = f"set -m; {shlex.join(loomctl('drive', fake.scene.handle))} & wait; echo over"
    terminal = Terminal(["setsid", "-c", "-w", "/bin/sh", "-c", shell], fake.scene, environ={"PATH": fake.path})
    seen = terminal.until("over")
    terminal.end()
    assert "turn 1 begins" in seen
    assert "Ctrl-C ends it" not in seen


@pytest.mark.usefixtures("on_a_wide_screen")
def test_ctrl_c_at_the_question_of_trust_starts_no_assistant(fake: FakeAssistant) -> None:
    fake.scene.workflow(phases={"build": {"steps": STEPS}}, allow=["Write"])
    run = fake.scene.begin(session=None).run
    terminal = Terminal(loomctl("drive", run.handle), fake.scene, environ={"PATH": fake.path})
    terminal.until("Allow this on this machine?")
    terminal.interrupt()
    seen = terminal.end()
    assert terminal.child.returncode == 130
    assert (fake.turns, "turn 1" in seen) == (0, False)


@pytest.mark.usefixtures("on_a_wide_screen")
def test_who_may_not_drive_it_is_asked_for_no_trust(fake: FakeAssistant) -> None:
    fake.scene.workflow(phases={"build": {"steps": STEPS}}, allow=["Write"])
    run = fake.scene.begin(session=OTHER).run
    terminal = Terminal(loomctl("drive", run.handle), fake.scene, environ={"PATH": fake.path})
    seen = terminal.end()
    assert terminal.child.returncode == 6
    assert "HELD_BY_ANOTHER" in seen
    assert "This run wants" not in seen
    _, err = fake.drives(run.handle, code=6)
    assert "This run wants" not in err


@pytest.mark.parametrize("home", ["", "file/state"])
def test_without_a_folder_to_remember_runs_in_that_is_named(
    fake: FakeAssistant, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    """`loomctl resume`, the way in to a run that came from elsewhere, would lead back here."""
    run_id = begun(fake)
    file = fake.scene.write("file", "")
    monkeypatch.setenv("LOOM_STATE_HOME", str(file / "state") if home else "")
    monkeypatch.setenv("HOME", "elsewhere")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    _, err = fake.drives(run_id, code=3)
    assert (f"Loom cannot remember runs in {file}" if home else "Loom has no folder to remember runs in") in err
    assert err.endswith("hint: loomctl doctor\n")
    assert fake.turns == 0


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("cancelled", 1)])
def test_of_a_run_that_is_over_it_says_so_and_writes_nothing(fake: FakeAssistant, status: str, code: int) -> None:
    fake.scene.workflow(phases={"build": {"steps": STEPS}}, allow=["Write"])
    begun(fake)
    fake.scene.edit(status=status)
    kept = [fake.scene.run_dir / name for name in ("state.json", "events.jsonl")]
    before = [path.read_bytes() for path in kept]
    shop = fake.scene.handle
    out, err = fake.drives(shop, "--worktree", code=code)
    assert out.startswith(f"Loom: {shop}: the run is {status}\n")
    assert err == ""
    told = documents(fake.drives(shop, "--json", code=code)[0])
    assert [(one["event"], one["kind"]) for one in told] == [("drive.ended", status)]
    assert [path.read_bytes() for path in kept] == before
    assert fake.turns == 0


@pytest.mark.slow
def test_a_limit_of_time_ends_a_turn_and_is_named(fake: FakeAssistant) -> None:
    fake.play('calls a "wait"; sleep 70')
    begun(fake)
    out, err = fake.drives(fake.scene.handle, "--max-time", "2s", code=10)
    assert "the turn took too long" not in err
    assert out.startswith(f"Loom: {fake.scene.handle}: the time limit of 2 s is reached\n")


def test_a_step_that_fails_for_good_is_one_line(fake: FakeAssistant) -> None:
    fake.play('calls a "wait"; sleep 1; echo no | loomctl done --outcome failed; over 0.1')
    begun(fake)
    _, err = fake.drives(fake.scene.handle, code=1)
    assert err.count("step build/one\n") == 1


# ---- What others tell of it.


@pytest.mark.slow
@pytest.mark.usefixtures("on_a_wide_screen")
def test_status_show_and_the_report_tell_of_it(fake: FakeAssistant, gate: Gate, cli: Cli) -> None:
    fake.play(f'refused a "npm test"; {gate}; ends; over 0.25')
    begun(fake)
    shop = fake.scene.handle
    child = fake.start("drive", shop, "--max-cost", "5", "--max-time", "90m")
    until(lambda: fake.turns)
    told = cli("status", shop, "--json", session=None).ends().json
    assert (told["driver"]["host"], told["driving"]["host"], told["take_over"]) == (
        "loomctl",
        "claude-code",
        f"loomctl resume {shop}",
    )
    screen = cli("status", shop, session=None).ends().stdout
    assert "driven by loomctl drive on" in screen
    assert f"loomctl stop {shop}" in screen
    turn = f"turn {told['driving']['turns'] + 1}"
    assert f"{turn} of claude-code runs" in screen
    line = cli("statusline", session=None).ends().stdout
    assert turn in line
    assert "next" not in line
    gate.open()
    fake.ends(child, 9)
    assert "drive     1 turn of claude-code, 0.25 USD" in cli("show", shop, session=None).ends().stdout
    assert cli("show", shop, "--json", session=None).ends().json["driving"]["turns"] == 1
    events = cli("events", shop, session=None).ends().stdout
    assert "claude-code, at most 90 min, 5 USD" in events
    assert "; refused: Bash npm test" in events
    why = cli("show", "--why", session=None).ends().stdout
    assert "The assistant was refused Bash npm test." in why
    assert "loomctl drive ended just now: the assistant was refused Bash(npm test:*)" in why
    driven = cli("report", shop, "--json", session=None).ends().json["driven"]
    assert (driven["turns"], driven["cost"], driven["denied"]) == (1, 0.25, ["Bash npm test"])
