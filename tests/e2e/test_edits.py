"""An edit of a file that the real assistant was given is told to it once, with its next prompt or tool result (D80)."""

import pytest

from tests.e2e.assistant import Assistant
from tests.e2e.scenes import SPEC, InRun, done, write_plain, write_spec
from tests.e2e.scripted_api import Reply, Request, bash, reply, tool
from tests.e2e.terminal import PROMPT, assistant_terminal
from tests.priming.test_text_diff import applied

TOLD = "Changes since you were given the file"
ONCE = SPEC.replace("Decision 15: element 15", "Decision 15: the footer")
TWICE = ONCE.replace("Decision 22: element 22", "Decision 22: the header")


def told(request: Request) -> list[str]:
    return [part.partition("```diff\n")[2].partition("```")[0] for part in request.seen().split(TOLD)[1:]]


@pytest.mark.quick
def test_an_edit_in_a_turn_is_told_once_and_the_assistants_own_is_not(in_run: InRun) -> None:
    """By a shell command with its own result; by the file tools it is in the conversation already."""
    assistant, first = in_run
    path = write_spec(assistant.project, ONCE)
    edit = {"old_string": "Decision 22: the header", "new_string": "Decision 22: the menu"}
    asked: list[Reply | str] = [
        reply(bash("sed -i 's/Decision 22: element 22/Decision 22: the header/' specs/dark-mode.md")),
        reply(tool("Read", file_path=str(path))),
        reply(tool("Edit", file_path=str(path), **edit)),
        "done",
    ]
    turn = assistant.run(
        "change it", resume=first.session_id, answers=asked, allowed_tools="Bash Read Edit", watch_hooks=True
    )
    assert "the menu" in path.read_text(encoding="utf-8")
    before, *later = [told(request) for request in turn.conversation[-4:]]
    assert [len(one) - len(before) for one in later] == [1, 1, 1]
    assert applied(ONCE, later[-1][-1]) == TWICE
    assert [line for line in turn.told_user() if "told the assistant" in line] == [
        "Loom: specs/dark-mode.md changed; Loom told the assistant."
    ]


@pytest.mark.usefixtures("tmux")
def test_an_edit_between_prompts_is_told_with_the_next_one(installed: Assistant) -> None:
    """In a terminal, where a session has several; the user sees it, and a prompt before it starts no Python."""
    write_plain(installed.project)
    spec = write_spec(installed.project)
    work = installed.project / ".loom/local/hooks/user-prompt-submit.work"
    answers = ("The first step is done.", "Heard one.", "Heard two.", "Heard three.", "Heard four.")
    installed.api.script(done(artifact="spec_path=specs/dark-mode.md"), *answers)
    with assistant_terminal(installed) as terminal:
        terminal.wait_for(PROMPT)
        terminal.enter('/loom:run "add dark mode" --workflow plain')
        terminal.wait_for(answers[0])
        terminal.enter("/compact")
        terminal.wait_for("SessionStart:compact says: Loom: run")
        terminal.wait_until((installed.project / ".loom/local/hooks/post-compact").exists)
        terminal.enter("go on")
        terminal.wait_for(answers[1])
        work.unlink()
        terminal.enter("and on")
        terminal.wait_for(answers[2])
        silent = not work.exists()
        spec.write_text(SPEC + "One line by hand.\n", encoding="utf-8")
        terminal.enter("what changed?")
        terminal.wait_for(answers[3])
        terminal.wait_for("specs/dark-mode.md changed; Loom told the assistant.")
        terminal.enter("go on again")
        terminal.wait_for(answers[4])
        terminal.enter("/exit")
    assert silent
    requests = [request for request in installed.api.requests if request.kind == "main"]
    told_in = [len([diff for diff in told(request) if "+One line by hand." in diff]) for request in requests[-3:]]
    assert told_in == [0, 1, 1]
