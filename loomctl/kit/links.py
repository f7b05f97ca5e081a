"""Files of a run's that stand in a second folder, too: by another name for the same bytes, else as a copy."""

from __future__ import annotations

import os
import shutil


def give(source: str, target: str) -> None:
    """Give a file a second name, or a copy where it is appended to or cannot have one. Raises OSError."""
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    if not source.endswith((".jsonl", ".log")):
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # a file system without hard links
            pass
        else:
            return
    shutil.copy2(source, target, follow_symlinks=False)


def give_all(folder: str, target: str) -> None:
    """Give every file below a folder a second name in one that is not there yet; links stay links. Raises OSError."""
    shutil.copytree(folder, target, symlinks=True, copy_function=_given)


def _given(source: str, target: str) -> None:
    give(source, target)
