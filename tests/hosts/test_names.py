"""What assistants are called, and what they call their things, stands in `loomctl/hosts/` alone (D70)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

NAMES = re.compile(r"claude|codex|copilot|gemini|qwen|opencode", re.IGNORECASE)
# A row of the table, by its name; an example of a command line in a help text.
ROW = re.compile(r"\btable\.[A-Z]+\b|^from loomctl\.hosts\..*$")
EXAMPLE = re.compile(r"^ {6}(loomctl|claude) .*$")
PACKAGE = CHECKOUT / "loomctl"
SOURCES = [
    path
    for path in sorted(PACKAGE.rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts and path.relative_to(PACKAGE).parts[0] != "hosts"
]


@each("path", SOURCES)
def test_no_other_room_knows_an_assistant_by_its_name(path: Path) -> None:
    named = [
        line.strip()
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n")
        if NAMES.search(EXAMPLE.sub("", ROW.sub("", line)))
    ]

    assert named == []


def test_there_is_much_to_look_at() -> None:
    assert len(SOURCES) > 150
