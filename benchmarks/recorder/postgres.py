"""A PostgreSQL for one run: a given one, or one started from the installed binaries."""

import contextlib
from collections.abc import Iterator

from tests.servers.postgres import PostgresServer, create_database, drop_database
from tests.servers.process import started


@contextlib.contextmanager
def postgres(named: str | None) -> Iterator[str]:
    """The URL of an administrator. Without a given server one is started, with fsync off."""
    if named:
        yield named
        return
    with started(PostgresServer) as server:
        yield server.admin_url


@contextlib.contextmanager
def database(admin_url: str) -> Iterator[str]:
    """An empty database within the context."""
    url = create_database(admin_url)
    try:
        yield url
    finally:
        drop_database(admin_url, url)
