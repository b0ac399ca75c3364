"""What a process that was killed between its claims and its messages leaves to the next one."""

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from typing import cast

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from catalog.database import Database, open_database
from catalog.migrate import migrate
from catalog.redis_connection import RedisClient, connect_redis
from engine.kafka.detections import decode_record
from engine.kafka.publisher import Publisher
from engine.kafka.topics import Topics
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from engine.redis.claims import ClaimRequest, Claims, ClaimUpdater
from engine.redis.devices import DeviceLookup
from engine.trigger.beacon_cache import BeaconCache
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.compose import notification_id
from engine.trigger.pipeline import Trigger
from rules.model import CampaignSnapshot
from tests.acceptance.topics import TopicSet
from tests.contract.index_writer import PREFIX, Writer, beacon_entry, campaign_entry
from tests.servers.waiting import eventually
from tests.unit.rules.records import UUID, campaign

DELAY = 3
NOW = 1_795_200_000_000  # the trigger's clock stands there too


@pytest.fixture
async def redis(embedded_redis_url: str) -> AsyncIterator[RedisClient]:
    client = connect_redis(embedded_redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def settings(embedded_kafka: str, topic_prefix: str) -> Settings:
    return load_settings(kafka_bootstrap_servers=embedded_kafka, topic_prefix=topic_prefix)


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    one = Publisher.from_settings(settings)
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def database(sqlite_url: str) -> AsyncIterator[Database]:
    await migrate(sqlite_url)
    opened = open_database(sqlite_url)
    yield opened
    await opened.close()


def record(offset: int, seconds: float, topic: str) -> "ConsumerRecord[bytes, bytes]":
    body = {"uuid": UUID, "major": 1, "minor": 2, "proximity": 1, "device": {"udid": "phone"}}
    body["detected_at"] = NOW + int(seconds * 1000)
    value = json.dumps(body).encode()
    return ConsumerRecord(
        topic=topic,
        partition=0,
        offset=offset,
        timestamp=NOW,
        timestamp_type=0,
        key=b"phone",
        value=value,
        checksum=None,
        serialized_key_size=-1,
        serialized_value_size=-1,
        headers=(),
    )


def request(of: "ConsumerRecord[bytes, bytes]", chosen: CampaignSnapshot) -> ClaimRequest:
    heard = decode_record(of, 2.0)
    owner = notification_id(heard, chosen)
    return ClaimRequest(chosen.id, "phone", owner, heard.detected_at, DELAY)


def build_trigger(
    redis: RedisClient, settings: Settings, database: Database, publisher: Publisher
) -> Trigger:
    """A trigger whose clock stands, and whose index is built."""
    metrics = Metrics()
    index = BeaconIndex(
        redis=redis, prefix=PREFIX, cache=BeaconCache(10), deadline=5, metrics=metrics
    )
    index.built.set()
    return Trigger(
        settings=settings,
        topics=Topics.named(settings.topic_prefix),
        index=index,
        claims=Claims(redis=redis, prefix=PREFIX, retain=600, deadline=5, metrics=metrics),
        settler=ClaimUpdater(redis=redis, prefix=PREFIX, deadline=5),
        devices=DeviceLookup(
            redis=redis, prefix=PREFIX, database=database, metrics=metrics, clock=time.time
        ),
        publisher=publisher,
        metrics=metrics,
        clock=lambda: NOW / 1000,
    )


@pytest.mark.parametrize(
    "batches", [[[0, 1, 2, 3, 4]], [[0, 1], [2, 3], [4]], [[n] for n in range(5)]]
)
@pytest.mark.parametrize("claimed", [0, 1, 3, 5])
async def test_every_claim_that_was_taken_is_taken_again(
    redis: RedisClient,
    settings: Settings,
    publisher: Publisher,
    database: Database,
    batches: list[list[int]],
    claimed: int,
) -> None:
    """Whatever part of its claims the killed process had taken, and however they are delivered."""
    chosen = campaign(id=7, delay=DELAY)
    writer = Writer(redis)
    writer.fields |= beacon_entry([7]) | campaign_entry(7, delay=DELAY)
    await writer.rebuild()
    trigger = build_trigger(redis, settings, database, publisher)
    topics, claims = trigger.topics, trigger.claims
    # Granted, too soon, granted, too soon, granted.
    records = [record(n, t, topics.detections) for n, t in enumerate((0, 1, 4, 5, 8))]
    await claims.take([request(each, chosen) for each in records[:claimed]], NOW / 1000)

    worker = trigger.for_partition(TopicPartition(topics.detections, 0), lambda: None)
    for batch in batches:
        worker.offer([records[n] for n in batch])
        await eventually(lambda: worker.pending == 0, what="the batch is finished")
    await worker.finish(5)
    assert worker.failure is None
    assert worker.done_offset == len(records)

    outside = TopicSet(settings.kafka_bootstrap_servers, settings.topic_prefix, "none", 4)
    out = [json.loads(each.value or b"") for each in await outside.read("notifications")]
    expected = [notification_id(decode_record(records[n], 2.0), chosen).hex() for n in (0, 2, 4)]
    assert [body["id"].replace("-", "") for body in out] == expected


class RefusedPublisher:
    """That of a login which may not write."""

    async def publish(self, _messages: object) -> None:
        await asyncio.sleep(0)  # so that several are on their way
        raise TopicAuthorizationFailedError


async def fail_in_two_lanes(trigger: Trigger) -> None:
    """A detection that fires, and a dead letter; both cannot be published."""
    topic = trigger.topics.detections
    worker = trigger.for_partition(TopicPartition(topic, 0), lambda: None)
    bad = record(1, 1, topic)
    object.__setattr__(bad, "value", b"no json")
    worker.offer([record(0, 0, topic), bad])
    await eventually(lambda: worker.failure and not worker._running, what="both have failed")
    assert isinstance(worker.failure, TopicAuthorizationFailedError)
    await worker.abandon()


async def test_every_lane_that_fails_is_asked_why(
    redis: RedisClient, settings: Settings, database: Database
) -> None:
    """Else asyncio prints a traceback for each one but the first, when the process ends."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, why: told.append(why["message"]))
    writer = Writer(redis)
    writer.fields |= beacon_entry([7]) | campaign_entry(7)
    await writer.rebuild()
    publisher = cast(Publisher, RefusedPublisher())
    await fail_in_two_lanes(build_trigger(redis, settings, database, publisher))
    gc.collect()
    assert not told
