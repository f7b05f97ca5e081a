"""The queue of one machine: rows in `.loom/local/fleet.sqlite3`, made anew from the runs wherever it is lacking."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from typing import TYPE_CHECKING

from loomctl.fleet.schema import SCHEMA, VERSION, newer
from loomctl.fleet.table import Table
from loomctl.kit import files
from loomctl.kit.errors import EXIT_SETUP, LoomError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomctl.fleet.schema import Ask
    from loomctl.runs.project import Workspace

NAME = "fleet.sqlite3"
_PATIENCE = 30.0  # seconds that a transaction waits for another's end


class Sqlite:
    """A database in a file, for all threads of a process. is_new: it was made just now.

    place: of the store that it is of: a file that came along with a project is none of ours.
    """

    def __init__(self, path: str, place: str = "") -> None:
        self._path, self._place, self._lock = path, place, threading.Lock()
        self.is_new = not os.path.exists(path)
        self._open()

    def _open(self) -> None:
        try:
            self._base = sqlite3.connect(
                self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=200
            )
            os.chmod(self._path, 0o600)
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = NORMAL")
            with self.transaction() as ask:
                if not ask("SELECT 1 FROM sqlite_master WHERE name = 'version'"):
                    self.is_new = True
                    for words in filter(str.strip, SCHEMA.split(";")):
                        ask(words)
                    ask("INSERT INTO version VALUES (?)", VERSION)
                    ask("CREATE TABLE place (path TEXT NOT NULL)")
                    ask("INSERT INTO place VALUES (?)", self._place)
                ((number,),) = ask("SELECT number FROM version")
                if number > VERSION:  # it is whole: not to be removed, and not to be looked into
                    raise newer(self._path, number)
                ((place,),) = ask("SELECT path FROM place")
        except (sqlite3.Error, ValueError) as error:
            raise _broken(self._path, error) from error
        if number != VERSION:
            raise _broken(self._path, f"it is of version {number}, and this Loom's is {VERSION}")
        if place != self._place:
            raise _broken(self._path, "it was made for another folder")

    @contextlib.contextmanager
    def transaction(self, *, writes: bool = True, alone: bool = True) -> Iterator[Ask]:  # noqa: ARG002 - a file has one
        """Give what asks in SQL; all or nothing of it is done. Raises QUEUE_GONE."""
        with self._lock:
            try:
                self._base.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                try:
                    yield lambda words, *values: self._base.execute(words, values).fetchall()
                except BaseException:
                    self._base.rollback()
                    raise
                self._base.commit()
            except sqlite3.DatabaseError as error:
                with contextlib.suppress(sqlite3.Error):
                    self._base.rollback()
                raise _broken(self._path, error) from error

    def now(self, ask: Ask) -> float:  # noqa: ARG002 - of another database the time is asked
        """Give the time, in seconds since 1970."""
        return time.time()

    def close(self) -> None:
        """Let the file go."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._base.close()


def _broken(path: str, why: object) -> LoomError:
    what, hint = "the fleet's queue cannot be used", f"rm {quoted(path)}* && loomctl fleet rebuild"
    if isinstance(why, sqlite3.OperationalError):  # it is whole, and busy, or has no room
        hint = "loomctl fleet doctor"
    return LoomError("QUEUE_GONE", what, where=path, why=f"{why}; the runs hold all", hint=hint, exit_code=EXIT_SETUP)


class Here(Table):
    """The queue of one machine."""

    def __init__(self, space: Workspace, repository: str) -> None:
        space.store.prepare(commit_runs=space.settings.commit_runs)
        path = os.path.join(space.store.local, NAME)
        files.refuse_links(space.store.folder, path)
        base = Sqlite(path, os.path.realpath(space.store.folder))
        self.is_new = base.is_new
        super().__init__(base, repository)
