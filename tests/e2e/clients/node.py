"""The node that runs assistants written for it: one that keeps what it compiled of them."""

from __future__ import annotations

import os
from pathlib import Path


def node() -> Path:
    """Give the program, which scripts/test fetches."""
    return next(Path(os.environ["LOOM_TEST_CACHE"]).glob("node-22/node_modules/node-*/bin/node"))


def compiled() -> dict[str, str]:
    """Give the variable by which what it compiled stays for the next start."""
    return {"NODE_COMPILE_CACHE": str(Path(os.environ["LOOM_TEST_CACHE"], "compiled-by-node"))}
