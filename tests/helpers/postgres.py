"""A PostgreSQL server of the tests' own, and what may befall it: a crash, a full disk, a cut or silent line."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.helpers.lines import free_port
from tests.helpers.waiting import until

OWNER = "postgres"  # the server's superuser, and the machine's user that runs it where root tests: root may not
MOUNTED = Path("/mnt")
MOUNT = f"mount -t tmpfs -o size=1g,mode=700 none {MOUNTED} && echo mounted && exec cat"
ROOT = os.geteuid() == 0


def needed() -> Path:
    """Give the folder of the server's programs; without them the test is skipped, in CI it fails."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    found = shutil.which("postgres") or next(map(str, reversed(installed)), "")
    if not found:
        if os.environ.get("CI") == "true":
            pytest.fail("PostgreSQL is not here, and CI must not pass without it")
        pytest.skip("PostgreSQL is not here; hint: apt-get install postgresql")
    return Path(found).parent


class Disk:
    """A folder of the server's user: on a file system of its own, which ends with this process, where root may mount
    one; otherwise in the first temporary folder that this user can get to.
    """

    def __init__(self) -> None:
        self.words: list[str] = []  # what a command begins with to see the folder
        self.holder: subprocess.Popen[bytes] | None = None
        if ROOT and sys.platform == "linux" and self._mount():
            self.top = MOUNTED
        else:
            self.top = Path(tempfile.mkdtemp(prefix="loom-postgres.", dir=self._reachable()))
        if ROOT:
            self.call("chown", OWNER, self.top)

    def _mount(self) -> bool:
        # In a view of the file systems that only those have who enter it.
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", MOUNT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.holder.stdout is not None
        if self.holder.stdout.readline() == b"mounted\n":
            self.words = ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", "--"]
            return True
        self.holder.communicate()
        self.holder = None
        return False

    @staticmethod
    def _reachable() -> Path:
        places = [Path(tempfile.gettempdir()), Path("/dev/shm"), Path("/tmp")]
        if not ROOT:
            return places[0]
        return next(place for place in places if all(at.stat().st_mode & 1 for at in (place, *place.parents)))

    def call(self, *words: object, text: str = "") -> None:
        """Run a command that sees the folder; the text is its standard input."""
        command = [*self.words, *map(str, words)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, cwd="/", check=False)
        assert done.returncode == 0, done.stderr

    def resize(self, size: int) -> None:
        """Give the file system another size, in bytes."""
        self.call("mount", "-o", f"remount,size={size}", MOUNTED)

    def used(self) -> int:
        """Give how many bytes the file system holds."""
        assert self.holder is not None
        seen = os.statvfs(f"/proc/{self.holder.pid}/root{MOUNTED}")
        return (seen.f_blocks - seen.f_bfree) * seen.f_frsize

    def close(self) -> None:
        """Remove all that is there."""
        if self.holder is not None:
            self.holder.communicate()
        else:
            shutil.rmtree(self.top)


class Postgres:
    """The server. It ends with the thread that started it, and all that it keeps with this process."""

    def __init__(self, log: Path) -> None:
        self.programs = needed()
        self.log = log
        self.password = secrets.token_urlsafe(9)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.databases = 0
        self.disk = Disk()
        self.user = ["setpriv", f"--reuid={OWNER}", f"--regid={group()}", "--clear-groups"] if ROOT else []

    def _create(self) -> None:
        given = self.disk.top / "password"
        self.disk.call(*self.user, "sh", "-c", 'umask 077 && cat >"$0"', given, text=self.password)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        if self.disk.holder is None:
            options.append("--wal-segsize=1")  # as large as any file may get in `full`
        self.disk.call(*self.user, *self._command("initdb"), "-U", OWNER, f"--pwfile={given}", *options)
        self.disk.call("rm", given)

    def _command(self, program: str) -> list[str]:
        return [str(self.programs / program), "-D", str(self.disk.top / "data")]

    def start(self) -> None:
        """Start the server, which recovers if it was killed, and wait until it answers."""
        if self.process is None:
            self._create()
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        ends = ["setpriv", "--pdeathsig=INT"] if sys.platform == "linux" else []
        command = [*self.disk.words, *self.user, *ends, *self._command("postgres"), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        until(self._answers, "PostgreSQL answers")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text("utf-8")
        try:
            self.ask("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def recover(self) -> None:
        """Start it if it does not run, and wait until it answers."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        else:
            until(self._answers, "PostgreSQL answers again")

    def stop(self) -> None:
        """End it in order: who is connected is sent away."""
        self._end(signal.SIGINT)

    def _end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _processes(self) -> list[psutil.Process]:
        assert self.process is not None
        server = psutil.Process(self.process.pid)
        return [server, *server.children(recursive=True)]

    def memory(self, database: str) -> float:
        """Give the memory that a connection has for itself, in bytes, of those to a database the one that has most."""
        rows = self.ask("SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", database)
        return max(float(psutil.Process(pid).memory_full_info().uss) for (pid,) in rows)

    def kill(self) -> None:
        """End it and all its processes as a power cut does."""
        processes = self._processes()
        self._end(signal.SIGKILL)
        for process in processes[1:]:
            if process.is_running():
                process.kill()
        psutil.wait_procs(processes[1:])

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Let it answer nobody meanwhile, and close no connection either."""
        stopped = self._processes()
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in reversed(stopped):
                process.resume()

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave it no byte for what it would add to its files meanwhile; pages that it has can still be filled.

        Where nothing may be mounted, no file grows over 1 MB instead. Starts it again if it did not survive.
        """
        mounted = self.disk.holder is not None
        if mounted:
            self.disk.resize(self.disk.used())
        else:
            self._limit("1048576")
        try:
            yield
        finally:
            if mounted:
                self.disk.resize(2**30)
            else:
                self._limit("unlimited")
            self.recover()

    def _limit(self, size: str) -> None:
        if not shutil.which("prlimit"):
            pytest.skip("the size of another process's files can be limited on Linux alone")
        for process in self._processes():
            command = [*self.user, "prlimit", f"--pid={process.pid}", f"--fsize={size}:"]
            assert subprocess.run(command, check=False).returncode == 0 or not process.is_running()

    def address(self, database: str = OWNER, port: int = 0) -> str:
        """Give a database's URL, with the password; through a line if that one's port is given."""
        return f"postgresql://{OWNER}:{self.password}@127.0.0.1:{port or self.port}/{database}"

    def ask(self, query: str, *values: object, database: str = OWNER) -> list[tuple[Any, ...]]:
        """Do a statement; gives its rows."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            done = connection.execute(query.encode(), values)
            return done.fetchall() if done.description else []

    def createdb(self, template: str = "template1") -> str:
        """Make a database, as a copy of another that nobody is connected to; gives its name."""
        self.databases += 1
        name = f"test_{self.databases}"
        self.ask(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def dropdb(self, name: str) -> None:
        """Remove a database; who is connected to it is sent away."""
        self.ask(f"DROP DATABASE {name} (FORCE)")

    def cut(self, database: str) -> int:
        """Cut every connection to a database, which may be made anew at once; gives how many there were."""
        ended = "SELECT count(pg_terminate_backend(pid, 30000)) FROM pg_stat_activity WHERE datname = %s"
        return int(self.ask(ended, database)[0][0])

    def close(self) -> None:
        """End it, if it still runs, and remove what it kept."""
        if self.process is not None and self.process.poll() is None:
            self._end(signal.SIGQUIT)
        self.disk.close()


def group() -> int:
    """Give the group of the machine's user that runs the server."""
    return pwd.getpwnam(OWNER).pw_gid
