"""The launcher keeps what tools gave: whole, in a file of its own, only for a bound session, and silently (D59)."""

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loomctl.runs.machine import launcher_files, local
from tests.launcher.world import SESSION, SHELLS, World, touch

AFTER = ("post-tool-use", "post-tool-use-failure")


@pytest.fixture
def project(world: World) -> Path:
    """A project with a bound session and a spool, in a world where Python was found before."""
    world.remember()
    for name in ("wc", "dd", "rm"):
        place = world.tools / name
        if not place.exists():
            place.symlink_to(shutil.which(name) or name)
    project = world.root / "prö ject"
    for folder in (".git", ".loom/local/hooks", ".loom/local/spool", "src/deep"):
        (project / folder).mkdir(parents=True)
    touch(project / ".loom/local/sessions" / f"{SESSION}.json", "{}")
    return project


def event(text: str = "x", tool: str = "Bash") -> bytes:
    told = {"session_id": SESSION, "hook_event_name": "PostToolUse", "tool_name": tool, "tool_input": {"command": "ls"}}
    return json.dumps({**told, "tool_response": {"stdout": text}}, separators=(",", ":")).encode()


def spooled(project: Path) -> list[Path]:
    return sorted((project / ".loom/local/spool").iterdir())


def test_an_event_is_kept_byte_for_byte_without_python(world: World, project: Path) -> None:
    given = event("Ünïcode \\ud800 \t") + b"\n\n\xff"
    how = {"cwd": project / "src/deep", "CLAUDE_CODE_SESSION_ID": SESSION, "stdin": given}
    for name, shell in itertools.product(AFTER, SHELLS):
        assert world.hook(name, **how, shell=shell) is None
        (path,) = spooled(project)
        assert path.read_bytes() == given
        assert path.stat().st_mode & 0o777 == 0o600
        assert launcher_files.sessions_of(path.name) == [SESSION]
        path.unlink()
        (project / ".loom/local/hooks" / name).unlink()


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_no_file_is_ever_written_over(world: World, project: Path, shell: list[str]) -> None:
    """Files, links, folders and pipes that have the name already: the event gets the next one."""
    program = world.bundle / "bin/loomctl"
    folder = project / ".loom/local/spool"
    target = touch(world.root / "target", "precious")
    prepare = (
        f"cd '{folder}'; echo old >{SESSION}-$$.json; ln -s '{target}' {SESSION}-$$-2.json; "
        f'ln -s nowhere {SESSION}-$$-3.json; mkdir {SESSION}-$$-4.json; echo $$ >../pid; exec "$@"'
    )
    where = shutil.which(shell[0]) or shell[0]
    ended = subprocess.run(
        ["/bin/sh", "-c", prepare, "sh", where, *shell[1:], str(program), "hook", "post-tool-use"],
        cwd=project,
        env=world.environ(CLAUDE_CODE_SESSION_ID=SESSION, PATH=f"{world.tools}:/bin:/usr/bin"),
        input=event(),
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    pid = (folder / "../pid").read_text().strip()
    assert (folder / f"{SESSION}-{pid}.json").read_text() == "old\n"
    assert (folder / f"{SESSION}-{pid}-5.json").read_bytes() == event()
    assert launcher_files.sessions_of(f"{SESSION}-{pid}-5.json")[-1] == SESSION
    assert target.read_text() == "precious"
    assert not (folder / "nowhere").exists()


UNKEPT: dict[str, Callable[[Path], object]] = {
    "no binding": lambda project: (project / ".loom/local/sessions" / f"{SESSION}.json").unlink(),
    "no spool": lambda project: (project / ".loom/local/spool").rmdir(),
    "no store": lambda project: shutil.rmtree(project / ".loom"),
}


@pytest.mark.parametrize("case", UNKEPT)
def test_where_nothing_is_recorded_nothing_is_written(world: World, project: Path, case: str) -> None:
    UNKEPT[case](project)
    before = sorted(project.rglob("*"))
    how = {"PATH": "/nonexistent", "CLAUDE_CODE_SESSION_ID": SESSION}
    for name in AFTER:
        assert world.hook(name, cwd=project, stdin=event("x" * 9000), **how) is None
    assert [path for path in sorted(project.rglob("*")) if path.parent.name != "hooks"] == [
        path for path in before if path.parent.name != "hooks"
    ]


def test_hooks_that_are_off_or_have_no_fit_session_or_spool_keep_nothing(world: World, project: Path) -> None:
    """By LOOM_DISABLED (D57)."""
    for name in AFTER:
        world.hook(name, cwd=project, stdin=event(), CLAUDE_CODE_SESSION_ID=SESSION, LOOM_DISABLED="1")
        assert spooled(project) == []
    for session in [None, "", "../x", "a b"]:
        assert world.hook("post-tool-use", cwd=project, stdin=event(), CLAUDE_CODE_SESSION_ID=session) is None
        assert spooled(project) == []
    (project / ".loom/local/spool").rmdir()
    touch(project / ".loom/local/spool")
    assert world.hook("post-tool-use", cwd=project, stdin=event(), CLAUDE_CODE_SESSION_ID=SESSION) is None


@pytest.mark.parametrize("link", [".loom", ".loom/local", ".loom/local/spool"])
def test_no_link_is_followed(world: World, project: Path, link: str) -> None:
    outside = world.root / "outside"
    shutil.move(project / link, outside)
    (project / link).symlink_to(outside)
    before = sorted(path for path in outside.rglob("*") if path.parent.name != "hooks")
    assert world.hook("post-tool-use", cwd=project, stdin=event(), CLAUDE_CODE_SESSION_ID=SESSION) is None
    assert sorted(path for path in outside.rglob("*") if path.parent.name != "hooks") == before


def test_what_cannot_be_kept_whole_is_not_kept(world: World, project: Path) -> None:
    for shell in SHELLS:
        where = shutil.which(shell[0]) or shell[0]
        command = [where, *shell[1:], str(world.bundle / "bin/loomctl"), "hook", "post-tool-use"]
        ended = subprocess.run(
            ["/bin/sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *command], cwd=project,
            env=world.environ(CLAUDE_CODE_SESSION_ID=SESSION), input=event("x" * 100_000), capture_output=True,
            check=False,
        )  # fmt: skip
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
        assert spooled(project) == []


CALLS = [
    ("Bash", 7_800, False), ("Bash", 8_100, True), ("BashOutput", 9_000, True), ("WebFetch", 9_000, True),
    ("WebSearch", 9_000, True), ("mcp__a__b", 9_000, True), ("Read", 90_000, False), ("Edit", 9_000, False),
    ("Write", 9_000, False), ("MultiEdit", 9_000, False), ("NotebookEdit", 9_000, False), ("Glob", 9_000, False),
    ("Grep", 9_000, False), ("TodoWrite", 9_000, False), ("Task", 9_000, False), ("Agent", 9_000, False),
]  # fmt: skip


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_python_starts_for_one_that_is_owed_something(world: World, project: Path, shell: list[str]) -> None:
    """What a compaction lost is put back with the next result, however small; the step is spooled all the same."""
    note = project / ".loom/local/owed" / f"{SESSION}.json"
    touch(note, "{}")
    how = {"cwd": project, "stdin": event("ok", "Read"), "CLAUDE_CODE_SESSION_ID": SESSION, "shell": shell}
    report = world.hook("post-tool-use", **how)
    (path,) = spooled(project)
    assert report is not None
    assert report["arguments"] == ["hook", "post-tool-use", str(path), "owed"]
    note.rename(note.with_suffix(".given"))
    assert world.hook("post-tool-use", **how) is None


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_python_starts_for_one_whose_files_have_changed(world: World, project: Path, shell: list[str]) -> None:
    """A file that the session was given is newer than the note of it, or gone; without a note nothing is known."""
    file = touch(project / "spec.md", "x")
    note = project / ".loom/local/primed" / f"{SESSION}.watch"
    how = {"cwd": project, "stdin": event("ok", "Read"), "CLAUDE_CODE_SESSION_ID": SESSION, "shell": shell}
    assert world.hook("post-tool-use", **how) is None
    touch(note, f"+{file}\n")
    os.utime(file, (1_000, 1_000))
    assert world.hook("post-tool-use", **how) is None
    os.utime(note, (900, 900))
    report = world.hook("post-tool-use", **how)
    assert report is not None
    assert report["arguments"][-1] == "edited"
    assert Path(report["arguments"][2]) in spooled(project)
    assert world.hook("post-tool-use-failure", **how) is None


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_python_starts_where_words_wait_for_the_sessions_run(world: World, project: Path, shell: list[str]) -> None:
    """Those of another run start none, nor do those that arrived; a prompt looks for those that were given, too."""
    touch(project / ".loom/local/sessions" / f"{SESSION}.json", '{\n "session_id": "s",\n "run_id": "run.1-a"\n}\n')
    how = {"cwd": project, "stdin": event("ok", "Read"), "CLAUDE_CODE_SESSION_ID": SESSION, "shell": shell}

    def starts() -> list[str | None]:
        reports = [world.hook(name, **how) for name in (*AFTER, "user-prompt-submit")]
        return [report["arguments"][-1] if report else None for report in reports]

    touch(project / ".loom/local/tells/run.2-b/000001.json", "{}")
    assert starts() == [None, None, None]
    note = touch(project / ".loom/local/tells/run.1-a/000001.json", "{}")
    assert starts() == ["told", "failed", "user-prompt-submit"]
    note = note.rename(note.with_suffix(".given"))
    assert starts() == [None, None, "user-prompt-submit"]
    note.rename(note.with_suffix(".kept"))
    assert starts() == [None, None, None]
    for damaged in ("{}", '{\n "run_id": "../run.1-a"\n}', ""):
        touch(project / ".loom/local/sessions" / f"{SESSION}.json", damaged)
        assert starts() == [None, None, None]


def test_python_starts_for_large_output_that_may_be_replaced(world: World, project: Path) -> None:
    """It gets the path of the file; everything else ends in the shell (D59)."""
    for tool, size, starts in CALLS:
        report = world.hook("post-tool-use", cwd=project, stdin=event("x" * size, tool), CLAUDE_CODE_SESSION_ID=SESSION)
        (path,) = spooled(project)
        path.unlink()
        started = ["hook", "post-tool-use", str(path)] if starts else None
        assert (report and report["arguments"]) == started, (tool, size)
    given = event("x" * 90_000)
    assert world.hook("post-tool-use-failure", cwd=project, stdin=given, CLAUDE_CODE_SESSION_ID=SESSION) is None
    given = event("x" * 9000).replace(b'"ls"', json.dumps('{"tool_name":"Read"}').encode())
    given = b'{"cwd":' + json.dumps('"tool_name":"Read"').encode() + b"," + given[1:]
    assert world.hook("post-tool-use", cwd=project, stdin=given, CLAUDE_CODE_SESSION_ID=SESSION) is not None


def test_a_python_that_fails_leaves_the_event_and_the_host_alone(world: World, project: Path) -> None:
    given = event("x" * 9000)
    ended = world.start(
        "hook", "post-tool-use", cwd=project, stdin=given, CLAUDE_CODE_SESSION_ID=SESSION, TEST_EXIT="2"
    )
    assert ended.returncode == 0
    assert spooled(project)[0].read_bytes() == given


def test_the_store_that_has_the_binding_gets_the_event(world: World, project: Path) -> None:
    """A nearer store without it, as of a sub-project, does not; and a worktree's events go to the main checkout."""
    for folder in ("src/.loom/local/spool", "src/.loom/local/sessions"):
        (project / folder).mkdir(parents=True)
    world.hook("post-tool-use", cwd=project / "src/deep", stdin=event(), CLAUDE_CODE_SESSION_ID=SESSION)
    assert len(spooled(project)) == 1
    assert list((project / "src/.loom/local/spool").iterdir()) == []
    linked = world.root / "linked"
    git = project / ".git/worktrees/linked"
    git.mkdir(parents=True)
    (linked / ".loom/local/spool").mkdir(parents=True)
    touch(linked / ".loom/local/sessions" / f"{SESSION}.json", "{}")
    (linked / ".git").write_text(f"gitdir: {git}\n")
    world.hook("post-tool-use", cwd=linked, stdin=event(), CLAUDE_CODE_SESSION_ID=SESSION)
    assert len(spooled(project)) == 2
    assert list((linked / ".loom/local/spool").iterdir()) == []


def test_eight_hooks_at_once_lose_nothing(world: World, project: Path) -> None:
    given = [event(f"{number:04} " + "y" * 3000) for number in range(80)]

    def fire(one: bytes) -> None:
        world.hook("post-tool-use", cwd=project, stdin=one, CLAUDE_CODE_SESSION_ID=SESSION)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fire, given))
    assert sorted(path.read_bytes() for path in spooled(project)) == sorted(given)


def test_binding_a_session_makes_the_room(tmp_path: Path) -> None:
    (tmp_path / ".loom/local").mkdir(parents=True)
    local.Local(str(tmp_path / ".loom/local")).bind(SESSION, "a-run", host="claude-code", pid=os.getpid())
    assert (tmp_path / ".loom/local/spool").stat().st_mode & 0o777 == 0o700
    (tmp_path / "other").mkdir()
    (tmp_path / "other/local").symlink_to(tmp_path / ".loom")
    launcher_files.make_rooms(str(tmp_path / "other/local"))
    assert not (tmp_path / ".loom/spool").exists()
