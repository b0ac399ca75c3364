"""Fixtures that hand out the server processes themselves: one a run to share, or a test's own."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.servers.kafka.server import KafkaServer
from tests.servers.missing import skipping
from tests.servers.postgres import PostgresServer
from tests.servers.process import started
from tests.servers.redis import RedisClusterServer, RedisServer

KAFKA = "PROXIMITY_TEST_KAFKA"
REDIS = "PROXIMITY_TEST_REDIS"
DATABASE = "PROXIMITY_TEST_DATABASE"


@contextlib.contextmanager
def _redis() -> Iterator[RedisServer]:
    with skipping("Redis", instead=REDIS), started(RedisServer) as server:
        yield server


@contextlib.contextmanager
def _redis_cluster() -> Iterator[RedisClusterServer]:
    with skipping("Redis", instead=REDIS), started(RedisClusterServer) as server:
        yield server


@contextlib.contextmanager
def _postgres() -> Iterator[PostgresServer]:
    with skipping("PostgreSQL", instead=DATABASE), started(PostgresServer) as server:
        yield server


@contextlib.contextmanager
def _kafka() -> Iterator[KafkaServer]:
    with skipping("Apache Kafka", instead=KAFKA), started(KafkaServer) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with _redis() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster_server() -> Iterator[RedisClusterServer]:
    with _redis_cluster() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with _postgres() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    with _kafka() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    with _redis() as server:
        yield server


@pytest.fixture
def own_redis_cluster() -> Iterator[RedisClusterServer]:
    with _redis_cluster() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    with _postgres() as server:
        yield server


@pytest.fixture
def own_kafka() -> Iterator[KafkaServer]:
    with _kafka() as server:
        yield server
