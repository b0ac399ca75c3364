"""Recorders are killed, frozen and rebalanced, SQL is stopped, topics are created again: every
figure is exact in the end.

With PROXIMITY_TEST_FULL=1 a million detections and fifty thousand notifications in twenty rounds;
else a small part of that in four. PROXIMITY_TEST_SEED chooses other disturbances.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable

import pytest
from sqlalchemy import text

from catalog.database import Database, open_database
from tests.recorder.estate import build_estate
from tests.recorder.flood import Flood, assert_written, recorded
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.proximity import Rig
from tests.servers.schema import on_postgres
from tests.servers.waiting import eventually
from tests.system.crew import Crew
from tests.system.topics import TopicSet

SEED = int(os.environ.get("PROXIMITY_TEST_SEED", "5"))
FULL = "PROXIMITY_TEST_FULL" in os.environ
ROUNDS = 20 if FULL else 4
DETECTIONS, NOTIFICATIONS, AUTHENTICATIONS, PRESENCE, DEVICES = (  # a round; devices in all
    (50_000, 2500, 500, 2500, 20_000) if FULL else (10_000, 1000, 200, 1000, 2000)
)
CATCH_UP = 1200.0 if FULL else 200.0


class Recorders(Crew):
    """Recorders, and how much of what was published they have recorded."""

    def __init__(self, rig: Rig, topics: TopicSet, size: int) -> None:
        self._dice = random.Random(SEED)
        super().__init__(rig, "recorder", size, self._dice, BATCH_RECORDS="2000")
        self.database: Database = open_database(rig.settings["DATABASE_URL"])
        self._topics = topics
        self._published = 0

    async def publish(self, flood: Flood) -> None:
        """Publish the records of one round: for one recorder, on SQLite, a third."""
        part = 1 if len(self.members) > 1 else 3
        for topic, messages in flood.messages(
            authentications=AUTHENTICATIONS // part,
            notifications=NOTIFICATIONS // part,
            presence=PRESENCE // part,
            detections=DETECTIONS // part,
        ):
            self._published += await self._topics.publish(messages, topic)

    async def is_done(self) -> bool:
        return await recorded(self.database) == self._published

    async def until_progress(self) -> None:
        """Wait until a random number of records more is recorded, or all of them."""
        wanted = await recorded(self.database) + self._dice.randint(1, 5000)

        async def has_reached() -> bool:
            self.assert_running()
            return await recorded(self.database) >= wanted or await self.is_done()

        await eventually(has_reached, what="progress")

    async def outage(
        self, server: PostgresServer, end: Callable[[], None], publishing: "asyncio.Task[None]"
    ) -> None:
        """PostgreSQL is stopped in good order, or dies in the middle of transactions."""

        async def all_report_it() -> bool:
            return all([await each.reports("sql") for each in self.members])

        await self.until_progress()
        await asyncio.to_thread(end)
        await eventually(all_report_it, what="not ready")
        await publishing
        await asyncio.to_thread(server.start)
        await self.until_ready()


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("kind", "size"), [("postgres", 2), ("sqlite", 1)])
async def test_every_figure_is_exact(
    stores: Rig, topics: TopicSet, request: pytest.FixtureRequest, kind: str, size: int
) -> None:
    server: PostgresServer | None = None
    if kind == "postgres":
        server = request.getfixturevalue("own_postgres")
        stores.settings["DATABASE_URL"] = create_database(server.admin_url)
    await topics.create()
    estate = await build_estate(stores.settings["DATABASE_URL"])
    now_ms = time.time_ns() // 1_000_000
    flood = Flood(estate, random.Random(SEED), devices=DEVICES, now_ms=now_ms)
    crew = Recorders(stores, topics, size)
    await crew.until_ready()
    harms = ("kill", "kill", "restart", *["freeze"] * (size - 1))
    for number in range(ROUNDS if server else ROUNDS // 2):
        publishing = asyncio.create_task(crew.publish(flood))
        if server and number in (1, ROUNDS - 2):
            await crew.outage(server, server.stop if number == 1 else server.kill, publishing)
        await crew.until_progress()
        await crew.harm(*harms)
        await publishing
    await eventually(crew.is_done, deadline=CATCH_UP, what="everything recorded")
    await crew.stop()
    await assert_written(crew.database, flood.expected)
    await crew.database.close()
    letters = [dict(letter.headers) for letter in await topics.read("dead-letters")]
    places = {(h["topic"], h["partition"], h["offset"]): h["topic"] for h in letters}
    for topic, count in flood.expected.dead_letters.items():
        assert list(places.values()).count(topics.name(topic).encode()) == count, topic
    await stores.verify()


# As many as a topic has that a client's question makes first.
PARTITIONS = 4
TOPICS = ("detections", "notifications", "authentications")
TOPIC_REPLACED = "the topic is another one, reading it from its beginning"
OFFSETS = "SELECT topic_id, next_offset FROM recorder_offset WHERE topic NOT LIKE '%presence'"


async def until_recorded(database: Database, count: int, before: set[str]) -> set[str]:
    """Wait until SQL has so many records of topics that were not there before. Their ids."""

    async def ids() -> set[str]:
        async with database.engine.connect() as connection:
            found = (await connection.execute(text(OFFSETS))).all()
        ids = {row.topic_id for row in found}
        is_done = sum(row.next_offset for row in found) == count and not ids & before
        return ids if is_done else set()

    found: set[str] = await eventually(ids, what="all is recorded")
    return found


@on_postgres
@pytest.mark.parametrize("is_away", [False, True])
async def test_counters_and_traces_are_exact(
    rig: Rig,
    database: Database,
    kafka_bootstrap: str,
    topic_prefix: str,
    redis_url: str,
    database_url: str,
    is_away: bool,
) -> None:
    rig.settings |= {"REDIS_URL": redis_url, "DATABASE_URL": database_url}
    now_ms = time.time_ns() // 1_000_000
    flood = Flood(await build_estate(database_url), random.Random(5), devices=200, now_ms=now_ms)
    topics = TopicSet(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.", PARTITIONS)
    await topics.create()

    async def publish_some(size: int) -> int:
        counts = {"detections": 10 * size, "notifications": 2 * size, "authentications": size}
        made = flood.messages(**counts)
        return sum([await topics.publish(messages, topic) for topic, messages in made])

    recorder = rig.role("recorder")
    first = await until_recorded(database, await publish_some(300), set())
    assert len(first) == len(TOPICS)
    if is_away:
        await recorder.stop()
        await topics.recreate(*TOPICS)
        count = await publish_some(1000)
        verify = rig.start("verify")  # there is nothing to compare with
        assert await verify.ended() == 1, verify.output
        for short in TOPICS[:2]:
            name = topics.name(short)
            recreated = f"{name}/0: the topic was created again since SQL recorded it"
            assert recreated in verify.output
        recorder = rig.role("recorder")
    else:
        await topics.recreate(*TOPICS)
        everywhere = len(TOPICS) * PARTITIONS
        await eventually(lambda: recorder.output.count(TOPIC_REPLACED) >= everywhere)
        count = await publish_some(60)
    await until_recorded(database, count, first)
    await assert_written(database, flood.expected)
    await recorder.stop()
    verify = await rig.verify()
    for short in TOPICS[:2]:
        assert f"another topic {topics.name(short)} was recorded before this one" in verify.output
