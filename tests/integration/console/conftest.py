"""The console in this process, on SQLite and a real Redis."""

from collections.abc import AsyncIterator, Iterator

import pytest

from api.sessions.sign_in import Passwords
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, harness
from tests.integration.console.visitor import Visitor
from tests.servers.schema import make_schema


@pytest.fixture
def settings(sqlite_url: str, redis_url: str) -> Settings:
    return load_settings(
        database_url=sqlite_url,
        redis_url=redis_url,
        secret_key="a passphrase of the test",
        connector_allow_networks="127.0.0.0/8",
        login_attempts_account=3,
        kafka_bootstrap_servers="127.0.0.1:9",
    )


@pytest.fixture(scope="session")
def passwords() -> Iterator[Passwords]:
    made = Passwords()
    yield made
    made.close()


@pytest.fixture
async def api(settings: Settings, passwords: Passwords) -> AsyncIterator[Harness]:
    await make_schema(settings.database_url.get_secret_value())
    async with harness(settings, passwords, with_console=True) as made:
        yield made


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture
async def visitor(api: Harness) -> AsyncIterator[Visitor]:
    """A signed-in visitor with all permissions."""
    async with Visitor(api, await api.account()) as made:
        yield made
