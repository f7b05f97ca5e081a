"""The pages of the documentation: where they are, and the parts of them that come from the code.

Small parts stand in the pages, and `scripts/docs` keeps them as they should be. Large ones are made where the pages are
built: a mark says where each goes, and `scripts/docs` writes whole pages to `build/docs`.
"""

import os
import re
from pathlib import Path

from tests.helpers.scenes import CHECKOUT

DOCS = CHECKOUT / "docs"
BUILT = CHECKOUT / "build" / "docs"
WRITE = os.environ.get("LOOM_WRITE_DOCS") == "1"
"""Set by scripts/docs: write what was made instead of comparing it."""


def pages() -> list[Path]:
    return sorted([*CHECKOUT.glob("*.md"), *DOCS.rglob("*.md"), *CHECKOUT.glob("skills/*/*.md")])


def name(page: Path) -> str:
    return page.relative_to(CHECKOUT).as_posix()


def part(page: Path, title: str) -> str:
    """Give what stands in a page between the marks of a part that is written by scripts/docs."""
    match = _mark(title).search(page.read_text(encoding="utf-8"))
    assert match is not None, f"{name(page)} has no part {title!r}"
    return match["body"]


def hold(page: Path, title: str, body: str) -> None:
    """Hold a part of a page against what it should be; under scripts/docs, write it."""
    body = body.strip("\n")
    if WRITE:
        for target in (page, built(page)):
            text = target.read_text(encoding="utf-8")
            new = _mark(title).sub(lambda match: f"{match['begin']}\n\n{body}\n\n{match['end']}", text)
            if new != text:
                target.write_text(new, encoding="utf-8")
    assert part(page, title) == body, f"{name(page)}, part {title}: run scripts/docs"


def make(page: Path, title: str, body: str) -> None:
    """Check that a page has a place for a part that is not kept in it; under scripts/docs, build the page."""
    mark = f"<!-- {title}: made by scripts/docs -->"
    assert page.read_text(encoding="utf-8").count(mark) == 1, f"{name(page)} needs one line {mark}"
    assert body.strip()
    if WRITE:
        copy = built(page)
        copy.write_text(copy.read_text(encoding="utf-8").replace(mark, body.strip("\n")), encoding="utf-8")


def built(page: Path) -> Path:
    """Give a page's copy below build/, which scripts/docs made; a page outside docs/ has none of its own."""
    return BUILT / page.relative_to(DOCS) if page.is_relative_to(DOCS) else page


def _mark(title: str) -> re.Pattern[str]:
    begin, end = re.escape(f"<!-- {title}: written by scripts/docs -->"), re.escape(f"<!-- end of {title} -->")
    return re.compile(rf"(?P<begin>{begin})\n\s*(?P<body>.*?)\s*\n(?P<end>{end})", re.DOTALL)


def table(header: list[str], rows: list[list[str]]) -> str:
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in row) + " |" for row in cells
    )
