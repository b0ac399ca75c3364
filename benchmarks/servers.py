"""The servers of a run: an Apache Kafka or the embedded broker, and a Redis."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from benchmarks.machine import on_the_last_processor
from engine.cli.local_servers import EmbeddedBroker, EmbeddedRedis
from tests.servers.kafka.server import KafkaServer
from tests.servers.process import started


class Servers(NamedTuple):
    """Addresses of the servers. `keeps_all`: the broker keeps every record of a run."""

    kafka: str
    redis: str
    keeps_all: bool


@contextlib.asynccontextmanager
async def servers(broker: str, *, apart: bool = True) -> AsyncIterator[Servers]:
    """`broker` is `apache`, `embedded`, or the host:port of one that runs already. `apart`: on the
    last processor, so that what is measured has another one for itself."""
    place = on_the_last_processor() if apart else contextlib.nullcontext()
    with place, _kafka(broker) as kafka:
        redis = EmbeddedRedis()
        await redis.start()
        try:
            yield Servers(kafka, redis.url, keeps_all=broker != "embedded")
        finally:
            await redis.stop()


@contextlib.contextmanager
def _kafka(broker: str) -> Iterator[str]:
    if broker == "apache":
        with started(KafkaServer) as server:
            yield server.bootstrap_servers
    elif broker == "embedded":
        embedded = EmbeddedBroker()
        try:
            yield embedded.bootstrap_servers
        finally:
            embedded.close()
    else:
        yield broker
