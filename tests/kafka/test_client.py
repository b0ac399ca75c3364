"""Requests about the cluster: topic ids, committed offsets, whether a broker answers."""

from collections.abc import AsyncIterator

import pytest
from aiokafka.conn import AIOKafkaConnection

from engine.kafka.client import KafkaCluster
from engine.kafka.topic_reader import partitions_of
from engine.process.settings import Settings
from tests.kafka.members import publish_numbers

METADATA = 3
_look_up = AIOKafkaConnection._do_version_lookup


@pytest.fixture
async def topic(settings: Settings, topic: str) -> str:
    await publish_numbers(settings, topic, 0, 1)
    return topic


@pytest.fixture
async def cluster(settings: Settings) -> AsyncIterator[KafkaCluster]:
    async with KafkaCluster(settings) as one:
        yield one


def brokers_speak(patch: pytest.MonkeyPatch, version: int) -> None:
    """From now on brokers report that they support Metadata up to this version."""

    async def look_up(connection: AIOKafkaConnection) -> None:
        await _look_up(connection)
        first, last = connection._versions[METADATA]
        connection._versions[METADATA] = first, min(last, version)

    patch.setattr(AIOKafkaConnection, "_do_version_lookup", look_up)


async def test_a_topic_has_an_id_and_another_topic_is_not_created(
    cluster: KafkaCluster, settings: Settings, topic: str
) -> None:
    ids = await cluster.topic_ids([topic, f"{topic}.not"])
    assert list(ids) == [topic]
    assert len(ids[topic]) == 32
    assert ids == await cluster.topic_ids([topic])
    assert await partitions_of(settings, [f"{topic}.not"]) == []


@pytest.mark.parametrize("version", [9, 5])
async def test_brokers_before_2_8_have_no_ids(
    cluster: KafkaCluster, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers_speak(monkeypatch, version)
    assert await cluster.topic_ids([topic]) == {}
    state = (await cluster.state([topic])).topics[topic]
    assert (state.error, state.partitions, state.leaderless) == (0, (0, 1, 2, 3), 0)
