"""`proximity check` on real servers: what is right, and each thing that is not."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there by name
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr
from redis import Redis

from catalog.migrate import migrate
from engine.checking.clock import check_clock
from engine.checking.finding import State
from engine.checking.process import check_process
from engine.checking.redis import check_redis
from engine.checking.sql import check_sql
from engine.kafka.topics import Topics
from engine.settings import Settings, load_settings
from tests.integration.commands.proximity import Proximity
from tests.servers.handles import KAFKA
from tests.servers.kafka.secured import LIMITED, PASSWORD, SecuredKafkaServer
from tests.servers.missing import skipping
from tests.servers.postgres import execute
from tests.servers.process import started


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def ports() -> dict[str, str]:
    names = ("METRICS_PORT", "API_PORT", "API_METRICS_PORT")
    return {f"PROXIMITY_{name}": free_port() for name in names} | {
        "PROXIMITY_METRICS_HOST": "127.0.0.1"
    }


def looked(done: Any) -> dict[str, tuple[str, str]]:
    """State and words of each finding."""
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {f"{row['part']} {row['what']}": (row["state"], row["told"]) for row in rows}


async def test_all_is_well(
    tmp_path: Path, kafka_bootstrap: str, redis_url: str, postgres_url: str, topic_prefix: str
) -> None:
    await migrate(postgres_url)
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    names = [name for name in Topics.named(topic_prefix).all() if "dead" not in name]
    for made in admin.create_topics([NewTopic(name, 3, 1) for name in names]).values():
        made.result(30)
    servers = {"PROXIMITY_REDIS_URL": redis_url, "PROXIMITY_DATABASE_URL": postgres_url}
    more = servers | ports() | {"PROXIMITY_SECRET_KEY": "a passphrase of the test"}
    proximity = Proximity(tmp_path, kafka_bootstrap, topic_prefix, **more)
    done = proximity("check", "--json")
    found = looked(done)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert not [each for each, (state, _) in found.items() if state == "bad"]
    assert found["Kafka reachable"] == ("ok", f"{kafka_bootstrap}, 1 broker")
    detections = found[f"Kafka topic {topic_prefix}detections"]
    assert detections[1].startswith("3 partitions")
    missing = found[f"Kafka topic {topic_prefix}dead-letters"]
    assert missing == ("warning", "missing: `run` creates it with 6 partitions")
    for right in ("Redis version", "Redis clock", "SQL migrations", "SQL rights", "SQL clock"):
        assert found[right][0] == "ok", found
    # It is looked at, and not made.
    assert topic_prefix + "dead-letters" not in admin.list_topics(timeout=10).topics
    table = proximity("check")
    assert table.stdout.splitlines()[0].split() == ["state", "part", "what", "found"]
    assert len(table.stdout.splitlines()) == len(found) + 1


def test_servers_that_are_not_there(tmp_path: Path) -> None:
    nowhere = {
        "PROXIMITY_REDIS_URL": "redis://127.0.0.1:1",
        "PROXIMITY_DATABASE_URL": "postgresql://u:hunter2@127.0.0.1:1/x",
    }
    done = Proximity(tmp_path, "127.0.0.1:1", "t.", **nowhere, **ports())("check", "--json")
    found = looked(done)
    assert done.returncode == 1
    assert done.stderr == f"proximity: 3 of {len(found)} checks failed\n"
    for server in ("Kafka", "Redis", "SQL"):
        assert found[f"{server} reachable"][0] == "bad"
    assert "refuses connections" in found["Kafka reachable"][1]
    assert "hunter2" not in done.stdout


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafkaServer]:
    with skipping("Apache Kafka", instead=KAFKA), started(SecuredKafkaServer) as server:
        yield server


def allow(admin: AdminClient, topic: str, *operations: AclOperation) -> None:
    pattern = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    rules = [
        AclBinding(*pattern, f"User:{LIMITED}", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    for made in admin.create_acls(rules).values():
        made.result(30)


def test_what_a_login_may_not_do(
    tmp_path: Path, secured: SecuredKafkaServer, topic_prefix: str
) -> None:
    admin = AdminClient({"bootstrap.servers": secured.addresses["PLAINTEXT"]})
    topics = Topics.named(topic_prefix)
    names = [name for name in topics.all() if name != topics.authentications]
    for made in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        made.result(30)
    allow(admin, topics.detections, AclOperation.READ)
    allow(admin, topics.notifications, AclOperation.READ)
    allow(admin, topics.connector_calls, AclOperation.READ, AclOperation.WRITE)
    allow(admin, topics.authentications, AclOperation.DESCRIBE)
    login = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_USERNAME": LIMITED}
    login |= {"SASL_PASSWORD": PASSWORD}
    more = {f"PROXIMITY_KAFKA_{name}": value for name, value in login.items()}
    where = secured.addresses["SASL_PLAINTEXT"]
    found = looked(Proximity(tmp_path, where, topic_prefix, **more, **ports())("check", "--json"))
    of = {name: found[f"Kafka topic {name}"] for name in topics.all()}
    assert of[topics.detections] == ("ok", "2 partitions, read")
    assert of[topics.notifications] == ("bad", "2 partitions; this login may not write")
    assert of[topics.connector_calls] == ("ok", "2 partitions, read and write")
    assert of[topics.dead_letters] == ("bad", "this login may not see it")
    state, told = of[topics.authentications]
    assert (state, told.partition(",")[0]) == ("bad", "missing")


def settings(**changes: Any) -> Settings:
    return load_settings(metrics_port=0, api_port=0, api_metrics_port=0, **changes)


async def test_a_redis_that_loses_what_it_has(redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        client.config_set("maxmemory", "200mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found = {each.what: each for each in await check_redis(settings(redis_url=redis_url))}
        finally:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "0")
    assert found["memory"].state is State.BAD
    assert "set noeviction" in found["memory"].told
    found = {each.what: each for each in await check_redis(settings(redis_url=redis_url))}
    assert found["memory"].state is State.OK


async def test_a_database_that_is_not_ready(postgres_url: str, sqlite_url: str) -> None:
    for url in (postgres_url, sqlite_url):
        found = {each.what: each for each in await check_sql(settings(database_url=url))}
        assert found["migrations"].state is State.BAD
        assert found["migrations"].told.endswith("run `proximity migrate`")
    await migrate(postgres_url)
    role = f"reader_{os.getpid()}"
    execute(postgres_url, f"CREATE ROLE {role} LOGIN")
    execute(postgres_url, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    as_reader = postgres_url.replace("proximity@", f"{role}@")
    found = {each.what: each for each in await check_sql(settings(database_url=as_reader))}
    execute(postgres_url, f"DROP OWNED BY {role}")
    execute(postgres_url, f"DROP ROLE {role}")
    assert found["migrations"].state is State.OK
    assert found["rights"].state is State.BAD
    assert "lacking: INSERT on " in found["rights"].told


async def test_what_the_process_needs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        given = settings().model_copy(
            update={
                "api_port": number,
                "secret_key": SecretStr("for trying out only"),
                "metrics_host": "127.0.0.1",
            }
        )
        found = {each.what: each for each in await check_process(given)}
    assert found["API_PORT"].state is State.BAD
    assert "is the engine running already?" in found["API_PORT"].told
    assert found["METRICS_PORT"].state is State.OK
    assert found["SECRET_KEY"].state is State.WARNING


@pytest.mark.parametrize(
    ("theirs", "state"),
    [(100.5, State.OK), (97.0, State.WARNING), (104.0, State.WARNING), (60.0, State.BAD)],
)
def test_clocks(theirs: float, state: State) -> None:
    found = check_clock("SQL", theirs, 100.0, 101.0)
    assert found.state is state
    if theirs < 99:
        assert "behind this machine's" in found.told
