"""The beginning or the end of a file, of a text in whole lines, however large it is."""

from __future__ import annotations

import os

from loomctl.kit import files


def head(path: str, limit: int) -> tuple[str, bool]:
    """Give the first lines within `limit` bytes, and whether they are all. Raises OSError."""
    data, size = _read(path, 0, limit)
    if size <= len(data):
        return data.decode("utf-8", "replace"), True
    return data[: data.rfind(b"\n") + 1].decode("utf-8", "replace"), False


def tail(path: str, limit: int) -> tuple[str, bool]:
    """Give the last lines within `limit` bytes, and whether they are all. Raises OSError."""
    data, whole = end(path, limit)
    if whole:
        return data.decode("utf-8", "replace"), True
    return data[data.find(b"\n") + 1 :].decode("utf-8", "replace") if b"\n" in data else "", False


def end(path: str, limit: int) -> tuple[bytes, bool]:
    """Give the last `limit` bytes as they are, and whether they are all. Raises OSError."""
    data, size = _read(path, -limit, limit)
    return data, size <= len(data)


def _read(path: str, at: int, limit: int) -> tuple[bytes, int]:
    """Read `limit` bytes at a place, from the end where it is below 0; gives them and the file's size."""
    descriptor = files.open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        os.lseek(descriptor, at if at >= 0 else max(0, size + at), os.SEEK_SET)
        return files.read_up_to(descriptor, limit), size
    finally:
        os.close(descriptor)
