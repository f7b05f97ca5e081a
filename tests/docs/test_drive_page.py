"""The page of what a drive prints: each event with its keys, and each word that a drive ends for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import DOCS
from tests.helpers.fake_assistant import FakeAssistant, documents
from tests.helpers.scenes import CHECKOUT, Scene

PAGE = (DOCS / "reference" / "drive.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in row.strip("|").split("|")] for row in PAGE.splitlines() if row.startswith("| `")]


def verdicts() -> Iterator[str]:
    """Read the kinds of the verdicts that can end a drive, where the source spells them."""
    for path in sorted(CHECKOUT.glob("loomctl/drive/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Verdict":
                goes_on = isinstance(node.args[0], ast.Constant) and node.args[0].value is None
                if len(node.args) > 2 and isinstance(node.args[2], ast.Constant) and not goes_on:
                    yield str(node.args[2].value)


def test_every_kind_is_told() -> None:
    from loomctl.drive import rules

    told = {kind for row in ROWS if "." not in row[0] and row[0] != "`step`" for kind in re.findall(r"`(\w+)`", row[0])}
    assert set(verdicts()) | set(rules._WAITS) == told - {"waiting"}


@pytest.mark.slow
def test_every_event_has_the_keys_that_the_page_names(scene: Scene) -> None:
    scene.workflow(phases={"build": {"steps": [{"id": "one", "prompt": "Make it."}]}})
    scene.begin(session=None)
    fake = FakeAssistant(scene)
    fake.play('case $turn in 1) exit 3 ;; *) refused a "npm test"; over 0.1 ;; esac')
    try:
        out, _ = fake.drives(scene.handle, "--json", "--max-time", "1h", code=9)
    finally:
        fake.close()
    named = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[2])) for row in ROWS if row[1][:1].isalpha()}
    for one in documents(out):
        keys = set(one) - {"schema_version", "event"}
        assert keys <= named[one["event"]], one
    assert {one["event"] for one in documents(out)} == named.keys() - {"waiting"}
