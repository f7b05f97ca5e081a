"""`loomctl status` and `loomctl statusline`: one screen and one line, for people, whatever a run holds."""

import json
import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from loomctl import __version__
from loomctl.flow import advance
from loomctl.kit.text import fences
from loomctl.runs.store import events
from loomctl.runs.store.events import Event
from tests.care.test_hook_checks import ALL, MINUTE, bind_times, fire
from tests.cli.conftest import Cli
from tests.helpers import faber
from tests.helpers.scenes import CHECKOUT, OTHER, SESSION, Json, Scene, artifact, fingerprint, handle
from tests.helpers.texts import holds

DAY = 24 * 3600


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md"), artifact("notes", "notes.md", required=False)])
    scene.begin()
    return scene


def fields(screen: str) -> dict[str, str]:
    found: dict[str, str] = {}
    label = ""
    for line in screen.splitlines():
        label = line[:10].strip() or label
        found[label] = f"{found.get(label, '')} {line[10:]}".strip()
    return found


def test_one_document_and_one_screen_say_where_a_run_stands(begun: Scene, cli: Cli) -> None:
    told = cli("status", "--json").json
    told_events = begun.events()
    keys = (
        "schema_version run_id handle run_dir status workflow_id work_id goal saved_from phases steps step pauses_after"
        " waits next choices take_over"
    )
    assert (
        list(told) == f"{keys} sessions driver driving compactions context saved events ledger hooks versions".split()
    )
    assert told["steps"] == {"done": 0, "total": 4}
    assert told["waits"] == {"for": "assistant", "why": "the step's result"}
    assert (told["driver"]["session_id"], told["driver"]["here"]) == (SESSION, True)
    assert told["compactions"] == {"count": 0, "last": None}
    assert told["ledger"] == {"ok": True, "entries": len(told_events), "unproven": 0, "fault": None}
    assert told["context"] == {"session_id": SESSION, "given": ["spec"], "not_given": ["notes"]}
    assert told["versions"] == {"loomctl": __version__, "hooks": None, "run": __version__, "skew": []}
    assert told["hooks"] == {"fired": 0, "last": None, "silent": [], "expected": True, "set_aside": 0}
    fire(begun, ALL)
    bind_times(begun, SESSION, bound=DAY, sign=MINUTE)
    screen = cli("status").stdout
    lines = screen.splitlines()
    assert len(lines) <= 24
    assert all(fences.width(line) <= 80 for line in lines)
    told = fields(screen)
    assert (told["run"], told["status"]) == (begun.handle, "in progress")
    assert (told["goal"], told["phases"]) == ("add dark mode", "▸ frame · build · ship (0 of 4 steps)")
    assert told["step"] == "frame/ask@1 begun just now"
    assert (told["waits"], told["next"]) == ("for the assistant: the step's result", "loomctl done --for 001")
    assert told["context"] == "given: spec; not given: notes"
    assert told["hooks"].startswith("all working; the last was ")
    assert "phase.started frame" in told["events"]
    assert len([line for line in lines if line.startswith("events")]) == 1
    (entry,) = begun.state["steps"]
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3 * 3600 - 60))
    begun.edit(steps=[{**entry, "started_at": began}])
    assert fields(cli("status").stdout)["step"] == "frame/ask@1 for 3 h"


def test_what_a_run_has_not_made_yet_is_not_said_to_be_missing(scene: Scene, cli: Cli) -> None:
    """An artifact counts once its condition holds and the state has its path."""
    common = {"type": "markdown", "required": False, "reload_triggers": ["manual"]}
    spec = {**common, "id": "spec", "path_from_state": "artifacts.spec_path"}
    later = {**common, "id": "later", "path": "{project_root}/c.md"}
    held_back = {**common, "id": "held-back", "path": "{project_root}/b.md", "condition": "state.context.b"}
    scene.workflow([spec, later], conditional=[held_back])
    scene.begin()
    assert cli("status", "--json").json["context"] == {"session_id": SESSION, "given": [], "not_given": ["later"]}
    scene.edit(artifacts={"spec_path": "{project_root}/spec.md"}, context={"b": True})
    assert cli("status", "--json").json["context"]["not_given"] == ["spec", "later", "held-back"]


STANDINGS: dict[str, tuple[Json, str, str]] = {
    "paused": ({"status": "paused"}, "for you: it is paused", "loomctl resume {run}"),
    "failed": ({"status": "failed"}, "for you: it failed", "loomctl resume {run}"),
    "completed": ({"status": "completed"}, "for nobody: it is completed", ""),
    "cancelled": ({"status": "cancelled"}, "for nobody: it was cancelled", "loomctl resume {run} --reopen"),
    "approval": (
        {
            "status": "awaiting_feedback",
            "pending_approvals": [{"id": "phase:ship", "reason": "the phase ship begins", "requested_at": "x"}],
        },
        "for you: the phase ship begins",
        "loomctl approve {run}",
    ),
    "an answer": (
        {"status": "awaiting_feedback", "feedback": {"stage": "001-frame.ask@1", "message": "Which colour?"}},
        "for you: an answer to: Which colour?",
        "loomctl next {run}",
    ),
    "trust": (
        {"status": "awaiting_feedback", "feedback": {"kind": "trust", "message": "trust in its commands: make"}},
        "for you: trust in its commands: make",
        "loomctl trust {run}",
    ),
}


def test_what_a_run_waits_for(begun: Scene, cli: Cli) -> None:
    word = {"an answer": "answer", "approval": "approve", "trust": "trust", "paused": "resume", "failed": "resume"}
    for name, (changes, waits, following) in STANDINGS.items():
        begun.edit(**{"pending_approvals": [], "feedback": None, **changes})
        told = fields(cli("status", begun.run_dir.name).stdout)
        assert told["waits"] == waits
        assert told.get("next", "") == following.replace("{run}", begun.handle)
        if name not in ("completed", "cancelled"):  # which are the line's no more
            assert cli("statusline").stdout.rstrip().endswith(f"next: {word[name]}")


def test_a_run_is_waited_for_by_whoever_drives_it_or_may(begun: Scene, cli: Cli) -> None:
    path = begun.store / f"local/sessions/{SESSION}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ended": True}))
    begun.let_go()
    told = fields(cli("status", session=None).stdout)
    assert told["next"] == f"loomctl resume {handle(begun.state['run_id'])}"
    assert told["waits"] == "for the assistant: no live session works on it"
    for hostname, on in [("laptop", "its session on laptop"), ("", "the session that drives it")]:
        path = begun.store / f"local/sessions/{SESSION}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "ended": True}))
        seen = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60))
        lease = {"epoch": 3, "session_id": OTHER, "host": "claude-code", "since": seen, "seen": seen}
        begun.edit(lease={**lease, "hostname": hostname or None})
        ended = cli("status", session=None)
        told = fields(ended.stdout)
        assert "no live session" not in ended.stdout
        assert "next" not in told
        assert told["take over"] == f"loomctl resume {handle(begun.state['run_id'])} --take-over"
        assert told["waits"] == f"for the assistant: the step's result, from {on}"
        assert "next:" not in cli("statusline", session=None).stdout


def test_driver_and_compactions_are_told_as_far_as_they_are_known(begun: Scene, cli: Cli) -> None:
    (record,) = begun.state["sessions"]["session_history"]
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 7200))
    receipt = {"proven": True, "kept": ["a", "b", "c"], "lost": ["d"], "restored": ["d"]}
    record["compactions"] = [{"at": "2026-01-01T00:00:00Z", "trigger": "auto"}, {"at": at, "trigger": "manual"}]
    record["compactions"][-1]["receipt"] = receipt
    begun.edit(
        lease={
            "epoch": 3,
            "session_id": OTHER,
            "host": "claude-code",
            "hostname": "machine-b",
            "since": at,
            "seen": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60)),
        },
        sessions={**begun.state["sessions"], "session_history": [record]},
    )
    told = fields(cli("status").stdout)
    assert told["compacted"] == "2 times, the last 2 h ago (manual): kept 3, lost 1, restored 1"
    assert f"driven by {OTHER} on machine-b, who came 2 h ago" in told["sessions"]
    record["compactions"][-1]["receipt"] = {"proven": False}
    begun.edit(
        lease={"epoch": 4, "session_id": None}, sessions={**begun.state["sessions"], "session_history": [record]}
    )
    told = fields(cli("status").stdout)
    assert told["compacted"].endswith("(manual): unproven, there is no summary")
    assert "driven by" not in told["sessions"]
    for value in [7, "x", {"a": 1}, [None, "x", {"at": 5}], [{"at": "x", "receipt": [1]}]]:
        (record,) = begun.state["sessions"]["session_history"]
        record["compactions"] = value
        begun.edit(sessions={**begun.state["sessions"], "session_history": [record]})
        told = cli("status", "--json")
        assert told.code in (0, 5), told.stderr
        assert cli("status").code == told.code


def test_a_receipt_that_the_log_alone_has_is_told_as_prove_and_the_report_tell_it(
    scene: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was lost and put back stands in no record: the run was taken from its session meanwhile."""
    scene.workflow(must_survive=["no second stylesheet", "7:1"])
    scene.begin()
    (record,) = scene.state["sessions"]["session_history"]
    ats = [f"2026-01-0{day}T00:00:00Z" for day in (1, 2)]
    record["compactions"] = [{"at": at, "trigger": "manual", "receipt": {"proven": False}} for at in ats]
    scene.edit(sessions={**scene.state["sessions"], "session_history": [record]})
    receipt = {"proven": True, "kept": ["7:1"], "lost": ["no second stylesheet"], "restored": [], "trigger": "manual"}
    which = {"compaction": {"at": ats[1], "number": 2}}
    told = Event("survival.checked", {**receipt, **which}, SESSION)
    back = Event("survival.restored", {"items": ["no second stylesheet"], "at": "PostToolUse", **which}, SESSION)
    events.append(str(scene.run_dir), scene.run_dir.name, [told, back], durable=False)
    proved = cli("prove", "--json").json["compactions"]
    told = cli("status", "--json").json["compactions"]
    assert (told["count"], told["last"]["at"]) == (2, "2026-01-02T00:00:00Z")
    assert told["last"]["receipt"]["restored"] == proved[-1]["restored"] == ["no second stylesheet"]
    assert fields(cli("status").stdout)["compacted"].endswith("(manual): kept 1, lost 1, restored 1")
    (shown,) = cli("report", "--json").json["sessions"]
    assert [each["receipt"]["restored"] for each in shown["compactions"]] == [[], ["no second stylesheet"]]
    page = cli("report", "-o", "-")
    assert (page.code, page.stderr) == (0, "")
    assert "2026-01-02 00:00:00" in page.stdout
    monkeypatch.setattr("loomctl.cli.status._LARGEST_LEDGER", 10)
    told = cli("status", "--json").json
    assert (told["compactions"]["last"]["receipt"]["proven"], told["ledger"]) == (False, None)


def test_what_leads_on_is_what_this_session_may_do(begun: Scene, cli: Cli) -> None:
    """Who drives goes on; another takes it over, and is told from whom (a command that is refused leads nowhere)."""
    assert cli("status", "--json").json["next"] == "loomctl done --for 001"
    other = cli("status", "--json", session=OTHER).json
    assert (other["next"], other["take_over"]) == (None, f"loomctl resume {begun.handle} --take-over")
    assert cli("resume", "--take-over", session=OTHER).code == 0
    assert cli("status", "--json", session=OTHER).json["next"] == "loomctl done --for 001"
    begun.edit(status="completed")
    told = cli("status", begun.run_dir.name, "--json").json
    assert (told["driver"], told["next"]) == (None, None)
    assert cli("run", "x", "--workflow", "tiny", session=None).code == 0  # a terminal that drives is told to go on
    assert cli("status", "--json", session=None).json["next"] == "loomctl done --for 001"


def test_a_log_that_is_not_the_one_that_was_written_is_an_alarm(begun: Scene, cli: Cli) -> None:
    """With the line, and the command that tells more, in one piece: a run that is over is not the current one (D54)."""
    assert fields(cli("status").stdout)["log"] == f"undamaged, {len(begun.events())} events"
    path, run_id = begun.run_dir / "events.jsonl", begun.run_dir.name
    path.write_bytes(path.read_bytes().replace(b"run.", b"rum.", 1))
    told = cli("status", run_id, session=OTHER).stdout
    assert fields(told)["log"].startswith("! line 1 has changed")
    assert f"loomctl prove --log {handle(run_id)}" in [line.strip() for line in told.splitlines()]
    assert cli("status", "--json").json["ledger"]["ok"] is False
    assert cli("prove", "--log", run_id, session=OTHER).code == 1


@pytest.mark.parametrize("layout", faber.LAYOUTS)
@pytest.mark.parametrize("planned", [True, False])
def test_a_run_of_fabers_is_told_as_far_as_it_is_known(scene: Scene, cli: Cli, layout: str, planned: bool) -> None:
    """With its steps or, where nobody knows them, without; nothing is written."""
    faber.lay(scene, layout, plan=faber.PLAN if planned else None)
    before = fingerprint(scene.root)
    assert fields(cli("status", session=None).ends().stdout)["run"]
    assert cli("statusline", session=None).stdout.startswith("loom ")
    assert {path: seen[1] for path, seen in fingerprint(scene.root).items()} == {p: s[1] for p, s in before.items()}


HOSTILE = "\x1b]0;title\x07\x1b[2J\u202edrawkcab\u2066 AKIAIOSFODNN7EXAMPLE 世界" * 3


@pytest.mark.shows("in the conversation and in the terminal")
def test_hostile_text_is_harmless_and_fits(begun: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for wide in ["80", "40", "24", "1", "300"]:
        monkeypatch.setenv("COLUMNS", wide)
        begun.edit(goal=HOSTILE, work_id=HOSTILE, status="awaiting_feedback", feedback={"message": HOSTILE})
        for command in ("status", "statusline"):
            shown = cli(command).stdout
            holds(shown, but=("\x1b", "\x07", "\u202e", "\u2066", "AKIAIOSFODNN7EXAMPLE"))
            room = max(24, min(100, int(wide))) if command == "status" else min(80, int(wide))
            run = begun.state["run_id"]
            assert [line for line in shown.splitlines() if fences.width(line) > room and run not in line] == []


def test_no_run_is_said_with_the_ways_forward(scene: Scene, cli: Cli) -> None:
    for command in ("status", "statusline"):
        told = cli(command)
        assert (told.code, told.stdout) == (3, "")
        holds(told.stderr, "No active run", 'loomctl run "what to do" starts one')
    scene.workflow()
    scene.begin(session=SESSION)
    scene.begin("another thing", session=OTHER)
    told = cli("status", session=None).ends(3)
    assert "2 runs could be meant" in told.stderr
    assert all(handle(scene.state_of(folder)) in told.stderr for folder in scene.run_dirs)


@pytest.mark.slow
def test_a_hook_that_is_silent_or_was_cut_off_is_an_alarm_everywhere(begun: Scene, cli: Cli) -> None:
    bind_times(begun, SESSION, bound=2 * DAY, sign=MINUTE)
    fire(begun, {event: ago for event, ago in ALL.items() if event != "stop"})
    told = fields(cli("status").stdout)
    assert told["hooks"] == "! the hook stop has never fired here, though it should have: loomctl doctor"
    assert cli("status", "--json").json["hooks"]["silent"] == [{"event": "stop", "how": "never", "since": None}]
    assert cli("statusline").stdout.startswith("! hook stop silent · loom ")
    (check,) = [one for one in cli("doctor", "--json").json["checks"] if one["id"] == "heartbeats"]
    assert (check["status"], check["silent"]) == ("WARN", [{"event": "stop", "how": "never"}])
    fire(begun, ALL)
    assert fields(cli("status").stdout)["hooks"].startswith("all working")
    assert cli("statusline").stdout.startswith("loom ")
    mark = begun.store / "local/hooks/session-start.work"
    mark.write_text("begun\n")
    os.utime(mark, (time.time() - 5 * MINUTE,) * 2)
    said = "the hook session-start started 5 min ago and did not finish: it was cut off, or took too long"
    assert said in fields(cli("status").stdout)["hooks"]
    assert cli("statusline").stdout.startswith("! hook session-start cut off · loom ")
    (check,) = [one for one in cli("doctor", "--json").json["checks"] if one["id"] == "heartbeats"]
    assert check["found"] == said


def test_a_conversation_that_shows_a_missing_hook_is_believed(begun: Scene, cli: Cli) -> None:
    bind_times(begun, SESSION, bound=DAY, sign=MINUTE)
    fire(begun, {**ALL, "post-tool-use": 2.0 * DAY})
    transcript = begun.root.parent / "t.jsonl"
    path = begun.store / f"local/sessions/{SESSION}.json"
    binding = json.loads(path.read_text()) | {"transcript_path": str(transcript), "ended": True}
    path.write_text(json.dumps(binding))

    def stamp(ago: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - ago))

    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    entries = [
        {"type": "user", "timestamp": stamp(2 * DAY), "message": {"content": "hello"}},
        {"type": "user", "timestamp": stamp(10 * MINUTE), "message": {"content": [result]}},
    ]
    transcript.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    silent = cli("status", "--json").json["hooks"]["silent"]
    assert [(one["event"], one["how"]) for one in silent] == [("post-tool-use", "stopped")]
    fire(begun, {**ALL, "post-tool-use": 10.0 * MINUTE})
    assert cli("status", "--json").json["hooks"]["silent"] == []


def converse(path: Path, *, turns: int, ago: float) -> None:
    """Write a transcript: prompts, each answered with a shell call and the end of the turn, the last `ago` seconds."""
    entries: list[Json] = []
    for turn in range(turns):
        moment = time.time() - ago - (turns - 1 - turn) * MINUTE
        at = {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(moment))}
        call = {"type": "tool_use", "id": f"t{turn}", "name": "Bash", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": "x"}
        end = {"content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"}
        entries += [
            {"type": "user", **at, "message": {"content": "go on"}},
            {"type": "assistant", **at, "message": {"content": [call]}},
            {"type": "user", **at, "message": {"content": [result]}},
            {"type": "assistant", **at, "message": end},
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


@pytest.mark.slow
@pytest.mark.parametrize("known", ["", "gone.jsonl"])
@pytest.mark.parametrize("kept", ["config/projects/-x", "home/.claude/projects/-x"])
def test_hooks_that_never_fired_are_an_alarm_by_the_transcript_that_the_host_keeps(
    begun: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch, kept: str, known: str
) -> None:
    """No hook told where the transcript is, or it was moved since: it is looked for where the host keeps them."""
    place = begun.root.parent
    monkeypatch.setenv("HOME", str(place / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    if kept.startswith("config"):
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place / "config"))
    monkeypatch.setenv("CLAUDE_PID", str(os.getpid()))
    bind_times(begun, SESSION, bound=9 * MINUTE, sign=9 * MINUTE)
    binding = begun.store / f"local/sessions/{SESSION}.json"
    begun.space().local.refresh(
        json.loads(binding.read_text()), pid=os.getpid(), transcript_path=str(place / known) if known else None
    )
    os.utime(binding, (time.time() - 9 * MINUTE,) * 2)
    assert cli("status", "--json").json["hooks"]["silent"] == []
    converse(place / kept / f"{SESSION}.jsonl", turns=4, ago=2 * MINUTE)
    assert cli("status", "--json").json["hooks"]["silent"] == [{"event": "all", "how": "all", "since": None}]
    assert fields(cli("status", session=None).stdout)["hooks"] == "! no hook has ever fired here: loomctl doctor"
    assert cli("statusline").stdout.startswith("! hooks silent · loom ")
    (check,) = [one for one in cli("doctor", "--json").json["checks"] if one["id"] == "heartbeats"]
    assert (check["status"], check["silent"]) == ("FAIL", [{"event": "all", "how": "all"}])
    fire(begun, dict.fromkeys(ALL, 100.0))
    assert cli("status", "--json").json["hooks"]["silent"] == []


def test_other_versions_are_told(begun: Scene, cli: Cli) -> None:
    bind_times(begun, SESSION, bound=DAY, sign=MINUTE)
    fire(begun, ALL)
    for event in ALL:
        path = begun.store / "local/hooks" / event
        path.write_text(f"9.9.9 {SESSION} /x/bin/loomctl\n")
    told = cli("status", "--json").json
    assert told["versions"]["skew"] == [{"part": "hooks", "version": "9.9.9", "newer": True}]
    assert "! the hooks are 9.9.9, this loomctl is" in cli("status").stdout
    assert cli("statusline").stdout.startswith("! hooks of another version · loom ")


def draw(scene: Scene, **environ: str) -> str:
    """Draw the line as the launcher asks for it, in a process with the standard library alone."""
    import sys

    from tests.helpers.scenes import MAIN

    given = json.dumps({"session_id": SESSION, "cwd": str(scene.root)})
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(MAIN), "statusline"], cwd=scene.root, env={**scene.environ(None), **environ},
        input=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_line_is_kept_for_the_launcher(begun: Scene) -> None:
    before = time.time()
    line = draw(begun)
    path = begun.store / "local/statusline" / SESSION
    head, state, saved, *forms = path.read_text().splitlines()
    assert (head, state) == (f"loom {__version__}", str(begun.run_dir / "state.json"))
    assert saved == f"saved {begun.state['run_id']} 0 0 0"
    assert line.rstrip() == forms[0].partition(" ")[2] == f"loom {begun.handle} · frame/ask@1 · 0/4 · 1 artifact"
    assert all(fences.width(form.partition(" ")[2]) == int(form.partition(" ")[0]) for form in forms)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert before - 1 < path.stat().st_mtime <= time.time()
    assert draw(begun, COLUMNS="30") == "loom frame/ask@1\n"


def test_what_was_saved_is_counted_on_from_where_it_ended_and_a_damaged_file_is_made_anew(begun: Scene) -> None:
    log = begun.run_dir / "tool_steps.jsonl"
    step = json.dumps({"id": "t", "tool_name": "Bash", "tokens_before": 100, "tokens_after": 20})
    log.write_text(f"{step}\n")
    assert "saved 80%" in draw(begun)
    with log.open("a") as more:
        more.write(json.dumps({"id": "u", "tokens_before": 100, "tokens_after": 100}) + "\n" + step[:20])
    assert "saved 40%" in draw(begun)
    with log.open("a") as more:
        more.write(f"{step[20:]}\n")
    assert "saved 53%" in draw(begun)
    log.write_text(f"{step}\n")
    assert "saved 80%" in draw(begun)
    for data in [b"", b"\xff\n\n\n", b"loom 1\nx\nsaved x 1 2\n", b"loom 1\nx\nsaved run -5 1e9 {}\n"]:
        line = draw(begun)
        path = begun.store / "local/statusline" / SESSION
        path.write_bytes(data)
        assert draw(begun) == line
        assert path.read_bytes() != data


def test_a_line_says_what_cannot_be_read_and_is_empty_where_nothing_is_bound(begun: Scene, cli: Cli) -> None:
    begun.edit(schema_version=99)
    assert cli("status").code == 7
    assert draw(begun).rstrip().endswith("of a newer Loom · next: doctor")
    (begun.run_dir / "state.json").write_text("{")
    assert draw(begun).rstrip().endswith("unreadable · next: doctor")
    assert draw(begun, LOOM_DISABLED="1") == ""
    (begun.store / f"local/sessions/{SESSION}.json").unlink()
    assert draw(begun) == ""


def test_no_link_is_written_through(begun: Scene) -> None:
    outside = begun.root.parent / "outside"
    outside.mkdir()
    (begun.store / "local/statusline").symlink_to(outside)
    assert draw(begun).startswith("loom ")
    assert list(outside.iterdir()) == []


def test_the_snippet_names_a_script_that_stays_and_follows_an_update(begun: Scene, cli: Cli, tmp_path: Path) -> None:
    state_home = Path(os.environ["LOOM_STATE_HOME"])
    begun.hook("session-start", source="startup", environ={"LOOM_PLUGIN_ROOT": str(CHECKOUT)})
    assert not (state_home / "statusline").exists()
    script = Path(cli("statusline", "--snippet", "--json").json["script"])
    fresh = script.read_text()
    script.write_text(fresh.replace(str(CHECKOUT), "/gone/0.0.1"))
    done = subprocess.run([str(script)], input="{}", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    begun.hook("session-start", source="startup", environ={"LOOM_PLUGIN_ROOT": str(CHECKOUT)})
    assert script.read_text() == fresh
    begun.hook("session-start", source="startup", environ={"LOOM_PLUGIN_ROOT": "/not/there"})
    assert script.read_text() == fresh
    told = cli("statusline", "--snippet", "--json").json
    script = Path(told["script"])
    assert told["settings"] == {"statusLine": {"type": "command", "command": str(script)}}
    assert stat.S_IMODE(script.stat().st_mode) == 0o700
    shown = cli("statusline", "--snippet").stdout
    assert json.loads(shown.partition("\n\n")[2].partition("\n\n")[0]) == told["settings"]
    assert str(CHECKOUT / "bin/loomctl") in script.read_text()
    given = json.dumps({"session_id": SESSION, "cwd": str(begun.root)})
    done = subprocess.run(
        [str(script)], input=given, capture_output=True, text=True, cwd=tmp_path, env=begun.environ(None), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("loom ")


def test_many_phases_are_counted_and_the_run_can_be_pasted(
    scene: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.workflow(phases={f"phase{number}": {"steps": [{"id": "s", "prompt": "x"}]} for number in range(10)})
    run_id = scene.begin("日本語の目標 with many phases").run.run_id
    advance.done(scene.space(), run_id, response="Done.")
    for wide in ("40", "80", "24"):
        monkeypatch.setenv("COLUMNS", wide)
        screen = cli("status").stdout
        assert scene.handle in [line.removeprefix("run").strip() for line in screen.splitlines()]
        told = fields(screen)["phases"]
        assert "▸ phase1" in told
        assert told.endswith("(1 of 10 steps)") or wide == "24"
        assert ("✓ phase0" in told, "✓ 1 done · 8 to come" in told) == (wide == "80", wide != "80")


def test_a_run_without_a_stage_says_what_comes_first(scene: Scene, cli: Cli) -> None:
    scene.workflow()
    scene.begin()
    sessions = {**scene.state["sessions"], "session_history": [], "total_sessions": 0, "current_session_id": None}
    scene.edit(steps=[], status="pending", current_step=None, sessions=sessions, lease=None)
    told = fields(cli("status", scene.run_dir.name, session=OTHER).stdout)
    assert told["waits"] == "for the assistant: to begin the first step, frame/ask"
    assert told["sessions"].startswith("none yet")
    for command in ("report", "prove", "stages"):
        assert cli(command, scene.run_dir.name, session=OTHER).code == 0
