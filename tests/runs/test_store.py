"""A run's state is old or new, never broken, never lost, whoever writes and whatever kills them (D53)."""

from __future__ import annotations

import copy
import errno
import functools
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomctl.kit import files, ids
from loomctl.kit.errors import EXIT_HELD, EXIT_INVALID, EXIT_NO_RUN, EXIT_SKEW, LoomError
from loomctl.kit.processes import Lock
from loomctl.runs.model import sessions
from loomctl.runs.store import recovery
from loomctl.runs.store.events import Event
from loomctl.runs.store.match import match
from loomctl.runs.store.store import Store
from tests.helpers.errors import refusal
from tests.helpers.runs import AT, HANDLE, PLAN, RUN_ID, make_run
from tests.helpers.waiting import PATIENCE

CHECKOUT = Path(__file__).parents[2]
WRITER = """
import sys
from loomctl.runs.store.events import Event
from loomctl.runs.store.store import Store
store, run_id, times = Store(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def change(state):
    n = state["context"].get("n", 0) + 1
    return {**state, "context": {"n": n, "fill": "x" * 20_000}}, [Event("tick", {"n": n})]
for _ in range(times):
    print(store.update(run_id, change)["context"]["n"], flush=True)
"""


def writer(store: Store, times: int) -> subprocess.Popen[str]:
    """Start a process that updates the run's state `times` times, printing what it has written."""
    command = [sys.executable, "-B", "-c", WRITER, store.folder, RUN_ID, str(times)]
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)


def set_goal(goal: str) -> Any:
    return lambda state: ({**state, "goal": goal}, [Event("goal.set", {"goal": goal})])


def log(store: Store) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    prev = ""
    for line in Path(store.run_dir(RUN_ID), "events.jsonl").read_bytes().split(b"\n")[:-1]:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        assert (entry["prev"], entry["seq"]) == (prev, len(found) + 1)
        prev = hashlib.sha256(line).hexdigest()
        found.append({**entry, "sha256": prev})
    return found


def test_a_new_run_and_every_plan_that_the_schema_allows_is_read_as_it_was_written(tmp_path: Path) -> None:
    store, made = make_run(tmp_path)
    read = store.read(RUN_ID)
    assert read == made
    assert (read.plan, read.state["revision"]) == (PLAN, 1)
    (event,) = log(store)
    assert (read.state["ledger_head"], store.run_ids()) == ({"seq": 1, "sha256": event["sha256"]}, [RUN_ID])
    for path in sorted((CHECKOUT / "tests" / "examples" / "plan" / "valid").glob("*.json")):
        shutil.copy(path, Path(made.folder, "plan.json"))
        assert store.read(RUN_ID).plan == json.loads(path.read_text(encoding="utf-8"))


def test_a_change_is_made_to_the_state_that_stands_in_the_file(tmp_path: Path) -> None:
    """What was read already is not parsed again where the file is the same; whatever else stands in it counts."""
    store, _ = make_run(tmp_path)
    read, met = store.read(RUN_ID).state, []

    def look(state: dict[str, Any]) -> tuple[dict[str, Any], list[Event]]:
        met.append(state)
        return state, []

    store.update(RUN_ID, look)
    Store(store.folder).update(RUN_ID, set_goal("another's"))
    store.update(RUN_ID, look)
    Path(store.run_dir(RUN_ID), "state.json").write_text("{", encoding="utf-8")
    assert refusal(store.update, RUN_ID, look).code == "BAD_JSON"
    assert met[0] is read
    assert [state["goal"] for state in met] == [read["goal"], "another's"]


def test_a_state_that_was_glanced_at_is_checked_whole_before_it_is_used(tmp_path: Path) -> None:
    store, _ = make_run(tmp_path)
    path = Path(store.run_dir(RUN_ID), "state.json")
    raw = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**raw, "steps": [7]}), encoding="utf-8")
    assert store.glance(store.home(RUN_ID))["run_id"] == RUN_ID
    assert refusal(store.read_state, RUN_ID).code == "BAD_STATE"


def test_a_run_is_not_overwritten_and_a_copy_is_not_taken_for_another(tmp_path: Path) -> None:
    """The second of two that start a run of one name gets an error; the id in the file is the one asked for (D6)."""
    store, made = make_run(tmp_path)
    error = refusal(make_run, tmp_path, goal="other")
    assert (error.code, error.exit_code) == ("RUN_EXISTS", EXIT_HELD)
    assert store.read(RUN_ID) == made
    shutil.copytree(store.run_dir(RUN_ID), store.run_dir("copy"))
    assert refusal(store.read, "copy").code == "RUN_ID_MISMATCH"


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(unknown=st.dictionaries(st.text().map("x-".__add__), json_values, max_size=4))
def test_unknown_keys_survive_an_update(tmp_path_factory: pytest.TempPathFactory, unknown: dict[str, Any]) -> None:
    store, made = make_run(tmp_path_factory.mktemp("project"))
    visit = {"step_id": "build/a", "phase": "build", "stage": "s", "status": "failed", "started_at": "x", **unknown}
    raw = {
        **made.state,
        **unknown,
        "steps": [{**visit, "visit": 1, "rank": 1}],
        "sessions": {**made.state["sessions"], "session_history": [{"session_id": "s1", **unknown}], **unknown},
    }
    path = Path(store.run_dir(RUN_ID), "state.json")
    path.write_bytes(files.to_json(raw))
    store.update(RUN_ID, set_goal("new"))
    after = json.loads(path.read_bytes())
    changed = {key for key in after if after[key] != raw.get(key)}
    assert changed == {"goal", "revision", "updated_at", "ledger_head"} - ({"updated_at"} - changed)
    assert set(after) == set(raw)


def test_the_backup_is_the_state_before(tmp_path: Path) -> None:
    store, _ = make_run(tmp_path)
    path, backup = (Path(store.run_dir(RUN_ID), name) for name in ("state.json", "state.backup.json"))
    assert not backup.exists()
    for goal in ("one", "two", "three"):
        before = path.read_bytes()
        store.update(RUN_ID, set_goal(goal))
        assert backup.read_bytes() == before != path.read_bytes()
        assert json.loads(path.read_bytes())["goal"] == goal
    assert sorted(os.listdir(path.parent)) == ["events.jsonl", "plan.json", "state.backup.json", "state.json"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_a_file_system_without_links_has_backups_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store, _ = make_run(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    path = Path(store.run_dir(RUN_ID), "state.json")
    before = path.read_bytes()
    store.update(RUN_ID, set_goal("x"))
    assert (path.with_name("state.backup.json").read_bytes(), len(os.listdir(path.parent))) == (before, 4)


def test_a_kill_between_backup_and_state_leaves_no_litter(tmp_path: Path) -> None:
    """Where state and backup are one file, as such a kill leaves them, the next update parts them cleanly."""
    store, _ = make_run(tmp_path)
    path = Path(store.run_dir(RUN_ID), "state.json")
    path.with_name("state.backup.json").hardlink_to(path)
    before = path.read_bytes()
    store.update(RUN_ID, set_goal("x"))
    assert path.with_name("state.backup.json").read_bytes() == before
    assert sorted(os.listdir(path.parent)) == ["events.jsonl", "plan.json", "state.backup.json", "state.json"]


def snapshot(store: Store) -> dict[str, bytes]:
    folder = Path(store.run_dir(RUN_ID))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_neither_what_changes_nothing_nor_what_raises_writes_anything(tmp_path: Path) -> None:
    store, _ = make_run(tmp_path)
    before = snapshot(store)
    assert store.update(RUN_ID, lambda state: (copy.deepcopy(state), [])) == json.loads(before["state.json"])
    assert snapshot(store) == before
    store.update(RUN_ID, lambda state: (state, [Event("seen", {})]))
    assert [event["event"] for event in log(store)] == ["run.created", "seen"]
    assert store.read_state(RUN_ID)["revision"] == 2
    before = snapshot(store)

    def refuse(_: dict[str, Any]) -> Any:
        raise LoomError("NO_OPEN_STEP", "no")

    assert refusal(store.update, RUN_ID, refuse).code == "NO_OPEN_STEP"
    assert snapshot(store) == before
    store.update(RUN_ID, set_goal("x"), patience=0)


BROKEN = [
    (b"", "BAD_JSON", EXIT_INVALID), (b"{", "BAD_JSON", EXIT_INVALID), (b"\0" * 4096, "BAD_JSON", EXIT_INVALID),
    (b" " * (files.LARGEST_JSON + 1), "TOO_LARGE", EXIT_INVALID), (b"[]", "BAD_STATE", EXIT_INVALID),
    (b"{}", "BAD_STATE", EXIT_INVALID), (b'{"schema_version": 3}', "SCHEMA_TOO_NEW", EXIT_SKEW),
]  # fmt: skip


def test_a_state_that_cannot_be_read_is_never_replaced(tmp_path: Path) -> None:
    """A broken or newer state is an error whose hint leads back; it and its backup stay as they are (D53, D56)."""
    store, made = make_run(tmp_path)
    store.update(RUN_ID, set_goal("one"))
    path, backup = (Path(made.folder, name) for name in ("state.json", "state.backup.json"))
    good = backup.read_bytes()
    for damage, code, exit_code in BROKEN:
        path.write_bytes(damage)
        backup.write_bytes(good)
        before = snapshot(store)
        for ask in (store.read_state, store.read, lambda run_id: store.update(run_id, set_goal("two"))):
            error = refusal(ask, RUN_ID)
            assert (error.code, error.exit_code) == (code, exit_code)
            assert code == "SCHEMA_TOO_NEW" or error.hint == f"loomctl debug state restore {HANDLE}"
        assert snapshot(store) == before
        backup.unlink()
        error = refusal(store.read_state, RUN_ID)
        assert code == "SCHEMA_TOO_NEW" or error.hint == f"loomctl check {path}"


def damaged(*path: str | int, value: object = None) -> dict[str, Any]:
    """Give the plan with one value replaced, or removed where the value is `...`."""
    plan = copy.deepcopy(PLAN)
    parent: Any = plan
    for key in path[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return plan


def test_a_damaged_plan_is_named_with_its_place(tmp_path: Path) -> None:
    """What the engine and the hooks would stumble over in a plan is refused with its JSON path; the state is read."""
    for number, (plan, where) in enumerate(
        [
            ([], "$.schema_version"),
            (damaged("schema_version", value=True), "$.schema_version"),
            (damaged("plan_id", value=7), "$.plan_id"),
            (damaged("autonomy", value="guarded"), "$.autonomy"),
            (damaged("autonomy", "require_approval_for", value="release"), "$.autonomy.require_approval_for"),
            (damaged("phases", 0, value="build"), "$.phases[0]"),
            (damaged("phases", 0, "steps", value=...), "$.phases[0].steps"),
            (damaged("phases", 0, "steps", 0, "key", value=...), "$.phases[0].steps[0].key"),
            (damaged("phases", 0, "steps", 0, "max_retries", value="2"), "$.phases[0].steps[0].max_retries"),
            (
                damaged("phases", 0, "steps", 0, "result_handling", value={"on_failure": []}),
                "$.phases[0].steps[0].result_handling.on_failure",
            ),
            (damaged("artifacts", 0, "type", value=...), "$.artifacts[0].type"),
            (damaged("artifacts", 0, "triggers", value="session_start"), "$.artifacts[0].triggers"),
            (damaged("artifacts", 0, "triggers", value=["manual", 7]), "$.artifacts[0].triggers[1]"),
            (damaged("artifacts", 0, "path", value=["x"]), "$.artifacts[0].path"),
        ]
    ):
        root = tmp_path / str(number)
        root.mkdir()
        store, made = make_run(root)
        Path(made.folder, "plan.json").write_text(json.dumps(plan))
        error = refusal(store.read, RUN_ID)
        assert (error.code, error.where) == ("BAD_PLAN", f"{made.folder}/plan.json {where}")
        store.read_state(RUN_ID)


def test_a_held_lock_is_said_with_its_pid_and_readers_need_none(tmp_path: Path) -> None:
    store, made = make_run(tmp_path)
    with Lock(os.path.join(store.local, "locks", f"{RUN_ID}.lock")):
        assert store.read(RUN_ID) == made
    code = (
        "import sys, time\nfrom loomctl.runs.store.store import Store\n"
        "def change(state):\n    print('in', flush=True)\n    time.sleep(60)\n"
        "Store(sys.argv[1]).update(sys.argv[2], change)\n"
    )
    command = [sys.executable, "-B", "-c", code, store.folder, RUN_ID]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        error = refusal(store.update, RUN_ID, set_goal("x"), patience=0.1)
        process.kill()
    assert (error.code, error.exit_code) == ("HELD", EXIT_HELD)
    assert f"process {process.pid} (taken just now)" in error.what
    assert store.update(RUN_ID, set_goal("x"), patience=1)["goal"] == "x"


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """4 processes with 25 updates each: all 100 are in the state, in the log and in the revision."""
    store, _ = make_run(tmp_path)
    processes = [writer(store, 25) for _ in range(4)]
    seen = [int(line) for process in processes for line in process.communicate()[0].split()]
    assert [process.returncode for process in processes] == [0] * 4
    assert sorted(seen) == list(range(1, 101))
    state = store.read_state(RUN_ID)
    assert (state["context"]["n"], state["revision"]) == (100, 101)
    assert [event["properties"]["n"] for event in log(store)[1:]] == list(range(1, 101))
    assert state["ledger_head"]["seq"] == 101


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_old_or_new(tmp_path: Path) -> None:
    store, _ = make_run(tmp_path)
    chance = random.Random(258)
    folder = Path(store.run_dir(RUN_ID))
    said = 0
    for _ in range(24):
        process = writer(store, 10_000)
        assert process.stdout is not None
        said = int(process.stdout.readline())
        time.sleep(chance.random() * 0.03)
        process.send_signal(signal.SIGKILL)
        said = max([said, *(int(line) for line in process.communicate()[0].splitlines() if line.isdigit())])
        state = store.read_state(RUN_ID)
        assert state["context"]["n"] in (said, said + 1)
        assert state["revision"] == state["context"]["n"] + 1
        backup = json.loads((folder / "state.backup.json").read_bytes())
        assert backup["revision"] in (state["revision"] - 1, state["revision"])
        chain = log(store)
        head = state["ledger_head"]
        assert chain[head["seq"] - 1]["sha256"] == head["sha256"]
        assert len(chain) - head["seq"] in (0, 1)
    store.update(RUN_ID, set_goal("on"), patience=PATIENCE)
    assert sorted(os.listdir(folder)) == ["events.jsonl", "plan.json", "state.backup.json", "state.json"]
    assert not [event for event in log(store) if event["event"] == "ledger.mismatch"]


def test_a_unique_beginning_is_enough(tmp_path: Path) -> None:
    """A whole id is meant even if it begins another; else a beginning that only one run has, and else none (D4)."""
    for name in ("a-run-1", "a-run-10", "a-run-2", "b-run-1"):
        store, _ = make_run(tmp_path, name)
    for asked, expected in (("a-run-1", "a-run-1"), ("a-run-10", "a-run-10"), ("b", "b-run-1"), ("a-run-2", "a-run-2")):
        assert match(store, asked) == expected
    for asked, code in (("a", "AMBIGUOUS_RUN"), ("c", "NO_SUCH_RUN"), ("a-run-1x", "NO_SUCH_RUN"), ("", "BAD_ID")):
        error = refusal(match, store, asked)
        assert error.code == code
        assert code != "AMBIGUOUS_RUN" or (
            ids.handle("a-run-10", "258") in error.why and error.exit_code == EXIT_NO_RUN
        )


def test_no_run_id_leads_out_of_the_store(tmp_path: Path) -> None:
    """Whatever is asked by name, nothing outside the store is read, locked or written (D10)."""
    store, _ = make_run(tmp_path)
    update = functools.partial(store.update, change=set_goal("x"))
    asks: list[Any] = [store.run_dir, store.read_state, store.read, update]
    for run_id in ("../../etc", "/etc", "a/b", "..", ".", "", "a\0b", ".hidden", "-x"):
        for ask in asks:
            assert refusal(ask, run_id).code == "BAD_ID"


def test_an_empty_or_absent_store_has_no_runs_and_a_folder_without_a_state_is_none(tmp_path: Path) -> None:
    store = Store(str(tmp_path / ".loom"))
    assert store.run_ids() == []
    store.prepare()
    (tmp_path / ".loom" / "runs" / "file").write_text("")
    (tmp_path / ".loom" / "runs" / "empty").mkdir()
    assert store.run_ids() == []
    store, _ = make_run(tmp_path)
    os.unlink(os.path.join(store.run_dir(RUN_ID), "state.json"))
    assert store.run_ids() == []
    assert refusal(store.read, RUN_ID).code == "NO_SUCH_RUN"


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.shows("out of your history, unless you set `commit_runs`")
def test_the_project_keeps_only_what_is_its_own(tmp_path: Path) -> None:
    """By what Loom writes to .gitignore, settings and workflows are the project's; runs only if it wants them, and
    never this machine's part, the outputs or what else tools and commands gave.
    """
    store, made = make_run(tmp_path)
    for name in ("config.yaml", "workflows/own.json", "workflows/deep/er.yaml", "blobs/sha256/2c/2cf", "archive/x.gz"):
        path = tmp_path / ".loom" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    stage = ("changes.patch", "changes.undone-1.patch", "command.log", "command.undone-2.log", "command.lock",
             "command.json", "command.undone-1.json", "status.json.tmp")  # fmt: skip
    given = ("outputs/t1.txt", "tool_steps.jsonl", "reads.json", "assets/s/retry_1/a", "stages/1/status.json")
    for name in (*given, *(f"stages/1/{name}" for name in stage)):
        (Path(made.folder) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(made.folder) / name).write_text("x")
    git(tmp_path, "init", "-q")
    own = {".loom/.gitignore", ".loom/config.yaml", ".loom/workflows/own.json", ".loom/workflows/deep/er.yaml"}
    of_run = ("state.json", "plan.json", "events.jsonl", "stages/1/status.json")
    for commit_runs in (False, True, True):
        store.prepare(commit_runs=commit_runs)
        seen = set(git(tmp_path, "ls-files", "--others", "--exclude-standard").split())
        assert seen == own | ({f".loom/runs/{RUN_ID}/{name}" for name in of_run} if commit_runs else set())


def test_a_gitignore_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    """What somebody else wrote there stays; Loom's own is renewed."""
    store = Store(str(tmp_path / ".loom"))
    store.prepare()
    path = tmp_path / ".loom" / ".gitignore"
    ours = path.read_text()
    path.write_text(ours.partition("\n")[0] + "\nold\n")
    store.prepare()
    assert path.read_text() == ours
    path.write_text("# mine\n*\n")
    store.prepare()
    assert path.read_text() == "# mine\n*\n"


@pytest.mark.parametrize("target", ["nowhere", "ours", ""])
def test_what_is_no_regular_file_in_the_gitignores_place_is_left_alone(tmp_path: Path, target: str) -> None:
    """A link stays a link, wherever it leads, and a folder stays a folder."""
    store = Store(str(tmp_path / ".loom"))
    store.prepare()
    path = tmp_path / ".loom" / ".gitignore"
    path.rename(tmp_path / "ours")
    old = (tmp_path / "ours").read_text().partition("\n")[0] + "\nold\n"
    (tmp_path / "ours").write_text(old)
    if target:
        path.symlink_to(tmp_path / target)
    else:
        path.mkdir()
    store.prepare()
    assert (path.is_symlink(), path.is_dir()) == (bool(target), not target)
    assert (sorted(os.listdir(tmp_path)), (tmp_path / "ours").read_text()) == ([".loom", "ours"], old)


def test_sessions_that_a_state_holds_no_more_stand_beside_it(tmp_path: Path) -> None:
    store, run = make_run(tmp_path)
    here = {"hostname": "m", "cwd": "/m"}

    def came(name: str) -> Callable[[dict[str, Any]], tuple[dict[str, Any], list[Event]]]:
        def change(state: dict[str, Any]) -> tuple[dict[str, Any], list[Event]]:
            earlier = recovery.earlier_session(run.folder, name)
            state = sessions.entered(state, name, host="h", source="startup", at=AT, environment=here, earlier=earlier)
            return sessions.left(state, name, at=AT, reason="logout"), []

        return change

    for number in range(30):
        store.update(RUN_ID, came(f"s{number}"))
    path = Path(run.folder, "sessions.jsonl")
    path.write_bytes(path.read_bytes() + b'{"session_id": "torn')
    state = store.update(RUN_ID, came("s2"))
    assert sessions.summary(state) == "30 sessions (m)"
    state = store.update(RUN_ID, came("s30"))
    held = {record["session_id"] for record in sessions.history(state)}
    earlier = {record["session_id"] for record in recovery.earlier_sessions(run.folder)}
    assert held | earlier == {f"s{number}" for number in range(31)}
    assert sessions.summary(state) == "31 sessions (m)"
