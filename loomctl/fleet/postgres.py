"""The queue that machines share: the same rows in PostgreSQL, in a schema of their own (D78).

Who changes them holds one advisory lock for the moment that it takes, so that no two transactions wait for each other
and limits hold across machines. Its clock is the server's.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import psycopg

from loomctl.fleet.table import SCHEMA, VERSION, Table
from loomctl.kit.errors import EXIT_SETUP, EXIT_SKEW, UPDATE, LoomError
from loomctl.kit.text.secrets import masked_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.fleet.table import Ask

NAMESPACE = "loom_fleet"
OLDEST = 140000  # of a server: PostgreSQL 14
_KEY = 7_010_662_157_314_021_234  # of the advisory lock, for this use alone
_PATIENCE = 15_000  # milliseconds of one statement
# A dead line is noticed within seconds, not after the hours that the system gives it.
_SETTINGS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "loomctl fleet",
    "options": f"-c search_path={NAMESPACE} -c statement_timeout={_PATIENCE}",
}


class Server:
    """A database on a server, for all threads of a process. A connection that is lost is made anew by the next use."""

    def __init__(self, address: str) -> None:
        self._address, self._lock = address, threading.Lock()
        self._held: psycopg.Connection[tuple[Any, ...]] | None = None

    def _connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._held is None or self._held.closed:
            self._held = psycopg.connect(self._address, autocommit=True, **_SETTINGS)
        return self._held

    @contextlib.contextmanager
    def transaction(self, *, writes: bool = True) -> Iterator[Ask]:
        """Give what asks in SQL; all or nothing of it is done. Raises QUEUE_GONE."""
        with self._lock:
            try:
                connection = self._connection()
                with connection.transaction():
                    if writes:
                        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_KEY,))
                    yield lambda words, *values: _asked(connection, words, values)
            except psycopg.Error as error:
                self._drop()
                raise _gone(self._address, error) from error

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
            what, why = "the server is too old for a fleet's queue", "it takes PostgreSQL 14 or later"
            raise LoomError("QUEUE_GONE", what, where=_shown(self._address), why=why, exit_code=EXIT_SETUP, hint=UPDATE)
        found = self.version()
        if found is not None and found > VERSION:
            raise newer(self._address, found)
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
            with contextlib.suppress(psycopg.Error):
                held.close()


def _asked(
    connection: psycopg.Connection[tuple[Any, ...]], words: str, values: tuple[Any, ...]
) -> list[tuple[Any, ...]]:
    cursor = connection.execute(words.replace("%", "%%").replace("?", "%s"), values)
    return cursor.fetchall() if cursor.description is not None else []


def newer(address: str, found: int) -> LoomError:
    """Say that a newer Loom made the queue."""
    what, why = "a newer Loom made this queue", f"it is of version {found}, and this Loom knows {VERSION}"
    return LoomError("NEWER_QUEUE", what, where=_shown(address), why=why, hint=UPDATE, exit_code=EXIT_SKEW)


def _gone(address: str, error: psycopg.Error) -> LoomError:
    why = masked_line(" ".join(str(error).split()) or type(error).__name__, 300)
    what, hint = "the fleet's queue cannot be used", "loomctl fleet doctor"
    return LoomError("QUEUE_GONE", what, where=_shown(address), why=why, hint=hint, exit_code=EXIT_SETUP)


def _shown(address: str) -> str:
    """Give an address without its password."""
    try:
        known = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error:
        return "the queue's address"
    return f"postgresql://{known.get('host') or ''}:{known.get('port') or 5432}/{known.get('dbname') or ''}"


class Shared(Table):
    """The queue of many machines."""

    def __init__(self, server: Server, repository: str) -> None:
        found = server.version()
        if found is not None and found > VERSION:
            raise newer(server._address, found)  # noqa: SLF001 - of this module
        if found != VERSION:
            what = "the queue has no tables yet" if found is None else "an older Loom made this queue"
            why = "they are made once, in a schema of their own"
            raise LoomError("NO_QUEUE", what, why=why, hint="loomctl fleet init", exit_code=EXIT_SETUP)
        super().__init__(server, repository)
