"""The consumer's lag, in records and in seconds."""

import asyncio
import time

from aiokafka import TopicPartition

from engine.kafka.partition_worker import Records
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from tests.contract.members import ROLE, RecordedValues, member, publish
from tests.contract.test_consumer import messages, settings, topic
from tests.servers.waiting import eventually

__all__ = ["settings", "topic"]


async def test_the_lag_is_measured(settings: Settings, topic: str) -> None:
    await publish(settings, messages(topic, 0, 400))
    metrics, resume, seen = Metrics(), asyncio.Event(), RecordedValues()

    async def wait(partition: TopicPartition, records: Records) -> None:
        await resume.wait()
        await seen.handle(partition, records)

    def lag() -> float:
        labels = [{"role": ROLE, "topic": topic, "partition": str(n)} for n in range(4)]
        read = metrics.registry.get_sample_value
        return sum(read("proximity_consumer_lag_records", each) or 0 for each in labels)

    async with member(settings, topic, wait, metrics=metrics):
        await eventually(lambda: lag() == 400)
        resume.set()
        await eventually(lambda: lag() == 0)
        assert len(seen.values) == 400


async def test_how_far_behind_it_is_in_seconds(settings: Settings, topic: str) -> None:
    started = time.time()
    await publish(settings, messages(topic, 0, 40))
    proceed = asyncio.Event()

    async def handle(_partition: TopicPartition, _records: Records) -> None:
        await proceed.wait()

    async with member(settings, topic, handle) as one:
        behind = one.consumer.seconds_behind
        assert behind(time.time()) is None  # without its share it does not know
        await eventually(lambda: behind(time.time()) is not None, deadline=30)
        # By the records' own time of publishing.
        in_a_minute = behind(started + 60)
        assert in_a_minute is not None
        assert 60 - (time.time() - started) <= in_a_minute <= 60.1
        proceed.set()
        await eventually(lambda: behind(started + 60) == 0, deadline=30)
