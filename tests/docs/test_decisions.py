"""Decisions are short records, one file each, in an index that is made from them."""

import re
from pathlib import Path

from tests.docs.pages import DOCS, make, table
from tests.helpers.scenes import CHECKOUT

INDEX = DOCS / "decisions" / "README.md"
LONGEST = 120 * 15
"""Characters of a record: fifteen lines."""
PART = re.compile(r"\*\*(Context|Decision|Consequence)\.\*\* \S")


def records() -> list[Path]:
    return sorted(set(INDEX.parent.glob("*.md")) - {INDEX}, key=lambda path: (numbers(path)[:1], path.name))


def numbers(path: Path) -> list[int]:
    match = re.match(r"D(\d+)(?:-D(\d+))?-", path.name)
    return [] if match is None else list(range(int(match[1]), int(match[2] or match[1]) + 1))


def test_a_record_is_short_and_says_what_was_decided() -> None:
    for path in records():
        title, *parts = path.read_text(encoding="utf-8").strip().split("\n\n")
        assert title.startswith("# "), path.name
        assert PART.match(parts[0]), path.name
        assert any(part.startswith("**Decision.**") for part in parts), path.name
        assert sum(map(len, parts)) <= LONGEST, path.name


def test_the_index_names_every_record() -> None:
    rows = [
        [f"[{title.removeprefix('# ')}]({path.name})"]
        for path in records()
        for title in path.read_text(encoding="utf-8").splitlines()[:1]
    ]
    make(INDEX, "index", table(["decision"], rows))


def test_a_number_that_is_cited_has_a_record() -> None:
    known = {number for path in records() for number in numbers(path)}
    sources = [
        path
        for folder in ("loomctl", "tests", "bin", "docs", "benchmarks", "scripts")
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and path.suffix in (".py", ".md", "") and "__pycache__" not in path.parts
    ]
    cited = {
        int(number): path
        for path in sources
        for number in re.findall(r"\(D(\d{1,2})(?=[,)])", path.read_text(encoding="utf-8", errors="replace"))
    }
    assert {number: str(path) for number, path in cited.items() if number not in known} == {}
