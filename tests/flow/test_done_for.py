"""`done` ends the stage that it names, once: called again, or twice at once, it changes nothing and says so (D67)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from loomctl.flow import advance, stop
from loomctl.kit.errors import LoomError
from tests.cli.terminal import Terminal, at_a_terminal, loomctl
from tests.helpers.scenes import OTHER, SESSION, Ended, Scene, fingerprint, handle
from tests.helpers.tables import each
from tests.helpers.verbs import begin, done, read, statuses

LONG = (
    "The spec is in specs/258.md. It was decided to keep the old colours. Two questions are open: contrast, and dark.\n"
)
BRANCHES = [
    {"id": name, "steps": [{"id": "a", "prompt": "A."}, {"id": "b", "prompt": "B."}]} for name in ("api", "web")
]


@pytest.fixture
def begun(scene: Scene) -> Scene:
    scene.workflow()
    scene.begin()
    return scene


@pytest.mark.parametrize("named", ["001", "1", "001-frame.ask@1"])
@pytest.mark.parametrize("by", [SESSION, None], ids=["session", "terminal"])
def test_a_call_for_a_stage_that_has_ended_changes_nothing(begun: Scene, named: str, by: str | None) -> None:
    """It says how that stage ended and where the run stands; exit code 0, the document in its one shape."""
    run_id = begun.run_dir.name
    first = begun.loomctl("done", "--for", named, "--outcome", "partially_succeeded", "--json", given="half").json
    before = fingerprint(begun.run_dir)
    begun.let_go()
    for response in ("half", "something else", None):
        again = begun.loomctl("done", run_id, "--for", named, "--json", session=by, given=response)
        assert (again.code, again.json.keys()) == (0, first.keys())
        assert (first["had_ended"], again.json["had_ended"]) == (False, True)
        assert (again.json["stage"], again.json["outcome"]) == ("001-frame.ask@1", "partially_succeeded")
        assert again.json["next"]["id"] == "build/make"
    told = begun.loomctl("done", run_id, "--for", named, session=by).stdout
    assert told == (
        "001-frame.ask@1 has ended already: partially_succeeded. Nothing changed.\n"
        "Next: build/make\n`loomctl next` shows that step. `loomctl done --for 002` ends it.\n"
    )
    changed = {name for name, held in fingerprint(begun.run_dir).items() if before.get(name) != held}
    assert changed <= {"state.json", "state.backup.json"}  # let_go wrote it
    assert statuses(begun) == ["partially_succeeded", "in_progress"]


def test_the_last_call_of_a_run_may_be_repeated(begun: Scene) -> None:
    for number in range(1, 5):
        assert begun.loomctl("done", "--for", str(number), given="x").code == 0
    again = begun.loomctl("done", "--for", "004", "--json", given="x")
    told = again.json
    assert (again.code, told["had_ended"], told["status"], told["next"]) == (0, True, "completed", None)


@each("named", ["002", "0", "99", "x", "001-frame.ask@2", "frame/ask", "-1", "٣", "9" * 40])
def test_a_stage_that_is_not_there_is_an_error_with_the_way_on(begun: Scene, named: str) -> None:
    """Another run's stage is none of this one; a step's id names no stage, for a loop visits it anew."""
    answer = begun.loomctl("done", f"--for={named}", "--json", given="x")
    assert (answer.code, answer.json["error"]["code"]) == (3, "NO_SUCH_STAGE")
    assert "001-frame.ask@1" in answer.json["error"]["why"]
    assert answer.json["error"]["hint"] == f"loomctl next {begun.handle}"
    assert statuses(begun) == ["in_progress"]


def at_once(scene: Scene, *arguments: str) -> list[Ended]:
    start = Barrier(2)

    def end(number: int) -> Ended:
        start.wait()
        return Scene.loomctl(scene, "done", *arguments, "--json", given=f"result {number}")

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(end, range(2)))


def test_of_two_calls_at_once_one_ends_the_stage(begun: Scene) -> None:
    """The other says that it has ended; the step behind it stays untouched, and the files are one result's."""
    both = at_once(begun, "--for", "001")
    assert sorted((one.code, one.json["had_ended"]) for one in both) == [(0, False), (0, True)]
    assert statuses(begun) == ["succeeded", "in_progress"]
    assert begun.event_names().count("stage.completed") == 1
    assert begun.loomctl("prove", "--log").code == 0


def test_of_two_calls_at_once_one_ends_a_branch_and_joins(scene: Scene) -> None:
    """A stage's number implies its branch; who comes second is told of it, though the branches are joined by then."""
    fan = {"id": "fan", "parallel": {"branches": [{**one, "steps": one["steps"][:1]} for one in BRANCHES]}}
    scene.workflow(phases={"build": {"steps": [fan, {"id": "sum", "prompt": "Sum."}]}})
    scene.begin()
    for name in ("api", "web"):
        scene.loomctl("next", "--branch", name)
    assert scene.loomctl("done", "--for", "002", given="api").code == 0
    both = at_once(scene, "--for", "003")
    assert sorted((one.code, one.json["had_ended"]) for one in both) == [(0, False), (0, True)]
    assert scene.state["current_step"] == "build/sum"
    assert scene.loomctl("done", "--for", "002", "--json").json["had_ended"]
    assert scene.loomctl("done", "--for", "003", "--branch", "api", "--json").json["error"]["code"] == "NO_SUCH_STAGE"


def test_a_stages_number_implies_its_branch(scene: Scene) -> None:
    scene.workflow(phases={"build": {"steps": [{"id": "fan", "parallel": {"branches": BRANCHES}}]}})
    scene.begin()
    assert "loomctl done --for 002 <<'LOOM'" in scene.loomctl("next", "--branch", "api").stdout
    assert "loomctl done --for 003 <<'LOOM'" in scene.loomctl("next", "--branch", "web").stdout
    ended = scene.loomctl("done", "--for", "003", given="drawn").stdout
    assert all(words in ended for words in ("build/fan.web.b", "loomctl done --for 004"))
    again = scene.loomctl("done", "--for", "003").stdout
    assert "`loomctl next --branch web` shows that step. `loomctl done --for 004` ends it." in again
    standing = [[one["status"] for one in record["steps"]] for record in scene.state["steps"][0]["branches"]]
    assert standing == [["in_progress"], ["succeeded", "in_progress"]]


def test_the_same_result_may_end_two_steps(begun: Scene) -> None:
    """Each call that names no stage is meant for the one that its session was told of last."""
    for _ in range(2):
        assert begun.loomctl("done", "--json", given=LONG).json["had_ended"] is False
    assert statuses(begun) == ["succeeded", "succeeded", "in_progress"]


@each(
    ("options", "given", "code", "status"),
    [
        ((), None, 2, "in_progress"),
        ((), "", 2, "in_progress"),
        ((), " \n", 2, "in_progress"),
        (("--outcome", "succeeded"), None, 2, "in_progress"),
        (("--outcome", "partially_succeeded", "--note", " "), None, 2, "in_progress"),
        (("--outcome", "succeeded", "--note", "seen by hand"), None, 0, "succeeded"),
        (("--outcome", "failed"), None, 0, "failed"),
        (("--outcome", "skipped"), None, 0, "skipped"),
        ((), "it is done", 0, "succeeded"),
    ],
)
def test_in_a_terminal_nothing_succeeds_without_a_result(
    begun: Scene, options: tuple[str, ...], given: str | None, code: int, status: str
) -> None:
    """A text, or an outcome with a note; what is missing is said with what to type, and the step stays open."""
    begun.let_go()
    run_id = begun.run_dir.name
    ended = begun.loomctl("done", run_id, *options, "--json", session=None, given=given)
    assert (ended.code, statuses(begun)[0]) == (code, status)
    if code:
        error, way = ended.json["error"], f"loomctl done --for 001 {handle(run_id)} --response-file result.md"
        assert (error["code"], error["hint"]) == ("NO_RESPONSE", way)


@pytest.fixture
def without_an_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)


@pytest.mark.usefixtures("without_an_editor")
@each(("typed", "status"), [("It is done.\n", "succeeded"), ("\n", "in_progress")])
def test_a_person_is_asked_for_a_line(begun: Scene, typed: str, status: str) -> None:
    seen, code = asked(begun, typed)
    assert "What was the result of frame/ask? One line; an empty line ends nothing." in seen
    assert (statuses(begun)[0], code) == (status, 0 if status == "succeeded" else 2)
    assert status != "succeeded" or read(begun, "001-frame.ask@1", "response.md") == "It is done."


@pytest.mark.usefixtures("without_an_editor")
def test_a_person_is_told_the_task_and_may_move_in_the_line(scene: Scene) -> None:
    scene.write("todo.md", "- [ ] Add the parser\n- [ ] Sort it\n")
    begin(scene, "spec", {"id": "each", "prompt": "Do this: {task}", "for_each": "artifacts.spec"})
    done(scene, artifacts={"spec": "{project_root}/todo.md"})
    seen, code = asked(scene, "it\x1b[D\x1b[DDone: \n")
    assert "What was the result of build/each, task 1 of 2: Add the parser? One line;" in " ".join(seen.split())
    assert (code, read(scene, "002-build.each@1", "response.md")) == (0, "Done: it")


def test_a_person_who_gives_a_note_is_not_asked(begun: Scene) -> None:
    begun.let_go()
    seen = at_a_terminal(begun, "done", begun.run_dir.name, "--note", "Seen by hand.")
    assert "What was" not in seen
    assert (statuses(begun)[0], read(begun, "001-frame.ask@1", "response.md")) == ("succeeded", "Seen by hand.")


@pytest.mark.usefixtures("without_an_editor")
@each("typed", ["\x04", ""])
def test_who_breaks_off_ends_nothing(begun: Scene, typed: str) -> None:
    """By the end of input, or an interrupt; it is said, and the step is still open."""
    seen, code = asked(begun, typed)
    assert "Nothing was ended; frame/ask is still open." in seen
    assert "Traceback" not in seen
    assert (statuses(begun)[0], code) == ("in_progress", 130)


@each(
    ("editor", "status", "said"),
    [
        ("printf 'Two lines,\\nand more.' > \"$1\"", "succeeded", "an empty line opens your editor"),
        ("exit 0", "in_progress", "NO_RESPONSE: the result of frame/ask is missing"),
        ("exit 3", "in_progress", "NO_RESPONSE: your editor gave no result"),
    ],
)
def test_an_empty_line_opens_the_editor(
    begun: Scene, editor: str, status: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun.write("edit.sh", f"#!/bin/sh\n{editor}\n").chmod(0o755)
    monkeypatch.setenv("VISUAL", str(begun.root / "edit.sh"))
    assert said in asked(begun, "\n")[0]
    assert statuses(begun)[0] == status
    assert status != "succeeded" or read(begun, "001-frame.ask@1", "response.md").strip() == "Two lines,\nand more."


def test_a_session_of_an_assistant_is_not_asked(begun: Scene) -> None:
    terminal = Terminal(loomctl("done", begun.run_dir.name), begun, environ={"CLAUDE_CODE_SESSION_ID": SESSION})
    terminal.type("It is done.\n")
    assert "What was" not in terminal.end()


def asked(begun: Scene, typed: str) -> tuple[str, int]:
    """Type at `done` in a terminal, or interrupt it; gives what was seen, and the exit code."""
    begun.let_go()
    terminal = Terminal(loomctl("done", begun.run_dir.name), begun)
    terminal.until("\n> ")
    if typed:
        terminal.type(typed)
    else:
        terminal.interrupt()
    return terminal.end(), terminal.child.returncode


def test_a_closing_step_may_be_marked_again(begun: Scene) -> None:
    """The same call twice waits for the same message, and writes nothing the second time."""
    for _ in range(2):
        marked = begun.loomctl("done", "--for", "001", "--json").json
        assert (marked["closing"], marked["stage"], marked["next"]) == (True, "001-frame.ask@1", None)
    assert begun.event_names().count("stage.closing") == 1
    begun.hook("stop", last_assistant_message="the result")
    assert statuses(begun)[0] == "succeeded"
    assert begun.loomctl("done", "--for", "001", "--json").json["had_ended"]


@each("verb", ["next", "stop", "resume", "session-start"])
@each(
    ("outcome", "note", "status"),
    [
        *((None, "", "in_progress"), ("succeeded", "", "in_progress"), ("succeeded", "by hand", "succeeded")),
        *(("failed", "", "failed"), ("skipped", "", "skipped")),
    ],
)
def test_a_closing_step_without_a_word_stays_open(
    begun: Scene, verb: str, outcome: str | None, note: str, status: str
) -> None:
    """Whatever closes it: without a result it is open as before, and its user or assistant is told how to end it."""
    space, run_id = begun.space(), begun.run_dir.name
    advance.done(space, run_id, response=None, outcome=outcome, note=note)
    if verb == "next":
        said = "\n".join(advance.next_step(begun.space(), run_id).notes)
    elif verb == "stop":
        said = stop.closed_without_message(begun.space(), begun.space().store.read(run_id))
    elif verb == "resume":
        said = begun.loomctl("resume", run_id).stdout
    else:
        said = begun.hook("session-start", source="clear").message
    assert begun.state["steps"][0]["status"] == status
    if status == "in_progress":
        assert "frame/ask has no result yet. Give one: loomctl done --for 001 --response-file result.md" in said


def test_every_text_names_the_stage(begun: Scene) -> None:
    """What a session is told of its step's end, by whatever verb or hook, holds its number."""
    shown = "loomctl done --for 001"
    assert shown in begun.loomctl("next").stdout
    assert shown in begun.hook("session-start", source="compact").context
    assert shown in begun.loomctl("status").stdout
    assert "loomctl done --for 002" in begun.loomctl("done", "--for", "001", given="x").stdout


def test_a_stage_that_was_taken_back_is_open_again(begun: Scene) -> None:
    """Its number ends it once more; the number of a stage that is gone with it names none."""
    for number in (1, 2):
        begun.loomctl("done", "--for", str(number), given="x")
    begun.loomctl("rewind", "--to", "1")
    assert begun.loomctl("done", "--for", "002", "--json", given="x").json["error"]["code"] == "NO_SUCH_STAGE"
    ended = begun.loomctl("done", "--for", "001", "--json", given="y").json
    assert (ended["had_ended"], ended["stage"]) == (False, "001-frame.ask@1")


def test_a_session_that_does_not_drive_ends_nothing_by_naming(begun: Scene) -> None:
    answer = begun.loomctl("done", begun.run_dir.name, "--for", "001", "--json", session=OTHER, given="x")
    assert (answer.code, answer.json["error"]["code"]) == (6, "HELD_BY_ANOTHER")
    with pytest.raises(LoomError):
        advance.done(begun.space(OTHER), begun.run_dir.name, response="x", stage="001")
    assert statuses(begun) == ["in_progress"]
