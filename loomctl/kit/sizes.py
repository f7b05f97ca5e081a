"""How much room files take, and how much there is."""

from __future__ import annotations

import os
from typing import NamedTuple


class Room(NamedTuple):
    """free: bytes that this user may still write; files: how many files, None where the file system does not say."""

    free: int
    files: int | None


def below(folder: str) -> int:
    """Give the bytes of all files below a folder, links not followed; what cannot be read counts nothing."""
    total, waiting = 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total


def nearest(path: str) -> str:
    """Give the path, or else the nearest folder above it that is there: where it would be made."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def room(path: str) -> Room:
    """Give what is free on the file system of a path, or of where it would be made. Raises OSError."""
    told = os.statvfs(nearest(path))
    return Room(told.f_bavail * told.f_frsize, told.f_favail if told.f_files else None)


def in_words(size: float) -> str:
    """Say a number of bytes: `512 bytes`, `1.5 MB`."""
    if size < 1000:
        return f"{size:g} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"
