"""Many partitions write the same devices, days and ids at once: exact, and without deadlocks.

In production a device keeps to one partition of a topic; here every partition has every device.
"""

import asyncio
import random
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest
from aiokafka import TopicPartition

from catalog.database import Database
from engine.kafka.workers import Records
from engine.process.metrics import Metrics
from engine.recorder.pipeline import Recorder
from tests.recorder.estate import Estate, build_estate
from tests.recorder.flood import Flood, assert_written
from tests.recorder.scene import ConsumedPartition, create_days, ledger_on, record, recorder_over
from tests.servers.schema import on_postgres
from tests.servers.waiting import eventually

PARTITIONS = 4
BATCH = 100
NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
async def estate(database_url: str) -> Estate:
    return await build_estate(database_url)


Partitions = dict[TopicPartition, Records]


async def record_all(recorder: Recorder, partitions: Partitions) -> None:
    """Handle all partitions concurrently, each by its own handler."""

    async def work(place: TopicPartition, records: Records) -> None:
        handler = ConsumedPartition(recorder, place)
        for begin in range(0, len(records), BATCH):
            await handler.handle(records[begin : begin + BATCH])

    async with asyncio.TaskGroup() as group:
        for place, records in partitions.items():
            group.create_task(work(place, records))


def flooded(estate: Estate, place: Callable[[bytes], int]) -> tuple[Flood, Partitions]:
    flood = Flood(estate, random.Random(7), devices=60, now_ms=NOW_MS)
    partitions: Partitions = defaultdict(list)
    counts = {"detections": 4000, "notifications": 1000, "authentications": 200, "presence": 1000}
    for topic, messages in flood.messages(**counts):
        for message in messages:
            number = place(message.key or b"")
            records = partitions[TopicPartition(topic, number)]
            made = record(topic, len(records), message.value)
            moment = {"timestamp": message.timestamp_ms}
            records.append(replace(made, partition=number, key=message.key, **moment))
    return flood, partitions


async def test_two_recorders_that_both_own_every_partition(
    database: Database, estate: Estate
) -> None:
    """An id counts once, whichever partition brings it."""
    dice = random.Random(4)
    flood, partitions = flooded(estate, lambda _: dice.randrange(PARTITIONS))
    metrics = Metrics()
    await create_days(ledger_on(database))
    await asyncio.gather(
        *(record_all(recorder_over(ledger_on(database), metrics), partitions) for _ in range(2))
    )
    await assert_written(database, flood.expected)


@on_postgres
async def test_days_are_created_while_rows_pour_in(database: Database, estate: Estate) -> None:
    """A batch with a row of a day without a partition waits for it."""
    flood, partitions = flooded(estate, lambda key: zlib.crc32(key) % 4)
    metrics = Metrics()
    recording = asyncio.create_task(
        record_all(recorder_over(ledger_on(database), metrics), partitions)
    )
    read = metrics.registry.get_sample_value
    await eventually(lambda: read("proximity_sql_errors_total"), what="a row has no partition")
    await create_days(ledger_on(database))
    await recording
    await assert_written(database, flood.expected)
