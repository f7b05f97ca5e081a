"""`loomctl drive RUN -- COMMAND`: any command as the hand that does a run's steps (D73)."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.terminal import loomctl
from tests.helpers.scenes import Ended, Scene, artifact
from tests.helpers.scenes import run as run_of

SPEC = "".join(f"Rule {number}: the lamp {number * 7919 % 10007} is blue.\n" for number in range(2_000))  # 60 kB
ONE, TWO = {"id": "one", "prompt": "Hang the lamp."}, {"id": "two", "prompt": "Look at the lamp."}
KEEPS = 'cat > "seen-$(basename "$LOOM_STEP_ID")-$(ls | grep -c seen)"; '


class Hand:
    """A project whose run is driven by shell scripts."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def begin(self, *steps: dict[str, Any], **more: Any) -> None:
        self.scene.workflow(phases={"build": {"steps": list(steps)}}, **more)
        self.scene.begin(session=None)

    def drive(self, script: str, *options: str, code: int = 0) -> str:
        return self.call(self.scene.handle, *options, "--", "sh", "-c", script, code=code)

    def call(self, *words: str, code: int = 0) -> str:
        ended: Ended = run_of(loomctl("drive", *words), cwd=self.scene.root, environ=self.scene.environ(None))
        assert ended.code == code, ended
        return ended.stdout + ended.stderr

    def seen(self, name: str) -> str:
        (found,) = self.scene.root.glob(f"seen-{name}")
        return found.read_text(encoding="utf-8")

    def result(self, number: int) -> str:
        (found,) = self.scene.run_dir.glob(f"stages/{number:03}-*/response.md")
        return found.read_text(encoding="utf-8")

    def turns(self) -> list[dict[str, Any]]:
        return [one["properties"] for one in self.scene.events() if one["event"] == "turn.ended"]


@pytest.fixture
def hand(scene: Scene) -> Hand:
    return Hand(scene)


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program"])
def test_for_a_command_that_is_not_there_no_run_is_begun(hand: Hand, program: str) -> None:
    assert f"NO_ASSISTANT: the command could not be started: there is no {program}\n" in hand.call(
        "make it", "--", program, code=1
    )
    assert hand.scene.run_dirs == []


def test_each_step_is_given_with_all_that_its_conversation_must_have(hand: Hand) -> None:
    """Each command is a new conversation, so nothing counts as given before, and no host's limit cuts it."""
    hand.scene.write("spec.md", SPEC)
    hand.begin(ONE, TWO, artifacts=[artifact("spec", "spec.md")])
    said = hand.drive(f"{KEEPS} echo; echo 'It hangs.'; printf ' by door seven'")
    assert "completed" in said
    for name, words in (("one-0", "Hang the lamp."), ("two-1", "Look at the lamp.")):
        assert SPEC in hand.seen(name)
        assert words in hand.seen(name)
        assert "Answer with the step's result" in hand.seen(name)
    assert "It hangs." in hand.seen("two-1")  # what the step before came to
    assert hand.result(1).strip("\n") == "It hangs.\n by door seven"
    assert [one["class"] for one in hand.turns()] == ["done", "done"]
    assert {one["cost"] for one in hand.turns()} == {None} or {one["cost"] for one in hand.turns()} == {0.0}


@pytest.mark.slow
def test_an_answer_that_does_not_fit_is_asked_for_again(hand: Hand) -> None:
    schema = {"type": "object", "required": ["lamps"], "properties": {"lamps": {"type": "integer"}}}
    hand.scene.write(".loom/workflows/lamps.json", json.dumps(schema))
    hand.begin({**ONE, "output_schema": "@lamps.json", "output_retries": 3})
    script = (
        'given=$(cat); case $given in *"did not take your last answer"*) '
        """case $(ls tries 2>/dev/null) in "") touch tries; echo 'none';; *) echo '{"lamps": 3}';; esac;; """
        "*) echo 'Three lamps.';; esac"
    )
    hand.drive(script)
    assert hand.scene.state["status"] == "completed"
    assert len(hand.turns()) == 3
    assert "3" in hand.result(1)


@pytest.mark.slow
def test_what_is_wanted_as_evidence_is_asked_for(hand: Hand) -> None:
    hand.begin({**ONE, "evidence": [{"run": "test -f lamp"}]})
    hand.scene.loomctl("trust", hand.scene.handle, "--yes", session=None)
    hand.drive(f"{KEEPS} test -f seen-one-1 && touch lamp; echo 'It hangs.'")
    assert hand.scene.state["status"] == "completed"
    assert "did not take your last answer" in hand.seen("one-1")


@pytest.mark.slow
def test_what_fails_is_tried_again(hand: Hand) -> None:
    hand.begin(ONE)
    said = hand.drive("echo half; test -f once && exit 0; touch once; echo 'no lamp' >&2; exit 3")
    assert "completed" in said
    first, second = hand.turns()
    assert (first["class"], second["class"]) == ("infra", "done")
    assert "exit code 3: no lamp" in first["why"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "silence", "said"),
    [
        ("exit 3", "8s", "exit code 3"),
        ("kill -9 $$", "8s", "was killed"),
        ("sleep 6161 & sleep 6161", "1s", "nothing was heard"),
    ],
)
def test_what_fails_or_hangs_ends_at_its_limits_and_leaves_nothing(
    hand: Hand, script: str, silence: str, said: str
) -> None:
    hand.begin(ONE)
    told = hand.drive(script, "--silence", silence, "--max-time", "9s", code=9)
    assert said in told
    assert said in hand.turns()[-1]["why"]
    assert hand.turns()[-1]["seconds"] < 1 + 15
    assert not [one for one in psutil.process_iter(["cmdline"]) if "6161" in (one.info["cmdline"] or ())]
    assert hand.scene.state["lease"]["session_id"] is None


@pytest.mark.slow
def test_what_it_prints_as_it_works_is_a_sign_of_life(hand: Hand) -> None:
    hand.begin(ONE)
    hand.drive("for at in 1 2 3 4 5 6 7 8 9; do echo . >&2; sleep 0.5; done; echo 'It hangs.'", "--silence", "4s")
    assert [one["class"] for one in hand.turns()] == ["done"]


@pytest.mark.slow
def test_a_command_that_gives_no_result_leads_nowhere(hand: Hand) -> None:
    hand.begin(ONE)
    said = hand.drive("cat > /dev/null; echo", code=9)
    assert "2 turns in a row led nowhere" in said
    assert hand.scene.state["status"] == "awaiting_feedback"
    hand.drive("echo 'It hangs.'", code=9)  # a question needs its answer first
    hand.scene.loomctl("tell", hand.scene.handle, "Say whether it hangs.", session=None).ends()
    assert "completed" in hand.drive(f"{KEEPS} echo 'It hangs.'")
    assert "Say whether it hangs." in hand.seen("one-0")


@pytest.mark.slow
def test_who_decides_is_waited_for_without_a_process(hand: Hand) -> None:
    hand.begin(ONE, {"id": "gate", "kind": "human", "prompt": "Is it good?"}, TWO)
    said = hand.drive("echo 'It hangs.'", code=9)
    assert "waits for your decision" in said
    assert len(hand.turns()) == 1
    hand.scene.loomctl("approve", hand.scene.handle, session=None).ends()
    assert "completed" in hand.drive("echo 'I looked.'")


@pytest.mark.slow
def test_a_run_that_stands_still_goes_on(hand: Hand) -> None:
    hand.begin(ONE, TWO)
    assert "failed" in hand.drive("""echo '{"outcome": "failed", "failure_reason": "no ladder"}'""", code=1)
    assert hand.scene.state["status"] == "failed"
    hand.scene.loomctl("resume", hand.scene.handle, session=None)
    hand.scene.loomctl("pause", hand.scene.handle, session=None)
    assert "completed" in hand.drive("echo 'It hangs.'")


@pytest.mark.slow
def test_commands_of_the_run_are_run_by_the_driver(hand: Hand) -> None:
    hand.begin(ONE, {"id": "test", "run": "echo tested >> log; sleep 0.2"}, TWO)
    hand.scene.loomctl("trust", hand.scene.handle, "--yes", session=None)
    hand.drive("echo 'It is so.'")
    assert (hand.scene.root / "log").read_text(encoding="utf-8") == "tested\n"
    assert len(hand.turns()) == 2


@pytest.mark.slow
def test_a_command_of_the_run_is_waited_for_no_longer_than_the_limit(hand: Hand) -> None:
    """It goes on by itself, as behind `loomctl next`, and the next driver waits for it."""
    hand.begin({"id": "test", "run": "until test -f enough; do sleep 0.1; done"}, ONE)
    hand.scene.loomctl("trust", hand.scene.handle, "--yes", session=None).ends()
    assert "the time limit of 1 s is reached" in hand.drive("echo 'It is so.'", "--max-time", "1s", code=10)
    assert not hand.turns()
    hand.scene.write("enough", "")
    assert "completed" in hand.drive("echo 'It is so.'")


@pytest.mark.slow
def test_branches_are_worked_on_one_after_the_other(hand: Hand) -> None:
    fan = [{"id": name, "steps": [{"id": "look", "prompt": f"Look {name}."}]} for name in ("up", "down")]
    hand.begin({"id": "fan", "parallel": {"branches": fan}}, TWO)
    hand.drive("cat >> seen-all; echo 'I looked.'")
    told = hand.seen("all")
    assert told.index("Look up.") < told.index("Look down.") < told.index("Look at the lamp.")
    assert hand.scene.state["status"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize(
    "before", ["", 'env -i PATH="$PATH" HOME="$HOME" LOOM_STATE_HOME="$LOOM_STATE_HOME" setsid -w ']
)
def test_what_is_driven_decides_nothing_and_drives_nothing(hand: Hand, before: str) -> None:
    """Nobody is there who could have been asked, whatever it takes from its environment."""
    hand.begin(ONE, {"id": "gate", "kind": "human", "prompt": "Is it good?"})
    own = " ".join(map(shlex.quote, loomctl()))
    script = f"""
        echo 'It hangs.' | {own} done >> said 2>&1
        {before}{own} approve >> said 2>&1
        {before}{own} tell {hand.scene.handle} 'go on' >> said 2>&1
        {before}{own} drive 'new work' --workflow tiny -- touch pwned >> said 2>&1
        echo 'It hangs.'
    """
    hand.drive(script, code=9)
    said = (hand.scene.root / "said").read_text(encoding="utf-8")
    assert said.count("ASK_FIRST") == 3, said
    assert hand.scene.state["status"] == "awaiting_feedback"  # and there is no other run
    assert not (hand.scene.root / "pwned").exists()


@pytest.mark.slow
def test_what_is_driven_writes_no_settings_by_way_of_loom(hand: Hand) -> None:
    """Who drives allows all of `loomctl`: what that writes on demand is held as its assistant's own edits are."""
    hand.begin(ONE)
    own = " ".join(map(shlex.quote, loomctl()))
    far = hand.scene.root.parent / "far"
    called = hand.scene.handle
    calls = [
        *("graph --output .claude/settings.json", f"graph --output {far}", f"dump {called} ../far"),
        *("report -o .git/hooks/post-commit", "show --assets cp linked/x", f"runs archive {called} --force --to {far}"),
        "debug blob get blob://sha256/0 --out .mcp.json",
    ]
    lines = "\n".join(f"{own} {call} >> said 2>&1" for call in calls)
    hand.drive(f"mkdir .claude .git; ln -s .claude linked; {lines}\n{own} report -o page.html; echo 'It hangs.'")
    said = (hand.scene.root / "said").read_text(encoding="utf-8")
    assert said.count("ASK_FIRST") == len(calls), said
    assert not far.exists()
    assert not list((hand.scene.root / ".claude").iterdir())
    assert (hand.scene.root / "page.html").exists()


@pytest.mark.slow
def test_the_command_knows_its_step_and_may_end_it_itself(hand: Hand) -> None:
    """It works for the driver, as what an assistant starts does; what it prints then is no second result."""
    hand.begin(ONE, TWO)
    own = " ".join(map(shlex.quote, loomctl()))
    script = f"""
        env | grep -E '^LOOM_(RUN_ID|STEP_ID|STAGE_DIR|DRIVEN)=' >> names
        {own} context set lamp blue >> said 2>&1
        echo 'By my own word.' | {own} done >> said 2>&1
        echo 'And by the way.'
    """
    hand.drive(script)
    named = dict(line.split("=", 1) for line in (hand.scene.root / "names").read_text(encoding="utf-8").splitlines())
    run_id = hand.scene.state["run_id"]
    assert (named["LOOM_RUN_ID"], named["LOOM_STEP_ID"]) == (run_id, "build/two")
    assert Path(named["LOOM_STAGE_DIR"]).parent == hand.scene.run_dir / "stages"
    assert named["LOOM_DRIVEN"].startswith(f"{run_id} ")
    assert hand.scene.state["context"]["lamp"] == "blue"
    assert [hand.result(number).strip() for number in (1, 2)] == ["By my own word."] * 2
    assert len(hand.turns()) == 2


@pytest.mark.slow
def test_what_its_user_tells_is_in_the_next_prompt_of_the_step(hand: Hand) -> None:
    """Each command is a new conversation: one that is tried again is told again, and the next step's is not."""
    hand.begin(ONE, TWO)
    hand.scene.loomctl("tell", hand.scene.handle, "Use the blue one.", session=None).ends()
    hand.drive(f"{KEEPS} test -f once || {{ touch once; exit 1; }}; echo 'It hangs.'")
    assert hand.seen("one-0").count("Use the blue one.") == hand.seen("one-1").count("Use the blue one.") == 1
    assert "Use the blue one." not in hand.seen("two-2")
    assert "The user says, for this step:" in hand.seen("one-0")


@pytest.mark.slow
def test_what_a_workflow_allows_is_said_to_change_nothing(hand: Hand) -> None:
    hand.begin({**ONE, "allow": ["Bash(npm test:*)"]})
    hand.scene.loomctl("trust", hand.scene.handle, "--yes", session=None).ends()
    assert "The command takes no rules" in hand.drive("echo 'It hangs.'")


@pytest.mark.slow
def test_a_driver_that_is_killed_takes_the_command_along(hand: Hand) -> None:
    hand.begin(ONE)
    words = loomctl("drive", hand.scene.handle, "--", "sh", "-c", "touch begun; sleep 6262; echo late")
    driver = subprocess.Popen(words, cwd=hand.scene.root, env=hand.scene.environ(None), stdout=subprocess.DEVNULL)
    while not (hand.scene.root / "begun").exists():
        assert driver.poll() is None
        time.sleep(0.02)
    assert "HELD_BY_ANOTHER" in hand.drive("echo 'Me, too.'", code=6)
    driver.kill()
    driver.wait()
    assert "completed" in hand.drive("echo 'It hangs.'")
    assert not [one for one in psutil.process_iter(["cmdline"]) if "6262" in (one.info["cmdline"] or ())]
    assert hand.result(1).strip() == "It hangs."


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "codex", "--", "cat"], "give one of them"),
        (["--"], "no command behind --"),
        (["--max-cost", "5", "--", "cat"], "NO_COST"),
        (["--allow", "Write", "--", "cat"], "NO_RULES"),
        (["--host", "gemini"], "such as `-- gemini --approval-mode auto_edit`"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_begins(words: list[str], said: str, scene: Scene) -> None:
    hand = Hand(scene)
    hand.begin(ONE)
    before = scene.event_names()
    told = hand.call(scene.handle, *words, code=2)
    assert said in told
    assert scene.event_names() == before


@pytest.mark.slow
def test_a_command_that_is_not_there_is_named(hand: Hand) -> None:
    hand.begin(ONE)
    assert "no-such-program" in hand.call(hand.scene.handle, "--", "no-such-program", code=1)
    assert hand.scene.state["lease"]["session_id"] is None
