"""The fixtures. All are plain (not async); a server starts for the first test that uses it.

Kafka      kafka_bootstrap       real, shared by the run          (str, host:port)
           embedded_kafka        embedded, one a test             (str, host:port)
           broker                each test twice: embedded, real  (str); `broker_kind` says which
           topic_prefix          unique a test, such as "t1f0c9a2b."
Redis      redis_url             real, empty                      (str)
           redis_cluster_url     real cluster of one node, empty  (str, redis+cluster://)
           embedded_redis_url    what --embedded brings, empty    (str)
           any_redis_url         each test twice: embedded (an older one), cluster
SQL        postgres_url          real, an empty database a test   (str, postgresql://)
           sqlite_url            a file a test                    (str, sqlite:///)
           database_url          each test twice: sqlite, postgres
Handles    redis_server, redis_cluster_server, postgres_server, kafka_server: shared by the run
           own_redis, own_postgres, own_kafka: the test's own, for faults;
           .start() .stop() .kill() .running .port, and .url, .admin_url or .bootstrap_servers
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from engine.cli.local_servers import EmbeddedBroker, bundled_redis_server
from tests.servers.embedded_broker import join_at_once
from tests.servers.handles import DATABASE, KAFKA, REDIS
from tests.servers.kafka.jars import jars_directory
from tests.servers.kafka.server import KafkaServer
from tests.servers.missing import ServerMissingError, report_left_out, skipping
from tests.servers.postgres import PostgresServer, create_database, drop_database
from tests.servers.process import started
from tests.servers.redis import RedisClusterServer, RedisServer

_REAL_KAFKA_FIXTURES = {"kafka_bootstrap", "kafka_server", "own_kafka", "broker"}


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    if named := os.environ.get(REDIS):
        with Redis.from_url(named, socket_timeout=5.0) as client:
            client.flushall()
        return named
    return _emptied(request.getfixturevalue("redis_server"))


@pytest.fixture
def redis_cluster_url(redis_cluster_server: RedisClusterServer) -> str:
    return _emptied(redis_cluster_server)


@pytest.fixture(scope="session")
def _embedded_redis_server() -> Iterator[RedisServer]:
    def make(directory: Path, port: int) -> RedisServer:
        return RedisServer(directory, port, executable=bundled_redis_server())

    with skipping("Redis", instead=REDIS), started(make) as server:
        yield server


@pytest.fixture
def embedded_redis_url(_embedded_redis_server: RedisServer) -> str:
    return _emptied(_embedded_redis_server)


@pytest.fixture(params=["embedded_redis", "redis_cluster"])
def any_redis_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def _emptied(server: RedisServer) -> str:
    if not server.running:
        # The test before stopped it and did not say so.
        server.start()
    server.flush()
    return server.url


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    admin = os.environ.get(DATABASE) or _admin_url(request.getfixturevalue("postgres_server"))
    url = create_database(admin)
    yield url
    drop_database(admin, url)


def _admin_url(server: PostgresServer) -> str:
    if not server.running:
        server.start()
    return server.admin_url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'test.sqlite3'}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def kafka_bootstrap(request: pytest.FixtureRequest) -> str:
    if named := os.environ.get(KAFKA):
        return named
    server: KafkaServer = request.getfixturevalue("kafka_server")
    if not server.running:
        server.start()
    return server.bootstrap_servers


@pytest.fixture
def embedded_kafka() -> Iterator[str]:
    broker = EmbeddedBroker()
    join_at_once(broker)
    yield broker.bootstrap_servers
    broker.close()


@pytest.fixture(params=["embedded", "real"])
def broker_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(broker_kind: str, request: pytest.FixtureRequest) -> str:
    name = "embedded_kafka" if broker_kind == "embedded" else "kafka_bootstrap"
    return str(request.getfixturevalue(name))


@pytest.fixture
def topic_prefix() -> str:
    return f"t{secrets.token_hex(4)}."


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch Kafka's jars before the first test's own time limit starts to run."""
    wanted = any(
        _REAL_KAFKA_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        for item in session.items
    )
    if wanted and not session.config.option.collectonly and KAFKA not in os.environ:
        # A missing server is reported by the tests that need it.
        with contextlib.suppress(ServerMissingError):
            jars_directory()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    report_left_out(terminalreporter)
