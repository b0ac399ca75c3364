"""One company's service hangs; another's answers in 20 ms, and its devices do not wait."""

import asyncio
import os
import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.servers.http_service import content, hanging, serving
from tests.servers.waiting import eventually
from tests.system.connectors.customers import SETTINGS, Customers, by_path
from tests.system.neighbour_latency import create_with_broker_time, latencies, p99
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import World

FULL = bool(os.environ.get("PROXIMITY_TEST_FULL"))
RATE = 200 if FULL else 50  # calls a second to each of the two
SECONDS = 60 if FULL else 6
# The bound of the contract; a test run that shares its two processors with others gets more.
P99 = 0.25 if FULL else 2.0


@pytest.mark.timeout(240 if FULL else 120)
async def test_a_hanging_service_delays_no_other(
    stores: Rig, topics: TopicSet, kafka_bootstrap: str
) -> None:
    customers = Customers(World(datetime.now(UTC).replace(microsecond=0)))
    stores.environment |= SETTINGS
    async with serving(by_path({"hangs": hanging, "quick": content(after=0.02)})) as service:
        for name in ("hangs", "quick"):
            customers.add(name, service.url(f"/{name}"))
        await customers.world.save(stores.environment["DATABASE_URL"])
        await create_with_broker_time(kafka_bootstrap, topics)
        pair = [stores.start("run", "--role", role) for role in ("trigger", "connector")]
        for each in pair:
            await each.until_ready()
        async with topics.publishing() as send:
            for number in range(RATE * SECONDS):
                for name, customer in customers.of.items():
                    await send(customer.detection(f"{name} {number} {time.time()}"))
                await asyncio.sleep(1 / RATE)  # the pace of the load

        async def all_notified() -> bool:
            return await topics.count("notifications") >= RATE * SECONDS

        await eventually(all_notified, deadline=60, what="all of the quick company are notified")
        samples = await pair[1].metrics()
        for each in pair:
            await each.stop()
    assert samples.by("connector_calls", "outcome")["published"] == RATE * SECONDS
    requested = Counter(received.path for received in service.received)
    assert requested["/quick"] == RATE * SECONDS
    assert 0 < requested["/hangs"] < 32 * 3 + 2 * SECONDS, "the breaker spares it"
    assert p99(seconds for _, seconds in await latencies(kafka_bootstrap, topics)) < P99
