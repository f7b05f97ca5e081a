"""What ends with a step: its answer read, the context set, its files kept, and all of it taken back (D27, D31-D41)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.expressions import engine
from loomctl.flow import advance, resume
from loomctl.flow import stop as stopping
from loomctl.flow.outcomes import answers
from loomctl.flow.outcomes.answers import LONGEST
from loomctl.kit import clock
from loomctl.kit.errors import LoomError
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs import context_values, stages
from loomctl.runs.store import blobs
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.tools import tool_log
from tests.helpers.repositories import git
from tests.helpers.scenes import OTHER, SESSION, Json, Scene, TranscriptFile
from tests.helpers.tables import each
from tests.helpers.verbs import begin, done, end, go_on, read, stand, status_of, statuses, stop, take_back

SCHEMA: Json = {"type": "object", "required": ["risk"], "properties": {"risk": {"enum": ["low", "high"]}}}
GOOD = '{"outcome": "succeeded", "context_updates": {"coverage": 72}}'
ONE, TWO, REVIEW = ("001-build.one@1", "002-build.two@1", "001-build.review@1")
BAD = '{"outcome": "succeeded", "context_updates": }'


def value(scene: Scene, key: str) -> Any:
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    return context_values.value_of(space, run, run.state["context"][key])


@each("sign", ["é", "漢", "😀", "e\u0301"])
def test_the_last_response_is_so_many_characters_not_bytes(scene: Scene, sign: str) -> None:  # D37
    begin(scene, "review", "fix")
    for count in (250, 10):
        done(scene, sign * count)
        assert scene.state["context"]["last_response"] == (sign * count)[:200]


def test_an_answer_ends_its_step_as_it_says_and_sets_the_context(scene: Scene) -> None:
    """The engine's keys, then the step's own; the response is held by reference and reads as its text (D37, D38)."""
    begin(scene, "review", "fix")
    says = {"outcome": "partially_succeeded", "preferred_next_label": "fix", "suggested_next_ids": ["fix"]}
    updates = {"coverage": 72, "notes": ["a", None]}
    answer = "It needs work. " * 20 + json.dumps({**says, "context_updates": updates})
    ended = done(scene, answer).ended or {}
    assert (ended["status"], ended["preferred_next_label"]) == ("partially_succeeded", "fix")
    own = {"last_stage": "build/review", "last_response": answer[:200]}
    response = {"response.build/review": {"$stage": REVIEW, "file": "response.md"}}
    assert scene.state["context"].items() >= {**updates, **own, **response}.items()
    assert value(scene, "response.build/review") == answer
    status = status_of(scene, REVIEW)
    assert status["context_updates"] == updates
    assert status["directive"] == {"source": "response", "file": None, **says}
    assert (status["kind"], status["rank"], status["usage"], status["repairs"]) == ("agent", 1, None, 0)
    assert "context.updated" in scene.event_names()


def test_a_failure_tells_its_reason(scene: Scene) -> None:
    begin(scene, "review", autonomy="guarded")
    line = stop(scene, 'No. {"outcome": "failed", "failure_reason": "no database"}', driven=False).line
    assert "build/review failed: no database. The run failed." in line
    assert (scene.state["status"], scene.state["errors"][-1]["message"]) == ("failed", "no database")
    assert status_of(scene, REVIEW)["failure_reason"] == "no database"


@each(
    ("outcome", "response", "expected"),
    [
        ("failed", '{"outcome": "succeeded"}', "failed"),
        ("succeeded", '{"outcome": "failed"}', "succeeded"),
        (None, '{"outcome": "skipped"}', "skipped"),
        (None, '{"outcome": "splendid"}', "succeeded"),
        (None, "no object at all", "succeeded"),
    ],
)
def test_what_was_given_beside_the_response_comes_first(
    scene: Scene, outcome: str | None, response: str, expected: str
) -> None:
    """`--outcome` is somebody's word; without it the response decides, and else the step succeeded."""
    begin(scene, {"id": "review", "result_handling": {"on_failure": "continue"}}, "fix")
    assert end(scene, response, outcome=outcome) == expected


def test_keys_of_the_engine_are_refused_and_the_others_set(scene: Scene) -> None:  # D37
    begin(scene, "review", "fix")
    reading = done(scene, '{"context_updates": {"_run_id": "x", "response.build/fix": "y", "mine": 1}}').reading
    assert {one.code for one in (reading.warnings if reading else ())} == {"RESERVED_KEY"}
    assert (scene.state["context"]["mine"], "_run_id" in scene.state["context"]) == (1, False)
    assert len(status_of(scene, REVIEW)["warnings"]) == 2


def test_an_undo_takes_the_context_back(scene: Scene) -> None:  # D31
    begin(scene, "one", "two", "three")
    done(scene, '{"context_updates": {"a": 1}}')
    before = scene.state["context"]
    done(scene, '{"context_updates": {"a": 2, "b": 3}}')
    take_back(scene)
    assert scene.state["context"] == before
    take_back(scene)
    assert scene.state["context"] == {}


@each("status", ["", "{", "[]", '{"context_before": 7}', None])
def test_an_undo_without_the_stages_status_leaves_the_context_and_says_so(scene: Scene, status: str | None) -> None:
    begin(scene, "one", "two")
    done(scene, '{"context_updates": {"a": 1}}')
    path = scene.run_dir / "stages" / ONE / "status.json"
    path.unlink()
    if status is not None:
        path.write_text(status)
    assert any("the context stays as it is" in note for note in take_back(scene).notes)
    assert (scene.state["context"]["a"], scene.state["current_step"]) == (1, "build/one")


@each(("size", "is_blob"), [(102_400, False), (102_401, True)])
def test_large_values_become_blobs(scene: Scene, size: int, is_blob: bool) -> None:  # D38
    begin(scene, "one", "two")
    text = "é" * ((size - 2) // 2) + "x" * (size % 2)
    assert len(context_values.encoded(text)) == size
    done(scene, json.dumps({"context_updates": {"report": text}}))
    held = scene.state["context"]["report"]
    assert blobs.is_ref(held) is is_blob
    assert value(scene, "report") == text
    if is_blob:
        assert Blobs(str(scene.store)).get(held) == context_values.encoded(text)


# ---- Answers that are held to a schema (D34, D36)


def test_an_answer_that_does_not_fit_ends_nothing_until_it_is_repaired(scene: Scene) -> None:
    """It is kept beside, the corrective message says what is wrong, and the next answer counts."""
    begin(scene, {"id": "review", "output_schema": "routing"}, "fix")
    answers = [f"I looked.\n{BAD}", "no object"]
    first, second = (done(scene, answer) for answer in answers)
    assert (first.ended, second.ended, scene.state["steps"][0]["repairs"]) == (None, None, 2)
    assert "routing" in first.repair
    assert end(scene, GOOD) == "succeeded"
    assert [read(scene, REVIEW, f"response{at}.md") for at in (".repair-1", ".repair-2", "")] == [*answers, GOOD]
    assert [read(scene, REVIEW, f"repair-{at}.md") for at in (1, 2)] == [first.repair, second.repair]
    status = status_of(scene, REVIEW)
    assert (status["repairs"], status["errors"]) == (2, [])
    codes = [[one["code"] for one in errors] for errors in status["repair_errors"]]
    assert codes == [["MALFORMED_JSON"], ["NO_DIRECTIVE"]]
    repairs = [name.format(at) for at in (1, 2) for name in ("response.repair-{}.md", "repair-{}.md", "repair-{}.json")]
    assert stages.names(str(scene.run_dir), REVIEW)[:8] == ["prompt.md", *repairs, "response.md"]
    assert scene.event_names().count("stage.repair_requested") == 2


@each("retries", [0, 1, 2, -4])
def test_when_no_repair_is_left_the_step_fails_and_is_not_tried_again(scene: Scene, retries: int) -> None:  # D36
    begin(scene, {"id": "review", "output_schema": "routing", "output_retries": retries, "max_retries": 3})
    count = max(0, retries)
    reason = f"output schema validation failed after {count} repair attempt(s)"
    assert [done(scene, BAD) for _ in range(count + 1)][-1].move.kind == "failed"
    (entry,) = scene.state["steps"]
    assert (entry["status"], entry["failure_reason"]) == ("failed", reason)
    assert read(scene, REVIEW, "response.md") == BAD
    assert set(scene.state["context"]) == {"last_stage"}
    status = status_of(scene, REVIEW)
    assert (status["failure_reason"], len(status["repair_errors"]), bool(status["errors"])) == (reason, count, True)


@each("outcome", ["failed", "skipped"])
def test_a_step_that_could_not_be_done_owes_no_object(scene: Scene, outcome: str) -> None:
    begin(scene, {"id": "review", "output_schema": "routing", "result_handling": {"on_failure": "continue"}})
    assert end(scene, "There is no database here.", outcome=outcome) == outcome


def test_an_answer_that_nobody_here_can_judge_ends_nothing_and_says_why(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:  # D36
    scene.write(".loom/workflows/risk.json", json.dumps(SCHEMA))
    begin(scene, {"id": "review", "output_schema": "@risk.json"})
    monkeypatch.setattr(engine, "SCHEMA_TOTAL_SECONDS", 0.0)
    driven = done(scene, '{"risk": "low"}')
    assert (driven.ended, "repairs" in scene.state["steps"][0]) == (None, False)
    assert "it ran out of time" in driven.repair
    assert "loomctl done --for 001 --outcome failed" in driven.repair
    assert end(scene, "", outcome="failed") == "failed"


def test_an_object_for_a_schema_of_the_steps_own_is_kept(scene: Scene) -> None:  # D35
    scene.write(".loom/workflows/schemas/audit.schema.json", json.dumps(SCHEMA))
    begin(scene, {"id": "audit", "output_schema": "@schemas/audit.schema.json"}, "fix")
    scene.write("status.json", '{"risk": "low"}')
    assert done(scene, '{"risk": "some", "outcome": "failed"}').repair
    assert done(scene, "words alone").repair
    assert end(scene, 'So: {"risk": "high", "outcome": "failed"}') == "succeeded"
    kept = (scene.state["context"]["output.build/audit"], status_of(scene, "001-build.audit@1")["output"])
    assert kept == ({"risk": "high", "outcome": "failed"},) * 2


@each("answer", ['{"risk": "low"}', '{"risk": 3}', '{"outcome": "failed", "risk": "low"}'])
def test_an_object_for_a_schema_of_the_steps_own_is_no_directive(scene: Scene, answer: str) -> None:  # D35
    scene.write(".loom/workflows/audit.schema.json", json.dumps(SCHEMA))
    begin(scene, {"id": "audit", "output_schema": "@audit.schema.json", "output_retries": 0})
    done(scene, answer)
    assert status_of(scene, "001-build.audit@1")["directive"] is None


def test_a_schema_is_frozen_as_a_run_begins_and_a_bad_one_begins_none(scene: Scene) -> None:
    path = scene.write(".loom/workflows/schemas/audit.schema.json", '{"type": "no such type"}')
    with pytest.raises(LoomError):
        begin(scene, {"id": "audit", "output_schema": "@schemas/audit.schema.json"})
    assert scene.run_dirs == []
    path.write_text(json.dumps(SCHEMA))
    begin(scene, {"id": "audit", "output_schema": "@schemas/audit.schema.json"})
    path.unlink()
    assert done(scene, '{"risk": "high"}').move.kind == "completed"


# ---- Files that stand in for a response (D35)


def test_a_file_of_this_visit_stands_in_and_an_older_one_does_not(scene: Scene) -> None:
    os.utime(scene.write("status.json", '{"outcome": "failed"}'), ns=(1, 1))
    begin(scene, "one", "two", "three")
    assert end(scene) == "succeeded"
    scene.write("status.json", '{"outcome": "partially_succeeded"}')
    assert end(scene) == "partially_succeeded"
    assert status_of(scene, TWO)["directive"]["source"] == "status.json"
    assert end(scene, "And this.") == "succeeded"


def wrote(scene: Scene, path: str, stage: str = ONE) -> None:
    told = {"stage": stage, "at": "2999-01-01T00:00:00Z"}
    tool_log.append(str(scene.run_dir), [ToolStep("t1", "Write", {"file_path": path}, "did", None, True, more=told)])


FAILED = '{"outcome": "failed", "failure_reason": "as it says"}'


def test_the_file_that_ends_a_step_is_named(scene: Scene) -> None:
    """In its status, in the event, in the line and the console, and where the stage is shown (D35)."""
    begin(scene, {"id": "one", "result_handling": {"on_failure": "continue"}}, "two", "three")
    wrote(scene, str(scene.write("docs/api.md", f"Errors are given as `{FAILED}`.\n")))
    shown = scene.loomctl("done", given="I wrote the documentation.").stdout
    assert shown.startswith("✗ build/one: failed (001-build.one@1, by docs/api.md): as it says\n")
    directive = status_of(scene, ONE)["directive"]
    assert (directive["source"], directive["file"]) == ("last_file", "docs/api.md")
    (completed,) = [one for one in scene.events() if one["event"] == "stage.completed"]
    assert completed["properties"]["directive_file"] == "docs/api.md"
    assert "directive from last_file docs/api.md: outcome failed" in scene.loomctl("show", "one").stdout
    scene.write("status.json", '{"outcome": "skipped"}')
    done(scene, None)
    assert stop(scene, "It is done.", driven=False).line.startswith("Loom: build/two skipped (by status.json). ")
    go_on(scene)
    done(scene, GOOD)
    assert status_of(scene, "003-build.three@1")["directive"]["file"] is None


@each("through", ["path", "link", "status link", "odd"])
def test_a_file_outside_of_the_project_and_the_run_says_nothing(scene: Scene, through: str) -> None:  # D10
    begin(scene, "one", "two")
    outside = scene.root.parent / "outside.json"
    outside.write_text(FAILED)
    link = scene.root / ("status.json" if through == "status link" else "inside.json")
    link.symlink_to(outside)
    wrote(scene, {"path": str(outside), "link": str(link), "status link": "", "odd": "\ud800.json"}[through])
    assert end(scene) == "succeeded"
    assert "as it says" not in json.dumps(scene.state)


def test_a_file_of_the_runs_own_folder_may_say_it(scene: Scene) -> None:  # D35
    begin(scene, "one", "two")
    path = scene.run_dir / "outputs" / "said.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(FAILED)
    wrote(scene, str(path))
    done(scene, "It is done.")
    assert status_of(scene, ONE)["directive"]["file"] == str(path.relative_to(scene.root))


def test_a_draft_before_a_broken_directive_routes_no_run(scene: Scene) -> None:
    """The last object is asked for again, by its place, and the corrected one chooses the way (D34)."""
    ways = [{"to": "fix", "label": "Fix"}, {"to": "ship", "label": "Ship"}]
    begin(scene, {"id": "one", "output_schema": "routing", "transitions": ways}, "fix", "ship")
    asked = done(scene, 'At first: {"preferred_next_label": "Ship"}\nBut then:\n{"preferred_next_label": "Fix",}')
    assert asked.ended is None
    assert "expected a key in double quotes, not a comma before it (line 3, column 32)" in asked.repair
    assert done(scene, '{"preferred_next_label": "Fix"}').ended
    assert scene.state["current_step"] == "build/fix"


def test_a_schema_is_said_before_the_first_answer(scene: Scene) -> None:
    """In the words of the correction (D36), which names the file that is broken; a step without one costs nothing."""
    begin(scene, {"id": "one", "output_schema": "routing"}, "two")
    expected = "Expected: one JSON object with at least one of outcome, "
    scene.write("status.json", '{"outcome": "failed",}')
    repair = done(scene).repair
    assert "The result of step build/one (status.json)" in repair
    assert (expected in read(scene, ONE, "prompt.md"), expected in repair) == (True, True)
    done(scene, GOOD)
    assert "Expected" not in read(scene, TWO, "prompt.md")


@each("name", ["status.json", "notes.md"])
@each("schema", [None, "routing"])
def test_a_file_that_is_too_large_to_be_looked_at_is_named(scene: Scene, name: str, schema: str | None) -> None:
    begin(scene, {"id": "one", **({"output_schema": schema} if schema else {})}, "two")
    wrote(scene, str(scene.write(name, FAILED + " " * answers.LARGEST_SOURCE)))
    driven = done(scene)
    assert driven.reading is not None
    (said,) = [one for one in (*driven.reading.errors, *driven.reading.warnings) if one.code == "PASSED_OVER"]
    assert f"Loom ignored {name}: the file is too large: 1,048,629 bytes" in said.message
    assert name in driven.repair or schema is None
    reading = done(scene, GOOD).reading
    assert reading is not None
    assert not reading.warnings


def test_the_first_errors_follow_where_an_answer_never_fitted(scene: Scene) -> None:
    """Three at most, with their pointers; the reason itself stays the document's sentence (D36)."""
    begin(scene, {"id": "one", "output_schema": "routing", "output_retries": 0})
    bad = {"outcome": "fine", "failure_reason": 1, "preferred_next_label": 2, "suggested_next_ids": 3}
    shown = scene.loomctl("done", given=json.dumps(bad)).stdout
    reason = "output schema validation failed after 0 repair attempt(s)"
    assert f"(001-build.one@1): {reason}: /outcome: unknown outcome 'fine'" in shown
    assert all(part in shown for part in ("; /failure_reason: ", "; and 1 more"))
    assert status_of(scene, ONE)["failure_reason"] == reason


def conversation(scene: Scene, session: str, tokens: dict[str, int]) -> Path:
    """Write a session's transcript with messages of these ids that used so many tokens; its binding names it."""
    path = scene.root.parent / f"{session}.jsonl"
    file = TranscriptFile(path)
    for name, count in tokens.items():
        told = {"usage": {"output_tokens": count}, "content": [{"type": "text", "text": f"I am {name}."}]}
        message = {"id": name, "model": "claude", "role": "assistant", **told}
        file.add({"type": "assistant", "timestamp": "2999-01-01T00:00:00.000Z", "message": message})
    local = scene.space(session).local
    if (binding := local.binding(session)) is not None:
        local.refresh(binding, pid=None, transcript_path=str(path))
    return path


@each("seen", [True, False])
def test_a_step_that_another_session_closes_counts_what_both_used(scene: Scene, seen: bool) -> None:
    """The response is the first one's, and so is its usage; what cannot be seen here is said (D27, D41)."""
    begin(scene, "one", "two")
    first = conversation(scene, SESSION, {"a": 10, "b": 20})
    done(scene, None, outcome="partially_succeeded", note="half of it")
    scene.space().local.mark_ended(SESSION)
    second = conversation(scene, OTHER, {"b": 20, "c": 5})  # a fork holds what was said before it
    if not seen:
        first.unlink()
    resume.resume(scene.space(OTHER, transcript=second), scene.run_dir.name, take_over=True)
    status = status_of(scene, ONE)
    assert status["response_source"] == ("transcript" if seen else "none")
    assert (status["usage"]["output_tokens"], status["usage"]["messages"]) == ((35, 3) if seen else (25, 2))
    assert status["usage"].get("partial", False) is not seen
    assert ("what another session used" in scene.loomctl("show", "one").stdout) is not seen


def test_the_last_response_is_the_last_stages_or_not_there(scene: Scene) -> None:
    """A step without one, or one whose answer never fitted, leaves no other's behind; an undo brings it back (D36)."""
    begin(scene, "one", "two", {"id": "three", "output_schema": "routing", "output_retries": 0})
    done(scene, "The first.")
    done(scene, None, outcome="skipped")
    go_on(scene)  # no conversation can be read
    assert status_of(scene, TWO)["response_source"] == "none"
    assert tuple(scene.state["context"].get(key) for key in ("last_stage", "last_response")) == ("build/two", None)
    take_back(scene)
    assert scene.state["context"]["last_response"] == "The first."
    done(scene, "The second.")
    done(scene, "no object")
    assert "last_response" not in scene.state["context"]
    assert value(scene, "response.build/two") == "The second."


def test_a_prompt_steps_answer_is_its_response_alone(scene: Scene) -> None:  # D30
    begin(scene, {"id": "one", "kind": "prompt"})
    scene.write("status.json", '{"outcome": "skipped"}')
    assert end(scene) == "succeeded"


# ---- What a stop does (D27, D28).


def test_a_stop_with_a_directive_ends_the_step_and_hands_on_the_next(scene: Scene) -> None:
    """By a block in a turn that Loom drives, to its user in another; the last step ends the run."""
    begin(scene, "one", "two", "three")
    block = "Loom: build/one succeeded. The next step is build/two: run `loomctl next` and work on it."
    assert stop(scene, GOOD).block == block
    stopped = stop(scene, GOOD, driven=False)
    assert (stopped.block, stopped.line) == ("", "Loom: build/two succeeded. Next: build/three")
    last = stop(scene, GOOD)
    assert (last.block, last.line) == ("", "Loom: build/three succeeded. The run is completed.")


def test_a_stop_that_fails_a_step_says_why(scene: Scene) -> None:
    """What the assistant gave as its reason, or that its answer never fitted; in a line, and masked."""
    begin(scene, {"id": "one", "max_retries": 1, "output_schema": "routing", "output_retries": 0})
    key = "sk-" + "ant-api03-" + "a" * 40
    first = stop(scene, json.dumps({"outcome": "failed", "failure_reason": f"no\ndatabase {key}."}))
    assert first.block.startswith("Loom: build/one failed: no database ")
    assert key not in first.block
    last = stop(scene, BAD)
    reason = "output schema validation failed after 0 repair attempt(s)"
    assert last.line.startswith(f"Loom: build/one failed: {reason}: the JSON is invalid: ")
    assert scene.state["steps"][-1]["failure_reason"] == reason
    assert last.line.endswith(". The run failed. To try the step again: loomctl resume " + scene.handle)


@each("schema", [None, "routing"])
@each("text", [GOOD, BAD])
def test_a_question_is_no_end_whatever_a_file_says(scene: Scene, schema: str | None, text: str) -> None:
    """A file stands in for a response that was given as one, and not for a message to the user (D27, D35)."""
    begin(scene, {"id": "one", **({"output_schema": schema} if schema else {})}, "two", autonomy="guarded")
    scene.write("status.json", text)
    assert stop(scene, "Which colour shall it be?") == stopping.Stopped()
    assert statuses(scene)[0] == "in_progress"
    scene.write("status.json", GOOD)
    done(scene, None)
    assert "build/one succeeded" in stop(scene, "Blue, then.").block


@each("driven", [False, True])
@each("schema", [None, "routing", "@risk.json"])
def test_a_question_behind_a_result_is_no_end(scene: Scene, schema: str | None, driven: bool) -> None:
    """The object may be what the question is about; it is kept, and the answer's own result ends the step (D27)."""
    scene.write(".loom/workflows/risk.json", json.dumps({"required": ["outcome"]}))
    begin(scene, {"id": "one", **({"output_schema": schema} if schema else {})}, "two", autonomy="guarded")
    asks = f"It would be `{GOOD}`. Shall I end the step with it?"
    assert stop(scene, asks, driven=driven) == stopping.Stopped()
    assert read(scene, ONE, "candidate.md") == asks
    stopped = stop(scene, GOOD, driven=driven)
    assert "build/one succeeded" in stopped.block + stopped.line


def test_json_that_merely_has_such_a_key_ends_nothing(scene: Scene) -> None:  # D34
    begin(scene, "one", "two", autonomy="guarded")
    assert stop(scene, 'The service says {"outcome": "failure"}.') == stopping.Stopped()
    reading = done(scene, '{"outcome": "failure"}').reading
    assert [one.code for one in (reading.warnings if reading else ())] == ["UNKNOWN_OUTCOME"]


def test_a_message_that_is_too_long_to_be_read_whole_is_kept_whole_and_its_user_told(scene: Scene) -> None:
    begin(scene, "one", "two", autonomy="guarded")
    long = GOOD + "é" * LONGEST
    assert f"looked for a result in the last {LONGEST:,} of" in stop(scene, long).line
    assert read(scene, ONE, "candidate.md") == long
    assert "build/one succeeded" in stop(scene, long + GOOD).block
    assert read(scene, ONE, "response.md") == value(scene, "response.build/one") == long + GOOD
    assert status_of(scene, ONE)["warnings"][0]["code"] == "PARTLY_READ"


def test_an_assistant_that_calls_tools_and_never_answers_is_not_asked_for_ever(scene: Scene) -> None:  # D28
    begin(scene, "one", "two", autonomy="autonomous")
    asked = [stop(scene, "So far.", nudged=(ONE, count)).asked for count in range(30)]
    assert asked == [True] * 20 + [False] * 10
    assert scene.state["status"] == "awaiting_feedback"


def test_an_assistant_that_does_not_take_the_next_step_up_is_not_sent_on_for_ever(scene: Scene) -> None:
    begin(scene, "one", "two", autonomy="autonomous")
    stop(scene, GOOD)
    blocks = [stop(scene, "Well.", told=ONE, nudged=(TWO, count)).block for count in range(22)]
    assert ["loomctl next" in block for block in blocks] == [True] * 20 + [False] * 2
    assert scene.state["status"] == "paused"


def test_a_stop_that_no_block_can_follow_pauses_the_run(scene: Scene) -> None:  # D28
    begin(scene, "one", "two")
    stopped = stop(scene, GOOD, blocks_left=0)
    assert f"loomctl resume {scene.handle}" in stopped.line
    assert (scene.state["status"], statuses(scene)[0]) == ("paused", "succeeded")
    assert "run.paused" in scene.event_names()


def test_two_stops_without_a_result_let_an_autonomous_run_wait(scene: Scene) -> None:
    begin(scene, "one", "two", autonomy="autonomous")
    assert stop(scene, "Which colour?").asked
    assert "waits for your answer" in stop(scene, "Which colour, please?", asked=True).line
    assert (scene.state["status"], scene.state["feedback"]["message"]) == ("awaiting_feedback", "Which colour, please?")
    assert go_on(scene).move.step == "build/one"
    assert (scene.state["status"], "feedback" in scene.state) == ("in_progress", False)
    names = [name for name in scene.event_names() if name.startswith(("run.", "stage.asked"))]
    assert names == ["run.created", "stage.asked", "run.awaiting_feedback", "run.feedback_given"]
    stop(scene, "Which colour, then?", asked=True)
    assert scene.state["status"] == "awaiting_feedback"
    assert stop(scene, GOOD, driven=False).line == "Loom: build/one succeeded. Next: build/two"
    assert (scene.state["status"], "feedback" in scene.state) == ("in_progress", False)


def test_a_closing_step_whose_answer_does_not_fit_is_repaired(scene: Scene) -> None:
    """`next` has no turn to block, so the step is open and says what is asked for; a stop asks by a block."""
    begin(scene, {"id": "one", "output_schema": "routing"})
    done(scene, None)
    (scene.run_dir / "stages" / ONE / "candidate.md").write_text("no object")
    driven = go_on(scene)
    assert (driven.ended, bool(driven.repair), statuses(scene)) == (None, True, ["in_progress"])
    done(scene, None)
    assert "JSON" in stop(scene, "Done.", driven=False).block
    assert statuses(scene) == ["closing"]
    assert "completed" in stop(scene, GOOD, driven=False).line


def test_two_stops_at_once_end_a_step_once(scene: Scene) -> None:
    begin(scene, "one", "two")
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    turn = stopping.Turn(told=ONE, driven=True, blocks_left=8)
    first, second = (stopping.stopped(space, run, turn, GOOD) for _ in range(2))
    assert first.block
    assert second == stopping.Stopped()
    assert statuses(scene) == ["succeeded", "in_progress"]


def test_a_step_is_not_visited_more_often_than_it_may_be(scene: Scene) -> None:  # D41
    begin(scene, {"id": "one", "max_retries": 9, "max_visits": 2})
    assert [done(scene, '{"outcome": "failed"}') for _ in range(2)][-1].move.kind == "failed"
    assert [entry["visit"] for entry in scene.state["steps"]] == [1, 2]


def test_an_undo_keeps_repaired_answers_and_changes_aside(scene: Scene) -> None:  # D31, D39
    begin(scene, {"id": "one", "output_schema": "routing"}, "two")
    done(scene, "first draft")
    done(scene, GOOD)
    folder = scene.run_dir / "stages" / ONE
    assert (folder / "changes.json").is_file()
    take_back(scene)
    assert not (folder / "changes.json").exists()
    done(scene, "another draft")
    assert read(scene, ONE, "response.repair-1.undone-1.md") == "first draft"
    for name in ("repair-1.undone-1.md", "repair-1.undone-1.json", "changes.undone-1.json"):
        assert (folder / name).is_file()
    assert read(scene, ONE, "response.repair-1.md") == "another draft"
    assert scene.state["steps"][0]["repairs"] == 1


def test_calls_that_wait_are_of_the_step_that_a_stop_ends(scene: Scene) -> None:  # D59
    begin(scene, "one", "two")
    for number in range(90):
        told = {"tool_name": "Write", "tool_input": {"file_path": f"f{number}.md", "content": "x"}}
        event = {"hook_event_name": "PostToolUse", "session_id": SESSION, "tool_use_id": f"t{number}", **told}
        event["tool_response"] = {"type": "create", "filePath": f"f{number}.md"}
        scene.write(f".loom/local/spool/{SESSION}-{number}.json", json.dumps(event))
    stop(scene, GOOD)
    assert len(status_of(scene, ONE)["files_touched"]) == 90


def test_what_was_said_before_a_step_began_is_not_of_it(scene: Scene, tmp_path: Path) -> None:
    """It ended the step before, a moment ago and in the same second: neither its tokens nor its words (D41)."""
    begin(scene, "one", "two", "three")
    path = tmp_path / "session.jsonl"

    def says(name: str) -> None:
        at = clock.exact_stamp(time.time_ns())
        message = {"id": name, "model": "m", "usage": {"output_tokens": 5}, "content": [{"type": "text", "text": name}]}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"type": "assistant", "uuid": name, "timestamp": at, "message": message}) + "\n")

    for name in ("first", "second"):
        says(name)
        advance.done(scene.space(transcript=path), scene.run_dir.name, response="it is done")
    for stage in (ONE, TWO):
        usage = status_of(scene, stage)["usage"]
        assert (usage["messages"], usage["output_tokens"]) == (1, 5)
    says("third")
    advance.done(scene.space(transcript=path), scene.run_dir.name, response=None)
    advance.next_step(scene.space(transcript=path), scene.run_dir.name)
    assert read(scene, "003-build.three@1", "response.md") == "third"


def test_a_step_that_a_sessions_start_opens_is_told_by_git_too(scene: Scene) -> None:  # D27, D39
    git(scene.root, "init", "-q", "-b", "main")
    begin(scene, "one", "two")
    done(scene, None, outcome="skipped")
    space = scene.space()
    stopping.closed_without_message(space, space.store.read(scene.run_dir.name))
    advance.next_step(space, scene.run_dir.name)
    scene.write("made.txt", "x")
    done(scene, "made")
    assert status_of(scene, TWO)["files_touched"] == ["made.txt"]


def test_a_file_in_a_steps_own_folder_stands_in(scene: Scene) -> None:  # D8, D35
    begin(scene, *({"id": name, "workdir": f"{at}api"} for name, at in (("one", ""), ("two", "{project_root}/"))))
    for _ in range(2):
        scene.write("api/status.json", '{"outcome": "partially_succeeded"}')
        assert end(scene) == "partially_succeeded"


@each("allowed", [True, False])
def test_a_file_in_a_folder_that_its_user_allows_stands_in(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:  # D10, D35
    folder, settings = scene.root.parent / "elsewhere", scene.root.parent / "settings" / "loom"
    folder.mkdir()
    settings.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(settings.parent))
    if allowed:
        (settings / "config.yaml").write_text(f"extra_roots: [{folder}]\n", encoding="utf-8")
    begin(scene, {"id": "one", "workdir": str(folder)}, "two")
    (folder / "status.json").write_text('{"outcome": "partially_succeeded"}', encoding="utf-8")
    assert end(scene) == ("partially_succeeded" if allowed else "succeeded")


def test_an_answer_that_comes_as_its_run_is_paused_counts(scene: Scene) -> None:  # D27
    begin(scene, "one", "two")
    stand(scene, "paused")
    assert stop(scene, "Which colour?") == stopping.Stopped()
    assert statuses(scene)[0] == "in_progress"
    last = stop(scene, GOOD)
    assert (last.block, last.line.partition(". To continue")[0]) == ("", "Loom: build/one succeeded. The run is paused")
    assert read(scene, ONE, "response.md") == GOOD
    assert (scene.state["status"], statuses(scene)) == ("paused", ["succeeded"])
    resume.resume(scene.space(), scene.run_dir.name)
    assert (scene.state["current_step"], scene.state["context"]["coverage"]) == ("build/two", 72)


def test_an_answer_to_a_paused_run_that_ends_nothing_is_kept_and_told(scene: Scene) -> None:  # D27
    shown = [{"file": "report.md"}]
    begin(scene, {"id": "one", "output_schema": "routing", "evidence": shown}, "two", autonomy="autonomous")
    stand(scene, "paused")
    for message in (BAD, GOOD):
        told = stop(scene, message)
        assert told.block == ""
        assert told.line.startswith("Loom: build/one is not done: the run is paused, and ")
        assert "candidate" in told.line
        assert read(scene, ONE, "candidate.md") == message
    assert (scene.state["status"], statuses(scene)[0]) == ("paused", "in_progress")
    assert "repairs" not in scene.state["steps"][0]


def test_what_is_paused_while_a_stop_is_decided_is_neither_asked_nor_sent_on(scene: Scene) -> None:
    """The state under the lock decides: what was read before may have been paused since (D27)."""
    begin(scene, {"id": "one", "output_schema": "routing"}, "two", autonomy="autonomous")
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    stopping.set_standing(space, run.run_id, "paused", "run.paused", allowed=("in_progress",))
    turn = stopping.Turn(told=ONE, driven=True, blocks_left=8)
    for message in (BAD, "Which colour?"):
        assert stopping.stopped(space, run, turn, message).block == ""
        assert read(scene, ONE, "candidate.md") == message
    assert (scene.state["status"], statuses(scene)[0]) == ("paused", "in_progress")
    assert "repairs" not in scene.state["steps"][0]
    assert stopping.stopped(space, run, turn, GOOD).block == ""
    assert (scene.state["status"], statuses(scene)) == ("paused", ["succeeded"])


def test_a_closing_step_of_a_paused_run_waits_where_its_answer_does_not_fit(scene: Scene) -> None:
    """At a stop and at a session's start: nothing is asked for, nothing fails; `next` asks when the run goes on."""
    begin(scene, {"id": "one", "output_schema": "routing", "output_retries": 0}, "two")
    done(scene, None)
    stand(scene, "paused")
    assert stop(scene, "Done.") == stopping.Stopped()
    assert stop(scene, "") == stopping.Stopped()
    space = scene.space()
    assert stopping.closed_without_message(space, space.store.read(scene.run_dir.name)) == ""
    assert (scene.state["status"], statuses(scene)[0]) == ("paused", "closing")
    assert "Now" not in stop(scene, GOOD).line
    assert (scene.state["status"], statuses(scene)[0]) == ("paused", "succeeded")
    assert len(scene.state["steps"]) == 1
