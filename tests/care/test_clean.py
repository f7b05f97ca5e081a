"""What can go goes, and nothing else: no run's record unasked, nothing of a live session, nothing by a link (D56)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from loomctl.care import clean, doctor
from loomctl.care.clean import Item
from loomctl.runs import leases
from loomctl.runs.project import Workspace
from tests.helpers.patients import patient
from tests.helpers.scenes import OTHER, SESSION, Scene, fingerprint
from tests.helpers.tables import each

DAY = 86400
NOW = time.time()


def aged(path: Path, days: float, data: str | None = None) -> Path:
    if data is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data)
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def with_settings(scene: Scene, **settings: Any) -> Workspace:
    space = scene.space(None)
    return space._replace(settings=space.settings._replace(**settings))


def found(scene: Scene, **settings: Any) -> list[Item]:
    return list(clean.look(with_settings(scene, **settings), now=NOW).items)


def cleaned(scene: Scene, **settings: Any) -> clean.Removal:
    space = with_settings(scene, **settings)
    return clean.clean(space, clean.look(space, now=NOW))


def kinds(items: Iterable[Item]) -> list[tuple[str, str]]:
    return [(item.kind, os.path.basename(item.path)) for item in items]


def test_a_young_project_has_nothing_to_clean(over: Scene) -> None:
    before = fingerprint(over.store)
    assert found(over) == []
    assert cleaned(over) == ([], [])
    assert fingerprint(over.store) == before


@each(
    "status, days, age, goes",
    [
        ("completed", 30, 31, True),
        ("cancelled", 30, 31, True),
        ("completed", 30, 29, False),
        ("completed", 1, 1.1, True),
        ("completed", None, 9999, False),
        ("failed", 30, 31, False),
        ("in_progress", 30, 31, False),
        ("paused", 30, 31, False),
    ],
)
def test_outputs_go_by_the_settings_alone(over: Scene, status: str, days: int | None, age: float, goes: bool) -> None:
    """Those of runs that are over, older than the settings say; without a setting none ever; the event comes first."""
    over.edit(status=status)
    path = aged(over.run_dir / "outputs" / "toolu-1.txt", age, "x" * 100)
    young = aged(over.run_dir / "outputs" / "toolu-2.txt", 0, "y")
    done = cleaned(over, outputs_days=days)
    assert path.exists() is not goes
    assert young.exists()
    assert [item.bytes for item in done.removed] == ([100] if goes else [])
    told = [event["properties"] for event in over.events() if event["event"] == "outputs.removed"]
    assert len(told) == goes
    if goes:
        assert (told[0]["files"], told[0]["bytes"], told[0]["older_than_days"]) == (1, 100, days)


def test_a_run_that_cannot_be_read_keeps_everything(over: Scene) -> None:
    aged(over.run_dir / "outputs" / "toolu-1.txt", 999, "x" * 100)
    aged(over.store / "local" / "sessions" / f"{SESSION}.json", 999)
    assert clean.look(over.space(None), now=NOW).outputs_kept == 100  # for want of a setting
    (over.run_dir / "state.json").write_text("{")
    assert found(over, outputs_days=1) == []


def test_outputs_of_a_run_that_was_reopened_meanwhile_stay(over: Scene) -> None:
    """Between the look and the deed it came under way again: nothing of it goes, and that is said."""
    path = aged(over.run_dir / "outputs" / "toolu-1.txt", 999, "x")
    space = with_settings(over, outputs_days=1)
    look = clean.look(space, now=NOW)
    over.edit(status="in_progress")
    done = clean.clean(space, look)
    assert path.exists()
    assert [item.path for item, _ in done.failed] == [str(path)]
    assert "outputs.removed" not in over.event_names()


# ---- Runs that were begun and have no state.


def begun(scene: Scene, days: float = 2) -> Path:
    folder = scene.store / "runs" / "shop-late-run-2026-01-01T00-00-00Z"
    plan = (scene.run_dir / "plan.json").read_text()
    log = (scene.run_dir / "events.jsonl").read_text().splitlines(keepends=True)[0]
    folder.mkdir()
    for name, text in (("plan.json", plan), ("events.jsonl", log), ("state.json.1.0a1b2c3d.tmp", "{")):
        aged(folder / name, days, text)
    return aged(folder, days)


def test_a_run_without_a_state_goes_after_a_day(over: Scene) -> None:
    """Whole and told as one; a younger one may be coming into being. Its lock goes with it, and the doctor names it."""
    folder = begun(over, days=0.9)
    assert found(over) == []
    assert folder.name in " ".join(doctor.disk(patient(over)).details)
    for path in (*folder.iterdir(), folder):
        aged(path, 2)
    assert [(item.kind, item.path) for item in found(over)] == [("beginning", str(folder))]
    assert folder.exists()
    assert [item.path for item in cleaned(over).removed] == [str(folder)]
    assert (folder.exists(), found(over)) == (False, [])


@each(
    "name, text",
    [
        ("state.json", "{"),
        ("state.backup.json", "{"),
        ("notes.md", "mine"),
        ("stages/001-x/prompt.md", "do"),
        ("plan.json", '{"faber": {}}'),
        ("plan.json", "{"),
        ("events.jsonl", '{"event":"run.created"}\n{"event":"stage.started"}\n'),
        ("events.jsonl", '{"event":"stage.started"}\n'),
    ],
)
def test_a_run_in_which_something_was_done_stays(over: Scene, name: str, text: str) -> None:
    """What holds anything else than a beginning is somebody's, and a plan of FABER's belongs to a run there."""
    folder = begun(over)
    aged(folder / name, 2, text)
    aged(folder, 2)
    assert "beginning" not in [item.kind for item in found(over)]


def test_a_beginning_that_became_a_run_meanwhile_stays(over: Scene) -> None:
    folder = begun(over)
    space = over.space(None)
    look = clean.look(space, now=NOW)
    (folder / "state.json").write_text("{}")
    assert clean.clean(space, look).removed == []
    assert folder.exists()


def test_what_killed_writers_left_goes_after_a_day(over: Scene) -> None:
    """In runs, stages, local files, archives, blobs and the user's own folder; younger ones and other files stay."""
    stage = over.run_dir / "stages" / "001-frame.ask@1"
    home = Path(os.environ["LOOM_STATE_HOME"])
    left = [
        over.run_dir / "state.json.tmp",
        over.run_dir / "plan.json.1.0a1b2c3d.tmp",
        stage / "response.md.1.0a1b2c3d.tmp",
        over.store / "local" / "sessions" / "x.json.1.0a1b2c3d.tmp",
        over.store / "archive" / "a.tar.gz.1.0a1b2c3d.tmp",
        over.store / "blobs" / "sha256" / "2c" / ".2cf24d.1.0a1b2c3d.part",
        home / "runs" / "x.json.1.0a1b2c3d.tmp",
    ]
    for path in left:
        aged(path, 1.5, "x")
    stay = [aged(stage / "notes.tmp", 99, "mine"), aged(over.run_dir / "y.json.1.0a1b2c3d.tmp", 0.5, "x")]
    assert {item.path for item in cleaned(over).removed} == {str(path) for path in left}
    assert [path.exists() for path in (*left, *stay)] == [False] * len(left) + [True] * len(stay)


def test_what_is_left_of_removed_runs_goes(over: Scene) -> None:
    """A deletion or unpacking that was killed: at once if its process is dead, else after a day."""
    local = over.store / "local"
    for name in ("removed-shop-run-1-999999999", f"removed-shop-run-2-{os.getpid()}", "arriving-999999999"):
        (local / name / "stages").mkdir(parents=True)
        (local / name / "stages" / "x").write_text("x" * 10)
    names = {os.path.basename(item.path) for item in cleaned(over).removed}
    assert names == {"removed-shop-run-1-999999999", "arriving-999999999"}
    assert (local / f"removed-shop-run-2-{os.getpid()}").is_dir()


@each(
    "status, age, alive, goes",
    [
        ("completed", 31, False, True),
        ("cancelled", 31, False, True),
        ("completed", 29, False, False),
        ("completed", 31, True, False),
        ("in_progress", 999, False, False),
        ("paused", 999, False, False),
        ("failed", 999, False, False),
    ],
)
def test_files_of_dead_sessions_of_runs_that_are_over_go(
    over: Scene, status: str, age: float, alive: bool, goes: bool
) -> None:
    """Binding and note alike, after the days of silence; never a live session's, never of a run that may be resumed."""
    over.edit(status=status)
    local = over.space().local
    if alive:
        local.bind(SESSION, over.run_dir.name, host="claude-code", pid=os.getpid())
    for folder in ("sessions", "primed"):
        aged(over.store / "local" / folder / f"{SESSION}.json", age)
    done = cleaned(over)
    assert kinds(done.removed) == [("session", f"{SESSION}.json")] * (2 if goes else 0)
    assert (local.binding(SESSION) is None) is goes


@each("content", ["{", "[]", "{}", json.dumps({"run_id": "gone-run", "session_id": "x"})])
def test_files_of_no_run_go(over: Scene, content: str) -> None:
    aged(over.store / "local" / "sessions" / "x.json", 31, content)
    aged(over.store / "local" / "primed" / "y.json", 29, content)
    assert kinds(cleaned(over).removed) == [("session", "x.json")]


def test_a_session_that_came_back_meanwhile_keeps_its_files(over: Scene) -> None:
    path = aged(over.store / "local" / "sessions" / f"{SESSION}.json", 99)
    look = clean.look(over.space(None), now=NOW)
    assert kinds(look.items) == [("session", f"{SESSION}.json")]
    over.space().local.refresh(over.space().local.binding(SESSION) or {}, pid=None, transcript_path=None)
    assert clean.clean(over.space(None), look) == ([], [])
    assert path.exists()


def test_locks_of_runs_that_are_gone_go(over: Scene) -> None:
    locks = over.store / "local" / "locks"
    (own,) = locks.iterdir()
    aged(own, 999)
    aged(locks / "gone-run.lock", 2, "")
    aged(locks / "going-run.lock", 0.5, "")
    assert kinds(cleaned(over).removed) == [("lock", "gone-run.lock")]
    assert own.exists()


def test_what_was_noted_at_the_beginning_of_stages_goes_with_its_run(over: Scene) -> None:
    """Of one that is gone after a day, of one that is over with the other local files; of one under way never."""
    base = over.store / "local" / "baselines"
    for name, days in (("gone-run-1", 2), ("young-run-1", 0.5), (over.run_dir.name, 40)):
        (base / name / "001-a.b@1.git" / "objects").mkdir(parents=True)
        (base / name / "001-a.b@1.json").write_text("{}")
        aged(base / name, days)
    assert sorted(kinds(found(over))) == [("baseline", "gone-run-1"), ("baseline", over.run_dir.name)]
    over.edit(status="in_progress")
    assert kinds(cleaned(over).removed) == [("baseline", "gone-run-1")]
    assert sorted(path.name for path in base.iterdir()) == [over.run_dir.name, "young-run-1"]


def test_results_that_were_refused_go_when_they_are_old(over: Scene) -> None:
    kept = leases.keep_result(over.space(), over.run_dir.name, "It cost hours.")
    assert found(over) == []
    folder = Path(kept).parent
    aged(Path(kept), 31)
    aged(folder / "gone-run-2026-01-01T00-00-00Z-17.md", 31, "x")
    aged(folder / "young-run-2026-01-01T00-00-00Z-17.md", 29, "x")
    aged(folder / "notes.md", 99, "mine")
    names = sorted(["gone-run-2026-01-01T00-00-00Z-17.md", Path(kept).name])
    assert sorted(kinds(found(over))) == [("unsent", name) for name in names]
    cleaned(over)
    assert sorted(path.name for path in folder.iterdir()) == ["notes.md", "young-run-2026-01-01T00-00-00Z-17.md"]


def test_old_notes_of_hooks_go(over: Scene) -> None:
    aged(over.store / "local" / "hooks" / "stop.json", 31, "{}")
    aged(over.store / "local" / "hooks" / "session-start.json", 29, "{}")
    assert kinds(cleaned(over).removed) == [("hook", "stop.json")]
    aged(over.store / "local" / "hooks" / "session-start.json", 3)
    assert kinds(cleaned(over, local_days=2).removed) == [("hook", "session-start.json")]


def test_what_was_put_aside_of_the_spool_goes_and_what_waits_stays(over: Scene) -> None:
    folder = over.store / "local" / "spool"
    aged(folder / "s-1.json.bad", 31, "{")
    aged(folder / "s-2.json.bad", 29, "{")
    aged(folder / "s-3.json", 31, "{}")
    aged(folder / ".s-4.json.77.part", 2, "{")
    aged(over.run_dir / "outputs" / ".toolu_1.77.0a1b2c3d.part", 2, "x")
    parts = [("leftover", ".s-4.json.77.part"), ("leftover", ".toolu_1.77.0a1b2c3d.part")]
    assert sorted(kinds(found(over))) == [("hook", "s-1.json.bad"), *parts]


def test_old_environments_and_compiled_modules_go(over: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of other versions of Loom and unused; the own one, the used one, and what has its sources stay."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    base = tmp_path / "cache" / "loom"
    first_line = (Path(over.space().project.plugin_root) / "requirements.lock").read_text().partition("\n")[0]
    own = first_line.rpartition(" ")[2]
    for name, age in ((f"env-{own}-3.11", 99), ("env-0000-3.11", 99), ("env-1111-3.11", 5), ("making-999999999", 0)):
        aged(base / name / "pyvenv.cfg", age, "x" * 10)
        aged(base / name, age)
    gone = Path(f"{base}/pycache{tmp_path}/old-plugin/loomctl")
    aged(gone / "x.pyc", 2, "x")
    here = Path(f"{base}/pycache{Path(__file__).parent}")
    aged(here / "x.pyc", 99, "x")
    done = cleaned(over)
    assert {os.path.basename(item.path) for item in done.removed} == {"env-0000-3.11", "making-999999999", "old-plugin"}
    assert sorted(os.listdir(base)) == ["env-1111-3.11", f"env-{own}-3.11", "pycache", "setup.lock"]
    assert (here.is_dir(), gone.exists()) == (True, False)


@pytest.mark.shows("they follow no link")
def test_no_link_leads_cleaning_elsewhere(over: Scene) -> None:
    """Links in the store's folders are neither followed nor counted; a store whose folders are links is refused."""
    outside = over.root.parent / "outside"
    aged(outside / "x.json.1.0a1b2c3d.tmp", 99, "mine")
    aged(outside / "x.json", 99, "{}")
    for folder in ("sessions", "hooks", "locks"):
        (over.store / "local" / folder).mkdir(exist_ok=True)
        (over.store / "local" / folder / "link").symlink_to(outside)
    (over.run_dir / "outputs").symlink_to(outside)
    before = fingerprint(outside)
    assert cleaned(over, outputs_days=1) == ([], [])
    assert fingerprint(outside) == before
    os.rename(over.store / "local", over.root / "elsewhere")
    (over.store / "local").symlink_to(over.root / "elsewhere")
    with pytest.raises(Exception, match="UNSAFE_LINK"):
        cleaned(over)


def test_what_cannot_be_removed_is_said_and_the_rest_goes(over: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.json.1.0a1b2c3d.tmp", "b.json.1.0a1b2c3d.tmp"):
        aged(over.run_dir / name, 2, "x")
    unlink = os.unlink

    def refuse(path: str, **more: Any) -> None:
        if "a.json.1" in str(path):
            raise PermissionError(1, "Operation not permitted")
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", refuse)
    done = cleaned(over)
    assert kinds(done.removed) == [("leftover", "b.json.1.0a1b2c3d.tmp")]
    ((item, why),) = done.failed
    assert (os.path.basename(item.path), why) == ("a.json.1.0a1b2c3d.tmp", "Operation not permitted")


def test_no_hook_cleans(over: Scene) -> None:  # D56
    path = aged(over.store / "local" / "sessions" / f"{OTHER}.json", 999, "{")
    left = aged(over.run_dir / "plan.json.1.0a1b2c3d.tmp", 9, "x")
    for event in ("session-start", "stop", "session-end", "pre-compact"):
        over.hook(event, source="startup")
    assert (path.exists(), left.exists()) == (True, True)


def test_a_clock_that_jumped_back_removes_nothing_more(over: Scene) -> None:
    aged(over.run_dir / "state.json.tmp", -5, "x")
    aged(over.run_dir / "outputs" / "toolu-1.txt", -5, "x")
    assert found(over, outputs_days=1) == []
