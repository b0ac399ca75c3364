"""Company A's service hangs, or its answers cost as much as can be to read: B does not notice."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from engine.kafka.messages import ConnectorCall
from engine.process.lifecycle import cancel
from tests.servers.http_service import content, serving
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually
from tests.system.connectors.calls import call
from tests.system.connectors.customers import SETTINGS
from tests.system.connectors.service_process import KINDS, ServiceProcess, serving_in_process
from tests.system.neighbour_latency import (
    MIB,
    Memory,
    NeighbourLatencies,
    assert_not_delayed,
    create_with_broker_time,
    latencies,
)
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet

pytestmark = pytest.mark.alone

FULL = bool(os.environ.get("PROXIMITY_TEST_FULL"))
CALLS = 3000 if FULL else 900  # of A, each tried up to three times
RATE = 50  # calls a second of B
SECONDS = 20 if FULL else 4
HEALTH_SECONDS = 1.0 if FULL else 5.0
# 300 replies of 64 KiB with as much around them, and the data in flight of 3,000 calls.
MOST_GROWTH = 64 * MIB
# Calls in flight at once, and what makes it so: the breaker must do without the company's share.
BOUNDS: dict[int, dict[str, str]] = {300: {"CONNECTOR_COMPANY_CALLS": "300"}, 32: {}}
REASONS = {
    "retry-after": {"connector_status", "connector_unreachable"},  # some are no header lines at all
}
BURNT = {"connector_reply_too_large", "connector_timeout"}


@dataclass
class Pulse:
    """How long each request to /healthz took."""

    seconds: list[float] = field(default_factory=list)

    @asynccontextmanager
    async def taken(self, connector: Command) -> AsyncIterator["Pulse"]:
        """Measure within the context."""
        task = asyncio.create_task(self._take(connector))
        try:
            yield self
            assert not task.done(), task
        finally:
            await cancel([task])

    async def _take(self, connector: Command) -> None:
        while True:
            begin = time.monotonic()
            status, _ = await connector.get("/healthz")
            assert status == 200
            self.seconds.append(time.monotonic() - begin)
            await asyncio.sleep(0.1)  # the interval of requests


class Scene:
    """A connector, company A's service and company B's; each round has topics of its own."""

    def __init__(self, rig: Rig, bootstrap: str, prefix: str, kind: str, in_flight: int) -> None:
        self._rig = rig
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._kind = kind
        self._in_flight = in_flight
        self._settings = {**SETTINGS, **BOUNDS[in_flight]}
        self._rounds = 0
        self.summary = ""

    async def b_is_notified(self) -> NeighbourLatencies:
        """B's latencies without load, and while A's service is hostile."""
        self._rounds += 1
        prefix = f"{self._prefix}{self._rounds}."
        topics = TopicSet(self._bootstrap, prefix, f"{prefix}g.", source="connector-calls")
        await create_with_broker_time(self._bootstrap, topics)
        places = ("TOPIC_PREFIX", "GROUP_PREFIX", "REDIS_PREFIX")
        settings = self._settings | dict.fromkeys(places, prefix)
        connector = self._rig.start("run", "--role", "connector", **settings)
        await connector.until_ready()
        await self._burn(connector, topics)
        await connector.stop()
        calm, loud = [
            [seconds for _, seconds in await latencies(self._bootstrap, topics, name)]
            for name in (b"calm ", b"loud ")
        ]
        return NeighbourLatencies(calm, loud)

    async def _burn(self, connector: Command, topics: TopicSet) -> None:
        async with (
            Load(self._bootstrap, topics).running() as load,
            Pulse().taken(connector) as pulse,
        ):
            await load.of_b("calm")
            memory = Memory(connector)
            with serving_in_process(self._kind, self._in_flight) as service:
                await load.of_a(service.url)
                await self._until_it_burns(connector, service)
                before = service.requested
                await load.of_b("loud")
                during = service.requested - before
        reasons = (await connector.metrics()).by("dead_letters", "reason")
        self.summary = (
            f"beside {before} calls of A in flight and {during} more meanwhile; {memory}; "
            f"/healthz at most {1000 * max(pulse.seconds):.0f} ms; {reasons}"
        )
        memory.assert_growth_below(MOST_GROWTH)
        assert max(pulse.seconds) < HEALTH_SECONDS
        assert connector.output.count('"partitions assigned"') == 1, "no rebalance"
        assert "partitions lost" not in connector.output
        assert set(reasons) <= REASONS.get(self._kind, BURNT)

    async def _until_it_burns(self, connector: Command, service: ServiceProcess) -> None:
        # (On a slow machine the first calls may time out before the last ones start.)
        await eventually(
            lambda: service.requested > self._in_flight // 2, deadline=60, what="calls of A"
        )
        if (
            self._in_flight < CALLS // 10
        ):  # it goes on: B's are not to stand behind A's in the topic
            await eventually(lambda: _all_taken_in(connector), deadline=60, what="taken in")


class Load:
    """Publishes the calls of both companies."""

    def __init__(self, bootstrap: str, topics: TopicSet) -> None:
        self._topics = topics
        self._topic = topics.name("connector-calls")
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        self._quick = ""
        self._sent_to_b = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        """Serve B's service, which answers after 20 ms, within the context."""
        async with self._producer, serving(content(after=0.02)) as service:
            self._quick = service.url()
            yield self

    async def of_a(self, url: str) -> None:
        """Publish all of A's calls at once."""
        for number in range(CALLS):
            await self._put(call(url, f"a {number}", company=1))

    async def of_b(self, name: str) -> None:
        """RATE calls a second, until all are answered. A device's name begins with `name` and ends
        with when it was asked about."""
        begin, sent = time.monotonic(), 0
        while sent < RATE * SECONDS:
            due = min(RATE * SECONDS, int((time.monotonic() - begin) * RATE))
            for number in range(sent, due):
                await self._put(call(self._quick, f"{name} {number} {time.time()}", company=2))
            sent = max(due, sent)
            await asyncio.sleep(0.01)  # the pace of the load
        self._sent_to_b += sent
        async with self._topics.counting("notifications") as count:

            async def all_answered() -> bool:
                return await count() >= self._sent_to_b

            await eventually(all_answered, deadline=60, what=f"{sent} notifications of B")

    async def _put(self, one: ConnectorCall) -> None:
        await self._producer.send(
            self._topic, msgspec.json.encode(one), key=one.device.udid.encode()
        )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", sorted(KINDS) if FULL else ["chunks", "hangs"])
@pytest.mark.parametrize("in_flight", sorted(BOUNDS) if FULL else [300])
async def test_no_service_delays_another_companys(
    kind: str,
    in_flight: int,
    topic_prefix: str,
    kafka_bootstrap: str,
    stores: Rig,
) -> None:
    await make_schema(stores.environment["DATABASE_URL"])
    scene = Scene(stores, kafka_bootstrap, topic_prefix, kind, in_flight)
    print(kind, await assert_not_delayed(scene.b_is_notified), scene.summary)


async def _all_taken_in(connector: Command) -> bool:
    """Whether A's calls are in the process, and no longer before B's calls in the topic."""
    _, body = await connector.get("/metrics")
    return f"proximity_batch_size_sum {CALLS + RATE * SECONDS:.1f}\n" in body
