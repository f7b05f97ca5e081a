"""What tests of a fleet on several machines stand on: a PostgreSQL server of their own, and a database for each."""

from collections.abc import Iterator

import pytest

from tests.helpers.lines import Line
from tests.helpers.postgres import Postgres


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One server for each process of tests that asks for it."""
    server = Postgres(tmp_path_factory.mktemp("postgres") / "log")
    yield server
    server.close()


@pytest.fixture
def postgres(shared_server: Postgres) -> Postgres:
    """The server, running, whatever the test before did to it."""
    shared_server.recover()
    return shared_server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The name of an empty database."""
    name = postgres.createdb()
    yield name
    postgres.dropdb(name)


@pytest.fixture
def line(postgres: Postgres) -> Iterator[Line]:
    """A line of its own to the server."""
    carried = Line(postgres.port)
    yield carried
    carried.cut()
