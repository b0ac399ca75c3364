"""Topics with a few records, and a database with their figures."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from catalog.database import Database, open_database
from tests.integration.commands.proximity import Proximity
from tests.servers.schema import make_schema

_NOW = "2026-11-20 10:00:00"
_ROWS = (
    "INSERT INTO company (id, name, active, create_on) VALUES (1, 'alpha', true, '{now}')",
    "INSERT INTO venue (id, company_id, name, address, active) VALUES (1, 1, 'Hall', '-', true)",
    "INSERT INTO beacon (id, venue_id, name, uuid, major, minor, active, proximity) VALUES "
    "(1, 1, 'door', 'b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10', 1, 2, true, 'far')",
    "INSERT INTO device (id, company_id, udid, nb_beacon, nb_campaign, test, create_on, update_on)"
    " VALUES (5, 1, 'a', 3, 0, false, '{now}', '{now}')",
)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    await make_schema(database_url)
    opened = open_database(database_url)
    async with opened.engine.begin() as connection:
        for row in _ROWS:
            await connection.execute(text(row.format(now=_NOW)))
    yield opened
    await opened.close()


@pytest.fixture
def bootstrap(embedded_kafka: str) -> str:
    """The broker; a test may use another."""
    return embedded_kafka


@pytest.fixture
def proximity(tmp_path: Path, bootstrap: str, topic_prefix: str, database_url: str) -> Proximity:
    command = Proximity(
        tmp_path,
        bootstrap,
        topic_prefix,
        PROXIMITY_DATABASE_URL=database_url,
        PROXIMITY_TRACE="none",
    )
    command.mention("detections", "notifications", "authentications")
    return command
