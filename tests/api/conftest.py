"""The application in this process and as a process, on each database and a real Redis."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from argon2.profiles import CHEAPEST

from catalog.database import Database
from engine.process.settings import Settings
from tests.api.harness import Bodies, Harness, Headers, app_settings, harness
from tests.api.process import make_account
from tests.servers.proximity import Command, Rig


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password costs 100 ms and 64 MB on purpose; most tests are about everything else."""
    monkeypatch.setattr("catalog.passwords._hasher", PasswordHasher.from_parameters(CHEAPEST))


@pytest.fixture
def settings(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr("api.sessions.LOGIN_FAILURES", 3)
    return app_settings(database_url, redis_url)


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Harness]:
    async with harness(settings) as made:
        yield made


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture
async def owner(api: Harness) -> Headers:
    """An account of a company with all permissions."""
    return await api.account()


@pytest.fixture
async def venue(api: Harness, owner: Headers, bodies: Bodies) -> int:
    return int((await api.call("POST", "/region", owner, bodies.venue())).json()["id"])


@pytest.fixture
async def database(database: Database) -> Database:
    """With the account of `sign_in`."""
    await make_account(database)
    return database


@pytest.fixture
def processes(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[Rig]:
    settings = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "LOG_FORMAT": "json"}
    made = Rig(tmp_path, settings | {"SECRET_KEY": "a passphrase of the test"})
    yield made
    made.close()


@pytest.fixture
async def served(database: Database, processes: Rig) -> Command:
    """The interface as a process, ready."""
    command = processes.start("api")
    await command.until_ready()
    return command


@pytest.fixture
def today() -> date:
    """The day in UTC when the test begins: a run of all tests may last past midnight."""
    return datetime.now(UTC).date()
