"""Recorders are killed, frozen and rebalanced, SQL is stopped: every figure is exact in the end.

With PROXIMITY_TEST_FULL=1 a million detections and fifty thousand notifications in twenty rounds;
else a tenth of that in five. PROXIMITY_TEST_SEED chooses other disturbances.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import pytest

from catalog.database import Database, open_database
from tests.recorder.estate import build_estate
from tests.recorder.flood import Flood, assert_written, recorded
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.waiting import eventually
from tests.system.recorder.crew import Crew
from tests.system.recorder.publishing import publish
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet

SEED = int(os.environ.get("PROXIMITY_TEST_SEED", "5"))
SETTINGS = {
    "KAFKA_SESSION_TIMEOUT": "2",
    "DRAIN_TIMEOUT": "5",
    "BATCH_RECORDS": "2000",
}


class Size(NamedTuple):
    """The size of a run. The counts are those of all rounds."""

    detections: int
    notifications: int
    authentications: int
    devices: int
    rounds: int


FULL = "PROXIMITY_TEST_FULL" in os.environ
SIZE = Size(1_000_000, 50_000, 10_000, 20_000, 20) if FULL else Size(100_000, 5000, 1000, 2000, 5)
ON_SQLITE = SIZE._replace(rounds=SIZE.rounds // 2)
CATCH_UP = 1200.0 if FULL else 90.0


class Scene:
    """A flood of records for recorders, over one database."""

    def __init__(
        self, rig: Rig, topics: TopicSet, bootstrap: str, database: Database, size: Size
    ) -> None:
        self._rig = rig
        self._topics = topics
        self._bootstrap = bootstrap
        self._database = database
        self._size = size
        self._dice = random.Random(SEED)
        self._published = 0

    async def play(
        self, url: str, recorders: int, *, outages: dict[int, Callable[[Crew], AsyncIterator[None]]]
    ) -> None:
        """Run all rounds, with `outages` by round, and compare the figures."""
        size = self._size
        await self._topics.create()
        estate = await build_estate(url)
        now_ms = time.time_ns() // 1_000_000
        flood = Flood(estate, self._dice, devices=size.devices, now_ms=now_ms)
        crew = Crew(
            self._rig, self._dice, size=recorders, count=self._recorded, is_done=self._is_done
        )
        for number in range(size.rounds):
            publishing = asyncio.create_task(self._publish(flood))
            if number in outages:
                async for _ in outages[number](crew):
                    await publishing
            await crew.disturb()
            await publishing
        print("disturbances:", crew.happened)
        await eventually(self._is_done, deadline=CATCH_UP, what="everything recorded")
        await crew.until_ready()
        await crew.stop()
        await assert_written(self._database, flood.expected)
        letters = [dict(letter.headers) for letter in await self._topics.read("dead-letters")]
        places = {(h["topic"], h["partition"], h["offset"]): h["topic"] for h in letters}
        for topic, count in flood.expected.dead_letters.items():
            name = self._topics.name(topic).encode()
            assert list(places.values()).count(name) == count, topic
        assert await self._verified() == 0

    async def _publish(self, flood: Flood) -> None:
        """Publish the records of one round, with disturbances."""
        for make, count in (
            (flood.authentications, self._size.authentications),
            (flood.notifications, self._size.notifications),
            (flood.detections, self._size.detections),
        ):
            messages = make(count // self._size.rounds)
            self._published += await publish(self._bootstrap, self._topics.name(""), messages)

    async def _recorded(self) -> int:
        return await recorded(self._database)

    async def _is_done(self) -> bool:
        return await self._recorded() == self._published

    async def _verified(self) -> int:
        verify = self._rig.start("verify")
        status = await verify.ended(CATCH_UP)
        print(verify.output)
        return status


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = open_database(url)
    yield database
    await database.close()


async def _stopped(server: PostgresServer, crew: Crew) -> AsyncIterator[None]:
    """PostgreSQL is stopped: every recorder reports it and continues when PostgreSQL is back."""
    await asyncio.to_thread(server.stop)
    for member in crew.members:
        await eventually(partial(_is_without_sql, member), deadline=45, what="not ready")
    yield
    await asyncio.to_thread(server.start)
    await crew.until_ready()


async def _killed(server: PostgresServer, crew: Crew) -> AsyncIterator[None]:
    """PostgreSQL dies in the middle of transactions, and comes back."""
    await crew.until_progress(1000)
    await asyncio.to_thread(server.kill)
    yield
    await asyncio.to_thread(server.start)
    await crew.until_ready()


async def _is_without_sql(member: Command) -> bool:
    return (await member.checks()).get("sql") is False


@pytest.mark.timeout(2400 if FULL else 240)
async def test_two_recorders_on_postgresql(
    rig: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    own_postgres: PostgresServer,
) -> None:
    url = create_database(own_postgres.admin_url)
    rig.environment |= {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": url}
    outages = {
        1: lambda crew: _stopped(own_postgres, crew),
        SIZE.rounds - 2: lambda crew: _killed(own_postgres, crew),
    }
    async with opened(url) as database:
        scene = Scene(rig, topics, kafka_bootstrap, database, SIZE)
        await scene.play(url, 2, outages=outages)


@pytest.mark.timeout(2400 if FULL else 240)
async def test_one_recorder_on_sqlite(
    rig: Rig, topics: TopicSet, kafka_bootstrap: str, redis_url: str, sqlite_url: str
) -> None:
    rig.environment |= {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    async with opened(sqlite_url) as database:
        scene = Scene(rig, topics, kafka_bootstrap, database, ON_SQLITE)
        await scene.play(sqlite_url, 1, outages={})
