"""What was in context before a compaction is in it again after it: the promise that Loom is named for."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from loomctl.kit.text.fences import utf16_units
from tests.e2e.assistant import Assistant
from tests.e2e.scenes import SENTENCE, InRun, state_of, write_spec
from tests.e2e.scripted_api import AUTO_COMPACT, Request, bash, reply
from tests.helpers import bytecode


def test_the_spec_survives_compact_and_an_automatic_compaction_in_a_turn(in_run: InRun) -> None:
    assistant, first = in_run
    assert SENTENCE in assistant.run("go on", resume=first.session_id).conversation[0].seen()

    compacted = assistant.run("/compact", resume=first.session_id, watch_hooks=True)
    (summary_request,) = [request for request in compacted.requests if request.kind == "compaction"]
    assert state_of(assistant.project)["run_id"] in summary_request.seen()
    assert any("Loom: run" in line for line in compacted.told_user())

    assert assistant.run("go on", resume=first.session_id).conversation[0].seen().count(SENTENCE) == 1
    (record,) = state_of(assistant.project)["sessions"]["session_history"]
    assert [compaction["trigger"] for compaction in record["compactions"]] == ["manual"]
    turn = assistant.run(
        "go on",
        resume=first.session_id,
        allowed_tools="Bash(true)",
        answers=[reply(bash("true")), reply(bash("true"), usage=AUTO_COMPACT), reply(bash("true")), "finished"],
    )
    kinds = [request.kind for request in turn.requests]
    assert kinds.count("compaction") == 1
    before = turn.requests[kinds.index("compaction") - 1]
    after = turn.requests[kinds.index("compaction") + 1]
    assert SENTENCE in before.seen()
    assert after.seen().count(SENTENCE) == 1
    (record,) = state_of(assistant.project)["sessions"]["session_history"]
    assert [compaction["trigger"] for compaction in record["compactions"]] == ["manual", "auto"]


def facts(words: str, size: int = 30_000) -> list[str]:
    return [f"Fact {number}: {words} {number * 7919 % 10007} holds." for number in range(size // 36)]


def test_thirty_thousand_characters_are_back_after_every_event(in_run: InRun) -> None:
    """Each line of the spec stands once in the request after /compact, an automatic compaction and /clear (D62)."""
    assistant, first = in_run
    every = facts("the old")
    write_spec(assistant.project, "\n".join(every))

    def given(request: Request) -> list[int]:
        seen = request.seen()
        return [seen.count(fact) for fact in every]

    assistant.run("go on", resume=first.session_id)
    assistant.run("/compact", resume=first.session_id)
    assert set(given(assistant.run("go on", resume=first.session_id).conversation[0])) == {1}

    every = facts("the new")
    (assistant.project / "new.md").write_text("\n".join(every), encoding="utf-8")
    turn = assistant.run(
        "go on",
        resume=first.session_id,
        allowed_tools="Bash(true),Bash(cp new.md specs/dark-mode.md)",
        answers=[
            reply(bash("cp new.md specs/dark-mode.md")),
            reply(bash("true"), usage=AUTO_COMPACT),
            reply(bash("true")),
            "finished",
        ],
    )
    kinds = [request.kind for request in turn.requests]
    later = turn.requests[kinds.index("compaction") + 1]
    assert set(given(later)) == {1}
    assert "the old 0 holds" not in later.seen()

    cleared = assistant.run("/clear", resume=first.session_id)
    assert set(given(assistant.run("go on", resume=cleared.session_id).conversation[0])) == {1}


def test_a_restore_that_failed_is_made_up_for_at_the_next_prompt(in_run: InRun, tmp_path: Path) -> None:
    assistant, first = in_run
    deaf = tmp_path / "deaf"
    shutil.copytree(str(assistant.plugin_dir), deaf)
    bytecode.share(assistant.machine.cache, deaf)
    hooks = json.loads((deaf / "hooks" / "claude-code.json").read_text(encoding="utf-8"))
    del hooks["hooks"]["SessionStart"]
    (deaf / "hooks" / "claude-code.json").write_text(json.dumps(hooks), encoding="utf-8")
    without = replace(assistant, plugin_dir=deaf)

    without.run("/compact", resume=first.session_id)
    assert without.run("go on", resume=first.session_id).conversation[0].seen().count(SENTENCE) == 1
    assert without.run("go on", resume=first.session_id).conversation[0].seen().count(SENTENCE) == 1


@pytest.mark.quick
def test_a_compaction_with_nothing_under_way_adds_nothing(assistant: Assistant) -> None:
    first = assistant.run("hello")
    compacted = assistant.run("/compact", resume=first.session_id)
    after = assistant.run("go on", resume=first.session_id)
    heard = " ".join(request.seen() for request in (*compacted.requests, *after.requests))
    assert "Additional Instructions" not in heard
    assert "SessionStart hook additional context" not in heard


def test_five_megabytes_are_told_within_the_limit(assistant: Assistant) -> None:
    """However much there is, each part stays under the host's 10,000 units, and they name what is left out."""
    write_spec(assistant.project, "# Much\n\n" + "\n".join(f"Line {n} of 😀 things" for n in range(4000)))
    notes = assistant.project / "notes"
    notes.mkdir()
    rules = []
    for number in range(52):
        (notes / f"{number}.md").write_text(f"# Note {number}\n" + "palaver ümlaut 😀\n" * 4800, encoding="utf-8")
        rules.append(
            {
                "id": f"note-{number}", "type": "markdown", "path": f"notes/{number}.md",
                "description": f"The note number {number}", "required": number % 2 == 0,
                "reload_triggers": ["session_start"],
            }
        )  # fmt: skip
    workflows = assistant.project / ".loom" / "workflows"
    workflows.mkdir(parents=True)
    much = {"id": "much", "description": "Core with notes", "extends": "core"}
    much_json = json.dumps({**much, "critical_artifacts": {"always_load": rules}})
    (workflows / "much.json").write_text(much_json, encoding="utf-8")
    assistant.run("/loom:run 258 --workflow much")

    turn = assistant.run("hello", watch_hooks=True)
    answers = [answer for answer in turn.hook_answers("SessionStart") if "hookSpecificOutput" in answer]
    parts = [answer["hookSpecificOutput"]["additionalContext"] for answer in answers]
    assert 1 < len(parts) <= 4
    assert all(utf16_units(part) <= 10_000 for part in parts)
    assert [part for part in parts if part not in turn.conversation[0].seen()] == []
    context = "\n".join(parts)
    unnamed = [number for number in range(52) if f"note-{number}:" not in context]
    assert unnamed == [] or f"{len(unnamed)} more" in context
