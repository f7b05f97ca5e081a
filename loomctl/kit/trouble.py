"""What the system refused, in words: which file, why, and a line that mends it (D52)."""

from __future__ import annotations

import errno
import os

from loomctl.kit.errors import LoomError, quoted

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)


def of(error: OSError) -> LoomError:
    """Give the error that people are shown for one of the system's. Code SYSTEM, exit 5."""
    what = f"the system said: {error.strerror or str(error) or type(error).__name__}"
    return LoomError("SYSTEM", what, where=_path(error), why=_why(error.errno), hint=way_out(error))


def _why(number: int | None) -> str:
    if number in _FORBIDDEN:
        return "this user may not do that there"
    if number == errno.EROFS:
        return "what is mounted there can only be read"
    if number == errno.ENAMETOOLONG:
        return "a name has at most 255 bytes, a path some thousand"
    if number == errno.EFBIG:
        return "a limit on the size of files is reached: raise it, then do it again"
    return "the disk or a quota is full: make room, then do it again" if number in _FULL else ""


def said(error: OSError | LoomError) -> str:
    """Say in one line what went wrong, and with which file."""
    told = of(error) if isinstance(error, OSError) else error
    return f"{told.what}: {told.where}" if told.where else told.what


def way_out(error: OSError) -> str:
    """Give a line that mends it, or shows what is in the way; empty where there is none."""
    path = _path(error)
    if not path:
        return ""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if error.errno in _FULL:
        return f"df -h {quoted(_there(folder))}"
    if error.errno == errno.EFBIG:
        return "ulimit -f unlimited"
    if error.errno == errno.EROFS:
        return f"df {quoted(_there(folder))}"
    if error.errno in _FORBIDDEN:
        if os.path.lexists(path):
            return f"chmod u+rw{'x' if os.path.isdir(path) else ''} {quoted(path)}"
        return f"chmod u+rwx {quoted(_there(folder))}"
    if (error.errno in _IN_THE_WAY and os.path.lexists(path)) or (error.errno == errno.EINVAL and os.path.isdir(path)):
        return f"mv {quoted(path)} {quoted(path + '.aside')}"
    return ""


def look(path: str) -> str:
    """Give a line that shows a file, or the nearest folder upward where it is not there."""
    return f"ls -l {quoted(path if os.path.lexists(path) else _there(os.path.dirname(path) or os.curdir))}"


def _path(error: OSError) -> str:
    name = error.filename
    return os.fsdecode(name) if isinstance(name, (str, bytes)) else ""


def _there(folder: str) -> str:
    """Give the nearest folder upward that there is."""
    while folder and not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return folder or "."
