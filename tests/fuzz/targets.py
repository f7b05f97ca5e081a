"""What the fuzzer calls: a function for each parser, which takes any bytes and raises only where Loom is at fault.

`scripts/fuzz` runs them with coverage; tests/hostile/test_fuzz_targets.py with the seeds below.
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loomctl.cli import main
from loomctl.expressions import conditions, javascript, placeholders, state_paths
from loomctl.flow import rewind, route
from loomctl.hosts import tool_calls
from loomctl.hosts.protocol.transcript import Transcript
from loomctl.kit import files, ids, strict
from loomctl.kit.errors import LoomError
from loomctl.kit.problems import errors
from loomctl.kit.text import fences, hidden_characters, secrets
from loomctl.kit.text.fences import utf8_bytes, utf16_units
from loomctl.priming import artifact_files, packing, slip
from loomctl.runs import artifact_paths
from loomctl.runs.model import frozen_plan, sessions, state, visits
from loomctl.runs.store import events
from loomctl.workflows import gates, git_commands, triggers, workflow
from tests.fuzz import dot_targets

AT = "2026-01-01T00:00:00Z"
_RAW = frozenset(fences._CONTROLS) | (fences._HIDDEN - hidden_characters._NEEDED.keys())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape" if data[:1] < b"\x80" else "replace")


def _parts(data: bytes, count: int) -> list[str]:
    parts = data.split(b"\xff", count - 1)
    return [part.decode("utf-8", "replace") for part in parts] + [""] * (count - len(parts))


def _refused(error: LoomError, *codes: str) -> None:
    assert error.code in codes, error.code


def json_files(data: bytes) -> None:
    """What is read can be written, and is the same when read again."""
    try:
        value = files.parse_json(data, where="x")
    except LoomError as refused:
        _refused(refused, "BAD_JSON")
        return
    assert files.parse_json(files.to_json(value), where="x") == _without_halves(value)


def _without_halves(value: Any) -> Any:
    """Lone surrogates are written as escapes of their own, which are read as text."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def states(data: bytes) -> None:
    """A state that is accepted is shown, summed up and gone on with."""
    try:
        found = state.accepted(files.parse_json(data, where="x"), where="x")
    except LoomError:
        return
    artifact_files.readable_state(found)
    sessions.summary(found)
    frozen = _plan_of_seeds()
    for change in (
        lambda: route.advance(found, frozen, at=AT),
        lambda: route.end_visit(found, frozen, outcome="failed", at=AT, note="x", artifacts={"a": "b"}),
        lambda: rewind.undone(found, frozen),
        lambda: gates.approve(found, at=AT),
        lambda: gates.reject(found, at=AT, by="Ada", note="x"),
        lambda: gates.ask(found, frozen, at=AT),
        lambda: gates.decision(found, frozen, gates.APPROVE),
        lambda: gates.decision(found, frozen, gates.CHOOSE, "x"),
        lambda: gates.refusal(found),
        lambda: sessions.entered(found, "s", host="h", source="resume", at=AT, environment={}),
        lambda: sessions.primed(found, "s", [{"artifact_id": "x"}], at=AT),
        lambda: sessions.uncompleted_phases(found, ["a"]),
    ):
        try:
            change()
        except LoomError:
            continue


def _plan_of_seeds() -> dict[str, Any]:
    return frozen_plan.accepted(json.loads(_PLAN), where="x")


def plans(data: bytes) -> None:
    """A plan that is accepted is shown and walked through to its end; its conditions are answered or left open."""
    try:
        found = frozen_plan.accepted(files.parse_json(data, where="x"), where="x")
    except LoomError:
        return
    artifact_files.readable_plan(found, {"steps": []})
    now: dict[str, Any] = {**json.loads(_STATE), "steps": [], "phases": {}, "current_phase": None}
    try:
        for _ in range(20):
            now, move = route.advance(now, found, at=AT)
            if move.kind != "step" or move.step is None:
                break
            place = frozen_plan.place_of(found, move.step)
            assert place is not None
            now, _ = visits.start_visit(now, place.key, str(place.phase["id"]), at=AT)
            now = route.end_visit(now, found, outcome="succeeded", at=AT).state
    except LoomError:
        pass
    for artifact in found["artifacts"]:
        triggers.fires(artifact.get("triggers") or (), triggers.manual())
        if artifact.get("condition_code") is not None:
            _evaluated(artifact["condition_code"])
        if artifact.get("path_steps") is not None:
            state_paths.read(artifact["path_steps"], now)


def yaml(data: bytes) -> None:
    """What is read is what JSON could hold, and nothing else."""
    value, problems = strict.parse_yaml(data.decode("utf-8", "replace"), max_depth=64)
    if not problems:
        assert json.loads(json.dumps(value, allow_nan=False)) == value


def strict_json(data: bytes) -> None:
    """JSON that people write is read as the library reads it, or refused with a place."""
    text = data.decode("utf-8", "replace")
    value, problems = strict.parse_json(text, max_depth=64)
    assert len(problems) <= strict.MOST_PROBLEMS
    if not problems:
        assert json.loads(text) == value


def workflows(data: bytes) -> None:
    """A workflow without errors becomes a plan that is accepted."""
    raw, problems = strict.parse_json(data.decode("utf-8", "replace"), max_depth=64)
    if problems:
        return
    parsed, found = workflow.parse(raw)
    if parsed is None or errors(found):
        return
    made = workflow.build_plan(raw, plan_id="p", created_at=AT, sources=[])
    frozen_plan.accepted(json.loads(json.dumps(made)), where="x")


def _evaluated(code: list[Any]) -> None:
    for scope in ({"state": json.loads(_STATE)}, {"state": None}, {}):
        try:
            assert isinstance(conditions.evaluate(code, scope), bool)
        except (javascript.NeedsEngine, javascript.ConditionThrew):
            continue


def condition(data: bytes) -> None:
    """A condition is compiled to what a plan can hold, and answered, or left to the engine."""
    code = conditions.compile_condition(data.decode("utf-8", "replace"))
    if code is not None:
        assert json.loads(json.dumps(code)) == code
        _evaluated(code)


def compiled_condition(data: bytes) -> None:
    """Code that nobody compiled is answered or left to the engine, whatever it is."""
    try:
        code = files.parse_json(data, where="x")
    except LoomError:
        return
    if isinstance(code, list):
        _evaluated(code)


def javascript_values(data: bytes) -> None:
    """Two JSON values are compared as JavaScript does, or left to the engine; numbers are read to their end."""
    left, right = _parts(data, 2)
    found = javascript.decimal(left, 0)
    assert found is None or 0 < found[1] <= len(left)
    values: list[Any] = []
    for text in (left, right):
        try:
            values.append(files.parse_json(text.encode(), where="x"))
        except LoomError:
            values.append(text)
    for ask in (
        javascript.strictly_equal,
        javascript.loosely_equal,
        javascript.less,
        lambda one, _: javascript.truthy(one),
        lambda one, other: javascript.member(one, other if isinstance(other, (str, int)) else str(other)),
    ):
        try:
            ask(values[0], values[1])
        except (javascript.NeedsEngine, javascript.ConditionThrew):
            continue


def state_path(data: bytes) -> None:
    """A path into the state is compiled to what a plan can hold, and read."""
    steps = state_paths.compile_path(data.decode("utf-8", "replace"))
    if steps is not None:
        assert json.loads(json.dumps(steps)) == steps
        state_paths.read(steps, json.loads(_STATE))


def shell_command(data: bytes) -> None:
    """What is allowed is one plain loomctl command of the short list, and none that a person decides."""
    command = data.decode("utf-8", "replace")
    verdict = tool_calls.judge(command)
    if verdict is None or verdict[0] != "allow":
        return
    first, _, rest = command.strip(" \n").partition("\n")
    words = first.split()
    assert words[0] == "loomctl"
    assert words[1] in ("next", "show", "done")
    assert not set("$`;&|()\\") & set(first.replace("'", "\0").split("\0")[0])
    assert not rest or "<<" in first


def transcript(data: bytes) -> None:
    """Whatever stands in a transcript, questions about it are answered."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        read = Transcript(file.name)
        read.holds({"0123456789abcdef", "x"})
        read.boundary()
        read.said_since(AT)
        assert isinstance(read.last_message(data[-40:].decode("utf-8", "replace")), str)


def masking(data: bytes) -> None:
    """Masked text has its lines, masked again it stays, and JSON stays JSON of the same shape."""
    text = data.decode("utf-8", "replace")
    clean, count = secrets.mask(text)
    assert clean.count("\n") == text.count("\n")
    assert (clean == text) == (count == 0)
    assert secrets.mask(clean)[0] == clean
    try:
        value = files.parse_json(data, where="x")
    except LoomError:
        return
    assert type(secrets.masked(value)) is type(value)
    json.loads(fences.visible_in_json(json.dumps(secrets.masked(value), ensure_ascii=False)))


def fencing(data: bytes) -> None:
    """Nothing raw comes through, nothing closes its fence, and a line is one."""
    text = _text(data)
    seen = fences.visible(text)
    assert not _RAW & set(seen)
    assert fences.visible(seen) == seen
    seen.encode()
    lines = fences.fenced(seen, text).split("\n")
    fence = lines[-1]
    assert set(fence) == {"`"}
    assert not [line for line in lines[1:-1] if line.strip().startswith(fence)]
    line = fences.one_line(text, 50)
    assert "\n" not in line
    assert utf16_units(line) <= 50
    escaped = fences.visible_in_json(json.dumps(text, ensure_ascii=False))
    assert not _RAW & set(escaped)
    assert json.loads(escaped) == text


def packed(data: bytes) -> None:
    """A priming keeps to its budget, ends with its slip, and shows no text of a file outside of a fence."""
    head, note, upcoming, heading, pointer, *texts = _parts(data, 9)
    limit = 300 + len(data) * 7 % 9000
    pieces = [
        packing.Piece(
            f"a{n}", heading, fences.visible(text), "", pointer, n % 2 == 0, heading, numbered=n % 3 == 0,
            own=n % 4 == 0,
        )
        for n, text in enumerate(texts)
    ]  # fmt: skip
    for measure, count in ((utf16_units, 1), (utf8_bytes, 1), (utf16_units, 4)):
        budget = slip.Budget(limit, measure, count)
        room = slip.cut_lines(fences.visible(upcoming), budget.share(slip.NEXT_SHARE), measure)
        lines = [fences.one_line(line, 100) for line in (head, note)]
        composed = slip.compose(slip.Texts(lines[0], lines, room, lines), pieces, budget)
        parts = slip.seal_parts(composed.texts, "0123456789abcdef")
        assert sum(map(measure, parts)) <= limit
        assert all(measure(part) <= room for part, room in zip(parts, budget.rooms(), strict=False))
        marks = ["0123456789abcdef", *slip.marks("0123456789abcdef", range(1, len(parts) + 1))]
        assert [part.split("\n")[-1] for part in parts] == [f"Loom slip {mark}" for mark in marks]
        assert not _RAW & set("".join(parts))


_FOLDER = tempfile.mkdtemp(prefix="loom-fuzz-")


def event_log(data: bytes) -> None:
    """Whatever a log ends with, what is appended is an entry after the last one that was there."""
    path = os.path.join(_FOLDER, events.FILE)
    Path(path).write_bytes(data)
    first = events.append(_FOLDER, "r", [events.Event("x.y", {"a": "b"})], durable=False)
    last = events.append(_FOLDER, "r", [events.Event("x.z", {})], durable=False, known=first)
    assert last.seq == first.seq + 1
    whole = Path(path).read_bytes()
    assert whole.startswith(data)
    entries = [json.loads(line) for line in whole.split(b"\n")[-3:-1]]
    assert [entry["event"] for entry in entries] == ["x.y", "x.z"]
    assert entries[1]["prev"] == first.sha256


def placeholder(data: bytes) -> None:
    """What is expanded holds no known placeholder that had a value, and escaped text comes through as it was."""
    text = data.decode("utf-8", "replace")
    values = dict.fromkeys(placeholders.NAMES, "v")
    assert isinstance(placeholders.expand(text, values).text, str)
    assert placeholders.expand(placeholders.escape(text), values).text == text
    placeholders.used(text)


def names(data: bytes) -> None:
    """A name that is accepted is one component of a path; slugs of anything are accepted."""
    text = _text(data)
    try:
        ids.checked_id(text)
    except LoomError as refused:
        _refused(refused, "BAD_ID")
    else:
        assert os.path.normpath(os.path.join("/a", text)) == f"/a/{text}"
        assert len(text.encode()) <= 255
    ids.checked_id(ids.make_plan_id(text, text))
    ids.split_run_id(text)
    ids.is_work_id(text)


def git_command(data: bytes) -> None:
    """What is allowed begins with an allowed verb behind Loom's own settings, and names no way to write or start."""
    text = data.decode("utf-8", "replace")
    if git_commands.git_command_problem(text) is not None:
        return
    argv = git_commands.git_argv(text)
    verb = next(index for index, word in enumerate(argv) if word in git_commands._ALLOWED)
    asked = argv[verb + 1 :]
    options = asked[: asked.index("--")] if "--" in asked else asked
    for evil in ("--output", "--ext-diff", "--textconv", "--exec", "-c", "--open-files-in-pager", "--no-index", "-O"):
        named = [word for word in options if word == evil or word.startswith(evil + "=")]
        assert not named or options[max(0, options.index(named[0]) - 1)] in ("-S", "-G", "-n", "--grep", "--author"), (
            argv
        )


_WORLD = tempfile.mkdtemp(prefix="loom-fuzz-world-")
for _name in ("project/docs", "run", "plugin", "outside"):
    os.makedirs(os.path.join(_WORLD, _name))
os.symlink(os.path.join(_WORLD, "outside"), os.path.join(_WORLD, "project", "out"))


def artifact_path(data: bytes) -> None:
    """What a declared path leads to lies in the project, the run or the bundle, or is refused."""
    text = _text(data)
    project, run, plugin = (os.path.join(_WORLD, name) for name in ("project", "run", "plugin"))
    roots = artifact_paths.Roots(project, run, plugin, (), ("/home/b/shop", "C:\\shop", _WORLD))
    known: dict[str, str | None] = dict(  # noqa: C408 - reads as the names
        project_root=project,
        run_id="r",
        plan_id="p",
        work_id=None,
        run_suffix="s",
        run_dir=run,
        state_path=os.path.join(run, "state.json"),
        plan_path=os.path.join(run, "plan.json"),
        plugin_root=plugin,
    )
    try:
        place = artifact_paths.locate(text.replace("OUTSIDE", os.path.join(_WORLD, "outside")), known, roots)
    except LoomError as refused:
        _refused(refused, "PATH_ESCAPE", "BAD_PATH", "UNRESOLVED_PLACEHOLDER")
        return
    real = os.path.realpath(place.path)
    assert any(artifact_paths.is_inside(real, os.path.realpath(root)) for root in (project, run, plugin))
    list(placeholders.candidates(text, roots.recorded))


def slash_arguments(data: bytes) -> None:
    """The words of a slash command are those that were typed, or it is said that they were cut."""
    text = data.decode("utf-8", "replace")
    try:
        words = main.split(text)
    except LoomError as refused:
        _refused(refused, "CUT_ARGUMENTS")
        return
    assert all(word in text for word in words)


def settings(data: bytes) -> None:
    """Settings of any content are read, or refused by one error."""
    from loomctl.runs import config

    store = os.path.join(_FOLDER, "p", ".loom")
    os.makedirs(store, exist_ok=True)
    Path(store, "config.yaml").write_bytes(data)
    try:
        found = config.load(store, with_yaml=True)
    except LoomError as refused:
        _refused(refused, "BAD_CONFIG", "TOO_LARGE")
        return
    assert 500 <= found.hook_budget <= 38000
    config.load(store, with_yaml=False)


_VICTIM: list[Any] = []


def _victim() -> Any:
    from tests.hostile.victim import Victim

    if not _VICTIM:
        home = tempfile.mkdtemp(prefix="loom-fuzz-home-")
        os.environ.update(HOME=home, LOOM_STATE_HOME=os.path.join(home, "state"), XDG_CONFIG_HOME=home)
        _VICTIM.append(Victim(Path(home)))
    return _VICTIM[0]


def hook_event(data: bytes) -> None:
    """Whatever a host hands to a hook, it ends with 0 and one JSON document or nothing, and hides no fault."""
    from tests.hostile import inside

    victim = _victim()
    victim.restore()
    kinds = (
        "session-start", "stop", "pre-tool-use", "user-prompt-submit", "pre-compact", "post-compact", "session-end",
    )  # fmt: skip
    kind = kinds[data[0] % len(kinds)] if data else kinds[0]
    ended = inside.hook(victim.scene, kind, data[1:].decode("utf-8", "replace"))
    assert ended.code == 0
    assert not ended.stdout.startswith("{") or json.loads(ended.stdout)


def damaged_files(data: bytes) -> None:
    """One value of one file of a project replaced: every reader takes it or refuses it in good order."""
    from tests.hostile import victim as hostile

    victim = _victim()
    if len(_VICTIM) == 1:
        _VICTIM.append(list(hostile.trials(victim)))
    number = int.from_bytes(data[:8].ljust(8, b"\0"), "little")
    known: list[Any] = _VICTIM[1]
    trial = known[number % len(known)]
    wrong = hostile.tried(victim, trial, list(hostile.READERS)[(number >> 24) % len(hostile.READERS)])
    assert wrong is None, wrong


TARGETS: dict[str, Callable[[bytes], None]] = {
    "json": json_files, "state": states, "plan": plans, "yaml": yaml, "strict-json": strict_json, "workflow": workflows,
    "dot": dot_targets.drawing, "dot-condition": dot_targets.condition, "condition": condition,
    "compiled-condition": compiled_condition, "javascript": javascript_values, "state-path": state_path,
    "shell-command": shell_command, "transcript": transcript, "secrets": masking, "fences": fencing, "slip": packed,
    "events": event_log, "placeholders": placeholder, "ids": names, "git": git_command, "paths": artifact_path,
    "arguments": slash_arguments, "settings": settings, "hook": hook_event, "files": damaged_files,
}  # fmt: skip

_PLAN = """{"schema_version":1,"plan_id":"p","workflow_id":"w","phases":[{"id":"a","require_approval":true,"steps":[
{"key":"a/x","id":"x","prompt":"do","max_retries":1,"result_handling":{"on_failure":"prompt"}},
{"key":"a/y","id":"y","command":"/z","engine":"prime-context"}]},{"id":"b","steps":[{"key":"b/z","id":"z","skill":"s"}]}],
"artifacts":[{"id":"s","type":"json","path":"{run_dir}/x","triggers":["session_start","phase_transition:a->b"],
"condition":"state.a == 1","condition_code":["==",["get","state","a"],["value",1]],"path_steps":["a",0]}],
"autonomy":{"level":"guarded","require_approval_for":["b"]}}"""
_STATE = """{"schema_version":2,"revision":3,"run_id":"r","plan_id":"p","workflow_id":"w","work_id":null,"goal":"g",
"status":"in_progress","current_phase":"a","current_step":"a/x","phases":{"a":{"status":"in_progress"},"b":{"status":"pending"}},
"steps":[{"step_id":"a/x","phase":"a","visit":1,"rank":1,"stage":"001-a.x@1","status":"in_progress","started_at":"t"}],
"context":{"a":{"b":[1,"two",null]}},"artifacts":{"spec_path":"x"},"errors":[],"pending_approvals":[{"id":"phase:a"}],
"approvals":[{"id":"phase:b","after_rank":0}],"sessions":{"current_session_id":"s","session_history":[{"session_id":"s",
"compactions":[],"phases_completed":["a"],"resumes":1,"environment":{"hostname":"h"}}]},
"context_metadata":{"reload_count":1,"artifacts_in_context":[{"artifact_id":"x"}]},"ledger_head":{"seq":1,"sha256":"x"}}"""
_WORKFLOW = """{"id":"w","extends":"core","autonomy":{"level":"guarded","require_approval_for":["b"]},
"critical_artifacts":
{"always_load":[{"id":"a","type":"markdown","path":"{project_root}/x","required":true,
"reload_triggers":["session_start"]}],
"conditional_load":[{"id":"b","type":"git_info","command":"git log -1","required":false,"condition":"state.a",
"reload_triggers":["phase_start:b"]}],"phase_specific":{"b":[]}},"phases":{"a":{"pre_steps":[{"id":"p","command":"/x:prime-context"}],"steps":
[{"id":"s","name":"S","prompt":"do {work_id}","max_retries":2,"result_handling":{"on_failure":"stop"}}]}}}"""
_LINE = b'{"type":"user","uuid":"u1","parentUuid":null,"timestamp":"2026-01-02","message":{"content":"hi"}}\n'

_SAID = (
    b'{"type":"assistant","uuid":"u2","parentUuid":"u1","message":{"id":"m","content":[{"type":"text","text":"t"}]}}\n'
)
_BOUNDARY = (
    b'{"type":"system","subtype":"compact_boundary","uuid":"u3",'
    b'"compactMetadata":{"preservedMessages":{"uuids":["u1"]}}}\n'
)

SEEDS: dict[str, list[bytes]] = {
    **dot_targets.SEEDS,
    "json": [
        b"{}",
        b'{"a":[1,2.5,null,"x\\u00e9"]}',
        b'"\\ud800"',
        b"[" * 500,
        b"1" * 5000,
        b"\xef\xbb\xbf[1e999]",
        b"NaN",
    ],
    "state": [_STATE.encode(), _STATE.replace("in_progress", "closing").encode(), b"[]", b'{"schema_version":9}'],
    "plan": [_PLAN.encode(), _PLAN.replace('"value"', '"of"').encode(), b'{"schema_version":1}'],
    "yaml": [b"a: 1\nb: [x, 'y']\n", b"a: &a [*a]\n", b"- " * 100, b"? {a: b}\n: c\n", b"a: !x 1\n---\nb: 2", b"\x00"],
    "strict-json": [b'{"a":1,"a":2}', b"[" * 100, b'{"a":"\\ud800"}', b"{'a':1}", b"[1,]", b"Infinity"],
    "workflow": [_WORKFLOW.encode(), b'{"id":"w","phases":{}}', b"[]"],
    "condition": [
        b"state.a == 1 && !(state['b'] != null || context.c >= -0.5)",
        b"state.a[0].b === 'x\\u0041'",
        b"((((state))))",
        b"!" * 300 + b"state",
        b"state.__proto__",
        b"outcome == 'failed'",
    ],
    "compiled-condition": [
        b'["==",["get","state","a"],["value",1]]',
        b'["!",["of",["get","state"],0]]',
        b'["&&"]',
        b'["of"]',
    ],
    "javascript": [
        b"1\xff2",
        b'"\xc3\xa9"\xff"length"',
        b"[1]\xff0",
        b'" 0x10 "\xff16',
        b'{"a":1}\xff"a"',
        b"1e250\xff-0",
    ],
    "state-path": [b"$.a[0]['b']", b"artifacts.spec_path", b"a[-1]", b"$", b"a[?(@.x)]", b"a..b", b"['a\\'b']"],
    "shell-command": [
        b"loomctl next --json",
        b"loomctl done <<'LOOM'\nresult\nLOOM",
        b'loomctl done --note "x" --artifact a=b',
        b"loomctl approve",
        b"loomctl $x",
        b"ls; loomctl trust",
    ],
    "transcript": [
        _LINE,
        _LINE + _SAID,
        _BOUNDARY,
        b'{"type":"attachment","attachment":{"type":"hook_success","content":["Loom slip 0123456789abcdef"]}}',
        b"{" * 2000,
    ],
    "secrets": [
        b"password = hunter22x",
        b'{"token": "abc123def456ghi789jkl", "x": ["AKIA' + b"A" * 16 + b'"]}',
        b"https://a:b4c5d6@h -----BEGIN PRIVATE KEY-----\nAAAABBBBCCCCDDDDEEEE\n",
        b"SECRET_KEY=a1!b2(c3&d4\nAuthorization: Basic abcdefgh12345678==",
        b"1234567:A" + b"A" + b"b" * 33 + b" abcQ~",
    ],
    "fences": [b"```\n~~~~\n", b"\x1b[31m\x9b", "\u202e\u2028\U000e0041".encode(), b"a\r\nb\rc\x00", b"\xed\xa0\x80"],
    "slip": [
        b'head\xffnote\xffnext\xffheading\xffpointer\xff# A\n\ntext\xff{"a":1}\xff```\n\xffx',
        b"\xff" * 8 + b"x" * 4000,
    ],
    "events": [
        b'{"seq":3,"event":"a.b","prev":""}\n',
        b'{"seq":3,"event":"a.b","prev":""}\n{"seq":',
        b"\n\n\n",
        b'{"seq":true,"event":"a","prev":"x"}',
        b"\x00" * 100,
    ],
    "placeholders": [b"{run_id} {{x}} {nope} <run_id> {project_root}/x", b"{{{run_id}}}", b"{" * 50, b"{work_id"],
    "ids": [b"a-run-2026", b"../x", b"\xc3\x9f", b".hidden", b"x" * 300, b"ABC-12", b"#258", b"a..b"],
    "git": [
        b"git log --oneline -10",
        b"log -S '--output=x' -p",
        b"git diff --output=x",
        b"git status -- a b",
        b"git log -n '5'",
    ],
    "paths": [
        b"docs/x",
        b"out/x",
        b"/etc/passwd",
        b"OUTSIDE/x",
        b"{run_dir}/../../x",
        b"C:\\shop\\docs",
        b"/home/b/shop/docs",
    ],
    "arguments": [b"258 --workflow core\n--end-of-arguments--\n", b"'add it' --x \"y z\" --end-of-arguments--", b"x"],
    "settings": [
        b"hook_budget: 9000\n",
        b"hook_budget: x\n",
        b"extra_roots: [/]\n",
        b"- a",
        b"\xff",
        b"default_workflow: ''",
    ],
    "hook": [
        b'\x00{"session_id":"5f0c9a52-0000-4000-8000-000000000001","source":"compact"}',
        b'\x01{"session_id":[],"last_assistant_message":1}',
        b'\x02{"tool_name":"Bash","tool_input":{"command":5}}',
        b'\x03{"session_id":"../x","transcript_path":"/dev/zero"}',
        b"\x04nonsense",
        b"\x05[]",
        b"",
    ],
    "files": [b"\x01\x02\x03\x04\x05", b"\x99\x88\x77\x66\x55", b""],
}
