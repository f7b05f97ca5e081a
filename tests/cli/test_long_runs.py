"""Commands on a run whose older visits have left its state, and on one whose file of them is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl.runs.model.visit_list import Visits
from loomctl.runs.store import visit_files
from tests.cli.conftest import Cli
from tests.helpers.scenes import OTHER, Json, Scene
from tests.helpers.tables import each
from tests.helpers.verbs import lengthen

KEY = "build/make"


@pytest.fixture
def long(begun: Scene, cli: Cli) -> Scene:
    """A run of which 64 visits have left the state; the newest end was told by a command."""
    cli("done", given="Asked.").ends()
    lengthen(begun.space().store, begun.run_dir.name, KEY, 100)
    cli("done", given="Made.").ends()
    return begun


def file(scene: Scene) -> Path:
    return scene.run_dir / visit_files.FIRST


def steps(scene: Scene) -> list[Json]:
    return list(scene.space().store.read_state(scene.run_dir.name)["steps"])


# ---- A damaged file.


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"rank":9,', b'"rank":8,'))


def away(path: Path) -> None:
    path.rename(path.parent.parent.parent / "elsewhere")


def link(path: Path) -> None:
    away(path)
    path.symlink_to(path.parent.parent.parent / "elsewhere")


def folder(path: Path) -> None:
    away(path)
    path.mkdir()


@each("damage", [cut, change, away, link, folder])
def test_a_damaged_file_of_visits_is_a_finding_with_its_place(
    long: Scene, cli: Cli, damage: Callable[[Path], None]
) -> None:
    """Verify, check and the doctor name it, steps end all the same, and restore brings the visits back."""
    run_id, whole = long.run_dir.name, steps(long)
    assert cli("prove", "--log").ends().stdout.startswith("✓")
    cli("check", str(long.run_dir / "state.json")).ends()
    damage(file(long))
    told = cli("prove", "--log", "--json").ends(1).json["files"]["faults"]
    assert [(one["file"], one["code"]) for one in told] == [(visit_files.FIRST, "CHANGED_FILE")]
    assert damage is link or told[0]["why"].startswith("line 9:" if damage is change else "line 64:")
    said = cli("prove", "--log").ends(1).stdout
    assert said.endswith(f"  hint: loomctl debug state restore {run_id}\n")
    cli("prove", "--log", "--all").ends(1)
    assert "$.earlier" in cli("check", str(long.run_dir / "state.json")).ends(5).stdout
    (doctor,) = [one for one in cli("doctor", "--json").json["checks"] if one["id"] == "runs"]
    assert doctor["status"] == "WARN", doctor
    assert "earlier stages" in cli("next").ends().stdout
    assert "cannot be read" in cli("debug", "preamble", "--json").ends().json["warnings"][0]
    long.hook("session-start", session=OTHER, source="startup").ends()
    assert "loomctl done --for 101" in long.hook("session-start", source="compact").context
    for _ in range(2):
        cli("done", given="Go on.").ends()
        cli("resume", "--take-over", session=OTHER).ends()
        cli("resume", "--take-over").ends()
    cli("debug", "state", "restore", run_id, "--yes").ends()
    after = steps(long)
    assert after[len(whole) :] == steps(long)[len(whole) :]
    lost = len(whole) + 2 - len(after)
    assert lost == (0 if damage in (cut, change) else 62)
    lengthen(long.space().store, run_id, KEY, 70)
    assert steps(long)[: len(after) - 1] == after[:-1]
    cli("prove", "--log").ends()


def test_an_archive_brings_the_visits_back(long: Scene, cli: Cli) -> None:
    run_id, whole, data = long.run_dir.name, steps(long), file(long).read_bytes()
    cli("cancel", run_id).ends()
    archive = cli("runs", "archive", run_id, "--json").ends().json
    assert not long.run_dirs
    path = next((long.store / "archive").glob("*.tar.gz"))
    cli("runs", "restore", str(path)).ends()
    assert archive
    assert file(long).read_bytes() == data
    assert steps(long) == whole
    assert isinstance(long.space().store.read_state(run_id)["steps"], Visits)
    cli("prove", "--log", run_id).ends()
