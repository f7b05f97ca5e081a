"""The `.gitignore` of a store: what of it is the project's, and what is this machine's alone."""

from __future__ import annotations

import os

from loomctl.kit import files
from loomctl.kit.errors import LoomError

_IGNORE = """# written by Loom: only this file, config.yaml and workflows/ are the project's; the rest is this machine's
*
!.gitignore
!config.yaml
!workflows/
!workflows/**
"""
_COMMIT_RUNS = """!runs/
!runs/**
runs/*/outputs/
runs/*/blobs/
runs/*/tool_steps.jsonl
runs/*/reads.json
runs/*/assets/
runs/*/stages/*/changes*.patch
runs/*/stages/*/command.*
runs/**/*.tmp
"""


def write(store: str, *, commit_runs: bool) -> None:
    """Write it, as the project's settings ask for it; one of the user's own stays, and whatever is no regular file."""
    path = os.path.join(store, ".gitignore")
    wanted = (_IGNORE + (_COMMIT_RUNS if commit_runs else "")).encode()
    if os.path.islink(path):
        return
    try:
        present = files.read_bytes(path, limit=1 << 20)
    except FileNotFoundError:
        present = b""
    except (OSError, LoomError):  # the user's own, whatever it is
        return
    ours = not present or present.startswith(b"# written by Loom")
    if ours and present != wanted:
        files.write_atomically(path, wanted, mode=0o644)
