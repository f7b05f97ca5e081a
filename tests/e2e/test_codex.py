"""What Codex CLI alone does: a sandbox, and little room for what a command prints."""

import json

import pytest

from tests.e2e import scenes
from tests.e2e.clients.codex import Codex
from tests.e2e.clients.machines import Machines
from tests.e2e.clients.models import Says
from tests.e2e.promises import begun, counts, facts, flow


@pytest.fixture
def codex(machines: Machines) -> Codex:
    return machines.of(Codex)


def test_a_large_file_follows_the_command_that_takes_the_run_up(codex: Codex) -> None:
    """Of a command's output 10 kB reach the model, and of what a hook says beside it 38,000 characters."""
    lines = facts("the rule")
    begun(codex, "\n".join(lines))
    codex.silence_hooks()
    codex.tell("hello")  # a session that was given nothing
    codex.trusted = Codex.trusted
    turn = codex.tell("Take it up.", Says(shell="loomctl resume"), "It goes on.")
    assert counts(turn.conversation[-1], lines) == {1}


def test_a_run_is_known_to_its_machine_though_the_sandbox_shuts_the_users_folders(codex: Codex) -> None:
    begun(codex)
    (noted,) = (codex.home / ".local" / "state" / "loom" / "runs").iterdir()
    assert scenes.state_of(codex.project)["run_id"] in noted.read_text(encoding="utf-8")


def test_a_terminal_leaves_the_run_of_another_one_alone(codex: Codex) -> None:
    """All of them have their hooks called by one process in the background, unless they are started without it."""
    codex.trust()
    flow(codex, 2)
    try:
        with codex.open() as first, codex.open() as second:
            begins = Says(shell="loomctl run 'two things' --workflow flow")
            driver = first.say("begin", begins, "I begin.").session_id
            assert "is driven by" in second.say("hello").conversation[0].seen()
            second.clear()
            assert "is driven by" in second.say("hello again").conversation[0].seen()
            first.say("go on")
            first.clear()
            after = first.say("and on")
            assert "Do part 1." in after.conversation[0].seen()
        assert after.session_id != driver
        assert scenes.state_of(codex.project)["sessions"]["current_session_id"] == after.session_id
    finally:
        codex.end_background()


@pytest.mark.parametrize("command", ["loomctl approve", "env -u CODEX_THREAD_ID -u CODEX_SESSION_ID loomctl cancel"])
def test_what_a_person_decides_is_refused_where_nobody_is_asked(command: str, codex: Codex) -> None:
    """Its hooks cannot have it ask its user, so nobody counts as asked (D68); its sandbox tells on who hides that."""
    turn = begun(codex)
    after = codex.tell("go on", Says(shell=f"{command} 2>&1"), "Done.", session=turn.session_id)
    assert "ASK_FIRST" in after.conversation[-1].seen()


def test_the_sandbox_says_where_loom_is_set_up(codex: Codex, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = begun(codex)
    monkeypatch.setattr(codex, "cache", codex.root / "empty")
    after = codex.tell("go on", Says(shell="loomctl status 2>&1"), "Done.", session=turn.session_id)
    assert "in a terminal of your own it can be made, once" in after.conversation[-1].seen()


def test_a_patch_that_its_shell_is_given_is_recorded(codex: Codex) -> None:
    """It applies that itself, and of its hooks the one before the call alone is called."""
    patch = "*** Begin Patch\n*** Add File: src/new.py\n+x = 1\n*** Update File: README.md\n@@\n-# A project\n+# Mine\n"
    turn = begun(codex)
    given = Says(shell=f"apply_patch <<'EOF'\n{patch}*** End Patch\nEOF")
    codex.tell("patch it", given, "I did.", session=turn.session_id)
    assert (codex.project / "src" / "new.py").read_text(encoding="utf-8") == "x = 1\n"
    step = json.loads(codex.loomctl("steps", "--json"))["steps"][-1]
    assert step["tool_name"] == "apply_patch"
    assert step["minimal_args"]["paths"] == ["src/new.py", "README.md"]
