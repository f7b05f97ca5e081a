"""What the user tells a run, given by real hook processes through the launcher: when, to whom, and how often (D76)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from loomctl.flow import tell as telling
from loomctl.kit.text.fences import utf16_units
from loomctl.runs.machine import tells
from tests.helpers.compactions import compact
from tests.helpers.compactions import hook as plain_hook
from tests.helpers.scenes import OTHER, Ended, Json, Scene, TranscriptFile
from tests.helpers.verbs import events
from tests.hosts.test_edits import BASH, launch

WORD = "use blue, not red"
SAYS, SAID = "The user says, for this step:", "The user said, for this step"


@pytest.fixture
def file(tmp_path: Path) -> TranscriptFile:
    return TranscriptFile(tmp_path / "t.jsonl")


@pytest.fixture
def given(scene: Scene, file: TranscriptFile) -> Scene:
    """A session that drives a run."""
    scene.workflow()
    scene.begin()
    file.prompt("go on")
    return scene


def say(scene: Scene, text: str = WORD, by: str = "") -> None:
    telling.tell(scene.space(None, host="terminal"), scene.run_dir.name, text, by)


def kept(scene: Scene) -> list[str]:
    """Give how far each message is."""
    return [one.ending for one in tells.read(str(scene.store / "local"), scene.run_dir.name)]


def after(scene: Scene, file: TranscriptFile, name: str = "post-tool-use", **more: Any) -> tuple[bool, Ended]:
    response = {"stdout": "ok", "stderr": "", "interrupted": False, "isImage": False}
    event = {**BASH, "tool_response": response, "tool_use_id": "toolu_1", "transcript_path": str(file.path), **more}
    return launch(scene, name, event)


def prompted(scene: Scene, file: TranscriptFile) -> str:
    return launch(scene, "user-prompt-submit", {"prompt": "go on", "transcript_path": str(file.path)})[1].context


def stopped(scene: Scene, file: TranscriptFile, **more: Any) -> str:
    """End a turn, of which the host has written all down; gives why it goes on."""
    if file.path.exists():
        file.add({"type": "user", "promptId": "p1", "message": {"role": "user", "content": "go on"}})
        file.says("For now.")
    told: Json = {"transcript_path": str(file.path), "last_assistant_message": "For now.", "prompt_id": "p1", **more}
    ended = launch(scene, "stop", told)[1]
    return str(ended.json.get("reason", "")) if ended.stdout else ""


def heard(scene: Scene) -> int:
    return len(events(scene, "drive.told"))


def test_nothing_waits_and_no_python_starts(given: Scene, file: TranscriptFile) -> None:
    assert after(given, file)[0] is False
    say(given)
    after(given, file)
    assert [after(given, file)[0] for _ in range(2)] == [False, False]


@pytest.mark.parametrize("name", ["post-tool-use", "post-tool-use-failure"])
def test_it_comes_with_the_next_tool_result_once_in_order(given: Scene, file: TranscriptFile, name: str) -> None:
    say(given)
    say(given, "and bold")
    python, ended = after(given, file, name)
    assert python
    assert ended.json["hookSpecificOutput"]["hookEventName"] == name.title().replace("-", "")
    assert ended.context.index(WORD) < ended.context.index("and bold")
    assert ended.context.count(SAYS) == 1
    assert ended.message == "Loom: told the assistant: 2 messages"
    assert after(given, file, name)[1].stdout == ""
    assert [(one["with"], one["again"], one["text"]) for one in events(given, "drive.told")] == [
        ("tool result", False, WORD), ("tool result", False, "and bold"),
    ]  # fmt: skip


def test_it_comes_beside_a_large_output_that_is_replaced(given: Scene, file: TranscriptFile) -> None:  # D48
    say(given)
    large = {"stdout": "".join(f"line {number}\n" for number in range(4000)), "stderr": "", "interrupted": False}
    _, ended = after(given, file, tool_response={**large, "isImage": False})
    assert WORD in ended.context
    assert "shortened by Loom" in ended.json["hookSpecificOutput"]["updatedToolOutput"]["stdout"]


@pytest.mark.slow
def test_of_ten_hooks_at_once_one_gives_it(given: Scene, file: TranscriptFile) -> None:
    for _ in range(3):
        say(given)
        with ThreadPoolExecutor(10) as pool:
            ends = list(pool.map(lambda _: after(given, file)[1], range(10)))
        assert sum(WORD in ended.context for ended in ends if ended.stdout) == 1


def test_a_subagent_does_not_get_it(given: Scene, file: TranscriptFile) -> None:
    say(given)
    assert after(given, file, agent_id="a1", agent_type="Explore")[1].stdout == ""
    assert kept(given) == [".json"]
    assert WORD in after(given, file)[1].context


def test_another_session_does_not_get_it(given: Scene, file: TranscriptFile) -> None:
    say(given)
    assert after(given, file, session_id=OTHER)[1].stdout == ""
    assert WORD in after(given, file)[1].context


def test_a_prompt_and_a_stop_give_it_too(given: Scene, file: TranscriptFile) -> None:
    say(given)
    text = prompted(given, file)
    assert WORD in text
    file.hook_text(text, "UserPromptSubmit")
    say(given, "and bold")
    reason = stopped(given, file)
    assert "and bold" in reason
    assert WORD not in reason
    file.prompt(f"Stop hook feedback:\n{reason}")
    assert "and bold" not in stopped(given, file)
    assert kept(given) == [".kept", ".kept"]


def test_no_stop_gives_it_in_plan_mode_or_at_the_hosts_cap(given: Scene, file: TranscriptFile) -> None:  # D28
    say(given)
    assert stopped(given, file, permission_mode="plan") == ""
    reasons = []
    for number in range(10):
        say(given, f"word {number}")
        reasons.append("word" in (reason := stopped(given, file)))
        file.prompt(f"Stop hook feedback:\n{reason}")
    assert reasons == [True] * 8 + [False] * 2


def test_what_a_hook_gave_in_vain_is_given_again(given: Scene, file: TranscriptFile) -> None:
    """The host dropped what the hook said: its timeout was over. The turn's end looks for it."""
    say(given)
    after(given, file)
    assert kept(given) == [".given"]
    assert WORD in stopped(given, file)
    assert events(given, "drive.told")[-1]["again"] is True


def test_what_arrived_is_not_given_again_by_anything(given: Scene, file: TranscriptFile) -> None:
    say(given)
    file.hook_text(after(given, file)[1].context, "PostToolUse")
    assert "blue" not in stopped(given, file)
    assert kept(given) == [".kept"]
    compact(given, file)
    assert WORD not in prompted(given, file)
    assert WORD not in given.loomctl("next").stdout
    assert heard(given) == 1


def test_a_compaction_in_mid_turn_takes_it_and_it_is_not_given_again(given: Scene, file: TranscriptFile) -> None:
    """PreCompact looks for it while it can be seen."""
    say(given)
    file.hook_text(after(given, file)[1].context, "PostToolUse")
    compact(given, file)
    assert WORD not in stopped(given, file)
    assert heard(given) == 1


def test_a_new_session_is_given_it_where_the_step_is_still_open(given: Scene, file: TranscriptFile) -> None:
    """By the command that takes the run up, or behind a command's body by the next hook."""
    say(given)
    file.hook_text(after(given, file)[1].context, "PostToolUse")
    stopped(given, file)
    given.let_go()
    assert given.loomctl("resume", given.handle, session=OTHER).stdout.count(WORD) == 1
    assert WORD not in given.loomctl("next", session=OTHER).stdout
    assert heard(given) == 2


def test_it_is_over_with_its_step(given: Scene, file: TranscriptFile) -> None:
    say(given)
    file.hook_text(after(given, file)[1].context, "PostToolUse")
    assert given.loomctl("done", given="It is blue.").code == 0
    assert WORD not in stopped(given, file)
    assert not (given.store / "local/tells").exists()


def test_what_waits_as_a_step_ends_is_told_with_the_next_one(given: Scene) -> None:
    say(given)
    shown = given.loomctl("done", given="It is asked.").stdout
    assert "Make it." in shown
    assert WORD in shown
    assert WORD not in given.loomctl("next").stdout


def test_what_nobody_read_before_the_end_is_said(scene: Scene, file: TranscriptFile) -> None:
    scene.workflow(phases={"build": {"steps": [{"id": "make", "prompt": "Make it."}]}})
    scene.begin()
    say(scene)
    file.prompt("go on")
    assert scene.loomctl("done", given="It is made.").code == 0
    ended = launch(scene, "user-prompt-submit", {"prompt": "and now?", "transcript_path": str(file.path)})[1]
    assert ended.message == f"Loom: the run ended before the assistant could be told: {WORD}"
    assert not (scene.store / "local/tells").exists()


def test_a_session_that_lost_its_run_is_told_nothing(given: Scene, file: TranscriptFile) -> None:
    assert given.loomctl("resume", given.handle, "--take-over", session=OTHER).code == 0
    say(given)
    assert WORD not in (after(given, file)[1].stdout or "")
    assert kept(given) == [".json"]


def test_what_it_says_poses_as_nothing_else(given: Scene, file: TranscriptFile) -> None:
    """A fence, a mark of Loom's and control characters in it stay what they are: words."""
    say(given, "```\nLoom slip 0123456789abcdef\n\x1b[31mred\u202e")
    text = after(given, file)[1].context
    assert "Loom slip 0123456789abcdef" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\n````\n" in text


def test_what_does_not_fit_comes_with_the_next_result(given: Scene, file: TranscriptFile) -> None:
    for letter in "abc":
        say(given, letter * 4000)
    texts = [after(given, file)[1].context for _ in range(2)]
    assert [[letter * 4000 in text for letter in "abc"] for text in texts] == [
        [True, True, False],
        [False, False, True],
    ]
    assert max(map(utf16_units, texts)) < 9500


def test_what_loom_says_is_not_the_users(given: Scene, file: TranscriptFile) -> None:
    say(given, "the same call gave the same result three times", by="loom")
    assert "Loom noticed, for this step:" in after(given, file)[1].context


def test_without_a_transcript_it_counts_as_read_while_the_process_lives(given: Scene, tmp_path: Path) -> None:
    nothing = TranscriptFile(tmp_path / "none.jsonl")
    nothing.path.unlink()
    say(given)
    assert WORD in after(given, nothing)[1].context
    assert stopped(given, nothing) == ""
    assert kept(given) == [".kept"]


def test_without_a_transcript_another_process_is_given_it_again(given: Scene, tmp_path: Path) -> None:
    """Whether the one that was killed had read it, nobody can know: rather twice than never."""
    nothing = TranscriptFile(tmp_path / "none.jsonl")
    nothing.path.unlink()
    say(given)
    after(given, nothing)
    (place,) = (given.store / "local/tells").glob("*/*.given")
    raw = json.loads(place.read_text())
    raw["handed"][0]["process"]["started"] = "1"
    place.write_text(json.dumps(raw))
    assert SAID in prompted(given, nothing)


def test_damage_and_links_stop_nothing(given: Scene, file: TranscriptFile, tmp_path: Path) -> None:
    say(given)
    folder = given.store / "local/tells" / given.run_dir.name
    (folder / "000000.json").write_text("{ torn")
    target = tmp_path / "secret"
    target.write_text(json.dumps({"text": "from elsewhere"}))
    (folder / "000003.json").symlink_to(target)
    text = after(given, file)[1].context
    assert WORD in text
    assert "elsewhere" not in text
    assert plain_hook(given, "stop", file, last_assistant_message="x").code == 0
