"""What the doctor finds in a project: its store, settings, runs, states, locks, and what this machine knows of them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.care import project_checks
from loomctl.kit import machine
from loomctl.kit.processes import Lock
from loomctl.kit.trouble import FAIL, PASS, WARN
from loomctl.runs import config as settings
from tests.helpers import repositories
from tests.helpers.faber import HANDLE, LAYOUTS, lay
from tests.helpers.patients import patient
from tests.helpers.scenes import CHECKOUT, OTHER, Scene, fingerprint, handle
from tests.helpers.tables import each


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin()
    return scene


# ---- The project.


def test_which_project_and_why(begun: Scene, tmp_path: Path) -> None:
    found = project_checks.project(patient(begun))
    assert (found.status, found.found) == (PASS, f"project {begun.root}")
    assert found.details == (f"store: {begun.store}",)
    named = patient(begun, cwd=str(tmp_path))
    assert "found from the folder that the assistant was started in" in project_checks.project(named).details[-1]
    (tmp_path / "empty").mkdir()
    assert "hooks stay silent" in project_checks.project(patient(tmp_path / "empty")).found
    gone = project_checks.project(patient(begun, cwd=""))
    assert (gone.status, "is gone" in gone.found) == (FAIL, True)


def test_a_worktrees_store_is_the_main_checkouts(tmp_path: Path) -> None:
    main = repositories.make(tmp_path / "main")
    (main / ".loom").mkdir()
    (main / ".loom/config.yaml").write_text("commit_runs: true\n")
    settings.load(str(main / ".loom"), with_yaml=True)
    repositories.git(main, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    found = project_checks.project(patient(tmp_path / "linked"))
    assert found.found == f"project {tmp_path}/linked"
    for words in ("main checkout", "commit_runs"):
        assert any(words in line for line in found.details)


@each("link", [".loom", ".loom/local", ".loom/runs"])
def test_a_link_in_the_stores_place_fails(begun: Scene, link: str) -> None:
    shutil.move(begun.root / link, begun.root / "elsewhere")
    (begun.root / link).symlink_to(begun.root / "elsewhere")
    found = project_checks.project(patient(begun))
    assert (found.status, found.hint) == (FAIL, f"ls -l {begun.root / link}")


def test_a_file_in_the_stores_place_fails(tmp_path: Path) -> None:
    (tmp_path / ".loom").write_text("mine")
    found = project_checks.project(patient(tmp_path))
    assert (found.status, found.hint) == (FAIL, f"mv {tmp_path}/.loom {tmp_path}/.loom.aside")
    assert found.found == f"a file stands where Loom keeps its folder: {tmp_path}/.loom"


def test_a_store_that_cannot_be_written_warns(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("/runs") and real(path, mode))
    found = project_checks.project(patient(begun))
    assert (found.status, "cannot write to" in found.found) == (WARN, True)


def test_a_missing_gitignore_warns_where_there_are_runs(begun: Scene) -> None:
    (begun.store / ".gitignore").write_text("# mine\n")
    assert project_checks.project(patient(begun)).status == PASS
    (begun.store / ".gitignore").unlink()
    assert project_checks.project(patient(begun)).status == WARN
    shutil.rmtree(begun.store / "runs")
    assert project_checks.project(patient(begun)).status == PASS


# ---- Settings.

SETTINGS: list[tuple[str, str, str]] = [
    ("", PASS, "settings are valid"),
    ("hook_budget: 5000\n", PASS, "settings"),
    ("hook_budget: [\n", FAIL, ""),
    ("hook_budget: much\n", FAIL, "hook_budget is 'much'"),
    ("- a\n- b\n", FAIL, "settings must map names to values"),
    ("hook_bugdet: 5000\n", WARN, "'hook_bugdet' is not a setting"),
    ("extra_roots: [/]\n", WARN, "your own config.yaml only"),
    ("hook_bugdet: 1\nhook_budget: 1\n", FAIL, "hook_budget is 1"),
]


@each("text, status, words", SETTINGS)
def test_settings_are_judged_without_being_taken_over(begun: Scene, text: str, status: str, words: str) -> None:
    """What cannot be used fails, what is no setting warns, and what hooks use stays as it was."""
    begun.write(".loom/config.yaml", text)
    compiled = (begun.store / "local/config.json").read_bytes()
    found = project_checks.config(patient(begun))
    assert (found.status, words in found.found) == (status, True), found
    assert bool(found.hint) == (status != PASS)
    assert (begun.store / "local/config.json").read_bytes() == compiled


def test_the_users_settings_are_read_too(begun: Scene) -> None:
    path = Path(settings.user_config())
    path.parent.mkdir(parents=True)
    path.write_text("command_budget: none\n")
    found = project_checks.config(patient(begun))
    assert (found.status, str(path) in " ".join([found.hint, *found.details])) == (FAIL, True)


def test_without_an_environment_changed_settings_warn(begun: Scene) -> None:
    begun.write(".loom/config.yaml", "hook_budget: 5000\n")
    bare = patient(begun, environment_python="")
    assert project_checks.config(bare).status == WARN
    settings.load(str(begun.store), with_yaml=True)
    assert project_checks.config(bare).status == PASS


# ---- Runs, states, what is known.


def test_active_runs_are_told_with_their_standing(begun: Scene) -> None:
    name = begun.handle
    found = project_checks.runs(patient(begun))
    assert found.found == "1 active run of 1"
    assert found.details == (f"{name}: in_progress, at frame/ask, driven by this session",)
    begun.begin("another", session=None)
    assert "loomctl resume RUN continues one" in project_checks.runs(patient(begun, session_id=OTHER)).found
    for folder in begun.run_dirs:
        state = (folder / "state.json").read_text()
        (folder / "state.json").write_text(state.replace('"in_progress"', '"completed"', 1))
    assert project_checks.runs(patient(begun)).found.startswith("0 active runs of 2")


@each("damage", ["gone", "{", "[]"])
def test_an_active_run_without_its_plan_fails(begun: Scene, damage: str) -> None:
    plan = begun.run_dir / "plan.json"
    plan.unlink() if damage == "gone" else plan.write_text(damage)
    found = project_checks.runs(patient(begun))
    assert (found.status, "cannot go on" in found.found) == (FAIL, True)


def a_link(scene: Scene) -> None:
    shutil.move(scene.run_dir, scene.root / "elsewhere")
    (scene.store / "runs" / "shop-x-run-2026-01-01T00-00-00Z").symlink_to(scene.root / "elsewhere")


STATES: dict[str, tuple[Callable[[Scene], object], str]] = {
    "torn": (lambda scene: (scene.run_dir / "state.json").write_text("{"), "loomctl debug state restore RUN"),
    "empty": (lambda scene: (scene.run_dir / "state.json").write_text(""), "loomctl debug state restore RUN"),
    "wrong types": (lambda scene: scene.edit(phases=5), "loomctl debug state restore RUN"),
    "newer": (lambda scene: scene.edit(schema_version=99), f"git -C {CHECKOUT} pull"),
    "another's": (lambda scene: scene.edit(run_id="shop-x-run-2026-01-01T00-00-00Z"), ""),
    "a link": (a_link, ""),
}


@each("name", STATES)
def test_a_state_that_cannot_be_used_fails_with_the_way_back(begun: Scene, name: str) -> None:
    """Each is named with a command; where the state before says that the run is over it is a warning."""
    damage, hint = STATES[name]
    assert project_checks.states(patient(begun)).status == PASS
    damage(begun)
    found = project_checks.states(patient(begun))
    run_id = begun.run_dir.name
    assert (found.status, begun.space().store.handle(run_id) in found.found, bool(found.hint)) == (FAIL, True, True)
    assert found.facts["unreadable"] == [run_id]
    assert not hint or found.hint == hint.replace("RUN", handle(run_id))
    backup = begun.run_dir / "state.backup.json"
    text = backup.read_text()
    backup.write_text(re.sub('"status": "[a-z_]+",\n "created', '"status": "completed",\n "created', text))
    if name != "a link":
        assert project_checks.states(patient(begun)).status == WARN


def test_a_run_of_another_machine_warns(begun: Scene) -> None:  # D23
    assert project_checks.known(patient(begun)).status == PASS
    shutil.rmtree(os.environ["LOOM_STATE_HOME"])
    found = project_checks.known(patient(begun))
    assert (found.status, found.hint) == (WARN, f"loomctl resume {begun.handle}")


@each("named, home, status", [("/dev/null/nowhere", None, FAIL), ("", "", FAIL), ("relative", None, WARN)])
def test_a_machine_that_cannot_remember_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, home: str | None, status: str
) -> None:
    monkeypatch.setenv("LOOM_STATE_HOME", named)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    found = project_checks.known(patient(tmp_path))
    assert (found.status, bool(found.hint)) == (status, True)


def test_a_state_folder_that_others_could_have_filled_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_STATE_HOME", str(tmp_path))
    tmp_path.chmod(0o777)
    found = project_checks.known(patient(tmp_path / "p"))
    assert (found.status, found.hint) == (FAIL, f"ls -ld {tmp_path}")


def test_a_state_folder_that_may_not_be_written_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: path != str(Path(machine.state_home()).parent))
    assert project_checks.known(patient(tmp_path)).status == FAIL


@each("layout", LAYOUTS)
def test_a_project_of_fabers_is_examined_as_it_is(scene: Scene, layout: str) -> None:
    """Its run is active, and no stranger's plan is read; once taken up, nothing is left to say (D5)."""
    lay(scene, layout)
    before = fingerprint(scene.root)
    found = [check(patient(scene)) for check in (project_checks.project, project_checks.runs, project_checks.states)]
    assert [one.status for one in found] == [PASS, PASS, PASS]
    assert found[1].found == "1 active run of 1"
    assert project_checks.known(patient(scene)).hint == f"loomctl resume {HANDLE}"
    assert fingerprint(scene.root) == before
    assert scene.loomctl("resume").code == 0
    assert [one(patient(scene)).status for one in (project_checks.runs, project_checks.known)] == [PASS, PASS]


@each("data", ['{"torn', "[]", '{"id": "x"}'])
def test_a_damaged_plan_of_fabers_is_a_failure(scene: Scene, data: str) -> None:
    """The next command would refuse it, taken up here or not; hooks go on with what was frozen."""
    lay(scene)
    scene.write(LAYOUTS["runs"][1], data)
    assert project_checks.runs(patient(scene)).status == FAIL
    lay(scene)
    assert scene.loomctl("resume").code == 0
    scene.write(LAYOUTS["runs"][1], data)
    assert scene.loomctl("next").code == 5
    found = project_checks.runs(patient(scene))
    assert (found.status, str(scene.root / LAYOUTS["runs"][1]) in " ".join(found.details)) == (FAIL, True)
    assert found.hint


@each("layout", LAYOUTS)
def test_a_state_of_fabers_that_is_gone_is_a_failure_with_the_way_back(scene: Scene, layout: str) -> None:
    """Another branch was checked out, or somebody removed it: as for a state of Loom's own."""
    path = lay(scene, layout)
    assert scene.loomctl("resume").code == 0
    path.unlink()
    found = project_checks.states(patient(scene))
    assert (found.status, found.hint) == (FAIL, f"loomctl debug state restore {HANDLE}")
    assert str(path) in " ".join(found.details)


# ---- Locks.


def test_a_lock_is_told_with_its_holder(begun: Scene) -> None:
    """A free one, a file that is no lock and a link are nothing; the question itself holds nobody up."""
    folder = begun.store / "local/locks"
    assert project_checks.locks(patient(begun)).status == PASS
    (folder / "link.lock").symlink_to("/etc/hostname")
    with Lock(str(folder / f"{begun.run_dir.name}.lock"), patience=0):
        found = project_checks.locks(patient(begun))
        assert (found.status, found.hint, len(found.details)) == (WARN, "loomctl doctor", 1)
        assert f"{begun.handle}: process {os.getpid()} (taken just now)" in found.details[0]
    assert project_checks.locks(patient(begun)).status == PASS
    with Lock(str(folder / f"{begun.run_dir.name}.lock"), patience=0):
        pass
