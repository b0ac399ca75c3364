"""The ids of topics, from brokers that have ids and from brokers that do not."""

from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection

from engine.cli.check.kafka import check_kafka
from engine.kafka.cluster_metadata import topic_ids
from engine.kafka.publisher import Outgoing
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from engine.wiring.run import ROLES
from tests.contract.members import publish

METADATA = 3
_look_up = AIOKafkaConnection._do_version_lookup


@pytest.fixture
def settings(broker: str, topic_prefix: str) -> Settings:
    return load_settings(None, kafka_bootstrap_servers=broker, topic_prefix=topic_prefix)


@pytest.fixture
async def topic(settings: Settings, topic_prefix: str) -> str:
    name = f"{topic_prefix}there"
    await publish(settings, [Outgoing(name, b"k", b"v", [])])
    return name


@pytest.fixture
async def client(broker: str) -> AsyncIterator[AIOKafkaClient]:
    one = AIOKafkaClient(bootstrap_servers=broker)
    await one.bootstrap()
    yield one
    await one.close()


def brokers_speak(patch: pytest.MonkeyPatch, version: int) -> None:
    """From now on brokers report that they support Metadata up to this version."""

    async def look_up(connection: AIOKafkaConnection) -> None:
        await _look_up(connection)
        first, last = connection._versions[METADATA]
        connection._versions[METADATA] = first, min(last, version)

    patch.setattr(AIOKafkaConnection, "_do_version_lookup", look_up)


async def test_a_topic_that_is_there_has_one(client: AIOKafkaClient, topic: str) -> None:
    """On the embedded broker, too."""
    ids = await topic_ids(client, [topic, f"{topic}.not"])
    assert list(ids) == [topic]
    assert len(ids[topic]) == 32
    assert ids == await topic_ids(client, [topic])


@pytest.mark.parametrize("version", [9, 5])
async def test_brokers_before_2_8_have_none(
    client: AIOKafkaClient, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.close()
    brokers_speak(monkeypatch, version)
    await client.bootstrap()
    assert await topic_ids(client, [topic]) == {}


async def test_check_says_that_brokers_are_too_old_for_the_request(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers_speak(monkeypatch, 7)
    (found,) = await check_kafka(settings)
    assert (found.state, found.subject) == ("warning", "reachable")
    assert "older than Kafka 2.3" in found.result


async def test_check_queries_the_others(settings: Settings) -> None:
    found = await check_kafka(settings)
    assert len(found) == 1 + len(Topics.named("").all()) + len(ROLES)
    assert found[0].state == "ok"
