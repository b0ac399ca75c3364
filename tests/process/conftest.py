"""The management interface as a process, on SQLite and a real Redis."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from catalog.database import Database, open_database
from tests.api.process import ApiProcess, api_rig, make_account
from tests.servers.schema import make_schema
from tests.system.rig import Rig


@pytest.fixture
async def database(sqlite_url: str) -> AsyncIterator[Database]:
    """A migrated database with the account."""
    await make_schema(sqlite_url)
    opened = open_database(sqlite_url)
    await make_account(opened)
    yield opened
    await opened.close()


@pytest.fixture
def processes(sqlite_url: str, redis_url: str, tmp_path: Path) -> Iterator[Rig]:
    """Starts processes, and stops those that still run at the end."""
    rig = api_rig(tmp_path, sqlite_url, redis_url)
    yield rig
    rig.close()


@pytest.fixture
async def served(database: Database, processes: Rig) -> ApiProcess:
    """A process that is ready."""
    return await ApiProcess(processes).until_ready()
