"""Two folders that change places at one moment, where the system can: who looks meets one or the other (D53)."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_HERE = -100  # AT_FDCWD
# How a system or a file system says that it cannot.
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)


def swap(one: str, other: str) -> bool:
    """Let two folders of one file system change names at once; false where that cannot be done. Raises OSError."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(one), os.fsencode(other)
        if sys.platform == "darwin":
            result = library.renamex_np(*names, ctypes.c_uint(_EXCHANGE))
        else:
            result = library.renameat2(_HERE, names[0], _HERE, names[1], ctypes.c_uint(_EXCHANGE))
    except (OSError, AttributeError):  # a C library without it
        return False
    if result == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), other)
