"""The assistant's process: started under a keeper, read line by line, and ended with all that it started (D74).

The keeper is a fork of the driver between it and the assistant: what the assistant's tools leave behind becomes its
child, and when the driver dies, however it dies, the pipe to it closes and the keeper ends everything.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil

from loomctl.kit import digests
from loomctl.runs.store.write_rules import STARTED_FOR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

POLITE, GRACE = 2.0, 6.0  # seconds after INT, then after TERM, before KILL
_LONGEST = 64 << 20  # bytes of a line; a longer one is passed over
_BLOCK = 1 << 16
_LAST_WORDS = 8_000  # bytes of what it printed on standard error
_MOST_LEFT = 64  # blocks that are read of what has ended: what it left behind may print for ever
_BYE = b"."
_SUBREAPER, _DEATH_SIGNAL, _NAME = 36, 1, 15  # prctl's own numbers
_KEEPER = "loom-keeper"


class Order(NamedTuple):
    """A turn that is to be played.

    goes_on: in the conversation `session_id`, else in a new one, of that id where the host lets it be chosen; root: of
    the project; allow: rules of the host's settings; cost: USD that the conversation may add; prompt: the step, for a
    command that has no hooks; mark: by which what is started is known to work for the driver; store: the project's,
    which may stand outside of its root.
    """

    run_id: str
    handle: str
    root: str
    session_id: str
    goes_on: bool = False
    allow: tuple[str, ...] = ()
    cost: float | None = None
    prompt: str = ""
    mark: str = ""
    store: str = ""


class Worker:
    """An assistant, or a command, that runs, and all that it starts. Raises OSError where it cannot be started."""

    def __init__(self, command: Sequence[str], order: Order, environ: Mapping[str, str]) -> None:
        self._buffer, self._skips = bytearray(), False
        self._selector, self.is_open = selectors.DefaultSelector(), False
        self._last_words = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as it runs
        self._whole = bool(order.prompt)
        self.exit_code: int | None = None  # once it has ended by itself
        self._mark = order.mark
        environ = {**environ, STARTED_FOR: self._mark}
        self._reading, writing = os.pipe()
        ordered, self._control = os.pipe()
        told, tells = os.pipe()
        self.keeper = os.fork()
        if self.keeper == 0:
            try:
                os.close(self._control)
                os.close(self._reading)
                os.close(told)
                _keep(command, order, environ, writing, self._errors.fileno(), ordered, tells)
            finally:
                os._exit(70)
        for one in (writing, ordered, tells):
            os.close(one)
        self._told = told
        said = os.read(told, 4096).rstrip(b"\n")
        if not said.isdigit():
            self.close()
            number, _, why = said.decode("utf-8", "replace").partition(" ")
            raise OSError(int(number[1:] or 0) if number[1:].isdigit() else 0, why or "its keeper ended", command[0])
        self.pid = int(said)
        self._process: psutil.Process | None = None  # by its start, too: its number may be another's once it has ended
        with contextlib.suppress(psutil.Error):
            self._process = psutil.Process(self.pid)
        os.set_blocking(self._reading, False)
        self._selector.register(self._reading, selectors.EVENT_READ)
        self.is_open = True

    def lines(self, seconds: float) -> Iterator[bytes]:
        """Wait no longer than this for output, and give the lines that are whole."""
        if not self.is_open:
            time.sleep(min(seconds, 0.05))
            return
        if not self._selector.select(seconds):
            return
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._reading, _BLOCK)
            if not data:
                self._selector.unregister(self._reading)
                self.is_open = False
            yield from self._split(data)

    def rest(self) -> Iterator[bytes]:
        """Give what it said that nobody has read yet, also a last line without an end, and wait for nothing."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_LEFT if self.is_open else 0):
                if not (data := os.read(self._reading, _BLOCK)):
                    break
                yield from self._split(data)
        if self._buffer and not self._skips:
            yield bytes(self._buffer)
            self._buffer.clear()

    def _split(self, data: bytes) -> Iterator[bytes]:
        if self._whole:
            yield data
            return
        first, *others = data.split(b"\n")
        self._buffer += first
        for other in others:
            if not self._skips and self._buffer:
                yield bytes(self._buffer)
            self._buffer, self._skips = bytearray(other), False
        if len(self._buffer) > _LONGEST:
            self._buffer, self._skips = bytearray(), True

    def lives(self) -> bool:
        """Tell whether the assistant still runs."""
        try:
            one = self._process
            return one is not None and one.is_running() and one.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def interrupt(self) -> None:
        """Ask it to stop what it does, as its user would: it may still say what it cost."""
        with contextlib.suppress(psutil.Error, OSError):
            if self._process is not None:
                self._process.send_signal(signal.SIGINT)

    def end(self, spare: Collection[int] = ()) -> int:
        """End whatever still runs of it; gives how many processes had to be killed. spare: with their descendants."""
        tree = self.tree(spare)
        killed = end_all(tree, GRACE)
        for _ in range(50):  # what forked meanwhile
            more = self.tree(spare)
            if not more:
                break
            killed += end_all(more, 0)
        self.close()
        return killed

    def tree(self, spare: Collection[int] = ()) -> list[psutil.Process]:
        """Give what runs of it. spare: without these and their descendants."""
        every = {one.pid: one for one in _below(self._mark) if _runs(one, but=self.keeper)}
        if not spare:
            return list(every.values())
        return [
            one for pid, one in every.items() if pid not in spare and not any(up.pid in spare for up in _parents(one))
        ]

    def close(self) -> None:
        """Let the keeper go, and with it the pipes."""
        with contextlib.suppress(OSError):
            os.write(self._control, _BYE)
        if self.keeper:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.keeper, 0)
            self.keeper = 0
            with contextlib.suppress(OSError, ValueError):
                self.exit_code = int(os.read(self._told, 64))
        for one in (self._control, self._reading, self._told):
            with contextlib.suppress(OSError):
                os.close(one)
        self._control = self._reading = self._told = -1
        self.last_words()
        self._errors.close()
        self._selector.close()
        self.is_open = False

    def complained_at(self) -> float:
        """Give when it last printed on standard error, in seconds since 1970."""
        return os.fstat(self._errors.fileno()).st_mtime

    def last_words(self) -> str:
        """Give the end of what it printed on standard error."""
        if not self._errors.closed:
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, size - _LAST_WORDS))
            self._last_words = self._errors.read().decode("utf-8", "replace").strip()
        return self._last_words


def _runs(process: psutil.Process, but: int) -> bool:
    """Tell of a process whether it runs, and has not only to be reaped. but: the number of one that does not count."""
    try:
        return process.pid != but and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _parents(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.parents()
    except psutil.Error:
        return []


def end_all(processes: Iterable[psutil.Process], grace: float) -> int:
    """End processes: TERM, so many seconds, then KILL; gives how many needed that."""
    found = list(processes)
    if grace:
        for one in found:
            with contextlib.suppress(psutil.Error):
                one.terminate()
                one.resume()  # what was stopped could not end
        _, found = psutil.wait_procs(found, timeout=grace)
    for one in found:
        with contextlib.suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(found, timeout=2)
    return len(found)


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Let what loses its parent among this process's descendants become its child, where the system can."""
    _prctl(_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_SUBREAPER, 0)


def is_keeper(one: psutil.Process) -> bool:
    """Tell whether a process ends what a driver started; where the system gives none a name, none is known."""
    return one.name() == _KEEPER


def new_word(store: str) -> str:
    """Make the word of a driver: a part that all of this store's have, for a run's id may be another's elsewhere."""
    return f"{digests.of_text(os.path.realpath(store))[:16]}-{secrets.token_hex(16)}"


def left_over(run_id: str, word: str) -> list[psutil.Process]:
    """Find the processes that an earlier driver of a run started. word: that of the driver that lives."""
    begins, own = f"{run_id} {word.partition('-')[0]}-", f"{run_id} {word}"
    return list(_marked(lambda mark: mark.startswith(begins) and mark != own))


def _below(mark: str) -> list[psutil.Process]:
    """Find what descends from this process. mark: in the environment of what it has started."""
    found = psutil.Process().children(recursive=True)
    if sys.platform != "linux":  # nobody adopts what lost its parent
        found += [one for one in _marked(mark.__eq__) if one not in found]
    return found


def _marked(fits: Callable[[str], bool]) -> Iterator[psutil.Process]:
    """Find processes by what stands in their environment; those of other users do not show it."""
    for one in psutil.process_iter():
        try:
            mark = one.environ().get(STARTED_FOR, "") if one.pid != os.getpid() else ""
        except (psutil.Error, OSError):
            continue
        if mark and fits(mark):
            yield one


# ---- In the keeper.


def _keep(
    command: Sequence[str],
    order: Order,
    environ: Mapping[str, str],
    output: int,
    errors: int,
    ordered: int,
    tells: int,
) -> None:
    """Start the assistant, and end it with all that it started when the driver lets go without a word."""
    _prctl(_NAME, _KEEPER.encode())
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)  # who reads what the driver says waits for nobody else
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _prctl(_SUBREAPER, 1)
    given = tempfile.TemporaryFile() if order.prompt else nothing  # noqa: SIM115 - as long as this process lives
    if not isinstance(given, int):
        given.write(order.prompt.encode("utf-8", "surrogatepass"))
        given.seek(0)
    try:
        child = subprocess.Popen(
            command,
            cwd=order.root,
            env=environ,
            stdin=given,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_as_a_child,  # noqa: PLW1509 - the keeper has one thread
        )
    except OSError as error:
        os.write(tells, f"!{error.errno or 0} {error.strerror}".encode())
        return
    os.close(output)
    os.write(tells, f"{child.pid}\n".encode())
    codes: list[int] = []  # of the assistant, once it has ended
    signal.signal(signal.SIGCHLD, lambda *_: _reap(child.pid, codes))
    _reap(child.pid, codes)  # what ended before
    while True:
        try:
            said = os.read(ordered, 1)
            break
        except InterruptedError:
            continue
    if said != _BYE:
        mark = environ[STARTED_FOR]
        end_all(_below(mark), GRACE)
        while more := _below(mark):
            end_all(more, 0)
            _reap(child.pid, codes)
    _tell_code(child.pid, codes, tells)
    os._exit(0)


def _tell_code(child: int, codes: list[int], tells: int) -> None:
    """Say how the assistant ended: while its last threads end it looks dead, and cannot be asked yet."""
    until = time.monotonic() + POLITE
    while not codes and time.monotonic() < until:
        _reap(child, codes)
        time.sleep(0.01)
    if codes and codes[0] >= 0:
        os.write(tells, str(codes[0]).encode())


def _as_a_child() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    _prctl(_DEATH_SIGNAL, signal.SIGTERM)


def _reap(child: int, codes: list[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                codes.append(os.waitstatus_to_exitcode(ended[1]))


def _prctl(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
