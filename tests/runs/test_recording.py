"""What the spool holds becomes steps of its run's log: each once, in its order, and nothing is lost (D47, D59)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.care import keep
from loomctl.flow import advance, resume, rewind
from loomctl.kit import files
from loomctl.kit.processes import Lock
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs.machine import launcher_files
from loomctl.runs.tools import recall, recording, reducer, tool_log
from loomctl.runs.tools.recording import digest
from loomctl.runs.tools.reducer import StepReducer
from loomctl.runs.tools.tool_log import DataOffloader
from tests.helpers.scenes import CHECKOUT, MAIN, OTHER, SESSION, Json, Scene, run
from tests.helpers.waiting import PATIENCE

OUTPUT = "".join(f"line {number} of the output\n" for number in range(200))


def event(number: int = 1, text: str = OUTPUT, tool: str = "Bash", **more: Any) -> Json:
    return {
        "session_id": SESSION, "hook_event_name": "PostToolUse", "tool_name": tool,
        "tool_input": {"command": f"make {number}"},
        "tool_response": {"stdout": text, "stderr": "", "interrupted": False, "isImage": False},
        "tool_use_id": f"toolu_{number:03}", **more,
    }  # fmt: skip


def failure(number: int, error: str, tool: str = "Bash", **given: Any) -> Json:
    body = event(number, tool=tool, hook_event_name="PostToolUseFailure", error=error)
    del body["tool_response"]
    return {**body, "tool_input": given or body["tool_input"]}


def put(scene: Scene, told: Json | bytes, name: str = "", at: float = 0) -> Path:
    """Write a file of the spool, as old as `at` says (seconds)."""
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    number = told.get("tool_use_id", "0") if isinstance(told, dict) else "toolu_0"
    path = scene.store / "local/spool" / (name or f"{SESSION}-{number.rpartition('_')[2]}.json")
    path.write_bytes(body)
    if at:
        os.utime(path, (at, at))
    return path


def steps(scene: Scene) -> list[ToolStep]:
    return list(tool_log.read(str(scene.run_dir)))


def waiting(scene: Scene) -> list[str]:
    return sorted(os.listdir(scene.store / "local/spool"))


def original(scene: Scene, step: ToolStep) -> tuple[Any, Any]:
    """A step's arguments and result, from another process's point of view."""
    return StepReducer(DataOffloader(str(scene.run_dir))).original(step)


def test_events_become_steps_in_the_order_of_their_time_and_say_whose_they_are(begun: Scene) -> None:
    """Then of their name; each says when, whose and in which stage; and each can be had back whole."""
    for number, at in ((1, 300), (2, 100), (3, 200), (4, 200)):
        put(begun, event(number), at=at)
    assert digest(begun.space()) == recording.Digested(steps=4)
    found = steps(begun)
    assert [step.id for step in found] == ["toolu_002", "toolu_003", "toolu_004", "toolu_001"]
    assert waiting(begun) == []
    assert found[0].more == {
        "number": 1, "at": "1970-01-01T00:01:40Z", "session_id": SESSION,
        "stage": begun.state["steps"][-1]["stage"], "spool": f"{SESSION}-002.json",
    }  # fmt: skip
    for step in found:
        assert original(begun, step)[1] == event()["tool_response"]
    assert digest(begun.space()) == recording.Digested()
    put(begun, event(9, agent_id="agent-7"))
    digest(begun.space())
    assert steps(begun)[-1].more["agent_id"] == "agent-7"


def test_a_failure_keeps_its_error(begun: Scene) -> None:
    """A command that failed, and a write that failed with the content that is nowhere else."""
    content = "precious\n" * 900
    put(begun, failure(1, "Exit code 2\nls: cannot access '/nope': No such file or directory"))
    put(begun, failure(2, "EACCES: permission denied", "Write", file_path="/etc/x", content=content))
    told = event(3, tool="Write", tool_input={"file_path": "/etc/y", "content": content})
    put(begun, {**told, "tool_response": {"is_error": True, "error": "disk full"}})
    digest(begun.space())
    shell, write, third = steps(begun)
    assert (shell.success, "cannot access '/nope'" in shell.observation) == (False, True)
    assert (write.success, third.success) == (False, False)
    assert original(begun, write)[0] == {"file_path": "/etc/x", "content": content}
    assert original(begun, third)[0] == {"file_path": "/etc/y", "content": content}


def test_a_kill_between_append_and_unlink_repeats_nothing(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        put(begun, event(number))

    class Killed(BaseException):
        pass

    def kill(path: str, remove: Any = files.remove) -> None:
        if "/spool/" in path:
            raise Killed
        remove(path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "remove", kill)
        with pytest.raises(Killed):
            digest(begun.space())
    assert (len(steps(begun)), len(waiting(begun))) == (5, 5)
    put(begun, event(9))
    assert digest(begun.space()).steps == 1
    assert [step.id for step in steps(begun)] == [*(f"toolu_{number:03}" for number in range(5)), "toolu_009"]
    assert waiting(begun) == []


def test_a_batch_is_smaller_than_the_tail_that_is_looked_at() -> None:
    """Else a kill could repeat what is too far back to be known."""
    assert recording._BATCH < reducer._TAIL


PROGRAM = """
import os, signal, sys
sys.path.insert(0, {checkout!r})
from loomctl.kit import files
from loomctl.runs.tools import tool_log
from tests.helpers.scenes import Scene
from pathlib import Path
scene = object.__new__(Scene)
scene.root, scene.store = Path({root!r}), Path({root!r}) / ".loom"
calls = 0
def counted(name, inner):
    def call(*given, **more):
        global calls
        calls += 1
        if calls == {at}:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*given, **more)
    return call
for name in ("write", "fsync", "unlink", "link", "replace"):
    setattr(os, name, counted(name, getattr(os, name)))
from loomctl.runs.tools import recording
recording._BATCH = 3
recording.digest(scene.space())
"""


@pytest.mark.parametrize("at", range(1, 40, 3))
def test_killed_at_any_write_it_loses_and_repeats_nothing(begun: Scene, at: int) -> None:
    for number in range(7):
        put(begun, event(number, OUTPUT + str(number)))
    program = PROGRAM.format(checkout=str(CHECKOUT), root=str(begun.root), at=at)
    subprocess.run([sys.executable, "-c", program], env=begun.environ(), check=False, cwd=begun.root)
    digest(begun.space())
    assert sorted(step.id for step in steps(begun)) == [f"toolu_{number:03}" for number in range(7)]
    for step in steps(begun):
        assert original(begun, step)[1]["stdout"] == OUTPUT + str(int(step.id[-3:]))
    assert waiting(begun) == []


def test_ids_that_collide_get_a_suffix(begun: Scene) -> None:
    put(begun, event(1, "a" * 3000), f"{SESSION}-1.json", at=1)
    put(begun, event(1, "b" * 3000), f"{SESSION}-2.json", at=2)
    digest(begun.space())
    put(begun, event(1, "c" * 3000), f"{SESSION}-3.json", at=3)
    digest(begun.space())
    found = steps(begun)
    assert [step.id for step in found] == ["toolu_001", "toolu_001-2", "toolu_001-3"]
    assert [original(begun, step)[1]["stdout"][0] for step in found] == ["a", "b", "c"]


def test_calls_of_one_name_or_without_an_id_are_told_apart(begun: Scene) -> None:
    for number in (1, 2):
        put(begun, event(number), f"{SESSION}-77.json")
        digest(begun.space())
    assert [step.id for step in steps(begun)] == ["toolu_001", "toolu_002"]
    for number in (1, 2):
        put(begun, {**event(number), "tool_use_id": None}, f"{SESSION}-{number}.json", at=number)
    digest(begun.space())
    assert len({step.id for step in steps(begun)}) == 4


LONG_AGO = 1_000_000_000.0
HOSTILE: dict[str, tuple[bytes, str]] = {
    "torn": (json.dumps(event()).encode()[:-9], f"{SESSION}-1.json"),
    "empty": (b"", f"{SESSION}-1.json"),
    "no JSON": (b"\x00\xff" * 99, f"{SESSION}-1.json"),
    "no object": (b"[]", f"{SESSION}-1.json"),
    "too deep": (b"[" * 200_000, f"{SESSION}-1.json"),
    "another event": (json.dumps(event(hook_event_name="Stop")).encode(), f"{SESSION}-1.json"),
    "no tool": (json.dumps(event(tool_name=None)).encode(), f"{SESSION}-1.json"),
    "another session's event": (json.dumps(event(session_id=OTHER)).encode(), f"{SESSION}-1.json"),
    "of an unbound session": (json.dumps(event(session_id=OTHER)).encode(), f"{OTHER}-1.json"),
    "of no session": (json.dumps(event()).encode(), "x.json"),
    "of a name that none has": (json.dumps(event()).encode(), "a b-1.json"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_event_is_put_aside_once_nobody_writes_it(begun: Scene, case: str) -> None:
    given, name = HOSTILE[case]
    path = put(begun, given, name)
    put(begun, event(2), f"{SESSION}-2.json")
    assert (digest(begun.space()).steps, waiting(begun)) == (1, [name])
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert (digest(begun.space()).aside, waiting(begun)) == ((name,), [f"{name}.bad"])
    assert (path.parent / f"{name}.bad").read_bytes() == given
    told = [told["properties"]["file"] for told in begun.events() if told["event"] == "tools.unreadable"]
    assert told == ([f"{name}.bad"] if name.startswith(SESSION) else [])
    assert digest(begun.space()) == recording.Digested()


def test_no_link_is_followed_in_the_spool_or_to_it(begun: Scene, tmp_path: Path) -> None:
    target = begun.write("mine.json", json.dumps(event()))
    folder = begun.store / "local/spool"
    (folder / f"{SESSION}-1.json").symlink_to(target)
    (folder / f"{SESSION}-2.json").mkdir()
    os.mkfifo(folder / f"{SESSION}-3.json")
    digest(begun.space())
    assert waiting(begun) == [f"{SESSION}-{number}.json.bad" for number in (1, 2, 3)]
    assert (steps(begun), json.loads(target.read_text())) == ([], event())
    outside = tmp_path / "outside"
    path = put(begun, event())
    path.parent.rename(outside)
    path.parent.symlink_to(outside)
    assert digest(begun.space()) == recording.Digested()
    assert (outside / path.name).exists()


def test_a_replaced_output_is_stored_once_and_comes_back_whole(begun: Scene) -> None:
    text = OUTPUT * 9
    path = put(begun, event(1, text))
    command = [sys.executable, "-I", "-S", str(MAIN), "hook", "post-tool-use", str(path)]
    assert run(command, cwd=begun.root, environ=begun.environ()).stdout
    assert digest(begun.space()).steps == 1
    (step,) = steps(begun)
    assert (step.outcome_ref, step.bytes) == ("outputs/toolu_001.log", len(text))
    assert os.listdir(begun.run_dir / "outputs") == ["toolu_001.log"]
    assert original(begun, step) == (event()["tool_input"], event(1, text)["tool_response"])
    assert "shortened by Loom" not in step.observation


@pytest.mark.parametrize(("what", "code"), [("gone", "REF_GONE"), ("changed", "REF_DAMAGED")])
def test_what_the_model_saw_is_never_taken_for_an_output_that_was_lost(begun: Scene, what: str, code: str) -> None:
    """Digesting does not fail for it; the step names the output as it was, and nothing else is put in its place."""
    path = put(begun, event(1, OUTPUT * 9))
    command = [sys.executable, "-I", "-S", str(MAIN), "hook", "post-tool-use", str(path)]
    run(command, cwd=begun.root, environ=begun.environ())
    output = begun.run_dir / "outputs/toolu_001.log"
    output.unlink() if what == "gone" else output.write_text("another")
    assert digest(begun.space()).steps == 1
    (step,) = steps(begun)
    assert (step.outcome_ref, step.bytes) == ("outputs/toolu_001.log", len(OUTPUT * 9))
    assert "shortened by Loom" in step.rest["result"]["stdout"]
    assert sorted(os.listdir(begun.run_dir / "outputs")) == ([] if what == "gone" else ["toolu_001.log"])
    told = recall.savings(recall.record(begun.space(), None))
    assert [one.error.code for one in told.lost] == [code]
    assert (told.recovered, told.dangling) == (0, what == "gone")


@pytest.mark.slow
def test_eight_hooks_at_once_with_one_id_keep_their_own_outputs(
    begun: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, texts = [], []
    for number in range(8):
        texts.append(f"{number}\n" + OUTPUT * 9)
        paths.append(put(begun, event(1, texts[-1]), f"{SESSION}-{number + 1}.json", at=number + 1))
    started = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", str(MAIN), "hook", "post-tool-use", str(path)],
            env=begun.environ(),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
        )
        for path in paths
    ]
    for process, text in zip(started, texts, strict=True):
        told = json.loads(process.communicate()[0])["hookSpecificOutput"]["updatedToolOutput"]["stdout"]
        assert Path(told.rpartition("The whole output: ")[2]).read_text() == text
    monkeypatch.chdir(tmp_path)
    digest(begun.space())
    assert [original(begun, step)[1]["stdout"] for step in steps(begun)] == texts
    assert len({step.id for step in steps(begun)}) == len({step.outcome_ref for step in steps(begun)}) == 8
    assert len(os.listdir(begun.run_dir / "outputs")) == 8


def test_a_file_system_without_hard_links_keeps_outputs_too(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    refs = [DataOffloader(str(begun.run_dir)).offload(text, "a", "log") for text in ("one", "two", "one", "two")]
    assert refs == ["outputs/a.log", "outputs/a-2.log"] * 2
    assert sorted(os.listdir(begun.run_dir / "outputs")) == ["a-2.log", "a.log"]


def read_event(number: int, content: str, path: str = "/x/a.py", **given: Any) -> Json:
    response = {"type": "text", "file": {"filePath": path, "content": content, "numLines": 3, "startLine": 1}}
    return event(number, tool="Read", tool_input={"file_path": path, **given}, tool_response=response)


@pytest.mark.parametrize("content", ["small\n", OUTPUT])
def test_a_file_that_was_read_again_unchanged_is_stored_once(begun: Scene, content: str) -> None:
    put(begun, read_event(1, content))
    digest(begun.space())
    put(begun, read_event(2, content))
    put(begun, read_event(3, content + "more\n"))
    put(begun, read_event(4, content, "/x/b.py"))
    put(begun, read_event(5, content, offset=3))
    digest(begun.space())
    first, again, changed, other, part = steps(begun)
    assert again.observation.endswith(", unchanged since toolu_001)")
    assert again.outcome_ref == first.outcome_ref
    assert not any("unchanged" in step.observation for step in (first, changed, other, part))
    for step in steps(begun):
        assert original(begun, step)[1]["file"]["content"] in (content, content + "more\n")
    stored = os.listdir(begun.run_dir / "outputs") if content == OUTPUT else []
    assert len([name for name in stored if name.startswith("toolu_002")]) == 0


def test_what_the_host_calls_unchanged_is_unchanged(begun: Scene) -> None:
    put(begun, read_event(1, OUTPUT))
    told = read_event(2, "")
    put(begun, {**told, "tool_response": {"type": "file_unchanged", "file": {"filePath": "/x/a.py"}}})
    digest(begun.space())
    again = steps(begun)[1]
    assert "unchanged since toolu_001" in again.observation
    assert original(begun, again)[1] == {"type": "file_unchanged", "file": {"filePath": "/x/a.py"}}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"x": 1}', b'{"[\\"/x/a.py\\", null, null]": {"sha256": 1}}'])
def test_a_damaged_note_of_reads_is_no_trouble(begun: Scene, damage: bytes) -> None:
    """It is derived: the file is then read for the first time again."""
    (begun.run_dir / reducer.READS).write_bytes(damage)
    put(begun, read_event(1, OUTPUT))
    assert digest(begun.space()).steps == 1
    assert steps(begun)[0].success


def test_a_hook_digests_for_its_time_and_leaves_the_rest(begun: Scene) -> None:
    for number in range(9):
        put(begun, event(number))
    done = digest(begun.space(), limit=0.0)
    assert (done.steps, done.left) == (1, 8)
    assert len(waiting(begun)) == 8


def test_while_another_digests_a_hook_does_not_wait_long(begun: Scene) -> None:
    put(begun, event())
    with Lock(str(begun.store / "local/locks/spool.digest")):
        began = time.monotonic()
        done = digest(begun.space(), limit=0.1)
    assert time.monotonic() - began < PATIENCE
    assert (done.steps, done.left, "held by process" in done.trouble) == (0, 1, True)
    assert len(waiting(begun)) == 1


def test_a_log_that_cannot_be_written_keeps_the_spool(begun: Scene) -> None:
    (begun.run_dir / tool_log.FILE).mkdir()
    put(begun, event())
    driven = advance.next_step(begun.space(), begun.run_dir.name)
    assert any("could not record tool outputs" in note for note in driven.notes)
    assert len(waiting(begun)) == 1


def test_an_archive_holds_what_waited(begun: Scene, tmp_path: Path) -> None:
    put(begun, event())
    run_id = begun.run_dir.name
    begun.edit(status="completed")
    begun.space().local.mark_ended(SESSION)
    keep.archive(begun.space(None), run_id, str(tmp_path / "put-away.tar.gz"))
    keep.bring_back(begun.space(None), str(tmp_path / "put-away.tar.gz"))
    assert [step.id for step in steps(begun)] == ["toolu_001"]
    assert original(begun, steps(begun)[0])[1] == event()["tool_response"]


def test_a_run_that_is_being_put_away_keeps_the_spool(begun: Scene) -> None:
    put(begun, event())
    with begun.space().store.lock(begun.run_dir.name):
        assert "held by process" in digest(begun.space(), limit=0.1).trouble
    assert (steps(begun), len(waiting(begun))) == ([], 1)


BEFORE = ["next", "done", "undo", "resume", "stop", "pre-compact", "session-start"]


@pytest.mark.parametrize("verb", BEFORE)
def test_what_waits_is_digested_before_anything_changes(begun: Scene, verb: str) -> None:
    if verb == "undo":
        advance.done(begun.space(), begun.run_dir.name, response="done")
    stage = begun.space().local.binding(SESSION)["stage"]  # type: ignore[index] # it is bound
    put(begun, event())
    if verb in ("stop", "pre-compact", "session-start"):
        assert begun.hook(verb, last_assistant_message="so far", trigger="auto", source="compact").code == 0
    elif verb == "done":
        advance.done(begun.space(), begun.run_dir.name, response="done")
    elif verb == "resume":
        resume.resume(begun.space(), begun.run_dir.name)
    elif verb == "next":
        advance.next_step(begun.space(), begun.run_dir.name)
    else:
        assert verb == "undo"
        rewind.undo(begun.space(), begun.run_dir.name)
    assert [step.more["stage"] for step in steps(begun)] == [stage]
    assert waiting(begun) == []


def test_each_run_gets_the_steps_of_its_own_session(scene: Scene) -> None:
    scene.workflow()
    first = scene.begin("one").run.folder
    second = scene.begin("two", session=OTHER).run.folder
    put(scene, event(1))
    put(scene, event(2, session_id=OTHER), f"{OTHER}-2.json")
    assert digest(scene.space()).steps == 2
    assert [step.id for step in tool_log.read(first)] == ["toolu_001"]
    assert [step.id for step in tool_log.read(second)] == ["toolu_002"]


@pytest.mark.slow
def test_parallel_digests_and_hooks_lose_and_repeat_nothing(begun: Scene) -> None:
    writer = """
import json, os, sys
folder, session, first = sys.argv[1:]
for number in range(int(first), int(first) + 12):
    told = {"session_id": session, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {},
            "tool_response": {"stdout": "x" * 2000}, "tool_use_id": f"toolu_{number:03}"}
    with open(f"{folder}/{session}-{os.getpid()}-{number}.json", "x") as out:
        out.write(json.dumps(told))
"""
    reader = PROGRAM.replace("recording.digest(scene.space())", "[recording.digest(scene.space()) for _ in range(8)]")
    reader = reader.format(checkout=str(CHECKOUT), root=str(begun.root), at=0)
    folder = str(begun.store / "local/spool")
    commands = [[sys.executable, "-c", writer, folder, SESSION, str(12 * number)] for number in range(8)]
    commands[2:2] = [[sys.executable, "-c", reader]] * 4
    started = [subprocess.Popen(command, env=begun.environ(), cwd=begun.root) for command in commands]
    assert [process.wait() for process in started] == [0] * len(started)
    digest(begun.space())
    assert sorted(step.id for step in steps(begun)) == [f"toolu_{number:03}" for number in range(96)]
    assert sorted(step.more["number"] for step in steps(begun)) == list(range(1, 97))
    assert launcher_files.spooled(str(begun.store / "local")) == []
