"""The role connector as its wiring builds it, with Kafka in memory and a service on loopback."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka import ConsumerRecord, TopicPartition

import engine.wiring.connector as wiring
from engine.connector.results import ResultMemory
from engine.kafka.errors import MessageTooLargeError
from engine.kafka.messages import ConnectorCall, parse
from engine.kafka.offsets import Position
from engine.kafka.producer import Outgoing
from engine.kafka.tracing import Tracer
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claims import Claims, ClaimUpdate, ClaimUpdater
from engine.wiring.parts import ProcessParts, Stores
from tests.redis.claim_requests import ClaimRequest, take
from tests.servers.http_service import HttpService, ReceivedRequest, content, hanging, replying
from tests.servers.waiting import eventually
from tests.system.connectors.calls import call

PARTITION = TopicPartition("connector-calls", 3)
Headers = Sequence[tuple[str, bytes]]
FIRST = 10  # the first offset of every test
LARGEST = 20_000
DELIVERIES = ("at_least_once", "exactly_once")


class Broker:
    """The publisher of a process, or the transactional one of a partition: then what is published
    counts when it is committed. While `is_up` is not set, nothing is acknowledged.
    """

    def __init__(self, *, transactional: bool) -> None:
        self.is_up = asyncio.Event()
        self.is_up.set()
        self.published: list[Outgoing] = []
        self.place = Position(FIRST)
        self._transaction: list[Outgoing] | None = [] if transactional else None

    async def publish(self, messages: Sequence[Outgoing], _acknowledged: Any = None) -> None:
        assert messages, "a request for nothing"
        await self.is_up.wait()
        too_large = [each for each in messages if len(each.value or b"") > LARGEST]
        taken = self.published if self._transaction is None else self._transaction
        taken += [each for each in messages if each not in too_large]
        if too_large:
            raise MessageTooLargeError(too_large)

    async def commit(self, place: Position) -> None:
        assert self._transaction is not None
        await self.is_up.wait()
        self.published += self._transaction
        self._transaction = []
        self.place = place

    async def close(self) -> None:
        """The next owner of the partition aborts an open transaction."""
        if self._transaction is not None:
            self._transaction = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    def outcomes(self) -> dict[str, str]:
        """By the id of the call: "notification", or the reason of its dead letter."""
        found: dict[str, str] = {}
        for message in self.published:
            headers = {name: value.decode() for name, value in message.headers}
            id_ = headers.get("id") or json.loads(message.value or b"{}")["id"]
            assert id_ not in found, f"{id_} was published twice over"
            found[id_] = headers.get("reason", "notification")
        return found


class World:
    """The servers that outlive a process: Kafka, Redis, and a service that answers by path."""

    def __init__(self, settings: Settings, stores: Stores, service: HttpService) -> None:
        self.settings = settings
        self.stores = stores
        self.service = service
        self.answers = {
            "/good": content(),
            "/large": content(template="x" * 2 * LARGEST),
            "/no": replying(204),
            "/gone": replying(404),
            "/slow": hanging,
        }
        self.broker = Broker(transactional=settings.delivery == "exactly_once")
        self._claims = Claims(
            redis=stores.redis,
            prefix=settings.redis_prefix,
            retain=600.0,
            deadline=5.0,
            metrics=Metrics(),
        )

    async def answer(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await self.answers[received.path](received, writer)

    async def call(self, path: str, *, udid: str = "", **fields: Any) -> ConnectorCall:
        """A call whose claim is taken, as the trigger publishes it."""
        one = call(self.service.url(path), udid or f"phone {path}", **fields)
        assert await self.takes_claim(one, uuid.UUID(one.id))
        return one

    async def takes_claim(
        self, of: ConnectorCall, by: uuid.UUID | None = None, *, after: float = 0.0
    ) -> bool:
        """Whether another detection, `after` seconds, takes the claim of the call."""
        at = parse(of.detected_at) + after
        owner = (by or uuid.uuid4()).bytes
        request = ClaimRequest(of.campaign.id, of.device.udid, owner, at, of.delay)
        return await take(self._claims, [request], at) == [None]

    async def gives_back(self, of: ConnectorCall) -> None:
        """The call gives its claim back, as a failed one does."""
        redis, prefix = self.stores.redis, self.settings.redis_prefix
        at, owner = parse(of.detected_at), uuid.UUID(of.id).bytes
        update = ClaimUpdate(of.campaign.id, of.device.udid, owner, at, of.delay, 0)
        assert await ClaimUpdater(redis=redis, prefix=prefix, deadline=5.0).apply([update]) == 1

    def requested(self) -> list[str]:
        return [received.path for received in self.service.received]

    @asynccontextmanager
    async def process(
        self,
        *,
        crashes: bool = False,
        memory: ResultMemory | None = None,
        tracer: Tracer | None = None,
    ) -> AsyncIterator["Process"]:
        """A process of the role that owns PARTITION; it is stopped in order or killed."""
        one = Process(self, memory or ResultMemory(), tracer or Tracer())
        try:
            yield one
            one.raise_failures()
        finally:
            one.commit()
            if crashes:
                await cancel(one.services)
                await one.partition.abandon()
            else:
                await one.partition.finish(5.0)
                await cancel(one.services)


class Process:
    """The role as `build_connector` builds it, without the consumer."""

    def __init__(self, world: World, memory: ResultMemory, tracer: Tracer) -> None:
        self._world = world
        self._next = FIRST
        broker: Any = world.broker
        made: dict[str, Any] = {}

        def make_consumer(**options: Any) -> Any:
            made.update(options)
            return SimpleNamespace(assigned=True)

        def transactional(_parts: ProcessParts, _role: str, make_worker: Any) -> tuple[Any, Broker]:
            def worker_for(partition: Any, begin: Position, on_progress: Any) -> Any:
                return make_worker(partition, broker, begin, on_progress)

            return lambda **options: make_consumer(worker_for=worker_for, **options), broker

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wiring, "ResultMemory", lambda: memory)
            patch.setattr(wiring, "role_consumer", lambda _parts, _role: make_consumer)
            patch.setattr(wiring, "transactional_consumer", transactional)
            role = wiring.build_connector(
                ProcessParts(
                    settings=world.settings,
                    stores=world.stores,
                    publisher=broker,
                    metrics=Metrics(),
                    tracer=tracer,
                )
            )
        self.services = [asyncio.create_task(work()) for work in role.background.values()]
        self.partition = made["worker_for"](PARTITION, broker.place, lambda: None)
        self.receiver = self.partition._receiver

    def offer(self, *values: ConnectorCall | bytes, headers: Headers = ()) -> None:
        records = []
        for value in values:
            raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
            source = (PARTITION.topic, PARTITION.partition, self._next)
            records.append(ConsumerRecord(*source, 0, 0, b"key", raw, 0, 3, len(raw), headers))
            self._next += 1
        self.partition.offer(records)

    @property
    def committed(self) -> int:
        """The offset at which the next owner of the partition continues."""
        if self._world.settings.delivery == "exactly_once":
            return self._world.broker.place.offset
        return self.partition.done_offset or FIRST

    def commit(self) -> None:
        """Commit what the consumer would have committed by now."""
        if self._world.settings.delivery == "at_least_once":
            ranges = self.partition.finished_ranges
            self._world.broker.place = Position(self.committed, "0" * 32, ranges)

    async def until_committed(self, offset: int) -> None:
        def is_committed() -> bool:
            self.raise_failures()
            return self.committed == offset

        await eventually(is_committed, what=f"{offset} is committed")

    def raise_failures(self) -> None:
        for service in self.services:
            if service.done():
                service.result()
        if self.partition.failure is not None:
            raise self.partition.failure
