"""The console in this process, on SQLite and a real Redis."""

from collections.abc import AsyncIterator

import pytest

from engine.process.settings import Settings
from tests.api.conftest import bodies, today
from tests.api.harness import Bodies, Harness, app_settings, harness
from tests.console.visitor import Visitor
from tests.servers.schema import make_schema

__all__ = ["bodies", "today"]


@pytest.fixture
def settings(sqlite_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr("engine.wiring.api.LOGIN_FAILURES", 3)
    return app_settings(sqlite_url, redis_url)


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Harness]:
    await make_schema(settings.database_url.get_secret_value())
    async with harness(settings, with_console=True) as made:
        yield made


@pytest.fixture
async def visitor(api: Harness) -> AsyncIterator[Visitor]:
    """A signed-in visitor with all permissions."""
    async with Visitor(api, await api.account()) as made:
        yield made


@pytest.fixture
async def venue(visitor: Visitor, bodies: Bodies) -> int:
    return await visitor.made("/region", bodies.venue(name="Pier", time_zone="Europe/Paris"))
