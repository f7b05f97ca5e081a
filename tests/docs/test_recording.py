"""The recording in the README is one of the demo as it is now, and the README stays short."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.docs import recording
from tests.docs.consoles import misfit
from tests.docs.pages import WRITE
from tests.helpers.scenes import CHECKOUT, MAIN

README = (CHECKOUT / "README.md").read_text(encoding="utf-8")


def played(folder: Path) -> list[str]:
    environ = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-I", str(MAIN), "demo"], cwd=folder, env=environ, capture_output=True, text=True, check=True
    )
    return recording.masked(done.stdout)


@pytest.mark.slow
def test_the_recording_shows_what_the_demo_prints(tmp_path: Path) -> None:
    printed = played(tmp_path)
    if WRITE and _misfit(printed):
        recording.PICTURE.write_text(recording.drawn([recording.COMMAND, *recording.shown(printed)]), encoding="utf-8")
    assert _misfit(printed) == "", "run scripts/docs -k recording"


def _misfit(printed: list[str]) -> str:
    if not recording.PICTURE.exists():
        return "there is none"
    typed, *shown = recording.lines_of(recording.PICTURE.read_text(encoding="utf-8"))
    return misfit(shown, "\n".join(printed)) if typed == recording.COMMAND else typed


def test_the_recording_is_drawn_from_its_own_lines() -> None:
    """Nobody edited the picture: its lines, drawn anew, give it byte for byte."""
    picture = recording.PICTURE.read_text(encoding="utf-8")
    lines = recording.lines_of(picture)
    assert recording.drawn(lines) == picture
    assert len(lines) > 30


def test_the_recording_is_small_and_moves_without_a_script() -> None:
    picture = recording.PICTURE.read_text(encoding="utf-8")
    assert len(picture.encode()) <= 60_000
    assert "prefers-reduced-motion" in picture
    assert "prefers-color-scheme:dark" in picture
    names = {one.tag.rpartition("}")[2] for one in ET.fromstring(picture).iter()}
    assert names & {"script", "foreignObject", "image", "a"} == set()
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", picture)


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 900
    assert len(README.encode()) <= 6144


def test_the_readme_names_the_commands_of_a_newcomer() -> None:
    """What a clone is tried with: the demo, and the tests."""
    lines = [line.partition("#")[0].strip() for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
             for line in block.splitlines()]  # fmt: skip
    assert {"./bin/loomctl demo", "./scripts/test", "./bin/loomctl install"} <= set(lines)


def test_the_readme_has_no_figures_that_age() -> None:
    """Ratios, and what was measured, stand on the page of figures alone."""
    assert not re.search(r"\d+(\.\d+)? ?(ms|%|times|tokens)", README)
