"""The management interface as a process, on SQLite and a real Redis."""

import pytest

from tests.api.conftest import database, processes, served

__all__ = ["database", "processes", "served"]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url
