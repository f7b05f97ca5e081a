"""What the portability tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.portability.places import Machine, Make


@pytest.fixture(scope="session")
def make_machine(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Give a maker of machines, which compile Loom's modules to one place for all, kept where the tests keep things."""
    kept = os.environ.get("LOOM_TEST_CACHE") or str(tmp_path_factory.getbasetemp().parent)
    compiled = Path(kept) / "compiled"
    compiled.mkdir(exist_ok=True)

    def make(root: bytes) -> Machine:
        return Machine(root, compiled)

    return make


@pytest.fixture
def machine(tmp_path: Path, make_machine: Make) -> Machine:
    """Give a machine in a folder with a plain name, its project with a workflow."""
    made = make_machine(os.fsencode(tmp_path / "machine"))
    made.workflow()
    return made
