"""Every link of the documentation leads somewhere, and every page is found from the index."""

import re
from pathlib import Path

from tests.docs.pages import DOCS, name, pages
from tests.helpers.scenes import CHECKOUT
from tests.helpers.tables import each

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^(`{3,}).*?^\1$", re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = found.get(slug, 0)
        found[slug] = number + 1
        if number:
            found[f"{slug}-{number}"] = 1
    return set(found)


@each("page", pages())
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if "://" in target:
            assert target.startswith("https://"), target
            continue
        path, _, anchor = target.partition("#")
        leads_to = (page.parent / path).resolve() if path else page
        assert leads_to.exists(), f"{name(page)}: {target}"
        assert leads_to.is_relative_to(CHECKOUT), target
        if anchor:
            assert anchor in anchors(leads_to), f"{name(page)}: {target}"


def test_the_index_leads_to_every_page() -> None:
    """Nothing is written that nobody finds; decisions have an index of their own, which is made from them."""
    index = DOCS / "README.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(prose(index))}
    decisions = set((DOCS / "decisions").glob("D*.md")) | set((DOCS / "decisions").glob("[a-z]*.md"))
    assert {*DOCS.rglob("*.md")} - linked - decisions - {index} == set()


def test_every_picture_is_used_and_says_what_it_shows() -> None:
    for picture in DOCS.rglob("*.svg"):
        text = picture.read_text(encoding="utf-8")
        assert "<title" in text
        assert "<desc" in text
        assert any(
            (page.parent / target).resolve() == picture for page in pages() for target in LINK.findall(prose(page))
        )


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# `loomctl runs rm`\n## What, if?\n## What, if?\n```\n# none\n[x](y)\n```\n`[x](y)`\n")
    assert (anchors(page), LINK.findall(prose(page))) == ({"loomctl-runs-rm", "what-if", "what-if-1"}, [])
