"""The real Graphviz, for tests that ask it: never skipped in CI."""

import os
import shutil
import subprocess

import pytest


def program() -> str:
    """Give the path of `dot`; without it the test is skipped, in CI it fails."""
    found = shutil.which("dot")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Graphviz is not installed, and CI must not pass without it")
        pytest.skip("Graphviz is not installed: apt-get install graphviz")
    return found


def rendered(text: str, form: str = "svg") -> str:
    """Draw a text in DOT. Raises AssertionError with what Graphviz says against it."""
    command = [program(), f"-T{form}"]
    ended = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def is_read(text: str) -> bool:
    """Tell whether Graphviz reads a text as it stands, without a word against its syntax."""
    command = [program(), "-Tcanon"]
    ended = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=False)
    return ended.returncode == 0 and "syntax" not in ended.stderr.lower()
