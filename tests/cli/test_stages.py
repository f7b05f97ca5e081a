"""`loomctl show --stages` and `loomctl show RUN STAGE`: the stages of a run, and all of one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loomctl.cli.stages import took
from loomctl.flow import advance
from loomctl.flow.commands import command_steps
from loomctl.kit import ids
from tests.cli.conftest import Cli
from tests.helpers import faber
from tests.helpers.scenes import MAIN, Json, Scene, fingerprint, handle
from tests.helpers.texts import holds

pytestmark = pytest.mark.usefixtures("on_a_wide_screen")

ASK, MAKE, AGAIN, OPEN = "001-frame.ask@1", "002-build.make@1", "003-build.make@2", "004-build.polish@1"
TOKEN = "ghp_" + "a1B2c3D4e5" * 4
USAGE = {
    "models": ["big-model"], "input_tokens": 1000, "cache_read_input_tokens": 11_000,
    "cache_creation_input_tokens": 345, "output_tokens": 678, "messages": 3,
}  # fmt: skip


def folder(scene: Scene, stage: str) -> Path:
    return scene.run_dir / "stages" / stage


def change_status(scene: Scene, stage: str, **more: object) -> None:
    path = folder(scene, stage) / "status.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


@pytest.fixture
def worked(scene: Scene) -> Scene:
    scene.workflow(
        phases={
            "frame": {"steps": [{"id": "ask", "prompt": "Ask what is wanted."}]},
            "build": {
                "steps": [{"id": "make", "prompt": "Make it.", "max_retries": 1}, {"id": "polish", "prompt": "P."}]
            },
        }
    )
    scene.begin()
    space, run_id = scene.space(), scene.run_dir.name
    advance.done(space, run_id, response='asked\n{"context_updates": {"colour": "grün"}, "preferred_next_label": "go"}')
    advance.done(space, run_id, response="no", outcome="failed", note="the database is missing")
    advance.done(space, run_id, response="made")
    change_status(scene, ASK, usage=USAGE, files_touched=["a.py", "b.py"], repairs=1)
    return scene


def test_each_stage_is_a_row_and_an_entry_for_scripts(worked: Scene, cli: Cli) -> None:
    lines = cli("show", "--stages").stdout.splitlines()
    assert lines[0].split() == [
        *("RANK", "STEP", "VISIT", "STATUS", "STARTED", "TOOK", "MODEL", "TOKENS", "IN", "OUT"),
        *("FILES", "REPAIRS", "NOTE"),
    ]
    assert [line.split()[:4] for line in lines[1:5]] == [
        ["001", "frame/ask", "1", "succeeded"],
        ["002", "build/make", "1", "failed"],
        ["003", "build/make", "2", "succeeded"],
        ["004", "build/polish", "1", "in_progress"],
    ]
    assert "big-model  1,345      678  2      1" in lines[1]
    assert lines[2].endswith("the database is missing")
    assert lines[-1] == f"{worked.handle}: 4 steps: 2 succeeded, 1 failed, 1 in_progress"
    first, failed, _, last = cli("show", "--stages", worked.run_dir.name, "--json").json["stages"]
    assert first["usage"] == USAGE
    assert (first["rank"], first["stage"], first["files_touched"], first["repairs"]) == (1, ASK, 2, 1)
    assert type(first["seconds"]) is int
    assert (failed["status"], failed["failure_reason"]) == ("failed", "the database is missing")
    assert (last["seconds"], last["usage"], last["command"], last["trouble"]) == (None, None, None, None)
    lines = cli("show", "--stages", "--last", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["RANK", "003", "004"]
    told = "the last 2 of 4 steps: 2 succeeded, 1 failed, 1 in_progress"
    assert lines[-1] == f"{worked.handle}: {told}"
    document = cli("show", "--stages", "--last", "1", "--json").json
    assert (document["total"], [one["stage"] for one in document["stages"]]) == (4, [OPEN])
    assert cli("show", "--stages", "--last", "9").stdout == cli("show", "--stages").stdout
    assert cli("show", "--stages", "--last", "0").code == 2
    steps = worked.state["steps"]
    worked.edit(steps=[{**steps[0], "started_at": "2026-01-31T08:09:10Z"}, {**steps[1], "started_at": "lately"}])
    lines = cli("show", "--stages").stdout.splitlines()
    assert "  2026-01-31  " in lines[1]
    assert "  lately  " in lines[2]


def test_a_run_without_stages_says_so(scene: Scene, cli: Cli) -> None:
    scene.workflow(phases={"frame": {"require_approval": True, "steps": [{"id": "ask", "prompt": "Ask."}]}})
    scene.begin()
    assert cli("show", "--stages").stdout == f"{scene.handle}: no step has begun yet\n"
    assert cli("show", "--stages", "--json").json["stages"] == []
    ended = cli("show", "--diff")
    assert (ended.code, ended.stdout, ended.stderr) == (0, "", f"{scene.handle}: no step has begun yet\n")


def test_what_strangers_wrote_stays_in_its_row(worked: Scene, cli: Cli) -> None:
    change_status(
        worked,
        ASK,
        usage={"models": ["\x1b[31m" + "模型" * 50, 7], "input_tokens": "many", "output_tokens": None},
        note=f"one\ntwo {TOKEN} " + "é" * 500,
        files_touched=7,
        assets={},
        repairs=True,
    )
    change_status(worked, MAKE, command={"exit_code": 3, "script": "x"}, failure_reason=["odd"], usage=[])
    (folder(worked, AGAIN) / "status.json").write_text("[1]")
    ended = cli("show", "--stages")
    assert (ended.code, len(ended.stdout.splitlines())) == (0, 8)
    assert max(map(len, ended.stdout.splitlines())) < 260
    said = ("! the status is not a JSON object", "exit code 3; the database is missing")
    holds(ended.stdout, *said, but=("\x1b", TOKEN))
    assert cli("show", "--stages", "--json").json["stages"][2]["trouble"]["code"] == "BAD_STATUS_FILE"
    for stage in (ASK, MAKE, AGAIN):
        assert cli("show", worked.run_dir.name, stage).code == 0
    (folder(worked, AGAIN) / "status.json").write_text("{")
    assert "! the file is not JSON" in cli("show", "--stages").stdout


def test_a_thousand_stages_are_listed(begun: Scene, cli: Cli) -> None:
    (entry,) = begun.state["steps"]
    steps = []
    for rank in range(1, 1001):
        stage = ids.stage_name(rank, entry["step_id"], rank)
        steps.append({**entry, "rank": rank, "visit": rank, "stage": stage, "status": "failed"})
        folder(begun, stage).mkdir(exist_ok=True)
        (folder(begun, stage) / "status.json").write_text(json.dumps({"usage": USAGE, "note": f"note {rank}"}))
    begun.edit(steps=steps)
    lines = cli("show", "--stages").stdout.splitlines()
    assert len(lines) == 1003
    assert lines[1000].startswith("1000")
    assert lines[1000].endswith("note 1000")


def test_lengths_of_time_are_told_in_two_units() -> None:
    told = {0: "0s", 59: "59s", 60: "1m 00s", 3599: "59m 59s", 3600: "1h 00m", 90_000: "1d 01h", None: ""}
    assert {seconds: took(seconds) for seconds in told} == told


def test_a_stage_is_named_in_many_ways_and_what_names_none_is_said(worked: Scene, cli: Cli) -> None:
    for named, stage in [
        *(("1", ASK), ("001", ASK), (ASK, ASK), ("001-", ASK), ("frame/ask", ASK), ("ask", ASK), ("frame.ask", ASK)),
        *(("make", AGAIN), ("build/make", AGAIN), ("make@1", MAKE), ("build/make@2", AGAIN), ("build.make@1", MAKE)),
        *(("3", AGAIN), ("002-build.m", MAKE), ("polish", OPEN)),
    ]:
        assert cli("show", "shop", named, "--json").json["stage"] == stage
        assert cli("show", "--diff", worked.run_dir.name, named, "--json").json["stages"][0]["stage"] == stage
    for named in ["9", "00", "nowhere", "make@3", "make@x", "@1", "", "../x", "build", "1" * 20]:
        ended = cli("show", worked.run_dir.name, named)
        assert (ended.code, ended.stdout) == (3, "")
        holds(ended.stderr, f" are {ASK}, ", f"hint: loomctl show --stages {worked.handle}")


def test_all_of_a_stage_is_told_in_words_in_json_or_a_file_byte_for_byte(worked: Scene, cli: Cli) -> None:
    """How it ended, what it decided, set and touched; then prompt, repaired answers and answer, in their order."""
    (folder(worked, ASK) / "response.repair-10.md").write_text("tenth")
    (folder(worked, ASK) / "response.repair-2.md").write_text("second")
    (folder(worked, ASK) / "response.undone-1.md").write_text("undone")
    text = cli("show", ASK).stdout
    for wanted in (
        f"stage     {ASK}: frame/ask",
        "status    succeeded",
        "response  from done, after 1 repair",
        "directive from response: preferred_next_label go",
        "context   colour",
        "model     big-model, 1,345 tokens in (and 11,000 from the cache), 678 out",
        "Other files: ",
    ):
        assert wanted in text, wanted
    marks = [line for line in text.splitlines() if line.startswith("--- ")]
    assert marks == [
        f"--- {name} ---" for name in ("prompt.md", "response.repair-2.md", "response.repair-10.md", "response.md")
    ]
    assert "undone\n" not in text
    assert "status    failed: the database is missing" in cli("show", worked.run_dir.name, "make@1").stdout
    (folder(worked, ASK) / "command.log").write_text("x" * (1 << 20) + "end")
    told: Json = cli("show", worked.run_dir.name, "1", "--json").json
    assert (told["entry"]["rank"], told["status"]["directive"]["preferred_next_label"]) == (1, "go")
    assert set(told["files"]) == set(told["sizes"]) >= {"prompt.md", "response.md", "status.json", "command.log"}
    assert told["files"]["response.md"].startswith("asked\n")
    assert (len(told["files"]["command.log"]), told["sizes"]["command.log"]) == (1 << 20, (1 << 20) + 3)
    data = f"\x1b[31m {TOKEN}\r\n".encode() + b"\xff\x00"
    (folder(worked, ASK) / "response.md").write_bytes(data)
    before = fingerprint(worked.store)
    command = [sys.executable, "-I", str(MAIN), "show", "shop", "ask", "--file", "response.md"]
    ended = subprocess.run(command, cwd=worked.root, env=worked.environ(), capture_output=True, check=True)
    assert ended.stdout == data
    holds(cli("show", ASK).stdout, but=(TOKEN, "\x1b"))
    assert fingerprint(worked.store) == before


def test_only_the_stages_own_files_are_printed_one_by_itself(worked: Scene, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder(worked, ASK) / "link").symlink_to(tmp_path / "secret")
    for name in ("nothing.md", "../plan.json", "../../state.json", "/etc/passwd", "", ".", "link"):
        ended = cli("show", worked.run_dir.name, "1", "--file", name)
        assert (ended.code, ended.stdout) == (3, "")
        assert "why: its files are: prompt.md, response.md, status.json" in ended.stderr
    for words in [["--file", "x"], ["shop", "1", "--file", "prompt.md", "--json"]]:
        assert worked.run_dir.is_dir()
        assert cli("show", *words).code == 2


def test_a_commands_end_and_last_lines_are_shown_and_said_once(worked: Scene, cli: Cli) -> None:
    change_status(worked, MAKE, command={"exit_code": 3, "script": "false"})
    steps = [{**one, "failure_reason": "exit code 3"} if one["stage"] == MAKE else one for one in worked.state["steps"]]
    worked.edit(steps=steps)
    (row,) = (line for line in cli("show", "--stages").stdout.splitlines() if line.startswith("002"))
    assert row.count("exit code 3") == 1
    change_status(worked, ASK, output={"risk": "high", "key": TOKEN})
    holds(cli("show", worked.run_dir.name, ASK).stdout, '\noutput    {"risk": "high", "key": ', but=(TOKEN,))
    change_status(worked, MAKE, command={"script": "pytest -q", "exit_code": 1, "duration_ms": 12_345})
    (folder(worked, MAKE) / "command.log").write_text("".join(f"line {number}\n" for number in range(100)))
    text = cli("show", worked.run_dir.name, "2").stdout
    assert "command   pytest -q: exit code 1, 12.3 s" in text
    assert "--- command.log ---\n… 790 bytes, the last lines:\nline 80\n" in text
    ends: list[tuple[Json, str]] = [
        ({"exit_code": 0}, "exit code 0"),
        ({"exit_code": None, "signal": "SIGKILL"}, "killed by SIGKILL"),
        ({"exit_code": None, "signal": None}, "killed"),
        ({"exit_code": None, "signal": "SIGTERM", "timed_out": True}, "timed out"),
    ]
    for command, told in ends:
        change_status(worked, MAKE, command={"script": "x", **command})
        assert f"command   x: {told}\n" in cli("show", worked.run_dir.name, "2").stdout


def test_one_word_may_mean_a_stage_of_the_current_run_or_nothing(worked: Scene, cli: Cli) -> None:
    for word in ["3", "003", "make", "build/make", "make@2", AGAIN, "003-"]:
        for session in (None, "5f0c9a52-0000-4000-8000-000000000009"):
            assert cli("show", word, "--json", session=session).json["stage"] == AGAIN
            assert [one["stage"] for one in cli("show", "--diff", word, "--json", session=session).json["stages"]] == [
                AGAIN
            ]
        assert cli("show", word, "--file", "response.md").stdout == "made"
        assert cli("show", worked.run_dir.name[:8], "--json").json["state"]["run_id"] == worked.run_dir.name
    run_id = worked.run_dir.name
    ended = cli("show", "nowhere")
    assert (ended.code, ended.stdout) == (3, "")
    assert (
        f"why: nor a step of the current run, {handle(run_id)}\n  hint: loomctl show --stages {handle(run_id)}\n"
        in ended.stderr
    )
    worked.begin("aaa thing")
    lost = cli("show", "--diff", "003-build.make@2", session=None)
    assert (lost.code, "AMBIGUOUS_RUN" in lost.stderr) == (3, True)
    for words in (["show", "--diff", MAKE, "--stat"], ["show", MAKE, "--file", "prompt.md"], ["show", AGAIN]):
        lost = cli(*words, session=None)
        assert (lost.code, "AMBIGUOUS_RUN" in lost.stderr) == (3, True)
        verb = [word for word in words[:2] if word in ("show", "--diff")]
        line = " ".join([*verb, handle(run_id), *words[len(verb) :]])  # of the two the one that has such a stage
        assert lost.stderr.endswith(f"\n  hint: loomctl {line}\n")
        assert cli(*line.split(), session=None).code == 0
    lost = cli("show", "--diff", "nowhere@1", session=None)
    assert "hint: loomctl show --diff aaa-thing-" in lost.stderr
    assert lost.stderr.endswith(" nowhere@1\n")
    assert (
        f"hint: loomctl show --diff {handle(run_id)} make --stat\n"
        in cli("show", "--diff", "make", "--stat", session=None).stderr
    )
    for word in ("003", "make"):
        assert f"hint: loomctl show {handle(run_id)} {word}\n" in cli("show", word, session=None).stderr
    assert "hint: loomctl runs\n" in cli("show", "nowhere", session=None).stderr


def test_a_word_for_a_run_and_a_stage_is_said(worked: Scene, cli: Cli) -> None:
    """A whole id is the run; its beginning is not, where it is a stage's, too; nor are the beginnings of several."""
    run_id, state, plan = worked.run_dir.name, worked.state, (worked.run_dir / "plan.json").read_bytes()
    for other in ("make-2-run-2026-01-01T00-00-00Z", "002-x", "002-y"):
        home = worked.store / "runs" / other
        home.mkdir()
        (home / "state.json").write_text(json.dumps({**state, "run_id": other, "status": "completed"}))
        (home / "plan.json").write_bytes(plan)
    for verb in ("show", "show --diff"):
        several = f"the name of several runs, and it means {MAKE}"
        for word, said in (("make", f"{AGAIN} of {handle(run_id)}"), ("002", several)):
            ended = cli(*verb.split(), word)
            assert (ended.code, ended.stdout) == (2, "")
            holds(ended.stderr, "AMBIGUOUS_WORD", said, f"hint: loomctl {verb} {handle(run_id)} {word}\n")
    assert cli("show", "002-x", "--json").json["run_id"] == "002-x"


@pytest.mark.parametrize("layout", faber.LAYOUTS)
def test_a_run_of_fabers_is_seen_as_any_other(scene: Scene, cli: Cli, tmp_path: Path, layout: str) -> None:
    faber.lay(scene, layout)
    before = cli("show", "1", session=None)
    assert (before.code, f"hint: loomctl show --stages {faber.HANDLE}\n" in before.stderr) == (3, True)
    cli("resume", faber.RUN_ID)
    large = "x" * 200_000
    cli("done", given=json.dumps({"outcome": "succeeded", "context_updates": {"large": large}}))
    assert [one["step_id"] for one in cli("show", "--stages", "--json").json["stages"]] == [
        "build/implement",
        "build/push-build",
    ]
    for word in ("1", "implement", "001-build"):
        assert cli("show", word, "--json", session=None).json["stage"] == "001-build.implement@1"
        assert cli("show", "--diff", word, "--json").json["stages"][0]["stage"] == "001-build.implement@1"
    assert "001-build.implement@1 succeeded" in cli("events").stdout
    assert "Detail: full" in cli("debug", "preamble", "--fidelity", "full").stdout
    out = tmp_path / "dump"
    assert cli("dump", faber.RUN_ID, str(out)).code == 0
    assert json.loads((out / "context.json").read_text())["large"] == large
    assert json.loads((out / "dump.json").read_text())["troubles"] == []
    assert cli("clean", "--json").json["blobs"]["blobs"] == []
    cli("undo")
    assert [one["status"] for one in cli("show", "--stages", "--json").json["stages"]] == ["in_progress"]


def test_what_a_refused_step_lacked_is_said_and_its_output_can_be_printed(scene: Scene, cli: Cli) -> None:
    scene.write(".loom/config.yaml", "test_command: 'echo not ok adds; exit 1'\n")
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "x", "evidence": [{"tests": "pass"}]}]}})
    space, run = scene.space(), scene.begin().run
    command_steps.trust(space, run, command_steps.listed(space, run))
    advance.done(space, run.run_id, response="made")
    advance.done(space, run.run_id, response="made again")
    assert cli("show", "1", "--file", "evidence-1.2/command.log").stdout == "not ok adds\n"
    assert "evidence-1.1/command.log, evidence-1.2/command.log" in cli("show", "1").stdout
    waits = cli("status", "--json").json["waits"]["why"]
    assert waits == ("the step's result; Loom refused the last one: echo not ok adds; exit 1: exit code 1")
