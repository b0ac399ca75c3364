"""Requests about the cluster: topic ids, committed offsets, whether a broker answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka.conn import AIOKafkaConnection

from engine.cli.check import check_kafka
from engine.kafka.client import KafkaCluster
from engine.kafka.topic_reader import partitions_of
from engine.kafka.topics import Topics
from engine.process.health import ServerProbe
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from engine.wiring.parts import open_broker_probe
from tests.kafka.members import publish_numbers
from tests.servers.freezing import frozen
from tests.servers.kafka.server import KafkaServer
from tests.servers.waiting import eventually

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


async def test_check_queries_all_topics(settings: Settings) -> None:
    found = await check_kafka(settings)
    assert len(found) == 1 + len(Topics.named("").all())
    assert found[0].state == "ok"


@asynccontextmanager
async def probing(bootstrap: str) -> AsyncIterator[tuple[ServerProbe, Callable[[], float]]]:
    metrics = Metrics()
    settings = load_settings(None, kafka_bootstrap_servers=bootstrap)
    async with open_broker_probe(settings, metrics) as probe:
        yield probe, lambda: counted(metrics)


def counted(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("proximity_kafka_errors_total") or 0.0


async def test_whether_a_broker_answers(broker: str) -> None:
    async with probing(broker) as (probe, errors):
        assert all(await asyncio.gather(*(probe.answers() for _ in range(20))))
        assert not errors()
    async with probing("127.0.0.1:1") as (probe, errors):
        assert not await probe.answers()
        assert errors()


async def test_a_broker_that_hangs_or_ends_is_reported_and_so_is_its_return(
    own_kafka: KafkaServer,
) -> None:
    async with probing(own_kafka.bootstrap_servers) as (probe, errors):
        assert await probe.answers()
        with frozen(own_kafka):
            started = time.monotonic()
            assert not await probe.answers()
            assert time.monotonic() - started < 2.0
            await eventually(lambda: errors() > 0, what="the failed request is counted")
        await eventually(probe.answers, what="it answers again")

        await asyncio.to_thread(own_kafka.kill)
        assert not await probe.answers()
        await asyncio.to_thread(own_kafka.start)
        await eventually(probe.answers, what="it answers again")
