"""The servers of a run: an Apache Kafka and a Redis."""

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from benchmarks.machine import on_the_last_processor
from tests.servers.kafka.server import KafkaServer
from tests.servers.process import started
from tests.servers.redis import RedisServer


class Servers(NamedTuple):
    """Addresses of the servers."""

    kafka: str
    redis: str


@contextlib.asynccontextmanager
async def servers(broker: str, *, apart: bool = True) -> AsyncIterator[Servers]:
    """`broker` is `apache`, or the host:port of one that runs already. `apart`: on the last
    processor, so that what is measured has another one for itself."""
    with contextlib.ExitStack() as stack:
        if apart:
            stack.enter_context(on_the_last_processor())
        if broker == "apache":
            broker = stack.enter_context(started(KafkaServer)).bootstrap_servers
        redis = stack.enter_context(started(RedisServer))
        yield Servers(broker, redis.url)
