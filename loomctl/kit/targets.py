"""Whether a file that a user names may be put in the place of what stands there: never of a device or a pipe."""

from __future__ import annotations

import os

from loomctl.kit.errors import EXIT_USAGE, LoomError, quoted

_DEVICES = ("/dev/", "/proc/")
WHY = "it is no file but a device, a pipe or the like"


def is_file(path: str) -> bool:
    """Tell whether a file, a link to one, a link to nothing, or nothing stands at a path.

    A link in the system's folders of devices leads now here, now there (`/dev/stdout`), and is no file.
    """
    if os.path.islink(path) and _is_of_devices(os.path.realpath(os.path.dirname(os.path.abspath(path)))):
        return False
    return os.path.isfile(path) or not os.path.exists(path)


def _is_of_devices(folder: str) -> bool:
    """Tell whether a folder is the system's own; a file system that is mounted below, `/dev/shm`, holds files."""
    above = next((top for top in _DEVICES if f"{folder}/".startswith(top)), "")
    try:
        return bool(above) and os.stat(folder).st_dev == os.stat(above).st_dev
    except OSError:
        return False


def check(path: str, hint: str = "") -> None:
    """Refuse to replace what is no file. hint: a command that does without; else one that shows it. Raises FILE_EXISTS.

    A folder is refused by who writes there.
    """
    if is_file(path) or os.path.isdir(path):
        return
    raise LoomError(
        "FILE_EXISTS",
        "there is something in the place of the file, and nothing was written",
        where=path,
        why=WHY,
        hint=hint or f"ls -ld {quoted(path)}",
        exit_code=EXIT_USAGE,
    )
