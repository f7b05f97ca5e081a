"""A step that leaves something ends well only when that is registered and there (D66)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from loomctl.flow import advance
from loomctl.flow.advance import Driven
from loomctl.flow.commands import command_steps
from tests.cli.terminal import Terminal, at_a_terminal, loomctl
from tests.helpers.scenes import Json, Scene
from tests.helpers.tables import each
from tests.helpers.texts import holds
from tests.helpers.verbs import DONE, begin, done, end, events, go_on, read, statuses, stop, take_back

if TYPE_CHECKING:
    from pathlib import Path

STAGE = "001-build.make@1"


def make(scene: Scene, *names: str | Json, **more: Any) -> Scene:
    return begin(scene, {"id": "make", "produces": list(names), **more}, "then")


def lacking(driven: Driven) -> str:
    assert driven.ended is None
    assert driven.repair.startswith("NOT_PRODUCED: step build/make is not done")
    return driven.repair


def said(**more: Any) -> str:
    return json.dumps({"outcome": "succeeded", **more})


@each("name", ["spce_path", "spec"])
def test_a_misspelt_name_is_told(scene: Scene, name: str) -> None:
    """The line to type has the file under the name that was meant."""
    make(scene, "spec_path")
    scene.write("spec.md", "# Spec")
    first = done(scene, artifacts={name: "{project_root}/spec.md"})
    assert "given" not in scene.state["steps"][0]
    told = f"you registered no file under this name, but one as `{name}`; did you mean `spec_path`?"
    holds(first.repair, told, f"--artifact spec_path={scene.root}/spec.md --response-file", but=(f"{name}=",))


@each("kept_by", ["command", "evidence", "schema"])
def test_what_was_given_with_an_answer_that_ended_nothing_is_given_once(scene: Scene, kept_by: str) -> None:
    """Whether Loom could not check it yet, missed evidence or asked for another answer; an undo forgets it."""
    lacks: dict[str, Json] = {
        "command": {"evidence": [{"run": "true"}]},
        "evidence": {"evidence": [{"file": "x.md"}]},
        "schema": {"output_schema": "@cover.json"},
    }
    scene.write(".loom/workflows/cover.json", json.dumps({"type": "object", "required": ["cover"]}))
    make(scene, "test_path", **lacks[kept_by])
    scene.write("test_x.py", "def test_x(): ...")
    first = done(scene, artifacts={"test_path": "{project_root}/test_x.py"})
    assert (first.ended, "NOT_PRODUCED" in first.repair) == (None, False)
    scene.write("x.md", "x")
    if kept_by == "command":
        run = scene.space().store.read(scene.run_dir.name)
        command_steps.trust(scene.space(), run, command_steps.listed(scene.space(), run))
    last = done(scene, '{"cover": 1}')
    assert last.ended is not None, last.repair
    assert last.ended["status"] == "succeeded"
    assert scene.state["artifacts"] == {"test_path": "{project_root}/test_x.py"}
    take_back(scene)
    assert "given" not in scene.state["steps"][0]


def test_what_the_next_answer_names_itself_comes_before_what_was_given_with_the_last(scene: Scene) -> None:
    make(scene, "spec_path", evidence=[{"file": "x.md"}])
    for name in ("old.md", "new.md"):
        scene.write(name, "# Spec")
    assert done(scene, artifacts={"spec_path": "{project_root}/old.md"}).ended is None
    scene.write("x.md", "x")
    assert done(scene, said(artifacts={"spec_path": "new.md"})).ended is not None
    assert scene.state["artifacts"] == {"spec_path": "{project_root}/new.md"}


def test_a_person_at_a_terminal_is_asked_for_the_file_that_is_missing(scene: Scene) -> None:
    """A path that leads nowhere is asked for again; an empty line leaves the step open, as without a terminal."""
    make(scene, "spec_path", "notes")
    scene.let_go()
    scene.write("spec.md", "# Spec")
    words = ("done", scene.handle, "--note", DONE, "--artifact", "notes=spec.md")
    seen = at_a_terminal(scene, *words, typed="\n")
    holds(seen, "build/make has to leave spec_path. Which file is it?", "Correction 1 of 2", but=("leave notes",))
    seen = at_a_terminal(scene, *words, typed="none.md\nspec.md\n")
    holds(seen, "Error: there is no none.md", "✓ build/make: succeeded")
    assert scene.state["artifacts"] == dict.fromkeys(("spec_path", "notes"), "{project_root}/spec.md")


def test_who_breaks_off_at_a_file_ends_nothing(scene: Scene) -> None:
    make(scene, "spec_path")
    scene.let_go()
    terminal = Terminal(loomctl("done", scene.handle, "--note", DONE), scene)
    terminal.until("\n> ")
    terminal.type("\x04")
    holds(terminal.end(), "Nothing was ended; build/make is")
    assert statuses(scene) == ["in_progress"]
    assert not events(scene, "stage.repair_requested")


def test_the_last_correction_says_what_comes_after_it(scene: Scene) -> None:
    make(scene, "spec_path")
    assert done(scene).repair.endswith("(Correction 1 of 2.)")
    assert done(scene).repair.endswith("(Correction 2 of 2; after it the step fails.)")
    done(scene)
    assert statuses(scene) == ["failed"]


def test_a_step_is_open_until_what_it_leaves_is_registered_and_there(scene: Scene) -> None:
    """The answer is kept, and the line to type registers what is missing beside what was given."""
    make(scene, "spec_path", "notes")
    scene.write("specs/a b.md", "# Spec")
    kept = os.path.join(scene.run_dir, "stages", STAGE, "candidate.md")
    first = done(scene, artifacts={"notes": "{project_root}/specs/a b.md"})
    again = f"done {scene.handle} --for 001 --artifact 'notes={scene.root}/specs/a b.md' --artifact spec_path=PATH"
    holds(lacking(first), "artifact `spec_path`: you registered no file under this name", again, kept, "1 of 2")
    assert "artifact `notes`" not in first.repair
    assert "but one as" not in first.repair
    assert (read(scene, STAGE, "candidate.md"), statuses(scene)) == (DONE, ["in_progress"])
    both = dict.fromkeys(("spec_path", "notes"), "{project_root}/specs/a b.md")
    assert end(scene, artifacts=both) == "succeeded"
    assert (scene.state["artifacts"], scene.state["current_step"]) == (both, "build/then")
    told = events(scene, "evidence.checked")
    assert [[(one["kind"], one["name"], one["passed"]) for one in event["items"]] for event in told] == [
        [("artifact", "spec_path", False), ("artifact", "notes", True)],
        [("artifact", "spec_path", True), ("artifact", "notes", True)],
    ]
    assert [event["errors"] for event in events(scene, "stage.repair_requested")] == [["NOT_PRODUCED"]]


WORK: Json = {"work_path": "{run_dir}/work.md"}


def work_of(scene: Scene, content: str = "# Work") -> Path:
    return scene.write(f".loom/runs/{scene.run_dir.name}/work.md", content)


def test_what_lies_where_a_step_leaves_it_is_registered_by_itself(scene: Scene) -> None:
    """Once it is there with something in it; another path that is given comes first."""
    make(scene, WORK)
    again = lacking(done(scene))
    holds(again, "artifact `work_path`: ", "work.md: there is no such file", "--for 001 --response-file", but=("PATH",))
    work = work_of(scene, "")
    holds(lacking(done(scene)), "work.md: it is empty")
    work.write_text("# Work")
    assert end(scene) == "succeeded"
    assert scene.state["artifacts"] == WORK
    take_back(scene)
    assert scene.state["artifacts"] == {}
    scene.write("other.md", "# Other")
    assert end(scene, artifacts={"work_path": "{project_root}/other.md"}) == "succeeded"
    assert scene.state["artifacts"] == {"work_path": "{project_root}/other.md"}


def test_a_stop_registers_what_lies_there(scene: Scene) -> None:
    make(scene, WORK)
    work_of(scene)
    stop(scene, said(), on_hook_path=True)
    assert (statuses(scene)[0], scene.state["artifacts"]) == ("succeeded", WORK)


def test_what_the_answer_names_comes_before_the_path_of_the_step(scene: Scene) -> None:
    make(scene, WORK)
    work_of(scene)
    holds(lacking(done(scene, said(artifacts={"work_path": "none.md"}))), "there is no none.md")
    scene.write("other.md", "# Other")
    assert done(scene, said(artifacts={"work_path": "other.md"})).ended is not None
    assert scene.state["artifacts"] == {"work_path": "{project_root}/other.md"}


def test_a_file_or_folder_of_the_project_counts_from_its_root(scene: Scene) -> None:
    """Also for a command step, and in the place of what an earlier step registered."""
    first: Json = {"id": "first", "prompt": "Do it.", "produces": [{"spec_path": "first.md"}]}
    command = "mkdir specs && echo Spec > specs/a.md"
    second: Json = {"id": "make", "run": command, "produces": [{"spec_path": "specs/a.md"}, {"all": "specs"}]}
    scene.workflow(phases={"build": {"steps": [first, second]}})
    run = scene.begin().run
    command_steps.trust(scene.space(), run, command_steps.listed(scene.space(), run))
    scene.write("first.md", "# First")
    assert end(scene) == "succeeded"
    assert scene.state["artifacts"] == {"spec_path": "{project_root}/first.md"}
    advance.next_step(scene.space(), run.run_id)
    assert statuses(scene)[-1] == "succeeded"
    assert scene.state["artifacts"] == {"spec_path": "{project_root}/specs/a.md", "all": "{project_root}/specs"}


@each("outcome", ["failed", "skipped", None])
def test_nothing_is_registered_of_a_step_that_does_not_succeed(scene: Scene, outcome: str | None) -> None:
    """Neither at once nor after an answer that lacked evidence, nor when its corrections come to an end."""
    make(scene, WORK, evidence=[{"file": "x.md"}], output_retries=1, result_handling={"on_failure": "continue"})
    work_of(scene)
    holds(done(scene).repair, "EVIDENCE_MISSING")
    assert end(scene, outcome=outcome) == (outcome or "failed")
    assert scene.state["artifacts"] == {}


@each("outside", ["{plugin_root}/README.md", "link.md"])
def test_a_path_that_leads_out_registers_nothing(scene: Scene, outside: str) -> None:
    (scene.root / "link.md").symlink_to("/etc/passwd")
    make(scene, {"work_path": outside})
    holds(lacking(done(scene)), "the path leads out of the project")


UNFIT = [
    ("../a.md", "PATH_ESCAPE"),
    ("{run_dir}/../../../a.md", "PATH_ESCAPE"),
    ("..\\a.md", "PATH_ESCAPE"),
    ("/etc/passwd", "PATH_ESCAPE"),
    ("a\0.md", "PATH_ESCAPE"),
    ("{nowhere}/a.md", "UNRESOLVED_PLACEHOLDER"),
    (" ", "EMPTY_TEXT"),
]


@each(("path", "code"), UNFIT)
def test_a_path_that_can_be_none_is_refused_before_the_run(scene: Scene, path: str, code: str) -> None:
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "Make.", "produces": [{"a": path}]}]}})
    holds(scene.loomctl("check", "tiny").ends(5).stdout, f"error: {code} at $.phases.build.steps[0].produces[0].a")


@each("entry", [{"a": "a.md", "b": "b.md"}, {}, {"a": 1}, 1, ["a"]])
def test_an_entry_that_is_no_name_and_no_one_name_with_its_path_is_refused(scene: Scene, entry: object) -> None:
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "Make.", "produces": [entry]}]}})
    holds(scene.loomctl("check", "tiny").ends(5).stdout, "error: WRONG_TYPE at $.phases.build.steps[0].produces[0]:")


def test_a_file_under_another_name_is_told_where_the_step_says_a_path(scene: Scene) -> None:
    make(scene, WORK)
    scene.write("other.md", "# Other")
    told = lacking(done(scene, artifacts={"work": "{project_root}/other.md"}))
    holds(told, "did you mean `work_path`?", f"--artifact work_path={scene.root}/other.md")


def test_a_plan_that_was_frozen_before_there_were_paths_asks_for_each_file(scene: Scene) -> None:
    """What its prompt says changes nothing."""
    make(scene, "work_path", prompt='Register it: `--artifact "work_path={run_dir}/work.md"`.')
    work = work_of(scene)
    holds(lacking(done(scene)), "--artifact work_path=PATH")
    assert end(scene, artifacts={"work_path": str(work)}) == "succeeded"


def test_the_corrections_come_to_an_end(scene: Scene) -> None:
    make(scene, "spec_path", output_retries=1)
    lacking(done(scene))
    failed = done(scene).ended
    assert failed is not None
    assert (failed["status"], "spec_path" in failed["failure_reason"]) == ("failed", True)


def test_what_an_answer_names_is_registered(scene: Scene) -> None:
    """By the JSON of the answer, also at a stop; what is given beside it comes first."""
    make(scene, "spec_path")
    scene.write("spec.md", "# Spec")
    scene.write("other.md", "# Other")
    refused = done(scene, said(artifacts={"spec_path": "specs/none.md"}))
    holds(lacking(refused), "artifact `spec_path`: there is no specs/none.md")
    answer = said(artifacts={"spec_path": "spec.md", "more": "other.md"})
    driven = done(scene, answer, artifacts={"more": "{project_root}/spec.md"})
    assert driven.ended is not None
    assert scene.state["artifacts"] == dict.fromkeys(("spec_path", "more"), "{project_root}/spec.md")
    take_back(scene)
    assert scene.state["artifacts"] == {}
    stop(scene, "Once more. " + answer, on_hook_path=True)
    assert scene.state["artifacts"] == {"spec_path": "{project_root}/spec.md", "more": "{project_root}/other.md"}


def test_a_stop_asks_for_what_is_missing(scene: Scene) -> None:
    make(scene, "spec_path")
    assert "NOT_PRODUCED" in stop(scene, said(), on_hook_path=True).block
    assert statuses(scene) == ["in_progress"]


@each("outcome", ["failed", "skipped"])
def test_a_step_that_does_not_succeed_leaves_nothing(scene: Scene, outcome: str) -> None:
    make(scene, "spec_path", result_handling={"on_failure": "continue"})
    assert end(scene, outcome=outcome) == outcome


def test_what_was_registered_before_counts_while_it_is_there(scene: Scene) -> None:
    begin(scene, {"id": "first", "produces": ["spec_path"]}, {"id": "make", "produces": ["spec_path"]})
    path = scene.write("spec.md", "# Spec")
    assert end(scene, artifacts={"spec_path": "{project_root}/spec.md"}) == "succeeded"
    path.unlink()
    holds(lacking(done(scene)), "spec.md: there is no such file")
    scene.write("spec.md", "# Spec")
    assert end(scene) == "succeeded"


def _nothing(scene: Scene) -> None:
    (scene.root / "it").mkdir()


def _blank(scene: Scene) -> None:
    scene.write("it", " \n\t\r\n")


def _pipe(scene: Scene) -> None:
    os.mkfifo(scene.root / "it")


def _loop(scene: Scene) -> None:
    (scene.root / "it").symlink_to("it")


def _out(scene: Scene) -> None:
    (scene.root / "it").symlink_to("/etc/passwd")


def _bundle(scene: Scene) -> None:
    os.symlink(os.path.join(scene.space().project.plugin_root, "README.md"), scene.root / "it")


HOSTILE = [
    (_nothing, "it is an empty folder"),
    (_blank, "it is empty"),
    (_pipe, "it cannot be read: not a regular file"),
    (_loop, "it: "),
    (_out, "the path leads out of the project"),
    (_bundle, "the path leads out of the project"),
]


@each("made, why", HOSTILE)
def test_what_holds_nothing_or_lies_elsewhere_is_nothing(scene: Scene, made: Any, why: str) -> None:
    make(scene, "spec_path")
    made(scene)
    holds(lacking(done(scene, artifacts={"spec_path": "{project_root}/it"})), why)


def test_a_huge_file_is_there_and_is_not_read(scene: Scene) -> None:
    make(scene, "spec_path")
    with open(scene.write("huge.bin", ""), "r+b") as file:
        file.truncate(1 << 40)
    (scene.root / "all").mkdir()
    scene.write("all/one.md", "1")
    assert end(scene, artifacts={"spec_path": "{project_root}/huge.bin"}) == "succeeded"


def test_commands_of_evidence_are_not_run_while_it_is_missing(scene: Scene) -> None:
    make(scene, "spec_path", evidence=[{"run": "touch ran"}])
    holds(lacking(done(scene)), "Loom runs it once the rest is there")
    assert not (scene.root / "ran").exists()


def test_a_step_of_a_branch_leaves_something_too(scene: Scene) -> None:
    branches: list[Json] = [
        {"id": name, "steps": [{"id": "look", "prompt": "Look.", "produces": [f"found-{name}"]}]}
        for name in ("api", "web")
    ]
    scene.workflow(phases={"build": {"steps": [{"id": "all", "parallel": {"branches": branches}}]}})
    run_id = scene.begin().run.run_id
    scene.write("found.md", "Found.")
    for name in ("api", "web"):
        given: Json = {"response": DONE, "branch": name}
        go_on(scene, branch=name)
        asked = advance.done(scene.space(), run_id, **given)
        holds(asked.repair, "NOT_PRODUCED", f"build/all.{name}.look")
        ended = advance.done(scene.space(), run_id, **given, artifacts={f"found-{name}": "{project_root}/found.md"})
        assert ended.ended is not None
        assert ended.ended["status"] == "succeeded"


def test_the_step_says_what_it_leaves_in_one_line(scene: Scene) -> None:
    make(scene, "spec_path", "notes")
    told = [line for line in read(scene, STAGE, "prompt.md").splitlines() if "spec_path" in line]
    assert told == ["It has to leave `spec_path`, `notes`: register each file with `--artifact NAME=PATH`."]


def test_the_step_says_where_it_leaves_what_has_a_path(scene: Scene) -> None:
    make(scene, "spec_path", WORK)
    holds(
        read(scene, STAGE, "prompt.md"),
        f"It has to leave `{scene.run_dir}/work.md` (`work_path`); Loom registers that.\n\n"
        "It has to leave `spec_path`: register each file with `--artifact NAME=PATH`.",
    )
