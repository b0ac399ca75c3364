"""Errors of SQL: a temporary one is 503 with Retry-After, any other is 500."""

import pytest
from sqlalchemy import make_url, text

from tests.api.harness import Harness, error_body
from tests.servers.postgres import execute


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """Only PostgreSQL cancels statements."""
    return postgres_url


async def test_a_statement_that_is_cut_off(api: Harness, database_url: str) -> None:
    owner = await api.account()
    name = make_url(database_url).database
    execute(database_url, f"ALTER DATABASE \"{name}\" SET statement_timeout = '1s'")
    await api.database.close()  # what is opened from here on has the limit
    async with api.database.engine.begin() as connection:
        await connection.execute(text("LOCK TABLE venue IN ACCESS EXCLUSIVE MODE"))
        answer = await api.call("GET", "/region", owner)
    assert answer.status_code == 503, answer.text
    assert answer.headers["retry-after"]
    assert (await api.call("GET", "/region", owner)).status_code == 200
    async with api.database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE venue RENAME TO no_venue"))
    broken = await api.call("GET", "/region", owner | {"x-request-id": "mine"})
    assert error_body(broken, 500)["message"] == "internal error"
    assert broken.headers["x-request-id"] == "mine"
