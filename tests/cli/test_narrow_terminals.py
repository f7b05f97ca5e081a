"""A terminal of 60 columns: prose fits it, and what people copy is in one piece."""

from __future__ import annotations

import re

import pytest

from loomctl.kit.text import fences
from tests.cli.terminal import at_a_terminal
from tests.helpers.scenes import Scene

# A path, a handle, code in quotes, a hint or a line of code: nobody can break it and copy it.
COPIED = re.compile(r"\s*(?:- )?\S+|    .*|  (?:hint|where): .*|(?:folder|RANK) .*|\s*`[^`]*`\S*|\s*loomctl .*")
CORE = ("--workflow", "core")
VERBS = [
    ("run", "add dark mode", *CORE), ("next",), ("status",), ("show",), ("show", "--why"), ("show", "--stages"),
    ("steps",), ("runs",), ("prove",), ("check", "core"), ("done", "--outcome", "failed"), ("undo",), ("pause",),
    ("resume",), ("approve",), ("status", "nowhere"), ("report",), ("init", "--from", "bugfix", "--yes"), ("--help",),
    ("cancel",), ("next",),
]  # fmt: skip


@pytest.mark.slow
def test_every_day_verbs_fit_sixty_columns(scene: Scene) -> None:
    for words in VERBS:
        seen = at_a_terminal(scene, *words, COLUMNS="60", NO_COLOR="1")
        assert "Traceback" not in seen
        wide = [line for line in seen.splitlines() if fences.width(line) > 60 and not COPIED.fullmatch(line)]
        assert (words, wide) == (words, [])


def test_what_an_assistant_or_a_dumb_terminal_gets_is_not_broken(scene: Scene) -> None:
    long = 'loomctl: NO_ACTIVE_RUN: No active run\n  why: loomctl run "what to do" starts one, loomctl resume RUN '
    for environ in ({"TERM": "dumb"}, {"CLAUDE_CODE_SESSION_ID": "x"}):
        assert long in at_a_terminal(scene, "status", COLUMNS="60", **environ)
    assert long not in at_a_terminal(scene, "status", COLUMNS="60")
