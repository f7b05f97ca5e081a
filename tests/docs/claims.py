"""The claims of the page on security, and the tests that show them: `@pytest.mark.shows("words of the page")`."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

from tests.docs.pages import DOCS, name
from tests.helpers.scenes import CHECKOUT

PAGE = DOCS / "explanation" / "security.md"
LINK = re.compile(r" \[✓\]\([^)]*\)")
TELLING = ("What is not claimed",)
"""Sections that claim nothing."""


class Shown(NamedTuple):
    """A test (its file in the checkout, its name) and the words of the page that it shows."""

    file: str
    test: str
    words: str


def shown() -> list[Shown]:
    return [
        Shown(name(path), node.name, mark)
        for path in sorted((CHECKOUT / "tests").rglob("test_*.py"))
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef)
        for mark in _marks(node)
    ]


def _tree(path: Path) -> ast.Module:
    text = path.read_text(encoding="utf-8")
    return ast.parse(text if "mark.shows(" in text else "")


def _marks(test: ast.FunctionDef) -> list[str]:
    return [
        str(ast.literal_eval(call.args[0]))
        for call in test.decorator_list
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.shows"
    ]


def plain(text: str) -> str:
    """Give the page's text without the links to tests."""
    return LINK.sub("", text)


def linked(text: str, marks: list[Shown]) -> str:
    """Give a plain text with a link to its test behind each claim, and behind the stop that follows it.

    Raises:
        AssertionError: A claim's words stand in the text never, or more than once.

    """
    links: dict[int, str] = {}
    for mark in marks:
        at = text.find(mark.words)
        assert at >= 0, f"{mark.file}::{mark.test} shows what the page does not say: {mark.words!r}"
        assert text.find(mark.words, at + 1) < 0, f"{mark.file}::{mark.test}: stands twice: {mark.words!r}"
        end = at + len(mark.words)
        end += len(text[end : end + 1].strip(" \n")) if text[end : end + 1] in tuple(".,;:)") else 0
        links[end] = links.get(end, "") + f' [✓](../../../{mark.file} "{mark.test}")'
    for end in sorted(links, reverse=True):
        text = text[:end] + links[end] + text[end:]
    return text


def unshown(text: str) -> list[str]:
    """Give each paragraph and point of a linked text, outside of the sections that only tell, that has no link."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return [
        block
        for section in sections
        if not section.startswith(TELLING)
        for block in re.split(r"\n\n|\n(?=- )", section.partition("\n")[2].strip())
        if not block.startswith("|") and not block.endswith(":") and not LINK.search(block)
    ]
