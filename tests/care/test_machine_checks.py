"""What the doctor finds of a machine: Python, environment, versions, disk, git."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loomctl import __version__
from loomctl.care import doctor
from loomctl.kit import machine
from loomctl.kit.machine import Room
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding
from tests.helpers.patients import copied_bundle, patient
from tests.helpers.scenes import CHECKOUT, SESSION, Scene
from tests.helpers.tables import each

NEWER, OLDER = "99.0.0", "0.0.1"
PLUGIN, HELPER = "claude plugin update loom@loom", "pipx upgrade loomctl"
CLONE = f"git -C {CHECKOUT} pull"  # this checkout, which a host would load in place


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ---- Python and the environment.


@each("remembered", [None, sys.executable, "/nonexistent/python", "/bin/sh", ""])
def test_python_is_told_with_the_one_that_hooks_remember(tmp_path: Path, remembered: str | None) -> None:
    """One that is gone is no trouble, a hook looks for the next; one that is there and does not start is."""
    cache = Path(machine.cache_home())
    shutil.rmtree(cache)
    if remembered is not None:
        cache.mkdir()
        (cache / "python").write_text(f"{remembered}\n")
    found = doctor.python(patient(tmp_path))
    assert found.status == (FAIL if remembered == "/bin/sh" else PASS)
    assert sys.executable in " ".join([found.found, *found.details])
    assert found.facts["remembered"] == (remembered or "")
    assert bool(found.details) == (remembered in ("/nonexistent/python", "/bin/sh"))
    assert found.hint == (f"rm {cache}/python" if remembered == "/bin/sh" else "")


def bare_environment(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin/python")


def test_an_environment_is_looked_into(tmp_path: Path) -> None:
    """One with every package passes; one without any fails with a line that makes it anew; none at all is a warning."""
    assert doctor.environment(patient(tmp_path)).status in (PASS, WARN)  # a developer's may be of other versions
    empty = tmp_path / "env of one's own"
    found = doctor.environment(patient(tmp_path, environment_python=bare_environment(empty)))
    assert (found.status, "click" in found.found) == (FAIL, True)
    assert any("ModuleNotFoundError" in line for line in found.details)
    command = ["/bin/sh", "-c", found.hint.partition(" && ")[0]]
    ended = subprocess.run(command, env={"PATH": os.defpath}, capture_output=True, check=True)
    assert (ended.stderr, empty.exists()) == (b"", False)
    found = doctor.environment(patient(tmp_path, environment_python=""))
    assert (found.status, found.hint) == (WARN, "loomctl --version")


@each("text", ["exit 1", "echo nonsense", "kill -9 $$"])
def test_an_environments_python_that_does_not_start_fails(tmp_path: Path, text: str) -> None:
    python = program(tmp_path / "env/bin/python", text)
    found = doctor.environment(patient(tmp_path, environment_python=str(python)))
    assert (found.status, "does not start" in found.found) == (FAIL, True)
    gone = doctor.environment(patient(tmp_path, environment_python=str(tmp_path / "none/bin/python")))
    assert gone.status == FAIL


ANSWERS: list[tuple[dict[str, object], str, str]] = [
    ({"broken": {}, "installed": {"click": "0.1"}}, WARN, "1 packages differ from requirements.lock"),
    ({"broken": {}, "installed": {}}, PASS, "all packages"),
    ({"broken": {"quickjs": "no"}, "installed": {}}, WARN, "defers all but simple conditions"),
    ({"broken": {"quickjs": "no", "yaml": "no"}, "installed": {}}, FAIL, "damaged: quickjs, yaml"),
]


@each("answer, status, words", ANSWERS)
def test_what_an_environment_answers_is_judged(
    tmp_path: Path, answer: dict[str, object], status: str, words: str
) -> None:
    """Other versions and a missing JavaScript engine warn; any other missing package fails."""
    answered = json.dumps({**answer, "python": "3.11.0"})
    python = program(tmp_path / "env/bin/python", f"cat >/dev/null; echo '{answered}'")
    found = doctor.environment(patient(tmp_path, environment_python=str(python)))
    assert (found.status, words in found.found) == (status, True), found


# ---- Versions.


def of_version(bundle: Path, version: str) -> Path:
    manifest = bundle / "plugin.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": version}))
    return bundle / "bin/loomctl"


@pytest.fixture(autouse=True)
def _own_path(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("path")))


def versions(where: Scene | Path, **how: object) -> Finding:
    return doctor.versions(patient(where, **how))  # type: ignore[arg-type]


def path(where: Scene | Path, **how: object) -> Finding:
    return doctor.path(patient(where, **how))  # type: ignore[arg-type]


def test_without_a_loomctl_on_path_the_doctor_says_how_to_put_it_there(tmp_path: Path) -> None:
    found = path(tmp_path)
    assert (found.status, found.hint) == (WARN, f"{CHECKOUT}/bin/loomctl install")


def test_one_version_everywhere_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle's own launcher may stand first on PATH, by a link too; relative entries do not count."""
    assert versions(tmp_path).status == PASS
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/loomctl").symlink_to(CHECKOUT / "bin/loomctl")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert path(tmp_path).status == PASS
    program(tmp_path / "x/loomctl", f"touch {tmp_path}/ran; echo loomctl, version 9")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"x:.:{tmp_path / 'bin'}")
    assert path(tmp_path).status == PASS
    assert not (tmp_path / "ran").exists()


@each("version", [NEWER, OLDER])
def test_a_bundle_of_another_version_warns(tmp_path: Path, version: str) -> None:
    """The package and the manifest beside it disagree; a manifest that cannot be read fails."""
    bundle = copied_bundle(tmp_path / "bundle")
    of_version(bundle, version)
    found = versions(tmp_path, bundle=bundle)
    assert (found.status, found.found) == (WARN, f"the bundle is {version}, but its loomctl is {__version__}")
    (bundle / "plugin.json").write_text("[]")
    assert versions(tmp_path, bundle=bundle).status == FAIL


@each(
    "version, helper_first, hint",
    [(OLDER, True, HELPER), (NEWER, True, CLONE), (OLDER, False, PLUGIN), (NEWER, False, CLONE)],
)
def test_another_loomctl_that_comes_first_on_path_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, helper_first: bool, hint: str
) -> None:
    """A plugin's bin stands last on PATH: a helper is asked, a launcher's bundle is read; the older is updated."""
    if helper_first:
        first = program(tmp_path / "pipx/loomctl", f"echo 'loomctl, version {version}'")
    else:
        first = of_version(copied_bundle(tmp_path / "other"), version)
    monkeypatch.setenv("PATH", str(first.parent))
    found = path(tmp_path)
    assert (found.status, found.hint) == (WARN, hint)
    assert f"is {version}, this one is {__version__}: {first}" in found.found


def test_a_helper_of_its_own_names_itself_to_be_updated(scene: Scene) -> None:
    """Seen from a pipx install, newer hooks and newer runs ask for another helper, older hooks for another plugin."""
    scene.workflow()
    scene.begin()
    bundle = copied_bundle(scene.root.parent / "loomctl/_bundle")
    beat = scene.store / "local/hooks/stop"
    for version, hint in ((NEWER, HELPER), (OLDER, PLUGIN)):
        beat.write_text(f"{version} {SESSION} x\n")
        assert versions(scene, bundle=bundle).hint == hint
    beat.unlink()
    of_version(bundle, NEWER)
    assert versions(scene, bundle=bundle).hint == HELPER


def test_older_hooks_are_updated_by_the_assistant_that_has_a_copy_of_its_own(scene: Scene) -> None:
    """Its user may have updated the clone, which mends nothing there."""
    scene.workflow()
    scene.begin()
    for copy, hint in (
        (".gemini/extensions/loom", "gemini extensions update loom"),
        (".codex/plugins/cache/loom/loom/0.1.0", "codex plugin marketplace upgrade; codex plugin add loom@loom"),
    ):
        launcher = scene.root.parent / copy / "bin/loomctl"
        (scene.store / "local/hooks/stop").write_text(f"{OLDER} {SESSION} {launcher}\n")
        assert versions(scene).hint == hint


def test_a_launcher_is_not_started_for_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = of_version(copied_bundle(tmp_path / "other"), OLDER)
    program(launcher, f"touch {tmp_path}/ran")
    monkeypatch.setenv("PATH", str(launcher.parent))
    assert path(tmp_path).status == WARN
    assert not (tmp_path / "ran").exists()


@each("text", ["exit 1", "echo", "exec /nonexistent"])
def test_one_that_does_not_tell_its_version_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    first = program(tmp_path / "a b/loomctl", text)
    monkeypatch.setenv("PATH", str(first.parent))
    found = path(tmp_path)
    assert (found.status, found.hint) == (WARN, f"'{first}' --version")


def test_what_a_project_brings_along_is_not_run(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.workflow()
    first = program(scene.root / "bin/loomctl", f"touch {scene.root}/ran; echo version {__version__}")
    monkeypatch.setenv("PATH", str(first.parent))
    assert path(scene).status == WARN
    assert not (scene.root / "ran").exists()


def test_hooks_of_another_version_warn(scene: Scene) -> None:
    """What fired last in this project was another plugin's; it is named, and never started."""
    scene.workflow()
    scene.begin()
    for event, at, version in (("stop", 100, OLDER), ("session-start", 200, NEWER)):
        beat = scene.store / "local/hooks" / event
        beat.write_text(f"{version} {SESSION} {scene.root}/evil\n")
        os.utime(beat, (at, at))
    program(scene.root / "evil", f"touch {scene.root}/ran")
    found = versions(scene)
    assert found.found == f"the hooks that last fired here are {NEWER}, but this loomctl is {__version__}"
    assert (found.status, found.hint, found.details) == (WARN, CLONE, (f"they are {scene.root}/evil",))
    assert not (scene.root / "ran").exists()


@each("version, status", [(NEWER, WARN), (OLDER, PASS), (__version__, PASS), ("odd", PASS)])
def test_a_run_that_a_newer_loom_worked_on_warns(scene: Scene, version: str, status: str) -> None:
    scene.workflow()
    scene.begin()
    state = scene.state
    state["sessions"]["session_history"][-1]["environment"]["loom"] = version
    scene.edit(sessions=state["sessions"])
    found = versions(scene)
    assert found.status == status
    assert (f"loomctl {version} last worked on the run" in found.found) == (status == WARN)


# ---- The disk, git.


@each(
    "room, status, words",
    [
        (Room(10**12, 10**6), PASS, "1.0 TB are free"),
        (Room(10**12, None), PASS, "free"),
        (Room(150_000_000, 10**6), WARN, "150.0 MB are free where Loom writes"),
        (Room(9_000_000, 10**6), FAIL, "only 9.0 MB are free"),
        (Room(0, None), FAIL, "only 0 bytes are free"),
        (Room(10**12, 0), FAIL, "no more files can be made"),
    ],
)
def test_a_disk_that_is_nearly_full_fails(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, room: Room, status: str, words: str
) -> None:
    scene.workflow()
    monkeypatch.setattr(machine, "room", lambda _: room)
    found = doctor.disk(patient(scene))
    assert (found.status, words in found.found) == (status, True), found


def test_what_takes_room_is_told(scene: Scene) -> None:
    """Runs, outputs, local, and the cache with its environments; links are not followed."""
    scene.workflow()
    scene.begin()
    scene.write(f".loom/runs/{scene.run_dir.name}/outputs/big.txt", "x" * 50_000)
    (scene.store / "local/link").symlink_to("/usr")
    cache = Path(machine.cache_home())
    shutil.rmtree(cache)
    (cache / "env-0123-3.11").mkdir(parents=True)
    (cache / "env-0123-3.11/file").write_text("y" * 3000)
    found = doctor.disk(patient(scene))
    store = found.facts["store"]
    assert store["outputs"] == 50_000
    assert 50_000 < store["runs"] < store["bytes"] < 200_000
    assert found.facts["cache"] == {"bytes": 3000, "environments": 1}
    assert "outputs 50.0 kB" in found.details[0]
    assert found.details[1].endswith("3.0 kB, 1 environment")


def test_git_is_asked_for_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.git_found(patient(tmp_path)).status == WARN
    program(tmp_path / "bin/git", "exit 3")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert doctor.git_found(patient(tmp_path)).status == WARN
    program(tmp_path / "bin/git", "echo git version 7")
    assert doctor.git_found(patient(tmp_path)) == Finding(PASS, f"git version 7 at {tmp_path}/bin/git")
