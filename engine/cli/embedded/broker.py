"""The embedded Kafka broker: librdkafka's, in this process, in memory, on a free loopback port.

It speaks Kafka's protocol (groups, commits, idempotent producing, transactions), with limits that
cannot be set: a topic is made by its first mention and has 4 partitions; a partition keeps its
last 5 MB; a group holds one aiokafka member, whose first join takes 3 seconds and each later one
the member's session timeout less a second. (A session timeout under 4 seconds never joins.)
"""

import asyncio
import logging
from collections.abc import Iterable

from engine.cli.embedded.child import ServerStartError

PARTITIONS = 4
_DEADLINE_SECONDS = 10.0

# Without a logger librdkafka writes to standard error, into a live display.
_logger = logging.getLogger("engine.cli.embedded.broker")


class EmbeddedBroker:
    """A single Kafka broker that lives as long as this object is open.

    Close it after its clients: they would try to reconnect otherwise.
    """

    def __init__(self) -> None:
        """Open the broker. Raises ServerStartError when confluent-kafka is not installed."""
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
        """Make the topics, each with PARTITIONS partitions; those that exist are left alone."""
        for name in names:
            await asyncio.to_thread(self._producer.list_topics, name, _DEADLINE_SECONDS)

    def close(self) -> None:
        """Stop the broker and forget its topics. Safe to call twice."""
        self._producer.close()
