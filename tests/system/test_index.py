"""The index in Redis, by a trigger's view of one campaign, which two drainers and a watch keep: a
part of it falls back to an older copy, changes are lost, Redis is full. And wrong clocks."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError
from structlog.testing import capture_logs

from catalog.database import Database
from catalog.errors import IndexWriteError
from catalog.index.drain import (
    OUTAGES,
    DrainResult,
    IndexStore,
    OutboxDrainer,
    drain_once,
    index_transaction,
    rebuild,
)
from catalog.index.entries import campaign_field
from catalog.models import Campaign
from catalog.redis_connection import RedisClient, connect_redis
from engine.kafka.detections import BeaconKey
from engine.process.health import SKEW_SECONDS, ClockSkew
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.redis.role_states import RedisInspection
from engine.trigger.place_cache import PlaceCache
from engine.trigger.place_index import IndexWatch, PlaceIndex
from rules.decision import decide
from rules.model import Zone
from tests.catalog.records import Records, fresh_index, index_of
from tests.servers.redis import RedisServer
from tests.servers.schema import migrated
from tests.servers.waiting import eventually

PREFIX = "test:"
SECONDS = 30.0
REBUILT = "the index in Redis is not SQL's: rebuilding it"
FULL = "Redis is nearly full, and then no campaign fires: give it more memory"


@pytest.fixture
async def redis(own_redis: RedisServer) -> AsyncIterator[RedisClient]:
    async with connect_redis(own_redis.url, timeout=SECONDS) as client:
        yield client


class Reader:
    """One beacon with one campaign in SQL, open all day, and whether the engine would fire it."""

    def __init__(self, database: Database, redis: RedisClient, metrics: Metrics) -> None:
        self.database = database
        self.store = IndexStore(redis, prefix=PREFIX, deadline=SECONDS)
        self.lags: list[int] = []
        records, today = Records(), datetime.now(UTC)
        dates = {"start": today - timedelta(days=5), "end": today + timedelta(days=5), "delay": 0}
        venue = records.venue(records.company())
        self.beacon = records.beacon(venue)
        self.campaign = records.campaign(venue, beacons=[self.beacon], **dates)
        in_redis: Any = {"redis": redis, "prefix": PREFIX, "deadline": SECONDS, "metrics": metrics}
        self._index = PlaceIndex(cache=PlaceCache(1000), **in_redis)
        self._watch = IndexWatch(
            index=self._index, rebuild=self._rebuild, max_age=3600.0, **in_redis
        )

    @property
    def bucket(self) -> str:
        """The key in Redis that has the campaign."""
        return self.store.keys.of(campaign_field(self.campaign.id))

    async def edit(self, **values: object) -> None:
        """Change the campaign in SQL, as a holder does."""
        async with self.database.write.begin() as session:
            campaign = await session.get_one(Campaign, self.campaign.id)
            for name, value in values.items():
                setattr(campaign, name, value)

    async def _rebuild(self) -> None:
        try:
            await drain_once(self.database, self.store)
        except OUTAGES:
            await asyncio.sleep(0.1)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Run two drainers and a watch, as two processes do, one of them a trigger."""
        drainers = [
            OutboxDrainer(
                database=self.database,
                store=self.store,
                longest_pause=1.0,
                on_lag=self.lags.append,
            )
            for _ in range(2)
        ]
        tasks = [asyncio.create_task(drainer.run()) for drainer in drainers]
        tasks.append(asyncio.create_task(self._watch.run()))
        try:
            yield
            assert not any(task.done() for task in tasks), tasks
        finally:
            await cancel(tasks)

    async def until(self, fires: bool) -> None:
        """Wait until a detection would fire the campaign, or would not."""
        key = BeaconKey(self.beacon.uuid, self.beacon.major, self.beacon.minor)

        async def is_so() -> bool:
            found = (await self._index.resolve({key}, 1))[key]
            assert found is not None, "a known beacon became unknown"
            now = time.time()
            return bool(decide(found.target, Zone.NEAR, now, now, 300, {}).granted) is fires

        await eventually(is_so, what=f"fires: {fires}")


@pytest.fixture
async def reader(sqlite_url: str, redis: RedisClient, metrics: Metrics) -> AsyncIterator[Reader]:
    async with migrated(sqlite_url) as database:
        made = Reader(database, redis, metrics)
        async with database.write.begin() as session:
            session.add(made.campaign)
        yield made


@pytest.mark.parametrize("kept", [False, True], ids=["at rest", "while it is kept"])
async def test_one_bucket_alone_is_put_back(reader: Reader, redis: RedisClient, kept: bool) -> None:
    """A node of a cluster fell back; or a part of one write survived."""
    await rebuild(reader.database, reader.store)
    older: Any = await redis.dump(reader.bucket)
    await reader.edit(active=False)
    while await drain_once(reader.database, reader.store) is not DrainResult.IDLE:
        pass
    if not kept:
        await redis.restore(reader.bucket, 0, older, replace=True)
    with capture_logs() as logs:

        def rebuilt() -> int:
            return sum(line["event"] == REBUILT for line in logs)

        async with reader.kept():
            if kept:
                await reader.until(fires=False)
                await redis.restore(reader.bucket, 0, older, replace=True)
            await eventually(rebuilt, what="it is noticed")
            await reader.until(fires=False)
            await eventually(lambda: reader.lags[-1] == 0)
    assert rebuilt() == 1
    assert await index_of(redis, reader.store) == await fresh_index(reader.database)
    assert max(reader.lags) > 0


async def test_a_write_on_top_does_not_hide_what_is_lost(
    reader: Reader, redis: RedisClient
) -> None:
    """The next edit comes before a comparison."""
    await rebuild(reader.database, reader.store)
    older: Any = await redis.dump(reader.bucket)
    async with index_transaction(reader.database, reader.store, wait=True) as transaction:
        assert transaction is not None
        await transaction.write({campaign_field(reader.campaign.id): b"{}"})
        await redis.restore(reader.bucket, 0, older, replace=True)
        with pytest.raises(IndexWriteError):
            await transaction.write({campaign_field(reader.campaign.id): b"{}"})
    await reader.edit(title="the next edit")
    assert await drain_once(reader.database, reader.store) is DrainResult.REBUILT
    assert await index_of(redis, reader.store) == await fresh_index(reader.database)


async def test_a_stream_of_changes_whose_ids_went_back_is_read(
    reader: Reader, redis: RedisClient
) -> None:
    """The clock of the lost server was ahead of its successor's."""
    changes = reader.store.keys.changes

    async def is_read_to_its_end() -> bool:
        """Every waiting reader is beyond the end of the stream, so none gets an answer."""
        clients = await redis.client_list()
        return any(client["cmd"] == "xread" and client["flags"] == "b" for client in clients)

    async with reader.kept():
        await reader.until(fires=True)
        ahead = f"{int(time.time() * 1000) + 3_600_000}-0"
        fields: dict[Any, Any] = {"generation": 0, "step": 0, "keys": "[]"}
        older: Any = await redis.dump(changes)
        await redis.xadd(changes, fields, id=ahead)
        await eventually(is_read_to_its_end)
        await redis.restore(changes, 0, older, replace=True)
        await reader.edit(active=False)
        await reader.until(fires=False)


async def test_a_full_redis_is_seen_and_can_be_relieved(
    reader: Reader, redis: RedisClient, metrics: Metrics
) -> None:
    """Switching a campaign off reaches the triggers although Redis is full."""
    await reader.edit(html="x" * 1024 * 1024)
    inspection = RedisInspection(redis=redis, prefix="", metrics=metrics, deadline=SECONDS)
    async with reader.kept():
        await reader.until(fires=True)
        with capture_logs() as logs:
            used = (await redis.info("memory"))["used_memory"]
            await redis.config_set("maxmemory", int(used) // 2)
            with pytest.raises(OutOfMemoryError):
                await redis.set("test:claim", b"")
            await inspection.inspect()
            await inspection.inspect()
            assert (metrics.registry.get_sample_value("proximity_redis_memory_ratio") or 0) > 1
            await reader.edit(active=False)
            await reader.until(fires=False)
            await redis.config_set("maxmemory", 0)
            await inspection.inspect()
    assert [line["log_level"] for line in logs if FULL in line.values()] == ["warning"]


async def test_clocks_that_differ_are_logged_once(metrics: Metrics) -> None:
    """One server with a wrong clock does not make this one wrong."""
    off, wrong = {"redis": 0.0, "sql": 0.0}, set[str]()

    async def read(server: str) -> float:
        return time.time() + off[server]

    skew = ClockSkew({server: partial(read, server) for server in off}, metrics.clock_skew)
    for shifts in ((0, 0), (240, 240), (240, 240), (0, 0), (-240, -240), (0, 0), (0, 2_764_800)):
        off |= zip(off, map(float, shifts), strict=True)
        before, wrong = wrong, {server for server in off if off[server]}
        with capture_logs() as logs:
            for server in off:
                await skew.measure(server)
        assert {line["server"] for line in logs} == wrong - before
        assert skew.agrees_within(SKEW_SECONDS) is (len(wrong) < 2)
        for server, shift in off.items():
            labels = {"server": server}
            shown = metrics.registry.get_sample_value("proximity_clock_skew_seconds", labels)
            assert shown == pytest.approx(-shift, abs=SECONDS)
