"""Loom's own environment: made once for each requirements.lock, by the launcher's Python with the standard library.

The launcher calls `main` before anything outside the standard library can be imported; a hook never does.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from loomctl.install import installers
from loomctl.kit import trouble
from loomctl.kit.errors import EXIT_SETUP, LoomError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAKING = "making-"
"""What the name of a half-made environment begins with; the launcher looks for `env-` alone."""


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
        say("interrupted; nothing is left half made")
        return 128 + signal.SIGINT
    return 0


def say(words: str) -> None:
    """Tell the person who waits, in a line of its own on standard error."""
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
        say(f"first start: making Loom's own environment in {place.environment}")
        making = os.path.join(place.base, f"{MAKING}{os.getpid()}")
        try:
            fresh = os.path.join(making, "env")
            _empty_environment(fresh)
            installers.install(place.lock, fresh, making, say)
            os.rename(fresh, place.environment)
        except OSError as problem:
            if os.access(place.python, os.X_OK):  # where files cannot be locked, another one may have been first
                return False
            hint = trouble.way_out(problem) or f"df -h {quoted(place.base)}"
            raise _failed(f"cannot write {problem.filename or place.base}", str(problem), hint) from None
        finally:
            shutil.rmtree(making, ignore_errors=True)
        say(f"ready after {time.monotonic() - started:.0f} s")
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
    why = "neither HOME nor XDG_CACHE_HOME is set"
    for base in filter(None, bases):
        try:
            os.makedirs(base, 0o700, exist_ok=True)
            with open(os.path.join(base, "setup.lock"), "a", encoding="utf-8"):
                return Place(base, name, lock)
        except OSError as problem:
            why = str(problem)
    raise _failed("there is nowhere to keep Loom's own environment", why, "export XDG_CACHE_HOME=$(mktemp -d)")


@contextmanager
def _alone(base: str) -> Iterator[None]:
    """Hold the set-up's lock; the system gives it back when a process dies, however it dies."""
    with open(os.path.join(base, "setup.lock"), "r+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another loomctl is making Loom's environment; waiting for process {lock.read(20).strip() or '?'}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: the rename at the end decides who was first
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _sweep(place: Place) -> None:
    """Remove what a killed set-up left, and an environment whose Python is gone."""
    for name in os.listdir(place.base):
        if name.startswith(MAKING) or name == place.name:
            shutil.rmtree(os.path.join(place.base, name), ignore_errors=True)


def _empty_environment(folder: str) -> None:
    try:
        import venv
    except ImportError:  # some systems ship Python without it; to Python itself three things make an environment
        os.makedirs(installers.site_packages(folder))
        os.makedirs(os.path.join(folder, "bin"))
        os.symlink(sys.executable, os.path.join(folder, "bin", "python"))
        with open(os.path.join(folder, "pyvenv.cfg"), "w", encoding="utf-8") as settings:
            settings.write(f"home = {os.path.dirname(sys.executable)}\ninclude-system-site-packages = false\n")
    else:
        venv.EnvBuilder(symlinks=True).create(folder)


def _compile(place: Place, package: str, bases: Sequence[str]) -> None:
    """Compile the packages and Loom to where the launcher lets every start look (D58); a failure only costs time.

    Twice Loom is really started, for what it uses of the standard library is looked for in that folder too; its help
    imports every command.
    """
    import subprocess

    kept = next(base for base in bases if base and os.path.isdir(base) and os.access(base, os.W_OK))
    option = f"pycache_prefix={os.path.join(kept, 'pycache')}"
    script = "import compileall, sys\nfor folder in sys.argv[1:]: compileall.compile_dir(folder, quiet=2)"
    packages = installers.site_packages(place.environment)
    loom = os.path.join(package, "loomctl")
    hook = f"import sys; sys.path.insert(0, {package!r}); import loomctl.hosts.claude.hooks"
    for command in (
        [place.python, "-I", "-X", option, "-c", script, packages, loom],
        [place.python, "-I", "-X", option, os.path.join(loom, "__main__.py"), "--help"],
        [sys.executable, "-I", "-S", "-X", option, "-c", hook],
    ):
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return


def _failed(what: str, why: str, hint: str) -> LoomError:
    return LoomError("SETUP_FAILED", what, why=why, hint=hint, exit_code=EXIT_SETUP)
