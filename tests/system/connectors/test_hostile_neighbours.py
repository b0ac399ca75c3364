"""Company A's service hangs, or its answers cost as much as can be to read: B does not notice."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tests.connectors.services import BURNING, together
from tests.servers.http_service import Answer, ReceivedRequest, content, hanging, serving
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually, wait_until
from tests.system.connectors.customers import SETTINGS, call, publish_calls
from tests.system.neighbours import MIB, Latencies, Memory, assert_not_delayed, latencies
from tests.system.rig import Command, Rig
from tests.system.topics import Message, TopicSet

pytestmark = pytest.mark.alone

FULL = bool(os.environ.get("PROXIMITY_TEST_FULL"))
KINDS = BURNING | {"hangs": hanging}
CALLS = 3000 if FULL else 900  # of A, each tried up to three times
IN_FLIGHT = 300  # of A at once
RATE = 50  # calls a second of B
SECONDS = 20 if FULL else 4
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
        process.join()
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


async def load_of_b(topics: TopicSet, url: str, name: str) -> None:
    """RATE calls a second. A device's name begins with `name` and ends with when it was asked."""
    begin, sent = time.monotonic(), 0
    async with topics.publishing("connector-calls") as send:
        while sent < RATE * SECONDS:
            due = min(RATE * SECONDS, int((time.monotonic() - begin) * RATE))
            for number in range(sent, due):
                one = call(url, f"{name} {number} {time.time()}", company=2)
                await send(Message(one.device.udid.encode(), msgspec.json.encode(one)))
            sent = max(due, sent)
            await asyncio.sleep(0.01)  # the pace of the load


@pytest.mark.parametrize("kind", sorted(KINDS) if FULL else ["chunks", "hangs"])
async def test_no_service_delays_another_companys(
    kind: str, topic_prefix: str, kafka_bootstrap: str, stores: Rig
) -> None:
    await make_schema(stores.environment["DATABASE_URL"])
    rounds = 0

    async def b_is_notified() -> Latencies:
        """B's latencies without load, and while A's service is hostile; in topics of its own."""
        nonlocal rounds
        rounds += 1
        prefix = f"{topic_prefix}{rounds}."
        topics = TopicSet(kafka_bootstrap, prefix, prefix)
        await topics.create(broker_time=True)
        places = dict.fromkeys(("TOPIC_PREFIX", "GROUP_PREFIX", "REDIS_PREFIX"), prefix)
        bounds = {"CONNECTOR_COMPANY_CALLS": str(IN_FLIGHT)}
        connector = await stores.ready("connector", **SETTINGS, **places, **bounds)
        await _burn(kind, connector, topics)
        await connector.stop()
        names = (b"calm ", b"loud ")
        return Latencies(*[[s for _, s in await latencies(topics, name)] for name in names])

    await assert_not_delayed(b_is_notified)


async def _burn(kind: str, connector: Command, topics: TopicSet) -> None:
    async with serving(content(after=0.02)) as quick:
        await load_of_b(topics, quick.url(), "calm")
        await topics.until("notifications", RATE * SECONDS)
        memory = Memory(connector)
        with hostile_service(kind) as (port, requested):
            url = f"http://127.0.0.1:{port.value}/"
            await publish_calls(topics, *(call(url, f"a {number}") for number in range(CALLS)))
            # (On a slow machine the first calls may time out before the last ones start.)
            await eventually(lambda: requested.value > IN_FLIGHT // 2, what="calls of A")
            await load_of_b(topics, quick.url(), "loud")
            await topics.until("notifications", 2 * RATE * SECONDS)
    memory.assert_growth_below(MOST_GROWTH)
    assert connector.output.count('"partitions assigned"') == 1, "no rebalance"
    assert "partitions lost" not in connector.output
    assert set((await connector.metrics()).by("dead_letters", "reason")) <= BURNT
