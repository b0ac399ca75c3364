"""While Kafka is down and services answer, the content that waits for Kafka is bounded."""

import asyncio
from collections.abc import Sequence
from typing import Any

from connectors.model import Content
from engine.connector.call_partition import FinishedRecord
from engine.connector.call_result import CompletedCall
from engine.connector.pipeline import AtLeastOnceResults
from engine.connector.result_publisher import ResultMemory, ResultPublisher
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.publisher import Outgoing
from engine.kafka.topics import Topics
from engine.process.cancelling import cancel
from engine.process.metrics import Metrics
from tests.integration.connectors.scheduling import call_to, scheduling
from tests.servers.http_service import content, serving
from tests.servers.waiting import eventually
from tests.unit.engine.test_connector_calls import received

LIMIT = 1_000_000
SIZE = 50_000


class DownPublisher:
    """A broker that acknowledges nothing until it is back."""

    def __init__(self) -> None:
        self.back = asyncio.Event()
        self.published = 0

    async def publish(self, messages: Sequence[Outgoing], _acknowledged: Any = None) -> None:
        await self.back.wait()
        self.published += len(messages)


class NothingRemembered:
    """Stands in for claims, finished calls and history."""

    async def apply(self, updates: Sequence[Any]) -> int:
        return len(updates)

    async def save(self, progress: Any) -> None:
        pass

    def add(self, company_id: int, call: Any) -> None:
        pass


class Partition:
    """The partition of all calls."""

    partition: Any = "calls-0"
    done_offset = None

    def __init__(self) -> None:
        self.done: list[int] = []

    def finish_offsets(self, offsets: Sequence[int]) -> None:
        self.done += offsets


async def test_results_that_wait_for_kafka_are_bounded() -> None:
    room = ResultMemory(LIMIT)
    publisher = DownPublisher()
    partition: Any = Partition()
    nothing: Any = NothingRemembered()
    topics, metrics = Topics.named("t."), Metrics()
    leaving = AtLeastOnceResults(
        steps=ResultPublisher(topics=topics, claims=nothing, history=nothing, metrics=metrics),
        publisher=DeadLetterPublisher(
            topic=topics.dead_letters,
            publisher=publisher,  # type: ignore[arg-type]
            metrics=metrics,
        ),
        finished_calls=nothing,
        memory=room,
    )
    running = asyncio.create_task(leaving.run())
    results: list[Any] = []

    def on_result(result: Any) -> None:
        call = received(offset=len(results))
        leaving.add(FinishedRecord(partition, CompletedCall(call, None, result)))
        results.append(result)

    count = 10 * LIMIT // SIZE
    async with (
        serving(content(template="x" * SIZE)) as service,
        scheduling(can_start=lambda: room.has_room) as one,
    ):
        room.on_room = one.scheduler.resume
        for _ in range(count):
            one.scheduler.submit(call_to(service.url()), on_result)
        await eventually(lambda: not room.has_room, what="as much waits as may")
        await eventually(
            lambda: one.scheduler._dispatcher._queue.free == 512, what="none is in flight"
        )
        # What was in flight when the bound was met came on top.
        assert sum(result.size for result in results) < LIMIT + 33 * (SIZE + 100)
        assert len(service.received) == len(results) < count
        publisher.back.set()
        await eventually(
            lambda: len(results) == count, what="the other services are called when it is back"
        )
        await eventually(lambda: len(partition.done) == count, what="all are seen off")
        assert all(isinstance(result, Content) for result in results)
        assert publisher.published == count
        assert room._bytes == 0
    await cancel([running])
