"""Loom's own environment: made once for each requirements.lock, by the launcher's Python with the standard library.

The launcher calls `main` before anything outside the standard library can be imported; a hook never does.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from loomctl.kit import trouble
from loomctl.kit.errors import EXIT_SETUP, LoomError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAKING = "making-"
"""What the name of a half-made environment begins with; the launcher looks for `env-` alone."""
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


class Place(NamedTuple):
    """base: the folder that environments stand in; name: `env-<lock id>-<x.y>`; lock: requirements.lock."""

    base: str
    name: str
    lock: str

    @property
    def environment(self) -> str:
        """The finished environment's folder. It comes into being complete, by one rename."""
        return os.path.join(self.base, self.name)

    @property
    def python(self) -> str:
        """The interpreter that the launcher looks for."""
        return os.path.join(self.environment, "bin", "python")


def main(arguments: Sequence[str]) -> int:
    """Make the environment if it is not there: `ROOT PACKAGE_PARENT CACHE PLUGIN_DATA JSON`, empty where not known.

    Words go to standard error; with JSON not empty an error is one document on standard output too (D52).
    """
    root, package, cache, data, as_json = arguments
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    try:
        place = _place(os.path.join(root, "requirements.lock"), [data, cache])
        if make(place):
            _compile(place, package, [cache, data])
    except LoomError as error:
        print(f"loomctl: {error}", file=sys.stderr)  # noqa: T201 - the launcher has no other voice
        if as_json:
            print(json.dumps({"schema_version": 1, "error": error.to_dict()}))  # noqa: T201 - as above
        return error.exit_code
    except KeyboardInterrupt:
        _say("interrupted; nothing unfinished was left")
        return 128 + signal.SIGINT
    return 0


def _say(words: str) -> None:
    print(f"loomctl: {words}", file=sys.stderr, flush=True)  # noqa: T201 - progress is all this prints


def make(place: Place) -> bool:
    """Make the environment unless it is there or another process makes it meanwhile; tell whether this call did.

    Raises LoomError with exit code 8, leaving nothing half made.
    """
    with _alone(place.base):
        if os.access(place.python, os.X_OK):
            return False
        _sweep(place)
        started = time.monotonic()
        _say(f"first start: making Loom's own environment in\n  {place.environment}")
        making = os.path.join(place.base, f"{MAKING}{os.getpid()}")
        try:
            fresh = os.path.join(making, "env")
            _empty_environment(fresh)
            _install(_Job(place.lock, fresh, making, _patience()))
            os.rename(fresh, place.environment)
        except OSError as problem:
            if os.access(place.python, os.X_OK):  # where files cannot be locked, another one may have been first
                return False
            hint = trouble.way_out(problem) or f"df -h {quoted(place.base)}"
            raise _failed(f"cannot write {problem.filename or place.base}", str(problem), hint) from None
        finally:
            shutil.rmtree(making, ignore_errors=True)
        _say(f"ready after {time.monotonic() - started:.0f} s")
        return True


def _end(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)  # through every `finally`


def _place(lock: str, bases: Sequence[str]) -> Place:
    try:
        with open(lock, encoding="utf-8") as lines:
            lock_id = lines.readline().rpartition(" ")[2].strip()
    except OSError as problem:
        raise _failed("cannot read requirements.lock", str(problem), trouble.look(lock)) from None
    name = f"env-{lock_id}-{sys.version_info[0]}.{sys.version_info[1]}"
    why, hint = "neither HOME nor XDG_CACHE_HOME is set", "export XDG_CACHE_HOME=$(mktemp -d)"
    for base in filter(None, bases):
        try:
            os.makedirs(base, 0o700, exist_ok=True)
            with open(os.path.join(base, "setup.lock"), "a", encoding="utf-8"):
                return Place(base, name, lock)
        except OSError as problem:
            why = str(problem)
            if problem.errno == errno.EROFS:  # most often an assistant's sandbox, which has no network either
                why, hint = f"{why}; in a terminal of your own it can be made, once", "loomctl --version"
    raise _failed("Loom found no folder for its own environment", why, hint)


@contextmanager
def _alone(base: str) -> Iterator[None]:
    """Hold the set-up's lock; the system gives it back when a process dies, however it dies."""
    with open(os.path.join(base, "setup.lock"), "r+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another loomctl is making Loom's environment; waiting for process {lock.read(20).strip() or '?'}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: the rename at the end decides who was first
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _sweep(place: Place) -> None:
    for name in os.listdir(place.base):
        if name.startswith(MAKING) or name == place.name:
            shutil.rmtree(os.path.join(place.base, name), ignore_errors=True)


def _empty_environment(folder: str) -> None:
    try:
        import venv
    except ImportError:  # some systems ship Python without it; to Python itself three things make an environment
        os.makedirs(_site_packages(folder))
        os.makedirs(os.path.join(folder, "bin"))
        os.symlink(sys.executable, os.path.join(folder, "bin", "python"))
        with open(os.path.join(folder, "pyvenv.cfg"), "w", encoding="utf-8") as settings:
            settings.write(f"home = {os.path.dirname(sys.executable)}\ninclude-system-site-packages = false\n")
    else:
        venv.EnvBuilder(symlinks=True).create(folder)


def _compile(place: Place, package: str, bases: Sequence[str]) -> None:
    """Compile the packages and Loom to where the launcher lets every start look (D58); a failure only costs time.

    Twice Loom is really started, for what it uses of the standard library is looked for in that folder too; its whole
    help imports every verb.
    """
    kept = next(base for base in bases if base and os.path.isdir(base) and os.access(base, os.W_OK))
    option = f"pycache_prefix={os.path.join(kept, 'pycache')}"
    script = "import compileall, sys\nfor folder in sys.argv[1:]: compileall.compile_dir(folder, quiet=2)"
    packages = _site_packages(place.environment)
    loom = os.path.join(package, "loomctl")
    hook = f"import sys; sys.path.insert(0, {package!r}); import loomctl.hosts.protocol.hooks"
    nothing = subprocess.DEVNULL
    for command in (
        [place.python, "-I", "-X", option, "-c", script, packages, loom],
        [place.python, "-I", "-X", option, os.path.join(loom, "__main__.py"), "--help", "--all"],
        [sys.executable, "-I", "-S", "-X", option, "-c", hook],
    ):
        try:
            subprocess.run(command, stdin=nothing, stdout=nothing, stderr=nothing, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return


def _failed(what: str, why: str, hint: str) -> LoomError:
    return LoomError("SETUP_FAILED", what, why=why, hint=hint, exit_code=EXIT_SETUP)


# ---- Packages.


class _Ended(NamedTuple):
    code: int | None
    log: str


class _Job(NamedTuple):
    lock: str
    environment: str
    work: str
    patience: float

    @property
    def python(self) -> str:
        return os.path.join(self.environment, "bin", "python")

    @property
    def timeout(self) -> str:
        """How many seconds a tool waits for one answer: within the patience it can ask twice."""
        return str(max(1, round(self.patience * 0.4)))


def _site_packages(environment: str) -> str:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return os.path.join(environment, "lib", version, "site-packages")


def _install(job: _Job) -> None:
    """Fill the environment with the lock's packages, by the first tool that can.

    The user's settings of uv and pip hold (index, proxy, certificates, find-links); only how long they wait is ours.
    Raises LoomError, exit code 8: INDEX_UNREACHABLE after at most PATIENCE without progress for each tool,
    NO_INSTALLER, or SETUP_FAILED with what the tool said.
    """
    os.makedirs(os.path.join(job.work, "tmp"), exist_ok=True)
    ended = None
    for tool in (_uv, _pip_beside, _pip_inside, _pip_into_folder):
        tried = tool(job)
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


def _uv(job: _Job) -> _Ended | None:
    uv = shutil.which("uv")
    if uv is None:
        return None
    _say("fetching packages with uv")
    command = [uv, "pip", "install", "--verbose", "--no-progress", "--python", job.python, *_WANTED, "-r", job.lock]
    # No second try: pip is the second try. From a folder of ours, for a project's uv settings are not the user's.
    environ = {"UV_HTTP_TIMEOUT": job.timeout, "UV_HTTP_CONNECT_TIMEOUT": job.timeout, "UV_HTTP_RETRIES": "0"}
    return _run(command, job, quiet=job.patience / 2, environ=environ, folder=job.work)


def _pip_beside(job: _Job) -> _Ended | None:
    """Let this Python's own pip fill the environment, if it is new enough to know how."""
    if _pip_version(job) < (22, 3):
        return None
    _say("fetching packages with pip")
    return _run([sys.executable, *_PIP, "--python", job.python, *_pip_install(job)], job, quiet=job.patience)


def _pip_inside(job: _Job) -> _Ended | None:
    if _run([job.python, "-I", "-m", "ensurepip", "--default-pip"], job, quiet=30.0).code != 0:
        return None
    _say("fetching packages with pip in the environment")
    ended = _run([job.python, *_PIP, *_pip_install(job)], job, quiet=job.patience)
    if ended.code == 0:  # nothing of Loom's needs them, and setuptools would slow every start
        _run([job.python, *_PIP, "uninstall", "--yes", "setuptools", "pip"], job, quiet=30.0)
    return ended


def _pip_into_folder(job: _Job) -> _Ended | None:
    """Let an old pip put the packages where the environment looks for them: Debian's Python, without python3-venv."""
    if not _pip_version(job):
        return None
    _say("fetching packages with an old pip")
    target = ("--target", _site_packages(job.environment))
    return _run([sys.executable, *_PIP, *_pip_install(job), *target], job, quiet=job.patience)


def _pip_version(job: _Job) -> tuple[int, ...]:
    said = _run([sys.executable, *_PIP, "--version"], job, quiet=30.0)
    version = re.search(r"^pip (\d+)\.(\d+)", said.log, re.MULTILINE)
    return (int(version[1]), int(version[2])) if said.code == 0 and version else ()


def _pip_install(job: _Job) -> list[str]:
    bounds = ["--timeout", job.timeout, "--retries", "1", "--no-input", "--progress-bar", "off"]
    return ["install", *_WANTED, *bounds, "--no-user", "--no-compile", "--disable-pip-version-check", "-r", job.lock]


def _run(
    command: Sequence[str], job: _Job, *, quiet: float, environ: Mapping[str, str] = {}, folder: str | None = None
) -> _Ended:
    log = os.path.join(job.work, "log")
    inside = {**os.environ, "TMPDIR": os.path.join(job.work, "tmp"), **environ}
    nothing, errors = subprocess.DEVNULL, subprocess.STDOUT
    with open(log, "wb") as out:
        try:
            process = subprocess.Popen(
                command, stdin=nothing, stdout=out, stderr=errors, cwd=folder, env=inside, start_new_session=True
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
        what, hint = "this Python cannot install packages", f"{quoted(sys.executable)} -m ensurepip --version"
        why = f"uv is not on PATH, and {sys.executable} has neither ensurepip (python3-venv) nor pip 22.3 or newer"
        return LoomError("NO_INSTALLER", what, why=why, hint=hint, exit_code=EXIT_SETUP)
    lines = [re.sub(r"://[^/@\s]+@", "://…@", line.strip())[:300] for line in ended.log.splitlines()]
    if _unreachable(ended):
        said = _REACHED_NOTHING.search(ended.log)
        asked = [line.lower() for line in lines if line.startswith("Looking in ")]  # pip names an index of the user's
        why = "; ".join([said[0] if said else f"no answer for {job.patience:.0f} s", *asked])
        what = "cannot reach the package index to make Loom's own environment"
        why += "; check the network and pip's settings (PIP_INDEX_URL, pip.conf)"
        hint = "LOOM_SETUP_TIMEOUT=60 loomctl --version"
        return LoomError("INDEX_UNREACHABLE", what, why=why, hint=hint, exit_code=EXIT_SETUP)
    telling = [line for line in lines if _TELLING.search(line)] or [line for line in lines if line][-5:]
    what, hint = "Loom's packages could not be installed", "python3 -m pip config list"
    return LoomError("SETUP_FAILED", what, why="\n       ".join(telling[:8]), hint=hint, exit_code=EXIT_SETUP)
