"""The queue that machines share: the same rows in PostgreSQL, in a schema of their own (D78).

Who changes them holds one advisory lock for the moment that it takes, so that no two transactions wait for each other
and limits hold across machines. Signs do without it, for each worker gives them all the time, over whatever network.
The clock is the server's.

Whatever befalls the server, or the line to it, no use of it takes longer than its patience; and whoever falls silent
while he holds the lock loses it, with his connection.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import psycopg

from loomctl.fleet.schema import SCHEMA, VERSION, newer
from loomctl.fleet.table import Table
from loomctl.kit.errors import EXIT_SETUP, EXIT_USAGE, LoomError
from loomctl.kit.text.secrets import masked_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from loomctl.fleet.schema import Ask

    _Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

NAMESPACE = "loom_fleet"
OLDEST = 140000  # of a server: PostgreSQL 14
_ADDRESS = re.compile(  # of libpq's addresses those in which no part of a password can be taken for another part
    r"postgres(?:ql)?://(?:[^@/?]*@)?(?P<hosts>[^@/?]*)(?:/[^@?]*)?(?:\?[^@]*)?"
)
_HOST = re.compile(r"(?:[\w.%-]*|\[[\w.:%]+\])(?::\d+)?")
_WHERE = "the queue's address"
_AGAIN = "loomctl fleet status # once the server answers at that address"
_KEY = 7_010_662_157_314_021_234  # of the advisory lock, for this use alone


class Server:
    """A database on a server, for all threads of a process. A connection that is lost is made anew by the next use.

    patience: seconds that one use may take, connecting with it. Raises BAD_QUEUE for an address that is none.
    """

    def __init__(self, address: str, patience: float = 10.0) -> None:
        _check(address)
        self._address, self._patience, self._lock = address, patience, threading.Lock()
        self._held: tuple[_Connection, socket.socket] | None = None  # with another hand on its line

    @contextlib.contextmanager
    def transaction(self, *, writes: bool = True, alone: bool = True) -> Iterator[Ask]:
        """Give what asks in SQL; all or nothing of it is done. Raises QUEUE_GONE."""
        with self._lock:
            try:
                with self._in_time() as connection, connection.transaction():
                    if writes and alone:
                        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_KEY,))
                    yield lambda words, *values: _asked(connection, words, values)
            except psycopg.errors.UndefinedTable as error:
                self._drop()
                raise _lacking(None) from error
            except psycopg.Error as error:
                self._drop()
                raise _gone(self._address, error) from error

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[_Connection]:
        """Give the connection, and end its line where it is used for too long.

        No setting of a socket does so: what stands between, or a server that stands still, may take all that is sent
        and never answer.
        """
        began, late = time.monotonic(), threading.Event()
        connection, line = self._connection()

        def end() -> None:
            late.set()
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(max(0.0, began + self._patience - time.monotonic()), end)
        timer.daemon = True
        timer.start()
        try:
            yield connection
        except psycopg.OperationalError as error:
            if late.is_set():
                raise psycopg.OperationalError(f"it gave no answer for {self._patience:g} seconds") from error
            raise
        finally:
            timer.cancel()

    def _connection(self) -> tuple[_Connection, socket.socket]:
        if self._held is None or self._held[0].closed:
            self._drop()
            made = self._connected()
            self._held = made, socket.fromfd(made.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        return self._held

    def _connected(self) -> _Connection:
        """Connect in a thread of its own: the system may look for a name as long as it likes."""
        made: Future[_Connection] = Future()

        def connect() -> None:
            try:
                made.set_result(psycopg.connect(self._address, autocommit=True, **self._settings()))
            except psycopg.Error as error:
                made.set_exception(error)

        threading.Thread(target=connect, daemon=True).start()
        try:
            return made.result(self._patience)
        except futures.TimeoutError:
            made.add_done_callback(_close)
            raise psycopg.OperationalError(f"it took no connection for {self._patience:g} seconds") from None

    def _settings(self) -> dict[str, Any]:
        """Bind the server to the same patience: a worker may stand still while it holds the lock, or lose its line."""
        milliseconds = int(self._patience * 1000)
        own = {
            "search_path": NAMESPACE,
            "statement_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds // 2,
            "tcp_keepalives_idle": 60,  # seconds: it keeps no connection of those that are gone
        }
        options = " ".join(f"-c {name}={value}" for name, value in own.items())
        return {
            "application_name": "loomctl fleet",
            "connect_timeout": max(2, int(self._patience / 2)),  # of each address that a name has
            "options": options,
        }

    def now(self, ask: Ask) -> float:
        """Give the server's time, in seconds since 1970."""
        return float(ask("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0])

    def version(self) -> int | None:
        """Give the version of the tables, None where there are none. Raises QUEUE_GONE."""
        with self.transaction(writes=False) as ask:
            if not ask("SELECT to_regclass(?)", f"{NAMESPACE}.version")[0][0]:
                return None
            return int(ask("SELECT number FROM version")[0][0])

    def make(self) -> bool:
        """Make the tables where there are none; tells whether it did. Raises QUEUE_GONE and NEWER_QUEUE."""
        if self._too_old():
            raise _gone(self._address, "the server is too old: it takes PostgreSQL 14 or later")
        found = self.version()
        if found is not None and found > VERSION:
            raise newer(_shown(self._address), found)
        if found == VERSION:
            return False
        with self.transaction() as ask:  # the lock lets one of several make them
            if ask("SELECT to_regclass(?)", f"{NAMESPACE}.version")[0][0]:
                ask(f"DROP SCHEMA {NAMESPACE} CASCADE")  # an older one: the runs hold all
            ask(f"CREATE SCHEMA IF NOT EXISTS {NAMESPACE}")
            for words in filter(str.strip, SCHEMA.split(";")):
                ask(words)
            ask("INSERT INTO version VALUES (?)", VERSION)
        return True

    def _too_old(self) -> bool:
        with self.transaction(writes=False) as ask:
            return int(ask("SELECT current_setting('server_version_num')")[0][0]) < OLDEST

    def close(self) -> None:
        """Let the connection go."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held[1].close()
            with contextlib.suppress(psycopg.Error):
                held[0].close()


def _close(late: Future[_Connection]) -> None:
    if late.exception() is None:
        late.result().close()


def _asked(connection: _Connection, words: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    cursor = connection.execute(words.replace("%", "%%").replace("?", "%s"), values)
    return cursor.fetchall() if cursor.description is not None else []


def _gone(address: str, error: psycopg.Error | str) -> LoomError:
    why = masked_line(" ".join(str(error).split()) or type(error).__name__, 300)
    what = "the fleet's queue cannot be used"
    return LoomError("QUEUE_GONE", what, where=_shown(address), why=why, hint=_AGAIN, exit_code=EXIT_SETUP)


def _lacking(found: int | None) -> LoomError:
    what = "the queue has no tables" if found is None else "an older Loom made this queue"
    why = "they are made once, in a schema of their own"
    return LoomError("NO_QUEUE", what, why=why, hint="loomctl fleet init", exit_code=EXIT_SETUP)


def _check(address: str) -> None:
    """Refuse what could be misread: what libpq says of it may have a part of the password, and goes into logs."""
    known = _ADDRESS.fullmatch(address)
    if known and all(map(_HOST.fullmatch, known["hosts"].split(","))):
        with contextlib.suppress(psycopg.Error):
            psycopg.conninfo.conninfo_to_dict(address)
            return
    why = "it is postgresql://USER@HOST/DATABASE; a password stands in ~/.pgpass, or with its @ / ? as %40 %2F %3F"
    what, hint = "this is no address of a fleet's queue", "loomctl fleet init --help"
    raise LoomError("BAD_QUEUE", what, where=_WHERE, why=why, hint=hint, exit_code=EXIT_USAGE)


def _shown(address: str) -> str:
    """Give an address without its password."""
    known = psycopg.conninfo.conninfo_to_dict(address)
    return f"postgresql://{known.get('host') or ''}:{known.get('port') or 5432}/{known.get('dbname') or ''}"


class Shared(Table):
    """The queue of many machines."""

    def __init__(self, server: Server, repository: str) -> None:
        found = server.version()
        if found is not None and found > VERSION:
            raise newer(_shown(server._address), found)  # noqa: SLF001 - of this module
        if found != VERSION:
            raise _lacking(found)
        super().__init__(server, repository)
