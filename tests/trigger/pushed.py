"""The role `trigger` by the production wiring, with records pushed into one partition.

Everything is in memory: the embedded broker and Redis, which have contract suites, and SQLite.
No consumer group is joined, so that a test takes no longer than its own steps.
"""

import itertools
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

from aiokafka import ConsumerRecord, TopicPartition

from engine.kafka.offsets import Position
from engine.kafka.producer import Publisher
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from engine.trigger.partition import TriggerPartition
from engine.wiring.parts import ProcessParts, Stores, open_stores
from engine.wiring.trigger import trigger_role
from tests.kafka.records import record
from tests.redis.index_writer import PREFIX, Writer
from tests.rules.records import UUID
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually
from tests.system.topics import TopicSet

NOW = 1_795_200_000_000  # epoch ms; the trigger's clock stands there until a test moves it

Record: TypeAlias = ConsumerRecord[bytes, bytes]


def detection(udid: str = "phone", *, seconds: float = 0, minor: int = 2, **more: Any) -> bytes:
    """A detection so many seconds after NOW."""
    body = {"uuid": UUID, "major": 1, "minor": minor, "proximity": 1, "device": {"udid": udid}}
    body["detected_at"] = NOW + int(seconds * 1000)
    return json.dumps(body | more).encode()


def located(seconds: float = 0, **place: Any) -> bytes:
    """A detection of another place by the application "ours", so many seconds after NOW."""
    body = {"device": {"udid": "phone"}, "api_key": "ours"}
    return json.dumps(body | {"detected_at": NOW + round(seconds * 1000)} | place).encode()


class PushedTrigger:
    """One partition of the detections. `writer` is the catalog; `now` is in epoch seconds."""

    def __init__(self, settings: Settings, stores: Stores, publisher: Publisher) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.publisher = publisher
        self.now = NOW / 1000
        parts = ProcessParts(
            settings=settings, stores=stores, publisher=publisher, metrics=self.metrics
        )
        self.role = trigger_role(parts, clock=lambda: self.now)
        self.stores = stores
        self.redis = stores.redis
        self.writer = Writer(stores.redis)
        self.topics = TopicSet(settings.kafka_bootstrap_servers, settings.topic_prefix, "none", 4)
        self.partition = TopicPartition(self.topics.name("detections"), 0)
        self._offsets = itertools.count()
        self.worker = self.assigned()

    def assigned(self, partition: int = 0) -> TriggerPartition:
        """A worker for a new assignment of the partition."""
        place = self.partition._replace(partition=partition)
        return TriggerPartition(place, Position(0), lambda: None, role=self.role)

    async def write_index(self, fields: dict[str, bytes]) -> None:
        """Change the catalog; a running process receives the change."""
        self.writer.fields |= fields
        await self.writer.rebuild()
        self.role.intake.index.cache.drop_all()
        self.role.intake.index.built.set()

    def records(self, values: Iterable[bytes], partition: int = 0) -> list[Record]:
        """The next records of the partition."""
        topic, numbers = self.partition.topic, self._offsets
        place: dict[str, Any] = {"topic": topic, "partition": partition, "key": b"phone"}
        return [record(each, offset=next(numbers), at=self.now, **place) for each in values]

    async def push(self, *values: bytes) -> None:
        """Hand the next records to the worker and wait until they are finished."""
        self.worker.offer(self.records(values))
        await self.until_finished()

    async def until_finished(self, *workers: TriggerPartition) -> None:
        """Wait until nothing is pending; raise what a worker raised."""

        def is_finished() -> bool:
            for worker in workers or (self.worker,):
                if worker.failure is not None:
                    raise worker.failure
            return not any(worker.pending for worker in workers or (self.worker,))

        await eventually(is_finished, pause=0.001)

    async def left(self, topic: str) -> list[Record]:
        """The records of the topic."""
        return await self.topics.read(topic)

    async def sent(self, topic: str = "notifications") -> list[dict[str, Any]]:
        """The messages of the topic."""
        return await self.topics.bodies(topic)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within it the cycle takes nothing from the companies' queues."""
        cycle, most = self.role.cycle, 2**62
        cycle._unacknowledged += most
        yield
        cycle._unacknowledged -= most
        cycle._room.set()

    def count(self, name: str, **labels: str) -> float:
        """A counter's value."""
        return self.metrics.registry.get_sample_value(f"proximity_{name}", labels) or 0.0


@asynccontextmanager
async def pushed_trigger(
    kafka: str, redis_url: str, database_url: str, topic_prefix: str, **more: Any
) -> AsyncIterator[PushedTrigger]:
    """A trigger on these servers, whose worker is abandoned at the end."""
    settings = load_settings(
        kafka_bootstrap_servers=kafka,
        redis_url=redis_url,
        database_url=database_url,
        topic_prefix=topic_prefix,
        redis_prefix=PREFIX,
        **more,
    )
    await make_schema(database_url)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        async with open_stores(settings) as stores:
            trigger = PushedTrigger(settings, stores, publisher)
            try:
                yield trigger
            finally:
                await trigger.worker.abandon()
    finally:
        await publisher.close()
