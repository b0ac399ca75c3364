"""One company's service hangs; another's answers in 20 ms, and its devices do not wait."""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count

import pytest
from aiokafka import AIOKafkaConsumer

from engine.process.lifecycle import cancel
from tests.servers.http_service import content, hanging, serving
from tests.servers.waiting import eventually
from tests.system.connectors.customers import SECRET_KEY, Customer, Customers, by_path
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import World

FULL = bool(os.environ.get("PROXIMITY_TEST_FULL"))
RATE = 200 if FULL else 50  # calls a second to each of the two
SECONDS = 60 if FULL else 6
# The bound of the issue; a test run that shares its two processors with others gets more.
P99 = 0.25 if FULL else 2.0
TICK = 0.01


class Latencies:
    """Reads notifications as they arrive: seconds from detection to arrival, by device."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @asynccontextmanager
    async def reading(self, bootstrap: str, topic: str) -> AsyncIterator["Latencies"]:
        """Read within the context."""
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            task = asyncio.create_task(self._read(consumer))
            try:
                yield self
                assert not task.done(), task
            finally:
                await cancel([task])

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        async for record in consumer:
            now = time.time()
            udid = json.loads(record.value or b"")["device"]["udid"]
            self.seconds.setdefault(udid, now - float(udid.rpartition(" ")[2]))

    def percentile(self, share: float) -> float:
        """The quantile of the latencies."""
        ordered = sorted(self.seconds.values())
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@pytest.mark.timeout(240 if FULL else 90)
async def test_a_hanging_service_delays_no_other(
    rig: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    sqlite_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with serving(by_path({"hangs": hanging, "quick": content(after=0.02)})) as service:
        customers = Customers(World(datetime.now(UTC).replace(microsecond=0)))
        hangs = customers.add("hangs", service.url("/hangs"))
        quick = customers.add("quick", service.url("/quick"))
        await customers.world.save(sqlite_url)
        await topics.create()
        settings = {
            "SECRET_KEY": SECRET_KEY,
            "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
            "REDIS_URL": redis_url,
            "DATABASE_URL": sqlite_url,
        }
        pair = [rig.start("run", "--role", role, **settings) for role in ("trigger", "connector")]
        for each in pair:
            await each.until_ready()
        latencies = Latencies()
        async with latencies.reading(kafka_bootstrap, topics.name("notifications")):
            sent = await _detections(topics, hangs, quick)
            await eventually(
                lambda: len(latencies.seconds) >= sent,
                deadline=60,
                what=f"all {sent} of the quick company are notified",
            )
        samples = await pair[1].metrics()
        for each in pair:
            await each.stop()
    figures = ", ".join(
        f"p{100 * share:g} {1000 * latencies.percentile(share):.0f} ms"
        for share in (0.5, 0.9, 0.99, 1)
    )
    with capsys.disabled():
        print(f"\n{sent} notifications at {RATE}/s beside a service that hangs: {figures}")
    assert samples.by("connector_calls", "outcome")["published"] == sent
    requested = Counter(received.path for received in service.received)
    assert requested["/quick"] == sent
    assert 0 < requested["/hangs"] < 32 * 3 + SECONDS, "the breaker spares it"
    assert latencies.percentile(0.99) < P99


async def _detections(topics: TopicSet, hangs: Customer, quick: Customer) -> int:
    """Publish RATE detections a second for each company and return their number.

    Each udid ends with the time of sending.
    """
    numbers = count()
    begin, sent = time.monotonic(), 0
    async with topics.publishing() as send:
        while sent < RATE * SECONDS:
            due = min(RATE * SECONDS, int((time.monotonic() - begin) * RATE))
            for _ in range(due - sent):
                for customer in (hangs, quick):
                    await send(customer.detection(f"{customer.name} {next(numbers)} {time.time()}"))
            sent = max(due, sent)
            # The pace of the load, not a wait for something to happen.
            await asyncio.sleep(TICK)
    return sent
