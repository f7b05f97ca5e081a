"""`loomctl events`: what happened in a run, from a place in its log, and as it comes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from loomctl.flow import advance
from loomctl.kit import clock
from loomctl.runs.store import events
from loomctl.runs.store.events import Event
from loomctl.views import explain
from tests.cli.conftest import Cli
from tests.docs.events import EVENTS
from tests.helpers.scenes import MAIN, Json, Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds

pytestmark = pytest.mark.usefixtures("on_a_wide_screen")

TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin()
    advance.done(scene.space(), scene.run_dir.name, response="asked")
    return scene


def log(scene: Scene) -> Path:
    return scene.run_dir / "events.jsonl"


def stored(scene: Scene) -> list[Json]:
    return [json.loads(line) for line in log(scene).read_bytes().splitlines()]


def append(scene: Scene, *happened: Event) -> None:
    events.append(str(scene.run_dir), scene.run_dir.name, happened, durable=False)


def test_events_are_told_from_a_place_a_line_each_or_as_they_are_stored(begun: Scene, cli: Cli) -> None:
    lines = cli("events").stdout.splitlines()
    held = stored(begun)
    assert len(lines) == len(held)
    for line, entry in zip(lines, held, strict=True):
        assert line.split()[:3] == [str(entry["seq"]), clock.day_and_time(entry["ts"])[1], entry["event"]]
    ended = next(line for line in lines if "stage.completed" in line)
    assert ended.split()[3:] == ["001-frame.ask@1", "succeeded", "response_source=done"]
    assert [json.loads(line)["seq"] for line in cli("events", "--since", "2", "--json").stdout.splitlines()] == [
        entry["seq"] for entry in held if entry["seq"] > 2
    ]
    everything = log(begun).read_bytes()
    for since in ("0", "1d", "90s", "2020-01-01", "2020-01-01T00:00:00Z", "2020-01-01T02:00:00+02:00", held[0]["ts"]):
        assert cli("events", "--since", since, "--json").stdout.encode() == everything, since
    assert cli("events", "--since", "2999-01-01", "--json").stdout == ""
    assert cli("events", "--since", "2999-01-01").stdout == f"{begun.handle}: no events\n"
    assert len(cli("events", "--since", "0", "--last", "1").stdout.splitlines()) == 1
    assert cli("events", "--since", str(held[-1]["seq"]), "--last", "5", "--json").stdout == ""
    for since in ["yesterday", "", "5y", "-3", "1" * 30, "2026-13-01", "½d", "3 d"]:
        ended = cli("events", begun.run_dir.name, "--since", since)
        assert (ended.code, ended.stdout) == (2, "")
        assert "is neither an event's number nor a time" in ended.stderr
    append(begun, Event("x", {"text": "grün ✓", "nested": {"a": [1, None]}}))
    assert cli("events", "--json").stdout.encode() == log(begun).read_bytes()


EXAMPLES: dict[str, tuple[Json, str]] = {
    "run.created": (
        {
            "workflow_id": "w", "work_id": "7", "goal": "add it",
            "plan": {"sha256": "0" * 64, "sources": [{"path": "x"}]},
        },
        "w work item 7: “add it” (plan of 1 file)",
    ),
    "run.completed": ({"artifact_count": 2}, "2 large values kept apart"),
    "phase.started": ({"phase": "build", "before": "frame"}, "frame → build"),
    "stage.completed": (
        {
            "stage": "2-x@1", "status": "failed", "response_source": "done", "follows": "retry",
            "failure_reason": "no way", "files_touched": ["a", "b"], "usage": {"input_tokens": 3},
        },
        "2-x@1 failed: no way; then retry; 2 files (a, b); tokens 3/? response_source=done",
    ),
    "context.primed": (
        {
            "slip_id": "0123", "event": "session_start", "loaded": {"spec": "full"}, "not_loaded": {"p": "gone"},
            "fresh": ["q"], "budget": {"limit": 9500, "used": 1200}, "warnings": ["LARGE_ARTIFACT"],
        },
        "session_start: loaded spec (full); not loaded p (gone); 1 unchanged (1,200 of 9,500) warnings=LARGE_ARTIFACT",
    ),
    "command.ended": (
        {"stage": "2-x@1", "exit_code": 1, "signal": None, "duration_ms": 1234, "timed_out": False, "bytes": 1},
        "2-x@1 exit code 1 after 1.2 s 1 byte",
    ),
    "evidence.checked": (
        {"stage": "2-x@1", "passed": False, "items": [{"name": "a", "passed": True}, {"name": "b", "passed": False}]},
        "2-x@1 missing: b",
    ),
    "asset.captured": (
        {"stage": "2-x@1", "path": "junit.xml", "bytes": 5, "sha256": "0", "stored": "y"},
        "2-x@1 junit.xml (5 bytes)",
    ),
    "stage.undone": (
        {"stage": "2-x@1", "gone": ["3-y@1"], "phases": {"build": "in_progress", "ship": "pending"}},
        "2-x@1; removed: 3-y@1; open again: build (in progress), ship (pending)",
    ),
    "run.rewound": (
        {"to": "2-x@1", "undone": ["4-z@1", "3-y@1"], "gone": [str(at) for at in range(7)], "context_left": ["4-z@1"]},
        "to 2-x@1; undone: 4-z@1, 3-y@1; removed: 0, 1, 2, 3, 4 and 2 more; context kept of: 4-z@1",
    ),
    "run.forked": (
        {"from": "shop-1", "at": "2-x@1", "stages": ["1-w@1"], "context": {"1-w@1": []}},
        "from shop-1 at 2-x@1; with 1 step",
    ),
    "state.restored": (
        {"source": "state.backup.json", "revision": {"before": None, "restored": 4}, "events_after": 2, "kept": "b"},
        "from state.backup.json revision ? → 4 2 later events stay kept=b",
    ),
    "lease.taken": (
        {"why": "gone", "epoch": 2, "host": "terminal", "hostname": "desk", "from": {"session_id": "5f0c9a52-0000"}},
        "driven from here (terminal on desk): gone; before: session 5f0c9a5… (epoch 2)",
    ),
    "lease.taken_over": (
        {
            "epoch": 3,
            "host": "claude-code",
            "hostname": "desk",
            "from": {
                "session_id": "5f0c9a52-0000", "host": "terminal", "hostname": "laptop",
                "since": "2026-03-02T09:00:00Z", "seen": "2026-03-02T10:00:00Z",
            },
        },
        (
            "driven from here (claude-code on desk); taken from session 5f0c9a5… (terminal on laptop), "
            "since 2026-03-02T09:00:00Z, last sign 2026-03-02T10:00:00Z (epoch 3)"
        ),
    ),
    "lease.released": ({"epoch": 3, "reason": "left"}, "released: left (epoch 3)"),
    "lease.refused": (
        {"began": 1, "epoch": 3, "holder": {"session_id": "s1", "host": "terminal", "hostname": "desk"}},
        "refused a write: driven by session s1 (terminal on desk) (began in epoch 1, now 3)",
    ),
    "ledger.damaged": (
        {"of": "r-1", "line": 3, "code": "CHANGED_ENTRY", "what": "entry 3 is not the line", "faults": 1},
        "copied from the log of r-1; line 3: entry 3 is not the line code=CHANGED_ENTRY faults=1",
    ),
    "ledger.mismatch": (
        {"expected": {"seq": 3, "sha256": "a" * 64}, "found": {"seq": 3, "sha256": "b" * 64}},
        "expected entry 3 (aaaaaaaaaaa…), found 3 (bbbbbbbbbbb…)",
    ),
    "nobody.knows": (
        {"a": 1, "b": "two words", "c": [1, 2], "d": {"x": 1, "y": 2}, "e": None, "f": True, "g": ["u", "v"]},
        'a=1 b="two words" c=2 d=x,y f=true g=u,v',
    ),
}  # fmt: skip


@each("name", EXAMPLES)
def test_a_kind_of_event_has_words_of_its_own(name: str) -> None:
    properties, line = EXAMPLES[name]
    assert explain.line_of({"event": name, "properties": properties}) == line


ODD: list[object] = [
    None, "", "x", 7, -1, True, 1.5, [], [1], ["a"] * 9, {}, {"a": {"b": [1]}}, "a\nb \x1b[31m", {"seq": []},
]  # fmt: skip


@each("name", EVENTS)
def test_every_event_has_a_line_for_people_whatever_it_holds(name: str) -> None:
    assert set(explain.LINES) <= set(EVENTS)
    known = list(EVENTS[name][1])
    for value in ODD:
        line = explain.line_of({"event": name, "properties": {**dict.fromkeys(known, value), "more": 1}})
        assert "\n" not in line
        assert line.endswith("more=1"), line
    for properties in (*ODD, {}):
        assert "{" not in explain.line_of({"event": name, "properties": {"plan": {"sha256": 1}, "loaded": {"x": "y"}}})
        assert isinstance(explain.line_of({"event": name, "properties": properties}), str)


def test_another_day_than_today_stands_on_a_line_of_its_own(begun: Scene, cli: Cli) -> None:
    entries = [{**entry, "ts": f"2026-01-0{at // 3 + 1}T12:00:00Z"} for at, entry in enumerate(stored(begun)[:6])]
    log(begun).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    lines = cli("events").stdout.splitlines()
    assert [line for line in lines if ":" not in line] == [lines[0], lines[4]] == ["2026-01-01", "2026-01-02"]


def test_events_are_chosen_by_name(begun: Scene, cli: Cli) -> None:
    append(begun, *[Event("noise", {})] * 60)
    names = [
        line.split()[2] for line in cli("events", "--event", "stage.*", "--event", "run.created").stdout.splitlines()
    ]
    assert names == ["run.created", "stage.started", "stage.completed", "stage.started"]
    assert len(cli("events").stdout.splitlines()) == 50
    assert "no such events" in cli("events", "--event", "nothing").stdout


def test_a_line_that_is_no_entry_is_named_beside(begun: Scene, cli: Cli) -> None:
    whole = log(begun).read_bytes()
    first, rest = whole.split(b"\n", 1)
    log(begun).write_bytes(first + b"\ngarbage\x1b[31m\n" + rest + b'{"torn')
    ended = cli("events", "--json")
    assert (ended.code, ended.stdout.encode()) == (0, whole)
    assert f"events.jsonl is damaged at byte {len(first) + 1:,} (12 bytes)" in ended.stderr
    assert f"for more: loomctl prove --log {begun.handle}" in ended.stderr
    assert cli("prove", "--log").code == 1
    assert "the last line of events.jsonl (6 bytes) is incomplete" in ended.stderr


def test_a_line_that_a_kill_tore_off_is_named_as_that(begun: Scene, cli: Cli) -> None:
    """One that the log tells of, and one at its end: verify finds nothing, so nobody is sent there."""
    with log(begun).open("ab") as held:
        held.write(b'{"seq":99,"half')
    append(begun, Event("noise", {}))
    with log(begun).open("ab") as held:
        held.write(b'{"seq":100,"half\n')
    assert cli("prove", "--log").code == 0
    ended = cli("events", "--json")
    assert (ended.code, ended.stderr.count("a killed process left it incomplete")) == (0, 2)
    assert "for more" not in ended.stderr


def test_a_log_of_strangers_plays_no_tricks(begun: Scene, cli: Cli) -> None:
    properties = {"a": f"\x1b[31m\u202e {TOKEN}", "b": "x" * 9000, "c": [[1]], "d": {"k": "v"}, "e": True, "f": 1.5}
    entry = {"seq": 99, "event": "x\ny", "prev": "", "ts": ["odd"], "step_id": {"odd": 1}, "properties": properties}
    more = {"seq": 100, "event": "z" * 500, "prev": "", "properties": [7]}
    with log(begun).open("a") as file:
        file.write(json.dumps(entry) + "\n" + json.dumps(more) + "\n" + json.dumps({**entry, "ts": "\ud800"}) + "\n")
    for words in (["events"], ["events", "--json"]):
        holds(cli(*words).ends().stdout, but=(TOKEN, "\x1b", "\u202e"))
    assert max(map(len, cli("events").stdout.splitlines())) < 300
    assert len(cli("events").stdout.splitlines()) == len(log(begun).read_bytes().splitlines())


class Following:
    def __init__(self, scene: Scene, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(MAIN), "events", "-f", *words], cwd=scene.root, env=scene.environ(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    @property
    def out(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def until(self, text: str) -> str:
        for line in self.out:
            if text in line:
                return line
        raise AssertionError(f"it ended before {text!r}: {self.process.stderr.read() if self.process.stderr else ''}")

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def followed(begun: Scene) -> Iterator[Following]:
    found = Following(begun)
    found.until("002-build.make@1")
    yield found
    if found.process.poll() is None:
        found.process.kill()
    found.end()


@pytest.mark.slow
def test_events_are_told_as_they_come_until_the_run_is_over_and_then_at_once(begun: Scene, followed: Following) -> None:
    append(begun, Event("first", {"n": 1}))
    assert "n=1" in followed.until("first")
    advance.done(begun.space(), begun.run_dir.name, response="made")
    followed.until("003-build.polish@1")
    assert begun.loomctl("cancel").code == 0
    code, out, err = followed.end()
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].split()[2] == "run.cancelled"
    code, out, _ = Following(begun, begun.run_dir.name).end()
    assert code == 0
    assert "run.cancelled" in out.splitlines()[-1]


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it(begun: Scene, followed: Following) -> None:
    followed.out.close()
    followed.process.wait(timeout=60)
    assert followed.process.stderr is not None
    assert (followed.process.returncode, followed.process.stderr.read()) == (0, "")
    line = f"{sys.executable} -I {MAIN} events --since 0 | head -1"
    append(begun, *[Event("x", {"pad": "y" * 200})] * 2000)
    piped = subprocess.run(line, shell=True, cwd=begun.root, env=begun.environ(), capture_output=True, check=False)
    assert (piped.stderr, piped.stdout.count(b"\n")) == (b"", 1)


@pytest.mark.slow
def test_a_log_that_is_cut_or_replaced_is_followed_on_until_ctrl_c(begun: Scene, followed: Following) -> None:
    """It is said, and nothing that comes is lost."""
    copy = begun.root / "copy"
    copy.write_bytes(log(begun).read_bytes())
    copy.replace(log(begun))
    append(begun, Event("behind", {}))
    followed.until("behind")
    os.truncate(log(begun), 0)
    held = followed.process
    assert held.stderr is not None
    assert "somebody replaced events.jsonl" in held.stderr.readline()
    assert "somebody replaced events.jsonl" in held.stderr.readline()
    begun.loomctl("pause")
    followed.until("run.paused")
    followed.process.send_signal(signal.SIGINT)
    assert followed.end() == (0, "", "")


@pytest.mark.slow
def test_what_a_command_prints_is_told_while_it_runs(begun: Scene, followed: Following) -> None:
    path = begun.run_dir / "stages" / "002-build.make@1" / "command.log"
    with path.open("wb") as file:
        file.write(f"one\ntwo 10%\rtwo 90%\n{TOKEN}\n\x1b[31mred\nhal".encode())
        file.flush()
        assert (followed.until("| "), followed.out.readline()) == ("    | one\n", "    | two 90%\n")
        assert TOKEN not in followed.out.readline()
        assert followed.out.readline() == "    | ␛[31mred\n"
        file.write(b"f\n")
        file.flush()
        assert followed.out.readline() == "    | half\n"
        file.write(b"".join(b"%09d\n" % number for number in range(40_000)))
        file.flush()
        assert "bytes left out; command.log has them" in followed.until("…")
        followed.until("000039999")
    advance.done(begun.space(), begun.run_dir.name, response="made")
    followed.until("stage.completed")


def test_a_command_that_runs_already_is_told_by_its_last_lines(begun: Scene) -> None:
    path = begun.run_dir / "stages" / "002-build.make@1" / "command.log"
    path.write_text("".join(f"line {number}\n" for number in range(100)))
    found = Following(begun, "--json", "--event", "command.output")
    told = [json.loads(found.out.readline()) for _ in range(10)]
    assert [one["properties"]["line"] for one in told] == [f"line {number}" for number in range(90, 100)]
    assert told[0]["event"] == "command.output"
    assert (told[0]["step_id"], told[0]["properties"]["stage"]) == ("build/make", "002-build.make@1")
    assert "seq" not in told[0]
    found.process.send_signal(signal.SIGINT)
    assert found.end()[0] == 0


@pytest.mark.slow
def test_a_run_that_is_removed_meanwhile_ends_it_with_an_error(begun: Scene, followed: Following) -> None:
    begun.space().local.mark_ended(begun.environ()["CLAUDE_CODE_SESSION_ID"])
    assert begun.loomctl("runs", "rm", begun.run_dir.name, "--yes", "--force", session=None).code == 0
    code, _, err = followed.end()
    assert code == 3
    assert "NO_SUCH_RUN" in err
