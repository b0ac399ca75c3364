"""The embedded Kafka broker, and all embedded servers together.

The broker is librdkafka's, in this process, in memory, on a free loopback port. It speaks Kafka's
protocol (groups, commits, idempotent producing, transactions), with fixed limits. A topic is
created by its first mention and has 4 partitions. A partition keeps its last 5 MB. A group has one
aiokafka member, whose first join takes 3 seconds; each later join takes the session timeout less a
second. (A member with a session timeout under 4 seconds never joins.)
"""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.cli.embedded.child import ServerStartError
from engine.cli.embedded.redis_server import EmbeddedRedis

PARTITIONS = 4
_DEADLINE_SECONDS = 10.0

# Without a logger librdkafka would write to standard error, into a live display.
_logger = logging.getLogger("engine.cli.embedded.servers")


class EmbeddedBroker:
    """A single Kafka broker that lives as long as this object is open.

    Close it after its clients: they would try to reconnect otherwise.
    """

    def __init__(self) -> None:
        """Open the broker. Raises ServerStartError if confluent-kafka is not installed."""
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            raise ServerStartError(
                "the embedded Kafka broker needs the package confluent-kafka: "
                "install proximity-engine[embedded]"
            ) from error
        self._producer = Producer({"test.mock.num.brokers": 1}, logger=_logger)
        broker = next(iter(self._producer.list_topics(timeout=_DEADLINE_SECONDS).brokers.values()))
        self.bootstrap_servers = f"{broker.host}:{broker.port}"

    async def create_topics(self, names: Iterable[str]) -> None:
        """Create the topics, each with PARTITIONS partitions; existing topics stay as they are."""
        for name in names:
            await asyncio.to_thread(self._producer.list_topics, name, _DEADLINE_SECONDS)

    def close(self) -> None:
        """Stop the broker, whose topics are then lost. Safe to call twice."""
        self._producer.close()


class EmbeddedServers:
    """Broker, Redis and SQLite, started on entry and stopped on exit.

    Inside the `async with`: `kafka_bootstrap` (host:port), `redis_url`, `database_url`
    (sqlite:///, an absolute path) and `broker`. Entering raises ServerStartError.
    """

    def __init__(self, *, directory: Path | None = None) -> None:
        """The SQLite file is in `directory` (created if absent, kept), else in a temporary one."""
        self._directory = directory
        self._stack = contextlib.AsyncExitStack()
        self.kafka_bootstrap = ""
        self.redis_url = ""
        self.database_url = ""
        self.broker: EmbeddedBroker

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self.database_url = f"sqlite:///{self._open_directory(stack) / 'proximity.sqlite3'}"
            self.broker = await asyncio.to_thread(EmbeddedBroker)
            stack.callback(self.broker.close)
            self.kafka_bootstrap = self.broker.bootstrap_servers
            redis = EmbeddedRedis()
            stack.push_async_callback(redis.stop)
            await redis.start()
            self.redis_url = redis.url
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def _open_directory(self, stack: contextlib.AsyncExitStack) -> Path:
        if self._directory is None:
            scratch = tempfile.TemporaryDirectory(prefix="proximity-")
            return Path(stack.enter_context(scratch)).resolve()
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory.resolve()
