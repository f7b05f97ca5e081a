"""The launcher's way for hooks: when it starts Python, with what, and that it never troubles the host (D3, D55)."""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.world import PYTHON, SESSION, SHELLS, World, touch

EVENTS = ("session-start", "user-prompt-submit", "pre-tool-use", "pre-compact", "post-compact", "stop", "session-end")


@pytest.fixture
def project(world: World) -> Path:
    world.remember()
    project = world.root / "prö ject"
    for folder in (".git", ".loom", "src/deep"):
        (project / folder).mkdir(parents=True)
    return project


def bind(project: Path, session: str = SESSION) -> None:
    """Bind the session to a run, as far as the launcher looks."""
    touch(project / ".loom/local/sessions" / f"{session}.json", "{}")


def prime(project: Path, session: str = SESSION) -> None:
    """Note that the unbound session was primed, as far as the launcher looks."""
    touch(project / ".loom/local/primed" / f"{session}.json", "{}")


def test_outside_a_project_a_hook_ends_with_builtins_alone(world: World) -> None:
    for shell in SHELLS:
        for event in EVENTS:
            world.remember()
            assert world.hook(event, shell=shell, PATH="/nonexistent", CLAUDE_PROJECT_DIR=str(world.root)) is None


def test_a_session_start_in_a_project_starts_python(world: World, project: Path) -> None:
    for shell in SHELLS:
        report = world.hook("session-start", cwd=project, shell=shell, stdin=b"{}")
        assert report is not None
        assert report["arguments"] == ["hook", "session-start"]
        assert (report["python"], report["isolated"], report["no_site"]) == (str(PYTHON), 1, 1)
        assert report["LOOM"] == {
            "LOOM_PLUGIN_ROOT": str(world.bundle), "LOOM_PLUGIN_DATA": "", "LOOM_ENV_PYTHON": "",
        }  # fmt: skip
        assert report["cwd"] == str(project)


def test_what_the_environment_says_of_another_host_is_not_believed(world: World, project: Path) -> None:
    said = {"LOOM_HOST": "opencode", "LOOM_HOST_SESSION": "x", "LOOM_HOST_PID": "1", "LOOM_HOST_BUSY": "1"}
    (project / ".loom/local/hosts").mkdir(parents=True)
    for shell in SHELLS:
        report = world.hook("session-start", cwd=project, shell=shell, stdin=b"{}", CLAUDE_PID="4711", **said)
        assert report is not None
        assert not report["LOOM"].keys() & said.keys()
        (project / ".loom/local/hosts/4711.rested").unlink()


@pytest.mark.parametrize("store", [".loom", ".fractary"])
def test_the_search_goes_up_from_the_launch_directory_and_from_where_the_hook_stands(
    world: World, project: Path, store: str
) -> None:
    (project / ".loom").rename(project / store)
    elsewhere = world.root / "elsewhere"
    elsewhere.mkdir()
    deep = project / "src/deep"
    assert world.hook("session-start", cwd=elsewhere, CLAUDE_PROJECT_DIR=str(deep)) is not None
    assert world.hook("session-start", cwd=deep, CLAUDE_PROJECT_DIR=str(elsewhere)) is not None
    assert world.hook("session-start", cwd=deep) is not None
    assert world.hook("session-start", cwd=elsewhere, CLAUDE_PROJECT_DIR=str(elsewhere)) is None


def test_the_search_goes_through_links_up_to_the_repositorys_top(world: World, project: Path) -> None:
    inner = project / "vendor/inner"
    (inner / ".git").mkdir(parents=True)
    assert world.hook("session-start", cwd=inner) is None
    inner = project / "sub"
    touch(inner / ".git", f"gitdir: {project}/.git/modules/sub\n")
    assert world.hook("session-start", cwd=inner) is None
    link = world.root / "link"
    link.symlink_to(project / "src/deep")
    assert world.hook("session-start", cwd=world.root, CLAUDE_PROJECT_DIR=str(link)) is not None
    shutil.rmtree(project / ".git")
    assert world.hook("session-start", cwd=project / "src/deep") is not None


def git(*arguments: str, cwd: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *arguments], cwd=cwd, env=environ, check=True, capture_output=True)


@pytest.mark.parametrize("relative", [False, True], ids=["absolute gitdir", "relative gitdir"])
def test_a_linked_worktree_uses_the_main_checkouts_store(world: World, relative: bool) -> None:
    world.remember()
    world.add_script("dd", 'exec /bin/dd "$@"')
    main, linked = world.root / "main ü", world.root / "linked"
    (main / "sub").mkdir(parents=True)
    git("init", "--quiet", cwd=main)
    touch(main / "sub/file")
    git("add", ".", cwd=main)
    git("commit", "--quiet", "--message", "x", cwd=main)
    git("worktree", "add", "--quiet", str(linked), cwd=main)
    if relative:
        pointer = linked / ".git"
        target = pointer.read_text().removeprefix("gitdir: ").strip()
        pointer.write_text(f"gitdir: {os.path.relpath(target, linked)}\n")
    assert world.hook("session-start", cwd=linked / "sub") is None
    (main / ".loom").mkdir()
    assert world.hook("session-start", cwd=linked / "sub") is not None
    assert world.hook("stop", cwd=linked / "sub", CLAUDE_CODE_SESSION_ID=SESSION) is None
    bind(main)
    assert world.hook("stop", cwd=linked / "sub", CLAUDE_CODE_SESSION_ID=SESSION) is not None


def test_a_git_file_that_leads_nowhere_or_round_or_has_no_end_ends_the_search(world: World) -> None:
    for text in ["", "\n", "gitdir: ../gone/.git/worktrees/x\n", "gitdir: /.git/worktrees/\n", "\0\0"]:
        touch(world.root / "x/.git", text)
        assert world.hook("session-start", cwd=world.root / "x") is None
    world.remember()
    inner = world.root / "a/b"
    touch(inner / ".git", f"gitdir: {inner}/.git/worktrees/x\n")
    assert world.hook("session-start", cwd=inner) is None
    for shell in SHELLS:
        world.add_script("dd", 'exec /bin/dd "$@"')
        endless = touch(world.root / "x/.git", "gitdir: ")
        os.truncate(endless, 1 << 40)
        assert world.hook("session-start", cwd=endless.parent, shell=shell) is None


NEEDS = {
    "session-start": {"", "bound", "primed"}, "user-prompt-submit": {"primed"}, "pre-compact": {"bound", "primed"},
    "post-compact": {"bound"}, "stop": {"bound"}, "session-end": {"bound"}, "pre-tool-use": {"", "bound", "primed"},
}  # fmt: skip


def test_python_starts_only_for_a_session_that_the_event_is_about(world: World, project: Path) -> None:
    for known, note in (("", lambda _: None), ("bound", bind), ("primed", prime)):
        shutil.rmtree(project / ".loom/local", ignore_errors=True)
        note(project)
        how = {"cwd": project, "CLAUDE_CODE_SESSION_ID": SESSION, "stdin": b'{"command": "loomctl next"}'}
        for event, shell in itertools.product(NEEDS, SHELLS):
            started = world.hook(event, **how, shell=shell) is not None
            assert started == (known in NEEDS[event]), (event, known, shell)


def test_without_a_usable_session_id_python_decides(world: World, project: Path) -> None:
    """An id that is not there, or not fit for a path, never gets into one: Python has it from the event."""
    for event in NEEDS:
        for session in [None, "", "../sessions/x", "a/b", "a b", "ä.json"]:
            touch(project / ".loom/local/sessions/x.json")
            how = {"cwd": project, "CLAUDE_CODE_SESSION_ID": session, "stdin": b"loomctl"}
            assert world.hook(event, **how) is not None


def test_a_tool_call_starts_python_only_if_it_names_loomctl(world: World, project: Path) -> None:
    for shell in SHELLS:
        for event, started in [
            (b'{"tool_input": {"command": "loomctl next"}}', True),
            (b"loomctl", True),
            (b"loomctl\n\n\n", True),
            ("ünï\tcode \\u0000 %s %d \\n 'loomctl' \"$(x)\" `y`".encode(), True),
            (b"\xff\xfe not UTF-8 loomctl \x80", True),
            (b"x" * 300_000 + b" loomctl " + b"y" * 300_000 + b"\n", True),
            (b"", False),
            (b'{"tool_input": {"command": "loom ctl"}}', False),
            (b"x" * 300_000, False),
        ]:
            bind(project)
            report = world.hook("pre-tool-use", cwd=project, CLAUDE_CODE_SESSION_ID=SESSION, stdin=event, shell=shell)
            assert (report is not None) == started
            if report is not None:
                assert (report["bytes"], report["sha256"]) == (len(event), hashlib.sha256(event).hexdigest())


def given(project: Path, *lines: str) -> Path:
    """Note what the session was given, at a time between the files' own; gives the note."""
    prime(project)
    mark = touch(project / ".loom/local/primed" / f"{SESSION}.watch", "".join(f"{line}\n" for line in lines))
    os.utime(mark, (2_000, 2_000))
    return mark


def at(path: Path, time: float, text: str = "x") -> Path:
    touch(path, text)
    os.utime(path, (time, time))
    return path


PROMPT = b'{"prompt": "go on"}'
SILENT: dict[str, Callable[[Path], object]] = {
    "nothing was given": given,
    "files are as they were": lambda project: given(
        project, f"+{at(project / 'a b.md', 1_000)}", f"+{at(project / 'ü *$(x)`y`.md', 2_000)}", f"-{project}/gone"
    ),
}
UNSURE: dict[str, Callable[[Path], object]] = {
    "a newer file": lambda project: given(project, f"+{at(project / 'a.md', 1_000)}", f"+{at(project / 'b', 3_000)}"),
    "by a moment": lambda project: given(project, f"+{at(project / 'a.md', 2_001.5)}"),
    "a file that is gone": lambda project: given(project, f"+{project}/a.md"),
    "one that came back": lambda project: given(project, f"-{at(project / 'a.md', 1_000)}"),
    "no note": prime,
    "a link for a note": lambda project: given(project).symlink_to(given(project).rename(project / "x")),
    "a compaction": lambda project: (given(project), touch(project / f".loom/local/primed/{SESSION}.unsure")),
    "something is owed": lambda project: (given(project), touch(project / f".loom/local/owed/{SESSION}.json", "{}")),
    "something was given": lambda project: (given(project), touch(project / f".loom/local/owed/{SESSION}.given", "{}")),
}


def test_a_prompt_with_nothing_to_tell_ends_without_python(world: World, project: Path) -> None:
    """Only a bound session's is read, for the host's notices (D80)."""
    how: dict[str, Any] = {"cwd": project, "CLAUDE_CODE_SESSION_ID": SESSION, "stdin": PROMPT}
    for bound, (case, note), shell in itertools.product((False, True), SILENT.items(), SHELLS):
        note(project)
        if bound:
            bind(project)
        path = {} if bound else {"PATH": "/nonexistent"}
        assert world.hook("user-prompt-submit", **how, **path, shell=shell) is None, (case, bound, shell)


def test_a_prompt_starts_python_where_there_may_be_something(world: World, project: Path) -> None:
    how = {"cwd": project, "CLAUDE_CODE_SESSION_ID": SESSION, "stdin": PROMPT}
    for case, note in UNSURE.items():
        shutil.rmtree(project / ".loom/local", ignore_errors=True)
        note(project)
        bind(project)
        for shell in SHELLS:
            report = world.hook("user-prompt-submit", **how, shell=shell)
            assert report is not None, (case, shell)
            assert report["bytes"] == len(PROMPT)


def test_a_notice_of_the_hosts_starts_python(world: World, project: Path) -> None:
    for shell in SHELLS:
        for sign in ["<", "\\u003c"]:
            bind(project)
            given(project)
            event = f'{{"prompt": "{sign}task-notification>{"x" * 1_000_000}"}}\n\n'.encode()
            how = {"cwd": project, "CLAUDE_CODE_SESSION_ID": SESSION, "shell": shell}
            report = world.hook("user-prompt-submit", stdin=event, **how)
            assert report is not None
            assert report["sha256"] == hashlib.sha256(event).hexdigest()
            assert world.hook("user-prompt-submit", stdin=event.replace(b"task-", b"no-"), **how) is None


def test_a_compaction_is_noted_before_python_starts(world: World, project: Path) -> None:
    """By builtins, so that it stands there whatever becomes of Python; through no link, and over nothing."""
    for shell in SHELLS:
        prime(project)
        mark = project / ".loom/local/primed" / f"{SESSION}.unsure"
        how = {"cwd": project, "CLAUDE_CODE_SESSION_ID": SESSION, "shell": shell}
        world.hook("pre-compact", **how)
        assert mark.read_bytes() == b""
        mark.write_text("kept")
        world.hook("pre-compact", **how)
        assert mark.read_text() == "kept"
        mark.unlink()
        mark.symlink_to(project / "elsewhere")
        world.hook("pre-compact", **how)
        assert not (project / "elsewhere").exists()
        mark.unlink()
        mark.parent.chmod(0o500)
        try:
            assert world.hook("pre-compact", **how) is not None
        finally:
            mark.parent.chmod(0o700)


def test_a_session_that_two_stores_know_is_pythons_and_one_variable_switches_hooks_off(
    world: World, project: Path
) -> None:
    """With LOOM_DISABLED=1 no event starts Python (D57)."""
    bind(project)
    for event in EVENTS:
        assert world.hook(event, cwd=project, CLAUDE_CODE_SESSION_ID=SESSION, LOOM_DISABLED="1", stdin=b"x") is None
    shutil.rmtree(project / ".git")
    given(project)
    given(project / "src")
    assert world.hook("user-prompt-submit", cwd=project / "src", CLAUDE_CODE_SESSION_ID=SESSION) is not None
    assert world.hook("user-prompt-submit", cwd=project, CLAUDE_CODE_SESSION_ID=SESSION) is None


def test_a_hook_never_prints_usage_and_is_silent_without_its_bundle(
    world: World, project: Path, tmp_path: Path
) -> None:
    for arguments in [(), ("",), ("no-such-event",), ("--help",)]:
        ended = world.start("hook", *arguments)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    launcher = tmp_path / "bin/loomctl"
    launcher.parent.mkdir()
    shutil.copy(world.bundle / "bin/loomctl", launcher)
    assert world.hook("session-start", cwd=project, launcher=launcher) is None


def test_a_hook_sets_nothing_up_hands_the_event_on_unread_and_never_fails(world: World, project: Path) -> None:
    before = sorted(world.bundle.rglob("*"))
    assert world.hook("session-start", cwd=project) is not None
    assert world.made == []
    assert sorted(world.bundle.rglob("*")) == before
    report = world.hook("session-start", cwd=project)
    assert report is not None
    assert report["pycache_prefix"] == str(world.kept / "pycache")
    event = os.urandom(1_000_000)
    report = world.hook("session-start", cwd=project, stdin=event)
    assert report is not None
    assert report["sha256"] == hashlib.sha256(event).hexdigest()
    for code in ["1", "2", "70", "127"]:
        assert world.hook("session-start", cwd=project, TEST_EXIT=code) is not None


def test_a_python_is_found_once_and_remembered_by_its_real_path(world: World, project: Path) -> None:
    (world.kept / "python").unlink()
    for name in ("python3.13", "python3.12"):
        world.add_script(name, 'echo "pyenv: command not found" >&2; exit 127')
    world.add_python("python3")
    assert world.hook("session-start", cwd=project) is not None
    assert (world.kept / "python").read_text() == f"{PYTHON}\n"
    assert world.hook("session-start", cwd=project, PATH="/nonexistent") is not None


def test_a_python_that_cannot_be_started_or_is_gone_is_replaced(world: World, project: Path) -> None:
    world.add_script("broken", "exit 127")
    world.remember(world.tools / "broken")
    world.add_python("python3")
    assert world.hook("session-start", cwd=project) is None
    assert world.hook("session-start", cwd=project) is not None
    for remembered in ["/nonexistent/python\n", "python3\n", "", "/\n"]:
        (world.kept / "python").write_text(remembered)
        assert world.hook("session-start", cwd=project) is not None
        assert (world.kept / "python").read_text() == f"{PYTHON}\n"


def test_the_plugins_own_folder_comes_first(world: World, project: Path) -> None:
    data = world.root / "plugin data"
    world.remember(world.root / "gone")
    world.add_python("python3")
    assert world.hook("session-start", cwd=project, CLAUDE_PLUGIN_DATA=str(data)) is not None
    assert (data / "python").read_text() == f"{PYTHON}\n"
    assert (world.kept / "python").read_text() == f"{world.root / 'gone'}\n"


def test_a_hook_works_where_nothing_can_be_kept(world: World, project: Path) -> None:
    world.add_python("python3")
    (world.root / "file").touch()
    for home in [None, "", "/nonexistent/home"]:
        report = world.hook("session-start", cwd=project, HOME=home, XDG_CACHE_HOME=str(world.root / "file"))
        assert report is not None
        assert (report["pycache_prefix"], report["no_bytecode"]) == (None, 1)


def test_no_python_is_said_once_in_a_session_and_blocks_nothing(world: World, project: Path) -> None:
    (world.kept / "python").unlink()
    world.add_script("python3", 'echo "old 3.8"')
    bind(project)
    how = {"cwd": project, "CLAUDE_CODE_SESSION_ID": SESSION}
    first = world.start("hook", "session-start", cwd=project, CLAUDE_CODE_SESSION_ID=SESSION)
    assert (first.returncode, first.stderr) == (0, b"")
    said = json.loads(first.stdout)
    assert list(said) == ["systemMessage"]
    assert "3.10" in said["systemMessage"]
    assert "python3 is 3.8" in said["systemMessage"]
    assert world.hook("session-start", **how) is None
    assert world.hook("stop", **how) is None
    assert world.hook("session-start", cwd=project, CLAUDE_CODE_SESSION_ID="another") == said
