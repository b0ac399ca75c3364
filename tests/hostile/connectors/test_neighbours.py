"""Company A's service answers so that parsing takes the processor; company B does not notice."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from catalog.migrate import migrate
from engine.process.cancelling import cancel
from tests.acceptance.connectors.calls import call
from tests.acceptance.connectors.customers import SECRET_KEY, by_path
from tests.acceptance.connectors.test_neighbours import Latencies
from tests.acceptance.rig import Command, Rig
from tests.acceptance.topics import TopicSet
from tests.hostile.connectors.services import BURNING, together
from tests.servers.http_service import content, serving
from tests.servers.waiting import eventually

FULL = bool(os.environ.get("PROXIMITY_TEST_FULL"))
KINDS = sorted(BURNING) if FULL else ["chunks", "interim"]
CALLS = 3000 if FULL else 900  # of A, each tried up to three times
RATE = 50  # calls a second of B
SECONDS = 20 if FULL else 4
# The bound of the contract; a run that shares its processors with others gets more.
ABOVE_CALM = 0.25 if FULL else 2.5
HEALTH_SECONDS = 1.0 if FULL else 5.0
SETTINGS = {
    "SECRET_KEY": SECRET_KEY,
    "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
}
# Calls in flight at once, and what makes it so. Alone, each bound must do: the share of a company
# without its breaker, and the breaker without the share.
UNBROKEN = {"CONNECTOR_BREAKER_WINDOW": "100000", "CONNECTOR_BREAKER_FAILURES": "100000"}
BOUNDS: dict[int, dict[str, str]] = {300: {"CONNECTOR_COMPANY_CALLS": "300"}, 32: UNBROKEN}


@dataclass
class Pulse:
    """How long /healthz took, each time it was asked."""

    seconds: list[float] = field(default_factory=list)

    @asynccontextmanager
    async def taken(self, connector: Command) -> AsyncIterator["Pulse"]:
        """Within the context."""
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
            await asyncio.sleep(0.1)  # how often it is asked


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_flight", sorted(BOUNDS) if FULL else [300])
async def test_a_reply_that_burns_the_processor_delays_no_other_company(
    kind: str,
    in_flight: int,
    rig: Rig,
    call_topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    sqlite_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await migrate(sqlite_url)
    await call_topics.create()
    topic = call_topics.name("connector-calls")
    burns = together(BURNING[kind], in_flight)
    answers = by_path({"burns": burns, "quick": content(after=0.02)})
    async with serving(answers) as service:
        urls: dict[str, Any] = {"burns": service.url("/burns"), "quick": service.url("/quick")}
        settings = {**SETTINGS, **BOUNDS[in_flight], "REDIS_URL": redis_url}
        connector = rig.start("run", "--role", "connector", **settings, DATABASE_URL=sqlite_url)
        await connector.until_ready()
        async with (
            AIOKafkaProducer(bootstrap_servers=kafka_bootstrap) as producer,
            Pulse().taken(connector) as pulse,
            Latencies().reading(kafka_bootstrap, call_topics.name("notifications")) as heard,
        ):
            calm = await _latencies(heard, producer, topic, urls["quick"], "calm")
            for number in range(CALLS):
                one = call(urls["burns"], f"a {number}", company=1)
                await producer.send(topic, _encode(one), key=one.device.udid.encode())
            # (On a slow machine the first may run into their deadline before the last are asked.)
            await eventually(lambda: _asked(service) > in_flight // 2, deadline=60, what="A asked")
            if in_flight < CALLS // 10:  # it goes on: B's are not to stand behind A's in the topic
                await eventually(lambda: _all_taken_in(connector), deadline=60, what="taken in")
            before = _asked(service)
            loud = await _latencies(heard, producer, topic, urls["quick"], "loud")
            during = _asked(service) - before
        reasons = (await connector.metrics()).by("dead_letters", "reason")
        output = connector.output
        await connector.stop()
    above = loud.percentile(0.99) - calm.percentile(0.99)
    with capsys.disabled():
        print(
            f"\n{kind}: B's p99 {1000 * calm.percentile(0.99):.0f} ms calm, "
            f"{1000 * loud.percentile(0.99):.0f} ms (max {1000 * loud.percentile(1):.0f}) "
            f"beside {before} calls of A in flight and {during} more meanwhile; "
            f"/healthz at most {1000 * max(pulse.seconds):.0f} ms; {reasons}"
        )
    assert above < ABOVE_CALM
    assert max(pulse.seconds) < HEALTH_SECONDS
    assert output.count('"partitions assigned"') == 1, "no rebalance"
    assert "partitions lost" not in output
    assert set(reasons) <= {"connector_reply_too_large", "connector_timeout"}


async def _all_taken_in(connector: Command) -> bool:
    """Whether A's calls are in the process, and not in front of B's in the topic."""
    _, body = await connector.get("/metrics")
    return f"proximity_batch_size_sum {CALLS + RATE * SECONDS:.1f}\n" in body


def _asked(service: Any) -> int:
    return sum(heard.path == "/burns" for heard in service.heard)


async def _ask(producer: AIOKafkaProducer, topic: str, url: str, name: str) -> int:
    """RATE calls of B a second; how many. A device's name ends with when it was asked about."""
    begin, sent = time.monotonic(), 0
    while sent < RATE * SECONDS:
        due = min(RATE * SECONDS, int((time.monotonic() - begin) * RATE))
        for number in range(sent, due):
            one = call(url, f"{name} {number} {time.time()}", company=2)
            await producer.send(topic, _encode(one), key=one.device.udid.encode())
        sent = max(due, sent)
        await asyncio.sleep(0.01)  # the pace of the load
    return sent


async def _latencies(
    heard: Latencies, producer: AIOKafkaProducer, topic: str, url: str, name: str
) -> Latencies:
    """Those of B's calls that are made now."""
    sent = await _ask(producer, topic, url, name)

    def these() -> dict[str, float]:
        return {udid: each for udid, each in heard.seconds.items() if udid.startswith(name)}

    await eventually(lambda: len(these()) >= sent, deadline=60, what=f"{sent} notifications of B")
    one = Latencies()
    one.seconds = these()
    return one


def _encode(one: Any) -> bytes:

    return msgspec.json.encode(one)
