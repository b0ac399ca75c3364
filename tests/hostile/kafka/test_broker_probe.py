"""An outage of Kafka and its end are noticed by requests, not by cached results."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from engine.kafka.broker_probe import BrokerProbe
from engine.process.metrics import Metrics
from engine.process.settings_sources import load_settings
from tests.servers.freezing import frozen
from tests.servers.kafka.server import KafkaServer
from tests.servers.waiting import eventually


@asynccontextmanager
async def probing(bootstrap: str) -> AsyncIterator[tuple[BrokerProbe, Callable[[], float]]]:
    metrics = Metrics()
    settings = load_settings(None, kafka_bootstrap_servers=bootstrap)
    probe = BrokerProbe(settings, errors=metrics.kafka_errors)
    try:
        yield probe, lambda: counted(metrics)
    finally:
        await probe.close()


def counted(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("proximity_kafka_errors_total") or 0.0


async def test_a_broker_that_lives_answers(broker: str) -> None:
    async with probing(broker) as (probe, errors):
        assert all(await asyncio.gather(*(probe.answers() for _ in range(20))))
        assert await probe.answers()
        assert not errors()


async def test_nobody_listens() -> None:
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
            await eventually(
                lambda: errors() > 0, what="the question that nobody answered is counted"
            )
        await eventually(probe.answers, what="it answers again")

        await asyncio.to_thread(own_kafka.kill)
        assert not await probe.answers()
        await asyncio.to_thread(own_kafka.start)
        await eventually(probe.answers, what="it answers again")
