"""A process that forks one child for each piece of Loom's work and lets a fault strike at a counted write.

It is started once with everything imported, so that a child costs a fork and not an interpreter: hundreds of kills take
seconds. What a child does is the real command line, a real hook or a real update; only the functions through which a
process writes are wrapped, to be counted and, at a chosen one, to kill it or to fail.

Requests and answers are JSON, a line each; `Bench` is the side of the tests.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
# The system calls that write, as Python names them. What only reads is not counted.
BY_DESCRIPTOR = ("write", "pwrite", "ftruncate", "fsync")
BY_PATH = ("replace", "rename", "link", "symlink", "unlink", "remove", "mkdir", "rmdir", "chmod")
STDERR = 2
# Those that need space on a disk.
HUNGRY = ("open", "write", "pwrite", "mkdir", "link", "symlink")
# What root may do although a file's mode forbids it: override it, read and search all the same, act as its owner.
CAPABILITIES = (1, 2, 3)


class Answer(NamedTuple):
    """How a child ended.

    signal: 0 if by itself; calls: its writes as `name path`, where they were counted; waited: seconds that it would
    have waited for locks, where it was `impatient`.
    """

    code: int
    signal: int
    stdout: str
    stderr: str
    calls: list[str]
    waited: float

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.stdout)
        return document

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        return found

    @property
    def context(self) -> str:
        return str((self.json.get("hookSpecificOutput") or {}).get("additionalContext", "")) if self.stdout else ""

    @property
    def message(self) -> str:
        return str(self.json.get("systemMessage", "")) if self.stdout else ""


class Bench:
    """The tests' side: asks for a piece of work and gives the answer."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.faults.bench"]
        self._process = subprocess.Popen(
            command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.communicate()

    def ask(
        self,
        work: str,
        *arguments: str,
        cwd: Path,
        environ: dict[str, str],
        given: str | None = None,
        fault: dict[str, Any] | None = None,
        **how: Any,
    ) -> Answer:
        """Have a child do a piece of work.

        work: `cli`, `hook`, or one of WORKS. given: standard input, None for /dev/null.
        fault: `{at, half?, errno?, onward?}`: at the write with this number (from 1) the child is killed, or with
        `errno` that write fails (with `onward` all that need space after it, too); half: half of it is written first.
        how: `count` (list the writes), `unprivileged` (file modes count for root, too), `file_size` (bytes that a file
        may have at most), `clock` (seconds that its clock goes wrong, or a list of them: one for each reading),
        `impatient` (it does not really wait for a lock).
        """
        where = {"cwd": str(cwd), "environ": environ}
        request = {"work": work, "arguments": arguments, "given": given, "fault": fault, **where, **how}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Answer(**json.loads(self._process.stdout.readline()))


@contextmanager
def bench() -> Iterator[Bench]:
    made = Bench()
    try:
        yield made
    finally:
        made.close()


# ---- The child's side.


class Writes:
    """Counts the calls that write, and strikes at one of them."""

    def __init__(self, fault: dict[str, Any] | None) -> None:
        self.calls: list[str] = []
        self._fault = fault or {"at": -1}
        self._paths: dict[int, str] = {}
        self._write = os.write

    def wrap(self) -> None:
        for name in (*BY_DESCRIPTOR, *BY_PATH):
            setattr(os, name, self._wrapped(name, getattr(os, name)))
        really_open, really_open_file = os.open, io.open

        def open_descriptor(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if flags & (os.O_CREAT | os.O_TRUNC):
                self._strike("open", path, b"", None)
            descriptor = really_open(path, flags, *more, **named)
            self._paths[descriptor] = str(path)
            return descriptor

        def open_file(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            if set(mode) & set("wax+"):
                if not isinstance(file, int):
                    self._strike("open", file, b"", None)
                if mode == "wb":
                    raw = io.FileIO(file, "wb")
                    return io.BufferedWriter(_Counted(raw, self, str(self._paths.get(raw.fileno(), file))))
            return really_open_file(file, mode, *more, **named)

        os.open = open_descriptor
        builtins.open = io.open = open_file
        os.fdopen = open_file  # type: ignore[assignment]

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *more: Any, **named: Any) -> Any:
            by_descriptor = name in BY_DESCRIPTOR
            if by_descriptor and first <= STDERR:  # what is said goes to whoever listens, not to a disk
                return real(first, *more, **named)
            if not by_descriptor and not named and _changes_nothing(name, first):
                return real(first, *more, **named)
            where = self._paths.get(first, f"fd {first}") if by_descriptor else first
            data = bytes(more[0]) if name in ("write", "pwrite") else b""
            rest = self._strike(name, where, data, lambda part: real(first, part, *more[1:], **named))
            return real(first, *more, **named) if rest is None else rest

        return call

    def _strike(self, name: str, where: Any, data: bytes, real: Callable[[bytes], Any] | None) -> int | None:
        """Count a call, and strike if its turn has come; gives how much was written where it was cut short."""
        self.calls.append(f"{name} {where}")
        at, onward = self._fault["at"], self._fault.get("onward")
        number = len(self.calls)
        if number < at or at < 0 or (number > at and not onward):
            return None
        if "errno" in self._fault:
            if onward and name not in HUNGRY:
                return None
            if self._fault.get("half") and number == at and len(data) > 1 and real is not None:
                real(data[: len(data) // 2])
                return len(data) // 2  # as a disk that is nearly full does; the next write fails
            code = self._fault["errno"]
            if isinstance(where, str) and name not in BY_DESCRIPTOR:
                raise OSError(code, os.strerror(code), where)
            raise OSError(code, os.strerror(code))
        if self._fault.get("half") and data and real is not None:
            real(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def _changes_nothing(name: str, path: Any) -> bool:
    """Tell whether a call fails as its caller expects: a folder that is there already, a file that is not."""
    if name == "mkdir":
        return os.path.isdir(path)
    return name in ("unlink", "remove") and not os.path.lexists(path)


class _Counted(io.RawIOBase):
    """A file whose writes are counted; what packs archives writes without os.write."""

    def __init__(self, raw: io.FileIO, writes: Writes, path: str) -> None:
        self._raw, self._writes, self._path = raw, writes, path

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()

    def fileno(self) -> int:
        return self._raw.fileno()

    def write(self, data: Any) -> int | None:
        cut = self._writes._strike("write", self._path, bytes(data), self._raw.write)
        return self._raw.write(data) if cut is None else cut

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


def _as_others(_: dict[str, Any]) -> None:
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0
    for capability in CAPABILITIES:
        data[0] &= ~(1 << capability)
    assert libc.capset(header, data) == 0


def _small_files(request: dict[str, Any]) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"], request["file_size"]))


def _wrong_clock(request: dict[str, Any]) -> None:
    """Set the child's wall clock: by one difference, or by one more at each reading."""
    wrong = request["clock"]
    differences = list(wrong) if isinstance(wrong, list) else [wrong]
    really, really_utc = time.time, time.gmtime

    def difference() -> float:
        return float(differences.pop(0) if len(differences) > 1 else differences[0])

    time.time = lambda: really() + difference()
    time.gmtime = lambda at=None: really_utc(really() + difference() if at is None else at)


_waited = [0.0]


class _Impatient:
    """A clock on which time passes by itself wherever somebody would wait; it adds up how much."""

    time, clock_gettime, CLOCK_BOOTTIME = time.time, time.clock_gettime, time.CLOCK_BOOTTIME

    @staticmethod
    def sleep(seconds: float) -> None:
        _waited[0] += seconds

    @staticmethod
    def monotonic() -> float:
        return time.monotonic() + _waited[0]


def _no_waiting(_: dict[str, Any]) -> None:
    from loomctl.kit import processes

    vars(processes)["time"] = _Impatient


_CONDITIONS = {"unprivileged": _as_others, "file_size": _small_files, "clock": _wrong_clock, "impatient": _no_waiting}


def _say(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


def _update(folder: str, run_id: str, times: str) -> int:
    from loomctl.runs.store.events import Event
    from loomctl.runs.store.store import Store

    def change(state: dict[str, Any]) -> tuple[dict[str, Any], list[Event]]:
        number = state["context"].get("n", 0) + 1
        return {**state, "context": {"n": number, "fill": "x" * 3000}}, [Event("tick", {"n": number})]

    store = Store(folder)
    for _ in range(int(times)):
        _say(store.update(run_id, change)["context"]["n"])
    return 0


def _settings(store: str) -> int:
    from loomctl.runs import config

    _say(config.load(store, with_yaml=True).hook_budget)
    return 0


def _note(run_id: str, store: str) -> int:
    from loomctl.runs.machine import run_notes

    _say(run_notes.note_known(run_id, store))
    return 0


def _put(store: str) -> int:
    from loomctl.runs.store.blobs import Blobs

    try:
        _say(Blobs(store).put(b"y" * 150_000))
    except OSError as error:
        _say(f"failed {error.errno} {error.filename}")
    return 0


WORKS: dict[str, Callable[..., int]] = {"update": _update, "settings": _settings, "note": _note, "put": _put}


def _do(request: dict[str, Any]) -> int:
    from loomctl.cli.main import main as command_line
    from loomctl.hosts.protocol.hooks import main as hook

    arguments = list(request["arguments"])
    if request["work"] == "cli":
        return command_line(arguments)
    if request["work"] == "hook":
        return hook(arguments)
    return WORKS[request["work"]](*arguments)


def _child(request: dict[str, Any], files: tuple[int, int, int], log: int) -> None:
    """Be a process of its own: its environment, folder, standard streams and faults; never returns."""
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w")), encoding="utf-8")
    really_write = os.write
    for name, put in _CONDITIONS.items():
        if request.get(name) is not None:
            put(request)
    writes = Writes(request["fault"])
    if request["fault"] or request.get("count"):
        writes.wrap()
    code = 71
    try:
        code = _do(request)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 70
    finally:
        told = {"calls": writes.calls if request.get("count") else [], "waited": _waited[0]}
        really_write(log, json.dumps(told).encode())
        os._exit(code)


def _drained(pipes: tuple[int, ...]) -> list[str]:
    parts: dict[int, list[bytes]] = {pipe: [] for pipe in pipes}
    waiting = select.poll()
    for pipe in pipes:
        waiting.register(pipe, select.POLLIN | select.POLLHUP)
    open_ones = set(pipes)
    while open_ones:
        for pipe, _ in waiting.poll():
            part = os.read(pipe, 1 << 16)
            if part:
                parts[pipe].append(part)
            else:
                waiting.unregister(pipe)
                open_ones.remove(pipe)
                os.close(pipe)
    return [b"".join(parts[pipe]).decode("utf-8", "replace") for pipe in pipes]


def _prepare() -> None:
    import gc
    import pkgutil

    import loomctl
    from loomctl.kit import machine

    for module in pkgutil.walk_packages(loomctl.__path__, "loomctl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    machine.environment("/", "/", on_hook_path=False)
    gc.freeze()


def _serve() -> None:
    _prepare()
    asked, answers = os.dup(0), os.dup(1)
    with open(asked, encoding="utf-8") as requests:
        for line in requests:
            request = json.loads(line)
            given = request["given"]
            stdin = os.open(os.devnull, os.O_RDONLY) if given is None else _pipe_of(given)
            reading, writing = zip(*(os.pipe() for _ in range(3)), strict=True)
            pid = os.fork()
            if pid == 0:
                _child(request, (stdin, *writing[:2]), writing[2])
            for descriptor in (stdin, *writing):
                os.close(descriptor)
            stdout, stderr, told = _drained(reading)
            _, status = os.waitpid(pid, 0)
            killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            code = os.WEXITSTATUS(status) if not killed else -killed
            answer = {"code": code, "signal": killed, "stdout": stdout, "stderr": stderr, "calls": [], "waited": 0.0}
            answer |= json.loads(told or "{}")
            os.write(answers, (json.dumps(answer) + "\n").encode())


def _pipe_of(text: str) -> int:
    """Give the reading end of a pipe that holds a text; it must be short, for nobody reads meanwhile."""
    data = text.encode()
    assert len(data) < 60_000, "a pipe holds no more"
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


if __name__ == "__main__":
    _serve()
