"""An assistant that decides for its user: every way round the question, and every way that is the user's own (D68)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.cli import person
from loomctl.hosts import table
from loomctl.kit import processes
from loomctl.kit.processes import Process
from loomctl.runs.machine import launcher_files
from loomctl.runs.machine.local import Local
from tests.helpers.scenes import CHECKOUT, MAIN, OTHER, PYTHON, SESSION, Ended, Scene, TranscriptFile, handle, run
from tests.helpers.tables import each
from tests.helpers.waiting import next_tick, until

APPROVE = "loomctl approve"


class Host:
    """An assistant as its hooks and its shells show it. Its process is this one: what it starts descends from it."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.environ = {**scene.environ(), "CLAUDE_PID": str(os.getpid()), "CLAUDECODE": "1"}
        tools = scene.root.parent / "tools"
        tools.mkdir()
        (tools / "loomctl").write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{MAIN}" "$@"\n', encoding="utf-8")
        (tools / "loomctl").chmod(0o755)
        self.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
        # As the shells of Claude Code have it: only hooks are told where the project is.
        self.shell_environ = {name: value for name, value in self.environ.items() if name != "CLAUDE_PROJECT_DIR"}

    def fires(self, event: str, **told: Any) -> str:
        """Call a hook through the launcher; gives the decision on a tool call, or nothing."""
        body = {"session_id": SESSION, "cwd": str(self.scene.root), "hook_event_name": event, **told}
        command = [str(CHECKOUT / "bin" / "loomctl"), "hook", event]
        given = json.dumps(body, separators=(",", ":"))
        ended = run(command, cwd=self.scene.root, environ=self.environ, given=given)
        assert (ended.code, ended.stderr) == (0, "")
        said = json.loads(ended.stdout) if ended.stdout else {}
        return str(said.get("hookSpecificOutput", {}).get("permissionDecision", ""))

    def shell(self, command: str, **environ: str) -> Ended:
        line = f"eval {_quoted(command)} && pwd -P >/dev/null"
        return run(["/bin/sh", "-c", line], cwd=self.scene.root, environ={**self.shell_environ, **environ})

    def prompted(self) -> None:
        next_tick(self.scene.root.parent)
        self.fires("user-prompt-submit", prompt="go on")

    def stops(self) -> None:
        next_tick(self.scene.root.parent)
        self.fires("stop", last_assistant_message="so far so good")

    def calls(self, command: str, *, tool: str = "Bash", agent: str = "") -> str:
        more = {"agent_id": agent} if agent else {}
        return self.fires("pre-tool-use", tool_name=tool, tool_input={"command": command}, **more)

    @property
    def decided(self) -> bool:
        return bool(self.scene.state["approvals"])


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\"'\"'") + "'"


@pytest.fixture
def host(scene: Scene) -> Host:
    """An assistant whose session drives a run that waits for its user, at work in a turn."""
    gate = {"id": "gate", "kind": "human", "prompt": "Is it good?"}
    scene.workflow(phases={"build": {"steps": [gate, {"id": "make", "prompt": "Make it."}]}})
    scene.begin()
    made = Host(scene)
    made.fires("session-start", source="startup")
    made.prompted()
    return made


def refused(ended: Ended) -> bool:
    """Tell whether a command was refused with ASK_FIRST, whatever the script around it made of that."""
    return "ASK_FIRST" in ended.stderr


def stays(host: Host, command: str) -> None:
    """Hold that a command is refused, and that nothing was decided."""
    assert refused(host.shell(command))
    assert not host.decided


def answers() -> None:
    begun = time.monotonic()
    until(lambda: time.monotonic() > begun + 0.1)


SCRIPTS = {
    "a script": "sh x.sh",
    "a script by another name": ". ./x.sh",
    "no words": "printf 'loom''ctl app''rove' | sh",
    "a pipe": "printf 'app%s' rove | xargs loomctl",
    "an alias of git's": "git -c alias.x='!sh x.sh' x",
    "another program": "python3 -c 'import os; os.system(\"sh x.sh\")'",
    "a continued line": "loomctl ap\\\nprove",
    "a continued name": "loom\\\nctl approve",
    "no session": "env -u CLAUDE_CODE_SESSION_ID sh x.sh",
    "no marks": "unset CLAUDE_CODE_SESSION_ID CLAUDECODE CLAUDE_PID; sh x.sh",
    "nothing": 'env -i PATH="$PATH" HOME="$HOME" LOOM_STATE_HOME="$LOOM_STATE_HOME" sh x.sh',
    "another session": f"CLAUDE_CODE_SESSION_ID={OTHER} sh x.sh",
    "another process": "CLAUDE_PID=1 sh x.sh",
    "another shell": "exec sh x.sh",
    "another group": "setsid -w sh x.sh",
    "a child of a child": "sh -c 'sh -c \"sh x.sh; true\"; true'",
    "no hooks": "LOOM_DISABLED=1 sh x.sh",
}


@pytest.mark.parametrize("command", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.shows("only where that question was asked")
def test_a_call_that_hides_what_it_does_decides_nothing(host: Host, command: str) -> None:
    """Whatever the hook makes of the command line: the host runs it without a question, and it is refused."""
    run_id = host.scene.run_dir.name
    host.scene.write("x.sh", f"loomctl approve {handle(run_id)}\n")
    if host.calls(command) == "ask":  # its user says no
        return
    ended = host.shell(command)
    # One that passes for another session or process may be refused as that before.
    assert any(code in ended.stderr for code in ("ASK_FIRST", "NOT_BOUND", "HELD_BY_ANOTHER")), ended
    assert not host.decided


@pytest.mark.shows("`drive` and `runs rm` count in a terminal")
def test_an_assistant_starts_no_driver_by_itself(host: Host) -> None:
    """What a driver starts, a command of any kind or an assistant with other rules, may do what this one may not."""
    called = handle(host.scene.run_dir.name)
    for more in ("-- touch sprung", "--allow Bash", ""):
        assert host.calls(f"loomctl drive {called} {more}") == "ask"  # its user says no
    host.scene.write("x.sh", f"loomctl drive {called} -- touch sprung\n")
    assert host.calls("sh x.sh") == ""
    assert refused(host.shell("sh x.sh"))
    assert not (host.scene.root / "sprung").exists()


@pytest.mark.parametrize("tool", ["Monitor", "mcp__shell__run", "Agent", "Read", "Edit"])
def test_a_call_of_any_tool_is_a_call(host: Host, tool: str) -> None:
    host.scene.write("x.sh", APPROVE)
    assert host.calls("sh x.sh", tool=tool) == ""
    stays(host, "sh x.sh")


def test_a_monitors_command_is_asked_about(host: Host) -> None:
    assert host.calls("until loomctl approve; do true; done", tool="Monitor") == "ask"
    assert host.calls("loomctl next", tool="Monitor") == ""


VERBS = {
    "approve": ["approve"],
    "reject": ["reject"],
    "choose": ["choose", "approve"],
    "trust": ["trust", "--yes"],
    "cancel": ["cancel"],
    "runs rm": ["runs", "rm", "RUN", "--force", "--yes"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_of_a_persons_is_refused(host: Host, verb: str) -> None:
    """And says what to type, in words and in JSON; push has a test of its own, for it needs a remote."""
    run_id = host.scene.run_dir.name
    before = host.scene.state
    words = " ".join(run_id if word == "RUN" else word for word in VERBS[verb])
    host.calls("sh x.sh")
    ended = host.shell(f"loomctl {words} --json")
    error = ended.json["error"]
    assert (ended.code, error["code"], host.scene.handle in error["hint"]) == (2, "ASK_FIRST", True)
    assert error["hint"].startswith(f"loomctl {verb} ")
    assert host.scene.state == before


def test_what_its_user_was_asked_counts_once(host: Host) -> None:
    assert host.calls(APPROVE) == "ask"
    assert (host.shell(APPROVE).code, host.decided) == (0, True)
    host.calls("sh x.sh")
    assert all(refused(host.shell(command)) for command in ("loomctl cancel", APPROVE))


def test_one_question_is_one_decision(host: Host) -> None:
    host.scene.write("x.sh", APPROVE)
    assert host.calls(f"{APPROVE} && sh x.sh") == "ask"
    assert refused(host.shell(f"{APPROVE}; sh x.sh"))
    assert len(host.scene.state["approvals"]) == 1


@pytest.mark.parametrize(
    ("asked", "called"),
    [
        ("loomctl approve other", "loomctl approve RUN"),
        ("loomctl approve", "loomctl approve RUN"),
        ("loomctl approve --by Ada", "loomctl approve --by Eve"),
        ("loomctl cancel", "loomctl approve"),
    ],
)
@pytest.mark.shows("for this very call and its words, once,")
def test_a_question_about_one_decision_is_none_about_another(host: Host, asked: str, called: str) -> None:
    """A script that the call runs first, or another call beside it, decides nothing else with it."""
    host.scene.write("x.sh", called.replace("RUN", host.scene.run_dir.name))
    assert host.calls(f"sh x.sh && {asked}") == "ask"
    stays(host, "sh x.sh")


@pytest.mark.parametrize(
    "command",
    [
        *('loomctl approve RUN --by "Ada L."', "loomctl approve \\\n  --by='Ada L.' RUN"),
        *("loomctl --debug approve RUN --by Ada\\ L.", "cd . && LOOM_DISABLED=0 loomctl 'approve' RUN"),
    ],
)
def test_what_its_user_saw_is_decided_however_it_is_written(host: Host, command: str) -> None:
    command = command.replace("RUN", host.scene.run_dir.name)
    assert host.calls(command) == "ask"
    ended = host.shell(command)
    assert (ended.code, ended.stderr, host.decided) == (0, "", True)


@pytest.mark.parametrize("way", ["file", "link"])
def test_where_no_call_can_be_marked_nobody_decides(host: Host, way: str) -> None:
    """A repository may bring along what stands in the marks' place."""
    folder = host.scene.store / "local" / launcher_files.HOSTS
    shutil.rmtree(folder)
    if way == "file":
        folder.write_text("")
    else:
        folder.symlink_to("..")
    host.scene.write("x.sh", f"env -u CLAUDECODE -u CLAUDE_CODE_SESSION_ID {APPROVE}")
    host.calls("sh x.sh")
    stays(host, "sh x.sh")


@pytest.mark.parametrize("way", ["folder", "link"])
def test_a_call_that_could_not_be_marked_is_no_rest(host: Host, way: str) -> None:
    """What stands in the mark's place is no mark, and nobody knows when the last call was."""
    turn(host)
    mark = host.scene.store / "local" / launcher_files.HOSTS / f"{os.getpid()}.{launcher_files.CALLED}"
    mark.unlink()
    if way == "folder":
        mark.mkdir()
    else:
        mark.symlink_to("elsewhere")
    host.scene.write("x.sh", APPROVE)
    assert host.calls("sh x.sh") == ""
    stays(host, "sh x.sh")


def test_what_its_user_refused_is_not_kept_for_the_next_call(host: Host) -> None:
    """A no leaves no event behind; the question is over with the next one, whichever it is."""
    host.scene.write("x.sh", APPROVE)
    assert host.calls(APPROVE) == "ask"
    host.calls("sh x.sh")
    assert refused(host.shell("sh x.sh"))
    assert host.calls(APPROVE) == "ask"
    host.stops()
    host.prompted()
    host.calls("sh x.sh")
    stays(host, "sh x.sh")


def test_a_question_about_one_verb_is_none_about_another(host: Host) -> None:
    assert host.calls("loomctl cancel") == "ask"
    assert refused(host.shell(APPROVE))
    assert host.calls("loomctl $VERB") == "ask"
    assert refused(host.shell("VERB=approve; loomctl $VERB"))


def test_a_process_that_is_left_behind_is_no_user(host: Host) -> None:
    """A call in the background is answered at once, and its process goes on: it waits for the turn's end."""
    scene = host.scene
    scene.write("late.sh", "while [ ! -e over ]; do sleep 0.02; done; sh x.sh 2>said; : >ended\n")
    scene.write("x.sh", APPROVE)
    command = ["/bin/sh", "-c", "eval 'sh late.sh' && true"]
    host.calls("sh late.sh")
    with subprocess.Popen(command, cwd=scene.root, env=host.shell_environ):
        host.fires("post-tool-use", tool_name="Bash", tool_input={}, tool_response={})
        answers()
        host.stops()
        scene.write("over", "")
        until((scene.root / "ended").exists)
    assert ("ASK_FIRST" in (scene.root / "said").read_text(encoding="utf-8"), host.decided) == (True, False)


@pytest.mark.skipif(shutil.which("setsid") is None, reason="no setsid here")
def test_a_process_that_nobody_waits_for_is_no_user(host: Host) -> None:
    """One that has left its call behind, and begins anew when the turn is over, has no host above it."""
    scene = host.scene
    scene.write("late.sh", "while [ ! -e over ]; do sleep 0.02; done; setsid sh -c 'sh x.sh 2>said; : >ended' &\n")
    scene.write("x.sh", APPROVE)
    host.calls("sh late.sh")
    assert host.shell("setsid sh late.sh >/dev/null 2>&1 &").code == 0
    answers()
    host.stops()
    scene.write("over", "")
    until((scene.root / "ended").exists)
    assert "ASK_FIRST" in (scene.root / "said").read_text(encoding="utf-8")
    assert not host.decided


def test_a_subagent_is_asked_for_like_any_other(host: Host) -> None:
    host.scene.write("x.sh", APPROVE)
    assert host.calls("sh x.sh", agent="a1") == ""
    assert refused(host.shell("sh x.sh"))
    assert host.calls(APPROVE, agent="a1") == "ask"
    assert host.shell(APPROVE).code == 0


def turn(host: Host) -> None:
    host.calls("ls")
    host.stops()


OWN: dict[str, Callable[[Host], object]] = {
    "behind a prompt, as a slash command's": lambda _: None,
    "at rest": turn,
    "after a no": lambda host: host.calls(APPROVE),
    "in a session that has just begun": lambda host: host.fires("session-start", source="resume"),
}


@pytest.mark.parametrize("before", OWN.values(), ids=OWN)
@pytest.mark.shows("your own line")
def test_a_line_of_the_users_own_decides(host: Host, before: Callable[[Host], object]) -> None:
    before(host)
    ended = host.shell(APPROVE)
    assert (ended.code, ended.stderr, host.decided) == (0, "", True)


def transcript_of(host: Host) -> TranscriptFile:
    transcript = TranscriptFile(host.scene.root.parent / "t.jsonl")
    local = Local(str(host.scene.store / "local"))
    binding = local.binding(SESSION)
    assert binding is not None
    local.refresh(binding, pid=None, transcript_path=str(transcript.path))
    return transcript


def stamped(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03}Z"


def test_a_call_that_no_hook_saw_is_a_call(host: Host) -> None:
    """The plugin was switched off after a turn: the transcript shows what is called since."""
    transcript = transcript_of(host)
    turn(host)
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "sh x.sh"}}
    message = {"role": "assistant", "id": "m1", "content": [call]}
    begun = time.time()
    until(lambda: time.time() > begun + 0.01)
    transcript.add({"type": "assistant", "timestamp": stamped(time.time()), "message": message})
    host.scene.write("x.sh", APPROVE)
    stays(host, "sh x.sh")
    host.stops()
    assert host.shell(APPROVE).code == 0


@pytest.mark.slow
def test_a_user_who_broke_a_call_off_decides(host: Host) -> None:
    """No hook fires when they do; the host writes it into the transcript, and a later call counts again."""
    transcript = transcript_of(host)
    local = Local(str(host.scene.store / "local"))

    def interrupt(at: float) -> None:
        block = {"type": "text", "text": "[Request interrupted by user for tool use]"}
        transcript.add({"type": "user", "timestamp": stamped(at), "message": {"role": "user", "content": [block]}})

    interrupt(time.time() - 1)
    host.calls("sh x.sh")
    assert refused(host.shell(APPROVE))
    interrupt(launcher_files.marks(local.folder, os.getpid()).called + 0.1)
    until(lambda: time.time() > launcher_files.marks(local.folder, os.getpid()).called + 0.2)
    assert host.shell(APPROVE).code == 0


@each("name", ["CLAUDECODE", "CODEX_SESSION_ID", "GEMINI_CLI", "OPENCODE", "QWEN_CODE", "COPILOT_CLI"])
def test_an_assistant_without_hooks_decides_nothing(scene: Scene, name: str) -> None:
    """Nobody there could have been asked: its user types it in a terminal, where no assistant is above."""
    scene.workflow(phases={"build": {"steps": [{"id": "gate", "kind": "human", "prompt": "Good?"}]}})
    scene.begin(session=None)
    command = [sys.executable, "-I", str(MAIN), "approve"]
    environ = {key: value for key, value in scene.environ(None).items() if key != name}
    run([*command[:3], "resume"], cwd=scene.root, environ={**environ, name: "1"})  # one whose session has no name, too
    ended = run(command, cwd=scene.root, environ={**environ, name: "1"})
    assert refused(ended)
    assert f"({name} is set)" in ended.stderr  # a terminal may have been opened from within an assistant
    assert run(command, cwd=scene.root, environ=environ).code == 0


def test_the_marks_of_a_process_that_is_gone_are_nobodys(host: Host) -> None:
    """Its number may be another process's by now; what was made before that began is not its own."""
    folder = host.scene.store / "local" / launcher_files.HOSTS
    for mark in folder.iterdir():
        os.utime(mark, (1_000, 1_000))
    assert refused(host.shell(APPROVE))
    with subprocess.Popen([PYTHON, "-c", "pass"]) as gone:
        pass
    (folder / f"{gone.pid}.called").write_text("\n")
    launcher_files.make_room_for_calls(str(folder.parent))
    assert {path.name.partition(".")[0] for path in folder.iterdir()} == {str(os.getpid())}


def test_a_store_of_another_project_has_seen_no_hook(host: Host, tmp_path: Path) -> None:
    elsewhere = Scene(tmp_path / "elsewhere")
    elsewhere.workflow(phases={"build": {"steps": [{"id": "gate", "kind": "human", "prompt": "Good?"}]}})
    elsewhere.begin()
    assert refused(host.shell(f"cd {elsewhere.root} && loomctl approve"))


@pytest.mark.parametrize("is_systems", [True, False])
def test_an_assistant_that_is_a_containers_first_process_is_nobodys_on_the_machine(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, is_systems: bool
) -> None:
    """Every process descends from the machine's own first one, whose number its marks in a shared folder bear."""
    scene.workflow()
    scene.begin()
    folder = scene.store / "local" / launcher_files.HOSTS
    folder.mkdir(exist_ok=True)
    (folder / "1.called").write_text("\n")
    now = time.time()
    line = [Process(os.getpid(), now), Process(7, now - 1), Process(1, now - 60)]
    monkeypatch.setattr(processes, "line", lambda: line)
    monkeypatch.setattr(processes, "first_is_the_systems", lambda: is_systems)
    for name in table.MARKS:
        monkeypatch.delenv(name, raising=False)
    assert person.decides(scene.space(), "approve") == is_systems


def test_an_assistant_inside_of_another_is_no_user(host: Host) -> None:
    """Its user types `! codex exec …` between two turns; the inner one's hooks are untrusted, and leave no mark."""
    host.stops()
    next_tick(host.scene.root.parent)
    stays(host, f"CODEX_THREAD_ID=inner-1 sh -c 'env -u CODEX_THREAD_ID {APPROVE}; true'")
    stays(host, "CODEX_THREAD_ID=inner-1 sh -c 'loomctl resume --take-over; loomctl approve; true'")
    assert host.shell(f"loomctl resume --take-over; {APPROVE}").code == 0


@pytest.mark.parametrize("command", ["install qwen --yes", "remove qwen"])
def test_what_is_set_up_for_other_assistants_is_its_users_to_decide(host: Host, command: str) -> None:
    host.scene.write("x.sh", f"loomctl plugin {command}")
    host.calls("sh x.sh")
    assert refused(host.shell("sh x.sh"))
    assert not (Path(host.shell_environ["HOME"]) / ".qwen").exists()
    outside = run(
        ["loomctl", "plugin", *command.split()], cwd=host.scene.root.parent, environ=host.shell_environ
    )  # where no project is
    assert refused(outside)
