"""A session comes to a run and leaves it: its record, its machine, and the records that others left open (D24-D26)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from loomctl.runs import leases
from loomctl.runs.model import sessions
from loomctl.runs.project import Workspace
from tests.helpers.scenes import OTHER, SESSION, Json, Scene

ALLOWED = {
    *("hostname", "platform", "cwd", "project_root", "git_branch", "git_commit", "dirty", "python", "loom"),
    *("cores", "memory"),
}


def enter(space: Workspace, state: Json, source: str, **more: str) -> tuple[Json, list[str]]:
    """Enter a run; gives the state and the names of what happened."""
    state, happened = leases.enter(space, state, source, leases.surroundings(space), **more)
    return state, [event.name for event in happened]


@pytest.mark.shows("No variable is written into a run")
def test_a_record_says_where_and_nothing_of_the_environment(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record holds machine, folder, git and Python, and no variable or token of the user's (D25)."""
    monkeypatch.setenv("MY_SECRET_TOKEN", "do-not-record-me")
    monkeypatch.setenv("LOOM_HOSTNAME", "machine-a")
    state, names = enter(begun.space(OTHER), begun.state, "startup")
    record = sessions.history(state)[-1]
    assert (names, record["environment"]["hostname"]) == (["session.started"], "machine-a")
    assert set(record["environment"]) <= ALLOWED
    assert "do-not-record-me" not in str(state)
    assert (record["host"], record["ended_at"], record["compactions"]) == ("claude-code", None, [])


def test_the_machine_names_itself_and_a_caller_without_a_session_leaves_no_record(begun: Scene) -> None:
    """Without an override the record names the system's own host, and cores and memory off the hook path."""
    environment = sessions.history(begun.state)[0]["environment"]
    assert (environment["hostname"], environment["cores"]) == (socket.gethostname(), os.cpu_count())
    hooked = leases.surroundings(begun.space(on_hook_path=True))
    assert "cores" not in hooked
    assert "memory" not in hooked
    state, names = enter(begun.space(None), begun.state, "startup")
    assert (state, names) == (begun.state, [])


@pytest.mark.parametrize(
    ("source", "event", "resumes", "compactions"),
    [
        ("resume", "session.resumed", 1, 0),
        ("compact", "session.compacted", 0, 1),
        ("startup", "session.resumed", 0, 0),
        ("bound", None, 0, 0),
    ],
)
def test_a_known_session_keeps_its_one_record(
    begun: Scene, source: str, event: str | None, resumes: int, compactions: int
) -> None:
    """Resume and compaction count in the session's own record; there is one record for each session (D24)."""
    state, names = enter(begun.space(), begun.state, source)
    (record,) = sessions.history(state)
    assert names == ([event] if event else [])
    assert (record["resumes"], len(record["compactions"])) == (resumes, compactions)


def test_a_compaction_empties_what_is_in_context_and_leaving_closes_the_record(begun: Scene) -> None:
    """After a compaction nothing of the run counts as in context; who asked for it, and the host's reason, are kept."""
    state, _ = enter(begun.space(), begun.state, "compact", compaction="manual")
    assert state["context_metadata"]["artifacts_in_context"] == []
    assert sessions.history(state)[0]["compactions"][0]["trigger"] == "manual"
    leases.leave(begun.space(), begun.state["run_id"], "prompt_input_exit")
    (record,) = sessions.history(begun.state)
    assert record["end_reason"] == "prompt_input_exit"
    assert record["ended_at"]
    assert begun.event_names()[-1] == "session.ended"


def test_a_record_that_was_left_open_is_closed_as_lost_and_once(begun: Scene) -> None:
    """A session that was killed is closed with its last activity when the next one opens (D24)."""
    begun.space().local.mark_ended(SESSION)  # its process is gone
    last = sessions.history(begun.state)[0]["last_activity"]
    state, names = enter(begun.space(OTHER), begun.state, "startup")
    lost, opened = sessions.history(state)
    assert (lost["end_reason"], lost["ended_at"]) == ("lost", last)
    assert opened["end_reason"] is None
    assert names == ["session.lost", "session.started"]
    state, _ = enter(begun.space(OTHER), begun.state, "startup")
    _, names = enter(begun.space("third"), state, "startup")
    assert names == ["session.lost", "session.started"]  # OTHER was never bound, so it does not live either
    assert [record["end_reason"] for record in sessions.history(state)] == ["lost", None]


def test_a_session_that_lives_is_not_lost(begun: Scene) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        begun.space().local.bind(SESSION, begun.state["run_id"], host="claude-code", pid=child.pid)
        _, names = enter(begun.space(OTHER), begun.state, "startup")
        assert names == ["session.started"]
    finally:
        child.kill()
        child.wait()
        assert child.stdin is not None
        child.stdin.close()
    _, names = enter(begun.space(OTHER), begun.state, "startup")
    assert names == ["session.lost", "session.started"]


def test_a_git_project_is_recorded_with_its_commit(scene: Scene) -> None:
    """Branch, commit and dirt come from git; Loom's own folder makes no tree dirty (D25)."""
    (scene.root / ".git").rmdir()
    scene.write("a.txt", "a")
    own = ["-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q", "-b", "trunk"], ["add", "a.txt"], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", *own, *words], cwd=scene.root, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=scene.root, check=True, capture_output=True, text=True)
    scene.workflow()
    scene.begin()
    (record,) = sessions.history(scene.state)
    found = record["environment"]
    assert (found["git_branch"], found["git_commit"]) == ("trunk", commit.stdout.strip())
    assert found["dirty"] in (False, None)  # None: git was slower than 100 ms
    scene.write("b.txt", "b")
    assert leases.surroundings(scene.space())["dirty"] in (True, None)
