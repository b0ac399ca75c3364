"""A trigger's view of one campaign, updated by two drainers and a watch as in processes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from catalog.database import Database
from catalog.index.drain import OUTAGES, IndexStore, OutboxDrainer, rebuild_if_missing
from catalog.models import Beacon, Campaign
from catalog.redis_connection import RedisClient
from engine.kafka.detections import BeaconKey
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.trigger.place_cache import PlaceCache
from engine.trigger.place_index import IndexWatch, PlaceIndex
from rules.decision import decide
from rules.model import Zone
from tests.catalog.records import Records
from tests.servers.waiting import eventually

PREFIX = "test:"


class Reader:
    """One beacon with one campaign in SQL, and the campaigns that the engine would fire."""

    def __init__(self, database: Database, redis: RedisClient) -> None:
        self.database = database
        self.store = IndexStore(redis, prefix=PREFIX, deadline=30.0)
        self.metrics = Metrics()
        self.index = PlaceIndex(
            redis=redis,
            prefix=PREFIX,
            cache=PlaceCache(1000),
            deadline=30.0,
            metrics=self.metrics,
        )
        self._redis = redis
        self.lags: list[int] = []
        self.beacon: Beacon
        self.campaign: Campaign

    async def furnish(self) -> None:
        """Put the campaign into SQL, open all day."""
        records, today = Records(), datetime.now(UTC)
        async with self.database.write.begin() as session:
            venue = records.venue(records.company())
            self.beacon = records.beacon(venue)
            self.campaign = records.campaign(
                venue,
                beacons=[self.beacon],
                start=today - timedelta(days=5),
                end=today + timedelta(days=5),
                delay=0,
            )
            session.add(self.campaign)

    async def edit(self, **values: object) -> None:
        """Change the campaign in SQL, as a holder does."""
        async with self.database.write.begin() as session:
            campaign = await session.get_one(Campaign, self.campaign.id)
            for name, value in values.items():
                setattr(campaign, name, value)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Run two drainers and a watch, as two processes do, one of them a trigger."""
        drainers = [
            OutboxDrainer(
                database=self.database,
                store=self.store,
                longest_pause=1.0,
                clock=time.monotonic,
                on_lag=self.lags.append,
            )
            for _ in range(2)
        ]

        async def rebuild() -> None:
            try:
                await rebuild_if_missing(self.database, self.store)
            except OUTAGES:
                await asyncio.sleep(0.1)

        watch = IndexWatch(
            redis=self._redis,
            prefix=PREFIX,
            index=self.index,
            rebuild=rebuild,
            max_age=3600.0,
            deadline=30.0,
            metrics=self.metrics,
        )
        tasks = [asyncio.create_task(drainer.run()) for drainer in drainers]
        tasks.append(asyncio.create_task(watch.run()))
        try:
            yield
            assert not any(task.done() for task in tasks), tasks
        finally:
            await cancel(tasks)

    async def fires(self) -> bool:
        """Whether a detection would fire the campaign now."""
        key = BeaconKey(self.beacon.uuid, self.beacon.major, self.beacon.minor)
        found = (await self.index.resolve({key}, 1))[key]
        assert found is not None, "a known beacon became unknown"
        now = time.time()
        return bool(decide(found.target, Zone.NEAR, now, now, 300, {}).granted)

    async def until(self, fires: bool) -> None:
        """Wait until the campaign fires, or does not."""

        async def is_so() -> bool:
            return await self.fires() is fires

        await eventually(is_so, what=f"fires: {fires}")
