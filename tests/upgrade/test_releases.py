"""What each release wrote opens, goes on, is pushed and pulled by today's Loom (D56)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from loomctl import __version__
from loomctl.runs.model.state import SCHEMA_VERSION
from tests.helpers.repositories import git
from tests.helpers.scenes import CHECKOUT
from tests.upgrade.recorded import RELEASES, Place, changed, of_each_run, release

ANSWER = "It is made, and the tests pass."
BETTER = json.dumps({"outcome": "succeeded", "context_updates": {"score": 9}})
Step = tuple[tuple[str, ...], str | None]
DONE: Step = (("done",), ANSWER)
RESUME: Step = (("resume", "--take-over"), None)  # whoever drove it then, and whether they live
# How each run goes on to its end.
TO_THE_END: dict[str, tuple[Step, ...]] = {
    "under-way": (RESUME, DONE, DONE, DONE),
    "forked": (RESUME, DONE),
    "failed": (RESUME, DONE, DONE, DONE),
    "cancelled": ((("resume", "--reopen", "--take-over"), None), DONE, DONE, DONE),
    "asked": (RESUME, (("choose", "[A] Approve"), None)),
    "untrusted": (RESUME, (("trust", "--yes"), None), (("next",), None), DONE),
    "paused": (RESUME, DONE, DONE, DONE),
    "parallel": (RESUME, (("done", "--branch", "web"), ANSWER), (("next",), None), DONE),
    "rewound": (RESUME, DONE, DONE, DONE),
    "long": (RESUME, (("done",), BETTER)),
    "completed": (),
}
READING = (
    ("show",),
    ("status",),
    ("steps",),
    ("events",),
    ("prove", "--log"),
    ("report", "--json"),
)


def test_each_release_that_was_made_is_recorded() -> None:
    """The one that is made just now comes after its tag."""
    made = {tag[1:] for tag in git(CHECKOUT, "tag", "--list", "v*.*.*").splitlines()}
    assert made - {__version__} <= set(RELEASES)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(release(request.param), tmp_path / "place")


of_each_release = pytest.mark.parametrize("place", RELEASES, indirect=True)


def of_runs(*left_out: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("place", "name"), of_each_run(*left_out), indirect=["place"])


def words_for(place: Place, name: str, words: tuple[str, ...]) -> list[str]:
    """Put the run into a command line: behind the choice, for `choose` takes that first."""
    verb, *more = words
    run_id = place.run_id(name)
    return [verb, *more, run_id] if verb in ("choose", "context") else [verb, run_id, *more]


def well(place: Place, name: str) -> None:
    """Hold that a run's log and files are what was written."""
    verdict = place.loomctl("prove", place.run_id(name), "--log", "--json")
    assert verdict.code == 0, verdict


def test_the_table_names_each_recorded_run() -> None:
    for one in RELEASES:
        assert set(release(one).runs) == {*TO_THE_END, "archived"}


@pytest.mark.slow(quick=1)
@of_runs()
def test_reading_says_all_is_well_and_writes_nothing(place: Place, name: str) -> None:
    before = place.files()
    for words in READING:
        place.loomctl(*words_for(place, name, words)).ends(0)
    place.loomctl("check", *(str(place.run_dir(name) / file) for file in ("state.json", "plan.json"))).ends(0)
    assert changed(place, before) == []


@pytest.mark.slow(quick=1)
@of_runs()
def test_a_run_goes_on_to_its_end(place: Place, name: str) -> None:
    before = (place.run_dir(name) / "state.json").read_bytes()
    for words, given in TO_THE_END[name]:
        place.loomctl(*words_for(place, name, words), given=given).ends(0)
    assert place.state(name)["status"] == "completed"
    well(place, name)
    written = json.loads(before)["schema_version"]
    if TO_THE_END[name] and written < SCHEMA_VERSION:
        assert (place.run_dir(name) / f"state.v{written}.backup.json").read_bytes() == before
        assert place.state(name)["schema_version"] == SCHEMA_VERSION


GOING_BACK = {"under-way": "ask", "rewound": "ask", "paused": "ask", "failed": "ask", "long": "010"}


@pytest.mark.slow(quick=1)
@of_runs(*(set(TO_THE_END) - set(GOING_BACK)))
def test_undo_rewind_and_fork_work_on_what_a_release_wrote(place: Place, name: str) -> None:
    run_id, stage = place.run_id(name), GOING_BACK[name]
    place.loomctl("resume", run_id, "--take-over").ends(0)
    forked = place.loomctl("fork", run_id, "--at", stage, "--json").ends(0).json["run_id"]
    place.loomctl("undo", run_id).ends(0)
    place.loomctl("done", run_id, given='{"preferred_next_label": "fix"}' if name == "long" else ANSWER).ends(0)
    place.loomctl("rewind", run_id, "--to", stage).ends(0)
    well(place, name)
    place.loomctl("resume", forked).ends(0)
    place.loomctl("done", forked, given=ANSWER if name != "long" else BETTER).ends(0)
    place.loomctl("prove", forked, "--log").ends(0)


@pytest.mark.slow
@of_each_release
def test_the_doctor_names_nothing_but_that_the_project_was_moved(place: Place) -> None:
    rooms = ("project", "config", "runs", "states", "ledgers", "blobs", "known", "tool-calls", "locks")
    told = place.loomctl("doctor", "--json").json["checks"]
    found = {one["id"]: one["status"] for one in told if one["id"] in rooms}
    assert found == {**dict.fromkeys(rooms, "PASS"), "known": "WARN"}


@of_each_release
def test_an_archive_of_a_release_opens(place: Place) -> None:
    place.loomctl("runs", "restore", place.run_id("archived")).ends(0)
    assert place.state("archived")["status"] == "completed"
    well(place, "archived")
    value = place.loomctl("context", "get", "shelves", place.run_id("archived"))
    assert value.stdout.strip() == "x" * 110_000


@pytest.mark.slow
@of_each_release
def test_a_large_value_is_read_as_what_it_is(place: Place) -> None:
    place.loomctl("resume", place.run_id("under-way")).ends(0)
    value = place.loomctl("context", "get", "palette", place.run_id("under-way")).ends(0)
    assert len(json.loads(value.stdout)["colours"]) == 15_000


@pytest.mark.slow
@of_each_release
def test_what_a_release_pushed_is_pulled_goes_on_and_comes_back(place: Place) -> None:
    """By a second clone that never saw it; the first has it from there, the release's own files at both ends."""
    second = place.clone("second")
    pushed = [name for name, told in place.release.runs.items() if told.get("pushed")]
    place.loomctl("pull", "--all", at=second).ends(0)
    assert {path.name for path in (second / ".loom/runs").iterdir()} == {place.run_id(name) for name in pushed}
    for name in pushed:
        place.loomctl("prove", place.run_id(name), "--log", at=second).ends(0)
        for words, given in TO_THE_END[name]:
            place.loomctl(*words_for(place, name, words), given=given, at=second).ends(0)
        place.loomctl("push", place.run_id(name), "--yes", at=second).ends(0)
        place.loomctl("pull", place.run_id(name)).ends(0)
        assert place.state(name)["status"] == "completed"
        well(place, name)


@pytest.mark.slow
@of_each_release
def test_a_push_goes_on_from_what_the_release_pushed(place: Place) -> None:
    run_id = place.run_id("rewound")
    ref = f"refs/loom/runs/{run_id}"
    before = subprocess.check_output(["git", "rev-parse", ref], cwd=place.remote, text=True).strip()
    place.loomctl("resume", run_id, "--take-over").ends(0)
    place.loomctl("done", run_id, given=ANSWER).ends(0)
    place.loomctl("push", run_id, "--yes").ends(0)
    parent = subprocess.check_output(["git", "rev-parse", f"{ref}^"], cwd=place.remote, text=True).strip()
    assert parent == before
