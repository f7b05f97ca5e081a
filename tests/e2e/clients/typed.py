"""A session of an assistant that its user types at, for those that are alike in it."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from tests.e2e.clients.client import Client, Talk, Turn, wait_until
from tests.e2e.clients.models import Says
from tests.e2e.terminal import Terminal

_marks = itertools.count(1)


class TypedTalk(Talk):
    """Each answer ends with a word of its own, by which the end of the turn is seen."""

    ready = "Type your message"
    """What stands on the screen where it waits for its user."""
    compacts, compacted = "/compress", "ompressed"
    """How its user compacts, and what it says then."""

    def __init__(self, client: Client, terminal: Terminal, chats: str = "") -> None:
        self.client, self.terminal, self.chats = client, terminal, chats
        self.mark = "Word"

    def say(self, prompt: str, *answers: Says | str) -> Turn:
        before, mark = len(self.client.model.requests), f"Word{next(_marks)}end"
        self.mark = mark
        given = answers or ("OK",)
        last = given[-1] if isinstance(given[-1], Says) else Says(given[-1])
        self.client.model.script([*given[:-1], Says(f"{last.words} {mark}", last.shell, last.tokens)])
        self.terminal.wait_for(self.ready)
        self.type(prompt, before)
        self.terminal.wait_for(mark, within=120)
        self.terminal.wait_for(self.ready)
        return Turn(self.session(), self.client.asked(before), self.terminal.screen())

    def compact(self) -> None:
        before = len(self.client.model.requests)
        self.terminal.wait_for(self.ready)
        self.type(self.compacts, before)
        wait_until(lambda: [one for one in self.client.asked(before) if one.kind == "compaction"], "compacted")
        self.terminal.wait_for(self.compacted)

    def clear(self) -> None:
        self.terminal.wait_for(self.ready)
        self.type("/clear")
        self.terminal.wait_until(
            lambda: self.mark not in self.terminal.screen()
        )  # it takes what is typed meanwhile, too
        self.terminal.wait_for(self.ready)

    def type(self, line: str, before: int = -1) -> None:
        """Type a line and send it: an Enter that comes with the words passes for a paste's.

        before: the requests so far, of which there are more once it is sent.
        """
        self.terminal.type(line)
        self.terminal.wait_for(line[-20:])
        for _ in range(8):
            time.sleep(0.5)
            self.terminal.press("Enter")
            deadline = time.monotonic() + 4
            while before >= 0 and time.monotonic() < deadline:
                if len(self.client.model.requests) > before:
                    return
                time.sleep(0.1)
            if before < 0:
                return

    def session(self) -> str:
        """Give the id of the newest chat."""
        newest = max(self.client.home.glob(self.chats), key=lambda path: path.stat().st_mtime)
        return session_in(newest)


def session_in(chat: Path) -> str:
    """Give the session's id in the first line of its chat."""
    import json

    with chat.open(encoding="utf-8") as lines:
        return str(json.loads(next(lines))["sessionId"])
