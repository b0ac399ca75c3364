"""A user with real servers, and the fixtures of the interface's tests on SQLite."""

import pytest

from tests.api.conftest import database, processes, served
from tests.system.walks.user import user

__all__ = ["database", "database_url", "processes", "served", "user"]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url
