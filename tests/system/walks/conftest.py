"""The fixtures of the interface's tests, for the account holder too, on SQLite."""

import pytest

from tests.api.conftest import database, processes, served

__all__ = ["database", "database_url", "processes", "served"]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url
