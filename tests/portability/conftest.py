"""What the portability tests share."""

import os
from pathlib import Path

import pytest

from tests.portability.places import Machine, Make


@pytest.fixture(scope="session")
def make_machine(compiled: Path) -> Make:
    def make(root: bytes) -> Machine:
        return Machine(root, compiled)

    return make


@pytest.fixture
def machine(tmp_path: Path, make_machine: Make) -> Machine:
    made = make_machine(os.fsencode(tmp_path / "machine"))
    made.workflow()
    return made
