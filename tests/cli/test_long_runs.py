"""Commands on a run whose older visits have left its state, and on one whose file of them is damaged."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.runs.model import visits
from loomctl.runs.model.visit_list import Visits
from loomctl.runs.store import visit_files
from loomctl.runs.store.store import Store
from tests.cli.conftest import Cli
from tests.helpers.scenes import OTHER, Json, Scene
from tests.helpers.tables import each
from tests.helpers.verbs import kept_visits, lengthen

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
    assert said.endswith(f"  hint: loomctl debug state restore {long.space().store.handle(run_id)}\n")
    cli("prove", "--log", "--all").ends(1)
    assert "$.earlier" in cli("check", str(long.run_dir / "state.json")).ends(5).stdout
    (doctor,) = [one for one in cli("doctor", "--json").json["checks"] if one["id"] == "runs"]
    assert doctor["status"] == "WARN", doctor
    assert "earlier steps" in cli("next").ends().stdout
    assert "cannot read the earlier steps" in cli("debug", "preamble", "--json").ends().json["warnings"][0]
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


# ---- The same, whether visits moved or not.

FAN: Json = {"id": "fan", "parallel": {"branches": [{"id": "api", "steps": [{"id": "look", "prompt": "Look."}]}]}}
TELL = (("show",), ("why", "3"), ("stages",), ("dump",), ("report",), ("status",), ("preamble",), ("context", "show"))
VERBS: dict[str, list[tuple[str, ...]]] = {
    "undo": [("undo",)],
    "a rewind to the parallel step": [("rewind", "--to", "1")],
    "a rewind past the boundary": [("rewind", "--to", "9")],
    "a rewind within the state": [("rewind", "--to", "130")],
    "a fork at an old stage": [("fork", "--at", "9")],
    "a fork at a new stage": [("fork", "--at", "130")],
}


def as_told(scene: Scene, cli: Cli) -> list[str]:
    """Give what commands tell of each run, without ids and times."""
    found = []
    for folder in scene.run_dirs:
        for words in TELL:
            said = cli(*words, "--json")
            text = f"{words} {said.code} {said.stdout}".replace(str(scene.root), "").replace(folder.name, "RUN")
            text = re.sub(r"add-dark-mode-[0-9a-z]{4,8}\b", "HANDLE", text)
            text = re.sub(r"\d{4}-\d\d-\d\dT[\d.:-]+Z", "AT", text)
            text = re.sub(r'("\w*(?:seconds|tokens|bytes|used|most|about)": |\b1(?=\d{9}\b))\d+', r"\1N", text)
            text = re.sub(r"(1N,?\s*)+", "1N", text)  # the seconds in which something happened, each once
            found.append(re.sub(r"\b[0-9a-f]{16,64}\b", "HASH", text))
    return found


def ranks(scene: Scene) -> list[list[int]]:
    """Give the ranks of the visits of each run's states, kept ones too."""
    store = scene.space().store
    found = [kept_visits(store, folder.name).items() for folder in scene.run_dirs]
    return [[one["rank"] for one in held] for states in found for _, held in sorted(states)]


def went(scene: Scene, cli: Cli, name: str, kept: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], bool]:
    """Go a long way from a parallel step on, with so many visits in the state, and do a verb; tells what is so then."""
    monkeypatch.setattr(Store, "kept_visits", kept)
    scene.workflow(phases={"build": {"steps": [FAN, {"id": "make", "prompt": "Make it."}]}})
    run_id = scene.begin().run.run_id
    cli("next", "--branch", "api").ends()
    cli("done", "--branch", "api", given="Looked.").ends()
    store = scene.space().store
    while len(steps(scene)) < 150:
        lengthen(store, run_id, KEY, len(visits.recent(store.read_state(run_id))))
    did_move = isinstance(store.read_state(run_id)["steps"], Visits)
    told: list[Any] = [len(steps(scene)), *as_told(scene, cli)]
    for words in VERBS[name]:
        ended = cli(words[0], run_id, *words[1:]) if words[0] != "undo" else cli("undo", run_id)
        told += [ended.code, *as_told(scene, cli)]
        told += ranks(scene)
        told.append(cli("debug", "state", "restore", run_id, "--from", "state.backup.json", "--yes").ends().code)
        told += [*ranks(scene), *as_told(scene, cli)]
    return told, did_move


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("name", VERBS)
def test_commands_tell_the_same_whether_visits_moved_or_not(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = []
    for top, kept in (("a", visit_files.MOST), ("b", 10**9)):
        scene = Scene(tmp_path / top / "shop")
        found.append(went(scene, Cli(scene, monkeypatch, capfd), name, kept, monkeypatch))
    (moved, did), (whole, did_not) = found
    assert (did, did_not) == (True, False)
    for one, other in zip(moved, whole, strict=True):
        assert one == other
