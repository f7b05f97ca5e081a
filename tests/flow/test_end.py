"""What ends with a step: its answer read, the context set, its files kept, and all of it taken back (D27, D31-D41)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from loomctl.expressions import engine
from loomctl.flow import drive, resume, undo
from loomctl.flow import stop as stopping
from loomctl.flow.drive import Driven
from loomctl.flow.outcomes import answers
from loomctl.flow.outcomes.answers import LONGEST
from loomctl.kit import clock
from loomctl.kit.errors import LoomError
from loomctl.reduction.tool_steps import ToolStep
from loomctl.runs import context_values, stages
from loomctl.runs.model import visits
from loomctl.runs.store import blobs
from loomctl.runs.store.blobs import Blobs
from loomctl.runs.tools import tool_log
from tests.helpers.repositories import git
from tests.helpers.scenes import OTHER, SESSION, Json, Scene, TranscriptFile
from tests.helpers.tables import each

SCHEMA: Json = {"type": "object", "required": ["risk"], "properties": {"risk": {"enum": ["low", "high"]}}}
GOOD = '{"outcome": "succeeded", "context_updates": {"coverage": 72}}'
BAD = '{"outcome": "succeeded", "context_updates": }'


def begun(scene: Scene, *steps: Json, **more: Any) -> Scene:
    """Start a run of these steps in one phase."""
    listed = [{"prompt": "Do it.", **step} for step in steps]
    scene.workflow(phases={"build": {"steps": listed}}, **more)
    scene.begin()
    return scene


def done(scene: Scene, response: str | None, **more: Any) -> Driven:
    """End the current step with a response."""
    return drive.done(scene.space(), scene.run_dir.name, response=response, **more)


def status_of(scene: Scene, stage: str) -> Json:
    """Read how a stage ended."""
    found: Json = json.loads((scene.run_dir / "stages" / stage / "status.json").read_text(encoding="utf-8"))
    return found


def value(scene: Scene, key: str) -> Any:
    """Read a value of the run's context as who needs it does."""
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    return context_values.value_of(space, run, run.state["context"][key])


@each("sign", ["é", "漢", "😀", "e\u0301"])
def test_the_last_response_is_so_many_characters_not_bytes(scene: Scene, sign: str) -> None:
    """Of letters of several bytes as of others (D37)."""
    begun(scene, {"id": "review"}, {"id": "fix"})
    done(scene, sign * 250)
    assert scene.state["context"]["last_response"] == (sign * 250)[:200]
    done(scene, sign * 10)
    assert scene.state["context"]["last_response"] == sign * 10


def test_an_answer_ends_its_step_as_it_says_and_sets_the_context(scene: Scene) -> None:
    """The engine's keys, then the step's own; the response is held by reference and reads as its text (D37, D38)."""
    begun(scene, {"id": "review"}, {"id": "fix"})
    words = "It needs work. " * 20
    answer = words + json.dumps(
        {
            "outcome": "partially_succeeded",
            "preferred_next_label": "fix",
            "suggested_next_ids": ["fix"],
            "context_updates": {"coverage": 72, "notes": ["a", None]},
        }
    )
    driven = done(scene, answer)
    assert driven.ended is not None
    assert (driven.ended["status"], driven.ended["preferred_next_label"]) == ("partially_succeeded", "fix")
    context = scene.state["context"]
    assert (context["coverage"], context["notes"], context["last_stage"]) == (72, ["a", None], "build/review")
    assert context["last_response"] == answer[:200]
    assert context["response.build/review"] == {"$stage": "001-build.review@1", "file": "response.md"}
    assert value(scene, "response.build/review") == answer
    status = status_of(scene, "001-build.review@1")
    assert status["context_updates"] == {"coverage": 72, "notes": ["a", None]}
    assert status["directive"] == {
        "source": "response",
        "file": None,
        "outcome": "partially_succeeded",
        "preferred_next_label": "fix",
        "suggested_next_ids": ["fix"],
    }
    assert (status["kind"], status["rank"], status["usage"], status["repairs"]) == ("agent", 1, None, 0)
    assert "context.updated" in scene.event_names()


def test_a_failure_tells_its_reason(scene: Scene) -> None:
    """The directive's reason is the step's, the run's error, and in the event."""
    begun(scene, {"id": "review"})
    driven = done(scene, '{"outcome": "failed", "failure_reason": "no database"}')
    assert driven.move.kind == "failed"
    assert scene.state["errors"][-1]["message"] == "no database"
    assert status_of(scene, "001-build.review@1")["failure_reason"] == "no database"


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
    begun(scene, {"id": "review", "result_handling": {"on_failure": "continue"}}, {"id": "fix"})
    driven = done(scene, response, outcome=outcome)
    assert driven.ended is not None
    assert driven.ended["status"] == expected


def test_keys_of_the_engine_are_refused_and_the_others_set(scene: Scene) -> None:
    """With a warning that its caller and the stage's status have (D37)."""
    begun(scene, {"id": "review"}, {"id": "fix"})
    driven = done(scene, '{"context_updates": {"_run_id": "x", "response.build/fix": "y", "mine": 1}}')
    assert driven.reading is not None
    assert {one.code for one in driven.reading.warnings} == {"RESERVED_KEY"}
    assert scene.state["context"]["mine"] == 1
    assert "_run_id" not in scene.state["context"]
    assert len(status_of(scene, "001-build.review@1")["warnings"]) == 2


def test_an_undo_takes_the_context_back(scene: Scene) -> None:
    """What a key held before is there again; one that was not there is gone (D31)."""
    begun(scene, {"id": "one"}, {"id": "two"}, {"id": "three"})
    done(scene, '{"context_updates": {"a": 1}}')
    before = scene.state["context"]
    done(scene, '{"context_updates": {"a": 2, "b": 3}}')
    undo.undo(scene.space(), scene.run_dir.name)
    assert scene.state["context"] == before
    undo.undo(scene.space(), scene.run_dir.name)
    assert scene.state["context"] == {}


@each("status", ["", "{", "[]", '{"context_before": 7}', None])
def test_an_undo_without_the_stages_status_leaves_the_context_and_says_so(scene: Scene, status: str | None) -> None:
    """A file that is gone or damaged costs no more than that."""
    begun(scene, {"id": "one"}, {"id": "two"})
    done(scene, '{"context_updates": {"a": 1}}')
    path = scene.run_dir / "stages" / "001-build.one@1" / "status.json"
    path.unlink()
    if status is not None:
        path.write_text(status)
    driven = undo.undo(scene.space(), scene.run_dir.name)
    assert any("the context stays as it is" in note for note in driven.notes)
    assert scene.state["context"]["a"] == 1
    assert scene.state["current_step"] == "build/one"


@each(("size", "is_blob"), [(102_400, False), (102_401, True)])
def test_large_values_become_blobs(scene: Scene, size: int, is_blob: bool) -> None:
    """By the bytes of their JSON; they read as what they are (D38)."""
    begun(scene, {"id": "one"}, {"id": "two"})
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
    begun(scene, {"id": "review", "output_schema": "routing"}, {"id": "fix"})
    first = done(scene, f"I looked.\n{BAD}")
    assert (first.ended, bool(first.repair)) == (None, True)
    assert "routing" in first.repair
    (entry,) = scene.state["steps"]
    assert (entry["status"], entry["repairs"]) == ("in_progress", 1)
    second = done(scene, "no object")
    assert second.ended is None
    third = done(scene, GOOD)
    assert third.ended is not None
    folder = scene.run_dir / "stages" / "001-build.review@1"
    assert (folder / "response.repair-1.md").read_text() == f"I looked.\n{BAD}"
    assert (folder / "response.repair-2.md").read_text() == "no object"
    assert (folder / "response.md").read_text() == GOOD
    assert (folder / "repair-1.md").read_text() == first.repair
    assert (folder / "repair-2.md").read_text() == second.repair
    status = status_of(scene, "001-build.review@1")
    assert (status["repairs"], status["errors"]) == (2, [])
    assert [[one["code"] for one in errors] for errors in status["repair_errors"]] == [
        ["MALFORMED_JSON"],
        ["NO_DIRECTIVE"],
    ]
    assert stages.names(str(scene.run_dir), "001-build.review@1")[:8] == [
        "prompt.md",
        "response.repair-1.md",
        "repair-1.md",
        "repair-1.json",
        "response.repair-2.md",
        "repair-2.md",
        "repair-2.json",
        "response.md",
    ]
    assert scene.event_names().count("stage.repair_requested") == 2


@each("retries", [0, 1, 2, -4])
def test_when_no_repair_is_left_the_step_fails_and_is_not_tried_again(scene: Scene, retries: int) -> None:
    """Saying so; its response is kept, and not put into the context (D36)."""
    begun(scene, {"id": "review", "output_schema": "routing", "output_retries": retries, "max_retries": 3})
    driven = [done(scene, BAD) for _ in range(max(0, retries) + 1)][-1]
    reason = f"output schema validation failed after {max(0, retries)} repair attempt(s)"
    assert driven.move.kind == "failed"
    (entry,) = scene.state["steps"]
    assert (entry["status"], entry["failure_reason"]) == ("failed", reason)
    assert (scene.run_dir / "stages" / "001-build.review@1" / "response.md").read_text() == BAD
    assert set(scene.state["context"]) == {"last_stage"}
    status = status_of(scene, "001-build.review@1")
    assert (status["failure_reason"], len(status["repair_errors"])) == (reason, max(0, retries))
    assert status["errors"]


@each("outcome", ["failed", "skipped"])
def test_a_step_that_could_not_be_done_owes_no_object(scene: Scene, outcome: str) -> None:
    """Who says so by --outcome is not asked for JSON."""
    begun(scene, {"id": "review", "output_schema": "routing", "result_handling": {"on_failure": "continue"}})
    driven = done(scene, "There is no database here.", outcome=outcome)
    assert driven.ended is not None
    assert driven.ended["status"] == outcome


def test_an_answer_that_nobody_here_can_judge_ends_nothing_and_says_why(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No repair is counted for it, and there is a way on without a result (D36)."""
    scene.write(".loom/workflows/risk.json", json.dumps(SCHEMA))
    begun(scene, {"id": "review", "output_schema": "@risk.json"})
    monkeypatch.setattr(engine, "SCHEMA_TOTAL_SECONDS", 0.0)
    driven = done(scene, '{"risk": "low"}')
    assert driven.ended is None
    assert "there was no time for it" in driven.repair
    assert "loomctl done --for 001 --outcome failed" in driven.repair
    assert "repairs" not in scene.state["steps"][0]
    ended = done(scene, "", outcome="failed").ended
    assert ended is not None
    assert ended["status"] == "failed"


def test_an_object_for_a_schema_of_the_steps_own_is_kept(scene: Scene) -> None:
    """Under `output.{step}`; it does not route, and a file does not stand in for it (D35)."""
    scene.write(".loom/workflows/schemas/audit.schema.json", json.dumps(SCHEMA))
    begun(scene, {"id": "audit", "output_schema": "@schemas/audit.schema.json"}, {"id": "fix"})
    scene.write("status.json", '{"risk": "low"}')
    assert done(scene, '{"risk": "some", "outcome": "failed"}').repair
    assert done(scene, "words alone").repair
    driven = done(scene, 'So: {"risk": "high", "outcome": "failed"}')
    assert driven.ended is not None
    assert driven.ended["status"] == "succeeded"
    assert scene.state["context"]["output.build/audit"] == {"risk": "high", "outcome": "failed"}
    assert status_of(scene, "001-build.audit@1")["output"] == {"risk": "high", "outcome": "failed"}


@each("answer", ['{"risk": "low"}', '{"risk": 3}', '{"outcome": "failed", "risk": "low"}'])
def test_an_object_for_a_schema_of_the_steps_own_is_no_directive(scene: Scene, answer: str) -> None:
    """It routes nothing, so its stage has none (D35)."""
    scene.write(".loom/workflows/audit.schema.json", json.dumps(SCHEMA))
    begun(scene, {"id": "audit", "output_schema": "@audit.schema.json", "output_retries": 0})
    done(scene, answer)
    assert status_of(scene, "001-build.audit@1")["directive"] is None


def test_a_changed_schema_file_changes_no_run(scene: Scene) -> None:
    """It was frozen as the run began."""
    path = scene.write(".loom/workflows/schemas/audit.schema.json", json.dumps(SCHEMA))
    begun(scene, {"id": "audit", "output_schema": "@schemas/audit.schema.json"})
    path.unlink()
    assert done(scene, '{"risk": "high"}').move.kind == "completed"


def test_a_bad_schema_starts_no_run(scene: Scene) -> None:
    """It is an error before anything is written."""
    scene.write(".loom/workflows/schemas/audit.schema.json", '{"type": "no such type"}')
    with pytest.raises(LoomError):
        begun(scene, {"id": "audit", "output_schema": "@schemas/audit.schema.json"})
    assert scene.run_dirs == []


# ---- Files that stand in for a response (D35)


def test_a_file_of_this_visit_stands_in_and_an_older_one_does_not(scene: Scene) -> None:
    """`status.json` counts if it was written since the step began."""
    stale = scene.write("status.json", '{"outcome": "failed"}')
    os.utime(stale, ns=(1, 1))
    begun(scene, {"id": "one"}, {"id": "two"}, {"id": "three"})
    assert done(scene, "It is done.").ended["status"] == "succeeded"  # type: ignore[index]
    scene.write("status.json", '{"outcome": "partially_succeeded"}')
    driven = done(scene, "It is done, too.")
    assert driven.ended is not None
    assert driven.ended["status"] == "partially_succeeded"
    assert status_of(scene, "002-build.two@1")["directive"]["source"] == "status.json"
    assert done(scene, "And this.").ended["status"] == "succeeded"  # type: ignore[index]


def wrote(scene: Scene, path: str, stage: str = "001-build.one@1") -> None:
    """Note that a file tool wrote a file in a stage."""
    told = {"stage": stage, "at": "2999-01-01T00:00:00Z"}
    step = ToolStep("t1", "Write", {"file_path": path}, "did", None, True, more=told)
    tool_log.append(str(scene.run_dir), [step])


FAILED = '{"outcome": "failed", "failure_reason": "as it says"}'


def test_the_file_that_ends_a_step_is_named(scene: Scene) -> None:
    """In its status, in the event, in the line and the console, and where the stage is shown (D35)."""
    begun(scene, {"id": "one", "result_handling": {"on_failure": "continue"}}, {"id": "two"}, {"id": "three"})
    wrote(scene, str(scene.write("docs/api.md", f"Errors are given as `{FAILED}`.\n")))
    shown = scene.loomctl("done", given="I wrote the documentation.").stdout
    assert shown.startswith("✗ build/one: failed (001-build.one@1, by docs/api.md): as it says\n")
    directive = status_of(scene, "001-build.one@1")["directive"]
    assert (directive["source"], directive["file"]) == ("last_file", "docs/api.md")
    (completed,) = [one for one in scene.events() if one["event"] == "stage.completed"]
    assert completed["properties"]["directive_file"] == "docs/api.md"
    assert "directive from last_file docs/api.md: outcome failed" in scene.loomctl("show", "one").stdout
    scene.write("status.json", '{"outcome": "skipped"}')
    done(scene, None)
    assert stop(scene, "It is done.", driven=False).line.startswith("Loom: build/two skipped (by status.json). ")
    drive.next_step(scene.space(), scene.run_dir.name)
    done(scene, GOOD)
    assert status_of(scene, "003-build.three@1")["directive"]["file"] is None


@each("through", ["path", "link", "status link", "odd"])
def test_a_file_outside_of_the_project_and_the_run_says_nothing(scene: Scene, through: str) -> None:
    """Links followed: it is not read (D10)."""
    begun(scene, {"id": "one"}, {"id": "two"})
    outside = scene.root.parent / "outside.json"
    outside.write_text(FAILED)
    link = scene.root / ("status.json" if through == "status link" else "inside.json")
    link.symlink_to(outside)
    paths = {"path": str(outside), "link": str(link), "status link": "", "odd": "\ud800.json"}
    wrote(scene, paths[through])
    ended = done(scene, "It is done.").ended
    assert ended is not None
    assert ended["status"] == "succeeded"


def test_a_file_of_the_runs_own_folder_may_say_it(scene: Scene) -> None:
    """D35; it is named from the project's root."""
    begun(scene, {"id": "one"}, {"id": "two"})
    path = scene.run_dir / "outputs" / "said.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(FAILED)
    wrote(scene, str(path))
    done(scene, "It is done.")
    assert status_of(scene, "001-build.one@1")["directive"]["file"] == str(path.relative_to(scene.root))


def test_a_draft_before_a_broken_directive_routes_no_run(scene: Scene) -> None:
    """The last object is asked for again, by its place, and the corrected one chooses the way (D34)."""
    ways = [{"to": "fix", "label": "Fix"}, {"to": "ship", "label": "Ship"}]
    begun(scene, {"id": "one", "output_schema": "routing", "transitions": ways}, {"id": "fix"}, {"id": "ship"})
    draft = 'At first: {"preferred_next_label": "Ship"}\nBut then:\n'
    asked = done(scene, draft + '{"preferred_next_label": "Fix",}')
    assert asked.ended is None
    assert "a key in double quotes is expected, not a comma before it (line 3, column 32)" in asked.repair
    assert done(scene, '{"preferred_next_label": "Fix"}').ended
    assert scene.state["current_step"] == "build/fix"


def test_a_schema_is_said_before_the_first_answer(scene: Scene) -> None:
    """In the words of the correction, so that none is paid (D36); a step without one costs nothing."""
    begun(scene, {"id": "one", "output_schema": "routing"}, {"id": "two"})
    expected = "Expected: one JSON object with at least one of outcome, "
    assert expected in (scene.run_dir / "stages" / "001-build.one@1" / "prompt.md").read_text()
    assert expected in done(scene, "It is done.").repair
    done(scene, GOOD)
    assert "Expected" not in (scene.run_dir / "stages" / "002-build.two@1" / "prompt.md").read_text()


def test_a_broken_directive_in_a_file_is_asked_for_by_the_files_name(scene: Scene) -> None:
    """The response itself has nothing to correct."""
    begun(scene, {"id": "one", "output_schema": "routing"})
    scene.write("status.json", '{"outcome": "failed",}')
    assert "The response of step build/one (status.json)" in done(scene, "It is done.").repair


@each("name", ["status.json", "notes.md"])
@each("schema", [None, "routing"])
def test_a_file_that_is_too_large_to_be_looked_at_is_named(scene: Scene, name: str, schema: str | None) -> None:
    """Only where it might have counted: behind a response without a directive."""
    begun(scene, {"id": "one", **({"output_schema": schema} if schema else {})}, {"id": "two"})
    wrote(scene, str(scene.write(name, FAILED + " " * answers.LARGEST_SOURCE)))
    driven = done(scene, "It is done.")
    assert driven.reading is not None
    (said,) = [one for one in (*driven.reading.errors, *driven.reading.warnings) if one.code == "PASSED_OVER"]
    assert f"{name} is not looked at: the file has 1,048,629 bytes" in said.message
    assert name in driven.repair or schema is None
    reading = done(scene, GOOD).reading
    assert reading is not None
    assert not reading.warnings


def test_the_first_errors_follow_where_an_answer_never_fitted(scene: Scene) -> None:
    """Three at most, with their pointers; the reason itself stays the document's sentence (D36)."""
    begun(scene, {"id": "one", "output_schema": "routing", "output_retries": 0})
    bad = {"outcome": "fine", "failure_reason": 1, "preferred_next_label": 2, "suggested_next_ids": 3}
    shown = scene.loomctl("done", given=json.dumps(bad)).stdout
    reason = "output schema validation failed after 0 repair attempt(s)"
    assert f"(001-build.one@1): {reason}: /outcome: 'fine' is no outcome" in shown
    assert "; /failure_reason: " in shown
    assert "; and 1 more" in shown
    assert status_of(scene, "001-build.one@1")["failure_reason"] == reason


def conversation(scene: Scene, session: str, tokens: dict[str, int]) -> Path:
    """Write a session's transcript with messages of these ids that used so many tokens; its binding names it."""
    path = scene.root.parent / f"{session}.jsonl"
    file = TranscriptFile(path)
    for name, count in tokens.items():
        said = [{"type": "text", "text": f"I am {name}."}]
        message = {"id": name, "model": "claude", "role": "assistant", "usage": {"output_tokens": count}}
        stamp = "2999-01-01T00:00:00.000Z"
        file.add({"type": "assistant", "timestamp": stamp, "message": {**message, "content": said}})
    local = scene.space(session).local
    binding = local.binding(session)
    if binding is not None:
        local.refresh(binding, pid=None, transcript_path=str(path))
    return path


@each("seen", [True, False])
def test_a_step_that_another_session_closes_counts_what_both_used(scene: Scene, seen: bool) -> None:
    """The response is the first one's, and so is its usage; what cannot be seen here is said (D27, D41)."""
    begun(scene, {"id": "one"}, {"id": "two"})
    first = conversation(scene, SESSION, {"a": 10, "b": 20})
    done(scene, None, outcome="partially_succeeded", note="half of it")
    scene.space().local.mark_ended(SESSION)
    second = conversation(scene, OTHER, {"b": 20, "c": 5})  # a fork holds what was said before it
    if not seen:
        first.unlink()
    resume.resume(scene.space(OTHER, transcript=second), scene.run_dir.name, take_over=True)
    status = status_of(scene, "001-build.one@1")
    assert status["response_source"] == ("transcript" if seen else "none")
    assert (status["usage"]["output_tokens"], status["usage"]["messages"]) == ((35, 3) if seen else (25, 2))
    assert status["usage"].get("partial", False) is not seen
    assert ("what another session used" in scene.loomctl("show", "one").stdout) is not seen


def test_the_last_response_is_the_last_stages_or_not_there(scene: Scene) -> None:
    """A step without one, or one whose answer never fitted, leaves no other's behind; an undo brings it back (D36)."""
    begun(scene, {"id": "one"}, {"id": "two"}, {"id": "three", "output_schema": "routing", "output_retries": 0})
    done(scene, "The first.")
    done(scene, None, outcome="skipped")
    drive.next_step(scene.space(), scene.run_dir.name)  # no conversation can be read
    assert status_of(scene, "002-build.two@1")["response_source"] == "none"
    assert tuple(scene.state["context"].get(key) for key in ("last_stage", "last_response")) == ("build/two", None)
    undo.undo(scene.space(), scene.run_dir.name)
    assert scene.state["context"]["last_response"] == "The first."
    done(scene, "The second.")
    done(scene, "no object")
    assert "last_response" not in scene.state["context"]
    assert value(scene, "response.build/two") == "The second."


def test_a_prompt_steps_answer_is_its_response_alone(scene: Scene) -> None:
    """No file stands in for it (D30)."""
    begun(scene, {"id": "one", "kind": "prompt"})
    scene.write("status.json", '{"outcome": "skipped"}')
    assert done(scene, "It is done.").ended["status"] == "succeeded"  # type: ignore[index]


# ---- What a stop does (D27, D28).


def stop(scene: Scene, message: str, **more: Any) -> stopping.Stopped:
    """Let the session stop in a turn that Loom drives, unless said otherwise."""
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    entry = visits.open_visit(run.state)
    known = {"told": entry["stage"] if entry else None, "driven": True, "blocks_left": 8, **more}
    return stopping.stopped(space, run, stopping.Turn(**known), message)


def test_a_stop_with_a_directive_ends_the_step_and_hands_on_the_next(scene: Scene) -> None:
    """The block is short and sends the assistant to `loomctl next`; the last step ends the run."""
    begun(scene, {"id": "one"}, {"id": "two"})
    first = stop(scene, GOOD)
    assert first.block == "Loom: build/one succeeded. The next step is build/two: run `loomctl next`, and work on it."
    last = stop(scene, GOOD)
    assert (last.block, last.line) == ("", "Loom: build/two succeeded. The run is completed.")


def test_a_stop_that_fails_a_step_says_why(scene: Scene) -> None:
    """What the assistant gave as its reason, or that its answer never fitted; in a line, and masked."""
    begun(scene, {"id": "one", "max_retries": 1, "output_schema": "routing", "output_retries": 0})
    key = "sk-" + "ant-api03-" + "a" * 40
    first = stop(scene, json.dumps({"outcome": "failed", "failure_reason": f"no\ndatabase {key}."}))
    assert first.block.startswith("Loom: build/one failed: no database ")
    assert key not in first.block
    last = stop(scene, BAD)
    reason = "output schema validation failed after 0 repair attempt(s)"
    assert last.line.startswith(f"Loom: build/one failed: {reason}: the JSON object does not parse: ")
    assert scene.state["steps"][-1]["failure_reason"] == reason
    assert last.line.endswith(". The run failed. To try the step again: loomctl resume " + scene.run_dir.name)


def test_a_stop_in_a_turn_of_the_users_ends_the_step_and_blocks_nothing(scene: Scene) -> None:
    """The user sees where the run stands."""
    begun(scene, {"id": "one"}, {"id": "two"})
    stopped = stop(scene, GOOD, driven=False)
    assert (stopped.block, stopped.line) == ("", "Loom: build/one succeeded. Now: build/two")


@each("schema", [None, "routing"])
@each("text", [GOOD, BAD])
def test_a_question_is_no_end_whatever_a_file_says(scene: Scene, schema: str | None, text: str) -> None:
    """A file stands in for a response that was given as one, and not for a message to the user (D27, D35)."""
    begun(scene, {"id": "one", **({"output_schema": schema} if schema else {})}, {"id": "two"}, autonomy="guarded")
    scene.write("status.json", text)
    assert stop(scene, "Which colour shall it be?") == stopping.Stopped()
    assert scene.state["steps"][0]["status"] == "in_progress"
    scene.write("status.json", GOOD)
    done(scene, None)
    assert "build/one succeeded" in stop(scene, "Blue, then.").block


@each("driven", [False, True])
@each("schema", [None, "routing", "@risk.json"])
def test_a_question_behind_a_result_is_no_end(scene: Scene, schema: str | None, driven: bool) -> None:
    """The object may be what the question is about; it is kept, and the answer's own result ends the step (D27)."""
    scene.write(".loom/workflows/risk.json", json.dumps({"required": ["outcome"]}))
    begun(scene, {"id": "one", **({"output_schema": schema} if schema else {})}, {"id": "two"}, autonomy="guarded")
    asks = f"It would be `{GOOD}`. Shall I end the step with it?"
    assert stop(scene, asks, driven=driven) == stopping.Stopped()
    stage = scene.run_dir / "stages" / "001-build.one@1"
    assert (stage / "candidate.md").read_text(encoding="utf-8") == asks
    stopped = stop(scene, GOOD, driven=driven)
    assert "build/one succeeded" in stopped.block + stopped.line


def test_json_that_merely_has_such_a_key_ends_nothing(scene: Scene) -> None:
    """At a stop; given as the answer, it is one, with a warning (D34)."""
    begun(scene, {"id": "one"}, {"id": "two"}, autonomy="guarded")
    assert stop(scene, 'The service says {"outcome": "failure"}.') == stopping.Stopped()
    driven = done(scene, '{"outcome": "failure"}')
    assert driven.reading is not None
    assert [one.code for one in driven.reading.warnings] == ["UNKNOWN_OUTCOME"]


def test_a_message_that_is_too_long_to_be_read_whole_is_kept_whole_and_its_user_told(scene: Scene) -> None:
    """A result in the end of it counts all the same."""
    begun(scene, {"id": "one"}, {"id": "two"}, autonomy="guarded")
    long = GOOD + "é" * LONGEST
    stopped = stop(scene, long)
    assert f"the last {LONGEST:,} were looked at" in stopped.line
    stage = scene.run_dir / "stages" / "001-build.one@1"
    assert (stage / "candidate.md").read_text(encoding="utf-8") == long
    assert "build/one succeeded" in stop(scene, long + GOOD).block
    assert (stage / "response.md").read_text(encoding="utf-8") == long + GOOD
    assert status_of(scene, stage.name)["warnings"][0]["code"] == "PARTLY_READ"
    assert value(scene, "response.build/one") == long + GOOD


def test_an_assistant_that_calls_tools_and_never_answers_is_not_asked_for_ever(scene: Scene) -> None:
    """Each tool call lets it be asked anew; after so many the run waits for its user (D28)."""
    begun(scene, {"id": "one"}, {"id": "two"}, autonomy="autonomous")
    asked = [stop(scene, "So far.", nudged=("001-build.one@1", count)).asked for count in range(30)]
    assert asked == [True] * 20 + [False] * 10
    assert scene.state["status"] == "awaiting_feedback"


def test_an_assistant_that_does_not_take_the_next_step_up_is_not_sent_on_for_ever(scene: Scene) -> None:
    """Whatever else it calls."""
    begun(scene, {"id": "one"}, {"id": "two"}, autonomy="autonomous")
    stop(scene, GOOD)
    told = "001-build.one@1"
    blocks = [stop(scene, "Well.", told=told, nudged=("002-build.two@1", count)).block for count in range(22)]
    assert ["loomctl next" in block for block in blocks] == [True] * 20 + [False] * 2
    assert scene.state["status"] == "paused"


def test_a_stop_that_no_block_can_follow_pauses_the_run(scene: Scene) -> None:
    """With the way on, and with the step's result kept (D28)."""
    begun(scene, {"id": "one"}, {"id": "two"})
    stopped = stop(scene, GOOD, blocks_left=0)
    assert f"loomctl resume {scene.run_dir.name}" in stopped.line
    assert (scene.state["status"], scene.state["steps"][0]["status"]) == ("paused", "succeeded")
    assert "run.paused" in scene.event_names()


def test_two_stops_without_a_result_let_an_autonomous_run_wait(scene: Scene) -> None:
    """`next` and `done` put it under way again; what was said last is kept."""
    begun(scene, {"id": "one"}, {"id": "two"}, autonomy="autonomous")
    assert stop(scene, "Which colour?").asked
    waits = stop(scene, "Which colour, please?", asked=True)
    assert "waits for your answer" in waits.line
    assert (scene.state["status"], scene.state["feedback"]["message"]) == ("awaiting_feedback", "Which colour, please?")
    assert drive.next_step(scene.space(), scene.run_dir.name).move.step == "build/one"
    assert (scene.state["status"], "feedback" in scene.state) == ("in_progress", False)
    assert [name for name in scene.event_names() if name.startswith(("run.", "stage.asked"))] == [
        "run.created",
        "stage.asked",
        "run.awaiting_feedback",
        "run.feedback_given",
    ]


def test_a_waiting_run_takes_a_result(scene: Scene) -> None:
    """The answer may come as the step's end."""
    begun(scene, {"id": "one"}, {"id": "two"}, autonomy="autonomous")
    stop(scene, "Which colour?", asked=True)
    assert stop(scene, GOOD, driven=False).line == "Loom: build/one succeeded. Now: build/two"
    assert (scene.state["status"], "feedback" in scene.state) == ("in_progress", False)


def test_a_closing_step_with_a_schema_is_repaired(scene: Scene) -> None:
    """`loomctl done` without words, then a message that does not fit, then one that does."""
    begun(scene, {"id": "one", "output_schema": "routing"})
    done(scene, None)
    assert "JSON" in stop(scene, "Done.", driven=False).block
    assert scene.state["steps"][0]["status"] == "closing"
    assert "completed" in stop(scene, GOOD, driven=False).line


def test_next_takes_a_closing_step_up_again_whose_answer_does_not_fit(scene: Scene) -> None:
    """There is no turn to block: the step is open, and it is said what is asked for."""
    begun(scene, {"id": "one", "output_schema": "routing"})
    done(scene, None)
    (scene.run_dir / "stages" / "001-build.one@1" / "candidate.md").write_text("no object")
    driven = drive.next_step(scene.space(), scene.run_dir.name)
    assert (driven.ended, bool(driven.repair)) == (None, True)
    assert scene.state["steps"][0]["status"] == "in_progress"


def test_two_stops_at_once_end_a_step_once(scene: Scene) -> None:
    """The second finds another visit open than it read about, and does nothing."""
    begun(scene, {"id": "one"}, {"id": "two"})
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    turn = stopping.Turn(told="001-build.one@1", driven=True, blocks_left=8)
    first, second = (stopping.stopped(space, run, turn, GOOD) for _ in range(2))
    assert first.block
    assert second == stopping.Stopped()
    assert [entry["status"] for entry in scene.state["steps"]] == ["succeeded", "in_progress"]


def test_a_step_is_not_visited_more_often_than_it_may_be(scene: Scene) -> None:
    """Retries count as visits (D41)."""
    begun(scene, {"id": "one", "max_retries": 9, "max_visits": 2})
    driven = [done(scene, '{"outcome": "failed"}') for _ in range(2)][-1]
    assert driven.move.kind == "failed"
    assert [entry["visit"] for entry in scene.state["steps"]] == [1, 2]


def test_an_undo_keeps_the_answers_that_had_to_be_repaired(scene: Scene) -> None:
    """Under names of their own; the visit that is open again counts its repairs anew (D31)."""
    begun(scene, {"id": "one", "output_schema": "routing"}, {"id": "two"})
    done(scene, "first draft")
    done(scene, GOOD)
    undo.undo(scene.space(), scene.run_dir.name)
    done(scene, "another draft")
    folder = scene.run_dir / "stages" / "001-build.one@1"
    assert (folder / "response.repair-1.undone-1.md").read_text() == "first draft"
    assert (folder / "repair-1.undone-1.md").is_file()
    assert (folder / "repair-1.undone-1.json").is_file()
    assert (folder / "response.repair-1.md").read_text() == "another draft"
    assert scene.state["steps"][0]["repairs"] == 1


def test_calls_that_wait_are_of_the_step_that_a_stop_ends(scene: Scene) -> None:
    """However many: they are recorded before the step is ended, not after (D59)."""
    begun(scene, {"id": "one"}, {"id": "two"})
    for number in range(90):
        told = {"tool_name": "Write", "tool_input": {"file_path": f"f{number}.md", "content": "x"}}
        event = {"hook_event_name": "PostToolUse", "session_id": SESSION, "tool_use_id": f"t{number}", **told}
        event["tool_response"] = {"type": "create", "filePath": f"f{number}.md"}
        scene.write(f".loom/local/spool/{SESSION}-{number}.json", json.dumps(event))
    stop(scene, GOOD)
    assert len(status_of(scene, "001-build.one@1")["files_touched"]) == 90


def test_what_was_said_before_a_step_began_is_not_of_it(scene: Scene, tmp_path: Path) -> None:
    """It ended the step before, a moment ago and in the same second: neither its tokens nor its words (D41)."""
    begun(scene, {"id": "one"}, {"id": "two"}, {"id": "three"})
    path = tmp_path / "session.jsonl"

    def says(name: str) -> None:
        at = clock.exact_stamp(time.time_ns())
        message = {"id": name, "model": "m", "usage": {"output_tokens": 5}, "content": [{"type": "text", "text": name}]}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"type": "assistant", "uuid": name, "timestamp": at, "message": message}) + "\n")

    for name in ("first", "second"):
        says(name)
        drive.done(scene.space(transcript=path), scene.run_dir.name, response="it is done")
    for stage in ("001-build.one@1", "002-build.two@1"):
        assert (status_of(scene, stage)["usage"]["messages"], status_of(scene, stage)["usage"]["output_tokens"]) == (
            1,
            5,
        )
    says("third")
    drive.done(scene.space(transcript=path), scene.run_dir.name, response=None)
    drive.next_step(scene.space(transcript=path), scene.run_dir.name)
    assert (scene.run_dir / "stages" / "003-build.three@1" / "response.md").read_text() == "third"


def test_a_step_that_a_sessions_start_opens_is_told_by_git_too(scene: Scene) -> None:
    """The step before it was closing, and is closed there (D27, D39)."""
    git(scene.root, "init", "-q", "-b", "main")
    begun(scene, {"id": "one"}, {"id": "two"})
    done(scene, None, outcome="skipped")
    space = scene.space()
    stopping.closed_without_message(space, space.store.read(scene.run_dir.name))
    drive.next_step(space, scene.run_dir.name)
    scene.write("made.txt", "x")
    done(scene, "made")
    assert status_of(scene, "002-build.two@1")["files_touched"] == ["made.txt"]


def test_a_file_in_a_steps_own_folder_stands_in(scene: Scene) -> None:
    """However the folder is named (D8, D35)."""
    begun(scene, *({"id": name, "workdir": f"{at}api"} for name, at in (("one", ""), ("two", "{project_root}/"))))
    for _ in range(2):
        scene.write("api/status.json", '{"outcome": "partially_succeeded"}')
        assert done(scene, "It is done.").ended["status"] == "partially_succeeded"  # type: ignore[index]


@each("allowed", [True, False])
def test_a_file_in_a_folder_that_its_user_allows_stands_in(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    """A workdir outside of the project counts under `extra_roots` alone (D10, D35)."""
    folder, settings = scene.root.parent / "elsewhere", scene.root.parent / "settings" / "loom"
    folder.mkdir()
    settings.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(settings.parent))
    if allowed:
        (settings / "config.yaml").write_text(f"extra_roots: [{folder}]\n", encoding="utf-8")
    begun(scene, {"id": "one", "workdir": str(folder)}, {"id": "two"})
    (folder / "status.json").write_text('{"outcome": "partially_succeeded"}', encoding="utf-8")
    driven = done(scene, "It is done.")
    assert driven.ended is not None
    assert driven.ended["status"] == ("partially_succeeded" if allowed else "succeeded")


def test_a_status_json_that_leads_out_of_the_project_is_not_read(scene: Scene) -> None:
    """A link that came with a repository must not bring another file's words into the run (D10, D35)."""
    begun(scene, {"id": "review"}, {"id": "fix"})
    outside = scene.root.parent / "elsewhere.json"
    outside.write_text('{"outcome": "failed", "failure_reason": "private"}', encoding="utf-8")
    (scene.root / "status.json").symlink_to(outside)
    driven = done(scene, "All is done.")
    assert driven.ended is not None
    assert driven.ended["status"] == "succeeded"
    assert "private" not in json.dumps(scene.state)


def test_a_stop_that_fails_a_step_tells_why(scene: Scene) -> None:
    """Its user reads one line, and that line has the reason."""
    begun(scene, {"id": "review"}, autonomy="guarded")
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    message = 'No. {"outcome": "failed", "failure_reason": "the database is missing"}'
    stopped = stopping.stopped(space, run, stopping.Turn(told="001-build.review@1"), message)
    assert "build/review failed: the database is missing. The run failed." in stopped.line


def paused(scene: Scene) -> None:
    """Pause the run from outside."""
    stopping.set_standing(scene.space(), scene.run_dir.name, "paused", "run.paused", allowed=("in_progress",))


def test_an_answer_that_comes_as_its_run_is_paused_counts(scene: Scene) -> None:
    """It ends its step as `done` would; the run goes no further until it is resumed (D27)."""
    begun(scene, {"id": "one"}, {"id": "two"})
    paused(scene)
    assert stop(scene, "Which colour?") == stopping.Stopped()
    assert scene.state["steps"][0]["status"] == "in_progress"
    last = stop(scene, GOOD)
    assert (last.block, last.line.partition(". To go")[0]) == ("", "Loom: build/one succeeded. The run is paused")
    assert (scene.run_dir / "stages" / "001-build.one@1" / "response.md").read_text() == GOOD
    assert (scene.state["status"], [one["status"] for one in scene.state["steps"]]) == ("paused", ["succeeded"])
    resume.resume(scene.space(), scene.run_dir.name)
    assert (scene.state["current_step"], scene.state["context"]["coverage"]) == ("build/two", 72)


def test_an_answer_to_a_paused_run_that_ends_nothing_is_kept_and_told(scene: Scene) -> None:
    """One that does not fit, or whose evidence is missing; nothing is asked for (D27)."""
    shown = [{"file": "report.md"}]
    begun(scene, {"id": "one", "output_schema": "routing", "evidence": shown}, {"id": "two"}, autonomy="autonomous")
    paused(scene)
    for message in (BAD, GOOD):
        told = stop(scene, message)
        assert told.block == ""
        assert told.line.startswith("Loom: build/one is not ended: the run is paused, and ")
        assert "candidate" in told.line
        assert (scene.run_dir / "stages" / "001-build.one@1" / "candidate.md").read_text() == message
    assert (scene.state["status"], scene.state["steps"][0]["status"]) == ("paused", "in_progress")
    assert "repairs" not in scene.state["steps"][0]


def test_an_undo_keeps_what_the_stage_changed_aside(scene: Scene) -> None:
    """The step that is open again has changed nothing yet (D31, D39)."""
    begun(scene, {"id": "one"}, {"id": "two"})
    done(scene, GOOD)
    folder = scene.run_dir / "stages" / "001-build.one@1"
    assert (folder / "changes.json").is_file()
    undo.undo(scene.space(), scene.run_dir.name)
    assert not (folder / "changes.json").exists()
    assert (folder / "changes.undone-1.json").is_file()


def test_what_is_paused_while_a_stop_is_decided_is_neither_asked_nor_sent_on(scene: Scene) -> None:
    """The state under the lock decides: what was read before may have been paused since (D27)."""
    begun(scene, {"id": "one", "output_schema": "routing"}, {"id": "two"}, autonomy="autonomous")
    space = scene.space()
    run = space.store.read(scene.run_dir.name)
    stopping.set_standing(space, run.run_id, "paused", "run.paused", allowed=("in_progress",))
    turn = stopping.Turn(told="001-build.one@1", driven=True, blocks_left=8)
    for message in (BAD, "Which colour?"):
        assert stopping.stopped(space, run, turn, message).block == ""
        assert (scene.run_dir / "stages" / "001-build.one@1" / "candidate.md").read_text() == message
    assert (scene.state["status"], scene.state["steps"][0]["status"]) == ("paused", "in_progress")
    assert "repairs" not in scene.state["steps"][0]
    assert stopping.stopped(space, run, turn, GOOD).block == ""
    assert (scene.state["status"], [one["status"] for one in scene.state["steps"]]) == ("paused", ["succeeded"])


def test_a_closing_step_of_a_paused_run_waits_where_its_answer_does_not_fit(scene: Scene) -> None:
    """At a stop and at a session's start: nothing is asked for, nothing fails; `next` asks when the run goes on."""
    begun(scene, {"id": "one", "output_schema": "routing", "output_retries": 0}, {"id": "two"})
    done(scene, None)
    stopping.set_standing(scene.space(), scene.run_dir.name, "paused", "run.paused", allowed=("in_progress",))
    assert stop(scene, "Done.") == stopping.Stopped()
    assert stop(scene, "") == stopping.Stopped()
    space = scene.space()
    assert stopping.closed_without_message(space, space.store.read(scene.run_dir.name)) == ""
    assert (scene.state["status"], scene.state["steps"][0]["status"]) == ("paused", "closing")
    assert "Now" not in stop(scene, GOOD).line
    assert (scene.state["status"], scene.state["steps"][0]["status"]) == ("paused", "succeeded")
    assert len(scene.state["steps"]) == 1
