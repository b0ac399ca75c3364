"""How records of connector-calls are received."""

import asyncio

from aiokafka import TopicPartition

from engine.connector.call_partition import CallPartition, FinishedRecord
from engine.connector.finished_calls import WasFinished
from engine.kafka.partition_worker import Records
from tests.integration.connectors.scheduling import scheduling
from tests.unit.engine.records import record

FETCHES = 20


class SlowToReceive:
    """In the place of the role and of its results: the first batch waits for an answer."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.answered = asyncio.Event()
        self.batches: list[list[int]] = []

    async def receive(self, partition: CallPartition, records: Records) -> None:
        self.batches.append([each.offset for each in records])
        self.started.set()
        await self.answered.wait()
        partition.begin(self.batches[-1])
        partition.finish_offsets(self.batches[-1])

    async def load_finished(self, partition: TopicPartition) -> WasFinished:  # noqa: ARG002
        return lambda _offset, _id: False

    def add(self, finished: FinishedRecord) -> None:
        raise AssertionError(f"no call has a result: {finished}")


async def test_fetches_during_a_look_up_become_one_batch() -> None:
    """One fetch after the other was looked up: on a busy process calls waited for many seconds."""
    role = SlowToReceive()
    done = asyncio.Event()
    async with scheduling() as one:
        partition = CallPartition(
            TopicPartition("connector-calls", 0),
            lambda: done.set() if not partition.pending else None,
            receiver=role,
            scheduler=one.scheduler,
            results=role,
        )
        try:
            partition.offer([record({}, offset=0)])
            async with asyncio.timeout(5):
                await role.started.wait()
            for offset in range(1, FETCHES):
                partition.offer([record({}, offset=offset)])
            role.answered.set()
            async with asyncio.timeout(5):
                await done.wait()
        finally:
            await partition.abandon()
    assert role.batches == [[0], list(range(1, FETCHES))]
