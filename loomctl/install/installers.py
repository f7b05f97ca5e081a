"""Fill an environment with the packages of a lock: by uv where it is, else by pip."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

from loomctl.kit.errors import EXIT_SETUP, LoomError, quoted
from loomctl.kit.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PATIENCE = 8.0
"""Seconds without any progress after which an index counts as unreachable; LOOM_SETUP_TIMEOUT sets another number."""

_REACHED_NOTHING = re.compile(
    r"connection refused|connection reset|(read|connect\w*) timed out|(temporary failure in )?name resolution"
    r"|name or service not known|dns error|network is unreachable|no route to host|error sending request"
    r"|failed to establish a new connection[^')]*|proxyerror|sslerror[^)]{0,200}|could not fetch url|timed out",
    re.IGNORECASE,
)
_TELLING = re.compile(
    r"^\s*(error|caused by|cause|because|warning: the repository|.*do not match the hashes|expected|got)\b",
    re.IGNORECASE,
)
_NO_PROGRESS = re.compile(r"retry|warning|timed? ?out", re.IGNORECASE)

# `python -m pip` would take a pip.py of the folder that the user happens to stand in.
_RUN_PIP = """
import runpy, sys
sys.path[:] = [folder for folder in sys.path if folder]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
_PIP = ("-c", _RUN_PIP)
_WANTED = ("--require-hashes", "--only-binary", ":all:", "--no-deps")


class _Ended(NamedTuple):
    """How a tool ended: code is None when it was stopped because it made no progress; log is all that it said."""

    code: int | None
    log: str


class _Job(NamedTuple):
    """lock: requirements.lock; environment: the folder to fill; work: a folder for what is in passing; patience: s."""

    lock: str
    environment: str
    work: str
    patience: float

    @property
    def python(self) -> str:
        return os.path.join(self.environment, "bin", "python")


def site_packages(environment: str) -> str:
    """Give the folder of an environment that this Python's packages go to."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return os.path.join(environment, "lib", version, "site-packages")


def install(lock: str, environment: str, work: str, say: Callable[[str], None]) -> None:
    """Fill the environment with the lock's packages, by the first tool that can.

    The user's settings of uv and pip hold (index, proxy, certificates, find-links); only how long they wait is ours.
    Raises LoomError, exit code 8: INDEX_UNREACHABLE after at most PATIENCE without progress for each tool,
    NO_INSTALLER, or SETUP_FAILED with what the tool said.
    """
    job = _Job(lock, environment, work, _patience())
    os.makedirs(os.path.join(work, "tmp"), exist_ok=True)
    ended = None
    for tool in (_uv, _pip_beside, _pip_inside):
        tried = tool(job, say)
        if tried is not None:
            ended = tried
            if ended.code == 0:
                return
            if tool is not _uv and _unreachable(ended):  # every pip asks the same index
                break
    raise _error(ended, job)


def _patience() -> float:
    try:
        return max(1.0, float(os.environ.get("LOOM_SETUP_TIMEOUT", "")))
    except ValueError:
        return PATIENCE


def _uv(job: _Job, say: Callable[[str], None]) -> _Ended | None:
    uv = shutil.which("uv")
    if uv is None:
        return None
    say("fetching packages with uv")
    command = [uv, "pip", "install", "--verbose", "--no-progress", "--python", job.python, *_WANTED, "-r", job.lock]
    seconds = str(max(1, round(job.patience * 0.4)))
    # No second try: pip is the second try. From a folder of ours, for a project's uv settings are not the user's.
    environ = {"UV_HTTP_TIMEOUT": seconds, "UV_HTTP_CONNECT_TIMEOUT": seconds, "UV_HTTP_RETRIES": "0"}
    return _run(command, job, quiet=job.patience / 2, environ=environ, folder=job.work)


def _pip_beside(job: _Job, say: Callable[[str], None]) -> _Ended | None:
    """Let this Python's own pip fill the environment, if it is new enough to know how."""
    if _pip_version(job) < (22, 3):
        return None
    say("fetching packages with pip")
    return _run([sys.executable, *_PIP, "--python", job.python, *_pip_install(job)], job, quiet=job.patience)


def _pip_inside(job: _Job, say: Callable[[str], None]) -> _Ended | None:
    """Put a pip into the environment, as `python -m venv` does, and take it out again."""
    if _run([job.python, "-I", "-m", "ensurepip", "--default-pip"], job, quiet=30.0).code != 0:
        return None
    say("fetching packages with pip in the environment")
    ended = _run([job.python, *_PIP, *_pip_install(job)], job, quiet=job.patience)
    if ended.code == 0:  # nothing of Loom's needs them, and setuptools would slow every start
        _run([job.python, *_PIP, "uninstall", "--yes", "setuptools", "pip"], job, quiet=30.0)
    return ended


def _pip_version(job: _Job) -> tuple[int, ...]:
    said = _run([sys.executable, *_PIP, "--version"], job, quiet=30.0)
    version = re.search(r"^pip (\d+)\.(\d+)", said.log, re.MULTILINE)
    return (int(version[1]), int(version[2])) if said.code == 0 and version else ()


def _pip_install(job: _Job) -> list[str]:
    seconds = str(max(1, round(job.patience * 0.4)))
    bounds = ["--timeout", seconds, "--retries", "1", "--no-input", "--progress-bar", "off"]
    return ["install", *_WANTED, *bounds, "--no-user", "--no-compile", "--disable-pip-version-check", "-r", job.lock]


def _run(
    command: Sequence[str],
    job: _Job,
    *,
    quiet: float,
    environ: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> _Ended:
    """Run a tool in a process group of its own and stop it when it makes no progress for `quiet` seconds."""
    log = os.path.join(job.work, "log")
    inside = {**os.environ, "TMPDIR": os.path.join(job.work, "tmp"), **(environ or {})}
    with open(log, "wb") as out:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=inside,
                start_new_session=True,
            )
        except OSError as problem:
            return _Ended(127, f"error: {problem}")
        try:
            code = _wait(process, job, log, quiet)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return _Ended(code, _read(log))


def _wait(process: subprocess.Popen[bytes], job: _Job, log: str, quiet: float) -> int | None:
    seen, since = _progress(job, log, process.pid), time.monotonic()
    while time.monotonic() - since <= quiet:
        try:
            return process.wait(0.25)
        except subprocess.TimeoutExpired:
            now = _progress(job, log, process.pid)
            if now != seen:
                seen, since = now, time.monotonic()
    return None


def _progress(job: _Job, log: str, pid: int) -> tuple[int, int, int]:
    """Measure what has come so far: bytes on disk, lines that report something else than another try, and work done.

    Who waits for an index does not work; who works on a slow or busy machine is not waiting.
    """
    size = 0
    for folder in (os.path.join(job.work, "tmp"), job.environment):
        for parent, _, names in os.walk(folder):
            for name in names:
                try:
                    size += os.lstat(os.path.join(parent, name)).st_size
                except FileNotFoundError:
                    continue
    return size, sum(1 for line in _read(log).splitlines() if not _NO_PROGRESS.search(line)), _worked(pid)


def _worked(pid: int) -> int:
    """Give the processor time that a process and its children took so far, in ticks; 0 where the system is silent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            fields = source.read().rpartition(b")")[2].split()
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as source:
            children = source.read().split()
    except (OSError, ValueError):
        return 0
    return int(fields[11]) + int(fields[12]) + sum(_worked(int(child)) for child in children)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as text:
        return text.read()


def _unreachable(ended: _Ended) -> bool:
    return ended.code is None or _REACHED_NOTHING.search(ended.log) is not None


def _error(ended: _Ended | None, job: _Job) -> LoomError:
    if ended is None:
        what, hint = "nothing can install packages for this Python", f"{quoted(sys.executable)} -m ensurepip --version"
        why = f"uv is not on PATH, and {sys.executable} has neither ensurepip (python3-venv) nor pip 22.3 or newer"
        return LoomError("NO_INSTALLER", what, why=why, hint=hint, exit_code=EXIT_SETUP)
    lines = [re.sub(r"://[^/@\s]+@", "://…@", line.strip())[:300] for line in ended.log.splitlines()]
    if _unreachable(ended):
        said = _REACHED_NOTHING.search(ended.log)
        asked = [line.lower() for line in lines if line.startswith("Looking in ")]  # pip names an index of the user's
        why = "; ".join([said[0] if said else f"no answer for {job.patience:.0f} s", *asked])
        what = "the package index cannot be reached, so Loom's own environment was not made"
        why += "; the network or pip's settings (PIP_INDEX_URL, pip.conf) stand in the way"
        hint = "LOOM_SETUP_TIMEOUT=60 loomctl --version"
        return LoomError("INDEX_UNREACHABLE", what, why=why, hint=hint, exit_code=EXIT_SETUP)
    telling = [line for line in lines if _TELLING.search(line)] or [line for line in lines if line][-5:]
    what, hint = "Loom's packages could not be installed", "python3 -m pip config list"
    return LoomError("SETUP_FAILED", what, why="\n       ".join(telling[:8]), hint=hint, exit_code=EXIT_SETUP)
