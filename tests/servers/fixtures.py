"""The fixtures. A server starts for the first test that uses it.

Kafka      kafka_bootstrap       real, shared by the run          (str, host:port)
           embedded_kafka        embedded, one a test             (str, host:port)
           broker                each test twice: embedded, real  (str)
           topic_prefix          unique a test, such as "t1f0c9a2b."
           admin                 creates and deletes topics of the real one
Redis      redis_url             real, empty                      (str)
           redis_cluster_url     real cluster of one node, empty  (str, redis+cluster://)
           embedded_redis_url    what --embedded brings, empty    (str)
           any_redis_url         each test twice: embedded (an older one), cluster
SQL        postgres_url          real, an empty database a test   (str, postgresql://)
           sqlite_url            a file a test                    (str, sqlite:///)
           empty_database_url    each test twice: sqlite, postgres
           database_url          the same, for `make_schema` (tests/servers/schema.py)
           database              that one, opened, with the schema
Command    rig                   runs `proximity`
Handles    own_redis (the test's), own_postgres, own_kafka (the worker's), for faults;
           .start() .stop() .kill() .port, and .url, .admin_url or .bootstrap_servers
"""

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from redis import Redis

from catalog.database import Database
from engine.cli.local_servers import bundled_redis_server, embedded_broker
from tests.servers.kafka.jars import jars_directory
from tests.servers.kafka.server import KafkaServer
from tests.servers.missing import DATABASE, KAFKA, REDIS, ServerMissingError, skipping
from tests.servers.postgres import PostgresServer, create_database, drop_database, new_url
from tests.servers.process import ServerProcess, started
from tests.servers.proximity import Rig
from tests.servers.redis import RedisClusterServer, RedisServer
from tests.servers.schema import migrated
from tests.system.topics import administration


def _server(kind: type[ServerProcess], name: str, instead: str, **options: Any) -> Any:
    """A fixture that starts such a server, and kills it at the end of its scope."""

    def server() -> Iterator[ServerProcess]:
        with skipping(name, instead=instead), started(kind) as running:
            yield running

    return pytest.fixture(**options)(server)


_redis_server = _server(RedisServer, "Redis", REDIS, scope="session")
_redis_cluster_server = _server(RedisClusterServer, "Redis", REDIS, scope="session")
_postgres_server = _server(PostgresServer, "PostgreSQL", DATABASE, scope="session")
_kafka_server = _server(KafkaServer, "Apache Kafka", KAFKA, scope="session")
own_redis = _server(RedisServer, "Redis", REDIS)


@pytest.fixture
def own_postgres(_postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    yield _postgres_server
    _postgres_server.start()


@pytest.fixture
def own_kafka(_kafka_server: KafkaServer) -> Iterator[KafkaServer]:
    yield _kafka_server
    _kafka_server.start()


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    if named := os.environ.get(REDIS):
        with Redis.from_url(named, socket_timeout=5.0) as client:
            client.flushall()
        return named
    return _emptied(request.getfixturevalue("_redis_server"))


@pytest.fixture
def redis_cluster_url(_redis_cluster_server: RedisClusterServer) -> str:
    return _emptied(_redis_cluster_server)


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
    server.flush()
    return server.url


def _database(make: Callable[[str], str]) -> Any:
    """A fixture that makes such a database, or only names it, and drops it."""

    def database(request: pytest.FixtureRequest) -> Iterator[str]:
        admin = os.environ.get(DATABASE) or request.getfixturevalue("_postgres_server").admin_url
        url = make(admin)
        yield url
        drop_database(admin, url)

    return pytest.fixture(database)


postgres_url = _database(create_database)
# A database that `make_schema` copies is not made before: that takes as long again.
_new_postgres_url = _database(create_database if DATABASE in os.environ else new_url)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'test.sqlite3'}"


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    name = {"sqlite": "sqlite_url", "postgres": "_new_postgres_url"}[request.param]
    return str(request.getfixturevalue(name))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with migrated(database_url) as opened:
        yield opened


@pytest.fixture
def kafka_bootstrap(request: pytest.FixtureRequest) -> str:
    named = os.environ.get(KAFKA)
    return named or str(request.getfixturevalue("_kafka_server").bootstrap_servers)


@pytest.fixture
def embedded_kafka() -> Iterator[str]:
    with embedded_broker() as bootstrap:
        yield bootstrap


@pytest.fixture(params=["embedded_kafka", "kafka_bootstrap"])
def broker(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
async def admin(kafka_bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    async with administration(kafka_bootstrap) as client:
        yield client


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Runs `proximity`, on its defaults until the test adds settings."""
    made = Rig(tmp_path, {})
    yield made
    made.close()


@pytest.fixture
def topic_prefix() -> str:
    return f"t{secrets.token_hex(4)}."


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """The longest files come first, so that no worker is left with one at the end; and Kafka's jars
    are fetched before the first test's own time limit starts to run."""
    items.sort(key=lambda item: "tests/system/" not in str(item.path))
    fixtures = {name for item in items for name in getattr(item, "fixturenames", ())}
    named = KAFKA in os.environ or session.config.option.collectonly
    if not named and fixtures & {"kafka_bootstrap", "own_kafka", "broker"}:
        # A missing server is reported by the tests that need it.
        with contextlib.suppress(ServerMissingError):
            jars_directory()


def pytest_xdist_auto_num_workers() -> int:
    """Servers that the environment names are shared, and tests empty them: one at a time then."""
    return 0 if {KAFKA, REDIS, DATABASE} & os.environ.keys() else os.cpu_count() or 1
