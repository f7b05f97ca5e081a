"""FABER's state file while others write it, when it is gone, and with what belongs to FABER beside it (D5, D53)."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit.errors import LoomError
from loomctl.runs.store.events import Event
from tests.helpers import faber
from tests.helpers.errors import refusal
from tests.helpers.faber import HANDLE, LAYOUTS, RUN_ID, lay, unknown_is_kept
from tests.helpers.scenes import OTHER, Json, Scene


def read(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return state


def noted(state: Json) -> tuple[Json, list[Event]]:
    return {**state, "context": {**state["context"], "seen": True}}, [Event("tick", {})]


# ---- Somebody else writes it, too.


@pytest.mark.parametrize("era", faber.ERAS)
def test_what_faber_wrote_meanwhile_is_not_lost(scene: Scene, era: str) -> None:
    """A change that takes long meets a file that is another by then: both are in it afterwards."""
    path = lay(scene, state=faber.ERAS[era]())
    assert scene.loomctl("resume").code == 0

    def slow(state: Json) -> tuple[Json, list[Event]]:
        theirs = read(path)
        theirs["by_faber"] = {"new": [1, 2]}
        theirs["pr_number"] = 43
        theirs.setdefault("steps", []).insert(0, {"step_id": "fetch-2", "phase": "frame", "status": "success"})
        path.write_text(json.dumps(theirs, indent=2), encoding="utf-8")
        return noted(state)

    before = read(path)
    scene.space().store.update(RUN_ID, slow)
    after = read(path)
    assert (after["by_faber"], after["pr_number"]) == ({"new": [1, 2]}, 43)
    assert after["context"]["seen"] is True
    assert (after["steps"][0]["step_id"], after["steps"][1:]) == ("fetch-2", before.get("steps", []))
    assert after["revision"] == before["revision"] + 1


def test_a_state_that_goes_or_breaks_meanwhile_is_not_written_over(scene: Scene) -> None:
    path = lay(scene)
    assert scene.loomctl("resume").code == 0
    whole = path.read_bytes()

    def breaks(data: bytes | None) -> LoomError:
        def change(state: Json) -> tuple[Json, list[Event]]:
            path.unlink()
            if data is not None:
                path.write_bytes(data)
            return noted(state)

        return refusal(scene.space().store.update, RUN_ID, change)

    assert (breaks(b"{torn").code, path.read_bytes()) == ("BAD_JSON", b"{torn")
    path.write_bytes(whole)
    assert breaks(None).code == "NO_STATE"
    assert not path.exists()
    path.write_bytes(whole)
    assert scene.loomctl("done", given="built").code == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_lock_of_fabers_own_writer_is_held_too(scene: Scene, layout: str) -> None:
    path = lay(scene, layout)
    assert scene.loomctl("resume").code == 0
    lock = path.with_name(f"{path.name}.lock")
    assert not lock.exists()
    lock.write_bytes(b"of FABER's")
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = refusal(scene.space().store.update, RUN_ID, noted, patience=0)
        assert (refused.code, refused.where) == ("HELD", str(lock))
    scene.space().store.update(RUN_ID, noted, patience=0)
    assert lock.read_bytes() == b"of FABER's"
    lock.unlink()
    inside: list[bool] = []

    def change(state: Json) -> tuple[Json, list[Event]]:
        inside.append(lock.exists())
        return noted(state)

    scene.space().store.update(RUN_ID, change)
    assert (inside, lock.exists()) == ([True], False)


def test_a_link_in_the_locks_place_is_not_followed(scene: Scene, tmp_path: Path) -> None:
    path = lay(scene)
    assert scene.loomctl("resume").code == 0
    path.with_name("state.json.lock").symlink_to(tmp_path / "outside")
    refused = scene.loomctl("done", given="built")
    assert (refused.code, "UNSAFE_LINK" in refused.stderr) == (5, True)
    assert not (tmp_path / "outside").exists()


def test_many_at_once_lose_nothing(scene: Scene) -> None:
    path = lay(scene)
    assert scene.loomctl("resume").code == 0
    writer = (
        "import fcntl,json,os,sys\n"
        "path = sys.argv[1]\n"
        "for n in range(40):\n"
        '    with open(path + ".lock", "a") as lock:\n'
        "        fcntl.flock(lock, fcntl.LOCK_EX)\n"
        '        state = json.load(open(path)); state.setdefault("by_faber", []).append(n)\n'
        '        open(path + ".new", "w").write(json.dumps(state)); os.replace(path + ".new", path)\n'
    )
    path.with_name("state.json.lock").touch()  # as FABER leaves it
    theirs = subprocess.Popen([sys.executable, "-c", writer, str(path)])
    ended = [scene.loomctl("resume", RUN_ID, "--take-over", session=f"{OTHER[:-1]}{n}") for n in range(5)]
    assert theirs.wait() == 0
    assert [one.code for one in ended] == [0] * 5
    after = read(path)
    assert (after["by_faber"], len(after["sessions"]["session_history"])) == (list(range(40)), 6)


# ---- What stands beside it, and how.


def test_the_file_keeps_its_mode(scene: Scene) -> None:
    path = lay(scene)
    backup = scene.store / "runs" / RUN_ID / "faber-state.backup.json"
    for mode in (0o600, 0o640, 0o664, 0o644):
        path.chmod(mode)
        assert (scene.loomctl("resume").code, path.stat().st_mode & 0o777) == (0, mode)
        assert backup.stat().st_mode & 0o777 == mode
        path.unlink()
        assert (scene.loomctl("debug", "state", "restore", RUN_ID).code, path.stat().st_mode & 0o777) == (0, mode)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_fabers_beside_the_state_stay(scene: Scene, layout: str) -> None:
    path = lay(scene, layout)
    names = [f"{path.name}.tmp", f"{path.name}.tmp.123", f"{path.name}.backup"]
    for name in names:
        path.with_name(name).write_text("FABER's")
    there = sorted(os.listdir(path.parent))
    assert (scene.loomctl("resume").code, scene.loomctl("done", given="built").code) == (0, 0)
    assert sorted(os.listdir(path.parent)) == there
    assert {path.with_name(name).read_text() for name in names} == {"FABER's"}


# ---- It is gone.


@pytest.mark.parametrize(("layout", "whole_folder"), list(zip(LAYOUTS, itertools.cycle([False, True]), strict=False)))
def test_a_state_that_is_gone_is_said_and_can_be_put_back(scene: Scene, layout: str, *, whole_folder: bool) -> None:
    """FABER's states may be tracked: another branch takes them away. Loom knows the run by its backup, and says so."""
    path = lay(scene, layout, faber.in_object())
    assert scene.loomctl("resume").code == 0
    before = read(path)
    assert scene.loomctl("done", given="built").code == 0
    if whole_folder:
        shutil.rmtree(scene.root / ".fractary")
    else:
        path.unlink()
    (listed,) = scene.loomctl("runs", "--json").json["runs"]
    assert (listed["run_id"], listed["status"]) == (RUN_ID, None)
    assert "NO_STATE" in listed["error"]
    for command in (["next"], ["show"], ["resume"], ["resume", RUN_ID]):
        refused = scene.loomctl(*command)
        assert (refused.code, "NO_STATE" in refused.stderr) == (5, True), (command, refused)
        assert str(path) in refused.stderr
        assert f"loomctl debug state restore {HANDLE}" in refused.stderr
    told = scene.hook("session-start", source="startup")
    assert HANDLE in told.message, told
    assert not path.exists()
    assert scene.loomctl("debug", "state", "restore", RUN_ID).code == 0
    after = read(path)
    apart = ("revision", "ledger_head", "lease")
    assert unknown_is_kept({key: before[key] for key in before if key not in apart}, after) == []
    assert (scene.loomctl("next").code, scene.loomctl("done", given="built again").code) == (0, 0)


def test_a_run_that_was_over_is_not_missed(scene: Scene) -> None:
    """Its state went with another branch: no list and no session is bothered; by its name it can be put back."""
    path = lay(scene)
    assert (scene.loomctl("resume").code, scene.loomctl("cancel").code) == (0, 0)
    path.unlink()
    assert scene.loomctl("runs", "--json").json["runs"] == []
    assert scene.hook("session-start", session=OTHER, source="startup").stdout == ""
    assert scene.loomctl("debug", "state", "restore", RUN_ID).code == 0
    assert path.exists()


@pytest.mark.slow
def test_a_state_in_another_worktree_is_not_gone(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "shop")
    (scene.root / ".git").rmdir()
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(scene.root)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "begun"], check=True)
    other = tmp_path / "other"
    subprocess.run([*git, "worktree", "add", "--quiet", "-b", "work", str(other)], check=True)
    path = lay(scene)
    (scene.root / ".fractary").rename(other / ".fractary")
    for name in ("logs", "specs"):
        (scene.root / name).rename(other / name)
    assert scene.loomctl("resume", cwd=other).code == 0
    assert not path.exists()
    assert scene.loomctl("runs", "--json").json["runs"] == []
    assert scene.hook("session-start", session=OTHER, source="startup").stdout == ""
    assert [one["run_id"] for one in scene.loomctl("runs", "--json", cwd=other).json["runs"]] == [RUN_ID]


# ---- Ids with slashes.

UUID = "2f1c0b7e-9a54-4a51-8a55-0b1f6f6f8a11"


@pytest.mark.parametrize("folder", [".fractary/runs", ".fractary/faber/runs"])
def test_an_id_of_organisation_project_and_uuid_goes_by_its_last_part(scene: Scene, folder: str) -> None:
    named = f"acme/shop/{UUID}"
    state = {**faber.in_list(), "run_id": named}
    path = scene.write(f"{folder}/{named}/state.json", json.dumps(state))
    scene.write("specs/7.md", "# Dark mode\n")
    scene.write(f"{folder}/{named}/plan.json", json.dumps(faber.PLAN))
    second = UUID.replace("2f", "3f")
    scene.write(f"{folder}/acme/shop/{second}/state.json", json.dumps({**state, "run_id": f"acme/shop/{second}"}))
    assert [one["run_id"] for one in scene.loomctl("runs", "--json").json["runs"]] == [UUID, second]
    assert (scene.loomctl("check", str(path)).code, scene.loomctl("show", session=None).code) == (0, 3)
    scene.write(".fractary/faber/runs/.active-run-id", f"{named}\n")
    assert scene.loomctl("show", "--json", session=None).json["run_id"] == UUID
    for name in (named, UUID):
        resumed = scene.loomctl("resume", name, "--json")
        assert resumed.code == 0, resumed.stderr
        assert resumed.json["step"]["id"] == "build/implement"
    assert (scene.loomctl("done", given="built").code, read(path)["run_id"]) == (0, named)
    assert read(path)["current_step"] == "push-build"
    path.unlink()
    assert (scene.loomctl("debug", "state", "restore", named).code, read(path)["run_id"]) == (0, named)


def test_what_looks_like_a_path_is_no_run_and_an_id_goes_by_its_last_part_in_a_check(scene: Scene) -> None:
    lay(scene)
    for named in ("../../etc/passwd", "/etc/passwd", "acme//x", "acme/../x", "a/b/"):
        refused = scene.loomctl("show", named)
        assert (refused.code, "BAD_ID" in refused.stderr) == (2, True)
    path = lay(scene, state={**faber.in_list(), "run_id": f"acme/shop/{RUN_ID}"})
    assert (scene.loomctl("resume", RUN_ID).code, scene.loomctl("check", str(path)).code) == (0, 0)
