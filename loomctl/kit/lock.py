"""An exclusive lock that dies with its owner, and says who holds it (D53)."""

from __future__ import annotations

import fcntl
import os
import time

from loomctl.kit import clock, files, quick_json
from loomctl.kit.errors import EXIT_HELD, LoomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

PATIENCE = 10.0  # seconds
HOOK_PATIENCE = 2.0


class Lock:
    """`with Lock(path):` holds the lock; waits `patience` seconds, then raises HELD naming the holder.

    The kernel frees it when its process dies, however it dies; the file stays until somebody who holds it removes it.
    signed: the file says who holds it; False for one of another program's, whose content is not Loom's. what: it, in
    the words of HELD.
    """

    def __init__(
        self, path: str, *, patience: float = PATIENCE, signed: bool = True, what: str = "the run's lock"
    ) -> None:
        self._path, self._patience, self._descriptor, self._signed = path, patience, -1, signed
        self._what = what

    def __enter__(self) -> Lock:
        deadline = time.monotonic() + self._patience
        while True:
            files.make_folder(os.path.dirname(self._path))
            self._descriptor = files.open_own(self._path, os.O_RDWR)
            try:
                self._wait(deadline)
            except BaseException:
                os.close(self._descriptor)
                raise
            if os.fstat(self._descriptor).st_nlink:
                break
            os.close(self._descriptor)  # its holder removed the file meanwhile: another may hold the new one
        if not self._signed:
            return self
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, quick_json.dumps({"pid": os.getpid(), "since": clock.now()}).encode(), 0)
        except OSError:  # a full disk: the lock holds without its owner's name
            pass
        return self

    def remove(self) -> None:
        """Remove the file of a lock that is held, with what it was for; whoever waits for it makes a new one."""
        files.remove(self._path)

    def _wait(self, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LoomError(
                        "HELD",
                        f"{self._what} is held by {self._holder()}",
                        where=self._path,
                        why=f"waited {self._patience:g} s; a holder that died frees it by itself: try again",
                        hint="loomctl doctor",
                        exit_code=EXIT_HELD,
                    ) from None
                time.sleep(0.005)
            else:
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def _holder(self) -> str:
        return _named(self._descriptor)


def holder(path: str) -> str:
    """Say who holds a lock, `process 123 since …`; empty if nobody does. Nothing is made, and no link is followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(descriptor)
    except OSError:  # a file system without locks
        return ""
    else:
        return ""
    finally:
        os.close(descriptor)


def _named(descriptor: int) -> str:
    try:
        owner = quick_json.loads(os.pread(descriptor, 400, 0).decode("utf-8", "replace"))
        return f"process {int(owner['pid'])} since {str(owner['since'])[:20]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
