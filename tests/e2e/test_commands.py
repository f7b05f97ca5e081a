"""Slash commands and skills: their output reaches the model, and the user's words reach Loom unharmed."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.assistant import LOOMCTL_ALLOWED, Assistant, Machine, Turn
from tests.e2e.scenes import SENTENCE, InRun, fingerprint, run_folder, run_folders, state_of
from tests.e2e.scripted_api import Reply, bash, reply, tool
from tests.helpers.scenes import CHECKOUT, handle
from tests.helpers.texts import holds


def test_run_takes_a_work_id(assistant: Assistant) -> None:
    turn = assistant.run("/loom:run 258", answers=[reply(bash("loomctl next")), "Under way."])
    state = state_of(assistant.project)
    assert (state["work_id"], state["status"]) == ("258", "in_progress")
    assert state["sessions"]["current_session_id"] == turn.session_id
    body, seen = (request.seen() for request in turn.conversation)
    holds(body, f"this conversation works on the run {handle(state)}", but=("loomctl done <<",))
    assert "loomctl done --for 001 <<" in seen
    for phase in ("frame", "architect", "build", "evaluate", "release"):
        assert phase in seen


@pytest.mark.parametrize(
    "goal",
    [
        "don't lose the user's place",
        'rename "loom" to `Loom` in $HOME; then $(whoami) & more > less | fewer # not a comment',
        "two lines\nof a goal with C:\\new\\folder and an é 😀",
    ],
)
def test_run_takes_the_goal_as_it_was_typed(assistant: Assistant, goal: str) -> None:
    assistant.run(f"/loom:run {goal}")
    assert state_of(assistant.project)["goal"].split() == goal.split()


@pytest.mark.quick
def test_a_mistake_is_explained_in_the_conversation(assistant: Assistant) -> None:
    turn = assistant.run("/loom:run 258 --workflow no-such-workflow")
    holds(turn.conversation[0].seen(), "no-such-workflow", "hint:")
    assert run_folders(assistant.project) == []


def test_prime_context_shows_and_gives(in_run: InRun) -> None:
    assistant, first = in_run

    def asked(words: str) -> Turn:
        call = reply(bash(f"loomctl prime-context {words}"))
        return assistant.run(f"/loom:prime-context {words}", resume=first.session_id, answers=[call, "Told."])

    turns = [asked("--dry-run --force"), asked("--force")]
    before, after = (turn.conversation[-1].seen().count(SENTENCE) for turn in turns)
    assert after == before + 1


def test_resume_on_another_machine(in_run: InRun, tmp_path: Path) -> None:
    assistant, _ = in_run
    state_handle = handle(state_of(assistant.project))
    other = Machine(root=tmp_path / "b", cache=assistant.machine.cache, name="machine-b")
    shutil.copytree(assistant.project, other.root / "elsewhere" / "copy")
    moved = replace(assistant, machine=other, project=other.root / "elsewhere" / "copy")

    unknown = moved.run("hello", watch_hooks=True)
    assert SENTENCE not in unknown.conversation[0].seen()
    assert any(state_handle in line for line in unknown.told_user())

    turn = moved.run("/loom:resume", answers=[reply(bash("loomctl next")), "Told."])
    body, seen = (request.seen() for request in turn.conversation)
    assert SENTENCE not in body
    holds(seen, SENTENCE, "2 sessions (machine-a, machine-b)")
    history = state_of(moved.project)["sessions"]["session_history"]
    assert [record["environment"]["hostname"] for record in history] == ["machine-a", "machine-b"]
    portable = {key: value for key, value in state_of(moved.project).items() if key != "sessions"}
    assert str(tmp_path) not in json.dumps(portable)


LISTED = re.compile(r"^- (loom:[a-z-]+): (.*)$", re.MULTILINE)


def test_the_model_is_offered_each_skill_whole_and_once(assistant: Assistant) -> None:
    """In a real request each skill is listed with all of its description, and no command stands in its place."""
    turn = assistant.run("hello")
    listed = dict(LISTED.findall(turn.conversation[0].seen()))
    files = {path.parent.name: path for path in CHECKOUT.glob("skills/*/SKILL.md")}
    files["status"] = CHECKOUT / "commands" / "status.md"  # the one command that the model may start
    texts = {f"loom:{name}": path.read_text(encoding="utf-8") for name, path in files.items()}
    said = {name: re.findall(r"^description: (.*)$", text, re.MULTILINE)[0] for name, text in texts.items()}
    assert listed == said


def test_an_assistant_may_use_what_it_is_offered(assistant: Assistant) -> None:
    """A skill that the model chooses comes whole, its table of troubles too, and lets its commands run."""
    call = reply(tool("Skill", skill="loom:loom-run"))
    answers: list[Reply | str] = [call, reply(bash("loomctl run 258")), "Started."]
    turn = assistant.run("Please start on 258.", answers=answers, allowed_tools="Skill")
    holds(turn.conversation[1].seen(), "## When something goes wrong", "`HELD_BY_ANOTHER`")
    assert run_folder(assistant.project).name in turn.conversation[-1].seen()


def test_a_command_that_people_type_is_not_the_models_to_start(assistant: Assistant) -> None:
    call = reply(tool("Skill", skill="loom:run", args="258"))
    assistant.run("Please start on 258.", answers=[call, "No."], allowed_tools="Skill")
    assert run_folders(assistant.project) == []


def test_the_report_and_the_doctor_are_typed(in_run: InRun) -> None:
    assistant, first = in_run
    turn = assistant.run("/loom:report -o page.html", resume=first.session_id, answers=["There."])
    assert (assistant.project / "page.html").stat().st_size > 10_000
    assert "page.html" in turn.conversation[0].seen()
    turn = assistant.run("/loom:doctor", resume=first.session_id, answers=["Well."])
    holds(turn.conversation[0].seen(), "round-trip", "passed")


def test_a_command_of_an_unbound_session_without_runs_says_so(assistant: Assistant) -> None:
    turn = assistant.run("/loom:resume", allowed_tools=LOOMCTL_ALLOWED)
    assert "No active run" in turn.conversation[0].seen()
    turn = assistant.run("/loom:prime-context", answers=[reply(bash("loomctl prime-context")), "Told."])
    assert "No active run" in turn.conversation[1].seen()
    assert fingerprint(assistant.project) == {}
