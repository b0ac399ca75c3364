"""What PostgreSQL's driver reads by itself is what a session reads, and it fails as a session."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import (
    Boolean,
    Float,
    Numeric,
    String,
    bindparam,
    cast,
    column,
    func,
    literal,
    select,
    table,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.types import JSON, BigInteger, Date, TypeEngine

from catalog.database import Database, open_database
from catalog.models.base import Instant
from catalog.reading import Reading, read
from tests.servers.postgres import execute

AT = datetime(2026, 11, 20, 10, 30, tzinfo=timezone(timedelta(hours=5)))
TYPES: list[tuple[TypeEngine[Any], Any]] = [
    (BigInteger(), 2**62),
    (String(), "Café 😀"),
    (Boolean(), True),
    (Float(), 0.1),
    (Numeric(10, 3), 1.5),
    (Instant(), AT),
    (Date(), AT.date()),
    (JSON(), {"days": [1, 2], "text": None}),
    (JSONB(), [{"nested": True}]),
]
PLACE = table("place", column("id", BigInteger), column("name", String))
PLACES = Reading(
    select(PLACE.c.id, PLACE.c.name)
    .where(PLACE.c.id.in_(bindparam("ids", expanding=True)), PLACE.c.name != bindparam("name"))
    .order_by(PLACE.c.id)
)
ALL = Reading(select(PLACE.c.id, PLACE.c.name).order_by(PLACE.c.id))
BY_ID = Reading(select(PLACE.c.name).where(PLACE.c.id == bindparam("id")))
DIVIDED = Reading(select((literal(1) / bindparam("by", type_=BigInteger)).label("by")))
NOWHERE = Reading(select(table("nowhere", column("id")).c.id))
CUT_OFF = Reading(select(func.pg_sleep(bindparam("seconds", type_=Float)).label("slept")))


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    execute(postgres_url, "CREATE TABLE place (id bigint, name text)")
    execute(postgres_url, "INSERT INTO place SELECT n, 'place ' || n FROM generate_series(1, 5) n")
    opened = open_database(postgres_url)
    yield opened
    await opened.close()


async def by_driver(database: Database, reading: Reading, **values: Any) -> list[dict[str, Any]]:
    return await read(database, lambda reader: reader.rows(reading, **values))


async def by_session(database: Database, reading: Reading, **values: Any) -> list[dict[str, Any]]:
    async with database.autocommit() as session:
        found = await session.execute(reading.query, values)
        return [dict(row) for row in found.mappings()]


async def both(database: Database, reading: Reading, **values: Any) -> list[dict[str, Any]]:
    """The rows, which are the same."""
    own = await by_driver(database, reading, **values)
    other = await by_session(database, reading, **values)
    assert own == other
    assert [[type(v) for v in row.values()] for row in own] == [
        [type(v) for v in row.values()] for row in other
    ]
    return own


@pytest.mark.parametrize(("of", "value"), TYPES, ids=lambda each: str(each)[:12])
async def test_values_of_each_type(database: Database, of: TypeEngine[Any], value: Any) -> None:
    parameter = bindparam("value", type_=of)
    one = Reading(select(cast(parameter, of).label("own"), parameter.is_(None).label("none")))
    for given in (value, None):
        for _ in range(2):  # as it is first used, and as it is used after that
            await both(database, one, value=given)


async def test_instants_are_in_utc(database: Database) -> None:
    one = Reading(select(cast(bindparam("at", type_=Instant), Instant).label("at")))
    (row,) = await both(database, one, at=AT)
    assert row["at"].isoformat() == AT.astimezone(UTC).isoformat()
    with pytest.raises(ValueError, match="offset"):
        await by_driver(database, one, at=AT.replace(tzinfo=None))


@pytest.mark.parametrize("ids", [[], [3], [1, 2, 3, 9]])
async def test_lists_of_values(database: Database, ids: list[int]) -> None:
    found = await both(database, PLACES, ids=ids, name="place 2")
    assert [row["id"] for row in found] == [number for number in ids if number in (1, 3)]


async def test_a_table_that_changes_between_two_reads(
    database: Database, postgres_url: str
) -> None:
    await by_driver(database, ALL)
    execute(postgres_url, "ALTER TABLE place ALTER COLUMN name TYPE varchar(99)")
    assert len(await by_driver(database, ALL)) == 5


@pytest.mark.parametrize(
    ("reading", "values"),
    [(DIVIDED, {"by": 0}), (NOWHERE, {}), (BY_ID, {"id": "one"}), (CUT_OFF, {"seconds": 60.0})],
    ids=["division", "table", "value", "deadline"],
)
async def test_errors_are_those_of_a_session(
    database: Database, postgres_url: str, reading: Reading, values: dict[str, Any]
) -> None:
    name = database.engine.url.database
    execute(postgres_url, f"ALTER DATABASE \"{name}\" SET statement_timeout = '200ms'")
    raised = []
    for way in (by_driver, by_session):
        with pytest.raises(DBAPIError) as caught:
            await way(database, reading, **values)
        error = caught.value
        text = str(error.orig).partition("\n")[0]
        raised.append((type(error), text, error.connection_invalidated, error.hide_parameters))
    assert raised[0] == raised[1]
    assert len(await by_driver(database, ALL)) == 5


async def test_a_parameter_that_is_missing(database: Database) -> None:
    with pytest.raises(InvalidRequestError, match="'id'"):
        await by_driver(database, BY_ID)
