"""Python as it is on macOS, as far as Linux can play it: its name, no /proc, none of Linux's own calls.

A virtual environment's `.pth` file loads this before anything else, in every process that its Python starts.
"""

import builtins
import os
import sys
from collections.abc import Callable
from typing import Any

import psutil  # looks at the platform as it is imported, and needs this machine's

_HIDDEN = ("/proc",)
_LINUX_ALONE = ("pidfd_open", "memfd_create", "sched_getaffinity", "posix_fallocate", "copy_file_range", "sendfile")


def _without_proc(call: Callable[..., Any], otherwise: Callable[[], Any]) -> Callable[..., Any]:
    def called(path: Any = ".", *more: Any, **named: Any) -> Any:
        is_ours = str(sys._getframe(1).f_globals.get("__name__", "")).startswith("loomctl")
        if is_ours and isinstance(path, str) and path.startswith(_HIDDEN):
            return otherwise()
        return call(path, *more, **named)

    return called


def _absent() -> Any:
    raise FileNotFoundError(2, "No such file or directory")


sys.platform = "darwin"
assert psutil.LINUX
for _name in _LINUX_ALONE:
    if hasattr(os, _name):
        delattr(os, _name)
builtins.open = _without_proc(builtins.open, _absent)
for _name in ("stat", "readlink", "listdir", "open"):
    setattr(os, _name, _without_proc(getattr(os, _name), _absent))
for _name in ("isdir", "isfile", "exists"):
    setattr(os.path, _name, _without_proc(getattr(os.path, _name), lambda: False))
