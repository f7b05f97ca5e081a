"""Large output is stored before it is replaced, in the tool's own shape, and whatever fails leaves it alone (D48)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loomctl.runs import config
from tests.helpers.scenes import MAIN, OTHER, SESSION, Ended, Json, Scene, run

LINES = [f"test {number} ... ok, as it was in the run before" for number in range(1500)]
LINES[700] = "test 700 ... FAILED: AssertionError in src/shop/cart.py:41"
OUTPUT = "\n".join(LINES) + "\n"
BASH: Json = {"stdout": OUTPUT, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin()
    return scene


def spool(scene: Scene, event: Json | bytes, name: str = f"{SESSION}-4711.json") -> Path:
    path = scene.store / "local/spool" / name
    path.write_bytes(event if isinstance(event, bytes) else json.dumps(event).encode())
    os.utime(path, ns=(1_700_000_000_123_456_789,) * 2)
    return path


def event(response: Any = None, tool: str = "Bash", **more: Any) -> Json:
    told: Json = {"session_id": SESSION, "cwd": "/nowhere", "hook_event_name": "PostToolUse", "tool_name": tool}
    told |= {"tool_input": {"command": "cargo test"}, "tool_response": BASH if response is None else response}
    return {**told, "tool_use_id": "toolu_01", "duration_ms": 5, **more}


def answer(scene: Scene, path: Path, **environ: str) -> Ended:
    command = [sys.executable, "-I", "-S", str(MAIN), "hook", "post-tool-use", str(path)]
    ended = run(command, cwd=scene.root, environ=scene.environ(**environ), given=b"")
    assert (ended.code, ended.stderr) == (0, "")
    return ended


def replaced(scene: Scene, path: Path) -> Any:
    output = answer(scene, path).json["hookSpecificOutput"]
    assert output["hookEventName"] == "PostToolUse"
    return output["updatedToolOutput"]


def test_large_output_is_stored_and_replaced(begun: Scene) -> None:
    """An observation, an excerpt with the failure, the path of the whole; the rest of the response as it was."""
    path = spool(begun, event())
    response = replaced(begun, path)
    told = response["stdout"].split("\n")
    assert {**response, "stdout": OUTPUT} == BASH
    assert told[0] == f"cargo: 1,500 lines, {len(OUTPUT):,} bytes; shortened by Loom"
    assert LINES[700] in told
    stored = Path(told[-1].removeprefix("The whole output: "))
    assert stored == begun.run_dir / "outputs/toolu_01.log"
    assert stored.read_bytes() == OUTPUT.encode()
    assert stored.stat().st_mode & 0o777 == 0o600
    assert len(response["stdout"]) < 3500


@pytest.mark.parametrize("host", ["gemini", "qwen"])
def test_a_host_that_cannot_replace_output_is_given_none(host: str, begun: Scene) -> None:
    assert answer(begun, spool(begun, event()), LOOM_HOST=host).stdout == ""


def test_the_spooled_event_becomes_a_finished_record(begun: Scene) -> None:
    path = spool(begun, event())
    response = replaced(begun, path)
    record = json.loads(path.read_text())
    kept = record.pop("loom")
    digest = hashlib.sha256(OUTPUT.encode()).hexdigest()
    assert kept == {"ref": "outputs/toolu_01.log", "sha256": digest, "bytes": len(OUTPUT), "at": ["stdout"]}
    assert record == {**event(), "tool_response": response}
    assert path.stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert os.listdir(path.parent) == [path.name]
    assert os.listdir(begun.run_dir / "outputs") == ["toolu_01.log"]


TEXT = {"type": "text", "text": OUTPUT}
SHAPES: dict[str, tuple[str, Any, Any]] = {
    "a page": ("WebFetch", {"bytes": 9, "code": 200, "codeText": "OK", "result": OUTPUT, "url": "u"}, ["result"]),
    "a search": ("WebSearch", {"query": "q", "results": [{"content": []}, OUTPUT]}, ["results", 1]),
    "MCP, a string": ("mcp__a__b", OUTPUT, []),
    "MCP, blocks": ("mcp__a__b", [{"type": "text", "text": "a"}, TEXT], [1, "text"]),
    "MCP, an image beside": ("mcp__a__b", [{"type": "image", "data": "AA=="}, TEXT], [1, "text"]),
    "a background shell": ("BashOutput", {"stdout": OUTPUT, "stderr": "", "status": "running"}, ["stdout"]),
    "standard error": ("Bash", {**BASH, "stdout": "", "stderr": OUTPUT}, ["stderr"]),
}


def test_each_tool_keeps_its_shape(begun: Scene) -> None:
    for tool, response, place in SHAPES.values():
        path = spool(begun, event(response, tool))
        given = replaced(begun, path)
        assert json.loads(path.read_text())["loom"]["at"] == place
        told = given
        for key in place:
            told = told[key]
        assert json.dumps(given).replace(json.dumps(told), json.dumps(OUTPUT)) == json.dumps(response)
        assert (begun.run_dir / "outputs/toolu_01.log").read_text() == OUTPUT
        shutil.rmtree(begun.run_dir / "outputs")


def test_what_no_utf8_holds_is_stored_and_given_all_the_same(begun: Scene) -> None:
    """Lone surrogates as the bytes that they would take; control characters as they were."""
    text = "\ud83d \x1b[31m\x00\r\n😀" * 3000
    response = replaced(begun, spool(begun, event({**BASH, "stdout": text})))
    assert (begun.run_dir / "outputs/toolu_01.log").read_bytes() == text.encode("utf-8", "surrogatepass")
    assert "\ud83d \x1b[31m\x00" in response["stdout"]


def rebound(scene: Scene, change: Callable[[str], str]) -> None:
    path = scene.store / f"local/sessions/{SESSION}.json"
    path.write_text(change(path.read_text()))


def set_to(scene: Scene, settings: str) -> None:
    scene.write(".loom/config.yaml", f"reduce: {settings}\n")
    config.load(str(scene.store), with_yaml=True)


def switched_off_by_the_user(scene: Scene) -> None:
    place = Path(config.user_config())
    place.parent.mkdir(parents=True)
    place.write_text("reduce: {live: off}\n")
    config.load(str(scene.store), with_yaml=True)


UNTOUCHED: dict[str, Callable[[Scene], object]] = {
    "no room": lambda scene: (scene.run_dir / "outputs").write_text("in the way"),
    "a link for outputs": lambda scene: (scene.run_dir / "outputs").symlink_to(scene.root),
    "of another place": lambda scene: rebound(scene, lambda text: text.replace(str(scene.store), "/elsewhere/.loom")),
    "unbound": lambda scene: (scene.store / f"local/sessions/{SESSION}.json").unlink(),
    "damaged": lambda scene: rebound(scene, lambda _: "{"),
    "another run": lambda scene: rebound(scene, lambda text: json.dumps({**json.loads(text), "run_id": "../../etc"})),
    "switched off": lambda scene: set_to(scene, "{live: off}"),
    "switched off for it": lambda scene: set_to(scene, "{tools: {Bash: {live: off}}}"),
    "only for more": lambda scene: set_to(scene, "{live_threshold: 90000}"),
    "switched off by the user": switched_off_by_the_user,
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_the_output_stays_where_it_may_not_or_cannot_be_replaced(begun: Scene, case: str) -> None:
    UNTOUCHED[case](begun)
    path = spool(begun, event())
    before = path.read_bytes()
    assert answer(begun, path).stdout == ""
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


GIVEN: dict[str, Json | bytes] = {
    "small": event({**BASH, "stdout": "x" * 8000}),
    "no text": event({"interrupted": False}),
    "no response": {key: value for key, value in event().items() if key != "tool_response"},
    "another session's": event(session_id=OTHER),
    "no session": event(session_id=None),
    "a path for a session": event(session_id="../../x"),
    "a Read": event({"type": "text", "file": {"content": OUTPUT}}, "Read"),
    "loomctl": event(tool_input={"command": "loomctl show --json"}),
    "torn": json.dumps(event()).encode()[:-20],
    "no object": b"[1]" * 9000,
    "empty": b"",
    "not UTF-8": b"\xff" * 9000,
}


def test_events_that_are_left_alone(begun: Scene) -> None:
    for case, given in GIVEN.items():
        path = spool(begun, given)
        before = path.read_bytes()
        assert answer(begun, path).stdout == "", case
        assert path.read_bytes() == before
        assert not (begun.run_dir / "outputs").exists()


def test_of_what_the_host_put_away_the_whole_is_kept(begun: Scene, tmp_path: Path) -> None:
    """The host gives the beginning and a path: the excerpt is of all of it, and the host's two keys go."""
    kept = tmp_path / "tool-results.txt"
    kept.write_text(OUTPUT)
    persisted = {"persistedOutputPath": str(kept), "persistedOutputSize": 9}
    path = spool(begun, event({**BASH, "stdout": OUTPUT[:29_999], **persisted}))
    assert set(replaced(begun, path)) == set(BASH)
    assert (begun.run_dir / "outputs/toolu_01.log").read_text() == OUTPUT


@pytest.mark.parametrize("case", ["a link", "another file", "a pipe", "nothing", "hardly a beginning"])
def test_a_file_that_is_not_what_the_host_put_away_is_not_read(begun: Scene, tmp_path: Path, case: str) -> None:
    kept = tmp_path / "kept.txt"
    if case == "a link":
        (tmp_path / "real").write_text(OUTPUT)
        kept.symlink_to(tmp_path / "real")
    elif case == "a pipe":
        os.mkfifo(kept)
    elif case != "nothing":
        kept.write_text(OUTPUT if case == "hardly a beginning" else "secret\n" * 9000)
    shown = OUTPUT[: 100 if case == "hardly a beginning" else 29_999]
    path = spool(begun, event({**BASH, "stdout": shown, "persistedOutputPath": str(kept)}))
    assert answer(begun, path).stdout == ""
    assert not (begun.run_dir / "outputs").exists()


def test_a_link_in_the_spool_is_not_read(begun: Scene) -> None:
    target = begun.write("event.json", json.dumps(event()))
    path = begun.store / f"local/spool/{SESSION}-1.json"
    path.symlink_to(target)
    before = target.read_bytes()
    assert answer(begun, path).stdout == ""
    assert (target.read_bytes(), path.is_symlink()) == (before, True)


def test_a_full_disk_leaves_the_output_with_the_model(begun: Scene) -> None:
    path = spool(begun, event())
    command = [sys.executable, "-I", "-S", str(MAIN), "hook", "post-tool-use", str(path)]
    limited = ["/bin/sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *command]
    ended = run(limited, cwd=begun.root, environ=begun.environ())
    assert (ended.code, ended.stdout, ended.stderr) == (0, "", "")
    assert list((begun.run_dir / "outputs").iterdir()) == []
    assert json.loads(path.read_text()) == event()


def test_ids_that_collide_get_files_of_their_own(begun: Scene) -> None:
    """Another text under the same id gets the next name; the same text again the file that it has."""
    other = OUTPUT.upper()
    for text, name in ((OUTPUT, "toolu_01.log"), (other, "toolu_01-2.log"), (OUTPUT, "toolu_01.log")):
        response = replaced(begun, spool(begun, event({**BASH, "stdout": text})))
        assert response["stdout"].endswith(f"outputs/{name}")
        assert (begun.run_dir / "outputs" / name).read_text() == text
    assert len(os.listdir(begun.run_dir / "outputs")) == 2


def test_an_id_that_no_file_can_have_gets_another_name(begun: Scene) -> None:
    for name in ["../../evil", "", "a b", ".hidden", "x" * 300, None, 5]:
        replaced(begun, spool(begun, event(tool_use_id=name)))
        (stored,) = os.listdir(begun.run_dir / "outputs")
        assert stored.startswith("step-")
        shutil.rmtree(begun.run_dir / "outputs")


def test_a_host_that_went_away_is_no_trouble(begun: Scene) -> None:
    command = [sys.executable, "-I", "-S", str(MAIN), "hook", "post-tool-use", str(spool(begun, event()))]
    ended = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command],
        env=begun.environ(),
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_it_imports_next_to_nothing(begun: Scene) -> None:
    path = spool(begun, event())
    program = (
        "import sys; before = {*sys.modules}; sys.argv = sys.argv[1:]; "
        "sys.path.insert(0, sys.argv[0].rsplit('/', 2)[0]); from loomctl.__main__ import main; main(); "
        "sys.stderr.write(' '.join({*sys.modules} - before))"
    )
    command = [sys.executable, "-I", "-S", "-c", program, str(MAIN), "hook", "post-tool-use", str(path)]
    ended = run(command, cwd=begun.root, environ=begun.environ(), given=b"")
    assert ended.stdout
    loaded = {name for name in ended.stderr.split() if not name.startswith("loomctl")}
    of_os = {"os", "os.path", "posixpath", "genericpath", "stat", "_stat", "_collections_abc"}
    assert loaded - of_os <= {"_json", "_sha256", "_sha2", "_collections", "errno", "__future__"}
