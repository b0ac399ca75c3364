"""A dead letter from a host whose clock Kafka refuses: it goes aside all the same."""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from engine.kafka.dead_letters import DeadLetter, DeadLetterPublisher, DeadLetterReason
from engine.kafka.publisher import Outgoing, Publisher
from engine.process.metrics import Metrics
from engine.process.settings import load_settings
from tests.acceptance.topics import TopicSet
from tests.integration.recorder.test_recorder import NOTIFICATIONS, record

AHEAD_MS = 32 * 86_400_000


@pytest.fixture
async def publisher(kafka_bootstrap: str) -> AsyncIterator[Publisher]:
    made = Publisher.from_settings(load_settings(kafka_bootstrap_servers=kafka_bootstrap))
    await made.start()
    yield made
    await made.close()


class WrongClock:
    """The publisher of a host whose clock is 32 days ahead."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.lists = 0

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        self.lists += 1
        now = time.time_ns() // 1_000_000
        await self._publisher.publish(
            [
                each if each.timestamp is not None else each._replace(timestamp=now + AHEAD_MS)
                for each in messages
            ]
        )


async def test_it_carries_the_time_of_its_record(topics: TopicSet, publisher: Publisher) -> None:
    await topics.create()
    wrong: Any = WrongClock(publisher)
    dead_letters = DeadLetterPublisher(
        topic=topics.name("dead-letters"), publisher=wrong, metrics=Metrics()
    )
    bad = [record(NOTIFICATIONS, offset, b"no json %d" % offset) for offset in range(20)]
    letters = [DeadLetter(each, DeadLetterReason.MALFORMED_JSON, "-") for each in bad]
    await dead_letters.publish(letters)
    await dead_letters.publish(letters[:1])  # the producer has lost count, and goes on
    found = await topics.read("dead-letters")
    assert {each.value for each in found} == {each.value for each in bad}
    assert {each.timestamp for each in found} == {bad[0].timestamp}
    assert wrong.lists == 4
