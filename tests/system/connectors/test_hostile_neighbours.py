"""Company A's service hangs, or its answers cost as much as can be to read: B does not notice."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from engine.kafka.messages import ConnectorCall
from engine.process.lifecycle import cancel
from tests.connectors.services import BURNING, together
from tests.servers.http_service import Answer, ReceivedRequest, content, hanging, serving
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually, wait_until
from tests.system.connectors.calls import call
from tests.system.connectors.customers import SETTINGS
from tests.system.neighbour_latency import (
    MIB,
    Memory,
    NeighbourLatencies,
    assert_not_delayed,
    latencies,
)
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet

pytestmark = pytest.mark.alone

FULL = bool(os.environ.get("PROXIMITY_TEST_FULL"))
KINDS = BURNING | {"hangs": hanging}
CALLS = 3000 if FULL else 900  # of A, each tried up to three times
IN_FLIGHT = 300  # of A at once
RATE = 50  # calls a second of B
SECONDS = 20 if FULL else 4
HEALTH_SECONDS = 1.0 if FULL else 5.0
# 300 replies of 64 KiB with as much around them, and the data in flight of 3,000 calls.
MOST_GROWTH = 64 * MIB
BURNT = {"connector_reply_too_large", "connector_timeout"}
_PROCESSES = multiprocessing.get_context("spawn")


@contextmanager
def hostile_service(kind: str) -> Iterator[tuple[Any, Any]]:
    """A's service, hostile as soon as it has IN_FLIGHT requests; gives port and requests so far.

    It is a process of its own, so that it takes no time of B's service or of what measures B.
    """
    port, requested = _PROCESSES.Value("i", 0), _PROCESSES.Value("i", 0)
    process = _PROCESSES.Process(target=_serve, args=(kind, port, requested), daemon=True)
    process.start()
    try:
        wait_until(lambda: port.value > 0, what="A's service")
        yield port, requested
        assert process.is_alive()
    finally:
        process.terminate()
        process.join(10)
        process.close()


def _serve(kind: str, port: Any, requested: Any) -> None:
    asyncio.run(_until_terminated(together(KINDS[kind], IN_FLIGHT), port, requested))


async def _until_terminated(answer: Answer, port: Any, requested: Any) -> None:
    async def counted(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        requested.value += 1
        await answer(received, writer)

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with serving(counted) as service:
        port.value = service.port
        await ended.wait()


@asynccontextmanager
async def pulse(connector: Command) -> AsyncIterator[list[float]]:
    """How long each request to /healthz took, within the context."""
    seconds: list[float] = []

    async def measure() -> None:
        while True:
            begin = time.monotonic()
            status, _ = await connector.get("/healthz")
            assert status == 200
            seconds.append(time.monotonic() - begin)
            await asyncio.sleep(0.1)  # the interval of requests

    task = asyncio.create_task(measure())
    try:
        yield seconds
        assert not task.done(), task
    finally:
        await cancel([task])


async def put(producer: AIOKafkaProducer, topic: str, one: ConnectorCall) -> None:
    await producer.send(topic, msgspec.json.encode(one), key=one.device.udid.encode())


async def load_of_b(producer: AIOKafkaProducer, topic: str, url: str, name: str) -> None:
    """RATE calls a second. A device's name begins with `name` and ends with when it was asked."""
    begin, sent = time.monotonic(), 0
    while sent < RATE * SECONDS:
        due = min(RATE * SECONDS, int((time.monotonic() - begin) * RATE))
        for number in range(sent, due):
            await put(producer, topic, call(url, f"{name} {number} {time.time()}", company=2))
        sent = max(due, sent)
        await asyncio.sleep(0.01)  # the pace of the load


@pytest.mark.parametrize("kind", sorted(KINDS) if FULL else ["chunks", "hangs"])
async def test_no_service_delays_another_companys(
    kind: str, topic_prefix: str, kafka_bootstrap: str, stores: Rig
) -> None:
    await make_schema(stores.environment["DATABASE_URL"])
    rounds = 0

    async def b_is_notified() -> NeighbourLatencies:
        """B's latencies without load, and while A's service is hostile; in topics of its own."""
        nonlocal rounds
        rounds += 1
        prefix = f"{topic_prefix}{rounds}."
        topics = TopicSet(kafka_bootstrap, prefix, f"{prefix}g.", source="connector-calls")
        await topics.create(broker_time=True)
        places = dict.fromkeys(("TOPIC_PREFIX", "GROUP_PREFIX", "REDIS_PREFIX"), prefix)
        bounds = {"CONNECTOR_COMPANY_CALLS": str(IN_FLIGHT)}
        connector = stores.start("run", "--role", "connector", **SETTINGS, **places, **bounds)
        await connector.until_ready()
        await _burn(kind, connector, topics, kafka_bootstrap)
        await connector.stop()
        calm, loud = [
            [seconds for _, seconds in await latencies(topics, name)]
            for name in (b"calm ", b"loud ")
        ]
        return NeighbourLatencies(calm, loud)

    print(kind, await assert_not_delayed(b_is_notified))


async def _burn(kind: str, connector: Command, topics: TopicSet, bootstrap: str) -> None:
    topic = topics.name("connector-calls")
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        serving(content(after=0.02)) as quick,
        topics.counting("notifications") as published,
        pulse(connector) as health,
    ):

        async def until_answered(count: int) -> None:
            async def enough() -> bool:
                return await published() >= count

            await eventually(enough, what=f"{count} notifications of B")

        await load_of_b(producer, topic, quick.url(), "calm")
        await until_answered(RATE * SECONDS)
        memory = Memory(connector)
        with hostile_service(kind) as (port, requested):
            for number in range(CALLS):
                url = f"http://127.0.0.1:{port.value}/"
                await put(producer, topic, call(url, f"a {number}", company=1))
            # (On a slow machine the first calls may time out before the last ones start.)
            most = IN_FLIGHT // 2
            await eventually(lambda: requested.value > most, what="calls of A")
            await load_of_b(producer, topic, quick.url(), "loud")
            await until_answered(2 * RATE * SECONDS)
    reasons = (await connector.metrics()).by("dead_letters", "reason")
    print(f"{memory}; /healthz at most {1000 * max(health):.0f} ms; {reasons}")
    memory.assert_growth_below(MOST_GROWTH)
    assert max(health) < HEALTH_SECONDS
    assert connector.output.count('"partitions assigned"') == 1, "no rebalance"
    assert "partitions lost" not in connector.output
    assert set(reasons) <= BURNT
