"""The server that tests of a fleet stand on: it does what they say befalls it."""

import psycopg
import pytest

from tests.helpers.lines import Line
from tests.helpers.postgres import Postgres


def kept(postgres: Postgres, database: str) -> int:
    return int(postgres.ask("SELECT count(*) FROM kept", database=database)[0][0])


@pytest.fixture
def table(postgres: Postgres, database: str) -> str:
    """A database with a table of one row."""
    postgres.ask("CREATE TABLE kept AS SELECT 1 AS n", database=database)
    return database


@pytest.mark.slow
def test_what_was_committed_outlives_every_end(postgres: Postgres, table: str, line: Line) -> None:
    """Ended in order or killed, it starts again with what it had, at the same port, and lines lead there again."""
    address = postgres.address(table)
    postgres.restart()
    postgres.kill()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(address)
    with pytest.raises(psycopg.OperationalError, match="closed"):
        psycopg.connect(postgres.address(table, line.port))
    postgres.start()
    assert postgres.address(table) == address
    psycopg.connect(postgres.address(table, line.port)).close()
    assert kept(postgres, table) == 1


def test_a_full_disk_takes_nothing_more(postgres: Postgres, table: str) -> None:
    """Not one statement that needs room; with room again all is as it was."""
    more = "INSERT INTO kept SELECT generate_series(1, 100000)"
    with postgres.full(), pytest.raises(psycopg.Error, match=r"No space left on device|File too large"):
        postgres.ask(more, database=table)
    assert kept(postgres, table) == 1
    postgres.ask(more, database=table)
    assert kept(postgres, table) == 100_001


def test_connections_are_cut_to_one_database_alone(postgres: Postgres, table: str) -> None:
    with psycopg.connect(postgres.address(table)) as cut, psycopg.connect(postgres.address()) as sound:
        assert postgres.cut(table) == 1
        with pytest.raises(psycopg.OperationalError):
            cut.execute("SELECT 1")
        sound.execute("SELECT 1")
    assert kept(postgres, table) == 1


@pytest.mark.slow
def test_one_line_is_cut_and_silent_while_others_are_sound(postgres: Postgres, table: str, line: Line) -> None:
    """Its worker cannot connect, or waits for an answer that does not come; mended, it is as any other."""
    address = postgres.address(table, line.port)
    with psycopg.connect(address) as held:
        line.cut()
        with pytest.raises(psycopg.OperationalError):
            held.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(address)
    line.mend()
    with psycopg.connect(address) as held:
        line.silence()
        with pytest.raises(psycopg.OperationalError, match="timeout"):
            psycopg.connect(address, connect_timeout=2)
        assert kept(postgres, table) == 1
        line.speak()
        held.execute("SELECT 1")


@pytest.mark.slow
def test_a_silent_server_closes_no_connection(postgres: Postgres, table: str) -> None:
    with psycopg.connect(postgres.address(table)) as held:
        with postgres.silent(), pytest.raises(psycopg.OperationalError, match="timeout"):
            psycopg.connect(postgres.address(table), connect_timeout=2)
        held.execute("SELECT 1")
