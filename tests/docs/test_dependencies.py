"""The page of dependencies names what Loom runs with, and nothing else."""

import re

from tests.docs.pages import DOCS
from tests.helpers.scenes import CHECKOUT

PAGE = DOCS / "reference" / "dependencies.md"


def declared(begin: str) -> list[str]:
    """Give the packages of a list in the project's file that begins so and ends with a bracket."""
    text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition(f"\n{begin} = [")[2].partition("]\n")[0]
    return re.findall(r'(?:^ *|, |^)"([A-Za-z0-9-]+)', block, re.MULTILINE)


def locked(name: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (CHECKOUT / name).read_text(encoding="utf-8"), re.MULTILINE))


def test_the_page_names_each_package_that_the_project_asks_for() -> None:
    """Those of the extra too, which the tests' lock has and Loom's own has not."""
    page = PAGE.read_text(encoding="utf-8")
    own, extra = declared("dependencies"), declared("fleet")
    rows = re.findall(r"^\| ([a-z0-9-]+) \| \S", page, re.MULTILINE)
    assert len(own) > 3
    assert extra == ["psycopg"]
    assert sorted(row for row in rows if row != "package") == sorted(own + extra)
    assert set(own) <= locked("requirements.lock")
    assert set(own + extra) <= locked("requirements-dev.lock")
    assert not set(extra) & locked("requirements.lock")
    for name in declared("docs"):
        assert f"{name} (" in page
        assert name in locked("requirements-docs.lock")
