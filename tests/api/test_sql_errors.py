"""Errors of SQL: a temporary one is 503 with Retry-After, any other is 500."""

import pytest
from sqlalchemy import make_url, text

from tests.api.harness import Bodies, Harness, error_body
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
    broken = await api.call("GET", "/region", owner)
    assert error_body(broken, 500)["message"] == "internal error"


async def test_sessions_that_the_server_has_ended(
    api: Harness, bodies: Bodies, database_url: str
) -> None:
    """As after a restart of the server: the next read and the next write succeed."""
    owner = await api.account()
    for method, body in (("GET", None), ("POST", bodies.venue())):
        await api.call("GET", "/region", owner)
        execute(
            database_url,
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        assert (await api.call(method, "/region", owner, body)).is_success, method
