"""The device's record for a call: from Redis, else from SQL, on every kind of Redis."""

from collections.abc import AsyncIterator, Callable

import pytest
from asyncpg.connection import LoggedQuery
from sqlalchemy import update

from catalog.database import Database, open_database
from catalog.models import Device
from catalog.redis_connection import RedisClient, connect_redis
from engine.kafka.messages import KnownDevice, ReceivedDevice
from engine.process.metrics import Metrics
from engine.redis.devices import NO_ANSWER, DeviceKey, DeviceLookup, completed_device
from tests.api.harness import counted
from tests.recorder.scene import Scene, open_scene

NOW = 1_700_000_000.0
OUTAGE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
async def scene(sqlite_url: str) -> AsyncIterator[Scene]:
    async with open_scene(sqlite_url) as made:
        yield made


def lookup(
    redis: RedisClient,
    database: Database,
    metrics: Metrics,
    clock: Callable[[], float] = lambda: NOW,
) -> DeviceLookup:
    return DeviceLookup(
        redis=redis, prefix="contract:", database=database, metrics=metrics, clock=clock
    )


async def test_a_device_is_its_companys(redis: RedisClient, scene: Scene, metrics: Metrics) -> None:
    own = DeviceKey(scene.company.id, "of-the-team")
    others = DeviceKey(scene.other.id, "of-the-team")
    found = await lookup(redis, scene.database, metrics).find([own, others, own])
    record = found[own]
    assert record is not None
    assert (record.id_connector, record.test) == (None, True)
    assert isinstance(record.id, int)
    assert found[others] is None


async def test_a_new_connection_is_not_asked_for_types(
    redis: RedisClient, postgres_url: str, metrics: Metrics
) -> None:
    """asyncpg asks PostgreSQL for types that it does not know, such as arrays, before a query."""
    queries: list[LoggedQuery] = []
    async with open_scene(postgres_url) as scene:
        keys = [DeviceKey(scene.company.id, udid) for udid in ("of-the-team", 'n"ew')]
        await scene.database.engine.dispose()
        async with scene.database.engine.connect() as connection:
            raw = await connection.get_raw_connection()
            raw.driver_connection.add_query_logger(queries.append)  # type: ignore[union-attr]
        found = await lookup(redis, scene.database, metrics).find(keys)
    assert [found[key] is None for key in keys] == [False, True]
    assert not any("pg_type" in each.query for each in queries)


async def test_memory_answers_for_less_than_four_seconds(
    redis: RedisClient, scene: Scene, metrics: Metrics
) -> None:
    key, new = DeviceKey(scene.company.id, "of-the-team"), DeviceKey(scene.company.id, "new")
    now = NOW
    reader = lookup(redis, scene.database, metrics, lambda: now)
    await reader.find([key, new])
    async with scene.database.write() as session, session.begin():
        await session.execute(update(Device).values(id_connector=7))
    with counted(scene.database) as statements:
        now = NOW + 3.9
        before = (await reader.find([key, new]))[key]
        assert before is not None
        assert before.id_connector is None
        assert not statements, "memory has answered, for the device that is not there, too"
        now = NOW + 4
        after = (await reader.find([key, new]))[key]
        assert after is not None
        assert after.id_connector == 7


async def test_the_device_in_sql_completes_a_message(
    redis: RedisClient, scene: Scene, metrics: Metrics
) -> None:
    key = DeviceKey(scene.company.id, "of-the-team")
    fields = {"token_push": "t", "name": "ios", "version": "17", "model": "m", "id_connector": 9}
    async with scene.database.write() as session, session.begin():
        await session.execute(update(Device).values(fields))
    found = (await lookup(redis, scene.database, metrics).find([key]))[key]
    assert found is not None
    out = completed_device(ReceivedDevice(udid=key.udid, version="18"), found)
    assert out == KnownDevice(udid=key.udid, id=found.id, **(fields | {"version": "18"}))  # type: ignore[arg-type]


@pytest.mark.parametrize("clock", [NOW + 5, NOW - 5])
async def test_a_copy_that_is_not_fresh_serves_only_while_sql_is_down(
    redis: RedisClient, scene: Scene, metrics: Metrics, clock: float
) -> None:
    key, new = DeviceKey(scene.company.id, "of-the-team"), DeviceKey(scene.company.id, "new")
    before = (await lookup(redis, scene.database, metrics).find([key]))[key]
    down = open_database(OUTAGE)
    found = await lookup(redis, down, metrics, lambda: clock).find([key, new])
    assert found[key] == before
    assert found[new] is NO_ANSWER
    # It goes without the record, so it is no error of SQL for which somebody is called.
    assert metrics.registry.get_sample_value("proximity_sql_errors_total") == 0
    await down.close()
    async with scene.database.write() as session, session.begin():
        await session.execute(update(Device).values(token_push="new"))
    after = (await lookup(redis, scene.database, metrics, lambda: clock).find([key]))[key]
    assert after is not None
    assert after.token_push == "new"


async def test_tables_that_are_being_restored_stop_nothing(
    redis: RedisClient, postgres_url: str, metrics: Metrics
) -> None:
    empty, key = open_database(postgres_url), DeviceKey(1, "of-the-team")
    assert (await lookup(redis, empty, metrics).find([key]))[key] is NO_ANSWER
    assert metrics.registry.get_sample_value("proximity_sql_errors_total") == 1
    await empty.close()


async def test_without_redis_sql_answers(scene: Scene, metrics: Metrics) -> None:
    redis = connect_redis("redis://127.0.0.1:1", timeout=0.2)
    key = DeviceKey(scene.company.id, "of-the-team")
    found = (await lookup(redis, scene.database, metrics).find([key]))[key]
    assert found is not None
    assert found.test
    await redis.aclose()
    assert metrics.registry.get_sample_value("proximity_redis_errors_total") == 1
