"""A host whose clock Kafka refuses can still publish dead letters."""

import time
from collections.abc import AsyncIterator, Sequence

import pytest
from prometheus_client import CollectorRegistry, Counter

from engine.kafka.dead_letters import DeadLetter, DeadLetterPublisher, DeadLetterReason
from engine.kafka.publisher import Publisher
from engine.kafka.record_time import RecordTime
from engine.process.failures import kafka_may_recover
from engine.process.metrics import Metrics
from engine.process.server_errors import ServerErrors
from engine.process.settings_sources import load_settings
from tests.acceptance.topics import TopicSet
from tests.integration.recorder.readers import NOTIFICATIONS
from tests.integration.recorder.test_recorder import record

AHEAD = 32 * 86_400


@pytest.fixture
def errors() -> Counter:
    return Counter("errors", "-", registry=CollectorRegistry())


@pytest.fixture
async def publisher(kafka_bootstrap: str, errors: Counter) -> AsyncIterator[Publisher]:
    """A publisher on a host whose clock is 32 days ahead."""
    made = Publisher.from_settings(
        load_settings(kafka_bootstrap_servers=kafka_bootstrap),
        ServerErrors("kafka", errors, may_recover=kafka_may_recover),
        record_time=RecordTime(clock=lambda: time.time() + AHEAD),
    )
    await made.start()
    yield made
    await made.close()


def letters(timestamps: Sequence[int]) -> list[DeadLetter]:
    """Dead letters of records with these timestamps."""
    made = []
    for offset, timestamp in enumerate(timestamps):
        bad = record(NOTIFICATIONS, offset, b"no json %d" % offset)
        object.__setattr__(bad, "timestamp", timestamp)
        made.append(DeadLetter(bad, DeadLetterReason.MALFORMED_JSON, "-"))
    return made


async def test_it_carries_the_time_of_its_record(
    topics: TopicSet, publisher: Publisher, errors: Counter
) -> None:
    await topics.create()
    dead_letters = DeadLetterPublisher(
        topic=topics.name("dead-letters"), publisher=publisher, metrics=Metrics()
    )
    now = round(time.time() * 1000)
    bad = letters([now] * 20)
    await dead_letters.publish(bad)
    tries = errors._value.get()
    await dead_letters.publish(bad[:1])
    assert errors._value.get() == tries, "the refusal is remembered"
    found = await topics.read("dead-letters")
    assert {each.value for each in found} == {each.record.value for each in bad}
    assert {each.timestamp for each in found} == {now}


async def test_a_timestamp_that_no_topic_accepts_is_left_out(
    topics: TopicSet, publisher: Publisher
) -> None:
    """Timestamps that brokers before Kafka 4 accepted."""
    await topics.create()
    dead_letters = DeadLetterPublisher(
        topic=topics.name("dead-letters"), publisher=publisher, metrics=Metrics()
    )
    now = round(time.time() * 1000)
    bad = letters([now, 2**63 - 1, -(2**62), -1, now + AHEAD * 1000] * 4)
    await dead_letters.publish(bad)
    found = await topics.read("dead-letters")
    assert {each.value for each in found} == {each.record.value for each in bad}
    assert {each.timestamp for each in found} <= {now, -1}
