"""Every command that the documentation shows is run, in order, and prints what the page says."""

from pathlib import Path

import pytest

from tests.docs import consoles
from tests.docs.pages import WRITE, name, pages

PLAYED = [page for page in pages() if "```console" in page.read_text(encoding="utf-8")]


@pytest.mark.slow(quick=1)
@pytest.mark.parametrize("page", PLAYED, ids=[name(page) for page in PLAYED])
def test_every_command_of_a_page_works_as_shown(page: Path, tmp_path: Path) -> None:
    text, faults = consoles.played(page, tmp_path / "machines")
    if WRITE and faults:
        page.write_text(text, encoding="utf-8")
        text, faults = consoles.played(page, tmp_path / "again")
    assert not faults, "\n\n".join(faults)
