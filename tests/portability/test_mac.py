"""Loom on macOS, as far as Linux can play it: the whole of it, in processes that take their system for a Mac."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers.driven import MAIN, WAIT
from tests.helpers.fleets import LIMIT, Fleet
from tests.helpers.scenes import CHECKOUT
from tests.helpers.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that plays a Mac's, with the packages of these tests."""
    folder = tmp_path_factory.mktemp("mac")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "as_mac.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{CHECKOUT / 'tests' / 'helpers'}\nimport as_mac\n"
    )
    return folder / "bin" / "python"


@pytest.fixture
def fleet(tmp_path: Path, python: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "mac", pace=0.2, leaves="trap '' TERM")
    made.command = [str(python), "-I", str(MAIN)]
    made.program("loomctl", f'exec "{python}" -I "{MAIN}" "$@"\n')
    yield made
    made.close()


def test_it_is_played_well(python: Path) -> None:
    script = "import sys, os; from loomctl.kit import machine; print(machine.platform(), machine.cache_home())"
    ended = subprocess.run(
        [python, "-c", script], cwd=CHECKOUT, env={"HOME": "/h"}, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "darwin /h/Library/Caches/loom\n"


def test_the_demo_plays(fleet: Fleet) -> None:
    assert "survived" in fleet.loomctl("demo")


def test_the_doctor_is_content(fleet: Fleet) -> None:
    fleet.loomctl("doctor")


def test_a_run_is_driven_to_its_end_and_leaves_nothing_behind(fleet: Fleet) -> None:
    run_id = fleet.begin()
    fleet.loomctl("drive", run_id)
    assert fleet.state(run_id)["status"] == "completed"
    until(lambda: not fleet.alive())


def test_a_driver_that_is_killed_takes_its_assistant_with_it(fleet: Fleet) -> None:
    run_id = fleet.begin()
    process = fleet.start("drive", run_id)
    until(lambda: bool(fleet.alive()))
    process.kill()
    process.communicate()
    until(lambda: not fleet.alive())
    fleet.loomctl("drive", run_id)
    assert fleet.state(run_id)["status"] == "completed"


def test_a_fleet_of_one_machine_works_and_its_killed_worker_loses_nothing(fleet: Fleet) -> None:
    runs = [fleet.put(work, workflow="steps-4")[0] for work in ("make it", "make another")]
    worker = fleet.work(2)
    until(lambda: len(fleet.alive()) > 1)
    for one in [*psutil.Process(worker.pid).children(recursive=True), psutil.Process(worker.pid)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    worker.wait()
    assert fleet.work(2, "--until-idle").wait(WAIT + LIMIT) == 0, (fleet.root / "workers.log").read_text()
    assert fleet.verdict(runs)[:4] == (2, 2, 0, 0)
