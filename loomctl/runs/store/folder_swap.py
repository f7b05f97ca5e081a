"""A folder that is made beside its place and put there by one rename: the one before stays until it stands."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from loomctl.kit import files
from loomctl.runs.store import leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

REPLACED = ".replaced-"  # a folder that is being replaced, with the number of the process that does


@contextmanager
def made(path: str, mark: str) -> Iterator[str]:
    """Give an empty folder of its owner's alone, which takes the place of `path` when the block has ended well.

    mark: what the folder's name has behind the path's until then, before the process's number. Raises OSError; then,
    and when the block fails, what stood at the path still does.
    """
    beside = f"{path}{mark}{os.getpid()}"
    shutil.rmtree(beside, ignore_errors=True)  # of a process that had this number
    os.mkdir(beside, 0o700)
    try:
        yield beside
        _put(beside, path)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _put(beside: str, path: str) -> None:
    old = f"{path}{REPLACED}{os.getpid()}"
    if os.path.lexists(path) and os.listdir(path):
        os.rename(path, old)
    try:
        os.rename(beside, path)
    except OSError:
        if os.path.lexists(old):
            os.rename(old, path)
        raise
    files.sync_folder(os.path.dirname(path))
    shutil.rmtree(old, ignore_errors=True)


def clear_up(path: str, *marks: str) -> None:
    """Remove what processes that were killed left beside a path under these marks."""
    within, name = os.path.split(path)
    for mark in marks:
        for left in leftovers.folders(within, name + mark):
            if not leftovers.owner_lives(left.path):
                shutil.rmtree(left.path, ignore_errors=True)
