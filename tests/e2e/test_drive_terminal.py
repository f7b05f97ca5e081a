"""What a person sees of a drive in a real terminal, and how they take it over in an assistant's."""

from __future__ import annotations

import json
import re
import shlex
import sys
import threading

import pytest

from tests.e2e.assistant import TIME_LIMIT
from tests.e2e.drives import DIRECTIVE, Drive
from tests.e2e.scripted_api import bash, reply
from tests.e2e.terminal import PROMPT, Terminal, assistant_terminal
from tests.helpers.fake_assistant import FakeAssistant
from tests.helpers.scenes import MAIN, Scene
from tests.helpers.waiting import until

STEPS = [{"id": "one", "prompt": "Make it."}, {"id": "two", "prompt": "Look at it."}]
LONG = "npm run a-script-with-a-name-that-no-narrow-terminal-has-room-for -- --and-more --of-it"
KEYS = "Ctrl-C ends it after this"


def silence(screen: str) -> int:
    """Read for how many seconds the assistant was silent, as the block says."""
    found = re.findall(r"^  silence +(\d+) s", screen, re.MULTILINE)
    return int(found[-1]) if found else -1


def wait_for_another(terminal: Terminal) -> None:
    """Wait until the block was drawn again, with another second of silence."""
    before = silence(terminal.visible())
    terminal.wait_until(lambda: silence(terminal.visible()) > before)


def is_one_block(screen: str) -> bool:
    counts = [
        len(re.findall(rf"^  {label} ", screen, re.MULTILINE)) for label in ("run", "step", "turn", "last", "cost")
    ]
    return counts == [1] * 5 and screen.count(KEYS) == 1


def test_the_block_stays_one_and_ctrl_c_ends_it(scene: Scene) -> None:
    scene.workflow(phases={"build": {"steps": STEPS}})
    scene.begin(session=None)
    fake = FakeAssistant(scene)
    fake.play(f'calls a "{LONG}"; sleep 60; over 0.1')
    drive = shlex.join([sys.executable, "-I", str(MAIN), "drive", scene.handle, "--max-cost", "5"])
    environment = {**scene.environ(None), "PATH": fake.path}
    with Terminal(
        ["sh", "-c", f"trap : INT; {drive}; echo code $?; cat"], cwd=scene.root, environment=environment
    ) as terminal:
        terminal.wait_for("turn 1 begins", KEYS, "0 s ago: Bash npm run")
        for wide in (60, 34, 100):
            terminal.resize(wide, 20)
            for _ in range(2):  # it was drawn in the new size, and over that
                wait_for_another(terminal)
                assert is_one_block(terminal.visible()), terminal.screen()
        terminal.press("C-c")
        terminal.wait_for("Ends after this step.")
        terminal.press("C-c")
        assert "you ended the driver" in terminal.wait_for("code 130")
        assert KEYS not in terminal.visible()
        assert terminal.screen().count(KEYS) <= 3  # what a resize moved out of sight stays there
    fake.close()


@pytest.mark.usefixtures("tmux")
def test_a_person_takes_over_after_the_step_in_an_assistant_of_their_own(drive: Drive) -> None:
    """Its turn would go on to the run's end: the host's stop hands on from step to step."""
    works, over = threading.Event(), threading.Event()
    api = drive.assistant.api
    api.script(reply(DIRECTIVE, held=works))
    driver = drive.start("drive", "make a file", "--workflow", "two")
    until(lambda: api.requests)
    handle = json.loads(drive.loomctl("show", "--json"))["handle"]
    with assistant_terminal(drive.assistant) as terminal:
        terminal.wait_for(PROMPT)
        api.script("You have to wait for it.")
        terminal.enter(f"/loom:resume {handle}")
        screen = " ".join(terminal.wait_for("You have to wait for it.").split())
        assert f"or take it over: loomctl resume {handle}. Nothing" in screen
        told = api.requests[-1].news()
        assert "Loom has asked it to end after this step" in told
        assert f"hint: loomctl resume {handle}\n" in told

        api.script(reply("Never said.", held=over))
        works.set()
        out, err = driver.communicate(timeout=TIME_LIMIT)
        over.set()
        assert driver.returncode == 9, out + err
        assert "Ends after this step." in err
        assert [one["status"] for one in drive.state()["steps"]] == ["succeeded", "in_progress"]

        api.script(reply(bash("loomctl next")), DIRECTIVE)
        terminal.enter(f"/loom:resume {handle}")
        terminal.wait_until(lambda: drive.state()["status"] == "completed")
        terminal.enter("/exit")
