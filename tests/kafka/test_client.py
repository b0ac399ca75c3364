"""Requests about the cluster: topic ids, committed offsets, whether a broker answers."""

from collections.abc import AsyncIterator

import pytest

from engine.kafka.client import KafkaCluster
from engine.kafka.topic_reader import partitions_of
from engine.process.settings import Settings
from tests.kafka.members import publish_numbers


@pytest.fixture
async def topic(settings: Settings, topic: str) -> str:
    await publish_numbers(settings, topic, 0, 1)
    return topic


@pytest.fixture
async def cluster(settings: Settings) -> AsyncIterator[KafkaCluster]:
    async with KafkaCluster(settings) as one:
        yield one


async def test_a_topic_has_an_id_and_another_topic_is_not_created(
    cluster: KafkaCluster, settings: Settings, topic: str
) -> None:
    ids = await cluster.topic_ids([topic, f"{topic}.not"])
    assert list(ids) == [topic]
    assert len(ids[topic]) == 32
    assert ids == await cluster.topic_ids([topic])
    assert await partitions_of(settings, [f"{topic}.not"]) == []
