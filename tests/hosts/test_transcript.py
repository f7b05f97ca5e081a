"""Which of Loom's slips stand live in a transcript, and what the assistant said (D15, D27)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomctl.hosts.protocol import transcript
from loomctl.hosts.protocol.transcript import Transcript
from loomctl.hosts.setup import claude
from loomctl.priming.slip import MARK, seal
from tests.helpers.scenes import SESSION, TranscriptFile

A, B = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def slip(name: str = A) -> str:
    return seal("# Loom: the run x\n\n```markdown\nthe spec\n```", name)


@pytest.fixture
def file(tmp_path: Path) -> TranscriptFile:
    return TranscriptFile(tmp_path / "session.jsonl")


def held(file: TranscriptFile) -> set[str]:
    return set(Transcript(str(file.path)).holds({A, B}))


def test_the_mark_is_the_slips() -> None:
    assert transcript.MARK == MARK


# Where a slip can stand

BLOCK = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": slip()}]}
PLACES: dict[str, Callable[[TranscriptFile], object]] = {
    "JSON of a hook": lambda file: file.hook_text(slip()),
    "a hook's plain output": lambda file: file.add(
        {"type": "attachment", "attachment": {"type": "hook_success", "content": slip(), "stdout": slip()}}
    ),
    "a slash command's output": lambda file: file.command(slip() + "\n\nAbove is what Loom answered."),
    "a shell's result": lambda file: (file.calls("loomctl done"), file.result(slip() + "\n")),
    "a result in blocks": lambda file: file.add({"type": "user", "message": {"role": "user", "content": [BLOCK]}}),
}


def test_a_slip_is_live_wherever_the_assistant_was_given_it(tmp_path: Path) -> None:
    for name, give in PLACES.items():
        file = TranscriptFile(tmp_path / f"{name}.jsonl")
        file.prompt("go on")
        give(file)
        file.says("ok")
        assert held(file) == {A}, name


def test_what_repeats_or_quotes_a_slip_does_not_count(file: TranscriptFile) -> None:
    """Request bodies, the hook's raw output, the assistant's own words, subagents and mere mentions are no slip."""
    file.note({"type": "api-request-blob", "content": slip()})
    file.note({"type": "last-prompt", "lastPrompt": slip()})
    file.add({"type": "attachment", "attachment": {"type": "hook_success", "content": "", "stdout": slip()}})
    file.add({"type": "attachment", "attachment": {"type": "hook_system_message", "content": slip()}})
    file.says(slip())
    file.add({"type": "user", "isSidechain": True, "message": {"role": "user", "content": slip()}})
    file.prompt(f"what does `Loom slip {A}` mean?")
    file.prompt(f"Loom slip {A}0000")
    file.calls("cat -n notes")
    file.result(f"     1\tLoom slip {A}")
    assert held(file) == set()


# What takes it away


def test_a_compaction_takes_slips_away_but_for_what_it_kept(file: TranscriptFile) -> None:
    """What stands before the last boundary is gone, what stands behind it is live (D15); each has a name of its own."""
    file.hook_text(slip(A))
    file.prompt("work")
    first = file.compacts()
    assert (held(file), Transcript(str(file.path)).boundary()) == (set(), first)
    file.hook_text(slip(B))
    assert held(file) == {B}
    prompt = file.prompt("go on")
    call = file.calls("loomctl done")
    result = file.result(slip(A))
    second = file.compacts(kept=[prompt, call, result])
    file.says("going on")
    assert (held(file), Transcript(str(file.path)).boundary()) == ({A}, second)


def test_a_boundary_that_is_only_talked_about_is_none(file: TranscriptFile) -> None:
    file.hook_text(slip())
    file.prompt('{"type": "system", "subtype": "compact_boundary"} "compact_boundary"')
    file.note({"type": "api-request", "subtype": "compact_boundary"})
    assert held(file) == {A}
    assert Transcript(str(file.path)).boundary() is None


def test_a_rewind_takes_away_what_hung_from_the_left_prompt_and_what_led_to_it(file: TranscriptFile) -> None:
    """A slip on a branch that was left is not live, nor a resume's text before it; one on the other branch is (D15)."""
    file.prompt("first")
    at = file.says("done first")
    file.hook_text(slip(B))
    file.prompt("second")
    file.calls("loomctl prime-context")
    file.result(slip(A))
    file.says("primed")
    assert held(file) == {A, B}
    file.prompt("second, in other words", parent=at)
    assert held(file) == set()
    file.hook_text(slip(B), event="UserPromptSubmit")
    file.says("yes")
    assert held(file) == {B}


def test_parallel_results_beside_the_line_are_live(file: TranscriptFile) -> None:
    """Of two results of one message only one is an ancestor of what follows; both stand before the model."""
    file.prompt("both")
    call = file.calls("loomctl next")
    first = file.result("x")
    content = [{"type": "tool_result", "content": slip()}]
    file.add({"type": "user", "toolUseResult": {}, "message": {"role": "user", "content": content}}, parent=call)
    file.add({"type": "assistant", "message": {"id": "m", "content": []}}, parent=first)
    assert held(file) == {A}


# What the assistant said


def test_the_last_message_is_taken_whole(file: TranscriptFile) -> None:
    """The host hands over the last block; the blocks of that message stand on lines of their own (D27).

    Thinking, and a call behind the words, are of it too; one that is not written yet is taken as it was handed over.
    """
    file.prompt("finish")
    file.says("an earlier message", message="m-1")
    assert Transcript(str(file.path)).last_message("FINAL") == "FINAL"
    assert Transcript(None).last_message("FINAL") == "FINAL"
    thought = {"id": "m-2", "content": [{"type": "thinking", "thinking": "hm"}]}
    file.add({"type": "assistant", "message": thought})
    file.says("para1", message="m-2")
    file.says("FINAL para2", message="m-2")
    file.add({"type": "assistant", "message": thought})
    assert Transcript(str(file.path)).last_message("FINAL para2\n") == "para1\n\nFINAL para2"
    file.add({"type": "assistant", "message": {**thought, "id": "m-3"}})
    assert Transcript(str(file.path)).last_message("FINAL para2") == "FINAL para2"


def test_what_was_said_since_a_time(file: TranscriptFile) -> None:
    """The assistant's own text blocks count, before and after a compaction, from the second the step began."""
    for words in ("zero", "one"):
        file.says(words)
    kept = file.says("two")
    file.prompt("not the assistant")
    file.compacts(kept=[kept])
    file.says("three")
    file.says("a subagent", isSidechain=True)
    file.add({"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "four"}]}}, parent=kept)
    seen = Transcript(str(file.path))
    for at in ("2026-11-21T22:00:02Z", "2026-11-21T22:00:02.036Z"):
        assert seen.said_since(at) == "one\n\ntwo\n\nthree\n\nfour"
    assert seen.said_since("2026-11-21T22:00:02.038Z") == "two\n\nthree\n\nfour"
    assert seen.said_since("2027-01-01T00:00:00Z") is None
    assert Transcript(str(file.path.parent / "none.jsonl")).said_since("2026-01-01T00:00:00Z") is None


def test_what_was_said_on_a_left_branch_does_not_count(file: TranscriptFile) -> None:
    """Though it began before the time: what hangs from nothing that was said since was left, too."""
    file.prompt("first")
    at = file.says("kept")
    file.prompt("second")
    file.says("taken back, before")
    file.says("taken back, after")
    file.prompt("other", parent=at)
    file.says("said instead")
    seen = Transcript(str(file.path))
    assert seen.said_since("2026-11-21T22:00:05.000Z") == "said instead"
    assert seen.said_since("2026-01-01T00:00:00Z") == "kept\n\nsaid instead"


# Files that are not as they should be


def test_what_is_no_transcript_holds_nothing(tmp_path: Path) -> None:
    for kind in ["none", "missing", "folder", "pipe", "empty", "binary", "nul"]:
        path = tmp_path / kind
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind in ("empty", "binary"):
            path.write_bytes(b"" if kind == "empty" else bytes(range(256)) * 9)
        name = None if kind == "none" else "\0" if kind == "nul" else str(path)
        seen = Transcript(name)
        assert seen.holds({A}) == frozenset()
        assert (seen.boundary(), seen.said_since("2026"), seen.last_message("x")) == (None, None, "x")


KEYS = [
    *("type", "subtype", "uuid", "parentUuid", "message", "content", "text", "id", "attachment", "isMeta"),
    *("isSidechain", "timestamp", "compactMetadata", "preservedMessages", "allUuids", "uuids", "toolUseResult"),
]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.sampled_from([slip(A), "uuid-1", "uuid-2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=20,
)
entry = st.dictionaries(st.sampled_from(KEYS), anything, max_size=8).flatmap(
    lambda value: st.sampled_from(
        [value, {**value, "type": "user"}, {**value, "type": "assistant"}, {**value, "subtype": "compact_boundary"}]
    )
)


@pytest.mark.slow
@given(entries=st.lists(entry, max_size=8))
def test_no_shape_of_an_entry_breaks_the_reading(
    tmp_path_factory: pytest.TempPathFactory, entries: list[object]
) -> None:
    """Whatever JSON stands in the file, the answers have their types; every line is hostile until parsed."""
    path = tmp_path_factory.getbasetemp() / f"shapes-{os.getpid()}.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in entries))
    seen = Transcript(str(path))
    assert seen.holds({A, B}) <= {A, B}
    assert isinstance(seen.last_message("x"), str)
    assert seen.boundary() is None or isinstance(seen.boundary(), str)
    assert seen.said_since("") is None or isinstance(seen.said_since(""), str)


def test_deep_and_odd_lines_are_passed_over(file: TranscriptFile) -> None:
    """Nesting, numbers that are no numbers, bad bytes and a line that is still written do not hide the others."""
    file.hook_text(slip())
    with file.path.open("ab") as odd:
        odd.write(b"[" * 100_000 + b"\n" + b'{"a": NaN}\n' + b'{"uuid": "\xff\xfe"}\n' + b"null\n\n\r\n")
        odd.write(b'{"type": "assistant", "message": {"cont')
    assert held(file) == {A}


def test_a_transcript_is_found_by_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    assert claude.transcript_of(SESSION) is None
    for number, folder in enumerate(("-a", "-b", "-c")):
        (tmp_path / "projects" / folder).mkdir(parents=True)
        path = tmp_path / "projects" / folder / f"{SESSION}.jsonl"
        path.touch()
        os.utime(path, (number % 2, number % 2))
    assert claude.transcript_of(SESSION) == str(tmp_path / "projects" / "-b" / f"{SESSION}.jsonl")
    for name in ("another", "../-b/x"):
        assert claude.transcript_of(name) is None


def test_without_a_home_nothing_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    (tmp_path / "~/.claude/projects/-a").mkdir(parents=True)
    (tmp_path / f"~/.claude/projects/-a/{SESSION}.jsonl").touch()
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert claude.transcript_of(SESSION) is None


# Which turns Loom drives, and what they used (D27, D41)


def turn(file: TranscriptFile, prompt_id: str, text: str) -> None:
    file.add({"type": "user", "promptId": prompt_id, "message": {"role": "user", "content": text}})


COMMAND = "<command-message>loom:run</command-message>\n<command-name>/loom:run</command-name>"
NOTICE = "<task-notification>\n<task-id>a1</task-id>\n<tool-use-id>{}</tool-use-id>\n</task-notification>"

TURNS = [
    ("a command of Loom's", [("p", COMMAND)], True),
    ("another command", [("p", COMMAND.replace("loom:", "other:"))], False),
    ("words", [("p", "please run /loom:run")], False),
    ("words that quote a command", [("p", f"what is {COMMAND}?")], False),
    ("a notice after a command", [("o", COMMAND), ("p", "<task-notification>it is done</task-notification>")], True),
    ("a notice after words", [("o", "hello"), ("p", "<task-notification>it is done</task-notification>")], False),
    ("a notice of a notice", [("n", COMMAND), ("o", "<task-notification>"), ("p", "<task-notification>")], True),
    ("a notice of a call in an earlier turn", [("n", COMMAND), ("call", ""), ("o", "hello"), ("p", NOTICE)], True),
    ("a notice of a call in a turn of the user's", [("n", "hi"), ("call", ""), ("o", COMMAND), ("p", NOTICE)], False),
    ("an unknown turn", [("o", COMMAND)], False),
]


@pytest.mark.parametrize("close", [1, 300, transcript._CLOSE])
def test_a_turn_is_driven_by_how_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, close: int) -> None:
    """A Loom command began it, or it is the notice that a subagent of such a turn has ended, however long ago."""
    monkeypatch.setattr(transcript, "_CLOSE", close)
    for number, (name, turns, expected) in enumerate(TURNS):
        file, called = TranscriptFile(tmp_path / f"{number}.jsonl"), ""
        for prompt_id, text in turns:
            if prompt_id == "call":
                file.calls("x")
                called = f"toolu-{file._count - 1}"
            else:
                turn(file, prompt_id, text.format(called))
                file.add({"type": "user", "promptId": prompt_id, "isMeta": True, "message": {"content": COMMAND}})
        assert Transcript(str(file.path)).began_with_loom("p", ()) is expected, name


def test_a_turn_that_was_blocked_by_loom_is_driven(file: TranscriptFile) -> None:
    turn(file, "o", "hello")
    turn(file, "p", "<task-notification>it is done</task-notification>")
    began = Transcript(str(file.path)).began_with_loom
    assert [began("o", ["o"]), began("p", ["o"]), began("p", ["q"]), began("", [])] == [True, True, False, False]


def test_a_prompt_that_is_not_written_down_yet(file: TranscriptFile) -> None:
    """It is told beside the transcript: a notice leads to the call that it names, else to the prompt before it."""
    turn(file, "o", COMMAND)
    file.calls("x")
    called = f"toolu-{file._count - 1}"
    turn(file, "n", "hello")
    began = Transcript(str(file.path)).began_with_loom
    assert began("p", (), NOTICE.format(called))
    assert not any(began("p", (), prompt) for prompt in ("<task-notification>it is done", "go on", ""))
    assert began("p", ("n",), "<task-notification>it is done")


def test_what_a_stage_used_is_counted_once_a_message(file: TranscriptFile) -> None:
    """Blocks of one message repeat its usage; what was before, and what an agent of its own said, does not count."""
    usage = {"input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": "x"}
    said = {"role": "assistant", "model": "claude-x", "usage": usage, "content": []}
    file.add({"type": "assistant", "message": {**said, "id": "before"}})
    since = "2026-11-21T22:00:02Z"
    for name in ("a", "a", "b"):
        file.add({"type": "assistant", "message": {**said, "id": name}})
    file.add({"type": "assistant", "isSidechain": True, "message": {**said, "id": "c"}})
    file.add({"type": "assistant", "message": {**said, "id": "d", "usage": None}})
    file.add({"type": "assistant", "message": {**said, "id": "e", "model": "<synthetic>"}})
    file.add({"type": "assistant", "message": "no object"})
    cache = {"cache_read_input_tokens": 200, "cache_creation_input_tokens": 0}
    used = {"models": ["claude-x"], "messages": 2, "input_tokens": 20, "output_tokens": 6, **cache}
    assert Transcript(str(file.path)).usage_since(since) == used
    assert Transcript(str(file.path)).usage_since("2027-01-01T00:00:00Z") is None
    assert Transcript(None).usage_since(since) is None


def test_what_the_host_says_for_the_assistant_is_nobodys_answer(file: TranscriptFile) -> None:
    """Where a turn was broken off the host writes a message of its own: no text, no model, no message of the run's."""
    usage = {"input_tokens": 10, "output_tokens": 3}
    since = "2026-11-21T22:00:00Z"
    message = {"id": "a", "role": "assistant", "model": "claude-x", "usage": usage}
    file.add({"type": "assistant", "message": {**message, "content": [{"type": "text", "text": "Half of it."}]}})
    own = {**message, "id": "b", "model": "<synthetic>", "usage": {"input_tokens": 0, "output_tokens": 0}}
    file.add({"type": "assistant", "message": {**own, "content": [{"type": "text", "text": "No response requested."}]}})
    transcript = Transcript(str(file.path))
    assert transcript.said_since(since) == "Half of it."
    used = transcript.usage_since(since) or {}
    assert (used["models"], used["messages"]) == (["claude-x"], 1)
