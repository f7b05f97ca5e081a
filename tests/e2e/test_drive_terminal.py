"""What a person sees of a drive in a real terminal: one block that stays one, whatever the window's size."""

from __future__ import annotations

import re
import shlex
import sys

from tests.e2e.terminal import Terminal
from tests.helpers.fake_assistant import FakeAssistant
from tests.helpers.scenes import MAIN, Scene

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
