"""A damaged state or plan is put back, what goes is kept, and what is lost is said (D53)."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.care import keep
from loomctl.flow import resume
from loomctl.kit.errors import EXIT_NO_RUN, EXIT_SKEW, LoomError
from loomctl.kit.files import LARGEST_JSON
from loomctl.runs import find
from loomctl.runs.machine import run_notes
from loomctl.runs.model import frozen_plan, state
from loomctl.runs.model.state import Step
from loomctl.runs.store import event_log, visit_files
from loomctl.runs.store.events import Event
from loomctl.workflows import refreeze
from tests.care.killing import kill_after
from tests.helpers import faber
from tests.helpers.errors import refused
from tests.helpers.scenes import OTHER, SESSION, Scene, artifact, fingerprint
from tests.helpers.tables import each
from tests.helpers.verbs import done, end, read


@pytest.fixture
def halfway(scene: Scene) -> Scene:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    done(scene, "asked")
    return scene


@pytest.fixture
def begun(halfway: Scene) -> Scene:
    """A run with two steps done and the next one open; the last write ended the second."""
    done(halfway, "made")
    return halfway


def restored(scene: Scene, **more: Any) -> tuple[keep.Standing, keep.Restored]:
    standing = keep.examine_state(scene.space(), scene.run_dir.name, **more)
    return standing, keep.restore_state(scene.space(), standing)


def replace(path: Path, data: bytes | None) -> None:
    path.unlink()
    if data is not None:
        path.write_bytes(data)


# what stands in the state's place: bytes, nothing (None), a cut after so many bytes, or keys that were edited
DAMAGE: list[tuple[str, bytes | int | dict[str, Any] | None, str]] = [
    ("missing", None, "NO_STATE"),
    ("empty", b"", "BAD_JSON"),
    ("torn", 700, "BAD_JSON"),
    ("zeros", b"\0" * 4096, "BAD_JSON"),
    ("not text", b"\xff\xfe\x00", "BAD_JSON"),
    ("a list", b"[]", "BAD_STATE"),
    ("an empty object", b"{}", "BAD_STATE"),
    ("steps misshapen", {"steps": [5]}, "BAD_STATE"),
    ("without a version", {"schema_version": None}, "BAD_STATE"),
    ("a version that nobody wrote", {"schema_version": 0}, "BAD_STATE"),
    ("another run's", {"run_id": "other"}, "RUN_ID_MISMATCH"),
    ("nested without end", b"[" * 200_000, "BAD_JSON"),
    ("endless", b" " * (LARGEST_JSON + 1), "TOO_LARGE"),
]


def damaged(scene: Scene, damage: bytes | int | dict[str, Any] | None) -> bytes | None:
    if isinstance(damage, int):
        return (scene.run_dir / "state.json").read_bytes()[:damage]
    return json.dumps({**scene.state, **damage}).encode() if isinstance(damage, dict) else damage


@each("damage, code", [case[1:] for case in DAMAGE])
def test_every_damage_is_said_and_mended(begun: Scene, damage: bytes | int | dict[str, Any] | None, code: str) -> None:
    """The state before is back, the broken file is kept byte for byte, the log says it, and the run goes on."""
    path = begun.run_dir / "state.json"
    before = json.loads((begun.run_dir / "state.backup.json").read_bytes())
    broken = damaged(begun, damage)
    replace(path, broken)
    with refused(code):
        begun.space().store.read_state(begun.run_dir.name)
    standing, made = restored(begun)
    found = standing.state
    assert found is not None
    assert (found.asks, found.trouble is not None, found.lost) == (False, True, None)
    assert made.kept == (None if broken is None else "state.broken-1.json")
    if broken is not None:
        assert (begun.run_dir / "state.broken-1.json").read_bytes() == broken
    apart = ("revision", "updated_at", "ledger_head", "lease")
    after = begun.state
    assert {**after, **dict.fromkeys(apart)} == {**before, **dict.fromkeys(apart)}
    assert after["revision"] > before["revision"] + 1
    last = begun.events()[-1]
    assert (last["event"], last["properties"]["reason"]) == ("state.restored", code)
    assert last["properties"]["events_after"] == len(found.later)
    assert found.results == ["002-build.make@1"]  # the last write was the end of that step
    assert resume.resume(begun.space()).move.step == "build/make"
    assert end(begun, read(begun, "002-build.make@1", "response.md")) == "succeeded"


@each("kind", ["link", "folder"])
def test_what_stands_in_a_states_place_is_moved_away(begun: Scene, kind: str) -> None:
    """A link or a folder is set aside as it is; what the link leads to is neither read nor changed."""
    path = begun.run_dir / "state.json"
    victim = begun.write("victim.json", path.read_bytes())
    path.unlink()
    if kind == "link":
        path.symlink_to(victim)
    else:
        path.mkdir()
    standing = keep.examine_state(begun.space(), begun.run_dir.name)
    assert standing.state is not None
    assert standing.state.asks  # it is not known to be damaged
    before = victim.read_bytes()
    keep.restore_state(begun.space(), standing)
    assert (path.is_file(), path.is_symlink()) == (True, False)
    assert victim.read_bytes() == before
    assert os.path.lexists(begun.run_dir / "state.broken-1.json")


def test_looking_changes_nothing(begun: Scene) -> None:
    (begun.run_dir / "state.json").write_text("{")
    (begun.run_dir / "plan.json").write_text("{")
    before = fingerprint(begun.store)
    keep.examine_state(begun.space(), begun.run_dir.name)
    assert fingerprint(begun.store) == before


def test_what_is_lost_is_said(halfway: Scene) -> None:
    """Of a state that can be used: which visits and sessions differ, and which events stay in the log behind it."""
    resume.resume(halfway.space(OTHER), take_over=True)
    store, run_id = halfway.space().store, halfway.run_dir.name
    shutil.copy(halfway.run_dir / "state.json", halfway.run_dir / "state.replaced-1.json")
    replace_with = halfway.edit(revision=halfway.state["revision"] + 5, goal="another")
    done(halfway, "made", session=OTHER)
    standing = keep.examine_state(halfway.space(OTHER), run_id, source="state.replaced-1.json")
    found = standing.state
    assert found is not None
    assert found.lost is not None
    assert found.asks
    told = {(one["step_id"], one["was"], one["now"]) for one in found.lost.steps}
    assert told == {("build/make", "succeeded", "in_progress"), ("build/polish", "in_progress", None)}
    assert "goal" in found.lost.keys
    assert [event["event"] for event in found.later] == ["stage.completed", "stage.started"]
    keep.restore_state(halfway.space(OTHER), standing)
    assert store.read_state(run_id)["revision"] > replace_with["revision"]
    assert [event["event"] for event in halfway.events()][-3:] == ["stage.completed", "stage.started", "state.restored"]


def test_a_restoration_can_be_taken_back(halfway: Scene) -> None:
    """A healthy state that was replaced comes back by its name, and nothing was lost in between."""
    before = halfway.state
    done(halfway, "made")
    wanted = halfway.state
    _, made = restored(halfway)
    assert made.kept == "state.replaced-1.json"
    assert halfway.state["steps"] == before["steps"] or halfway.state["steps"] != wanted["steps"]
    _, again = restored(halfway, source="state.replaced-1.json")
    assert again.kept == "state.replaced-2.json"
    assert halfway.state["steps"] == wanted["steps"]


def test_a_state_that_says_the_same_is_not_written(begun: Scene) -> None:
    (begun.run_dir / "state.json").write_text("{")
    restored(begun)
    before = fingerprint(begun.run_dir)
    standing, made = restored(begun)
    assert standing.state is not None
    assert (standing.state.changes, made.kept) == (False, None)
    assert fingerprint(begun.run_dir) == before


def test_a_newer_state_is_not_taken_back(begun: Scene) -> None:
    """What a later Loom wrote is whole: it asks for an update, with or without a backup (D56)."""
    begun.edit(schema_version=99)
    before = fingerprint(begun.store)
    for source in (None, "state.backup.json"):
        with refused("SCHEMA_TOO_NEW", exit_code=EXIT_SKEW):
            keep.examine_state(begun.space(), begun.run_dir.name, source=source)
    assert fingerprint(begun.store) == before


def test_without_a_usable_backup_it_is_said_what_is_left(begun: Scene) -> None:
    """Nothing is changed; what is still there is counted, and a way on is named: an older file if one is whole."""
    whole = (begun.run_dir / "state.json").read_bytes()
    for name in ("state.json", "state.backup.json"):
        replace(begun.run_dir / name, b"{")
    before = fingerprint(begun.store)
    with refused("NO_WAY_BACK") as caught:
        keep.examine_state(begun.space(), begun.run_dir.name)
    left = f"its plan, {len(begun.events())} events and 2 steps with results (001-frame.ask@1, 002-build.make@1)"
    assert left in caught.value.why
    assert caught.value.hint.startswith(f"loomctl runs archive {begun.run_dir.name}")
    assert fingerprint(begun.store) == before
    (begun.run_dir / "state.replaced-1.json").write_bytes(whole)
    with refused("NO_WAY_BACK") as caught:
        keep.examine_state(begun.space(), begun.run_dir.name)
    assert caught.value.hint.endswith("--from state.replaced-1.json")
    restored(begun, source="state.replaced-1.json")
    assert begun.state["status"] == "in_progress"


@each("source", ["../x.json", "/etc/passwd", "plan.json", "state.json", "state.none.json", ""])
def test_only_a_kept_state_is_a_source(begun: Scene, source: str) -> None:  # D10
    with pytest.raises(LoomError, match="BAD_SOURCE"):
        keep.examine_state(begun.space(), begun.run_dir.name, source=source)


def test_a_state_that_changed_meanwhile_is_left(begun: Scene) -> None:
    standing = keep.examine_state(begun.space(), begun.run_dir.name)
    done(begun, "made")
    before = fingerprint(begun.run_dir)
    with pytest.raises(LoomError, match="CHANGED_MEANWHILE"):
        keep.restore_state(begun.space(), standing)
    assert fingerprint(begun.run_dir) == before


def test_the_run_that_is_meant(begun: Scene) -> None:
    """Named; else bound; else the only one that cannot be read; else the only active one; several are listed."""
    first = begun.run_dir.name
    assert keep.run_to_restore(begun.space(), first[:12]) == first
    assert keep.run_to_restore(begun.space(), None) == first
    assert keep.run_to_restore(begun.space(None), None) == first
    second = begun.begin("another", session=OTHER).run.run_id
    (begun.store / "runs" / second / "state.json").write_text("{")
    assert keep.run_to_restore(begun.space(None), None) == second
    assert keep.run_to_restore(begun.space(), None) == first
    (begun.store / "runs" / first / "state.json").write_text("{")
    with pytest.raises(LoomError, match="AMBIGUOUS_RUN"):
        keep.run_to_restore(begun.space(None), None)
    with refused("NO_SUCH_RUN", exit_code=EXIT_NO_RUN):
        keep.run_to_restore(begun.space(), "nowhere")


def test_an_older_backup_is_migrated_and_kept(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:  # D56
    old = (begun.run_dir / "state.backup.json").read_bytes()
    monkeypatch.setattr(state, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(state, "MIGRATIONS", {2: [Step("mark it", lambda raw: {**raw, "x-marked": True})]})
    (begun.run_dir / "state.json").write_text("{")
    restored(begun)
    assert (begun.state["schema_version"], begun.state["x-marked"]) == (3, True)
    assert any(path.read_bytes() == old for path in begun.run_dir.glob("state.backup.v2*.json"))
    assert begun.event_names()[-2:] == ["state.migrated", "state.restored"]
    assert begun.events()[-2]["properties"]["kept"].startswith("state.backup.v2")


def test_visits_that_left_the_state_are_rebuilt_from_what_is_left(begun: Scene) -> None:
    """Lines of the file that are good still, and the stages' own records: what is lost is counted (D56)."""
    state = begun.state
    *before, last = state["steps"]
    older = [
        {**last, "visit": rank, "rank": rank, "stage": f"{rank:03}-x@{rank}", "status": "succeeded"}
        for rank in range(len(before) + 1, 80)
    ]
    open_now = {**last, "visit": 80, "rank": 80, "stage": "080-x@80"}
    change = {"steps": [*before, *older, open_now]}
    space, run_id = begun.space(), begun.run_dir.name
    space.store.update(run_id, lambda known: ({**known, **change}, [Event("test.long", {})]))
    path = begun.run_dir / visit_files.FIRST
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:10], b"{}\n", *lines[11:]]))
    standing = keep.examine_state(space, run_id)
    assert standing.state is not None
    assert standing.state.trouble is not None
    assert "Loom can restore 31 of " in standing.state.trouble.why
    keep.restore_state(space, standing)
    steps = begun.space().store.read_state(run_id)["steps"]
    assert [one["rank"] for one in steps] == [rank for rank in range(1, 81) if rank != 11]


# ---- Plans.


def refrozen(scene: Scene) -> refreeze.Refrozen:
    _, made = restored(scene)
    assert isinstance(made.plan, refreeze.Refrozen), made.plan
    return made.plan


@each("damage", [None, b"", b"{", b"[]", b"\xff", b'{"schema_version": 1}', b'{"schema_version": 0}'])
def test_a_damaged_plan_is_made_anew(begun: Scene, damage: bytes | None) -> None:
    """From the same workflow files it is, byte for byte, the one that the run began with; the state is untouched."""
    path = begun.run_dir / "plan.json"
    plan, before = path.read_bytes(), begun.state
    replace(path, damage)
    made = refrozen(begun)
    assert (made.same, made.sources) == (True, ["{project_root}/.loom/workflows/tiny.json"])
    assert path.read_bytes() == plan
    assert made.kept == (None if damage is None else "plan.broken-1.json")
    assert (begun.state["steps"], begun.event_names()[-1]) == (before["steps"], "plan.restored")
    assert end(begun) == "succeeded"


def test_the_test_command_of_the_runs_start_is_in_the_new_plan(scene: Scene) -> None:
    scene.write(".loom/config.yaml", "test_command: make test\n")
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "x", "evidence": [{"tests": "pass"}]}]}})
    scene.begin()
    path = scene.run_dir / "plan.json"
    plan = path.read_bytes()
    path.write_text("{")
    scene.write(".loom/config.yaml", "test_command: make all\n")
    assert refrozen(scene).same
    assert path.read_bytes() == plan


def test_an_autonomy_of_the_users_own_is_in_the_new_plan(scene: Scene) -> None:
    """What was asked for at the start instead of the workflow's is recorded, and counts again."""
    scene.workflow(autonomy={"level": "guarded", "require_approval_for": ["ship"]})
    assert scene.loomctl("run", "x", "--workflow", "tiny", "--autonomy", "assist").code == 0
    path = scene.run_dir / "plan.json"
    plan = path.read_bytes()
    assert json.loads(plan)["autonomy"]["level"] == "assist"
    path.unlink()
    assert refrozen(scene).same is True
    assert path.read_bytes() == plan


@each("cut", [0.3, 0.6, 0.95])
def test_what_is_left_of_a_plan_is_enough_where_the_log_says_nothing(begun: Scene, cut: float) -> None:
    """A run without a record of its plan's making: the beginning of the torn file names the sources."""
    path = begun.run_dir / "plan.json"
    plan = path.read_bytes()
    (begun.run_dir / "events.jsonl").unlink()
    at = max(int(len(plan) * cut), plan.index(b'"phases"'))
    replace(path, plan[:at])
    assert refrozen(begun).same is None
    assert path.read_bytes() == plan


def changed_workflow(scene: Scene) -> None:
    path = scene.store / "workflows" / "tiny.json"
    path.write_text(path.read_text().replace("Make it.", "Make it well."))


def no_workflow(scene: Scene) -> None:
    (scene.store / "workflows" / "tiny.json").unlink()


def no_record(scene: Scene) -> None:
    (scene.run_dir / "events.jsonl").unlink()


def led_out(scene: Scene) -> None:
    path = scene.store / "workflows" / "tiny.json"
    outside = scene.root.parent / "outside.json"
    path.rename(outside)
    path.symlink_to(outside)


@each(
    "scenery, said",
    [
        (changed_workflow, "have changed: {project_root}/.loom/workflows/tiny.json"),
        (no_workflow, "tiny.json is gone"),
        (no_record, "names its workflow"),
        (led_out, "leads out of the project"),
    ],
)
def test_a_plan_is_not_made_of_something_else(begun: Scene, scenery: Callable[[Scene], None], said: str) -> None:
    """Where its sources are not what they were, the plan stays damaged, that is said, and nothing is written."""
    (begun.run_dir / "plan.json").write_text("{")
    scenery(begun)
    before = fingerprint(begun.run_dir)
    _, made = restored(begun)
    assert isinstance(made.plan, LoomError)
    assert (made.plan.code, said in made.plan.why) == ("PLAN_LOST", True), made.plan.why
    assert fingerprint(begun.run_dir) == before


def test_state_and_plan_are_mended_together(begun: Scene) -> None:
    for name in ("state.json", "plan.json"):
        (begun.run_dir / name).write_text("{")
    refrozen(begun)
    assert begun.event_names()[-2:] == ["state.restored", "plan.restored"]
    assert find.find(begun.space()).how == "bound"
    assert begun.space().store.read(begun.run_dir.name).state["status"] == "in_progress"


def test_a_resume_writes_a_migrated_plan(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older plan is read as today's everywhere, and written so by the next resume, its original kept (D56)."""
    old = (begun.run_dir / "plan.json").read_bytes()
    monkeypatch.setattr(frozen_plan, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(frozen_plan, "MIGRATIONS", {1: [Step("mark it", lambda raw: {**raw, "x-marked": True})]})
    assert begun.space().store.read(begun.run_dir.name).plan["x-marked"] is True
    assert (begun.run_dir / "plan.json").read_bytes() == old
    for _ in range(2):
        resume.resume(begun.space())
    assert json.loads((begun.run_dir / "plan.json").read_bytes())["x-marked"] is True
    assert (begun.run_dir / "plan.v1.backup.json").read_bytes() == old
    assert begun.event_names().count("plan.migrated") == 1
    assert len(list(begun.run_dir.glob("plan.*.json"))) == 1


# ---- What this machine alone knows.


@each("damage", [b"", b"{", b"[]", b"{}", b"\xff", b'{"session_id": 5}', b'{"run_id": "other"}'])
def test_a_damaged_binding_is_refused_said_and_mended(begun: Scene, damage: bytes) -> None:
    """The session drives nothing by it, `done` says why and what helps, and that helps."""
    path = begun.store / "local" / "sessions" / f"{SESSION}.json"
    path.write_bytes(damage)
    ended = begun.loomctl("done", "--note", "x")
    assert ended.code == 3
    for words in ("NOT_BOUND", str(path), "damaged", f"hint: loomctl resume {begun.handle}"):
        assert words in ended.stderr
    assert begun.loomctl("resume", begun.run_dir.name).code == 0
    assert begun.loomctl("done", given="made").code == 0


@each("damage", [b"", b"{", b"[]", b'{"artifacts": 5, "epoch": "x"}', b"\xff"])
def test_a_damaged_note_of_what_was_given_costs_a_repetition(begun: Scene, damage: bytes) -> None:  # D15
    path = begun.store / "local" / "primed" / f"{SESSION}.json"
    path.write_bytes(damage)
    assert "# The spec" in begun.hook("session-start", source="resume").context
    assert json.loads(path.read_bytes())["artifacts"]["spec"]["form"] == "full"


@each("damage", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_note_that_a_run_is_known_takes_trust_alone(begun: Scene, damage: bytes) -> None:  # D23
    run_id, store = begun.run_dir.name, str(begun.store)
    run_notes.note_known(run_id, store, trusted="abc")
    (path,) = (Path(os.environ["LOOM_STATE_HOME"]) / "runs").iterdir()
    path.write_bytes(damage)
    assert run_notes.is_known(run_id, store)
    assert run_notes.known(run_id, store) == {}
    resume.resume(begun.space())
    assert run_notes.known(run_id, store)["run_id"] == run_id


# ---- Kills.


@pytest.mark.slow
def test_a_kill_while_restoring_loses_nothing(begun: Scene) -> None:
    """Killed at any moment: the state is the broken one or the restored one, the broken bytes and the backup are there,
    and the next try ends well.
    """
    chance = random.Random(53)
    run_id, folder = begun.run_dir.name, begun.run_dir
    plan = (folder / "plan.json").read_bytes()
    good = json.loads((folder / "state.backup.json").read_bytes())["steps"]
    broken = (folder / "state.json").read_bytes()[:-100]
    for _ in range(16):
        for path in folder.glob("*.broken-*.json"):
            path.unlink()
        replace(folder / "state.json", broken)
        replace(folder / "plan.json", plan[:-50])
        kill_after(begun, chance.random() * 0.06, "state", "restore", run_id)
        now = (folder / "state.json").read_bytes()
        if now != broken:
            assert json.loads(now)["steps"] == good
            assert broken in [path.read_bytes() for path in folder.glob("state.broken-*.json")]
        assert json.loads((folder / "state.backup.json").read_bytes())["steps"] == good
        restored(begun, **({} if now == broken else {"source": "state.backup.json"}))
        assert begun.state["steps"] == good
        assert (folder / "plan.json").read_bytes() == plan
        assert broken in [path.read_bytes() for path in folder.glob("state.broken-*.json")]
    assert event_log.entries(str(folder))[1] == 0


# ---- FABER's runs, where they stand.


@each("layout", faber.LAYOUTS)
def test_a_damaged_state_of_fabers_is_put_back_in_its_place(scene: Scene, layout: str) -> None:
    """In its own form, with every key that Loom does not know; what was broken is kept with Loom's own files (D5)."""
    path = faber.lay(scene, layout, faber.in_object())
    assert scene.loomctl("resume").code == 0
    before = json.loads(path.read_bytes())
    assert scene.loomctl("done", given="built").code == 0
    path.write_text("{torn")
    answer = scene.loomctl("next")
    assert (answer.code, "loomctl debug state restore" in answer.stderr) == (5, True), answer.stderr
    listed = scene.loomctl("runs", "--json").json["runs"]
    ended = scene.loomctl("debug", "state", "restore", faber.RUN_ID, "--json")
    assert ended.code == 0, ended.stderr
    assert (ended.json["state"]["kept"], ended.json["plan"]) == ("faber-state.broken-1.json", None)
    after = json.loads(path.read_bytes())
    apart = ("revision", "ledger_head", "lease")  # which Loom counts on
    assert faber.unknown_is_kept({key: before[key] for key in before if key not in apart}, after) == []
    assert path.read_text(encoding="utf-8").startswith('{\n  "run_id"')
    assert (scene.store / "runs" / faber.RUN_ID / "faber-state.broken-1.json").read_text() == "{torn"
    assert [one["run_id"] for one in scene.loomctl("runs", "--json").json["runs"]] == [one["run_id"] for one in listed]
    assert scene.loomctl("resume").code == 0
    assert scene.loomctl("done", given="built again").code == 0


def test_a_state_of_fabers_that_loom_never_wrote_has_no_way_back(scene: Scene) -> None:
    """Loom keeps a backup of what it wrote itself; before that it says that there is none."""
    path = faber.lay(scene)
    path.write_text("{torn")
    ended = scene.loomctl("debug", "state", "restore", faber.RUN_ID)
    assert (ended.code, path.read_text()) == (5, "{torn")
    assert all(words in ended.stderr for words in ("NO_WAY_BACK", "faber-state.backup.json: it is missing"))


@each("tracked", [False, True])
def test_a_damaged_state_of_fabers_without_a_way_back_leads_to_none_that_is_not_there(
    scene: Scene, *, tracked: bool
) -> None:
    """No hint leads in a circle: git has it, or the check says what is wrong; and what is named is there."""
    path = faber.lay(scene)
    if tracked:
        (scene.root / ".git").rmdir()
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(scene.root)]
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "as FABER left it"]):
            subprocess.run([*git, *words], check=True)
    path.write_text("{torn")
    ended = scene.loomctl("debug", "state", "restore", faber.RUN_ID)
    assert "The run still has its plan" in ended.stderr
    assert (f"git checkout HEAD -- {path}" if tracked else f"loomctl check {path}") in ended.stderr
    answer = scene.loomctl("runs", "archive", faber.RUN_ID)
    assert "loomctl cancel" not in answer.stderr
    assert f"loomctl check {path}" in answer.stderr
    for ended in (answer, scene.loomctl("resume", faber.RUN_ID), scene.loomctl("show", "nothing")):
        assert str(scene.store / "runs") not in ended.stderr
    if tracked:
        subprocess.run(["git", "checkout", "--quiet", "HEAD", "--", str(path)], cwd=scene.root, check=True)
        assert scene.loomctl("resume", faber.RUN_ID).code == 0


def test_a_run_of_fabers_that_is_over_is_refused_with_its_own_place(scene: Scene) -> None:
    path = faber.lay(scene, state={**faber.in_list(), "status": "completed"})
    answer = scene.loomctl("resume", faber.RUN_ID)
    assert all(words in answer.stderr for words in ("BAD_STATUS", str(path)))


def test_a_run_of_fabers_that_is_gone_can_be_forgotten(scene: Scene) -> None:
    path = faber.lay(scene)
    assert scene.loomctl("resume").code == 0
    path.unlink()
    answer = scene.loomctl("runs", "rm", faber.RUN_ID, "--yes", "--force")
    folder = scene.store / "runs" / faber.RUN_ID
    assert f"rm -r {folder}" in answer.stderr
    shutil.rmtree(folder)
    assert scene.loomctl("runs", "--json").json["runs"] == []


@each("words", [["rm", "--yes", "--force"], ["archive", "--force"]])
def test_a_run_of_fabers_is_not_put_away(scene: Scene, words: list[str]) -> None:
    path = faber.lay(scene)
    before = path.read_bytes()
    ended = scene.loomctl("runs", words[0], faber.RUN_ID, *words[1:])
    assert (ended.code, "NOT_LOOMS" in ended.stderr) == (2, True), ended.stderr
    assert path.read_bytes() == before


def test_a_kept_state_that_is_broken_is_named_with_the_place_of_the_fault(halfway: Scene) -> None:
    """The state itself is whole, so the file that was asked for is what the error speaks of."""
    kept = halfway.run_dir / "state.replaced-1.json"
    kept.write_text('{"run_id": "x",\n  5}')
    with pytest.raises(LoomError, match="NO_WAY_BACK") as error:
        keep.examine_state(halfway.space(), halfway.run_dir.name, source=kept.name)
    assert error.value.where == f"{kept}:2:3"
    assert "state.replaced-1.json: the file is not JSON (at 2:3: " in error.value.why
