"""A step that goes through a task list: one visit a task, its box ticked as it ends well (D65)."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from loomctl.flow import advance, fork, resume, rewind
from loomctl.flow.commands import command_steps
from loomctl.kit import files, processes
from loomctl.kit.errors import LoomError
from loomctl.runs.model import visits
from loomctl.runs.store import store
from loomctl.runs.tools.tool_log import Tally
from loomctl.views import overview
from loomctl.workflows import check
from tests.helpers.errors import refused
from tests.helpers.scenes import CHECKOUT, OTHER, SESSION, Json, Scene
from tests.helpers.tables import each
from tests.helpers.verbs import DONE, begin, done, end, events, go_on, read, status_of, statuses, stop, take_back

SPEC = "# Spec\n\n- [ ] no task\n\n## Tasks\n\n- [ ] one\n  with more\n- [x] two\n- [ ] three\n\n## Later\n- [ ] four\n"
EACH: Json = {"id": "each", "prompt": "Do this: {task}", "for_each": {"list": "artifacts.spec", "section": "Tasks"}}
ALL: Json = {**EACH, "for_each": "artifacts.spec"}


def listed(scene: Scene, *steps: str | Json, spec: str = SPEC, **more: Any) -> Scene:
    """Begin a run whose first step registers a task list, and come to the steps after it."""
    begin(scene, "spec", *steps, **more)
    scene.write("spec.md", spec)
    done(scene, artifacts={"spec": "{project_root}/spec.md"})
    return scene


def boxes(scene: Scene) -> str:
    """Say which boxes are ticked, in the file's order."""
    text = (scene.root / "spec.md").read_text(encoding="utf-8")
    return "".join(part[0] for part in text.split("- [")[1:])


def trust(scene: Scene) -> None:
    space, run = scene.space(), scene.space().store.read(scene.run_dir.name)
    command_steps.trust(space, run, command_steps.listed(space, run))


def task(scene: Scene) -> Json:
    """Give the task that is being worked on."""
    found = visits.task(scene.state)
    assert found is not None
    return found


# ---- From task to task.


def test_each_open_box_of_the_section_is_a_visit_and_the_run_goes_on_behind_the_last(scene: Scene) -> None:
    listed(scene, EACH, "after")
    assert (task(scene)["number"], task(scene)["of"], task(scene)["text"]) == (2, 3, "one\nwith more")
    assert task(scene)["file"] == "{project_root}/spec.md"
    prompt = read(scene, "002-build.each@1", "prompt.md")
    assert "This is task 2 of 3.\n\nDo this: one\nwith more" in prompt
    driven = done(scene)
    assert (driven.move.step, driven.line) == ("build/each", "Next: build/each, task 3 of 3: three")
    assert boxes(scene) == " xx  "
    assert task(scene)["text"] == "three"
    assert done(scene).move.step == "build/after"
    assert boxes(scene) == " xxx "
    assert [one["next"]["reason"] for one in scene.state["steps"][1:3]] == ["next_task", "order"]
    assert status_of(scene, "002-build.each@1")["task"] == {
        "text": "one\nwith more",
        "number": 2,
        "of": 3,
        "ticked": True,
    }
    assert check.schema_problems(scene.state, "state", bundle=str(CHECKOUT)) == []
    assert [one.get("task") for one in events(scene, "stage.started")][1:3] == [
        {"number": 2, "of": 3, "text": "one\nwith more"},
        {"number": 3, "of": 3, "text": "three"},
    ]


@pytest.mark.shows("turns one blank of that file into an `x`")
def test_a_tick_changes_one_byte_and_neither_mode_nor_line_ends(scene: Scene) -> None:
    spec = "\ufeff# T\r\n* [ ] one \udcff\r\n\r\n1. [ ] two"
    begin(scene, "spec", ALL)
    path = scene.write("spec.md", spec.encode("utf-8", "surrogateescape"))
    path.chmod(0o666)
    scene.write("spec.md.tmp", "a file of its user's")
    done(scene, artifacts={"spec": "{project_root}/spec.md"})
    before = path.read_bytes()
    for text in ("one \ufffd", "two"):
        assert task(scene)["text"] == text
        done(scene)
        after = path.read_bytes()
        assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == [(ord(" "), ord("x"))]
        before = after
    assert path.stat().st_mode & 0o777 == 0o666
    assert (scene.root / "spec.md.tmp").read_text(encoding="utf-8") == "a file of its user's"
    assert scene.state["status"] == "completed"


def test_a_prompt_that_does_not_name_its_task_is_given_it(scene: Scene) -> None:
    listed(scene, {**EACH, "prompt": "Work."})
    assert "This is task 2 of 3:\n\n```text\none\nwith more\n```\n\nWork." in read(
        scene, "002-build.each@1", "prompt.md"
    )


@each("words", [1999, 2001])
def test_a_task_that_is_cut_says_so(scene: Scene, words: int) -> None:
    listed(scene, ALL, spec=f"- [ ] {'x' * words}\n")
    said = "This is task 1 of 1, cut after 2,000 characters (the rest stands in the list, artifacts.spec)."
    assert (said in read(scene, "002-build.each@1", "prompt.md")) == (words > 2000)
    done(scene)
    assert boxes(scene) == "x"


def test_a_command_is_run_once_for_each_task_and_its_words_stay_one_argument(scene: Scene) -> None:
    step = {"id": "each", "run": "printf '%s|' {task} >> out", "for_each": "artifacts.spec"}
    spec = '- [ ] it\'s $(touch gone) "x"; `y`\n  more\n- [ ] -n\n'
    scene.workflow(phases={"build": {"steps": [{"id": "spec", "prompt": "Write it."}, step]}})
    scene.begin()
    scene.write("spec.md", spec)
    done(scene, artifacts={"spec": "{project_root}/spec.md"})
    trust(scene)
    assert go_on(scene).move.kind == "completed"
    assert (scene.root / "out").read_text(encoding="utf-8") == 'it\'s $(touch gone) "x"; `y`\nmore|-n|'
    assert boxes(scene) == "xx"
    assert not (scene.root / "gone").exists()


def test_conditions_and_evidence_may_ask_for_the_task(scene: Scene) -> None:
    hard = {"to": "hard", "condition": "task.text == 'three' && task.number == 3"}
    evidence = [{"condition": "task.of == 3"}, {"run": "test {task} != no"}]
    step = {**EACH, "transitions": [hard, {"to": "end"}], "evidence": evidence}
    listed(scene, step, {"id": "hard", "transitions": [{"to": "end"}]})
    trust(scene)
    assert done(scene).repair == ""
    assert done(scene).move.step == "build/hard"


def test_a_label_of_one_task_leads_nowhere_while_others_are_left(scene: Scene) -> None:
    ways = [{"to": "fix", "label": "Fix"}, {"to": "end", "label": "Ship"}]
    listed(scene, {**EACH, "transitions": ways}, {"id": "fix", "transitions": [{"to": "each"}]})
    assert done(scene, json.dumps({"preferred_next_label": "Fix"})).move.step == "build/each"
    assert done(scene, json.dumps({"preferred_next_label": "Fix"})).move.step == "build/fix"


# ---- What ends otherwise.


def test_a_failed_task_is_tried_again_and_its_box_stays_open(scene: Scene) -> None:
    listed(scene, {**EACH, "max_retries": 1}, "after")
    assert end(scene, outcome="failed", note="no") == "failed"
    assert (task(scene)["text"], boxes(scene)) == ("one\nwith more", "  x  ")
    done(scene)
    assert end(scene, outcome="failed", note="no") == "failed"
    assert (task(scene)["text"], scene.state["status"]) == ("three", "in_progress")
    assert end(scene, outcome="failed", note="no") == "failed"
    assert (scene.state["status"], boxes(scene)) == ("failed", " xx  ")
    resume.resume(scene.space(), scene.run_dir.name)
    assert task(scene)["text"] == "three"
    assert done(scene).move.step == "build/after"


def test_the_task_that_failed_is_found_again_where_it_stands_by_then(scene: Scene) -> None:
    listed(scene, {**ALL, "max_retries": 1}, spec="- [ ] one\n- [ ] two\n")
    scene.write("spec.md", "- [ ] before\n- [ ] one\n- [ ] two\n")
    done(scene, outcome="failed", note="no")
    assert (task(scene)["text"], task(scene)["line"]) == ("one", 2)
    scene.write("spec.md", "- [ ] before\n- [ ] two\n")
    done(scene)
    assert task(scene)["text"] == "before"


def test_a_step_that_is_skipped_is_left_with_its_open_boxes(scene: Scene) -> None:
    listed(scene, EACH, "after")
    assert done(scene, "", outcome="skipped").move.step == "build/after"
    assert boxes(scene) == "  x  "


def test_retries_count_for_each_task_and_visits_for_each_round(scene: Scene) -> None:
    spec = "".join(f"- [ ] task {number}\n" for number in range(30))
    step = {**ALL, "max_retries": 1, "max_visits": 2, "transitions": [{"to": "more"}]}
    listed(
        scene,
        step,
        {"id": "more", "transitions": [{"to": "each", "condition": "context.again"}, {"to": "end"}]},
        spec=spec,
    )
    for _ in range(30):
        assert done(scene, outcome="failed", note="no").move.step == "build/each"
        done(scene)
    assert boxes(scene) == "x" * 30
    scene.write("spec.md", "- [ ] another\n")
    again = json.dumps({"context_updates": {"again": True}})
    assert done(scene, again).move.step == "build/each"
    assert done(scene).move.step == "build/more"
    scene.write("spec.md", "- [ ] one too many\n")
    driven = done(scene, again)
    assert driven.move.kind == "failed"
    assert "max_visits" in driven.line


def test_a_partial_result_that_asks_for_approval_asks_before_the_next_task(scene: Scene) -> None:
    listed(scene, {**EACH, "result_handling": {"on_warning": "prompt"}}, "after")
    assert done(scene, outcome="partially_succeeded", note="half").move.kind == "approval"
    assert boxes(scene) == " xx  "
    scene.loomctl("approve", scene.run_dir.name)
    go_on(scene)
    assert task(scene)["text"] == "three"


# ---- Edits by hand.

EDITS = {
    "ticked": ("- [x] one\n- [ ] two\n", "x ", ""),
    "moved": ("- [ ] two\n- [ ] one\n", " x", ""),
    "reworded": ("- [ ] won\n- [ ] two\n", "x ", ""),
    "removed": ("- [ ] two\n", " ", "Loom ticked no box: spec.md no longer has “one”"),
    "noted below and moved": ("- [ ] two\n- [ ] one\n  done in a1b2\n", " x", ""),
    "reworded and moved": ("- [ ] two\n- [ ] won\n", "  ", "Loom ticked no box: spec.md no longer has “one”"),
}


@each(("edited", "ticked", "note"), EDITS.values())
def test_the_file_is_the_truth_whatever_was_done_to_it(scene: Scene, edited: str, ticked: str, note: str) -> None:
    listed(scene, ALL, spec="- [ ] one\n- [ ] two\n")
    scene.write("spec.md", edited)
    driven = done(scene)
    assert driven.reading is not None
    assert [one.message for one in driven.reading.warnings] == ([note] if note else [])
    assert (boxes(scene), task(scene)["text"]) == (ticked, "two")


def test_tasks_that_were_all_ticked_by_hand_end_the_step(scene: Scene) -> None:
    listed(scene, EACH, "after")
    scene.write("spec.md", SPEC.replace("[ ]", "[x]"))
    assert done(scene).move.step == "build/after"


def test_a_box_that_is_added_meanwhile_is_a_task(scene: Scene) -> None:
    listed(scene, ALL, "after", spec="- [ ] one\n")
    scene.write("spec.md", "- [ ] one\n- [ ] two\n")
    assert done(scene).move.step == "build/each"
    assert (task(scene)["number"], task(scene)["of"]) == (2, 2)


def test_tasks_that_were_taken_out_between_two_visits_end_the_step_as_it_went(scene: Scene) -> None:
    listed(scene, {**EACH, "result_handling": {"on_success": "prompt"}}, "after")
    done(scene)
    scene.write("spec.md", SPEC.replace("[ ]", "[x]"))
    scene.loomctl("approve", scene.run_dir.name)
    scene.loomctl("approve", scene.run_dir.name)
    assert go_on(scene).move.step == "build/after"
    assert statuses(scene)[:3] == ["succeeded", "succeeded", "succeeded"]


# ---- No list, or an empty one.

NONE = {
    "no box in the file": ("# Spec\n", "there is no open check box in spec.md under “Tasks”"),
    "all ticked": ("# Tasks\n- [x] a\n", "there is no open check box in spec.md under “Tasks”"),
    "no such heading": ("- [ ] a\n", "spec.md has no heading “Tasks”"),
}


@each(("spec", "why"), [(spec.replace("# Spec", "# Tasks"), why) for spec, why in NONE.values()])
def test_a_step_without_tasks_fails_and_says_what_to_write_where(scene: Scene, spec: str, why: str) -> None:
    listed(scene, EACH, "after", spec=spec)
    assert scene.state["status"] == "failed"
    assert why in scene.state["errors"][-1]["message"]
    assert check.schema_problems(scene.state, "state", bundle=str(CHECKOUT)) == []
    driven = go_on_refused(scene)
    assert driven.code == "BAD_STATUS"
    scene.write("spec.md", SPEC)
    resume.resume(scene.space(), scene.run_dir.name)
    assert task(scene)["text"] == "one\nwith more"


def go_on_refused(scene: Scene) -> LoomError:
    with pytest.raises(LoomError) as refused:
        go_on(scene)
    return refused.value


@pytest.mark.shows("or among git's own is refused")
@each(
    ("artifacts", "why"),
    [
        ({}, "the run has neither a list nor a file with one at artifacts.spec"),
        (
            {"spec": "{project_root}/gone.md"},
            "there is no file gone.md (artifacts.spec); write a line `- [ ] …` into it for each task",
        ),
        ({"spec": "/etc/passwd"}, "leads out of the project"),
        ({"spec": "{project_root}"}, "not a regular file"),
        ({"spec": "{project_root}/link.md"}, "leads out of the project"),
        ({"spec": "{project_root}/.git/hooks/a.md"}, "is one of git's own files"),
        ({"spec": "{project_root}/large.md"}, "(limit "),
    ],
)
def test_a_list_that_cannot_be_read_fails_the_step(scene: Scene, artifacts: Json, why: str) -> None:
    begin(scene, "spec", ALL)
    (scene.root / "link.md").symlink_to("/etc/passwd")
    scene.write(".git/hooks/a.md", "- [ ] a\n")
    scene.write("large.md", b"x" * (1 << 20) + b"\n- [ ] a\n")
    done(scene, artifacts=artifacts)
    assert scene.state["status"] == "failed"
    message = scene.state["errors"][-1]["message"]
    assert message.startswith("NO_TASKS: ")
    assert why in message


def test_a_list_that_may_be_empty_is_passed_and_that_is_said(scene: Scene) -> None:
    empty = {**EACH, "for_each": {"list": "artifacts.spec", "allow_empty": True}}
    listed(scene, empty, "after", spec="# Spec\n")
    assert scene.state["current_step"] == "build/after"
    passed = scene.state["steps"][1]
    assert (passed["status"], passed["by"], passed["stage"]) == ("skipped", "engine", None)
    assert [one["status"] for one in events(scene, "tasks.none")] == ["skipped"]


def test_a_list_that_cannot_be_read_is_none_that_may_be_empty(scene: Scene) -> None:
    begin(scene, "spec", {**ALL, "for_each": {"list": "artifacts.spec", "allow_empty": True}})
    scene.write("large.md", b"x" * (1 << 20) + b"\n- [ ] a\n")
    done(scene, artifacts={"spec": "{project_root}/large.md"})
    assert (scene.state["status"], statuses(scene)[-1]) == ("failed", "failed")


@each(
    ("step", "way"), [(ALL, "with `--artifact spec=PATH`"), ({**ALL, "for_each": "context.parts"}, "with parts in its")]
)
def test_a_list_that_nobody_made_is_made_by_the_step_before(scene: Scene, step: Json, way: str) -> None:
    begin(scene, "spec", step)
    scene.write("spec.md", SPEC)
    done(scene)
    message = scene.state["errors"][-1]["message"]
    assert message.endswith(f"`loomctl undo` reopens the step before: end it {way}" + " context" * ("parts" in way))
    take_back(scene)
    updates = json.dumps({"context_updates": {"parts": ["no task"]}})
    done(scene, updates, artifacts={"spec": "{project_root}/spec.md"})
    assert (scene.state["current_step"], task(scene)["text"]) == ("build/each", "no task")


def test_a_list_that_was_renamed_goes_on_under_its_new_name(scene: Scene) -> None:
    listed(scene, EACH, "after")
    os.rename(scene.root / "spec.md", scene.root / "new.md")
    driven = done(scene)
    assert "end it with `--artifact spec=PATH`" in driven.line
    take_back(scene)
    assert done(scene, artifacts={"spec": "{project_root}/new.md"}).move.step == "build/each"
    assert (scene.root / "new.md").read_text(encoding="utf-8") == SPEC.replace("[ ] one", "[x] one")


def test_a_failure_for_want_of_tasks_goes_the_way_of_failures(scene: Scene) -> None:
    listed(scene, {**EACH, "retry_target": "spec", "max_retries": 3}, spec="# Spec\n")
    assert scene.state["current_step"] == "build/spec"
    scene.write("spec.md", SPEC)
    done(scene)
    assert task(scene)["text"] == "one\nwith more"


# ---- Lists of the state.

PARTS: Json = {"id": "each", "prompt": "Do this: {task}", "for_each": "context.parts"}


def test_a_json_list_is_gone_through_by_place(scene: Scene) -> None:
    begin(scene, "list", {**PARTS, "max_retries": 1}, "after")
    done(scene, json.dumps({"context_updates": {"parts": ["one", {"id": 2}, "one"]}}))
    assert (task(scene)["number"], task(scene)["of"], task(scene)["index"]) == (1, 3, 0)
    done(scene)
    assert task(scene)["text"] == '{"id":2}'
    done(scene, outcome="failed", note="no")
    assert task(scene)["index"] == 1
    done(scene)
    assert (task(scene)["text"], task(scene)["index"]) == ("one", 2)
    assert done(scene).move.step == "build/after"


def test_a_json_list_begins_anew_when_the_step_is_come_to_anew(scene: Scene) -> None:
    again = [{"to": "each", "condition": "context.again"}, {"to": "end"}]
    begin(scene, "list", {**PARTS, "transitions": [{"to": "look"}]}, {"id": "look", "transitions": again})
    done(scene, json.dumps({"context_updates": {"parts": ["a", "b"]}}))
    for index in (0, 1):
        assert task(scene)["index"] == index
        done(scene)
    done(scene, json.dumps({"context_updates": {"again": True, "parts": ["c"]}}))
    assert (task(scene)["text"], task(scene)["index"]) == ("c", 0)


def test_a_long_json_list_is_read_from_where_it_is_kept(scene: Scene) -> None:
    parts = [f"part {number} " + "x" * 1000 for number in range(300)]
    begin(scene, "list", PARTS)
    done(scene, json.dumps({"context_updates": {"parts": parts}}))
    assert not isinstance(scene.state["context"]["parts"], list)
    assert (task(scene)["text"], task(scene)["of"]) == (parts[0], 300)


def test_an_empty_json_list_fails_the_step(scene: Scene) -> None:
    begin(scene, "list", PARTS)
    done(scene, json.dumps({"context_updates": {"parts": []}}))
    assert "NO_TASKS: the list at context.parts is empty" in scene.state["errors"][-1]["message"]


# ---- Back, aside, and in parallel.


def test_an_undo_opens_the_visit_with_its_task_and_its_box(scene: Scene) -> None:
    listed(scene, EACH, "after")
    before = (scene.root / "spec.md").read_bytes()
    done(scene)
    driven = take_back(scene)
    assert (task(scene)["text"], boxes(scene)) == ("one\nwith more", "  x  ")
    assert (scene.root / "spec.md").read_bytes() == before
    assert driven.notes == [
        "Undone: 002-build.each@1. The project's files stay as they are.",
        "The box “one” in spec.md under “Tasks” is open again.",
    ]
    done(scene)
    assert (task(scene)["text"], boxes(scene)) == ("three", " xx  ")


def test_a_rewind_opens_the_boxes_of_all_that_it_takes_back(scene: Scene) -> None:
    """What nobody has done any more is worked on again, in its turn; what others ticked stays as it is."""
    listed(scene, ALL, "after")
    done(scene)
    done(scene)
    done(scene)
    assert boxes(scene) == "xxxx "
    rewound = rewind.rewind(scene.space(), scene.run_dir.name, "each@2")
    assert (task(scene)["text"], boxes(scene)) == ("one\nwith more", "x x  ")
    assert [note for note in rewound.notes if "is open again" in note] == [
        "The box “one” in spec.md is open again.",
        "The box “three” in spec.md is open again.",
    ]
    done(scene)
    assert (task(scene)["text"], boxes(scene)) == ("three", "xxx  ")


def test_a_rewind_before_the_list_opens_all_that_was_ticked_for_it(scene: Scene) -> None:
    listed(scene, EACH)
    done(scene)
    rewind.rewind(scene.space(), scene.run_dir.name, "spec")
    assert boxes(scene) == "  x  "


def test_an_undo_names_a_box_that_it_cannot_find(scene: Scene) -> None:
    listed(scene, EACH, "after")
    done(scene)
    scene.write("spec.md", "# Spec\n\n## Tasks\n\n- [x] other\n- [ ] three\n")
    driven = take_back(scene)
    assert "Loom could not open the box “one”: spec.md under “Tasks” no longer has it" in driven.notes
    assert boxes(scene) == "x "


def test_a_box_is_opened_before_the_state_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the two leaves an open box, which comes again, and not a ticked one that nobody works on."""
    listed(scene, EACH, "after")
    done(scene)

    def killed(*_given: object, **_more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as there:
        there.setattr(store.Store, "_save", killed)
        with pytest.raises(KeyboardInterrupt):
            take_back(scene)
    assert (statuses(scene)[-1], boxes(scene)) == ("in_progress", "  x  ")
    take_back(scene)
    assert (task(scene)["text"], boxes(scene)) == ("one\nwith more", "  x  ")


def test_a_completed_run_that_is_reopened_has_its_last_task_again(scene: Scene) -> None:
    listed(scene, EACH)
    done(scene)
    done(scene)
    assert scene.state["status"] == "completed"
    resume.resume(scene.space(), scene.run_dir.name, reopen=True)
    assert task(scene)["text"] == "three"
    assert done(scene).move.kind == "completed"
    assert boxes(scene) == " xxx "


def test_two_branches_go_through_a_section_each(scene: Scene) -> None:
    def branch(name: str) -> Json:
        step = {"id": "each", "prompt": "{task}", "for_each": {"list": "artifacts.spec", "section": name}}
        return {"id": name, "steps": [step]}

    fan = {"id": "fan", "parallel": {"branches": [branch("a"), branch("b")]}, "prompt": "Both."}
    listed(scene, fan, "after", spec="# A\n- [ ] a1\n- [ ] a2\n# B\n- [ ] b1\n- [ ] b2\n")
    told = []
    for name in ("a", "b"):
        go_on(scene, branch=name)
    lists = scene.loomctl("show", "--json").json["task_lists"]
    assert [[(task["text"], task["state"]) for task in one["tasks"]] for one in lists] == [
        [("a1", "now"), ("a2", "open")],
        [("b1", "now"), ("b2", "open")],
    ]
    for name in ("a", "b", "a", "b"):
        driven = go_on(scene, branch=name)
        told.append((visits.task(driven.run.state) or {})["text"])
        done(scene, branch=name)
    assert told == ["a1", "b1", "a2", "b2"]
    assert (boxes(scene), scene.state["current_step"]) == ("xxxx", "build/after")
    take_back(scene)
    assert boxes(scene) == "xxx "
    rewind.rewind(scene.space(), scene.run_dir.name, "fan")
    assert (boxes(scene), scene.state["current_step"]) == ("    ", "build/fan")


def test_a_fork_goes_on_with_the_task_of_its_run(scene: Scene) -> None:
    listed(scene, EACH)
    done(scene)
    made = fork.fork(scene.space(), scene.run_dir.name, "002")
    resume.resume(scene.space(), made.run.run_id)
    found = visits.task(scene.space().store.read_state(made.run.run_id))
    assert found is not None
    assert found["text"] == "three"


# ---- What the hooks and a kill do.


def test_a_turn_that_ends_ticks_the_box_too(scene: Scene) -> None:
    listed(scene, EACH, "after")
    done(scene, None)
    stop(scene, DONE, on_hook_path=True)
    assert boxes(scene) == " xx  "
    assert task(scene)["text"] == "three"


def test_a_box_that_cannot_be_ticked_ends_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(scene, EACH)
    writes = files.write_atomically

    def full(path: str, data: bytes, **more: Any) -> None:
        if path.endswith("spec.md"):
            raise OSError(28, "No space left on device", path)
        writes(path, data, **more)

    monkeypatch.setattr("loomctl.kit.files.write_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        done(scene)
    assert statuses(scene)[-1] == "in_progress"
    monkeypatch.undo()
    done(scene)
    assert (boxes(scene), task(scene)["text"]) == (" xx  ", "three")


def test_a_done_that_is_repeated_after_its_tick_ticks_no_other_box(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(scene, ALL, spec="- [ ] same\n- [ ] same\n- [ ] same\n")

    def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store.Store, "_write", dies, raising=False)
    monkeypatch.setattr("loomctl.flow.route.end_visit", dies)
    with pytest.raises(KeyboardInterrupt):
        done(scene)
    monkeypatch.undo()
    assert boxes(scene) == "x  "
    done(scene)
    assert (boxes(scene), task(scene)["number"]) == ("x  ", 2)


def test_a_tick_waits_for_that_of_another_run(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs tick lists in one folder, or sections of one file: neither writes what the other has read."""
    listed(scene, EACH, spec="## Tasks\n- [ ] one\n- [ ] two\n## Others\n- [ ] three\n- [ ] four\n")
    first = scene.run_dir.name
    other = fork.fork(scene.space(), first, "001").run.run_id
    resume.resume(scene.space(OTHER), other)
    monkeypatch.setattr(processes, "PATIENCE", 0.0)
    replaces = os.replace
    met: list[object] = []

    def meets(source: str, target: str) -> None:
        if target.endswith("spec.md") and not met:
            with refused("HELD") as held:
                advance.done(scene.space(OTHER), other, response=DONE)
            met.append(held)
        replaces(source, target)

    monkeypatch.setattr(os, "replace", meets)
    advance.done(scene.space(), first, response=DONE)
    assert (len(met), boxes(scene)) == (1, "x   ")
    advance.done(scene.space(OTHER), other, response=DONE)
    assert boxes(scene) == "x   "
    advance.done(scene.space(OTHER), other, response=DONE)
    assert boxes(scene) == "xx  "


def test_two_hundred_tasks_are_worked_through(scene: Scene) -> None:
    listed(scene, ALL, spec="".join(f"- [ ] task {number}\n" for number in range(200)))
    for number in range(200):
        assert task(scene)["text"] == f"task {number}"
        done(scene)
    assert scene.state["status"] == "completed"
    assert os.path.getsize(scene.run_dir / "state.json") < 400_000


# ---- What is shown.


def test_every_screen_says_which_task_it_is(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    listed(scene, EACH)
    done(scene)
    line = "task 3 of 3: three"
    assert line in scene.hook("session-start", source="compact").context
    assert line in scene.hook("pre-compact", trigger="auto").stdout
    assert "\ntask      3 of 3: three\n" in scene.loomctl("status").stdout
    assert scene.loomctl("status", "--json").json["step"]["task"] == {"number": 3, "of": 3, "text": "three"}
    assert line in scene.loomctl("show").stdout
    assert "task 2 of 3: one" in scene.loomctl("show", "--stages").stdout
    assert "\ntask      2 of 3: one\n" in scene.loomctl("show", "002").stdout
    assert scene.loomctl("next", "--json").json["next"]["task"] == {"number": 3, "of": 3, "text": "three"}
    assert f"stage.started 003-build.each@2, {line}" in " ".join(scene.loomctl("events").stdout.split())
    forms = overview.line_of(
        scene.space(), scene.space().store.read(scene.run_dir.name), SESSION, Tally(), now=0
    ).forms()
    assert "build/each task 3/3" in forms[0]
    assert "build/each, task 2 of 3: one: succeeded" in scene.hook("session-start", source="compact").context


def test_a_run_is_shown_with_the_whole_list_of_its_step(scene: Scene) -> None:
    listed(scene, EACH, spec=SPEC.replace("three\n", "th\x1b[31mree\n"))
    shown = scene.loomctl("show").stdout
    assert "\n\ntasks     build/each: 1 of 3 done, spec.md under “Tasks”\n[▸] one\n[x] two\n[ ] th␛[31mree\n\n" in shown
    assert scene.loomctl("show", "--json").json["task_lists"] == [
        {
            "step_id": "build/each",
            "source": "spec.md under “Tasks”",
            "tasks": [
                {"text": "one\nwith more", "state": "now"},
                {"text": "two", "state": "done"},
                {"text": "th\x1b[31mree", "state": "open"},
            ],
            "missing": "",
        }
    ]
    (scene.root / "spec.md").unlink()
    assert "\ntasks     build/each: there is no file spec.md (artifacts.spec)\n\n" in scene.loomctl("show").stdout
    done(scene)
    assert "\ntasks " not in scene.loomctl("show").stdout


@each(("at", "first", "last"), [(0, 1, 20), (20, 15, 34), (44, 26, 45)])
def test_of_a_long_list_twenty_tasks_around_the_current_one_are_shown(
    scene: Scene, at: int, first: int, last: int
) -> None:
    spec = "## Tasks\n" + "".join(f"- [{'x' if n < at else ' '}] task {n + 1}.\n" for n in range(45))
    listed(scene, EACH, spec=spec)
    shown = scene.loomctl("show").stdout.partition("\ntasks ")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line[4:] for line in shown[:-1]] == [f"task {n}." for n in range(first, last + 1)]
    assert (f"[▸] task {at + 1}." in shown, shown[-1]) == (True, f"25 more: loomctl show {scene.handle} --json")
    assert len(scene.loomctl("show", "--json").json["task_lists"][0]["tasks"]) == 45


def test_a_json_list_is_shown_by_its_place(scene: Scene) -> None:
    begin(scene, "plan", {"id": "each", "prompt": "Do {task}.", "for_each": "context.parts"})
    done(scene, json.dumps({"context_updates": {"parts": ["one", {"a": 1}]}}))
    done(scene)
    told = scene.loomctl("show", "--json").json["task_lists"]
    assert [(one["text"], one["state"]) for one in told[0]["tasks"]] == [("one", "done"), ('{"a":1}', "now")]


# ---- Told by the step that leaves the list.


def leaves(scene: Scene, spec: str, **more: Any) -> Any:
    begin(scene, {"id": "spec", "produces": ["spec"]}, {**EACH, **more}, "after")
    scene.write("spec.md", spec)
    return done(scene, artifacts={"spec": "{project_root}/spec.md"})


@each(
    ("spec", "why"),
    [
        ("# Spec\n", "spec.md has no heading “Tasks”; build/each needs them: write a line `- [ ] …` there"),
        ("# Tasks\n- [x] a\n", "there is no open check box in spec.md under “Tasks”; build/each needs them"),
    ],
)
def test_the_step_that_leaves_the_list_does_not_end_without_a_task(scene: Scene, spec: str, why: str) -> None:
    driven = leaves(scene, spec)
    assert why in driven.repair
    assert scene.state["current_step"] == "build/spec"
    scene.write("spec.md", SPEC)
    done(scene, artifacts={"spec": "{project_root}/spec.md"})
    assert task(scene)["text"] == "one\nwith more"


def test_a_list_that_may_be_empty_is_not_asked_for(scene: Scene) -> None:
    assert leaves(scene, "# Spec\n", for_each={"list": "artifacts.spec", "allow_empty": True}).repair == ""
    assert scene.state["current_step"] == "build/after"
