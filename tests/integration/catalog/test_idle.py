"""A transaction whose owner has died does not keep its locks for long."""

import pytest
from sqlalchemy import text

from catalog.database import open_database


@pytest.mark.parametrize(("command_timeout", "expected"), [(30.0, "1min"), (120.0, "2min")])
async def test_postgresql_ends_transactions_that_stand_idle(
    postgres_url: str, command_timeout: float, expected: str
) -> None:
    database = open_database(postgres_url, command_timeout=command_timeout)
    try:
        async with database.read() as session:
            limit = await session.scalar(text("SHOW idle_in_transaction_session_timeout"))
    finally:
        await database.close()
    assert limit == expected
