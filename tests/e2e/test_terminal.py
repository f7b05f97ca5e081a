"""Once in a real terminal: what a person sees of Loom (design §5, point 4)."""

import pytest

from tests.e2e.assistant import Assistant
from tests.e2e.scenes import SENTENCE, done, state_of, write_plain, write_spec
from tests.e2e.terminal import PROMPT, assistant_terminal
from tests.helpers.scenes import handle

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tmux")]


@pytest.mark.quick
def test_a_person_sees_what_was_restored(installed: Assistant) -> None:
    """Installed from the marketplace, after /loom:run: /compact and /clear each say in one line what came back.

    The host calls the hook that follows a compaction here as it does without a terminal: receipts hang on it.
    """
    write_plain(installed.project)
    write_spec(installed.project)
    installed.api.script(done(artifact="spec_path=specs/dark-mode.md"), "The first step is done.", "On it.")
    with assistant_terminal(installed) as terminal:
        terminal.wait_for(PROMPT)
        terminal.enter('/loom:run "add dark mode" --workflow plain')
        terminal.wait_for("The first step is done.")
        run_id = state_of(installed.project)["run_id"]

        terminal.enter("/compact")
        terminal.wait_for(f"SessionStart:compact says: Loom: run {handle(run_id)}")
        terminal.wait_until((installed.project / ".loom/local/hooks/post-compact").exists)
        terminal.enter("/clear")
        terminal.wait_for(f"SessionStart:clear says: Loom: run {handle(run_id)}")
        terminal.enter("go on")
        terminal.wait_for("On it.")
        terminal.enter("/exit")

    after = [request for request in installed.api.requests if request.kind == "main"][-1]
    assert after.seen().count(SENTENCE) == 1
    assert len(state_of(installed.project)["sessions"]["session_history"]) == 2
