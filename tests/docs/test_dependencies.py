"""The page of dependencies names what Loom runs with, and nothing else."""

import re

from tests.docs.pages import DOCS
from tests.helpers.scenes import CHECKOUT

PAGE = DOCS / "reference" / "dependencies.md"


def declared() -> list[str]:
    text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition("\ndependencies = [\n")[2].partition("\n]\n")[0]
    return re.findall(r'^ *"([A-Za-z0-9-]+)', block, re.MULTILINE)


def test_the_page_names_each_package_that_the_project_asks_for() -> None:
    rows = re.findall(r"^\| ([a-z0-9-]+) \| \S", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(declared()) > 3
    assert sorted(row for row in rows if row != "package") == sorted(declared())
    lock = (CHECKOUT / "requirements.lock").read_text(encoding="utf-8")
    assert set(declared()) <= set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
