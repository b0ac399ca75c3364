"""A PostgreSQL for one run: one that is named, or one that is installed here."""

import contextlib
from collections.abc import Iterator

from tests.servers.postgres import PostgresServer, create_database, drop_database
from tests.servers.process import started


@contextlib.contextmanager
def postgres(named: str | None) -> Iterator[str]:
    """The address of an administrator of it. Without a name one is started, with fsync off."""
    if named:
        yield named
        return
    with started(PostgresServer) as server:
        yield server.admin_url


@contextlib.contextmanager
def database(admin_url: str) -> Iterator[str]:
    """An empty database for as long as the context lasts."""
    url = create_database(admin_url)
    try:
        yield url
    finally:
        drop_database(admin_url, url)
