"""Whole files that are not what they should be, before everything that reads them; and hook events that are none.

Each reader says one clear error with its exit code (D52), or goes on; hooks end with 0 within their time.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loomctl.hosts.protocol.hooks import _ANSWERS
from tests.helpers.scenes import SESSION, Json, Scene, artifact
from tests.helpers.tables import each
from tests.hostile import inside
from tests.hostile.limited import fails_open, hook
from tests.hostile.victim import READERS, Victim, is_raw, judged

CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"{'a': 1,}",
    "torn": b'{"schema_version": 1, "run_id": "x',
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "NUL bytes": b"\0" * 4096,
    "a list": b"[]",
    "a text": b'"x"',
    "null": b"null",
    "a number of 100,000 digits": b"9" * 100_000,
    "1,000 deep": b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
    "100,000 deep": b"[" * 100_000,
    "a bomb": b'a: &a ["x","x"]\nb: &b [*a,*a]\nc: [*b,*b]\n',
    "ten megabytes of text": b'{"a": "' + b"x" * 10_000_000 + b'"}',
    "escape codes": b'{"\x1b[31m": "\x1b[2J", "\xc2\x9b31m": 1}',
    "a newer schema": b'{"schema_version": 99, "run_id": "x"}',
}
# kind of file: the error of `show --json` (None where it does not read the file)
STATE_ERRORS = {"a newer schema": "SCHEMA_TOO_NEW", "a list": "BAD_STATE", "a text": "BAD_STATE", "null": "BAD_STATE"}
PLAN_ERRORS = {"a newer schema": "SCHEMA_TOO_NEW", "a list": "BAD_PLAN", "a text": "BAD_PLAN", "null": "BAD_PLAN"}
WELL_FORMED = ("ten megabytes of text",)
KINDS = ("state", "plan", "settings", "workflow", "binding", "primed", "compiled", "known", "events", "transcript")
CHOSEN = (
    *("SessionStart", "SessionStart compact", "UserPromptSubmit", "PreCompact", "PreToolUse", "Stop", "SessionEnd"),
    *("check", "run", "resume elsewhere", "show", "show --json", "prime-context", "next", "done", "runs", "undo"),
)


pytestmark = pytest.mark.usefixtures("at_the_victims")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@each("content", CONTENTS)
@pytest.mark.shows("make Loom say that a file of its is broken")
def test_a_file_that_is_none_is_refused_in_good_order(victim: Victim, kind: str, content: str) -> None:
    """By three readers of each kind and content, in turn, so that every reader meets every kind."""
    turn = list(CONTENTS).index(content)
    count = len(CHOSEN)
    for reader in {CHOSEN[turn % count], CHOSEN[(turn + 6) % count], CHOSEN[(turn + 12) % count]}:
        victim.restore()
        victim.places[kind].write_bytes(CONTENTS[content])
        assert judged(f"{kind}: {content}", reader, partial(READERS[reader], victim)) is None


@each("content", CONTENTS)
@each(("kind", "errors"), [("state", STATE_ERRORS), ("plan", PLAN_ERRORS)])
def test_a_run_that_cannot_be_read_says_which_file_and_what_to_do(
    victim: Victim, kind: str, errors: dict[str, str], content: str
) -> None:
    victim.restore()
    victim.places[kind].write_bytes(CONTENTS[content])
    ended = READERS["show --json"](victim)
    error = ended.json["error"]
    well_formed = {"state": "BAD_STATE", "plan": "BAD_PLAN"}[kind] if content in WELL_FORMED else "BAD_JSON"
    assert error["code"] == errors.get(content, well_formed)
    assert ended.code == (7 if error["code"] == "SCHEMA_TOO_NEW" else 5)
    assert str(victim.places[kind]) in error["where"]
    victim.restore()
    victim.places[kind].write_bytes(CONTENTS[content])
    told = READERS["show"](victim)
    assert (f"loomctl: {error['code']}: " in told.stderr, told.stdout) == (True, "")


def _put(path: Path, instead: str) -> None:
    if instead == "a folder":
        path.mkdir()
    elif instead == "a pipe":
        os.mkfifo(path)
    else:
        target = {"a link to nowhere": "/nowhere/at/all", "a link to itself": path.name}.get(instead, instead)
        path.symlink_to(target)


@pytest.mark.slow(quick=8)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "known"])
@each("instead", ["a folder", "a pipe", "a link to nowhere", "a link to itself", "/dev/zero"])
@pytest.mark.shows("what is not a regular file (a device, a pipe) is not read")
def test_what_is_no_file_holds_nobody_up(victim: Victim, kind: str, instead: str) -> None:
    for reader in ("SessionStart", "Stop", "show", "next", "done"):
        victim.restore()
        path = victim.places[kind]
        path.unlink()
        _put(path, instead)
        assert judged(f"{kind}: {instead}", reader, partial(READERS[reader], victim)) is None
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    victim.restore()


NAMES = ("session_id", "cwd", "transcript_path", "source", "trigger", "tool_name", "tool_input", "reason")
EVENTS: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"nonsense",
    "torn": b'{"session_id": "x"',
    "no field at all": b"{}",
    "a list": b"[]",
    "a number": b"1e999",
    "not UTF-8": b"\xff\xfe\x00",
    "deep": b'{"tool_input":' * 2_000 + b"1" + b"}" * 2_000,
    "deep brackets": b"[" * 1_000_000,
    "large": json.dumps({"session_id": SESSION, "prompt": "x" * 10_000_000}).encode(),
    "null everywhere": json.dumps(dict.fromkeys(NAMES)).encode(),
    "numbers everywhere": b'{"session_id":1,"cwd":1,"transcript_path":1,"source":1,"tool_name":1,"tool_input":1}',
    "objects everywhere": b'{"session_id":{},"cwd":[],"transcript_path":{},"source":[],"last_assistant_message":{}}',
    "a path for a session": b'{"session_id":"../../x","transcript_path":"/dev/zero","cwd":"/nowhere"}',
    "escape codes": b'{"session_id":"\\u001b[31m","source":"\\u001b[2J","reason":"\\u009b"}',
    "unknown words": b'{"source":"tomorrow","trigger":"tomorrow","hook_event_name":"Tomorrow"}',
    "a Bash call without a command": b'{"tool_name":"Bash","tool_input":{}}',
}


@pytest.mark.slow(quick=9)
@pytest.mark.parametrize("given", EVENTS)
@pytest.mark.shows("Whatever an event holds, a hook ends in good order")
def test_a_hook_ends_with_0_whatever_it_is_given(scene: Scene, given: str) -> None:
    """In a process of its own, under limits of memory and processor time; a run is under way."""
    scene.write("spec.md", "The contrast is 7:1.\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    before = (scene.run_dir / "plan.json").read_bytes()
    for event in _ANSWERS:
        ended = hook(scene, event, EVENTS[given])
        fails_open(ended)
        assert [character for character in ended.stdout if is_raw(character)] == []
        assert len(ended.stdout) < 60_000
    assert ((scene.run_dir / "plan.json").read_bytes(), scene.state["status"]) == (before, "in_progress")


WRONG: list[Any] = [None, True, -1, 1e308, 10**400, "", "\x00\x1b[31m\x9b", "../../etc/passwd"]
WRONG += [[], {}, [[[[]]]], "x" * 5000]
OF_ALL: Json = {"session_id": SESSION, "cwd": ".", "transcript_path": ""}
FIELDS: dict[str, Json] = {
    "session-start": {**OF_ALL, "source": "compact"},
    "user-prompt-submit": {**OF_ALL, "prompt": "x"},
    "pre-compact": {**OF_ALL, "trigger": "auto"},
    "post-compact": {**OF_ALL, "trigger": "auto", "compact_summary": "x"},
    "pre-tool-use": {**OF_ALL, "tool_name": "Bash", "tool_input": {"command": "loomctl next"}},
    "permission-request": {**OF_ALL, "tool_name": "Bash", "tool_input": {"command": "loomctl next"}},
    "stop": {**OF_ALL, "last_assistant_message": "x"},
    "session-end": {**OF_ALL, "reason": "clear"},
}


@pytest.mark.slow(quick=5)
@pytest.mark.parametrize("event", FIELDS)
@pytest.mark.shows("Whatever an event holds, a hook ends in good order")
def test_each_field_of_an_event_may_be_anything(scene: Scene, event: str) -> None:
    scene.workflow([artifact("state", "{state_path}", type="json")])
    scene.begin()
    for field, good in FIELDS[event].items():
        for wrong in WRONG:
            told = {**FIELDS[event], field: wrong}
            body = json.dumps(told if not isinstance(good, dict) else {**told, field: {"command": wrong}})
            asked = f"{event} {field}={wrong!r:.30}"
            assert judged(asked, event, partial(inside.hook, scene, event, body)) is None


WORDS = [
    *("", "nonsense", "phase_start", "phase_start:", "phase_transition:a", "phase_transition:a->b->c", "manual:x"),
    "\x1b[31m",
]


@each("word", WORDS)
def test_an_unknown_trigger_is_named(victim: Victim, word: str) -> None:
    victim.restore()
    ended = victim.loomctl("prime-context", "--json", f"--trigger={word}")
    assert (ended.code, ended.json["error"]["code"]) == (2, "UNKNOWN_TRIGGER")
    assert "session_start" in ended.json["error"]["why"]


CONDITIONS = [
    "(() => { while (true) {} })()",
    "(function f() { return f() + 1 })()",
    "'x'.repeat(2**30).length",
    "Array(1e9).fill(0).length",
    "[...Array(1e8).keys()].sort().length",
    "'x'.repeat(4e6).indexOf('x'.repeat(2e6) + 'y')",
    "/(a+)+$/.test('a'.repeat(40) + 'b')",
    "(() => { const a = []; while (true) a.push(a.join()) })()",
    "JSON.parse('['.repeat(1e6))",
    "new Proxy({}, {get() { throw 1 }}).x",
    "1); while (true) {} (1",
    "eval('while(1);')",
    "import('fs')",
    "require('fs').readFileSync('/etc/passwd')",
    "this.constructor.constructor('return process')().exit()",
    "state.constructor.constructor('while(1);')()",
    "(" * 5_000,
    "state" + ".a" * 8_000,
    "!" * 16_000 + "state",
    "\\u0000",
]


@pytest.mark.slow
@pytest.mark.shows("with limits on time, memory and stack")
def test_conditions_that_loop_or_allocate_without_end_are_ended(scene: Scene) -> None:
    """All of them in one run: the session starts, each is answered or given up in time, and so are the others."""
    scene.write("spec.md", "The contrast is 7:1.\n")
    scene.workflow([artifact("spec", "spec.md")])
    scene.begin()
    evil = [
        {"id": f"c{number}", "type": "markdown", "path": "spec.md", "condition": source, "triggers": ["session_start"]}
        for number, source in enumerate(CONDITIONS)
    ]
    scene.edit_plan(artifacts=[*evil, *scene.edit_plan()["artifacts"]])
    assert "1 artifact" in fails_open(hook(scene, "session-start", source="startup"))
    shown = scene.loomctl("prime-context", "--force", "--json", "--dry-run").json["artifacts"]
    reasons = {one["id"]: one["reason"] for one in shown}
    assert {reasons.pop("spec")} == {"manual"}
    assert set(reasons.values()) <= {"condition_false", "needs_environment", "manual"}  # an array of any size is true
