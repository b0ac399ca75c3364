"""Fixtures that hand out the server processes themselves: one a run to share, or a test's own."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.kafka.server import KafkaServer
from tests.servers.missing import skipping
from tests.servers.postgres import PostgresServer
from tests.servers.process import ServerProcess, started
from tests.servers.redis import RedisClusterServer, RedisServer

KAFKA = "PROXIMITY_TEST_KAFKA"
REDIS = "PROXIMITY_TEST_REDIS"
DATABASE = "PROXIMITY_TEST_DATABASE"


def _of(kind: type[ServerProcess], name: str, instead: str, **options: Any) -> Any:
    """A fixture that starts such a server, and kills it at the end of its scope."""

    def server() -> Iterator[ServerProcess]:
        with skipping(name, instead=instead), started(kind) as running:
            yield running

    return pytest.fixture(**options)(server)


redis_server = _of(RedisServer, "Redis", REDIS, scope="session")
redis_cluster_server = _of(RedisClusterServer, "Redis", REDIS, scope="session")
postgres_server = _of(PostgresServer, "PostgreSQL", DATABASE, scope="session")
kafka_server = _of(KafkaServer, "Apache Kafka", KAFKA, scope="session")
own_redis = _of(RedisServer, "Redis", REDIS)
own_postgres = _of(PostgresServer, "PostgreSQL", DATABASE)
own_kafka = _of(KafkaServer, "Apache Kafka", KAFKA)
