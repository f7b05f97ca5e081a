"""Loom as others get it: a wheel and a source archive, and the packages that an installation takes from an index."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def build(folder: Path) -> Path:
    """Build the source archive of this checkout and the wheel from it; gives the folder that has both."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(CHECKOUT)]
    return _ran(command, folder)


def with_packages(dist: Path, folder: Path) -> Path:
    """Fetch what Loom, its extras and its building need, as pip is set up here; gives a folder to install from."""
    words = ["download", "--quiet", "--only-binary", ":all:", "--find-links", str(dist), "--dest", str(folder)]
    _ran([sys.executable, "-m", "pip", *words, "loomctl[fleet]", "hatchling"], folder)
    for archive in dist.glob("*.tar.gz"):
        shutil.copy(archive, folder)
    return folder


def _ran(command: list[str], folder: Path) -> Path:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder
