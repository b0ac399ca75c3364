"""Kafka is unreachable for a process: readiness and a metric show it, and the log stays short."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.servers.freezing import frozen
from tests.servers.kafka.server import KafkaServer
from tests.servers.waiting import eventually
from tests.system.kafka.stream import detections, ids, open_world
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import World

OUTAGE = 8.0
DRAIN = 10.0
SLACK = 4.0  # on a busy machine
COUNT = 500


@pytest.fixture
async def silent(
    own_kafka: KafkaServer, topic_prefix: str, redis_url: str, sqlite_url: str, tmp_path: Path
) -> AsyncIterator[tuple[Rig, TopicSet, World]]:
    """A rig on a broker of the test's own, with topics and a catalog."""
    topics = TopicSet(own_kafka.bootstrap_servers, topic_prefix, f"{topic_prefix}g.trigger")
    await topics.create()
    world = open_world()
    await world.save(sqlite_url)
    rig = Rig(
        tmp_path,
        {
            "KAFKA_BOOTSTRAP_SERVERS": own_kafka.bootstrap_servers,
            "TOPIC_PREFIX": topic_prefix,
            "GROUP_PREFIX": f"{topic_prefix}g.",
            "REDIS_PREFIX": topic_prefix,
            "REDIS_URL": redis_url,
            "DATABASE_URL": sqlite_url,
            "KAFKA_SESSION_TIMEOUT": "6",
            "LOG_FORMAT": "json",
        },
    )
    yield rig, topics, world
    rig.close()


@pytest.mark.timeout(180)
async def test_a_broker_that_stops_and_returns(
    own_kafka: KafkaServer, silent: tuple[Rig, TopicSet, World]
) -> None:
    rig, topics, world = silent
    trigger = rig.trigger()
    await trigger.until_ready()
    await topics.publish(detections(world, 0, COUNT))
    await topics.until_done()
    before = len(trigger.output.splitlines())
    await asyncio.to_thread(own_kafka.kill)

    async def is_not_ready() -> bool:
        return (await trigger.checks()).get("kafka") is False

    await eventually(is_not_ready, what="readiness shows it")
    await asyncio.sleep(OUTAGE)  # what it does meanwhile is the test's subject
    assert (await trigger.metrics()).total("kafka_errors") > 0
    lines = trigger.output.splitlines()[before:]
    assert len(lines) <= 30, "\n".join(lines)
    await asyncio.to_thread(own_kafka.start)
    await eventually(trigger.is_ready, deadline=60, what="ready again")
    await topics.publish(detections(world, COUNT, COUNT))
    await topics.until_done()
    assert len(ids(await topics.read("notifications"))) == 2 * COUNT
    await trigger.stop()


@pytest.mark.timeout(180)
async def test_a_process_ends_within_the_drain_timeout_though_the_broker_is_frozen(
    own_kafka: KafkaServer, silent: tuple[Rig, TopicSet, World]
) -> None:
    rig, topics, world = silent
    trigger = rig.trigger(DRAIN_TIMEOUT=str(DRAIN))
    await trigger.until_ready()
    await topics.publish(detections(world, 0, COUNT))
    await topics.until_done()
    # What is published while the broker freezes is in flight.
    publishing = asyncio.create_task(topics.publish(detections(world, COUNT, 20 * COUNT)))
    await asyncio.sleep(0.5)
    with frozen(own_kafka):
        begin = time.monotonic()
        trigger.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(trigger.process.wait, DRAIN + 20)
        seconds = time.monotonic() - begin
    await publishing
    print(f"stopped within {seconds:.1f} s")
    assert seconds < DRAIN + SLACK, trigger.output
