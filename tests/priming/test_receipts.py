"""What a conversation was seen to have of the artifacts that were due at its start: the receipts of D81."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loomctl.priming import receipts
from tests.helpers.scenes import SESSION, Json, Scene, TranscriptFile, artifact

OTHER = "5f0c9a52-0000-4000-8000-000000000002"
SPEC, TASKS = "# The spec\n\nThe heliotrope switch survives a reload.\n", "# Tasks\n\n- Mow.\n"
LONG = "".join(f"Line {number} of a text that no part holds.\n" for number in range(2_000))


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.write("spec.md", SPEC)
    scene.write("tasks.md", TASKS)
    scene.workflow([artifact("spec", "spec.md"), artifact("tasks", "tasks.md", required=False)])
    scene.begin()
    return scene


@pytest.fixture
def file(tmp_path: Path) -> TranscriptFile:
    return TranscriptFile(tmp_path / "t.jsonl")


def start(scene: Scene, file: TranscriptFile, source: str = "clear", session: str = SESSION) -> list[str]:
    """Let a session start; gives what the hook entries printed for the model."""
    return scene.hook("session-start", source=source, session=session, transcript_path=str(file.path)).parts


def stop(scene: Scene, file: TranscriptFile, session: str = SESSION) -> str:
    """Let a turn end; gives what its user is told."""
    return scene.hook("stop", session=session, transcript_path=str(file.path), last_assistant_message="So.").message


def starts(scene: Scene, code: int = 0) -> list[Json]:
    told = scene.loomctl("prove", "--json")
    assert told.code == code, told.stderr
    found: list[Json] = told.json["starts"]
    return found


def given(file: TranscriptFile, parts: list[str]) -> None:
    """Write what hooks gave, and a prompt behind it, as the host does."""
    for part in parts:
        file.hook_text(part)
    file.prompt("go on")
    file.says("So.")


def read_again(file: TranscriptFile, path: Path, text: str, *, lines: int | None = None) -> None:
    """Write a file that the host gives again after a compaction. lines: so many of it."""
    count = len(text.splitlines())
    shown = {"filePath": str(path), "content": text, "numLines": lines or count, "startLine": 1, "totalLines": count}
    attached = {"type": "file", "filename": str(path), "content": {"type": "text", "file": shown}}
    file.add({"type": "attachment", "attachment": attached})


@pytest.mark.parametrize("source", ["startup", "resume", "clear", "compact"])
def test_what_was_given_and_stands_there_is_present(begun: Scene, file: TranscriptFile, source: str) -> None:
    if source == "compact":
        file.compacts()
    given(file, start(begun, file, source))
    assert stop(begun, file) == ""
    stop(begun, file)
    (one,) = starts(begun)
    assert (one["session_id"], one["event"]) == (SESSION, source)
    assert one["artifacts"] == {"spec": "present", "tasks": "present"}
    (told,) = (event["properties"] for event in begun.events() if event["event"] == "context.checked")
    assert {"session_id": SESSION, **told} == one


@pytest.mark.parametrize("source", ["startup", "clear", "compact"])
def test_what_a_host_dropped_is_lost_and_its_user_is_told(begun: Scene, file: TranscriptFile, source: str) -> None:
    """The hook answered, and nothing of it reached the conversation: a finding."""
    if source == "compact":
        file.compacts()
    start(begun, file, source)
    given(file, [])
    told = stop(begun, file)
    assert told.endswith(": lost: spec, tasks (loomctl prove)")
    (one,) = starts(begun, code=1)
    assert set(one["artifacts"].values()) == {"lost"}
    text = begun.loomctl("prove").stdout
    assert f"{receipts.BEGUN[source]}, session {SESSION[:7]}…: lost 2\n  lost: spec, tasks\n" in text


def test_a_part_that_is_lacking_takes_what_stood_on_it(begun: Scene, file: TranscriptFile) -> None:
    begun.write("spec.md", "".join(LONG.splitlines(keepends=True)[:350]))
    parts = start(begun, file, "clear")
    assert len(parts) == 2
    given(file, parts[:1])
    assert "lost: spec" in stop(begun, file)
    assert starts(begun, code=1)[0]["artifacts"] == {"spec": "lost", "tasks": "present"}


def test_what_does_not_fit_is_reachable_and_what_the_host_gives_of_it_is_restored(
    begun: Scene, file: TranscriptFile
) -> None:
    spec = begun.write("spec.md", LONG)
    given(file, start(begun, file))
    stop(begun, file)
    for shown, lines in ((LONG, 9), (LONG[:-1], None)):
        file.compacts()
        parts = start(begun, file, "compact")
        read_again(file, spec, shown, lines=lines)
        given(file, parts)
        assert stop(begun, file) == ""
    assert [one["artifacts"]["spec"] for one in starts(begun)] == ["reachable", "reachable", "restored"]


@pytest.mark.slow
def test_a_read_counts_as_restored(begun: Scene, file: TranscriptFile) -> None:
    spec = begun.write("spec.md", LONG)
    parts = start(begun, file)
    given(file, parts)
    count = LONG.count("\n")
    shown = {"filePath": str(spec), "content": LONG, "numLines": count, "startLine": 1, "totalLines": count}
    block = {"type": "tool_result", "tool_use_id": "toolu", "content": "…"}
    file.add({"type": "user", "message": {"content": [block]}, "toolUseResult": {"type": "text", "file": shown}})
    stop(begun, file)
    assert starts(begun)[0]["artifacts"]["spec"] == "restored"


def test_an_older_content_that_a_host_gives_again_is_stale(begun: Scene, file: TranscriptFile) -> None:
    """As a file that it kept, in the body of a command, or in what a compaction left standing; beside the new one."""
    spec = begun.root / "spec.md"
    first = start(begun, file)
    given(file, first)
    stop(begun, file)
    begun.write("spec.md", SPEC.replace("heliotrope", "cobalt"))

    file.compacts()
    parts = start(begun, file, "compact")
    read_again(file, spec, SPEC)
    given(file, parts)
    assert stop(begun, file) == "Loom: after a compaction: stale: spec (loomctl prove)"

    file.compacts()
    parts = start(begun, file, "compact")
    skills = [{"name": "x:y", "path": "plugin:x:y", "content": f"Look:\n{first[0]}\n"}]
    file.add({"type": "attachment", "attachment": {"type": "invoked_skills", "skills": skills}})
    given(file, parts)
    assert "stale: spec" in stop(begun, file)

    kept = file.hook_text(first[0])
    file.compacts(kept=[kept])
    given(file, start(begun, file, "compact"))
    assert "stale: spec" in stop(begun, file)

    file.compacts()
    given(file, start(begun, file, "compact"))
    assert stop(begun, file) == ""
    told = [one["artifacts"] for one in starts(begun, code=1)]
    assert [one["spec"] for one in told] == ["present", "stale", "stale", "stale", "present"]
    assert {one["tasks"] for one in told} == {"present"}


def test_a_diff_on_what_a_resumed_conversation_has_is_no_stale_text(begun: Scene, file: TranscriptFile) -> None:
    given(file, start(begun, file))
    stop(begun, file)
    begun.write("spec.md", SPEC + "Cobalt.\n")
    given(file, start(begun, file, "resume"))
    assert stop(begun, file) == ""
    begun.write("spec.md", SPEC + "Viridian.\n")
    start(begun, file, "resume")
    given(file, [])
    assert "stale: spec" in stop(begun, file)
    assert [one["artifacts"]["spec"] for one in starts(begun, code=1)] == ["present", "present", "stale"]


def test_neither_an_edit_after_the_start_nor_a_newer_copy_makes_it_stale(begun: Scene, file: TranscriptFile) -> None:
    file.compacts()
    parts = start(begun, file, "compact")
    read_again(file, begun.root / "spec.md", SPEC)
    given(file, parts)
    begun.write("spec.md", "# Another\n")
    stop(begun, file)
    assert starts(begun)[0]["artifacts"]["spec"] == "present"
    begun.write("spec.md", SPEC)
    file.compacts()
    parts = start(begun, file, "compact")
    imported(file, begun.write("spec.md", "# Another\n"), "# Another")
    given(file, parts)
    assert "stale" not in stop(begun, file)
    assert starts(begun)[1]["artifacts"]["spec"] == "present"


def imported(file: TranscriptFile, path: Path, text: str) -> None:
    """Write what the host's memory imports, as it shows it."""
    shown = [{"path": str(path), "type": "Local", "content": text}]
    file.add({"type": "attachment", "attachment": {"type": "instructions", "files": shown}})


def test_a_copy_is_held_against_the_file_as_a_host_shows_it(begun: Scene, file: TranscriptFile) -> None:
    for text, shown in (
        (SPEC + "\n\n", SPEC.strip()),
        (SPEC.replace("\n", "\r\n"), SPEC),
        ("---\ntitle: x\n---\n" + SPEC, SPEC.strip()),
        (SPEC + "<!-- a note -->\nMore. <!-- open\n", SPEC + "\nMore. <!-- open"),
        ("\ufeff" + SPEC, SPEC),
        ("one\r\ntwo\nthree\r", "one\ntwo\nthree"),
    ):
        spec = begun.write("spec.md", text.encode())
        file.compacts()
        parts = start(begun, file, "compact")
        imported(file, spec, shown)
        given(file, parts)
        assert stop(begun, file) == "", text
        assert starts(begun)[-1]["artifacts"]["spec"] == "present", text


@pytest.mark.parametrize("imports", [True, False])
def test_what_is_left_to_memory_is_present_where_its_import_stands(
    begun: Scene, file: TranscriptFile, *, imports: bool
) -> None:
    assert begun.loomctl("memory", "on", "--yes").code == 0
    file.compacts()
    parts = start(begun, file, "compact")
    assert "In your memory: spec" in parts[0]
    if imports:
        imported(file, begun.root / "spec.md", SPEC.strip())
    given(file, parts)
    stop(begun, file)
    assert starts(begun)[0]["artifacts"]["spec"] == ("present" if imports else "reachable")


def test_a_file_behind_a_link_is_known_by_both_of_its_names(begun: Scene, file: TranscriptFile) -> None:
    begun.write("real.md", LONG)
    spec = begun.root / "spec.md"
    spec.unlink()
    spec.symlink_to("real.md")
    file.compacts()
    parts = start(begun, file, "compact")
    read_again(file, spec, LONG)
    given(file, parts)
    stop(begun, file)
    assert starts(begun)[0]["artifacts"]["spec"] == "restored"


def test_a_beginning_on_a_part_that_is_lacking_is_lost(scene: Scene, file: TranscriptFile) -> None:
    scene.write("a.md", "".join(LONG.splitlines(keepends=True)[:560]))
    scene.write("b.md", LONG)
    scene.workflow([artifact("a", "a.md"), artifact("b", "b.md")])
    scene.begin()
    parts = start(scene, file)
    at = next(number for number, part in enumerate(parts) if "### b: b.md" in part)
    assert at > 0
    given(file, [part for number, part in enumerate(parts) if number != at])
    stop(scene, file)
    assert starts(scene, code=1)[0]["artifacts"]["b"] == "lost"


def test_a_compaction_by_hand_before_any_answer_leaves_no_receipt(begun: Scene, file: TranscriptFile) -> None:
    """The host writes down what it gave behind that hook, so nobody knows; the compaction has its own."""
    start(begun, file, "resume")
    begun.hook("pre-compact", trigger="manual", transcript_path=str(file.path))
    file.compacts()
    given(file, start(begun, file, "compact"))
    assert stop(begun, file) == ""
    assert [(one["event"], one["artifacts"]["spec"]) for one in starts(begun)] == [("compact", "present")]


@pytest.mark.slow
def test_an_automatic_compaction_judges_the_start_before_it(begun: Scene, file: TranscriptFile) -> None:
    start(begun, file, "clear")
    file.prompt("go on")
    file.says("I look.")
    begun.hook("pre-compact", trigger="auto", transcript_path=str(file.path))
    file.compacts()
    ended = begun.hook("session-start", source="compact", transcript_path=str(file.path))
    assert "after /clear: lost: spec, tasks (loomctl prove)" in ended.message
    given(file, ended.parts)
    assert stop(begun, file) == ""
    assert [one["event"] for one in starts(begun, code=1)] == ["clear", "compact"]


def test_what_was_given_in_json_was_given(begun: Scene, file: TranscriptFile) -> None:
    (text,) = start(begun, file)
    file.calls("loomctl resume --json")
    file.result(json.dumps({"slip": {"text": text}, "notes": []}))
    file.says("So.")
    assert stop(begun, file) == ""


def test_a_session_that_only_reads_has_its_receipt_on_this_machine(begun: Scene, file: TranscriptFile) -> None:
    """Nothing is written of it to the run (the third rule), and `prove` tells it."""
    begun.let_go()
    begun.space().local.mark_ended(SESSION)
    given(file, start(begun, file, "startup", OTHER))
    before = begun.events()
    stop(begun, file, OTHER)
    assert begun.events() == before
    (one,) = starts(begun)
    assert (one["session_id"], one["event"], set(one["artifacts"].values())) == (OTHER, "startup", {"present"})


def test_neither_without_a_transcript_nor_beside_a_driver_is_there_a_receipt(
    begun: Scene, file: TranscriptFile
) -> None:
    start(begun, file)
    assert (begun.hook("stop", last_assistant_message="So.").stdout, starts(begun)) == ("", [])
    begun.space().local.refresh(begun.space().local.binding(SESSION) or {}, pid=1, transcript_path=None)
    given(file, start(begun, file, "startup", OTHER))
    stop(begun, file, OTHER)
    assert starts(begun) == []


def test_a_damaged_note_breaks_nothing(begun: Scene, file: TranscriptFile) -> None:
    """It is read as hostile; a Stop ends its turn as ever."""
    given(file, start(begun, file))
    path = begun.store / "local/opened" / f"{SESSION}.json"
    for note in [
        "", "{", "[]", '{"run_id": 1, "event": "clear", "at": "x", "artifacts": {}}',
        '{"run_id": "r", "event": "clear", "at": "x", "artifacts": []}',
        '{"run_id": "r", "event": "another", "at": "x", "artifacts": {"spec": {}}}',
        '{"run_id": "r", "event": "clear", "at": "x", "artifacts": {"spec": 7, "tasks": {"slips": 7, "older": [[]]}}}',
    ]:  # fmt: skip
        path.write_text(note, encoding="utf-8")
        ended = begun.hook("stop", transcript_path=str(file.path), last_assistant_message="So.")
        assert (ended.code, "could not" in ended.stdout) == (0, False)


def test_what_a_host_writes_is_hostile(begun: Scene, file: TranscriptFile) -> None:
    """A shape that nobody knows is passed over."""
    file.compacts()
    parts = start(begun, file, "compact")
    shapes: list[Json] = [
        {"type": "file", "content": {"file": {"filePath": "a\0b", "content": "x", "numLines": 1, "totalLines": 1}}},
        {"type": "file", "content": {"file": {"filePath": [], "content": "x", "numLines": {}, "totalLines": {}}}},
        {"type": "file", "content": {"file": 7}},
        {"type": "file", "content": []},
        {"type": "instructions", "files": [7, {}, {"path": 7, "content": "x"}, {"path": "a\0", "content": "x"}]},
        {"type": "instructions", "files": {"path": "x"}},
        {"type": "invoked_skills", "skills": [7, {}, {"content": [1]}]},
        {"type": "invoked_skills", "skills": 7},
        {"type": ["file"]},
    ]
    for attachment in shapes:
        file.add({"type": "attachment", "attachment": attachment})
        file.add({"type": "user", "message": {"content": "x"}, "toolUseResult": attachment.get("content", attachment)})
    given(file, parts)
    assert (stop(begun, file), set(starts(begun)[0]["artifacts"].values())) == ("", {"present"})


def test_a_look_at_another_run_forgets_no_receipt_and_of_one_second_those_of_the_log_come_first(begun: Scene) -> None:
    local = begun.space(OTHER).local
    for run_id in (begun.run_dir.name, "another", begun.run_dir.name):
        kept = {"run_id": run_id, "at": "2026-11-24T00:00:00Z", "event": "startup", "artifacts": {}}
        local.note_receipts(OTHER, [*local.receipts(OTHER), kept])
    assert len(starts(begun)) == 2
    at = {"at": "2026-11-24T00:00:00Z", "artifacts": {}}
    like = {**begun.events()[-1], "event": "context.checked", "properties": {**at, "event": "resume"}}
    with (begun.run_dir / "events.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(like) + "\n")
    begun.space(OTHER).local.note_receipts(OTHER, [{"run_id": begun.run_dir.name, **at, "event": "startup"}])
    assert [one["event"] for one in starts(begun, code=1)] == ["resume", "startup"]  # the log was written to


def test_damaged_receipts_are_passed_over(begun: Scene, file: TranscriptFile) -> None:
    begun.let_go()
    begun.space().local.mark_ended(SESSION)
    given(file, start(begun, file, "startup", OTHER))
    stop(begun, file, OTHER)
    path = begun.store / "local/receipts" / f"{OTHER}.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    own = {"run_id": begun.run_dir.name, "at": "x"}
    strange = {**own, "event": "clear", "artifacts": {"a": "b"}}
    more: list[object] = [7, {}, own, {**own, "event": "no such"}, strange]
    path.write_text(json.dumps({**kept, "starts": [*more, *kept["starts"]]}), encoding="utf-8")
    (begun.store / "local/receipts" / "x.json").write_text("[", encoding="utf-8")
    assert [one["artifacts"] for one in starts(begun)] == [{"spec": "present", "tasks": "present"}, {}]


@pytest.mark.slow
def test_a_receipt_is_kept_where_the_run_cannot_be_written(begun: Scene, file: TranscriptFile) -> None:
    """As while another writes: this machine has it then."""
    given(file, start(begun, file))
    space = begun.space(transcript=file.path, on_hook_path=True)
    with space.store.lock(begun.run_dir.name, 1.0):
        assert receipts.settle(space) == ""
    assert "context.checked" not in begun.event_names()
    assert len(starts(begun)) == 1


@pytest.mark.slow
def test_what_is_lost_is_told_where_no_receipt_can_be_kept(begun: Scene, file: TranscriptFile) -> None:
    start(begun, file)
    given(file, [])
    (begun.store / "local/receipts").write_text("in the way", encoding="utf-8")
    space = begun.space(transcript=file.path, on_hook_path=True)
    with space.store.lock(begun.run_dir.name, 1.0):
        assert receipts.settle(space).endswith("lost: spec, tasks (loomctl prove)")


def test_what_a_log_brings_is_hostile(begun: Scene) -> None:
    like = {**begun.events()[-1], "event": "context.checked"}
    words: list[object] = [["x"], {}, 7, None, "no such"]
    told: list[Json] = [{"at": "x", "event": word, "artifacts": {}} for word in words]
    told += [{"at": "y", "event": "clear", "artifacts": word} for word in words]
    with (begun.run_dir / "events.jsonl").open("a", encoding="utf-8") as log:
        log.writelines(json.dumps({**like, "properties": one}) + "\n" for one in told)
    assert [one["artifacts"] for one in starts(begun, code=1)] == [{}] * len(words)
    primed = begun.store / "local/primed" / f"{SESSION}.json"
    before = json.loads(primed.read_text(encoding="utf-8"))
    owed = {"run_id": begun.run_dir.name, "event": "session_start", "facts": [], "lines": []}
    for word in words:
        primed.write_text(json.dumps({**before, "owed_by_next": {**owed, "begun": word}}), encoding="utf-8")
        assert begun.loomctl("next").code == 0
