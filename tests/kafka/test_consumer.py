"""Consuming: order, commits, backpressure, and every end of an assignment. What the embedded broker
must do for it shows the first test."""

import asyncio
import gc
import threading
import time

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from engine.kafka.workers import Records
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from tests.kafka.members import (
    ROLE,
    Member,
    RecordedValues,
    committed,
    member,
    on_real_broker,
    publish_numbers,
    settings_for,
    values,
)
from tests.servers.waiting import eventually


async def test_each_partition_is_handled_in_order_and_the_next_member_goes_on(
    settings: Settings, topic: str
) -> None:
    await publish_numbers(settings, topic, 0, 2000)
    first, second = RecordedValues(), RecordedValues()
    async with member(settings, topic, first.handle) as one:
        await eventually(lambda: len(first.values) >= 2000)
        assert one.partitions == 4
    assert sorted(first.values) == values(0, 2000)
    for partition in range(4):
        offsets = first.offsets(partition)
        assert offsets == list(range(len(offsets)))
        assert offsets
    assert sum(await committed(settings, topic)) == 2000
    await publish_numbers(settings, topic, 2000, 300)
    async with member(settings, topic, second.handle):
        await eventually(lambda: len(second.values) >= 300)
    assert sorted(second.values) == values(2000, 2300)


@on_real_broker
async def test_a_handler_that_fails_stops_the_run_and_nothing_is_committed(
    settings: Settings, topic: str
) -> None:
    class BrokenError(Exception):
        pass

    async def fail(_partition: TopicPartition, records: Records) -> None:
        if any(record.value == b"000123" for record in records):
            raise BrokenError

    await publish_numbers(settings, topic, 0, 200, b"one")
    with pytest.raises(BrokenError):
        async with member(settings, topic, fail) as one:
            await asyncio.wait([one.task], timeout=30)
    seen = RecordedValues()
    async with member(settings, topic, seen.handle):
        await eventually(lambda: len(seen.values) >= 1)
    assert b"000123" in seen.values


@on_real_broker
async def test_fetching_pauses_above_the_bound_and_resumes(settings: Settings, topic: str) -> None:
    await publish_numbers(settings, topic, 0, 3000)
    seen, resume, peak = RecordedValues(), asyncio.Event(), 0

    async def slow(partition: TopicPartition, records: Records) -> None:
        nonlocal peak
        await resume.wait()
        peak = max(peak, one.pending)
        assert len(records) <= 50
        await seen.handle(partition, records)

    async with member(settings, topic, slow, in_flight=120) as one:
        await eventually(lambda: one.pending >= 120, what="the bound is reached")
        resume.set()
        await eventually(lambda: len(seen.values) >= 3000)
    assert sorted(seen.values) == values(0, 3000)
    assert peak < 120 + 50


@on_real_broker
async def test_a_partition_that_is_stuck_stops_no_other(settings: Settings, topic: str) -> None:
    await publish_numbers(settings, topic, 0, 1600)
    seen, resume = RecordedValues(), asyncio.Event()

    async def stuck(partition: TopicPartition, records: Records) -> None:
        if partition.partition == 0:
            await resume.wait()
        await seen.handle(partition, records)

    async with member(settings, topic, stuck, in_flight=1000) as one:
        others = await _size_of_others(settings, topic)
        await eventually(lambda: len(seen.values) == others, what="all others are done")
        await eventually(lambda: one.pending >= 100, what="the stuck one has two batches")
        assert one.pending <= 200
        resume.set()
        await eventually(lambda: len(seen.values) == 1600)
    assert sorted(seen.values) == values(0, 1600)


async def _size_of_others(settings: Settings, topic: str) -> int:
    servers = settings.kafka_bootstrap_servers
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        ends = await consumer.end_offsets([TopicPartition(topic, n) for n in (1, 2, 3)])
        return sum(ends.values())


@on_real_broker
async def test_a_member_that_joins_takes_a_share_of_every_topic(
    settings: Settings, topic: str
) -> None:
    topics, seen = [topic, f"{topic}s"], RecordedValues()
    for each in topics:
        await publish_numbers(settings, each, 0, 100)

    def shares(member: Member) -> list[int]:
        owned = [each.topic for each in member.consumer.partitions]
        return [owned.count(each) for each in topics]

    async with member(settings, topic, seen.handle, further=topics[1:]) as one:
        await eventually(lambda: shares(one) == [4, 4])
        async with member(settings, topic, seen.handle, further=topics[1:]) as two:
            await eventually(lambda: shares(one) == shares(two) == [2, 2])


@on_real_broker
async def test_a_revoked_partition_finishes_its_batch_and_commits(
    settings: Settings, topic: str
) -> None:
    """A second member joins under load, and leaves: every record is handled, and only once."""
    seen = RecordedValues()

    async def slowly(partition: TopicPartition, records: Records) -> None:
        await asyncio.sleep(0.02)  # the work, not a wait
        await seen.handle(partition, records)

    await publish_numbers(settings, topic, 0, 2000)
    async with member(settings, topic, slowly) as one:
        await eventually(lambda: len(seen.values) > 200)
        async with member(settings, topic, slowly) as two:
            await eventually(lambda: one.partitions == two.partitions == 2)
            await publish_numbers(settings, topic, 2000, 1000)
        await eventually(lambda: len(seen.values) >= 3000)
    assert sorted(seen.values) == values(0, 3000)
    assert sum(await committed(settings, topic)) == 3000


@on_real_broker
async def test_a_revoked_partition_that_has_finished_nothing_ends(
    settings: Settings, topic: str
) -> None:
    """aiokafka refuses a commit of nothing, and workers went on beside those of the next owner."""
    begun, ended, released = set[TopicPartition](), set[TopicPartition](), asyncio.Event()

    async def hold(partition: TopicPartition, _records: Records) -> None:
        begun.add(partition)
        try:
            await released.wait()
        finally:
            ended.add(partition)

    await publish_numbers(settings, topic, 0, 200)
    async with member(settings, topic, hold) as one:
        await eventually(lambda: len(begun) == 4)
        async with member(settings, topic, RecordedValues().handle) as two:
            await eventually(lambda: len(ended) == 4)
            released.set()
            await eventually(lambda: one.partitions == two.partitions == 2)
        await eventually(lambda: one.partitions == 4)


@pytest.mark.timeout(90)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_lost_partition_is_not_committed(
    kafka_bootstrap: str, topic_prefix: str, topic: str
) -> None:
    """A member hangs for longer than the session timeout; another one owns the partition then."""
    settings = settings_for(
        kafka_bootstrap, topic_prefix, kafka_session_timeout=1, drain_timeout=2, batch_records=50
    )
    await publish_numbers(settings, topic, 0, 50, b"one")
    seen, hanging, owned, cancelled = RecordedValues(), *(threading.Event() for _ in range(3))

    async def hang_on_the_second(_partition: TopicPartition, records: Records) -> None:
        if records[0].offset < 50:
            return
        hanging.set()
        owned.wait(60)  # the loop must stand still, heartbeats included
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def lose() -> None:
        async with member(settings, topic, hang_on_the_second):
            await eventually(cancelled.is_set)

    losing = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(lose())))

    async def first_committed() -> bool:
        return sum(await committed(settings, topic)) == 50

    await eventually(first_committed)
    await publish_numbers(settings, topic, 50, 100, b"one")
    await eventually(hanging.is_set)
    async with member(settings, topic, seen.handle):
        await eventually(lambda: len(seen.values) >= 100)
        owned.set()
        await losing
    assert seen.values == values(50, 150)
    assert sum(await committed(settings, topic)) == 150
    gc.collect()  # aiokafka forgets a connection that it opens when its loop ends


@on_real_broker
async def test_the_lag_is_measured(settings: Settings, topic: str) -> None:
    await publish_numbers(settings, topic, 0, 1000)
    metrics, resume, seen = Metrics(), asyncio.Event(), RecordedValues()

    async def wait(partition: TopicPartition, records: Records) -> None:
        await resume.wait()
        await seen.handle(partition, records)

    def lag() -> float:
        labels = [{"role": ROLE, "topic": topic, "partition": str(n)} for n in range(4)]
        read = metrics.registry.get_sample_value
        return sum(read("proximity_consumer_lag_records", each) or 0 for each in labels)

    async with member(settings, topic, wait, metrics=metrics):
        await eventually(lambda: lag() == 1000)
        # It grows while nothing is fetched, too: all partitions are full.
        await publish_numbers(settings, topic, 1000, 1000)
        await eventually(lambda: lag() == 2000)
        resume.set()
        await eventually(lambda: lag() == 0)
        assert len(seen.values) == 2000


@on_real_broker
async def test_how_far_behind_it_is_in_seconds(settings: Settings, topic: str) -> None:
    started = time.time()
    await publish_numbers(settings, topic, 0, 40)
    proceed = asyncio.Event()

    async def handle(_partition: TopicPartition, _records: Records) -> None:
        await proceed.wait()

    async with member(settings, topic, handle) as one:
        behind = one.consumer.seconds_behind
        assert behind(time.time()) is None  # without its share it does not know
        await eventually(lambda: behind(time.time()) is not None)
        # By the records' own time of publishing.
        in_a_minute = behind(started + 60)
        assert in_a_minute is not None
        assert 60 - (time.time() - started) <= in_a_minute <= 60.1
        proceed.set()
        await eventually(lambda: behind(started + 60) == 0)
