"""The doctor as a whole: every check is told of, fenced from the others, shows nothing raw, and changes nothing."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from loomctl.care import doctor
from loomctl.care.project_checks import Patient
from loomctl.cli.doctor import CHECKS
from loomctl.kit.errors import LoomError
from loomctl.kit.trouble import FAIL, PASS, WARN, Finding, gathered
from tests.helpers.patients import patient
from tests.helpers.scenes import CHECKOUT, Scene, artifact, fingerprint


def test_every_check_is_documented_and_nothing_else_is() -> None:
    """The reference has one section for each check, in the order in which they are told."""
    text = (CHECKOUT / "docs/reference/doctor.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == list(CHECKS)


@pytest.mark.slow
def test_a_healthy_project_passes(scene: Scene) -> None:
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    findings = doctor.examine(patient(scene), CHECKS)
    assert {name: one.found for name, one in findings.items() if one.status == FAIL} == {}
    assert list(findings) == list(CHECKS)


def test_a_check_that_fails_itself_is_a_finding_and_the_others_run() -> None:

    def crashes(_: Patient) -> Finding:
        raise RuntimeError("nobody\nexpected this")

    def refuses(_: Patient) -> Finding:
        raise LoomError("BAD_THING", "it is bad", where="x.json", why="because", hint="loomctl paths")

    def fine(_: Patient) -> Finding:
        return Finding(PASS, "fine")

    found = doctor.examine(patient(Path("/")), {"a": crashes, "b": refuses, "c": fine})
    assert [one.status for one in found.values()] == [FAIL, FAIL, PASS]
    assert "RuntimeError: nobody expected this" in found["a"].found
    assert (found["b"].found, found["b"].hint, found["b"].details) == (
        "BAD_THING: it is bad",
        "loomctl paths",
        ["x.json", "because"],
    )


def test_nothing_raw_and_nothing_secret_is_shown() -> None:
    """Escape codes, line ends and tokens in whatever a check found are made visible, joined and masked."""
    token = "ghp_" + "a1B2" * 9
    raw = f"\x1b[31mred\nline {token}"

    def finds(_: Patient) -> Finding:
        return Finding(WARN, raw, raw, [raw], {"deep": [{"name": raw}], "count": 5})

    (found,) = doctor.examine(patient(Path("/")), {"a": finds}).values()
    shown = [found.found, found.hint, *found.details, found.facts["deep"][0]["name"]]
    for line in shown:
        assert "\x1b" not in line
        assert "\n" not in line
        assert token not in line
        assert "masked" in line
    assert found.facts["count"] == 5


@pytest.mark.slow
def test_the_doctor_changes_nothing(scene: Scene, user_folders: Path, tmp_path: Path) -> None:
    """Neither project nor home nor bundle nor the temporary folder has anything more, or anything newer, after it."""
    scene.write("spec.md", "# The spec\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    scene.write(".loom/config.yaml", "hook_budget: 5000\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        places = (scene.root, user_folders, temporary, CHECKOUT / "bin", CHECKOUT / "config")
        before = [fingerprint(place) for place in places]
        findings = doctor.examine(patient(scene), CHECKS)
        assert [fingerprint(place) for place in places] == before
    assert findings["round-trip"].status == PASS


def test_outside_of_a_project_all_checks_speak(tmp_path: Path) -> None:
    findings = doctor.examine(patient(tmp_path), CHECKS)
    assert [name for name, one in findings.items() if one.status == FAIL] == []
    assert findings["project"].found.startswith("no project")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow(quick=2)
@pytest.mark.parametrize("damage", ["file", "folders", "junk"])
def test_a_damaged_store_crashes_no_check(scene: Scene, damage: str) -> None:
    """Files in place of folders, folders in place of files, bytes in place of JSON: findings, never a crash."""
    scene.workflow()
    scene.begin()
    run = scene.run_dir
    if damage == "file":
        for name in ("sessions", "locks", "hooks", "primed"):
            place = scene.store / "local" / name
            place.rename(scene.root / name) if place.exists() else None
            place.write_text("no folder")
    elif damage == "folders":
        for place in (run / "plan.json", run / "state.backup.json", scene.store / ".gitignore"):
            place.unlink(missing_ok=True)
            place.mkdir()
        (scene.store / "config.yaml").mkdir()
    else:
        for place in [*scene.store.rglob("*.json"), scene.store / "config.yaml"]:
            place.write_bytes(b"\xff\x00{[")
    findings = doctor.examine(patient(scene), CHECKS)
    assert [one.found for one in findings.values() if "this check crashed" in one.found] == []
    expected = {"file": [], "folders": ["runs"], "junk": ["config", "states"]}[damage]
    assert [name for name, one in findings.items() if one.status == FAIL] == sorted(expected, key=list(CHECKS).index)


def test_no_home_no_path_and_no_directory_crash_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The barest surroundings: what cannot be found is said, and what hooks need fails."""
    for name in ("HOME", "LOOM_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = doctor.examine(patient(tmp_path, cwd=""), CHECKS)
    assert [one.found for one in findings.values() if "this check crashed" in one.found] == []
    assert (findings["project"].status, findings["known"].status) == (FAIL, FAIL)
    assert (findings["git"].status, findings["round-trip"].status) == (WARN, FAIL)
    assert "no Python 3.10 or newer on PATH" in " ".join(findings["round-trip"].details)


def test_the_worst_trouble_comes_first() -> None:
    """Its hint is the finding's; the others are lines with theirs; without any it is fine."""
    troubles = [Finding(WARN, "a", "do a"), Finding(FAIL, "b", "do b", ["more"]), Finding(FAIL, "c")]
    assert gathered(troubles, "fine", details=["d"]) == (FAIL, "b", "do b", ("more", "c", "a: do a", "d"), {})
    assert gathered([], "fine", details=["d"], facts={"x": 1}) == (PASS, "fine", "", ("d",), {"x": 1})


def test_a_patient_reads_each_state_once(scene: Scene) -> None:
    scene.workflow()
    scene.begin()
    examined = patient(scene)
    assert list(examined.active) == [scene.run_dir.name]
    name = scene.run_dir.name
    (scene.run_dir / "state.json").unlink()
    assert list(examined.active) == [name]
