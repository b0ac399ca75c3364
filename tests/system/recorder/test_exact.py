"""Recorders are killed, frozen and rebalanced, SQL is stopped: every figure is exact in the end.

With PROXIMITY_TEST_FULL=1 a million detections and fifty thousand notifications in twenty rounds;
else a small part of that in four. PROXIMITY_TEST_SEED chooses other disturbances.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterable

import pytest
from confluent_kafka import Producer

from catalog.database import open_database
from tests.recorder.estate import build_estate
from tests.recorder.flood import Flood, Message, assert_written, recorded
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.waiting import eventually
from tests.system.rig import Rig
from tests.system.topics import TopicSet

SEED = int(os.environ.get("PROXIMITY_TEST_SEED", "5"))
FULL = "PROXIMITY_TEST_FULL" in os.environ
SETTINGS = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5", "BATCH_RECORDS": "2000"}
ROUNDS = 20 if FULL else 4
DETECTIONS, NOTIFICATIONS, AUTHENTICATIONS, PRESENCE, DEVICES = (  # a round; devices in all
    (50_000, 2500, 500, 2500, 20_000) if FULL else (10_000, 1000, 200, 1000, 2000)
)
CATCH_UP = 1200.0 if FULL else 90.0


def publish(bootstrap: str, prefix: str, messages: Iterable[Message]) -> int:
    """Publish very many messages quickly, keyed as a pipeline would. Returns their number."""
    own = {"enable.idempotence": True, "linger.ms": 20, "partitioner": "murmur2_random"}
    producer, count = Producer({"bootstrap.servers": bootstrap, **own}), 0
    for topic, key, value, arrived_ms in messages:
        producer.produce(prefix + topic, value, key, timestamp=arrived_ms)
        count += 1
    assert producer.flush(60) == 0
    return count


class Crew:
    """Recorders that are killed, frozen, started and stopped while they work."""

    def __init__(self, rig: Rig, topics: TopicSet, bootstrap: str, size: int) -> None:
        self._rig = rig
        self._place = bootstrap, topics.name("")
        self._dice = random.Random(SEED)
        self._published = 0
        self.database = open_database(rig.environment["DATABASE_URL"])
        self.members = [rig.recorder() for _ in range(size)]

    async def publish(self, flood: Flood) -> None:
        """Publish the records of one round."""
        for messages in (
            flood.authentications(AUTHENTICATIONS),
            flood.notifications(NOTIFICATIONS),
            flood.presence(PRESENCE),
            flood.detections(DETECTIONS),
        ):
            self._published += await asyncio.to_thread(publish, *self._place, messages)

    async def is_done(self) -> bool:
        return await recorded(self.database) == self._published

    async def until_progress(self, records: int) -> None:
        """Wait until so many more records are recorded, or all of them."""
        wanted = await recorded(self.database) + records

        async def has_reached() -> bool:
            for member in self.members:
                assert member.process.poll() is None, member.output
            return await recorded(self.database) >= wanted or await self.is_done()

        await eventually(has_reached, what="progress")

    async def until_ready(self) -> None:
        for member in self.members:
            await member.until_ready()

    async def disturb(self) -> None:
        """Kill, freeze or restart one recorder, after it has worked for a random time."""
        await self.until_progress(self._dice.randint(1, 5000))
        number = self._dice.randrange(len(self.members))
        victim, other = self.members[number], self.members[number - 1]
        harms = ["kill", "kill", "restart"] + ["join", "freeze"] * (other is not victim)
        harm = self._dice.choice(harms)
        if harm == "freeze":  # until the others own its partitions
            await self.until_ready()
            before = other.output.count("partitions assigned")
            victim.process.send_signal(signal.SIGSTOP)
            try:
                await eventually(
                    lambda: other.output.count("partitions assigned") > before,
                    what="a rebalance",
                )
            finally:
                victim.process.send_signal(signal.SIGCONT)
        elif harm == "join":  # and leave: two rebalances
            another = self._rig.recorder()
            await another.until_ready()
            another.kill()
        else:
            if harm == "kill":
                victim.kill()
            else:
                await victim.until_ready()
                await victim.stop()
            self.members[number] = self._rig.recorder()

    async def outage(
        self, server: PostgresServer, publishing: "asyncio.Task[None]", *, kill: bool
    ) -> None:
        """PostgreSQL is stopped in good order, or dies in the middle of transactions."""

        async def all_report_it() -> bool:
            return not any([(await each.checks()).get("sql", True) for each in self.members])

        if kill:
            await self.until_progress(1000)
        await asyncio.to_thread(server.kill if kill else server.stop)
        await eventually(all_report_it, what="not ready")
        await publishing
        await asyncio.to_thread(server.start)
        await self.until_ready()


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("kind", "size"), [("postgres", 2), ("sqlite", 1)])
async def test_every_figure_is_exact(
    stores: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    request: pytest.FixtureRequest,
    kind: str,
    size: int,
) -> None:
    server: PostgresServer | None = None
    stores.environment |= SETTINGS
    if kind == "postgres":
        server = request.getfixturevalue("own_postgres")
        stores.environment["DATABASE_URL"] = create_database(server.admin_url)
    await topics.create()
    estate = await build_estate(stores.environment["DATABASE_URL"])
    now_ms = time.time_ns() // 1_000_000
    flood = Flood(estate, random.Random(SEED), devices=DEVICES, now_ms=now_ms)
    crew = Crew(stores, topics, kafka_bootstrap, size)
    await crew.until_ready()
    for number in range(ROUNDS if server else ROUNDS // 2):
        publishing = asyncio.create_task(crew.publish(flood))
        if server and number in (1, ROUNDS - 2):
            await crew.outage(server, publishing, kill=number > 1)
        await crew.disturb()
        await publishing
    await eventually(crew.is_done, deadline=CATCH_UP, what="everything recorded")
    await crew.until_ready()
    for member in crew.members:
        await member.stop()
    await assert_written(crew.database, flood.expected)
    await crew.database.close()
    letters = [dict(letter.headers) for letter in await topics.read("dead-letters")]
    places = {(h["topic"], h["partition"], h["offset"]): h["topic"] for h in letters}
    for topic, count in flood.expected.dead_letters.items():
        assert list(places.values()).count(topics.name(topic).encode()) == count, topic
    verify = stores.start("verify")
    assert await verify.ended(CATCH_UP) == 0, verify.output
