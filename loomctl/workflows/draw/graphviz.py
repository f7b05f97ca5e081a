"""Graphviz, where it is installed: DOT drawn as SVG."""

from __future__ import annotations

import os
import shutil

from loomctl.kit.errors import EXIT_SETUP, LoomError
from loomctl.kit.process import processes

SECONDS = 60.0


def svg(text: str) -> str:
    """Draw a text in DOT. Raises LoomError: NO_GRAPHVIZ, or GRAPHVIZ_FAILED with what it says."""
    program = shutil.which("dot")
    if program is None:
        raise LoomError(
            "NO_GRAPHVIZ",
            "Graphviz is not installed, and it alone draws SVG",
            why="its program dot is not on the PATH (apt-get install graphviz, brew install graphviz)",
            hint="loomctl graph --format mermaid",
            exit_code=EXIT_SETUP,
        )
    ended = processes.run(
        [program, "-Tsvg"], cwd=os.path.abspath(os.sep), environ=os.environ, patience=SECONDS, given=text.encode()
    )
    if ended.code != 0:
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise LoomError(
            "GRAPHVIZ_FAILED",
            "Graphviz could not draw this",
            why=said[0][:300] if said else f"it took more than {SECONDS:g} s" if ended.code is None else "",
            hint="loomctl graph --format dot",
            exit_code=EXIT_SETUP,
        )
    return ended.stdout.decode("utf-8")
