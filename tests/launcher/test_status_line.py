"""The status line: printed by the shell from what was prepared, made anew by Python only where it must be."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loomctl import __version__
from tests.launcher.world import PYTHON, SESSION, SHELLS, World

# What drawing a prepared line may use of a system.
TOOLS = ("cat", "find")
RUN = "shop-258-run-2026-01-01T00-00-00Z"
FORMS = ("24 loom 258 · build/make@1 ·", "15 loom build/make", "6 loom…")
LINE = "loom 258 · build/make@1 ·"


@pytest.fixture
def project(world: World) -> Path:
    """A project with a run, a bound session, and its line as it was prepared ten seconds ago."""
    world.remember()
    project = world.root / "prö ject"
    for folder in (".git", ".loom/local/hooks", ".loom/local/sessions", ".loom/local/statusline", "src/deep"):
        (project / folder).mkdir(parents=True)
    run = project / ".loom/runs" / RUN
    run.mkdir(parents=True)
    (project / f".loom/local/sessions/{SESSION}.json").write_text("{}")
    (run / "state.json").write_text("{}")
    aged(run / "state.json", 600)
    prepare(project)
    return project


def aged(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def prepare(project: Path, *lines: str, version: str = __version__, state: Path | None = None, age: float = 10) -> Path:
    path = project / ".loom/local/statusline" / SESSION
    state = state or project / ".loom/runs" / RUN / "state.json"
    path.write_text("\n".join([f"loom {version}", str(state), f"saved {RUN} 0 0 0", *(lines or FORMS)]) + "\n")
    aged(path, age)
    return path


def draw(world: World, where: Path, given: object = None, *, shell: list[str] | None = None, **how: str | None) -> str:
    """Draw the line as a host does, which tells the session on standard input alone; gives what was printed."""
    told = {"session_id": SESSION, "transcript_path": "", "cwd": str(where)} if given is None else given
    data = told if isinstance(told, bytes) else json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
    ended = world.start("statusline", cwd=where, stdin=data, shell=shell, settings=how)
    assert (ended.returncode, ended.stderr) == (0, b"")
    return ended.stdout.decode()


def only_the_shell(world: World) -> None:
    (world.kept / "python").unlink()
    for path in world.tools.iterdir():
        if path.name != "sh":
            path.unlink()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (world.tools / name).symlink_to(found)


def went_to_python(printed: str) -> bool:
    """Tell whether the package was started: it reports how."""
    return printed.startswith('{"arguments": ["statusline"]')


def test_a_prepared_line_is_printed_without_python_in_the_form_that_fits(world: World, project: Path) -> None:
    only_the_shell(world)
    for shell in SHELLS:
        for spaced in [False, True]:
            told = {"hook_event_name": "Status", "session_id": SESSION, "cwd": 'a "quoted\\ path', "model": {"id": "x"}}
            data = json.dumps(told, separators=(", ", ": ") if spaced else (",", ":"), indent=1 if spaced else None)
            assert draw(world, project / "src/deep", data.encode(), shell=shell) == f"{LINE}\n"
    for shell in SHELLS:
        for columns in (None, "", "80", "24", "200", "junk", "-3", "0"):
            assert draw(world, project, shell=shell, COLUMNS=columns) == f"{LINE}\n"
        for columns, line in (("23", FORMS[1]), ("15", FORMS[1]), ("14", FORMS[2]), ("9", FORMS[2])):
            assert draw(world, project, shell=shell, COLUMNS=columns) == f"{line.partition(' ')[2]}\n"
    other = world.root / "empty"
    other.mkdir()
    for case in ["no project", "not bound", "no session", "switched off", "an odd session", "no JSON"]:
        given: dict[str, object] = {
            "no project": {"session_id": SESSION, "cwd": str(other)}, "not bound": {"session_id": "another-session"},
            "no session": {"cwd": str(project)}, "switched off": {"session_id": SESSION},
            "an odd session": {"session_id": "../../x"}, "no JSON": b"\xff\x00{",
        }  # fmt: skip
        off = "1" if case == "switched off" else None
        assert draw(world, other if case == "no project" else project, given[case], LOOM_DISABLED=off) == ""


def test_what_is_wider_than_the_terminal_is_not_shown_whole(world: World, project: Path) -> None:
    for shell in SHELLS:
        prepare(project, "99 a line of ninety-nine columns")
        assert went_to_python(draw(world, project, shell=shell))


@pytest.mark.parametrize(
    "change",
    ["no line", "no folder", "the state is newer", "the state is gone", "another version", "empty", "no number",
     "a control character", "a terminal's escape", "cut off"],
)  # fmt: skip
def test_a_line_that_cannot_stand_is_made_anew(world: World, project: Path, change: str) -> None:
    path = project / ".loom/local/statusline" / SESSION
    state = project / ".loom/runs" / RUN / "state.json"
    changes: dict[str, Callable[[], object]] = {
        "no line": path.unlink,
        "no folder": lambda: shutil.rmtree(path.parent),
        "the state is newer": lambda: aged(state, 0),
        "the state is gone": state.unlink,
        "another version": lambda: prepare(project, version="0.0.1"),
        "empty": lambda: path.write_text(""),
        "no number": lambda: prepare(project, "x loom", "loom"),
        "a control character": lambda: prepare(project, "4 a\rb"),
        "a terminal's escape": lambda: prepare(project, "4 \x1b[31mred"),
        "cut off": lambda: path.write_text(f"loom {__version__}\n{state}\n"),
    }
    changes[change]()
    for shell in SHELLS:
        printed = draw(world, project, shell=shell)
        assert went_to_python(printed)
        report = json.loads(printed)
        assert (report["isolated"], report["no_site"], report["python"]) == (1, 1, str(PYTHON))


def test_while_the_session_works_the_line_is_made_anew_once_a_minute(world: World, project: Path) -> None:
    """So that an alarm comes, and goes again; a session that is idle needs none."""
    for shell in SHELLS:
        transcript = world.root / "t.jsonl"
        transcript.write_text("{}")
        told = {"session_id": SESSION, "transcript_path": str(transcript)}
        for age, written, anew in ((90, 0, True), (90, 200, False), (30, 0, False)):
            prepare(project, age=age)
            aged(transcript, written)
            assert went_to_python(draw(world, project, told, shell=shell)) == anew, (age, written)


def test_an_empty_input_is_no_hosts_and_is_answered_as_a_terminal_is(world: World, project: Path) -> None:
    """As a terminal's bar calls it: the command, in Loom's environment; at once and for nothing where no project is."""
    only_the_shell(world)
    lock = (world.bundle / "requirements.lock").read_text().splitlines()[0].removeprefix("# lock-id: ")
    python = world.kept / f"env-{lock}-3.11" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nfor last; do :; done\necho "the command $last"\n')
    python.chmod(0o755)
    empty = world.root / "empty"
    empty.mkdir()
    for shell in SHELLS:
        assert draw(world, project / "src", b"", shell=shell) == "the command statusline\n"
        assert draw(world, empty, b"", shell=shell) == ""
        assert draw(world, project, b"", shell=shell, LOOM_DISABLED="1") == ""
        assert draw(world, project, b"\n", shell=shell) == ""
        assert draw(world, project, b"", shell=shell, CLAUDE_CODE_SESSION_ID=SESSION) == f"{LINE}\n"


@pytest.mark.parametrize("link", ["", "/local", "/local/statusline", f"/local/statusline/{SESSION}"])
def test_a_line_behind_a_link_is_not_shown(world: World, project: Path, link: str) -> None:
    outside, place = world.root / "outside", project / f".loom{link}"
    shutil.move(place, outside)
    place.symlink_to(outside)
    for shell in SHELLS:
        printed = draw(world, project, shell=shell)
        assert printed == "" or went_to_python(printed)


def test_the_project_that_the_host_names_counts_first(world: World, project: Path) -> None:
    """CLAUDE_PROJECT_DIR, then the working directory, then the one that the JSON names."""
    other = world.root / "other"
    other.mkdir()
    assert draw(world, other, {"session_id": SESSION}, CLAUDE_PROJECT_DIR=str(project)) == f"{LINE}\n"
    assert draw(world, other, {"session_id": SESSION, "cwd": str(project / "src")}) == f"{LINE}\n"


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_a_hook_notes_that_its_work_began_and_ended(world: World, project: Path, shell: list[str]) -> None:
    """What was killed in between stays begun, which is how a hook that takes too long is found out."""
    place = project / ".loom/local/hooks/stop.work"
    world.hook("stop", cwd=project, shell=shell, CLAUDE_CODE_SESSION_ID=SESSION)
    assert place.read_text() == "ended\n"
    main = world.root / "kept"
    world.add_script("hung", f'cat "{place}" >"{main}"')
    (world.kept / "python").write_text(f"{world.tools / 'hung'}\n")
    world.hook("stop", cwd=project, shell=shell, CLAUDE_CODE_SESSION_ID=SESSION)
    assert (main.read_text(), place.read_text()) == ("begun\n", "ended\n")
    place.unlink()
    place.symlink_to(world.root / "precious")
    world.remember()
    world.hook("stop", cwd=project, shell=shell, CLAUDE_CODE_SESSION_ID=SESSION)
    assert not (world.root / "precious").exists()
