"""An older Loom that meets what today's wrote says so, says what to do, and changes nothing (D56).

The older one is the code of the release itself, out of the history.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loomctl.kit.errors import EXIT_SKEW
from loomctl.runs.model.state import SCHEMA_VERSION
from tests.helpers.scenes import Ended
from tests.upgrade.recorded import RELEASES, Place, changed, release, source_of

ANSWER = "It is made, and the tests pass."
# What would write, and what shows how a run stands.
COMMANDS = (
    *("show RUN", "status RUN", "next RUN", "done RUN", "undo RUN", "resume RUN", "resume RUN --take-over"),
    *("pause RUN", "cancel RUN", "rewind RUN --to 001", "fork RUN --at 001", "trust RUN --yes", "push RUN --yes"),
    *("stages RUN", "verify RUN", "prove RUN", "report RUN --json", "preamble RUN", "state restore RUN --yes"),
)
FETCHED = ("/.git/objects/", "/.git/refs/loom/incoming/")  # to be looked at


OLDER = [name for name in RELEASES if release(name).schema_version < SCHEMA_VERSION]


@pytest.fixture(scope="module", params=OLDER)
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Give a release's name, and the main file of its code."""
    return request.param, source_of(release(request.param).commit, tmp_path_factory.mktemp("older"))


@pytest.fixture
def place(older: tuple[str, Path], tmp_path: Path) -> Place:
    return Place(release(older[0]), tmp_path / "place")


def went_on(place: Place, name: str, given: str = ANSWER) -> str:
    """Let today's Loom end a step of a run; gives its id."""
    run_id = place.run_id(name)
    place.loomctl("resume", run_id, "--take-over").ends(0)
    place.loomctl("done", run_id, given=given).ends(0)
    return run_id


def says_so(ended: Ended, code: str = "SCHEMA_TOO_NEW") -> None:
    """Hold that a command ended as the table of exit codes says, and named the command that updates."""
    said = ended.stderr or json.dumps(ended.json["error"])
    assert ended.code == EXIT_SKEW, ended
    assert code in said, ended
    assert "claude plugin update loom@loom" in said, ended


@pytest.mark.slow
def test_a_run_that_went_on_is_refused_by_each_command(place: Place, older: tuple[str, Path]) -> None:
    run_id = went_on(place, "under-way")
    before = place.files()
    for words in COMMANDS:
        says_so(place.loomctl(*words.replace("RUN", run_id).split(), given=ANSWER, main=older[1]))
    assert changed(place, before) == []


EVENTS: dict[str, dict[str, Any]] = {
    "session-start": {"source": "resume"},
    "user-prompt-submit": {"prompt": "go on"},
    "pre-compact": {"trigger": "auto"},
    "stop": {"last_assistant_message": ANSWER, "stop_hook_active": False},
    "session-end": {"reason": "logout"},
}


def test_hooks_of_an_older_plugin_leave_the_run_of_their_session_as_it_is(
    place: Place, older: tuple[str, Path]
) -> None:
    """The command line was updated and drives the run, the plugin was not: its hooks say so at the session's start."""
    session = "5f0c9a52-0000-4000-8000-000000000009"
    run_id = place.run_id("under-way")
    place.loomctl("resume", run_id, session=session).ends(0)
    before = place.files()
    for event, told in EVENTS.items():
        name = "".join(word.capitalize() for word in event.split("-"))
        body = {"session_id": session, "cwd": str(place.shop), "transcript_path": "", "hook_event_name": name, **told}
        ended = place.loomctl("hook", event, given=json.dumps(body), session=session, main=older[1]).ends(0)
        if event == "session-start":
            assert f"this loomctl knows {release(older[0]).schema_version}" in ended.stdout, ended
    assert changed(place, before, "/.loom/local/") == []
    place.loomctl("done", run_id, given=ANSWER, session=session).ends(0)


@pytest.mark.slow
def test_what_is_pushed_is_not_taken_and_not_written_over(place: Place, older: tuple[str, Path]) -> None:
    """By a clone that has the run as the older Loom pushed it, and one that does not know it.

    The long run's old visits stand in a file that the older Loom has no place for: it must not take the run for
    damaged, for then it says how to remove it from the remote.
    """
    second, third = place.clone("second"), place.clone("third")
    for name in ("under-way", "long"):
        place.loomctl("pull", place.run_id(name), at=second, main=older[1]).ends(0)
    went_on(place, "under-way")
    went_on(place, "long", '{"preferred_next_label": "fix"}')
    assert (place.run_dir("long") / "stages/visits.jsonl").is_file()
    for name in ("under-way", "long"):
        place.loomctl("push", place.run_id(name), "--yes").ends(0)
    before = place.files()
    for name in ("under-way", "long"):
        run_id = place.run_id(name)
        for at in (second, third):
            says_so(place.loomctl("pull", run_id, at=at, main=older[1]), "NEWER_HANDOFF")
            says_so(place.loomctl("pull", run_id, "--take-theirs", at=at, main=older[1]), "NEWER_HANDOFF")
        says_so(place.loomctl("push", run_id, "--yes", at=second, main=older[1]), "NEWER_HANDOFF")
    assert changed(place, before, *FETCHED) == []


@pytest.mark.slow
def test_a_new_run_is_refused_and_the_older_runs_beside_it_go_on(place: Place, older: tuple[str, Path]) -> None:
    """Two Looms in one store: what the older one knows it works on, and what it cannot read it names and keeps."""
    new = place.loomctl("run", "a new thing", "--workflow", "feature", "--json").ends(0).json["run_id"]
    folder = place.shop / ".loom/runs" / new
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    says_so(place.loomctl("show", new, main=older[1]))
    place.loomctl("resume", place.run_id("rewound"), "--take-over", main=older[1]).ends(0)
    place.loomctl("done", place.run_id("rewound"), given=ANSWER, main=older[1]).ends(0)
    assert place.loomctl("gc", main=older[1]).code == 1
    assert place.loomctl("doctor", main=older[1]).code == 1
    assert {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    place.loomctl("done", new, given=ANSWER).ends(0)
    place.loomctl("done", place.run_id("rewound"), given=ANSWER).ends(0)
