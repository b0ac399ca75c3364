"""Many partitions write the same devices, days and ids at once: exact, and without deadlocks.

In production a device keeps to one partition of a topic; here every partition has every device.
"""

import asyncio
import random
import time
import zlib
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from catalog.database import Database, open_database
from engine.kafka.partition_worker import Records
from engine.process.metrics import Metrics
from engine.recorder.ledger import Ledger
from engine.recorder.local_days import DayRule
from engine.recorder.pipeline import Recorder
from engine.recorder.postgresql import PostgresLedger
from engine.recorder.sqlite import SqliteLedger
from tests.acceptance.recorder.estate import Estate, build_estate
from tests.acceptance.recorder.flood import FRESH_MS, Flood, Message
from tests.acceptance.recorder.sql_figures import assert_written
from tests.integration.recorder.readers import Letters, readers_over

PARTITIONS = 4
BATCH = 100
NOW_MS = time.time_ns() // 1_000_000
RULE = DayRule(max_age=FRESH_MS["detections"] / 1000, retention=30 * 86_400.0)


@pytest.fixture
async def estate(database_url: str) -> Estate:
    return await build_estate(database_url)


@pytest.fixture
async def database(database_url: str, estate: Estate) -> AsyncIterator[Database]:
    opened = open_database(database_url)
    yield opened
    await opened.close()


class Partitions:
    """Records in partitions, as a broker numbers them."""

    def __init__(self, place: Callable[[Message], int]) -> None:
        self.records: dict[TopicPartition, Records] = {}
        self._place = place

    def add(self, message: Message) -> None:
        """Add a record."""
        place = TopicPartition(message.topic, self._place(message))
        records = self.records.setdefault(place, [])
        records.append(
            ConsumerRecord(
                topic=place.topic,
                partition=place.partition,
                offset=len(records),
                timestamp=message.arrived_ms,
                timestamp_type=0,
                key=message.key,
                value=message.value,
                checksum=None,
                serialized_key_size=-1,
                serialized_value_size=-1,
                headers=(),
            )
        )


def recorder_of(database: Database, metrics: Metrics) -> Recorder:
    """A new recorder, as in another process."""
    is_sqlite = database.dialect == "sqlite"
    ledger: Ledger = (SqliteLedger if is_sqlite else PostgresLedger)(database.engine)
    readers = readers_over(
        ledger, metrics, Letters(), RULE, oldest_delivery=FRESH_MS["notifications"] / 1000
    )
    return Recorder(ledger=ledger, readers=readers, metrics=metrics, deadline=30.0)


async def record_all(recorder: Recorder, partitions: Partitions) -> None:
    """Handle all partitions concurrently, each by its own handler."""

    async def work(place: TopicPartition, records: Records) -> None:
        handler = recorder.for_partition(place)
        for begin in range(0, len(records), BATCH):
            await handler.handle(records[begin : begin + BATCH])

    async with asyncio.TaskGroup() as group:
        for place, records in partitions.records.items():
            group.create_task(work(place, records))


def flooded(estate: Estate, place: Callable[[Message], int]) -> tuple[Flood, Partitions]:
    flood = Flood(estate, random.Random(7), devices=60, now_ms=NOW_MS)
    partitions = Partitions(place)
    for message in (
        *flood.detections(4000),
        *flood.notifications(1000),
        *flood.authentications(200),
    ):
        partitions.add(message)
    return flood, partitions


async def test_nobody_waits_in_a_circle(database: Database, estate: Estate) -> None:
    dice = random.Random(3)

    def place(message: Message) -> int:
        # A repeat that another partition counts meanwhile is tried again; not tested here.
        by_key = message.topic == "notifications"
        return (zlib.crc32(message.key) if by_key else dice.getrandbits(8)) % PARTITIONS

    flood, partitions = flooded(estate, place)
    metrics = Metrics()
    await record_all(recorder_of(database, metrics), partitions)
    await assert_written(database, flood.expected)
    assert metrics.registry.get_sample_value("proximity_sql_errors_total") == 0


async def test_an_id_counts_once_whichever_partition_brings_it(
    database: Database, estate: Estate
) -> None:
    dice = random.Random(4)
    flood, partitions = flooded(estate, lambda _: dice.randrange(PARTITIONS))
    await record_all(recorder_of(database, Metrics()), partitions)
    await assert_written(database, flood.expected)


async def test_two_recorders_that_both_own_every_partition(
    database: Database, estate: Estate
) -> None:
    flood, partitions = flooded(estate, lambda message: zlib.crc32(message.key) % PARTITIONS)
    metrics = Metrics()
    await asyncio.gather(
        *(record_all(recorder_of(database, metrics), partitions) for _ in range(2))
    )
    await assert_written(database, flood.expected)
