"""A trigger whose clock is hours ahead of the brokers', which refuse its timestamps."""

import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.system.kafka.stream import CommittedTopics
from tests.system.rig import Rig
from tests.system.topics import PARTITIONS, TopicSet
from tests.system.traffic import Message
from tests.system.trigger.neighbours import Neighbours
from tests.system.trigger.test_junk import junk
from tests.system.wrong_clock import WrongClock

FULL = "PROXIMITY_TEST_FULL" in os.environ

# Kafka 4 takes what is dated an hour ahead at most (message.timestamp.after.max.ms).
AHEAD = 2 * 3600
PHONES = 60
DAY_MS = 86_400_000


@pytest.fixture
async def producer(kafka_bootstrap: str) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap) as one:
        yield one


def ahead(message: Message) -> Message:
    """The same detection by a phone whose clock is as wrong as the trigger's: it may fire."""
    body = json.loads(message.value or b"")
    body["detected_at"] = int((time.time() + AHEAD) * 1000)
    return message._replace(value=json.dumps(body).encode())


async def create_wide_detections(bootstrap: str, topics: TopicSet) -> None:
    """Create all topics; the topic of detections accepts timestamps a day ahead."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    wide = {"message.timestamp.after.max.ms": str(DAY_MS)}
    try:
        await admin.create_topics(
            [NewTopic(topics.name("detections"), PARTITIONS, 1, topic_configs=wide)]
        )
    finally:
        await admin.close()
    await topics.create()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("records", "delivery"),
    [
        ("right", "exactly_once"),
        ("ahead", "at_least_once"),
        *([("right", "at_least_once"), ("ahead", "exactly_once")] if FULL else []),
    ],
)
async def test_messages_whose_timestamp_is_refused_are_published_with_another(
    rig: Rig,
    topics: TopicSet,
    producer: AIOKafkaProducer,
    kafka_bootstrap: str,
    topic_prefix: str,
    redis_url: str,
    sqlite_url: str,
    tmp_path: Path,
    delivery: str,
    records: str,
) -> None:
    """With the timestamp of the record, or without one if that is refused too."""
    neighbours = Neighbours()
    await neighbours.world.save(sqlite_url)
    await create_wide_detections(kafka_bootstrap, topics)
    messages = [
        each
        for number, message in enumerate(neighbours.of_quiet(PHONES))
        for each in (ahead(message), junk(f"junk {number}"))
    ]
    dated = round(time.time() * 1000) + (AHEAD * 1000 if records == "ahead" else 0)
    for message in messages:
        await producer.send(
            topics.name("detections"), message.value, key=message.key, timestamp_ms=dated
        )
    await producer.flush()
    rig.environment |= {"REDIS_URL": redis_url, "DATABASE_URL": sqlite_url, "DELIVERY": delivery}
    trigger = WrongClock(tmp_path).start(rig, AHEAD, "run", "--role", "trigger")
    await topics.until_done()
    assert trigger.process.poll() is None, trigger.output

    committed = CommittedTopics(kafka_bootstrap, topic_prefix, "none")
    expected = {dated if records == "right" else -1}
    for topic, key in (("notifications", b"quiet "), ("dead-letters", b"junk ")):
        found = await committed.read(topic)
        assert len({each.key for each in found if each.key.startswith(key)}) == PHONES
        assert len(found) == PHONES
        assert {each.timestamp for each in found} == expected
    logged = [line for line in trigger.output.splitlines() if "refuses this host's clock" in line]
    assert 1 <= len(logged) <= 4, logged
    await trigger.stop()
