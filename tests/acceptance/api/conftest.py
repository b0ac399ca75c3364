"""Processes of the management interface on each database and a real Redis."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from catalog.database import Database, open_database
from tests.acceptance.api.process import ApiProcess, api_rig, make_account
from tests.acceptance.rig import Rig
from tests.servers.schema import make_schema


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A migrated database with the account."""
    await make_schema(database_url)
    opened = open_database(database_url)
    await make_account(opened)
    yield opened
    await opened.close()


@pytest.fixture
def processes(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Rig]:
    """Starts processes, and stops those that still run at the end."""
    rig = api_rig(tmp_path, database_url, redis_url)
    yield rig
    rig.close()


@pytest.fixture
async def served(database: Database, processes: Rig) -> ApiProcess:
    """A process that is ready."""
    return await ApiProcess(processes).until_ready()
