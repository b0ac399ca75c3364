"""How records of connector-calls are taken in."""

import asyncio

from aiokafka import TopicPartition

from engine.connecting.partition import CallPartition
from engine.kafka.worker import Records
from tests.integration.connectors.questions import asking
from tests.unit.engine.records import record

FETCHES = 20


class SlowToTakeIn:
    """In the place of the role: its first batch waits for an answer."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.answered = asyncio.Event()
        self.batches: list[list[int]] = []

    async def take_in(self, partition: CallPartition, records: Records) -> None:
        self.batches.append([each.offset for each in records])
        self.begun.set()
        await self.answered.wait()
        partition.begun(self.batches[-1])
        partition.finished(self.batches[-1])

    async def recall(self, _partition: TopicPartition) -> dict[int, str]:
        return {}


async def test_what_was_fetched_meanwhile_is_one_batch() -> None:
    """One fetch after the other was looked up: on a busy process calls waited for many seconds."""
    role = SlowToTakeIn()
    done = asyncio.Event()
    async with asking() as one:
        partition = CallPartition(
            TopicPartition("connector-calls", 0),
            role=role,
            calls=one.worker,
            on_progress=lambda: done.set() if not partition.pending else None,
        )
        try:
            partition.offer([record({}, offset=0)])
            async with asyncio.timeout(5):
                await role.begun.wait()
            for offset in range(1, FETCHES):
                partition.offer([record({}, offset=offset)])
            role.answered.set()
            async with asyncio.timeout(5):
                await done.wait()
        finally:
            await partition.abandon()
    assert role.batches == [[0], list(range(1, FETCHES))]
