"""The bookkeeping and the relay of the installation under load."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.installation.estate import Estate
from benchmarks.installation.link import Link
from benchmarks.installation.tally import TopicTally
from engine.kafka.topics import Topics
from tests.servers.http_service import content, serving

Headers = Sequence[tuple[str, str]]
ESTATE = Estate([], [], plain=frozenset({1}), requested=frozenset({2}), edited=3, venue=9)
TOPICS = Topics.named("t.")


@pytest.fixture
def tally() -> Iterator[TopicTally]:
    made = TopicTally("127.0.0.1:1", TOPICS, ESTATE, partitions=1)
    yield made
    made._consumer.close()


def take(
    tally: TopicTally, where: str, id_: str, *, campaign: int = 2, headers: Headers = ()
) -> None:
    body = {"id": id_, "campaign": {"id": campaign}, "device": {"udid": "d"}, "title": "t"}
    message: Any = SimpleNamespace(
        topic=lambda: where,
        value=lambda: json.dumps(body).encode(),
        headers=lambda: [(name, value.encode()) for name, value in headers],
    )
    tally._take(message)


def test_each_message_counts_once(tally: TopicTally) -> None:
    for id_ in ("a", "b", "a"):
        take(tally, TOPICS.notifications, id_, campaign=1)
    assert (tally.plain, tally.repeats) == (2, 1)


def test_a_call_is_open_until_something_came_of_it(tally: TopicTally) -> None:
    for id_ in ("a", "b", "c"):
        take(tally, TOPICS.connector_calls, id_)
    take(tally, TOPICS.notifications, "a")
    headers = (("topic", TOPICS.connector_calls), ("reason", "connector_status"))
    take(tally, TOPICS.dead_letters, "b", headers=headers)
    take(tally, TOPICS.dead_letters, "b", headers=headers)
    assert (tally.calls, tally.answered, tally.given_up) == (3, 1, 1)
    assert list(tally.open) == ["c"]
    assert not tally.unexpected


def test_topics_are_read_side_by_side(tally: TopicTally) -> None:
    """What came of a call may be read before the call."""
    take(tally, TOPICS.notifications, "a")
    take(tally, TOPICS.connector_calls, "a")
    assert (tally.calls, tally.answered, len(tally.open)) == (1, 1, 0)


def test_a_dead_letter_of_a_detection_is_reported(tally: TopicTally) -> None:
    headers = (("topic", TOPICS.detections), ("reason", "malformed_json"))
    take(tally, TOPICS.dead_letters, "a", headers=headers)
    assert tally.unexpected == {"t.detections: malformed_json": 1}


async def test_a_way_is_slowed_down_and_cut() -> None:
    async with serving(content()) as service, Link(service.port).running() as link:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        assert (await http_get(link.port)).startswith(b"HTTP/1.1 200")
        link.delay = 0.2
        begin = loop.time()
        assert (await http_get(link.port)).startswith(b"HTTP/1.1 200")
        assert loop.time() - begin >= 0.4
        await link.cut()
        assert await http_get(link.port) == b""
        link.restore()
        link.delay = 0.0
        assert (await http_get(link.port)).startswith(b"HTTP/1.1 200")


async def http_get(port: int) -> bytes:
    """The beginning of the answer; nothing if the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(30):
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            return await reader.read(100)
    except ConnectionError:
        return b""
    finally:
        writer.close()
