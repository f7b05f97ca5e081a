"""The tables of a queue, in SQL that SQLite and PostgreSQL both speak, and who takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from loomctl.kit.errors import EXIT_SKEW, UPDATE, LoomError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    Ask: TypeAlias = Callable[..., list[tuple[Any, ...]]]

VERSION = 2
SCHEMA = """
CREATE TABLE runs (
    repository TEXT NOT NULL, run_id TEXT NOT NULL, handle TEXT NOT NULL, lane TEXT NOT NULL, state TEXT NOT NULL,
    priority INTEGER NOT NULL, seq BIGINT NOT NULL, not_before DOUBLE PRECISION NOT NULL,
    since DOUBLE PRECISION NOT NULL, revision BIGINT NOT NULL, cost DOUBLE PRECISION NOT NULL, signature TEXT NOT NULL,
    worker TEXT NOT NULL, attempt INTEGER NOT NULL, asked TEXT NOT NULL, step TEXT NOT NULL, more TEXT NOT NULL,
    PRIMARY KEY (repository, run_id)
);
CREATE INDEX runs_next ON runs (lane, state, priority, seq);
CREATE INDEX runs_last ON runs (repository, state, since);
CREATE INDEX runs_later ON runs (repository, not_before) WHERE state = 'later';
CREATE INDEX runs_handle ON runs (repository, handle);
CREATE INDEX runs_worker ON runs (worker) WHERE state = 'driven';
CREATE INDEX runs_alike ON runs (repository, signature) WHERE state = 'failed';
CREATE TABLE needs (
    repository TEXT NOT NULL, run_id TEXT NOT NULL, needed TEXT NOT NULL, PRIMARY KEY (repository, run_id, needed)
);
CREATE INDEX needs_needed ON needs (repository, needed);
CREATE TABLE lanes (
    name TEXT PRIMARY KEY, repository TEXT NOT NULL, host TEXT NOT NULL, workflow TEXT NOT NULL, paused TEXT NOT NULL,
    signature TEXT NOT NULL, alike INTEGER NOT NULL, spent DOUBLE PRECISION NOT NULL
);
CREATE TABLE counts (lane TEXT NOT NULL, state TEXT NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (lane, state));
CREATE TABLE hosts (host TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL, why TEXT NOT NULL);
CREATE TABLE workers (
    id TEXT PRIMARY KEY, repository TEXT NOT NULL, machine TEXT NOT NULL, slots INTEGER NOT NULL,
    signed DOUBLE PRECISION NOT NULL
);
CREATE TABLE looks (repository TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL);
CREATE TABLE version (number INTEGER NOT NULL);
"""


class Database(Protocol):
    """Where the tables are."""

    def transaction(self, *, writes: bool = True, alone: bool = True) -> AbstractContextManager[Ask]:
        """Give what asks in SQL, with `?` for values; all or nothing of it is done. Raises QUEUE_GONE.

        Of those that write there is one at a time, but for those that need not be alone.
        """
        ...

    def now(self, ask: Ask) -> float:
        """Give the time, in seconds since 1970."""
        ...


def newer(where: str, found: int) -> LoomError:
    """Say that a newer Loom made the queue."""
    what, why = "a newer Loom made this queue", f"it is of version {found}, and this Loom knows {VERSION}"
    return LoomError("NEWER_QUEUE", what, where=where, why=why, hint=UPDATE, exit_code=EXIT_SKEW)
