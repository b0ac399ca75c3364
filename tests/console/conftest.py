"""The console in this process, on SQLite and a real Redis."""

from collections.abc import AsyncIterator
from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import text

from catalog.models import Base
from tests.api.conftest import _cheap_passwords, api, bodies, settings
from tests.api.harness import Bodies, Harness
from tests.console.visitor import Visitor

__all__ = ["_cheap_passwords", "api", "bodies", "settings"]
ZONE = "Europe/Paris"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
async def visitor(api: Harness) -> AsyncIterator[Visitor]:
    """A signed-in visitor with all permissions, where no id is one of two kinds of record."""
    first = [{"name": name, "seq": 100 * at} for at, name in enumerate(Base.metadata.tables, 1)]
    async with api.database.write.begin() as session:
        await session.execute(text("INSERT INTO sqlite_sequence VALUES (:name, :seq)"), first)
    async with Visitor(api, await api.account()) as made:
        yield made


@pytest.fixture
async def venue(visitor: Visitor, bodies: Bodies) -> int:
    return await visitor.made("/region", bodies.venue(name="Pier", time_zone=ZONE))


@pytest.fixture
def today() -> date:
    """The day at the venue when the test begins: the console's day."""
    return datetime.now(ZoneInfo(ZONE)).date()
